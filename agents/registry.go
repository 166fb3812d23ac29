package agents

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/internal/panics"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/tools"
)

const (
	// Custom is the kind of agents whose format the program added, or a Python file defines.
	Custom = "custom"
	// External is the kind of agents that are programs of their own: they prompt and read the model themselves, over the gateway. The format is that in
	// which the model writes the calls that the gateway hands out.
	External = "external"

	defaultKind = "tool_call" // of a job that names none
)

// FormatSpec declares a call format. It is all that job files, the server and listings know of one.
type FormatSpec struct {
	Name        string   // that job files give: agent: {format: NAME}
	Kind        string   // of the agents that write it; "" is Custom, or the kind that declares the format as its own
	Description string   // for people, one line: how a call is written
	Parsers     []string // vLLM's names of it, which `agentfly serve --tool-call-parser` takes; none: the server does not read it
	InTemplates bool     // the chat templates of models that write it tell them of their tools, in its words
	InRenderer  bool     // so does package masks, for a template that ignores tools
	OneTool     bool     // it has no place for a tool's name: it calls exactly one tool, with one text
	New         FormatFactory
}

// Kind declares a kind of agent with the format that is its own.
type Kind struct {
	Name        string     // that job files give: agent: {kind: NAME}
	Description string     // for people, one line
	Format      FormatSpec // what its agents write when the job names no format; its Kind is this one
}

// The kinds and formats of this package. Each stands in a file of its own, which declares it with declareKind or declareFormat: to add one is to add a file.
var (
	ownKinds   []Kind
	ownFormats []FormatSpec
)

// declareKind declares a kind of this package, with its own format.
func declareKind(k Kind) struct{} {
	ownKinds = append(ownKinds, k)
	return struct{}{}
}

// declareFormat declares a further format of a kind of this package.
func declareFormat(s FormatSpec) struct{} {
	ownFormats = append(ownFormats, s)
	return struct{}{}
}

// Registry holds the kinds of agents and the call formats that job files can name. Add everything first; from then on all methods are safe
// for concurrent use. A nil *Registry has what this package declares.
type Registry struct {
	kinds   map[string]Kind
	formats map[string]FormatSpec
	parsers map[string]string // vLLM's names, and our formats
}

// NewRegistry returns a registry of the kinds and formats of this package.
func NewRegistry() *Registry {
	r := &Registry{map[string]Kind{}, map[string]FormatSpec{}, map[string]string{}}
	var errs []error
	for _, k := range ownKinds {
		errs = append(errs, r.addKind(k))
	}
	for _, s := range ownFormats {
		errs = append(errs, r.AddFormat(s))
	}
	if err := errors.Join(errs...); err != nil {
		panic(err) // two files of this package declare the same
	}
	return r
}

// AddKind adds a kind of agent with its own format.
func (r *Registry) AddKind(k Kind) error {
	if k.Format.New == nil {
		return fmt.Errorf("agents: register kind %q: its format has no factory; set Format.New", k.Name)
	}
	return r.addKind(k)
}

func (r *Registry) addKind(k Kind) error {
	switch {
	case !wording.ValidName(k.Name):
		return fmt.Errorf("agents: register kind %q: a name has %s", k.Name, wording.NameRule)
	case r.kinds[k.Name].Name != "":
		return fmt.Errorf("agents: register kind %q: the name is already registered; give the new one another name", k.Name)
	case k.Format.Kind != "" && k.Format.Kind != k.Name:
		return fmt.Errorf("agents: register kind %q: its own format says that it is of kind %q; leave Format.Kind out", k.Name, k.Format.Kind)
	}
	if k.Format.New == nil { // Custom and External
		r.kinds[k.Name] = k
		return nil
	}
	k.Format.Name, k.Format.Kind = cmp.Or(k.Format.Name, k.Name), k.Name
	k.Format.Description = cmp.Or(k.Format.Description, k.Description)
	r.kinds[k.Name] = k
	if err := r.AddFormat(k.Format); err != nil {
		delete(r.kinds, k.Name)
		return err
	}
	return nil
}

