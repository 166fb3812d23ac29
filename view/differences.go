package view

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/orchestrator/store"
)

// difference is a token whose logprobs by engine and trainer are far apart. Equal ones, such as those of a prompt that a group shares, are one, which
// names the first of them.
type difference struct {
	Trajectory string `json:"trajectory"`
	Sample     int    `json:"sample"`
	At         int    `json:"at"`
	ID         int32  `json:"id"`
	Text       string `json:"text"`
	Engine     num    `json:"engine"`
	Trainer    num    `json:"trainer"`
	Difference num    `json:"difference"` // trainer's minus engine's
	Times      int    `json:"times"`      // how many there are of it
}

// same is what equal differences have in common.
type same struct {
	id              int32
	engine, trainer num
}

// mostDifferences are told of a step.
const mostDifferences = 50

// differences are the tokens of a step for which engine and trainer differ most.
func (s *Server) differences(r *http.Request) (any, error) {
	x, err := s.run(r)
	if err != nil {
		return nil, err
	}
	x.asked()
	step, err := number(r.URL.Query(), "step", 0)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	var ids []string
	recorded := 0 // conversations to learn from, whose tokens no engine sampled
	for _, e := range x.index.entries {
		switch {
		case e.TrainedAt != step:
		case e.Phase == store.SFT:
			recorded++
		default:
			ids = append(ids, e.ID)
		}
	}
	x.mu.Unlock()
	slices.Sort(ids)
	found := map[same]*difference{}
	tokens := 0
	for _, id := range ids {
		record, err := x.db.Record(r.Context(), id)
		if err != nil {
			return nil, err
		}
		if record == nil {
			continue
		}
		for _, u := range record.Updates {
			if u.Step != step || u.Sample < 0 || u.Sample >= len(record.Trajectory.Samples) {
				continue
			}
			s := record.Trajectory.Samples[u.Sample]
			for i, on := range s.ResponseMask {
				if !on || i >= len(u.OldLogprobs) {
					continue
				}
				tokens++
				d := float64(u.OldLogprobs[i]) - float64(s.SamplingLogprobs[i])
				if !math.IsNaN(d) && d != 0 {
					of := same{s.TokenIDs[i], num(s.SamplingLogprobs[i]), num(u.OldLogprobs[i])}
					if found[of] == nil {
						found[of] = &difference{Trajectory: id, Sample: u.Sample, At: i, ID: of.id, Engine: of.engine, Trainer: of.trainer, Difference: num(d)}
					}
					found[of].Times++
				}
			}
		}
	}
	all := make([]difference, 0, len(found))
	for _, d := range found {
		all = append(all, *d)
	}
	all = largest(all)
	decode := x.text()
	for i := range all {
		all[i].Text = decode([]int32{all[i].ID})
	}
	return map[string]any{"step": step, "trajectories": len(ids), "tokens": tokens, "recorded": recorded, "differences": all}, nil
}

// largest keeps the largest ones, the largest first.
func largest(all []difference) []difference {
	slices.SortFunc(all, func(a, b difference) int {
		return cmp.Or(cmp.Compare(math.Abs(float64(b.Difference)), math.Abs(float64(a.Difference))), strings.Compare(a.Trajectory, b.Trajectory), cmp.Compare(a.At, b.At))
	})
	return all[:min(len(all), mostDifferences)]
}
