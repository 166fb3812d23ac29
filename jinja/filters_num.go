package jinja

import (
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

func absFilter(_ *machine, v any, a arguments) (any, error) {
	if err := a.none("abs"); err != nil {
		return nil, err
	}
	if u, ok := v.(*undefined); ok {
		return nil, typeError("bad operand type for abs(): '%s'", typeName(u))
	}
	n, ok := number(v)
	if !ok {
		return nil, typeError("bad operand type for abs(): '%s'", typeName(v))
	}
	if f, ok := n.(float64); ok {
		return math.Abs(f), nil
	}
	return normInt(new(big.Int).Abs(asBig(n))), nil
}

// parseInt is Python's int(s, base). ok is false where it raises ValueError.
func parseInt(s string, base int) (any, bool) {
	s = strip(s, "", true, true, true)
	if !isASCII(s) {
		return nil, false
	}
	digits := strings.TrimPrefix(strings.TrimPrefix(s, "+"), "-")
	if digits == s[min(1, len(s)):] || digits == s {
		if strings.HasPrefix(digits, "+") || strings.HasPrefix(digits, "-") || digits == "" {
			return nil, false
		}
	} else {
		return nil, false
	}
	if strings.HasPrefix(digits, "_") || strings.HasSuffix(digits, "_") || strings.Contains(digits, "__") {
		return nil, false
	}
	if len(digits) > 1 && digits[0] == '0' {
		if b := map[byte]int{'x': 16, 'X': 16, 'o': 8, 'O': 8, 'b': 2, 'B': 2}[digits[1]]; b != 0 && (base == b || base == 0) {
			base, digits = b, strings.TrimPrefix(digits[2:], "_")
		} else if base == 0 && strings.Trim(digits, "0_") != "" {
			return nil, false
		}
	}
	if base == 0 {
		base = 10
	}
	digits = strings.ReplaceAll(digits, "_", "")
	if len(digits) > maxDigits || strings.ContainsAny(digits, "+-") {
		return nil, false
	}
	n, ok := new(big.Int).SetString(digits, base)
	if !ok {
		return nil, false
	}
	if strings.HasPrefix(s, "-") {
		n.Neg(n)
	}
	return normInt(n), true
}

var floatText = regexp.MustCompile(`^[+-]?(?:(?:\d+(?:_\d+)*)?\.?(?:\d+(?:_\d+)*)?(?:[eE][+-]?\d+(?:_\d+)*)?|(?i:inf|infinity|nan))$`)

// parseFloat is Python's float(s).
func parseFloat(s string) (float64, bool) {
	s = strip(s, "", true, true, true)
	if !floatText.MatchString(s) {
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	return f, err == nil || math.IsInf(f, 0)
}

// asciiDigits refuses digits of other scripts, which Python reads as numbers.
func asciiDigits(v any) error {
	if s, ok := text(v); ok && strings.IndexFunc(s, func(r rune) bool { return r >= 0x80 && unicode.IsDigit(r) }) >= 0 {
		return unsupported("a number in the digits of another script")
	}
	return nil
}

func intFilter(_ *machine, v any, a arguments) (any, error) {
	args, err := a.bind("do_int", 0, "default", "base")
	if err != nil {
		return nil, err
	}
	base := 10
	if args[1] != missing {
		if base, err = intArg("int", args[1]); err != nil {
			return nil, err
		}
		if base != 0 && (base < 2 || base > 36) {
			return nil, unsupported("int in base %d", base)
		}
	}
	fallback := any(0)
	if args[0] != missing {
		fallback = args[0]
	}
	if err := asciiDigits(v); err != nil {
		return nil, err
	}
	if s, ok := text(v); ok {
		if n, ok := parseInt(s, base); ok {
			return n, nil
		}
		f, ok := parseFloat(s)
		if !ok {
			return fallback, nil
		}
		v = f
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	n, ok := number(v)
	if !ok {
		return fallback, nil
	}
	if f, ok := n.(float64); ok {
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return fallback, nil
		}
		whole, _ := big.NewFloat(math.Trunc(f)).Int(nil)
		return normInt(whole), nil
	}
	return n, nil
}

func floatFilter(_ *machine, v any, a arguments) (any, error) {
	args, err := a.bind("do_float", 0, "default")
	if err != nil {
		return nil, err
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	if err := asciiDigits(v); err != nil {
		return nil, err
	}
	if s, ok := text(v); ok {
		if f, ok := parseFloat(s); ok {
			return f, nil
		}
	} else if n, ok := number(v); ok {
		return toFloat(n)
	}
	if args[0] == missing {
		return 0.0, nil
	}
	return args[0], nil
}

func roundFilter(_ *machine, v any, a arguments) (any, error) {
	args, err := a.bind("do_round", 0, "precision", "method")
	if err != nil {
		return nil, err
	}
	digits := 0
	if args[0] != missing {
		if digits, err = intArg("round", args[0]); err != nil {
			return nil, err
		}
	}
	method := "common"
	if args[1] != missing {
		method, _ = text(args[1])
	}
	if method != "common" && method != "ceil" && method != "floor" {
		return nil, raise("FilterArgumentError", "method must be common, ceil or floor")
	}
	if u, ok := v.(*undefined); ok && method != "common" {
		return nil, u.fail()
	}
	n, ok := number(v)
	if !ok {
		return nil, typeError("type %s doesn't define __round__ method", typeName(v))
	}
	f, isFloat := n.(float64)
	if method == "common" {
		switch {
		case !isFloat && digits >= 0:
			return n, nil
		case !isFloat || digits < 0 || digits > 300:
			return nil, unsupported("round to %d digits", digits)
		case math.IsNaN(f) || math.IsInf(f, 0):
			return f, nil
		}
		f, err = strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
		return f, err
	}
	if f, err = toFloat(n); err != nil {
		return nil, err
	}
	if digits < 0 || digits > 15 || math.Abs(f) > 1e15 {
		return nil, unsupported("round of this number")
	}
	scale := math.Pow10(digits)
	if method == "ceil" {
		return math.Ceil(f*scale) / scale, nil
	}
	return math.Floor(f*scale) / scale, nil
}
