package orchestrator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// past is what a run that goes on finds in its log beyond its checkpoint. The maps do not change while it runs.
type past struct {
	batches map[int]store.Batch               // by step: they are trained again as they were recorded
	steps   map[int]map[string]float64        // metrics of the steps that were done
	logged  map[int]bool                      // steps from the checkpoint's on whose line metrics.jsonl holds
	evals   map[string]bool                   // by evaluationKey: that the store holds, also where a later one took its place
	log     *store.Recovery                   // the groups that go on, and which places are taken; nil: none
	ended   map[string]*trajectory.Trajectory // of these groups, by id
	begun   map[string]*trajectory.Trajectory // some turns of those without an end
	tasks   map[string]trajectory.Task        // of the data: what a store gives back may be written differently
}

// recover reads the log of the run, from which its steps then go on: what was recorded is neither sampled nor evaluated
// again.
func (t *run) recover(ctx context.Context) error {
	log, err := t.db.Recover(ctx, t.state.Step)
	if err != nil {
		return err
	}
	if log.Events == 0 { // supervised fine-tuning, or a program that kept no log
		if err := t.db.Truncate(ctx, t.state.Step); err != nil {
			return err
		}
	}
	if err := t.takeRules(ctx); err != nil {
		return err
	}
	if err := t.recall(log); err != nil {
		return err
	}
	if err := t.recallEvaluations(); err != nil {
		return err
	}
	if err := t.mendMetrics(log.Events > 0); err != nil {
		return err
	}
	if t.options.Resume {
		t.sayRecovered(log)
	}
	t.rollout.Recovered = func(id string) (*trajectory.Trajectory, bool) {
		if done := t.past.ended[id]; done != nil {
			return done, true
		}
		return t.past.begun[id], false
	}
	return nil
}

// recall sorts the log.
func (t *run) recall(log *store.Recovery) error {
	t.past = past{
		batches: map[int]store.Batch{}, steps: map[int]map[string]float64{}, logged: map[int]bool{}, log: log,
		ended: map[string]*trajectory.Trajectory{}, begun: map[string]*trajectory.Trajectory{}, tasks: map[string]trajectory.Task{},
	}
	if t.sampler != nil {
		for _, stratum := range t.sampler.Strata {
			for _, task := range stratum {
				t.past.tasks[task.ID] = task
			}
		}
	}
	steps, err := t.db.Steps()
	if err != nil {
		return err
	}
	if len(steps) < t.state.Step {
		return fmt.Errorf("orchestrator: %s ends after step %d, but the checkpoint is of step %d: the file lost its end; restore it from a copy together with its -wal, or begin a new run from the checkpoint with --set model.path=%s",
			filepath.Join(t.dir, store.File), len(steps), t.state.Step, filepath.Join(t.dir, "checkpoints", "last"))
	}
	for step, m := range steps {
		t.past.steps[step] = m
		t.state.Seconds = max(t.state.Seconds, m["seconds/elapsed"])
	}
	for _, b := range log.Batches {
		t.past.batches[b.Step] = b
	}
	anew := t.rollout.Tools.KeepsState()
	for _, g := range log.Outstanding {
		for i := range g.Size {
			switch done, begun := g.Finished[i], g.Partial[i]; {
			case done != nil && done.Err == "": // what failed is tried again
				t.past.ended[done.ID] = done
			case begun != nil && anew:
				t.db.Restart(begun.ID)
			case begun != nil:
				t.past.begun[begun.ID] = begun
			}
		}
	}
	return nil
}

// recallEvaluations takes over the evaluations that were done after the checkpoint.
func (t *run) recallEvaluations() error {
	all, err := t.db.Evaluations()
	if err != nil {
		return err
	}
	t.past.evals = map[string]bool{}
	for _, body := range all {
		var e report.Evaluation
		if err := json.Unmarshal(body, &e); err != nil {
			return fmt.Errorf("orchestrator: %s: an evaluation is damaged: %w", filepath.Join(t.dir, store.File), err)
		}
		t.past.evals[evaluationKey(e)] = true
		if !t.state.Evaluations.Has(e.Name, e.Step) {
			t.state.Evaluations.Put(e)
		}
	}
	return nil
}

// sayRecovered tells what becomes of what the run left.
func (t *run) sayRecovered(log *store.Recovery) {
	var parts []string
	if n := len(t.past.batches); n > 0 {
		parts = append(parts, fmt.Sprintf("steps that are trained again as recorded: %d", n))
	}
	if n := len(log.Training()); n > 0 {
		turns := 0
		for _, tr := range t.past.begun {
			turns += len(tr.Turns)
		}
		parts = append(parts, fmt.Sprintf("groups that go on: %d, with %d trajectories that had ended and %d that continue after %d recorded turns", n, len(t.past.ended), len(t.past.begun), turns))
	}
	if len(parts) == 0 {
		parts = []string{"nothing was recorded beyond it"}
	}
	t.notes = append(t.notes, fmt.Sprintf("resumed after step %d; %s", t.state.Step, strings.Join(parts, "; ")))
}

