package external

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"github.com/agentfly/agentfly/internal/procgroup"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/sandbox"
)

// Command runs one process a trajectory.
type Command struct {
	Args   []string          // the program and its arguments
	Folder string            // that it runs in
	Env    map[string]string // beside this process's own environment and what Run sets
	Logs   string            // folder for what agents print, a file each; "": it is not kept
	Name   string            // names the run in the environment of its processes, so that those that outlive it are found; "": nothing does
	AtOnce int               // processes; 0: any number

	Confined *Confined // nil: agents have this process's rights

	once   sync.Once
	places chan struct{}
}

// Variables of an agent's environment. Those of OpenAI's and Anthropic's clients are set too, so that programs that read them need no change.
const (
	envRun  = "AGENTFLY_RUN"
	envKey  = "AGENTFLY_API_KEY"
	envURL  = "AGENTFLY_BASE_URL"
	envTask = "AGENTFLY_TASK"
	envEnd  = "AGENTFLY_RESULT"
)

// Files of the folder of a trajectory's agent.
const (
	taskName = "task.json"
	endName  = "result.json"
)

// Enter implements Runner.
func (c *Command) Enter(ctx context.Context) (leave func(), err error) {
	c.once.Do(func() {
		if c.AtOnce > 0 {
			c.places = make(chan struct{}, c.AtOnce)
		}
	})
	if c.places == nil {
		return func() {}, ctx.Err()
	}
	select {
	case c.places <- struct{}{}:
		return sync.OnceFunc(func() { <-c.places }), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Run implements Runner.
func (c *Command) Run(ctx context.Context, a Assignment) (end Ended, err error) {
	folder, err := sandbox.TempFolder("agent") // the next start removes that of a killed one
	if err != nil {
		return end, fmt.Errorf("its folder cannot be made: %w", err)
	}
	defer folder.Close()
	dir := folder.Path()
	task, err := json.Marshal(a)
	if err != nil {
		return end, err
	}
	taskFile, endFile := filepath.Join(dir, taskName), filepath.Join(dir, endName)
	mode := os.FileMode(0o600)
	if c.Confined != nil { // its reader may be another user; the folder is that user's alone
		mode = 0o644
	}
	if err := os.WriteFile(taskFile, task, mode); err != nil {
		return end, fmt.Errorf("its task cannot be written: %w", err)
	}
	var out string
	if c.Confined != nil {
		out, err = c.runConfined(ctx, a, dir)
	} else {
		p := exec.Command(c.Args[0], c.Args[1:]...)
		p.Dir, p.Env = c.Folder, c.environment(a, taskFile, endFile)
		out, err = c.run(ctx, p, a)
	}
	end.Output = out
	c.keep(a.ID, out)
	if err != nil {
		return end, err
	}
	return end, readEnd(endFile, &end)
}

// variables are what an agent finds in its environment, and what the job sets there. inherited is a variable that the agent has of this process's
// environment; "": none.
func (c *Command) variables(a Assignment, taskFile, endFile string, inherited func(name string) string) map[string]string {
	set := map[string]string{
		envTask: taskFile, envEnd: endFile, envURL: a.URL, envKey: a.Key, envRun: c.Name,
		"OPENAI_BASE_URL": a.URL + "/v1", "OPENAI_API_BASE": a.URL + "/v1", "OPENAI_API_KEY": a.Key,
		"ANTHROPIC_BASE_URL": a.URL, "ANTHROPIC_API_KEY": a.Key,
		"OPENAI_AGENTS_DISABLE_TRACING": "1", "PYTHONUNBUFFERED": "1",
	}
	for name, other := range map[string]string{"NO_PROXY": "no_proxy", "no_proxy": "NO_PROXY"} { // some clients read the one first, some the other
		set[name] = withoutProxy(cmp.Or(c.Env[other], inherited(name), inherited(other)), a.URL)
	}
	for k, v := range c.Env {
		set[k] = v
	}
	return set
}

// withoutProxy lists the hosts that clients reach without a proxy: those of a list, this machine, and the gateway's.
func withoutProxy(list, gateway string) string {
	if strings.TrimSpace(list) == "*" { // every host; beside others many clients do not know it
		return list
	}
	hosts := []string{"127.0.0.1", "localhost"}
	if u, err := url.Parse(gateway); err == nil && u.Hostname() != "" {
		hosts = append(hosts, u.Hostname())
	}
	listed := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	for _, host := range hosts {
		if !slices.Contains(listed, host) {
			list, listed = strings.TrimPrefix(list+","+host, ","), append(listed, host)
		}
	}
	return list
}

// environment is that of an agent without a sandbox. Keys of other services stay this process's own where the agent's clients would read them.
func (c *Command) environment(a Assignment, taskFile, endFile string) []string {
	set := c.variables(a, taskFile, endFile, os.Getenv)
	env := slices.DeleteFunc(os.Environ(), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		_, ours := set[name]
		return ours || name == "ANTHROPIC_AUTH_TOKEN" || name == "OPENAI_ORG_ID" || name == "OPENAI_PROJECT_ID"
	})
	for k, v := range set {
		env = append(env, k+"="+v)
	}
	return env
}

// run runs a process to its end, or until ctx ends, and kills all that it started.
func (c *Command) run(ctx context.Context, p *exec.Cmd, a Assignment) (output string, err error) {
	ours, theirs, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer ours.Close()
	p.Stdout, p.Stderr = theirs, theirs
	g, err := procgroup.Start(p, syscall.SIGKILL)
	_ = theirs.Close() // the agent has its own
	if err != nil {
		return "", fmt.Errorf("the agent cannot be started: %w", err)
	}
	read := make(chan string, 1)
	go func() { read <- tailOf(ours) }()
	ended := make(chan error, 1)
	go func() { ended <- g.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		_ = g.Signal(syscall.SIGTERM)
		select {
		case err = <-ended:
		case <-time.After(patience):
			_ = g.Signal(syscall.SIGKILL)
			err = <-ended
		}
	}
	procgroup.CollectBearers(envKey, a.Key)               // what left its group
	_ = ours.SetReadDeadline(time.Now().Add(time.Second)) // a file that somebody else still holds does not end
	output = <-read
	exit := (*exec.ExitError)(nil)
	switch {
	case ctx.Err() != nil:
		return output, ctx.Err()
	case errors.As(err, &exit) && exit.Exited():
		return output, failedf(output, "ended with exit status %d", exit.ExitCode())
	case errors.As(err, &exit):
		return output, failedf(output, "was killed (%v)", exit)
	case err != nil:
		return output, failedf(output, "could not be awaited: %v", err)
	}
	return output, nil
}

// tailOf reads to the end and returns the last of it.
func tailOf(r io.Reader) string {
	var kept []byte
	buf := make([]byte, 32<<10)
	cut := false
	for {
		n, err := r.Read(buf)
		if kept = append(kept, buf[:n]...); len(kept) > 2*most {
			kept, cut = append([]byte(nil), kept[len(kept)-most:]...), true
		}
		if err != nil {
			break
		}
	}
	if len(kept) > most {
		kept, cut = kept[len(kept)-most:], true
	}
	if cut {
		return "…" + strings.ToValidUTF8(string(kept), "\uFFFD")
	}
	return strings.ToValidUTF8(string(kept), "\uFFFD")
}

// keep writes what an agent printed beside the run. What cannot be written is not kept: the trajectory is what counts.
func (c *Command) keep(id, output string) {
	if c.Logs == "" || output == "" {
		return
	}
	if os.MkdirAll(c.Logs, 0o755) == nil {
		_ = os.WriteFile(filepath.Join(c.Logs, id+".txt"), []byte(output), 0o644)
	}
}

// readEnd reads what an agent says of its end; it may say nothing.
func readEnd(path string, end *Ended) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("the agent's result (%s) is not a regular file", envEnd)
	case err == nil && info.Size() > most:
		return fmt.Errorf("the agent's result has %d bytes, at most %d are read", info.Size(), most)
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(path)
	}
	switch {
	case err != nil:
		return fmt.Errorf("the agent's result cannot be read: %w", err)
	case len(data) > most:
		return fmt.Errorf("the agent's result has %d bytes, at most %d are read", len(data), most)
	}
	if err := readResult(data, end, "answer", "reward"); err != nil {
		return fmt.Errorf("the agent's result (%s) %w", envEnd, err)
	}
	return nil
}

// lastLine is the last line of a text that says something, in short.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return wording.Clip(strings.TrimSpace(lines[len(lines)-1]), 200)
}

// Collect kills the processes of a run that outlived it.
func (c *Command) Collect() {
	if c.Name != "" {
		procgroup.CollectBearers(envRun, c.Name)
	}
}

// Close implements Runner.
func (c *Command) Close() error { return nil }
