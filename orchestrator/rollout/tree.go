package rollout

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/tree"
	"github.com/agentfly/agentfly/trajectory"
)

// Trees are how the trajectories of a task branch.
type Trees struct {
	Rule       tree.Rule
	Roots      int  // trajectories that begin at the prompt
	Measure    bool // the rule reads entropies
	Within     bool // the rule forks within turns
	Tokens     int  // first tokens of a completion whose entropy is measured
	Top        int  // likeliest tokens that the engine tells of each; 0: what was sampled is the estimate
	Vocabulary int  // tokens of the model
}

// TreesOf are the trees of a job's settings, for a model with so many tokens; nil: its trajectories do not branch.
func TreesOf(r job.Rollout, vocabulary int) *Trees {
	t := r.Tree
	if t == nil {
		return nil
	}
	return &Trees{
		Rule: t.Branching(r.GroupSize, vocabulary), Roots: t.From(r.GroupSize), Measure: t.Rule == "entropy", Within: t.Rule == "token_nll", Tokens: t.Tokens, Top: t.Top, Vocabulary: vocabulary,
	}
}

// growth is what a trajectory of a tree has beyond others.
type growth struct {
	*Trees
	base  *trajectory.Trajectory // the turns that it has of the one it forks off; nil: none
	begun *gateway.Begun         // what it has of the turn that it forks within; nil: it forks between turns
	ahead []string               // what an agent that is a program of its own asked for behind the fork: the digests of these turns
}

// beginningOf is the prompt and the first n tokens of the completion of a turn, for another trajectory that forks there.
func beginningOf(t *trajectory.Trajectory, turn, n int) *gateway.Begun {
	of := &t.Turns[turn]
	s, from, to := t.Samples[of.Sample], of.CompletionStart, of.CompletionStart+n
	out := &gateway.Begun{Incoming: of.Incoming, Prompt: s.Prefix(from), IDs: s.TokenIDs[from:to:to], Logprobs: s.SamplingLogprobs[from:to:to], Versions: s.PolicyVersion[from:to:to]}
	last := 0
	for _, b := range of.Begun {
		if last < n {
			last = min(b.End, n)
			out.By = append(out.By, trajectory.Begun{Shared: b.Shared, End: last})
		}
	}
	if last < n {
		out.By = append(out.By, trajectory.Begun{Shared: nameOf(t, turn), End: n})
	}
	return out
}

// nameOf is the name of what was sampled for a turn. A trajectory that was recorded before its run had trees gave its turns none.
func nameOf(t *trajectory.Trajectory, turn int) string {
	return cmp.Or(t.Turns[turn].Shared, trajectory.SharedName(t.ID, turn))
}

// begunBy is the beginning of a turn that others sampled; nil: there is none. In a replay it is the record's: those who sampled it sample it again.
func begunBy(p Place, t, recovered *trajectory.Trajectory, turn int) *gateway.Begun {
	switch {
	case recovered != nil && turn < len(recovered.Turns) && len(recovered.Turns[turn].Begun) > 0:
		out := beginningOf(recovered, turn, recovered.Turns[turn].BegunTokens())
		out.By = recovered.Turns[turn].Begun
		return out
	case p.tree != nil && turn == t.Forked:
		return p.tree.begun
	}
	return nil
}