// AddFormat adds a call format to a kind that is registered.
func (r *Registry) AddFormat(s FormatSpec) error {
	s.Kind = cmp.Or(s.Kind, Custom)
	switch {
	case !wording.ValidName(s.Name):
		return fmt.Errorf("agents: register format %q: a name has %s", s.Name, wording.NameRule)
	case s.New == nil:
		return fmt.Errorf("agents: register format %q: the factory is nil", s.Name)
	case r.formats[s.Name].Name != "":
		return fmt.Errorf("agents: register format %q: the name is already registered; give the new one another name", s.Name)
	case r.kinds[s.Kind].Name == "":
		return fmt.Errorf("agents: register format %q: there is no kind %q%s; the kinds are %s", s.Name, s.Kind, wording.DidYouMean(s.Kind, r.KindNames()), strings.Join(r.KindNames(), ", "))
	}
	for _, name := range s.Parsers {
		if of := r.parsers[name]; of != "" {
			return fmt.Errorf("agents: register format %q: the parser %q is that of %s already; leave it out", s.Name, name, of)
		}
	}
	for _, name := range s.Parsers {
		r.parsers[name] = s.Name
	}
	r.formats[s.Name] = s
	return nil
}

// or is r, or for nil what this package declares.
func (r *Registry) or() *Registry {
	if r == nil {
		return NewRegistry()
	}
	return r
}

// KindNames are the names of the kinds: tool_call, which a job has that names none, then the others, sorted.
func (r *Registry) KindNames() []string {
	names := slices.Sorted(maps.Keys(r.or().kinds))
	return slices.Concat([]string{defaultKind}, slices.DeleteFunc(names, func(name string) bool { return name == defaultKind }))
}

// Kind is a kind by name; false for none.
func (r *Registry) Kind(name string) (Kind, bool) {
	k, ok := r.or().kinds[name]
	return k, ok
}

// FormatNames are the names of a kind's formats, its own first, then the others, sorted.
func (r *Registry) FormatNames(kind string) []string {
	r = r.or()
	own := r.kinds[kind].Format.Name
	var names []string
	for name, s := range r.formats {
		if s.Kind == kind && name != own {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if own != "" {
		names = slices.Insert(names, 0, own)
	}
	return names
}

// Format is the declaration of a format; false for none of that name.
func (r *Registry) Format(name string) (FormatSpec, bool) {
	s, ok := r.or().formats[name]
	return s, ok
}

// Parsers are vLLM's names of all formats that have one, sorted.
func (r *Registry) Parsers() []string { return slices.Sorted(maps.Keys(r.or().parsers)) }

// Parser is the declaration of the format with that name in vLLM; false for none.
func (r *Registry) Parser(name string) (FormatSpec, bool) {
	r = r.or()
	return r.Format(r.parsers[name])
}

// NewFormat makes a format by name for the given tools.
func (r *Registry) NewFormat(name string, specs []tools.Spec, o FormatOptions) (Format, error) {
	r = r.or()
	s, ok := r.formats[name]
	if !ok {
		names := slices.Sorted(maps.Keys(r.formats))
		return nil, fmt.Errorf("agents: there is no format %q%s; the formats are %s", name, wording.DidYouMean(name, names), strings.Join(names, ", "))
	}
	f, err := panics.Value("its factory", func() (Format, error) { return s.New(specs, o) })
	if err == nil && f == nil {
		err = errors.New("its factory returned no format")
	}
	if err != nil {
		return nil, fmt.Errorf("agents: format %s: %w", name, err)
	}
	return f, nil
}

// NewFormat makes a format of this package by name for the given tools.
func NewFormat(name string, specs []tools.Spec, o FormatOptions) (Format, error) {
	return (*Registry)(nil).NewFormat(name, specs, o)
}
