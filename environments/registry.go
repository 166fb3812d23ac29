package environments

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/internal/panics"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/resources"
)

// Factory makes a source for one job from its parameters. An unknown parameter is an error; resources.Decode does that. A missing program or
// package is an error of one line that names what installs it.
type Factory func(ctx context.Context, r *resources.Resources, params map[string]any) (Source, error)

// Kind declares a kind of environment.
type Kind struct {
	Name        string // that job files give: environment: {kind: NAME}
	Description string // for people, one line
	New         Factory
}

// Registry holds the kinds of environments that job files can name. Add everything first; from then on all methods are safe for concurrent
// use. A nil *Registry knows none.
type Registry struct {
	kinds map[string]Kind
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry { return &Registry{map[string]Kind{}} }

// Add adds a kind. A name that is taken or not well-formed is refused.
func (r *Registry) Add(k Kind) error {
	switch {
	case !wording.ValidName(k.Name):
		return fmt.Errorf("environments: register %q: a name has %s", k.Name, wording.NameRule)
	case k.New == nil:
		return fmt.Errorf("environments: register %q: the factory is nil", k.Name)
	case r.kinds[k.Name].New != nil:
		return fmt.Errorf("environments: register %q: the name is already registered; give one of the two another name", k.Name)
	}
	r.kinds[k.Name] = k
	return nil
}

// Names are the kinds, sorted.
func (r *Registry) Names() []string {
	if r == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(r.kinds))
}

// Description is that of a kind, for people.
func (r *Registry) Description(name string) string {
	if r == nil {
		return ""
	}
	return r.kinds[name].Description
}

// Check refuses a kind that nobody knows.
func (r *Registry) Check(name string) error {
	if r != nil && r.kinds[name].New != nil {
		return nil
	}
	if len(r.Names()) == 0 {
		return fmt.Errorf("environments: there is no environment %q; none is registered", wording.Clip(name, 64))
	}
	return fmt.Errorf("environments: there is no environment %q%s; the environments are %s", wording.Clip(name, 64), wording.DidYouMean(name, r.Names()), strings.Join(r.Names(), ", "))
}

// Make makes the source of a kind.
func (r *Registry) Make(ctx context.Context, shared *resources.Resources, name string, params map[string]any) (Source, error) {
	if err := r.Check(name); err != nil {
		return nil, err
	}
	s, err := panics.Value("its factory", func() (Source, error) { return r.kinds[name].New(ctx, shared, params) })
	if err == nil && s == nil {
		err = errors.New("its factory returned no source")
	}
	if err != nil {
		return nil, fmt.Errorf("environments: %s: %w", name, err)
	}
	return s, nil
}

// KindOf declares a kind of this process whose sources are made from parameters alone: those of a job, over the standard ones.
func KindOf[P any](name, description string, standard P, make func(P) (Source, error)) Kind {
	return Kind{Name: name, Description: description, New: func(_ context.Context, _ *resources.Resources, params map[string]any) (Source, error) {
		p := standard
		if err := resources.Decode(params, &p); err != nil {
			return nil, err
		}
		return make(p)
	}}
}

// simple is the source of environments that a Go function makes.
type simple struct {
	spec Spec
	make func() Environment
}

// Simple is a source of environments that one function makes in this process.
func Simple(spec Spec, make func() Environment) Source {
	spec.InProcess = true
	return simple{spec, make}
}

func (s simple) Spec() Spec                                       { return s.spec }
func (s simple) New(context.Context, string) (Environment, error) { return s.make(), nil }
func (s simple) Close() error                                     { return nil }