// Grow samples the trees of a task until they have size leaves. before are those that a process which ended had begun. done is called with each leaf
// as it ends, by its goroutine; nil is nothing. The trajectories are in the order of their trees; there are fewer than size where ctx is done or done
// failed, whose first error is returned.
func (r *Sampler) Grow(ctx context.Context, first Place, task trajectory.Task, size int, before []tree.Leaf, done func(*trajectory.Trajectory) error) (trajectory.Group, error) {
	group := trajectory.Group{Task: task}
	seed := func(index int, b trajectory.Branch, turn int) uint64 {
		return trajectory.Place{Phase: first.Phase, Step: first.Step, Group: first.Group, Index: index, Branch: b}.Seed(r.Seed, task.ID, turn)
	}
	plan := tree.NewPlan(r.Trees.Rule, r.Trees.Roots, size, seed, before)
	var once sync.Once
	var failed error
	leaves := group.Trajectories // by their numbers in the plan
	for ctx.Err() == nil && failed == nil {
		starts := plan.Next()
		if len(starts) == 0 {
			break
		}
		leaves = append(leaves, make([]*trajectory.Trajectory, len(starts))...)
		var all sync.WaitGroup
		for _, s := range starts {
			p := Place{Step: first.Step, Group: first.Group, Index: s.Index, Branch: s.Branch, Task: task, Phase: first.Phase, tree: &growth{Trees: r.Trees}}
			if s.Turn > 0 {
				p.tree.base = prefixOf(leaves[s.Parent], s.Turn)
			}
			if s.Token > 0 {
				p.tree.begun = beginningOf(leaves[s.Parent], s.Turn, s.Token)
			}
			if s.Parent >= 0 {
				for _, turn := range leaves[s.Parent].Turns[s.Turn:] {
					if turn.Incoming != nil {
						p.tree.ahead = append(p.tree.ahead, turn.Incoming.Digest)
					}
				}
			}
			all.Go(func() {
				t := r.Sample(ctx, p)
				leaves[s.Number] = t
				if done == nil {
					return
				}
				if err := done(t); err != nil {
					once.Do(func() { failed = err })
				}
			})
		}
		all.Wait()
		for _, s := range starts {
			plan.Ended(s.Number, r.turnsOf(leaves[s.Number]))
		}
	}
	group.Trajectories = leaves
	tree.Sort(group.Trajectories)
	return group, failed
}

// prefixOf is the beginning of a trajectory that a child of it has too: its first turns, and the tokens up to their end.
func prefixOf(t *trajectory.Trajectory, turns int) *trajectory.Trajectory {
	out := &trajectory.Trajectory{TaskID: t.TaskID, Turns: slices.Clone(t.Turns[:turns])}
	for k := range out.Turns {
		out.Turns[k].Shared = nameOf(t, k)
	}
	out.Samples = t.SamplesAfter(turns)
	return out
}

// turnsOf is what a rule may know of a trajectory; nil of one that failed.
func (r *Sampler) turnsOf(t *trajectory.Trajectory) []tree.Turn {
	if t.Failed() {
		return nil
	}
	out := make([]tree.Turn, len(t.Turns))
	for i := range t.Turns {
		turn := &t.Turns[i]
		out[i].Entropy, out[i].Closed = turn.Entropy, r.closed(turn)
		if !r.Trees.Within || out[i].Closed {
			out[i].NLL = slices.Repeat([]float64{-1}, turn.CompletionEnd-turn.CompletionStart)
			continue
		}
		s, stops := t.Samples[turn.Sample], r.Sampling.Stop
		if turn.Incoming != nil {
			stops = slices.Concat(stops, turn.Incoming.Stop)
		}
		ids := s.TokenIDs[turn.CompletionStart:turn.CompletionEnd]
		for at, logprob := range s.SamplingLogprobs[turn.CompletionStart:turn.CompletionEnd] {
			nll := -float64(logprob)
			if len(turn.Begun) > 0 && at <= turn.BegunTokens() || !r.begins(ids[:at], stops) { // those of others, and the one that was branched
				nll = -1
			}
			out[i].NLL = append(out[i].NLL, nll)
		}
	}
	return out
}

// closed tells whether no trajectory forks off before a turn, because it is not trained; where entropies decide, because it reads no result: it begins a
// conversation; or, where trajectories fork within turns, because it is held to a form.
func (r *Sampler) closed(turn *trajectory.Turn) bool {
	switch {
	case turn.Role == trajectory.RoleDiscarded || turn.Role != "" && r.Frozen != nil && r.Frozen(turn.Role):
		return true
	case turn.Incoming != nil && r.Trees.Measure:
		return turn.Incoming.After < 0
	case turn.Incoming != nil && r.Trees.Within: // a form would begin anew behind what was sampled
		return len(turn.Incoming.Held) > 0
	}
	return false
}

