package tools_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// slowDiary keeps the trajectories that called it, a while after it was told to end.
type slowDiary struct {
	mu    sync.Mutex
	kept  map[string]int
	began chan struct{}
	late  chan struct{} // the call goes on until it is closed, whatever its context says
}

func (d *slowDiary) Spec() tools.Spec {
	return tools.Spec{Name: "diary", Description: "Keeps.", Parameters: json.RawMessage(`{"type":"object"}`), Stateful: true}
}

func (d *slowDiary) Call(ctx context.Context, c tools.Call) (tools.Observation, error) {
	d.began <- struct{}{}
	<-ctx.Done()
	if d.late != nil {
		<-d.late
	}
	time.Sleep(50 * time.Millisecond)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kept[c.Trajectory]++
	return tools.Observation{}, ctx.Err()
}

func (d *slowDiary) End(trajectory string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.kept, trajectory)
}

// A tool keeps nothing of a trajectory that is over, also where its last call was given up: the trajectory's next attempt would find it.
func TestNothingIsKeptOfACallThatWasGivenUp(t *testing.T) {
	d := &slowDiary{kept: map[string]int{}, began: make(chan struct{}, 1)}
	r := tools.NewRegistry(tools.Options{Timeout: time.Minute})
	require.NoError(t, r.Register(d))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-d.began
		cancel()
	}()
	r.Invoke(ctx, "t1", trajectory.ToolCall{Name: "diary", Arguments: json.RawMessage(`{}`)})
	r.End("t1")
	require.Never(t, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.kept) > 0
	}, 200*time.Millisecond, 10*time.Millisecond)
	require.Empty(t, r.Abandoned())
}

// A tool that ignores its context holds the end of its trajectory up for a moment, and no other trajectory's.
func TestTheEndDoesNotWaitForAToolThatIgnoresItsContext(t *testing.T) {
	d := &slowDiary{kept: map[string]int{}, began: make(chan struct{}, 1), late: make(chan struct{})}
	r := tools.NewRegistry(tools.Options{Timeout: time.Minute})
	require.NoError(t, r.Register(d))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-d.began
		cancel()
	}()
	r.Invoke(ctx, "t1", trajectory.ToolCall{Name: "diary", Arguments: json.RawMessage(`{}`)})
	others := make([]string, 20) // if each waited for the moment, they would for 20 s
	for i := range others {
		others[i] = fmt.Sprint("other", i)
	}
	for _, c := range []struct {
		trajectories []string
		most         time.Duration
	}{{others, 10 * time.Second}, {[]string{"t1"}, 20 * time.Second}} {
		ended := make(chan struct{})
		go func() {
			for _, trajectory := range c.trajectories {
				r.End(trajectory)
			}
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(c.most):
			t.Fatalf("the end of %s waits", c.trajectories)
		}
	}
	require.Equal(t, map[string]int{"diary": 1}, r.Abandoned())
	close(d.late)
	require.Eventually(t, func() bool { return len(r.Abandoned()) == 0 }, 10*time.Second, 10*time.Millisecond)
}
