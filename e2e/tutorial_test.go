//go:build torch && unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/modelfile"
)

// session is a command that runs under a pseudo-terminal.
type session struct {
	t    *testing.T
	line string
	keys *os.File
	cmd  *exec.Cmd
	mu   sync.Mutex
	said []byte
	read chan struct{} // closed at the end of the output
}

// onTerminal starts a command line in a folder, on a terminal that is so wide.
func onTerminal(t *testing.T, dir, line string, columns uint16) *session {
	t.Helper()
	s := &session{t: t, line: line, cmd: exec.Command("sh", "-c", "exec "+line), read: make(chan struct{})}
	s.cmd.Dir = dir
	s.cmd.Env = slices.DeleteFunc(append(os.Environ(), "TERM=xterm"), func(e string) bool {
		return strings.HasPrefix(e, "NO_COLOR=") || strings.HasPrefix(e, "COLUMNS=")
	})
	var err error
	s.keys, err = pty.StartWithSize(s.cmd, &pty.Winsize{Rows: 40, Cols: columns})
	require.NoError(t, err)
	t.Cleanup(func() { // it has ended, unless the test failed
		_ = s.cmd.Process.Kill()
		_ = s.keys.Close()
		<-s.read
	})
	go func() {
		defer close(s.read)
		buffer := make([]byte, 1<<16)
		for {
			n, err := s.keys.Read(buffer)
			s.mu.Lock()
			s.said = append(s.said, buffer[:n]...)
			s.mu.Unlock()
			if err != nil { // a terminal whose program has ended cannot be read
				return
			}
		}
	}()
	return s
}

// escape is a colour, or another sequence of a terminal.
var escape = regexp.MustCompile(`\x1b\[[0-9;?]*[a-zA-Z]`)

// text is what was printed so far, without colours.
func (s *session) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.ReplaceAll(escape.ReplaceAllString(string(s.said), ""), "\r\n", "\n")
}

// until waits until what was printed matches, beyond a place in it, and returns the place behind.
func (s *session) until(from int, pattern *regexp.Regexp) int {
	s.t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; {
		text := s.text()
		if at := pattern.FindStringIndex(text[min(from, len(text)):]); at != nil {
			return from + at[1]
		}
		select {
		case <-s.read:
			if at := pattern.FindStringIndex(s.text()[from:]); at != nil {
				return from + at[1]
			}
			require.FailNow(s.t, "the page says what was not printed", "%s\n\nmissing: %s\n\nprinted after what was found:\n%s", s.line, pattern, s.text()[from:])
		case <-time.After(5 * time.Millisecond):
		}
		require.True(s.t, time.Now().Before(deadline), "%s: %s is not printed:\n%s", s.line, pattern, s.text())
	}
}

func (s *session) press(keys string) {
	s.t.Helper()
	_, err := io.WriteString(s.keys, keys)
	require.NoError(s.t, err)
}

// end waits for the command's end and returns its status.
func (s *session) end() int {
	<-s.read
	_ = s.cmd.Wait() // the status says more
	return s.cmd.ProcessState.ExitCode()
}

var number = regexp.MustCompile(`\d+(\.\d+)?(e-\d+)?(m\d+s|s\b)?`)

// pattern finds a line of the page: numbers, times and distances may be others, and … stands for anything.
func pattern(line string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`(?m)^(?:\^C)?[> ]*`)
	for i, part := range strings.Split(strings.TrimLeft(line, " "), "…") {
		if i > 0 {
			b.WriteString(`.*`)
		}
		part = number.ReplaceAllString(part, "\x00")
		words := strings.Fields(part)
		for k, word := range words {
			words[k] = strings.ReplaceAll(regexp.QuoteMeta(word), "\x00", `-?\s*`+number.String())
		}
		b.WriteString(strings.Join(words, `\s+`))
		if i == 0 && strings.HasSuffix(part, " ") {
			b.WriteString(`\s*`)
		}
	}
	return regexp.MustCompile(b.String())
}

// typed splits a line of the page whose end a person typed into the question and the answer.
func typed(line string) (question, answer string) {
	line = strings.TrimSuffix(line, "⏎")
	for _, sign := range []string{"]: ", "[y/N] ", "> "} {
		if at := strings.LastIndex(line, sign); at >= 0 {
			return line[:at+len(sign)], line[at+len(sign):]
		}
	}
	return line, ""
}

