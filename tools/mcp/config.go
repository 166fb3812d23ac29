package mcp

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
)

// config is what a job says of a server: {mcp: {…}}.
type config struct {
	Command []string          `json:"command"` // of a server over stdio, with its arguments
	Env     map[string]string `json:"env"`     // that it gets beside inherited
	Dir     string            `json:"dir"`     // its working folder; "" is the job file's

	URL     string            `json:"url"`     // of a server over streamable HTTP
	Headers map[string]string `json:"headers"` // of every request to it

	Prefix string `json:"prefix"` // of its tools' names
	Record string `json:"record"` // file that every call and its result are written to
	Replay string `json:"replay"` // file of such a recording that answers in place of a server
}

// inherited are the variables of this process that a server sees. The others may hold secrets.
var inherited = []string{"HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}

func parseConfig(r *resources.Resources, params map[string]any) (c config, declared tools.Declared, err error) {
	var in struct {
		MCP           config `json:"mcp"`
		Stateful      *bool  `json:"stateful"`
		Deterministic *bool  `json:"deterministic"`
	}
	if err := resources.Decode(params, &in); err != nil {
		return c, declared, err
	}
	c = in.MCP
	if err := c.check(); err != nil {
		return c, declared, err
	}
	for _, path := range []*string{&c.Dir, &c.Record, &c.Replay} {
		if *path != "" {
			*path = r.Resolve(*path)
		}
	}
	if len(c.Command) > 0 {
		c.Dir = cmp.Or(c.Dir, r.Resolve("."))
		program, err := find(r, c.Command[0])
		if err != nil {
			return c, declared, err
		}
		c.Command = append([]string{program}, c.Command[1:]...)
	}
	return c, tools.Declared{Stateful: in.Stateful, Deterministic: in.Deterministic}, nil
}

func (c config) check() error {
	kinds := 0
	for _, given := range []bool{len(c.Command) > 0, c.URL != "", c.Replay != ""} {
		if given {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return errors.New("give exactly one of command: [PROGRAM, ARGUMENT, …], url: URL and replay: FILE")
	case len(c.Command) > 0 && c.Command[0] == "":
		return errors.New("command: the program's name is empty")
	case len(c.Command) == 0 && (c.Env != nil || c.Dir != ""):
		return errors.New("env and dir belong to command")
	case c.URL == "" && c.Headers != nil:
		return errors.New("headers belong to url")
	case c.Replay != "" && c.Record != "":
		return errors.New("record belongs to command or url: a replay has no server to record")
	case wording.AsName(c.Prefix) != c.Prefix:
		return fmt.Errorf("prefix %q: allowed are letters, digits, _ and -", c.Prefix)
	}
	for name := range c.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return fmt.Errorf("env: %q is no name of a variable", name)
		}
	}
	if c.URL == "" {
		return nil
	}
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("url: allowed is http://HOST/PATH or https://HOST/PATH")
	}
	return nil
}

// find is the program of a command: a path of the job, or a name on PATH. "agentfly" is the program that runs, if that is its name.
func find(r *resources.Resources, program string) (string, error) {
	if self, err := os.Executable(); err == nil && program == "agentfly" && filepath.Base(self) == program {
		return self, nil
	}
	path, err := r.Program(program)
	if err == nil {
		path, err = exec.LookPath(path)
	}
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("the program %q is not on PATH; install it, or give its path", program)
	case err != nil:
		var inner *exec.Error
		if errors.As(err, &inner) {
			err = inner.Err
		}
		return "", fmt.Errorf("the program %q cannot be run: %s", program, lastText(err))
	}
	return filepath.Abs(path)
}

// lastText is an error without the path in front of it.
func lastText(err error) string {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// environment of the server's process.
func (c config) environment() []string {
	var out []string
	for _, name := range inherited {
		if value, ok := os.LookupEnv(name); ok {
			out = append(out, name+"="+value)
		}
	}
	for name, value := range c.Env {
		out = append(out, name+"="+value) // the last one of a name counts
	}
	return out
}

// name of the server, for people.
func (c config) name() string {
	return wording.Clip(cmp.Or(strings.Join(c.Command, " "), redacted(c.URL), c.Replay), 100)
}

// redacted is a URL without what may be secret in it.
func redacted(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "the server"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
