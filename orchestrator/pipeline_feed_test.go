package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/scripted"
	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/objective"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trainer"
	"github.com/agentfly/agentfly/trajectory"
)

// slowTrainer takes its time, writes behind the barrier as the real one does, and keeps what it was given.
type slowTrainer struct {
	learner // nil: nothing else is called
	t       *testing.T
	takes   time.Duration
	barrier func(context.Context, func(context.Context) error) error
	batches []trainer.Batch
}

func (s *slowTrainer) Step(ctx context.Context, b trainer.Batch) (m trainer.Metrics, err error) {
	time.Sleep(s.takes / 2)
	err = s.barrier(ctx, func(context.Context) error { time.Sleep(s.takes / 2); return nil })
	s.batches = append(s.batches, b)
	m.OptimizerSteps = 1
	for _, g := range b.Groups {
		m.StalenessMax = max(m.StalenessMax, int(b.Version-g.LowestVersion(nil)))
	}
	return m, err
}

func hashOf(parts ...any) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, parts...)
	return h.Sum64() >> 8
}

// napping is a run whose trajectories take up to four naps of up to eight seconds, by their request seeds; the clock is
// the test's. Half of the answers are right.
func napping(t *testing.T, settings job.Rollout, a algorithms.Config, steps int) (*run, *slowTrainer) {
	return nappingOn(t, job.Data{}, 3, settings, a, steps)
}

func nappingOn(t *testing.T, data job.Data, groups int, settings job.Rollout, a algorithms.Config, steps int) (*run, *slowTrainer) {
	nap := tools.NewFunc("nap", "sleeps", func(ctx context.Context, a struct {
		Seconds string `json:"seconds"`
	},
	) (string, error) {
		n, err := strconv.Atoi(a.Seconds)
		if err != nil {
			return "", err
		}
		select {
		case <-time.After(time.Duration(n) * time.Second):
			return "done", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	})
	r := samplingRun(t, a, groups, 4, questions(20), data, func(q engines.Request) (engines.Completion, error) {
		h := hashOf(q.Seed)
		if h%5 > 1 && strings.Count(rollouttest.Decode(q.Prompt), "<result>") < 4 {
			return rollouttest.Say(fmt.Sprintf("<nap>%d</nap>", h/5%8+1))
		}
		return rollouttest.Say(fmt.Sprintf("<answer>%d</answer>", h/5%2))
	})
	settings.Groups, settings.GroupSize, settings.MaxFailed, settings.MaxTokens, settings.MaxRefills = groups, 4, 0.9, 1000, 3
	r.session.Job.Rollout, r.session.Job.Trainer.Steps = settings, steps
	r.session.Sampler.Trees = rollout.TreesOf(settings, 258)
	r.session.Sampler.Tools = tools.NewRegistry(tools.Options{Timeout: time.Minute})
	require.NoError(t, r.session.Sampler.Tools.Register(nap))
	var err error
	r.session.Sampler.Format, err = agents.NewFormat("tags", r.session.Sampler.Tools.Specs(), agents.FormatOptions{})
	require.NoError(t, err)
	r.session.Sampler.Sampling.Stop, r.session.Sampler.MaxTurns = r.session.Sampler.Format.Stops(), 6
	r.session.Sampler.Deadline = job.Seconds(settings.Timeout)
	r.state.Version = 7 // the scripted engine's
	r.session.Weights.Use(r.session.Sampler.Engine)
	r.options.Out = io.Discard
	r.session.Sampler.Record = r.folder.DB.AddTurn
	r.folder.Metrics, err = os.Create(filepath.Join(r.folder.Dir, "metrics.jsonl"))
	require.NoError(t, err)
	trainer := &slowTrainer{t: t, takes: 2 * time.Second, barrier: r.session.Weights.Barrier(&r.state.Version)}
	r.trainer = trainer
	t.Cleanup(func() {
		r.objective.Stop()
		_ = r.folder.Metrics.Close() // a run that went on with it may have
	})
	return r, trainer
}

// took runs all steps and returns the time by the test's clock.
func took(t *testing.T, r *run) time.Duration {
	start := time.Now()
	require.NoError(t, r.training().steps(t.Context()))
	r.objective.Stop()
	return time.Since(start)
}

// audit holds what was trained against the store: every trajectory once, whole, within the bound.
func audit(t *testing.T, r *run, trained []trainer.Batch) (mixed, stale int) {
	seen := map[string]bool{}
	for _, b := range trained {
		require.Len(t, b.Groups, r.session.Job.Rollout.Groups)
		for _, g := range b.Groups {
			for _, tr := range g.Trajectories {
				require.False(t, seen[tr.ID], "%s is trained twice", tr.ID)
				seen[tr.ID] = true
				stored, err := r.folder.DB.Reader.Trajectory(t.Context(), tr.ID)
				require.NoError(t, err)
				require.Equal(t, tr.Samples, stored.Samples)
				versions := map[int32]bool{}
				for i, on := range tr.Samples[0].ResponseMask {
					if on {
						versions[tr.Samples[0].PolicyVersion[i]] = true
					}
				}
				if len(versions) > 1 {
					mixed++
				}
			}
			staleness := int(b.Version - g.LowestVersion(nil))
			require.LessOrEqual(t, staleness, r.session.Job.Rollout.MaxStaleness)
			stale = max(stale, staleness)
		}
	}
	return mixed, stale
}

// recorded is what the log of a run holds from its first step on.
func recorded(t *testing.T, r *run) *store.Recovery {
	log, err := r.folder.DB.Recover(t.Context(), 0)
	require.NoError(t, err)
	return log
}

var corrected = algorithms.Config{Correction: algorithms.Correction{Kind: algorithms.CorrectionTIS}}

func TestAsyncTrainsWhileItSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, trainer := napping(t, job.Rollout{Mode: "sync"}, algorithms.Config{}, 30)
		sync := took(t, r)
		mixed, stale := audit(t, r, trainer.batches)
		require.Zero(t, mixed)
		require.Zero(t, stale)
		for _, k := range []int{1, 3} {
			r, trainer := napping(t, job.Rollout{Mode: "async", MaxStaleness: k}, corrected, 30)
			async := took(t, r)
			mixed, stale := audit(t, r, trainer.batches)
			require.Greater(t, mixed, 10, "trajectories that went over an update")
			require.Equal(t, k, stale, "the bound is used and held")
			faster := sync.Seconds() / async.Seconds()
			t.Logf("max_staleness %d: %v against %v, %.2f times faster; %d trajectories of several versions", k, async, sync, faster, mixed)
			require.Greater(t, faster, map[int]float64{1: 1.4, 3: 2}[k])
			steps, err := r.folder.DB.Reader.Steps()
			require.NoError(t, err)
			require.Len(t, steps, 30)
			require.Equal(t, 0.0, steps[29]["trajectories/running"], "the last step leaves nothing behind")
			cut, running := 0.0, 0.0
			for _, s := range steps {
				cut, running = cut+s["trajectories/cut"], running+s["trajectories/running"]
				require.LessOrEqual(t, s["update/staleness_max"], float64(k))
			}
			require.Positive(t, cut)
			require.GreaterOrEqual(t, running, cut)
		}
	})
}

func TestOverSamplingTrainsTheLongOnesToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, trainer := napping(t, job.Rollout{Mode: "sync", Oversample: 1.5, MaxStaleness: 2}, corrected, 40)
		took(t, r)
		audit(t, r, trainer.batches)
		trained := map[string]bool{}
		var turns, all [6]int
		for _, b := range trainer.batches {
			for _, g := range b.Groups {
				for _, tr := range g.Trajectories {
					trained[tr.ID] = true
					turns[len(tr.Turns)-1]++
				}
			}
		}
		last := 0
		require.NoError(t, r.folder.DB.Reader.Select(t.Context(), store.Selection{}, func(s store.Record) error {
			all[len(s.Trajectory.Turns)-1]++
			if !trained[s.Trajectory.ID] {
				last++
			}
			return nil
		}))
		require.LessOrEqual(t, last, 2*4, "only what the last step cut is not trained")
		for n := range all {
			require.InDelta(t, all[n], turns[n], 8, "as many trajectories of %d turns are trained as sampled", n+1)
		}
	})
}

func TestDroppedGroupsAreSampledAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, trainer := napping(t, job.Rollout{Mode: "async", MaxStaleness: 1, Stale: "drop"}, corrected, 30)
		took(t, r)
		audit(t, r, trainer.batches)
		steps, err := r.folder.DB.Reader.Steps()
		require.NoError(t, err)
		dropped := 0.0
		for _, s := range steps {
			dropped += s["groups/too_stale"]
		}
		require.Positive(t, dropped)
		require.Equal(t, 90, recorded(t, r).Dealt[0], "no further tasks are dealt for dropped groups")
	})
}

