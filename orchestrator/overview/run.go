package overview

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/store"
)

// State is how a run stands.
type State string

// The states of a run.
const (
	Running     State = "running"
	Ended       State = "ended"       // at its last step, or where eval.stop_after ended it
	Interrupted State = "interrupted" // from outside, by a signal or because its process is gone; it can be resumed
	Failed      State = "failed"      // with an error
	Unreadable  State = "unreadable"  // what it holds cannot be read; Error says why
)

// Run is what a run folder says of its run.
type Run struct {
	Name      string    `json:"name"` // of the job
	Dir       string    `json:"dir"`
	State     State     `json:"state"`
	Error     string    `json:"error,omitempty"`
	Steps     int       `json:"steps"`             // that are done
	Planned   int       `json:"planned,omitempty"` // of the whole run; 0: not known
	Algorithm string    `json:"algorithm"`
	Model     string    `json:"model"`
	Reward    *float64  `json:"reward,omitempty"`     // mean of the last step
	Loss      *float64  `json:"loss,omitempty"`       // of the last step of supervised fine-tuning
	ReverseKL *float64  `json:"reverse_kl,omitempty"` // of the last step of distillation
	HeldOut   *Held     `json:"held_out,omitempty"`   // the last evaluation
	Best      *Held     `json:"best,omitempty"`       // the best one
	Changed   time.Time `json:"changed"`              // the last sign of it
	Seconds   float64   `json:"seconds"`              // that its steps took, over resumes

	now         *runfolder.Now
	metrics     []map[string]float64
	evaluations report.Evaluations
}

// Held is the score of an evaluation: mean reward; in supervised fine-tuning the loss and in distillation the reverse KL, where less is better.
type Held struct {
	Name  string  `json:"name"`
	Step  int     `json:"step"`
	Score float64 `json:"score"`
}

// jobFacts are what is told of a job.
type jobFacts struct {
	Name  string `yaml:"name"`
	Model struct {
		Path string `yaml:"path"`
	} `yaml:"model"`
	Algorithm struct {
		Advantage choice `yaml:"advantage"`
		Loss      choice `yaml:"loss"`
	} `yaml:"algorithm"`
	SFT     any `yaml:"sft"`
	Distill any `yaml:"distill"`
	Trainer struct {
		Steps any `yaml:"steps"` // a number, or a ${NAME}
	} `yaml:"trainer"`
}

// choice is the name of an estimator or a loss, which a job may give keys: {name: NAME, key: value}.
type choice string

// UnmarshalYAML implements yaml.Unmarshaler.
func (c *choice) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return n.Decode((*string)(c))
	}
	var named struct {
		Name string `yaml:"name"`
	}
	err := n.Decode(&named)
	*c = choice(named.Name)
	return err
}

func (f jobFacts) algorithm() string {
	switch {
	case f.SFT != nil:
		return "sft"
	case f.Distill != nil:
		return "distill"
	}
	return string(cmp.Or(f.Algorithm.Advantage, algorithms.DefaultAdvantage) + "/" + cmp.Or(f.Algorithm.Loss, algorithms.DefaultLoss))
}

// planned is how many steps the run takes, as its process wrote down. An older program did not: then it is what the job says, where that is a number of
// steps; 0: nobody knows.
func (f jobFacts) planned(db *store.Reader) (int, error) {
	steps, err := runfolder.Planned(db)
	if err != nil || steps > 0 {
		return steps, err
	}
	if sft, ok := f.SFT.(map[string]any); ok && sft["epochs"] != nil && sft["epochs"] != 0 {
		return 0, nil
	}
	steps, _ = f.Trainer.Steps.(int)
	return steps, nil
}

// Read reads a run folder. What cannot be read of it makes the run Unreadable.
func Read(dir string) Run {
	r := Run{Dir: dir, Name: nameOf(dir), Changed: changed(dir)}
	if err := r.read(time.Now()); err != nil {
		r.State, r.Error = Unreadable, err.Error()
	}
	return r
}

