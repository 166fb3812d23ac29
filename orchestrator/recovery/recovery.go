package recovery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// Recovered is what a run that goes on finds in its log beyond its checkpoint. The maps do not change while it runs.
type Recovered struct {
	Batches map[int]store.Batch               // by step: they are trained again as they were recorded
	Steps   map[int]map[string]float64        // metrics of the steps that were done
	logged  map[int]bool                      // steps from the checkpoint's on whose line metrics.jsonl holds
	Log     *store.Recovery                   // the groups that go on, and which places are taken; nil: none
	Ended   map[string]*trajectory.Trajectory // of these groups, by id
	begun   map[string]*trajectory.Trajectory // some turns of those without an end
	Tasks   map[string]trajectory.Task        // of the data: what a store gives back may be written differently
}

// Read sorts a log, and takes the evaluations and the time of what was done after the checkpoint into the state. What had begun begins
// anew where tools keep state of their own.
func Read(log *store.Recovery, folder *runfolder.Folder, state *checkpoint.State, dealer *data.Dealer, anew bool) (Recovered, error) {
	p := Recovered{
		Batches: map[int]store.Batch{}, Steps: map[int]map[string]float64{}, logged: map[int]bool{}, Log: log,
		Ended: map[string]*trajectory.Trajectory{}, begun: map[string]*trajectory.Trajectory{}, Tasks: map[string]trajectory.Task{},
	}
	if dealer != nil {
		for _, stratum := range dealer.Strata {
			for _, task := range stratum {
				p.Tasks[task.ID] = task
			}
		}
	}
	steps, err := folder.DB.Reader.Steps()
	if err != nil {
		return p, err
	}
	if len(steps) < state.Step {
		return p, fmt.Errorf("orchestrator: %s ends after step %d, but the checkpoint is of step %d: the file lost its end; restore it from a copy together with its -wal, or begin a new run from the checkpoint with --set model.path=%s",
			filepath.Join(folder.Dir, store.File), len(steps), state.Step, checkpoint.LastOf(folder.Dir))
	}
	for step, m := range steps {
		p.Steps[step] = m
		state.Seconds = max(state.Seconds, m["seconds/elapsed"])
	}
	for _, b := range log.Batches {
		p.Batches[b.Step] = b
	}
	for _, g := range log.Outstanding {
		for i := range g.Size {
			switch done, begun := g.Finished[i], g.Partial[i]; {
			case done != nil && !done.Failed(): // what failed is tried again
				p.Ended[done.ID] = done
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
func (p *Recovered) evaluations(folder *runfolder.Folder, state *checkpoint.State) error {
	all, err := folder.DB.Reader.Evaluations()
	if err != nil {
		return err
	}
	for _, body := range all {
		var e report.Evaluation
		if err := json.Unmarshal(body, &e); err != nil {
			return fmt.Errorf("orchestrator: %s: an evaluation is damaged: %w", filepath.Join(folder.Dir, store.File), err)
		}
		if !state.Evaluations.Has(e.Name, e.Step) {
			state.Evaluations.Put(e)
		}
	}
	return nil
}

// Any tells whether a program recorded anything of the run, whose state is given. One that was killed before it did is as a new one.
func (p *Recovered) Any(state *checkpoint.State) bool {
	return p.Log.Events > 0 || len(state.Evaluations) > 0 || state.Step > 0
}

// Trajectory is what was recorded of one: whole, or some turns.
func (p *Recovered) Trajectory(id string) (t *trajectory.Trajectory, ended bool) {
	if done := p.Ended[id]; done != nil {
		return done, true
	}
	return p.begun[id], false
}

// TemperatureFact of the store: the rollout.temperature of all that is recorded beyond the checkpoint. A store of an older program has none.
const TemperatureFact = "temperature"

// TakeTemperature refuses a job with another rollout.temperature than the one that sampled the recorded batches, or trajectories of groups that go on: the
// trainer divides the logits of a whole step by one number, the job's. step is the checkpoint's.
func (p *Recovered) TakeTemperature(ctx context.Context, folder *runfolder.Folder, j *job.Job, step int) error {
	was, err := folder.DB.Reader.Fact(TemperatureFact)
	now := strconv.FormatFloat(j.Rollout.Temperature, 'g', -1, 64)
	if err != nil || was == now {
		return err
	}
	groups := p.sampled()
	if was == "" || len(p.Batches) == 0 && groups == 0 {
		return folder.DB.SetFact(ctx, TemperatureFact, now)
	}
	last := step + len(p.Batches) + (len(p.Log.Training())+j.Rollout.Groups-1)/j.Rollout.Groups
	return j.Fail("rollout.temperature", "what the run in %s recorded after step %d (steps that are trained again: %d; groups that go on: %d) was sampled at %s, and this job's is %s; "+
		"give %s back until step %d is done (with trainer.steps %d the run ends there), or begin a new run with --output", folder.Dir, step, len(p.Batches), groups, was, now, was, last, last)
}

// sampled counts the groups that go on and have recorded tokens.
func (p *Recovered) sampled() (n int) {
	for _, g := range p.Log.Training() {
		if slices.ContainsFunc(slices.Concat(g.Finished, g.Partial), func(t *trajectory.Trajectory) bool {
			return t != nil && (p.Ended[t.ID] != nil || p.begun[t.ID] != nil)
		}) {
			n++
		}
	}
	return n
}

// Open are the ids of trajectories that go on, or begin.
func (p *Recovered) Open() (ids []string) {
	for _, g := range p.Log.Outstanding {
		for i := range g.Size {
			if id := store.ID(g.Phase, g.Step, g.Group, i); p.Ended[id] == nil {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// Summary tells what becomes of what the run left after a step.
func (p *Recovered) Summary(step int) string {
	var parts []string
	if n := len(p.Batches); n > 0 {
		parts = append(parts, fmt.Sprintf("steps that are trained again as recorded: %d", n))
	}
	if n := len(p.Log.Training()); n > 0 {
		turns := 0
		for _, tr := range p.begun {
			turns += len(tr.Turns)
		}
		parts = append(parts, fmt.Sprintf("groups that go on: %d, with %d trajectories that had ended and %d that continue after %d recorded turns", n, len(p.Ended), len(p.begun), turns))
	}
	if len(parts) == 0 {
		parts = []string{"nothing was recorded beyond it"}
	}
	return fmt.Sprintf("resumed after step %d; %s", step, strings.Join(parts, "; "))
}

// Stored is the metrics of a step as they were recorded when it was first done, or else as they are; logged says that
// metrics.jsonl has them. The note says whether the step was the same again.
func (p *Recovered) Stored(step int, record map[string]float64) (_ map[string]float64, logged bool, note string) {
	was, ok := p.Steps[step]
	if !ok {
		return record, false, ""
	}
	text := fmt.Sprintf("step %d was trained again as recorded: the same loss, gradient norm and policy version", step+1)
	for _, name := range []string{"update/loss", "update/grad_norm", "update/policy_version", "reward/mean"} {
		if was[name] != record[name] {
			text = fmt.Sprintf("step %d was trained again as recorded, and %s is %v where it was %v: this device, the job's settings, or rules that changed since an older program recorded it, do not repeat the update bit for bit; evaluations after it that were recorded then stay", step+1, name, record[name], was[name])
			break
		}
	}
	return was, p.logged[step], text
}

// MendMetrics makes metrics.jsonl hold a line for each step and evaluation that was done, once: a process that is killed may
// leave half a line, or none yet. Lines of steps that the store does not know are dropped, as these steps come again.
func (p *Recovered) MendMetrics(folder *runfolder.Folder, state *checkpoint.State) (note string, err error) {
	data, err := os.ReadFile(folder.MetricsFile())
	if err != nil {
		return "", fmt.Errorf("orchestrator: metrics.jsonl: %w", err)
	}
	lines, unknown, err := p.metricsLines(data, state)
	if err != nil {
		return "", err
	}
	if len(unknown) > 0 && p.Log.Events > 0 {
		note = fmt.Sprintf("%s has no step %d, which metrics.jsonl has: the file lost its end; steps are sampled again from there", store.File, unknown[0])
	}
	var keep []byte
	for _, l := range lines {
		keep = append(keep, l.text...)
		if !l.eval && l.step > state.Step {
			p.logged[l.step-1] = true
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
	step int // steps that were done with it: of a step's line from 1 on
	eval bool
	text []byte // with its line end
}

// metricsLines are the lines of what was done, in order: those of the file, and those that it lacks. unknown are the steps
// of the file that the store does not hold.
func (p *Recovered) metricsLines(data []byte, state *checkpoint.State) (lines []metricsLine, unknown []int, err error) {
	seen := map[string]bool{}
	if countsFromZero(data) {
		data = countedFromOne(data)
	}
	for line := range bytes.Lines(data) {
		var m struct {
			Step int                `json:"step"`
			Eval *report.Evaluation `json:"eval"`
		}
		if json.Unmarshal(line, &m) != nil || line[len(line)-1] != '\n' { // the last line of a killed process may be cut
			continue
		}
		key := fmt.Sprint(m.Step)
		known := p.Steps[m.Step-1] != nil
		if m.Eval != nil {
			key = evaluationKey(*m.Eval)
			known = state.Evaluations.Has(m.Eval.Name, m.Eval.Step)
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
	for index, record := range p.Steps {
		step := index + 1
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
		case a.eval: // an evaluation after a step stands behind its line
			return 1
		}
		return -1
	})
	return lines, unknown, err
}

// countsFromZero tells the metrics.jsonl of an older program, whose first step is 0.
func countsFromZero(data []byte) bool {
	for line := range bytes.Lines(data) {
		var m struct {
			Step *int            `json:"step"`
			Eval json.RawMessage `json:"eval"`
		}
		if json.Unmarshal(line, &m) == nil && m.Eval == nil && m.Step != nil && *m.Step == 0 {
			return true
		}
	}
	return false
}

// countedFromOne adds 1 to the steps of an older program's metrics.jsonl. Evaluations were counted so already.
func countedFromOne(data []byte) (out []byte) {
	for line := range bytes.Lines(data) {
		m := map[string]json.RawMessage{}
		var step int
		if json.Unmarshal(line, &m) == nil && m["eval"] == nil && json.Unmarshal(m["step"], &step) == nil && line[len(line)-1] == '\n' {
			m["step"] = json.RawMessage(strconv.Itoa(step + 1))
			if text, err := json.Marshal(m); err == nil { // it is made of what was read
				line = append(text, '\n')
			}
		}
		out = append(out, line...)
	}
	return out
}
