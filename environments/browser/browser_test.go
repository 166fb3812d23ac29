package browser_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/png"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/browser"
	"github.com/agentfly/agentfly/environments/environmenttest"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

func create(t testing.TB, params map[string]any) (environments.Source, error) {
	t.Helper()
	return browser.Kind().New(t.Context(), resources.New(resources.Options{}), params)
}

// open needs the package and Chromium.
func open(t testing.TB, params map[string]any) environments.Source {
	t.Helper()
	interpreter := os.Getenv("AGENTFLY_WORLDS_PYTHON")
	if interpreter == "" {
		t.Skip("AGENTFLY_WORLDS_PYTHON names no Python with miniwob; make test-env installs one")
	}
	params["interpreter"] = interpreter
	s, err := create(t, params)
	if err != nil && strings.HasPrefix(err.Error(), "chromium is missing") {
		t.Skip(err)
	}
	require.NoError(t, err)
	return s
}

func world(t testing.TB, params map[string]any) (environments.Source, environments.Environment) {
	t.Helper()
	s := open(t, params)
	e, err := s.New(t.Context(), "test")
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, e.Close())
		require.NoError(t, s.Close())
	})
	return s, e
}

func tasks(t testing.TB, s environments.Source, split string, n int) []trajectory.Task {
	t.Helper()
	out, err := s.(environments.Tasker).Tasks(split, n)
	require.NoError(t, err)
	return out
}

// pages is a folder that looks like the package's, and a program that looks like Chromium.
func pages(t *testing.T) (folder, chromium string) {
	folder = t.TempDir()
	for _, name := range []string{"core/core.js", "miniwob/click-test.html"} {
		file := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, nil, 0o644))
	}
	chromium = filepath.Join(folder, "chromium")
	require.NoError(t, os.WriteFile(chromium, []byte("#!/bin/sh\nexit 3\n"), 0o755))
	return folder, chromium
}

// What is wrong with the parameters is said before anything runs, and what is missing with the command that installs it.
func TestParameters(t *testing.T) {
	folder, chromium := pages(t)
	bare := filepath.Join(t.TempDir(), "python") // a Python that sees no packages
	require.NoError(t, os.WriteFile(bare, []byte("#!/bin/sh\nexec python3 -S \"$@\"\n"), 0o755))
	for want, params := range map[string]map[string]any{
		`observe: "sound" is not known`:           {"observe": "sound"},
		"max_steps must be above 0":               {"max_steps": 0},
		"width and height must be 100 to 4000":    {"width": 10},
		"chromium: there is no program /no/such;": {"chromium": "/no/such"},
		"is not the folder html of miniwob":       {"chromium": chromium, "pages": t.TempDir()},
		"the package miniwob is missing; install it: " + bare + " -m pip install miniwob==1.1.*": {"chromium": chromium, "interpreter": bare},
		`there is no task "click-tests" (did you mean "click-test"?); the tasks are`:             {"chromium": chromium, "pages": folder, "tasks": []string{"click-tests"}},
		`there is no task "../core"`: {"chromium": chromium, "pages": folder, "tasks": []string{"../core"}},
	} {
		_, err := create(t, params)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "\n")
	}
	t.Setenv("PATH", t.TempDir())
	_, err := create(t, map[string]any{})
	require.EqualError(t, err, "chromium is missing; install it: apt-get install chromium")
}

// Programs with a slash are paths of the job: they are found beside the job file.
func TestProgramsBesideTheJob(t *testing.T) {
	folder, _ := pages(t)
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "miniwob", "html"), 0o755))
	require.NoError(t, os.Rename(filepath.Join(folder, "core"), filepath.Join(folder, "miniwob", "html", "core")))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "python"), []byte("#!/bin/sh\necho "+filepath.Join(folder, "miniwob")+"\n"), 0o755))
	r := resources.New(resources.Options{Resolve: func(path string) string { return filepath.Join(folder, path) }})
	defer r.Close()
	_, err := browser.Kind().New(t.Context(), r, map[string]any{"chromium": "./chromium", "interpreter": "./python", "tasks": []string{"click-test"}})
	require.ErrorContains(t, err, `there is no task "click-test"`, "both were found, and the Python has no pages")
}

