package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/trajectory"
)

// Findings watch the steps of a process for what keeps a run from learning. Each is told once, at the first step that shows it. The zero value
// lacks Job and Decode; its methods are called by one goroutine.
type Findings struct {
	Job    *job.Job
	Decode func(ids []int32) string // special tokens kept

	said  map[string]bool
	kinds map[string]*kind
	tools map[string]*raising
}

// Learned is what the update of a step came to.
type Learned struct {
	Moved   bool // the policy has a new version
	Skipped bool // a number was not finite
}

// kind are the groups of the tasks with one value of a field.
type kind struct {
	groups, flat, steps int
	example             *trajectory.Trajectory
	task                trajectory.Task
}

// A kind of tasks is told of once it had so many groups in so many steps.
const (
	kindGroups = 4
	kindSteps  = 3
	mostKinds  = 256
)

// Step are the notes on a step.
func (f *Findings) Step(b *schedule.Batch, s Step, l Learned) []string {
	r := s.Rollouts
	if r == nil || l.Skipped {
		return nil
	}
	if f.said == nil {
		f.said, f.kinds = map[string]bool{}, map[string]*kind{}
	}
	var out []string
	tell := func(key, text string, of trajectory.Group) {
		if !f.said[key] {
			f.said[key] = true
			out = append(out, text+f.shown(of))
		}
	}
	cut := f.Job.Distill == nil && f.Job.Rollout.Cut != "parse" && r.Turns != nil && r.Turns.Turns > 0 && r.Turns.Cut == r.Turns.Turns
	if cut {
		read := "none is a call or an answer"
		if f.Job.Agent.Kind == agents.External {
			read = "the agent reads beginnings of replies"
		}
		tell("cut", fmt.Sprintf("every completion was cut by a token limit before the model ended it (rollout.max_new_tokens %d, rollout.max_tokens %d), so %s; raise them, or rollout.cut: parse where completions have a fixed length",
			f.Job.Rollout.MaxNewTokens, f.Job.Rollout.MaxTokens, read), firstOf(b.All))
	}
	if f.Job.Distill == nil {
		if key, text := f.flat(b, r, cut); key != "" {
			tell(key, text, firstOf(b.All))
		} else if s.Update.GradNorm == 0 && r.Trajectories.Finished > 0 {
			tell("gradient", "the gradient is 0 though rewards differ: no token was trained: agent.roles freezes them (train: false), or the loss's clip, the correction or rollout.cut: filter leaves them out; see update/clip_fraction, update/dropped and trajectories/filtered in metrics.jsonl", firstOf(b.All))
		} else if !l.Moved && r.Trajectories.Finished > 0 {
			tell("version", "the update left the policy's version as it was: nothing was trained in this step", firstOf(b.All))
		}
		for _, name := range f.sort(b) {
			k := f.kinds[name]
			tell("kind "+name, fmt.Sprintf("tasks with %s %s taught nothing so far: each of their %d groups was flat (all of its trajectories earned the same); look at their tasks and reward, give them more of rollout.group_size, or leave them out", f.field(), strconv.Quote(name), k.groups),
				trajectory.Group{Task: k.task, Trajectories: []*trajectory.Trajectory{k.example}})
		}
	}
	return out
}

// flat says why no group of a step has anything to learn from; "": one has.
func (f *Findings) flat(b *schedule.Batch, r *Rollouts, cut bool) (key, text string) {
	var rewards []float64
	groups := 0
	for _, g := range b.All {
		values := earned(g)
		if len(values) == 0 {
			continue
		}
		groups++
		if algorithms.Informative(values) {
			return "", ""
		}
		rewards = append(rewards, values...)
	}
	if groups == 0 || r.Groups.Flat < len(b.Trained) { // an estimator may learn from groups whose rewards are equal
		return "", ""
	}
	head := fmt.Sprintf("nothing can be learned from this step: in each of its %d groups all trajectories earned the same, so every advantage is 0", groups)
	answered := r.Trajectories.Stops[string(trajectory.StopAnswer)]
	switch value := rewards[0]; {
	case algorithms.Informative(rewards):
		return "flat", head + "; sample more of each task (rollout.group_size), at a higher temperature, or mix tasks of which the policy solves some (data.curriculum)"
	case cut:
		return "constant", fmt.Sprintf("%s: every reward is %v. The completions were all cut; mend that first", head, value)
	case value != 0 && answered == r.Trajectories.Finished:
		return "solved", fmt.Sprintf("%s: every reward is %v. If that is the best, the tasks are solved: take harder ones, or end the run; else the reward does not tell good from bad", head, value)
	case f.Job.Environment != nil:
		return "constant", fmt.Sprintf("%s: every reward is %v. Hold the reply against the actions that the environment takes; take easier tasks, a reward for parts of the way, a larger rollout.group_size, or a stronger model", head, value)
	case answered == 0:
		return "constant", fmt.Sprintf("%s: every reward is %v, and no trajectory gave a final answer. Hold the reply against what the format %s reads and the reward wants; show it with agent.examples, teach it with sft first, or take a stronger model",
			head, value, f.Job.Agent.Format)
	default:
		return "constant", fmt.Sprintf("%s: every reward is %v. Hold the reply against the task and the reward's fields; take easier tasks, a reward with parts, or a larger rollout.group_size", head, value)
	}
}

