package rewards

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

// Factory makes a reward from the parameters that a job gives it. An unknown parameter is an error; resources.Decode does that. What
// it opens it closes with b.Resources.OnClose.
type Factory func(b *Builder, params map[string]any) (Reward, error)

// Builder makes the rewards of one job.
type Builder struct {
	Context   context.Context // of the making, not of the scoring
	Resources *resources.Resources
	registry  *Registry
}

// The prebuilt rewards. Each is declared beside its code with declareReward, so that to add one is to add a file.
var ownRewards []declared

type declared struct {
	name string
	registered
}

// declareReward declares a prebuilt reward, with a description for people.
func declareReward(name string, f Factory, description string) struct{} {
	ownRewards = append(ownRewards, declared{name, registered{f, description}})
	return struct{}{}
}

// Registry holds rewards by name. Add everything first; from then on all methods are safe for concurrent use.
type Registry struct {
	named map[string]registered
}

// registered is a reward that job files can name.
type registered struct {
	make        Factory
	description string
}

// Prebuilt returns a registry of the prebuilt rewards.
func Prebuilt() *Registry {
	r := &Registry{named: map[string]registered{}}
	var errs []error
	for _, w := range ownRewards {
		errs = append(errs, r.Add(w.name, w.description, w.make))
	}
	if err := errors.Join(errs...); err != nil {
		panic(err) // two files of this package declare the same
	}
	return r
}

// Add adds a reward that a factory makes, under its name and with a description for people. A name that is taken or not well-formed is
// refused.
func (r *Registry) Add(name, description string, f Factory) error {
	switch {
	case !wording.ValidName(name):
		return fmt.Errorf("rewards: register %q: a name has %s", name, wording.NameRule)
	case f == nil:
		return fmt.Errorf("rewards: register %q: the factory is nil", name)
	case r.named[name].make != nil:
		return fmt.Errorf("rewards: register %q: the name is already registered; give one of the two another name", name)
	}
	r.named[name] = registered{f, description}
	return nil
}

// Register adds a reward that has no parameters under its own name.
func (r *Registry) Register(w Reward) error {
	if w == nil {
		return errors.New("rewards: register: the reward is nil")
	}
	return r.Add(w.Name(), "", func(_ *Builder, params map[string]any) (Reward, error) {
		return w, resources.Decode(params, &struct{}{})
	})
}

// Names are the registered names, sorted.
func (r *Registry) Names() []string { return slices.Sorted(maps.Keys(r.named)) }

// Description is that of a reward, for people; empty where it has none.
func (r *Registry) Description(name string) string { return r.named[name].description }

// Builder makes the rewards of one job. res stays the caller's to close.
func (r *Registry) Builder(ctx context.Context, res *resources.Resources) *Builder {
	return &Builder{ctx, res, r}
}

// Make returns the named reward with its parameters: with the parameter python a function of that file. A combinator makes the rewards
// that it combines with it.
func (b *Builder) Make(name string, params map[string]any) (Reward, error) {
	w, err := b.make(name, params)
	if err != nil {
		return nil, fmt.Errorf("rewards: %w", err)
	}
	return w, nil
}

// make is Make, for combinators: its errors do not begin with the package. The parameter as gives the reward another name.
func (b *Builder) make(name string, params map[string]any) (Reward, error) {
	as, renamed := params["as"]
	if renamed {
		other, ok := as.(string)
		if !ok || !wording.ValidName(other) {
			return nil, fmt.Errorf("%s: as must be a name of %s", name, wording.NameRule)
		}
		params = maps.Clone(params)
		delete(params, "as")
		w, err := b.make(name, params)
		return alias{w, other}, err
	}
	f := b.registry.named[name].make
	if _, ok := params["python"]; ok {
		f = func(b *Builder, params map[string]any) (Reward, error) { return newPython(b, name, params) }
	}
	if f == nil {
		return nil, fmt.Errorf("there is no reward %q%s; the rewards are %s", name, wording.DidYouMean(name, b.registry.Names()), strings.Join(b.registry.Names(), ", "))
	}
	w, err := panics.Value("its factory", func() (Reward, error) { return f(b, params) })
	if err == nil && w == nil {
		err = errors.New("its factory returned no reward")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return w, nil
}

// alias is a reward under another name.
type alias struct {
	Reward
	name string
}

func (a alias) Name() string { return a.name }
