//go:build torch

package trainer

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/trajectory"
)

// unit is one trajectory that counts.
type unit struct {
	name      string
	group     int        // index in the batch
	index     int        // in its group
	tokens    int        // L
	items     []int      // its samples among plan.items, but for those without a response token
	samples   []int      // which of the trajectory's they are
	order     []position // [L] of its tokens for the estimator; nil: sample by sample
	flat      bool       // all advantages are exactly 0
	truncated bool
}

// plan is a batch before tensors: what counts, and the place of each token. Numbers of tokens are [item][T], 0 off the
// mask and nil until computed.
type plan struct {
	units   []unit
	items   []PackItem
	unitOf  []int              // [item]
	records []algorithms.Group // of all trajectories of the batch
	metrics Metrics
	given   [][][]float64 // StepBatch.Advantages

	advantage, returns [][]float64 // after the estimator; returns nil without a critic
	old, entropy       [][]float64 // before the step
	reference, values  [][]float64 // before the step; nil unless the algorithm reads them
	bootstrap          []float64   // [unit] value of the state that a truncated trajectory ends in
}

func nameOf(t *trajectory.Trajectory, group, index int) string {
	if t.ID != "" {
		return t.ID
	}
	return fmt.Sprintf("%d of group %d", index, group)
}

// truncated reports whether a trajectory was stopped by a token limit, its own or a completion's, or by a limit of its environment's, so that a
// critic's value stands in for the rest. One that used up its turns ended by the rules of its task.
func truncated(t *trajectory.Trajectory) bool {
	return t.StopReason == trajectory.StopMaxTokens || t.StopReason == trajectory.StopTruncated
}

// newPlan lays out the tokens of the trajectories that count. Their advantages follow with estimate, when what the
// estimator reads of the model is known.
func newPlan(a *algorithms.Algorithm, b Batch) (*plan, error) {
	p := &plan{records: make([]algorithms.Group, len(b.Groups)), given: b.Advantages}
	for g, group := range b.Groups {
		greedy, forks := group.Greedy, trajectory.ForksOf(group.Trajectories)
		for i, t := range group.Trajectories {
			if !a.Estimator.Needs.Greedy {
				greedy = nil
			} else if greedy == nil {
				return nil, fmt.Errorf("trainer: step %d: group %d has no greedy rollout, but advantage %s needs its reward", b.Step+1, g, a.Estimator.Name)
			}
			fate := FateOf(t, greedy, b.FilterCut)
			r := algorithms.Record{Reward: t.Reward, Failed: fate == Failed || fate == Filtered}
			if !a.Estimator.Needs.Turns { // it is told what the whole trajectory was paid
				r.Reward = t.Return()
			}
			if greedy != nil && !r.Failed {
				all := greedy.Return()
				r.Greedy = &all
			}
			for _, s := range t.Samples {
				if err := checkSample(s); err != nil && !r.Failed {
					return nil, fmt.Errorf("trainer: step %d: trajectory %s: %w", b.Step+1, nameOf(t, g, i), err)
				}
				r.Tokens += s.ResponseTokens()
			}
			switch {
			case fate == Filtered:
				p.metrics.Filtered++
			case fate == Failed:
				p.metrics.Failed++
			case fate == Empty:
				p.metrics.Empty++
			case math.IsNaN(r.Reward) || math.IsInf(r.Reward, 0):
				return nil, nonFinite{fmt.Errorf("trainer: step %d: trajectory %s: its reward is %v; a reward must be finite", b.Step+1, nameOf(t, g, i), r.Reward)}
			default:
				var order []position
				whole := r.Reward
				if n := a.Estimator.Needs; n.Turns || n.Anchors || n.Shared {
					var err error
					if order, err = describeTurns(&r, t, forks); err != nil {
						return nil, fmt.Errorf("trainer: step %d: trajectory %s: %w", b.Step+1, nameOf(t, g, i), err)
					}
					if !n.Turns {
						r.TurnRewards, r.Reward = nil, whole // they are in the reward
					}
				}
				p.add(t, nameOf(t, g, i), g, i, r.Tokens, b.Version)
				p.units[len(p.units)-1].order = order
			}
			p.records[g] = append(p.records[g], r)
		}
	}
	n := len(p.items)
	p.old, p.entropy, p.advantage = make([][]float64, n), make([][]float64, n), make([][]float64, n)
	if n := len(p.units); n > 0 {
		p.metrics.StalenessMean /= float64(n)
	}
	return p, nil
}

