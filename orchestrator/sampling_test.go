package orchestrator

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/objective"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/schedule"
	"github.com/agentfly/agentfly/orchestrator/session"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// samplingRun is a run that can sample steps of groups groups x size trajectories; there is no trainer.
func samplingRun(t *testing.T, a algorithms.Config, groups, size int, tasks *data.Tasks, d job.Data, respond func(r engines.Request) (engines.Completion, error)) *run {
	t.Helper()
	resolved, err := a.Resolve(algorithms.NewRegistry())
	require.NoError(t, err)
	j := &job.Job{Seed: 1, Data: d, Rollout: job.Rollout{Groups: groups, GroupSize: size, MaxRefills: 3, MaxFailed: 0.9, MaxTokens: 1000}}
	deal, err := data.NewDealer(tasks, d, groups, 1)
	require.NoError(t, err)
	dir := t.TempDir()
	db, err := store.Open(filepath.Join(dir, store.File))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	r := &run{folder: &runfolder.Folder{Dir: dir, DB: db}, session: &session.Session{Job: j, Sampler: *rollouttest.New(t, respond)}, algorithm: resolved, dealer: deal}
	evaluates(r, nil)
	return r
}

func rlOf(r *run) *objective.RL { return r.objective.(*objective.RL) }

// evaluates makes the run evaluate tasks.
func evaluates(r *run, held *data.Tasks) {
	r.objective = objective.NewRL(r.session.Job, r.algorithm, &r.session.Sampler, r.dealer, held)
	r.objective.Prepare(r.found())
}

// stepOf is what a step samples, which is recorded.
func stepOf(t *testing.T, r *run, step int) (*schedule.Batch, error) {
	t.Helper()
	b, err := r.objective.Batch(t.Context(), objective.At{Step: step, Version: r.state.Version, Dealt: r.state.Dealt})
	if err != nil {
		return nil, err
	}
	return b.Rollouts, nil
}

// questions are n tasks q0 … whose answer is 1, of alternating kinds a and b.
func questions(n int) *data.Tasks {
	out := &data.Tasks{Path: "q"}
	for i := range n {
		q := rollouttest.Task("q"+strconv.Itoa(i), "q"+strconv.Itoa(i)+"?", "1")
		q.Fields["kind"] = []string{"a", "b"}[i%2]
		out.Tasks = append(out.Tasks, q)
	}
	return out
}

func taskIDs(groups []trajectory.Group) (ids []string) {
	for _, g := range groups {
		ids = append(ids, g.Task.ID)
	}
	return ids
}

// only answers right with the first trajectory of the tasks for which yes is true, and wrong otherwise: the others' groups
// have no variance.
func only(yes func(question string) bool) func(r engines.Request) (engines.Completion, error) {
	return func(r engines.Request) (engines.Completion, error) {
		_, after, _ := strings.Cut(rollouttest.Decode(r.Prompt), "user\n")
		question, _, _ := strings.Cut(after, "?")
		if yes(question) && rollouttest.Index(r) == 0 {
			return rollouttest.Say("<answer>1</answer>")
		}
		return rollouttest.Say("<answer>2</answer>")
	}
}

func TestDynamicSamplingRefillsInTheOrderOfTheData(t *testing.T) {
	odd := func(q string) bool { return (q[len(q)-1]-'0')%2 == 1 }
	r := samplingRun(t, algorithms.Config{DynamicSampling: true}, 3, 4, questions(10), job.Data{}, only(odd))
	var dealt []string
	for at := range 40 {
		dealt = append(dealt, r.dealer.Task(0, at).ID)
	}
	at := 0
	for step := range 4 {
		b, err := stepOf(t, r, step)
		require.NoError(t, err)
		require.Equal(t, dealt[at:at+len(b.All)], taskIDs(b.All), "tasks come in the order of the data, without a gap")
		at += len(b.All)
		require.Equal(t, []int{at}, b.Dealt)
		require.Len(t, b.Trained, 3)
		var want []string
		for _, id := range taskIDs(b.All) {
			if odd(id) {
				want = append(want, id)
			}
		}
		require.Equal(t, want, taskIDs(b.Trained))
		for g, group := range b.All {
			require.Equal(t, "train-"+strconv.Itoa(step)+"-"+strconv.Itoa(g)+"-0", group.Trajectories[0].ID)
		}
		r.state.Dealt = b.Dealt
		r.state.Step++
	}
	require.Greater(t, at, 12, "something was dropped")
	stored := 0
	require.NoError(t, r.folder.DB.Reader.Select(t.Context(), store.Selection{}, func(store.Record) error { stored++; return nil }))
	require.Equal(t, 4*at, stored, "what was dropped is stored too, once")

	again := samplingRun(t, algorithms.Config{DynamicSampling: true}, 3, 4, questions(10), job.Data{}, only(odd))
	again.state = checkpoint.State{Step: 2, Dealt: []int{17}}
	b, err := stepOf(t, again, 2)
	require.NoError(t, err)
	require.Equal(t, dealt[17:17+len(b.All)], taskIDs(b.All), "a resumed run goes on where the data was")
}

