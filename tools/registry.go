package tools

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentfly/agentfly/internal/panics"
	"github.com/agentfly/agentfly/internal/wording"
)

// Options bound every call of a registry. What a tool or a job says of a tool goes before them.
type Options struct {
	Timeout   time.Duration                              // of one call; 0 is 30 s
	MaxTokens int                                        // of an observation, the marker included; 0 is 1,000
	Tokenizer Tokenizer                                  // the model's own; nil: a token counts as 4 characters
	Report    func(tool string, err error, trace []byte) // called once for each panic, with the stack; nil is off
}

const (
	defaultTimeout   = 30 * time.Second
	defaultMaxTokens = 1000
)

// Registry holds tools by name. Register everything first; from then on all other methods are safe for concurrent use.
type Registry struct {
	options Options
	mu      sync.RWMutex
	entries map[string]*entry
}

// entry is a tool with what its calls share.
type entry struct {
	tool      Tool
	spec      Spec // its limits are those that count
	whole     bool // it is terminal, and no limit of its tokens is its own or the job's for it
	schema    *Schema
	gate      *gate
	cache     *cache // nil: nothing is kept
	abandoned atomic.Int64
	running   running // of a tool that keeps something of trajectories
}

// NewRegistry returns an empty registry.
func NewRegistry(o Options) *Registry {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.MaxTokens <= 0 {
		o.MaxTokens = defaultMaxTokens
	}
	return &Registry{options: o, entries: map[string]*entry{}}
}

// Measure has observations cut by the tokens of a model. Like Register it comes before the first call.
func (r *Registry) Measure(t Tokenizer) { r.options.Tokenizer = t }

// Cut leaves out the middle of a text that is longer than an observation may be.
func (r *Registry) Cut(text string) string {
	return cut(r.options.Tokenizer, strings.ToValidUTF8(text, "\uFFFD"), r.options.MaxTokens)
}

// KeepsState tells whether one of the tools is stateful.
func (r *Registry) KeepsState() bool {
	return slices.ContainsFunc(r.all(), func(e *entry) bool { return e.spec.Stateful })
}

// Stateful tells whether the tool of that name is.
func (r *Registry) Stateful(name string) bool {
	e, err := r.lookup(name)
	return err == nil && e.spec.Stateful
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

// RegisterAs adds a tool with what a job's reference says of it: its limits, and whether its observations are kept. Those of a tool
// that is not deterministic are never kept.
func (r *Registry) RegisterAs(t Tool, ref Ref) error {
	spec, err := specOf(t)
	if err != nil {
		return fmt.Errorf("tools: register: %w", err)
	}
	if !wording.ValidName(spec.Name) {
		return fmt.Errorf("tools: register %q: a name has %s", spec.Name, wording.NameRule)
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
	l := ref.Limits.over(spec.Limits)
	whole := spec.Terminal && l.MaxTokens == 0
	l.Timeout, l.MaxTokens = cmp.Or(l.Timeout, r.options.Timeout), cmp.Or(l.MaxTokens, r.options.MaxTokens)
	if !spec.Idempotent {
		l.Retries = 0
	}
	spec.Limits = l
	e := &entry{tool: t, spec: spec, whole: whole, schema: s, gate: newGate(l.Concurrency, l.Rate)}
	if ref.Cache && spec.Deterministic && !spec.Stateful {
		e.cache = newCache()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.entries[spec.Name] != nil {
		return fmt.Errorf("tools: register %q: the name is already registered; give one of the two another name", spec.Name)
	}
	r.entries[spec.Name] = e
	return nil
}

// specOf is what a tool says of itself.
func specOf(t Tool) (s Spec, err error) {
	if t == nil {
		return s, errors.New("the tool is nil")
	}
	err = panics.Guard(fmt.Sprintf("the Spec of a %T", t), func() error {
		s = t.Spec()
		return nil
	})
	return s, err
}

// Names are the registered names, sorted.
func (r *Registry) Names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.entries))
}

// all are the entries, sorted by name.
func (r *Registry) all() []*entry {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.SortedFunc(maps.Values(r.entries), func(a, b *entry) int { return cmp.Compare(a.spec.Name, b.spec.Name) })
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
		return nil, fmt.Errorf("there is no tool %q; no tool is registered", wording.Clip(name, 64))
	}
	return nil, fmt.Errorf("there is no tool %q%s; the tools are %s", wording.Clip(name, 64), wording.DidYouMean(name, names), strings.Join(names, ", "))
}

// Select returns a registry of the named tools. Limits and caches stay common to both.
func (r *Registry) Select(names ...string) (*Registry, error) {
	out := NewRegistry(r.options)
	for _, name := range names {
		e, err := r.lookup(name)
		if err != nil {
			return nil, fmt.Errorf("tools: %w", err)
		}
		if out.entries[name] != nil {
			return nil, fmt.Errorf("tools: select %q: the name is given twice", name)
		}
		out.entries[name] = e
	}
	return out, nil
}

// Specs describe the tools, sorted by name, with the limits that count.
func (r *Registry) Specs() []Spec {
	all := r.all()
	specs := make([]Spec, len(all))
	for i, e := range all {
		specs[i] = e.spec
	}
	return specs
}

// End tells the tools that a trajectory is over. One that panics is reported, and the others are told. A call that nobody waits for any more, because
// the trajectory was cancelled, ends before: it would keep something of a trajectory that is over.
func (r *Registry) End(trajectoryID string) {
	for _, e := range r.all() {
		ender, ok := e.tool.(Ender)
		if !ok {
			continue
		}
		e.running.wait(trajectoryID, lastCall)
		err := panics.Guard(e.spec.Name+": End", func() error {
			ender.End(trajectoryID)
			return nil
		})
		if caught := (*panics.Error)(nil); errors.As(err, &caught) && r.options.Report != nil {
			r.options.Report(e.spec.Name, fmt.Errorf("tools: %s: panic: %v", caught.What, caught.Value), caught.Stack)
		}
	}
}

// Abandoned counts the calls that are still running although nobody waits for them any more, by tool: tools that ignore ctx. nil: none.
func (r *Registry) Abandoned() map[string]int {
	var out map[string]int
	for _, e := range r.all() {
		if n := int(e.abandoned.Load()); n > 0 {
			if out == nil {
				out = map[string]int{}
			}
			out[e.spec.Name] = n
		}
	}
	return out
}
