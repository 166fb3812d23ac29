package repository

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/boxed"
	"github.com/agentfly/agentfly/environments/environmenttest"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/sandbox"
	"github.com/agentfly/agentfly/trajectory"
)

// eachKind runs a test in every kind of sandbox that this machine can open.
func eachKind(t *testing.T, f func(t *testing.T, kind string)) {
	for _, kind := range []string{sandbox.Bubblewrap, sandbox.Landlock} {
		t.Run(kind, func(t *testing.T) {
			if _, err := sandbox.Open(t.Context(), kind); err != nil {
				t.Skip("this machine has no ", kind, ": ", err)
			}
			f(t, kind)
		})
	}
}

func open(t testing.TB, kind string, params map[string]any) (environments.Source, error) {
	r := resources.New(resources.Options{Sandbox: kind, Warn: func(s string) { t.Log(s) }})
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return New(context.Background(), r, params)
}

// player opens an environment.
func player(t testing.TB, kind string, params map[string]any) environments.Environment {
	t.Helper()
	s, err := open(t, kind, params)
	require.NoError(t, err)
	e, err := s.New(t.Context(), "test")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()); require.NoError(t, s.Close()) })
	return e
}

func task(fields map[string]any) environments.Start {
	return environments.Start{Task: trajectory.Task{ID: "t", Fields: fields}}
}

func reset(t testing.TB, e environments.Environment, fields map[string]any) string {
	t.Helper()
	o, err := e.Reset(t.Context(), task(fields))
	require.NoError(t, err)
	return environments.TextOf(o)
}

func sh(t testing.TB, e environments.Environment, script string) string {
	t.Helper()
	args, err := json.Marshal(map[string]string{"command": script})
	require.NoError(t, err)
	r, err := e.Step(t.Context(), environments.Action{Name: "shell", Arguments: args})
	require.NoError(t, err)
	return environments.TextOf(r.Observation)
}

func send(t testing.TB, e environments.Environment) (environments.Result, error) {
	return e.Step(t.Context(), environments.Action{Name: boxed.SubmitName, Arguments: []byte(`{}`)})
}

func reward(t testing.TB, e environments.Environment) float64 {
	t.Helper()
	r, err := send(t, e)
	require.NoError(t, err)
	require.True(t, r.Terminated)
	require.Equal(t, r.Reward == 1, r.Success)
	score, err := e.(environments.Scorer).Score(t.Context())
	require.NoError(t, err)
	require.InDelta(t, r.Reward, score, 0)
	return r.Reward
}

func solve(t testing.TB, e environments.Environment) {
	t.Helper()
	actions, err := e.(environments.Solver).Solution(t.Context())
	require.NoError(t, err)
	for _, a := range actions[:len(actions)-1] {
		r, err := e.Step(t.Context(), a)
		require.NoError(t, err)
		require.Equal(t, "(no output)", environments.TextOf(r.Observation))
	}
}

func TestConformance(t *testing.T) {
	environmenttest.Run(t, environmenttest.Case{
		Source: func(t testing.TB) environments.Source {
			s, err := open(t, sandbox.Auto, map[string]any{"max_steps": 8})
			require.NoError(t, err)
			return s
		},
		Steps: 8, Parallel: true,
	})
}

// On 100 held-out packages the planted fault is found by the hidden tests, and mending it is full reward.
func TestGeneratedPackages(t *testing.T) {
	s, err := open(t, sandbox.Auto, nil)
	require.NoError(t, err)
	defer s.Close()
	e, err := s.New(t.Context(), "test")
	require.NoError(t, err)
	defer e.Close()
	tasks, err := s.(environments.Tasker).Tasks(environments.Eval, 100)
	require.NoError(t, err)
	for _, task := range tasks {
		p := generate(1, task.Fields["level"].(int64))
		require.NotEqual(t, p.files(true), p.files(false), p.problem)
		_, err := e.Reset(t.Context(), environments.Start{Task: task})
		require.NoError(t, err)
		require.Zero(t, reward(t, e), "nothing was mended in %s: %s", p.path, p.fault)
		answers := s.(*source).control(p.id).answers
		require.Len(t, answers, len(p.calls))
		for _, answer := range answers {
			require.Contains(t, answer, `"value"`)
		}
		_, err = e.Reset(t.Context(), environments.Start{Task: task})
		require.NoError(t, err)
		solve(t, e)
		require.InDelta(t, 1, reward(t, e), 0, p.path)
	}
}

// Two packages whose tasks read the same have calls of their own, and each is judged by its own values.
func TestPackagesOfOneText(t *testing.T) {
	e := player(t, sandbox.Auto, nil)
	levels, text := map[string]int64{}, ""
	var one, other int64
	for level := int64(0); text == ""; level++ {
		p := generate(1, level)
		if before, ok := levels[p.problem]; ok {
			text, one, other = p.problem, before, level
		}
		levels[p.problem] = level
	}
	require.NotEqual(t, generate(1, one).calls, generate(1, other).calls)
	for _, seed := range []int64{one, other} { // without a level the seed is the package's number
		o, err := e.Reset(t.Context(), environments.Start{Seed: seed})
		require.NoError(t, err)
		require.Equal(t, text, environments.TextOf(o))
		solve(t, e)
		require.InDelta(t, 1, reward(t, e), 0, "package %d", seed)
	}
}

