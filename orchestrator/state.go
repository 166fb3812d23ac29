package orchestrator

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/trainer"
	"github.com/agentfly/agentfly/trajectory"
)

const (
	stateFile     = "run.json" // written last into a checkpoint: one that has it is complete
	adapterFolder = "adapter"  // PEFT's files, of a job with model.lora; the weights beside it are merged
	trainerFolder = "trainer"  // apart, because vLLM reads every safetensors file beside the model's
)

// state is what a resumed run continues from, besides weights and optimizer.
type state struct {
	Step          int                   `json:"step"`    // steps done
	Version       int32                 `json:"version"` // policy version: optimizer steps that changed the weights
	Seconds       float64               `json:"seconds"` // spent before this process
	Rewards       []float64             `json:"rewards"` // mean of each step
	Evaluations   []Evaluation          `json:"evaluations"`
	Finished      int                   `json:"finished"`
	Failed        int                   `json:"failed"`
	SampledTokens float64               `json:"sampled_tokens"`
	SampleSeconds float64               `json:"sample_seconds"`
	TrainTokens   float64               `json:"train_tokens"`
	TrainSeconds  float64               `json:"train_seconds"`
	MismatchMax   float64               `json:"mismatch_max"`
	Data          map[string]string     `json:"data"`             // SHA-256 of the data files
	Dealt         []int                 `json:"dealt,omitempty"`  // tasks that each stratum of the data has dealt; nil: those of Step steps without refills
	Losses        []float64             `json:"losses,omitempty"` // of the steps of supervised fine-tuning
	Skipped       int                   `json:"skipped,omitempty"`
	SkippedInRow  int                   `json:"skipped_in_row,omitempty"` // up to the last step
	Errors        map[string]int        `json:"errors,omitempty"`         // by origin, see countErrors
	Curriculum    *data.CurriculumState `json:"curriculum,omitempty"`
	Files         map[string]string     `json:"files,omitempty"` // CRC-32C of each other file of the checkpoint
}

// add counts a finished step.
func (s *state) add(record map[string]float64, finished int) {
	s.Step++
	if r, ok := record["reward/mean"]; ok {
		s.Rewards = append(s.Rewards, r)
	}
	s.Finished += finished
	s.Failed += int(record["trajectories/failed"])
	s.addErrors(record)
	s.SampledTokens += record["tokens/sampled"]
	s.SampleSeconds += record["seconds/sample"]
	s.TrainTokens += record["tokens/unpacked"]
	s.TrainSeconds += record["seconds/train"]
	s.MismatchMax = max(s.MismatchMax, record["update/mismatch_max"])
}

// addErrors counts those of a step in the run's.
func (s *state) addErrors(record map[string]float64) {
	for key, n := range record {
		if origin, ok := strings.CutPrefix(key, "errors/"); ok && n > 0 {
			if s.Errors == nil {
				s.Errors = map[string]int{}
			}
			s.Errors[origin] += int(n)
		}
	}
}

// evaluated tells whether the evaluation of that name was done at that step; "before" is done once.
func (s *state) evaluated(name string, step int) bool {
	return slices.ContainsFunc(s.Evaluations, func(e Evaluation) bool { return e.Name == name && (e.Step == step || name == "before") })
}

// evaluation puts a result in the place of an earlier one of its name.
func (s *state) evaluation(e Evaluation) {
	s.Evaluations = slices.DeleteFunc(s.Evaluations, func(old Evaluation) bool { return old.Name == e.Name })
	s.Evaluations = append(s.Evaluations, e)
}

// load reads the state of the last complete checkpoint of a run folder and returns the checkpoint's folder; "" when the
// run had saved none yet.
func (s *state) load(dir string) (string, error) {
	last := filepath.Join(dir, "checkpoints", "last")
	data, err := os.ReadFile(filepath.Join(last, stateFile))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err == nil {
		err = json.Unmarshal(data, s)
	}
	if err != nil {
		return "", fmt.Errorf("orchestrator: %s: %w", filepath.Join(last, stateFile), err)
	}
	if last, err = filepath.EvalSymlinks(last); err != nil {
		return "", err
	}
	return last, verify(last, s.Files)
}

