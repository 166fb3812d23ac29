// Package viewtest makes run folders that were not trained, for tests and measurements of the page: of any size, alike for one seed, with
// every kind of end, failed tool calls, stale samples, and texts that try to be more than text.
//
// It does not train, and its numbers mean nothing.
package viewtest

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// Hostile is what a page must show and never run or obey.
const Hostile = "<script>window.hacked=1</script><img src=x onerror=\"window.hacked=2\"><svg onload=window.hacked=3>\x1b[2J\u202e\u061c\U000e0041</pre></body>{{7*7}}${7*7}javascript:window.hacked=4"

// Size says how much a run has.
type Size struct {
	Steps  int // with metrics
	Groups int // a step
	Each   int // trajectories of a group
	Only   int // steps that have trajectories, the last ones; 0: all
	Seed   uint64
	Shift  float64 // is added to the chance of success
	Breaks int     // step from which on the calculator breaks in most calls, so that the answers are wrong; 0: it does not
}

// Words are the tokens of made runs.
type Words struct {
	texts []string
	ids   map[string]int32
}

var piece = regexp.MustCompile(` ?[A-Za-z]+| ?[0-9]|\n|.`)

// encode splits a text into words, each of which is a token.
func (w *Words) encode(text string) (ids []int32) {
	for _, p := range piece.FindAllString(text, -1) {
		ids = append(ids, w.id(p))
	}
	return ids
}

func (w *Words) id(p string) int32 {
	if id, ok := w.ids[p]; ok {
		return id
	}
	if w.ids == nil {
		w.ids = map[string]int32{}
	}
	id := int32(len(w.texts))
	w.ids[p] = id
	w.texts = append(w.texts, p)
	return id
}

// Decode is the text of tokens.
func (w *Words) Decode(ids []int32) (out string) {
	for _, id := range ids {
		if int(id) < len(w.texts) {
			out += w.texts[id]
		}
	}
	return out
}

// Run makes a run folder of that size.
func Run(ctx context.Context, dir string, size Size, words *Words) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	db, err := store.Open(filepath.Join(dir, store.File))
	if err != nil {
		return err
	}
	defer db.Close()
	for step := range size.Steps {
		if err := Step(ctx, db, size, words, step); err != nil {
			return err
		}
	}
	return db.Close()
}

// Step makes one step of a run.
func Step(ctx context.Context, db *store.Store, size Size, words *Words, step int) error {
	r := rand.New(rand.NewPCG(size.Seed, uint64(step)))
	var updates []store.Update
	sum, paid := 0.0, 0
	if size.Only == 0 || step >= size.Steps-size.Only {
		var all []store.Admission
		var refs []store.GroupRef
		for g := range size.Groups {
			all = append(all, store.Admission{Phase: store.Train, Step: step, Group: g, Task: task(r.IntN(40 + size.Groups)), Size: size.Each, Version: int32(max(0, step-g%3))})
			refs = append(refs, store.GroupRef{Step: step, Group: g})
		}
		if err := db.Admit(ctx, all...); err != nil {
			return err
		}
		var w sync.WaitGroup
		errs := make([]error, size.Groups*size.Each)
		for g, a := range all {
			for k := range size.Each {
				t := rollout(r, a, k, size.Shift, size.Breaks > 0 && step >= size.Breaks, words)
				sum, paid = count(sum, paid, t)
				updates = append(updates, update(r, t))
				if size.Breaks > 0 && step == size.Breaks {
					differ(&updates[len(updates)-1], t, words)
				}
				w.Go(func() { errs[g*size.Each+k] = db.AddTrajectory(ctx, store.Train, a.Task, t) })
			}
		}
		w.Wait()
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		if err := db.AddBatch(ctx, store.Batch{Step: step, Version: int32(step), Groups: refs}); err != nil {
			return err
		}
	}
	if step%10 == 0 {
		done := success(step, size.Shift)
		if err := db.AddEvaluation(ctx, fmt.Sprintf("step-%d", step), step, map[string]any{"name": fmt.Sprintf("step-%d", step), "step": step, "tasks": 64, "reward": done, "accuracy": done * 0.9}); err != nil {
			return err
		}
	}
	m := metrics(r, step, size.Shift)
	if size.Breaks > 0 && paid > 0 {
		m["reward/mean"] = sum / float64(paid)
	}
	return db.AddStep(ctx, step, m, updates)
}

// count adds the reward of a trajectory that has one.
func count(sum float64, paid int, t *trajectory.Trajectory) (float64, int) {
	if t.ErrOrigin != "" {
		return sum, paid
	}
	return sum + t.Return(), paid + 1
}

