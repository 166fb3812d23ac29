package report

import (
	"slices"
	"time"

	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/trainer"
	"github.com/agentfly/agentfly/trajectory"
)

// Facts are what the record of a step says besides its batch and its update.
type Facts struct {
	Version   int32         // of the policy after the update
	Waited    time.Duration // until the batch was there
	Earlier   int           // sampled tokens of the batch that an earlier process recorded, for which this one did not wait
	Whole     time.Duration // the step's
	Elapsed   float64       // seconds since the first rollout of the run, over resumes
	Sync      float64       // seconds until an engine of its own weights had the new ones
	Overlaps  bool          // rollouts go on beside updates
	FilterCut bool          // the update leaves out trajectories whose last completion was cut

	Frozen func(trajectory.Role) bool // turns of that role are not trained; nil: all are
}

// Describe is the record of a step that trained a batch. rewards are those of the batch's trajectories that have one.
func Describe(b *schedule.Batch, rewards []float64, m trainer.Metrics, f Facts) Step {
	sampled := f.Waited
	if f.Overlaps { // rollouts never rest
		sampled = f.Whole
	}
	r := &Rollouts{
		Reward:       Reward{Mean: meanOf(rewards), Parts: map[string]float64{}},
		Trajectories: Trajectories{Errors: errorsOf(b.All), Running: b.Running, Empty: m.Empty, Stops: map[string]int{}},
		Groups:       Groups{Flat: m.FlatGroups, Sampled: len(b.All), Dropped: len(b.All) - len(b.Trained), Refills: b.Refills, TooStale: b.Dropped},
		Sampling:     Sampling{Seconds: sampled.Seconds(), Wait: f.Waited.Seconds(), Sync: f.Sync},
		Policy: Policy{
			ClipFraction: m.ClipFraction, Dropped: m.Dropped, KL: m.KL, ValueLoss: m.ValueLoss, Explained: m.Explained,
			MismatchMean: m.MismatchMean, MismatchMax: m.MismatchMax, MismatchK3: m.MismatchK3, ESS: m.ESS,
			StalenessMean: m.StalenessMean, StalenessMax: m.StalenessMax,
		},
	}
	if f.FilterCut {
		r.Trajectories.Filtered = &m.Filtered
	}
	finished := 0 // sampled tokens of the trajectories that did not fail
	for _, g := range b.All {
		for _, tr := range g.Trajectories {
			if r.add(tr); !tr.Failed() {
				r.Trajectories.Finished++
				finished += completed(tr)
			}
		}
	}
	r.Greedy = greedyOf(b.All)
	for name := range r.Reward.Parts {
		r.Reward.Parts[name] /= max(1, float64(len(rewards)))
	}
	if n := r.Trajectories.Finished; n > 0 {
		each := float64(finished) / float64(n)
		r.Lengths.Response = &each
	}
	r.addLengths(b, f)
	tokens := 0
	if r.Turns != nil {
		tokens = r.Turns.TokensSampled
	}
	r.Sampling.TokensPerSecond = float64(tokens-f.Earlier) / sampled.Seconds()
	s := updated(m, f)
	s.Rollouts = r
	return s
}

// DescribeSFT is the record of a step of supervised fine-tuning on so many conversations, after which so many passes over the data
// are done.
func DescribeSFT(conversations int, epoch float64, m trainer.Metrics, f Facts) Step {
	nll, tokens := 0.0, 0
	for _, u := range m.Samples {
		for k, a := range u.Advantages {
			if a != 0 {
				nll -= float64(u.OldLogprobs[k])
				tokens++
			}
		}
	}
	s := updated(m, f)
	s.SFT = &SFT{Loss: nll / max(1, float64(tokens)), Epoch: epoch, Conversations: conversations, TokensLearned: tokens}
	return s
}

// updated is what every step says of its update.
func updated(m trainer.Metrics, f Facts) Step {
	train := (f.Whole - f.Waited).Seconds()
	return Step{
		Update:  Update{Loss: m.Loss, GradNorm: m.GradNorm, LearningRate: m.LearningRate, Entropy: m.Entropy, PolicyVersion: int(f.Version)},
		Tokens:  Tokens{Packed: m.PackedTokens, Unpacked: m.UnpackedTokens, TrainPerSecond: float64(m.UnpackedTokens) / train},
		Seconds: Seconds{Train: train, Step: f.Whole.Seconds(), Elapsed: f.Elapsed},
	}
}