func TestDynamicSamplingStopsAtItsBound(t *testing.T) {
	r := samplingRun(t, algorithms.Config{DynamicSampling: true}, 2, 3, questions(10), job.Data{}, only(func(q string) bool { return q == "q3" }))
	b, err := stepOf(t, r, 0)
	require.NoError(t, err)
	require.Equal(t, 3, b.Refills)
	require.LessOrEqual(t, len(b.Trained), 1)
	require.LessOrEqual(t, len(b.All), 8)
	r = samplingRun(t, algorithms.Config{DynamicSampling: true}, 2, 3, questions(10), job.Data{}, only(func(string) bool { return false }))
	b, err = stepOf(t, r, 0)
	require.NoError(t, err)
	require.Empty(t, b.Trained)
	require.Len(t, b.All, 8, "two groups and three refills of two")
	require.Equal(t, []int{8}, b.Dealt)
}

func TestDynamicSamplingKeepsTheBalance(t *testing.T) {
	d := job.Data{Balance: "kind"} // all tasks of kind b are flat but q1
	r := samplingRun(t, algorithms.Config{DynamicSampling: true}, 4, 2, questions(20), d, only(func(q string) bool { return q == "q1" || (q[len(q)-1]-'0')%2 == 0 }))
	r.session.Job.Rollout.MaxRefills = 100
	r.dealer.Strata[1] = r.dealer.Strata[1][:2] // q1, q3
	b, err := stepOf(t, r, 0)
	require.NoError(t, err)
	kinds := map[any]int{}
	for _, g := range b.Trained {
		kinds[g.Task.Fields["kind"]]++
	}
	require.Equal(t, map[any]int{"a": 2, "b": 2}, kinds)
	require.Equal(t, 2, b.Dealt[0], "no more of a kind that was complete")
	require.Greater(t, b.Dealt[1], 2)
}

func TestAGroupWithOneSurvivorIsDropped(t *testing.T) {
	r := samplingRun(t, algorithms.Config{DynamicSampling: true}, 2, 3, questions(4), job.Data{}, func(r engines.Request) (engines.Completion, error) {
		if rollouttest.Index(r) > 0 {
			return engines.Completion{}, errors.New("gone")
		}
		return rollouttest.Say("<answer>1</answer>")
	})
	b, err := stepOf(t, r, 0)
	require.NoError(t, err)
	require.Empty(t, b.Trained)
	require.Len(t, b.All, 8)
	r.session.Job.Rollout.MaxFailed = 0.5
	_, err = stepOf(t, r, 1)
	require.ErrorContains(t, err, "step 2: 4 of 6 trajectories failed, more than rollout.max_failed (0.5)")
}

func TestWithoutDynamicSamplingNothingIsDropped(t *testing.T) {
	r := samplingRun(t, algorithms.Config{}, 3, 2, questions(10), job.Data{}, only(func(string) bool { return false }))
	r.state.Step = 5 // a checkpoint of an earlier version knows no position
	b, err := stepOf(t, r, 5)
	require.NoError(t, err)
	require.Equal(t, b.All, b.Trained)
	require.Len(t, b.Trained, 3)
	require.Equal(t, r.dealer.Tasks(5, 3)[0].ID, b.All[0].Task.ID)
	require.Equal(t, []int{18}, b.Dealt)
}

