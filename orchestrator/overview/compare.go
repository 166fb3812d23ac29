package overview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/store"
)

// Comparison holds runs against the first of them.
type Comparison struct {
	Runs     []Run        `json:"runs"`
	Settings []Setting    `json:"settings"` // that differ, by key
	Curves   []Common     `json:"curves"`
	Tasks    []TaskByTask `json:"held_out"` // of each other run against the first; none where one has no evaluation of tasks by a reward
}

// Setting is one that differs.
type Setting struct {
	Key    string   `json:"key"`
	Values []string `json:"values"` // of each run, as the job file writes it; "": not set
}

// Common is a number at steps that all runs have.
type Common struct {
	Metric string      `json:"metric"`
	Steps  []int       `json:"steps"`
	Values [][]float64 `json:"values"` // of each run, at each of Steps
}

// TaskByTask holds the held-out tasks of a run against those of the first one, each task against itself.
type TaskByTask struct {
	Run     string       `json:"run"`  // the folder
	From    string       `json:"from"` // the evaluation of the first run: NAME, step N
	To      string       `json:"to"`   // of this one
	Tasks   int          `json:"tasks"`
	Other   int          `json:"other"` // tasks that one of the two evaluations lacks, has otherwise, or of which every trajectory failed
	Mean    float64      `json:"mean"`  // reward of this run minus that of the first
	Low     float64      `json:"low"`   // 95% interval of Mean, by a paired bootstrap over the tasks
	High    float64      `json:"high"`
	Better  int          `json:"better"` // tasks
	Worse   int          `json:"worse"`
	Changes []TaskChange `json:"changes"` // of the tasks that are better or worse: the most worse first
}

// TaskChange is the mean reward of one task in two evaluations.
type TaskChange struct {
	Task string  `json:"task"`
	From float64 `json:"from"`
	To   float64 `json:"to"`
}

// Compare reads runs and holds them against each other.
func Compare(ctx context.Context, dirs []string) (c Comparison, err error) {
	var scores []evaluated
	var settings []map[string]string
	for _, dir := range dirs {
		if err := Check(dir); err != nil {
			return c, err
		}
		r := Read(dir)
		if r.State == Unreadable {
			return c, fmt.Errorf("%s: %s", dir, r.Error)
		}
		text, err := os.ReadFile(filepath.Join(dir, runfolder.JobFile))
		if err != nil {
			return c, err
		}
		of, err := runfolder.Settings(text)
		if err != nil {
			return c, fmt.Errorf("%s: %s: %w", dir, runfolder.JobFile, err)
		}
		e, err := lastEvaluation(ctx, dir)
		if err != nil {
			return c, err
		}
		c.Runs, settings, scores = append(c.Runs, r), append(settings, of), append(scores, e)
	}
	c.Settings, c.Curves = differing(settings), common(c.Runs)
	c.Tasks = []TaskByTask{}
	for i := 1; i < len(dirs); i++ {
		if scores[0].tasks != nil && scores[i].tasks != nil {
			c.Tasks = append(c.Tasks, scores[0].against(scores[i], dirs[i]))
		}
	}
	return c, nil
}

// differing are the settings that are not the same in all runs.
func differing(all []map[string]string) []Setting {
	keys := map[string]bool{}
	for _, of := range all {
		for key := range of {
			keys[key] = true
		}
	}
	out := []Setting{}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		one := Setting{Key: key}
		for _, of := range all {
			one.Values = append(one.Values, of[key])
		}
		if slices.ContainsFunc(one.Values, func(v string) bool { return v != one.Values[0] }) {
			out = append(out, one)
		}
	}
	return out
}

// compared are the metrics that runs are held against each other by.
var compared = []string{"distill/reverse_kl", "reward/mean", "sft/loss", "eval/reverse_kl", "eval/reward", "eval/loss", "length/response_mean", "update/entropy", "seconds/step"}

const mostSteps = 6 // of a curve that are shown

