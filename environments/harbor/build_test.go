package harbor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/wording"
)

// docker is a task whose Dockerfile has these lines behind FROM.
func docker(lines string) map[string]string {
	return map[string]string{"environment/Dockerfile": "FROM ubuntu:24.04\n" + lines}
}

// use calls a tool in an episode.
func use(t testing.TB, e environments.Environment, name string, arguments map[string]any) environments.Result {
	t.Helper()
	args, err := wording.JSON(arguments)
	require.NoError(t, err)
	r, err := e.Step(t.Context(), environments.Action{Name: name, Arguments: args})
	require.NoError(t, err)
	return r
}

// refusedAt has a task refused at its reset, and its error say this.
func refusedAt(t *testing.T, files map[string]string, want string) {
	t.Helper()
	dir := write(t, t.TempDir(), "a", files)
	write(t, dir, "good", nil)
	_, err := begin(t, dir, "good", nil).Reset(t.Context(), start("a"))
	require.ErrorAs(t, err, new(*environments.TaskError))
	require.ErrorContains(t, err, want)
	require.NotContains(t, err.Error(), "\n")
}

// The shell form of RUN is /bin/sh -c, and its exec form starts the program itself ("Shell and exec form" of Docker's reference).
func TestShellOfARun(t *testing.T) {
	e := begin(t, write(t, t.TempDir(), "a", docker("WORKDIR /app\nRUN echo \"name,age\\nann,3\\nbob,4\" >people.csv\nRUN echo \"$0\" >shell; echo {1..3} >braces; echo gone >&2\n"+
		"RUN [\"python3\", \"-c\", \"import sys; print(sys.argv[1], file=open('exec', 'w'))\", \"$HOME 'x'\"]\n")), "a", nil)
	file := filepath.Join(t.TempDir(), "people.csv")
	sh := func(script string) string {
		out, err := exec.Command("/bin/sh", "-c", script).Output()
		require.NoError(t, err)
		return string(out)
	}
	sh(`echo "name,age\nann,3\nbob,4" >` + file)
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want)+"/bin/sh\n"+sh("echo {1..3}")+"$HOME 'x'", text(use(t, e, "shell", map[string]any{"command": "cat people.csv shell braces exec"})))
}

// A limit of memory bounds what is used, as Docker's does, and not what is reserved.
func TestMemory(t *testing.T) {
	e := begin(t, write(t, t.TempDir(), "a", nil), "a", nil)
	require.Equal(t, "40 threads", text(sh(t, e, `python3 -c '
import threading, time
all = [threading.Thread(target=time.sleep, args=(0.5,)) for _ in range(40)]
[t.start() for t in all]
print(len(all), "threads")'`)))
	require.Equal(t, "reserved", text(sh(t, e, `python3 -c 'import mmap; mmap.mmap(-1, 4 << 30); print("reserved")'`)))
	require.Contains(t, text(sh(t, e, `python3 -c '
import time
all = []
for _ in range(128):
    all.append(b"x" * (16 << 20))
    time.sleep(0.02)
print("2 GiB")'`)), "[stopped: it used too much memory]")
}

// The limits are of time as a clock shows it: a program of several threads has that of all processors.
func TestProcessorTime(t *testing.T) {
	limit := func(seconds int) string { return fmt.Sprint(seconds * runtime.NumCPU()) }
	files := docker("WORKDIR /app\nRUN ulimit -t >build\n")
	files["task.toml"] = "[environment]\nbuild_timeout_sec = 100\n[verifier]\ntimeout_sec = 70\n"
	files["tests/test.sh"] = "ulimit -t; echo 1 >/logs/verifier/reward.txt\n"
	e := begin(t, write(t, t.TempDir(), "a", files), "a", map[string]any{"seconds": 40})
	require.Equal(t, limit(100)+"\n"+limit(40), text(sh(t, e, "cat build; ulimit -t")))
	r, err := send(t, e)
	require.NoError(t, err)
	require.Equal(t, limit(70), strings.TrimSpace(r.Info["tests"].(string)))
}

// An edit keeps the rights of a file, which tests may ask for.
func TestRightsAfterAnEdit(t *testing.T) {
	files := docker("WORKDIR /app\nRUN echo 'password = a' >conf && chmod 600 conf && echo '#!/bin/sh' >run && chmod 755 run\n")
	files["tests/test.sh"] = "if [ \"$(stat -c %a /app/conf)\" = 600 ] && grep -q 'password = b' /app/conf; then echo 1; else echo 0; fi >/logs/verifier/reward.txt\n"
	e := begin(t, write(t, t.TempDir(), "a", files), "a", nil)
	use(t, e, "file_edit", map[string]any{"path": "run", "old": "sh", "new": "sh\necho ran"})
	use(t, e, "file_edit", map[string]any{"path": "conf", "old": "= a", "new": "= b"})
	use(t, e, "file_edit", map[string]any{"path": "conf", "old": "= b", "new": "= c"})
	use(t, e, "file_undo", map[string]any{"path": "conf"})
	require.Equal(t, "600 nobody conf\n755 nobody run\nran\npassword = b\nmore", text(sh(t, e, "stat -c '%a %U %n' conf run; ./run; cat conf; echo more >>conf; tail -n 1 conf")))
	r, err := send(t, e)
	require.NoError(t, err)
	require.InDelta(t, 1, r.Reward, 0)
}

// A relative path is the same to the shell and to the file tools, also where the WORKDIR is deeper than one folder.
func TestRelativePaths(t *testing.T) {
	for _, workdir := range []string{"/app/src", "/workspace/src"} {
		t.Run(workdir, func(t *testing.T) {
			files := docker("WORKDIR " + workdir + "\nCOPY main.py .\n")
			files["environment/main.py"] = "print(1)\n"
			files["tests/test.sh"] = "if [ \"$(cat " + workdir + "/out.txt)\" = done ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt\n"
			e := begin(t, write(t, t.TempDir(), "a", files), "a", nil)
			sh(t, e, "echo up >../up.txt; mkdir deep; touch deep/x")
			for _, path := range []string{"main.py", "./main.py", "deep/../main.py", workdir + "/main.py"} {
				require.Equal(t, "1\tprint(1)", text(use(t, e, "file_read", map[string]any{"path": path})), path)
			}
			require.Equal(t, "1\tup", text(use(t, e, "file_read", map[string]any{"path": "../up.txt"})))
			require.Equal(t, "deep/\ndeep/x (0 bytes)\nmain.py (9 bytes)", text(use(t, e, "file_list", map[string]any{})))
			require.Equal(t, "deep/x (0 bytes)", text(use(t, e, "file_list", map[string]any{"path": "deep"})))
			require.Contains(t, text(use(t, e, "file_list", map[string]any{"path": ".."})), "main.py (9 bytes)\n/workspace/up.txt (3 bytes)")
			require.Equal(t, "main.py:1: print(1)", text(use(t, e, "file_grep", map[string]any{"pattern": "print"})))
			require.Equal(t, "out.txt has 1 line", text(use(t, e, "file_create", map[string]any{"path": "out.txt", "content": "don\n"})))
			require.Contains(t, text(use(t, e, "file_edit", map[string]any{"path": "out.txt", "old": "don", "new": "done"})), "out.txt is now:")
			require.Equal(t, "", string(use(t, e, "file_read", map[string]any{"path": "/workspace/up.txt"}).Failure), "what a list says can be read")
			require.Contains(t, text(use(t, e, "file_read", map[string]any{"path": "../../etc/passwd"})), "is outside")
			r, err := send(t, e)
			require.NoError(t, err)
			require.InDelta(t, 1, r.Reward, 0)
		})
	}
}

// A RUN before the first WORKDIR runs in /.
func TestRunBeforeTheWorkdir(t *testing.T) {
	e := begin(t, write(t, t.TempDir(), "a", docker("RUN mkdir -p /data && pwd >/data/where && ls >/data/list\nWORKDIR /app\nRUN pwd >where\nWORKDIR sub\n")), "a", nil)
	require.Equal(t, "/\n/app\nsub\nwhere\nusr", text(sh(t, e, "cat /data/where /app/where; ls /app; grep usr /data/list")))
	refusedAt(t, docker("RUN mkdir -p data && echo 1 >data/x\nWORKDIR /app\n"), "environment/Dockerfile line 2: RUN mkdir -p data && echo 1 >data/x: it fails in the sandbox")
}

