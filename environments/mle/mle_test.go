package mle

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/agentfly/agentfly/environments"
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

func open(t testing.TB, kind string, params map[string]any) environments.Source {
	t.Helper()
	r := resources.New(resources.Options{Sandbox: kind})
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	s, err := New(context.Background(), r, params)
	require.NoError(t, err)
	return s
}

func player(t testing.TB, kind string, params map[string]any) *environment {
	t.Helper()
	s := open(t, kind, params)
	e, err := s.New(t.Context(), "test")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()); require.NoError(t, s.Close()) })
	return e.(*environment)
}

// begin begins the first competition of a kind.
func begin(t testing.TB, e *environment, kind string) {
	t.Helper()
	level := int64(0)
	for generate(1, level).kind != kind {
		level++
	}
	_, err := e.Reset(t.Context(), environments.Start{Task: trajectory.Task{Fields: map[string]any{"level": level}}})
	require.NoError(t, err)
}

func do(t testing.TB, e *environment, name string, arguments map[string]string) environments.Result {
	t.Helper()
	args, err := json.Marshal(arguments)
	require.NoError(t, err)
	r, err := e.Step(t.Context(), environments.Action{Name: name, Arguments: args})
	require.NoError(t, err)
	return r
}

func execute(t testing.TB, e *environment, code string) environments.Result {
	t.Helper()
	return do(t, e, "execute_code", map[string]string{"code": code})
}

func said(r environments.Result) string { return environments.TextOf(r.Observation) }

// A Python that does not run is no agent's failed code.
func TestPythonThatIsMissing(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		s := open(t, kind, nil)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		s.(*source).python = "no-such-python"
		_, err := s.New(t.Context(), "test")
		require.ErrorContains(t, err, "no-such-python does not run in the sandbox (")
		require.ErrorContains(t, err, "install it: apt-get install python3")
		require.NotContains(t, err.Error(), "\n")
	})
}

func TestConformance(t *testing.T) {
	environmenttest.Run(t, environmenttest.Case{
		Source: func(t testing.TB) environments.Source { return open(t, sandbox.Auto, nil) },
		Steps:  15, Parallel: true,
	})
}

func TestHumanRank(t *testing.T) {
	high, low := metric{"accuracy", true}, metric{"rmse", false}
	up, down := board{0.9, 0.8, 0.7, 0.6}, board{1, 2, 3, 4}
	for name, c := range map[string]struct {
		m      metric
		scores []float64
		boards []board
		want   float64
	}{
		"best":                     {high, []float64{0.95}, []board{up}, 1},
		"equal to the best":        {high, []float64{0.9}, []board{up}, 1},
		"a tie is favourable":      {high, []float64{0.8}, []board{up}, 0.75},
		"last":                     {high, []float64{0.6}, []board{up}, 0.25},
		"worse than all":           {high, []float64{0.5}, []board{up}, 0},
		"lower is better":          {low, []float64{0.5}, []board{down}, 1},
		"lower, a tie":             {low, []float64{4}, []board{down}, 0.25},
		"lower, worse":             {low, []float64{5}, []board{down}, 0},
		"two boards":               {low, []float64{0.5, 5}, []board{down, down}, 0.5},
		"one of two is missing":    {low, []float64{2, 99}, []board{down, nil}, 0.75},
		"the public is missing":    {low, []float64{2, 99}, []board{nil, down}, 0},
		"no board":                 {low, []float64{2}, []board{nil}, 0},
		"a score that is no score": {low, []float64{math.Inf(1)}, []board{down}, 0},
	} {
		require.InDelta(t, c.want, humanRank(c.m, c.scores, c.boards), 1e-12, name)
	}
}

// The scripted solver reaches the first place on 100 held-out competitions of all three kinds.
func TestSolutions(t *testing.T) {
	s := open(t, sandbox.Auto, nil)
	defer s.Close()
	e, err := s.New(t.Context(), "test")
	require.NoError(t, err)
	defer e.Close()
	tasks, err := s.(environments.Tasker).Tasks(environments.Eval, 100)
	require.NoError(t, err)
	kinds := map[string]int{}
	for _, task := range tasks {
		_, err := e.Reset(t.Context(), environments.Start{Task: task})
		require.NoError(t, err)
		kinds[e.(*environment).c.kind]++
		actions, err := e.(environments.Solver).Solution(t.Context())
		require.NoError(t, err)
		var r environments.Result
		for _, a := range actions {
			r, err = e.Step(t.Context(), a)
			require.NoError(t, err)
		}
		require.True(t, r.Success && r.Terminated, "%s: %s", task.ID, said(r))
		require.InDelta(t, 1, r.Reward, 0)
	}
	require.Len(t, kinds, 3)
	t.Log(kinds)
}