// common are the curves at steps that all runs have: the first, the last and some between.
func common(runs []Run) []Common {
	var all []Metrics
	for i := range runs {
		all = append(all, runs[i].Metrics())
	}
	out := []Common{}
	for _, key := range compared {
		first := all[0][key]
		if first == nil {
			continue
		}
		var steps []int
		for _, step := range first.Steps {
			if !slices.ContainsFunc(all, func(m Metrics) bool { return m[key].At(step) == nil }) {
				steps = append(steps, step)
			}
		}
		if len(steps) == 0 {
			continue
		}
		if n := len(steps); n > mostSteps {
			var some []int
			for i := range mostSteps {
				some = append(some, steps[i*(n-1)/(mostSteps-1)])
			}
			steps = some
		}
		one := Common{Metric: key, Steps: steps}
		for _, m := range all {
			var values []float64
			for _, step := range steps {
				values = append(values, *m[key].At(step))
			}
			one.Values = append(one.Values, values)
		}
		out = append(out, one)
	}
	return out
}

// evaluated is an evaluation as its tasks went.
type evaluated struct {
	name  string
	tasks map[string]*taskScore // by id; nil: there is none
}

type taskScore struct {
	task     string // as it is stored
	sum      float64
	finished int
}

func (t *taskScore) mean() float64 { return t.sum / float64(t.finished) }

// evaluations are those of a run by phase and step, in the order of steps, without those that switch the tools off.
func evaluations(ctx context.Context, dir string) (out []evaluated, err error) {
	db, err := store.OpenReader(filepath.Join(dir, store.File))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	type place struct {
		step  int
		phase string
	}
	done, err := evaluationsOf(db)
	if err != nil {
		return nil, err
	}
	all := map[place]evaluated{}
	err = db.Scores(ctx, func(s store.Score) error {
		at := place{s.Step, s.Phase}
		if s.Phase == "eval-tool_off" || s.Unscored || !done.Ended(s.Phase, s.Step) {
			return nil
		}
		e, ok := all[at]
		if !ok {
			e = evaluated{fmt.Sprintf("%s, step %d", s.Phase[len("eval-"):], s.Step), map[string]*taskScore{}}
			all[at] = e
		}
		if e.tasks[s.Task] == nil {
			e.tasks[s.Task] = &taskScore{task: string(s.TaskJSON)}
		}
		if !s.Failed { // a failure says nothing of the policy
			e.tasks[s.Task].sum += s.Reward
			e.tasks[s.Task].finished++
		}
		return nil
	})
	for _, at := range slices.SortedFunc(maps.Keys(all), func(a, b place) int { return cmp.Or(a.step-b.step, cmp.Compare(b.phase, a.phase)) }) { // step-N, before, after
		out = append(out, all[at])
	}
	return out, err
}

// lastEvaluation is the last one of a run.
func lastEvaluation(ctx context.Context, dir string) (evaluated, error) {
	all, err := evaluations(ctx, dir)
	if err != nil || len(all) == 0 {
		return evaluated{}, err
	}
	return all[len(all)-1], nil
}

// Improved holds the last evaluation of a run against its first; nil where it has no two.
func Improved(ctx context.Context, dir string) (*TaskByTask, error) {
	all, err := evaluations(ctx, dir)
	if err != nil || len(all) < 2 {
		return nil, err
	}
	h := all[0].against(all[len(all)-1], dir)
	return &h, nil
}

// against holds the evaluation o against e, task by task.
func (e evaluated) against(o evaluated, dir string) TaskByTask {
	h := TaskByTask{Run: dir, From: e.name, To: o.name, Changes: []TaskChange{}}
	var differences []float64
	for _, id := range slices.Sorted(maps.Keys(e.tasks)) {
		a, b := e.tasks[id], o.tasks[id]
		if b == nil || a.task != b.task || a.finished == 0 || b.finished == 0 {
			h.Other++
			continue
		}
		from, to := a.mean(), b.mean()
		differences = append(differences, to-from)
		switch {
		case to > from:
			h.Better++
		case to < from:
			h.Worse++
		default:
			continue
		}
		h.Changes = append(h.Changes, TaskChange{id, from, to})
	}
	for id := range o.tasks {
		if e.tasks[id] == nil {
			h.Other++
		}
	}
	h.Tasks = len(differences)
	h.Mean, h.Low, h.High = bootstrap(differences)
	slices.SortStableFunc(h.Changes, func(a, b TaskChange) int { return cmp.Compare(a.To-a.From, b.To-b.From) })
	return h
}
