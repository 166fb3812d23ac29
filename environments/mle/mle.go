// Package mle has an agent take part in competitions of machine learning (MLE-Dojo, arXiv 2505.07782): it reads the task, writes Python that reads
// train.csv and test.csv and writes submission.csv, and is paid by the position of its best submission among the teams of a leaderboard.
//
//	request_info ──> validate_code (runs, scores nothing) ──> execute_code (runs, scores submission.csv) ──> …   get_history, reset
//
// Competitions are generated from a seed (competition.go): three kinds of small tables that Python's standard library fits. The answers are in this
// process alone, and no file has them. A step pays what it adds to the best HumanRank so far, so that submitting again earns nothing.
//
// It does not fetch competitions of others, and it does not confine the code (package sandbox does).
package mle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/boxed"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// Name of the kind.
const Name = "mle"

// Params of the environment in a job.
type Params struct {
	Seed int64 `json:"seed"` // of the competitions; 1
	boxed.Limits
}

// Kind declares the environment.
func Kind() environments.Kind {
	return environments.Kind{
		Name: Name, Description: "generated competitions of machine learning: code that writes submission.csv, paid by its place on a leaderboard (arXiv 2505.07782)",
		New: New,
	}
}

// New makes the source of one job.
func New(ctx context.Context, r *resources.Resources, params map[string]any) (environments.Source, error) {
	p := Params{Seed: 1, Limits: boxed.Standard}
	p.MaxSteps = 15
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	folders, err := boxed.Open(ctx, r)
	if err != nil {
		return nil, err
	}
	return &source{params: p, folders: folders, python: "python3"}, nil
}

type source struct {
	params  Params
	folders *boxed.Folders
	python  string // the program that runs the agent's code

	mu  sync.Mutex
	ran bool // the program ran once
}

var (
	_ environments.Source = (*source)(nil)
	_ environments.Tasker = (*source)(nil)
)

const instructions = `You take part in a competition of machine learning. execute_code runs Python that reads data/train.csv and data/test.csv and writes submission.csv; your best submission counts, by its place among the teams.
Only the standard library is sure to be there. Files stay from call to call; programs and variables do not.`

// infos are what request_info tells.
var infos = []string{"overview", "sample_submission", "data_structure", "data_path", "output_path"}

func specs() []tools.Spec {
	code := `{"type":"object","properties":{"code":{"type":"string","description":"Python code"}},"required":["code"],"additionalProperties":false}`
	none := `{"type":"object","properties":{},"additionalProperties":false}`
	kinds, _ := json.Marshal(infos) // texts
	return []tools.Spec{
		{Name: "request_info", Description: "Tells something of the competition.", Parameters: []byte(`{"type":"object","properties":{"info":{"type":"string","enum":` + string(kinds) + `}},"required":["info"],"additionalProperties":false}`)},
		{Name: "validate_code", Description: "Runs code and says whether it works and whether submission.csv is as it must be. Nothing is scored.", Parameters: []byte(code)},
		{Name: "execute_code", Description: "Runs code and scores the submission.csv that it writes.", Parameters: []byte(code)},
		{Name: "get_history", Description: "Lists what was done so far, with its scores.", Parameters: []byte(none)},
		{Name: "reset", Description: "Makes the folder what it was at the beginning. Scores and the number of actions stay.", Parameters: []byte(none)},
	}
}

func (s *source) Spec() environments.Spec {
	return environments.Spec{Tools: specs(), Instructions: instructions, Deterministic: true}
}

func (s *source) New(ctx context.Context, _ string) (environments.Environment, error) {
	if err := s.try(ctx); err != nil {
		return nil, err
	}
	return &environment{source: s}, nil
}

// try runs the program that runs the agent's code: where it does not, no agent is to blame.
func (s *source) try(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ran {
		return nil
	}
	f, err := s.folders.New()
	if err != nil {
		return err
	}
	defer f.Close()
	f.Base.Limits = s.params.Sandbox()
	p := f.Base
	p.Args = []string{s.python, "-c", "pass"}
	r, err := f.Run(ctx, p)
	if err != nil {
		return err
	}
	if s.ran = r.Exit == 0; !s.ran {
		said := wording.Clip(strings.Join(strings.Fields(f.Said(r, p.Limits.Wall)), " "), 200)
		return fmt.Errorf("%s does not run in the sandbox (%s); install it: apt-get install python3", s.python, said)
	}
	return nil
}