// Nothing that an agent writes or leaves behind passes hidden tests but a package that does what it should.
func TestAttacks(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		e := player(t, kind, map[string]any{"seconds": 5, "timeout": 5})
		begin := func() *pack {
			reset(t, e, map[string]any{"level": 3})
			return generate(1, 3)
		}
		p := begin()
		module := strings.TrimSuffix(p.path, ".py")
		for name, script := range map[string]string{
			"an exit":         "echo 'import os; os._exit(0)' >>" + p.path,
			"a crash":         "echo 'raise SystemExit(0)' >" + p.name + "/__init__.py",
			"no package":      "rm -rf *",
			"equal to all":    "cat >" + p.path + " <<'E'\nclass All(dict):\n    __eq__ = lambda *a: True\n    __hash__ = None\nimport unittest\nunittest.TestCase.assertEqual = lambda *a: None\n" + "def " + strings.Split(p.calls[0][1].(string), ".")[0] + "(*a):\n    return All()\nE",
			"json":            "echo 'dumps = loads = lambda *a: \"{}\"' >json.py; echo 'import os; os._exit(0)' >sitecustomize.py",
			"a report":        "cat >>" + p.name + "/__init__.py <<'E'\nimport os\nfor d in range(3, 30):\n    try: os.write(d, b'{\"value\": 1}\\n' * 500)\n    except OSError: pass\nE",
			"a hang":          "echo 'while True: pass' >>" + p.path,
			"a huge value":    "printf 'def " + p.calls[0][1].(string) + "(*a): return \"x\" * (1 << 25)\\n' >" + p.path,
			"a fork bomb":     "cat >>" + p.path + " <<'E'\nimport os\nwhile True:\n    try: os.fork()\n    except OSError: pass\nE",
			"links":           "rm -rf " + p.name + " && ln -s /proc/self/root " + p.name,
			"a closed folder": "chmod 000 . " + module + ".py",
		} {
			t.Run(name, func(t *testing.T) {
				begin()
				sh(t, e, script)
				require.Zero(t, reward(t, e))
			})
		}
		begin()
		solve(t, e)
		require.InDelta(t, 1, reward(t, e), 0, "the environment is as before")
	})
}

// What is started in the background is gone before the tests, and a file that it would mend later stays as it was.
func TestProcessesEnd(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		e := player(t, kind, nil)
		reset(t, e, map[string]any{"level": 5})
		p := generate(1, 5)
		sh(t, e, "cat >good <<'E'\n"+p.good[p.path]+"E\n(setsid nohup sh -c 'sleep 0.3; while true; do cp good "+p.path+"; touch late; done' >/dev/null 2>&1 &)")
		require.Zero(t, reward(t, e))
	})
}

// repo makes a git repository with a base commit, and the commit that mends it after it.
func repo(t testing.TB, dir string) (base, later string) {
	t.Helper()
	git := func(args ...string) string {
		c := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=x", "-c", "user.email=x@y", "-c", "commit.gpgsign=false"}, args...)...)
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
	put := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	require.NoError(t, os.MkdirAll(dir, 0o755))
	git("init", "-q")
	put("calc/__init__.py", "def add(a, b):\n    return a - b\n\n\ndef same(a):\n    return a\n")
	put("tests/__init__.py", "")
	put("tests/data/old", "1")
	put("tests/test_calc.py", "import unittest\nfrom calc import same\n\n\nclass TestCalc(unittest.TestCase):\n    def test_same(self):\n        self.assertEqual(same(2), 2)\n")
	git("add", "-A")
	git("commit", "-q", "-m", "base")
	base = git("rev-parse", "HEAD")
	put("calc/__init__.py", "def add(a, b):\n    return a + b\n\n\ndef same(a):\n    return a\n")
	git("commit", "-q", "-a", "-m", "the-answer")
	return base, git("rev-parse", "HEAD")
}

const (
	goldPatch = "diff --git a/calc/__init__.py b/calc/__init__.py\n--- a/calc/__init__.py\n+++ b/calc/__init__.py\n@@ -1,3 +1,3 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n \n"
	testPatch = "diff --git a/tests/test_calc.py b/tests/test_calc.py\n--- a/tests/test_calc.py\n+++ b/tests/test_calc.py\n@@ -1,7 +1,10 @@\n import unittest\n-from calc import same\n+from calc import add, same\n \n \n class TestCalc(unittest.TestCase):\n     def test_same(self):\n         self.assertEqual(same(2), 2)\n+\n+    def test_add(self):\n+        self.assertEqual(add(2, 3), 5)\n"
)

// instanceFile writes instances, each of which begins as one of SWE-bench and is changed.
func instanceFile(t testing.TB, dir, base string, changes ...map[string]any) string {
	t.Helper()
	var b strings.Builder
	for n, c := range changes {
		l := map[string]any{
			"instance_id": fmt.Sprintf("calc-%d", n), "repo": "x/calc", "base_commit": base, "problem_statement": fmt.Sprintf("add(2, 3) is not 5 (%d)", n),
			"patch": goldPatch, "test_patch": testPatch, "FAIL_TO_PASS": `["tests/test_calc.py::TestCalc::test_add"]`, "PASS_TO_PASS": []string{"tests/test_calc.py::TestCalc::test_same"},
		}
		for k, v := range c {
			l[k] = v
		}
		text, err := json.Marshal(l)
		require.NoError(t, err)
		fmt.Fprintf(&b, "%s\n", text)
	}
	path := filepath.Join(dir, "instances.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o644))
	return path
}

// deletion is a part of a test patch that removes a file, with which its folder goes.
const deletion = "diff --git a/tests/data/old b/tests/data/old\ndeleted file mode 100644\n--- a/tests/data/old\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n\\ No newline at end of file\n"

func needGit(t testing.TB) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is missing here: ", err)
	}
}