// recorded is the batch of a step that the log holds; nil: none.
func (t *run) recorded(ctx context.Context, step int) (*schedule.Batch, error) {
	rec, ok := t.past.batches[step]
	if !ok || t.sft != nil {
		return nil, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if rec.Version != t.state.Version {
		return nil, fmt.Errorf("orchestrator: the batch of step %d was recorded for policy version %d, but the step begins with version %d: the checkpoint and %s are not of the same run", step, rec.Version, t.state.Version, store.File)
	}
	refs := slices.Concat(rec.Groups, rec.Others)
	groups, err := t.db.Groups(ctx, refs, store.Greedy)
	if err != nil {
		return nil, err
	}
	for i := range groups {
		if task, ok := t.past.tasks[groups[i].Task.ID]; ok {
			groups[i].Task = task
		}
	}
	b := schedule.Recorded(rec, groups[:len(rec.Groups):len(rec.Groups)])
	order := make([]int, len(refs))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return refs[a].Compare(refs[b]) })
	for _, i := range order {
		b.All = append(b.All, groups[i])
	}
	return b, nil
}

// keepBatch records what a step trains on before it does.
func (t *run) keepBatch(ctx context.Context, b *schedule.Batch, took time.Duration) error {
	rec := b.Record()
	rec.Seconds = took.Seconds()
	return t.db.AddBatch(ctx, rec)
}

// stored is the metrics of a step as they were recorded when it was first done, or else as they are; logged says that
// metrics.jsonl has them.
func (p *past) stored(t *run, step int, record map[string]float64) (map[string]float64, bool) {
	was, ok := p.steps[step]
	if !ok {
		return record, false
	}
	text := fmt.Sprintf("step %d was trained again as recorded: the same loss, gradient norm and policy version", step+1)
	for _, name := range []string{"update/loss", "update/grad_norm", "update/policy_version", "reward/mean"} {
		if was[name] != record[name] {
			text = fmt.Sprintf("step %d was trained again as recorded, and %s is %v where it was %v: this device, the job's settings, or rules that changed since an older program recorded it, do not repeat the update bit for bit", step+1, name, record[name], was[name])
			break
		}
	}
	t.note(text)
	return was, p.logged[step]
}

// mendMetrics makes metrics.jsonl hold a line for each step and evaluation that was done, once: a process that is killed may
// leave half a line, or none yet. Lines of steps that the store does not know are dropped, as these steps come again.
func (t *run) mendMetrics(logs bool) error {
	path := filepath.Join(t.dir, "metrics.jsonl")
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("orchestrator: metrics.jsonl: %w", err)
	}
	lines, unknown, err := t.metricsLines(data)
	if err != nil {
		return err
	}
	if len(unknown) > 0 && logs {
		t.notes = append(t.notes, fmt.Sprintf("%s has no step %d, which metrics.jsonl has: the file lost its end; steps are sampled again from there", store.File, unknown[0]))
	}
	var keep []byte
	for _, l := range lines {
		keep = append(keep, l.text...)
		if !l.eval && l.step >= t.state.Step {
			t.past.logged[l.step] = true
		}
	}
	if bytes.Equal(keep, data) {
		return nil
	}
	if err := replaceFile(path, keep); err != nil {
		return fmt.Errorf("orchestrator: metrics.jsonl: %w", err)
	}
	if err := t.metrics.Close(); err != nil {
		return fmt.Errorf("orchestrator: metrics.jsonl: %w", err)
	}
	if t.metrics, err = os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		return fmt.Errorf("orchestrator: metrics.jsonl: %w", err)
	}
	return nil
}

func evaluationKey(e report.Evaluation) string { return fmt.Sprintf("%s@%d", e.Name, e.Step) }

// metricsLine is one line of metrics.jsonl.
type metricsLine struct {
	step int
	eval bool
	text []byte // with its line end
}

// metricsLines are the lines of what was done, in order: those of the file, and those that it lacks. unknown are the steps
// of the file that the store does not hold.
func (t *run) metricsLines(data []byte) (lines []metricsLine, unknown []int, err error) {
	seen := map[string]bool{}
	for line := range bytes.Lines(data) {
		var m struct {
			Step int                `json:"step"`
			Eval *report.Evaluation `json:"eval"`
		}
		if json.Unmarshal(line, &m) != nil || line[len(line)-1] != '\n' { // the last line of a killed process may be cut
			continue
		}
		key := fmt.Sprint(m.Step)
		known := t.past.steps[m.Step] != nil
		if m.Eval != nil {
			key = evaluationKey(*m.Eval)
			known = t.past.evals[key] || t.state.Evaluations.Has(m.Eval.Name, m.Eval.Step)
		} else if !known {
			unknown = append(unknown, m.Step)
		}
		if known && !seen[key] {
			seen[key] = true
			lines = append(lines, metricsLine{m.Step, m.Eval != nil, line})
		}
	}
	add := func(key string, step int, eval bool, line map[string]any) error {
		text, err := json.Marshal(line)
		if err == nil && !seen[key] {
			lines = append(lines, metricsLine{step, eval, append(text, '\n')})
		}
		return err
	}
	for step, record := range t.past.steps {
		line := map[string]any{"step": step}
		for k, v := range record {
			line[k] = v
		}
		err = errors.Join(err, add(fmt.Sprint(step), step, false, line))
	}
	for _, e := range t.state.Evaluations {
		err = errors.Join(err, add(evaluationKey(e), e.Step, true, map[string]any{"step": e.Step, "eval": e}))
	}
	slices.SortStableFunc(lines, func(a, b metricsLine) int {
		switch {
		case a.step != b.step:
			return a.step - b.step
		case a.eval == b.eval:
			return 0
		case a.eval: // an evaluation at a step comes before the step
			return -1
		}
		return 1
	})
	return lines, unknown, err
}
