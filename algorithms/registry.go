package algorithms

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
)

// Key is a setting of its own that an estimator or a loss takes: {name: NAME, KEY: VALUE}.
type Key struct {
	Name    string
	Default any // a number (float64, or an int that stands for one), bool or string, which is also the key's type; nil: a required number
	Doc     string
}

// Settings are what a loss or an estimator is made with, checked and complete.
type Settings struct {
	ClipLow, ClipHigh float64 // of losses that clip
	DualClip          float64 // 0: off
	keys              map[string]any
}

// Float returns a number among the own keys, Bool a truth value, String a text; the zero value for a key that the
// specification does not list with that type.
func (s Settings) Float(key string) float64 { v, _ := s.keys[key].(float64); return v }

// Bool is described at Float.
func (s Settings) Bool(key string) bool { v, _ := s.keys[key].(bool); return v }

// String is described at Float.
func (s Settings) String(key string) string { v, _ := s.keys[key].(string); return v }

// between checks a number among the own keys.
func (s Settings) between(key string, low, high float64) error {
	v := s.Float(key)
	switch {
	case v >= low && v <= high:
		return nil
	case math.IsInf(high, 1):
		return fmt.Errorf("%s is %v; allowed is %v or more", key, v, low)
	}
	return fmt.Errorf("%s is %v; allowed is %v to %v", key, v, low, high)
}

// EstimatorSpec describes an advantage estimator. New checks the settings and makes it.
type EstimatorSpec struct {
	Name, Formula, Source string
	Keys                  []Key
	Needs                 Needs    // what it reads of a Record beyond reward and tokens; with Values it is a Critic
	Notes                 []string // edge cases, for `agentfly job effective`
	New                   func(Settings) (Estimator, error)
}

// Token is one response token for LossSpec.Clipped.
type Token struct {
	Current, Old, Sampling float64 // logprobs; Old is what the loss sees as old
	Sequence               float64 // of LossInput.Sequence, where the loss needs it
	Advantage              float64
}

// LossSpec describes a loss. It says without tensors what Resolve, Describe and the trainer must know; New makes the
// loss. A binary without libtorch has the specification and never calls New: NewLoss fails there with cgo.ErrUnavailable.
type LossSpec struct {
	Name, Formula, Source string
	UsesClipLow           bool    // clip_low is allowed
	UsesClipHigh          bool    // clip_high is allowed
	UsesDualClip          bool    // dual_clip is allowed
	ClipLow, ClipHigh     float64 // defaults
	Aggregation           string  // default; "" is token-mean
	Only                  string  // the one aggregation that the loss allows; "" allows all
	ZeroAtZero            bool    // advantage 0 gives loss 0 and gradient 0, so such tokens need no backward
	IgnoresOld            bool    // the formula has no old logprobs
	UsesSampling          bool    // the formula has sampling logprobs
	NeedsSequence         bool    // LossInput.Sequence is filled in
	Keys                  []Key
	Check                 func(Settings) error                // of the settings, when a job is read; nil: nothing to check
	Clipped               func(Settings, Token) bool          // whether a token's gradient is held back; nil: by the bounds on the ratio
	ClipNote              func(Settings, *Algorithm) []string // for `agentfly job effective`; nil: from the bounds
	New                   func(Settings) (Loss, error)
}

// The estimators and losses of this package. Each stands in a file of its own, which declares it with declareEstimator or declareLoss: to add
// one is to add a file.
var (
	ownEstimators []EstimatorSpec
	ownLosses     []LossSpec
)

// declareEstimator declares an estimator of this package.
func declareEstimator(s EstimatorSpec) struct{} {
	ownEstimators = append(ownEstimators, s)
	return struct{}{}
}

// declareLoss declares a loss of this package.
func declareLoss(s LossSpec) struct{} {
	ownLosses = append(ownLosses, s)
	return struct{}{}
}

// Registry holds the estimators and losses that a job can name. It is filled before jobs are resolved and not after.
type Registry struct {
	estimators map[string]EstimatorSpec
	losses     map[string]LossSpec
}

// NewRegistry returns a registry of what this package implements.
func NewRegistry() *Registry {
	r := &Registry{estimators: map[string]EstimatorSpec{}, losses: map[string]LossSpec{}}
	var errs []error
	for _, s := range ownEstimators {
		errs = append(errs, r.AddEstimator(s))
	}
	for _, s := range ownLosses {
		errs = append(errs, r.AddLoss(s))
	}
	if err := errors.Join(errs...); err != nil {
		panic(err) // two files of this package declare the same
	}
	return r
}

