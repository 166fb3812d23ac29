package mathequal

import (
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
)

const (
	needed = 5   // different points at which both have a value and agree
	wanted = 12  // such points, where the steps suffice: an absolute value may show its other side at few
	round  = 25  // points of the sizes that most expressions have values at
	tries  = 150 // points
)

// size bounds what is drawn: fractions up to most/over and whole numbers up to whole. over is odd, as all denominators are: (-8)^x is
// real there.
type size struct{ most, over, whole int64 }

var (
	sizes      = []size{{10, 1, 15}, {1000, 1, 50}, {10, 1, 15}, {1, 1, 6}, {100_000, 1, 150}}
	smallSizes = []size{{1, 1, 15}, {10, 1, 50}, {1, 11, 15}, {1, 1, 6}, {1, 101, 50}} // after the first round, for arcsin 20x
)

// sampler draws the points at which two expressions are compared.
type sampler struct {
	random    *rand.Rand
	variables []string        // sorted
	whole     map[string]bool // those of factorials, binomials and indices of roots, which have values at whole numbers alone
	numbers   []*big.Rat      // whole ones in the expressions, sorted
	counted   []string        // variables by whose values points count as different: the whole ones, which may have few values; else all
	seen      map[string]bool // points
	drawn     int
	fuel      int // before the first point
}

func (c *comparer) sampler(a, b *node) *sampler {
	s := &sampler{random: rand.New(rand.NewPCG(c.seed[0], c.seed[1])), whole: map[string]bool{}, seen: map[string]bool{}, fuel: c.fuel}
	names := map[string]bool{}
	var walk func(n *node, whole bool)
	walk = func(n *node, whole bool) {
		if c.spend(1); c.fuel < 0 {
			return
		}
		if n.kind == kindNumber && n.value.IsInt() && n.value.Num().BitLen() < 20 {
			s.numbers = append(s.numbers, n.value)
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
	for _, name := range s.variables {
		if s.whole[name] {
			s.counted = append(s.counted, name)
		}
	}
	if s.counted == nil {
		s.counted = s.variables
	}
	slices.SortFunc(s.numbers, (*big.Rat).Cmp) // the same in either order of the expressions
	return s
}

// next draws a point that was not drawn before, as long as there are tries.
func (s *sampler) next() point {
	for {
		at := s.draw()
		if key := values(at, s.variables); !s.seen[key] || s.drawn >= tries {
			s.seen[key] = true
			return at
		}
	}
}

// key is equal for points that count as one.
func (s *sampler) key(at point) string { return values(at, s.counted) }

func values(at point, names []string) string {
	var b strings.Builder
	for _, name := range names {
		b.WriteString(at[name].String() + " ")
	}
	return b.String()
}

// draw gives fractions of several sizes, and of both signs in each size, or whole numbers from 0 on.
func (s *sampler) draw() point {
	const grain = 65537
	now := sizes[s.drawn%len(sizes)]
	if s.drawn >= round {
		now = smallSizes[s.drawn%len(smallSizes)]
	}
	at := point{}
	for k, name := range s.variables {
		if s.whole[name] {
			v := big.NewRat(s.random.Int64N(now.whole+1), 1)
			if s.drawn >= round && len(s.numbers) > 0 && s.random.IntN(2) == 1 { // for n over 60
				v.Add(v, new(big.Rat).Abs(s.numbers[s.random.IntN(len(s.numbers))]))
			}
			at[name] = v
			continue
		}
		v := big.NewRat(s.random.Int64N(now.most*grain)+1, now.over*grain)
		if s.drawn >= round && len(s.numbers) > 0 && s.random.IntN(2) == 1 { // for arcsin(x-5)
			if s.random.IntN(2) == 1 {
				v.Neg(v)
			}
			v.Add(v, s.numbers[s.random.IntN(len(s.numbers))])
		}
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
	return s.drawn < tries && c.fuel > 0 && (agreed < needed || agreed < wanted && s.fuel-c.fuel < c.share/2)
}
