package e2e_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/trajectory"
)

// copyOutside copies the module of testdata/outside to a folder of its own.
func copyOutside(t *testing.T) (dir string) {
	t.Helper()
	if testing.Short() {
		t.Skip("it runs the compiler; leave -short out")
	}
	root, err := os.Getwd()
	require.NoError(t, err)
	dir = t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("e2e/testdata/outside")))
	module, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(strings.ReplaceAll(string(module), "../../..", root)), 0o600))
	sums, err := os.ReadFile("go.sum") // the module needs what this one does
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600))
	// A module that requires this one reads go.mod files that this one's own build never asked for: a new machine has to fetch them once. Where
	// that fails, the build says what is missing.
	for _, tags := range []string{"", "torch"} {
		list := exec.Command("go", "list", "-deps", "-tags", tags, ".")
		list.Dir, list.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
		_ = list.Run()
	}
	return dir
}

// outside builds the program of testdata/outside in a folder of its own, without the network, and returns a function that runs it here.
func outside(t *testing.T, env []string, flags ...string) func(args ...string) (out string, err error) {
	t.Helper()
	dir := copyOutside(t)
	program := filepath.Join(dir, "outside")
	build := exec.Command("go", append([]string{"build", "-o", program}, append(flags, ".")...)...)
	build.Dir = dir
	build.Env = append(append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off"), env...)
	text, err := build.CombinedOutput()
	require.NoError(t, err, "%s", text)
	return func(args ...string) (string, error) {
		text, err := exec.Command(program, args...).CombinedOutput()
		return string(text), err
	}
}

// settings name what the program adds, the values and the factories, in a job of this repository.
var settings = map[string][]string{
	"values": {
		"--set", "agent.tools=[calculator, reverse]", "--set", "rewards=[right_call, answered]",
		"--set", "algorithm={advantage: {name: above, scale: 2}, loss: {name: scaled, scale: 0.5}, entropy: 0.1}",
	},
	"factories": {
		"--set", "agent.tools=[calculator, {name: lookup, table: {a: b}}]", "--set", "rewards=[right_call, {name: turns, count: 2}]",
		"--set", "algorithm={advantage: least, loss: ratio, entropy: 0.1}",
	},
}

// A program outside this module adds a tool, a reward, a call format, an agent kind, an estimator, a loss and an engine, as values and as
// factories; jobs name them, and it lists them.
func TestAProgramOutsideTheModule(t *testing.T) {
	run := outside(t, []string{"CGO_ENABLED=0"})
	for name, want := range map[string]string{"values": "A = scale * (r - the least", "factories": "A = r - the least"} {
		out, err := run(append([]string{"job", "validate", "examples/tiny.yaml"}, settings[name]...)...)
		require.NoError(t, err, out)
		require.True(t, strings.HasPrefix(out, "examples/tiny.yaml: ok\n"), out)
		out, err = run(append([]string{"job", "effective", "examples/tiny.yaml"}, settings[name]...)...)
		require.NoError(t, err, out)
		require.Contains(t, out, want)
		require.Contains(t, out, "ρA, ρ = exp(current - old)")
	}
	for list, lines := range map[string][]string{
		"tools":      {"reverse          Reverses a text.", "lookup           looks a text up in the job's table", "calculator "},
		"rewards":    {"answered ", "turns                    1 for a trajectory of so many turns, else 0", "right_call "},
		"algorithms": {"loss      scaled ", "loss      ratio            loss_t = -ρA", "advantage above ", "advantage least            A = r - the least", "advantage grpo "},
		"env":        {"path ", "steps "},
		"agents":     {"caller           calls as in a program", "indexer          calls in square brackets", "  ask            ask TOOL TEXT, or tell ANSWER", "  use            use TOOL TEXT, or end ANSWER", "tool_call "},
	} {
		out, err := run(list, "list")
		require.NoError(t, err, out)
		for _, line := range lines {
			require.Contains(t, "\n"+out, "\n"+line)
		}
	}
	out, err := run("tools", "call", "reverse", `{"text": "abc"}`)
	require.NoError(t, err, out)
	require.JSONEq(t, `{"observation": "cba"}`, out)

	for want, set := range map[string]string{
		"lookup: the table is empty":                                 "agent.tools=[{name: lookup}]",
		"turns: count is 0; it must be at least 1":                   "rewards=[{name: turns}]",
		"advantage above has no key size; its keys":                  "algorithm={advantage: {name: above, size: 2}, loss: ratio}",
		"loss ratio has no key scale; its keys are: none":            "algorithm={advantage: grpo, loss: {name: ratio, scale: 2}}",
		"unknown kind \"scripts\"":                                   "engine={kind: scripts}",
		"path: length is 0; it must be at least 1":                   "environment={kind: path}",
		"there is no environment \"step\" (did you mean \"steps\"?)": "environment={kind: step}",
	} {
		out, err := run("job", "validate", "examples/tiny.yaml", "--set", set)
		require.Error(t, err, out)
		require.Contains(t, out, want)
	}
}

// With libtorch the same program trains with all of them.
func TestAProgramOutsideTheModuleTrains(t *testing.T) {
	needTorch(t)
	run := outside(t, nil, "-tags", "torch")
	for name, set := range settings {
		dir := filepath.Join(t.TempDir(), name)
		out, err := run(append([]string{"train", "examples/tiny.yaml", "--output", dir, "--set", "trainer.steps=2"}, set...)...)
		require.NoError(t, err, out)
		require.Len(t, metricsOf(t, dir, "update/loss"), 2)
	}
}

// said is what a trajectory of `agentfly rollout` says of its turns.
type said struct {
	Turns []trajectory.Turn     `json:"turns"`
	Stop  trajectory.StopReason `json:"stop_reason"`
	Err   string                `json:"err"`
}

// What a model says is read in the program's formats, by its kinds of agents, and comes from its engines: each run of a job calls the tool
// reverse once, whose observation is the answer.
func TestAProgramOutsideTheModuleRollsOut(t *testing.T) {
	needTorch(t) // for the policy's files; no engine computes with it
	run := outside(t, nil, "-tags", "torch")
	data := filepath.Join(t.TempDir(), "tasks.jsonl")
	require.NoError(t, os.WriteFile(data, []byte(`{"question": "abc backwards?", "answer": "cba"}`+"\n"), 0o600))
	rollout := func(set ...string) said {
		out, err := run(append([]string{
			"rollout", "examples/tiny.yaml", "--set", "deterministic=false", "--set", "rewards=[final_answer]", "--set", "data.train=" + data,
			"--set", "rollout={groups: 1, group_size: 1, max_new_tokens: 40, max_tokens: 200}",
			"--set", `model={scratch: {alphabet: "abcdefghijklmnopqrstuvwxyz?:()[] ", chat_template: "{% for m in messages %}{{ m.role[0] + ':' + m.content + '<eos>' }}{% endfor %}{% if add_generation_prompt %}{{ 'a:' }}{% endif %}"}}`,
		}, set...)...)
		require.NoError(t, err, out)
		var of said
		note, line, ok := strings.Cut(out, "\n") // on standard error, the trajectory on standard output
		require.True(t, ok, out)
		require.Regexp(t, "^note: engine [a-z]+: it takes no weights", note)
		require.NoError(t, json.Unmarshal([]byte(line), &of), out)
		require.Empty(t, of.Err)
		return of
	}
	for _, c := range []struct{ agent, call, answer string }{
		{"kind: custom, format: ask", "ask reverse abc", "tell cba"},
		{"kind: custom, format: use", "use reverse abc", "end cba"},
		{"kind: caller", "reverse(abc)", "cba"},
		{"kind: indexer", "reverse[abc]", "cba"},
	} {
		of := rollout("--set", "agent={tools: [reverse], instructions: false, max_turns: 3, "+c.agent+"}",
			"--set", `engine={kind: script, params: {replies: ["`+c.call+`", "`+c.answer+`"]}}`)
		require.Len(t, of.Turns, 2, c.agent)
		require.Equal(t, c.call, of.Turns[0].Completion)
		require.Equal(t, "cba", of.Turns[0].Results[0].Observation, c.agent)
		require.Equal(t, c.answer, of.Turns[1].Completion)
		require.Equal(t, "cba", of.Turns[1].FinalAnswer, c.agent)
		require.Equal(t, trajectory.StopAnswer, of.Stop)
	}
	of := rollout("--set", "agent={kind: caller, tools: [reverse], instructions: false}", "--set", "engine={kind: repeat}")
	require.Equal(t, "u:abc backwards?a:", of.Turns[0].Completion)
}

// agentfly build makes a program of a user's folder, with the tags and linker flags of this program's own build.
func TestBuildMakesAProgramOutsideTheModule(t *testing.T) {
	dir := copyOutside(t)
	t.Setenv("GOFLAGS", "-mod=mod")
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOSUMDB", "off")
	t.Setenv("GOWORK", "off")
	program := filepath.Join(t.TempDir(), "mine")
	build := func(args ...string) string {
		t.Helper()
		status, out, errs := command("", append([]string{"build", dir, "--output", program}, args...)...)
		require.Zero(t, status, errs)
		require.Equal(t, "built     "+program+"\n", out)
		said, err := exec.Command(program, "version").CombinedOutput()
		require.NoError(t, err, "%s", said)
		listed, err := exec.Command(program, "tools", "list").CombinedOutput()
		require.NoError(t, err, "%s", listed)
		require.Contains(t, string(listed), "reverse          Reverses a text.")
		return string(said)
	}
	require.Contains(t, build("--no-torch", "--", "-ldflags=-s"), "libtorch none")
	if cgo.Available() {
		require.Contains(t, build(), "libtorch 2.")
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "broken.go"), []byte("package main\n\nvar x int = 1.5\n"), 0o600))
	status, _, errs := command("", "build", dir, "--output", program, "--no-torch")
	require.Equal(t, 1, status)
	require.Contains(t, errs, "broken.go:3:13")
	require.Contains(t, errs, "build: "+dir+" did not build")

	empty, foreign := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(foreign, "go.mod"), []byte("module x\n\ngo 1.26\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(foreign, "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o600))
	for want, c := range map[string]struct {
		status int
		args   []string
	}{
		"takes the folder of your program":                       {2, []string{"build"}},
		empty + " holds no Go files":                             {2, []string{"build", empty}},
		"--output " + empty + " is a folder":                     {2, []string{"build", dir, "-o", empty}},
		"the module of " + foreign + " does not require github.": {1, []string{"build", foreign, "-o", program}},
	} {
		status, out, errs := command("", c.args...)
		require.Equal(t, c.status, status, errs)
		require.Empty(t, out)
		require.Contains(t, errs, want)
	}
}