func (r *Run) read(at time.Time) (err error) {
	var facts jobFacts
	text, err := os.ReadFile(filepath.Join(r.Dir, runfolder.JobFile))
	if err == nil {
		err = yaml.Unmarshal(text, &facts)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", runfolder.JobFile, err)
	}
	r.Name, r.Algorithm, r.Model = cmp.Or(facts.Name, r.Name), facts.algorithm(), cmp.Or(facts.Model.Path, "from scratch")
	db, err := store.OpenReader(filepath.Join(r.Dir, store.File))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if r.Planned, err = facts.planned(db); err != nil {
		return err
	}
	if r.metrics, err = db.Steps(); err != nil {
		return err
	}
	if r.evaluations, err = evaluationsOf(db); err != nil {
		return err
	}
	r.Steps = len(r.metrics)
	r.numbers()
	if r.now, err = runfolder.ReadNow(r.Dir); err != nil { // it does not outlive a loss of power, which is no fault of the run
		r.now = nil
	}
	r.State, r.Error = r.state(at)
	return nil
}

// numbers are those of the last step and of the evaluations.
func (r *Run) numbers() {
	for _, m := range r.metrics {
		r.Seconds = max(r.Seconds, m["seconds/elapsed"])
	}
	if n := len(r.metrics); n > 0 {
		last := r.metrics[n-1]
		r.Reward, r.Loss, r.ReverseKL = value(last, "reward/mean"), value(last, "sft/loss"), value(last, "distill/reverse_kl")
	}
	var last *report.Evaluation
	for i, e := range r.evaluations {
		if e.Name != "tool_off" && (last == nil || e.Step >= last.Step) {
			last = &r.evaluations[i]
		}
	}
	if last != nil {
		r.HeldOut = &Held{last.Name, last.Step, last.Value()}
		best := r.evaluations.Best(math.MaxInt)
		r.Best = &Held{best.Name, best.Step, best.Score}
	}
}

// value is a number of a step; nil where it has none.
func value(m map[string]float64, key string) *float64 {
	v, ok := m[key]
	if !ok {
		return nil
	}
	return &v
}

func evaluationsOf(db *store.Reader) (out report.Evaluations, err error) {
	stored, err := db.Evaluations()
	if err != nil {
		return nil, err
	}
	for _, text := range stored {
		var e report.Evaluation
		if err := json.Unmarshal(text, &e); err != nil {
			return nil, fmt.Errorf("an evaluation in the store cannot be read: %w", err)
		}
		out = append(out, e)
	}
	return out, nil
}

// quiet is how long the files of a run that writes no now.json may be untouched while it runs.
const quiet = 2 * time.Minute

// state tells how the run stands, and why where that is not its end.
func (r *Run) state(at time.Time) (State, string) {
	const gone = "its process ended without a word: it was killed, its disk is full, or its machine is gone"
	if n := r.now; n != nil {
		switch {
		case n.Running(at):
			return Running, ""
		case n.Ended == runfolder.EndedDone:
			return Ended, ""
		case n.Ended == runfolder.EndedFailed:
			return Failed, n.Error
		case n.Ended == "" && n.Holds(r.Dir):
			return Interrupted, fmt.Sprintf("its process (%d) is there and has written nothing for %v: it is stopped (kill -CONT %[1]d lets it go on), it hangs, or its disk is full", n.PID, at.Sub(n.Written).Round(time.Second))
		case n.Ended == "":
			return Interrupted, gone
		}
		return Interrupted, ""
	}
	pools, err := runfolder.ReadResources(r.Dir) // of a program that wrote no now.json
	switch summary, told := os.Stat(filepath.Join(r.Dir, "summary.json")); {
	case err == nil && pools.Running(at):
		return Running, ""
	case told == nil && r.Steps > 0 && !summary.ModTime().Before(r.Changed.Add(-quiet)):
		return Ended, ""
	case at.Sub(r.Changed) < quiet:
		return Running, ""
	}
	return Interrupted, ""
}

// Resumable tells whether a process can go on with the run: it ended before its last step, and no other process has its folder.
func (r *Run) Resumable() bool {
	switch r.State {
	case Interrupted:
		return r.now == nil || r.now.Ended != "" || !r.now.Holds(r.Dir)
	case Failed:
		return true
	}
	return false
}

