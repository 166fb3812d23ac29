package pyenv_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	pyenv "github.com/agentfly/agentfly/environments/python"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

const worlds = "testdata/worlds.py"

func needPython(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not on PATH")
	}
}

func open(t testing.TB, params map[string]any) (environments.Source, error) {
	t.Helper()
	needPython(t)
	r := resources.New(resources.Options{})
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return pyenv.Kind().New(t.Context(), r, params)
}

func source(t testing.TB, params map[string]any) environments.Source {
	t.Helper()
	s, err := open(t, params)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func environment(t testing.TB, s environments.Source) environments.Environment {
	t.Helper()
	e, err := s.New(t.Context(), "test")
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.Close() }) // it may be gone
	return e
}

func world(t testing.TB, class string, more map[string]any) (environments.Source, environments.Environment) {
	t.Helper()
	params := map[string]any{"class": worlds + ":" + class}
	for k, v := range more {
		params[k] = v
	}
	s := source(t, params)
	return s, environment(t, s)
}

func begin(seed int64, fields map[string]any) environments.Start {
	return environments.Start{Seed: seed, Task: trajectory.Task{ID: "t", Fields: fields}}
}

func text(action string) environments.Action { return environments.Action{Text: action} }

func step(t testing.TB, e environments.Environment, action string) environments.Result {
	t.Helper()
	r, err := e.Step(t.Context(), text(action))
	require.NoError(t, err)
	return r
}

// Gymnasium's protocol by file: seeds, options, named actions, what is printed, powers.
func TestGymnasiumClass(t *testing.T) {
	t.Parallel()
	s, e := world(t, "Corridor", map[string]any{"kwargs": map[string]any{"length": 4}, "actions": []string{"left", "right"}})
	require.Equal(t, environments.Spec{Instructions: "Actions are left and right.", Deterministic: true}, s.Spec())
	first, err := e.Reset(t.Context(), begin(5, map[string]any{"answer": "of the data line", "seed": 5}))
	require.NoError(t, err)
	again, err := e.Reset(t.Context(), begin(5, nil))
	require.NoError(t, err)
	require.Equal(t, first, again)
	got, err := e.Reset(t.Context(), begin(5, map[string]any{"at": 2}))
	require.NoError(t, err)
	require.Equal(t, environments.Text("You are at 2 of 4."), got)

	r := step(t, e, " Left ")
	require.Equal(t, environments.Text("You are at 1 of 4."), r.Observation)
	r = step(t, e, "jump")
	require.Equal(t, trajectory.FailurePolicy, r.Failure)
	require.Equal(t, environments.Text(`There is no action "jump"; actions are left and right.`), r.Observation)
	require.Equal(t, environments.Text("You are at 2 of 4."), step(t, e, "1").Observation)
	actions, err := e.(environments.Chooser).Actions(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"left", "right"}, actions)
	score, err := e.(environments.Scorer).Score(t.Context())
	require.NoError(t, err)
	require.Equal(t, 0.5, score)
	for method, arguments := range map[string]string{"distnace": `{"to": 4}`, "distance": `{"two": 4}`, "_hidden": "{}"} { // the caller's mistake: the environment is as it was
		_, err := e.(environments.Caller).Call(t.Context(), method, json.RawMessage(arguments))
		wrong := (*environments.CallError)(nil)
		require.ErrorAs(t, err, &wrong, method)
	}
	out, err := e.(environments.Caller).Call(t.Context(), "distance", json.RawMessage(`{"to": 4}`))
	require.NoError(t, err)
	require.JSONEq(t, `{"distance": 2}`, string(out))

	// State goes on in another process.
	state, err := e.(environments.Stater).State(t.Context())
	require.NoError(t, err)
	other := environment(t, s)
	_, err = other.Reset(t.Context(), begin(5, nil))
	require.NoError(t, err)
	require.NoError(t, other.(environments.Stater).Restore(t.Context(), state))
	require.Equal(t, step(t, e, "right"), step(t, other, "right"))

	_, err = e.Reset(t.Context(), begin(9, nil))
	require.NoError(t, err)
	solution, err := e.(environments.Solver).Solution(t.Context())
	require.NoError(t, err)
	for _, a := range solution {
		r, err = e.Step(t.Context(), a)
		require.NoError(t, err)
	}
	require.True(t, r.Terminated)
	require.Equal(t, 1.0, r.Reward)
	require.Equal(t, map[string]any{"at": 4.0}, r.Info)

	_, err = e.Reset(t.Context(), begin(5, map[string]any{"depth": 2}))
	require.EqualError(t, err, "Corridor: the task has the field depth, which Corridor does not know; its reset did not look at it among its options; leave it out, or list it in the parameter fields where it is read later")
	require.ErrorAs(t, err, new(*environments.TaskError))
	_, err = e.Reset(t.Context(), begin(5, nil))
	require.NoError(t, err, "the task was wrong, not the environment")
}

