package mathequal

import (
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
)

const (
	needed = 5  // points at which both have a value and agree
	wanted = 12 // such points, where the steps suffice: an absolute value may show its other side at few
	tries  = 24 // points
)

// sampler draws the points at which two expressions are compared.
type sampler struct {
	random    *rand.Rand
	variables []string        // sorted
	whole     map[string]bool // those of factorials, binomials and indices of roots, which have values at whole numbers alone
	drawn     int
}

func (c *comparer) sampler(a, b *node) *sampler {
	s := &sampler{random: rand.New(rand.NewPCG(c.seed[0], c.seed[1])), whole: map[string]bool{}}
	names := map[string]bool{}
	var walk func(n *node, whole bool)
	walk = func(n *node, whole bool) {
		if c.spend(1); c.fuel < 0 {
			return
		}
		if n.kind == kindSymbol && !constants[n.name] {
			names[n.name] = true
			s.whole[n.name] = s.whole[n.name] || whole
		}
		for i, x := range n.args {
			walk(x, whole || n.kind == kindFunc && (n.name == "factorial" || n.name == "binom" || n.name == "root" && i == 1))
		}
	}
	walk(a, false)
	walk(b, false)
	s.variables = slices.Sorted(maps.Keys(names))
	return s
}

// next draws fractions of several sizes, and of both signs in each size, or positive whole numbers.
func (s *sampler) next() point {
	const grain = 65537
	sizes := []struct{ fraction, whole int64 }{{10, 15}, {1000, 50}, {10, 15}, {1, 6}, {100_000, 150}}
	most := sizes[s.drawn%len(sizes)]
	at := point{}
	for k, name := range s.variables {
		if s.whole[name] {
			at[name] = big.NewRat(s.random.Int64N(most.whole)+1, 1)
			continue
		}
		v := big.NewRat(s.random.Int64N(most.fraction*grain)+1, grain)
		negative := s.random.IntN(2) == 1
		if k < 3 { // eight points have all signs that three variables can have
			negative = s.drawn>>k&1 == 1
		}
		if negative {
			v.Neg(v)
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
