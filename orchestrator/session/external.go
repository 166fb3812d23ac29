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
	"time"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/orchestrator/external"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// guests are the agents of a job that are programs of their own, with the gateway that they sample over.
type guests struct {
	gateway  *gateway.Gateway
	server   *http.Server
	listener net.Listener
	served   chan struct{} // closed when the server has ended; nil: it did not begin
	runner   external.Runner
	told     string // to agents: the base URL; "" is where they asked
	url      string
}

// openGateway has agents that are programs of their own take the turns, where the job says so.
func (s *Session) openGateway(ctx context.Context) (err error) {
	if s.guests, err = s.makeGuests(ctx); err == nil {
		s.Sampler.External = s.guests.sampled(s)
	}
	return err
}

// makeGuests opens the gateway of a job whose agents are programs of their own; nil: they are not.
func (s *Session) makeGuests(ctx context.Context) (*guests, error) {
	j := s.Job
	if j.Agent.Kind != agents.External || s.Weights.Engine() == nil {
		return nil, nil
	}
	o := gateway.Options{
		Engine: s.Weights.Engine(), Renderer: s.renderer, Decode: s.Sampler.Decode, Encode: s.Policy.Tokenizer.Encode, Model: j.Name,
		Format: func(specs []tools.Spec) (agents.Format, error) {
			return s.formats.NewFormat(j.Agent.Format, specs, agents.FormatOptions{})
		},
		Sampling: s.Sampler.Sampling, MaxTotal: s.Sampler.MaxTotal, Timeout: s.Sampler.Timeout, History: gateway.History(j.Agent.History), Warn: s.Notes.Note,
	}
	for _, r := range j.Agent.Roles {
		rule := gateway.RoleRule{Role: trajectory.Role(r.Name), Header: r.Header, Tool: r.Tool, Path: r.Path}
		if r.System != "" {
			rule.System = regexp.MustCompile(r.System) // the job was checked
		}
		o.Roles = append(o.Roles, rule)
	}
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
	g := &guests{gateway: made, server: &http.Server{Handler: made, ReadHeaderTimeout: 30 * time.Second}, listener: l}
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
		g.runner = &external.Command{Args: j.Agent.Command, Folder: filepath.Dir(j.Path()), Env: j.Agent.Env, AtOnce: j.Agent.Processes}
	}
	if !s.silent {
		g.serve()
	}
	s.Notes.Know(fmt.Sprintf("agents of other programs sample over the gateway at %s", g.url))
	return g, nil
}

// serve answers from now on.
func (g *guests) serve() {
	g.served = make(chan struct{})
	go func() {
		defer close(g.served)
		_ = g.server.Serve(g.listener) // it ends with Close
	}()
}

// withRoutes answers some routes beside the gateway's.
func withRoutes(made *gateway.Gateway, routes map[string]http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	for path, handle := range routes {
		mux.Handle("POST "+path, handle)
	}
	mux.Handle("/", made)
	return mux
}

// address is where agents of this machine reach a listener.
func address(a *net.TCPAddr) string {
	if a.IP.IsUnspecified() {
		return fmt.Sprintf("127.0.0.1:%d", a.Port)
	}
	return a.String()
}

// sampled is what the sampler knows of the agents.
func (g *guests) sampled(s *Session) *rollout.External {
	if g == nil {
		return nil
	}
	return &rollout.External{
		Gateway: g.gateway, Runner: g.runner, URL: g.told, Tokens: s.Job.Agent.MaxTokens, Secret: gateway.NewSecret(), Adopt: s.Job.Agent.Online,
	}
}

// close ends what the agents sample, and the gateway.
func (g *guests) close() error {
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

// frozen are the roles of calls that are not trained.
func (s *Session) frozen() func(trajectory.Role) bool {
	roles := map[trajectory.Role]bool{trajectory.RoleAuxiliary: true}
	for _, r := range s.Job.Agent.Roles {
		roles[trajectory.Role(r.Name)] = !r.Train
	}
	return func(r trajectory.Role) bool { return roles[r] }
}

// KeepAgents has the run's folder keep what agents of other programs print and what their keys follow from, and ends those that an earlier process of
// the run left behind.
func (s *Session) KeepAgents(dir string) error {
	if s.guests == nil {
		return nil
	}
	if s.Job.Agent.Online { // its agents live on with their keys; those that begin anew get new ones, so that one of before cannot sample beside them
		secret, err := secretOf(filepath.Join(dir, "gateway.key"))
		if err != nil {
			return err
		}
		s.Sampler.External.Secret = secret
	}
	if c, ok := s.guests.runner.(*external.Command); ok {
		c.Logs, c.Name = filepath.Join(dir, "logs", "agents"), dir
		if whole, err := filepath.Abs(dir); err == nil {
			c.Name = whole
		}
		c.Collect()
	}
	return nil
}

// HoldAgents has the gateway answer nobody before Answer.
func (s *Session) HoldAgents() { s.silent = true }

// Sessions has agents bring their tasks, each of which begin begins a trajectory for. It returns the address that they ask.
func (s *Session) Sessions(begin func(ctx context.Context, task trajectory.Task) (id string, err error)) (url string) {
	s.guests.runner.(*external.Online).Begin = begin
	return s.guests.url
}

// Answer has the gateway answer from now on, after HoldAgents.
func (s *Session) Answer() { s.guests.serve() }

// secretOf reads the secret of a run, or makes one.
func secretOf(path string) ([]byte, error) {
	known, err := os.ReadFile(path)
	if err == nil && len(known) == 32 || err != nil && !errors.Is(err, os.ErrNotExist) {
		return known, err
	}
	made := gateway.NewSecret()
	return made, os.WriteFile(path, made, 0o600)
}

var _ gateway.Renderer = (*masks.Renderer)(nil)
