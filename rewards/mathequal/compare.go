package mathequal

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"math/big"
	"slices"
	"strings"
)

// comparer compares the readings of two answers within a budget of steps.
type comparer struct {
	options Options
	fuel    int
	share   int // of the steps, for each of the values in an answer; 0 before the first comparison
	seed    [2]uint64
}

// newComparer derives its random points from the two answers, in either order.
func newComparer(a, b string, o Options) *comparer {
	if a > b {
		a, b = b, a
	}
	h := sha256.Sum256([]byte(a + "\x00" + b))
	return &comparer{options: o, fuel: maxFuel, seed: [2]uint64{binary.LittleEndian.Uint64(h[:]), binary.LittleEndian.Uint64(h[8:])}}
}

func (c *comparer) spend(steps int) { c.fuel -= steps }

// same compares two readings. It is symmetric.
func (c *comparer) same(a, b *node) bool {
	if c.spend(1); c.fuel < 0 {
		return false
	}
	if c.share == 0 {
		c.share = maxFuel / max(countValues(a), countValues(b))
	}
	a, b = single(a), single(b)
	if a.kind > b.kind || a.kind == b.kind && len(a.args) > len(b.args) { // one order for each pair
		a, b = b, a
	}
	switch {
	case a.kind == kindText || b.kind == kindText:
		return a.kind == b.kind && (sameText(a.name, b.name) || a.dense != "" && a.dense == b.dense)
	case a.kind == kindRelation || b.kind == kindRelation:
		return c.sameRelation(a, b)
	case b.kind == kindNamed:
		return c.sameNamed(a, b)
	case isUnion(a) && isUnion(b):
		return c.sameItems(a.args, b.args, true)
	case isCollection(a) || isCollection(b):
		return c.sameCollection(a, b)
	case a.kind == kindQuantity && b.kind == kindQuantity:
		return c.sameQuantity(a, b)
	case a.kind == b.kind && (a.kind == kindPercent || a.kind == kindDegree || a.kind == kindBased):
		return c.same(a.args[0], b.args[0])
	case marked(a) || marked(b):
		for _, x := range meanings(a) {
			for _, y := range meanings(b) {
				if c.same(x, y) {
					return true
				}
			}
		}
		return false
	}
	return c.sameValue(a, b)
}

// single is the only member of a list or a set.
func single(n *node) *node {
	for (n.kind == kindList || n.kind == kindSet) && len(n.args) == 1 {
		n = n.args[0]
	}
	return n
}

func isCollection(n *node) bool {
	return n.kind == kindTuple || n.kind == kindSet || n.kind == kindList || n.kind == kindUnion
}

// countValues is how many values a collection has, at least one.
func countValues(n *node) int {
	count := 0
	if isCollection(n) || n.kind == kindNamed {
		for _, a := range n.args {
			count += countValues(a)
		}
	}
	return max(count, 1)
}

func marked(n *node) bool {
	return n.kind == kindPercent || n.kind == kindDegree || n.kind == kindBased || n.kind == kindQuantity
}

// meanings are what a marked value may be beside one that has no mark: 50% is 50 and 1/2.
func meanings(n *node) []*node {
	switch n.kind {
	case kindPercent:
		return []*node{n.args[0], {kind: kindDiv, args: []*node{n.args[0], number(big.NewRat(100, 1))}}}
	case kindDegree:
		angle := &node{kind: kindMul, args: []*node{n.args[0], {kind: kindSymbol, name: "pi"}}}
		return []*node{n.args[0], {kind: kindDiv, args: []*node{angle, number(big.NewRat(180, 1))}}}
	case kindBased:
		return n.args
	case kindQuantity:
		if n.unit.operates() {
			return nil
		}
		return n.args
	}
	return []*node{n}
}

// sameNamed compares where b, at least, has a name: x = 5 is 5 and value = 5, and is not y = 5.
func (c *comparer) sameNamed(a, b *node) bool {
	if a.kind != kindNamed {
		return c.same(a, b.args[0])
	}
	if a.name == b.name || a.inWords != b.inWords {
		return c.same(a.args[0], b.args[0])
	}
	if isCollection(a.args[0]) || isCollection(b.args[0]) || constant(a.args[0]) || constant(b.args[0]) {
		return false
	}
	return c.sameRelation(a, b)
}

