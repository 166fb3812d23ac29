package tree

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

func seeds(run uint64) func(int, trajectory.Branch, int) uint64 {
	return func(index int, b trajectory.Branch, turn int) uint64 {
		h := fnv.New64a()
		fmt.Fprintf(h, "%d|%d|%s|%d", run, index, b, turn)
		return h.Sum64()
	}
}

// world says what a leaf samples: a function of its path alone, as a seeded sampler's is.
type world struct {
	seed   uint64
	failed func(l Leaf) bool
}

func (w world) turns(l Leaf, parent []Turn, token int) []Turn {
	if w.failed != nil && w.failed(l) {
		return nil
	}
	rng := rand.New(rand.NewPCG(w.seed, seeds(9)(l.Index, l.Branch, 0)))
	turns := append([]Turn{}, parent[:l.Forked]...)
	for range 1 + rng.IntN(4) {
		t := Turn{Entropy: 4 * rng.Float64()}
		for range token + 1 + rng.IntN(5) {
			t.NLL = append(t.NLL, rng.ExpFloat64()-float64(rng.IntN(3)/2)*10) // some tokens are no place to fork
		}
		turns, token = append(turns, t), 0
	}
	return turns
}

// grow runs a plan to its end and checks what holds for all of them. stop is the number of leaves after which it is killed; 0: none.
func grow(t *testing.T, p *Plan, w world, size, stop int) []Leaf {
	ids, ended := map[string]bool{}, 0
	for {
		starts := p.Next()
		if len(starts) == 0 {
			require.Len(t, p.leaves, size, "the trees are whole")
			require.Empty(t, p.before, "what was recorded is used")
			return p.leaves
		}
		require.LessOrEqual(t, len(p.leaves), size)
		for _, s := range starts {
			id := fmt.Sprintf("%d/%s", s.Index, s.Branch)
			require.False(t, ids[id], "%s begins once", id)
			require.NoError(t, s.Branch.Check())
			ids[id] = true
			var parent []Turn
			if s.Parent >= 0 {
				of := p.leaves[s.Parent]
				path, ok := s.Branch.Parent()
				require.True(t, ok)
				require.Equal(t, of.Branch, path)
				require.Equal(t, of.Index, s.Index)
				require.Equal(t, s.Forked, s.Turn)
				require.Equal(t, s.At, s.Token)
				if s.At > 0 {
					require.GreaterOrEqual(t, of.Turns[s.Forked].NLL[s.At], 0.0, "a child may begin there")
				}
				require.Less(t, s.Forked, len(of.Turns))
				parent = of.Turns
			} else {
				require.Empty(t, s.Branch)
			}
			p.Ended(s.Number, w.turns(s.Leaf, parent, s.Token))
			if ended++; ended == stop {
				return p.leaves
			}
		}
	}
}

func rules(rng *rand.Rand, roots, size int) Rule {
	switch rng.IntN(3) {
	case 0:
		return Entropy{Base: rng.Float64(), Weight: rng.Float64(), Vocabulary: 50, Lagged: rng.IntN(2) == 0, Penalty: rng.Float64(), Depth: rng.IntN(3)}
	case 1:
		return StepRandom{Trees: roots, Nodes: 1 + rng.IntN(3), Rounds: 1 + rng.IntN(3), Leaves: size / roots}
	}
	return TokenNLL{Trees: roots, Tokens: 1 + rng.IntN(3), Branches: 1 + rng.IntN(3), Rounds: 1 + rng.IntN(2), Leaves: size / roots * rng.IntN(2)}
}

// A plan has exactly as many leaves as the group, whatever fails; and one that goes on after a kill, with any part of the last round recorded, makes
// the same trees.
func TestPlansAreWholeAndResume(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for trial := range 2000 {
		size := 1 + rng.IntN(20)
		roots := 1 + rng.IntN(size)
		rule, w := rules(rng, roots, size), world{seed: rng.Uint64()}
		seed := seeds(rng.Uint64())
		want := grow(t, NewPlan(rule, roots, size, seed, nil), w, size, 0)
		byRule, isRandom := rule.(StepRandom)
		for index := range roots {
			n := 0
			for _, l := range want {
				if l.Index == index {
					n++
				}
			}
			if isRandom {
				require.LessOrEqual(t, n, max(1, byRule.Leaves))
			}
		}
		killed := NewPlan(rule, roots, size, seed, nil)
		grow(t, killed, w, size, 1+rng.IntN(size))
		var before []Leaf // the leaves of the last round that had a turn of their own; those of earlier rounds had ended
		for n, l := range killed.leaves {
			if n < killed.fresh || rng.IntN(2) == 0 {
				l.Turns = nil
				before = append(before, l)
			}
		}
		require.Equal(t, want, grow(t, NewPlan(rule, roots, size, seed, before), w, size, 0), "trial %d: %+v", trial, rule)
		// What fails is no place to fork off, and is tried once more by the next process.
		bad := rng.Uint64()
		w.failed = func(l Leaf) bool { return seeds(bad)(l.Index, l.Branch, 1)%3 == 0 }
		first := grow(t, NewPlan(rule, roots, size, seed, nil), w, size, 0)
		for i := range first {
			first[i].Turns = nil
		}
		w.failed = nil
		require.Len(t, grow(t, NewPlan(rule, roots, size, seed, first), w, size, 0), size)
	}
}