// The page of the first hour is typed at a terminal of 80 columns.
func TestTheFirstHour(t *testing.T) {
	needPython(t)
	if _, err := modelfile.Resolve("HuggingFaceTB/SmolLM2-135M-Instruct"); err != nil {
		t.Skip("make setup fetches the model: ", err)
	}
	if testing.Short() {
		t.Skip("it trains SmolLM2 for two minutes; leave -short out")
	}
	onPath(t)
	page, err := os.ReadFile("docs/tutorial.md")
	require.NoError(t, err)
	dir, commands := t.TempDir(), 0
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		for _, one := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			line, said, _ := strings.Cut(one, "\n")
			commands++
			began := time.Now()
			s, at := onTerminal(t, dir, line, 80), 0
			for _, want := range strings.Split(strings.TrimRight(said, "\n"), "\n") {
				switch {
				case want == "" || want == "…" || strings.HasPrefix(want, "  │"): // what the model reads and says
				case want == "^C":
					if strings.HasPrefix(line, "agentfly serve") {
						ask(t, s.text())
					}
					s.press("\x03")
				case want == "> ^D":
					at = s.until(at, regexp.MustCompile(`> $`))
					s.press("\x04")
				case strings.HasSuffix(want, "⏎"):
					question, answer := typed(want)
					at = s.until(at, regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(question)))
					s.press(answer + "\n")
				default: // the program calls itself as it was started: here by the path of the test
					at = s.until(at, pattern(strings.Replace(want, "go on with     agentfly ", "go on with     …", 1)))
				}
			}
			status := s.end()
			want := 0
			switch {
			case strings.Contains(said, "stopping; a second signal"):
				want = 3
			case strings.Contains(said, "agentfly: "):
				want = 2
			}
			require.Equal(t, want, status, "%s\n%s", line, s.text())
			if strings.HasPrefix(line, "agentfly try") || strings.HasPrefix(line, "agentfly init") {
				for _, printed := range strings.Split(s.text(), "\n") {
					require.LessOrEqual(t, len([]rune(printed)), 80+len([]rune("model to train (folder, .gguf, hub id) [HuggingFaceTB"))*boolToInt(strings.HasPrefix(printed, "model to train")), printed)
				}
			}
			t.Logf("%.1f s  $ %s\n%s", time.Since(began).Seconds(), line, s.text())
		}
	}
	require.GreaterOrEqual(t, commands, 15)
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// ask asks the server that said where it serves.
func ask(t *testing.T, said string) {
	t.Helper()
	found := regexp.MustCompile(`serving (\S+) on (http://\S+)`).FindStringSubmatch(said)
	require.NotNil(t, found, said)
	name, url := found[1], found[2]
	reply, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(`{"model": "`+name+`", "max_tokens": 8, "messages": [{"role": "user", "content": "Hi"}]}`)) //nolint:noctx // the test's own server
	require.NoError(t, err)
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, reply.StatusCode, "%s", body)
}

// quickJob is a copy of the tiny job that evaluates, in a folder of its own.
func quickJob(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "tiny"), os.DirFS("examples/tiny")))
	tasks, err := os.ReadFile("examples/tiny/tasks.jsonl")
	require.NoError(t, err)
	lines := bytes.SplitAfter(tasks, []byte("\n"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "train.jsonl"), bytes.Join(lines[:2], nil), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "eval.jsonl"), bytes.Join(lines[2:], nil), 0o600))
	job, err := os.ReadFile("examples/tiny.yaml")
	require.NoError(t, err)
	job = bytes.Replace(job, []byte("data: {train: tiny/tasks.jsonl,"), []byte("data: {train: train.jsonl, eval: eval.jsonl,"), 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "job.yaml"), job, 0o600))
	return dir
}

// act is a command of the hour: what it must print, and what a person does meanwhile.
type act struct {
	line   string
	status int
	want   string
	do     func(t *testing.T, p *typist)
}

// typist is a person before a command that runs on a terminal, or one whose output goes into a file.
type typist struct {
	until func(pattern string) // waits until a line of what was printed matches
	press func(keys string)
	text  func() string
}

// wholeHour is the first hour from a job to a policy that is talked to, with a model that needs seconds. RUN is the run folder.
func wholeHour(terminal bool) []act {
	interrupt := func(t *testing.T, p *typist) {
		p.until(`step +1/30 `)
		p.press("\x03")
	}
	talk := act{"echo 1+1 | agentfly chat RUN", 0, "", nil}
	if terminal {
		talk = act{"agentfly chat RUN", 0, "a line is a message, /new begins a new conversation, Ctrl-D ends", func(t *testing.T, p *typist) {
			p.until(`(?m)^> $`)
			p.press("1+1\n")
			p.until(`(?s)1\+1\n.*> $`)
			p.press("\x04")
		}}
	}
	return []act{
		{"agentfly init mine --model tiny/model --yes", 0, "wrote     mine/job.yaml", nil},
		{"agentfly init mine --yes", 2, "nothing is written, because it is there already: mine/job.yaml", nil},
		{`agentfly tools call mine/tools.py calculator '{"expression": "47 + 85"}'`, 0, `{"observation":"132"}`, nil},
		{"agentfly tools test mine/tools.py", 0, "ok   test_calculator", nil},
		{"agentfly job validate job.yaml", 0, "job.yaml: ok", nil},
		{"agentfly try job.yaml", 0, "trained are 4 of 15 tokens", nil},
		{"agentfly trian job.yaml", 2, `did you mean "train"?`, nil},
		{"agentfly train job.yaml --output RUN --set trainer.steps=30", 3, "interrupted after step ", interrupt},
		{"agentfly train job.yaml --output RUN --set trainer.steps=30", 2, "continue it with --resume, give another folder with --output, or delete the run with --overwrite", nil},
		{"GO ON", 0, "next           agentfly inspect trajectory --run RUN --view", nil}, // the very line that the interrupted run printed
		{"agentfly train job.yaml --output RUN --set trainer.steps=31 --resume", 0, "the run goes on with another setting: trainer.steps: 30 → 31", nil},
		{"agentfly runs .", 0, "RUN  ended  31/31", nil},
		{"agentfly status RUN", 0, "ended, 31 of 31 steps done", nil},
		{"agentfly plot RUN", 0, "reward/mean", nil},
		{"agentfly inspect trajectory --run RUN --view --limit 1", 0, "== eval-after-30-0-0", nil},
		{"agentfly model info RUN", 0, "format      safetensors", nil},
		{"agentfly eval job.yaml --model RUN", 0, `"name":"eval"`, nil},
		{"agentfly eval RUN", 0, `"name":"eval"`, nil},
		{"agentfly try RUN", 0, "model     RUN", nil},
		{"agentfly replay RUN", 0, "weights: identical", nil},
		{"agentfly serve RUN --port 0", 0, "serving RUN on http://127.0.0.1:", func(t *testing.T, p *typist) {
			p.until(`on http://\S+\n`)
			ask(t, p.text())
			p.press("\x03")
		}},
		talk,
	}
}

// goOn is the command that an interrupted run printed.
var goOn = regexp.MustCompile(`(?m)^go on with     (.*)$`)

// wide are lines that may be wider than a terminal: commands, which are copied, and what a model or a server says.
var wide = regexp.MustCompile(`^go on with |^agentfly: |^ *agentfly |^\{|^next |^the chat template `)

