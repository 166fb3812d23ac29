package mathequal

import (
	"cmp"
	"errors"
	"math/big"
	"slices"
)

// sameValue compares two expressions: at one point if they have no variables, else at several.
func (c *comparer) sameValue(a, b *node) bool {
	if identical(a, b) {
		return true
	}
	if x, y := infinite(a), infinite(b); x != 0 || y != 0 {
		return x == y
	}
	points := c.sampler(a, b)
	if len(points.variables) == 0 {
		same, _, err := c.agree(a, b, nil)
		return err == nil && same
	}
	complexToo := mentions(a, "i") || mentions(b, "i")
	agreed, all, apart := map[string]bool{}, map[string]bool{}, false // points where both are real; others too; whether they differ there
	for c.more(points, len(agreed)) && !(points.drawn >= round && len(agreed) == 0 && len(all) >= needed) {
		at := points.next()
		same, isReal, err := c.agree(a, b, at)
		switch {
		case errors.Is(err, errNoValue):
			return false
		case err != nil:
		case !isReal && !complexToo:
			all[points.key(at)] = true
			apart = apart || !same
		case !same:
			return false
		default:
			agreed[points.key(at)], all[points.key(at)] = true, true
		}
	}
	return len(agreed) >= needed || !apart && len(all) >= needed
}

// identical tells whether two expressions are written the same.
func identical(a, b *node) bool {
	return a.kind == b.kind && a.name == b.name && (a.value == nil) == (b.value == nil) && (a.value == nil || a.value.Cmp(b.value) == 0) &&
		a.open == b.open && a.close == b.close && a.unit == nil && b.unit == nil && slices.EqualFunc(a.args, b.args, identical)
}

// agree compares two expressions at a point, and tells whether both are real there. An error says that they cannot be compared.
func (c *comparer) agree(a, b *node, at point) (same, isReal bool, err error) {
	if rational(a) && rational(b) {
		x, errX := c.exact(a, at)
		y, errY := c.exact(b, at)
		switch {
		case errors.Is(errX, errInexact) || errors.Is(errY, errInexact): // a power with a broken exponent
		case errX != nil || errY != nil:
			return false, true, cmp.Or(errX, errY)
		default:
			return x.Cmp(y) == 0 || at == nil && c.tolerated(new(big.Float).SetRat(x), new(big.Float).SetRat(y)), true, nil
		}
	}
	x, err := c.compute(a, at)
	if err != nil {
		return false, false, err
	}
	y, err := c.compute(b, at)
	if err != nil {
		return false, false, err
	}
	isReal = x.isReal() && y.isReal()
	same = near(x.re, y.re) && near(x.imaginary(), y.imaginary())
	return same || at == nil && isReal && c.tolerated(x.re, y.re), isReal, nil
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