// save writes checkpoints/step-N, all of it or nothing, and then points checkpoints/last to it. Until that moment the
// previous one is the last.
func (t *run) save() error {
	state := t.state
	if !t.started.IsZero() {
		state.Seconds += time.Since(t.started).Seconds()
	}
	name := "step-" + strconv.Itoa(state.Step)
	err := modelfile.ReplaceDir(filepath.Join(t.dir, "checkpoints", name), func(dir string) error {
		if err := t.policy.SaveHF(dir, modelfile.F32); err != nil {
			return err
		}
		if t.job.Model.LoRA.On() {
			if err := t.policy.SaveAdapter(filepath.Join(dir, adapterFolder), t.baseName()); err != nil {
				return err
			}
		}
		trainer := filepath.Join(dir, trainerFolder)
		if err := os.Mkdir(trainer, 0o755); err != nil {
			return err
		}
		if err := t.trainer.Save(trainer); err != nil {
			return err
		}
		var err error
		if state.Files, err = checksums(dir); err != nil {
			return err
		}
		return modelfile.WriteJSON(filepath.Join(dir, stateFile), state)
	})
	if err != nil {
		return fmt.Errorf("orchestrator: checkpoint after step %d: %w", state.Step, err)
	}
	if err := pointTo(filepath.Join(t.dir, "checkpoints", "last"), name); err != nil {
		return fmt.Errorf("orchestrator: checkpoint after step %d: %w", state.Step, err)
	}
	return t.prune(name)
}

// baseName is where PEFT finds the base model: a hub id, or a folder of this machine; "" for a model from scratch.
func (t *run) baseName() string {
	path := t.job.Model.Path
	if local := t.job.Resolve(path); path != "" && exists(local) {
		if absolute, err := filepath.Abs(local); err == nil {
			return absolute
		}
	}
	return path
}

// pointTo makes link a symbolic link to name beside it, in one step.
func pointTo(link, name string) error {
	if err := os.RemoveAll(link + ".new"); err != nil {
		return err
	}
	if err := os.Symlink(name, link+".new"); err != nil {
		return err
	}
	if err := os.Rename(link+".new", link); err != nil {
		return err
	}
	return modelfile.SyncDir(filepath.Dir(link))
}

// removeUnfinished removes the checkpoints in a folder that were being written when their process was killed.
func removeUnfinished(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("orchestrator: checkpoints: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".step-") || !strings.HasSuffix(e.Name(), ".tmp") { // as modelfile.ReplaceDir names them
			continue
		}
		if err := os.RemoveAll(filepath.Join(folder, e.Name())); err != nil {
			return fmt.Errorf("orchestrator: checkpoints: %w", err)
		}
	}
	return nil
}

// prune removes all but the newest checkpoints.
func (t *run) prune(newest string) error {
	entries, err := os.ReadDir(filepath.Join(t.dir, "checkpoints"))
	if err != nil {
		return fmt.Errorf("orchestrator: checkpoints: %w", err)
	}
	var steps []int
	for _, e := range entries {
		if n, err := strconv.Atoi(strings.TrimPrefix(e.Name(), "step-")); err == nil && strings.HasPrefix(e.Name(), "step-") {
			steps = append(steps, n)
		}
	}
	sort.Sort(sort.Reverse(sort.IntSlice(steps)))
	best := t.bestCheckpoint()
	for _, n := range steps[min(len(steps), t.job.Checkpoint.Keep):] {
		if name := "step-" + strconv.Itoa(n); name != newest && name != best {
			if err := os.RemoveAll(filepath.Join(t.dir, "checkpoints", name)); err != nil {
				return fmt.Errorf("orchestrator: checkpoints: %w", err)
			}
		}
	}
	return nil
}

