package sokoban

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/environmenttest"
)

func TestConformance(t *testing.T) {
	for name, p := range map[string]Params{"one box": {6, 1, 60}, "two boxes": {7, 2, 100}} {
		t.Run(name, func(t *testing.T) {
			environmenttest.Run(t, environmenttest.Case{Tasks: 100, Random: 200, Source: func(t testing.TB) environments.Source {
				s, err := New(p)
				require.NoError(t, err)
				return s
			}})
		})
	}
}

func TestParameters(t *testing.T) {
	for want, params := range map[string]map[string]any{
		"size is 4, and must be 5 to 8": {"size": 4}, "boxes is 4, and must be 1 to 3": {"boxes": 4}, "steps is 39, and must be 40 to 1000": {"steps": 39},
		`unknown field "sise"`: {"sise": 4}, "size is 5 and boxes is 3: a room of that size has 9 squares of floor at most, and that many boxes need 12": {"size": 5, "boxes": 3},
	} {
		_, err := Kind().New(t.Context(), nil, params)
		require.ErrorContains(t, err, want)
	}
	for _, params := range []map[string]any{nil, {"size": 5, "boxes": 2}, {"size": 6, "boxes": 3}} {
		_, err := Kind().New(t.Context(), nil, params)
		require.NoError(t, err)
	}
}

// The rewards of a box that comes onto a target, leaves it and comes back.
func TestRewards(t *testing.T) {
	l := &level{size: 5, targets: []uint8{12, 18}}
	for at := range 25 {
		l.wall[at] = at%5 == 0 || at%5 == 4 || at < 5 || at > 19
	}
	w := &world{p: Params{5, 2, 40}, level: l, s: state{Player: 16, Boxes: [3]uint8{7, 17, 255}}}
	require.Equal(t, "#####\n#_X_#\n#_O_#\n#PXO#\n#####", l.draw(w.s))
	var rewards []float64
	for _, a := range []string{"right", "left", "up", "u", "UP ", "right"} {
		r, err := w.Step(t.Context(), environments.Action{Text: a})
		require.NoError(t, err)
		rewards = append(rewards, r.Reward)
	}
	require.Equal(t, []float64{0.25, 0, 0, 0, 0, 0}, rewards)
	require.Equal(t, "#####\n#_PX#\n#_O_#\n#__*#\n#####", l.draw(w.s))
	w.s = state{Player: 6, Boxes: [3]uint8{7, 12, 255}}
	l.targets = []uint8{7, 12}
	r, err := w.Step(t.Context(), environments.Action{Text: "right"})
	require.NoError(t, err)
	require.Equal(t, -0.25, r.Reward)
	require.False(t, r.Over())
}

// An action is a name, in any case, or its first letter alone, so that a model of one token a letter needs one for an action.
func TestFirstLetters(t *testing.T) {
	for text, want := range map[string]int{"up": 0, "u": 0, "D": 1, " l\n": 2, "Right": 3, "r": 3, "": -1, "ri": -1, "x": -1} {
		require.Equal(t, want, environments.ActionOf(names, text), "%q", text)
	}
}