// planted are leaves whose second turn reads a result with entropy high, and whose first has entropy low.
func planted(n int, entropies ...float64) (out []Leaf, forks []Fork) {
	for i := range n {
		l := Leaf{Index: i}
		for _, h := range entropies {
			l.Turns = append(l.Turns, Turn{Entropy: h})
		}
		out, forks = append(out, l), append(forks, Fork{Parent: -1})
	}
	return out, forks
}

func frequency(t *testing.T, e Entropy, turn int, entropies ...float64) (share float64, n int) {
	hits := 0
	for run := range uint64(200) {
		leaves, forks := planted(100, entropies...)
		for _, f := range e.Forks(Round{Number: 1, Leaves: leaves, Forks: forks, Budget: len(leaves), Seed: seeds(run)}) {
			if f.Turn == turn {
				hits++
			}
		}
		n += len(leaves)
	}
	return float64(hits) / float64(n), n
}

// ARPO's rule branches with probability clamp(base + weight * dH), by the entropy behind the result; lagged, by that of the call.
func TestBranchesComeAsOftenAsTheirProbability(t *testing.T) {
	for _, c := range []struct {
		base, weight float64
		lagged       bool
		entropies    []float64
		turn         int
		want         float64
	}{
		{0.5, 0.2, false, []float64{1, 1, 1}, 1, 0.5},
		{0.5, 0.5, false, []float64{0, math.Log(50) / 2, 0}, 1, 0.75},
		{0.5, 0.5, false, []float64{0, math.Log(50) / 2, 0}, 2, 0.5},
		{0.5, 0.5, true, []float64{0, math.Log(50) / 2, 0}, 1, 0.5},  // the turn that issued the first call is the first
		{0.5, 0.5, true, []float64{0, math.Log(50) / 2, 0}, 2, 0.75}, // one segment late
		{0.2, 0.4, false, []float64{math.Log(50), 0, 0}, 1, 0},
		{0.8, 0.4, false, []float64{0, math.Log(50), 0}, 1, 1},
		{0.1, 0, false, []float64{0, 3, 0}, 1, 0.1},
	} {
		got, n := frequency(t, Entropy{Base: c.base, Weight: c.weight, Vocabulary: 50, Lagged: c.lagged}, c.turn, c.entropies...)
		sigma := math.Sqrt(c.want * (1 - c.want) / float64(n))
		require.InDelta(t, c.want, got, 3*sigma, "%+v", c)
	}
}

// The difference of entropies is summed over the tokens that it is the mean over, as the weight of ARPO's code expects: half a nat over 20 tokens of a
// vocabulary of 151,936 at weight 0.2 adds 0.168.
func TestTheDifferenceIsASum(t *testing.T) {
	e := Entropy{Base: 0.5, Weight: 0.2, Tokens: 20, Vocabulary: 151_936}
	require.InDelta(t, 0.668, e.Probability(0.5, 0), 5e-4)
	e.Tokens = 0
	require.InDelta(t, 0.508, e.Probability(0.5, 0), 5e-4)
}

// Settings may change where a run goes on: what was recorded keeps its place, and there are never more leaves than the task has.
func TestPlansOfOtherRoots(t *testing.T) {
	lowered := []Leaf{{Index: 0}, {Index: 1}, {Index: 2}, {Index: 1, Branch: "0", Forked: 1}, {Index: 2, Branch: "0", Forked: 1}, {Index: 2, Branch: "1", Forked: 1}}
	raised := []Leaf{{Index: 0}, {Index: 1}, {Index: 0, Branch: "0", Forked: 1}, {Index: 1, Branch: "0", Forked: 1}}
	for name, c := range map[string]struct {
		roots, size int
		before      []Leaf
	}{"fewer roots": {1, 6, lowered}, "more roots": {4, 4, raised}, "more roots than there is room for": {6, 6, lowered}} {
		t.Run(name, func(t *testing.T) {
			p := NewPlan(Entropy{Vocabulary: 50}, c.roots, c.size, seeds(1), c.before)
			for {
				starts := p.Next()
				if len(starts) == 0 {
					break
				}
				for _, s := range starts {
					p.Ended(s.Number, []Turn{{NLL: []float64{1}}, {NLL: []float64{1}}})
				}
			}
			require.Empty(t, p.before)
			require.Len(t, p.leaves, c.size)
		})
	}
}

