//go:build torch

package trainer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/trajectory"
)

// randomHistories is a batch of trajectories as agents leave them: those over the gateway several samples, whose turns were sampled in turn, those of the
// run one after the other. What came back before a turn stands in the record and in the tokens.
func randomHistories(t *testing.T, rng *rand.Rand) Batch {
	var b Batch
	for range 1 + rng.IntN(3) {
		g := &trajectory.Group{}
		for range 2 + rng.IntN(3) {
			tr := &trajectory.Trajectory{Reward: float64(rng.IntN(5)) / 4, StopReason: trajectory.StopAnswer}
			for range 1 + rng.IntN(3) {
				tr.Samples = append(tr.Samples, &trajectory.Sample{})
			}
			gateway, last := rng.IntN(2) == 0, slices.Repeat([]int{-1}, len(tr.Samples))
			turns := len(tr.Samples) + rng.IntN(6)
			for k := range turns {
				turn := trajectory.Turn{Sample: k * len(tr.Samples) / turns}
				if gateway && k < len(tr.Samples) {
					turn.Sample = k
				} else if gateway {
					turn.Sample = rng.IntN(len(tr.Samples))
				}
				s := tr.Samples[turn.Sample]
				came := []int32{int32(rng.IntN(9)), 3}[:1+rng.IntN(2)]
				switch text := fmt.Sprint(came); {
				case gateway:
					turn.Incoming = &trajectory.Incoming{After: last[turn.Sample], Messages: []byte(fmt.Sprintf(`[{"role":"tool","content":%q,"tool_call_id":"%d"}]`, text, rng.Int()))}
					last[turn.Sample] = k
				case k > 0:
					tr.Turns[k-1].Results = []trajectory.ToolResult{{Observation: text}}
				}
				s.AppendObservation(came)
				turn.CompletionStart = s.Len()
				for range 1 + rng.IntN(4) {
					require.NoError(t, s.AppendResponse([]int32{int32(rng.IntN(9))}, []float32{-rng.Float32()}, []int32{0}))
				}
				turn.CompletionEnd, turn.ObservationEnd = s.Len(), s.Len()
				if rng.IntN(4) == 0 {
					paid := float64(rng.IntN(3)) / 2
					turn.Reward = &paid
				}
				tr.Turns = append(tr.Turns, turn)
			}
			g.Trajectories = append(g.Trajectories, tr)
		}
		b.Groups = append(b.Groups, g)
	}
	return b
}

// splitAtRandom cuts samples between turns: each part has all that stood before it as its prompt, which is not trained.
func splitAtRandom(t *testing.T, rng *rand.Rand, b Batch) (out Batch) {
	for _, g := range b.Groups {
		group := &trajectory.Group{}
		for _, tr := range g.Trajectories {
			c := *tr
			c.Samples, c.Turns = nil, append([]trajectory.Turn(nil), tr.Turns...)
			for k, s := range tr.Samples {
				var part *trajectory.Sample
				for i, turn := range tr.Turns {
					if turn.Sample != k {
						continue
					}
					from, to := turn.CompletionStart, turn.CompletionEnd
					if part == nil || rng.IntN(2) == 0 {
						part = &trajectory.Sample{}
						c.Samples = append(c.Samples, part)
					}
					part.AppendObservation(s.TokenIDs[part.Len():from])
					require.NoError(t, part.AppendResponse(s.TokenIDs[from:to], s.SamplingLogprobs[from:to], s.PolicyVersion[from:to]))
					c.Turns[i].Sample = len(c.Samples) - 1
				}
			}
			group.Trajectories = append(group.Trajectories, &c)
		}
		out.Groups = append(out.Groups, group)
	}
	return out
}