func TestAsyncDynamicSamplingReplacesFlatGroupsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := corrected
		a.DynamicSampling = true
		r, trainer := napping(t, job.Rollout{Mode: "async", MaxStaleness: 2}, a, 20)
		took(t, r)
		audit(t, r, trainer.batches)
		steps, err := r.folder.DB.Reader.Steps()
		require.NoError(t, err)
		flat := 0.0
		for _, s := range steps {
			flat += s["groups/dropped"]
			require.Equal(t, s["groups/dropped"], s["groups/refills"])
		}
		require.Positive(t, flat)
		require.GreaterOrEqual(t, recorded(t, r).Dealt[0], 60+int(flat))
		for _, b := range trainer.batches {
			for _, g := range b.Groups {
				require.True(t, algorithms.Informative(objective.RewardsOf([]trajectory.Group{*g})))
			}
		}
	})
}

func TestAnInterruptedAsyncRunLeavesNobodyBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := napping(t, job.Rollout{Mode: "async", MaxStaleness: 2}, corrected, 1000)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		require.ErrorIs(t, r.training().steps(ctx), context.DeadlineExceeded)
		r.objective.Stop() // synctest sees to it that no goroutine is left
		require.NoError(t, r.folder.DB.Reader.Select(t.Context(), store.Selection{}, func(s store.Record) error {
			require.NotEqual(t, trajectory.StopCancelled, s.Trajectory.StopReason, "a cut trajectory is not stored as ended")
			return nil
		}))
		require.NotEmpty(t, recorded(t, r).Outstanding)
	})
}

func TestAStoreThatFailsEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := napping(t, job.Rollout{Mode: "async", MaxStaleness: 2}, corrected, 1000)
		time.AfterFunc(50*time.Second, func() { _ = r.folder.DB.Close() }) // an error is what is wanted
		require.ErrorContains(t, r.training().steps(t.Context()), "the store is closed")
		r.objective.Stop()
	})
}

func TestAsyncStopsWhenTooManyFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := napping(t, job.Rollout{Mode: "async", MaxStaleness: 2}, corrected, 1000)
		r.session.Sampler.Engine = failing{r.session.Sampler.Engine}
		require.ErrorContains(t, r.training().steps(t.Context()), " trajectories failed, more than rollout.max_failed (0.9); the first: engine: ")
		r.objective.Stop()
	})
}

func TestAsyncKeepsBalanceAndShufflesWithinAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, trainer := nappingOn(t, job.Data{Balance: "kind"}, 4, job.Rollout{Mode: "async", MaxStaleness: 2}, corrected, 20)
		r.session.Job.Control.ShuffleRewards = true
		took(t, r)
		moved := 0
		for _, b := range trainer.batches {
			kinds := map[any]int{}
			trained, sampled := 0.0, 0.0
			for _, g := range b.Groups {
				kinds[g.Task.Fields["kind"]]++
				for _, tr := range g.Trajectories {
					stored, err := r.folder.DB.Reader.Trajectory(t.Context(), tr.ID)
					require.NoError(t, err)
					trained, sampled = trained+tr.Reward, sampled+stored.Reward
					if tr.Reward != stored.Reward {
						moved++
					}
				}
			}
			require.Equal(t, map[any]int{"a": 2, "b": 2}, kinds)
			require.Equal(t, sampled, trained)
		}
		require.Greater(t, moved, 20)
	})
}

// failing is an engine that is gone.
type failing struct{ engines.Engine }

func (failing) Generate(context.Context, engines.Request) (engines.Completion, error) {
	return engines.Completion{}, errors.New("gone")
}

func TestALateTrajectoryFailsAloneAndIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, trainer := napping(t, job.Rollout{Mode: "async", MaxStaleness: 1, Timeout: 12}, corrected, 10)
		took(t, r)
		late, fine := 0, 0
		for _, b := range trainer.batches {
			for _, g := range b.Groups {
				for _, tr := range g.Trajectories {
					require.LessOrEqual(t, tr.Seconds, 12.1)
					if tr.Err == "" {
						fine++
						continue
					}
					late++
					require.Equal(t, trajectory.OriginDeadline, tr.ErrOrigin)
					require.Equal(t, trajectory.StopError, tr.StopReason)
					require.Contains(t, tr.Err, "orchestrator: "+tr.ID+": not done after 12s (rollout.timeout), in turn ")
				}
			}
		}
		require.Positive(t, late)
		require.Equal(t, 120, late+fine)
	})
}

// goOn is a run that continues another's store from the state of a checkpoint.
func goOn(t *testing.T, from *run, at checkpoint.State, settings job.Rollout, a algorithms.Config, steps int) (*run, *slowTrainer) {
	r, trainer := napping(t, settings, a, steps)
	continueAs(t, from, r, at)
	return r, trainer
}

