package rollout_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/environments"
	pyenv "github.com/agentfly/agentfly/environments/python"
	"github.com/agentfly/agentfly/internal/pool"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// lend gives a sampler with a world one more tool, which acts in the world, and a format that can call it. A call of it has that long.
func lend(t *testing.T, r *rollout.Sampler, limit time.Duration, run func(ctx context.Context, c tools.Call) (tools.Observation, error)) {
	t.Helper()
	require.NoError(t, r.Tools.RegisterAs(r.World.Stage.Lend(walker{run}), tools.Ref{Limits: tools.Limits{Timeout: limit}}))
	var err error
	r.Format, err = agents.NewFormat("hermes", r.Tools.Specs(), agents.FormatOptions{})
	require.NoError(t, err)
	r.Sampling.Stop = r.Format.Stops()
	r.MaxTotal, r.Sampling.MaxTokens = 4000, 1000
}

// walker is a tool of a program that acts in an environment.
type walker struct {
	run func(ctx context.Context, c tools.Call) (tools.Observation, error)
}

func (walker) Spec() tools.Spec { return tools.Spec{Name: "walk", Environment: "corridor"} }

func (w walker) Call(ctx context.Context, c tools.Call) (tools.Observation, error) {
	return w.run(ctx, c)
}

const callsWalk = `<tool_call>{"name": "walk", "arguments": {}}</tool_call>`

func stepOn(ctx context.Context, c tools.Call) (tools.Observation, error) {
	var step struct{ Observation string }
	raw, err := c.Environment(ctx, "step", json.RawMessage(`{"text":"on"}`))
	if err == nil {
		err = json.Unmarshal(raw, &step)
	}
	return tools.Observation{Text: "walked to " + step.Observation}, err
}

// What a tool does in the environment of its trajectory is paid, named and ended as an action is, and comes in its order with the actions of a turn.
func TestAToolActsInTheEnvironment(t *testing.T) {
	plan := &corridors{keeps: true}
	r := world(t, plan, true, func(q engines.Request) (engines.Completion, error) {
		return rollouttest.Say(callsWalk + `<tool_call>{"name": "act", "arguments": {"action": "on"}}</tool_call>` + callsWalk)
	})
	lend(t, r, time.Minute, func(ctx context.Context, c tools.Call) (tools.Observation, error) {
		time.Sleep(20 * time.Millisecond) // an action beside it would come first
		return stepOn(ctx, c)
	})
	tr := r.Sample(t.Context(), walkPlace(0))
	require.Empty(t, tr.Err)
	require.Equal(t, trajectory.StopTerminated, tr.StopReason)
	require.InDelta(t, 2*3*0.5, tr.Reward, 1e-12)
	results := tr.Turns[0].Results
	require.Equal(t, "walked to place 1 of 3", results[0].Observation)
	require.Equal(t, "place 2 of 3", results[1].Observation)
	require.Equal(t, "walked to place 3 of 3", results[2].Observation)
	require.Equal(t, "at 1", results[0].Outcome.Anchor)
	require.JSONEq(t, `{"state":1,"anchor":"at 1"}`, string(results[0].Outcome.State))
	require.True(t, results[2].Outcome.Success)
}

// A tool that fails after it acted leaves the outcome of what it did; one that only looks leaves none.
func TestAToolThatFailsAfterItActed(t *testing.T) {
	r := world(t, &corridors{}, true, walksTool())
	first := true
	lend(t, r, time.Minute, func(ctx context.Context, c tools.Call) (tools.Observation, error) {
		if first {
			first = false
			_, err := c.Environment(ctx, "actions", nil)
			return tools.Observation{}, err
		}
		if _, err := stepOn(ctx, c); err != nil {
			return tools.Observation{}, err
		}
		return tools.Observation{}, errors.New("it stumbled")
	})
	tr := r.Sample(t.Context(), walkPlace(0))
	require.Empty(t, tr.Err)
	require.Equal(t, trajectory.StopTerminated, tr.StopReason)
	require.Equal(t, "Error: the environment cannot list the actions that are possible", tr.Turns[0].Results[0].Observation)
	require.Nil(t, tr.Turns[0].Results[0].Outcome)
	require.Equal(t, "Error: it stumbled", tr.Turns[1].Results[0].Observation)
	require.Equal(t, 0.5, tr.Turns[1].Results[0].Outcome.Reward)
	require.InDelta(t, 3, tr.Reward, 1e-12)
}

// What a tool did in the environment is paid, and its end is seen, where what the tool returned is refused.
func TestAToolWhoseResultIsRefusedAfterItActed(t *testing.T) {
	for want, refused := range map[string]tools.Observation{
		"Error: walk returned an image, and this model takes text only; ask it for text": {Image: "data:image/png;base64,AAAA"},
		"Error: walk returned info that cannot be recorded: it has 1048586 bytes":        {Info: map[string]any{"map": strings.Repeat("x", 1<<20)}},
	} {
		r := world(t, &corridors{}, true, walksTool())
		lend(t, r, time.Minute, func(ctx context.Context, c tools.Call) (tools.Observation, error) {
			_, err := stepOn(ctx, c)
			return refused, err
		})
		tr := r.Sample(t.Context(), walkPlace(0))
		require.Empty(t, tr.Err)
		require.Equal(t, trajectory.StopTerminated, tr.StopReason)
		require.Len(t, tr.Turns, 3)
		for _, turn := range tr.Turns {
			require.True(t, turn.Results[0].Failed)
			require.Contains(t, turn.Results[0].Observation, want)
			require.Equal(t, 0.5, turn.Results[0].Outcome.Reward)
		}
		require.InDelta(t, 3, tr.Reward, 1e-12)
	}
}