// short is a folder with a short name.
func short(t *testing.T) string {
	dir, err := os.MkdirTemp("/tmp", "afb")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// A program that is no browser is an error, and nothing of it is left.
func TestABrowserThatDoesNotStart(t *testing.T) {
	folder, chromium := pages(t)
	t.Setenv("TMPDIR", short(t))
	s, err := create(t, map[string]any{"chromium": chromium, "pages": folder, "tasks": []string{"click-test"}})
	require.NoError(t, err)
	_, err = s.New(t.Context(), "test")
	require.ErrorContains(t, err, "does not start")
	require.NoError(t, s.Close())
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "agentfly-browser-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// Folders of a killed process are swept, those of another owner and of a process that runs are not.
func TestSweep(t *testing.T) {
	folder, chromium := pages(t)
	t.Setenv("TMPDIR", short(t))
	s, err := create(t, map[string]any{"chromium": chromium, "pages": folder, "tasks": []string{"click-test"}})
	require.NoError(t, err)
	make := func(pid int, owner string) string {
		dir := filepath.Join(os.TempDir(), fmt.Sprintf("agentfly-browser-%d-%s", pid, owner))
		require.NoError(t, os.MkdirAll(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "owner"), []byte(owner), 0o600))
		return dir
	}
	dead, others, alive := make(1<<30, "mine"), make(1<<30, "theirs"), make(os.Getpid(), "mine")
	removed, err := s.(environments.Sweeper).Sweep(t.Context(), "mine")
	require.NoError(t, err)
	require.Equal(t, []string{dead}, removed)
	require.NoDirExists(t, dead)
	require.DirExists(t, others)
	require.DirExists(t, alive)
	require.NoError(t, s.Close())
}

// The solvers reach full reward on 110 tasks of eleven pages, and the same actions give the same episode.
func TestSolutions(t *testing.T) {
	s, e := world(t, map[string]any{})
	for i, task := range append(tasks(t, s, environments.Train, 55), tasks(t, s, environments.Eval, 55)...) {
		var all [][]environments.Result
		var firsts []environments.Observation
		for range 1 + (110-i)/100 {
			first, err := e.Reset(t.Context(), environments.Start{Task: task})
			require.NoError(t, err)
			solution, err := e.(environments.Solver).Solution(t.Context())
			require.NoError(t, err)
			var seen []environments.Result
			for _, a := range solution {
				r, err := e.Step(t.Context(), a)
				require.NoError(t, err)
				require.Empty(t, r.Failure, "%s: %s %s: %v", task.ID, a.Name, a.Arguments, r.Observation)
				seen = append(seen, r)
			}
			last := seen[len(seen)-1]
			require.True(t, last.Terminated && last.Success, "%s: %s\n%v\n%v", task.ID, first, solution, seen)
			require.Equal(t, 1.0, last.Reward, task.ID)
			all, firsts = append(all, seen), append(firsts, first)
		}
		require.Equal(t, all[0], all[len(all)-1], task.ID)
		require.Equal(t, firsts[0], firsts[len(firsts)-1], task.ID)
	}
}

// The mean score of a policy that takes a listed action at random.
func TestRandomPolicy(t *testing.T) {
	s, e := world(t, map[string]any{"max_steps": 5})
	random, sum := rand.New(rand.NewPCG(1, 2)), 0.0
	all := tasks(t, s, environments.Eval, 110)
	for _, task := range all {
		_, err := e.Reset(t.Context(), environments.Start{Task: task})
		require.NoError(t, err)
		for over := false; !over; {
			actions, err := e.(environments.Chooser).Actions(t.Context())
			require.NoError(t, err)
			var a environments.Action
			require.NoError(t, json.Unmarshal([]byte(actions[random.IntN(len(actions))]), &a))
			r, err := e.Step(t.Context(), a)
			require.NoError(t, err)
			sum, over = sum+r.Reward, r.Over()
		}
	}
	t.Logf("eleven pages, five steps: a random policy's mean score is %.2f", sum/float64(len(all)))
	require.Less(t, sum/float64(len(all)), 0.5)
}

// The pages keep what environments promise.
func TestConformance(t *testing.T) {
	environmenttest.Run(t, environmenttest.Case{
		Source: func(t testing.TB) environments.Source {
			return open(t, map[string]any{"tasks": []string{"login-user", "click-checkboxes"}})
		},
		Tasks: 4, TooMany: 1<<30 + 1, Random: 4,
		Kill: func(e environments.Environment) error { e.(interface{ Kill() }).Kill(); return nil },
	})
}

// A picture of the page is a part of the observation.
func TestScreenshot(t *testing.T) {
	s, e := world(t, map[string]any{"observe": "both", "tasks": []string{"login-user"}})
	o, err := e.Reset(t.Context(), environments.Start{Task: tasks(t, s, environments.Train, 1)[0]})
	require.NoError(t, err)
	require.Len(t, o, 2)
	data, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(o[1].Image, "data:image/png;base64,"))
	require.NoError(t, err)
	picture, err := png.Decode(strings.NewReader(string(data)))
	require.NoError(t, err)
	require.Equal(t, 160, picture.Bounds().Dx())
	require.Equal(t, 210, picture.Bounds().Dy())
}

