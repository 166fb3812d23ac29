package tools_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	httptool "github.com/agentfly/agentfly/tools/http"
	"github.com/agentfly/agentfly/trajectory"
)

const (
	manyCalls = 2000
	patience  = 5 * time.Minute // for calls that end: a busy machine is slow
	deadline  = time.Second     // of those that never do
	workers   = 16
)

// manyLimits are those of the tool whose calls end and of the one whose calls hang. Each worker has a place.
var manyLimits = map[string]tools.Limits{
	"work": {Timeout: patience, Concurrency: workers - 4},
	"hang": {Timeout: deadline, Concurrency: 4},
}

// fate says what happens to call i: one of a hundred crashes, one hangs.
func fate(i int) string {
	switch i % 100 {
	case 7:
		return "crash"
	case 42:
		return "hang"
	}
	return "fine"
}

type numbered struct {
	I int `json:"i"`
}

// many is a way of calling tools with their crashes and hangs.
type many struct {
	name    string
	open    func(t *testing.T, shared *resources.Resources) []tools.Tool // work and hang
	release func()                                                       // ends what hangs and ignores its deadline
	crash   string                                                       // the observation of a call that crashed
	ignores bool                                                         // what hangs ignores its deadline
	retries int                                                          // of a call that crashed
}

func goTool() many {
	let := make(chan struct{})
	return many{name: "go", crash: "Error: work failed inside; try other arguments", ignores: true, release: func() { close(let) }, open: func(*testing.T, *resources.Resources) []tools.Tool {
		return []tools.Tool{
			tools.NewFunc("work", "", func(_ context.Context, a numbered) (string, error) {
				if fate(a.I) == "crash" {
					panic("crash " + strconv.Itoa(a.I))
				}
				return "done " + strconv.Itoa(a.I), nil
			}),
			tools.NewFunc("hang", "", func(context.Context, numbered) (string, error) {
				<-let // whatever its context says
				return "", nil
			}),
		}
	}}
}

func httpTool() many {
	return many{name: "http", crash: "Error: work: the service broke off its answer: unexpected EOF", retries: 2, release: func() {}, open: func(t *testing.T, shared *resources.Resources) []tools.Tool {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			i, err := strconv.Atoi(q.URL.Query().Get("i"))
			switch {
			case err != nil:
				http.Error(w, err.Error(), http.StatusBadRequest)
			case fate(i) == "crash":
				w.Header().Set("Content-Length", "100")
				io.WriteString(w, "half")
			case fate(i) == "hang":
				<-q.Context().Done()
			default:
				fmt.Fprintf(w, "done %d", i)
			}
		}))
		shared.OnClose(func() error { server.Close(); return nil })
		var all []tools.Tool
		for _, name := range []string{"work", "hang"} {
			made, err := httptool.Source(t.Context(), shared, map[string]any{"http": map[string]any{
				"url": server.URL, "name": name, "method": "GET", "schema": map[string]any{"properties": map[string]any{"i": map[string]any{"type": "integer"}}},
			}})
			require.NoError(t, err)
			all = append(all, made...)
		}
		return all
	}}
}

const pythonFile = `
import os, time
from agentfly import tool

@tool(description="Works.")
def work(i: int) -> str:
    if i % 100 == 7:
        os._exit(3)
    return f"done {i}"

@tool(description="Hangs.")
def hang(i: int) -> str:
    time.sleep(1000)
`

func pythonTool(sandboxed bool) many {
	name := "python"
	if sandboxed {
		name = "sandboxed python"
	}
	return many{name: name, crash: "Error: work broke: its process ended", release: func() {}, open: func(t *testing.T, shared *resources.Resources) []tools.Tool {
		if _, err := exec.LookPath("python3"); err != nil {
			t.Skip("python3 is not on PATH: apt-get install python3")
		}
		if sandboxed {
			if os.Getenv("AGENTFLY_LONG") == "" {
				t.Skip("the same again in sandboxes: run by make test-long, which sets AGENTFLY_LONG")
			}
			if _, err := shared.Sandbox(t.Context()); err != nil {
				t.Skip(err)
			}
		}
		file := filepath.Join(t.TempDir(), "work.py")
		require.NoError(t, os.WriteFile(file, []byte(pythonFile), 0o600))
		made, err := tools.PythonFile(t.Context(), shared, map[string]any{"python": file, "workers": workers, "sandboxed": sandboxed})
		require.NoError(t, err)
		return made
	}}
}