func (s *source) Close() error { return s.folders.Close() }

// Tasks are generated competitions, by the field "level".
func (s *source) Tasks(split string, n int) ([]trajectory.Task, error) {
	return environments.LevelTasks(fmt.Sprintf("mle-%d", s.params.Seed), split, n, func(level int64) string { return generate(s.params.Seed, level).overview() })
}

// environment takes part in one competition at a time.
type environment struct {
	source  *source
	c       *competition
	folder  *boxed.Folder
	steps   int
	best    float64 // HumanRank
	history []string
	over    bool
}

var (
	_ environments.Environment = (*environment)(nil)
	_ environments.Scorer      = (*environment)(nil)
	_ environments.Chooser     = (*environment)(nil)
	_ environments.Solver      = (*environment)(nil)
)

// Reset begins the competition of the task's level, or of the seed.
func (e *environment) Reset(_ context.Context, s environments.Start) (environments.Observation, error) {
	level, err := environments.LevelOf(s)
	if err != nil {
		return nil, err
	}
	c := generate(e.source.params.Seed, level)
	f, err := e.source.newFolder(c)
	if err != nil {
		return nil, err
	}
	e.end()
	*e = environment{source: e.source, c: c, folder: f}
	return environments.Text(c.overview()), nil
}

// newFolder is the folder of an episode with the competition's files.
func (s *source) newFolder(c *competition) (*boxed.Folder, error) {
	f, err := s.folders.New()
	if err != nil {
		return nil, err
	}
	f.Base.Limits = s.params.Sandbox()
	f.Base.Env = []string{"PYTHONHASHSEED=0", "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1"}
	for name, data := range c.files() {
		if err := boxed.Write(f.Root(), "data/"+name, data, 0o644); err != nil {
			f.Close()
			return nil, err
		}
	}
	if err := f.Own(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (e *environment) end() {
	if e.folder != nil {
		e.folder.Close()
		e.folder = nil
	}
}

// Close removes the folder.
func (e *environment) Close() error {
	e.end()
	return nil
}

// Score is the best HumanRank so far.
func (e *environment) Score(context.Context) (float64, error) { return e.best, nil }

// Step does one of the five actions. The episode ends with the first place on all boards, or after the last action.
func (e *environment) Step(ctx context.Context, a environments.Action) (environments.Result, error) {
	if e.folder == nil || e.over {
		return environments.Result{}, errors.New("mle: step without an episode; reset first")
	}
	var args struct{ Info, Code string }
	var r environments.Result
	var err error
	unread := json.Unmarshal(a.Arguments, &args)
	switch {
	case unread != nil:
		r = boxed.Refuse("the arguments cannot be read: " + unread.Error())
	case a.Name == "request_info":
		r = environments.Result{Observation: environments.Text(e.info(args.Info))}
	case a.Name == "validate_code", a.Name == "execute_code":
		r, err = e.run(ctx, args.Code, a.Name == "execute_code")
	case a.Name == "get_history":
		text := "Nothing was done so far."
		if len(e.history) > 0 {
			text = strings.Join(e.history, "\n")
		}
		r = environments.Result{Observation: environments.Text(text)}
	case a.Name == "reset":
		var f *boxed.Folder
		if f, err = e.source.newFolder(e.c); err == nil {
			e.folder.Close()
			e.folder = f
			r = environments.Result{Observation: environments.Text("The folder is as it was at the beginning.")}
		}
	default:
		r = boxed.Refuse(fmt.Sprintf("there is no action %q", a.Name))
	}
	if err != nil {
		return environments.Result{}, err
	}
	e.steps++
	first, _, _ := strings.Cut(environments.TextOf(r.Observation), "\n")
	if a.Name != "get_history" {
		e.history = append(e.history, fmt.Sprintf("%d. %s: %s", e.steps, a.Name, wording.Clip(first, 120)))
	}
	if e.best == 1 {
		r.Terminated, r.Success = true, true
	} else if e.steps >= e.source.params.MaxSteps {
		r.Truncated = true
		r.Observation = append(r.Observation, environments.Text(fmt.Sprintf("That was the last of %d actions.", e.source.params.MaxSteps))...)
	}
	e.over = r.Over()
	return r, nil
}

func (e *environment) info(what string) string {
	switch what {
	case "sample_submission":
		return firstLines(e.c.files()["sample_submission.csv"])
	case "data_structure":
		return "data/train.csv:\n" + firstLines(e.c.files()["train.csv"]) + "\ndata/test.csv:\n" + firstLines(e.c.files()["test.csv"])
	case "data_path":
		return "data"
	case "output_path":
		return "submission.csv"
	}
	return e.c.overview()
}

func firstLines(data []byte) string {
	lines := strings.SplitN(string(data), "\n", 5)
	return strings.Join(append(lines[:4], "…"), "\n")
}

// start runs the code under a name by which tracebacks find its lines.
const start = `import linecache, sys
text = sys.stdin.buffer.read().decode()
linecache.cache["<code>"] = (len(text), None, text.splitlines(True), "<code>")
exec(compile(text, "<code>", "exec"), {"__name__": "__main__"})
`

const (
	submission     = "submission.csv"
	mostSubmission = 1 << 20 // bytes
)

// run runs code, and scores what it submits where it shall. An earlier submission is removed first: only what this code wrote counts.
func (e *environment) run(ctx context.Context, code string, score bool) (environments.Result, error) {
	if err := e.folder.Root().RemoveAll(submission); err != nil { // an agent may own what is in it
		return boxed.Refuse("submission.csv cannot be removed; reset the folder"), nil
	}
	p := e.folder.Base
	p.Args, p.Stdin = []string{e.source.python, "-s", "-B", "-c", start}, []byte(code)
	limit := boxed.Within(ctx, p.Limits.Wall)
	p.Limits.Wall = limit
	out, err := e.folder.Run(ctx, p)
	if err != nil {
		return environments.Result{}, err
	}
	said := e.folder.Said(out, limit)
	if out.Exit != 0 || boxed.Stopped(out, limit) != "" {
		return environments.Result{Observation: environments.Text("The code failed.\n" + said), Info: map[string]any{"exit": out.Exit}}, nil
	}
	data, err := boxed.Read(e.folder.Root(), submission, mostSubmission)
	if boxed.HostFault(err) {
		return environments.Result{}, err
	}
	wrong := ""
	var predictions []string
	if err != nil {
		wrong = fmt.Sprintf("it wrote no submission.csv that is a file of at most %d bytes", mostSubmission)
	} else {
		predictions, wrong = e.c.read(data)
	}
	switch {
	case wrong != "":
		return environments.Result{Observation: environments.Text("The code ran, but " + wrong + ".\n" + said)}, nil
	case !score:
		return environments.Result{Observation: environments.Text("The code works, and submission.csv is as it must be.\n" + said)}, nil
	}
	scores := e.c.score(predictions)
	rank := humanRank(e.c.metric, scores[:], e.c.boards[:])
	gain := max(0, rank-e.best)
	e.best += gain
	if rank == 1 {
		e.best = 1
	}
	return environments.Result{
		Observation: environments.Text(fmt.Sprintf("Public %s %.4f: place %d of %d. Your best HumanRank is %.3f.\n%s",
			e.c.metric.name, scores[0], e.c.boards[0].position(e.c.metric, scores[0]), teams, e.best, said)),
		Reward: gain, Info: map[string]any{"public": scores[0], "private": scores[1], "human_rank": rank},
	}, nil
}

// Actions are a few that any competition takes, among them submissions that are no good.
func (e *environment) Actions(context.Context) ([]string, error) {
	if e.over {
		return nil, nil
	}
	var out []string
	add := func(name string, arguments map[string]string) {
		text, _ := json.Marshal(map[string]any{"name": name, "arguments": arguments}) // texts
		out = append(out, string(text))
	}
	for _, i := range infos {
		add("request_info", map[string]string{"info": i})
	}
	for _, code := range []string{"print(open('data/train.csv').readline())", copySample, nearest} {
		add("validate_code", map[string]string{"code": code})
		add("execute_code", map[string]string{"code": code})
	}
	add("get_history", map[string]string{})
	add("reset", map[string]string{})
	return out, nil
}

// Solution fits what the kind of the data is known to be.
func (e *environment) Solution(context.Context) ([]environments.Action, error) {
	if e.c == nil {
		return nil, errors.New("mle: solution without an episode; reset first")
	}
	code := linearFit
	switch e.c.kind {
	case "groups":
		code = groupFit
	case "clusters":
		code = centroidFit
	}
	args, err := wording.JSON(map[string]string{"code": code})
	if err != nil {
		return nil, err
	}
	return []environments.Action{{Name: "request_info", Arguments: []byte(`{"info":"overview"}`)}, {Name: "execute_code", Arguments: args}}, nil
}
