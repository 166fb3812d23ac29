package rollout

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/tree"
	"github.com/agentfly/agentfly/trajectory"
)

// Trees are how the trajectories of a task branch.
type Trees struct {
	Rule       tree.Rule
	Roots      int  // trajectories that begin at the prompt
	Measure    bool // the rule reads entropies
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
		Rule: t.Branching(r.GroupSize, vocabulary), Roots: t.From(r.GroupSize), Measure: t.Rule == "entropy", Tokens: t.Tokens, Top: t.Top, Vocabulary: vocabulary,
	}
}

// growth is what a trajectory of a tree has beyond others.
type growth struct {
	*Trees
	base *trajectory.Trajectory // the turns that it has of the one it forks off; nil: none
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
			plan.Ended(s.Number, turnsOf(leaves[s.Number]))
		}
	}
	group.Trajectories = leaves
	tree.Sort(group.Trajectories)
	return group, failed
}

// prefixOf is the beginning of a trajectory that a child of it has too: its first turns, and the tokens up to their end.
func prefixOf(t *trajectory.Trajectory, turns int) *trajectory.Trajectory {
	out := &trajectory.Trajectory{TaskID: t.TaskID, Turns: t.Turns[:turns:turns]}
	ends := make([]int, out.Turns[turns-1].Sample+1)
	for _, turn := range out.Turns {
		ends[turn.Sample] = turn.ObservationEnd
	}
	for k, end := range ends {
		of := t.Samples[k]
		prefix := of.Prefix(end)
		out.Samples = append(out.Samples, &trajectory.Sample{
			Role: of.Role, TokenIDs: prefix.IDs, ResponseMask: of.ResponseMask[:end], SamplingLogprobs: of.SamplingLogprobs[:end], PolicyVersion: of.PolicyVersion[:end], Media: prefix.Media,
		})
	}
	return out
}

// turnsOf is what a rule may know of a trajectory; nil of one that failed.
func turnsOf(t *trajectory.Trajectory) []tree.Turn {
	if t.Err != "" || t.StopReason == trajectory.StopError || t.StopReason == trajectory.StopCancelled {
		return nil
	}
	out := make([]tree.Turn, len(t.Turns))
	for i := range t.Turns {
		turn := &t.Turns[i]
		out[i].Entropy = turn.Entropy
		for _, logprob := range t.Samples[turn.Sample].SamplingLogprobs[turn.CompletionStart:turn.CompletionEnd] {
			out[i].NLL = append(out[i].NLL, -float64(logprob))
		}
	}
	return out
}

// generate asks the engine for a completion, and measures the entropy of its first tokens where measure is set and a
// rule of trees reads it. The receiver is nil outside of trees.
func (g *growth) generate(ctx context.Context, engine engines.Engine, measure bool, q engines.Request) (c engines.Completion, entropy float64, err error) {
	if g == nil || !g.Measure || !measure {
		c, err = engine.Generate(ctx, q)
		return c, 0, err
	}
	var values []float64
	if g.Top == 0 {
		c, err = engine.Generate(ctx, q)
		for _, logprob := range c.Logprobs {
			values = append(values, -float64(logprob))
		}
		return c, tree.First(values, g.Tokens), err
	}
	streamer, ok := engine.(engines.Streamer)
	if !ok {
		return c, 0, errors.New("this engine does not tell the likeliest tokens, which rollout.tree reads; set rollout.tree.top: 0 to estimate entropies by what was sampled")
	}
	c, err = streamer.Stream(ctx, q, engines.Detail{Top: min(g.Top, g.Vocabulary)}, func(tokens []engines.Token) {
		for _, t := range tokens {
			if len(values) < g.Tokens {
				low, _ := tree.EntropyBounds(logprobsOf(t.Top), g.Vocabulary)
				values = append(values, low)
			}
		}
	})
	if err == nil && len(values) < min(g.Tokens, len(c.TokenIDs)) {
		err = fmt.Errorf("the engine told of %d tokens as they were sampled, and %d came", len(values), len(c.TokenIDs))
	}
	return c, tree.First(values, g.Tokens), err
}

func logprobsOf(top []engines.Alternative) []float32 {
	out := make([]float32, len(top))
	for i, a := range top {
		out[i] = a.Logprob
	}
	return out
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
