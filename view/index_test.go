package view

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/store"
)

// The page says how many texts a search does not reach. One that is replaced or forgotten is none of them any more.
func TestTextsThatAreNotSearchedAreCounted(t *testing.T) {
	x := index{}
	put := func(id string, step int, text string) {
		x.put(&entry{ID: id, Phase: store.Train, Step: step}, []byte(text))
	}
	put("a", 1, "alpha")
	x.texts = mostText // as if others had filled it
	put("b", 2, "beta")
	put("b", 2, "beta")
	require.Equal(t, 1, x.unread, "replaced by one that is not held either")
	put("a", 1, "gamma")
	require.Equal(t, 1, x.unread, "the text that is replaced makes room")
	require.Equal(t, mostText, x.texts)
	x.forget(2)
	require.Equal(t, 0, x.unread)
	require.Equal(t, len("gamma"), x.texts)
}
