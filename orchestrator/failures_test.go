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
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/trajectory"
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

func TestTooManyBrokenCallsEndAStep(t *testing.T) {
	broken := trajectory.Turn{Results: []trajectory.ToolResult{{Failed: true, Cause: trajectory.CauseBroken, Observation: "Error: slow took longer than 1s"}, {Failed: true}, {}, {}}}
	groups := []trajectory.Group{{Trajectories: []*trajectory.Trajectory{
		{ID: "a", Err: "x", ErrOrigin: trajectory.OriginEngine},
		{ID: "b", Err: "x", ErrOrigin: trajectory.OriginEngine, Turns: []trajectory.Turn{broken}},
		{ID: "c", Err: "x", ErrOrigin: trajectory.OriginRender},
		{ID: "d", Turns: []trajectory.Turn{broken, broken}},
		{ID: "e"},
		{ID: "f", Err: "stopped", ErrOrigin: trajectory.OriginEngine, StopReason: trajectory.StopCancelled},
	}}}
	r := &rollouts{limits: &job.Rollout{MaxFailed: 1, MaxFailedTool: 0.25}}
	require.NoError(t, r.TooManyFailed(3, groups), "3 of 12 is not more than a quarter")
	r.limits.MaxFailedTool = 0.2
	require.EqualError(t, r.TooManyFailed(3, groups), "orchestrator: step 3: 3 of 12 tool calls broke, more than rollout.max_failed_tool (0.2); the first: b: Error: slow took longer than 1s")
	r.limits.MaxFailedTool = 1
	require.NoError(t, r.TooManyFailed(3, groups))
}
