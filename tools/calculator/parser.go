package calculator

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"unicode/utf8"
)

type tokenKind int

const (
	end tokenKind = iota
	number
	operator
	opening
	closing
)

// parser computes while it reads: recursive descent with one token of look-ahead.
type parser struct {
	ctx  context.Context
	text string
	pos  int // of the byte after the current token

	kind  tokenKind
	start int      // of the current token
	op    string   // of an operator
	value *big.Rat // of a number
}

var operators = []struct{ text, op string }{
	{"**", "^"},
	{"//", "//"},
	{"+", "+"},
	{"-", "-"},
	{"*", "*"},
	{"/", "/"},
	{"%", "%"},
	{"^", "^"},
	{"x", "*"},
	{"X", "*"},
	{"×", "*"},
	{"·", "*"},
	{"÷", "/"},
	{"−", "-"},
	{"–", "-"},
}

// next reads a token.
func (p *parser) next() error {
	p.pos += len(p.text[p.pos:]) - len(strings.TrimLeft(p.text[p.pos:], " \t\r\n\u00a0\u2009\u202f"))
	p.start = p.pos
	rest := p.text[p.pos:]
	if rest == "" {
		p.kind = end
		return nil
	}
	switch c := rest[0]; {
	case c == '(':
		p.kind, p.pos = opening, p.pos+1
		return nil
	case c == ')':
		p.kind, p.pos = closing, p.pos+1
		return nil
	case c == '.' || isDigit(c):
		return p.number(rest)
	}
	for _, o := range operators {
		// An x that begins a word, as in "xy", is no operator.
		letter := isLetter(o.text[0]) && len(rest) > 1 && isLetter(rest[1])
		if strings.HasPrefix(rest, o.text) && !letter {
			p.kind, p.op, p.pos = operator, o.op, p.pos+len(o.text)
			return nil
		}
	}
	return p.unreadable(rest)
}

// unreadable explains a character that starts no token.
func (p *parser) unreadable(rest string) error {
	r, _ := utf8.DecodeRuneInString(rest)
	switch {
	case r == '=':
		return errors.New(`leave out "=": write only what is to be computed, such as 12 + 5`)
	case isLetter(rest[0]):
		n := 0
		for n < len(rest) && isLetter(rest[n]) {
			n++
		}
		return fmt.Errorf("cannot read %q: only numbers, + - * / // %% ^ and parentheses are allowed", clip(rest[:n]))
	default:
		return fmt.Errorf("cannot read %q: only numbers, + - * / // %% ^ and parentheses are allowed", string(r))
	}
}

// number reads digits with a decimal point and with commas between groups of three.
func (p *parser) number(rest string) error {
	n := 0
	for n < len(rest) && isDigit(rest[n]) {
		n++
	}
	if strings.HasPrefix(rest, "0x") || strings.HasPrefix(rest, "0X") { // no product: it would be 0 without a word
		m := 2
		for m < len(rest) && isDigit(rest[m]) {
			m++
		}
		if m > 2 {
			return fmt.Errorf("cannot read %q: numbers are decimal; write a product with *, as in 0 * %s", clip(rest[:m]), clip(rest[2:m]))
		}
	}
	whole, commas := rest[:n], n
	for commas < len(rest) && rest[commas] == ',' {
		if whole != "" && whole[0] == '0' { // 0,5 is a half in much of the world
			return fmt.Errorf("cannot read the comma after %q: write a decimal point, as in 0.5", clip(rest[:commas]))
		}
		group := rest[commas+1:]
		digits := 0
		for digits < len(group) && isDigit(group[digits]) {
			digits++
		}
		if n == 0 || n > 3 || digits != 3 {
			return fmt.Errorf("cannot read the comma after %q: a comma only separates groups of three digits, as in 1,234", clip(rest[:commas]))
		}
		whole += group[:3]
		commas += 4
	}
	n = commas
	fraction := ""
	if n < len(rest) && rest[n] == '.' {
		m := n + 1
		for m < len(rest) && isDigit(rest[m]) {
			m++
		}
		fraction, n = rest[n+1:m], m
		if fraction == "" && whole == "" {
			return errors.New(`"." is not a number; write one such as 0.5`)
		}
	}
	v, ok := new(big.Int).SetString("0"+whole+fraction, 10)
	if !ok {
		return fmt.Errorf("cannot read the number %q", clip(rest[:n]))
	}
	p.value = new(big.Rat).SetFrac(v, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(len(fraction))), nil))
	p.kind, p.pos = number, p.pos+n
	return check(p.value)
}

func (p *parser) expression(depth int) (*big.Rat, error) {
	left, err := p.term(depth)
	for err == nil && p.kind == operator && (p.op == "+" || p.op == "-") {
		op := p.op
		if err = p.next(); err != nil {
			break
		}
		var right *big.Rat
		if right, err = p.term(depth); err != nil {
			break
		}
		left, err = p.apply(op, left, right)
	}
	return left, err
}