// A field that the job reads reaches a class that takes it, among its options or its arguments, and is no error for one that does not.
func TestFieldsOfTheJob(t *testing.T) {
	t.Parallel()
	for class, c := range map[string]struct{ field, want, refused string }{
		"Corridor": {"at", "You are at 2 of 3.", "the task has the field kind, which Corridor does not know"},
		"Counter":  {"goal", "Count to 2.", ""},
		"Later":    {"word", "Say 2.", ""},
		"Words":    {"level", "", "the task has the field kind and the field level, which Words does not know"},
	} {
		_, e := world(t, class, nil)
		start := begin(5, map[string]any{c.field: 2, "kind": "x", "gold": "y"})
		start.Data, start.Job = []string{"gold"}, []string{c.field, "kind"}
		got, err := e.Reset(t.Context(), start)
		require.NoError(t, err, class)
		require.Contains(t, environments.TextOf(got), c.want)
		start.Job = nil
		if _, err = e.Reset(t.Context(), start); c.refused == "" { // it takes whatever a task has
			require.NoError(t, err, class)
			continue
		}
		require.ErrorContains(t, err, c.refused)
	}
}

// What rewards and data read of a task reaches a class whose reset names it, of every protocol; a seed is the episode's.
func TestReservedFieldsThatResetNames(t *testing.T) {
	t.Parallel()
	for _, class := range []string{"Quiz", "LaterQuiz", "ArenaQuiz"} {
		_, e := world(t, class, nil)
		_, err := e.Reset(t.Context(), begin(5, map[string]any{"question": "1+1?", "answer": "2", "source": "web", "seed": "5"}))
		require.NoError(t, err, class)
		r := step(t, e, "2")
		require.Equal(t, environments.Text("right"), r.Observation, class)
		require.True(t, r.Success, class)
		_, err = e.Reset(t.Context(), begin(5, map[string]any{"question": "1+1?"}))
		require.ErrorContains(t, err, class+": the task does not fit reset: missing a required argument: 'answer'")
	}
}

// A class is found by its import path too, beside the job file.
func TestImportPath(t *testing.T) {
	t.Parallel()
	needPython(t)
	dir := t.TempDir()
	data, err := os.ReadFile(worlds)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "my_worlds.py"), data, 0o600))
	r := resources.New(resources.Options{Resolve: func(path string) string { return filepath.Join(dir, path) }})
	s, err := pyenv.Kind().New(t.Context(), r, map[string]any{"class": "my_worlds:Corridor"})
	require.NoError(t, err)
	e := environment(t, s)
	got, err := e.Reset(t.Context(), begin(0, map[string]any{"at": 1}))
	require.NoError(t, err)
	require.Equal(t, environments.Text("You are at 1 of 3."), got)
	require.NoError(t, s.Close())
	require.NoError(t, r.Close())
}

// gym's protocol: four values, seed() and TimeLimit.truncated.
func TestOldGymClass(t *testing.T) {
	t.Parallel()
	_, e := world(t, "Old", nil)
	got, err := e.Reset(t.Context(), begin(17, nil))
	require.NoError(t, err)
	require.Equal(t, environments.Text(`{"first":7}`), got)
	require.Equal(t, environments.Result{Observation: environments.Text(`{"n":1,"heard":"hi"}`), Reward: 0.5, Info: map[string]any{"TimeLimit.truncated": false}}, step(t, e, "hi"))
	r := step(t, e, "there")
	require.True(t, r.Truncated)
	require.False(t, r.Terminated)
	_, err = e.Reset(t.Context(), begin(1, map[string]any{"size": 1}))
	require.ErrorContains(t, err, "the task has the field size, which Old does not know")
}

func TestTextArenaClass(t *testing.T) {
	t.Parallel()
	_, e := world(t, "Arena", nil)
	got, err := e.Reset(t.Context(), begin(3, nil))
	require.NoError(t, err)
	require.Equal(t, environments.Text("Guess a number."), got)
	r := step(t, e, "what?")
	require.Equal(t, trajectory.FailurePolicy, r.Failure)
	require.Equal(t, environments.Text("Invalid move."), r.Observation)
	for n := range 10 {
		if r = step(t, e, string(rune('0'+n))); r.Over() {
			break
		}
		require.Zero(t, r.Reward)
		require.Equal(t, environments.Text("higher"), r.Observation)
	}
	require.True(t, r.Terminated)
	require.Equal(t, 1.0, r.Reward)
	require.Equal(t, environments.Text("Right!"), r.Observation)
}

func TestSkyRLClass(t *testing.T) {
	t.Parallel()
	_, e := world(t, "Sky", nil)
	for range 2 { // each task has an object of its own
		start := begin(0, map[string]any{"answer": "42"})
		start.Task.Prompt = []trajectory.Message{trajectory.Text("user", "What is it?")}
		got, err := e.Reset(t.Context(), start)
		require.NoError(t, err)
		require.Equal(t, environments.Text("You have three turns."), got)
		require.Equal(t, environments.Text("no"), step(t, e, "41").Observation)
		r := step(t, e, "42")
		require.Equal(t, 1.0, r.Reward)
		require.True(t, r.Terminated)
	}
	_, err := e.Reset(t.Context(), begin(0, nil))
	require.ErrorContains(t, err, "Sky: reset: KeyError: 'answer' (worlds.py:")
}

