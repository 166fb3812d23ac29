package orchestrator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/tools/calculator"
)

const asyncJob = "../examples/tiny_async.yaml"

// slowly is a tool that takes an exponential time, which follows from the seed, the trajectory and the call.
type slowly struct {
	tools.Tool
	mean time.Duration
	seed uint64
}

func (s slowly) Call(ctx context.Context, c tools.Call) (tools.Observation, error) {
	u := (float64(hashOf(s.seed, c.Trajectory, c.Arguments)%1e9) + 0.5) / 1e9
	timer := time.NewTimer(time.Duration(-math.Log(u) * float64(s.mean)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return s.Tool.Call(ctx, c)
	case <-ctx.Done():
		return tools.Observation{}, ctx.Err()
	}
}

// slowTools are the prebuilt registries with a calculator that takes its time.
func slowTools(t *testing.T, mean time.Duration, seed uint64) Registries {
	r := Registries{Tools: tools.NewCatalog(), Agents: agents.NewRegistry(), Rewards: rewards.Prebuilt(), Algorithms: algorithms.NewRegistry()}
	require.NoError(t, r.Tools.Register(slowly{calculator.New(), mean, seed}))
	return r
}

// seen is what the store of a run says of its batches.
type seen struct {
	trained, mixed int // trajectories; those with tokens of several versions
	stale          int // the largest staleness
}

// inspect holds the batches of a run against its trajectories, token by token.
func inspect(t *testing.T, dir string) (out seen) {
	db, err := store.OpenReader(filepath.Join(dir, store.File))
	require.NoError(t, err)
	defer db.Close()
	found, err := db.Recover(t.Context(), 0)
	require.NoError(t, err)
	ids := map[string]bool{}
	for _, b := range found.Batches {
		groups, err := db.Groups(t.Context(), b.Groups, "")
		require.NoError(t, err)
		for _, g := range groups {
			for _, tr := range g.Trajectories {
				require.False(t, ids[tr.ID], tr.ID)
				ids[tr.ID] = true
				out.trained++
				versions := map[int32]bool{}
				for _, s := range tr.Samples {
					for i, on := range s.ResponseMask {
						if on {
							versions[s.PolicyVersion[i]] = true
							out.stale = max(out.stale, int(b.Version-s.PolicyVersion[i]))
						}
					}
				}
				if len(versions) > 1 {
					out.mixed++
				}
			}
		}
	}
	return out
}

// A job in mode async learns on the local engine, which shares the trainer's parameters: trajectories go on over updates,
// every token has the version that sampled it, and none is too old when it is trained.
func TestAsyncLearnsOnTheLocalEngine(t *testing.T) {
	if !cgo.Available() {
		t.Skip("this test binary was built without the torch tag; make test runs it with libtorch")
	}
	before := goleak.IgnoreCurrent()
	j, err := job.Load(asyncJob, "output="+filepath.Join(t.TempDir(), "run"))
	require.NoError(t, err)
	var out bytes.Buffer
	ended, told := make(chan struct{}), make(chan bool)
	go func() { // what other processes are told of the groups
		outstanding := false
		defer func() { told <- outstanding }()
		for {
			select {
			case <-ended:
				return
			case <-time.After(50 * time.Millisecond):
			}
			if n, err := runfolder.ReadNow(j.Output); err == nil && n != nil && n.Groups != nil {
				g := *n.Groups
				outstanding = outstanding || g.Most == 8 && g.Batch == 4 && g.Staleness == 1 && g.Sampling+g.Ended+g.Training > 0
			}
		}
	}()
	sum, err := Train(t.Context(), j, slowTools(t, 100*time.Millisecond, 1), Options{Out: &out})
	close(ended)
	groups := <-told
	require.NoError(t, err, out.String())
	require.True(t, groups)
	t.Log(out.String())
	require.Greater(t, sum.Reward["last"], sum.Reward["first"]+0.4, "it learns")
	require.Zero(t, sum.Trajectories["failed"])
	got := inspect(t, j.Output)
	t.Logf("%+v", got)
	require.Equal(t, 90*128, got.trained)
	require.Greater(t, got.mixed, 100, "trajectories that went over an update")
	require.Equal(t, 1, got.stale)
	require.Contains(t, out.String(), "  stale ")
	goleak.VerifyNone(t, before)
}

// TestAsyncBenchmark trains the same job in both modes with a calculator that takes an exponential 2 s, three seeds of both modes
// at once: the tools sleep, so that a small machine has time for all, and what else it does meets both modes.
// AGENTFLY_BENCH_ASYNC names the file that takes one JSON line a run.
func TestAsyncBenchmark(t *testing.T) {
	path := os.Getenv("AGENTFLY_BENCH_ASYNC")
	if path == "" || !cgo.Available() {
		t.Skip("25 minutes: run by make bench-async, which sets AGENTFLY_BENCH_ASYNC and builds with libtorch")
	}
	number := func(name string, standard float64) float64 {
		v, err := strconv.ParseFloat(os.Getenv(name), 64)
		if err != nil {
			return standard
		}
		return v
	}
	mean, steps := job.Seconds(number("BENCH_TOOL_SECONDS", 2)), int(number("BENCH_STEPS", 90))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	defer f.Close()
	type run struct {
		mode string
		seed uint64
		job  *job.Job
		sum  report.Summary
		err  error
	}
	var runs []*run
	for _, mode := range []string{"sync", "async"} {
		for seed := range uint64(3) {
			r := &run{mode: mode, seed: seed + 1}
			sets := []string{
				"output=" + filepath.Join(t.TempDir(), mode), fmt.Sprint("seed=", r.seed), fmt.Sprint("trainer.steps=", steps),
				"rollout.tool_timeout=120", "rollout.mode=" + mode,
			}
			if mode == "sync" {
				sets = append(sets, "rollout.max_staleness=0")
			}
			r.job, err = job.Load(asyncJob, sets...)
			require.NoError(t, err)
			runs = append(runs, r)
		}
	}
	var all sync.WaitGroup
	for _, r := range runs {
		registries := slowTools(t, mean, r.seed)
		all.Go(func() { r.sum, r.err = Train(t.Context(), r.job, registries, Options{Out: &bytes.Buffer{}}) })
	}
	all.Wait()
	for _, r := range runs {
		require.NoError(t, r.err)
		got := inspect(t, r.job.Output)
		line, err := json.Marshal(map[string]any{
			"mode": r.mode, "seed": r.seed, "steps": r.sum.Steps, "seconds": r.sum.Seconds, "rewards": rewardsByStep(t, r.job.Output), "stale": got.stale,
			"mixed": got.mixed, "trained": got.trained, "failed": r.sum.Trajectories["failed"], "tool_seconds": mean.Seconds(), "max_staleness": r.job.Rollout.MaxStaleness,
		})
		require.NoError(t, err)
		_, err = f.Write(append(line, '\n'))
		require.NoError(t, err)
		t.Logf("%s, seed %d: %d steps in %.0f s, reward %.3f -> %.3f, %+v", r.mode, r.seed, r.sum.Steps, r.sum.Seconds, r.sum.Reward["first"], r.sum.Reward["last"], got)
	}
}

func rewardsByStep(t *testing.T, dir string) (out []float64) {
	db, err := store.OpenReader(filepath.Join(dir, store.File))
	require.NoError(t, err)
	defer db.Close()
	steps, err := db.Steps()
	require.NoError(t, err)
	for _, s := range steps {
		out = append(out, s["reward/mean"])
	}
	return out
}