// numbers are the advantage and the loss of each trained token, by trajectory and turn, and the loss of the batch.
func numbersOf(t *testing.T, a *algorithms.Algorithm, b Batch) (advantages, losses []float64, loss float64) {
	p, err := newPlan(a, b)
	require.NoError(t, err)
	for i, item := range p.items { // what a model would say depends on what stands before a token, which splitting does not change
		p.old[i] = make([]float64, item.Sample.Len())
		for at := range p.old[i] {
			p.old[i][at] = float64(item.Sample.SamplingLogprobs[at]) - 0.01*float64(item.Sample.TokenIDs[at])
		}
	}
	require.NoError(t, p.estimate(a))
	tokens := make([]int, len(p.units))
	for i, u := range p.units {
		tokens[i] = u.tokens
	}
	weights, err := a.Aggregation.TokenWeights(tokens)
	require.NoError(t, err)
	require.Len(t, p.units, len(tokens))
	for n, u := range p.units {
		tr := b.Groups[u.group].Trajectories[u.index]
		itemOf := map[int]int{}
		for k, s := range u.samples {
			itemOf[s] = u.items[k]
		}
		for _, turn := range tr.Turns {
			i := itemOf[turn.Sample]
			for at := turn.CompletionStart; at < turn.CompletionEnd; at++ {
				current := p.old[i][at] + 0.1*math.Sin(float64(at))
				l := -weights[n] * p.advantage[i][at] * math.Exp(current-p.old[i][at])
				advantages, losses, loss = append(advantages, p.advantage[i][at]), append(losses, l), loss+l
			}
		}
	}
	return advantages, losses, loss
}

// Cutting the samples of a trajectory into more changes no advantage, no token's loss and not their sum, whatever the estimator and the aggregation: what
// an agent does to its history decides how many samples there are, and must not decide what is learnt.
func TestSplittingSamplesChangesNothing(t *testing.T) {
	var all []*algorithms.Algorithm
	for _, block := range []string{
		"{}", "{advantage: rloo, aggregation: seq-mean-token-mean}", "{advantage: dr_grpo, aggregation: seq-mean-token-sum}", "{advantage: {name: turn, mode: identical}}",
		"{advantage: {name: turn, mode: first_occurrence}}", "{advantage: gigpo}", "{advantage: {name: turn, mode: discounted}}", "{advantage: opo, aggregation: seq-mean-token-sum-norm, max_tokens: 20}", "{advantage: {name: reinforce_pp, gamma: 0.9}}",
	} {
		all = append(all, resolveBlock(t, block))
	}
	for seed := range uint64(10_000) {
		rng := rand.New(rand.NewPCG(seed, 4))
		a := all[seed%uint64(len(all))]
		b := randomHistories(t, rng)
		advantages, losses, loss := numbersOf(t, a, b)
		cut := splitAtRandom(t, rng, b)
		gotAdvantages, gotLosses, gotLoss := numbersOf(t, a, cut)
		require.InDeltaSlice(t, advantages, gotAdvantages, 1e-6, "seed %d", seed)
		require.InDeltaSlice(t, losses, gotLosses, 1e-6, "seed %d", seed)
		require.InDelta(t, loss, gotLoss, 1e-6, "seed %d", seed)
	}
}

// A template that drops thoughts begins a sample where there was one, and so splits some trajectories of a group: their turns are in the state of those
// of a trajectory that was not split.
func TestASplitTrajectoryIsInTheStatesOfItsGroup(t *testing.T) {
	group := func(split bool) *trajectory.Group {
		g := &trajectory.Group{}
		for i, reward := range []float64{1, 0, 0} {
			tr := &trajectory.Trajectory{Reward: reward, StopReason: trajectory.StopAnswer}
			s := &trajectory.Sample{}
			s.AppendObservation([]int32{1})
			require.NoError(t, s.AppendResponse([]int32{int32(5 + i)}, []float32{-1}, []int32{0}))
			tr.Samples = append(tr.Samples, s)
			tr.Turns = append(tr.Turns, trajectory.Turn{CompletionStart: 1, CompletionEnd: 2, Results: []trajectory.ToolResult{{Observation: "three"}}})
			if split && i < 2 {
				s = &trajectory.Sample{}
				s.AppendObservation([]int32{1, int32(8 + i)})
				tr.Samples = append(tr.Samples, s)
			}
			s.AppendObservation([]int32{3})
			from := s.Len()
			require.NoError(t, s.AppendResponse([]int32{4}, []float32{-1}, []int32{0}))
			tr.Turns = append(tr.Turns, trajectory.Turn{Sample: len(tr.Samples) - 1, CompletionStart: from, CompletionEnd: from + 1})
			g.Trajectories = append(g.Trajectories, tr)
		}
		return g
	}
	a := resolveBlock(t, "advantage: gigpo")
	advantages := func(split bool) []float64 {
		got, _, _ := numbersOf(t, a, Batch{Groups: []*trajectory.Group{group(split)}})
		return got
	}
	require.InDeltaSlice(t, []float64{2.309, 2.309, -1.155, -1.155, -1.155, -1.155}, advantages(false), 1e-2)
	require.Equal(t, advantages(false), advantages(true))
}
