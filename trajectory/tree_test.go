package trajectory

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Three leaves of one turn: b forks off a behind 4 tokens, c off b behind 6, d off a behind 2. What the same leaves have has one name.
func TestTokensAreNamedByWhoSharesThem(t *testing.T) {
	turn := func(id string, begun ...Begun) Turn {
		return Turn{CompletionEnd: 8, Shared: SharedName(id, 0), Begun: begun}
	}
	group := []*Trajectory{
		{ID: "a", Turns: []Turn{turn("a")}},
		{ID: "b", Turns: []Turn{turn("b", Begun{"a:0", 4})}},
		{ID: "c", Turns: []Turn{turn("c", Begun{"a:0", 4}, Begun{"b:0", 6})}},
		{ID: "d", Turns: []Turn{turn("d", Begun{"a:0", 2})}},
	}
	forks := ForksOf(group)
	require.Equal(t, Forks{"a:0": {2, 4}, "b:0": {6}}, forks)
	for id, want := range map[string][]string{
		"a": {"a:0", "a:0", "a:0+2", "a:0+2", "a:0+4", "a:0+4", "a:0+4", "a:0+4"},
		"b": {"a:0", "a:0", "a:0+2", "a:0+2", "b:0", "b:0", "b:0+6", "b:0+6"},
		"c": {"a:0", "a:0", "a:0+2", "a:0+2", "b:0", "b:0", "c:0", "c:0"},
		"d": {"a:0", "a:0", "d:0", "d:0", "d:0", "d:0", "d:0", "d:0"},
	} {
		own := &group[id[0]-'a'].Turns[0]
		for i, name := range want {
			require.Equal(t, name, forks.Name(own, i), "token %d of %s", i, id)
		}
	}
	require.Equal(t, 6, group[2].Turns[0].BegunTokens())
	require.Equal(t, 2, group[2].Turns[0].Sampled())
	require.Equal(t, 8, group[0].Turns[0].Sampled())
	require.Empty(t, Forks{}.Name(&Turn{}, 3), "outside of trees")
}