// differ makes the trainer find the tool's name 2 nats less likely than the engine did.
func differ(u *store.Update, t *trajectory.Trajectory, words *Words) {
	s := t.Samples[0]
	for i, on := range s.ResponseMask {
		if on && words.Decode(s.TokenIDs[i:i+1]) == " calculator" {
			u.OldLogprobs[i] = s.SamplingLogprobs[i] - 2
		}
	}
}

// success is the chance of an answer being right at a step.
func success(step int, shift float64) float64 {
	return math.Min(0.97, math.Max(0.03, 0.15+shift+0.8*(1-math.Exp(-float64(step)/25))))
}

func task(n int) trajectory.Task {
	a, b := 12+7*n%83, 3+5*n%47
	return trajectory.Task{
		ID: fmt.Sprintf("product-%03d", n), Fields: map[string]any{"answer": fmt.Sprint(a * b), "a": a, "b": b},
		Prompt: []trajectory.Message{trajectory.Text("system", "Use the calculator. Answer with the number alone."), trajectory.Text("user", fmt.Sprintf("What is %d times %d?", a, b))},
	}
}

// rollout makes a trajectory: a call of a tool, and an answer.
func rollout(r *rand.Rand, a store.Admission, k int, shift float64, breaks bool, words *Words) *trajectory.Trajectory {
	t := &trajectory.Trajectory{
		ID: store.ID(store.Train, a.Step, a.Group, k), TaskID: a.Task.ID, Group: a.Group, Index: k, Step: a.Step, StopReason: trajectory.StopAnswer,
		Started: time.Unix(1795000000+int64(a.Step)*60, 0), Seconds: 0.4 + r.ExpFloat64(), RewardParts: map[string]float64{},
	}
	s := &trajectory.Sample{}
	t.Samples = []*trajectory.Sample{s}
	s.AppendObservation(words.encode("system\nUse the calculator. Answer with the number alone.\nuser\n" + text(a.Task.Prompt[1]) + "\nassistant\n"))
	right := r.Float64() < success(a.Step, shift)
	answer := a.Task.Fields["answer"].(string)
	call := trajectory.ToolCall{ID: "c0", Name: []string{"calculator", "calculator", "calculator", "search"}[r.IntN(4)], Arguments: json.RawMessage(fmt.Sprintf(`{"expression": "%v * %v"}`, a.Task.Fields["a"], a.Task.Fields["b"]))}
	result := trajectory.ToolResult{Call: call, Observation: answer, Duration: time.Duration(1e6 * (1 + 5*r.ExpFloat64()))}
	switch f := r.Float64(); {
	case breaks && call.Name == "calculator" && f < 0.7:
		result.Fail(trajectory.CauseBroken, "Error: the calculator's process ended (signal: killed)")
		right = false
	case call.Name == "search" && f < 0.5:
		result.Fail(trajectory.CauseBroken, "Error: search did not answer within 20 s")
	case call.Name == "search":
		result.Observation = "products of numbers, arithmetic, tables\n" + answer
	case f < 0.08:
		result.Call.Arguments = json.RawMessage(`{"expression": "12 times"}`)
		result.Fail(trajectory.CauseRaised, `Error: "12 times" is no expression: a number or ( is missing at its end`)
	}
	say(r, t, a.Version, words, fmt.Sprintf("I use the %s for this.\n<tool_call>%s</tool_call>", call.Name, call.Arguments), &result)
	switch f := r.Float64(); {
	case a.Step%7 == 3 && a.Group == 0 && k == 0:
		say(r, t, a.Version, words, "The page says "+Hostile, nil)
		t.Turns[1].AnsweredThisTurn, t.Turns[1].FinalAnswer = true, Hostile
		right = false
	case f < 0.03:
		t.StopReason = trajectory.StopError
		t.Fail(trajectory.OriginEngine, "engine: http://127.0.0.1:8000: no answer within 60 s")
		return t
	case right:
		say(r, t, a.Version, words, "The answer is "+answer+".", nil)
		t.Turns[1].AnsweredThisTurn, t.Turns[1].FinalAnswer = true, answer
	case f < 0.5:
		say(r, t, a.Version, words, "The answer is "+fmt.Sprint(r.IntN(4000))+", I think.", nil)
		t.Turns[1].AnsweredThisTurn, t.Turns[1].FinalAnswer = true, "?"
	default:
		say(r, t, a.Version, words, "I do not know how to go on from here, so I begin again. I use the", nil)
		t.Turns[1].FinishReason, t.StopReason = trajectory.FinishLength, trajectory.StopMaxTokens
	}
	t.RewardParts["final_answer"], t.RewardParts["right_call"] = 0, 0
	if right {
		t.RewardParts["final_answer"] = 1
	}
	if !result.Failed {
		t.RewardParts["right_call"] = 1
	}
	t.Reward = math.Round(1000*(0.8*t.RewardParts["final_answer"]+0.2*t.RewardParts["right_call"])) / 1000
	return t
}

