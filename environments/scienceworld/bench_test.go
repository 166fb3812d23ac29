package scienceworld_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/scienceworld"
	"github.com/agentfly/agentfly/internal/pool"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

// BenchmarkPool plays episodes of the same actions through a pool of 8 workers, and with the package alone in one process of Python, which does no
// more in a step than ours. ratio is the pool's steps a second over those of the package alone, times the processors; own-step-ratio compares with
// the package's own step, which lists all possible actions each time.
func BenchmarkPool(b *testing.B) {
	interpreter := os.Getenv("AGENTFLY_ENV_PYTHON")
	if interpreter == "" {
		b.Skip("AGENTFLY_ENV_PYTHON names no Python with scienceworld; make bench-env installs one")
	}
	const size, warm, episodes = 8, 40, 400
	actions := []string{"look around", "open door to kitchen", "go to kitchen", "look around", "inventory", "open fridge", "look in fridge", "wait", "open door to hallway", "go to hallway"}
	shared := resources.New(resources.Options{})
	s, err := scienceworld.Kind().New(b.Context(), shared, map[string]any{"interpreter": interpreter, "tasks": []string{"find-plant"}})
	require.NoError(b, err)
	m, err := environments.Open(s, shared.Pools(), environments.Options{
		Kind: "scienceworld", StepTimeout: time.Minute, ResetTimeout: time.Minute, Pool: pool.Options{Size: size, Warm: size, MakeTime: time.Minute, Lease: time.Minute},
	})
	require.NoError(b, err)
	play := func(n int) time.Duration {
		begun, next := time.Now(), make(chan int)
		var all sync.WaitGroup
		for range 2 * size { // more than there are environments, as in a run
			all.Go(func() {
				for i := range next {
					e, err := m.Begin(b.Context(), pool.Owner{Name: strconv.Itoa(i)}, environments.Start{Task: trajectory.Task{Fields: map[string]any{"task": "find-plant", "variation": float64(i % 50)}}})
					if err != nil {
						b.Error(err)
						continue
					}
					for _, a := range actions {
						if _, err := e.Step(b.Context(), environments.Action{Text: a}); err != nil {
							b.Error(err)
						}
					}
					e.End()
				}
			})
		}
		for i := range n {
			next <- i
		}
		close(next)
		all.Wait()
		return time.Since(begun)
	}
	alone := func() (lean, own float64) {
		out, err := exec.Command(interpreter, append([]string{"testdata/bare.py", strconv.Itoa(warm), strconv.Itoa(episodes)}, actions...)...).Output()
		require.NoError(b, err)
		_, err = fmt.Sscan(string(out), &lean, &own)
		require.NoError(b, err)
		return lean, own
	}
	play(size * warm)
	var pooled, lean, own float64
	rounds := 0.0
	for b.Loop() {
		l, o := alone()
		pooled, lean, own, rounds = pooled+play(episodes).Seconds(), lean+l, own+o, rounds+1
	}
	steps := rounds * episodes * float64(len(actions))
	b.ReportMetric(steps/pooled, "pool-steps/s")
	b.ReportMetric(steps/lean, "alone-steps/s")
	b.ReportMetric(lean/pooled/float64(runtime.NumCPU()), "ratio")
	b.ReportMetric(own/pooled/float64(runtime.NumCPU()), "own-step-ratio")
	require.NoError(b, m.Close())
	require.NoError(b, shared.Close())
}
