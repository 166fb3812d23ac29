package wording

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The end stays, whatever the pieces; a character whose beginning is gone is told as one that is not whole.
func TestTailKeepsTheEnd(t *testing.T) {
	said := strings.Repeat("0123456789", 5) + "é"
	for _, piece := range []int{1, 3, 7, 100} {
		tail := NewTail(8)
		for rest := said; rest != ""; {
			n, err := tail.Write([]byte(rest[:min(piece, len(rest))]))
			require.NoError(t, err)
			rest = rest[n:]
		}
		require.Equal(t, "456789é", tail.String())
	}
	tail := NewTail(1)
	_, _ = tail.Write([]byte("é"))
	require.Equal(t, "\uFFFD", tail.String())
	require.Empty(t, NewTail(8).String())
}