// sort counts the groups of a step by kind of task, and returns the kinds that taught nothing so far, while others did.
func (f *Findings) sort(b *schedule.Batch) []string {
	field := f.field()
	if field == "" {
		return nil
	}
	seen := map[string]bool{}
	for _, g := range b.All {
		values := earned(g)
		name, ok := g.Task.Fields[field]
		if !ok || len(values) < 2 {
			continue
		}
		key := fmt.Sprint(name)
		k := f.kinds[key]
		if k == nil && len(f.kinds) == mostKinds { // a field of every task's own is no kind
			return nil
		}
		if k == nil {
			k = &kind{example: g.Trajectories[0], task: g.Task}
			f.kinds[key] = k
		}
		if k.groups++; !algorithms.Informative(values) {
			k.flat++
		}
		if !seen[key] {
			seen[key] = true
			k.steps++
		}
	}
	var out []string
	others := false
	for _, name := range slices.Sorted(maps.Keys(f.kinds)) {
		switch k := f.kinds[name]; {
		case k.flat < k.groups:
			others = true
		case k.groups >= kindGroups && k.steps >= kindSteps:
			out = append(out, name)
		}
	}
	if !others { // then it is not the kind
		return nil
	}
	return out
}

// field is what tells kinds of tasks apart: the job's own word for it, else the file.
func (f *Findings) field() string {
	d := f.Job.Data
	switch {
	case d.Balance != "":
		return d.Balance
	case d.Spread != "":
		return d.Spread
	case f.Job.Eval.By != "" && f.Job.Eval.By != "source":
		return f.Job.Eval.By
	case len(d.Train) > 1:
		return "source"
	}
	return ""
}

// shown is the prompt and the reply of a group's first trajectory, clipped and in quotes.
func (f *Findings) shown(g trajectory.Group) string {
	for _, t := range g.Trajectories {
		if t == nil || len(t.Turns) == 0 || t.Turns[0].Sample >= len(t.Samples) {
			continue
		}
		turn, sample := t.Turns[0], t.Samples[t.Turns[0].Sample]
		prompt := ""
		if f.Decode != nil && turn.CompletionStart <= sample.Len() {
			prompt = f.Decode(sample.TokenIDs[:turn.CompletionStart])
		}
		return fmt.Sprintf("\n      task %s, reward %v\n      prompt %s\n      reply  %s", strconv.Quote(t.TaskID), t.Return(), quoted(prompt), quoted(turn.Completion))
	}
	return ""
}

const mostQuoted = 240 // runes of a prompt or a reply

// quoted is a text of one line, without the middle of a long one.
func quoted(s string) string {
	if r := []rune(strings.ToValidUTF8(s, "\uFFFD")); len(r) > mostQuoted {
		return strconv.Quote(string(r[:mostQuoted/2])) + " … " + strconv.Quote(string(r[len(r)-mostQuoted/2:]))
	}
	return strconv.Quote(s)
}

func firstOf(groups []trajectory.Group) trajectory.Group {
	for _, g := range groups {
		for _, t := range g.Trajectories {
			if !t.Failed() && len(t.Turns) > 0 {
				return trajectory.Group{Task: g.Task, Trajectories: []*trajectory.Trajectory{t}}
			}
		}
	}
	return trajectory.Group{}
}

// earned are the rewards of the trajectories of a group that finished.
func earned(g trajectory.Group) []float64 {
	var out []float64
	for _, t := range g.Trajectories {
		if !t.Failed() {
			out = append(out, t.Return())
		}
	}
	return out
}

// raising is a tool none of whose calls worked so far.
type raising struct {
	text   string // of the error
	calls  int
	works  bool            // a call worked, or it raised different errors
	inputs map[string]bool // arguments, at most two
}

// Raising counts the calls of a step, and is an error once a tool raised the same error in more calls than rollout.max_raised, with different
// arguments, and never did anything else: it is the tool that is to be mended, not the policy.
func (f *Findings) Raising(b *schedule.Batch) error {
	most := f.Job.Rollout.MaxRaised
	if most == 0 {
		return nil
	}
	if f.tools == nil {
		f.tools = map[string]*raising{}
	}
	for _, g := range b.All {
		for _, t := range g.Trajectories {
			for k, turn := range t.Turns {
				if !t.Owns(k) {
					continue
				}
				for _, r := range turn.Results {
					f.raised(r)
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.tools)) {
		if r := f.tools[name]; !r.works && r.calls >= most && len(r.inputs) > 1 {
			return fmt.Errorf("orchestrator: step %d: the tool %s raised the same error in all of its %d calls so far (rollout.max_raised: %d): %s; correct the tool, or set rollout.max_raised: 0 where the policy is to learn from that", b.Step+1, name, r.calls, most, r.text)
		}
	}
	return nil
}

func (f *Findings) raised(r trajectory.ToolResult) {
	switch {
	case r.Failed && r.Cause != trajectory.CauseRaised: // the tool was not asked, or broke: rollout.max_failed_tool
		return
	case r.Failed && r.Outcome != nil: // an environment refused an action, as it does all that a model without training does
		return
	case f.tools[r.Call.Name] == nil:
		f.tools[r.Call.Name] = &raising{text: r.Observation, inputs: map[string]bool{}}
	}
	tool := f.tools[r.Call.Name]
	if !r.Failed || r.Observation != tool.text {
		tool.works = true
	}
	if tool.calls++; len(tool.inputs) < 2 {
		tool.inputs[string(r.Call.Arguments)] = true
	}
}
