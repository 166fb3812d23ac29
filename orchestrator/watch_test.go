package orchestrator

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/internal/watchdog"
)

// printed collects what a watchdog prints.
type printed struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all.Write(b)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all.String()
}

func TestTheWatchSaysWhatIsWaitedFor(t *testing.T) {
	var out printed
	ctx, stop := Watch(t.Context(), 0.02, &out, nil)
	defer stop()
	defer watchdog.Enter(ctx, "engine", "train-0-0-0-0").Leave()
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "waiting for engine: train-0-0-0-0 for ") }, 10*time.Second, time.Millisecond)
	require.Regexp(t, `^agentfly: nothing moved for [0-9.]+m?s; waiting for `, out.String())
}

func TestASignalAsksForTheWaits(t *testing.T) {
	var out printed
	ask := make(chan os.Signal, 1)
	_, stop := Watch(t.Context(), 0, &out, ask)
	defer stop()
	ask <- syscall.SIGUSR1
	require.Eventually(t, func() bool { return out.String() == "agentfly: waiting for nothing outside the process\n" }, 10*time.Second, time.Millisecond)
}
