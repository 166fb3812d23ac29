package mathequal

import (
	"math/big"
	"math/rand/v2"
)

const (
	needed = 5  // points at which both have a value and agree
	wanted = 12 // such points, where the steps suffice: an absolute value may show its other side at few
	tries  = 24 // points
)

// sampler draws the points at which expressions are compared.
type sampler struct {
	random    *rand.Rand
	variables []string
	drawn     int
}

func (c *comparer) sampler(variables []string) *sampler {
	return &sampler{random: rand.New(rand.NewPCG(c.seed[0], c.seed[1])), variables: variables}
}

// next draws fractions of several sizes, and of both signs in each size.
func (s *sampler) next() point {
	const grain = 65537
	sizes := []int64{10, 1000, 10, 1, 100_000}
	most := sizes[s.drawn%len(sizes)] * grain
	at := point{}
	for k, name := range s.variables {
		v := big.NewRat(s.random.Int64N(most)+1, grain)
		negative := s.random.IntN(2) == 1
		if k < 3 { // eight points have all signs that three variables can have
			negative = s.drawn>>k&1 == 1
		}
		if negative {
			v.Neg(v)
		}
		if s.drawn%6 == 5 { // for what only whole numbers have a value for
			v = big.NewRat(s.random.Int64N(15)+1, 1)
		}
		at[name] = v
	}
	s.drawn++
	return at
}

// more tells whether another point is to be drawn after some agreed.
func (c *comparer) more(s *sampler, agreed int) bool {
	return s.drawn < tries && c.fuel > 0 && (agreed < needed || agreed < wanted && c.fuel > maxFuel/2)
}