// describeTurns fills in what a record says of turns: of those with a response token, in the order in which they were sampled. A trajectory without a
// record of its turns is one turn. What a turn without a token that is trained was paid is the trajectory's.
//
// Agents that ask in parallel write several samples in turn. Their tokens are the estimator's in the order of the turns: order names them so, [L];
// nil: that is the order of the samples.
func describeTurns(r *algorithms.Record, t *trajectory.Trajectory, forks trajectory.Forks) (order []position, err error) {
	if len(t.Turns) == 0 {
		r.Anchors = []string{""}
		return nil, nil
	}
	shared, ends := false, make([]int, len(t.Samples)) // where the sample's turn before ends
	owner := make([][]int, len(t.Samples))             // [T] turn of a response token, from 1
	for i, s := range t.Samples {
		owner[i] = make([]int, s.Len())
	}
	for k, turn := range t.Turns {
		if turn.Sample < 0 || turn.Sample >= len(t.Samples) {
			return nil, fmt.Errorf("turn %d is of sample %d, but there are %d", k, turn.Sample, len(t.Samples))
		}
		s := t.Samples[turn.Sample]
		if turn.CompletionStart < 0 || turn.CompletionStart > turn.CompletionEnd || turn.CompletionEnd > s.Len() {
			return nil, fmt.Errorf("turn %d has tokens %d to %d of a sample with %d", k, turn.CompletionStart, turn.CompletionEnd, s.Len())
		}
		begin := 0
		if before := ends[turn.Sample]; before > 0 {
			begin = min(before, turn.CompletionStart)
		}
		ends[turn.Sample] = turn.CompletionEnd
		if !slices.Contains(s.ResponseMask[turn.CompletionStart:turn.CompletionEnd], true) {
			if turn.Reward != nil {
				r.Reward += *turn.Reward
			}
			continue
		}
		n := len(r.Anchors)
		r.TurnRewards, r.Anchors = append(r.TurnRewards, turn.Reward), append(r.Anchors, turn.Anchor)
		if turn.Anchor == "" {
			var ok bool
			if r.Anchors[n], ok = observed(t, k); !ok {
				r.Anchors[n] = anchor(s.Prefix(turn.CompletionStart), begin)
			}
		}
		shared = shared || turn.Shared != ""
		for at := turn.CompletionStart; at < turn.CompletionEnd; at++ {
			if !s.ResponseMask[at] {
				continue
			}
			owner[turn.Sample][at] = k + 1
			order, r.Turn, r.Shared = append(order, position{turn.Sample, at}), append(r.Turn, n), append(r.Shared, forks.Name(&turn, at-turn.CompletionStart))
		}
	}
	if !shared {
		r.Shared = nil
	}
	for i, s := range t.Samples {
		for at, on := range s.ResponseMask {
			if on && owner[i][at] == 0 {
				return nil, fmt.Errorf("response token %d of sample %d belongs to no turn", at, i)
			}
		}
	}
	if slices.IsSortedFunc(order, func(a, b position) int { return cmp.Or(cmp.Compare(a.sample, b.sample), cmp.Compare(a.at, b.at)) }) {
		return nil, nil
	}
	return order, nil
}

// position is that of a response token in its trajectory.
type position struct{ sample, at int }

// anchor names a state of which no text tells what came back before it, by the end of its prompt p from begin on: by its tokens and the media behind them.
func anchor(p trajectory.Prefix, begin int) string {
	h := sha256.Sum256(p.AppendKey(nil, begin, len(p.IDs)))
	return string(h[:])
}