// begins tells whether a completion may be begun with these ids, and be sampled on by a request that has them in its prompt: they end neither within a
// character nor within what may become one of the stop strings. An engine looks for stop strings in what it samples alone, so none may stand across the place.
func (r *Sampler) begins(ids []int32, stops []string) bool {
	longest := utf8.UTFMax // a character may have as many tokens
	for _, stop := range stops {
		longest = max(longest, len(stop))
	}
	text := ""
	for n := longest; ; n *= 2 { // special tokens have no text
		text = r.Decode(ids[max(0, len(ids)-n):])
		if len(text) >= longest || n >= len(ids) {
			break
		}
	}
	if last, size := utf8.DecodeLastRuneInString(text); last == utf8.RuneError && size > 0 {
		return false
	}
	for _, stop := range stops {
		for n := min(len(stop)-1, len(text)); n > 0; n-- {
			if strings.HasSuffix(text, stop[:n]) {
				return false
			}
		}
	}
	return true
}

// generate asks the engine for a completion, and measures the entropy of its first tokens where measure is set and a
// rule of trees reads it. The receiver is nil outside of trees.
func (g *growth) generate(ctx context.Context, engine engines.Engine, measure bool, q engines.Request) (c engines.Completion, entropy float64, err error) {
	if g == nil || !g.Measure || !measure {
		c, err = engine.Generate(ctx, q)
		return c, 0, err
	}
	q.Top = g.Likeliest()
	if c, err = engine.Generate(ctx, q); err != nil {
		return c, 0, err
	}
	if q.Top > 0 && len(c.Top) != len(c.TokenIDs) {
		return c, 0, fmt.Errorf("the engine told the likeliest tokens at %d places, which rollout.tree.top asks for, and sampled %d tokens", len(c.Top), len(c.TokenIDs))
	}
	values := make([]float64, min(g.Tokens, len(c.TokenIDs), len(c.Logprobs))) // the sampler refuses what is not whole
	for i := range values {
		if q.Top == 0 {
			values[i] = -float64(c.Logprobs[i])
		} else {
			values[i], _ = tree.EntropyBounds(logprobsOf(c.Top[i]), g.Vocabulary)
		}
	}
	c.Top = nil // nobody else reads them
	return c, tree.First(values, g.Tokens), nil
}

// Likeliest is how many of the likeliest tokens a request asks for: of the whole vocabulary all but the last, whose probability is what the others leave.
func (t *Trees) Likeliest() int { return max(0, min(t.Top, t.Vocabulary-1)) }

func logprobsOf(top []engines.Alternative) []float32 {
	out := make([]float32, len(top))
	for i, a := range top {
		out[i] = a.Logprob
	}
	return out
}

// branch is where in a tree the session of an agent that is a program of its own grows its trajectory. The receiver is nil outside of trees.
func (g *growth) branch(engine engines.Engine) *gateway.Tree {
	if g == nil {
		return nil
	}
	return &gateway.Tree{Base: g.base, Ahead: g.ahead, Begun: g.begun, Generate: func(ctx context.Context, q engines.Request) (engines.Completion, float64, error) {
		return g.generate(ctx, engine, true, q)
	}}
}

// goesOn tells whether a recorded trajectory begins with what it forks off at, as that is now; nil: at nothing.
func goesOn(t, base *trajectory.Trajectory) bool {
	if base == nil {
		return true
	}
	if len(t.Turns) < len(base.Turns) || len(t.Samples) < len(base.Samples) {
		return false
	}
	for k, s := range base.Samples {
		if n := s.Len(); t.Samples[k].Len() < n || !t.Samples[k].Prefix(n).Equal(s.Prefix(n)) {
			return false
		}
	}
	return true
}

// foreign tells whether another trajectory of the tree sampled a turn: it is taken as it was recorded, in a replay too.
func foreign(turn trajectory.Turn, id string) bool {
	by := turn.SharedBy()
	return by != "" && by != id
}

// Forest grows the trees of several tasks at once.
func (r *Sampler) Forest(ctx context.Context, phase string, step int, tasks []trajectory.Task, size int, done func(*trajectory.Trajectory) error) []trajectory.Group {
	groups := make([]trajectory.Group, len(tasks))
	var all sync.WaitGroup
	for g, task := range tasks {
		all.Go(func() {
			groups[g], _ = r.Grow(ctx, Place{Phase: phase, Step: step, Group: g}, task, size, nil, done)
		})
	}
	all.Wait()
	return groups
}
