package harbor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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

// write makes a task folder. Files with the content "" are left out of the standard ones.
func write(t testing.TB, dir, name string, files map[string]string) string {
	t.Helper()
	all := map[string]string{
		"task.toml":              "schema_version = \"1.4\"\n[verifier]\ntimeout_sec = 30.0\n[agent]\ntimeout_sec = 60\n[environment]\nmemory_mb = 1024\n",
		"instruction.md":         "Write done to /app/out.txt\n",
		"environment/Dockerfile": "FROM ubuntu:24.04\nWORKDIR /app\n",
		"tests/test.sh":          "#!/bin/bash\nif [ \"$(cat /app/out.txt)\" = done ]; then echo 1 >/logs/verifier/reward.txt; else echo 0 >/logs/verifier/reward.txt; fi\n",
		"solution/solve.sh":      "#!/bin/bash\necho done >/app/out.txt\n",
	}
	for k, v := range files {
		all[k] = v
	}
	for k, v := range all {
		if v == "" {
			continue
		}
		path := filepath.Join(dir, name, k)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(v), 0o644))
	}
	return dir
}

// sums are n tasks that differ in a file of numbers, whose sum is asked for.
func sums(t testing.TB, n int) string {
	dir := t.TempDir()
	for i := range n {
		var numbers strings.Builder
		sum := 0
		for k := range 5 + i%7 {
			v := (i*37+k*k*11)%101 + i
			sum += v
			fmt.Fprintln(&numbers, v)
		}
		write(t, dir, fmt.Sprintf("sum-%03d", i), map[string]string{
			"instruction.md":               fmt.Sprintf("The file /app/data/numbers.txt of ledger %d has one number a line. Write their sum to /app/sum.txt.", i),
			"environment/Dockerfile":       "# a ledger\nFROM python:3.11-slim\nARG WHERE=/app\nENV LEDGER=\"ledger\" KIND=x\nWORKDIR $WHERE\nCOPY data/ data\n",
			"environment/data/numbers.txt": numbers.String(),
			"tests/test.sh":                "python3 /tests/check.py /app/sum.txt >/logs/verifier/reward.txt\n",
			"tests/check.py":               fmt.Sprintf("import sys\ntry: got = int(open(sys.argv[1]).read())\nexcept Exception: got = None\nprint(1 if got == %d else 0)\n", sum),
			"solution/solve.sh":            "python3 /solution/sum.py\n",
			"solution/sum.py":              "print(sum(map(int, open('/app/data/numbers.txt'))), file=open('/app/sum.txt', 'w'))\n",
		})
	}
	return dir
}

// bubblewrap skips, counted, where no folder can be shown under another path.
func bubblewrap(t testing.TB) {
	box, err := sandbox.Open(context.Background(), sandbox.Auto)
	if err != nil || box.Kind() != sandbox.Bubblewrap {
		t.Skip("bubblewrap is missing here, and Harbor tasks name absolute paths: install the package bubblewrap")
	}
}

func open(t testing.TB, params map[string]any) (environments.Source, error) {
	r := resources.New(resources.Options{Warn: func(s string) { t.Log(s) }})
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return New(t.Context(), r, params)
}

func begin(t testing.TB, dir, name string, params map[string]any) environments.Environment {
	t.Helper()
	bubblewrap(t)
	all := map[string]any{"path": dir}
	for k, v := range params {
		all[k] = v
	}
	s, err := open(t, all)
	require.NoError(t, err)
	e, err := s.New(t.Context(), "test")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()); require.NoError(t, s.Close()) })
	_, err = e.Reset(t.Context(), start(name))
	require.NoError(t, err)
	return e
}

func start(name string) environments.Start {
	return environments.Start{Task: trajectory.Task{ID: name, Fields: map[string]any{"task": name}}}
}

// sh runs a script in an episode.
func sh(t testing.TB, e environments.Environment, script string) environments.Result {
	t.Helper()
	return use(t, e, "shell", map[string]any{"command": script})
}

func text(r environments.Result) string { return environments.TextOf(r.Observation) }

func send(t testing.TB, e environments.Environment) (environments.Result, error) {
	return e.Step(t.Context(), environments.Action{Name: boxed.SubmitName, Arguments: []byte(`{}`)})
}

func TestConformance(t *testing.T) {
	bubblewrap(t)
	dir := sums(t, 110)
	environmenttest.Run(t, environmenttest.Case{
		Source: func(t testing.TB) environments.Source {
			s, err := New(context.Background(), resources.New(resources.Options{}), map[string]any{"path": dir, "max_steps": 8})
			require.NoError(t, err)
			return s
		},
		TooMany: 111, Steps: 8, Parallel: true,
	})
}

// The scripted solver, each task's own solve.sh, reaches full reward on 100 tasks; those of two splits are all tasks.
// An episode that nobody waits for any longer makes no folders: the environment may be closed meanwhile.
func TestResetThatWasGivenUp(t *testing.T) {
	bubblewrap(t)
	dir := write(t, t.TempDir(), "a", map[string]string{"environment/Dockerfile": "FROM ubuntu:24.04\nWORKDIR /app\nCOPY data data\n", "environment/data/x": "x"})
	s, err := open(t, map[string]any{"path": dir})
	require.NoError(t, err)
	e, err := s.New(t.Context(), "test")
	require.NoError(t, err)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = e.Reset(over, start("a"))
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorAs(t, err, new(*environments.TaskError), "it is no fault of the task")
	require.Nil(t, e.(*environment).machine)
	_, err = e.Reset(t.Context(), start("a"))
	require.NoError(t, err)
	require.NoError(t, e.Close())
	require.NoError(t, s.Close())
}