// continueAs makes r go on with what a run left, from the state of a checkpoint.
func continueAs(t *testing.T, from, r *run, at checkpoint.State) {
	db, err := store.Open(storePath(t, from))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	r.folder.DB, r.folder.Dir, r.state, r.session.Sampler.Record = db, from.folder.Dir, at, db.AddTurn
	require.NoError(t, r.folder.Metrics.Close())
	r.folder.Metrics, err = os.OpenFile(filepath.Join(r.folder.Dir, "metrics.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	require.NoError(t, r.session.Sampler.Engine.Update(t.Context(), engines.Weights{Version: at.Version})) // as begin does
	require.NoError(t, r.recover(t.Context()))
	r.objective.Prepare(r.found())
}

func storePath(t *testing.T, r *run) string {
	t.Helper()
	require.NotEmpty(t, r.folder.Dir)
	return filepath.Join(r.folder.Dir, store.File)
}

func idsOf(b trainer.Batch) (ids []string) {
	for _, g := range b.Groups {
		for _, tr := range g.Trajectories {
			ids = append(ids, tr.ID)
		}
	}
	return ids
}

// mode is a way in which the batches of a run come about.
type mode struct {
	settings job.Rollout
	dynamic  bool
}

var modes = map[string]mode{
	"async":         {job.Rollout{Mode: "async", MaxStaleness: 2}, false},
	"drop":          {job.Rollout{Mode: "async", MaxStaleness: 1, Stale: "drop"}, false},
	"dynamic":       {job.Rollout{Mode: "async", MaxStaleness: 2}, true},
	"sync":          {job.Rollout{Mode: "sync"}, false},
	"sync, dynamic": {job.Rollout{Mode: "sync"}, true},
	"over-sampling": {job.Rollout{Mode: "sync", Oversample: 2, MaxStaleness: 2}, false},

	"trees":                {job.Rollout{Mode: "sync", Tree: branching}, false},
	"trees, async":         {job.Rollout{Mode: "async", MaxStaleness: 2, Tree: branching}, false},
	"trees, drop":          {job.Rollout{Mode: "async", MaxStaleness: 1, Stale: "drop", Tree: expanding}, false},
	"trees, dynamic":       {job.Rollout{Mode: "async", MaxStaleness: 2, Tree: expanding}, true},
	"trees, within turns":  {job.Rollout{Mode: "sync", Tree: within}, false},
	"trees, within, async": {job.Rollout{Mode: "async", MaxStaleness: 2, Tree: within}, true},
	"trees, over-sampling": {job.Rollout{Mode: "sync", Oversample: 2, MaxStaleness: 2, Tree: branching}, false},
}

// The trees of these tests: two roots of four leaves, and one; and one whose leaves fork within turns.
var (
	branching = &job.Tree{Rule: "entropy", Roots: 2, Base: 0.7, Tokens: 20}
	expanding = &job.Tree{Rule: "step_random", Roots: 1, Nodes: 3, Rounds: 1}
	within    = &job.Tree{Rule: "token_nll", Roots: 1, Nodes: 2, Branches: 1, Rounds: 2}
)

func (m mode) algorithm() algorithms.Config {
	a := algorithms.Config{DynamicSampling: m.dynamic}
	if m.settings.MaxStaleness > 0 {
		a.Correction = corrected.Correction
	}
	return a
}

// A run that ends anywhere goes on from its last checkpoint: what was trained after it is trained again as it was, what was
// sampled is not sampled again, and in the end every task was trained once.
func TestAnAsyncRunGoesOnWhereItEnded(t *testing.T) {
	for name, m := range modes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { endsAnywhere(t, m) })
		})
	}
}

