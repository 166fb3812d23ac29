package tree

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/agentfly/agentfly/trajectory"
)

// Turn is what a rule may know of a turn of a leaf.
type Turn struct {
	Entropy float64   // nats a token, the mean over the first tokens of its completion
	NLL     []float64 // -log p of each of its sampled tokens; below 0 where no child may begin
	Closed  bool      // no leaf forks off before it
}

// Leaf is a trajectory of a task's trees.
type Leaf struct {
	Index  int               // of its tree
	Branch trajectory.Branch // its path; "" is the root
	Forked int               // turns that it has of the leaf it forks off: its own begin there
	At     int               // tokens that its first own turn begins with, of that leaf's; 0: none
	Turns  []Turn            // all of them; nil: it has not ended, or failed
}

// Fork asks for a child of a leaf, which begins with its turns before Turn.
type Fork struct {
	Parent int // place in Round.Leaves
	Turn   int
	Token  int // of the turn's completion, which the child's turn begins with so much of; 0: none
}

// has tells whether a child of the leaf may begin with its turns before one and so many tokens of that: it has more of them, and has ended.
func (l Leaf) has(turn, tokens int) bool {
	return turn < len(l.Turns) && (tokens == 0 || tokens > 0 && tokens < len(l.Turns[turn].NLL))
}

// at tells whether the leaf forks off its parent there.
func (l Leaf) at(f Fork) bool { return l.Forked == f.Turn && l.At == f.Token }

// Round is what a rule decides on. It does not change it.
type Round struct {
	Number int    // from 1
	Leaves []Leaf // in the order in which they began
	Fresh  int    // place of the first that ended in the round before
	Forks  []Fork // that the leaves came by, in the order of their children
	Budget int    // leaves that the task still may have
	Seed   func(index int, b trajectory.Branch, turn int) uint64
}

// Rule decides where leaves branch. It is safe for concurrent use.
type Rule interface {
	// Forks are what the rule asks for, in the order in which the budget is given to them. Those beyond the budget do not happen.
	Forks(r Round) []Fork
}

// Start is a leaf to sample now. Its turns before Fork.Turn are those of the leaf with the number Fork.Parent.
type Start struct {
	Number int // for Plan.Ended
	Leaf
	Fork
}

// Plan grows the trees of a task. It is used by one goroutine.
type Plan struct {
	rule   Rule
	roots  int
	size   int
	seed   func(index int, b trajectory.Branch, turn int) uint64
	round  int
	fresh  int
	leaves []Leaf
	forks  []Fork
	before []Leaf // recorded by a process that ended, not begun by this one
}

// NewPlan grows so many roots to size leaves. before are the leaves that a process which ended had begun: they keep their places.
func NewPlan(rule Rule, roots, size int, seed func(index int, b trajectory.Branch, turn int) uint64, before []Leaf) *Plan {
	before = slices.Clone(before)
	slices.SortFunc(before, func(a, b Leaf) int { return cmp.Or(cmp.Compare(a.Index, b.Index), Compare(a.Branch, b.Branch)) })
	return &Plan{rule: rule, roots: min(roots, size), size: size, seed: seed, before: before}
}

// Next are the leaves of the next round; none: the trees are whole. All of the round before have ended.
func (p *Plan) Next() []Start {
	first := len(p.leaves)
	switch {
	case len(p.leaves) == 0:
		p.plant(p.first())
	case len(p.leaves) == p.size:
		return nil
	default:
		p.round++
		p.branch()
		if len(p.leaves) == first { // the rule has nothing more to ask for
			p.adopt()
		}
		if len(p.leaves) == first {
			p.plant(p.size - len(p.leaves))
		}
	}
	p.fresh = first
	var out []Start
	for n := first; n < len(p.leaves); n++ {
		out = append(out, Start{Number: n, Leaf: p.leaves[n], Fork: p.forks[n]})
	}
	return out
}

// first is how many roots the trees begin with: those that the plan says, but what was recorded has its room, and the roots that it forks off.
func (p *Plan) first() int {
	needed, children := 0, 0
	for _, b := range p.before {
		if b.Branch != "" {
			needed, children = max(needed, b.Index+1), children+1
		}
	}
	return max(min(p.roots, p.size-children), needed)
}

// Ended says that a leaf ended with these turns; nil: it failed, so that nothing forks off it.
func (p *Plan) Ended(number int, turns []Turn) { p.leaves[number].Turns = turns }