// add counts a trajectory.
func (r *Rollouts) add(tr *trajectory.Trajectory) {
	if tr.Failed() {
		r.Trajectories.Failed++
	} else { // the mean is that of what finished
		for name, v := range tr.RewardParts {
			r.Reward.Parts[name] += v
		}
	}
	r.Trajectories.Stops[string(tr.StopReason)]++
	for k, turn := range tr.Turns {
		if !tr.Owns(k) {
			continue
		}
		if r.Turns == nil {
			r.Turns = &Turns{}
		}
		r.Turns.add(turn)
	}
}

func (t *Turns) add(turn trajectory.Turn) {
	t.Turns++
	if turn.Cut() {
		t.Cut++
	}
	t.Calls.add(turn)
	t.TokensSampled += turn.Sampled()
	t.TokensCached += turn.CachedTokens
}

func (c *Calls) add(t trajectory.Turn) {
	c.Read += len(t.Results) - t.ParseErrors
	c.ParseErrors += t.ParseErrors
	for _, r := range t.Results {
		if r.Failed {
			c.Failed++
		}
		switch r.Cause {
		case trajectory.CauseUnknownTool:
			c.Unknown++
		case trajectory.CauseBadArguments:
			c.BadArguments++
		case trajectory.CauseBroken:
			c.Broken++
		}
		if r.Cached {
			c.Cached++
		}
		c.Retries += r.Retries
		c.Seconds += r.Duration.Seconds()
	}
}

// completed is how many tokens the turns of a trajectory sampled.
func completed(tr *trajectory.Trajectory) (tokens int) {
	for _, turn := range tr.Turns {
		tokens += turn.CompletionEnd - turn.CompletionStart
	}
	return tokens
}

// errorsOf counts the errors of some groups by origin; every origin has a number.
func errorsOf(groups []trajectory.Group) map[string]int {
	out := map[string]int{}
	for _, origin := range trajectory.Origins() {
		if !origin.EndsRun() { // there is no such step
			out[string(origin)] = 0
		}
	}
	for _, g := range groups {
		for _, t := range g.Trajectories {
			for origin, n := range rollout.ErrorsOf(t) {
				out[string(origin)] += n
			}
		}
	}
	return out
}

// greedyOf is the baseline of groups that have one; nil: they have none.
func greedyOf(groups []trajectory.Group) *Greedy {
	if len(groups) == 0 || groups[0].Greedy == nil {
		return nil
	}
	var rewards []float64
	for _, g := range groups {
		if t := g.Greedy; t != nil && !t.Failed() {
			rewards = append(rewards, t.Return())
		}
	}
	return &Greedy{Reward: meanOf(rewards), Failed: len(groups) - len(rewards)}
}

// addLengths adds how many tokens the trained trajectories sampled, those of them that an earlier step had left behind because
// they had not ended, and those that were given up.
func (r *Rollouts) addLengths(b *schedule.Batch, f Facts) {
	var all, cut []int
	for g, group := range b.Trained {
		for i, tr := range group.Trajectories {
			if trainer.FateOf(tr.Trained(f.Frozen), group.Greedy, f.FilterCut) != trainer.Taken {
				continue
			}
			n := tr.ResponseTokens()
			all = append(all, n)
			if g < len(b.Cut) && b.Cut[g][i] {
				cut = append(cut, n)
			}
		}
	}
	r.Trajectories.Cut = len(cut)
	r.Lengths.Trained, r.Lengths.Cut, r.Lengths.Dropped = spread(all), spread(cut), spread(b.Lost)
}

// spread is the distribution of some lengths; nil: there are none.
func spread(lengths []int) *Spread {
	if len(lengths) == 0 {
		return nil
	}
	var v []float64
	for _, n := range lengths {
		v = append(v, float64(n))
	}
	slices.Sort(v)
	return &Spread{Mean: mean(v), P50: v[(len(v)-1)/2], P90: v[(len(v)-1)*9/10], Max: v[len(v)-1]}
}

// meanOf is the mean of some numbers; nil: there are none.
func meanOf(v []float64) *float64 {
	if len(v) == 0 {
		return nil
	}
	m := mean(v)
	return &m
}

// mean of no numbers is 0.
func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / max(1, float64(len(v)))
}