// AEPO's penalty: a branch right behind another one comes with (1 - penalty) of its probability.
func TestBranchesInARowArePenalized(t *testing.T) {
	e := Entropy{Base: 0.6, Vocabulary: 50, Penalty: 0.5}
	got, n := frequency(t, e, 2, 0, 0, 0)
	want := 0.6*0.6*0.5 + 0.4*0.6 // behind a branch, and behind none
	require.InDelta(t, want, got, 3*math.Sqrt(want*(1-want)/float64(n)))
	got, n = frequency(t, e, 3, 0, 0, 0, 0)
	p1 := 0.6*0.6*0.5*0.6*0.25 + (want-0.6*0.6*0.5)*0.6*0.5 + (1-want)*0.6
	require.InDelta(t, p1, got, 3*math.Sqrt(p1*(1-p1)/float64(n)))
	require.Equal(t, 0.25*0.6, e.Probability(0, 2))
	// A child came by a branch, so that its first own turn but one is behind one.
	child := Round{Leaves: []Leaf{{Turns: make([]Turn, 4)}, {Branch: "0", Forked: 2, Turns: make([]Turn, 4)}}, Forks: []Fork{{Parent: -1}, {Parent: 0, Turn: 2}}, Fresh: 1}
	require.True(t, child.branched(1, 2, nil))
	require.True(t, child.branched(0, 2, nil))
	require.False(t, child.branched(1, 1, nil))
}

// Earlier turns come first, so that a budget that does not reach is spent as if the leaves ran side by side.
func TestTheBudgetGoesToEarlierTurns(t *testing.T) {
	p := NewPlan(Entropy{Base: 1}, 3, 5, seeds(1), nil)
	for _, s := range p.Next() {
		p.Ended(s.Number, make([]Turn, 4))
	}
	var got []string
	for _, s := range p.Next() {
		got = append(got, fmt.Sprintf("%d.%s@%d", s.Index, s.Branch, s.Turn))
	}
	require.Equal(t, []string{"0.0@1", "1.0@1"}, got)
	require.Empty(t, p.Next())
}

func TestTreeGRPOsSteps(t *testing.T) {
	// M 2, N 2, L 1, K 3: two trees of three leaves.
	for seed := range uint64(50) {
		p := NewPlan(StepRandom{Trees: 2, Nodes: 2, Rounds: 1, Leaves: 3}, 2, 6, seeds(seed), nil)
		leaves := grow(t, p, world{seed: seed}, 6, 0)
		require.Len(t, leaves, 6)
		for _, l := range leaves {
			require.Less(t, l.Index, 2)
		}
	}
	// Every step of a tree comes as often as the others.
	count := map[int]int{}
	for seed := range uint64(6000) {
		r := Round{Number: 1, Leaves: []Leaf{{Turns: make([]Turn, 4)}}, Forks: []Fork{{Parent: -1}}, Seed: seeds(seed)}
		forks := StepRandom{Trees: 1, Nodes: 1, Rounds: 1}.Forks(r)
		require.Len(t, forks, 1)
		count[forks[0].Turn]++
	}
	require.Len(t, count, 3)
	for turn := 1; turn < 4; turn++ {
		require.InDelta(t, 2000, count[turn], 3*math.Sqrt(6000.0/3*2/3))
	}
}

