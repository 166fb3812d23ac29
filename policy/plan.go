//go:build torch

package policy

import (
	"fmt"
	"math"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/trajectory"
)

// unit is one trajectory that counts.
type unit struct {
	name      string
	group     int       // index in the batch
	tokens    int       // L
	items     []int     // its samples among plan.items
	flat      bool      // all advantages are exactly 0
	advantage []float64 // [L]
}

// plan is a batch before tensors: what counts, with advantages and the place of each token.
type plan struct {
	units     []unit
	items     []PackItem
	unitOf    []int       // [item]
	advantage [][]float64 // [item][T] 0 off the mask
	old       [][]float64 // [item][T]; nil until computed
	metrics   Metrics
}

// failed reports whether a trajectory ended without being finished.
func failed(t *trajectory.Trajectory) bool {
	return t.Err != "" || t.StopReason == trajectory.StopError || t.StopReason == trajectory.StopCancelled
}

func nameOf(t *trajectory.Trajectory, group, index int) string {
	if t.ID != "" {
		return t.ID
	}
	return fmt.Sprintf("%d of group %d", index, group)
}

// newPlan computes advantages and lays out the tokens of the trajectories that count.
func newPlan(a *algorithms.Algorithm, b StepBatch) (*plan, error) {
	p := &plan{}
	records := make([]algorithms.Group, len(b.Groups))
	for g, group := range b.Groups {
		for i, t := range group.Trajectories {
			r := algorithms.Record{Reward: t.Reward, Failed: failed(t)}
			for _, s := range t.Samples {
				if err := checkSample(s); err != nil && !r.Failed {
					return nil, fmt.Errorf("policy: step %d: trajectory %s: %w", b.Step, nameOf(t, g, i), err)
				}
				r.Tokens += s.ResponseTokens()
			}
			switch {
			case r.Failed:
				p.metrics.Failed++
			case r.Tokens == 0:
				p.metrics.Empty++
			case math.IsNaN(t.Reward) || math.IsInf(t.Reward, 0):
				return nil, nonFinite{fmt.Errorf("policy: step %d: trajectory %s: its reward is %v; a reward must be finite", b.Step, nameOf(t, g, i), t.Reward)}
			}
			records[g] = append(records[g], r)
		}
	}
	advantages, err := a.Advantages(records)
	if err != nil {
		return nil, fmt.Errorf("policy: step %d: %w", b.Step, err)
	}
	for g, group := range b.Groups {
		flat := true
		for i, t := range group.Trajectories {
			if records[g][i].Counts() {
				flat = p.add(t, nameOf(t, g, i), g, advantages[g][i], b.Version) && flat
			}
		}
		if flat {
			p.metrics.FlatGroups++
		}
	}
	if n := len(p.units); n > 0 {
		p.metrics.StalenessMean /= float64(n)
	}
	return p, nil
}

func checkSample(s *trajectory.Sample) error {
	if err := s.Check(); err != nil {
		return err
	}
	for t, on := range s.ResponseMask {
		if on && !(s.SamplingLogprobs[t] <= 0 && !math.IsInf(float64(s.SamplingLogprobs[t]), 0)) {
			return fmt.Errorf("token %d has the sampling logprob %v, which is not a finite log-probability", t, s.SamplingLogprobs[t])
		}
	}
	return nil
}

// add appends a trajectory that counts and reports whether its advantages are all 0.
func (p *plan) add(t *trajectory.Trajectory, name string, group int, advantage []float64, version int32) bool {
	u := unit{name: name, group: group, tokens: len(advantage), advantage: advantage, flat: true}
	next, oldest := 0, version
	for _, s := range t.Samples {
		values := make([]float64, s.Len())
		for i, on := range s.ResponseMask {
			if on {
				values[i] = advantage[next]
				oldest = min(oldest, s.PolicyVersion[i])
				u.flat = u.flat && advantage[next] == 0
				p.metrics.AdvantageMax = max(p.metrics.AdvantageMax, math.Abs(advantage[next]))
				next++
			}
		}
		u.items = append(u.items, len(p.items))
		p.items = append(p.items, PackItem{Sample: s, Group: group, Name: name})
		p.unitOf = append(p.unitOf, len(p.units))
		p.advantage = append(p.advantage, values)
	}
	p.units = append(p.units, u)
	p.metrics.Trajectories++
	p.metrics.Tokens += u.tokens
	p.metrics.StalenessMean += float64(version - oldest)
	p.metrics.StalenessMax = max(p.metrics.StalenessMax, int(version-oldest))
	return u.flat
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