func TestTRLClass(t *testing.T) {
	t.Parallel()
	s, e := world(t, "Counter", nil)
	spec := s.Spec()
	require.Len(t, spec.Tools, 2)
	require.Equal(t, "add", spec.Tools[0].Name)
	require.Equal(t, "Adds to the counter.", spec.Tools[0].Description)
	require.JSONEq(t, `{"type":"object","properties":{"by":{"type":"integer","description":"How much.","default":1}},"required":[],"additionalProperties":false}`, string(spec.Tools[0].Parameters))
	got, err := e.Reset(t.Context(), begin(0, map[string]any{"goal": 3, "answer": "x"}))
	require.NoError(t, err)
	require.Equal(t, environments.Text("Count to 3."), got)
	call := func(name, arguments string) environments.Result {
		r, err := e.Step(t.Context(), environments.Action{Name: name, Arguments: json.RawMessage(arguments)})
		require.NoError(t, err)
		return r
	}
	require.Equal(t, environments.Text("2"), call("add", `{"by": 2}`).Observation)
	require.Equal(t, environments.Text(`{"n":2}`), call("look", `{}`).Observation)
	r := call("add", `{"by": 0}`)
	require.Equal(t, trajectory.FailurePolicy, r.Failure)
	require.Equal(t, environments.Text("ValueError: by must be above 0"), r.Observation)
	require.Equal(t, trajectory.FailurePolicy, call("add", `{"of": 1}`).Failure)
	require.Equal(t, trajectory.FailurePolicy, call("_hidden", `{}`).Failure)
	r = call("add", `{}`)
	require.True(t, r.Terminated)
	require.Equal(t, 1.0, r.Reward)
	_, err = e.Reset(t.Context(), begin(0, nil))
	require.ErrorContains(t, err, "Counter: the task does not fit reset: missing a required argument: 'goal'")
	require.ErrorAs(t, err, new(*environments.TaskError))
}

func TestOpenEnvClass(t *testing.T) {
	t.Parallel()
	s, e := world(t, "Guess", nil)
	require.Len(t, s.Spec().Tools, 1)
	require.Equal(t, "act", s.Spec().Tools[0].Name)
	require.Contains(t, string(s.Spec().Tools[0].Parameters), `"guess"`)
	got, err := e.Reset(t.Context(), begin(1, map[string]any{"low": 9}))
	require.NoError(t, err)
	require.Equal(t, environments.Text(`{"text":"Guess a digit.","left":3}`), got)
	guess := func(arguments string) environments.Result {
		r, err := e.Step(t.Context(), environments.Action{Name: "act", Arguments: json.RawMessage(arguments)})
		require.NoError(t, err)
		return r
	}
	require.Equal(t, trajectory.FailurePolicy, guess(`{"gues": 1}`).Failure)
	require.Equal(t, environments.Text(`{"text":"wrong","left":2}`), guess(`{"guess": 1}`).Observation)
	r := guess(`{"guess": 9}`)
	require.True(t, r.Terminated)
	require.Equal(t, 1.0, r.Reward)
	_, err = e.Reset(t.Context(), begin(1, map[string]any{"high": 9}))
	require.ErrorContains(t, err, "the task has the field high, which Guess does not know")

	_, e = world(t, "Guess", map[string]any{"text": "{text} {left} tries are left."})
	got, err = e.Reset(t.Context(), begin(1, nil))
	require.NoError(t, err)
	require.Equal(t, environments.Text("Guess a digit. 3 tries are left."), got)
	_, e = world(t, "Guess", map[string]any{"text": "board"})
	_, err = e.Reset(t.Context(), begin(1, nil))
	require.EqualError(t, err, "Guess: text: the observation has no board at board; it has done, left, metadata, reward, text")
	require.False(t, errors.As(err, new(*environments.TaskError)), "it is the job's fault")
}

func TestAgentFlyClass(t *testing.T) {
	closed := filepath.Join(t.TempDir(), "closed")
	t.Setenv("AGENTFLY_TEST_CLOSED", closed)
	_, e := world(t, "Later", nil)
	got, err := e.Reset(t.Context(), begin(0, map[string]any{"word": "yes"}))
	require.NoError(t, err)
	require.Equal(t, environments.Text("Say yes."), got)
	require.Equal(t, environments.Text("no"), step(t, e, "well").Observation)
	r := step(t, e, "yes")
	require.True(t, r.Terminated)
	require.NoError(t, e.Close())
	data, err := os.ReadFile(closed)
	require.NoError(t, err)
	require.Equal(t, "closed\n", string(data))
}