// sameRelation compares equations up to a factor, and inequalities up to a positive one.
func (c *comparer) sameRelation(a, b *node) bool {
	opA, f := difference(a)
	opB, g := difference(b)
	if f == nil || g == nil || opA != opB {
		return false
	}
	return c.proportional(f, g, opA != "=" && opA != "!=")
}

// difference is a relation as something compared with zero, by =, !=, < or <=.
func difference(n *node) (op string, f *node) {
	left, right := n, n
	switch {
	case n.kind == kindRelation:
		op, left, right = n.name, n.args[0], n.args[1]
	case n.kind == kindNamed && n.args[0].kind == kindTuple:
		if op, left, right = ray(n); op == "" {
			return "", nil
		}
	case n.kind == kindNamed && !isCollection(n.args[0]):
		op, left, right = "=", cmp.Or(n.of, &node{kind: kindSymbol, name: n.name}), n.args[0]
	default:
		return "", nil
	}
	if op[0] == '>' {
		op, left, right = flipped[op], right, left
	}
	return op, &node{kind: kindAdd, args: []*node{amount(left), {kind: kindNeg, args: []*node{amount(right)}}}}
}

// amount is the number of an amount in dollars, euros or pounds: an equation that is not solved is the same without its currency.
func amount(n *node) *node {
	if n.kind == kindQuantity && n.unit.factor.Cmp(big.NewRat(1, 1)) == 0 && len(n.unit.counted) == 0 && len(n.unit.dimensions) == 1 &&
		n.unit.dimensions["$"]+n.unit.dimensions["€"]+n.unit.dimensions["£"] == 1 {
		return n.args[0]
	}
	return n
}

// ray is the inequality of an interval that is named by its variable and has one end: x > 2.
func ray(n *node) (op string, left, right *node) {
	x := &node{kind: kindSymbol, name: n.name}
	interval := n.args[0]
	from, to := interval.args[0], interval.args[1]
	switch {
	case infinite(from) < 0 && infinite(to) == 0:
		return map[string]string{")": "<", "]": "<="}[interval.close], x, to
	case infinite(to) > 0 && infinite(from) == 0:
		return map[string]string{"(": ">", "[": ">="}[interval.open], x, from
	}
	return "", nil, nil
}

// isUnion tells whether a node is a union of sets, or a list of the intervals of inequalities: x < 1 or x > 3.
func isUnion(n *node) bool {
	if n.kind == kindUnion {
		return true
	}
	if n.kind != kindList {
		return false
	}
	for _, a := range n.args {
		if a.kind != kindNamed || a.args[0].kind != kindTuple {
			return false
		}
	}
	return true
}

func (c *comparer) sameCollection(a, b *node) bool {
	ordered := func(n *node) bool { return n.kind == kindTuple }
	switch {
	case ordered(a) && ordered(b):
		return a.open == b.open && a.close == b.close && c.sameItems(a.args, b.args, false)
	case ordered(a) && b.kind == kindList && a.open == "(" && a.close == ")":
		return !alternatives(b) && c.sameItems(a.args, b.args, false)
	case a.kind == kindUnion || b.kind == kindUnion || ordered(a) || ordered(b):
		return false
	case !isCollection(a) || !isCollection(b):
		return false
	case a.kind == kindSet || b.kind == kindSet:
		return c.within(a.args, b.args) && c.within(b.args, a.args)
	}
	return c.sameItems(a.args, b.args, true)
}

// alternatives tells whether a list gives one variable several values: x = 1 or x = 2 is no point.
func alternatives(n *node) bool {
	seen := map[string]bool{}
	for _, a := range n.args {
		if a.kind == kindNamed && seen[a.name] {
			return true
		}
		seen[a.name] = a.kind == kindNamed
	}
	return false
}

// within tells whether each of the items is among the others.
func (c *comparer) within(items, others []*node) bool {
	for _, x := range items {
		if !slices.ContainsFunc(others, func(y *node) bool { return c.same(x, y) }) {
			return false
		}
	}
	return true
}

// sameItems pairs items off, in their order or in any.
func (c *comparer) sameItems(a, b []*node, anyOrder bool) bool {
	if len(a) != len(b) {
		return false
	}
	taken := make([]bool, len(b))
	for i, x := range a {
		found := false
		for j, y := range b {
			if taken[j] || !anyOrder && i != j || !c.same(x, y) {
				continue
			}
			taken[j], found = true, true
			break
		}
		if !found {
			return false
		}
	}
	return true
}

