package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/internal/sessionkey"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator/external"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/sandbox"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// Guests are the agents of a job that are programs of their own, with the gateway that they sample over.
type Guests struct {
	job      *job.Job
	gateway  *gateway.Gateway
	server   *http.Server
	listener net.Listener
	served   chan struct{} // closed when the server has ended; nil: it did not begin
	runner   external.Runner
	told     string // to agents: the base URL; "" is where they asked
	url      string
}

// gatewayOf are the options of the gateway that a job's agents sample over, from what the sampler samples with.
func gatewayOf(j *job.Job, s *rollout.Sampler, formats *agents.Registry) gateway.Options {
	o := gateway.Options{
		Engine: s.Engine, Renderer: s.Renderer, Decode: s.Decode, Model: j.Name,
		Format: func(specs []tools.Spec) (agents.Format, error) {
			return formats.NewFormat(j.Agent.Format, specs, agents.FormatOptions{})
		},
		Sampling: s.Sampling, MaxTotal: s.MaxTotal, Timeout: s.Timeout, History: gateway.History(j.Agent.History),
	}
	for _, r := range j.Agent.Roles {
		rule := gateway.RoleRule{Role: trajectory.Role(r.Name), Header: r.Header, Tool: r.Tool, Path: r.Path}
		if r.System != "" {
			rule.System = regexp.MustCompile(r.System) // the job was checked
		}
		o.Roles = append(o.Roles, rule)
	}
	return o
}

// openGuests opens the gateway of a job whose agents are programs of their own. hold: it answers nobody before Answer. box opens the job's sandbox.
func openGuests(ctx context.Context, j *job.Job, o gateway.Options, box func(context.Context) (*sandbox.Sandbox, error), hold bool) (*Guests, error) {
	o.Ending = func() bool { return ctx.Err() != nil }
	made, err := gateway.New(o)
	if err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", j.Agent.Listen)
	if err != nil {
		return nil, j.Fail("agent.listen", "%v", err)
	}
	if j.Agent.Online { // until AwaitAgents
		made.Recover()
	}
	g := &Guests{job: j, gateway: made, server: &http.Server{Handler: made, ReadHeaderTimeout: 30 * time.Second}, listener: l}
	g.url = "http://" + address(l.Addr().(*net.TCPAddr))
	if g.told = g.url; j.Agent.Online { // where they asked for the task
		g.told = ""
	}
	switch {
	case j.Agent.Online:
		online := &external.Online{Key: j.Agent.Key, Expects: made.Expects}
		g.runner, g.server.Handler = online, withRoutes(made, online.Routes())
	case j.Agent.URL != "":
		g.runner = &external.Callback{URL: j.Agent.URL}
	default:
		c := commandOf(j)
		if g.runner = c; c.Confined != nil {
			if err := g.confine(ctx, c.Confined, box); err != nil {
				return nil, errors.Join(err, l.Close())
			}
		}
	}
	if !hold {
		g.Answer()
	}
	return g, nil
}

// commandOf is what starts the agents of a job. In a sandbox it starts none before confine.
func commandOf(j *job.Job) *external.Command {
	c := &external.Command{Args: j.Agent.Command, Folder: filepath.Dir(j.Path()), Env: j.Agent.Env, AtOnce: j.Agent.Processes}
	if !j.Agent.Sandbox {
		return c
	}
	c.Confined = &external.Confined{}
	for _, path := range j.Agent.Show {
		if path = j.Resolve(path); !filepath.IsAbs(path) {
			path, _ = filepath.Abs(path) // it fails where the working folder is gone, and then the path is found not to be there
		}
		c.Confined.Show = append(c.Confined.Show, path)
	}
	return c
}

// confine has agents run in the sandbox, where they reach the gateway alone.
func (g *Guests) confine(ctx context.Context, c *external.Confined, box func(context.Context) (*sandbox.Sandbox, error)) error {
	opened, err := box(ctx)
	if err != nil {
		return g.job.Fail("agent.sandbox", "%v", err)
	}
	if opened.Kind() != sandbox.Bubblewrap {
		return g.job.Fail("agent.sandbox", "it needs bubblewrap, where a program has a network of its own, and this machine has %s alone; install the package bubblewrap", opened.Kind())
	}
	if err := external.TryConfined(ctx, opened); err != nil {
		return g.job.Fail("agent.sandbox", "an agent cannot be served in the sandbox of this machine: %v", err)
	}
	c.Sandbox = opened
	c.Serve = func(l net.Listener) { _ = g.server.Serve(l) } // it ends with the agent, or with close
	g.told = external.InsideURL
	return nil
}