func TestEPTreesTokens(t *testing.T) {
	// M 6, N 2, T 2, L 1: M(1 + NT) = 30 leaves.
	p := NewPlan(TokenNLL{Trees: 6, Tokens: 2, Branches: 2, Rounds: 1}, 6, 30, seeds(1), nil)
	for _, s := range p.Next() {
		p.Ended(s.Number, []Turn{{NLL: []float64{9, 1, 5}}, {NLL: []float64{3, 4}}})
	}
	starts := p.Next()
	require.Len(t, starts, 24)
	var got [][2]int
	for _, s := range starts[:4] {
		require.Equal(t, 0, s.Index)
		got = append(got, [2]int{s.Turn, s.Token})
	}
	// The first token of all shares nothing that was sampled: 5 and 4 are the least likely of the rest.
	require.Equal(t, [][2]int{{0, 2}, {0, 2}, {1, 1}, {1, 1}}, got)

	// M 1, N 2, T 1, L 2, where token 2 of the first turn is no place to fork. The second round chooses from all leaves, without what was branched in the
	// first: of the child at (1, 1) the place where it forks is the root's, and what it has of the root is the root's too.
	p = NewPlan(TokenNLL{Trees: 1, Tokens: 2, Branches: 1, Rounds: 2}, 1, 5, seeds(1), nil)
	root := []Turn{{NLL: []float64{9, 1, -1}}, {NLL: []float64{3, 4, 2}}}
	p.Next()
	p.Ended(0, root)
	starts = p.Next()
	require.Len(t, starts, 2)
	require.Equal(t, []Fork{{Parent: 0, Turn: 1, Token: 1}, {Parent: 0, Turn: 1}}, []Fork{starts[0].Fork, starts[1].Fork})
	p.Ended(1, []Turn{root[0], {NLL: []float64{3, 8, 6}}})
	p.Ended(2, []Turn{root[0], {NLL: []float64{7, 5.5}}, {NLL: []float64{0, 5}}})
	starts = p.Next()
	require.Equal(t, []Fork{{Parent: 1, Turn: 1, Token: 2}, {Parent: 2, Turn: 1, Token: 1}}, []Fork{starts[0].Fork, starts[1].Fork})

	// A tree has no more leaves than it may: the least likely token comes first.
	p = NewPlan(TokenNLL{Trees: 2, Tokens: 2, Branches: 2, Rounds: 1, Leaves: 4}, 2, 8, seeds(1), nil)
	for _, s := range p.Next() {
		p.Ended(s.Number, root)
	}
	starts = p.Next()
	require.Len(t, starts, 6)
	for i, s := range starts {
		require.Equal(t, Fork{Parent: i / 3, Turn: 1, Token: []int{1, 1, 0}[i%3]}, s.Fork)
	}
}

// A leaf that forks within a turn keeps its place where the run goes on with a rule that has no such forks.
func TestWhatForkedWithinATurnIsAdopted(t *testing.T) {
	closed := []Turn{{NLL: []float64{-1, -1, -1}}}
	p := NewPlan(Entropy{Vocabulary: 50}, 1, 3, seeds(1), []Leaf{{}, {Branch: "0", At: 2}})
	p.Next()
	p.Ended(0, closed)
	starts := p.Next()
	require.Len(t, starts, 1)
	require.Equal(t, Start{Number: 1, Leaf: Leaf{Branch: "0", At: 2}, Fork: Fork{Parent: 0, Token: 2}}, starts[0])
	p.Ended(1, closed)
	starts = p.Next()
	require.Len(t, starts, 1)
	require.Equal(t, 1, starts[0].Index, "what is left begins at the prompt")
}

func TestPathsAreOrderedByNumber(t *testing.T) {
	all := []*trajectory.Trajectory{{Index: 1}, {Branch: "10"}, {Branch: "2.0"}, {}, {Branch: "2"}}
	Sort(all)
	var got []string
	for _, tr := range all {
		got = append(got, fmt.Sprintf("%d.%s", tr.Index, tr.Branch))
	}
	require.Equal(t, []string{"0.", "0.2", "0.2.0", "0.10", "1."}, got)
}

// No leaf forks off before a closed turn, by any rule that forks between turns; where all are closed, a tree is expanded before its first.
func TestClosedTurnsDoNotBranch(t *testing.T) {
	turns := []Turn{{}, {Closed: true}, {Entropy: 1}, {Closed: true}}
	for seed := range uint64(200) {
		r := Round{Number: 1, Leaves: []Leaf{{Turns: turns}}, Forks: []Fork{{Parent: -1}}, Seed: seeds(seed)}
		require.Equal(t, []Fork{{Turn: 2}}, Entropy{Base: 1, Vocabulary: 50}.Forks(r))
		require.Equal(t, []Fork{{Turn: 2}, {Turn: 2}}, StepRandom{Trees: 1, Nodes: 2, Rounds: 1}.Forks(r))
		r.Leaves[0].Turns = turns[:2]
		require.Empty(t, Entropy{Base: 1, Vocabulary: 50}.Forks(r))
		require.Equal(t, []Fork{{Turn: 0}}, StepRandom{Trees: 1, Nodes: 1, Rounds: 1}.Forks(r))
	}
}