func (p *parser) term(depth int) (*big.Rat, error) {
	left, err := p.unary(depth)
	for err == nil && p.kind == operator && (p.op == "*" || p.op == "/" || p.op == "//" || p.op == "%") {
		op := p.op
		if err = p.next(); err != nil {
			break
		}
		var right *big.Rat
		if right, err = p.unary(depth); err != nil {
			break
		}
		left, err = p.apply(op, left, right)
	}
	return left, err
}

func (p *parser) unary(depth int) (*big.Rat, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("the expression is nested deeper than %d levels", maxDepth)
	}
	if p.kind == operator && (p.op == "-" || p.op == "+") {
		negative := p.op == "-"
		if err := p.next(); err != nil {
			return nil, err
		}
		v, err := p.unary(depth + 1)
		if err == nil && negative {
			v = new(big.Rat).Neg(v)
		}
		return v, err
	}
	base, err := p.primary(depth)
	if err != nil || p.kind != operator || p.op != "^" {
		return base, err
	}
	if err := p.next(); err != nil {
		return nil, err
	}
	exponent, err := p.unary(depth + 1)
	if err != nil {
		return nil, err
	}
	return p.apply("^", base, exponent)
}

func (p *parser) primary(depth int) (*big.Rat, error) {
	switch p.kind {
	case number:
		v := p.value
		return v, p.next()
	case opening:
		if err := p.next(); err != nil {
			return nil, err
		}
		v, err := p.expression(depth + 1)
		if err != nil {
			return nil, err
		}
		if p.kind != closing {
			return nil, p.unexpected(`")"`)
		}
		return v, p.next()
	default:
		return nil, p.unexpected("a number")
	}
}

// unexpected says what was found where something else belongs.
func (p *parser) unexpected(want string) error {
	switch p.kind {
	case end:
		return fmt.Errorf("the expression ends where %s is expected", want)
	case number:
		return fmt.Errorf("found the number %s where %s is expected", clip(p.text[p.start:p.pos]), want)
	default:
		return fmt.Errorf("found %q where %s is expected", p.text[p.start:p.pos], want)
	}
}

func (p *parser) apply(op string, a, b *big.Rat) (*big.Rat, error) {
	if err := p.ctx.Err(); err != nil {
		return nil, err
	}
	out := new(big.Rat)
	switch op {
	case "+":
		out.Add(a, b)
	case "-":
		out.Sub(a, b)
	case "*":
		out.Mul(a, b)
	case "/":
		if b.Sign() == 0 {
			return nil, errors.New("division by zero")
		}
		out.Quo(a, b)
	case "//", "%":
		if b.Sign() == 0 {
			return nil, errors.New("division by zero")
		}
		q := floor(new(big.Rat).Quo(a, b))
		if op == "//" {
			out.SetInt(q)
		} else {
			out.Sub(a, out.Mul(b, out.SetInt(q)))
		}
	default:
		return power(a, b)
	}
	return out, check(out)
}

func floor(v *big.Rat) *big.Int {
	q, r := new(big.Int).QuoRem(v.Num(), v.Denom(), new(big.Int))
	if r.Sign() < 0 {
		q.Sub(q, big.NewInt(1))
	}
	return q
}

// power computes base^exponent for an integer exponent. The size of the result is bounded before it is computed.
func power(base, exponent *big.Rat) (*big.Rat, error) {
	if !exponent.IsInt() {
		return nil, fmt.Errorf("the exponent %s is not an integer; only integer exponents are allowed", clip(Format(exponent)))
	}
	if base.Sign() == 0 && exponent.Sign() < 0 {
		return nil, errors.New("division by zero: 0 with a negative exponent")
	}
	one := big.NewInt(1)
	trivial := base.IsInt() && base.Num().CmpAbs(one) <= 0
	if !exponent.Num().IsInt64() || exponent.Num().CmpAbs(big.NewInt(maxExponent)) > 0 {
		if !trivial {
			return nil, fmt.Errorf("the exponent %s is too large; at most %d is allowed", clip(exponent.Num().String()), maxExponent)
		}
		// 0, 1 and -1: only the parity and the sign of the exponent matter.
		e := int64(2 + exponent.Num().Bit(0))
		exponent = new(big.Rat).SetInt64(e)
	}
	n := exponent.Num().Int64()
	if n < 0 {
		base, n = new(big.Rat).Inv(base), -n
	}
	bits := int64(max(base.Num().BitLen(), base.Denom().BitLen()) - 1)
	if bits*n > maxBits {
		return nil, tooLarge()
	}
	e := big.NewInt(n)
	out := new(big.Rat).SetFrac(new(big.Int).Exp(base.Num(), e, nil), new(big.Int).Exp(base.Denom(), e, nil))
	return out, check(out)
}

func check(v *big.Rat) error {
	if v.Num().BitLen() > maxBits || v.Denom().BitLen() > maxBits {
		return tooLarge()
	}
	return nil
}

func tooLarge() error {
	return fmt.Errorf("the number is too large: at most %d digits are allowed", maxBits*301/1000)
}

func clip(s string) string {
	if r := []rune(s); len(r) > 40 {
		return string(r[:40]) + "…"
	}
	return s
}

func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }
