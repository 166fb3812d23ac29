package rollout_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/orchestrator/tree"
	"github.com/agentfly/agentfly/trajectory"
)

// Environments fork: one that keeps its state from the state at the fork, which costs no step; another by doing again what was done. Each leaf then
// goes its own way.
func TestEnvironmentsForkByStateAndByReplay(t *testing.T) {
	for _, keeps := range []bool{true, false} {
		t.Run(fmt.Sprint("keeps ", keeps), func(t *testing.T) {
			plan := &corridors{keeps: keeps}
			r := world(t, plan, true, func(q engines.Request) (engines.Completion, error) {
				turn := strings.Count(rollouttest.Letters{}.Decode(q.Prompt, false), "<|im_start|>assistant\n")
				word := []string{"on", "jump"}[hashed(q.Seed, 1)%2]
				if turn < 2 {
					word = "on"
				}
				return rollouttest.Say("<action>" + word + "</action>")
			})
			r.Trees = &rollout.Trees{Roots: 2, Rule: tree.StepRandom{Trees: 2, Nodes: 3, Rounds: 2}}
			place := walkPlace(0)
			group, err := r.Grow(t.Context(), place, place.Task, 10, nil, nil)
			require.NoError(t, err)
			checkTrees(t, group, 10)
			own, again := 0, 0
			for _, tr := range group.Trajectories {
				require.Empty(t, tr.Err)
				at := 0
				for k, turn := range tr.Turns { // the world is where the actions of this leaf brought it
					if strings.Contains(turn.Completion, ">on<") {
						at++
						require.Equal(t, fmt.Sprintf("place %d of 3", at), turn.Results[0].Observation)
					} else {
						require.Equal(t, fmt.Sprint("at ", at), turn.Results[0].Outcome.Anchor)
					}
					if k >= tr.Forked {
						own++
					} else {
						again++
					}
				}
				require.Equal(t, at == 3, tr.StopReason == trajectory.StopTerminated)
				require.InDelta(t, 2*(0.5*float64(at)-0.25*float64(len(tr.Turns)-at)), tr.Reward, 1e-9, "paid for all its turns, once")
			}
			require.Positive(t, again)
			if keeps {
				again = 0
			}
			require.Equal(t, own+again, int(plan.steps.Load()), "steps of the world")
		})
	}
}

// A replay that answers differently is no fork: the leaf fails, as data, and says what was recorded; the others go on.
func TestAForkIsRefusedWhereTheReplayDiffers(t *testing.T) {
	plan := &corridors{}
	r := world(t, plan, true, walks("on"))
	r.World.Retries = 2
	r.Trees = &rollout.Trees{Roots: 1, Rule: tree.StepRandom{Trees: 1, Nodes: 1, Rounds: 1}}
	changed := map[string]int{}
	r.World.Forget = func(id string, _ error) { changed[id]++ }
	place := walkPlace(0)
	group, err := r.Grow(t.Context(), place, place.Task, 2, nil, func(tr *trajectory.Trajectory) error {
		if tr.Branch == "" { // what the root's record says is not what the world does
			tr.Turns[0].Results[0].Outcome.Reward = 7
		}
		return nil
	})
	require.NoError(t, err)
	require.Len(t, group.Trajectories, 2)
	require.Empty(t, group.Trajectories[0].Err)
	bad := group.Trajectories[1]
	require.Equal(t, trajectory.OriginEnvironment, bad.ErrOrigin)
	require.Equal(t, trajectory.StopError, bad.StopReason)
	require.Contains(t, bad.Err, `orchestrator: train-1-0-0.0 turn 0: its environment answers "place 1 of 3", and "place 1 of 3" was recorded`)
	require.Empty(t, changed, "nothing of it was recorded")
	require.Equal(t, int64(2), plan.resets.Load(), "it is not tried again: it would answer so again")

	// Where the world neither keeps its state nor does the same again, the leaf says that.
	plan = &corridors{}
	r = world(t, plan, false, walks("on"))
	r.Trees = &rollout.Trees{Roots: 1, Rule: tree.StepRandom{Trees: 1, Nodes: 1, Rounds: 1}}
	group, err = r.Grow(t.Context(), place, place.Task, 2, nil, nil)
	require.NoError(t, err)
	require.Contains(t, group.Trajectories[1].Err, "its environment keeps no state, and does not do the same again")
}

// A world that breaks while a leaf forks is replaced, and the leaf begins at its fork again, not at the prompt.
func TestAForkIsTriedAgainWhereTheWorldBreaks(t *testing.T) {
	plan := &corridors{}
	r := world(t, plan, true, walks("on"))
	r.World.Retries = 1
	r.Trees = &rollout.Trees{Roots: 1, Rule: tree.StepRandom{Trees: 1, Nodes: 1, Rounds: 1}}
	plan.fail = func(step int64) error {
		if step == 4 { // the first of the fork
			return fmt.Errorf("it broke")
		}
		return nil
	}
	place := walkPlace(0)
	group, err := r.Grow(t.Context(), place, place.Task, 2, nil, nil)
	require.NoError(t, err)
	checkTrees(t, group, 2)
	for _, tr := range group.Trajectories {
		require.Empty(t, tr.Err)
	}
	require.Positive(t, group.Trajectories[1].Forked)
	require.Equal(t, int64(3), plan.resets.Load())
}