// describe is the metrics of a step; docs/metrics.md explains each.
func (t *run) describe(b *schedule.Batch, rewards []float64, m trainer.Metrics, waited, whole time.Duration) map[string]float64 {
	sampled := waited
	if t.overlaps() { // rollouts never rest
		sampled = whole
	}
	r := map[string]float64{
		"seconds/sample": sampled.Seconds(), "seconds/wait": waited.Seconds(), "seconds/train": (whole - waited).Seconds(), "seconds/step": whole.Seconds(),
		"seconds/elapsed":       t.state.Seconds + time.Since(t.started).Seconds(),
		"seconds/sync":          t.weights.Seconds,
		"reward/mean":           mean(rewards),
		"trajectories/finished": float64(len(rewards)), "groups/flat": float64(m.FlatGroups),
		"groups/sampled": float64(len(b.All)), "groups/dropped": float64(len(b.All) - len(b.Trained)), "groups/refills": float64(b.Refills),
		"groups/too_stale": float64(b.Dropped), "trajectories/running": float64(b.Running), "update/staleness_mean": m.StalenessMean, "update/staleness_max": float64(m.StalenessMax),
		"update/loss": m.Loss, "update/grad_norm": m.GradNorm, "update/learning_rate": m.LearningRate, "update/entropy": m.Entropy,
		"update/clip_fraction": m.ClipFraction, "update/mismatch_mean": m.MismatchMean, "update/mismatch_max": m.MismatchMax,
		"update/mismatch_k3": m.MismatchK3, "update/ess": m.ESS, "update/policy_version": float64(t.state.Version),
		"update/dropped": m.Dropped, "update/kl": m.KL, "update/value_loss": m.ValueLoss, "update/explained": m.Explained,
		"tokens/packed": float64(m.PackedTokens), "tokens/unpacked": float64(m.UnpackedTokens),
	}
	if t.rollout.Cut == rollout.CutFilter {
		r["trajectories/filtered"] = float64(m.Filtered)
	}
	countErrors(r, b.All)
	parts := map[string]float64{}
	var greedy []float64
	r["trajectories/failed"] = 0
	finished := 0.0 // sampled tokens of the trajectories that did not fail
	for _, g := range b.All {
		if t := g.Greedy; t != nil && t.Err == "" {
			greedy = append(greedy, t.Reward)
		}
		for _, tr := range g.Trajectories {
			if tr.Err != "" {
				r["trajectories/failed"]++
			}
			for name, v := range tr.RewardParts {
				parts[name] += v
			}
			r["stop/"+string(tr.StopReason)]++
			for _, turn := range tr.Turns {
				r["turns"]++
				if turn.FinishReason == trajectory.FinishLength {
					r["turns/cut"]++
				}
				countCalls(r, turn)
				r["tokens/sampled"] += float64(turn.CompletionEnd - turn.CompletionStart)
				if tr.Err == "" {
					finished += float64(turn.CompletionEnd - turn.CompletionStart)
				}
				r["tokens/cached"] += float64(turn.CachedTokens)
			}
		}
	}
	if len(b.All) > 0 && b.All[0].Greedy != nil {
		r["greedy/reward"], r["greedy/failed"] = mean(greedy), float64(len(b.All)-len(greedy))
	}
	for name, v := range parts {
		r["reward/"+name] = v / max(1, float64(len(rewards)))
	}
	if n := float64(len(rewards)); n > 0 {
		r["length/response_mean"] = finished / n
	}
	addLengths(r, b)
	r["tokens/sample_per_second"] = r["tokens/sampled"] / sampled.Seconds()
	r["tokens/train_per_second"] = r["tokens/unpacked"] / r["seconds/train"]
	return r
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / max(1, float64(len(v)))
}

// progress prints one line a step.
func (t *run) progress(r map[string]float64) {
	steps := t.job.Trainer.Steps
	t.stepSeconds += r["seconds/step"]
	each := t.stepSeconds / float64(max(1, t.state.Step-t.resumedAt))
	left := time.Duration(each * float64(steps-t.state.Step) * float64(time.Second))
	if t.teacher != nil {
		t.say("step %3d/%d   reverse KL %.4f  reward %.3f  sample %4.0f tok/s  train %4.0f tok/s  %4.1f s  left %s", t.state.Step, steps,
			r["distill/reverse_kl"], r["reward/mean"], r["tokens/sample_per_second"], r["tokens/train_per_second"], r["seconds/step"], left.Round(time.Second))
		return
	}
	if t.sft != nil {
		t.say("step %3d/%d   loss %.4f  epoch %.2f  %.0f conversations, %.0f tokens learned  train %4.0f tok/s  %4.1f s  left %s", t.state.Step, steps,
			r["sft/loss"], r["sft/epoch"], r["sft/conversations"], r["tokens/learned"], r["tokens/train_per_second"], r["seconds/step"], left.Round(time.Second))
		return
	}
	t.say("step %3d/%d   reward %.3f  answered %2.0f/%2.0f  calls %2.0f (%.0f failed)  sample %4.0f tok/s  train %4.0f tok/s  %4.1f s%s  left %s",
		t.state.Step, steps, r["reward/mean"], r["stop/answer"], r["trajectories/finished"]+r["trajectories/failed"], r["tools/calls"]+r["tools/parse_errors"], r["tools/failed"],
		r["tokens/sample_per_second"], r["tokens/train_per_second"], r["seconds/step"], t.overlap(r), left.Round(time.Second))
}

