package orchestrator

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/recovery"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// goingOn is a scripted engine that goes on within a completion, as the local one does: what its script says is the same
// each time.
type goingOn struct{ engines.Engine }

func (g goingOn) Generate(ctx context.Context, q engines.Request) (engines.Completion, error) {
	sampled, most := q.Sampled, q.Sampling.MaxTokens
	q.Prompt, q.Sampled = q.Prompt[:len(q.Prompt)-sampled], 0
	q.Sampling.MaxTokens += sampled
	c, err := g.Engine.Generate(ctx, q)
	if err != nil {
		return c, err
	}
	end := min(len(c.TokenIDs), sampled+most)
	if end < len(c.TokenIDs) {
		c.FinishReason = trajectory.FinishLength
	}
	c.TokenIDs, c.Logprobs, c.Versions = c.TokenIDs[sampled:end], c.Logprobs[sampled:end], c.Versions[sampled:end]
	return c, nil
}

// Whatever decides which groups are trained when, and however often the run was cut off, its log is enough to do it again:
// the same groups in the same order, with the same tokens and versions.
func TestEveryModeIsReplayedFromItsLog(t *testing.T) {
	for name, m := range modes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { replaysAll(t, m) })
		})
	}
}

func replaysAll(t *testing.T, m mode) {
	const steps = 12
	settings, a := m.settings, m.algorithm()
	r, _ := napping(t, settings, a, steps)
	resumed := 0
	for ; ; resumed++ {
		ctx, cancel := context.WithTimeout(t.Context(), 70*time.Second)
		err := r.training().steps(ctx)
		cancel()
		r.objective.Stop()
		if err == nil {
			break
		}
		require.ErrorIs(t, err, context.DeadlineExceeded)
		at := r.state
		at.Dealt = slices.Clone(at.Dealt)
		require.NoError(t, r.folder.DB.Close())
		require.NoError(t, r.folder.Metrics.Close())
		r, _ = goOn(t, r, at, settings, a, steps)
	}
	require.Positive(t, resumed)

	from, err := store.OpenReader(storePath(t, r))
	require.NoError(t, err)
	defer from.Close()
	again, trainer := napping(t, settings, a, steps)
	again.session.Weights.Use(goingOn{again.session.Weights.Engine()})
	var out bytes.Buffer
	require.NoError(t, replaySteps(t.Context(), again, from, r.folder.Dir, 0, &out), out.String())
	log, err := from.Recover(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, trainer.batches, steps)
	trajectories, forks, within := 0, 0, 0
	for step, b := range log.Batches {
		require.Equal(t, b.Version, trainer.batches[step].Version)
		groups, err := from.Groups(t.Context(), b.Groups, "")
		require.NoError(t, err)
		require.Len(t, trainer.batches[step].Groups, len(groups))
		for i, g := range groups {
			for k, want := range g.Trajectories {
				got := trainer.batches[step].Groups[i].Trajectories[k]
				require.Equal(t, want.ID, got.ID)
				require.Equal(t, want.Samples, got.Samples, "ids, masks, logprobs and versions of %s", want.ID)
				require.Equal(t, want.Reward, got.Reward)
				require.Equal(t, want.Branch, got.Branch)
				for n := range want.Turns {
					require.Equal(t, want.Turns[n].Shared, got.Turns[n].Shared)
					require.Equal(t, want.Turns[n].Begun, got.Turns[n].Begun)
				}
				trajectories++
				if want.Forked+want.ForkedAt > 0 {
					forks++
				}
				if want.ForkedAt > 0 {
					within++
				}
			}
		}
	}
	require.Contains(t, out.String(), fmt.Sprintf("%d batches, %d trajectories, ", steps, trajectories))
	require.Equal(t, settings.Tree != nil, forks > 0)
	require.Equal(t, settings.Tree != nil && settings.Tree.Rule == "token_nll", within > 0)
	was, err := from.Steps()
	require.NoError(t, err)
	is, err := again.folder.DB.Reader.Steps()
	require.NoError(t, err)
	total := map[string]float64{}
	for step := range steps {
		require.Positive(t, is[step]["seconds/elapsed"], "step %d", step)
		require.Less(t, is[step]["seconds/elapsed"], 1e6, "the time of the replay")
		for key, v := range is[step] {
			total[key] += v
		}
		for _, key := range []string{"trajectories/cut", "trajectories/running", "groups/too_stale", "length/dropped_mean", "length/cut_mean", "groups/refills", "reward/mean", "update/staleness_max"} {
			if key != "reward/mean" || !a.DynamicSampling { // which counts the groups that are not trained too
				require.Equal(t, was[step][key], is[step][key], "%s of step %d", key, step)
			}
		}
	}
	if settings.MaxStaleness > 0 {
		require.Positive(t, total["trajectories/cut"])
	}
	require.Equal(t, settings.Stale == "drop", total["groups/too_stale"] > 0)
	require.Equal(t, settings.Stale == "drop", total["length/dropped_mean"] > 0)
	require.Equal(t, a.DynamicSampling, total["groups/refills"] > 0)
}

