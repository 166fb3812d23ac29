package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/agentfly/agentfly/trajectory"
	"github.com/agentfly/agentfly/waiting"
)

// Options bound every call of a registry.
type Options struct {
	Timeout  time.Duration                              // of one call; 0 is 30 s
	MaxRunes int                                        // of an observation, the marker included; 0 is 4,000; at least 100
	Report   func(tool string, err error, trace []byte) // called once for each panic, with the stack; nil is off
}

const (
	defaultTimeout  = 30 * time.Second
	defaultMaxRunes = 4000
	minMaxRunes     = 100
)

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// Registry holds tools by name. Register everything first; from then on all methods are safe for concurrent use.
type Registry struct {
	options   Options
	mu        sync.RWMutex
	entries   map[string]*entry
	abandoned atomic.Int64
}

type entry struct {
	tool   Tool
	spec   Spec
	schema *Schema
	part   string // that a call waits for
}

// NewRegistry returns an empty registry.
func NewRegistry(o Options) *Registry {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.MaxRunes <= 0 {
		o.MaxRunes = defaultMaxRunes
	}
	o.MaxRunes = max(o.MaxRunes, minMaxRunes)
	return &Registry{options: o, entries: map[string]*entry{}}
}

// KeepsState tells whether one of the tools is stateful.
func (r *Registry) KeepsState() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, e := range r.entries {
		if e.spec.Stateful {
			return true
		}
	}
	return false
}

// Register adds tools. A name that is taken or not well-formed, or a schema that cannot be read, is refused; the tools
// before it stay registered.
func (r *Registry) Register(all ...Tool) error {
	for _, t := range all {
		if err := r.RegisterAs(t, Ref{}); err != nil {
			return err
		}
	}
	return nil
}

// RegisterAs adds a tool with what a job's reference says of it: its limits and its cache.
func (r *Registry) RegisterAs(t Tool, ref Ref) error {
	if t == nil {
		return errors.New("tools: register: the tool is nil")
	}
	spec := t.Spec()
	spec.Limits = ref.Limits.over(spec.Limits)
	if !namePattern.MatchString(spec.Name) {
		return fmt.Errorf("tools: register %q: a name has 1 to 64 letters, digits, _ or -", spec.Name)
	}
	if broken, ok := t.(interface{ Err() error }); ok && broken.Err() != nil {
		return fmt.Errorf("tools: register %q: %w", spec.Name, broken.Err())
	}
	if len(spec.Parameters) == 0 {
		spec.Parameters = []byte(`{"type":"object","properties":{},"additionalProperties":false}`)
	}
	s, err := ParseSchema(spec.Parameters)
	if err != nil {
		return fmt.Errorf("tools: register %q: %w", spec.Name, err)
	}
	if !slices.Equal(s.Types, []string{"object"}) {
		return fmt.Errorf(`tools: register %q: the schema of the parameters must have "type": "object"`, spec.Name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.entries[spec.Name] != nil {
		return fmt.Errorf("tools: register %q: the name is already registered; give one of the two another name", spec.Name)
	}
	r.entries[spec.Name] = &entry{tool: t, spec: spec, schema: s, part: "tool " + spec.Name}
	return nil
}

// Names are the registered names, sorted.
func (r *Registry) Names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	names := make([]string, 0, len(r.entries))
	for name := range r.entries {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Lookup returns a tool. The error of an unknown name says which are known and which is nearest.
func (r *Registry) Lookup(name string) (Tool, error) {
	e, err := r.lookup(name)
	if err != nil {
		return nil, fmt.Errorf("tools: %w", err)
	}
	return e.tool, nil
}

func (r *Registry) lookup(name string) (*entry, error) {
	r.mu.RLock()
	e := r.entries[name]
	r.mu.RUnlock()
	if e != nil {
		return e, nil
	}
	names := r.Names()
	if len(names) == 0 {
		return nil, fmt.Errorf("there is no tool %q; no tool is registered", clip(name, 64))
	}
	return nil, fmt.Errorf("there is no tool %q%s; the tools are %s", clip(name, 64), suggest(name, names), strings.Join(names, ", "))
}

// Select returns a registry of the named tools with the same options.
func (r *Registry) Select(names ...string) (*Registry, error) {
	out := NewRegistry(r.options)
	for _, name := range names {
		t, err := r.Lookup(name)
		if err != nil {
			return nil, err
		}
		if err := out.Register(t); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Specs describe the tools, sorted by name.
func (r *Registry) Specs() []Spec {
	names := r.Names()
	specs := make([]Spec, 0, len(names))
	for _, name := range names {
		if e, err := r.lookup(name); err == nil {
			specs = append(specs, e.spec)
		}
	}
	return specs
}

// End tells the tools that a trajectory is over.
func (r *Registry) End(trajectoryID string) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, e := range r.entries {
		if ender, ok := e.tool.(Ender); ok {
			ender.End(trajectoryID)
		}
	}
}

// Abandoned counts the calls that are still running although their deadline has passed: tools that ignore ctx.
func (r *Registry) Abandoned() int { return int(r.abandoned.Load()) }

// Invoke runs one call of a trajectory. It never fails: an unknown tool, wrong arguments, an error, a panic or a passed
// deadline gives a result with Failed set and an observation that tells the model how to do it right. When ctx itself is
// done the observation says so; the caller checks ctx.
func (r *Registry) Invoke(ctx context.Context, trajectoryID string, c trajectory.ToolCall) trajectory.ToolResult {
	start := time.Now()
	text, err := r.invoke(ctx, trajectoryID, c)
	var broken *BrokenError
	out := trajectory.ToolResult{Call: c, Failed: err != nil, Broken: errors.As(err, &broken)}
	if err != nil {
		text = "Error: " + err.Error()
	}
	out.Observation = truncate(strings.ToValidUTF8(text, "\uFFFD"), r.options.MaxRunes)
	out.Duration = time.Since(start)
	return out
}

func (r *Registry) invoke(ctx context.Context, trajectoryID string, c trajectory.ToolCall) (string, error) {
	e, err := r.lookup(c.Name)
	if err != nil {
		return "", err
	}
	if len(c.Arguments) == 0 {
		c.Arguments = []byte("{}")
	}
	if err := e.schema.Check(c.Arguments); err != nil {
		return "", fmt.Errorf("%s: %w", c.Name, err)
	}
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("%s: the run was interrupted", c.Name)
	}
	timeout := cmp.Or(e.spec.Limits.Timeout, r.options.Timeout)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer waiting.Enter(ctx, e.part, trajectoryID).Leave()
	type outcome struct {
		text string
		err  error
	}
	done := make(chan outcome, 1)
	r.abandoned.Add(1)
	go func() {
		text, err := r.guarded(ctx, e, Call{ID: c.ID, Trajectory: trajectoryID, Arguments: c.Arguments})
		r.abandoned.Add(-1)
		done <- outcome{text, err}
	}()
	select {
	case o := <-done:
		if o.err != nil && errors.Is(o.err, context.DeadlineExceeded) && ctx.Err() != nil {
			return "", late(ctx, c.Name, timeout)
		}
		return o.text, o.err
	case <-ctx.Done():
		return "", late(ctx, c.Name, timeout)
	}
}

func late(ctx context.Context, name string, timeout time.Duration) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &BrokenError{Text: fmt.Sprintf("%s took longer than %s; ask it for less work", name, timeout)}
	}
	return fmt.Errorf("%s: the run was interrupted", name)
}

// guarded turns a panic into an error. Its value goes to Report, not to the model: it may name host paths.
func (r *Registry) guarded(ctx context.Context, e *entry, c Call) (text string, err error) {
	defer func() {
		if v := recover(); v != nil {
			if r.options.Report != nil {
				r.options.Report(e.spec.Name, fmt.Errorf("tools: %s: panic: %v", e.spec.Name, v), debug.Stack())
			}
			text, err = "", &BrokenError{Text: e.spec.Name + " failed inside; try other arguments"}
		}
	}()
	o, err := e.tool.Call(ctx, c)
	return o.Text, err
}

// truncate keeps the head and the tail of s so that at most n runes are left, the marker included.
func truncate(s string, n int) string {
	if len(s) <= n || utf8.RuneCountInString(s) <= n {
		return s
	}
	runes := []rune(s)
	marker := fmt.Sprintf("\n[%d characters left out]\n", len(runes)) // as wide as the final one or wider
	keep := n - utf8.RuneCountInString(marker)
	head := keep * 2 / 3
	tail := keep - head
	return string(runes[:head]) + fmt.Sprintf("\n[%d characters left out]\n", len(runes)-keep) + string(runes[len(runes)-tail:])
}
