package view

import (
	"cmp"
	"math"
	"slices"

	"github.com/agentfly/agentfly/orchestrator/store"
)

// end is how a trajectory ended: its stop reason, and its first call that failed.
type end struct {
	Stop   string `json:"stop"`
	Origin string `json:"origin,omitempty"` // of its error: it failed and earned nothing that counts
	Tool   string `json:"tool,omitempty"`   // of the call; "" with a Cause: a call that could not be read
	Cause  string `json:"cause,omitempty"`  // "": no call failed
}

// endSum compares the trajectories of a step that ended in one way with those of the steps before it.
type endSum struct {
	end
	Count  int `json:"count"`
	Share  num `json:"share"`  // of the step's trajectories
	Before num `json:"before"` // the same share in the steps before
	Mean   num `json:"mean"`   // reward; NaN without any
	Was    num `json:"was"`    // mean reward in the steps before; NaN without any
	Effect num `json:"effect"` // what it adds to the change of the mean reward; NaN for failed ones, which do not count
}

// usualSpan is how many steps before a step it is held against unless somebody chooses. More of them are surer, but while a policy learns fast their mean
// lies behind.
const usualSpan = 5

// endSums say what moved the mean reward of a step: the effects of all ends add up to the change.
type endSums struct {
	Steps  int      `json:"steps"` // before the step, that it is held against; 0: there is none
	Mean   num      `json:"mean"`  // reward of the step's trajectories
	Before num      `json:"before"`
	Noise  num      `json:"noise"` // standard error of the difference of both, as if trajectories were drawn alone; NaN of fewer than two
	Ends   []endSum `json:"ends"`  // those that moved it most first
}

func (e *entry) end() end {
	out := end{Stop: e.Stop, Origin: e.Origin}
	if at := slices.IndexFunc(e.Calls, func(c call) bool { return c.Cause != "" }); at >= 0 && e.Origin == "" {
		out.Tool, out.Cause = e.Calls[at].Tool, e.Calls[at].Cause
	}
	return out
}

// ends holds the trajectories that were sampled for a step against those of so many steps before it, by how they ended.
//
// With m the mean reward before, an end whose trajectories are a share p of those that count, with the mean reward r, adds p·(r − m) to the mean; its
// effect is that of the step minus that of the steps before. So an end that earns less than the mean before moves it down where it becomes more
// frequent, and all effects add up to the change of the mean.
func (x *index) ends(step, span int) endSums {
	type side struct {
		all, counted int
		sum, squares float64
	}
	var total [2]side // the steps before, the step
	by := map[end]*[2]side{}
	steps := map[int]bool{}
	for _, e := range x.entries {
		if e.Phase != store.Train || e.Step > step || e.Step < step-span {
			continue
		}
		k := 0
		if e.Step == step {
			k = 1
		} else {
			steps[e.Step] = true
		}
		of := by[e.end()]
		if of == nil {
			of = &[2]side{}
			by[e.end()] = of
		}
		for _, s := range []*side{&of[k], &total[k]} {
			s.all++
			if e.scored() {
				s.counted++
				s.sum += e.Reward
				s.squares += e.Reward * e.Reward
			}
		}
	}
	mean := func(s side) float64 { return s.sum / float64(s.counted) } // NaN without any
	before := mean(total[0])
	out := endSums{Steps: len(steps), Mean: num(mean(total[1])), Before: num(before), Noise: num(math.NaN()), Ends: []endSum{}}
	if total[0].counted == 0 || total[1].counted == 0 {
		return out
	}
	out.Noise = num(math.Sqrt(deviation(total[0].sum, total[0].squares, total[0].counted) + deviation(total[1].sum, total[1].squares, total[1].counted)))
	adds := func(s, of side) float64 { return (s.sum - before*float64(s.counted)) / float64(of.counted) }
	for kind, s := range by {
		sum := endSum{
			end: kind, Count: s[1].all, Share: num(float64(s[1].all) / float64(total[1].all)), Before: num(float64(s[0].all) / float64(total[0].all)),
			Mean: num(mean(s[1])), Was: num(mean(s[0])), Effect: num(adds(s[1], total[1]) - adds(s[0], total[0])),
		}
		if kind.Origin != "" {
			sum.Effect = num(math.NaN())
		}
		out.Ends = append(out.Ends, sum)
	}
	size := func(e endSum) float64 {
		if v := math.Abs(float64(e.Effect)); !math.IsNaN(v) {
			return v
		}
		return -1
	}
	slices.SortFunc(out.Ends, func(a, b endSum) int {
		return cmp.Or(cmp.Compare(size(b), size(a)), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Stop, b.Stop), cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.Tool, b.Tool), cmp.Compare(a.Cause, b.Cause))
	})
	return out
}