// changed is when the run last wrote.
func changed(dir string) (last time.Time) {
	for _, name := range []string{store.File, store.File + "-wal", "metrics.jsonl", "now.json", "summary.json", runfolder.JobFile} {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.ModTime().After(last) && (info.Size() > 0 || name != store.File+"-wal") {
			last = info.ModTime()
		}
	}
	return last
}

// Metrics are the steps of a run, by key, and its evaluations as the keys eval/reward, eval/accuracy, eval/pass/K, eval/loss and eval/reverse_kl.
func (r *Run) Metrics() Metrics {
	out := Metrics{}
	for i, m := range r.metrics {
		for key, v := range m {
			out.add(key, i+1, v)
		}
	}
	for _, e := range r.evaluations {
		if e.Name == "tool_off" {
			continue
		}
		switch {
		case e.Loss != nil:
			out.add("eval/loss", e.Step, *e.Loss)
			continue
		case e.ReverseKL != nil:
			out.add("eval/reverse_kl", e.Step, *e.ReverseKL)
		}
		if !e.Unscored {
			out.add("eval/reward", e.Step, e.Reward)
		}
		out.add("eval/accuracy", e.Step, e.Accuracy)
		for k, p := range e.Pass {
			out.add("eval/pass/"+k, e.Step, p)
		}
	}
	return out
}

// Metrics are curves by key.
type Metrics map[string]*Curve

// Curve is one number over the steps, in their order; numbers that are not finite are left out.
type Curve struct {
	Steps  []int     `json:"steps"` // as the console counts: so many were done
	Values []float64 `json:"values"`
}

func (m Metrics) add(key string, step int, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	c := m[key]
	if c == nil {
		c = &Curve{}
		m[key] = c
	}
	at, found := slices.BinarySearch(c.Steps, step)
	if found { // the last word on a step stands
		c.Values[at] = v
		return
	}
	c.Steps, c.Values = slices.Insert(c.Steps, at, step), slices.Insert(c.Values, at, v)
}

// At is the value at a step; nil where there is none.
func (c *Curve) At(step int) *float64 {
	if c == nil {
		return nil
	}
	if i, ok := slices.BinarySearch(c.Steps, step); ok {
		return &c.Values[i]
	}
	return nil
}

// Keys are the names of the curves.
func (m Metrics) Keys() []string { return slices.Sorted(maps.Keys(m)) }

// ReadCurves reads the curves of a run folder, or of a file metrics.jsonl alone.
func ReadCurves(path string) (name string, m Metrics, err error) {
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		m, err := readLines(path)
		return strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)), m, err
	}
	if err := Check(path); err != nil {
		return "", nil, err
	}
	r := Read(path)
	if r.State == Unreadable {
		return "", nil, fmt.Errorf("%s: %s", path, r.Error)
	}
	return nameOf(path), r.Metrics(), nil
}

// nameOf is the name of a folder, also of one that is given as . or ..
func nameOf(dir string) string {
	if whole, err := filepath.Abs(dir); err == nil { // else the working folder is gone
		dir = whole
	}
	return filepath.Base(dir)
}

// readLines reads a file like metrics.jsonl.
func readLines(path string) (Metrics, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r, out := Run{}, Metrics{}
	for i, line := range strings.Split(string(text), "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		var numbers map[string]any
		var other struct {
			Step *int               `json:"step"`
			Eval *report.Evaluation `json:"eval"`
		}
		err := errors.Join(json.Unmarshal([]byte(line), &numbers), json.Unmarshal([]byte(line), &other))
		if err != nil && !strings.HasSuffix(string(text), "\n") && strings.HasSuffix(string(text), line) {
			continue // a run is writing it
		}
		if err != nil || other.Step == nil {
			return nil, fmt.Errorf("%s: line %d is none of metrics.jsonl: it has no step, or is no JSON object", path, i+1)
		}
		if other.Eval != nil {
			r.evaluations = append(r.evaluations, *other.Eval)
			continue
		}
		for key, v := range numbers {
			if n, ok := v.(float64); ok && key != "step" {
				out.add(key, *other.Step, n)
			}
		}
	}
	for key, c := range r.Metrics() {
		out[key] = c
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s holds no metric", path)
	}
	return out, nil
}