// What a class does wrong is an error that names it, never a reward; what it prints disturbs nobody.
func TestMisbehaviour(t *testing.T) {
	t.Parallel()
	for action, want := range map[string]string{
		"nan":              "Bad: step: the reward is nan; it must be a finite number",
		"text reward":      "Bad: step: the reward is a str, not a number",
		"text of a number": "Bad: step: the reward is a str, not a number",
		"bytes":            "Bad: an observation has bytes in it; give text, or an array with images: true",
		"three":            "Bad: step gave 3 values; Gymnasium's gives observation, reward, terminated, truncated, info, and gym's observation, reward, done, info",
		"raise":            "Bad: step: ValueError: it does not work (worlds.py:",
		"exit":             "Bad: step: SystemExit: 3",
		"crash":            "Bad: step: its process ended; the worker ended (exit status 7)",
		"memory":           "Bad: it needs more memory than its limit",
	} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			_, e := world(t, "Bad", nil)
			_, err := e.Reset(t.Context(), begin(0, nil))
			require.NoError(t, err)
			require.Equal(t, environments.Text("heard a"), step(t, e, "a").Observation)
			_, err = e.Step(t.Context(), text(action))
			require.ErrorContains(t, err, want)
		})
	}
	for _, how := range []string{"none", "none and info"} { // an agent would have nothing to read
		t.Run("reset "+how, func(t *testing.T) {
			_, e := world(t, "Bad", map[string]any{"kwargs": map[string]any{"how": how}})
			_, err := e.Reset(t.Context(), begin(0, nil))
			require.ErrorContains(t, err, "Bad: reset gave None; return the first observation")
			prompted := begin(0, nil)
			prompted.Task.Prompt = []trajectory.Message{trajectory.Text("user", "Walk.")}
			_, err = e.Reset(t.Context(), prompted)
			require.NoError(t, err, "the prompt of its task is enough to begin with")
		})
	}
	t.Run("tolerated", func(t *testing.T) {
		_, e := world(t, "Bad", map[string]any{"max_observation": 1000})
		_, err := e.Reset(t.Context(), begin(0, nil))
		require.NoError(t, err)
		r := step(t, e, "inf info")
		require.Nil(t, r.Info["x"])
		require.Equal(t, "[1000000 left out]", r.Info["huge"])
		r = step(t, e, "odd info")
		require.Equal(t, 3.0, r.Info["at"])
		require.Equal(t, "[a number of more than 300 digits]", r.Info["number"])
		require.Equal(t, "[a number of more than 300 digits]", r.Info["longer"])
		require.Equal(t, []any{"[a number of more than 300 digits]"}, r.Info["inside"])
		require.Contains(t, r.Info["loop"], "left out")
		require.Equal(t, "[a Mute left out]", r.Info["mute"])
		r = step(t, e, "huge")
		require.Equal(t, strings.Repeat("x", 1000)+"\n[49999000 characters left out]", r.Observation[0].Text)
		r = step(t, e, "huge dict")
		require.Contains(t, r.Observation[0].Text, "\n[the rest left out]")
		require.Less(t, len(r.Observation[0].Text), 1100)
		require.Equal(t, environments.Text("half ? done"), step(t, e, "surrogate").Observation)
		require.Equal(t, environments.Text("heard fork"), step(t, e, "fork").Observation)
		require.Equal(t, environments.Text("closed"), step(t, e, "close").Observation)
		require.Equal(t, environments.Text("half ? done"), step(t, e, "surrogate").Observation) // the protocol goes on
	})
}

// A reset that gives nothing is refused whatever the protocol, where the task has no prompt to begin with.
func TestResetsThatGiveNothing(t *testing.T) {
	t.Parallel()
	for class, method := range map[string]string{"LaterBad": "reset", "SilentTRL": "reset", "SilentSky": "init"} {
		_, e := world(t, class, nil)
		fields := map[string]any{}
		if class == "LaterBad" {
			fields["how"] = "none"
		}
		_, err := e.Reset(t.Context(), begin(0, fields))
		require.ErrorContains(t, err, class+": "+method+" gave None; return the first observation")
		prompted := begin(0, fields)
		prompted.Task.Prompt = []trajectory.Message{trajectory.Text("user", "Walk.")}
		_, err = e.Reset(t.Context(), prompted)
		require.NoError(t, err, class)
	}
}

// A step of BaseEnv's protocol that gives what is none of its forms is refused: taken as an observation it would pay nothing and end nothing.
func TestStepsOfOtherForms(t *testing.T) {
	t.Parallel()
	for action, want := range map[string]string{"three": "step gave 3 values; BaseEnv's gives ", "two": "step gave 2 values; ", "reward": "step gave a dict; "} {
		_, e := world(t, "LaterBad", nil)
		_, err := e.Reset(t.Context(), begin(0, nil))
		require.NoError(t, err)
		_, err = e.Step(t.Context(), text(action))
		require.ErrorContains(t, err, "LaterBad: "+want)
	}
	_, e := world(t, "LaterBad", nil)
	_, err := e.Reset(t.Context(), begin(0, nil))
	require.NoError(t, err)
	require.NotEmpty(t, step(t, e, "list").Observation, "a list is an observation")
}

// A world that a constructor draws from numpy's global source is the same in every worker, as one from Python's own is.
func TestConstructorsDrawTheSame(t *testing.T) {
	t.Parallel()
	s := source(t, map[string]any{"class": "testdata/drawn.py:Drawn", "interpreter": withGymnasium(t)})
	first, err := environment(t, s).Reset(t.Context(), begin(0, nil))
	require.NoError(t, err)
	second, err := environment(t, s).Reset(t.Context(), begin(0, nil))
	require.NoError(t, err)
	require.Equal(t, first, second)
}

// A reward that is a text is refused by name, in the reset of a class that keeps it as an attribute as in a step.
func TestRewardsThatAreTexts(t *testing.T) {
	t.Parallel()
	_, e := world(t, "Paid", nil)
	_, err := e.Reset(t.Context(), begin(0, map[string]any{"reward": "0"}))
	require.ErrorContains(t, err, "Paid: reset: the reward is a str, not a number")
	_, e = world(t, "Paid", nil)
	_, err = e.Reset(t.Context(), begin(0, map[string]any{"reward": 0}))
	require.NoError(t, err)
	_, err = e.Step(t.Context(), environments.Action{Name: "pay", Arguments: json.RawMessage(`{"text": "1"}`)})
	require.ErrorContains(t, err, "Paid: step: the reward is a str, not a number")
}

