package viewtest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// Branching makes a run folder of one step. The trajectories of its group 0 are a tree: 0, 0.0 that forks off it after a turn, 0.0.0 that forks off
// that one after two, 1, 1.0 that forks off it after two, and
// 1.1 that forks off it within its second one. That of group 1 is an agent's of its own, whose six calls make four samples: the
// conversation with calls 0, 1 and 3; an auxiliary one with call 2; call 4 after the conversation was rewritten; call 5, discarded, at the place of
// call 4.
func Branching(ctx context.Context, dir string, words *Words) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	db, err := store.Open(filepath.Join(dir, store.File))
	if err != nil {
		return err
	}
	defer db.Close()
	groups := []store.Admission{{Phase: store.Train, Group: 0, Task: task(0), Size: 6}, {Phase: store.Train, Group: 1, Task: task(1), Size: 1}}
	if err := db.Admit(ctx, groups...); err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(1, 1))
	root := leaf(r, words, nil, trajectory.Place{Phase: store.Train}, 0, 3)
	child := leaf(r, words, root, trajectory.Place{Phase: store.Train, Branch: "0"}, 1, 2)
	second := leaf(r, words, nil, trajectory.Place{Phase: store.Train, Index: 1}, 0, 3)
	all := []*trajectory.Trajectory{
		root, child, leaf(r, words, child, trajectory.Place{Phase: store.Train, Branch: "0.0"}, 2, 2), second,
		leaf(r, words, second, trajectory.Place{Phase: store.Train, Index: 1, Branch: "0"}, 2, 1),
		within(r, words, second), calls(r, words),
	}
	var updates []store.Update
	for i, t := range all {
		t.Reward = float64(i) / 4
		if err := db.AddTrajectory(ctx, store.Train, groups[t.Group].Task, t); err != nil {
			return err
		}
		trained := t.Trained(func(role trajectory.Role) bool { return role == trajectory.RoleAuxiliary })
		for k, s := range trained.Samples {
			only := *t
			only.Samples = []*trajectory.Sample{s}
			u := update(r, &only)
			u.Sample = k
			updates = append(updates, u)
		}
	}
	if err := db.AddBatch(ctx, store.Batch{Groups: []store.GroupRef{{Group: 0}, {Group: 1}}}); err != nil {
		return err
	}
	if err := db.AddStep(ctx, 0, metrics(r, 0, 0), updates); err != nil {
		return err
	}
	return db.Close()
}

// leaf makes a trajectory with so many turns of its own, behind the first turns of another one.
func leaf(r *rand.Rand, words *Words, parent *trajectory.Trajectory, at trajectory.Place, forked, turns int) *trajectory.Trajectory {
	t := &trajectory.Trajectory{ID: at.ID(), TaskID: task(0).ID, Index: at.Index, Branch: at.Branch, Forked: forked, StopReason: trajectory.StopAnswer, Started: time.Unix(1795000000, 0), Seconds: 1}
	s := &trajectory.Sample{}
	t.Samples = []*trajectory.Sample{s}
	s.AppendObservation(words.encode("user\nWhat is 12 times 3?\nassistant\n"))
	if parent != nil {
		end, from := parent.Turns[forked-1].ObservationEnd, parent.Samples[0]
		*s = trajectory.Sample{TokenIDs: slices.Clone(from.TokenIDs[:end]), ResponseMask: slices.Clone(from.ResponseMask[:end]), SamplingLogprobs: slices.Clone(from.SamplingLogprobs[:end]), PolicyVersion: slices.Clone(from.PolicyVersion[:end])}
		t.Turns = slices.Clone(parent.Turns[:forked])
		for k := range t.Turns {
			if t.Turns[k].Shared == "" {
				t.Turns[k].Shared = trajectory.SharedName(parent.ID, k)
			}
		}
	}
	for k := range turns {
		result := &trajectory.ToolResult{Call: trajectory.ToolCall{ID: "c", Name: "calculator", Arguments: json.RawMessage(`{"expression": "12 * 3"}`)}, Observation: "36", Duration: time.Millisecond}
		if k == turns-1 {
			result = nil
		}
		say(r, t, 0, words, fmt.Sprintf("Leaf %s, turn %d.", at.ID(), forked+k), result)
		t.Turns[len(t.Turns)-1].Entropy = 0.25
	}
	return t
}

// within makes a trajectory whose second and last turn begins with four tokens of another one's.
func within(r *rand.Rand, words *Words, parent *trajectory.Trajectory) *trajectory.Trajectory {
	t := leaf(r, words, parent, trajectory.Place{Phase: store.Train, Index: 1, Branch: "1"}, 1, 1)
	const tokens = 4
	was, turn, s := parent.Turns[1], &t.Turns[1], t.Samples[0]
	for i := range tokens {
		s.TokenIDs[turn.CompletionStart+i] = parent.Samples[0].TokenIDs[was.CompletionStart+i]
		s.SamplingLogprobs[turn.CompletionStart+i] = parent.Samples[0].SamplingLogprobs[was.CompletionStart+i]
	}
	t.ForkedAt, turn.Begun = tokens, []trajectory.Begun{{Shared: trajectory.SharedName(parent.ID, 1), End: tokens}}
	return t
}

// calls makes the trajectory of an agent of its own.
func calls(r *rand.Rand, words *Words) *trajectory.Trajectory {
	t := &trajectory.Trajectory{ID: store.ID(store.Train, 0, 1, 0), TaskID: task(1).ID, Group: 1, StopReason: trajectory.StopAnswer, Started: time.Unix(1795000000, 0), Seconds: 1}
	prompts := [][]int32{words.encode("system\nSolve it.\nuser\nWhat is 19 times 8?\nassistant\n"), words.encode("user\nGive this a title.\nassistant\n"), words.encode("system\nSolve it.\nuser\nSo far: 152.\nassistant\n"), nil}
	calls := []struct{ sample, after int }{{0, -1}, {0, 0}, {1, -1}, {0, 1}, {2, 3}, {3, 3}}
	for i, c := range calls {
		for len(t.Samples) <= c.sample {
			s := &trajectory.Sample{}
			s.AppendObservation(prompts[len(t.Samples)])
			if len(t.Samples) == 3 { // what was discarded is at the place of the call before it
				s.AppendObservation(t.Samples[0].TokenIDs)
				s.AppendObservation(words.encode("user\nand?\nassistant\n"))
			}
			t.Samples = append(t.Samples, s)
		}
		only := &trajectory.Trajectory{ID: t.ID, Samples: t.Samples[c.sample : c.sample+1]}
		say(r, only, 0, words, fmt.Sprintf("Call %d says 152.", i), nil)
		turn := only.Turns[0]
		turn.Sample, turn.Incoming = c.sample, &trajectory.Incoming{Dialect: "chat", Digest: fmt.Sprint(i), After: c.after, Call: i + 1}
		turn.Role = map[int]trajectory.Role{1: trajectory.RoleAuxiliary, 3: trajectory.RoleDiscarded}[c.sample]
		t.Samples[c.sample].AppendObservation(words.encode("\nuser\nGo on.\nassistant\n"))
		turn.ObservationEnd = t.Samples[c.sample].Len()
		t.Turns = append(t.Turns, turn)
	}
	return t
}