// Answer has the gateway answer from now on.
func (g *Guests) Answer() {
	g.served = make(chan struct{})
	go func() {
		defer close(g.served)
		_ = g.server.Serve(g.listener) // it ends with Close
	}()
}

// withRoutes answers some routes beside the gateway's.
func withRoutes(made http.Handler, routes map[string]http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // as the gateway reads paths; a ServeMux redirects some, which not every client follows
		_, route := sessionkey.Read(r)
		if handle := routes["/"+route]; handle != nil && r.Method == http.MethodPost {
			handle(w, r)
			return
		}
		made.ServeHTTP(w, r)
	})
}

// address is where agents of this machine reach a listener.
func address(a *net.TCPAddr) string {
	if a.IP.IsUnspecified() {
		return fmt.Sprintf("127.0.0.1:%d", a.Port)
	}
	return a.String()
}

// sampled is what the sampler knows of the agents.
func (g *Guests) sampled() *rollout.External {
	if g == nil {
		return nil
	}
	return &rollout.External{
		Gateway: g.gateway, Runner: g.runner, URL: g.told, Tokens: g.job.Agent.MaxTokens, Time: job.Seconds(g.job.Agent.MaxTime), Secret: sessionkey.NewSecret(), Adopt: g.job.Agent.Online,
	}
}

// close ends what the agents sample, and the gateway.
func (g *Guests) close() error {
	if g == nil {
		return nil
	}
	g.gateway.Close()
	if g.served == nil {
		return errors.Join(g.listener.Close(), g.runner.Close())
	}
	err := errors.Join(g.server.Close(), g.runner.Close())
	<-g.served
	return err
}

// SilentRules says which rules of agent.roles named no call, in one line; "": each did, or there was no call. before tells the roles that an earlier process
// of the run named. It is asked only where a rule named nothing in this one; nil: there was none.
func (g *Guests) SilentRules(before func() (map[trajectory.Role]bool, error)) (string, error) {
	if g == nil {
		return "", nil
	}
	silent := slices.DeleteFunc(g.gateway.SilentRules(), func(i int) bool {
		return g.job.Agent.Roles[i].Name == string(trajectory.RoleAuxiliary) // it also says whether the gateway's own auxiliary calls are trained
	})
	if len(silent) > 0 && before != nil {
		known, err := before()
		if err != nil {
			return "", err
		}
		silent = slices.DeleteFunc(silent, func(i int) bool { return known[trajectory.Role(g.job.Agent.Roles[i].Name)] })
	}
	if len(silent) == 0 {
		return "", nil
	}
	var names []string
	for _, i := range silent {
		names = append(names, fmt.Sprintf("agent.roles.%d (%s)", i, g.job.Agent.Roles[i]))
	}
	if len(names) == 1 {
		return names[0] + " named no call: none fits it, or those that do fit a rule before it; correct what it asks for, or leave it out", nil
	}
	return strings.Join(names, " and ") + " named no call: none fits them, or those that do fit a rule before them; correct what they ask for, or leave them out", nil
}

// Keep has the run's folder keep what agents of other programs print and what their keys follow from, and ends those that an earlier process of
// the run left behind.
func (g *Guests) Keep(dir string, sampled *rollout.External) error {
	if g == nil {
		return nil
	}
	if g.job.Agent.Online { // its agents live on with their keys; those that begin anew get new ones, so that one of before cannot sample beside them
		secret, err := secretOf(filepath.Join(dir, sessionkey.File))
		if err != nil {
			return err
		}
		sampled.Secret = secret
	}
	if c, ok := g.runner.(*external.Command); ok {
		c.Logs, c.Name = filepath.Join(dir, "logs", "agents"), dir
		if whole, err := filepath.Abs(dir); err == nil {
			c.Name = whole
		}
		c.Collect()
	}
	return nil
}

// BringTasks has agents bring their tasks, each of which begin begins a trajectory for. It returns the address that they ask.
func (g *Guests) BringTasks(begin func(ctx context.Context, task trajectory.Task) (id string, err error)) (url string) {
	g.runner.(*external.Online).Begin = begin
	return g.url
}

// secretOf reads the secret of a run, or makes one.
func secretOf(path string) ([]byte, error) {
	known, err := os.ReadFile(path)
	if err == nil && len(known) == 32 || err != nil && !errors.Is(err, os.ErrNotExist) {
		return known, err
	}
	made := sessionkey.NewSecret()
	return made, modelfile.WriteFile(path, made, 0o600)
}

var _ gateway.Renderer = (*masks.Renderer)(nil)
