package session

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Notes that somebody is told of at once are those that were kept, in order, and each later one; none is kept then.
func TestNotesAreToldAtOnce(t *testing.T) {
	var n Notes
	n.Note("it went on")
	n.Know("it began")
	n.Once("of the run")
	var told []string
	n.Tell(func(line string) { told = append(told, line) })
	require.Equal(t, []string{"it began", "it went on", "of the run"}, told)
	n.Know("a")
	n.Note("b")
	n.Once("of the run")
	n.Once("c")
	require.Equal(t, []string{"a", "b", "c"}, told[3:])
	require.Empty(t, n.Early())
	require.Empty(t, n.News())
	var all sync.WaitGroup
	for range 8 { // told for one at a time
		all.Go(func() { n.Note("d") })
	}
	all.Wait()
	require.Len(t, told, 14)
}
