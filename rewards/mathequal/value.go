package mathequal

import (
	"errors"
	"math/big"
)

// compute evaluates an expression with floating-point numbers; its parts that are fractions exactly.
func (c *comparer) compute(n *node, at point) (complexNumber, error) {
	if c.spend(10); c.fuel < 0 {
		return complexNumber{}, errTooBig
	}
	if rational(n) {
		v, err := c.exact(n, at)
		if err == nil {
			return realNumber(newFloat().SetRat(v)).checked()
		}
		if !errors.Is(err, errInexact) {
			return complexNumber{}, err
		}
	}
	switch n.kind {
	case kindSymbol:
		return c.constantValue(n.name)
	case kindAdd, kindMul, kindDiv, kindNeg, kindPercent, kindDegree, kindPow, kindFunc:
	default:
		return complexNumber{}, errNoValue
	}
	args := make([]complexNumber, len(n.args))
	for i, a := range n.args {
		v, err := c.compute(a, at)
		if err != nil {
			return v, err
		}
		args[i] = v
	}
	z, err := c.operation(n, args, at)
	if err != nil {
		return z, err
	}
	return z.checked()
}

func (c *comparer) constantValue(name string) (complexNumber, error) {
	switch name {
	case "pi":
		return realNumber(pi()), nil
	case "e":
		v, err := exp(fromInt(1))
		return realNumber(v), err
	case "i":
		return complexNumber{newFloat(), fromInt(1)}, nil
	}
	return complexNumber{}, errNoValue
}

func (c *comparer) operation(n *node, args []complexNumber, at point) (complexNumber, error) {
	switch n.kind {
	case kindAdd:
		return addComplex(args[0], args[1]), nil
	case kindMul:
		return mulComplex(args[0], args[1]), nil
	case kindDiv:
		return divComplex(args[0], args[1])
	case kindNeg:
		return negComplex(args[0]), nil
	case kindPercent:
		return divComplex(args[0], realNumber(fromInt(100)))
	case kindDegree:
		return divComplex(mulComplex(args[0], realNumber(pi())), realNumber(fromInt(180)))
	case kindPow:
		return powComplex(args[0], args[1], c.fraction(n.args[1], at))
	}
	c.spend(120)
	switch n.name {
	case "root":
		index := c.fraction(n.args[1], at)
		if index == nil || !index.IsInt() || index.Num().BitLen() > 16 || index.Sign() <= 0 {
			return complexNumber{}, errUndefined
		}
		exponent := new(big.Rat).Inv(index)
		return powComplex(args[0], realNumber(newFloat().SetRat(exponent)), exponent)
	case "abs":
		return realNumber(absComplex(args[0])), nil
	case "exp":
		return expComplex(args[0])
	case "ln", "log":
		z, err := logComplex(args[0])
		if err != nil || len(args) == 1 {
			return z, err
		}
		base, err := logComplex(args[1])
		if err != nil {
			return z, err
		}
		return divComplex(z, base)
	}
	return trigonometric(n.name, args[0])
}

// fraction is the value of an expression of rational operations, or nil.
func (c *comparer) fraction(n *node, at point) *big.Rat {
	if !rational(n) {
		return nil
	}
	v, err := c.exact(n, at)
	if err != nil {
		return nil
	}
	return v
}

func trigonometric(name string, z complexNumber) (complexNumber, error) {
	one := realNumber(fromInt(1))
	switch name {
	case "sinh", "cosh", "tanh":
		return hyperbolic(name, z)
	case "arcsin", "arccos", "arctan":
		return inverse(name, z)
	}
	sin, cos, err := sinCosComplex(z)
	if err != nil {
		return z, err
	}
	switch name {
	case "sin":
		return sin, nil
	case "cos":
		return cos, nil
	case "tan":
		return divPole(sin, cos)
	case "cot":
		return divPole(cos, sin)
	case "sec":
		return divPole(one, cos)
	case "csc":
		return divPole(one, sin)
	}
	return z, errNoValue
}

// divPole divides by a sine or cosine, which at a pole is rounding alone.
func divPole(a, b complexNumber) (complexNumber, error) {
	if size := absComplex(b); size.Sign() == 0 || size.MantExp(nil) < -agreement {
		return b, errUndefined
	}
	return divComplex(a, b)
}

func hyperbolic(name string, z complexNumber) (complexNumber, error) {
	up, err := expComplex(z)
	if err != nil {
		return z, err
	}
	down, err := divComplex(realNumber(fromInt(1)), up)
	if err != nil {
		return z, err
	}
	two := realNumber(fromInt(2))
	sinh, cosh := addComplex(up, negComplex(down)), addComplex(up, down)
	switch name {
	case "sinh":
		return divComplex(sinh, two)
	case "cosh":
		return divComplex(cosh, two)
	}
	return divComplex(sinh, cosh)
}

// inverse are the inverse functions of real numbers.
func inverse(name string, z complexNumber) (complexNumber, error) {
	if !z.isReal() {
		return z, errUndefined
	}
	if name == "arctan" {
		return realNumber(atan(z.re)), nil
	}
	rest := newFloat().Sub(fromInt(1), newFloat().Mul(z.re, z.re)) // cos² of the angle whose sine is z
	if rest.Sign() < 0 {
		return z, errUndefined
	}
	rest.Sqrt(rest)
	if name == "arcsin" {
		return realNumber(atan2(z.re, rest)), nil
	}
	return realNumber(atan2(rest, z.re)), nil
}