// Two thousand calls at once, of which one in a hundred crashes and one hangs: each has a result that says what became of it, and afterwards
// there is no goroutine, file descriptor, process or file more than before.
func TestTwoThousandCalls(t *testing.T) {
	for _, kind := range []many{goTool(), httpTool(), pythonTool(false), pythonTool(true)} {
		t.Run(kind.name, func(t *testing.T) { twoThousand(t, kind) })
	}
}

func twoThousand(t *testing.T, kind many) {
	t.Setenv("TMPDIR", t.TempDir())
	goroutines := goleak.IgnoreCurrent()
	descriptors, children := openFiles(t), processes(t)
	shared := resources.New(resources.Options{})
	r := tools.NewRegistry(tools.Options{})
	for _, tool := range kind.open(t, shared) {
		require.NoError(t, r.RegisterAs(tool, tools.Ref{Limits: manyLimits[tool.Spec().Name]}))
	}

	results := make([]trajectory.ToolResult, manyCalls)
	var all sync.WaitGroup
	for i := range results {
		id := fmt.Sprint("t", i/4) // four calls a trajectory
		name := "work"
		if fate(i) == "hang" {
			name = "hang"
		}
		all.Go(func() {
			results[i] = r.Invoke(t.Context(), id, trajectory.ToolCall{ID: fmt.Sprint(i), Name: name, Arguments: json.RawMessage(fmt.Sprintf(`{"i": %d}`, i))})
		})
	}
	all.Wait()
	for i := range manyCalls / 4 {
		r.End(fmt.Sprint("t", i))
	}

	fates := map[string]int{}
	for i, got := range results {
		require.Equal(t, fmt.Sprint(i), got.Call.ID)
		want, cause, retries := fmt.Sprint("done ", i), trajectory.Cause(""), 0
		switch fate(i) {
		case "crash":
			want, cause, retries = kind.crash, trajectory.CauseBroken, kind.retries
		case "hang":
			want, cause = fmt.Sprintf("Error: hang took longer than %s; ask it for less work", deadline), trajectory.CauseBroken
		}
		require.Equal(t, want, got.Observation)
		require.Equal(t, cause, got.Cause)
		require.Equal(t, retries, got.Retries)
		fates[fate(i)]++
	}
	require.Equal(t, map[string]int{"fine": 1960, "crash": 20, "hang": 20}, fates)
	if kind.ignores {
		require.Equal(t, map[string]int{"hang": 20}, r.Abandoned(), "they are counted as long as they run")
	}
	kind.release()
	require.Eventually(t, func() bool { return r.Abandoned() == nil }, time.Minute, time.Millisecond)
	require.NoError(t, shared.Close())

	goleak.VerifyNone(t, goroutines)
	require.Eventually(t, func() bool { return openFiles(t) <= descriptors }, time.Minute, 10*time.Millisecond)
	require.Equal(t, children, processes(t))
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left)
}

// openFiles counts the descriptors of this process.
func openFiles(t *testing.T) int {
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("descriptors cannot be counted: %v", err)
	}
	return len(all)
}

// processes are those that this process started, and those that they started.
func processes(t *testing.T) map[string]bool {
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	parents := map[string]string{}
	for _, path := range all {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it ended
		}
		_, rest, _ := strings.Cut(string(data[strings.LastIndexByte(string(data), ')'):]), " ") // pid (name) state parent
		if fields := strings.Fields(rest); len(fields) > 1 {
			parents[strings.Split(path, "/")[2]] = fields[1]
		}
	}
	out := map[string]bool{}
	for pid := range parents {
		for at := parents[pid]; at != ""; at = parents[at] {
			if at == strconv.Itoa(os.Getpid()) {
				out[pid] = true
			}
		}
	}
	return out
}