// Every folder of the root is there before the first line runs. A RUN that would do something else for that is refused; one after a line that makes the
// folder does what it does in Docker.
func TestFoldersOfTheRootAreThere(t *testing.T) {
	source := func(lines string) map[string]string {
		files := docker(lines)
		files["environment/src/x"] = "x"
		return files
	}
	const app = "WORKDIR /app\nCOPY src /app/src\n"
	for lines, folder := range map[string]string{
		"RUN mkdir /app\nWORKDIR /app\n":                                    "line 2: RUN mkdir /app: /app ",
		"WORKDIR /app\nRUN mkdir -m 755 \"/data\" && touch /data/x\n":       "line 3: RUN mkdir -m 755 \"/data\" && touch /data/x: /data ",
		app + "RUN cp -r /app/src /data\n":                                  "line 4: RUN cp -r /app/src /data: /data ",
		app + "RUN set -e; cp -r src /data/ 2>/dev/null | cat\n":            "/data ",
		app + "RUN mv /app/src /data\n":                                     "line 4: RUN mv /app/src /data: /data ",
		app + "RUN if true; then ln -s /app/src /data; fi\n":                "/data ",
		app + "RUN [\"cp\", \"-r\", \"/app/src\", \"/data\"]\n":             "/data ",
		app + "RUN ls /data || true\nRUN mkdir -p /more\nRUN mkdir /data\n": "",
	} {
		_, err := parse(source(lines)["environment/Dockerfile"], filepath.Join(write(t, t.TempDir(), "a", source(lines)), "a", "environment"), nil)
		if folder == "" {
			require.NoError(t, err, lines)
			continue
		}
		require.ErrorContains(t, err, folder+"is there from the start here; write mkdir -p or cp -rT, or use a folder below it", lines)
	}
	e := begin(t, write(t, t.TempDir(), "a", source(app+
		"RUN mkdir -p /data && cp -r /app/src /data && cp -r /app/src /opt && cp -rT /app/src /copy && ln -s /app/src /data/link\nRUN mv /app/src/x /data\nRUN mkdir -pv /copy /root/a && mkdir /copy/b\n")), "a", nil)
	require.Equal(t, "/copy/x\n/data/link\n/data/src/x\n/data/x\n/opt/src/x", text(sh(t, e, "find /data /opt /copy -not -type d | sort; test -d /copy/b")))
}

// COPY --chmod is the mode of all that is copied.
func TestModesOfACopy(t *testing.T) {
	files := docker("WORKDIR /app\nARG MODE=0750\nCOPY --chmod=755 bin /app/bin/\nCOPY --chmod=600 key key\nCOPY --chmod=644 run run\nCOPY --chmod=$MODE bin bin2\nCOPY --chmod=700 bin /app\nCOPY run ran\n" +
		"RUN mkdir old\nCOPY --chmod=700 bin old\nCOPY --chmod=700 bin /data\n")
	files["environment/bin/tool"], files["environment/bin/deep/tool"] = "#!/bin/sh\necho tool\n", "#!/bin/sh\necho deep\n"
	files["environment/key"], files["environment/run"] = "k", "#!/bin/sh\n"
	dir := write(t, t.TempDir(), "a", files)
	require.NoError(t, os.Chmod(filepath.Join(dir, "a", "environment", "run"), 0o755))
	e := begin(t, dir, "a", nil)
	require.Equal(t, "755 .\n755 bin\n755 bin/tool\n755 bin/deep\n755 bin/deep/tool\n600 key\n644 run\n750 bin2\n750 bin2/deep/tool\n700 deep\n700 deep/tool\n700 tool\n755 ran\n755 old\n700 old/tool\n700 /data\ntool\ndeep",
		text(sh(t, e, "stat -c '%a %n' . bin bin/tool bin/deep bin/deep/tool key run bin2 bin2/deep/tool deep deep/tool tool ran old old/tool /data; bin/tool; bin/deep/tool")))
	for _, mode := range []string{"u+x", "4755", "", "888"} {
		_, err := parse("FROM debian\nWORKDIR /app\nCOPY --chmod="+mode+" key .\n", filepath.Join(dir, "a", "environment"), nil)
		require.ErrorContains(t, err, fmt.Sprintf("line 3: COPY --chmod=%s key .: of --chmod three or four octal digits to 0777 are supported, such as 755", mode))
	}
}

// A link that COPY names as its source is followed, and one in a folder that it names is copied.
func TestLinkAsTheSourceOfACopy(t *testing.T) {
	files := docker("WORKDIR /app\nCOPY file one\nCOPY file /app/in/\nCOPY file fold* /app/in/\nCOPY folder tree\nCOPY folder/inner inner\n")
	files["environment/real/x"], files["environment/real.txt"] = "x", "real"
	dir := write(t, t.TempDir(), "a", files)
	at := filepath.Join(dir, "a", "environment")
	for name, to := range map[string]string{"file": "real.txt", "folder": "real", "real/inner": "x", "out": "/etc/passwd", "up": "../task.toml", "none": "nothing"} {
		require.NoError(t, os.Symlink(to, filepath.Join(at, name)))
	}
	e := begin(t, dir, "a", nil)
	require.Equal(t, "in\nin/file -\nin/inner x\nin/x -\ninner -\none -\ntree\ntree/inner x\ntree/x -", text(sh(t, e, "find * \\( -type f -printf '%p -\\n' \\) -o -printf '%p %l\\n' | sed 's/ $//' | sort")))
	require.Equal(t, "realx", text(sh(t, e, "cat one inner")))
	for name, why := range map[string]string{"out": "out is a link that leads out of environment/", "up": "up is a link that leads out of environment/", "none": "none is a link to nothing"} {
		_, err := parse("FROM debian\nWORKDIR /app\nCOPY "+name+" x\n", at, nil)
		require.ErrorContains(t, err, "line 3: COPY "+name+" x: "+why)
	}
}