func text(m trajectory.Message) string { return m.Content[0].Text }

// say appends a turn.
func say(r *rand.Rand, t *trajectory.Trajectory, version int32, words *Words, said string, result *trajectory.ToolResult) {
	s := t.Samples[0]
	ids := words.encode(said)
	logprobs, versions := make([]float32, len(ids)), make([]int32, len(ids))
	for i := range ids {
		logprobs[i], versions[i] = -float32(0.35*r.ExpFloat64()*r.ExpFloat64()), version
		if len(t.Turns) > 0 && t.Step%2 == 1 {
			versions[i]++ // the weights changed meanwhile
		}
	}
	turn := trajectory.Turn{CompletionStart: s.Len(), Completion: said, FinishReason: trajectory.FinishStop, Seed: r.Uint64(), EngineSeconds: 0.01 * float64(len(ids)), CachedTokens: s.Len() / 2}
	if err := s.AppendResponse(ids, logprobs, versions); err != nil {
		panic(err) // of what stands above
	}
	turn.CompletionEnd = s.Len()
	if result != nil {
		turn.Results, turn.ToolSeconds = []trajectory.ToolResult{*result}, result.Duration.Seconds()
		s.AppendObservation(words.encode("\ntool\n" + result.Observation + "\nassistant\n"))
	}
	turn.ObservationEnd = s.Len()
	t.Turns = append(t.Turns, turn)
}

// update is what a step adds.
func update(r *rand.Rand, t *trajectory.Trajectory) store.Update {
	s := t.Samples[0]
	u := store.Update{TrajectoryID: t.ID, Step: t.Step, OldLogprobs: make([]float32, s.Len()), Advantages: make([]float32, s.Len()), Entropy: make([]float32, s.Len())}
	for i, on := range s.ResponseMask {
		if on {
			u.OldLogprobs[i] = min(0, s.SamplingLogprobs[i]+float32(0.01*r.NormFloat64()))
			u.Advantages[i] = float32(2*t.Reward - 1)
			u.Entropy[i] = -s.SamplingLogprobs[i] / 2
		}
	}
	return u
}

// metrics are those of a step.
func metrics(r *rand.Rand, step int, shift float64) map[string]float64 {
	x, noise := float64(step), func(by float64) float64 { return 1 + by*r.NormFloat64() }
	done := success(step, shift)
	if step%50 == 33 { // something went wrong
		done *= 0.55
	}
	return map[string]float64{
		"reward/mean": done * noise(0.04), "reward/final_answer": done * noise(0.05), "reward/right_call": 0.9 * noise(0.02), "trajectories/finished": 31, "trajectories/failed": 1,
		"errors/engine": math.Round(math.Abs(r.NormFloat64())), "errors/tool": math.Round(2 * math.Abs(r.NormFloat64())), "groups/flat": math.Round(4 * done * noise(0.2)), "groups/sampled": 8, "groups/dropped": 0,
		"tools/calls": 32, "tools/failed": math.Round(4 * noise(0.3)), "tools/parse_errors": math.Round(3 * math.Exp(-x/20)), "length/response_mean": (34 + 10*math.Exp(-x/30)) * noise(0.03), "length/trained_max": 58 * noise(0.05),
		"seconds/sample": 3.1 * noise(0.1), "seconds/wait": 2.2 * noise(0.15), "seconds/sync": 0.2 * noise(0.1), "seconds/train": 1.6 * noise(0.05), "seconds/step": 3.9 * noise(0.08), "seconds/tools": 0.3 * noise(0.2), "seconds/elapsed": 4 * x,
		"tokens/sample_per_second": 410 * noise(0.06), "tokens/train_per_second": 820 * noise(0.05), "update/loss": 0.02 * noise(1), "update/grad_norm": 0.9 * math.Exp(-x/60) * noise(0.2), "update/learning_rate": 1e-5,
		"update/entropy": (0.4 + 1.1*math.Exp(-x/25)) * noise(0.05), "update/kl": 0.0008 * x * noise(0.1), "update/clip_fraction": 0.04 * noise(0.3), "update/mismatch_mean": 0.008 * noise(0.1), "update/mismatch_max": 0.05 * noise(0.3),
		"update/staleness_mean": 1 * noise(0.1), "update/staleness_max": 2, "update/policy_version": x + 1, "update/ess": 0.99,
	}
}