// checkGiven holds advantages that came with the batch against the trajectories that count.
func (p *plan) checkGiven() error {
	for _, u := range p.units {
		if p.given == nil {
			return nil
		}
		if u.group >= len(p.given) || u.index >= len(p.given[u.group]) || len(p.given[u.group][u.index]) != u.tokens {
			return fmt.Errorf("trajectory %s: the batch does not bring its %d advantages", u.name, u.tokens)
		}
		for t, x := range p.given[u.group][u.index] {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				return nonFinite{fmt.Errorf("trajectory %s: the advantage of response token %d is %v", u.name, t, x)}
			}
		}
	}
	return nil
}

// estimate computes the advantages, and the returns where there is a critic, from the records and what early computed.
func (p *plan) estimate(a *algorithms.Algorithm) error {
	for i, u := range p.units {
		r := &p.records[u.group][u.index]
		if a.NeedsReference() && a.KL.In == "reward" {
			r.Old, r.Reference = p.gather(u, p.old), p.gather(u, p.reference)
		}
		if a.HasCritic() {
			r.Values, r.Bootstrap = p.gather(u, p.values), p.bootstrap[i]
		}
	}
	advantages, err := p.given, p.checkGiven()
	if p.given == nil {
		advantages, err = a.Advantages(p.records)
	}
	if err != nil {
		return p.accuse(err)
	}
	returns, err := a.Returns(p.records)
	if err != nil {
		return p.accuse(err)
	}
	if returns != nil {
		p.returns = make([][]float64, len(p.items))
	}
	flat := make([]bool, len(p.records))
	for g := range flat {
		flat[g] = true
	}
	for i := range p.units {
		u := &p.units[i]
		own := advantages[u.group][u.index]
		p.scatter(*u, own, p.advantage)
		if returns != nil {
			p.scatter(*u, returns[u.group][u.index], p.returns)
		}
		u.flat = true
		for _, x := range own {
			u.flat = u.flat && x == 0
			p.metrics.AdvantageMax = max(p.metrics.AdvantageMax, math.Abs(x))
		}
		flat[u.group] = flat[u.group] && u.flat
	}
	for _, f := range flat {
		if f {
			p.metrics.FlatGroups++
		}
	}
	return nil
}

// accuse puts the trajectory's name in place of the indices of an estimator's error.
func (p *plan) accuse(err error) error {
	var at *algorithms.TrajectoryError
	if !errors.As(err, &at) {
		return err
	}
	for _, u := range p.units {
		if u.group == at.Group && u.index == at.Trajectory {
			err = fmt.Errorf("trajectory %s: %w", u.name, at.Err)
		}
	}
	if at.NonFinite {
		return nonFinite{err}
	}
	return err
}

// gather picks a trajectory's numbers [L] out of values [item][T], in the estimator's order.
func (p *plan) gather(u unit, values [][]float64) []float64 {
	out := make([]float64, 0, u.tokens)
	p.visit(u, u.order, func(item, t int) { out = append(out, values[item][t]) })
	return out
}

// scatter puts a trajectory's numbers [L] in place. They are in the estimator's order, or as they were given sample by sample.
func (p *plan) scatter(u unit, from []float64, values [][]float64) {
	order := u.order
	if p.given != nil {
		order = nil
	}
	for _, i := range u.items {
		values[i] = make([]float64, p.items[i].Sample.Len())
	}
	p.visit(u, order, func(item, t int) { values[item][t], from = from[0], from[1:] })
}

// visit calls f for each response token of a trajectory, in an order; nil: sample by sample.
func (p *plan) visit(u unit, order []position, f func(item, t int)) {
	if order == nil {
		for _, i := range u.items {
			for t, on := range p.items[i].Sample.ResponseMask {
				if on {
					f(i, t)
				}
			}
		}
		return
	}
	item := map[int]int{}
	for n, k := range u.samples {
		item[k] = u.items[n]
	}
	for _, at := range order {
		f(item[at.sample], at.at)
	}
}

// last is the sample that holds the last response token of a trajectory, in the estimator's order.
func (p *plan) last(u unit) *trajectory.Sample {
	var s *trajectory.Sample
	p.visit(u, u.order, func(item, _ int) { s = p.items[item].Sample })
	return s
}

