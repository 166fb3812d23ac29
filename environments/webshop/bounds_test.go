package webshop

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/pool"
	"github.com/agentfly/agentfly/resources"
)

// What the solver chooses is paid in full, and a wrong value of an option is not.
func TestWrongValueIsWrong(t *testing.T) {
	c := generate(10_000, 1)
	for _, g := range c.goals {
		p := c.products[g.product]
		right := p.fitting(g.options)
		require.InDelta(t, 1, rate(p, p, g, right).reward, 0)
		for _, o := range p.options {
			for _, v := range o.values {
				if v == right[o.name] {
					continue
				}
				wrong := map[string]string{}
				for name, value := range right {
					wrong[name] = value
				}
				wrong[o.name] = v
				require.Less(t, rate(p, p, g, wrong).reward, 1.0, "%s: %s %q in place of %q", p.title, o.name, v, right[o.name])
			}
		}
	}
}

// An episode has room to search, open and buy.
func TestLeastSteps(t *testing.T) {
	_, err := New(t.Context(), resources.New(resources.Options{}), map[string]any{"max_steps": 2})
	require.ErrorContains(t, err, "max_steps is 2; give 3 to 1000")
}

// The search page has the name of the start: after an action that is not possible, and after the way back.
func TestAnchorOfTheStart(t *testing.T) {
	m, err := environments.Open(struct{ environments.Source }{open(t, map[string]any{"products": 300})}, nil, environments.Options{Pool: pool.Options{Size: 1}})
	require.NoError(t, err)
	e, err := m.Begin(t.Context(), pool.Owner{Name: "test"}, environments.Start{Seed: 1})
	require.NoError(t, err)
	defer e.End()
	first := e.Anchor()
	for _, c := range []struct {
		action string
		start  bool
	}{{"jump", true}, {"click[Buy Now]", true}, {"search[boots]", false}, {"click[Back to Search]", true}} {
		r, err := e.Step(t.Context(), environments.Action{Text: c.action})
		require.NoError(t, err)
		require.Equal(t, c.start, r.Anchor == first, "%s: %s", c.action, r.Anchor)
	}
}