func TestGreedyRolloutsAreBaselines(t *testing.T) {
	var greedy, sampled atomic.Int64
	r := samplingRun(t, algorithms.Config{Advantage: algorithms.Choice{Name: "remax"}}, 3, 2, questions(6), job.Data{}, func(r engines.Request) (engines.Completion, error) {
		if r.Sampling.Temperature == 0 {
			greedy.Add(1)
			if strings.Contains(rollouttest.Decode(r.Prompt), "q1?") {
				return engines.Completion{}, errors.New("gone")
			}
			return rollouttest.Say("<answer>1</answer>")
		}
		sampled.Add(1)
		return rollouttest.Say("<answer>2</answer>")
	})
	for step := range 2 { // one epoch
		b, err := stepOf(t, r, step)
		require.NoError(t, err)
		require.Len(t, b.Trained, 3)
		for g, group := range b.All {
			require.Equal(t, "greedy-"+strconv.Itoa(step)+"-"+strconv.Itoa(g)+"-0", group.Greedy.ID)
			require.Equal(t, group.Task.ID, group.Greedy.TaskID)
			require.Equal(t, group.Task.ID == "q1", group.Greedy.Err != "")
			if group.Greedy.Err == "" {
				require.Equal(t, 1.0, group.Greedy.Reward)
			}
			require.Len(t, group.Trajectories, 2)
			require.Zero(t, group.Trajectories[0].Reward)
		}
		require.Len(t, objective.RewardsOf(b.All), 6, "baselines are not among the rewards")
		r.state.Step, r.state.Dealt = step+1, b.Dealt
	}
	require.EqualValues(t, 6, greedy.Load())
	require.EqualValues(t, 12, sampled.Load())
	phases := map[string]int{}
	count := func(s store.Record) error { phases[s.Phase]++; return nil }
	require.NoError(t, r.folder.DB.Reader.Select(t.Context(), store.Selection{}, count))
	require.Equal(t, map[string]int{"train": 12, "greedy": 6}, phases)
	require.NoError(t, r.folder.DB.Truncate(t.Context(), 1))
	clear(phases)
	require.NoError(t, r.folder.DB.Reader.Select(t.Context(), store.Selection{}, count))
	require.Equal(t, map[string]int{"train": 6, "greedy": 3}, phases, "a resumed run samples both again")
}

// A run that goes on without rollout.max_staleness, where it had some, does not train on what older policies sampled as if its own had: it asks for a
// correction.
func TestTokensOfOlderPoliciesNeedACorrection(t *testing.T) {
	for name, c := range map[string]struct {
		correction algorithms.Correction
		version    int32 // that the step begins with; 7 sampled its batch
		refused    bool
	}{
		"the present policy's": {algorithms.Correction{}, 7, false},
		"an older policy's":    {algorithms.Correction{}, 9, true},
		"corrected":            {algorithms.Correction{Kind: "tis_token"}, 9, false},
		"bypassed":             {algorithms.Correction{Kind: "bypass"}, 9, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := samplingRun(t, algorithms.Config{Correction: c.correction}, 1, 2, questions(1), job.Data{}, func(engines.Request) (engines.Completion, error) {
				return rollouttest.Say("<answer>1</answer>")
			})
			r.state.Version = 7
			b, err := stepOf(t, r, 3)
			require.NoError(t, err)
			recorded := b.Record() // as a step that begins with another version takes it
			recorded.Version, r.state.Version = c.version, c.version
			r.objective.Prepare(objective.Found{DB: r.folder.DB, Batches: map[int]store.Batch{3: recorded}})
			_, err = stepOf(t, r, 3)
			if c.refused {
				require.ErrorContains(t, err, "algorithm.correction: the batch of step 4 was sampled, or begun, before the run went on with this job, and has tokens of 2 policy versions before the step")
				require.ErrorAs(t, err, new(*job.Error), "what its user can mend")
				return
			}
			require.NoError(t, err)
		})
	}
}

func TestOverlongShapingIsAPartOfTheReward(t *testing.T) {
	r := samplingRun(t, algorithms.Config{Overlong: algorithms.Overlong{Buffer: 100, Factor: 0.5}}, 1, 3, questions(1), job.Data{}, func(r engines.Request) (engines.Completion, error) {
		switch rollouttest.Index(r) {
		case 0:
			return rollouttest.Say("<answer>1</answer>")
		case 1: // 50 tokens into the buffer
			return rollouttest.Say(strings.Repeat("x", 150-len(r.Prompt)-18) + "<answer>1</answer>")
		}
		return rollouttest.Say(strings.Repeat("x", 190-len(r.Prompt)-27) + "<calculator>1</calculator>") // its observation does not fit
	})
	r.session.Sampler.MaxTotal, r.session.Sampler.Sampling.MaxTokens = 200, 200
	b, err := stepOf(t, r, 0)
	require.NoError(t, err)
	got := b.All[0].Trajectories
	require.Less(t, got[0].Samples[0].Len(), 100)
	require.Equal(t, 1.0, got[0].Reward)
	require.Equal(t, map[string]float64{"final_answer": 1, "overlong": 0}, got[0].RewardParts)
	require.Equal(t, 150, got[1].Samples[0].Len())
	require.Equal(t, 0.75, got[1].Reward)
	require.Equal(t, map[string]float64{"final_answer": 1, "overlong": -0.25}, got[1].RewardParts)
	require.Equal(t, trajectory.StopMaxTokens, got[2].StopReason)
	require.Equal(t, -0.5, got[2].Reward)
	stored, err := r.folder.DB.Reader.Trajectory(t.Context(), "train-0-0-1")
	require.NoError(t, err)
	require.Equal(t, -0.25, stored.RewardParts["overlong"], "the store shows it")
}
