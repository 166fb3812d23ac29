package gpython

import (
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-python/gpython/py"

	"github.com/agentfly/agentfly/internal/wording"
)

const widest = 1 << 16 // characters of a formatted field

var percent = regexp.MustCompile(`%(?:\((\w+)\))?([-+ 0#]*)(\*|\d+)?(?:\.(\*|\d+))?([diusraxXofFeEgGc%])?`)

// formatPercent is format % values.
func formatPercent(format string, values py.Object) (string, error) {
	args, isTuple := values.(py.Tuple)
	if !isTuple {
		args = py.Tuple{values}
	}
	dict, isDict := values.(py.StringDict)
	used := 0
	take := func() (py.Object, error) {
		if used++; used > len(args) {
			return nil, py.ExceptionNewf(py.TypeError, "not enough arguments for format string")
		}
		return args[used-1], nil
	}
	var out strings.Builder
	last := 0
	for _, m := range percent.FindAllStringSubmatchIndex(format, -1) {
		out.WriteString(format[last:m[0]])
		last = m[1]
		part := func(i int) string {
			if m[2*i] < 0 {
				return ""
			}
			return format[m[2*i]:m[2*i+1]]
		}
		if part(5) == "%" {
			out.WriteByte('%')
			continue
		}
		switch {
		case part(5) == "" && m[1] == len(format):
			return "", py.ExceptionNewf(py.ValueError, "incomplete format")
		case part(5) == "":
			c, _ := utf8.DecodeRuneInString(format[m[1]:])
			return "", py.ExceptionNewf(py.ValueError, "unsupported format character '%c' (0x%x) at index %d", c, c, utf8.RuneCountInString(format[:m[1]]))
		case part(3) == "*" || part(4) == "*":
			return "", py.ExceptionNewf(py.ValueError, "unsupported format %s", strconv.Quote(format[m[0]:m[1]]))
		}
		var value py.Object
		var err error
		if key := part(1); key != "" {
			var ok bool
			if value, ok = dict[key]; !ok {
				return "", py.ExceptionNewf(py.KeyError, "%s", key)
			}
		} else if value, err = take(); err != nil {
			return "", err
		}
		s, err := spec(part(2), part(3), part(4), part(5)).apply(value)
		if err != nil {
			return "", err
		}
		out.WriteString(s)
	}
	out.WriteString(format[last:])
	if used < len(args) && !isDict {
		return "", py.ExceptionNewf(py.TypeError, "not all arguments converted during string formatting")
	}
	return out.String(), nil
}

// field says how a value is written.
type field struct {
	fill, align, sign string
	alternate, commas bool
	width, precision  int // precision -1: none
	kind              string
}

// spec reads flags, width and precision of a % format.
func spec(flags, width, precision, kind string) field {
	f := field{fill: " ", align: ">", precision: -1, kind: kind, alternate: strings.Contains(flags, "#")}
	if strings.Contains(flags, "0") && !strings.ContainsAny(kind, "sra") {
		f.fill, f.align = "0", "="
	}
	if strings.Contains(flags, "-") {
		f.fill, f.align = " ", "<"
	}
	for _, s := range []string{" ", "+"} {
		if strings.Contains(flags, s) {
			f.sign = s
		}
	}
	f.width, _ = strconv.Atoi(width)
	if precision != "" {
		f.precision, _ = strconv.Atoi(precision)
	}
	return f
}

var braceSpec = regexp.MustCompile(`^(?:(.)?([<>=^]))?([-+ ])?(#)?(0)?(\d+)?(,)?(?:\.(\d+))?([a-zA-Z%])?$`)

// formatBraces is format.format(…).
func formatBraces(format string, args py.Tuple, kwargs py.StringDict) (string, error) {
	var out strings.Builder
	auto := 0
	for format != "" {
		i := strings.IndexAny(format, "{}")
		if i < 0 {
			break
		}
		out.WriteString(format[:i])
		if strings.HasPrefix(format[i+1:], format[i:i+1]) {
			out.WriteByte(format[i])
			format = format[i+2:]
			continue
		}
		end := strings.IndexByte(format[i:], '}')
		if format[i] == '}' || end < 0 {
			return "", py.ExceptionNewf(py.ValueError, "Single '%c' encountered in format string", format[i])
		}
		inside := format[i+1 : i+end]
		format = format[i+end+1:]
		key, how, _ := strings.Cut(inside, ":")
		key, conversion, _ := strings.Cut(key, "!")
		if key == "" {
			key = strconv.Itoa(auto)
			auto++
		}
		value, ok := kwargs[key]
		if n, err := strconv.Atoi(key); err == nil {
			if n >= len(args) {
				return "", py.ExceptionNewf(py.IndexError, "Replacement index %d out of range for positional args tuple", n)
			}
			value, ok = args[n], true
		}
		if !ok {
			return "", py.ExceptionNewf(py.KeyError, "%s", key)
		}
		s, err := oneBrace(value, conversion, how)
		if err != nil {
			return "", err
		}
		out.WriteString(s)
	}
	out.WriteString(format)
	return out.String(), nil
}

