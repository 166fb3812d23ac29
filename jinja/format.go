package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// printf is Python's format % values.
func printf(vm *machine, format string, values any) (any, error) {
	args, isTuple := values.(tuple)
	if !isTuple {
		args = tuple{values}
	}
	mapping, isMap := values.(*dict)
	used := 0
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		spec := printfSpec{precision: -1}
		var key string
		if i++; i < len(format) && format[i] == '(' {
			end := strings.IndexByte(format[i:], ')')
			if end < 0 {
				return nil, valueError("incomplete format key")
			}
			if !isMap {
				return nil, typeError("format requires a mapping")
			}
			key = format[i+1 : i+end]
			spec.keyed = true
			i += end + 1
		}
		i = spec.parse(format, i)
		if i >= len(format) {
			return nil, valueError("incomplete format")
		}
		if format[i] == '%' {
			b.WriteByte('%')
			continue
		}
		var v any
		switch {
		case spec.keyed:
			val, ok := mapping.str(key)
			if !ok {
				return nil, raise("KeyError", "%s", key)
			}
			v = val
		case used >= len(args):
			return nil, typeError("not enough arguments for format string")
		default:
			v = args[used]
			used++
		}
		s, err := spec.apply(format[i], v)
		if err != nil {
			return nil, err
		}
		if err := vm.charge(len(s)); err != nil {
			return nil, err
		}
		b.WriteString(s)
	}
	switch values.(type) {
	case *dict, *list, *undefined, span: // what has __getitem__ may stay unused
	default:
		if used < len(args) {
			return nil, typeError("not all arguments converted during string formatting")
		}
	}
	return vm.made(b.String(), nil)
}

type printfSpec struct {
	keyed, left, zero, plus, blank, alt bool
	width, precision                    int
}

func (p *printfSpec) parse(s string, i int) int {
	for ; i < len(s); i++ {
		switch s[i] {
		case '-':
			p.left = true
		case '0':
			p.zero = true
		case '+':
			p.plus = true
		case ' ':
			p.blank = true
		case '#':
			p.alt = true
		default:
			goto width
		}
	}
width:
	digits := func() int {
		n := 0
		for ; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
			n = clampInt(n*10 + int(s[i]-'0'))
		}
		return n
	}
	p.width = digits()
	if i < len(s) && s[i] == '.' {
		i++
		p.precision = digits()
	}
	return i
}

func (p *printfSpec) apply(verb byte, v any) (string, error) {
	if p.width > 1<<16 || p.precision > 1<<10 || p.alt {
		return "", unsupported("a format of this width or with #")
	}
	var s string
	var err error
	switch verb {
	case 's':
		s, err = str(v)
	case 'r':
		s, err = repr(v)
	case 'd', 'i', 'u', 'x', 'X', 'o':
		return p.integer(verb, v)
	case 'f', 'F', 'e', 'E', 'g', 'G':
		return p.float(verb, v)
	case 'c':
		c, ok := text(v)
		if !ok || utf8.RuneCountInString(c) != 1 {
			return "", unsupported("%%c of other than one character")
		}
		s = c
	default:
		return "", unsupported("the format %%%c", verb)
	}
	if err != nil {
		return "", err
	}
	if p.precision >= 0 && (verb == 's' || verb == 'r') {
		s = s[:runeOffset(s, p.precision)]
	}
	return p.pad("", s, false), nil
}

func (p *printfSpec) pad(sign, s string, zeros bool) string {
	n := p.width - utf8.RuneCountInString(sign+s)
	switch {
	case n <= 0:
		return sign + s
	case p.left:
		return sign + s + strings.Repeat(" ", n)
	case zeros && p.zero:
		return sign + strings.Repeat("0", n) + s
	}
	return strings.Repeat(" ", n) + sign + s
}

func (p *printfSpec) sign(negative bool) string {
	switch {
	case negative:
		return "-"
	case p.plus:
		return "+"
	case p.blank:
		return " "
	}
	return ""
}

func (p *printfSpec) integer(verb byte, v any) (string, error) {
	n, ok := number(v)
	f, isFloat := n.(float64)
	if isFloat && verb != 'x' && verb != 'X' && verb != 'o' && !math.IsNaN(f) && !math.IsInf(f, 0) {
		whole, _ := big.NewFloat(math.Trunc(f)).Int(nil)
		n, isFloat = normInt(whole), false
	}
	if !ok || isFloat {
		return "", typeError("%%%c format: a real number is required, not %s", verb, typeName(v))
	}
	base := map[byte]int{'x': 16, 'X': 16, 'o': 8}[verb]
	if base == 0 {
		base = 10
	}
	i := asBig(n)
	s := ""
	if base == 10 {
		var err error
		if s, err = decimal(new(big.Int).Abs(i)); err != nil {
			return "", err
		}
	} else {
		s = new(big.Int).Abs(i).Text(base)
	}
	if verb == 'X' {
		s = strings.ToUpper(s)
	}
	if p.precision > len(s) {
		s = strings.Repeat("0", p.precision-len(s)) + s
	}
	return p.pad(p.sign(i.Sign() < 0), s, true), nil
}

func (p *printfSpec) float(verb byte, v any) (string, error) {
	n, ok := number(v)
	if !ok {
		return "", typeError("must be real number, not %s", typeName(v))
	}
	f, err := toFloat(n)
	if err != nil {
		return "", err
	}
	precision := p.precision
	if precision < 0 {
		precision = 6
	}
	if math.IsNaN(f) || math.IsInf(f, 0) || verb == 'g' || verb == 'G' {
		return "", unsupported("the format %%%c of this number", verb)
	}
	return p.pad(p.sign(math.Signbit(f)), strconv.FormatFloat(math.Abs(f), verb|0x20, precision, 64), true), nil
}

// formatMethod is str.format with plain fields: {}, {0}, {name}, attributes and items of them; conversions and format
// specifications are refused.
func formatMethod(vm *machine, s string, a arguments) (any, error) {
	var b strings.Builder
	auto := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c == '{' || c == '}') && i+1 < len(s) && s[i+1] == c {
			b.WriteByte(c)
			i++
			continue
		}
		if c == '}' {
			return nil, valueError("Single '}' encountered in format string")
		}
		if c != '{' {
			b.WriteByte(c)
			continue
		}
		end := strings.IndexByte(s[i:], '}')
		if end < 0 {
			return nil, valueError("expected '}' before end of string")
		}
		field := s[i+1 : i+end]
		i += end
		if strings.ContainsAny(field, "!:{.[") {
			return nil, unsupported("the format field {%s}", field)
		}
		var v any
		n, err := strconv.Atoi(field)
		if field == "" {
			n, err = auto, nil
			auto++
		} else if err == nil && auto > 0 {
			return nil, valueError("cannot switch from automatic field numbering to manual field specification")
		}
		switch {
		case err == nil && n < len(a.pos):
			v = a.pos[n]
		case err == nil:
			return nil, raise("IndexError", "Replacement index %d out of range for positional args tuple", n)
		default:
			found := false
			for k, name := range a.keys {
				if name == field {
					v, found = a.vals[k], true
				}
			}
			if !found {
				return nil, raise("KeyError", "'%s'", field)
			}
		}
		t, err := str(v)
		if err != nil {
			return nil, err
		}
		if err := vm.charge(len(t)); err != nil {
			return nil, err
		}
		b.WriteString(t)
	}
	return vm.made(b.String(), nil)
}
