package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/boxed"
	"github.com/agentfly/agentfly/internal/wording"
)

// environment plays one task at a time.
type environment struct {
	source *source
	work   *work
	folder *boxed.Folder
	steps  int
	over   bool
	judged *verdict // of the episode; nil: the tests did not run yet
}

var (
	_ environments.Environment = (*environment)(nil)
	_ environments.Scorer      = (*environment)(nil)
	_ environments.Chooser     = (*environment)(nil)
	_ environments.Solver      = (*environment)(nil)
)

// folder makes one for a repository.
func (s *source) folder() (*boxed.Folder, error) {
	f, err := s.folders.New()
	if err != nil {
		return nil, err
	}
	f.Base.Limits = s.params.Sandbox()
	f.Base.ReadOnly = s.params.Show
	f.Base.Env = []string{"GIT_CONFIG_NOSYSTEM=1"} // the machine's cannot be read inside
	return f, nil
}

// fill makes the repository of a task in a new folder.
func (s *source) fill(ctx context.Context, w *work) (*boxed.Folder, error) {
	f, err := s.folder()
	if err != nil {
		return nil, err
	}
	if err = w.fill(ctx, s, f); err == nil {
		err = cmp.Or(f.Own(), ctx.Err()) // nobody takes it any more
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Reset makes the repository, and shows what is wrong with it.
func (e *environment) Reset(ctx context.Context, start environments.Start) (environments.Observation, error) {
	w, err := e.source.workOf(start)
	if err != nil {
		return nil, err
	}
	f, err := e.source.fill(ctx, w)
	if err != nil {
		return nil, err
	}
	e.end()
	e.work, e.folder = w, f
	e.steps, e.over, e.judged = 0, false, nil
	return environments.Text(w.problem), nil
}

// Step calls a tool. The hidden tests run at the end.
func (e *environment) Step(ctx context.Context, a environments.Action) (environments.Result, error) {
	if e.folder == nil || e.over {
		return environments.Result{}, errors.New("repository: step without an episode; reset first")
	}
	e.steps++
	if a.Name == boxed.SubmitName {
		r, err := e.finish(ctx)
		r.Terminated = true
		return r, err
	}
	last := e.steps >= e.source.params.MaxSteps
	whole := e.folder.Base.Limits.Wall
	limit := boxed.Within(ctx, whole)
	began := time.Now()
	r, known, err := e.folder.Do(ctx, a, limit)
	if err != nil {
		return environments.Result{}, err
	}
	if !known {
		r = boxed.Refuse(fmt.Sprintf("there is no tool %q", a.Name))
	}
	if !last {
		return r, nil
	}
	took := time.Since(began)
	end, err := e.finish(ctx)
	if limit == whole && boxed.Delayed(err, took) { // a script that hangs before tests that hang is the agent's fault
		e.judged = &verdict{failed: []string{"stopped: the last script left the tests too little time"}}
		end, err = e.finish(ctx)
	}
	if err != nil {
		return end, err
	}
	end.Truncated, end.Failure = true, r.Failure
	end.Observation = append(r.Observation, environments.Text(fmt.Sprintf("That was the last of %d actions. %s", e.source.params.MaxSteps, end.Observation[0].Text))...)
	return end, nil
}

func (e *environment) finish(ctx context.Context) (environments.Result, error) {
	v, err := e.verdict(ctx)
	if err != nil {
		return environments.Result{}, err
	}
	e.over = true
	text := "The hidden tests pass: the repository is mended."
	if v.reward < 1 {
		text = "The hidden tests do not pass."
	}
	return environments.Result{
		Observation: environments.Text(text), Reward: v.reward, Success: v.reward == 1,
		Info: map[string]any{"failed": v.failed, "tests": v.said},
	}, nil
}

// verdict is that of the hidden tests on the repository as the agent left it. They run once.
func (e *environment) verdict(ctx context.Context) (*verdict, error) {
	if e.judged == nil {
		v, err := e.work.judge(ctx, e.source, e.folder)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.work.name, err)
		}
		e.judged = v
	}
	return e.judged, nil
}

// Score is what the hidden tests say, also of an episode that its agent did not submit.
func (e *environment) Score(ctx context.Context) (float64, error) {
	if e.folder == nil {
		return 0, errors.New("repository: score without an episode; reset first")
	}
	v, err := e.verdict(ctx)
	if err != nil {
		return 0, err
	}
	return v.reward, nil
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

// Actions are a few that any repository answers, and the end.
func (e *environment) Actions(context.Context) ([]string, error) {
	if e.over {
		return nil, nil
	}
	return []string{
		`{"name":"file_list","arguments":{}}`,
		`{"name":"shell","arguments":{"command":"cat README* *.md"}}`,
		`{"name":"shell","arguments":{"command":"python3 -m unittest 2>&1 | tail -n 1"}}`,
		`{"name":"shell","arguments":{"command":"sed -i 's/>/>=/' */*.py"}}`,
		`{"name":"submit","arguments":{}}`,
	}, nil
}

// Solution mends the repository as its task knows to: a generated package, or an instance with its patch.
func (e *environment) Solution(context.Context) ([]environments.Action, error) {
	if e.work == nil {
		return nil, errors.New("repository: solution without an episode; reset first")
	}
	if len(e.work.solve) == 0 {
		return nil, fmt.Errorf("the instance %s has no patch that mends it", e.work.name)
	}
	var out []environments.Action
	for _, script := range e.work.solve {
		args, err := wording.JSON(map[string]string{"command": script})
		if err != nil {
			return nil, err
		}
		out = append(out, environments.Action{Name: boxed.ShellName, Arguments: args})
	}
	return append(out, environments.Action{Name: boxed.SubmitName, Arguments: []byte(`{}`)}), nil
}