// What the agent does wrong is said, and changes nothing; tasks that are wrong are the task's fault.
func TestTraps(t *testing.T) {
	s, e := world(t, map[string]any{"tasks": []string{"enter-text", "choose-list"}, "max_steps": 30})
	for want, fields := range map[string]map[string]any{
		`the task "login-user" is none of the job's`: {"task": "login-user"}, "no field": {"level": 1},
	} {
		_, err := e.Reset(t.Context(), environments.Start{Task: trajectory.Task{Fields: fields}})
		require.ErrorContains(t, err, want)
		require.ErrorAs(t, err, new(*environments.TaskError))
	}
	_, err := e.Reset(t.Context(), environments.Start{Seed: 1<<31 - 1})
	require.NoError(t, err)
	_, err = e.Reset(t.Context(), environments.Start{Task: tasks(t, s, environments.Train, 1)[0]})
	require.NoError(t, err)
	for want, call := range map[string][2]string{
		"There is no element [99].":            {"click", `{"ref":99}`},
		"There is no element [0].":             {"click", `{"ref":0}`},
		"click needs ref, or x and y.":         {"click", `{}`},
		"The page is 160 wide and 210 high.":   {"click", `{"x":1000,"y":3}`},
		"type needs ref.":                      {"type", `{"text":"a"}`},
		"The element [2] is no textbox and no": {"type", `{"ref":2,"text":"a"}`},
		"The text is too long":                 {"type", `{"ref":1,"text":"` + strings.Repeat("a", 10_001) + `"}`},
		`There is no key "F99"`:                {"press", `{"key":"F99"}`},
		"There is no such action":              {"fly", `{}`},
		"The arguments are no JSON object.":    {"click", `{"`},
	} {
		r, err := e.Step(t.Context(), environments.Action{Name: call[0], Arguments: json.RawMessage(call[1])})
		require.NoError(t, err)
		require.Equal(t, trajectory.FailurePolicy, r.Failure)
		require.Contains(t, r.Observation[0].Text, want)
	}
	for _, call := range [][2]string{{"type", `{"ref":1,"text":"héllo"}`}, {"press", `{"key":"Backspace"}`}, {"press", `{"key":"!"}`}, {"scroll", `{"down":50}`}, {"click", `{"x":3,"y":200}`}} {
		r, err := e.Step(t.Context(), environments.Action{Name: call[0], Arguments: json.RawMessage(call[1])})
		require.NoError(t, err)
		require.Empty(t, r.Failure, "%v", r.Observation)
		require.False(t, r.Over())
		if call[0] == "scroll" {
			require.Contains(t, r.Observation[0].Text, `value="héll!"`)
		}
	}
}

// An episode begins as a browser does that was never used: what a page wrote down in an earlier one is gone.
func TestEpisodesShareNothing(t *testing.T) {
	folder, _ := pages(t)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "miniwob", "click-test.html"), []byte(`<!doctype html><body><p id="kept"></p><script>
		var WOB_TASK_READY = false, WOB_DONE_GLOBAL = false, WOB_RAW_REWARD_GLOBAL = 0, WOB_REWARD_REASON = null;
		var core = {cover_div: {}, startEpisodeReal() { WOB_TASK_READY = true }, getUtterance: () => kept};
		Math.seedrandom = () => {};
		var kept = ['cookie ' + document.cookie, 'local ' + localStorage.a, 'session ' + sessionStorage.a, 'name ' + window.name, 'pages ' + history.length].join(', ');
		document.cookie = 'a=1; max-age=1000'; localStorage.a = 2; sessionStorage.a = 3; window.name = '4';
	</script>`), 0o644))
	s, err := create(t, map[string]any{"pages": folder, "tasks": []string{"click-test"}, "observe": "both"})
	if err != nil && strings.HasPrefix(err.Error(), "chromium is missing") {
		t.Skip(err)
	}
	require.NoError(t, err)
	e, err := s.New(t.Context(), "test")
	require.NoError(t, err)
	var first string
	for range 3 {
		o, err := e.Reset(t.Context(), environments.Start{})
		require.NoError(t, err)
		if first == "" {
			first = o[0].Text
		}
		require.Equal(t, first, o[0].Text)
		data, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(o[1].Image, "data:image/png;base64,"))
		require.NoError(t, err)
		picture, err := png.DecodeConfig(bytes.NewReader(data))
		require.NoError(t, err)
		require.Equal(t, [2]int{160, 210}, [2]int{picture.Width, picture.Height})
	}
	require.NoError(t, e.Close())
	require.NoError(t, s.Close())
}

// Nothing of a browser is left once it is closed or was killed: no process that names its folder, and no folder.
func TestNothingIsLeft(t *testing.T) {
	t.Setenv("TMPDIR", short(t))
	s := open(t, map[string]any{"tasks": []string{"click-test"}})
	for _, kill := range []bool{false, true} {
		e, err := s.New(t.Context(), "test")
		require.NoError(t, err)
		_, err = e.Reset(t.Context(), environments.Start{})
		require.NoError(t, err)
		require.NotEmpty(t, processes(t, os.TempDir()))
		if kill {
			e.(interface{ Kill() }).Kill()
			_, err = e.Reset(t.Context(), environments.Start{})
			require.Error(t, err)
		}
		require.NoError(t, e.Close())
		left, err := filepath.Glob(filepath.Join(os.TempDir(), "*"))
		require.NoError(t, err)
		require.Empty(t, left)
		require.Eventually(t, func() bool { return len(processes(t, os.TempDir())) == 0 }, 10*time.Second, 10*time.Millisecond)
	}
	require.NoError(t, s.Close())
}

// processes are those whose command line has a text.
func processes(t *testing.T, text string) (out []string) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), text) {
			out = append(out, f)
		}
	}
	return out
}
