package algorithms

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

var _ = declareEstimator(EstimatorSpec{
	Name:    "tree",
	Formula: "A = (inter * a_i + intra * b_i + local * (V(n) - V(parent of n)) + global * V(n)) / s(n). a_i is norm(r over the leaves of the task), b_i norm(a over the leaves of its tree); n is the node of the token, V(n) the mean of a over the leaves through it, V of the root 0, the mean of all; s(n) is 1, the root of the number of leaves through n, or that number",
	Source:  "Tree-GRPO, arXiv 2509.21240 (inter, intra); TreeRL, arXiv 2506.11902 (local, global, shared: sqrt)",
	Keys: []Key{
		{"inter", 1.0, "weight of the leaf among all leaves of the task"},
		{"intra", 1.0, "weight of the leaf among those of its tree"},
		{"local", 0.0, "weight of the step from a node's parent to the node"},
		{"global", 0.0, "weight of the node's value"},
		{"normalize", "mean-std", "norm is x - mean, divided by (sample std + 1e-6) with mean-std, times n/(n - 1) with leave-one-out: mean-std, mean or leave-one-out"},
		{"shared", "leaf", "s(n): leaf, 1, counts a shared token once for every leaf; sqrt, the root; once, the number of its leaves"},
	},
	Notes: []string{
		groupNote,
		"a node is a run of tokens that the same leaves go through; a tree is the leaves that share a sampled token, and a leaf that shares none is a tree of its own, with b = 0",
		"each leaf is a trajectory that holds all tokens from the root: a shared token is in the denominators of the loss once for every leaf",
	},
	Needs: Needs{Shared: true},
	New: func(s Settings) (Estimator, error) {
		norms := map[string]perTrajectory{"mean-std": normalised, "mean": centred, "leave-one-out": leaveOneOut}
		norm, ok := norms[s.String("normalize")]
		if !ok {
			return nil, fmt.Errorf("normalize is %q; allowed are mean-std, mean, leave-one-out", s.String("normalize"))
		}
		scale, ok := sharings[s.String("shared")]
		if !ok {
			return nil, fmt.Errorf("shared is %q; allowed are leaf, sqrt, once", s.String("shared"))
		}
		e := treeCredit{s.Float("inter"), s.Float("intra"), s.Float("local"), s.Float("global"), norm, scale}
		err := errors.Join(s.between("inter", 0, math.Inf(1)), s.between("intra", 0, math.Inf(1)), s.between("local", 0, math.Inf(1)), s.between("global", 0, math.Inf(1)))
		if err == nil && e.inter+e.intra+e.local+e.global == 0 {
			err = errors.New("all weights are 0: nothing would be learned; raise inter, intra, local or global")
		}
		return e, err
	},
})

// sharings are the scales of a token that n leaves share.
var sharings = map[string]func(n float64) float64{
	"leaf": func(float64) float64 { return 1 },
	"sqrt": math.Sqrt,
	"once": func(n float64) float64 { return n },
}

type treeCredit struct {
	inter, intra, local, global float64
	norm                        perTrajectory
	scale                       func(leaves float64) float64
}

func (e treeCredit) Advantages(groups []Group) ([][][]float64, error) {
	out := make([][][]float64, len(groups))
	for g, group := range groups {
		a := e.norm.of(rewardsOf(group))
		nodes, trees := treesOf(group, a)
		b := e.within(trees, a)
		for i, r := range group {
			values, parent := make([]float64, r.Tokens), &node{} // the root, whose value is 0
			var at *node
			for t := range values {
				n := nodes[i][t]
				if at != nil && n != at {
					parent = at
				}
				at = n
				leaf := e.inter*a[i] + e.intra*b[i]
				values[t] = (leaf + e.local*(n.value-parent.value) + e.global*n.value) / e.scale(float64(n.leaves))
			}
			out[g] = append(out[g], values)
		}
	}
	return out, nil
}

// within compares the leaves of each tree with each other.
func (e treeCredit) within(trees [][]int, a []float64) []float64 {
	out := make([]float64, len(a))
	for _, tree := range trees {
		values := make([]float64, len(tree))
		for k, i := range tree {
			values[k] = a[i]
		}
		for k, v := range e.norm.of(values) {
			out[tree[k]] = v
		}
	}
	return out
}

// node is a run of tokens that the same leaves go through.
type node struct {
	leaves int
	value  float64 // the mean over its leaves
}

// treesOf finds the node of every token [leaf][L], and the leaves of each tree, from the names of what was sampled once. a are the values of the leaves.
func treesOf(group Group, a []float64) (nodes [][]*node, trees [][]int) {
	through := map[string][]int{} // leaves of each name, in order
	for i, r := range group {
		for _, name := range r.Shared {
			if l := through[name]; name != "" && (len(l) == 0 || l[len(l)-1] != i) {
				through[name] = append(l, i)
			}
		}
	}
	known := map[string]*node{}
	nodeOf := func(leaves []int) *node {
		var key strings.Builder
		sum := 0.0
		for _, i := range leaves {
			key.WriteString(strconv.Itoa(i) + " ")
			sum += a[i]
		}
		n := known[key.String()]
		if n == nil {
			n = &node{len(leaves), sum / float64(len(leaves))}
			known[key.String()] = n
		}
		return n
	}
	byName := map[string]*node{}
	for name, leaves := range through {
		byName[name] = nodeOf(leaves)
	}
	for i, r := range group {
		own := nodeOf([]int{i})
		list := make([]*node, r.Tokens)
		for t := range list {
			list[t] = own
			if r.Shared != nil && r.Shared[t] != "" {
				list[t] = byName[r.Shared[t]]
			}
		}
		nodes = append(nodes, list)
	}
	return nodes, joined(len(group), through)
}

// joined puts n leaves into trees: those that share a name are in one.
func joined(n int, through map[string][]int) [][]int {
	tree := make([]int, n) // another leaf of the same tree, in the end its first
	for i := range tree {
		tree[i] = i
	}
	first := func(i int) int {
		for tree[i] != i {
			i = tree[i]
		}
		return i
	}
	for _, leaves := range through {
		for _, i := range leaves[1:] {
			a, b := first(leaves[0]), first(i)
			tree[max(a, b)] = min(a, b)
		}
	}
	for i := range tree {
		tree[i] = first(i)
	}
	return grouped(tree)
}

// grouped lists the indices of each number, in the order of their first ones.
func grouped(of []int) (out [][]int) {
	at := map[int]int{}
	for i, n := range of {
		if _, ok := at[n]; !ok {
			at[n] = len(out)
			out = append(out, nil)
		}
		out[at[n]] = append(out[at[n]], i)
	}
	return out
}
