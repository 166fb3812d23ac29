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

	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
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
	db := t.folder.DB
	log, err := db.Recover(ctx, t.state.Step)
	if err != nil {
		return err
	}
	if log.Events == 0 { // supervised fine-tuning, or a program that kept no log
		if err := db.Truncate(ctx, t.state.Step); err != nil {
			return err
		}
	}
	older, note, err := takeRules(ctx, db, t.options.Resume)
	if err != nil {
		return err
	}
	if note != "" {
		t.early(note)
	}
	if older {
		t.rollout.Restart = beginAnew(db, t.note)
	}
	if t.past, err = recall(log, t.folder, &t.state, t.dealer, t.rollout.Tools.KeepsState()); err != nil {
		return err
	}
	if note, err = t.past.mendMetrics(t.folder, &t.state); err != nil {
		return err
	}
	if note != "" {
		t.early(note)
	}
	if t.options.Resume {
		t.early(t.past.summary(t.state.Step))
	}
	t.rollout.Recovered = t.past.trajectory
	return nil
}

// recall sorts a log, and takes the evaluations and the time of what was done after the checkpoint into the state. What had begun begins
// anew where tools keep state of their own.
func recall(log *store.Recovery, folder *runfolder.Folder, state *checkpoint.State, dealer *data.Dealer, anew bool) (past, error) {
	p := past{
		batches: map[int]store.Batch{}, steps: map[int]map[string]float64{}, logged: map[int]bool{}, log: log,
		ended: map[string]*trajectory.Trajectory{}, begun: map[string]*trajectory.Trajectory{}, tasks: map[string]trajectory.Task{},
	}
	if dealer != nil {
		for _, stratum := range dealer.Strata {
			for _, task := range stratum {
				p.tasks[task.ID] = task
			}
		}
	}
	steps, err := folder.DB.Steps()
	if err != nil {
		return p, err
	}
	if len(steps) < state.Step {
		return p, fmt.Errorf("orchestrator: %s ends after step %d, but the checkpoint is of step %d: the file lost its end; restore it from a copy together with its -wal, or begin a new run from the checkpoint with --set model.path=%s",
			filepath.Join(folder.Dir, store.File), len(steps), state.Step, filepath.Join(folder.Dir, "checkpoints", "last"))
	}
	for step, m := range steps {
		p.steps[step] = m
		state.Seconds = max(state.Seconds, m["seconds/elapsed"])
	}
	for _, b := range log.Batches {
		p.batches[b.Step] = b
	}
	for _, g := range log.Outstanding {
		for i := range g.Size {
			switch done, begun := g.Finished[i], g.Partial[i]; {
			case done != nil && done.Err == "": // what failed is tried again
				p.ended[done.ID] = done
			case begun != nil && anew:
				folder.DB.Restart(begun.ID)
			case begun != nil:
				p.begun[begun.ID] = begun
			}
		}
	}
	return p, p.evaluations(folder, state)
}

// evaluations takes over those that were done after the checkpoint.
func (p *past) evaluations(folder *runfolder.Folder, state *checkpoint.State) error {
	all, err := folder.DB.Evaluations()
	if err != nil {
		return err
	}
	p.evals = map[string]bool{}
	for _, body := range all {
		var e report.Evaluation
		if err := json.Unmarshal(body, &e); err != nil {
			return fmt.Errorf("orchestrator: %s: an evaluation is damaged: %w", filepath.Join(folder.Dir, store.File), err)
		}
		p.evals[evaluationKey(e)] = true
		if !state.Evaluations.Has(e.Name, e.Step) {
			state.Evaluations.Put(e)
		}
	}
	return nil
}

// trajectory is what was recorded of one: whole, or some turns.
func (p *past) trajectory(id string) (t *trajectory.Trajectory, ended bool) {
	if done := p.ended[id]; done != nil {
		return done, true
	}
	return p.begun[id], false
}

// summary tells what becomes of what the run left after a step.
func (p *past) summary(step int) string {
	var parts []string
	if n := len(p.batches); n > 0 {
		parts = append(parts, fmt.Sprintf("steps that are trained again as recorded: %d", n))
	}
	if n := len(p.log.Training()); n > 0 {
		turns := 0
		for _, tr := range p.begun {
			turns += len(tr.Turns)
		}
		parts = append(parts, fmt.Sprintf("groups that go on: %d, with %d trajectories that had ended and %d that continue after %d recorded turns", n, len(p.ended), len(p.begun), turns))
	}
	if len(parts) == 0 {
		parts = []string{"nothing was recorded beyond it"}
	}
	return fmt.Sprintf("resumed after step %d; %s", step, strings.Join(parts, "; "))
}

// stored is the metrics of a step as they were recorded when it was first done, or else as they are; logged says that
// metrics.jsonl has them. The note says whether the step was the same again.
func (p *past) stored(step int, record map[string]float64) (_ map[string]float64, logged bool, note string) {
	was, ok := p.steps[step]
	if !ok {
		return record, false, ""
	}
	text := fmt.Sprintf("step %d was trained again as recorded: the same loss, gradient norm and policy version", step+1)
	for _, name := range []string{"update/loss", "update/grad_norm", "update/policy_version", "reward/mean"} {
		if was[name] != record[name] {
			text = fmt.Sprintf("step %d was trained again as recorded, and %s is %v where it was %v: this device, the job's settings, or rules that changed since an older program recorded it, do not repeat the update bit for bit", step+1, name, record[name], was[name])
			break
		}
	}
	return was, p.logged[step], text
}

// mendMetrics makes metrics.jsonl hold a line for each step and evaluation that was done, once: a process that is killed may
// leave half a line, or none yet. Lines of steps that the store does not know are dropped, as these steps come again.
func (p *past) mendMetrics(folder *runfolder.Folder, state *checkpoint.State) (note string, err error) {
	data, err := os.ReadFile(folder.MetricsFile())
	if err != nil {
		return "", fmt.Errorf("orchestrator: metrics.jsonl: %w", err)
	}
	lines, unknown, err := p.metricsLines(data, state)
	if err != nil {
		return "", err
	}
	if len(unknown) > 0 && p.log.Events > 0 {
		note = fmt.Sprintf("%s has no step %d, which metrics.jsonl has: the file lost its end; steps are sampled again from there", store.File, unknown[0])
	}
	var keep []byte
	for _, l := range lines {
		keep = append(keep, l.text...)
		if !l.eval && l.step >= state.Step {
			p.logged[l.step] = true
		}
	}
	if bytes.Equal(keep, data) {
		return note, nil
	}
	return note, folder.ReplaceMetrics(keep)
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
func (p *past) metricsLines(data []byte, state *checkpoint.State) (lines []metricsLine, unknown []int, err error) {
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
		known := p.steps[m.Step] != nil
		if m.Eval != nil {
			key = evaluationKey(*m.Eval)
			known = p.evals[key] || state.Evaluations.Has(m.Eval.Name, m.Eval.Step)
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
	for step, record := range p.steps {
		line := map[string]any{"step": step}
		for k, v := range record {
			line[k] = v
		}
		err = errors.Join(err, add(fmt.Sprint(step), step, false, line))
	}
	for _, e := range state.Evaluations {
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