func TestInstances(t *testing.T) {
	needGit(t)
	eachKind(t, func(t *testing.T, kind string) {
		dir := t.TempDir()
		source := filepath.Join(dir, "x__calc")
		base, later := repo(t, source)
		for _, form := range []string{"tar", "tgz", "plain"} {
			to := filepath.Join(dir, form)
			require.NoError(t, os.MkdirAll(to, 0o755))
			script := map[string]string{
				"tar": "tar -C " + dir + " -cf " + to + "/s.tar x__calc", "tgz": "tar -C " + source + " -czf " + to + "/s.tgz .",
				"plain": "git clone -q " + source + " " + to + "/s && cd " + to + "/s && git checkout -q " + base + " && rm -rf .git",
			}[form]
			out, err := exec.Command("bash", "-c", script).CombinedOutput()
			require.NoError(t, err, "%s", out)
		}
		out, err := exec.Command("git", "-C", source, "bundle", "create", "-q", filepath.Join(dir, "s.bundle"), "HEAD").CombinedOutput()
		require.NoError(t, err, "%s", out)
		names := map[string]any{"instance_id": "unittest names", "FAIL_TO_PASS": []string{"test_add (tests.test_calc.TestCalc)"}, "PASS_TO_PASS": []string{"test_same (tests.test_calc.TestCalc)"}}
		file := instanceFile(t, dir, base, nil, map[string]any{"snapshot": "tar/s"}, map[string]any{"snapshot": "tgz/s"}, map[string]any{"snapshot": "plain/s"}, map[string]any{"snapshot": "s.bundle"}, names,
			map[string]any{"instance_id": "deletes", "test_patch": testPatch + deletion})
		e := player(t, kind, map[string]any{"instances": file})
		for _, name := range []string{"calc-0", "calc-1", "calc-2", "calc-3", "calc-4", "unittest names", "deletes"} {
			t.Run(name, func(t *testing.T) {
				require.Contains(t, reset(t, e, map[string]any{"instance": name}), "add(2, 3) is not 5")
				said := sh(t, e, "ls -a; git log --all --oneline; git show "+later+"; grep -rn 'test_add\\|the-answer' . ; python3 -m unittest 2>&1 | tail -n 1; cat calc/__init__.py")
				require.Contains(t, said, "a - b")
				require.Contains(t, said, "OK", "the visible tests pass")
				require.NotContains(t, said, "test_add")
				require.NotContains(t, said, "the-answer")
				require.NotContains(t, said, "a + b")
				require.Zero(t, reward(t, e))
				reset(t, e, map[string]any{"instance": name})
				solve(t, e)
				require.InDelta(t, 1, reward(t, e), 0)
			})
		}
		reset(t, e, map[string]any{"instance": "calc-0"})
		solve(t, e)
		sh(t, e, "echo 'import atexit, os; atexit.register(os.kill, os.getpid(), 11)' >>calc/__init__.py")
		require.InDelta(t, 1, reward(t, e), 0, "a program that crashes after its report, as with some native libraries")
		// Tests and what they begin with are put in place at the end, whatever an agent put there.
		for name, script := range map[string]string{
			"own tests":    "echo 'import unittest' >tests/test_calc.py",
			"a folder":     "rm -rf tests/test_calc.py; mkdir -p tests/test_calc.py/x",
			"a pipe":       "rm tests/test_calc.py; mkfifo tests/test_calc.py",
			"a link":       "rm -rf tests; ln -s / tests",
			"a file":       "rm -rf tests; touch tests",
			"a data file":  "rm -rf tests/data; touch tests/data",
			"a data link":  "rm -rf tests/data; ln -s / tests/data",
			"data loops":   "rm -rf tests/data; ln -s data tests/data",
			"data inside":  "mkdir kept; echo 1 >kept/old; rm -rf tests/data; ln -s ../kept tests/data",
			"git":          "echo '[core]\n\tfsmonitor = touch /tmp/x' >.git/config; echo '*.py filter=x' >.gitattributes",
			"no rights":    "chmod 500 tests/test_calc.py calc; chmod 000 tests",
			"no root":      "chmod 000 .",
			"exit":         "echo 'import os; os._exit(0)' >>calc/__init__.py",
			"conftest":     "echo 'import calc; calc.add = lambda a, b: 5' >conftest.py; echo 'import builtins' >sitecustomize.py",
			"other breaks": "sed -i 's/a - b/a + b/; s/    return a$/    return 7/' calc/__init__.py",
		} {
			t.Run(name, func(t *testing.T) {
				reset(t, e, map[string]any{"instance": "deletes"})
				sh(t, e, script)
				require.Zero(t, reward(t, e))
				for _, name := range startsWith { // pytest would run it with the tests
					require.NoFileExists(t, filepath.Join(e.(*environment).folder.Dir(), name))
				}
				if name == "data inside" {
					require.FileExists(t, filepath.Join(e.(*environment).folder.Dir(), "kept", "old"), "it is no file of the test patch")
				}
			})
		}
	})
}

