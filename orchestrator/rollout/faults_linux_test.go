package rollout_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	pyenv "github.com/agentfly/agentfly/environments/python"
	"github.com/agentfly/agentfly/internal/pool"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

// An environment that pays NaN, never answers, dies, or writes what is no message fails its own trajectory with an error that names it; one that shows
// 50 MB is cut; the trajectories beside them come to their ends.
func TestFaultyEnvironmentsDisturbNobody(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not on PATH: apt-get install python3")
	}
	class, err := filepath.Abs("testdata/chaos.py")
	require.NoError(t, err)
	shared := resources.New(resources.Options{})
	source, err := pyenv.Kind().New(t.Context(), shared, map[string]any{"class": class + ":Faulty", "max_observation": 1000})
	require.NoError(t, err)
	m, err := environments.Open(source, shared.Pools(), environments.Options{
		Kind: "python", StepTimeout: 3 * time.Second, ResetTimeout: 20 * time.Second, Pool: pool.Options{Size: 3, Breaker: 50},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.Close(); require.NoError(t, shared.Close()) })
	r := chaos{action: "on", step: 10 * time.Second}.sampler(t, m)
	r.World.Retries = 0
	faults := map[string]string{
		"nan":      "environments: python: step: Faulty: step: the reward is nan; it must be a finite number",
		"never":    "environments: python: step: it did not return within 3s",
		"dies":     "environments: python: step: Faulty: step: its process ended; the worker ended (exit status 3)",
		"nonsense": "environments: python: step: Faulty: step: its process ended; the worker ended (it wrote what is no reply",
		"huge":     "",
		"":         "",
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	ended := map[string][]*trajectory.Trajectory{}
	group := 0
	for fault := range faults {
		n := 1
		if fault == "" {
			n = 12
		}
		for range n {
			group++
			task := trajectory.Task{ID: fmt.Sprint("t", group), Prompt: []trajectory.Message{trajectory.Text("user", "Go.")}, Fields: map[string]any{"fault": fault}}
			place := rollout.Place{Step: 1, Group: group, Task: task, Phase: "train"}
			all.Go(func() {
				tr := r.Sample(t.Context(), place)
				mu.Lock()
				defer mu.Unlock()
				ended[fault] = append(ended[fault], tr)
			})
		}
	}
	all.Wait()
	for fault, want := range faults {
		for _, tr := range ended[fault] {
			if want != "" {
				require.Equal(t, trajectory.OriginEnvironment, tr.ErrOrigin, fault)
				require.Contains(t, tr.Err, want, fault)
				require.Zero(t, tr.Reward)
				continue
			}
			require.Empty(t, tr.Err, fault)
			require.Equal(t, trajectory.StopTerminated, tr.StopReason)
			if fault == "huge" {
				require.Contains(t, tr.Turns[1].Results[0].Observation, "left out]")
				require.Less(t, len(tr.Turns[1].Results[0].Observation), 1100)
				require.True(t, strings.HasPrefix(tr.Turns[1].Results[0].Observation, "xxx"))
			}
		}
	}
}
