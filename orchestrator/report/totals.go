package report

import "math"

// Totals are what a run adds up from its steps; a checkpoint holds them, and a summary is made of them.
type Totals struct {
	Seconds       float64        `json:"seconds"` // spent before this process
	Rewards       []float64      `json:"rewards"` // mean of each step that has one
	Evaluations   Evaluations    `json:"evaluations"`
	Finished      int            `json:"finished"`
	Failed        int            `json:"failed"`
	SampledTokens float64        `json:"sampled_tokens"` // in the seconds of SampleSeconds
	SampleSeconds float64        `json:"sample_seconds"`
	TrainTokens   float64        `json:"train_tokens"`
	TrainSeconds  float64        `json:"train_seconds"`
	MismatchMax   float64        `json:"mismatch_max"`
	StalenessMax  int            `json:"staleness_max,omitempty"`
	Losses        []float64      `json:"losses,omitempty"` // of the steps of supervised fine-tuning
	Skipped       int            `json:"skipped,omitempty"`
	Errors        map[string]int `json:"errors,omitempty"` // failed trajectories and broken tool calls, by origin
}

// Add counts a step, of which so many trajectories or conversations are finished.
func (t *Totals) Add(s Step, finished int) {
	t.Finished += finished
	t.TrainTokens += float64(s.Tokens.Unpacked)
	t.TrainSeconds += s.Seconds.Train
	r := s.Rollouts
	if r == nil {
		return
	}
	if r.Reward.Mean != nil {
		t.Rewards = append(t.Rewards, *r.Reward.Mean)
	}
	t.Failed += r.Trajectories.Failed
	t.addErrors(r.Trajectories.Errors)
	if r.Sampling.Seconds > 0 { // the rate leaves out what an earlier process recorded, whose time is not in the seconds
		t.SampledTokens += math.Round(r.Sampling.TokensPerSecond * r.Sampling.Seconds)
	}
	t.SampleSeconds += r.Sampling.Seconds
	t.MismatchMax = max(t.MismatchMax, r.Policy.MismatchMax)
	t.StalenessMax = max(t.StalenessMax, r.Policy.StalenessMax)
}

func (t *Totals) addErrors(byOrigin map[string]int) {
	for origin, n := range byOrigin {
		if n > 0 {
			if t.Errors == nil {
				t.Errors = map[string]int{}
			}
			t.Errors[origin] += n
		}
	}
}
