package code

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

type fake struct{ killed bool }

func (f *fake) kill() { f.killed = true }

// A session that a call has used stays, whatever was started ahead while the call ran: its variables must not vanish.
func TestAUsedProcessStays(t *testing.T) {
	r := newReady(func(context.Context) (*fake, error) { return &fake{}, nil })
	used, err := r.take(t.Context())
	require.NoError(t, err)
	require.NoError(t, r.fill(t.Context())) // of a drop before the call
	ahead := r.next
	require.NotSame(t, used, ahead)
	require.NoError(t, r.fill(t.Context()))
	require.True(t, ahead.killed, "the call before may have ended it")
	ahead = r.next
	r.give(used)
	require.True(t, ahead.killed)
	require.NoError(t, r.fill(t.Context()))
	again, err := r.take(t.Context())
	require.NoError(t, err)
	require.Same(t, used, again)
	require.False(t, used.killed)
	require.Equal(t, map[*fake]bool{used: true}, r.running)
	require.NoError(t, r.Close())
	require.True(t, used.killed)
}