func TestSolutions(t *testing.T) {
	bubblewrap(t)
	s, err := open(t, map[string]any{"path": sums(t, 100)})
	require.NoError(t, err)
	defer s.Close()
	e, err := s.New(t.Context(), "test")
	require.NoError(t, err)
	defer e.Close()
	seen := map[string]bool{}
	for split, n := range map[string]int{environments.Train: 80, environments.Eval: 20} {
		tasks, err := s.(environments.Tasker).Tasks(split, n)
		require.NoError(t, err)
		for _, task := range tasks {
			seen[task.ID] = true
			_, err := e.Reset(t.Context(), environments.Start{Task: task})
			require.NoError(t, err)
			actions, err := e.(environments.Solver).Solution(t.Context())
			require.NoError(t, err)
			var last environments.Result
			for _, a := range actions {
				last, err = e.Step(t.Context(), a)
				require.NoError(t, err)
			}
			require.True(t, last.Success && last.Reward == 1 && last.Terminated, "%s: %+v", task.ID, last)
		}
	}
	require.Len(t, seen, 100)
}

func TestMachine(t *testing.T) {
	dir := write(t, t.TempDir(), "a", map[string]string{
		"environment/Dockerfile": "# syntax=docker/dockerfile:1\nFROM docker.io/library/ubuntu:24.04\n# a comment\nENV A=1 B=\"two words\"\nENV OLD form\nARG N=5\nWORKDIR /srv/app\n" +
			"COPY --chmod=755 tool.sh ./\nCOPY one.txt two.txt /data/in/\nRUN mkdir -p /data/made && \\\n  # within\n  echo \"$A $B $N\" > /data/made/env \\\n  && echo $PWD\nCOPY sub /data/sub\nWORKDIR sub\nUSER root\nCMD [\"x\"]\n",
		"environment/tool.sh": "echo tool", "environment/one.txt": "1", "environment/two.txt": "2", "environment/sub/deep/x": "x",
		"task.toml": "[environment]\nenv = {C = \"3\"}\n[metadata]\nanything = [1]\n",
	})
	e := begin(t, dir, "a", nil)
	require.Equal(t, "/srv/app/sub", text(sh(t, e, "pwd")))
	require.Equal(t, "tool\n1\n2\nx\n1 two words 5\n1 two words form 3 /root", text(sh(t, e, "../tool.sh; cat /data/in/one.txt; echo; cat /data/in/two.txt; echo; cat /data/sub/deep/x; echo; cat /data/made/env; echo $A $B $OLD $C $HOME")))
	require.Equal(t, "(no output)", text(sh(t, e, "echo 5 >/data/in/one.txt; echo y >/root/mine; echo z >file")))
	require.Equal(t, "5\ny\nz", text(sh(t, e, "cat /data/in/one.txt /root/mine file")))
	for path, there := range map[string]bool{"/srv/app/sub/file": true, "file": true, "../sub/file": true, "/workspace/app/sub/file": true, "/srv/app/file": false, "app/sub/file": false, "/data/in/one.txt": false, "/srv/../etc/passwd": false} {
		r, err := e.Step(t.Context(), environments.Action{Name: "file_read", Arguments: fmt.Appendf(nil, `{"path":%q}`, path)})
		require.NoError(t, err)
		require.Equal(t, there, r.Failure == "", "%s: %s", path, text(r))
	}
	_, err := e.Reset(t.Context(), start("a"))
	require.NoError(t, err)
	require.Contains(t, text(sh(t, e, "cat /data/in/one.txt; ls /root /srv/app/sub")), "1", "a reset makes the folders anew")
	require.NotContains(t, text(sh(t, e, "ls /root /srv/app/sub")), "mine")
}