// replayHarmed replays a run of the mode sync after harm, and returns what stopped the replay.
func replayHarmed(t *testing.T, r *run, harm func(again *run)) error {
	t.Helper()
	from, err := store.OpenReader(storePath(t, r))
	require.NoError(t, err)
	m := modes["sync"]
	again, _ := napping(t, m.settings, m.algorithm(), 2)
	again.session.Weights.Use(goingOn{again.session.Weights.Engine()})
	harm(again)
	stopped := replaySteps(t.Context(), again, from, r.folder.Dir, 0, &bytes.Buffer{})
	require.NoError(t, from.Close())
	return stopped
}

func otherPrefix(again *run) {
	again.session.Sampler.Prefix = []trajectory.Message{trajectory.Text("system", "Other.")}
}

// A replay that differs says that an older program recorded the run, where one did.
func TestAReplayNamesTheOlderProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := modes["sync"]
		r, _ := napping(t, m.settings, m.algorithm(), 2)
		require.NoError(t, r.training().steps(t.Context()))
		r.objective.Stop()
		require.NoError(t, r.folder.DB.SetFact(t.Context(), recovery.RulesFact, ""))
		_, _, err := recovery.TakeRules(t.Context(), r.folder.DB, false) // as a new run does
		require.NoError(t, err)
		now, err := r.folder.DB.Reader.Fact(recovery.RulesFact)
		require.NoError(t, err)
		for _, c := range []struct {
			fact  string
			older bool
		}{{"", true}, {"1 " + now, true}, {"4", true}, {now, false}} {
			require.NoError(t, r.folder.DB.SetFact(t.Context(), recovery.RulesFact, c.fact))
			err = replayHarmed(t, r, otherPrefix)
			require.ErrorContains(t, err, "its prompt has other tokens than the recorded one")
			require.Equal(t, c.older, strings.Contains(err.Error(), "recorded by an older program"), err)
		}
	})
}

// A replay that differs names the settings and the rules that changed on the run's way; one that could not go on for another reason does not.
func TestAReplayBlamesWhatChangedForDifferencesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := modes["sync"]
		r, _ := napping(t, m.settings, m.algorithm(), 2)
		require.NoError(t, r.training().steps(t.Context()))
		r.objective.Stop()
		require.NoError(t, r.folder.DB.SetFact(t.Context(), recovery.RulesFact, "4"))
		for name, seed := range map[string]string{"job.1.yaml": "1", "job.yaml": "2"} {
			require.NoError(t, os.WriteFile(filepath.Join(r.folder.Dir, name), []byte("seed: "+seed+"\n"), 0o600))
		}
		for says, c := range map[string]struct {
			harm    func(again *run)
			differs bool
		}{
			"its prompt has other tokens than the recorded one": {otherPrefix, true},
			"it begins with policy version 6, recorded is 7":    {func(again *run) { again.state.Version = 6 }, true}, // before what is recorded: nothing is sampled
			"the store is closed":                               {func(again *run) { require.NoError(t, again.folder.DB.Close()) }, false},
		} {
			err := replayHarmed(t, r, c.harm)
			require.ErrorContains(t, err, says)
			require.Equal(t, c.differs, strings.Contains(err.Error(), "the run went on with other settings, and its replay takes the newest for every step: seed: 1 → 2"), err)
			require.Equal(t, c.differs, strings.Contains(err.Error(), "recorded by an older program"), err)
		}
	})
}