func checkSample(s *trajectory.Sample) error {
	if err := s.Check(); err != nil {
		return err
	}
	if err := textOnly(s); err != nil {
		return err
	}
	for t, on := range s.ResponseMask {
		if on && !(s.SamplingLogprobs[t] <= 0 && !math.IsInf(float64(s.SamplingLogprobs[t]), 0)) {
			return nonFinite{fmt.Errorf("token %d has the sampling logprob %v, which is not a finite log-probability", t, s.SamplingLogprobs[t])}
		}
	}
	return nil
}

// add appends a trajectory that counts.
func (p *plan) add(t *trajectory.Trajectory, name string, group, index, tokens int, version int32) {
	u := unit{name: name, group: group, index: index, tokens: tokens, truncated: truncated(t)}
	oldest := version
	for k, s := range t.Samples {
		trained := false
		for i, on := range s.ResponseMask {
			if on {
				trained = true
				oldest = min(oldest, s.PolicyVersion[i])
			}
		}
		if !trained {
			continue
		}
		u.items, u.samples = append(u.items, len(p.items)), append(u.samples, k)
		p.items = append(p.items, PackItem{Sample: s, Group: group, Name: name})
		p.unitOf = append(p.unitOf, len(p.units))
	}
	p.units = append(p.units, u)
	p.metrics.Trajectories++
	p.metrics.Tokens += u.tokens
	p.metrics.StalenessMean += float64(version - oldest)
	p.metrics.StalenessMax = max(p.metrics.StalenessMax, int(version-oldest))
}

// miniBatches cuts the trajectories into n runs of nearly equal count, in the order of the batch, between groups if there
// are enough of them. Fewer trajectories than n give fewer mini-batches.
func (p *plan) miniBatches(n int) [][]int {
	var parts [][]int // indivisible
	for i, u := range p.units {
		if i > 0 && p.units[i-1].group == u.group {
			parts[len(parts)-1] = append(parts[len(parts)-1], i)
		} else {
			parts = append(parts, []int{i})
		}
	}
	if len(parts) < n {
		parts = nil
		for i := range p.units {
			parts = append(parts, []int{i})
		}
	}
	n = min(n, len(parts))
	out := make([][]int, n)
	for i, part := range parts {
		k := i * n / len(parts)
		out[k] = append(out[k], part...)
	}
	return out
}

// known reports whether old is there for all rows of a micro-batch.
func (p *plan) known(mb *MicroBatch) bool {
	for _, row := range mb.Rows {
		if p.old[row.Item] == nil {
			return false
		}
	}
	return true
}

// record keeps the numbers of a forward before the first optimizer step.
func (p *plan) record(mb *MicroBatch, n numbers) error {
	if err := p.checkFinite(mb, n.logprobs, "the trainer's logprob"); err != nil {
		return err
	}
	if err := p.checkFinite(mb, n.values, "the critic's value"); err != nil {
		return err
	}
	p.keep(mb, n.logprobs, p.old)
	p.keep(mb, n.entropy, p.entropy)
	if n.values != nil {
		p.keep(mb, n.values, p.values)
	}
	return nil
}

// keep puts the numbers [N] of a micro-batch's rows in place.
func (p *plan) keep(mb *MicroBatch, from []float32, values [][]float64) {
	for i, row := range mb.Rows {
		if values[row.Item] == nil {
			values[row.Item] = make([]float64, p.items[row.Item].Sample.Len())
		}
		values[row.Item][row.Token] = float64(from[i])
	}
}

// checkFinite refuses numbers [N] of a micro-batch's rows that are none.
func (p *plan) checkFinite(mb *MicroBatch, values []float32, what string) error {
	for i, v := range values {
		if x := float64(v); math.IsNaN(x) || math.IsInf(x, 0) {
			return nonFinite{fmt.Errorf("trajectory %s: token %d: %s is %v", p.items[mb.Rows[i].Item].Name, mb.Rows[i].Token, what, x)}
		}
	}
	return nil
}

// sampling are the sampling logprobs [L] of a trajectory, in the order of gather.
func (p *plan) sampling(u unit) []float64 {
	out := make([]float64, 0, u.tokens)
	p.visit(u, u.order, func(item, t int) { out = append(out, float64(p.items[item].Sample.SamplingLogprobs[t])) })
	return out
}
