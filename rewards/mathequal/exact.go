package mathequal

import (
	"errors"
	"math/big"
)

const (
	maxBits      = 1 << 14 // of a fraction's numerator or denominator
	maxFactorial = 500
)

var (
	errUndefined = errors.New("undefined here")    // a division by zero, a logarithm of zero
	errInexact   = errors.New("not a fraction")    // a root, π, a function
	errTooBig    = errors.New("beyond the bounds") // of size or of steps
	errNoValue   = errors.New("has no value")      // a tuple, a text, an infinity
)

// point gives values to variables.
type point map[string]*big.Rat

// rational tells whether an expression is made of rational operations alone, so that exact decides it.
func rational(n *node) bool {
	switch n.kind {
	case kindNumber:
		return true
	case kindSymbol:
		return n.name != "pi" && n.name != "e" && n.name != "i" && n.name != "infty"
	case kindPow:
		return rational(n.args[0]) && rational(n.args[1]) && constant(n.args[1])
	case kindFunc:
		switch n.name {
		case "abs", "floor", "ceil", "factorial", "binom":
		default:
			return false
		}
	case kindDegree:
		return false
	}
	for _, a := range n.args {
		if !rational(a) {
			return false
		}
	}
	return true
}

// exact computes an expression as a fraction.
func (c *comparer) exact(n *node, at point) (*big.Rat, error) {
	if c.spend(1); c.fuel < 0 {
		return nil, errTooBig
	}
	switch n.kind {
	case kindNumber:
		return n.value, nil
	case kindSymbol:
		return c.exactSymbol(n.name, at)
	case kindAdd, kindMul, kindDiv, kindPow, kindNeg, kindPercent, kindFunc:
	case kindBased:
		return n.args[0].value, nil
	case kindDegree:
		return nil, errInexact
	default:
		return nil, errNoValue
	}
	args := make([]*big.Rat, len(n.args))
	for i, a := range n.args {
		v, err := c.exact(a, at)
		if err != nil {
			return nil, err
		}
		args[i] = v
	}
	if n.kind == kindFunc && n.name == "binom" && len(at) > 0 && args[0].Cmp(args[1]) < 0 {
		return nil, errUndefined // it is zero, and any product with it agrees with any other
	}
	v, err := c.apply(n, args)
	if err != nil {
		return nil, err
	}
	bits := v.Num().BitLen() + v.Denom().BitLen()
	c.spend(bits / 48)
	if bits > 2*maxBits {
		return nil, errTooBig
	}
	return v, nil
}

var multiples = map[string]int64{"dozen": 12, "hundred": 100, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}

func (c *comparer) exactSymbol(name string, at point) (*big.Rat, error) {
	if m, ok := multiples[name]; ok {
		return big.NewRat(m, 1), nil
	}
	switch name {
	case "pi", "e", "i":
		return nil, errInexact
	case "infty":
		return nil, errNoValue
	}
	if v := at[name]; v != nil {
		return v, nil
	}
	return nil, errNoValue
}

func (c *comparer) apply(n *node, args []*big.Rat) (*big.Rat, error) {
	out := new(big.Rat)
	switch n.kind {
	case kindAdd:
		return out.Add(args[0], args[1]), nil
	case kindMul:
		return out.Mul(args[0], args[1]), nil
	case kindDiv:
		if args[1].Sign() == 0 {
			return nil, errUndefined
		}
		return out.Quo(args[0], args[1]), nil
	case kindNeg:
		return out.Neg(args[0]), nil
	case kindPercent:
		return out.Quo(args[0], big.NewRat(100, 1)), nil
	case kindPow:
		return exactPower(args[0], args[1])
	}
	switch n.name {
	case "abs":
		return out.Abs(args[0]), nil
	case "floor":
		return out.SetInt(floor(args[0])), nil
	case "ceil":
		return out.Neg(out.SetInt(floor(new(big.Rat).Neg(args[0])))), nil
	case "factorial":
		v, err := small(args[0], maxFactorial)
		if err != nil {
			return nil, err
		}
		c.spend(int(v))
		return out.SetInt(new(big.Int).MulRange(1, v)), nil
	case "binom":
		top, err := small(args[0], maxFactorial)
		if err != nil {
			return nil, err
		}
		bottom, err := small(args[1], maxFactorial)
		if err != nil {
			return nil, err
		}
		c.spend(int(top))
		return out.SetInt(new(big.Int).Binomial(top, bottom)), nil
	}
	return nil, errInexact
}

// exactPower is a whole power, or the root of a power that is a fraction.
func exactPower(base, exponent *big.Rat) (*big.Rat, error) {
	if !exponent.IsInt() {
		return nil, errInexact
	}
	e := exponent.Num()
	bits := max(base.Num().BitLen(), base.Denom().BitLen())
	switch {
	case e.Sign() == 0 && base.Sign() == 0:
		return nil, errUndefined
	case base.Sign() == 0 && e.Sign() < 0:
		return nil, errUndefined
	case bits <= 1 && base.Num().CmpAbs(base.Denom()) <= 0: // 0, 1, -1
		if base.Sign() < 0 && e.Bit(0) == 0 {
			return big.NewRat(1, 1), nil
		}
		return base, nil
	case e.BitLen() > 16 || bits*int(new(big.Int).Abs(e).Int64()) > maxBits:
		return nil, errTooBig
	}
	abs := new(big.Int).Abs(e)
	num, den := new(big.Int).Exp(base.Num(), abs, nil), new(big.Int).Exp(base.Denom(), abs, nil)
	if e.Sign() < 0 {
		num, den = den, num
	}
	return new(big.Rat).SetFrac(num, den), nil
}

func floor(v *big.Rat) *big.Int {
	q, m := new(big.Int).DivMod(v.Num(), v.Denom(), new(big.Int))
	_ = m
	return q
}

// small is a whole number from 0 to most.
func small(v *big.Rat, most int64) (int64, error) {
	switch {
	case !v.IsInt() || v.Sign() < 0:
		return 0, errUndefined
	case !v.Num().IsInt64() || v.Num().Int64() > most:
		return 0, errTooBig
	}
	return v.Num().Int64(), nil
}
