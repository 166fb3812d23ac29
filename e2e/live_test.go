//go:build torch && unix

package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/internal/terminal/terminaltest"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
)

// shown is what a person sees of all that a command printed, and has scrolled by.
func (s *session) shown(columns int) string {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	screen := &terminaltest.Screen{Width: columns, Height: 40}
	_, err := screen.Write(s.said)
	require.NoError(s.t, err, "%q", s.said)
	return screen.String()
}

// drawn finds what only the table has.
var drawn = regexp.MustCompile(`(?m)^(now    |speed  sampled|step   \d+/\d+  \[)`)

// On a terminal a table is drawn below the lines of a run, and is gone at its end; elsewhere, and where somebody wants none, there are the lines alone.
func TestALiveTable(t *testing.T) {
	onPath(t)
	dir := quickJob(t)
	const train = "agentfly train job.yaml --set trainer.steps=3 --output "
	for _, columns := range []uint16{80, 30} {
		s := onTerminal(t, dir, train+"live --overwrite --yes", columns)
		require.Zero(t, s.end(), s.text())
		require.Regexp(t, drawn, s.text(), "the table was drawn")
		screen := s.shown(int(columns))
		require.NotRegexp(t, drawn, screen, "and is gone")
		for _, line := range []string{"step   1/3   reward", "step   2/3   reward", "step   3/3   reward", "evaluation   before", "next           agentfly"} {
			require.Equal(t, 1, strings.Count(strings.ReplaceAll(screen, "\n", ""), line), "%s\n%s", line, screen)
		}
	}
	for _, plain := range []string{train + "plain --plain", "env TERM=dumb " + train + "dumb", "env AGENTFLY_PLAIN=1 " + train + "asked", train + "piped | cat"} {
		if strings.HasSuffix(plain, "cat") {
			plain = "sh -c '" + plain + "'"
		}
		s := onTerminal(t, dir, plain, 80)
		require.Zero(t, s.end(), s.text())
		require.NotContains(t, string(s.said), "\x1b", plain)
		require.NotRegexp(t, drawn, s.text(), plain)
		require.Contains(t, s.text(), "step   3/3   reward", plain)
	}

	// what is for programs is as it was: the table of an evaluation is on standard error
	s := onTerminal(t, dir, "sh -c 'agentfly eval job.yaml --model live > eval.json; agentfly rollout job.yaml --model live > rollout.jsonl'", 80)
	require.Zero(t, s.end(), s.text())
	require.Regexp(t, `now    (evaluation|sampling), for`, s.text())
	require.NotContains(t, s.shown(80), "now    ")
	for _, name := range []string{"eval.json", "rollout.jsonl"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.NotEmpty(t, text)
		for line := range strings.Lines(string(text)) {
			require.True(t, json.Valid([]byte(line)), line)
		}
	}
}