// The files of a test patch are put in place whatever a patch says of them: that they are there and empty, have another name, or may run.
func TestFilesOfATestPatch(t *testing.T) {
	needGit(t)
	for name, c := range map[string]struct{ before, after, number string }{
		"an empty file":      {":", "touch tests/data/empty", "len(open('tests/data/empty').read()) + 3"},
		"a name in quotes":   {":", "touch 'tests/data/l\u00e4ng lich'", "len(open('tests/data/l\u00e4ng lich').read()) + 3"},
		"a renamed file":     {"echo 3 >tests/data/a", "git mv tests/data/a tests/data/b", "int(open('tests/data/b').read())"},
		"spaces in a name":   {"echo 3 >'tests/data/a b'", "git mv 'tests/data/a b' 'tests/data/b c'", "int(open('tests/data/b c').read())"},
		"a copied file":      {"echo 3 >tests/data/a", "cp tests/data/a tests/data/b", "int(open('tests/data/b').read())"},
		"copy of the mended": {":", "cp calc/__init__.py tests/copy.py", "3"},
		"copy with a change": {":", "sed 's/a - b/a - b - 1/' calc/__init__.py >tests/copy.py", "3"},
		"a binary file":      {":", "printf 'a\\0b' >tests/data/binary", "len(open('tests/data/binary').read())"},
		"a script":           {"printf '#!/bin/sh\\necho 2\\n' >tests/run; chmod +x tests/run", "sed -i s/2/3/ tests/run", "int(__import__('subprocess').check_output(['tests/run']))"},
		"a new right to run": {"printf '#!/bin/sh\\necho 3\\n' >tests/run", "chmod +x tests/run", "int(__import__('subprocess').check_output(['tests/run']))"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			from := filepath.Join(dir, "x__calc")
			repo(t, from)
			run := func(script string) string {
				c := exec.Command("bash", "-ec", script)
				c.Dir = from
				out, err := c.CombinedOutput()
				require.NoError(t, err, "%s", out)
				return string(out)
			}
			base := run("git checkout -q HEAD~1; mkdir -p tests/data; touch tests/data/kept; " + c.before + "; git add -A; git -c user.name=x -c user.email=x@y commit -qm before; git rev-parse HEAD")
			patch := run(c.after + "; sed -i 's/import same/import add, same/' tests/test_calc.py; cat >>tests/test_calc.py" +
				" <<'E'\n\n    def test_add(self):\n        self.assertEqual(add(2, " + c.number + "), 5)\nE\ngit add -A; git diff -M -C -C --binary HEAD")
			e := player(t, sandbox.Auto, map[string]any{"instances": instanceFile(t, dir, strings.TrimSpace(base), map[string]any{"test_patch": patch})})
			reset(t, e, map[string]any{"instance": "calc-0"})
			solve(t, e)
			r, err := send(t, e)
			require.NoError(t, err)
			require.InDelta(t, 1, r.Reward, 0, "%v\n%s\n%s", r.Info["failed"], r.Info["tests"], patch)
		})
	}
}

// An archive of a repository with one visible folder beside hidden files is the repository, and not a folder around it.
func TestArchiveWithHiddenFiles(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	out, err := exec.Command("bash", "-ec", "cd "+dir+"; mkdir -p r/src/calc r/.github; touch r/.github/x r/src/calc/__init__.py; tar -C r -czf s.tgz .").CombinedOutput()
	require.NoError(t, err, "%s", out)
	e := player(t, sandbox.Auto, map[string]any{"instances": instanceFile(t, dir, "", map[string]any{"snapshot": "s.tgz"})})
	reset(t, e, map[string]any{"instance": "calc-0"})
	require.Equal(t, "./.github/x\n./src/calc/__init__.py", sh(t, e, "find . -path ./.git -prune -o -type f -print | sort"))
}

