package rewards

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Factory makes a reward from the parameters that a job gives it. An unknown parameter is an error; Decode does that.
type Factory func(params map[string]any) (Reward, error)

// Registry holds rewards by name. Register everything first; from then on all methods are safe for concurrent use.
type Registry struct {
	factories map[string]Factory
}

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// Prebuilt returns a registry of the prebuilt rewards.
func Prebuilt() *Registry {
	return &Registry{factories: map[string]Factory{
		"final_answer": newFinalAnswer,
		"right_call":   newRightCall,
		"format":       newFormat,
	}}
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
	return r.Register(w.Name(), func(params map[string]any) (Reward, error) {
		return w, Decode(params, &struct{}{})
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

// Make returns the named reward with its parameters.
func (r *Registry) Make(name string, params map[string]any) (Reward, error) {
	f := r.factories[name]
	if f == nil {
		return nil, fmt.Errorf("rewards: there is no reward %q; the rewards are %s", name, strings.Join(r.Names(), ", "))
	}
	w, err := f(params)
	if err != nil {
		return nil, fmt.Errorf("rewards: %s: %w", name, err)
	}
	return w, nil
}

// Decode reads the parameters of a reward into a struct with json tags, strictly.
func Decode(params map[string]any, into any) error {
	if len(params) == 0 {
		return nil
	}
	b, err := json.Marshal(params)
	if err != nil {
		return fmt.Errorf("the parameters cannot be read: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		var typed *json.UnmarshalTypeError
		if errors.As(err, &typed) {
			return fmt.Errorf("the parameter %s must be of type %s, got a %s", typed.Field, typed.Type, typed.Value)
		}
		return fmt.Errorf("the parameters cannot be read: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}
