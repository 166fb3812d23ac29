package tools

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/internal/panics"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/resources"
)

// Ref is one entry of a job's agent.tools.
type Ref struct {
	Name   string         // of a tool in the catalog; "" with Source
	Source string         // "python", "mcp" or "http": where several tools come from; "" with Name
	Only   []string       // names of the source's tools that are taken; nil: all
	Limits Limits         // in place of the tool's own, field by field
	Cache  bool           // observations of deterministic tools are kept and given again
	Params map[string]any // of the factory; the value of a source stands under the source's name
}

// Factory makes tools from the parameters of a job. An unknown parameter is an error; resources.Decode does that. What it opens it closes with
// r.OnClose.
type Factory func(ctx context.Context, r *resources.Resources, params map[string]any) ([]Tool, error)

// Catalog holds what job files can name: tools by name, and sources. Add everything first; from then on all methods are safe for
// concurrent use.
type Catalog struct {
	named   map[string]named
	sources map[string]Factory
}

type named struct {
	make        Factory
	description string
}

// NewCatalog returns an empty catalog.
func NewCatalog() *Catalog {
	return &Catalog{map[string]named{}, map[string]Factory{}}
}

// Add adds a tool that a factory makes, under its name and with a description for people.
func (c *Catalog) Add(name, description string, f Factory) error {
	switch {
	case !wording.ValidName(name):
		return fmt.Errorf("tools: register %q: a name has %s", name, wording.NameRule)
	case f == nil:
		return fmt.Errorf("tools: register %q: the factory is nil", name)
	case c.named[name].make != nil:
		return fmt.Errorf("tools: register %q: the name is already registered; give one of the two another name", name)
	}
	c.named[name] = named{f, description}
	return nil
}

// Register adds tools that have no parameters, under their own names. The catalog does not close them.
func (c *Catalog) Register(all ...Tool) error {
	for _, t := range all {
		if err := NewRegistry(Options{}).Register(t); err != nil { // its schema and name are checked now, not in a job
			return err
		}
		s := t.Spec()
		err := c.Add(s.Name, s.Description, func(_ context.Context, _ *resources.Resources, params map[string]any) ([]Tool, error) {
			return []Tool{t}, resources.Decode(params, &struct{}{})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// AddSource adds a source of tools, such as "mcp".
func (c *Catalog) AddSource(name string, f Factory) { c.sources[name] = f }

// Names are the names of the tools, sorted.
func (c *Catalog) Names() []string { return slices.Sorted(maps.Keys(c.named)) }

// Description is that of a named tool, for people.
func (c *Catalog) Description(name string) string { return c.named[name].description }

// Make makes the tools that a reference names.
func (c *Catalog) Make(ctx context.Context, r *resources.Resources, ref Ref) ([]Tool, error) {
	what, f := ref.Name, c.named[ref.Name].make
	if ref.Source != "" {
		what, f = ref.Source, c.sources[ref.Source]
	}
	if f == nil {
		if ref.Source != "" {
			return nil, fmt.Errorf("tools: there is no source %q of tools; the sources are %s", ref.Source, strings.Join(slices.Sorted(maps.Keys(c.sources)), ", "))
		}
		if strings.HasSuffix(ref.Name, ".py") {
			return nil, fmt.Errorf("tools: there is no tool %q; a file of tools is written {python: %s}", wording.Clip(ref.Name, 64), wording.Clip(ref.Name, 64))
		}
		if len(c.named) == 0 {
			return nil, fmt.Errorf("tools: there is no tool %q; no tool is registered", wording.Clip(ref.Name, 64))
		}
		return nil, fmt.Errorf("tools: there is no tool %q%s; the tools are %s", wording.Clip(ref.Name, 64), wording.DidYouMean(ref.Name, c.Names()), strings.Join(c.Names(), ", "))
	}
	made, err := panics.Value("its factory", func() ([]Tool, error) { return f(ctx, r, ref.Params) })
	if err != nil {
		return nil, fmt.Errorf("tools: %s: %w", what, err)
	}
	if ref.Only == nil {
		return made, nil
	}
	return pick(what, made, ref.Only)
}

// pick returns the tools with the given names, in their order.
func pick(what string, made []Tool, only []string) ([]Tool, error) {
	names := make([]string, len(made))
	for i, t := range made {
		s, err := specOf(t)
		if err != nil {
			return nil, fmt.Errorf("tools: %s: %w", what, err)
		}
		names[i] = s.Name
	}
	out := make([]Tool, 0, len(only))
	for _, name := range only {
		at := slices.Index(names, name)
		if at < 0 {
			return nil, fmt.Errorf("tools: %s: there is no tool %q%s; its tools are %s", what, wording.Clip(name, 64), wording.DidYouMean(name, names), strings.Join(names, ", "))
		}
		out = append(out, made[at])
	}
	return out, nil
}
