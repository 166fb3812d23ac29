package openenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/resources"
)

// config are the parameters of the kind openenv.
type config struct {
	Hosts         []string       `json:"hosts"`           // URLs of servers; a session goes to the one that has fewest of ours
	APIKey        string         `json:"api_key"`         // sent as Authorization: Bearer
	Text          string         `json:"text"`            // how an observation becomes text: a path such as board.rows, or a Go template; default: its first field of defaultTexts
	Image         string         `json:"image"`           // the path of an image in an observation: a URL, a data URL or base64
	Action        string         `json:"action"`          // how a text becomes an action: a field's name, a Go template over the text, or "*": the agent writes the object as a call's arguments
	MCP           any            `json:"mcp"`             // true, false or auto: the environment's tools are the agent's
	Reset         map[string]any `json:"reset"`           // data of every reset, below the task's
	Instructions  string         `json:"instructions"`    // what the agent is told of the world
	Deterministic *bool          `json:"deterministic"`   // the same seed and actions give the same episode
	Success       *float64       `json:"success"`         // the total reward from which an episode that is over counts as solved; default: what the metadata says
	Raised        string         `json:"execution_error"` // whose failure a step is that raises on the server: infrastructure (default) or policy
	TimeoutS      float64        `json:"timeout_s"`       // of one message; default 60
	MaxMessage    int64          `json:"max_message"`     // bytes; default 100 MB
}

const (
	infrastructure = "infrastructure"
	policy         = "policy"
	everything     = "*" // Action: the whole object
)

// Kind is the kind openenv of job files.
func Kind() environments.Kind {
	return environments.Kind{Name: "openenv", Description: "plays the environments of OpenEnv servers, over their websockets", New: factory}
}

func factory(ctx context.Context, r *resources.Resources, params map[string]any) (environments.Source, error) {
	c := config{MCP: "auto", Raised: infrastructure, TimeoutS: 60, MaxMessage: maxMessage}
	if err := resources.Decode(params, &c); err != nil {
		return nil, err
	}
	s, err := newSource(c, r.Warn)
	if err != nil {
		return nil, err
	}
	if err := r.Run("the OpenEnv servers " + strings.Join(c.Hosts, ", ") + ", which are not asked"); err != nil {
		return nil, err
	}
	if err := s.discover(ctx, c); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// newSource checks the parameters, and asks nobody.
func newSource(c config, warn func(string)) (*source, error) {
	all, err := readHosts(c.Hosts)
	if err != nil {
		return nil, err
	}
	switch {
	case !slices.Contains([]any{"auto", true, false, "true", "false"}, c.MCP):
		return nil, fmt.Errorf("mcp is %v; allowed: true, false, auto", c.MCP)
	case c.Raised != infrastructure && c.Raised != policy:
		return nil, fmt.Errorf("execution_error is %q; allowed: infrastructure, policy", c.Raised)
	case !(c.TimeoutS >= 0.001 && c.TimeoutS <= 86400): // NaN too
		return nil, fmt.Errorf("timeout_s is %v; allowed: 0.001 to 86400 seconds", c.TimeoutS)
	case c.MaxMessage < 1024 || c.MaxMessage > math.MaxInt32:
		return nil, fmt.Errorf("max_message is %d; allowed: 1024 to %d bytes", c.MaxMessage, math.MaxInt32)
	case strings.ContainsAny(c.APIKey, "\r\n"):
		return nil, errors.New("api_key holds a line break")
	case strings.Contains(c.APIKey, "${"):
		return nil, errors.New("api_key is not filled in: the variable of the environment that it names is not set")
	}
	if _, ok := c.Reset["seed"]; ok {
		return nil, errors.New("reset: the seed is the episode's own; leave seed out")
	}
	s := &source{config: c, warn: warn, timeout: time.Duration(c.TimeoutS * float64(time.Second))}
	if s.text, err = newTexter(c.Text, c.Image); err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	s.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	s.header = http.Header{}
	if c.APIKey != "" {
		s.header.Set("Authorization", "Bearer "+c.APIKey)
	}
	o := dialOptions{header: s.header, client: s.client, maxMessage: c.MaxMessage, ping: pingEvery, timeout: s.timeout}
	s.hosts = &hosts{all: all, freed: make(chan struct{}), dial: func(ctx context.Context, h *host) (*link, error) { return dial(ctx, h.socket(), o) }}
	return s, nil
}

// schemas are what a server says of its messages at /schema.
type schemas struct {
	Action json.RawMessage `json:"action"`
	Reset  json.RawMessage `json:"reset"` // not OpenEnv's: of the data of a reset, where a server tells it
}

// about is what a server says of itself at /metadata.
type about struct {
	Name string `json:"name"`
	Own  struct {
		Instructions  string `json:"instructions"`
		Deterministic bool   `json:"deterministic"`
	} `json:"agentfly"` // of our own server
}

// discover asks the first host that answers what its environment is. All of them are taken to serve the same.
func (s *source) discover(ctx context.Context, c config) error {
	var known schemas
	var meta about
	var err error
	for _, h := range s.hosts.all {
		if err = s.get(ctx, h.url+"/schema", &known); err == nil || errors.Is(err, errMissing) {
			_ = s.get(ctx, h.url+"/metadata", &meta) // nothing that must be there
			break
		}
		s.hosts.note(h, err)
	}
	if err != nil && !errors.Is(err, errMissing) {
		return s.hosts.none(nil)
	}
	if s.action, err = newActioner(c, known.Action); err != nil {
		return err
	}
	if len(known.Reset) > 0 && string(known.Reset) != "null" {
		if err := json.Unmarshal(known.Reset, &s.reset); err != nil {
			return fmt.Errorf("the server's schema of a reset cannot be read: %w", err)
		}
	}
	s.spec = environments.Spec{Instructions: c.Instructions, Deterministic: meta.Own.Deterministic}
	if c.Instructions == "" {
		s.spec.Instructions = meta.Own.Instructions
	}
	if c.Deterministic != nil {
		s.spec.Deterministic = *c.Deterministic
	}
	return s.actions(ctx, c)
}

// errMissing is a route that the server does not have.
var errMissing = errors.New("there is no such route")

// get reads JSON of a route.
func (s *source) get(ctx context.Context, url string, into any) error {
	return s.fetch(ctx, http.MethodGet, url, nil, into)
}

func (s *source) fetch(ctx context.Context, method, url string, body io.Reader, into any) error {
	ctx, cancel := context.WithTimeout(ctx, min(s.timeout, 30*time.Second))
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	q.Header = s.header.Clone()
	if body != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	answer, err := s.client.Do(q)
	if err != nil {
		return refused(nil, err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, s.config.MaxMessage+1))
	switch {
	case err != nil:
		return readError(err, s.config.MaxMessage)
	case answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden:
		return fmt.Errorf("it refuses %s with status %d: give its key as api_key", q.URL.Path, answer.StatusCode)
	case answer.StatusCode == http.StatusNotFound || answer.StatusCode == http.StatusMethodNotAllowed || answer.StatusCode == http.StatusNotImplemented:
		return errMissing
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("it answers %s with status %d: %s", q.URL.Path, answer.StatusCode, clip(string(data)))
	case int64(len(data)) > s.config.MaxMessage:
		return fmt.Errorf("its answer to %s has more than %d bytes; max_message allows more", q.URL.Path, s.config.MaxMessage)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("its answer to %s cannot be read (%w): %s", q.URL.Path, err, clip(string(data)))
	}
	return nil
}
