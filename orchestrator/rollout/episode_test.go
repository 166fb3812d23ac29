package rollout_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/pool"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// corridor is a world of places in a row: an agent goes to the last one.
type corridor struct {
	at, end int
	seed    int64
	plan    *corridors
}

// corridors counts what happens to corridors, and says what goes wrong.
type corridors struct {
	keeps  bool // State and Restore
	counts bool // the first observation counts the resets
	resets atomic.Int64
	closes atomic.Int64
	steps  atomic.Int64
	score  *float64               // of an episode, the world's own; nil: it has none
	fail   func(step int64) error // of all steps so far; nil: none fails
}

func (c *corridor) Reset(_ context.Context, s environments.Start) (environments.Observation, error) {
	c.at, c.end, c.seed = 0, 3, s.Seed
	if n := c.plan.resets.Add(1); c.plan.counts {
		return environments.Text(fmt.Sprintf("place 0 of %d, time %d", c.end, n)), nil
	}
	return environments.Text(fmt.Sprintf("place 0 of %d", c.end)), nil
}

func (c *corridor) Step(_ context.Context, a environments.Action) (environments.Result, error) {
	n := c.plan.steps.Add(1)
	if c.plan.fail != nil {
		if err := c.plan.fail(n); err != nil {
			return environments.Result{}, err
		}
	}
	switch a.Text {
	case "on":
		c.at++
	case "out":
		return environments.Result{Observation: environments.Text("the door is shut"), Truncated: true}, nil
	default:
		return environments.Result{Observation: environments.Text("say on or out"), Reward: -0.25, Failure: trajectory.FailurePolicy, Anchor: fmt.Sprint("at ", c.at)}, nil
	}
	return environments.Result{
		Observation: environments.Text(fmt.Sprintf("place %d of %d", c.at, c.end)), Reward: 0.5, Terminated: c.at == c.end, Success: c.at == c.end,
		Anchor: fmt.Sprint("at ", c.at), Info: map[string]any{"at": c.at},
	}, nil
}

func (c *corridor) Close() error {
	c.plan.closes.Add(1)
	return nil
}

// keeping is a corridor that keeps states.
type keeping struct{ corridor }

func (c *keeping) State(context.Context) (json.RawMessage, error) { return json.Marshal(c.at) }
func (c *keeping) Restore(_ context.Context, state json.RawMessage) error {
	return json.Unmarshal(state, &c.at)
}

// scoring is a corridor with a score of its own.
type scoring struct{ corridor }

func (c *scoring) Score(context.Context) (float64, error) { return *c.plan.score, nil }

