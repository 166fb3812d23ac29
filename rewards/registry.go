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

// Registry holds rewards by name. Add everything first; from then on all methods are safe for concurrent use.
type Registry struct {
	named map[string]registered
}

// registered is a reward that job files can name.
type registered struct {
	make        Factory
	description string
}

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// Prebuilt returns a registry of the prebuilt rewards.
func Prebuilt() *Registry {
	all := map[string]registered{
		"environment":   {newEnvironment, "what the environment paid: its own score of the episode, else the sum of the rewards of its steps"},
		"final_answer":  {newFinalAnswer, "1 when the final answer equals the task's, numbers by value, text without case; else 0"},
		"right_call":    {newRightCall, "share of the needed results that a call returned"},
		"exact_match":   {newExactMatch, "1 when the answer equals a right one after SQuAD's normalisation; else 0"},
		"f1":            {newF1, "largest F1 of the answer's normalised tokens with a right one"},
		"math_equal":    {newMathEqual, "1 when the answer states the same mathematics as a right one; else 0"},
		"search_r1":     {newSearchR1, "Search-R1's exact match with shares for form and retrieval"},
		"mask_recall":   {newMaskRecall, "mean over the task's masks of how much of the masked text the answer gives back"},
		"mask_found":    {newMaskFound, "share of the task's masks whose text a successful call returned"},
		"code_tests":    {newCodeTests, "a task's tests of the code, run in the sandbox"},
		"judge":         {newJudge, "what another model says of the response"},
		"format":        {newFormat, "share of turns with a call or an answer and nothing unreadable; 0 without a final answer"},
		"tags":          {newTags, "1 when a completion is made of the given tags, each once and in order; else 0"},
		"pattern":       {newPattern, "1 when a regular expression matches the whole text; else 0"},
		"tool_cost":     {newToolCost, "minus what calls, failed calls, seconds and tokens cost"},
		"length":        {newLength, "0 up to a budget, falling to -1 behind it"},
		"cosine_length": {newCosineLength, "by length and correctness, along a cosine"},
		"repetition":    {newRepetition, "different n-grams / n-grams - 1"},
		"human_rank":    {newHumanRank, "share of a human leaderboard that the best score is not worse than"},
		"best_delta":    {newBestDelta, "what the trajectory's attempts improved on its start"},
	}
	maps.Copy(all, combinators())
	maps.Copy(all, agentflyRewards())
	return &Registry{named: all}
}

// Add adds a reward that a factory makes, under its name and with a description for people. A name that is taken or not well-formed is
// refused.
func (r *Registry) Add(name, description string, f Factory) error {
	switch {
	case !namePattern.MatchString(name):
		return fmt.Errorf("rewards: register %q: a name has 1 to 64 letters, digits, _ or -", name)
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
		if !ok || !namePattern.MatchString(other) {
			return nil, fmt.Errorf("%s: as must be a name of 1 to 64 letters, digits, _ or -", name)
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
