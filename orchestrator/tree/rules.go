package tree

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/agentfly/agentfly/trajectory"
)

// Entropy branches before a turn that follows a result with the probability clamp(Base + Weight * dH) (ARPO, arXiv 2507.19849, section 3.2). dH is
// how much the entropy of the turn's first tokens is above that of the leaf's first turn, summed over the tokens, in units of ln Vocabulary.
type Entropy struct {
	Base, Weight float64
	Tokens       int     // that an entropy is the mean over; 0: 1
	Vocabulary   int     // tokens of the model
	Lagged       bool    // decides by the entropy of the turn that issued the call, as the released code does, not of the one that read its result
	Penalty      float64 // AEPO: the probability is times (1 - Penalty)^n behind n branches in a row; 0: none
	Depth        int     // most forks on the way to a leaf; 0: any number
}

// Probability is that of a branch with the difference of entropies, in nats a token, behind so many branches in a row.
func (e Entropy) Probability(difference float64, row int) float64 {
	p := e.Base + e.Weight*difference*float64(max(1, e.Tokens))/math.Log(float64(max(2, e.Vocabulary)))
	return min(1, max(0, p)) * math.Pow(1-e.Penalty, float64(row))
}

// Forks implements Rule: earlier turns come first, as they would if the leaves were sampled side by side.
func (e Entropy) Forks(r Round) []Fork {
	var out []Fork
	decided := map[point]bool{}
	last := 0
	for _, l := range r.Leaves[r.Fresh:] {
		last = max(last, len(l.Turns))
	}
	for turn := 1; turn < last; turn++ {
		for n := r.Fresh; n < len(r.Leaves); n++ {
			l := r.Leaves[n]
			if turn <= l.Forked && l.Branch != "" || turn >= len(l.Turns) || l.Turns[turn].Closed || e.Depth > 0 && depth(l.Branch) >= e.Depth {
				continue
			}
			seen := turn
			if e.Lagged {
				seen--
			}
			row := 0
			for row < turn-1 && r.branched(n, turn-1-row, decided) {
				row++
			}
			u := rand.New(rand.NewPCG(r.Seed(l.Index, l.Branch, turn), branching)).Float64()
			if u < e.Probability(l.Turns[seen].Entropy-l.Turns[0].Entropy, row) {
				decided[point{n, turn}] = true
				out = append(out, Fork{Parent: n, Turn: turn})
			}
		}
	}
	return out
}

// branching keeps the draws of branches apart from those of tokens, which have the same seeds.
const branching = 0x6272616e63680000

// point is where a leaf forks.
type point struct{ leaf, turn int }

// branched tells whether the way to a leaf forks before a turn of it.
func (r Round) branched(n, turn int, decided map[point]bool) bool {
	for {
		f := r.Forks[n]
		if f.Parent < 0 || turn > f.Turn {
			break
		}
		if turn == f.Turn {
			return true
		}
		n = f.Parent
	}
	return decided[point{n, turn}] || slices.ContainsFunc(r.Forks, func(f Fork) bool { return f.Parent == n && f.Turn == turn })
}

func depth(b trajectory.Branch) int { return len(numbers(b)) }

// StepRandom expands, in each of so many rounds, random steps of every tree (Tree-GRPO, arXiv 2509.21240, section 3.1). A step is a turn, and its
// expansion another way on from before it.
type StepRandom struct {
	Trees  int // M
	Nodes  int // N, of a tree in a round
	Rounds int // L
	Leaves int // K, most of a tree; 0: any number
}

// Forks implements Rule. The tree of one turn is expanded before it: nothing that was sampled is shared then.
func (s StepRandom) Forks(r Round) []Fork {
	if r.Number > s.Rounds {
		return nil
	}
	var out []Fork
	for index := range s.Trees {
		points, leaves := r.points(index)
		rng := rand.New(rand.NewPCG(r.Seed(index, "", r.Number), branching))
		rng.Shuffle(len(points), func(i, k int) { points[i], points[k] = points[k], points[i] })
		want := s.Nodes
		if s.Leaves > 0 {
			want = min(want, s.Leaves-leaves)
		}
		for i := range max(0, want) {
			if len(points) == 0 {
				break
			}
			p := points[i%len(points)] // a tree with fewer steps has some expanded again
			out = append(out, Fork{Parent: p.leaf, Turn: p.turn})
		}
	}
	return out
}

// points are the steps of a tree, each once, and how many leaves the tree has.
func (r Round) points(index int) (points []point, leaves int) {
	root := -1
	for n, l := range r.Leaves {
		if l.Index != index {
			continue
		}
		leaves++
		if l.Branch == "" && l.Turns != nil {
			root = n
		}
		first := 1
		if l.Branch != "" { // before its first own turn is the step that it came by
			first = l.Forked + 1
		}
		for turn := first; turn < len(l.Turns); turn++ {
			if !l.Turns[turn].Closed {
				points = append(points, point{n, turn})
			}
		}
	}
	if len(points) == 0 && root >= 0 {
		points = append(points, point{root, 0})
	}
	return points, leaves
}

// TokenNLL branches, in each of so many rounds, the tokens of every tree that were least likely, so many times each (EPTree of TreeRL, arXiv
// 2506.11902, section 3.1, where the negative log-likelihood is called entropy). A token that was branched in an earlier round is not branched again.
type TokenNLL struct {
	Trees    int // M
	Tokens   int // N, of a tree in a round
	Branches int // T, of a token
	Rounds   int // L
	Leaves   int // most of a tree; 0: any number
}

// Forks implements Rule: the children begin with what was sampled before the token.
func (t TokenNLL) Forks(r Round) []Fork {
	if r.Number > t.Rounds {
		return nil
	}
	var out []Fork
	for index := range t.Trees {
		tokens, leaves := r.tokens(index)
		slices.SortStableFunc(tokens, func(a, b token) int { return cmp.Compare(b.nll, a.nll) })
		want := t.Tokens * t.Branches
		if t.Leaves > 0 {
			want = min(want, t.Leaves-leaves)
		}
		for _, one := range tokens[:min(t.Tokens, len(tokens))] {
			for range min(t.Branches, want) {
				out = append(out, one.Fork)
				want--
			}
		}
	}
	return out
}

// token is a place where a leaf may fork, with how unlikely what stands there is.
type token struct {
	Fork
	nll float64
}

// tokens are those of a tree that may branch, each once, and how many leaves the tree has. A leaf's own begin behind the one that it forks off at: that
// was branched, and is no other's.
func (r Round) tokens(index int) (tokens []token, leaves int) {
	branched := map[Fork]bool{}
	for _, f := range r.Forks {
		branched[f] = true
	}
	for n, l := range r.Leaves {
		if l.Index != index {
			continue
		}
		leaves++
		for turn := l.Forked; turn < len(l.Turns); turn++ {
			from := 0
			if turn == l.Forked { // nothing that was sampled stands before a root's first token
				from = l.At + 1
			}
			for at := from; at < len(l.Turns[turn].NLL); at++ {
				f := Fork{Parent: n, Turn: turn, Token: at}
				if nll := l.Turns[turn].NLL[at]; nll >= 0 && !branched[f] {
					tokens = append(tokens, token{f, nll})
				}
			}
		}
	}
	return tokens, leaves
}