// Submitting the same file ten times earns no more than once, and a worse one nothing.
func TestResubmitting(t *testing.T) {
	e := player(t, sandbox.Auto, map[string]any{"max_steps": 30})
	for _, kind := range []string{"linear", "groups", "clusters"} {
		begin(t, e, kind)
		first := execute(t, e, nearest)
		require.Positive(t, first.Reward, kind)
		require.Less(t, first.Reward, 0.95, kind)
		for range 9 {
			r := execute(t, e, nearest)
			require.Zero(t, r.Reward)
			require.Equal(t, first.Info, r.Info)
		}
		total := first.Reward + execute(t, e, copySample).Reward
		do(t, e, "reset", nil)
		for _, code := range []string{nearest, copySample} {
			require.Zero(t, execute(t, e, code).Reward, "scores stay")
		}
		actions, err := e.Solution(t.Context())
		require.NoError(t, err)
		r, err := e.Step(t.Context(), actions[1])
		require.NoError(t, err)
		require.InDelta(t, 1, total+r.Reward, 1e-12, "all that is paid is the best HumanRank")
		score, err := e.Score(t.Context())
		require.NoError(t, err)
		require.InDelta(t, 1, score, 0)
	}
}

func TestActions(t *testing.T) {
	e := player(t, sandbox.Auto, map[string]any{"max_steps": 12})
	begin(t, e, "linear")
	require.Contains(t, said(do(t, e, "get_history", nil)), "Nothing was done so far.")
	require.Contains(t, said(do(t, e, "request_info", map[string]string{"info": "data_structure"})), "data/test.csv:\nid,")
	require.NotContains(t, said(do(t, e, "request_info", map[string]string{"info": "data_structure"})), "10000,"+e.c.test[0].answer)
	r := do(t, e, "validate_code", map[string]string{"code": linearFit})
	require.Zero(t, r.Reward)
	require.Contains(t, said(r), "The code works, and submission.csv is as it must be.")
	r = do(t, e, "validate_code", map[string]string{"code": "x = (\n"})
	require.Contains(t, said(r), `File "<code>", line 1`)
	require.Contains(t, said(r), "SyntaxError")
	r = execute(t, e, "print('hello')")
	require.Contains(t, said(r), "it wrote no submission.csv", "that of validate_code is none of this code")
	require.Contains(t, said(r), "hello")
	require.Zero(t, execute(t, e, "1/0").Reward)
	require.Contains(t, said(execute(t, e, "open('kept', 'w').write('x')")), "no submission")
	require.Contains(t, said(execute(t, e, "print(open('kept').read())")), "\nx")
	do(t, e, "reset", nil)
	require.Contains(t, said(execute(t, e, "print(open('kept').read())")), "FileNotFoundError")
	r = do(t, e, "get_history", nil)
	require.Contains(t, said(r), "6. execute_code: The code ran, but it wrote no submission.csv")
	require.Contains(t, said(r), "That was the last of 12 actions.")
	require.True(t, r.Truncated && !r.Terminated)
}

// An action whose arguments are no object is one of the episode's, as any other that is refused.
func TestBadArgumentsAreAnAction(t *testing.T) {
	e := player(t, sandbox.Auto, map[string]any{"max_steps": 2})
	_, err := e.Reset(t.Context(), environments.Start{Seed: 1})
	require.NoError(t, err)
	for n := range 2 {
		r, err := e.Step(t.Context(), environments.Action{Name: "execute_code", Arguments: []byte(`[1]`)})
		require.NoError(t, err)
		require.Contains(t, said(r), "the arguments cannot be read")
		require.Equal(t, n == 1, r.Truncated)
	}
}

// What is not a submission is said in words, and pays nothing.
func TestSubmissions(t *testing.T) {
	c := generate(1, 0)
	for level := int64(1); c.metric.higher; level++ {
		c = generate(1, level)
	}
	head := "id," + c.target + "\n"
	all := func(value string) string {
		var b strings.Builder
		b.WriteString(head)
		for _, x := range c.test {
			fmt.Fprintf(&b, "%d,%s\n", x.id, value)
		}
		return b.String()
	}
	_, wrong := c.read([]byte(all("1.5")))
	require.Empty(t, wrong)
	for name, x := range map[string]struct{ text, want string }{
		"empty":     {"", "must have the header"},
		"header":    {"id,other\n", "must have the header"},
		"missing":   {head, "has no line for the id 10000"},
		"twice":     {all("1") + "10000,2\n", "has the id 10000 twice"},
		"unknown":   {all("1") + "7,2\n", `the id "7"`},
		"NaN":       {all("nan"), "no finite number"},
		"infinite":  {all("-inf"), "no finite number"},
		"huge":      {all("1e300"), "no finite number"},
		"text":      {all("x"), "no finite number"},
		"columns":   {head + "1,2,3\n", "is no CSV"},
		"quotes":    {head + "\"1\n", "is no CSV"},
		"long cell": {all(strings.Repeat("1", 100)), "a prediction of 100 characters"},
	} {
		p, wrong := c.read([]byte(x.text))
		require.Contains(t, wrong, x.want, name)
		require.Nil(t, p, name)
	}
}

