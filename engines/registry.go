package engines

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

// Setup is what a factory makes an engine from: the job's parameters, and what an engine may know of the policy.
type Setup struct {
	Params     map[string]any            // engine.params of the job; an unknown one is an error: resources.Decode does that
	Resolve    func(path string) string  // makes a path of the job file absolute, or relative to the working folder
	Encode     func(text string) []int32 // of the policy's tokenizer
	Decode     func(ids []int32) string  // of the policy's tokenizer
	MaxContext int                       // tokens that the policy takes; 0: its files do not say
	Vocabulary int                       // size of the policy's vocabulary: ids are below it
	Folder     string                    // below it lie the checkpoints that Weights.Path names; servers elsewhere must see it (engine.folder)
	Note       func(text string)         // takes what the user should know of how the engine runs; called by the factory only
}

// Factory makes an engine for one job. ctx ends with the making; the engine's Close releases what it opened.
type Factory func(ctx context.Context, s Setup) (Engine, error)

// Registry holds the kinds of engines that job files can name: engine: {kind: NAME, params: {…}}. Register everything first; from then on all
// methods are safe for concurrent use. nil knows the kinds of this program alone.
type Registry struct {
	kinds map[string]kind
}

type kind struct {
	description string
	make        Factory
}

// builtIn are the kinds of this program, with a description. Their engines need more of the trainer than a Setup says, so orchestrator/weights
// opens them.
var builtIn = map[string]string{
	"local":  "libtorch in this process",
	"vllm":   "vLLM servers over HTTP",
	"openai": "any OpenAI-compatible chat endpoint, for rollout and eval only",
}

// NewRegistry returns a registry that knows the kinds of this program.
func NewRegistry() *Registry { return &Registry{map[string]kind{}} }

// BuiltIn tells whether a kind is one of this program's, which Make does not make.
func BuiltIn(name string) bool { return builtIn[name] != "" }

// Add adds a kind of engine under its name, with a description for people. A name that is taken or not well-formed is refused.
func (r *Registry) Add(name, description string, f Factory) error {
	switch {
	case !wording.ValidName(name):
		return fmt.Errorf("engines: register %q: a name has %s", name, wording.NameRule)
	case f == nil:
		return fmt.Errorf("engines: register %q: the factory is nil", name)
	case BuiltIn(name) || r.kinds[name].make != nil:
		return fmt.Errorf("engines: register %q: the name is already registered; give one of the two another name", name)
	}
	r.kinds[name] = kind{description, f}
	return nil
}

// AddEngine adds one engine that has no parameters as a kind of its own. The first job that names it uses it up, because a job closes its
// engine: another job of the same process needs Add.
func (r *Registry) AddEngine(name string, e Engine) error {
	if e == nil {
		return fmt.Errorf("engines: register %q: the engine is nil", name)
	}
	used := make(chan struct{}, 1)
	return r.Add(name, "an engine of this program", func(_ context.Context, s Setup) (Engine, error) {
		if err := resources.Decode(s.Params, &struct{}{}); err != nil {
			return nil, err
		}
		select {
		case used <- struct{}{}:
			return e, nil
		default:
			return nil, errors.New("another job of this process had the engine and closed it; register a factory, which makes one for each job")
		}
	})
}

// Names are the kinds, those of this program included, sorted.
func (r *Registry) Names() []string {
	all := slices.Collect(maps.Keys(builtIn))
	if r != nil {
		all = slices.AppendSeq(all, maps.Keys(r.kinds))
	}
	slices.Sort(all)
	return all
}

// Description is that of a kind, for people.
func (r *Registry) Description(name string) string {
	if text := builtIn[name]; text != "" || r == nil {
		return text
	}
	return r.kinds[name].description
}

// Check refuses a kind that nobody knows.
func (r *Registry) Check(name string) error {
	if BuiltIn(name) || r != nil && r.kinds[name].make != nil {
		return nil
	}
	nearest := ""
	if n := wording.Nearest(name, r.Names()); n != "" {
		nearest = "; nearest: " + n
	}
	return fmt.Errorf("engines: unknown kind %q, known are %s%s", wording.Clip(name, 64), strings.Join(r.Names(), ", "), nearest)
}

// Make makes an engine of a registered kind, which is not BuiltIn.
func (r *Registry) Make(ctx context.Context, name string, s Setup) (Engine, error) {
	if err := r.Check(name); err != nil {
		return nil, err
	}
	if BuiltIn(name) {
		return nil, fmt.Errorf("engines: %s is made by package orchestrator/weights", name)
	}
	e, err := panics.Value("its factory", func() (Engine, error) { return r.kinds[name].make(ctx, s) })
	if err == nil && e == nil {
		err = errors.New("its factory returned no engine")
	}
	if err != nil {
		return nil, fmt.Errorf("engines: %s: %w", name, err)
	}
	return e, nil
}