// What the agent writes that no action can be made of is its own failure, whatever the class raises then.
func TestActionsThatAreNone(t *testing.T) {
	t.Parallel()
	_, e := world(t, "Bytes", nil)
	_, err := e.Reset(t.Context(), begin(0, nil))
	require.NoError(t, err)
	require.Equal(t, environments.Text("did (1, 255)"), step(t, e, "[1, 255]").Observation)
	for _, action := range []string{"[1, 256]", "[-1, 0]", "[1]", "{}", "[1, 1e999]", `["a", 1]`, "null"} {
		require.Equal(t, trajectory.FailurePolicy, step(t, e, action).Failure, action)
	}
	_, e = world(t, "Small", nil)
	_, err = e.Reset(t.Context(), begin(0, nil))
	require.NoError(t, err)
	r, err := e.Step(t.Context(), environments.Action{Name: "act", Arguments: json.RawMessage(`{"n": 12}`)})
	require.NoError(t, err)
	require.Equal(t, trajectory.FailurePolicy, r.Failure)
	require.Equal(t, environments.Text("The action is wrong: AssertionError: n is 0 to 9"), r.Observation)
}

// What the agent writes that Python's JSON cannot read, an integer of 5,000 digits or a list 3,000 deep, is its own failure too, and the
// environment goes on. A task and a call from outside are refused so.
func TestActionsThatPythonCannotRead(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 3000) + strings.Repeat("]", 3000)
	unreadable := map[string]string{deep: "RecursionError"}
	if version := exec.Command("python3", "-c", "import sys; sys.exit(not hasattr(sys, 'set_int_max_str_digits'))"); version.Run() == nil {
		unreadable[strings.Repeat("7", 5000)] = "ValueError"
	}
	_, e := world(t, "Counter", map[string]any{"max_steps": len(unreadable) + 3})
	_, err := e.Reset(t.Context(), begin(0, map[string]any{"goal": 9}))
	require.NoError(t, err)
	call := func(arguments string) environments.Result {
		r, err := e.Step(t.Context(), environments.Action{Name: "add", Arguments: json.RawMessage(arguments)})
		require.NoError(t, err)
		return r
	}
	require.Equal(t, environments.Text("2"), call(`{"by": 2}`).Observation)
	for value, kind := range unreadable {
		r := call(`{"by": ` + value + `}`)
		require.Equal(t, trajectory.FailurePolicy, r.Failure)
		require.Regexp(t, `^the arguments cannot be read \(`+kind+`: .*\); write shorter numbers and nest less$`, environments.TextOf(r.Observation))
		require.False(t, r.Over())
	}
	require.Equal(t, trajectory.FailurePolicy, call(`{"by": 1e999}`).Failure, "an infinity is no whole number")
	require.True(t, call(`{"by": `+deep+`}`).Truncated, "it counts as a step")
	require.Equal(t, environments.Text("3"), call(`{}`).Observation)

	_, err = e.Reset(t.Context(), begin(0, map[string]any{"goal": json.RawMessage(deep)}))
	require.ErrorAs(t, err, new(*environments.TaskError))
	require.ErrorContains(t, err, "the arguments cannot be read (RecursionError: ")
	_, err = e.(environments.Caller).Call(t.Context(), "look", json.RawMessage(`{"at": `+deep+`}`))
	require.ErrorAs(t, err, new(*environments.CallError))
	require.ErrorContains(t, err, "the arguments cannot be read (RecursionError: ")
	require.Equal(t, environments.Text("4"), call(`{}`).Observation)
}

// A method that takes other arguments is the class's own and no power.
func TestMethodsThatAreNoPowers(t *testing.T) {
	t.Parallel()
	_, e := world(t, "Board", nil)
	_, err := e.Reset(t.Context(), begin(0, nil))
	require.NoError(t, err)
	_, stater := e.(environments.Stater)
	_, scorer := e.(environments.Scorer)
	_, chooser := e.(environments.Chooser)
	require.Equal(t, [3]bool{}, [3]bool{stater, scorer, chooser})
	require.NoError(t, e.(environments.Checker).Check(t.Context()))
}

// A state that would come back from JSON as something else is refused, with what to do.
func TestStatesThatDoNotComeBack(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]string{
		"numbers": "Visits: get_state gave a dict with the key 3, and of keys JSON keeps the text alone; write str(key), and read it so in set_state",
		"nested":  "Visits: get_state gave a dict with the key None, and of keys JSON keeps the text alone; write str(key), and read it so in set_state",
		"object":  "Visits: get_state gave a Discrete, which JSON does not hold; give numbers, texts, lists and dicts",
		"plain":   "",
	} {
		_, e := world(t, "Visits", map[string]any{"kwargs": map[string]any{"state": state}})
		_, err := e.Reset(t.Context(), begin(0, nil))
		require.NoError(t, err)
		_, err = e.(environments.Stater).State(t.Context())
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.EqualError(t, err, want)
	}
}