func (t *run) summary() Summary {
	s := t.state
	out := Summary{
		Steps: s.Step, Seconds: s.Seconds, MismatchMax: s.MismatchMax, Skipped: s.Skipped,
		Reward:          map[string]float64{"first": mean(s.Rewards[:min(3, len(s.Rewards))]), "last": mean(s.Rewards[max(0, len(s.Rewards)-3):])},
		Eval:            map[string]float64{},
		TokensPerSecond: map[string]float64{"sample": s.SampledTokens / max(1e-9, s.SampleSeconds), "train": s.TrainTokens / max(1e-9, s.TrainSeconds)},
		Trajectories:    map[string]int{"finished": s.Finished, "failed": s.Failed},
	}
	out.Errors, out.Best = s.Errors, s.best()
	if t.session != nil {
		out.Job, out.Stopped = t.session.job.Name, t.stoppedBy()
	}
	if t.sft != nil {
		out.Reward, out.Loss = map[string]float64{}, map[string]float64{"first": mean(s.Losses[:min(3, len(s.Losses))]), "last": mean(s.Losses[max(0, len(s.Losses)-3):])}
	}
	for _, e := range s.Evaluations {
		if e.ReverseKL != nil {
			out.Eval["reverse_kl_"+e.Name] = *e.ReverseKL
		}
		if e.Loss != nil {
			if e.Name == "before" || e.Name == "after" {
				out.Loss["eval_"+e.Name] = *e.Loss
			}
			continue
		}
		switch e.Name {
		case "before", "after":
			out.Eval[e.Name] = e.Reward
		case "tool_off":
			out.Eval[e.Name] = e.Accuracy
		}
	}
	return out
}

func (t *run) writeSummary() error {
	s := t.summary()
	if err := modelfile.WriteJSON(filepath.Join(t.dir, "summary.json"), s); err != nil {
		return err
	}
	t.say("")
	if t.sft != nil {
		t.say("%s: %d steps in %s; loss %.4f -> %.4f", s.Job, s.Steps, (time.Duration(s.Seconds) * time.Second).String(), s.Loss["first"], s.Loss["last"])
		if before, ok := s.Loss["eval_before"]; ok {
			t.say("held-out conversations: loss %.4f before, %.4f after", before, s.Loss["eval_after"])
		}
		t.sayBest(s)
		t.say("checkpoint     %s (Hugging Face format)", filepath.Join(t.dir, "checkpoints", "last"))
		t.say("look next      agentfly inspect trajectory --run %s --view    what was learned, coloured by mask", t.dir)
		return nil
	}
	t.say("%s: %d steps in %s; reward %.3f -> %.3f", s.Job, s.Steps, (time.Duration(s.Seconds) * time.Second).String(), s.Reward["first"], s.Reward["last"])
	if before, ok := s.Eval["before"]; ok {
		t.say("held-out tasks: reward %.3f before, %.3f after", before, s.Eval["after"])
	}
	if off, ok := s.Eval["tool_off"]; ok {
		t.say("with the tools switched off the trained model answers %.0f%% right", 100*off)
	}
	t.sayBest(s)
	t.say("sampled %.0f tok/s, trained %.0f tok/s; %d trajectories finished, %d failed; engine and trainer logprobs at most %.1e apart",
		s.TokensPerSecond["sample"], s.TokensPerSecond["train"], s.Trajectories["finished"], s.Trajectories["failed"], s.MismatchMax)
	t.say("")
	t.say("checkpoint     %s (Hugging Face format)", filepath.Join(t.dir, "checkpoints", "last"))
	t.say("metrics        %s", filepath.Join(t.dir, "metrics.jsonl"))
	t.say("look next      agentfly inspect trajectory --run %s --view    the tokens of a trajectory, coloured by mask and logprob", t.dir)
	t.say("               agentfly eval %s --model %s", t.job.Path(), filepath.Join(t.dir, "checkpoints", "last"))
	return nil
}