// An instance whose tests cannot pass on this machine is the infrastructure's failure, not the agent's.
func TestInstanceThatDoesNotWorkHere(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	base, _ := repo(t, filepath.Join(dir, "x__calc"))
	needs := strings.Replace(testPatch, "+from calc import add, same", "+import numpy_of_1999\n+from calc import add, same", 1)
	needs = strings.Replace(needs, "@@ -1,7 +1,10 @@", "@@ -1,7 +1,11 @@", 1)
	file := instanceFile(t, dir, base,
		map[string]any{"test_patch": needs}, map[string]any{"patch": ""}, map[string]any{"patch": "", "test_patch": needs}, map[string]any{"base_commit": strings.Repeat("0", 40)})
	e := player(t, sandbox.Auto, map[string]any{"instances": file})
	reset(t, e, map[string]any{"instance": "calc-0"})
	_, err := send(t, e)
	require.ErrorContains(t, err, "calc-0: the instance does not work on this machine: without an agent, tests/test_calc.py::TestCalc::test_add is not there")
	require.ErrorContains(t, err, "numpy_of_1999")
	reset(t, e, map[string]any{"instance": "calc-1"})
	require.Zero(t, reward(t, e), "PASS_TO_PASS holds without an agent")
	reset(t, e, map[string]any{"instance": "calc-2"})
	_, err = send(t, e)
	require.ErrorContains(t, err, "does not work on this machine")
	_, err = e.Reset(t.Context(), task(map[string]any{"instance": "calc-3"}))
	var wrong *environments.TaskError
	require.ErrorAs(t, err, &wrong)
	require.ErrorContains(t, err, "its snapshot x__calc does not become a repository at 0000")
}

func TestR2E(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	_, later := repo(t, filepath.Join(dir, "calc"))
	code := "import unittest\nfrom calc import add\n\n\nclass TestAdd(unittest.TestCase):\n    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n\n    def test_never(self):\n        self.assertEqual(1, 2)\n"
	executed, err := json.Marshal(map[string]any{"test_file_codes": []string{code}, "test_file_names": []string{"test_1.py"}})
	require.NoError(t, err)
	line, err := json.Marshal(map[string]any{
		"repo_name": "calc", "commit_hash": later, "problem_statement": "add is wrong", "execution_result_content": string(executed),
		"expected_output_json": `{"TestAdd.test_add": "PASSED", "\u001b[1mTestAdd.test_never\u001b[0m - AssertionError": "FAILED"}`,
	})
	require.NoError(t, err)
	file := filepath.Join(dir, "r2e.jsonl")
	require.NoError(t, os.WriteFile(file, append(line, '\n'), 0o600))
	e := player(t, sandbox.Auto, map[string]any{"instances": file})
	require.Equal(t, "add is wrong", reset(t, e, nil))
	require.NotContains(t, sh(t, e, "ls; grep -r TestAdd ."), "r2e_tests")
	require.Zero(t, reward(t, e))
	reset(t, e, nil)
	sh(t, e, "sed -i 's/a - b/a + b/' calc/__init__.py")
	require.InDelta(t, 1, reward(t, e), 0)
}

// A parameter may be written in any case, and instances have limits of their own.
func TestLimitsOfInstances(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "x__calc"), 0o755))
	for _, key := range []string{"instances", "Instances"} {
		s, err := open(t, sandbox.Auto, map[string]any{key: instanceFile(t, dir, "", nil), "memory": 2048})
		require.NoError(t, err)
		p := s.(*source).params
		require.Equal(t, []int{600, 2048, 1024}, []int{p.Timeout, p.Memory, p.Disk}, key)
		require.NoError(t, s.Close())
	}
}