// The whole hour on terminals of 80 and 120 columns and into a file, with a model that needs seconds: no line of a page is wider than the
// terminal, an interrupted run goes on by the very line that it printed, and what is no terminal gets neither colours nor questions.
func TestTheFirstHourElsewhere(t *testing.T) {
	needPython(t)
	onPath(t)
	t.Setenv("AGENTFLY_TEST_BINARY", "1") // the line that goes on names the program by its path
	dir := quickJob(t)
	for _, columns := range []uint16{80, 120} {
		t.Run(fmt.Sprintf("%d columns", columns), func(t *testing.T) {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "mine")))
			run, resumes := fmt.Sprintf("run%d", columns), ""
			for _, c := range wholeHour(true) {
				if c.line == "GO ON" {
					c.line = resumes
				}
				c.line, c.want = strings.ReplaceAll(c.line, "RUN", run), strings.ReplaceAll(c.want, "RUN", run)
				s, at := onTerminal(t, dir, c.line, columns), 0
				if c.do != nil {
					c.do(t, &typist{until: func(p string) { at = s.until(at, regexp.MustCompile(p)) }, press: s.press, text: s.text})
				}
				require.Equal(t, c.status, s.end(), "%s\n%s", c.line, s.text())
				requireSaid(t, c.want, s.text(), c.line)
				if found := goOn.FindStringSubmatch(s.text()); found != nil {
					resumes = found[1]
				}
				for _, printed := range strings.Split(s.text(), "\n") {
					if c.status == 0 && !wide.MatchString(printed) && !strings.Contains(c.line, "--view") {
						require.LessOrEqual(t, len([]rune(printed)), int(columns), "%s\n%s", c.line, printed)
					}
				}
			}
			// --overwrite asks; no leaves the run as it is, yes deletes it.
			for _, answer := range []string{"n", "yes"} {
				s := onTerminal(t, dir, "agentfly train job.yaml --output "+run+" --set trainer.steps=1 --overwrite", columns)
				s.until(0, regexp.MustCompile(regexp.QuoteMeta("delete the run of 31 steps in "+run+"? [y/N] ")))
				s.press(answer + "\n")
				require.Equal(t, map[string]int{"n": 2, "yes": 0}[answer], s.end(), s.text())
				if answer == "n" {
					require.Contains(t, s.text(), "nothing was deleted, and nothing was trained")
				}
			}
		})
	}
	t.Run("a file", func(t *testing.T) {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "mine")))
		run, resumes := "plain", ""
		for _, c := range wholeHour(false) {
			if c.line == "GO ON" {
				c.line = resumes
			}
			c.line, c.want = strings.ReplaceAll(c.line, "RUN", run), strings.ReplaceAll(c.want, "RUN", run)
			status, text := intoAFile(t, dir, c)
			require.Equal(t, c.status, status, "%s\n%s", c.line, text)
			requireSaid(t, c.want, text, c.line)
			if found := goOn.FindStringSubmatch(text); found != nil {
				resumes = found[1]
			}
			if !strings.Contains(c.line, "--view") { // which colours, unless NO_COLOR is set
				require.NotContains(t, text, "\x1b", c.line)
			}
		}
		p := exec.Command("sh", "-c", "exec agentfly inspect trajectory --run plain --view --limit 1")
		p.Dir, p.Env = dir, append(os.Environ(), "NO_COLOR=1")
		text, err := p.Output()
		require.NoError(t, err)
		require.NotContains(t, string(text), "\x1b")
		require.Contains(t, string(text), "⟦", "what was sampled stands in brackets")
		var summary struct {
			Time map[string]float64 `json:"time"`
		}
		data, err := os.ReadFile(filepath.Join(dir, "plain", "summary.json"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &summary))
		require.Contains(t, fmt.Sprint(summary.Time), "sample")
	})
}

// requireSaid holds what was printed against a text, whatever blanks and lines part its words.
func requireSaid(t *testing.T, want, text, line string) {
	t.Helper()
	require.Contains(t, strings.Join(strings.Fields(text), " "), strings.Join(strings.Fields(want), " "), line)
}

// intoAFile runs a command whose output goes into a file; keys that end a program are signals there.
func intoAFile(t *testing.T, dir string, c act) (status int, text string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "out")
	to, err := os.Create(path)
	require.NoError(t, err)
	defer to.Close()
	line := c.line
	if !strings.Contains(line, "|") {
		line = "exec " + line
	}
	p := exec.Command("sh", "-c", line)
	p.Dir, p.Stdout, p.Stderr = dir, to, to
	require.NoError(t, p.Start())
	read := func() string {
		said, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(said)
	}
	if c.do != nil {
		c.do(t, &typist{
			until: func(pattern string) {
				require.Eventually(t, func() bool { return regexp.MustCompile(pattern).MatchString(read()) }, 5*time.Minute, 5*time.Millisecond, "%s", line)
			},
			press: func(string) { require.NoError(t, p.Process.Signal(os.Interrupt)) },
			text:  read,
		})
	}
	_ = p.Wait() // the status says more
	return p.ProcessState.ExitCode(), read()
}