func endsAnywhere(t *testing.T, m mode) {
	const steps = 24
	r, trainer := napping(t, m.settings, m.algorithm(), steps)
	trained := map[int][]string{}                   // by step
	checkpoints := []checkpoint.State{{Version: 7}} // of every step
	asked := map[string]int{}                       // requests by id
	count := func(r *run) {
		for _, q := range r.session.Weights.Engine().(*scripted.Engine).Requests() {
			asked[q.ID]++
		}
	}
	for n := 0; ; n++ {
		require.Less(t, n, 40, "it gets on")
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(10+hashOf(n)%60)*time.Second)
		first, err := r.state.Step, error(nil)
		for err == nil && r.state.Step < steps {
			if err = r.training().step(ctx); err == nil && len(checkpoints) == r.state.Step {
				saved := r.state
				saved.Dealt = slices.Clone(saved.Dealt)
				checkpoints = append(checkpoints, saved)
			}
		}
		cancel()
		r.objective.Stop()
		count(r)
		for i, b := range trainer.batches {
			if was, again := trained[first+i]; again {
				require.Equal(t, was, idsOf(b), "step %d is trained as it was", first+i)
			}
			trained[first+i] = idsOf(b)
			for _, g := range b.Groups {
				require.LessOrEqual(t, int(b.Version-g.LowestVersion(nil)), m.settings.MaxStaleness)
			}
		}
		if err == nil {
			break
		}
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, r.folder.DB.Close())
		require.NoError(t, r.folder.Metrics.Close())
		at := checkpoints[max(0, r.state.Step-int(hashOf(n, "back")%4))]
		r, trainer = goOn(t, r, at, m.settings, m.algorithm(), steps)
	}
	require.Len(t, trained, steps)
	seen := map[string]bool{}
	for step, ids := range trained {
		require.Len(t, ids, 12)
		for _, id := range ids {
			require.False(t, seen[id], "%s is trained twice, in step %d too", id, step)
			seen[id] = true
		}
	}
	found := recorded(t, r)
	require.Len(t, found.Batches, steps)
	if !m.dynamic && m.settings.Mode == "async" {
		require.Equal(t, []int{3 * steps}, found.Dealt, "every task is trained")
		require.Empty(t, found.Outstanding)
	}
	twice := 0
	for _, n := range asked {
		if n > 1 {
			twice += n - 1
		}
	}
	require.LessOrEqual(t, twice, 40*36, "only what was being sampled at an end is asked for again")
}

// breaking is an engine that fails for good with some requests, by their seeds.
type breaking struct{ engines.Engine }

func (e breaking) Generate(ctx context.Context, q engines.Request) (engines.Completion, error) {
	if hashOf("breaks", q.Seed)%23 == 0 {
		return engines.Completion{}, errors.New("broken")
	}
	return e.Engine.Generate(ctx, q)
}

// A run in mode sync that is interrupted again and again trains what one that nobody interrupted trains, also where trajectories fail and flat groups
// are replaced: what the rounds before the newest gave stays.
func TestAnInterruptedRunWithFailuresTrainsTheSame(t *testing.T) {
	for name, m := range map[string]struct {
		tree *job.Tree
		a    algorithms.Config
	}{
		"dynamic": {a: algorithms.Config{DynamicSampling: true}},
		"trees":   {tree: branching, a: algorithms.Config{DynamicSampling: true}},
		"greedy":  {a: algorithms.Config{DynamicSampling: true, Advantage: algorithms.Choice{Name: "remax"}}},
	} {
		t.Run(name, func(t *testing.T) {
			begin := func(t *testing.T) (*run, *slowTrainer) {
				r, trainer := napping(t, job.Rollout{Mode: "sync", Tree: m.tree}, m.a, 8)
				r.session.Job.Rollout.MaxFailed = 1
				r.session.Sampler.Engine = breaking{r.session.Sampler.Engine}
				r.session.Weights.Use(r.session.Sampler.Engine)
				return r, trainer
			}
			var whole, parts []string
			synctest.Test(t, func(t *testing.T) { whole = trainedOf(t, begin, false) })
			synctest.Test(t, func(t *testing.T) { parts = trainedOf(t, begin, true) })
			require.Equal(t, whole, parts)
			require.Contains(t, strings.Join(whole, "\n"), " failed")
		})
	}
}

// trainedOf is what each step of a run trains, and how many groups were sampled for it. It is interrupted at random points, or not.
func trainedOf(t *testing.T, begin func(t *testing.T) (*run, *slowTrainer), interrupted bool) []string {
	r, trainer := begin(t)
	var trained []string
	for n := 0; ; n++ {
		require.Less(t, n, 60, "it gets on")
		ctx, cancel := context.WithCancel(t.Context())
		if interrupted {
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), time.Duration(10+hashOf("ends", n)%50)*time.Second)
		}
		err := r.training().steps(ctx)
		cancel()
		r.objective.Stop()
		for _, b := range trainer.batches {
			var text strings.Builder
			for _, g := range b.Groups {
				for _, tr := range g.Trajectories {
					fmt.Fprint(&text, tr.TaskID, " ", tr.ID, " ", tr.Return(), " ", len(tr.Turns))
					if tr.Err != "" {
						text.WriteString(" failed")
					}
					text.WriteString("\n")
				}
			}
			trained = append(trained, text.String())
		}
		if err == nil {
			break
		}
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, r.folder.DB.Close())
		require.NoError(t, r.folder.Metrics.Close())
		old := r
		r, trainer = begin(t)
		continueAs(t, old, r, old.state)
	}
	steps, err := r.folder.DB.Reader.Steps()
	require.NoError(t, err)
	for k, s := range steps {
		trained[k] += fmt.Sprint(s["groups/sampled"], " groups ", s["groups/refills"], " refills")
	}
	return trained
}
