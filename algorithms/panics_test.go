package algorithms

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/internal/panics"
)

// wild is an estimator that panics: in Advantages, or as a critic in Returns.
type wild struct{ in string }

func (w wild) Advantages(groups []Group) ([][][]float64, error) {
	if w.in == "Advantages" {
		panic("no column")
	}
	if w.in == "error" {
		return nil, errors.New("no reward")
	}
	return w.zeros(groups), nil
}

func (w wild) zeros(groups []Group) [][][]float64 {
	out := make([][][]float64, len(groups))
	for g, group := range groups {
		for _, r := range group {
			out[g] = append(out[g], make([]float64, r.Tokens))
		}
	}
	return out
}

type wildCritic struct{ wild }

func (w wildCritic) Returns([]Group) ([][][]float64, error) { panic("no returns") }

// Whatever panics of the code that a program brings becomes an error that names it, with the line.
func TestPanicsOfOwnCodeAreErrors(t *testing.T) {
	estimator := func(name string, e Estimator, critic bool) *Algorithm {
		r := NewRegistry()
		require.NoError(t, r.AddEstimator(EstimatorSpec{Name: name, Needs: Needs{Values: critic}, New: func(Settings) (Estimator, error) { return e, nil }}))
		a, err := Config{Advantage: Choice{Name: name}}.Resolve(r)
		require.NoError(t, err)
		return a
	}
	groups := []Group{{{Reward: 1, Tokens: 2, Values: []float64{0, 0}}, {Reward: 0, Tokens: 1, Values: []float64{0}}}}

	a := estimator("wild", wild{"Advantages"}, false)
	_, err := a.Advantages(groups)
	require.Regexp(t, `^algorithms: advantage wild panicked: no column, at \S+panics_test\.go:\d+$`, err.Error())
	var caught *panics.Error
	require.ErrorAs(t, err, &caught)
	require.Contains(t, string(caught.Stack), "wild.Advantages")
	require.False(t, a.Estimator.NeedsSiblings(), "one that cannot say is taken to need none")

	_, err = estimator("wild", wildCritic{}, true).Returns(groups)
	require.Regexp(t, `^algorithms: advantage wild panicked: no returns, at \S+panics_test\.go:\d+$`, err.Error())
	_, err = estimator("wild", wild{"error"}, false).Advantages(groups)
	require.EqualError(t, err, "algorithms: advantage wild: no reward")

	bad := func(change func(r *Registry) error) error {
		r := NewRegistry()
		require.NoError(t, change(r))
		_, err := Config{Advantage: Choice{Name: "bad"}}.Resolve(r)
		return err
	}
	err = bad(func(r *Registry) error {
		return r.AddEstimator(EstimatorSpec{Name: "bad", New: func(Settings) (Estimator, error) { panic("no file") }})
	})
	require.Regexp(t, `^algorithms: advantage bad: its New panicked: no file, at \S+panics_test\.go:\d+$`, err.Error())
	err = bad(func(r *Registry) error {
		return r.AddEstimator(EstimatorSpec{Name: "bad", New: func(Settings) (Estimator, error) { return nil, nil }})
	})
	require.EqualError(t, err, "algorithms: advantage bad: its New returned no estimator")

	spec := LossSpec{Name: "bad", New: func(Settings) (Loss, error) { panic("no weights") }}
	loss := func(change func(s *LossSpec)) (*Algorithm, error) {
		r, s := NewRegistry(), spec
		change(&s)
		require.NoError(t, r.AddLoss(s))
		return Config{Loss: Choice{Name: "bad"}}.Resolve(r)
	}
	_, err = loss(func(s *LossSpec) { s.Check = func(Settings) error { panic("no key") } })
	require.Regexp(t, `^algorithms: loss bad: its Check panicked: no key, at \S+panics_test\.go:\d+$`, err.Error())
	a, err = loss(func(s *LossSpec) { s.ClipNote = func(Settings, *Algorithm) []string { panic("no note") } })
	require.NoError(t, err)
	require.Contains(t, a.Describe(), "the loss's ClipNote panicked: no note")
	a, err = loss(func(s *LossSpec) { s.Clipped = func(Settings, Token) bool { panic("no bound") } })
	require.NoError(t, err)
	func() { // the trainer's worker catches it
		defer func() { require.ErrorContains(t, recover().(error), "loss bad: its Clipped panicked: no bound, at ") }()
		a.Loss.HoldsBack(Token{})
	}()
}