// Variables of a Dockerfile mean what Docker's reference says, "Environment replacement".
func TestVariables(t *testing.T) {
	for lines, want := range map[string]string{
		"ENV A='$5 and $HOME'":                      "$5 and $HOME",
		`ENV A=\$5`:                                 "$5",
		`ENV A="\$B ${B} \"q\""`:                    `$B b "q"`,
		`ENV A=x\ y\\$B`:                            `x y\b`,
		"ENV A=hello\nENV A=bye C=$A\nENV A=$C":     "hello",
		"ENV A=1 \\\n  C=$A$B\nENV A=$C":            "b",
		"ENV A $B and '$B' and \\$B":                "b and $B and $B",
		"ENV A=${B:-x}${E:-x}${N:-x}":               "bxx",
		"ENV A=${B-x}${E-x}${N-x}":                  "bx",
		"ENV A=${B:+x}${E:+x}${N:+x}":               "x",
		"ENV A=${B+x}${E+x}${N+x}":                  "xx",
		"ENV A=${N:-$B}${N:-${E:-z}}${N:+\"${B}\"}": "bz",
		"ENV A=$1$-${N}$":                           "$",
		"ARG G=$B\nENV A=$G":                        "b",
		"ARG G=1 H=$G\nENV A=$H":                    "1",
		"ARG G H=2 I\nENV A=$G$H$I":                 "2",
		"ARG G=1\nARG G=2\nENV A=$G":                "2",
		"ENV A=one\\\ntwo":                          "onetwo",
		"ENV A='one\\\n  two'":                      "one  two",
		"ENV A=$\\\nB C=${\\\nB}\nENV A=$A$C":       "bb",
		"ENV A=one\\\n\n# a comment\ntwo":           "onetwo",
		"ENV A=one\\\\\nENV C=":                     `one\`,
		"ENV A=\"a'$B'\"":                           "a'b'",
		"ENV A=a\"$B\"'$B'":                         "ab$B",
	} {
		t.Run(lines, func(t *testing.T) {
			r, err := parse("FROM debian\nWORKDIR /app\nENV B=b E=\n"+lines+"\n", t.TempDir(), nil)
			require.NoError(t, err)
			require.Equal(t, want, r.env["A"])
		})
	}
	for lines, want := range map[string]string{
		"ENV A=${B#x}":     "of ${…} only ${NAME}, ${NAME:-word}, ${NAME-word}, ${NAME:+word} and ${NAME+word} are supported",
		"WORKDIR /${B?}":   "of ${…} only ${NAME}, ",
		"COPY ${N:-x y":    "a } is missing",
		"WORKDIR /'my app": "a ' is not closed",
	} {
		_, err := parse("FROM debian\nWORKDIR /app\n"+lines+"\n", t.TempDir(), nil)
		require.ErrorContains(t, err, "line 3: "+lines+": "+want)
	}
}

// An ARG before FROM is FROM's alone until the stage names it, and the last default of the stage counts ("Understand how ARG and FROM interact" of
// Docker's reference).
func TestArguments(t *testing.T) {
	for lines, want := range map[string]string{
		"ARG V=24.04\nFROM ubuntu:$V\nARG V=mine":        "mine",
		"ARG V=24.04\nFROM ubuntu:$V":                    "unset",
		"ARG V=24.04\nFROM ubuntu:$V\nARG V":             "24.04",
		"ARG V=24.04\nFROM ubuntu:$V\nARG V=mine\nARG V": "24.04",
		"ARG U=1 V=$U\nFROM ubuntu\nARG W=$U V":          "1",
		"ARG V=1\nFROM ubuntu\nARG W=$V\nARG V=$W":       "",
		"FROM ubuntu\nARG V=1\nARG V=2":                  "2",
		"FROM ubuntu\nARG V=1\nARG V":                    "1",
		"FROM ubuntu\nARG V":                             "unset",
		"FROM ubuntu\nENV V=env\nARG V=1":                "env",
	} {
		t.Run(lines, func(t *testing.T) {
			r, err := parse(lines+"\nWORKDIR /app\nENV E=${V-unset}\nRUN true\n", t.TempDir(), nil)
			require.NoError(t, err)
			value, set := r.steps[len(r.steps)-1].env["V"]
			require.Equal(t, want, r.env["E"])
			require.Equal(t, want != "unset", set)
			require.True(t, !set || value == want, value)
		})
	}
}

// The shell has the text of a RUN as it stands in the file, but for what Docker takes out of it.
func TestTextOfARun(t *testing.T) {
	for text, want := range map[string]string{
		"RUN\tprintf 'a\tb'  'c'":         "printf 'a\tb'  'c'",
		"RUN echo ab\\\ncd":               "echo abcd",
		"RUN a && \\\n\t# within\n\tb\tc": "a && \tb\tc",
		"  run  a  b":                     "a  b",
	} {
		r, err := parse("FROM ubuntu\nWORKDIR\t/app\nENV OLD\tform\n"+text, t.TempDir(), nil)
		require.NoError(t, err)
		require.Equal(t, []string{"/bin/sh", "-c", want}, r.steps[len(r.steps)-1].run)
		require.Equal(t, "form", r.env["OLD"])
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x"), nil, 0o600))
	r, err := parse("FROM ubuntu\nWORKDIR /app\nCOPY\t--chmod=755\tx\ty\n", dir, nil)
	require.NoError(t, err)
	last := r.steps[len(r.steps)-1]
	require.Equal(t, os.FileMode(0o755), *last.chmod)
	require.Equal(t, "/app/y", last.to)
}

// An episode begins with the rights and times that a RUN set, also where they close a file or a folder to the user of the programs.
func TestRightsAndTimes(t *testing.T) {
	dir := write(t, t.TempDir(), "a", map[string]string{"environment/Dockerfile": "FROM ubuntu\nWORKDIR /app\n" +
		"RUN echo x >secret && chmod 600 secret && echo y >none && chmod 000 none && mkdir -p closed/deep private shared && echo z >closed/deep/z\n" +
		"RUN chmod 000 closed && chmod 700 private . && chmod 1777 shared && touch -d @1000000000 none && touch -d @1100000000.5 closed shared && touch -d @1200000000 .\n"})
	e := begin(t, dir, "a", nil)
	const want = "600 secret\n0 1000000000 none\n0 1100000000 closed\n700 private\n1777 1100000000 shared\n700 1200000000 .\n"
	const look = "stat -c '%a %n' secret; stat -c '%a %Y %n' none closed; stat -c '%a %n' private; stat -c '%a %Y %n' shared .; "
	for range 2 {
		require.Equal(t, want+"x\ny\nz", text(sh(t, e, look+"cat secret; chmod 700 closed; chmod 600 none; cat none closed/deep/z")))
		_, err := e.Reset(t.Context(), start("a"))
		require.NoError(t, err)
	}
}

// A link of an image is text, and leads nowhere but in the sandbox: neither its copy nor the file tools, nor the tests, follow it on the host.
func TestLinksOfAnImage(t *testing.T) {
	host := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(host, "secret"), []byte("the-secret"), 0o666))
	dir := write(t, t.TempDir(), "a", map[string]string{
		"environment/Dockerfile": "FROM ubuntu\nWORKDIR /app\nRUN mkdir -p lib/x && ln -s /app/lib/x cur && ln -s ../../.. up && ln -s nothing dangling && mkfifo pipe && chmod 600 pipe\n" +
			"RUN ln -s " + host + " host && ln -s " + host + "/secret secret && python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'\nRUN touch -h -d @1000000000 cur\n",
		"tests/test.sh": "cat /app/secret /app/host/secret; echo changed >/app/secret; test -e /app/secret && exit; echo 1 >/logs/verifier/reward.txt\n",
	})
	e := begin(t, dir, "a", nil)
	require.Equal(t, "cur /app/lib/x\ndangling nothing\nhost "+host+"\nsecret "+host+"/secret\nup ../../..\n1000000000 cur\n600 fifo pipe\nin",
		text(sh(t, e, "find * -type l -printf '%p %l\\n' | sort; stat -c '%Y %n' cur; stat -c '%a %F %n' pipe; echo in >cur/f; cat lib/x/f")))
	require.NotContains(t, text(sh(t, e, "cat secret host/secret; ls host; echo changed >secret")), "the-secret")
	for _, name := range []string{"secret", "host/secret", "/app/host/secret", "up/etc/passwd"} {
		for tool, arguments := range map[string]string{"file_read": `{"path":%q}`, "file_create": `{"path":%q,"content":"changed"}`} {
			r, err := e.Step(t.Context(), environments.Action{Name: tool, Arguments: fmt.Appendf(nil, arguments, name)})
			require.NoError(t, err)
			require.NotEmpty(t, r.Failure, "%s %s: %s", tool, name, text(r))
		}
	}
	_, err := e.Reset(t.Context(), start("a"))
	require.NoError(t, err)
	r, err := send(t, e)
	require.NoError(t, err)
	require.NotContains(t, r.Info["tests"], "the-secret")
	left, err := os.ReadFile(filepath.Join(host, "secret"))
	require.NoError(t, err)
	require.Equal(t, "the-secret", string(left))
	list, err := os.ReadDir(host)
	require.NoError(t, err)
	require.Len(t, list, 1)
}

// A COPY puts a file into a folder that exists, with and without a / at the end of its name.
func TestCopyIntoAFolder(t *testing.T) {
	dir := write(t, t.TempDir(), "a", map[string]string{
		"environment/Dockerfile": "FROM ubuntu\nWORKDIR /app/work\nCOPY x /app\nCOPY x /app/work\nCOPY x /root\nCOPY tree /data/tree\nCOPY x /data\nCOPY x /data/tree\n" +
			"RUN mkdir /app/d /srv/d\nCOPY --chmod=755 x /app/d\nADD x /srv\nCOPY tree /app/d\nCOPY x /app/d/new\nCOPY y /app/d/new\n",
		"environment/x": "x", "environment/y": "y", "environment/tree/f": "f",
	})
	e := begin(t, dir, "a", nil)
	require.Equal(t, "/app/d/f\n/app/d/new\n/app/d/x\n/app/work/x\n/app/x\n/data/tree/f\n/data/tree/x\n/data/x\n/root/x\n/srv/x\n755\ny",
		text(sh(t, e, "find /app /data /root /srv -type f | sort; stat -c %a /app/d/x; cat /app/d/new")))

	_, err := parse("FROM ubuntu\nWORKDIR /app\nCOPY x /data\n", filepath.Join(dir, "a", "environment"), nil)
	require.ErrorContains(t, err, "line 3: COPY x /data: programs cannot have files in /")
}

// A RUN sees the ENV of the lines before it alone, and nothing of task.toml, which is for the time after the build.
func TestVariablesOfARun(t *testing.T) {
	dir := write(t, t.TempDir(), "a", map[string]string{
		"environment/Dockerfile": "FROM ubuntu\nWORKDIR /app\nENV A=1\nRUN echo \"$A-$B-$C-$HOME\" >built.txt\nENV B=2\n",
		"task.toml":              "[environment]\nenv = {A = \"toml\", C = \"3\"}\n",
	})
	e := begin(t, dir, "a", nil)
	require.Equal(t, "1---/root\ntoml-2-3-/root", text(sh(t, e, "cat built.txt; echo $A-$B-$C-$HOME")))
}

// The PATH of a task begins from the sandbox's, and holds for its builds, its agent and its tests.
func TestPath(t *testing.T) {
	for name, c := range map[string]struct {
		lines, toml string
		agent       string // PATH that the agent sees
	}{
		"quoted":          {"ENV PATH=\"/app/bin:$PATH\"\n", "", "/app/bin:/usr/local/bin:/usr/bin:/bin"},
		"braces":          {"ENV PATH=${PATH}:/app/bin\n", "", "/usr/local/bin:/usr/bin:/bin:/app/bin"},
		"whole":           {"ENV PATH=/app/bin:/usr/bin:/bin\n", "", "/app/bin:/usr/bin:/bin"},
		"a RUN before":    {"RUN test $PATH = /usr/local/bin:/usr/bin:/bin\nENV PATH /app/bin:$PATH\n", "", "/app/bin:/usr/local/bin:/usr/bin:/bin"},
		"a RUN behind":    {"ENV PATH=/app/bin:$PATH\nRUN test $(tool) = done\n", "", "/app/bin:/usr/local/bin:/usr/bin:/bin"},
		"environment.env": {"", "[environment]\nenv = {PATH = \"/app/bin:/bin\"}\n", "/app/bin:/bin"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{
				"environment/Dockerfile": "FROM ubuntu:24.04\nWORKDIR /app\nCOPY --chmod=755 tool /app/bin/tool\n" + c.lines,
				"environment/tool":       "#!/bin/bash\necho done\n",
				"tests/test.sh":          "if [ \"$(tool)\" = done ]; then echo 1 >/logs/verifier/reward.txt; else echo 0 >/logs/verifier/reward.txt; fi\n",
			}
			if c.toml != "" {
				files["task.toml"] = c.toml
			}
			e := begin(t, write(t, t.TempDir(), "a", files), "a", nil)
			require.Equal(t, c.agent+"\ndone", text(sh(t, e, "echo $PATH; tool")))
			r, err := send(t, e)
			require.NoError(t, err)
			require.InDelta(t, 1, r.Reward, 0, r.Info["tests"])
		})
	}

	dir := write(t, t.TempDir(), "a", map[string]string{"environment/Dockerfile": "FROM ubuntu\nWORKDIR /app\nENV PATH=/app/bin\nRUN ls\n"})
	write(t, dir, "b", nil)
	_, err := begin(t, dir, "b", nil).Reset(t.Context(), start("a"))
	require.ErrorContains(t, err, "line 4: RUN ls: it fails in the sandbox, which has no network and no root (exit status 127: ")
	require.ErrorContains(t, err, "ls: not found)")
}

// An agent sees neither tests nor solution, and what it puts in their place is not what runs.
func TestTestsAreOutOfReach(t *testing.T) {
	dir := write(t, t.TempDir(), "a", map[string]string{"tests/hidden.txt": "the-hidden-word"})
	e := begin(t, dir, "a", nil)
	source := filepath.Join(dir, "a")
	said := text(sh(t, e, fmt.Sprintf(`ls / ; ls /tests /logs /solution %s; cat %s/tests/hidden.txt; grep -r the-hidden /proc/*/environ /proc/*/cmdline /workspace /app /root 2>/dev/null; find / -name hidden.txt 2>/dev/null; env`, source, source)))
	require.NotContains(t, said, "the-hidden-word")
	require.NotContains(t, said, "hidden.txt\n", "find sees no such file")
	require.Contains(t, said, "No such file or directory")
	sh(t, e, "mkdir -p /workspace/tests /workspace/logs/verifier /app/logs/verifier; echo 1 >/workspace/logs/verifier/reward.txt; echo 'echo 1 >/logs/verifier/reward.txt' >/workspace/tests/test.sh; ln -s / /workspace/root; mkdir /tests; ln -sf /logs/verifier/reward.txt out.txt")
	r, err := send(t, e)
	require.NoError(t, err)
	require.Zero(t, r.Reward)
}

// What an agent starts is gone with its call: nothing writes a reward later.
func TestProcessesEnd(t *testing.T) {
	dir := write(t, t.TempDir(), "a", map[string]string{"tests/test.sh": "sleep 1.5; echo 0 >/logs/verifier/reward.txt; ls /app/late && echo 1 >/logs/verifier/reward.txt; exit 0\n"})
	e := begin(t, dir, "a", nil)
	sh(t, e, `(setsid nohup sh -c 'sleep 1; touch /app/late; while sleep 0.1; do echo 1 >/logs/verifier/reward.txt; done' >/dev/null 2>&1 &) ; sleep 0.1`)
	r, err := send(t, e)
	require.NoError(t, err)
	require.Zero(t, r.Reward)
}

// The folders are links of nothing: an agent cannot have another folder of the host mounted in the place of its own.
func TestFoldersCannotBeReplaced(t *testing.T) {
	e := begin(t, write(t, t.TempDir(), "a", nil), "a", nil)
	sh(t, e, "mv /app /app2; rmdir /app; rm -rf /workspace; ln -s / /app; chmod 000 /workspace /app /root; true")
	require.NotContains(t, text(sh(t, e, "ls -la /app/ /workspace/")), "etc")
	sh(t, e, "echo done >/app/out.txt")
	r, err := send(t, e)
	require.NoError(t, err)
	require.InDelta(t, 1, r.Reward, 0)
}

func TestRewards(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		reward float64
		wrong  string // no reward, for the agent's doing
		broken string // no reward, for the task's
	}{
		"float":             {"echo ' 0.25 ' >/logs/verifier/reward.txt", 0.25, "", ""},
		"json":              {`echo '{"reward":0.5,"speed":7}' >/logs/verifier/reward.json`, 0.5, "", ""},
		"json of one":       {`echo '{"pass":1}' >/logs/verifier/reward.json`, 1, "", ""},
		"a failing script":  {"echo 1 >/logs/verifier/reward.txt; exit 3", 1, "", ""},
		"a status":          {"echo 0.5 >/logs/verifier/reward.txt; exit 139", 0.5, "", ""},
		"a clean-up":        {"sleep 100 & s=$!; echo 1 >/logs/verifier/reward.txt; kill $s; wait $s", 1, "", ""},
		"the agent's work":  {"echo 1 >/logs/verifier/reward.txt; test -e /app/out.txt && { sleep 100 & kill $!; wait $!; }", 1, "", ""},
		"processor time":    {"echo 1 >/logs/verifier/reward.txt; ulimit -St 1; while :; do :; done", 0, "", "the tests were stopped: it used too much processor time"},
		"missing":           {"exit 0", 0, "", "they wrote neither reward.txt nor reward.json"},
		"NaN":               {"echo nan >/logs/verifier/reward.txt", 0, "", "a reward is in 0 to 1"},
		"infinite":          {"echo inf >/logs/verifier/reward.txt", 0, "", "a reward is in 0 to 1"},
		"garbage":           {"echo 'passed!' >/logs/verifier/reward.txt", 0, "", `"passed!", which is no number`},
		"empty":             {": >/logs/verifier/reward.txt", 0, "", "which is no number"},
		"above":             {"echo 7 >/logs/verifier/reward.txt", 0, "", "a reward is in 0 to 1"},
		"json without":      {`echo '{"a":1,"b":2}' >/logs/verifier/reward.json`, 0, "", `no number "reward"`},
		"a folder":          {"mkdir /logs/verifier/reward.txt", 0, "", "reward.txt cannot be read"},
		"a pipe":            {"mkfifo /logs/verifier/reward.txt", 0, "", "reward.txt cannot be read"},
		"a link":            {"ln -s /etc/passwd /logs/verifier/reward.txt", 0, "", "reward.txt cannot be read"},
		"huge":              {"head -c 1000000 /dev/zero >/logs/verifier/reward.txt", 0, "", "reward.txt cannot be read"},
		"hang":              {"echo 1 >/logs/verifier/reward.txt; sleep 60", 0, "", "ran longer than 10s"},
		"the agent's NaN":   {"cat /app/out.txt >/logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt", 0, `"broken", which is no number`, ""},
		"the agent's hang":  {"echo 0 >/logs/verifier/reward.txt; test -e /app/out.txt && sleep 60; true", 0, "ran longer than 10s", ""},
		"the agent's crash": {"test -e /app/out.txt && kill -9 $$; echo 0 >/logs/verifier/reward.txt", 0, "neither reward.txt nor reward.json (exit status 137)", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := begin(t, write(t, t.TempDir(), "a", map[string]string{"tests/test.sh": c.script + "\n", "task.toml": "[verifier]\ntimeout_sec = 10\n"}), "a", nil)
			sh(t, e, "echo broken >/app/out.txt")
			r, err := send(t, e)
			if c.broken != "" {
				require.ErrorContains(t, err, c.broken)
				require.ErrorContains(t, err, "on an untouched machine neither")
				return
			}
			require.NoError(t, err)
			require.InDelta(t, c.reward, r.Reward, 0)
			require.Equal(t, c.reward == 1, r.Success)
			require.Contains(t, r.Info["no_reward"], c.wrong)
			require.Equal(t, c.wrong == "", r.Info["no_reward"] == "")
			score, err := e.(environments.Scorer).Score(t.Context())
			require.NoError(t, err)
			require.InDelta(t, c.reward, score, 0)
		})
	}
}

// The limits of a task end the episode, and what was done by then is tested.
func TestLimits(t *testing.T) {
	toml := map[string]string{"task.toml": "[agent]\ntimeout_sec = 10.5\n"}
	e := begin(t, write(t, t.TempDir(), "a", toml), "a", nil)
	began := time.Now()
	r := sh(t, e, "echo done >out.txt; sleep 60")
	require.Less(t, time.Since(began), 40*time.Second)
	require.True(t, r.Truncated && !r.Terminated)
	require.InDelta(t, 1, r.Reward, 0)
	require.Contains(t, text(r), "The time of the task, 10.5s, is up.")

	e = begin(t, write(t, t.TempDir(), "a", nil), "a", map[string]any{"max_steps": 2})
	require.False(t, sh(t, e, "true").Over())
	r = sh(t, e, "true")
	require.True(t, r.Truncated)
	require.Zero(t, r.Reward)

	e = begin(t, write(t, t.TempDir(), "a", nil), "a", map[string]any{"seconds": 10})
	require.Contains(t, text(sh(t, e, "echo x; sleep 60")), "x\n[stopped: it ran longer than 10s]")
	require.Contains(t, text(sh(t, e, "exit 3")), "[exit status 3]")
	r = sh(t, e, "echo ok; sleep 100 & p=$!; kill $p; wait $p 2>/dev/null")
	require.Equal(t, "ok\n[exit status 143]", text(r), "the script came to its end")
	require.Equal(t, map[string]any{"exit": 143}, r.Info)
	score, err := e.(environments.Scorer).Score(t.Context())
	require.NoError(t, err, "an episode that nobody submitted has a score")
	require.Zero(t, score)

	// A deadline of the step that is nearer than that of the tests is the job's fault.
	e = begin(t, write(t, t.TempDir(), "a", map[string]string{"tests/test.sh": "sleep 30"}), "a", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = e.Step(ctx, environments.Action{Name: boxed.SubmitName, Arguments: []byte(`{}`)})
	require.ErrorContains(t, err, "environment.step_timeout")
}

func TestRefused(t *testing.T) {
	docker := func(lines string) map[string]string {
		return map[string]string{"environment/Dockerfile": lines}
	}
	toml := func(text string) map[string]string { return map[string]string{"task.toml": text} }
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"image":       {docker("FROM node:20\nWORKDIR /app"), "environment/Dockerfile line 1: FROM node:20: this machine's programs stand in for debian, ubuntu, python, scratch only; where they are what the image node:20 has, say images: [node]"},
		"stages":      {docker("FROM ubuntu\nWORKDIR /app\nFROM ubuntu"), "line 3: FROM ubuntu: a second stage needs containers"},
		"from stage":  {docker("FROM ubuntu\nWORKDIR /app\nCOPY --from=x a b"), "line 3: COPY --from=x a b: --from needs containers"},
		"no source":   {docker("FROM ubuntu\nWORKDIR /app\nCOPY nothing ."), "there is no nothing in environment/"},
		"outside":     {docker("FROM ubuntu\nWORKDIR /app\nCOPY ../tests ."), "there is no ../tests in environment/"},
		"system":      {docker("FROM ubuntu\nWORKDIR /app\nCOPY Dockerfile /etc/x/"), "writes in /etc"},
		"tests":       {docker("FROM ubuntu\nWORKDIR /app\nCOPY Dockerfile /tests/"), "writes in /tests"},
		"network":     {docker("FROM ubuntu\nWORKDIR /app\nADD https://x.org/y ."), "the sandbox has no network for https://x.org/y"},
		"user":        {docker("FROM ubuntu\nWORKDIR /app\nUSER agent"), "USER agent: the sandbox has one user"},
		"entry":       {docker("FROM ubuntu\nWORKDIR /app\nENTRYPOINT x"), "ENTRYPOINT needs containers"},
		"mount":       {docker("FROM ubuntu\nWORKDIR /app\nRUN --mount=type=cache x"), "flags of RUN need containers"},
		"heredoc":     {docker("FROM ubuntu\nWORKDIR /app\nRUN cat <<E\nx\nE"), "here-documents"},
		"no workdir":  {docker("FROM ubuntu\nRUN true"), "has no WORKDIR"},
		"root":        {docker("FROM ubuntu\nWORKDIR /"), "programs cannot write in /"},
		"empty":       {docker("# nothing"), "has no FROM"},
		"env":         {docker("FROM ubuntu\nWORKDIR /app\nENV A=\"x"), "write NAME=value"},
		"compose":     {map[string]string{"environment/docker-compose.yaml": "x"}, "environment/docker-compose.yaml needs containers"},
		"no tests":    {map[string]string{"tests/test.sh": ""}, "there is no tests/test.sh"},
		"instruction": {map[string]string{"instruction.md": " \n"}, "instruction.md is empty"},
		"toml":        {toml("x = ["), "task.toml: "},
		"internet":    {toml("[environment]\nallow_internet = true"), "say offline: true"},
		"gpu":         {toml("[environment]\ngpus = 1"), "environment.gpus: the sandbox has none"},
		"prebuilt":    {toml("[environment]\ndocker_image = \"x/y\""), `environment.docker_image = "x/y" needs containers`},
		"steps":       {toml("[[steps]]\nname = \"x\""), "several steps"},
		"unknown":     {toml("[verifier]\nenvironment_mode = \"separate\""), "verifier.environment_mode is not supported"},
		"secrets":     {toml("[verifier.env]\nKEY = \"${KEY}\""), "verifier.env.KEY takes its value from this machine"},
		"timeout":     {toml("[agent]\ntimeout_sec = nan"), "agent.timeout_sec is NaN"},
		"negative":    {toml("[agent]\ntimeout_sec = -1"), "agent.timeout_sec is -1"},
		"memory":      {toml("[environment]\nmemory = \"lots\""), "environment.memory = \"lots\" cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, t.TempDir(), "bad", c.files)
			_, err := open(t, map[string]any{"path": dir})
			require.ErrorContains(t, err, "1 of 1 tasks cannot be played here: bad: ")
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "\n")
			bubblewrap(t)
			write(t, dir, "good", nil)
			s, err := open(t, map[string]any{"path": dir, "skip": true})
			require.NoError(t, err)
			defer s.Close()
			tasks, err := s.(environments.Tasker).Tasks(environments.Train, 1)
			require.NoError(t, err)
			require.Equal(t, "harbor-good", tasks[0].ID)
		})
	}
}

// A RUN that the sandbox cannot do is the fault of the task, named with its line, and the environment plays the next one.
func TestRunThatFails(t *testing.T) {
	dir := write(t, t.TempDir(), "a", nil)
	write(t, dir, "b", map[string]string{"environment/Dockerfile": "FROM ubuntu\nWORKDIR /app\nRUN echo installing && false\n"})
	e := begin(t, dir, "a", nil)
	for range 2 {
		_, err := e.Reset(t.Context(), start("b"))
		var wrong *environments.TaskError
		require.ErrorAs(t, err, &wrong)
		require.ErrorContains(t, err, "environment/Dockerfile line 3: RUN echo installing && false: it fails in the sandbox, which has no network and no root (exit status 1: installing)")
	}
	_, err := e.Reset(t.Context(), start("c"))
	require.ErrorContains(t, err, `there is no task "c"`)
	_, err = e.Reset(t.Context(), start("a"))
	require.NoError(t, err)
}

// A disk that fails is no fault of the task, which is tried again; a Dockerfile that copies a file where a folder stands, or makes a device, is.
func TestFaultOfTheHost(t *testing.T) {
	bubblewrap(t)
	dir := write(t, t.TempDir(), "a", map[string]string{"environment/Dockerfile": "FROM ubuntu:24.04\nWORKDIR /app\nCOPY x sub/x\n", "environment/x": "x"})
	write(t, dir, "b", map[string]string{"environment/Dockerfile": "FROM ubuntu:24.04\nWORKDIR /app\nCOPY x y\nWORKDIR y\n", "environment/x": "x"})
	write(t, dir, "c", map[string]string{"environment/Dockerfile": "FROM ubuntu:24.04\nWORKDIR /app\nRUN mkdir y\nCOPY x y\nCOPY y y\n", "environment/x/file": "x", "environment/y/file/z": "x"})
	write(t, dir, "d", map[string]string{"environment/Dockerfile": "FROM ubuntu:24.04\nWORKDIR /app\nRUN python3 -c 'import os; os.mknod(\"dev\", 0o020600)'\n"})
	s, err := open(t, map[string]any{"path": dir})
	require.NoError(t, err)
	defer s.Close()
	e, err := s.New(t.Context(), "test")
	require.NoError(t, err)
	defer e.Close()
	steps := s.(*source).tasks["a"].recipe.steps
	step := &steps[len(steps)-1]
	good := step.copies
	step.copies = []string{"/proc/self/mem"} // a file of which the first bytes cannot be read
	for range 2 {
		_, err = e.Reset(t.Context(), start("a"))
		require.ErrorIs(t, err, syscall.EIO)
		require.NotErrorAs(t, err, new(*environments.TaskError))
	}
	step.copies = good
	_, err = e.Reset(t.Context(), start("a"))
	require.NoError(t, err)
	for name, want := range map[string]string{
		"b": "environment/Dockerfile line 4: WORKDIR y: mkdirat y: file exists",
		"c": "environment/Dockerfile line 5: COPY y y: mkdirat y/file: file exists",
		"d": "its files: /app/dev is no file, no folder, no link and no pipe",
	} {
		_, err := e.Reset(t.Context(), start(name))
		require.ErrorAs(t, err, new(*environments.TaskError))
		require.ErrorContains(t, err, want)
	}
}

// A reward that this process cannot read is not the same as none.
func TestRewardThatCannotBeRead(t *testing.T) {
	logs, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer logs.Close()
	require.NoError(t, logs.Mkdir("verifier", 0o755))
	require.NoError(t, logs.WriteFile("verifier/reward.txt", []byte("1"), 0o644))
	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	none := before
	none.Cur = 3
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
	_, _, err = rewardOf(logs)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before))
	require.ErrorIs(t, err, syscall.EMFILE)
	reward, wrong, err := rewardOf(logs)
	require.NoError(t, err)
	require.Empty(t, wrong)
	require.InDelta(t, 1, reward, 0)
}

func TestParameters(t *testing.T) {
	for _, c := range []struct {
		params map[string]any
		want   string
	}{
		{nil, "the parameter path is missing"},
		{map[string]any{"path": "/nowhere/at/all"}, "path: stat /nowhere/at/all"},
		{map[string]any{"path": t.TempDir()}, "has no folder with a task.toml"},
		{map[string]any{"path": "x", "max_steps": 0}, "max_steps is 0"},
		{map[string]any{"path": "x", "sed": 1}, "sed"},
	} {
		_, err := open(t, c.params)
		require.ErrorContains(t, err, c.want)
	}
}

// Where the sandbox is landlock the kind says what to install.
func TestLandlock(t *testing.T) {
	r := resources.New(resources.Options{Sandbox: sandbox.Landlock})
	defer r.Close()
	s, err := New(t.Context(), r, map[string]any{"path": write(t, t.TempDir(), "a", nil)})
	if errors.Is(err, sandbox.ErrUnavailable) {
		t.Skip("this kernel has no landlock that confines: ", err)
	}
	require.NoError(t, err)
	defer s.Close()
	require.ErrorContains(t, r.Begin(t.Context()), "install the package bubblewrap")
	_, err = s.New(t.Context(), "test")
	require.ErrorContains(t, err, "install the package bubblewrap")
}

func FuzzDockerfile(f *testing.F) {
	f.Add("FROM ubuntu\nWORKDIR /app\nENV A=1 B='x'\nRUN true \\\n && false\n")
	f.Add("ARG X=ubuntu\nFROM ${X}\nWORKDIR a\nCOPY [\"Dockerfile\", \".\"]\n")
	dir := f.TempDir()
	require.NoError(f, os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("x"), 0o600))
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parse(text, dir, nil)
		if err != nil {
			return
		}
		for _, s := range r.steps {
			for _, from := range s.copies {
				require.True(t, strings.HasPrefix(from, dir), from)
			}
		}
	})
}

// The tasks of examples/harbor.yaml are solved by their own solutions, and none by doing nothing.
func TestExamples(t *testing.T) {
	bubblewrap(t)
	s, err := open(t, map[string]any{"path": "../../examples/harbor"})
	require.NoError(t, err)
	defer s.Close()
	e, err := s.New(t.Context(), "test")
	require.NoError(t, err)
	defer e.Close()
	require.Len(t, s.(*source).tasks, 5)
	for name := range s.(*source).tasks {
		_, err := e.Reset(t.Context(), start(name))
		require.NoError(t, err)
		actions, err := e.(environments.Solver).Solution(t.Context())
		require.NoError(t, err)
		var r environments.Result
		for _, a := range actions {
			r, err = e.Step(t.Context(), a)
			require.NoError(t, err)
		}
		require.True(t, r.Success, "%s: %v", name, r.Info)
		_, err = e.Reset(t.Context(), start(name))
		require.NoError(t, err)
		r, err = send(t, e)
		require.NoError(t, err)
		require.Zero(t, r.Reward, name)
	}
}
