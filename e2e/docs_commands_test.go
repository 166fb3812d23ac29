//go:build torch && unix

package e2e_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/modelfile"
)

// docsCommands are the command lines of a page's blocks, without what is said about them.
func docsCommands(page string) (out []string) {
	comment, fence := regexp.MustCompile(`\s{2,}#.*$|\s# .*$`), ""
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(comment.ReplaceAllString(strings.TrimRight(line, "\n"), ""))
		switch {
		case strings.HasPrefix(line, "```") && fence == "":
			fence = line
		case line == "```":
			fence = ""
		case fence == "```" || fence == "```sh":
			if line = strings.TrimPrefix(line, "bin/"); strings.HasPrefix(line, "agentfly ") {
				out = append(out, line)
			}
		}
	}
	return out
}

// Every line of a block of docs/ that calls agentfly runs, page by page, in a folder with the example jobs and a few runs. docs/recipes.md and
// docs/tutorial.md have tests of their own. Changed are
// addresses and folders, which must be free, and the number of steps where none is named.
func TestCommandsOfTheDocs(t *testing.T) {
	needTorch(t)
	needPython(t)
	onPath(t)
	tiny := trainJob(t, "examples/tiny.yaml", "--set", "trainer.steps=12")
	var spans atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		spans.Add(1)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer collector.Close()
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	total, curves := 0, "docs/results/curves/calculator-seed1.jsonl"
	for _, page := range pages {
		name := filepath.Base(page)
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		commands := docsCommands(string(text))
		if name == "recipes.md" || name == "tutorial.md" || len(commands) == 0 {
			continue
		}
		total += len(commands)
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(filepath.Join(dir, "examples"), os.DirFS("examples")))
			require.NoError(t, os.CopyFS(filepath.Join(dir, "docs/results/curves"), os.DirFS(filepath.Dir(curves))))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "tools.py"), []byte("from agentfly import tool\n\n@tool\ndef area(width: int, height: int = 3) -> int:\n    \"\"\"The area.\"\"\"\n    return width * height\n\ndef test_area():\n    assert area(2) == 6\n"), 0o600))
			run := "runs/tiny"
			if !slices.ContainsFunc(commands, func(l string) bool { return strings.HasPrefix(l, "agentfly train examples/tiny.yaml") }) {
				for _, one := range []string{"runs/tiny", "runs/a", "runs/b", "runs/calculator", "tiny"} {
					require.NoError(t, os.CopyFS(filepath.Join(dir, one), os.DirFS(tiny)))
				}
			}
			var live *exec.Cmd
			said := &lines{}
			if slices.ContainsFunc(commands, func(l string) bool { return strings.HasPrefix(l, "agentfly control ") }) { // of a run that trains
				run = "runs/live"
				live = exec.Command("agentfly", "train", "examples/tiny.yaml", "--output", run, "--set", "trainer.steps=100000")
				live.Dir, live.Stdout, live.Stderr = dir, said, said
				require.NoError(t, live.Start())
				defer func() { _ = live.Process.Kill() }()
				require.Eventually(t, func() bool {
					return strings.Contains(said.String(), "  reward ")
				}, 2*time.Minute, 100*time.Millisecond, "%s", said)
			}
			for _, line := range commands {
				runDocsCommand(t, dir, run, collector.URL, line)
			}
			if live != nil {
				_ = live.Wait()
				require.Contains(t, said.String(), "continue it with --resume", "it was stopped by the page's last command")
			}
		})
	}
	require.GreaterOrEqual(t, total, 40)
	require.Positive(t, spans.Load(), "docs/export.md sends spans")
}

// runDocsCommand runs a line of a page. One that serves is told to end when it says its address.
func runDocsCommand(t *testing.T, dir, run, collector, line string) {
	t.Helper()
	if strings.Contains(line, "HuggingFaceTB/SmolLM2-135M-Instruct") {
		if _, err := modelfile.Resolve("HuggingFaceTB/SmolLM2-135M-Instruct"); err != nil {
			t.Logf("not run, make setup fetches the model: %s", line)
			return
		}
	}
	changed := strings.NewReplacer("MODEL|JOB", run, " JOB", " examples/tiny.yaml", " RUN", " "+run, "http://127.0.0.1:4318", collector, "--port 8000", "--port 0", "127.0.0.1:8100", "127.0.0.1:0",
		"0.0.0.0:8000", "127.0.0.1:0", " KIND", " frozenlake", " KEY", " secret").Replace(line)
	serves := regexp.MustCompile(`^agentfly (view|serve|gateway|env serve)\b`).MatchString(line)
	switch {
	case strings.HasPrefix(line, "agentfly view"):
		changed += " --listen 127.0.0.1:0"
	case strings.HasPrefix(changed, "agentfly train examples/tiny.yaml") && !strings.Contains(line, "trainer.steps"):
		changed += " --set trainer.steps=4"
	}
	if _, err := os.Stat(filepath.Join(dir, "runs/tiny")); err == nil && strings.HasPrefix(changed, "agentfly train ") && !strings.Contains(line, "--output") && !strings.Contains(line, "tiny_") {
		changed += " --output runs/new"
	}
	said := &lines{}
	c := exec.Command("sh", "-euc", "exec "+changed)
	c.Dir, c.Stdout, c.Stderr, c.Stdin = dir, said, said, strings.NewReader("")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, c.Start())
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	late := time.After(3 * time.Minute)
	for told := false; ; {
		select {
		case err := <-done:
			require.NoError(t, err, "%s\n%s", changed, said)
			require.True(t, told || !serves, "%s ended by itself\n%s", changed, said)
			t.Logf("$ %s\n%s", changed, first(said.String(), 600))
			return
		case <-late:
			_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
			require.Fail(t, "it did not end", "%s\n%s", changed, said)
		case <-time.After(50 * time.Millisecond):
			if serves && !told && strings.Contains(said.String(), "http://127.0.0.1:") {
				told = true
				require.NoError(t, c.Process.Signal(syscall.SIGINT))
			}
		}
	}
}

func first(s string, n int) string { return s[:min(n, len(s))] }