// From its state an episode goes on with the random numbers that it would have drawn, in another process, at the start and in the middle.
func TestRandomNumbersAfterARestore(t *testing.T) {
	t.Parallel()
	for _, from := range []string{"random", "numpy"} {
		t.Run(from, func(t *testing.T) {
			more := map[string]any{"kwargs": map[string]any{"source": from}}
			if from == "numpy" {
				more["interpreter"] = withGymnasium(t)
			}
			s, e := world(t, "Dice", more)
			_, err := e.Reset(t.Context(), begin(7, nil))
			require.NoError(t, err)
			for steps := range 3 { // of an odd number the source keeps half a pair
				state, err := e.(environments.Stater).State(t.Context())
				require.NoError(t, err)
				require.Less(t, len(state), 8<<10)
				other := environment(t, s)
				_, err = other.Reset(t.Context(), begin(7, nil))
				require.NoError(t, err)
				require.NoError(t, other.(environments.Stater).Restore(t.Context(), state))
				require.Equal(t, step(t, e, "on"), step(t, other, "on"), steps)
			}
		})
	}
	_, e := world(t, "Dice", nil)
	_, err := e.Reset(t.Context(), begin(7, nil))
	require.NoError(t, err)
	require.NoError(t, e.(environments.Stater).Restore(t.Context(), json.RawMessage(`{"steps": 1, "state": [1, 2]}`)), "as older programs kept them")
	require.Contains(t, environments.TextOf(step(t, e, "on").Observation), "[1, 2, ")
}

// What info said of the possible actions is part of the state: a class without a method actions says it nowhere else.
func TestActionsAfterARestore(t *testing.T) {
	t.Parallel()
	for entry, want := range map[string][]string{"mask": {"0", "2"}, "names": {"0", "2"}, "none": {"0", "1", "2"}} {
		s, e := world(t, "Doors", map[string]any{"kwargs": map[string]any{"entry": entry}})
		other := environment(t, s)
		for _, one := range []environments.Environment{e, other} {
			_, err := one.Reset(t.Context(), begin(0, nil))
			require.NoError(t, err)
		}
		step(t, e, "1")
		state, err := e.(environments.Stater).State(t.Context())
		require.NoError(t, err)
		require.NoError(t, other.(environments.Stater).Restore(t.Context(), state))
		for _, one := range []environments.Environment{e, other} {
			actions, err := one.(environments.Chooser).Actions(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, actions, entry)
		}
	}

	// A state of an older program does not say it: those of the start would be wrong.
	_, e := world(t, "Doors", map[string]any{"kwargs": map[string]any{"entry": "mask"}})
	_, err := e.Reset(t.Context(), begin(0, nil))
	require.NoError(t, err)
	require.NoError(t, e.(environments.Stater).Restore(t.Context(), json.RawMessage(`{"steps":1,"total":0,"state":1}`)))
	actions, err := e.(environments.Chooser).Actions(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"0", "1", "2"}, actions)
}

// A step that never returns ends with its time, and its process with it.
func TestHang(t *testing.T) {
	t.Parallel()
	_, e := world(t, "Bad", nil)
	_, err := e.Reset(t.Context(), begin(0, nil))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = e.Step(ctx, text("hang"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "Bad: step did not end in time")
	_, err = e.Step(t.Context(), text("a"))
	require.Error(t, err)
	begun := time.Now()
	_ = e.Close() // its process is gone
	require.Less(t, time.Since(begun), 2*time.Second)
}

// A limit of steps truncates, and counts what was not possible.
func TestMaxSteps(t *testing.T) {
	t.Parallel()
	_, e := world(t, "Corridor", map[string]any{"kwargs": map[string]any{"length": 9}, "max_steps": 2})
	_, err := e.Reset(t.Context(), begin(0, map[string]any{"at": 0}))
	require.NoError(t, err)
	require.False(t, step(t, e, "1").Over())
	r := step(t, e, "up")
	require.True(t, r.Truncated)
	require.Equal(t, environments.Text(`There is no action "up"; actions are the numbers 0 to 1.`), r.Observation)
}

// What cannot be opened is one line that says what to do.
func TestRefused(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		params map[string]any
		want   string
	}{
		"nothing":       {map[string]any{}, "the class is missing; write class: FILE.py:CLASS"},
		"both":          {map[string]any{"class": "a:B", "id": "C-v1"}, "class and id are both given"},
		"no name":       {map[string]any{"class": "worlds.py"}, `class: "worlds.py" names no class`},
		"parameter":     {map[string]any{"class": "a:B", "kwarg": 1}, `unknown field "kwarg"`},
		"protocol":      {map[string]any{"class": "a:B", "protocol": "roll"}, `protocol: there is no "roll"; allowed: auto, gymnasium`},
		"file":          {map[string]any{"class": "missing.py:B"}, "missing.py: no such file"},
		"class":         {map[string]any{"class": worlds + ":World"}, "worlds.py has no World; its classes are Arena, "},
		"module":        {map[string]any{"class": "no_such_module:B"}, "B: the module no_such_module is missing; install its package: "},
		"command":       {map[string]any{"class": "no_such_module:B"}, " -m pip install no-such-module"},
		"interpreter":   {map[string]any{"class": "a:B", "interpreter": "no-such-python"}, "no-such-python"},
		"no protocol":   {map[string]any{"class": worlds + ":Nothing"}, "Nothing: the class offers no reset and step (Gymnasium, TextArena, OpenEnv), no init and step (skyrl-gym) and no reset with methods that are tools (TRL); its methods are play"},
		"wrong":         {map[string]any{"class": worlds + ":Nothing", "protocol": "gymnasium"}, "protocol gymnasium needs reset and step, which the class does not have"},
		"kwargs":        {map[string]any{"class": worlds + ":Corridor", "kwargs": map[string]any{"size": 1}}, "Corridor: kwargs: got an unexpected keyword argument 'size'"},
		"constructor":   {map[string]any{"class": worlds + ":Bad", "kwargs": map[string]any{"how": "constructor"}}, "Bad: RuntimeError: no"},
		"actions":       {map[string]any{"class": worlds + ":Corridor", "actions": []string{"a", "b", "c"}}, "actions: c: 2 is not one of the space's 2 actions, 0 to 1"},
		"list":          {map[string]any{"class": worlds + ":Bytes", "actions": []string{"low", "high"}}, "actions: a list is for a space whose actions are numbers, and this one is "},
		"value":         {map[string]any{"class": worlds + ":Bytes", "actions": map[string]any{"low": []any{0, 0}, "high": []any{0, 256}}}, "actions: high: [0, 256] is not one of the actions of the space "},
		"value's size":  {map[string]any{"class": worlds + ":Bytes", "actions": map[string]any{"low": 0}}, "actions: low: 0 is not one of the actions of the space "},
		"package":       {map[string]any{"class": worlds + ":Corridor", "requires": map[string]string{"no-such-package": "1.2"}}, "the package no-such-package is missing; install it: "},
		"version":       {map[string]any{"class": worlds + ":Corridor", "requires": map[string]string{"pip": "0.1"}}, " and 0.1 is needed: "},
		"render":        {map[string]any{"class": "a:B", "render": "human"}, `render: "human" is not known`},
		"render images": {map[string]any{"class": "a:B", "render": "rgb_array"}, "write images: true with it"},
		"show":          {map[string]any{"class": "a:B", "show": []string{"."}}, "write sandboxed: true with it"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := open(t, c.params)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "\n")
		})
	}
	t.Run("power", func(t *testing.T) {
		_, e := world(t, "Bad", nil)
		_, can := e.(environments.Stater)
		require.False(t, can)
	})
}