// Where nobody knows what a tool did in the environment, the trajectory fails by its environment and no reward is made up: it did not end in time, it
// panicked, or the environment failed and the tool swallowed that. What it asks after its call is refused.
func TestAToolThatLosesTheEnvironment(t *testing.T) {
	for name, c := range map[string]struct {
		limit time.Duration // of a call
		run   func(ctx context.Context, c tools.Call) (tools.Observation, error)
		fail  func(int64) error
		want  string
	}{
		"late": {3 * time.Second, func(ctx context.Context, c tools.Call) (tools.Observation, error) {
			_, _ = stepOn(ctx, c)
			<-ctx.Done()
			return tools.Observation{Text: "late"}, nil
		}, nil, "acted in the environment"},
		"stuck": {3 * time.Second, func(ctx context.Context, c tools.Call) (tools.Observation, error) {
			_, _ = stepOn(ctx, c)
			<-ctx.Done()
			time.Sleep(200 * time.Millisecond)
			_, err := stepOn(context.WithoutCancel(ctx), c)
			return tools.Observation{}, err
		}, nil, "acted in the environment"},
		"panics": {time.Minute, func(ctx context.Context, c tools.Call) (tools.Observation, error) {
			_, _ = stepOn(ctx, c)
			panic("oh")
		}, nil, "the tool walk ended in the middle of what it did in the environment"},
		"swallows": {time.Minute, func(ctx context.Context, c tools.Call) (tools.Observation, error) {
			_, _ = stepOn(ctx, c)
			return tools.Observation{Text: "all is well"}, nil
		}, func(int64) error { return errors.New("the server is gone") }, "step: the server is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := &corridors{fail: c.fail}
			r := world(t, plan, true, walksTool())
			lend(t, r, c.limit, c.run)
			tr := r.Sample(t.Context(), walkPlace(0))
			require.Equal(t, trajectory.OriginEnvironment, tr.ErrOrigin)
			require.Contains(t, tr.Err, c.want)
			require.Zero(t, tr.Reward)
		})
	}
	var kept tools.Call
	r := world(t, &corridors{}, true, walksTool())
	lend(t, r, time.Minute, func(ctx context.Context, c tools.Call) (tools.Observation, error) { kept = c; return stepOn(ctx, c) })
	require.Empty(t, r.Sample(t.Context(), walkPlace(0)).Err)
	_, err := kept.Environment(t.Context(), "step", json.RawMessage(`{"text":"on"}`))
	require.ErrorContains(t, err, "the call that it was lent to is over")
}

func walksTool() rollouttest.Script {
	return func(engines.Request) (engines.Completion, error) { return rollouttest.Say(callsWalk) }
}

// The files of docs/tools-python.md, "In an environment": a class, a tool that acts in it and a reward that asks it.
func TestTheDocsToolAndRewardInAnEnvironment(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not on PATH: apt-get install python3")
	}
	page, err := os.ReadFile("../../docs/tools-python.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n## In an environment\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	dir := t.TempDir()
	for _, block := range strings.Split(section, "```python\n")[1:] {
		text, _, _ := strings.Cut(block, "```")
		first, _, _ := strings.Cut(text, "\n")
		require.NoError(t, os.WriteFile(filepath.Join(dir, strings.TrimPrefix(first, "# ")), []byte(text), 0o600))
	}
	shared := resources.New(resources.Options{Resolve: func(p string) string { return filepath.Join(dir, p) }})
	t.Cleanup(func() { require.NoError(t, shared.Close()) })
	source, err := pyenv.Kind().New(t.Context(), shared, map[string]any{"class": "world.py:Corridor"})
	require.NoError(t, err)
	m, err := environments.Open(source, shared.Pools(), environments.Options{Kind: "python", Pool: pool.Options{Size: 2}})
	require.NoError(t, err)
	made, err := tools.PythonFile(t.Context(), shared, map[string]any{"python": "walk.py", "workers": 1})
	require.NoError(t, err)
	stage := environments.NewStage(m)
	r := rollouttest.New(t, func(engines.Request) (engines.Completion, error) {
		return rollouttest.Say(`<tool_call>{"name": "walk", "arguments": {"places": 2}}</tool_call>`)
	})
	r.Tools = tools.NewRegistry(tools.Options{Timeout: 10 * time.Second})
	require.NoError(t, r.Tools.Register(stage.Tools()...))
	for _, tool := range made {
		require.Equal(t, "python", tool.Spec().Environment)
		require.NoError(t, r.Tools.Register(stage.Lend(tool)))
	}
	r.World, r.MaxTurns, r.MaxTotal, r.Sampling.MaxTokens = &rollout.World{Stage: stage}, 6, 4000, 1000
	r.Format, err = agents.NewFormat("hermes", r.Tools.Specs(), agents.FormatOptions{})
	require.NoError(t, err)
	r.Sampling.Stop = r.Format.Stops()
	own, err := rewards.Prebuilt().Builder(t.Context(), shared).Make("quick", map[string]any{"python": "walk.py", "workers": 1})
	require.NoError(t, err)
	r.Reward, err = rewards.NewSum(time.Minute, rewards.Weighted{Reward: own, Weight: 1})
	require.NoError(t, err)
	tr := r.Sample(t.Context(), walkPlace(0))
	require.Empty(t, tr.Err)
	require.Equal(t, trajectory.StopTerminated, tr.StopReason)
	require.Len(t, tr.Turns, 2)
	require.Equal(t, "place 1, place 2", tr.Turns[0].Results[0].Observation)
	require.Equal(t, 0.5, tr.Turns[0].Results[0].Outcome.Reward)
	require.Equal(t, "place 3", tr.Turns[1].Results[0].Observation)
	require.InDelta(t, 0.75, tr.Reward, 1e-12, "3 steps: what the class counted")
}