// AddEstimator registers an estimator; a name that is taken is an error.
func (r *Registry) AddEstimator(s EstimatorSpec) error {
	if _, taken := r.estimators[s.Name]; taken || s.Name == "" || s.New == nil {
		return fmt.Errorf("algorithms: estimator %q cannot be registered: it needs a New function and a name that is not taken", s.Name)
	}
	var err error
	if s.Keys, err = checkedKeys(s.Keys); err != nil {
		return fmt.Errorf("algorithms: estimator %q cannot be registered: %w", s.Name, err)
	}
	r.estimators[s.Name] = s
	return nil
}

// AddLoss registers a loss; a name that is taken is an error.
func (r *Registry) AddLoss(s LossSpec) error {
	if _, taken := r.losses[s.Name]; taken || s.Name == "" || s.New == nil {
		return fmt.Errorf("algorithms: loss %q cannot be registered: it needs a New function and a name that is not taken", s.Name)
	}
	var err error
	if s.Keys, err = checkedKeys(s.Keys); err != nil {
		return fmt.Errorf("algorithms: loss %q cannot be registered: %w", s.Name, err)
	}
	r.losses[s.Name] = s
	return nil
}

// checkedKeys are the own keys of an estimator or a loss with their numbers as float64, which is what Settings.Float reads: a default of another
// type would be 0 there.
func checkedKeys(spec []Key) ([]Key, error) {
	keys, seen := slices.Clone(spec), map[string]bool{}
	for i := range keys {
		k := &keys[i]
		switch {
		case k.Name == "":
			return nil, fmt.Errorf("its key %d has no name", i)
		case k.Name == "name":
			return nil, fmt.Errorf("its key %q cannot be given: a job names what it chooses with it", k.Name)
		case seen[k.Name]:
			return nil, fmt.Errorf("its key %q stands twice", k.Name)
		}
		seen[k.Name] = true
		if k.Default == nil {
			continue
		}
		v, err := convert(k.Default, k.Default)
		if err != nil {
			return nil, fmt.Errorf("the default of its key %q is %v, a %T; allowed are a finite float64 or int, a bool, a string, and nil", k.Name, k.Default, k.Default)
		}
		k.Default = v
	}
	return keys, nil
}

// Estimators are the registered estimators, sorted by name.
func (r *Registry) Estimators() []EstimatorSpec { return sorted(r.estimators) }

// Losses are the registered losses, sorted by name.
func (r *Registry) Losses() []LossSpec { return sorted(r.losses) }

func sorted[T any](known map[string]T) []T {
	out := make([]T, 0, len(known))
	for _, name := range slices.Sorted(maps.Keys(known)) {
		out = append(out, known[name])
	}
	return out
}

// lookup finds name among known; the error says what is allowed.
func lookup[T any](kind, name string, known map[string]T) (T, error) {
	if s, ok := known[name]; ok {
		return s, nil
	}
	var none T
	names := slices.Sorted(maps.Keys(known))
	return none, refuse(kind, "%s %q is unknown; allowed are %s%s", kind, name, strings.Join(names, ", "), wording.DidYouMean(name, names))
}

// resolveKeys checks the own keys of c against the specification and fills in defaults.
func resolveKeys(kind string, c Choice, spec []Key) (map[string]any, error) {
	out := map[string]any{}
	for _, k := range spec {
		given, ok := c.Keys[k.Name]
		if !ok {
			if k.Default == nil {
				return nil, refuse(kind, "%s %s needs the key %s (%s)", kind, c.Name, k.Name, k.Doc)
			}
			out[k.Name] = k.Default
			continue
		}
		v, err := convert(given, k.Default)
		if err != nil {
			return nil, refuse(kind+"."+k.Name, "%s %s: %s is %v; %w", kind, c.Name, k.Name, given, err)
		}
		out[k.Name] = v
	}
	for _, name := range slices.Sorted(maps.Keys(c.Keys)) {
		if _, ok := out[name]; !ok {
			names := keyNames(spec)
			return nil, refuse(kind+"."+name, "%s %s has no key %s; its keys are: %s%s", kind, c.Name, name, cmp.Or(strings.Join(names, ", "), "none"), wording.DidYouMean(name, names))
		}
	}
	return out, nil
}

func keyNames(spec []Key) (names []string) {
	for _, k := range spec {
		names = append(names, k.Name)
	}
	return names
}

// convert gives v the type of like: float64 for nil.
func convert(v, like any) (any, error) {
	switch like.(type) {
	case bool:
		if b, ok := v.(bool); ok {
			return b, nil
		}
		return nil, fmt.Errorf("it must be true or false")
	case string:
		if s, ok := v.(string); ok {
			return s, nil
		}
		return nil, fmt.Errorf("it must be a text")
	}
	f := math.NaN()
	switch n := v.(type) {
	case float64:
		f = n
	case int:
		f = float64(n)
	case int64:
		f = float64(n)
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, fmt.Errorf("it must be a number")
	}
	return f, nil
}