// world puts a pool of corridors into a sampler whose model writes one action a turn.
func world(t testing.TB, plan *corridors, deterministic bool, respond rollouttest.Script) *rollout.Sampler {
	t.Helper()
	source := environments.Simple(environments.Spec{Deterministic: deterministic}, func() environments.Environment {
		if plan.keeps {
			return &keeping{corridor{plan: plan}}
		}
		if plan.score != nil {
			return &scoring{corridor{plan: plan}}
		}
		return &corridor{plan: plan}
	})
	m, err := environments.Open(source, nil, environments.Options{Kind: "corridor", Pool: pool.Options{Size: 2}, StepTimeout: 5 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	stage := environments.NewStage(m)
	r := rollouttest.New(t, respond)
	r.Tools = tools.NewRegistry(tools.Options{Timeout: 10 * time.Second})
	require.NoError(t, r.Tools.Register(stage.Tools()...))
	r.Format, err = agents.NewFormat("action", r.Tools.Specs(), agents.FormatOptions{})
	require.NoError(t, err)
	r.Sampling.Stop = r.Format.Stops()
	r.World, r.MaxTurns = &rollout.World{Stage: stage}, 6
	own, err := rewards.Prebuilt().Builder(t.Context(), nil).Make("environment", nil)
	require.NoError(t, err)
	r.Reward, err = rewards.NewSum(time.Second, rewards.Weighted{Reward: own, Weight: 2})
	require.NoError(t, err)
	return r
}

// walks says the words in turn, by the number of assistants' turns in the prompt.
func walks(words ...string) rollouttest.Script {
	return func(q engines.Request) (engines.Completion, error) {
		turn := strings.Count(rollouttest.Letters{}.Decode(q.Prompt, false), "<|im_start|>assistant\n") - 1
		return rollouttest.Say("<action>" + words[min(turn, len(words)-1)] + "</action>")
	}
}

func walkPlace(index int) rollout.Place {
	return rollout.Place{Step: 1, Index: index, Task: trajectory.Task{ID: "walk", Prompt: []trajectory.Message{trajectory.Text("user", "Go.")}}, Phase: "train"}
}

func TestEpisodeOfAWorld(t *testing.T) {
	plan := &corridors{}
	r := world(t, plan, true, walks("on", "jump", "on", "on"))
	tr := r.Sample(t.Context(), walkPlace(0))
	require.Empty(t, tr.Err)
	require.Equal(t, trajectory.StopTerminated, tr.StopReason)
	require.InDelta(t, 2*(3*0.5-0.25), tr.Reward, 1e-12)
	require.Equal(t, tr.Reward, tr.Return())
	text := rollouttest.Letters{}.Decode(tr.Samples[0].TokenIDs, false)
	require.Contains(t, text, "<|im_start|>user\nGo.\n\nplace 0 of 3<|im_end|>\n", "the first observation stands in the prompt")
	require.Contains(t, text, "<|im_start|>user\nplace 1 of 3<|im_end|>")
	require.Contains(t, text, "<|im_start|>user\nsay on or out<|im_end|>", "the world's own words, as they are")
	require.Len(t, tr.Turns, 4)
	refused := tr.Turns[1].Results[0]
	require.True(t, refused.Failed)
	require.Equal(t, trajectory.FailurePolicy, refused.Failure)
	require.Equal(t, -0.25, refused.Outcome.Reward)
	require.JSONEq(t, `{"at":1}`, string(tr.Turns[0].Results[0].Info))
	require.True(t, tr.LastOutcome().Success)
	for i, want := range []string{"place 0 of 3", "at 1", "at 1", "at 2"} {
		require.Equal(t, want, tr.Turns[i].Anchor)
		require.Nil(t, tr.Turns[i].Reward, "paid with the trajectory")
	}

	r = world(t, plan, true, walks("on", "out"))
	r.World.Credit = 2
	tr = r.Sample(t.Context(), walkPlace(0))
	require.Equal(t, trajectory.StopTruncated, tr.StopReason)
	require.Equal(t, 1.0, *tr.Turns[0].Reward)
	require.Equal(t, 0.0, *tr.Turns[1].Reward)
	require.Equal(t, 0.0, tr.Reward, "its turns are paid")
	require.Equal(t, 1.0, tr.Return())
	require.Equal(t, map[string]float64{"environment": 0.5}, tr.RewardParts, "the whole that it paid, before the weight")
}

// A world's own score counts under turn credit too: what its turns were paid and the trajectory's reward come to the score, times its weight.
func TestOwnScoreOfAWorldThatPaysByTurn(t *testing.T) {
	for _, credit := range []float64{0, 2} {
		score := 0.25
		r := world(t, &corridors{score: &score}, true, walks("on", "on", "on"))
		r.World.Credit = credit
		tr := r.Sample(t.Context(), walkPlace(0))
		require.Empty(t, tr.Err)
		require.InDelta(t, 2*0.25, tr.Return(), 1e-12)
		require.Equal(t, map[string]float64{"environment": 0.25}, tr.RewardParts)
		if credit > 0 {
			require.Equal(t, 1.0, *tr.Turns[1].Reward)
			require.InDelta(t, 2*(0.25-3*0.5), tr.Reward, 1e-12, "what is left when the turns are paid")
		}
	}
}

// rollout.cut: zero takes back what the turns before the cut were paid.
func TestACutTrajectoryThatIsWorthNothingWasPaidNothing(t *testing.T) {
	turns := 0
	r := world(t, &corridors{}, true, func(q engines.Request) (engines.Completion, error) {
		if turns++; turns == 3 {
			return rollouttest.SayCut("hm")
		}
		return walks("on")(q)
	})
	r.World.Credit, r.Cut = 2, rollout.CutZero
	tr := r.Sample(t.Context(), walkPlace(0))
	require.Empty(t, tr.Err)
	require.True(t, tr.Cut())
	require.Len(t, tr.Turns, 3)
	require.Zero(t, tr.Return())
	for _, turn := range tr.Turns {
		require.Nil(t, turn.Reward)
	}
	require.True(t, tr.Unpaid)
	require.Equal(t, 0.5, tr.Turns[0].Results[0].Outcome.Reward, "what the environment gave stays on record")
}

// Several actions of a turn come one after the other; those behind the end of the episode do nothing.
func TestActionsOfATurnComeInTheirOrder(t *testing.T) {
	plan := &corridors{}
	r := world(t, plan, true, func(engines.Request) (engines.Completion, error) {
		return rollouttest.Say(strings.Repeat(`<tool_call>{"name": "act", "arguments": {"action": "on"}}</tool_call>`, 4))
	})
	var err error
	r.Format, err = agents.NewFormat("hermes", r.Tools.Specs(), agents.FormatOptions{})
	require.NoError(t, err)
	r.Sampling.Stop, r.Sampling.MaxTokens = nil, 400
	tr := r.Sample(t.Context(), walkPlace(0))
	require.Empty(t, tr.Err)
	require.Equal(t, trajectory.StopTerminated, tr.StopReason)
	var seen []string
	for _, result := range tr.Turns[0].Results[:3] {
		seen = append(seen, result.Observation)
	}
	require.Equal(t, []string{"place 1 of 3", "place 2 of 3", "place 3 of 3"}, seen)
	require.True(t, tr.Turns[0].Results[3].Failed)
	require.EqualValues(t, 3, plan.steps.Load())
	require.Equal(t, 3.0, tr.Reward)
	require.True(t, tr.LastOutcome().Success, "an action behind the end changes nothing")
}

func TestEnvironmentFailureIsNoReward(t *testing.T) {
	plan := &corridors{fail: func(step int64) error { return errors.New("the lights are out") }}
	r := world(t, plan, true, walks("on"))
	r.World.Retries = 2
	var forgot []string
	r.World.Forget = func(id string, why error) { forgot = append(forgot, id+": "+why.Error()) }
	tr := r.Sample(t.Context(), walkPlace(0))
	require.Equal(t, trajectory.StopError, tr.StopReason)
	require.Equal(t, trajectory.OriginEnvironment, tr.ErrOrigin)
	require.Equal(t, trajectory.FailureInfrastructure, tr.Failure)
	require.Contains(t, tr.Err, "corridor")
	require.Contains(t, tr.Err, "the lights are out")
	require.Zero(t, tr.Reward)
	require.Empty(t, tr.RewardParts)
	require.Len(t, forgot, 2, "it began anew twice")
	require.EqualValues(t, 3, plan.resets.Load())
	require.Eventually(t, func() bool { return plan.closes.Load() == 3 }, 10*time.Second, time.Millisecond, "each that failed is closed")

	plan = &corridors{fail: func(step int64) error {
		if step == 2 {
			return errors.New("the lights are out")
		}
		return nil
	}}
	r = world(t, plan, true, walks("on"))
	r.World.Retries = 1
	tr = r.Sample(t.Context(), walkPlace(0))
	require.Empty(t, tr.Err)
	require.Len(t, tr.Turns, 3, "nothing of the first attempt is left")
	require.Equal(t, 3.0, tr.Reward)
}

// More trajectories than environments: each waits for one, all end, and all environments are free afterwards.
func TestTrajectoriesWaitForEnvironments(t *testing.T) {
	plan := &corridors{}
	var at, most atomic.Int64
	r := world(t, plan, true, func(q engines.Request) (engines.Completion, error) {
		n := at.Add(1)
		defer at.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(time.Millisecond)
		return walks("on")(q)
	})
	tasks := make([]trajectory.Task, 4)
	for i := range tasks {
		tasks[i] = trajectory.Task{ID: fmt.Sprint("walk ", i)}
	}
	groups, err := r.Groups(t.Context(), "train", 0, tasks, 8, nil)
	require.NoError(t, err)
	for _, g := range groups {
		for _, tr := range g.Trajectories {
			require.Empty(t, tr.Err)
			require.Equal(t, 3.0, tr.Reward)
		}
	}
	require.LessOrEqual(t, most.Load(), int64(2), "a rollout begins when its environment is there")
	require.EqualValues(t, 32, plan.resets.Load())
	require.LessOrEqual(t, plan.closes.Load(), int64(2))

	ctx, cancel := context.WithCancel(t.Context())
	r = world(t, plan, true, func(q engines.Request) (engines.Completion, error) {
		cancel()
		return walks("on")(q)
	})
	groups, err = r.Groups(ctx, "train", 0, tasks, 8, nil)
	require.NoError(t, err)
	for _, tr := range groups[0].Trajectories {
		require.Equal(t, trajectory.StopCancelled, tr.StopReason)
	}
}

// A trajectory of which some turns were recorded goes on where it was: from its state, or by the same actions; else it begins anew, and says so.
func TestWorldGoesOnAfterRecordedTurns(t *testing.T) {
	for _, c := range []struct {
		name          string
		keeps         bool
		deterministic bool
		spoil         bool // what was recorded is not what comes again
		steps         int64
		anew          bool
		how           string
	}{
		{name: "state", keeps: true, steps: 1, how: "its environment was taken to the state that was recorded after action 2"},
		{name: "actions", deterministic: true, steps: 3, how: "its environment did the recorded actions again (2), and answered the same"},
		{name: "other observation", deterministic: true, spoil: true, steps: 1 + 3, anew: true},
		{name: "nothing", steps: 3, anew: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mu sync.Mutex
			var recorded *trajectory.Trajectory
			plan := &corridors{keeps: c.keeps}
			r := world(t, plan, c.deterministic, walks("on"))
			r.Record = func(_ context.Context, tr *trajectory.Trajectory) error {
				mu.Lock()
				defer mu.Unlock()
				if len(tr.Turns) == 2 {
					recorded = cloneOf(tr)
				}
				return nil
			}
			whole := r.Sample(t.Context(), walkPlace(0))
			require.Empty(t, whole.Err)
			require.Len(t, recorded.Turns, 2)
			if c.spoil {
				recorded.Turns[0].Results[0].Observation = "place 7 of 3"
			}
			again := &corridors{keeps: c.keeps}
			r = world(t, again, c.deterministic, walks("on"))
			r.Recovered = func(string) (*trajectory.Trajectory, bool) { return recorded, false }
			var why []string
			r.World.Forget = func(id string, err error) { why = append(why, err.Error()) }
			how := ""
			r.World.WentOn = func(id, text string) { how += text }
			tr := r.Sample(t.Context(), walkPlace(0))
			require.Empty(t, tr.Err)
			require.Equal(t, c.how, how)
			require.Equal(t, rollouttest.Timeless(whole), rollouttest.Timeless(tr))
			require.Equal(t, c.steps, again.steps.Load())
			require.Equal(t, c.anew, len(why) > 0, "%q", why)
			if c.spoil {
				require.Contains(t, why[0], `turn 0: its environment answers "place 1 of 3", and "place 7 of 3" was recorded`)
			}
		})
	}
}

func cloneOf(t *trajectory.Trajectory) *trajectory.Trajectory {
	out := *t
	out.Turns = slices.Clone(t.Turns)
	for i := range out.Turns {
		out.Turns[i].Results = slices.Clone(out.Turns[i].Results)
	}
	out.Samples = nil
	for _, s := range t.Samples {
		c := *s
		c.TokenIDs, c.ResponseMask = slices.Clone(s.TokenIDs), slices.Clone(s.ResponseMask)
		c.SamplingLogprobs, c.PolicyVersion = slices.Clone(s.SamplingLogprobs), slices.Clone(s.PolicyVersion)
		out.Samples = append(out.Samples, &c)
	}
	return &out
}

// An environment that begins otherwise than it was recorded does not end the run: the trajectory begins anew, and what was stored of it is dropped.
func TestOtherFirstObservationBeginsAnew(t *testing.T) {
	recorded := recordedWalk(t, &corridors{keeps: true, counts: true})
	again := &corridors{keeps: true, counts: true}
	again.resets.Store(7)
	r := world(t, again, true, walks("on"))
	r.Recovered = func(string) (*trajectory.Trajectory, bool) { return recorded, false }
	var why []string
	r.World.Forget = func(id string, err error) { why = append(why, err.Error()) }
	tr := r.Sample(t.Context(), walkPlace(0))
	require.Empty(t, tr.Err)
	require.Len(t, why, 1)
	require.Contains(t, why[0], "its prompt is not the one that was recorded")
	require.Equal(t, trajectory.StopTerminated, tr.StopReason)

	broken := &corridors{fail: func(int64) error { return errors.New("the lights are out") }} // before the recorded turns are caught up with
	r = world(t, broken, true, walks("on"))
	r.Recovered = func(string) (*trajectory.Trajectory, bool) { return recordedWalk(t, &corridors{}), false }
	tr = r.Sample(t.Context(), walkPlace(0))
	require.Equal(t, trajectory.OriginEnvironment, tr.ErrOrigin)
	require.Less(t, len(tr.Turns), 2, "what is stored of it has more turns, and a store takes it nevertheless")
}

// recordedWalk is a trajectory of two turns that had not ended.
func recordedWalk(t *testing.T, plan *corridors) *trajectory.Trajectory {
	var recorded *trajectory.Trajectory
	r := world(t, plan, true, walks("on"))
	r.Record = func(_ context.Context, tr *trajectory.Trajectory) error {
		if len(tr.Turns) == 2 {
			recorded = cloneOf(tr)
		}
		return nil
	}
	require.Empty(t, r.Sample(t.Context(), walkPlace(0)).Err)
	require.NotNil(t, recorded)
	return recorded
}

// A replay needs an environment for the first observation only: more trajectories than environments that wait for each other all go on.
func TestReplayKeepsNoEnvironment(t *testing.T) {
	recorded := recordedWalk(t, &corridors{})
	plan := &corridors{}
	var all sync.WaitGroup
	all.Add(3)
	r := world(t, plan, true, func(q engines.Request) (engines.Completion, error) {
		if strings.HasSuffix(q.ID, "-0") {
			all.Done()
			all.Wait()
		}
		return walks("on")(q)
	})
	r.Replay = true
	r.Recovered = func(string) (*trajectory.Trajectory, bool) { return recorded, false }
	var done sync.WaitGroup
	for i := range 3 {
		done.Go(func() { r.Sample(t.Context(), walkPlace(i)) })
	}
	done.Wait()
	require.Zero(t, plan.steps.Load(), "what came from outside is taken as it was recorded")
}

// A replay in which a trajectory is not what was recorded says so: it would be no other a second time.
func TestReplayOfAnotherTrajectoryEnds(t *testing.T) {
	recorded := recordedWalk(t, &corridors{})
	recorded.Turns[0].ObservationEnd++
	plan := &corridors{}
	r := world(t, plan, true, walks("on"))
	r.Replay = true
	r.Recovered = func(string) (*trajectory.Trajectory, bool) { return recorded, false }
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	tr := r.Sample(ctx, walkPlace(0))
	require.NoError(t, ctx.Err())
	require.Contains(t, tr.Err, "turn 0: its observation is not the one that was recorded")
	require.EqualValues(t, 1, plan.resets.Load())
}

// All fields of a task reach the environment, with the names of those that data and job read, and the seed is that of the task in each split.
func TestStartOfAnEpisode(t *testing.T) {
	seen := map[string]environments.Start{}
	var mu sync.Mutex
	var at string
	source := environments.Simple(environments.Spec{}, func() environments.Environment {
		return &watching{func(s environments.Start) {
			mu.Lock()
			defer mu.Unlock()
			seen[at] = s
		}}
	})
	m, err := environments.Open(source, nil, environments.Options{Kind: "watching"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	r := world(t, &corridors{}, true, walks("out"))
	r.World.Stage, r.World.Data, r.World.Job = environments.NewStage(m), []string{"id"}, []string{"kind"}
	play := func(name string, p rollout.Place) environments.Start {
		at = name
		r.Sample(t.Context(), p)
		return seen[name]
	}
	p := walkPlace(0)
	p.Task.Fields = map[string]any{"id": "x", "kind": "k", "level": json.Number("3"), "answer": "7"}
	train := play("train", p)
	require.Equal(t, p.Task.Fields, train.Task.Fields)
	require.Equal(t, [][]string{{"id"}, {"kind"}}, [][]string{train.Data, train.Job})
	p.Index = 5
	require.Equal(t, train.Seed, play("sibling", p).Seed)
	p.Phase = "eval-before"
	held := play("held", p)
	require.NotEqual(t, train.Seed, held.Seed, "a held-out task of the same id is another one")
	p.Phase = "eval-after"
	require.Equal(t, held.Seed, play("later", p).Seed)
	for value, want := range map[any]int64{json.Number("12"): 12, 12: 12, 12.0: 12} {
		p.Task.Fields["seed"] = value
		require.Equal(t, want, play("seed", p).Seed)
	}
	for _, value := range []any{json.Number("-1"), json.Number("1e3"), 1.5, "12x", int64(1) << 40} {
		p.Task.Fields["seed"] = value
		tr := r.Sample(t.Context(), p)
		require.Contains(t, tr.Err, "it must be a whole number from 0 to 2147483647", "%v", value)
	}
}

// watching is a world that ends at once.
type watching struct{ reset func(environments.Start) }

func (w *watching) Reset(_ context.Context, s environments.Start) (environments.Observation, error) {
	w.reset(s)
	return environments.Text("go"), nil
}

func (w *watching) Step(context.Context, environments.Action) (environments.Result, error) {
	return environments.Result{Observation: environments.Text("gone"), Terminated: true}, nil
}

func (w *watching) Close() error { return nil }