// A run folder's job.yaml has every setting, so its lines are not those of the user's file: what is wrong with it names the copy.
func TestReplayNamesTheRunsCopyOfTheJob(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	j, err := job.Load("../examples/tiny.yaml", "output="+dir)
	require.NoError(t, err)
	f := runfolder.New(dir, false)
	require.NoError(t, f.Open(j, func(string) {}))
	require.NoError(t, f.Close())
	copied := filepath.Join(dir, "job.yaml")
	text, err := os.ReadFile(copied)
	require.NoError(t, err)
	replay := func(text []byte) string {
		t.Helper()
		require.NoError(t, os.WriteFile(copied, text, 0o600))
		err := Replay(t.Context(), dir, "", Registries{Algorithms: algorithms.NewRegistry()}, io.Discard)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "tiny.yaml")
		return err.Error()
	}
	n := bytes.Count(text, []byte("\n"))
	require.Contains(t, replay(append(bytes.Clone(text), "modle: {}\n"...)), fmt.Sprintf(`%s:%d:1: unknown key "modle"`, copied, n+1))
}

// Before its first checkpoint a run's tokens are shown with the job's own tokenizer, whose path is relative to the user's job file.
func TestARunWithoutACheckpointShowsText(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	j, err := job.Load("../examples/tiny.yaml", "output="+dir)
	require.NoError(t, err)
	f := runfolder.New(dir, false)
	require.NoError(t, f.Open(j, func(string) {}))
	require.NoError(t, f.Close())
	decode, found := Decoder(dir, nil)
	require.True(t, found)
	require.Equal(t, "2", decode([]int32{1}))
}

// A program of before took keys of engine that the kind does not read, and its copies of jobs have them. What they did, nothing, they do still.
func TestARunWithKeysThatItsEngineDoesNotReadIsRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	j, err := job.Load("../examples/tiny.yaml", "output="+dir)
	require.NoError(t, err)
	f := runfolder.New(dir, false)
	require.NoError(t, f.Open(j, func(string) {}))
	require.NoError(t, f.Close())
	copied := filepath.Join(dir, runfolder.JobFile)
	text, err := os.ReadFile(copied)
	require.NoError(t, err)
	older := strings.NewReplacer("weights: auto", "weights: disk", "tolerance: 0", "tolerance: 0.5").Replace(string(text))
	require.NoError(t, os.WriteFile(copied, []byte(older), 0o600))

	ran, err := OfRun(dir, nil)
	require.NoError(t, err)
	require.Equal(t, j.Engine, ran.Engine)
	from, err := store.OpenReader(filepath.Join(dir, store.File))
	require.NoError(t, err)
	defer from.Close()
	ran, err = recordedJob(dir, from, nil)
	require.NoError(t, err)
	require.Equal(t, j.Engine, ran.Engine)
	decode, found := Decoder(dir, nil)
	require.True(t, found)
	require.Equal(t, "2", decode([]int32{1}))
}

// What a device samples depends on what runs beside it, so a run that sampled there is not replayed; one whose engine computes on the CPUs is.
func TestARunThatSamplesOnADeviceIsNotReplayed(t *testing.T) {
	rules := "5"
	repeat := func(sets ...string) error {
		j, err := job.Load("../examples/tiny.yaml", sets...)
		require.NoError(t, err)
		require.NoError(t, job.Replayable(j))
		return repeatable(j, rules)
	}
	require.ErrorContains(t, repeat("device=cuda", "deterministic=false"), "engine.device: auto: on cuda what a request samples depends on the requests beside it")
	require.NoError(t, repeat("device=cuda"), "deterministic: true keeps the engine on the CPUs")
	require.NoError(t, repeat("device=cuda", "deterministic=false", "engine.device=cpu"))
	require.NoError(t, repeat("device=cpu", "deterministic=false"))
	rules = "3 5"
	require.Error(t, repeat("device=cuda", "deterministic=false"))
	rules = "3 4"
	require.NoError(t, repeat("device=cuda", "deterministic=false"), "the programs of before sampled on the CPUs")
	rules = "three"
	require.ErrorContains(t, repeat("device=cuda"), "not a list of numbers")
}
