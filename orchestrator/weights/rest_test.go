package weights

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines/scripted"
	"github.com/agentfly/agentfly/engines/vllm"
)

// waiter is an engine that sleeps when its server, which ended, was started again.
type waiter struct {
	*scripted.Engine
	server *vllm.Kept
}

func (w waiter) Sleep(ctx context.Context) error {
	for w.server.Restarts() == 0 {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// A server that ended just before the run rests is started, because an engine sleeps when all its servers are there; one that ends while it sleeps is
// not.
func TestAServerThatEndedIsStartedBeforeTheRest(t *testing.T) {
	t.Setenv(scriptedServer, "steady")
	server, err := vllm.Keep(t.Context(), vllm.ServeOptions{
		Command: os.Args[0], Model: "m", Folder: t.TempDir(), Timeout: 20 * time.Second, Backoff: 100 * time.Millisecond,
	}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	s := Sync{engine: waiter{scripted.New(scripted.Options{}), server}, server: server, sleep: 1}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, syscall.Kill(server.PID(), syscall.SIGKILL))
	require.NoError(t, s.Rest(ctx))
	require.NoError(t, syscall.Kill(server.PID(), syscall.SIGKILL))
	time.Sleep(500 * time.Millisecond)
	require.Equal(t, 1, server.Restarts())
}