// plant begins n roots beside those that there are: first those that were recorded, then the lowest numbers that are free.
func (p *Plan) plant(n int) {
	taken, indices := map[int]bool{}, []int{}
	for _, l := range p.leaves {
		taken[l.Index] = true
	}
	for _, b := range p.before {
		if b.Branch == "" && len(p.leaves) > 0 && len(indices) < n {
			indices, taken[b.Index] = append(indices, b.Index), true
		}
	}
	for index := 0; len(indices) < n; index++ {
		if !taken[index] {
			indices = append(indices, index)
		}
	}
	slices.Sort(indices)
	for _, index := range indices {
		p.begin(Leaf{Index: index}, Fork{Parent: -1})
	}
}

func (p *Plan) begin(l Leaf, f Fork) {
	p.leaves, p.forks = append(p.leaves, l), append(p.forks, f)
	p.before = slices.DeleteFunc(p.before, func(b Leaf) bool { return b.Index == l.Index && b.Branch == l.Branch })
}

// branch begins the children that the rule asks for, as long as there is budget. What was recorded has its place in any case.
func (p *Plan) branch() {
	round := Round{Number: p.round, Leaves: slices.Clone(p.leaves), Fresh: p.fresh, Forks: slices.Clone(p.forks), Budget: p.size - len(p.leaves), Seed: p.seed}
	for _, f := range p.rule.Forks(round) {
		parent := p.leaves[f.Parent]
		if f.Turn < 0 || !parent.has(f.Turn, f.Token) {
			continue
		}
		path, ok := p.child(f)
		if !ok {
			continue
		}
		p.begin(Leaf{Index: parent.Index, Branch: path, Forked: f.Turn, At: f.Token}, f)
	}
}

// adopt begins the recorded children that no rule asks for any more: what was tried again since changed what it asks for.
func (p *Plan) adopt() {
	for _, b := range slices.Clone(p.before) {
		if parent := p.find(b); parent >= 0 && p.leaves[parent].has(b.Forked, b.At) && len(p.leaves) < p.size {
			p.begin(Leaf{Index: b.Index, Branch: b.Branch, Forked: b.Forked, At: b.At}, Fork{Parent: parent, Turn: b.Forked, Token: b.At})
		}
	}
}

// child is the path of the child that comes by a fork; ok is false where the budget does not reach. A child that was recorded is taken for the one
// that it was: by its path, and where the leaves changed since, because what failed was tried again, by where it forks.
func (p *Plan) child(f Fork) (path trajectory.Branch, ok bool) {
	room := len(p.leaves)+len(p.before) < p.size
	next := p.free(f.Parent, p.leaves)
	other := slices.IndexFunc(p.before, func(b Leaf) bool { return b.Index == p.leaves[f.Parent].Index && b.Branch == next })
	if other >= 0 && p.before[other].at(f) {
		return next, true
	}
	if other >= 0 || !room {
		for _, b := range p.before {
			if b.at(f) && p.find(b) == f.Parent {
				return b.Branch, true
			}
		}
	}
	return p.free(f.Parent, slices.Concat(p.leaves, p.before)), room
}

// find is the number of the leaf that b forks off; -1: it is not there, or b is a root.
func (p *Plan) find(b Leaf) int {
	path, ok := b.Branch.Parent()
	if !ok {
		return -1
	}
	return slices.IndexFunc(p.leaves, func(l Leaf) bool { return l.Index == b.Index && l.Branch == path })
}

// free is the path of the next child of a leaf that none of those is.
func (p *Plan) free(parent int, taken []Leaf) trajectory.Branch {
	of := p.leaves[parent]
	for n := 0; ; n++ {
		b := of.Branch.Child(n)
		if !slices.ContainsFunc(taken, func(l Leaf) bool { return l.Index == of.Index && l.Branch == b }) {
			return b
		}
	}
}

// Compare orders paths: a leaf before those that fork off it, and children by their numbers.
func Compare(a, b trajectory.Branch) int {
	return slices.Compare(numbers(a), numbers(b))
}

func numbers(b trajectory.Branch) (out []int) {
	if b == "" {
		return nil
	}
	for n := range strings.SplitSeq(string(b), ".") {
		v, _ := strconv.Atoi(n) // Branch.Check holds: only Child makes them
		out = append(out, v)
	}
	return out
}

// Sort puts the trajectories of a group into the order of their trees.
func Sort(all []*trajectory.Trajectory) {
	slices.SortStableFunc(all, func(a, b *trajectory.Trajectory) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), Compare(a.Branch, b.Branch))
	})
}
