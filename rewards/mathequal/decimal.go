package mathequal

import (
	"math/big"
	"strings"
)

// number reads 12, 1.5, .5, 1e-3, with groups of thousands where the mode says so, and 0.\overline{3}.
func (l *lexer) number() error {
	start := l.pos
	l.digits()
	text := l.in[start:l.pos]
	groups := 0
	for len(text) <= 3 && l.depth == 0 || groups > 0 || bracedComma(l.in[l.pos:]) {
		n, soft := groupAfter(l.in[l.pos:])
		if n == 0 || groups == 0 && len(text) > 3 {
			break
		}
		if soft {
			l.differs = true
			if !l.thousands {
				break
			}
		}
		l.pos += n
		text += l.in[l.pos-3 : l.pos]
		groups++
	}
	whole := true
	if l.pos < len(l.in) && l.in[l.pos] == '.' && (l.pos+1 == len(l.in) || l.in[l.pos+1] != '.') {
		from := l.pos
		l.pos++
		l.digits()
		text += l.in[from:l.pos]
		whole = l.pos-from == 1
	}
	if n := exponentAfter(l.in[l.pos:]); n > 0 {
		text += l.in[l.pos : l.pos+n]
		l.pos += n
		whole = false
	}
	v, ok := decimal(text)
	if !ok {
		return errLex
	}
	if rest, ok := strings.CutPrefix(l.in[l.pos:], `\overline{`); ok && strings.Contains(text, ".") {
		end := strings.IndexByte(rest, '}')
		if end < 1 || end > 50 || strings.Trim(rest[:end], "0123456789") != "" {
			return errLex
		}
		l.pos += len(`\overline{`) + end + 1
		v = repeating(v, text, rest[:end])
		whole = false
	}
	if whole && l.indexes(start) {
		l.op("_")
	}
	l.out = append(l.out, token{kind: tokNumber, text: text, value: v, whole: whole, space: l.space})
	l.space = false
	return nil
}

func (l *lexer) digits() {
	for l.pos < len(l.in) && isDigit(l.in[l.pos]) {
		l.pos++
	}
}

func bracedComma(s string) bool { return strings.HasPrefix(s, "{,}") }

// groupAfter returns the length of a separator with three digits after it, and whether the separator may mean something else.
func groupAfter(s string) (n int, soft bool) {
	for _, sep := range []string{"{,}", `,\! `, `,\!`, `\,`, ",", " "} {
		rest, ok := strings.CutPrefix(s, sep)
		if !ok {
			continue
		}
		if len(rest) < 3 || !isDigit(rest[0]) || !isDigit(rest[1]) || !isDigit(rest[2]) || len(rest) > 3 && (isDigit(rest[3]) || rest[3] == '/') {
			return 0, false
		}
		return len(sep) + 3, sep == "," || sep == " "
	}
	return 0, false
}

// exponentAfter is the length of e-3 or E10; 2e is twice Euler's number.
func exponentAfter(s string) int {
	if len(s) < 2 || s[0] != 'e' && s[0] != 'E' {
		return 0
	}
	i := 1
	if s[i] == '-' || s[i] == '+' {
		i++
	}
	start := i
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	if i == start || i-start > 4 || i < len(s) && isLetter(s[i]) {
		return 0
	}
	return i
}

func decimal(text string) (*big.Rat, bool) {
	if len(text) > maxDigits {
		return nil, false
	}
	mantissa, exponent := text, ""
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		mantissa, exponent = text[:i], text[i+1:]
	}
	v, ok := new(big.Rat).SetString(strings.TrimSuffix("0"+mantissa, "."))
	if !ok || exponent == "" {
		return v, ok
	}
	e, ok := new(big.Int).SetString(exponent, 10)
	if !ok || !e.IsInt64() || e.Int64() > maxDigits || e.Int64() < -maxDigits {
		return nil, false
	}
	scale := new(big.Int).Exp(big.NewInt(10), new(big.Int).Abs(e), nil)
	if e.Sign() < 0 {
		return v.Quo(v, new(big.Rat).SetInt(scale)), true
	}
	return v.Mul(v, new(big.Rat).SetInt(scale)), true
}

// repeating adds the repeated digits to a decimal: 0.1 and 6 give 1/6.
func repeating(v *big.Rat, text, digits string) *big.Rat {
	after := len(text) - strings.IndexByte(text, '.') - 1
	period, _ := new(big.Int).SetString(digits, 10)
	nines := new(big.Int).Sub(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(len(digits))), nil), big.NewInt(1))
	nines.Mul(nines, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(after)), nil))
	return v.Add(v, new(big.Rat).SetFrac(period, nines))
}