func (c *comparer) sameQuantity(a, b *node) bool {
	x, y := a.args[0], b.args[0]
	forth, back := a.unit.within(b.unit), b.unit.within(a.unit)
	if !forth && !back || (a.unit.operates() || b.unit.operates()) && !(forth && back) {
		return false
	}
	if a.unit.factor.Cmp(b.unit.factor) == 0 || !maps.Equal(a.unit.dimensions, b.unit.dimensions) {
		return c.same(x, y)
	}
	return c.same(&node{kind: kindMul, args: []*node{x, number(a.unit.factor)}}, &node{kind: kindMul, args: []*node{y, number(b.unit.factor)}})
}

// operates tells whether a word of a measure makes another number of the value.
func (m *measure) operates() bool {
	return slices.ContainsFunc(m.counted, func(w countedWord) bool { return operations[w.name] })
}

// within tells whether a measure says nothing that the other one does not say too: feet is within feet tall, and boys is not within girls.
func (m *measure) within(other *measure) bool {
	return (len(m.dimensions) == 0 || maps.Equal(m.dimensions, other.dimensions) || m.fits(other) || other.fits(m)) &&
		m.countedWithin(other)
}

// countedWithin tells whether the other measure has all words of a measure, in their order, and maybe more: apples is within red apples.
func (m *measure) countedWithin(other *measure) bool {
	found := 0
	for _, w := range other.counted {
		if found < len(m.counted) && w.power == m.counted[found].power && sameWord(w.name, m.counted[found].name) {
			found++
		}
	}
	return found == len(m.counted)
}

// fits tells whether a measure in units of no name may be the other one, which has a name: square units are cm² and apples, but not cm.
func (m *measure) fits(other *measure) bool {
	power, length := m.dimensions["unit"], other.dimensions["m"]
	return power != 0 && other.dimensions["unit"] == 0 && (length == 0 || length == power)
}

// sameText tells whether two texts are the same but for a plural at their end: no solution is no solutions.
func sameText(a, b string) bool {
	i, j := strings.LastIndexByte(a, ' ')+1, strings.LastIndexByte(b, ' ')+1
	return a[:i] == b[:j] && sameWord(a[i:], b[j:])
}

// sameWord tells whether two words are the same, or one is the plural of the other.
func sameWord(a, b string) bool {
	if a == b {
		return true
	}
	for _, f := range inflections {
		for _, w := range [][2]string{{a, b}, {b, a}} {
			stem, ok := strings.CutSuffix(w[0], f.singular)
			if ok && len(stem) >= f.stem && w[1] == stem+f.plural {
				return true
			}
		}
	}
	return false
}

// infinite is the sign of an infinity, 0 for anything else.
func infinite(n *node) int {
	switch {
	case n.kind == kindSymbol && n.name == "infty":
		return 1
	case n.kind == kindNeg:
		return -infinite(n.args[0])
	}
	return 0
}

// proportional tells whether f is a constant, and where asked positive, multiple of g.
func (c *comparer) proportional(f, g *node, positive bool) bool {
	if identical(f, g) {
		return true
	}
	points := c.sampler(f, g)
	var ratio *big.Float
	var exact *big.Rat
	agreed := map[string]bool{}
	both := rational(f) && rational(g)
	for c.more(points, len(agreed)) {
		at := points.next()
		if both {
			x, errX := c.exact(f, at)
			y, errY := c.exact(g, at)
			if errX != nil || errY != nil || y.Sign() == 0 || x.Sign() == 0 {
				continue
			}
			r := new(big.Rat).Quo(x, y)
			if exact != nil && exact.Cmp(r) != 0 || positive && r.Sign() < 0 {
				return false
			}
			exact = r
		} else {
			x, errX := c.compute(f, at)
			y, errY := c.compute(g, at)
			if errX != nil || errY != nil || !x.isReal() || !y.isReal() || y.re.Sign() == 0 || x.re.Sign() == 0 {
				continue
			}
			r := newFloat().Quo(x.re, y.re)
			if ratio != nil && !near(ratio, r) || positive && r.Sign() < 0 {
				return false
			}
			ratio = r
		}
		agreed[points.key(at)] = true
	}
	return len(agreed) >= needed
}

// mentions tells whether a symbol stands in an expression.
func mentions(n *node, name string) bool {
	return n.kind == kindSymbol && n.name == name || slices.ContainsFunc(n.args, func(a *node) bool { return mentions(a, name) })
}
