package harbor

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/boxed"
	"github.com/agentfly/agentfly/internal/wording"
)

// environment plays one task at a time.
type environment struct {
	source  *source
	task    *task
	image   *image
	machine *machine
	steps   int
	spent   time.Duration // by the agent's calls, against agent.timeout_sec
	over    bool
	judged  *verdict // of the episode; nil: the tests did not run yet
}

var (
	_ environments.Environment = (*environment)(nil)
	_ environments.Scorer      = (*environment)(nil)
	_ environments.Chooser     = (*environment)(nil)
	_ environments.Solver      = (*environment)(nil)
)

// Reset makes the task's folders anew, and shows its instruction.
func (e *environment) Reset(ctx context.Context, s environments.Start) (environments.Observation, error) {
	t, err := e.source.taskOf(s)
	if err != nil {
		return nil, err
	}
	i, err := e.source.image(ctx, t)
	if err != nil {
		return nil, err
	}
	m, err := e.source.copy(ctx, t, i.machine)
	if err != nil {
		return nil, err
	}
	e.machine.close()
	e.task, e.image, e.machine = t, i, m
	e.steps, e.spent, e.over, e.judged = 0, 0, false, nil
	return environments.Text(strings.TrimSpace(t.instruction)), nil
}

// Step calls a tool. The tests run at the end: when the agent submits, or has no step or no time left.
func (e *environment) Step(ctx context.Context, a environments.Action) (environments.Result, error) {
	if e.machine == nil || e.over {
		return environments.Result{}, errors.New("harbor: step without an episode; reset first")
	}
	e.steps++
	if a.Name == boxed.SubmitName {
		r, err := e.end(ctx)
		r.Terminated = true
		return r, err
	}
	allowed := seconds(e.task.config.Agent.Timeout)
	began := time.Now()
	whole := min(e.machine.main.Base.Limits.Wall, allowed-e.spent)
	limit := boxed.Within(ctx, whole)
	r, known, err := e.machine.main.Do(ctx, a, limit)
	if err != nil {
		return environments.Result{}, err
	}
	if !known {
		r = boxed.Refuse(fmt.Sprintf("there is no tool %q", a.Name))
	}
	took := time.Since(began)
	e.spent += took
	why := ""
	switch {
	case e.spent >= allowed:
		why = fmt.Sprintf("The time of the task, %s, is up.", allowed)
	case e.steps >= e.source.params.MaxSteps:
		why = fmt.Sprintf("That was the last of %d actions.", e.source.params.MaxSteps)
	default:
		return r, nil
	}
	last, err := e.end(ctx)
	if limit == whole && boxed.Delayed(err, took) { // a script that hangs before tests that hang is the agent's fault
		e.judged = &verdict{wrong: "the last script left the tests too little time"}
		last, err = e.end(ctx)
	}
	if err != nil {
		return last, err
	}
	last.Truncated, last.Failure = true, r.Failure
	last.Observation = append(r.Observation, environments.Text(why+" "+last.Observation[0].Text)...)
	return last, nil
}

// end has the tests run.
func (e *environment) end(ctx context.Context) (environments.Result, error) {
	v, err := e.verdict(ctx)
	if err != nil {
		return environments.Result{}, err
	}
	e.over = true
	text := fmt.Sprintf("The tests ran. The reward is %.4g of 1.", v.reward)
	if v.wrong != "" {
		text = "The tests gave no reward: " + v.wrong + "."
	}
	return environments.Result{
		Observation: environments.Text(text), Reward: v.reward, Success: v.reward == 1,
		Info: map[string]any{"tests": v.said, "no_reward": v.wrong},
	}, nil
}

// verdict is that of the tests on the machine as the agent left it. They run once.
func (e *environment) verdict(ctx context.Context) (*verdict, error) {
	if e.judged == nil {
		v, err := e.source.judge(ctx, e.task, e.image, e.machine)
		if err != nil {
			return nil, err
		}
		e.judged = v
	}
	return e.judged, nil
}

// Score is what the tests say, also of an episode that its agent did not submit.
func (e *environment) Score(ctx context.Context) (float64, error) {
	if e.machine == nil {
		return 0, errors.New("harbor: score without an episode; reset first")
	}
	v, err := e.verdict(ctx)
	if err != nil {
		return 0, err
	}
	return v.reward, nil
}

// Close removes the folders.
func (e *environment) Close() error {
	e.machine.close()
	e.machine = nil
	return nil
}

// Actions are a few scripts that any task answers, and the end.
func (e *environment) Actions(context.Context) ([]string, error) {
	if e.over {
		return nil, nil
	}
	var out []string
	for _, script := range []string{"ls", "cat *", "python3 *.py", "touch done"} {
		out = append(out, string(call(boxed.ShellName, map[string]string{"command": script})))
	}
	return append(out, `{"name":"submit","arguments":{}}`), nil
}

// call is the JSON of one; texts always encode.
func call(name string, arguments map[string]string) []byte {
	out, _ := json.Marshal(map[string]any{"name": name, "arguments": arguments})
	return out
}

// Solution is the task's own: solution/ as a folder that a script makes first, because none can make /solution, and bash solve.sh in it, then submit.
func (e *environment) Solution(context.Context) ([]environments.Action, error) {
	if e.machine == nil {
		return nil, errors.New("harbor: solution without an episode; reset first")
	}
	if !e.task.solution {
		return nil, fmt.Errorf("the task %s has no solution/solve.sh", e.task.name)
	}
	dir := filepath.Join(e.task.dir, "solution")
	var b strings.Builder
	const at = "/tmp/solution"
	if err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		if !bytes.ContainsRune(data, 0) { // a text
			data = []byte(moved(string(data), "/solution", at))
		}
		file := path.Join(at, filepath.ToSlash(rel))
		fmt.Fprintf(&b, "mkdir -p '%s'\nbase64 -d >'%s' <<'SOLUTION'\n%s\nSOLUTION\n", path.Dir(file), file, base64.StdEncoding.EncodeToString(data))
		if info.Mode()&0o111 != 0 {
			fmt.Fprintf(&b, "chmod +x '%s'\n", file)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for _, v := range environ(e.task.config.Solution.Env) {
		name, value, _ := strings.Cut(v, "=")
		fmt.Fprintf(&b, "export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`))
	}
	script, err := wording.JSON(map[string]string{"command": b.String() + "bash " + at + "/solve.sh"})
	if err != nil {
		return nil, err
	}
	return []environments.Action{{Name: boxed.ShellName, Arguments: script}, {Name: boxed.SubmitName, Arguments: []byte(`{}`)}}, nil
}

// What a name of a file goes on with before and behind the name of a folder, which is another one's then.
var before, behind = regexp.MustCompile(`[\w.~)}*?\]-]$`), regexp.MustCompile(`^[\w-]`)

// moved is a text that names a folder of the root, with another one in its place. A folder of the same name below another one stays.
func moved(text, from, to string) string {
	var b strings.Builder
	done := 0
	for {
		at := strings.Index(text[done:], from)
		if at < 0 {
			return b.String() + text[done:]
		}
		at += done
		b.WriteString(text[done:at])
		if done = at + len(from); before.MatchString(text[max(0, at-1):at]) || behind.MatchString(text[done:]) {
			b.WriteString(from)
		} else {
			b.WriteString(to)
		}
	}
}
