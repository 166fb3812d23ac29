package mathequal

import (
	"math"
	"math/big"
	"sync"
)

// Numbers that are no fractions are computed with so many bits, and are the same when they agree to so many. Between the two is
// room for the rounding of some hundred operations and for cancellation.
const (
	precision    = 1024
	agreement    = 700
	maxMagnitude = 300 // binary exponent of a result; beyond it a difference of one would be lost
)

func newFloat() *big.Float { return new(big.Float).SetPrec(precision) }

func fromInt(n int64) *big.Float { return newFloat().SetInt64(n) }

func half(x *big.Float) *big.Float { return newFloat().SetMantExp(x, -1) }

// finite refuses what is beyond the bounds; every operation whose result may grow ends with it, for infinities would panic.
func finite(x *big.Float) (*big.Float, error) {
	if x.IsInf() || x.MantExp(nil) > maxMagnitude {
		return nil, errTooBig
	}
	return x, nil
}

// pi by Machin: 16 atan(1/5) - 4 atan(1/239).
var pi = sync.OnceValue(func() *big.Float {
	part := func(factor, n int64) *big.Float {
		return newFloat().Mul(fromInt(factor), atanSeries(newFloat().Quo(fromInt(1), fromInt(n))))
	}
	return newFloat().Sub(part(16, 5), part(4, 239))
})

// ln2 is 2 atanh(1/3).
var ln2 = sync.OnceValue(func() *big.Float {
	x := newFloat().Quo(fromInt(1), fromInt(3))
	square, power, sum := newFloat().Mul(x, x), newFloat().Set(x), newFloat()
	for k := int64(1); power.MantExp(nil) > -precision-8; k += 2 {
		sum.Add(sum, newFloat().Quo(power, fromInt(k)))
		power.Mul(power, square)
	}
	return sum.Add(sum, sum)
})

// atanSeries is the Taylor series, for |x| well below 1.
func atanSeries(x *big.Float) *big.Float {
	square, power, sum := newFloat().Mul(x, x), newFloat().Set(x), newFloat()
	for k, sign := int64(1), 1; power.Sign() != 0 && power.MantExp(nil) > -precision-8; k, sign = k+2, -sign {
		term := newFloat().Quo(power, fromInt(k))
		if sign < 0 {
			term.Neg(term)
		}
		sum.Add(sum, term)
		power.Mul(power, square)
	}
	return sum
}

func atan(x *big.Float) *big.Float {
	x = newFloat().Set(x)
	halvings := 0
	for x.Sign() != 0 && x.MantExp(nil) > -6 { // atan x = 2 atan(x / (1 + √(1 + x²)))
		root := newFloat().Mul(x, x)
		root.Add(root, fromInt(1))
		root.Sqrt(root)
		x.Quo(x, root.Add(root, fromInt(1)))
		halvings++
	}
	y := atanSeries(x)
	return y.SetMantExp(y, halvings)
}

// atan2 is the angle of the point (x, y), in (-π, π].
func atan2(y, x *big.Float) *big.Float {
	switch {
	case x.Sign() > 0:
		return atan(newFloat().Quo(y, x))
	case x.Sign() < 0 && y.Sign() >= 0:
		a := atan(newFloat().Quo(y, x))
		return a.Add(a, pi())
	case x.Sign() < 0:
		a := atan(newFloat().Quo(y, x))
		return a.Sub(a, pi())
	}
	h := half(pi())
	if y.Sign() < 0 {
		h.Neg(h)
	}
	return h
}

// exp reduces x by multiples of ln 2 and 2^16, and adds up the Taylor series.
func exp(x *big.Float) (*big.Float, error) {
	if x.Sign() == 0 {
		return fromInt(1), nil
	}
	if x.MantExp(nil) > 10 {
		return nil, errTooBig
	}
	approx, _ := x.Float64()
	k := math.Round(approx / math.Ln2)
	r := newFloat().Sub(x, newFloat().Mul(fromInt(int64(k)), ln2()))
	const squarings = 16
	r.SetMantExp(r, -squarings)
	sum, term := fromInt(1), fromInt(1)
	for n := int64(1); ; n++ {
		term.Mul(term, r)
		term.Quo(term, fromInt(n))
		if term.Sign() == 0 || term.MantExp(nil) < -precision-8 {
			break
		}
		sum.Add(sum, term)
	}
	for range squarings {
		sum.Mul(sum, sum)
	}
	return finite(sum.SetMantExp(sum, int(k)))
}

// logarithm of x > 0: a start from float64, and Halley's iteration, which triples the digits.
func logarithm(x *big.Float) (*big.Float, error) {
	m := newFloat()
	e := x.MantExp(m) // x = m 2^e with m in [1/2, 1)
	f, _ := m.Float64()
	y := newFloat().SetFloat64(math.Log(f))
	for range 4 {
		p, err := exp(y)
		if err != nil {
			return nil, err
		}
		d := newFloat().Quo(newFloat().Sub(m, p), newFloat().Add(m, p))
		y.Add(y, d.Add(d, d))
	}
	return y.Add(y, newFloat().Mul(fromInt(int64(e)), ln2())), nil
}

// sinCos reduces x by multiples of π/2 and adds up the Taylor series of both.
func sinCos(x *big.Float) (sin, cos *big.Float, err error) {
	if x.Sign() != 0 && x.MantExp(nil) > 40 {
		return nil, nil, errTooBig
	}
	quarter := half(pi())
	approx, _ := newFloat().Quo(x, quarter).Float64()
	k := int64(math.Round(approx))
	r := newFloat().Sub(x, newFloat().Mul(fromInt(k), quarter))
	sin, cos = newFloat(), fromInt(1)
	term := fromInt(1)
	for n := int64(1); ; n++ {
		term.Mul(term, r)
		term.Quo(term, fromInt(n))
		if term.Sign() == 0 || term.MantExp(nil) < -precision-8 {
			break
		}
		switch n % 4 {
		case 0:
			cos.Add(cos, term)
		case 1:
			sin.Add(sin, term)
		case 2:
			cos.Sub(cos, term)
		case 3:
			sin.Sub(sin, term)
		}
	}
	switch ((k % 4) + 4) % 4 {
	case 1:
		sin, cos = cos, sin.Neg(sin)
	case 2:
		sin.Neg(sin)
		cos.Neg(cos)
	case 3:
		sin, cos = cos.Neg(cos), sin
	}
	return sin, cos, nil
}
