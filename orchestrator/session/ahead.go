package session

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/internal/scripts"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/sandbox"
)

// checkOutput refuses a run folder that cannot be made. One that is there is held against the run when it begins.
func checkOutput(j *job.Job) error {
	for path := filepath.Clean(j.Output); ; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		switch {
		case err == nil && !info.IsDir():
			return j.Fail("output", "%s is a file; give a folder", path)
		case err == nil && !writable(path):
			return j.Fail("output", "the folder %s cannot be made: %s may not be written to; give another folder", j.Output, path)
		case err == nil:
			return nil
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
			return j.Fail("output", "%v; give another folder", err)
		case path == filepath.Dir(path): // neither this folder nor any above it
			return nil
		}
	}
}

// writable tells whether a folder takes a new file.
func writable(dir string) bool {
	f, err := os.CreateTemp(dir, ".agentfly-*")
	if err != nil {
		return false
	}
	return errors.Join(f.Close(), os.Remove(f.Name())) == nil
}

// checkURLs refuses what is no address of a server.
func checkURLs(j *job.Job) error {
	var wrong []error
	check := func(key string, urls []string) {
		for _, address := range urls {
			if !strings.HasPrefix(address, "http://") && !strings.HasPrefix(address, "https://") {
				wrong = append(wrong, j.Fail(key, "%q must begin with http:// or https://, such as http://127.0.0.1:8000", address))
			}
		}
	}
	check("engine.urls", j.Engine.URLs)
	if j.Distill != nil {
		check("distill.teacher.urls", j.Distill.Teacher.URLs)
	}
	return j.Collect(wrong...)
}

// checkAgent refuses an agent's program, or its file, that is not there, and an address that cannot be listened on.
func checkAgent(ctx context.Context, j *job.Job) error {
	if j.Agent.Kind != agents.External {
		return nil
	}
	var wrong []error
	folder := filepath.Dir(j.Path())
	if command := j.Agent.Command; len(command) > 0 {
		name := command[0]
		if strings.Contains(name, "/") && !filepath.IsAbs(name) {
			name = folder + "/" + name // Join makes ./NAME in the folder "." a name on PATH
		}
		if dirs := insidePath(j); j.Agent.Sandbox && !strings.Contains(name, "/") {
			if !slices.ContainsFunc(filepath.SplitList(dirs), func(dir string) bool {
				_, err := exec.LookPath(filepath.Join(dir, name))
				return filepath.IsAbs(dir) && err == nil
			}) {
				wrong = append(wrong, j.Fail("agent.command.0", "the program %q is not in %s, where the sandbox looks; name its path, and in agent.show the folder of what it needs", name, dirs))
			}
		} else if _, err := exec.LookPath(name); err != nil && !errors.Is(err, exec.ErrDot) {
			wrong = append(wrong, j.Fail("agent.command.0", "the program %q is not there, or may not be run; name one on PATH, or its path from the job file's folder", command[0]))
		}
		for i, arg := range command[1:] {
			path := arg
			if !filepath.IsAbs(path) {
				path = filepath.Join(folder, path)
			}
			if _, err := os.Stat(path); !strings.HasPrefix(arg, "-") && scripts.Is(arg) && errors.Is(err, fs.ErrNotExist) && !scripts.MayBeCode(command, i+1) {
				wrong = append(wrong, j.Fail("agent.command."+strconv.Itoa(i+1), "the file %s is not there; agents run in the job file's folder (%s)", arg, folder))
				break
			}
		}
	}
	if len(wrong) == 0 && j.Agent.Sandbox {
		if _, err := commandOf(j).Readable(); err != nil {
			wrong = append(wrong, j.Fail("agent.sandbox", "%v", err))
		}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", j.Agent.Listen)
	if err != nil {
		return j.Collect(append(wrong, j.Fail("agent.listen", "%v; write host:port, port 0 takes a free one", err))...)
	}
	return j.Collect(append(wrong, l.Close())...)
}

// insidePath is PATH of an agent in the sandbox.
func insidePath(j *job.Job) string {
	return cmp.Or(j.Agent.Env["PATH"], sandbox.Path)
}

// checkRank refuses an adapter that is larger than the model that it adapts.
func checkRank(j *job.Job, p *policy.Policy) error {
	most := min(p.Config.HiddenSize, p.Config.IntermediateSize)
	if rank := j.Model.LoRA.Rank; rank > most {
		return j.Fail("model.lora.rank", "%d is more than the model's width; allowed: 1 to %d", rank, most)
	}
	return nil
}

// Servers are the addresses of the servers that a job samples from or asks.
func Servers(j *job.Job) []string {
	all := slices.Clone(j.Engine.URLs)
	if j.Distill != nil {
		all = append(all, j.Distill.Teacher.URLs...)
	}
	return all
}

// AskServers refuses servers that nobody listens at.
func AskServers(ctx context.Context, j *job.Job) error {
	var wrong []error
	for _, address := range Servers(j) {
		u, err := url.Parse(address)
		if err != nil || u.Host == "" { // refused for that
			continue
		}
		host := u.Host
		if u.Port() == "" {
			host = net.JoinHostPort(u.Hostname(), map[bool]string{true: "443", false: "80"}[u.Scheme == "https"])
		}
		c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", host)
		if err != nil {
			key := "engine.urls"
			if !slices.Contains(j.Engine.URLs, address) {
				key = "distill.teacher.urls"
			}
			wrong = append(wrong, j.Fail(key, "nobody answers at %s (%v); start the server", address, err))
			continue
		}
		wrong = append(wrong, c.Close())
	}
	return j.Collect(wrong...)
}