// Names of a space whose actions are several numbers are mapped to those.
func TestNamedActionsOfATuple(t *testing.T) {
	t.Parallel()
	s, e := world(t, "Bytes", map[string]any{"actions": map[string]any{"low": []any{0, 1}}})
	require.Equal(t, "Actions are low.", s.Spec().Instructions)
	_, err := e.Reset(t.Context(), begin(0, nil))
	require.NoError(t, err)
	require.Equal(t, environments.Text("did (0, 1)"), step(t, e, "low").Observation)
}

// Tasks of the splits have different seeds.
func TestTasks(t *testing.T) {
	t.Parallel()
	s, _ := world(t, "Corridor", nil)
	train, err := s.(environments.Tasker).Tasks(environments.Train, 3)
	require.NoError(t, err)
	eval, err := s.(environments.Tasker).Tasks(environments.Eval, 3)
	require.NoError(t, err)
	require.Equal(t, "seed-2", train[2].ID)
	require.Equal(t, "seed-1073741826", eval[2].ID)
	_, err = s.(environments.Tasker).Tasks("test", 3)
	require.ErrorContains(t, err, `there is no split "test"`)
}

// A class that takes long for its tasks holds up no environment.
func TestEnvironmentsBesideSlowTasks(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "go")
	s := source(t, map[string]any{"class": worlds + ":Slow", "kwargs": map[string]any{"file": file}})
	type tasks struct {
		all []trajectory.Task
		err error
	}
	asked := make(chan tasks, 1)
	go func() {
		all, err := s.(environments.Tasker).Tasks(environments.Train, 2)
		asked <- tasks{all, err}
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(file + ".asked"); return err == nil }, 20*time.Second, 10*time.Millisecond)
	made := make(chan environments.Environment, 1)
	go func() {
		e, err := s.New(t.Context(), "test")
		assert.NoError(t, err)
		made <- e
	}()
	select {
	case e := <-made:
		require.NoError(t, e.Close())
	case <-time.After(10 * time.Second):
		t.Error("an environment waits for tasks")
	}
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	got := <-asked
	require.NoError(t, got.err)
	require.Len(t, got.all, 2)
}

// Tools of a TRL class are no powers, whatever their names are; a state that cannot be set again is none either.
func TestToolsAreNoPowers(t *testing.T) {
	s, e := world(t, "Named", nil)
	require.Len(t, s.Spec().Tools, 6)
	_, stater := e.(environments.Stater)
	_, scorer := e.(environments.Scorer)
	_, chooser := e.(environments.Chooser)
	require.Equal(t, [3]bool{}, [3]bool{stater, scorer, chooser})
	_, err := e.Reset(t.Context(), begin(1, nil))
	require.NoError(t, err)
	require.NoError(t, e.(environments.Checker).Check(t.Context()))
	tasks, err := s.(environments.Tasker).Tasks(environments.Train, 1)
	require.NoError(t, err)
	require.Equal(t, "seed-0", tasks[0].ID)
	_, e = world(t, "Half", nil)
	_, stater = e.(environments.Stater)
	require.False(t, stater)
}