// The files of solution/ are found as in Harbor, which runs bash /solution/solve.sh.
func TestWaysOfASolution(t *testing.T) {
	for name, script := range map[string]string{
		"a path":      "bash /solution/put.sh",
		"its folder":  "cd /solution && bash put.sh",
		"a program":   "/solution/put.sh",
		"beside it":   "bash \"$(dirname \"$0\")/put.sh\"",
		"a variable":  "D=/solution\nbash $D/put.sh",
		"a list":      "PATH=/solution:/solution/bin:$PATH put.sh",
		"another one": "mkdir -p /app/solution; cp /solution/put.sh /app/solution/ && bash /app/solution/put.sh",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := write(t, t.TempDir(), "a", map[string]string{
				"solution/solve.sh": "#!/bin/bash\nset -e\n" + script + "\n", "solution/put.sh": "#!/bin/bash\ncat /solution/data/word >/app/out.txt\n", "solution/data/word": "done\n",
			})
			require.NoError(t, os.Chmod(filepath.Join(dir, "a", "solution", "put.sh"), 0o755))
			e := begin(t, dir, "a", nil)
			all, err := e.(environments.Solver).Solution(t.Context())
			require.NoError(t, err)
			var r environments.Result
			for _, a := range all {
				r, err = e.Step(t.Context(), a)
				require.NoError(t, err)
				t.Log(text(r))
			}
			require.InDelta(t, 1, r.Reward, 0)
		})
	}
}

func TestMoved(t *testing.T) {
	for text, want := range map[string]string{
		"cd /solution":                      "cd /tmp/solution",
		"/solution/a:/solution":             "/tmp/solution/a:/tmp/solution",
		"D=\"/solution\"; cat </solution/a": "D=\"/tmp/solution\"; cat </tmp/solution/a",
		"/app/solution ./solution ../solution $HOME/solution ${A}/solution $(pwd)/solution ~/solution": "",
		"/solutions /solution-2 /solution_2": "",
		"/solution/solution":                 "/tmp/solution/solution",
	} {
		if want == "" {
			want = text
		}
		require.Equal(t, want, moved(text, "/solution", "/tmp/solution"))
	}
}

// What the tests take of the disk is not the agent's.
func TestDiskOfTheTests(t *testing.T) {
	e := begin(t, write(t, t.TempDir(), "a", map[string]string{
		"task.toml": "[environment]\nstorage_mb = 30\n", "tests/big": strings.Repeat("x", 12<<20),
		"tests/test.sh": "sleep 0.5; if [ \"$(cat /app/out.txt)\" = done ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt\n",
	}), "a", nil)
	require.Equal(t, "(no output)", text(sh(t, e, "echo done >out.txt; head -c 22000000 /dev/urandom >big; sleep 0.5")))
	r, err := send(t, e)
	require.NoError(t, err)
	require.InDelta(t, 1, r.Reward, 0, text(r))
}

// A script that hangs in the last call, before tests that hang too, is paid 0, and is no failure of the environment.
func TestHangAtTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		params map[string]any
		toml   string
	}{
		"the last action":  {map[string]any{"max_steps": 1, "seconds": 5}, ""},
		"the last seconds": {map[string]any{"seconds": 5}, "[agent]\ntimeout_sec = 9\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := begin(t, write(t, t.TempDir(), "a", map[string]string{
				"task.toml": "[verifier]\ntimeout_sec = 8\n" + c.toml, "tests/test.sh": "test -e /app/hang && sleep 60; echo 0 >/logs/verifier/reward.txt\n",
			}), "a", c.params)
			for over := false; !over; {
				ctx, cancel := context.WithTimeout(t.Context(), 11*time.Second)
				r, err := e.Step(ctx, environments.Action{Name: "shell", Arguments: []byte(`{"command":"touch hang; sleep 60"}`)})
				cancel()
				require.NoError(t, err)
				require.Contains(t, text(r), "[stopped: it ran longer than ")
				require.Zero(t, r.Reward)
				over = r.Over()
			}
		})
	}
}