func oneBrace(value py.Object, conversion, how string) (string, error) {
	if conversion == "r" {
		s, err := repr(value)
		if err != nil {
			return "", err
		}
		value = py.String(s)
	}
	m := braceSpec.FindStringSubmatch(how)
	if m == nil {
		return "", py.ExceptionNewf(py.ValueError, "Invalid format specifier '%s'", how)
	}
	f := field{fill: m[1], align: m[2], sign: m[3], alternate: m[4] != "", commas: m[7] != "", precision: -1, kind: m[9]}
	f.width, _ = strconv.Atoi(m[6])
	if m[8] != "" {
		f.precision, _ = strconv.Atoi(m[8])
	}
	if m[5] != "" && f.align == "" {
		f.fill, f.align = "0", "="
	}
	_, isText := value.(py.String)
	if f.align == "" {
		f.align = ">"
		if isText {
			f.align = "<"
		}
	}
	if f.fill == "" {
		f.fill = " "
	}
	_, isFloat := value.(py.Float)
	switch {
	case f.kind != "" && (isText && f.kind != "s" || isFloat && !strings.Contains("eEfFgG%", f.kind)):
		return "", py.ExceptionNewf(py.ValueError, "Unknown format code '%s' for object of type '%s'", f.kind, value.Type().Name)
	case f.kind == "" && isFloat && f.precision >= 0:
		f.kind = "short"
	case f.kind == "" && isText, f.kind == "" && f.sign == "" && !f.commas:
		f.kind = "s"
	case f.kind == "" && isFloat:
		f.kind = "r"
	case f.kind == "":
		f.kind = "d"
	}
	return f.apply(value)
}

// apply writes a value.
func (f field) apply(value py.Object) (s string, err error) {
	if f.width > widest || f.precision > widest {
		return "", py.ExceptionNewf(py.ValueError, "the width of a field is at most %d", widest)
	}
	switch f.kind {
	case "s":
		s, err = str(value)
	case "r", "a":
		s, err = repr(value)
	case "c":
		if n, ok := value.(py.Int); ok {
			value = py.String(rune(n))
		}
		s, err = str(value)
	case "d", "i", "u", "x", "X", "o", "b":
		s, err = f.integer(value)
	case "short":
		s = shortFloat(float64(value.(py.Float)), max(f.precision, 1))
	case "f", "F", "e", "E", "g", "G", "%":
		s, err = f.float(value)
	default:
		err = py.ExceptionNewf(py.ValueError, "Unknown format code '%s'", f.kind)
	}
	if err != nil {
		return "", err
	}
	if strings.Contains("sra", f.kind) {
		if r := []rune(s); f.precision >= 0 && len(r) > f.precision {
			s = string(r[:f.precision])
		}
		return pad(s, f.fill, strings.Replace(f.align, "=", ">", 1), f.width), nil
	}
	if f.commas {
		s = withCommas(s)
	}
	if f.sign != "" && !strings.HasPrefix(s, "-") && f.sign != "-" {
		s = f.sign + s
	}
	return pad(s, f.fill, f.align, f.width), nil
}

func (f field) integer(value py.Object) (string, error) {
	if x, ok := value.(py.Float); ok && strings.Contains("diu", f.kind) {
		var err error
		if value, err = x.M__int__(); err != nil {
			return "", err
		}
	}
	n, ok := py.ConvertToBigInt(value)
	if !ok {
		return "", py.ExceptionNewf(py.TypeError, "%%%s format: a real number is required, not %s", f.kind, value.Type().Name)
	}
	verb := map[string]string{"x": "%x", "X": "%X", "o": "%o", "b": "%b"}[f.kind]
	if verb == "" {
		verb = "%d"
	}
	if f.alternate && verb != "%d" {
		verb = strings.Replace(verb, "%", "%#", 1)
	}
	s := fmt.Sprintf(verb, (*big.Int)(n))
	if f.alternate && f.kind == "o" {
		s = strings.Replace(s, "0", "0o", 1)
	}
	return s, nil
}

func (f field) float(value py.Object) (string, error) {
	x, err := py.FloatAsFloat64(asNumber(value))
	if err != nil {
		return "", py.ExceptionNewf(py.TypeError, "must be real number, not %s", value.Type().Name)
	}
	precision := f.precision
	if precision < 0 {
		precision = 6
	}
	switch {
	case math.IsInf(x, 0) || math.IsNaN(x):
		return strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(x, 'f', -1, 64), "+")), nil
	case f.kind == "%":
		return strconv.FormatFloat(x*100, 'f', precision, 64) + "%", nil
	case f.kind == "g" || f.kind == "G":
		precision = max(precision, 1)
	}
	return fmt.Sprintf("%."+strconv.Itoa(precision)+f.kind, x), nil
}

// shortFloat is a float of so many digits that is still seen to be one: it has a point or an exponent.
func shortFloat(x float64, digits int) string {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return wording.PythonFloat(x)
	}
	s := strconv.FormatFloat(x, 'e', digits-1, 64)
	mantissa, power, _ := strings.Cut(s, "e")
	exponent, _ := strconv.Atoi(power)
	if exponent >= -4 && exponent+1 < digits {
		s = strconv.FormatFloat(x, 'f', digits-1-exponent, 64)
		s = strings.TrimRight(s, "0")
		if strings.HasSuffix(s, ".") {
			s += "0"
		}
		return s
	}
	if strings.Contains(mantissa, ".") {
		mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
	}
	return mantissa + "e" + power
}

// withCommas groups the digits before the point.
func withCommas(s string) string {
	start := len(s) - len(strings.TrimLeft(s, "-"))
	end := strings.IndexAny(s, ".e%")
	if end < 0 {
		end = len(s)
	}
	for i := end - 3; i > start; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// pad fills a text up to a width; "=" fills between sign and digits.
func pad(s, fill, align string, width int) string {
	missing := width - utf8.RuneCountInString(s)
	if missing <= 0 || missing > widest {
		return s
	}
	all := func(n int) string { return strings.Repeat(fill, n) }
	switch align {
	case "<":
		return s + all(missing)
	case "^":
		return all(missing/2) + s + all(missing-missing/2)
	case "=":
		digits := strings.TrimLeft(s, "+- ")
		return s[:len(s)-len(digits)] + all(missing) + digits
	}
	return all(missing) + s
}