// An episode without a word on success in its info counts where its total reward reaches the parameter success, and only at its end.
func TestSuccess(t *testing.T) {
	play := func(e environments.Environment, actions ...string) (out []bool) {
		_, err := e.Reset(t.Context(), begin(0, nil))
		require.NoError(t, err)
		for _, a := range actions {
			out = append(out, step(t, e, a).Success)
		}
		return out
	}
	_, e := world(t, "Pole", nil)
	require.Equal(t, []bool{false, false, false}, play(e, "1", "1", "1"))
	s, e := world(t, "Pole", map[string]any{"success": 3})
	require.Equal(t, []bool{false, false, true}, play(e, "1", "1", "1"))
	require.Equal(t, []bool{false, false, false}, play(e, "4", "-2", "0"))
	require.Equal(t, []bool{false, false, true}, play(e, "1", "1", "1"))
	_, e = world(t, "Pole", map[string]any{"success": -110})
	require.Equal(t, []bool{false, false, false}, play(e, "-1", "-100", "-100"))
	require.Equal(t, []bool{false, false, true}, play(e, "-1", "-1", "-1"))
	_, e = world(t, "Words", map[string]any{"success": 1, "kwargs": map[string]any{}})
	_, err := e.Reset(t.Context(), begin(0, nil))
	require.NoError(t, err)
	solution, err := e.(environments.Solver).Solution(t.Context())
	require.NoError(t, err)
	var r environments.Result
	for _, a := range solution {
		r, err = e.Step(t.Context(), a)
		require.NoError(t, err)
	}
	require.True(t, r.Success)

	// The sum is part of the state.
	e = environment(t, s)
	require.Equal(t, []bool{false, false}, play(e, "1", "1"))
	state, err := e.(environments.Stater).State(t.Context())
	require.NoError(t, err)
	other := environment(t, s)
	_, err = other.Reset(t.Context(), begin(0, nil))
	require.NoError(t, err)
	require.NoError(t, other.(environments.Stater).Restore(t.Context(), state))
	require.True(t, step(t, other, "1").Success)
}

// A class whose episodes do not differ by seeds has no tasks of its own: held-out ones would be those of training.
func TestTasksNeedSeeds(t *testing.T) {
	s, _ := world(t, "Unseeded", nil)
	_, err := s.(environments.Tasker).Tasks(environments.Train, 3)
	require.EqualError(t, err, "Unseeded: its reset takes no seed, so that all tasks would be the same; give data files, a method tasks, or reset an argument seed")
}

// ./NAME is a folder beside the job file, which apptainer runs, from the job's own folder too: it is no name of an image of podman or docker.
func TestTheImageBesideTheJob(t *testing.T) {
	folder := t.TempDir()
	t.Chdir(folder)
	t.Setenv("PATH", folder)
	r := resources.New(resources.Options{Resolve: func(path string) string { return filepath.Join(".", path) }})
	_, err := pyenv.Kind().New(t.Context(), r, map[string]any{"class": "worlds:Words", "container": map[string]any{"image": "./world"}})
	require.ErrorContains(t, err, "the container engine apptainer is not on PATH")
	require.NoError(t, os.WriteFile("apptainer", nil, 0o755)) // nothing runs it
	_, err = pyenv.Kind().New(t.Context(), r, map[string]any{"class": "worlds:Words", "container": map[string]any{"image": "./world"}})
	require.ErrorContains(t, err, "the image \""+filepath.Join(folder, "world")+"\" is not on this machine")
}

// An interpreter with a slash is a path of the job: it is found beside the job file from every working folder.
func TestTheInterpreterBesideTheJob(t *testing.T) {
	needPython(t)
	python, err := exec.LookPath("python3")
	require.NoError(t, err)
	classes, err := filepath.Abs(worlds)
	require.NoError(t, err)
	folder := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(folder, "bin"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "bin", "python"), []byte("#!/bin/sh\nexec "+python+" \"$@\"\n"), 0o755))
	resolve := func(path string) string {
		if filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(folder, path)
	}
	r := resources.New(resources.Options{Resolve: resolve})
	defer r.Close()
	s, err := pyenv.Kind().New(t.Context(), r, map[string]any{"class": classes + ":Words", "interpreter": "bin/python"})
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

// A job that is only looked at imports no class, and yet an interpreter that is not there is found.
func TestLookFindsAMissingInterpreter(t *testing.T) {
	look := resources.New(resources.Options{Look: true})
	_, err := pyenv.New(t.Context(), look, pyenv.Options{Name: "world", Worker: pyenv.Worker{Interpreter: "no-such-python"}})
	require.ErrorContains(t, err, `the interpreter no-such-python is not found: exec: "no-such-python": executable file not found in $PATH`)
	for _, w := range []pyenv.Worker{{Interpreter: "sh"}, {}, {Interpreter: "no-such-python", Container: &pyenv.Container{Image: "world"}}} {
		_, err = pyenv.New(t.Context(), look, pyenv.Options{Name: "world", Worker: w})
		require.ErrorAs(t, err, new(*resources.NotRunError))
	}
}