// The answers are unreadable from inside: no file of the machine has them, and what could be tried does not reach this process.
func TestAttackAnswers(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		t.Setenv("AGENTFLY_SECRET_ANSWERS", "the-environment-of-the-host")
		e := player(t, kind, map[string]any{"max_steps": 100})
		other := player(t, kind, nil)
		begin(t, other, "groups")
		require.NoError(t, os.WriteFile(filepath.Join(other.folder.Dir(), "neighbour"), []byte("the-neighbours-file"), 0o644))
		begin(t, e, "linear")
		base := filepath.Dir(e.folder.Dir())
		r := execute(t, e, fmt.Sprintf(`
import os, glob
found = []
def look(path):
    try:
        with open(path, 'rb') as f: found.append((path, f.read(200)))
    except OSError: pass
def walk(top):
    for d, folders, files in os.walk(top):
        if os.path.realpath(d) == '/': folders[:] = [f for f in folders if f not in ('usr', 'proc', 'sys', 'dev') and not f.startswith('lib')]
        for f in files: look(os.path.join(d, f))
host = %q
for path in ('..', '../..', host, os.path.dirname(host), '/root', '/home', '/var', '/work'):
    try: found += [(path, str(os.listdir(path)).encode())] if path == host else []
    except OSError: pass
    if path not in ('..', '../..'): walk(path)
for pid in [%d, os.getppid(), 1] + list(range(2, 3000)):
    for name in ('mem', 'environ', 'cmdline', 'maps', 'cwd/data/train.csv', 'root/etc/shadow'):
        if pid != os.getpid(): look('/proc/%%d/%%s' %% (pid, name))
for i, target in enumerate(['..', '/proc/%d/cwd', host, '/etc/shadow', '/root']):
    os.symlink(target, 'link%%d' %% i)
    walk('link%%d' %% i); look('link%%d' %% i)
for name, value in os.environ.items(): found.append((name, value.encode()))
for path, text in found:
    if not path.startswith('/proc') or path.startswith('/proc/%d/') or b'AGENTFLY' in text or b'answers' in text: print(path, text)
`, base, os.Getpid(), os.Getpid(), os.Getpid()))
		text := said(r)
		require.NotContains(t, text, "The code failed")
		for _, secret := range []string{"the-environment-of-the-host", "the-neighbours-file", "neighbour", "root:", "AGENTFLY", fmt.Sprintf("/proc/%d/", os.Getpid())} {
			require.NotContains(t, text, secret)
		}
		// The answers of a competition as a program would find them: none is in a file of this machine that the environment wrote.
		rows := [][]byte{}
		for _, x := range e.c.test[:20] {
			rows = append(rows, fmt.Appendf(nil, "%d,%s", x.id, x.answer))
		}
		for _, dir := range []string{base, filepath.Dir(other.folder.Dir())} {
			require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				require.NoError(t, err)
				if !d.Type().IsRegular() {
					return nil
				}
				data, err := os.ReadFile(path)
				require.NoError(t, err)
				for _, row := range rows {
					require.NotContains(t, string(data), string(row)+"\n", path)
					require.NotContains(t, string(data), string(row)+",", path)
				}
				if filepath.Base(path) == "test.csv" {
					require.NotContains(t, strings.SplitN(string(data), "\n", 2)[0], e.c.target)
				}
				return nil
			}))
		}
	})
}

