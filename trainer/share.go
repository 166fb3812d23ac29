//go:build torch

package trainer

// share says which rank computes which trajectories of a batch.
type share struct {
	owner []int // [unit] the neighbours that compute it, by their number, or the rank where none has any; nil: this process is alone
	own   int   // of this process
}

// newShare deals the trajectories of each mini-batch out: each rank, or neighbours together, get a run of neighbours,
// which share prompts, and nearly the same number of tokens.
func newShare(r ranks, p *plan, miniBatches int) share {
	if r.alone() {
		return share{}
	}
	shares := r.group.World() / r.perBatch()
	s := share{owner: make([]int, len(p.units)), own: r.group.Rank() / r.perBatch()}
	tokens := func(u int) (n int) {
		for _, i := range p.units[u].items {
			n += p.items[i].Sample.Len()
		}
		return n
	}
	for _, units := range p.miniBatches(miniBatches) {
		total, before := 0, 0
		for _, u := range units {
			total += tokens(u)
		}
		for _, u := range units {
			n := tokens(u)
			s.owner[u] = (2*before + n) * shares / (2 * max(1, total)) // where its middle falls
			before += n
		}
	}
	return s
}

// mine reports whether this rank computes the trajectory.
func (s share) mine(u int) bool { return s.owner == nil || s.owner[u] == s.own }

// results is what a rank computed of a batch.
type results struct {
	Items                           []int // indices into plan.items
	Old, Entropy, Reference, Values [][]float64
	Units                           []int // indices into plan.units, of bootstrap
	Bootstrap                       []float64
	Tally                           tally
}

// resultsOf are those of this rank.
func resultsOf(p *plan, s share, t tally) results {
	mine := results{Tally: t}
	pick := func(from [][]float64, i int) []float64 {
		if from == nil {
			return nil
		}
		return from[i]
	}
	for i := range p.items {
		if s.mine(p.unitOf[i]) {
			mine.Items = append(mine.Items, i)
			mine.Old, mine.Entropy = append(mine.Old, pick(p.old, i)), append(mine.Entropy, pick(p.entropy, i))
			mine.Reference, mine.Values = append(mine.Reference, pick(p.reference, i)), append(mine.Values, pick(p.values, i))
		}
	}
	for u := range p.bootstrap {
		if s.mine(u) {
			mine.Units, mine.Bootstrap = append(mine.Units, u), append(mine.Bootstrap, p.bootstrap[u])
		}
	}
	return mine
}

// put writes the results of a rank into a plan.
func (x results) put(p *plan) {
	put := func(to [][]float64, i int, values []float64) {
		if to != nil && len(values) > 0 { // nil comes as empty: it was not computed
			to[i] = values
		}
	}
	for k, i := range x.Items {
		put(p.old, i, x.Old[k])
		put(p.entropy, i, x.Entropy[k])
		put(p.reference, i, x.Reference[k])
		put(p.values, i, x.Values[k])
	}
	for k, u := range x.Units {
		p.bootstrap[u] = x.Bootstrap[k]
	}
}

// trade gives the plan of every rank the numbers that the others computed, and returns the sum of what all counted.
func trade(r ranks, p *plan, s share, mine tally) (sum tally, err error) {
	if r.alone() {
		return mine, nil
	}
	var found results
	if r.speaks() {
		found = resultsOf(p, s, mine)
	}
	all, err := exchange(r.group, found)
	if err != nil {
		return mine, err
	}
	for _, x := range all {
		x.put(p)
		sum.add(x.Tally)
	}
	return sum, nil
}