// Ctrl-C is answered at once with what is finished; the screen is whole, and other commands then know how the run stands.
func TestInterruptedLive(t *testing.T) {
	onPath(t)
	dir := quickJob(t)
	s := onTerminal(t, dir, "agentfly train job.yaml --set trainer.steps=100000 --output long", 80)
	s.until(0, regexp.MustCompile(`(?m)^step +2/100000   reward`))
	running, err := onCommand(dir, "agentfly", "status", "long")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^state     running, \d+ of 100000 steps done`, running)
	require.Regexp(t, `(?m)^now       .* \(process \d+ on `, running)
	s.press("\x03")
	require.Equal(t, 3, s.end(), s.text())
	screen := s.shown(80)
	require.NotRegexp(t, drawn, screen)
	require.Regexp(t, `(?s)\n(\^C)?agentfly: stopping; a second signal ends the process at once\n(?:.*\n)*?stopping: .*checkpoint.*\ninterrupted after step \d+; saved in long/checkpoints/last\ngo on with .*\nagentfly: `, screen[strings.Index(screen, "step "):])
	ended, err := onCommand(dir, "agentfly", "runs")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^long  interrupted  \d+/100000`, ended)

	killed := exec.Command("agentfly", "train", "job.yaml", "--resume", "--set", "trainer.steps=100000", "--output", "long")
	killed.Dir = dir
	require.NoError(t, killed.Start())
	defer func() { _ = killed.Process.Kill() }() // where the test failed

	require.Eventually(t, func() bool { // it says that it runs
		now, err := runfolder.ReadNow(filepath.Join(dir, "long"))
		return err == nil && now != nil && now.PID == killed.Process.Pid
	}, time.Minute, time.Millisecond)
	require.NoError(t, killed.Process.Kill())
	_ = killed.Wait()
	ended, err = onCommand(dir, "agentfly", "runs")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^long  interrupted  \d+/100000`, ended)
	require.Contains(t, ended, "its process ended without a word")
}

func onCommand(dir string, words ...string) (string, error) {
	p := exec.Command(words[0], words[1:]...)
	p.Dir = dir
	out, err := p.CombinedOutput()
	return string(out), err
}

// What a run tells as JSON has each step, evaluation and note, and nothing else is on standard output.
func TestALogOfJSON(t *testing.T) {
	onPath(t)
	dir := quickJob(t)
	p := exec.Command("agentfly", "train", "job.yaml", "--set", "trainer.steps=2", "--output", "logged", "--log-format", "json")
	p.Dir = dir
	out, err := p.Output()
	require.NoError(t, err)
	kinds := map[string]int{}
	for line := range strings.Lines(string(out)) {
		var event struct {
			Time, Kind string
			Metrics    map[string]float64
			Summary    map[string]any
		}
		require.NoError(t, json.Unmarshal([]byte(line), &event), line)
		require.NotEmpty(t, event.Time)
		kinds[event.Kind]++
		switch event.Kind {
		case "step":
			require.Contains(t, event.Metrics, "reward/mean")
		case "summary":
			require.EqualValues(t, 2, event.Summary["steps"])
		}
	}
	require.Equal(t, 2, kinds["step"])
	require.Equal(t, 2, kinds["evaluation"])
	require.Equal(t, []int{1, 1}, []int{kinds["begin"], kinds["summary"]})
	require.Positive(t, kinds["doing"])
}

// A download of scripts/fetch.py draws a bar on a terminal, never wider than it, and the file is the one that was asked for.
func TestADownloadDrawsABar(t *testing.T) {
	needPython(t)
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
	}))
	defer server.Close()
	scripts, err := filepath.Abs("scripts")
	require.NoError(t, err)
	dir := t.TempDir()
	program := fmt.Sprintf("import sys, pathlib\nsys.path.insert(0, %q)\nimport fetch\nfetch.CACHE = pathlib.Path(sys.argv[1])\nprint(fetch.download('torch', '1', %q, lambda n, v: %q))\n", scripts, fmt.Sprintf("%x", sha256.Sum256(body)), server.URL+"/x.whl")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "try.py"), []byte(program), 0o600))
	s := onTerminal(t, dir, "env no_proxy=127.0.0.1 python3 -B try.py there", 60)
	require.Zero(t, s.end(), s.text())
	require.Contains(t, s.text(), "[####################] 100%  4 of 4 MB")
	for _, line := range strings.FieldsFunc(s.text(), func(r rune) bool { return r == '\r' || r == '\n' }) {
		if strings.HasPrefix(line, "fetch: torch [") {
			require.Less(t, len(strings.TrimSuffix(line, "\x1b[K")), 60, line)
		}
	}
	out, err := exec.Command("env", "-C", dir, "no_proxy=127.0.0.1", "python3", "-B", "try.py", "piped").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NotContains(t, string(out), "[#")
	files, err := filepath.Glob(filepath.Join(dir, "there", "downloads", "*.whl"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	got, err := os.ReadFile(files[0])
	require.NoError(t, err)
	require.True(t, bytes.Equal(body, got))
}