// deviation is the variance of a mean of n values, of which the sum and that of their squares are given; NaN of one.
func deviation(sum, squares float64, n int) float64 {
	mean := sum / float64(n)
	return max(0, squares-float64(n)*mean*mean) / float64(n-1) / float64(n)
}

// turning is a step from which on a tool fails more often, or less.
type turning struct {
	Step   int `json:"step"`
	Before num `json:"before"` // share of failed calls
	After  num `json:"after"`
}

// mostTrend is how many parts a trend has at most.
const mostTrend = 40

// trends sets how the failures of tools went over the steps of training.
func (x *index) trends(tools []toolSum) {
	if len(tools) == 0 {
		return
	}
	by := map[string]map[int]*failures{}
	last := 0
	for _, t := range tools {
		by[t.Tool] = map[int]*failures{}
	}
	for _, e := range x.entries {
		if e.Phase != store.Train {
			continue
		}
		last = max(last, e.Step)
		for _, c := range e.Calls {
			steps := by[c.Tool]
			if steps == nil || c.Again {
				continue
			}
			if steps[e.Step] == nil {
				steps[e.Step] = &failures{}
			}
			steps[e.Step].calls++
			if c.Cause != "" {
				steps[e.Step].failed++
			}
		}
	}
	for i := range tools {
		each := make([]failures, last+1)
		for step, f := range by[tools[i].Tool] {
			if step >= 0 {
				each[step] = *f
			}
		}
		tools[i].Turned = turned(each)
		tools[i].Trend = trend(each)
	}
}

// failures counts the calls of a tool.
type failures struct{ calls, failed int }

func (f *failures) add(o failures) { f.calls, f.failed = f.calls+o.calls, f.failed+o.failed }

func (f failures) share() float64 { return float64(f.failed) / float64(f.calls) } // NaN without any

func trend(each []failures) []num {
	parts := min(mostTrend, len(each))
	out := make([]num, parts)
	for p := range parts {
		var f failures
		for _, s := range each[p*len(each)/parts : (p+1)*len(each)/parts] {
			f.add(s)
		}
		out[p] = num(f.share())
	}
	return out
}

// clearTurn is Pearson's chi-squared statistic that a turn has at least. It is far beyond the 10.8 of one test at 0.001, because the best of all
// steps is looked at.
const clearTurn = 20

// turned is the step which parts a tool's calls into two times that differ most in how often they fail: the largest chi-squared statistic of the
// table of both times and both ends of a call. nil: none differs clearly.
func turned(each []failures) *turning {
	var all, before failures
	for _, f := range each {
		all.add(f)
	}
	p := all.share()
	if all.failed == 0 || all.failed == all.calls {
		return nil
	}
	var best *turning
	most := float64(clearTurn)
	for step, f := range each {
		after := failures{all.calls - before.calls, all.failed - before.failed}
		if before.calls > 0 && after.calls > 0 {
			d := after.share() - before.share()
			if v := d * d * float64(before.calls) * float64(after.calls) / (float64(all.calls) * p * (1 - p)); v > most {
				most, best = v, &turning{Step: step, Before: num(before.share()), After: num(after.share())}
			}
		}
		before.add(f)
	}
	return best
}
