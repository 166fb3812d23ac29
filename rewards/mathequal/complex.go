package mathequal

import "math/big"

// number in the complex plane. im is nil for a real one.
type complexNumber struct{ re, im *big.Float }

func realNumber(x *big.Float) complexNumber { return complexNumber{re: x} }

func (z complexNumber) isReal() bool { return z.im == nil || z.im.Sign() == 0 }

func (z complexNumber) imaginary() *big.Float {
	if z.im == nil {
		return newFloat()
	}
	return z.im
}

// checked refuses what is beyond the bounds, and drops an imaginary part that is rounding alone.
func (z complexNumber) checked() (complexNumber, error) {
	if _, err := finite(z.re); err != nil {
		return z, err
	}
	if z.im == nil {
		return z, nil
	}
	if _, err := finite(z.im); err != nil {
		return z, err
	}
	if z.im.Sign() == 0 || z.re.Sign() != 0 && z.im.MantExp(nil)-z.re.MantExp(nil) < -agreement {
		z.im = nil
	}
	return z, nil
}

func addComplex(a, b complexNumber) complexNumber {
	out := realNumber(newFloat().Add(a.re, b.re))
	if a.im != nil || b.im != nil {
		out.im = newFloat().Add(a.imaginary(), b.imaginary())
	}
	return out
}

func negComplex(a complexNumber) complexNumber {
	out := realNumber(newFloat().Neg(a.re))
	if a.im != nil {
		out.im = newFloat().Neg(a.im)
	}
	return out
}

func mulComplex(a, b complexNumber) complexNumber {
	out := realNumber(newFloat().Mul(a.re, b.re))
	if a.im == nil && b.im == nil {
		return out
	}
	out.re.Sub(out.re, newFloat().Mul(a.imaginary(), b.imaginary()))
	out.im = newFloat().Add(newFloat().Mul(a.re, b.imaginary()), newFloat().Mul(a.imaginary(), b.re))
	return out
}

func divComplex(a, b complexNumber) (complexNumber, error) {
	if b.re.Sign() == 0 && b.imaginary().Sign() == 0 {
		return b, errUndefined
	}
	if b.im == nil {
		out := realNumber(newFloat().Quo(a.re, b.re))
		if a.im != nil {
			out.im = newFloat().Quo(a.im, b.re)
		}
		return out, nil
	}
	size := newFloat().Add(newFloat().Mul(b.re, b.re), newFloat().Mul(b.im, b.im))
	out := mulComplex(a, complexNumber{b.re, newFloat().Neg(b.im)})
	out.re.Quo(out.re, size)
	if out.im != nil {
		out.im.Quo(out.im, size)
	}
	return out, nil
}

func absComplex(z complexNumber) *big.Float {
	if z.im == nil {
		return newFloat().Abs(z.re)
	}
	s := newFloat().Add(newFloat().Mul(z.re, z.re), newFloat().Mul(z.im, z.im))
	return s.Sqrt(s)
}

func expComplex(z complexNumber) (complexNumber, error) {
	size, err := exp(z.re)
	if err != nil || z.im == nil {
		return realNumber(size), err
	}
	sin, cos, err := sinCos(z.im)
	if err != nil {
		return z, err
	}
	return complexNumber{cos.Mul(cos, size), sin.Mul(sin, size)}, nil
}

// logComplex is the principal value.
func logComplex(z complexNumber) (complexNumber, error) {
	size := absComplex(z)
	if size.Sign() == 0 {
		return z, errUndefined
	}
	re, err := logarithm(size)
	if err != nil {
		return z, err
	}
	if z.isReal() && z.re.Sign() > 0 {
		return realNumber(re), nil
	}
	return complexNumber{re, atan2(z.imaginary(), z.re)}, nil
}

// powComplex is z^w: the principal value, and for w = p/q with an odd q and a negative z the real one, as in school.
func powComplex(z, w complexNumber, exponent *big.Rat) (complexNumber, error) {
	if exponent != nil && exponent.IsInt() && exponent.Num().BitLen() <= 16 {
		return intPower(z, exponent.Num().Int64())
	}
	if z.re.Sign() == 0 && z.isReal() {
		if w.isReal() && w.re.Sign() > 0 {
			return z, nil
		}
		return z, errUndefined
	}
	if exponent != nil && z.isReal() && z.re.Sign() < 0 && exponent.Denom().Bit(0) == 1 {
		out, err := powComplex(negComplex(z), w, nil)
		if err == nil && exponent.Num().Bit(0) == 1 {
			out = negComplex(out)
		}
		return out, err
	}
	if exponent != nil && exponent.Cmp(big.NewRat(1, 2)) == 0 && z.isReal() {
		root := newFloat().Sqrt(newFloat().Abs(z.re))
		if z.re.Sign() < 0 {
			return complexNumber{newFloat(), root}, nil
		}
		return realNumber(root), nil
	}
	l, err := logComplex(z)
	if err != nil {
		return z, err
	}
	return expComplex(mulComplex(w, l))
}

func intPower(z complexNumber, n int64) (complexNumber, error) {
	negative := n < 0
	if negative {
		n = -n
	}
	out := realNumber(fromInt(1))
	if n == 0 && absComplex(z).Sign() == 0 {
		return z, errUndefined
	}
	for {
		var err error
		if n&1 == 1 {
			if out, err = mulComplex(out, z).checked(); err != nil {
				return out, err
			}
		}
		if n >>= 1; n == 0 {
			break
		}
		if z, err = mulComplex(z, z).checked(); err != nil {
			return z, err
		}
	}
	if negative {
		return divComplex(realNumber(fromInt(1)), out)
	}
	return out, nil
}

// sinCosComplex are sine and cosine.
func sinCosComplex(z complexNumber) (sin, cos complexNumber, err error) {
	s, c, err := sinCos(z.re)
	if err != nil || z.im == nil {
		return realNumber(s), realNumber(c), err
	}
	up, err := exp(z.im)
	if err != nil {
		return z, z, err
	}
	down := newFloat().Quo(fromInt(1), up)
	cosh, sinh := half(newFloat().Add(up, down)), half(newFloat().Sub(up, down))
	sin = complexNumber{newFloat().Mul(s, cosh), newFloat().Mul(c, sinh)}
	cos = complexNumber{newFloat().Mul(c, cosh), newFloat().Neg(newFloat().Mul(s, sinh))}
	return sin, cos, nil
}