func TestBrokenInstances(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "x__calc"), 0o755))
	for name, c := range map[string]struct {
		change map[string]any
		want   string
	}{
		"id":        {map[string]any{"instance_id": ""}, "line 1: it has no instance_id"},
		"problem":   {map[string]any{"problem_statement": " "}, "calc-0 has no problem_statement"},
		"commit":    {map[string]any{"base_commit": "--upload-pack=x"}, "is no commit"},
		"no tests":  {map[string]any{"FAIL_TO_PASS": "[]"}, "calc-0 has no FAIL_TO_PASS or no test_patch"},
		"no list":   {map[string]any{"FAIL_TO_PASS": "[1"}, "line 1: it is no instance"},
		"outside":   {map[string]any{"test_patch": "--- a/../x\n+++ b/../x\n"}, "out of the repository"},
		"no patch":  {map[string]any{"test_patch": "hello"}, "it changes no file"},
		"snapshot":  {map[string]any{"repo": "a/b"}, "no snapshot of its repository lies in"},
		"r2e":       {map[string]any{"expected_output_json": "{}"}, "expected_output_json cannot be read, or is empty"},
		"r2e files": {map[string]any{"expected_output_json": `{"a":"PASSED"}`, "execution_result_content": `{"test_file_codes":["x"],"test_file_names":["../../x"]}`}, `names the file "../../x"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := open(t, sandbox.Auto, map[string]any{"instances": instanceFile(t, dir, strings.Repeat("a", 40), c.change)})
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "\n")
		})
	}
	_, err := open(t, sandbox.Auto, map[string]any{"instances": instanceFile(t, dir, "", nil, map[string]any{"instance_id": "calc-0"})})
	require.ErrorContains(t, err, `line 2: the instance "calc-0" is there twice`)
	for want, params := range map[string]map[string]any{
		"timeout is 0": {"timeout": 0}, "snapshots are those of instances": {"snapshots": "x"}, "no such file": {"instances": "none.jsonl"}, "show: stat": {"show": []string{"/no/such"}},
	} {
		_, err := open(t, sandbox.Auto, params)
		require.ErrorContains(t, err, want)
	}
	empty := filepath.Join(dir, "empty")
	require.NoError(t, os.WriteFile(empty, []byte("\n"), 0o600))
	_, err = open(t, sandbox.Auto, map[string]any{"instances": empty})
	require.ErrorContains(t, err, "empty has none")
}

// A test that fails as it is expected to has passed, and one of PASS_TO_PASS may be skipped, as with SWE-bench's own harness. One of FAIL_TO_PASS that
// is skipped has not passed: the agent's code can raise SkipTest.
func TestExpectedFailures(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	base, _ := repo(t, filepath.Join(dir, "x__calc"))
	added := "+    @unittest.expectedFailure\n+    def test_known(self):\n+        self.assertEqual(add(2, 3), 6)\n+\n+    @unittest.skip('elsewhere')\n+    def test_skipped(self):\n+        pass\n"
	patch := strings.Replace(testPatch, "@@ -1,7 +1,10 @@", "@@ -1,7 +1,18 @@", 1) + "+\n" + added
	id := func(name string) string { return "tests/test_calc.py::TestCalc::" + name }
	file := instanceFile(t, dir, base,
		map[string]any{"test_patch": patch, "PASS_TO_PASS": []string{id("test_known"), id("test_skipped")}},
		map[string]any{"test_patch": patch, "FAIL_TO_PASS": []string{id("test_add"), id("test_skipped")}})
	e := player(t, sandbox.Auto, map[string]any{"instances": file})
	reset(t, e, map[string]any{"instance": "calc-0"})
	solve(t, e)
	require.InDelta(t, 1, reward(t, e), 0)
	reset(t, e, map[string]any{"instance": "calc-0"})
	sh(t, e, "sed -i 's/return a - b/raise __import__(\"unittest\").SkipTest/' calc/__init__.py")
	require.Zero(t, reward(t, e))
	reset(t, e, map[string]any{"instance": "calc-1"})
	solve(t, e)
	_, err := send(t, e)
	require.ErrorContains(t, err, "test_skipped is SKIPPED")
}

// SWE-bench's lists have the names of pytest up to the first blank, which may be those of several tests.
func TestNamesUpToABlank(t *testing.T) {
	require.Equal(t, map[string]string{"t.py::a[1": "FAILED", "t.py::b[x": "XFAIL"}, byFirstWord(map[string]string{
		"t.py::a[1 + 1]": "PASSED", "t.py::a[1 + 2]": "FAILED", "t.py::a[1 + 3]": "XFAIL", "t.py::b[x y]": "XFAIL", "t.py::b[x z]": "PASSED", "t.py::c": "PASSED", "test_e (t.E)": "PASSED",
	}))
}

// With pytest, which programs find in a folder that is shown to them, its names and reports count.
func TestPytest(t *testing.T) {
	needGit(t)
	site := os.Getenv("AGENTFLY_TEST_PYTEST")
	if site == "" {
		t.Skip("AGENTFLY_TEST_PYTEST names no folder with pytest: pip install --target FOLDER pytest")
	}
	eachKind(t, func(t *testing.T, kind string) {
		dir := t.TempDir()
		base, _ := repo(t, filepath.Join(dir, "x__calc"))
		patch := "diff --git a/tests/test_new.py b/tests/test_new.py\nnew file mode 100644\n--- /dev/null\n+++ b/tests/test_new.py\n@@ -0,0 +1,7 @@\n+import pytest\n+from calc import add\n+\n+\n+@pytest.mark.parametrize('a', [1, 2])\n+def test_add(a):\n+    assert add(a, 1) == a + 1\n"
		more := strings.Replace(patch, "+1,7 @@", "+1,18 @@", 1) + "+\n+\n+@pytest.mark.xfail(reason='known')\n+def test_known():\n+    assert add(2, 1) == 4\n" +
			"+\n+\n+class TestOld(__import__('unittest').TestCase):\n+    @__import__('unittest').expectedFailure\n+    def test_known(self):\n+        assert add(2, 1) == 4\n"
		more = strings.Replace(more, "[1, 2]", "[1, 2], ids=['1 + 1', '1 + 2']", 1)
		file := instanceFile(t, dir, base, map[string]any{"test_patch": patch, "FAIL_TO_PASS": []string{"tests/test_new.py::test_add[1]", "tests/test_new.py::test_add[2]"}},
			map[string]any{"test_patch": more, "FAIL_TO_PASS": []string{"tests/test_new.py::test_add[1"}, "PASS_TO_PASS": []string{"tests/test_new.py::test_known", "tests/test_new.py::TestOld::test_known"}},
			map[string]any{"test_patch": more, "FAIL_TO_PASS": []string{"tests/test_new.py::TestOld::test_known"}, "PASS_TO_PASS": []string{"tests/test_new.py::test_known"}},
			map[string]any{"test_patch": strings.Replace(strings.Replace(patch, "+1,7 @@", "+1,8 @@", 1), "+@pytest", "+@pytest.mark.xfail(False, reason='no more')\n+@pytest", 1), "FAIL_TO_PASS": []string{"tests/test_new.py::test_add[1]", "tests/test_new.py::test_add[2]"}})
		e := player(t, kind, map[string]any{"instances": file, "show": []string{site}})
		reset(t, e, map[string]any{"instance": "calc-1"})
		require.Zero(t, reward(t, e))
		reset(t, e, map[string]any{"instance": "calc-1"})
		solve(t, e)
		require.InDelta(t, 1, reward(t, e), 0)
		reset(t, e, map[string]any{"instance": "calc-2"})
		require.InDelta(t, 1, reward(t, e), 0, "its tests fail as they are expected to")
		first := map[string]any{"instance": "calc-0"}
		reset(t, e, first)
		sh(t, e, "sed -i 's/return a - b/__import__(\"pytest\").xfail(\"x\")/' calc/__init__.py") // no test is marked
		require.Zero(t, reward(t, e))
		mark := map[string]any{"instance": "calc-3"}
		reset(t, e, mark)
		sh(t, e, "sed -i 's/return a - b/__import__(\"pytest\").xfail(\"x\")/' calc/__init__.py")
		require.Zero(t, reward(t, e), "the condition of the mark is false")
		reset(t, e, mark)
		solve(t, e)
		require.InDelta(t, 1, reward(t, e), 0)
		reset(t, e, first)
		sh(t, e, "echo 'import calc; calc.add = lambda a, b: a + b' >conftest.py; mkdir -p tests; cp conftest.py tests; printf '[pytest]\\naddopts = --co\\n' >pytest.ini")
		require.Zero(t, reward(t, e))
		reset(t, e, first)
		solve(t, e)
		require.InDelta(t, 1, reward(t, e), 0)
	})
}

// A deadline of the step that is nearer than that of the tests is the job's fault, and the last action of an episode has the tests run.
func TestLimits(t *testing.T) {
	e := player(t, sandbox.Auto, map[string]any{"max_steps": 1, "timeout": 100})
	reset(t, e, map[string]any{"level": 3})
	p := generate(1, 3)
	args, err := json.Marshal(map[string]string{"command": "echo 'while True: pass' >>" + p.path})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err = e.Step(ctx, environments.Action{Name: "shell", Arguments: args})
	require.ErrorContains(t, err, "give environment.step_timeout more")

	reset(t, e, map[string]any{"level": 3})
	r, err := e.Step(t.Context(), environments.Action{Name: "file_list", Arguments: []byte(`{}`)})
	require.NoError(t, err)
	require.True(t, r.Truncated && !r.Terminated)
	require.Contains(t, environments.TextOf(r.Observation), "That was the last of 1 actions. The hidden tests do not pass.")
}

// The file tools write as long as the folder stays within the parameter disk, whatever a workspace of the job's tools may hold.
func TestFileToolsHaveTheRoomOfTheEnvironment(t *testing.T) {
	e := player(t, sandbox.Auto, map[string]any{"disk": 128})
	create := func() environments.Result {
		r, err := e.Step(t.Context(), environments.Action{Name: "file_create", Arguments: []byte(`{"path":"new","content":"x"}`)})
		require.NoError(t, err)
		return r
	}
	for _, c := range []struct{ size, want string }{{"100M", "new has 1 line"}, {"128M", "the workspace is full; at most 134217728 bytes are allowed"}} {
		reset(t, e, map[string]any{"level": 3})
		require.Equal(t, "(no output)", sh(t, e, "truncate -s "+c.size+" big"))
		require.Equal(t, c.want, environments.TextOf(create().Observation))
	}
}

// A Python beside the job file is found there by ./NAME, from the job's own folder too: it is no name on PATH, nor in the folder of an episode.
func TestThePythonBesideTheJob(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		folder := t.TempDir()
		t.Chdir(folder)
		r := resources.New(resources.Options{Sandbox: kind, Warn: func(s string) { t.Log(s) }, Resolve: func(path string) string { return filepath.Join(".", path) }})
		defer r.Close()
		s, err := New(t.Context(), r, map[string]any{"python": "./python"})
		require.NoError(t, err)
		defer s.Close()
		require.Equal(t, filepath.Join(folder, "python"), s.(*source).params.Python)
	})
}

// A folder beside the job file that is shown is one, also where the job is named by a relative path.
func TestTheShownFolderBesideTheJob(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		folder := t.TempDir()
		t.Chdir(folder)
		require.NoError(t, os.Mkdir("site", 0o755))
		require.NoError(t, os.WriteFile("site/shown", []byte("seen"), 0o644))
		r := resources.New(resources.Options{Sandbox: kind, Warn: func(s string) { t.Log(s) }, Resolve: func(path string) string { return filepath.Join(".", path) }})
		defer r.Close()
		s, err := New(t.Context(), r, map[string]any{"show": []string{"site"}})
		require.NoError(t, err)
		defer s.Close()
		e, err := s.New(t.Context(), "test")
		require.NoError(t, err)
		defer e.Close()
		reset(t, e, map[string]any{"level": 3})
		require.Equal(t, "seen", sh(t, e, "cat "+filepath.Join(folder, "site", "shown")))
	})
}

// What the agent is told of the folder is so.
func TestFolderThatTheAgentIsTold(t *testing.T) {
	for _, kind := range []string{sandbox.Bubblewrap, sandbox.Landlock, sandbox.None} {
		t.Run(kind, func(t *testing.T) {
			if _, err := sandbox.Open(t.Context(), kind); err != nil {
				t.Skip("this machine has no ", kind, ": ", err)
			}
			s, err := open(t, kind, nil)
			require.NoError(t, err)
			defer s.Close()
			e, err := s.New(t.Context(), "test")
			require.NoError(t, err)
			defer e.Close()
			reset(t, e, map[string]any{"level": 3})
			named := !strings.Contains(sh(t, e, "cd /workspace && ls README.md"), "No such file")
			require.Equal(t, named, strings.Contains(s.Spec().Instructions, "which is the folder /workspace, through"))
			require.Equal(t, !named, strings.Contains(s.Spec().Instructions, "which is the folder in which scripts begin, through"))
			require.Contains(t, sh(t, e, "ls"), "README.md")
		})
	}
}

// last runs a script as the last action, within a step of so long. The tests may take 8 s, a script 5.
func last(t *testing.T, step time.Duration, script string) environments.Result {
	t.Helper()
	e := player(t, sandbox.Auto, map[string]any{"max_steps": 1, "timeout": 8, "seconds": 5})
	reset(t, e, map[string]any{"level": 3})
	ctx, cancel := context.WithTimeout(t.Context(), step)
	defer cancel()
	args, err := json.Marshal(map[string]string{"command": script})
	require.NoError(t, err)
	r, err := e.Step(ctx, environments.Action{Name: "shell", Arguments: args})
	require.NoError(t, err)
	require.True(t, r.Truncated)
	return r
}

// An endless loop of the last action, before hidden tests that loop too, is paid 0, and is no failure of the environment.
func TestHangAtTheEnd(t *testing.T) {
	r := last(t, 11*time.Second, "for f in */*.py; do echo 'while True: pass' >>$f; done; python3 -m unittest; sleep 60")
	require.Zero(t, r.Reward)
	require.Contains(t, environments.TextOf(r.Observation), "[stopped: it ran longer than ")
}

// The script of the last action has as much time as any other.
func TestTimeOfTheLastScript(t *testing.T) {
	r := last(t, 12*time.Second, "sleep 3; echo done")
	require.True(t, strings.HasPrefix(environments.TextOf(r.Observation), "done"), environments.TextOf(r.Observation))
}

// The options and plug-ins of a repository's own pytest leave its tests their reports: only failed tests first, and tests that run again.
func TestOptionsOfPytest(t *testing.T) {
	needGit(t)
	site := os.Getenv("AGENTFLY_TEST_PYTEST")
	if site == "" {
		t.Skip("AGENTFLY_TEST_PYTEST names no folder with pytest: pip install --target FOLDER pytest")
	}
	const again = `import copy
from _pytest.runner import runtestprotocol


def pytest_runtest_protocol(item, nextitem):  # as pytest-rerunfailures does
    for report in runtestprotocol(item, nextitem=nextitem, log=False):
        if report.when == "call":
            before = copy.copy(report)
            before.outcome = "rerun"
            item.ihook.pytest_runtest_logreport(report=before)
        item.ihook.pytest_runtest_logreport(report=report)
    return True
`
	for name, files := range map[string]map[string]string{
		"--lf": {"pytest.ini": "[pytest]\naddopts = --lf\n"}, "--ff": {"pytest.ini": "[pytest]\naddopts = --ff --nf\n"}, "rerun": {"conftest.py": again},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			source := filepath.Join(dir, "x__calc")
			base, _ := repo(t, source)
			out, err := exec.Command("git", "-C", source, "checkout", "-q", base).CombinedOutput()
			require.NoError(t, err, "%s", out)
			for name, text := range files {
				require.NoError(t, os.WriteFile(filepath.Join(source, name), []byte(text), 0o644))
			}
			out, err = exec.Command("bash", "-c", "cd "+source+" && git add -A && git -c user.name=x -c user.email=x@y -c commit.gpgsign=false commit -q -m options && git rev-parse HEAD").CombinedOutput()
			require.NoError(t, err, "%s", out)
			e := player(t, sandbox.Auto, map[string]any{"instances": instanceFile(t, dir, strings.TrimSpace(string(out)), nil), "show": []string{site}})
			first := map[string]any{"instance": "calc-0"}
			reset(t, e, first)
			solve(t, e)
			require.InDelta(t, 1, reward(t, e), 0)
			reset(t, e, first)
			sh(t, e, `mkdir -p .pytest_cache/v/cache && echo '{"tests/test_calc.py::TestCalc::test_same": true}' >.pytest_cache/v/cache/lastfailed`)
			require.Zero(t, reward(t, e), "what the agent left of a cache counts for nothing")
			reset(t, e, first)
			solve(t, e)
			sh(t, e, `mkdir -p .pytest_cache/v/cache && echo '{"tests/test_calc.py::TestCalc::test_same": true}' >.pytest_cache/v/cache/lastfailed`)
			require.InDelta(t, 1, reward(t, e), 0)
		})
	}
}
