package grammar

import (
	"fmt"
	"math/big"
	"strings"
)

// exactDigits are as many as a reader of float64 tells apart: a number that is rounded to a bound would no longer be within it.
const exactDigits = 15

// bounds are a lower and an upper bound of a number, whole numbers both; nil is none.
type bounds struct {
	integer           bool
	low, high         *big.Int
	openLow, openHigh bool // the bound itself is excluded; of numbers with a fraction alone
}

// add narrows the bounds by a keyword of JSON Schema.
func (b *bounds) add(keyword string, v *big.Rat) error {
	lower := strings.HasSuffix(strings.ToLower(keyword), "minimum")
	open := strings.HasPrefix(keyword, "exclusive")
	bound := new(big.Int).Div(v.Num(), v.Denom()) // rounded down
	switch {
	case !v.IsInt() && !b.integer:
		return fmt.Errorf("%s: %w", keyword, errFraction)
	case !v.IsInt() && lower:
		bound.Add(bound, big.NewInt(1))
		open = false
	case !v.IsInt():
		open = false
	}
	if len(bound.String()) > 20 {
		return fmt.Errorf("%s has more than 19 digits, which is not supported", keyword)
	}
	if open && len(new(big.Int).Abs(bound).String()) > exactDigits {
		return fmt.Errorf("%s has more than %d digits, which is not supported", keyword, exactDigits)
	}
	if open && b.integer {
		if lower {
			bound.Add(bound, big.NewInt(1))
		} else {
			bound.Sub(bound, big.NewInt(1))
		}
		open = false
	}
	if lower {
		if b.low == nil || bound.Cmp(b.low) > 0 || bound.Cmp(b.low) == 0 && open {
			b.low, b.openLow = bound, open
		}
		return nil
	}
	if b.high == nil || bound.Cmp(b.high) < 0 || bound.Cmp(b.high) == 0 && open {
		b.high, b.openHigh = bound, open
	}
	return nil
}

// expr is the numbers between the bounds; false: there are none.
func (b *bounds) expr() (Expr, bool) {
	var out []Expr
	zero := new(big.Int)
	// at least 0
	low, open := b.low, b.openLow
	if low == nil || low.Sign() < 0 {
		low, open = zero, false
	}
	if b.high == nil || b.high.Cmp(low) >= 0 {
		out = append(out, b.magnitudes(low, b.high, open, b.openHigh)...)
	}
	// below 0: the same of the magnitudes, from the other side
	if b.low == nil || b.low.Sign() < 0 {
		least, openLeast := zero, true
		if b.high != nil && b.high.Sign() < 0 {
			least, openLeast = new(big.Int).Neg(b.high), b.openHigh
		}
		var most *big.Int
		if b.low != nil {
			most = new(big.Int).Neg(b.low)
		}
		if most == nil || most.Cmp(least) >= 0 {
			for _, e := range b.magnitudes(least, most, openLeast, b.openLow) {
				out = append(out, Sequence(Text("-"), e))
			}
		}
	}
	return Choice(out...), len(out) > 0
}

// magnitudes are the numbers without a sign from low to high; high may be nil.
func (b *bounds) magnitudes(low, high *big.Int, openLow, openHigh bool) []Expr {
	one := big.NewInt(1)
	if b.integer {
		if openLow { // 0 alone, of what is negative
			low = new(big.Int).Add(low, one)
		}
		return between(low, high)
	}
	var out []Expr
	nothing := Optional(Sequence(Text("."), Repeat(Text("0"), 1, 20)))
	if high != nil && low.Cmp(high) == 0 {
		if !openLow && !openHigh {
			out = append(out, Sequence(Text(low.String()), nothing))
		}
		return out
	}
	if openLow {
		if low.Sign() == 0 && !(openHigh && high.Cmp(one) == 0) { // whatever is above 0 is read as such
			out = append(out, Sequence(Text("0."), Repeat(Text("0"), 0, 18), Bytes('1', '9'), Repeat(digit, 0, 18)))
		} else if n := exactDigits - len(low.String()); n > 0 {
			var something []Expr // a fraction above 0
			for zeros := range n {
				something = append(something, Sequence(Text("."+strings.Repeat("0", zeros)), Bytes('1', '9'), Repeat(digit, 0, n-zeros-1)))
			}
			out = append(out, Sequence(Text(low.String()), Choice(something...)))
		}
		low = new(big.Int).Add(low, one)
	}
	below := high // the largest whole number with any fraction
	if high != nil {
		below = new(big.Int).Sub(high, one)
		if !openHigh {
			out = append(out, Sequence(Text(high.String()), nothing))
		} else if below.Cmp(low) >= 0 { // the last one below the bound must not be rounded up to it
			n := exactDigits - len(high.String())
			out = append(out, Sequence(Text(below.String()), Optional(Sequence(Text("."), Repeat(digit, 1, max(n, 1))))))
			below = new(big.Int).Sub(below, one)
		}
	}
	for _, e := range between(low, below) {
		out = append(out, Sequence(e, Optional(fraction)))
	}
	return out
}

// between are the whole numbers from low, which is at least 0, to high, in decimal without leading zeros; high may be nil, which stands
// for as many as 20 digits can write.
func between(low, high *big.Int) []Expr {
	if high == nil {
		high = new(big.Int).Exp(big.NewInt(10), big.NewInt(20), nil)
		high.Sub(high, big.NewInt(1))
	}
	var out []Expr
	for low.Cmp(high) <= 0 {
		// the numbers with as many digits as low
		a := low.String()
		top := strings.Repeat("9", len(a))
		if h := high.String(); len(h) == len(a) {
			top = h
		}
		out = append(out, sameLength(a, top))
		low, _ = new(big.Int).SetString("1"+strings.Repeat("0", len(a)), 10)
	}
	return out
}

// sameLength are the digit strings from low to high, which are as long.
func sameLength(low, high string) Expr {
	if low == "" {
		return Expr{}
	}
	if strings.Count(low, "0") == len(low) && strings.Count(high, "9") == len(high) {
		return Repeat(digit, len(low), len(low))
	}
	if low[0] == high[0] {
		return Sequence(Text(low[:1]), sameLength(low[1:], high[1:]))
	}
	n := len(low) - 1
	out := []Expr{
		Sequence(Text(low[:1]), sameLength(low[1:], strings.Repeat("9", n))),
		Sequence(Text(high[:1]), sameLength(strings.Repeat("0", n), high[1:])),
	}
	if high[0]-low[0] > 1 {
		out = append(out, Sequence(Bytes(low[0]+1, high[0]-1), Repeat(digit, n, n)))
	}
	return Choice(out...)
}