// What an agent's code does beyond its task is contained: the episode goes on, and another one beside it does not notice.
func TestAttacks(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		e := player(t, kind, map[string]any{"max_steps": 1000, "seconds": 3, "disk": 32, "memory": 256})
		patient := func() { e.folder.Base.Limits.Wall = 10 * time.Second } // what comes to its end may start late
		neighbour := player(t, kind, nil)
		outside := filepath.Join(t.TempDir(), "outside")
		endless := []string{"a fork bomb", "an infinite loop", "a sleep", "many files"}
		for name, c := range map[string]struct{ code, want string }{
			"a fork bomb":          {"import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", "stopped"},
			"an infinite loop":     {"while True: pass", "stopped"},
			"a sleep":              {"import time; time.sleep(60)", "ran longer than 3s"},
			"1 GB of memory":       {"x = b'x' * (1 << 30)\nimport time; time.sleep(60)", "it used too much memory"},
			"a huge file":          {"f = open('huge', 'wb')\nwhile True: f.write(bytes(1 << 20)); f.flush()", ""},
			"a huge submission":    {"open('submission.csv', 'w').write('id,x\\n' * (1 << 20))", "no submission.csv that is a file of at most"},
			"many files":           {"for i in range(1 << 20): open('f%d' % i, 'w').close()", ""},
			"huge output":          {"while True: print('x' * 1000)", "left out"},
			"outside":              {"open(" + strconv.Quote(outside) + ", 'w').write('x')", "Error"},
			"a link":               {"import os; os.symlink('/etc/passwd', 'submission.csv')", "no submission.csv"},
			"a link to the train":  {"import os; os.symlink('data/sample_submission.csv', 'submission.csv')", ""},
			"a pipe":               {"import os; os.mkfifo('submission.csv')", "no submission.csv"},
			"a folder":             {"import os; os.makedirs('submission.csv/x/y'); os.chmod('submission.csv/x', 0); os.chmod('submission.csv', 0)", "no submission.csv"},
			"a closed folder":      {"import os; os.chmod('.', 0)", ""},
			"no folder":            {"import shutil, os\nfor n in os.listdir('.'): shutil.rmtree(n)", ""},
			"a signal to the host": {"import os, signal\nfor p in (" + strconv.Itoa(os.Getpid()) + ", -1):\n    try: os.kill(p, signal.SIGKILL)\n    except OSError: print('refused')", ""},
			"a zero byte":          {"print('a')\x00", "null bytes"},
			"no UTF-8":             {"print(1)\xff", ""},
			"nothing":              {"", "no submission.csv"},
		} {
			t.Run(name, func(t *testing.T) {
				begin(t, e, "linear")
				if !slices.Contains(endless, name) {
					patient()
				}
				began := time.Now()
				r := execute(t, e, c.code)
				require.Less(t, time.Since(began), 40*time.Second)
				require.Contains(t, said(r), c.want)
				require.Less(t, r.Reward, 0.2)
				require.False(t, r.Over())
				require.NoFileExists(t, outside)
				do(t, e, "reset", nil)
				patient()
				require.InDelta(t, 1-r.Reward, execute(t, e, linearFit).Reward, 1e-9, "it goes on after that")
				begin(t, neighbour, "clusters")
				require.InDelta(t, 1, execute(t, neighbour, centroidFit).Reward, 0, "the neighbour does not notice")
			})
		}
	})
}

// A process that code leaves behind is gone when the call returns: it writes no submission later.
func TestAttackProcessesLeftBehind(t *testing.T) {
	eachKind(t, func(t *testing.T, kind string) {
		e := player(t, kind, nil)
		begin(t, e, "linear")
		const mark = "left-behind-by-mle-test"
		r := execute(t, e, `
import os, subprocess, sys
subprocess.Popen([sys.executable, '-c', '''
import os, time
os.setsid()
if os.fork() == 0:
    while True:
        time.sleep(0.05)
        open("late", "a").write("x")
''', '`+mark+`'], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
`)
		require.Contains(t, said(r), "no submission.csv")
		before, _ := os.ReadFile(filepath.Join(e.folder.Dir(), "late"))
		entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
		require.NoError(t, err)
		for _, path := range entries {
			text, _ := os.ReadFile(path)
			require.NotContains(t, string(text), mark)
		}
		require.Contains(t, said(execute(t, e, "print(len(open('late').read()) if __import__('os').path.exists('late') else 0)")), fmt.Sprint("\n", len(before)))
	})
}

// 64 episodes at once leave no goroutine, no process and no folder.
func TestManyAtOnce(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	before := goleak.IgnoreCurrent()
	r := resources.New(resources.Options{})
	s, err := New(t.Context(), r, nil)
	require.NoError(t, err)
	var all sync.WaitGroup
	places := make(chan struct{}, 8)
	for i := range 64 {
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			e, err := s.New(t.Context(), "test")
			if err == nil {
				_, err = e.Reset(t.Context(), environments.Start{Seed: int64(i)})
			}
			if err == nil {
				_, err = e.Step(t.Context(), environments.Action{Name: "execute_code", Arguments: []byte(`{"code":"import subprocess; subprocess.Popen(['sleep', '60'])"}`)})
			}
			if err != nil {
				t.Error(err)
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.NoError(t, s.Close())
	require.NoError(t, r.Close())
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, goleak.Find(before))
}

// A competition is the same again from the same numbers, and not that of another seed.
func TestGenerated(t *testing.T) {
	require.Equal(t, generate(1, 7), generate(1, 7))
	require.NotEqual(t, generate(1, 7).overview(), generate(2, 7).overview())
	for level := range int64(60) {
		c := generate(1, level)
		scores := c.score(c.constant())
		require.Less(t, humanRank(c.metric, scores[:], c.boards[:]), 0.2, "the sample submission is among the last")
		scores = c.score(c.fit())
		require.InDelta(t, 1, humanRank(c.metric, scores[:], c.boards[:]), 0)
		for _, b := range c.boards {
			require.Len(t, b, teams)
		}
	}
}
