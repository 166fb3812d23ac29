package rewards

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/internal/panics"
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

// Registry holds rewards by name. Register everything first; from then on all methods are safe for concurrent use.
type Registry struct {
	factories map[string]Factory
}

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// Prebuilt returns a registry of the prebuilt rewards.
func Prebuilt() *Registry {
	all := map[string]Factory{
		"final_answer": newFinalAnswer, "right_call": newRightCall, "format": newFormat, "mask_recall": newMaskRecall, "mask_found": newMaskFound,
		"code_tests":  newCodeTests,
		"exact_match": newExactMatch, "f1": newF1, "math_equal": newMathEqual, "search_r1": newSearchR1, "judge": newJudge,
		"pattern": newPattern, "tags": newTags,
		"tool_cost": newToolCost, "length": newLength, "cosine_length": newCosineLength, "repetition": newRepetition,
		"human_rank": newHumanRank, "best_delta": newBestDelta,
	}
	maps.Copy(all, combinators())
	maps.Copy(all, agentflyRewards())
	return &Registry{factories: all}
}

// Register adds a factory. A name that is taken or not well-formed is refused.
func (r *Registry) Register(name string, f Factory) error {
	switch {
	case !namePattern.MatchString(name):
		return fmt.Errorf("rewards: register %q: a name has 1 to 64 letters, digits, _ or -", name)
	case f == nil:
		return fmt.Errorf("rewards: register %q: the factory is nil", name)
	case r.factories[name] != nil:
		return fmt.Errorf("rewards: register %q: the name is already registered; give one of the two another name", name)
	}
	r.factories[name] = f
	return nil
}

// RegisterReward adds a reward that has no parameters under its own name.
func (r *Registry) RegisterReward(w Reward) error {
	if w == nil {
		return errors.New("rewards: register: the reward is nil")
	}
	return r.Register(w.Name(), func(_ *Builder, params map[string]any) (Reward, error) {
		return w, resources.Decode(params, &struct{}{})
	})
}

// Names are the registered names, sorted.
func (r *Registry) Names() []string {
	names := make([]string, 0, len(r.factories))
	for name := range r.factories {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

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
		if !ok || !namePattern.MatchString(other) {
			return nil, fmt.Errorf("%s: as must be a name of 1 to 64 letters, digits, _ or -", name)
		}
		params = maps.Clone(params)
		delete(params, "as")
		w, err := b.make(name, params)
		return alias{w, other}, err
	}
	f := b.registry.factories[name]
	if _, ok := params["python"]; ok {
		f = func(b *Builder, params map[string]any) (Reward, error) { return newPython(b, name, params) }
	}
	if f == nil {
		return nil, fmt.Errorf("there is no reward %q; the rewards are %s", name, strings.Join(b.registry.Names(), ", "))
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
