package mathequal

import (
	"cmp"
	"errors"
	"math/big"
)

// sameValue compares two expressions: at one point if they have no variables, else at several.
func (c *comparer) sameValue(a, b *node) bool {
	if x, y := infinite(a), infinite(b); x != 0 || y != 0 {
		return x == y
	}
	if len(c.sampler(a, b).variables) == 0 {
		same, err := c.agree(a, b, nil, true)
		return err == nil && same
	}
	for _, complexToo := range []bool{mentions(a, "i") || mentions(b, "i"), true} {
		agreed := 0
		points := c.sampler(a, b)
		for c.more(points, agreed) {
			same, err := c.agree(a, b, points.next(), complexToo)
			if errors.Is(err, errNoValue) {
				return false
			}
			if err != nil {
				continue
			}
			if !same {
				return false
			}
			agreed++
		}
		if agreed > 0 {
			return agreed >= needed
		}
	}
	return false
}

// agree compares two expressions at a point. An error says that they cannot be compared there.
func (c *comparer) agree(a, b *node, at point, complexToo bool) (bool, error) {
	if rational(a) && rational(b) {
		x, errX := c.exact(a, at)
		y, errY := c.exact(b, at)
		switch {
		case errors.Is(errX, errInexact) || errors.Is(errY, errInexact): // a power with a broken exponent
		case errX != nil || errY != nil:
			return false, cmp.Or(errX, errY)
		default:
			return x.Cmp(y) == 0 || at == nil && c.tolerated(new(big.Float).SetRat(x), new(big.Float).SetRat(y)), nil
		}
	}
	x, err := c.compute(a, at)
	if err != nil {
		return false, err
	}
	y, err := c.compute(b, at)
	if err != nil {
		return false, err
	}
	if !complexToo && !(x.isReal() && y.isReal()) {
		return false, errUndefined
	}
	same := near(x.re, y.re) && near(x.imaginary(), y.imaginary())
	return same || at == nil && x.isReal() && y.isReal() && c.tolerated(x.re, y.re), nil
}

// near tells whether two numbers agree but for rounding.
func near(x, y *big.Float) bool {
	d := newFloat().Sub(x, y)
	if d.Sign() == 0 {
		return true
	}
	return d.MantExp(nil) < max(0, x.MantExp(nil), y.MantExp(nil))-agreement
}

func (c *comparer) tolerated(x, y *big.Float) bool {
	if c.options.Tolerance <= 0 {
		return false
	}
	largest := newFloat().Abs(x)
	if abs := newFloat().Abs(y); abs.Cmp(largest) > 0 {
		largest = abs
	}
	d := newFloat().Sub(x, y)
	return d.Abs(d).Cmp(largest.Mul(largest, newFloat().SetFloat64(c.options.Tolerance))) <= 0
}
