package data

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

func TestBrokenConversations(t *testing.T) {
	for name, c := range map[string]struct{ line, want string }{
		"no messages":     {`{"prompt": "a"}`, `:1: the column "messages" is missing; the line has prompt; name the right one with data: {columns: {messages: NAME}}`},
		"a text":          {`{"messages": "a"}`, `:1: the column "messages" must be a list of messages; another one is mapped with data.columns: {messages: NAME}`},
		"arguments":       {`{"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]}`, `:1: the column "messages" cannot be read: message 0: tool call 0: arguments are not JSON`},
		"a role":          {`{"messages": [{"role": "gpt", "content": "a"}]}`, `:1: the column "messages" has a message (0) of role "gpt"; allowed: system, developer, user, assistant, tool`},
		"nothing learned": {`{"messages": [{"role": "user", "content": "a"}]}`, ":1: no message of the assistant is to be learned"},
		"all excluded":    {`{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "a", "weight": 0}]}`, ":1: no message of the assistant is to be learned"},
		"half a weight":   {`{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "a", "weight": 0.5}]}`, ":1: message 1: the weight must be 0 or 1"},
		"a user's weight": {`{"messages": [{"role": "user", "content": "a", "weight": 1}, {"role": "assistant", "content": "a"}]}`, `:1: message 0: only what the assistant said can be learned, its role is "user"`},
		"tools":           {`{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}], "tools": 1}`, `:1: "tools" must be a list of OpenAI function schemas`},
		"empty":           {"", ": the file holds no conversation"},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, "c.jsonl", c.line)
			_, _, err := ReadConversations(path, nil)
			require.EqualError(t, err, path+c.want)
		})
	}
	path := write(t, "c.jsonl", `{"chat": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "x", "weight": 0}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "c", "weight": 1}], "tools": [{"type": "function", "function": {"name": "b", "description": "a"}}]}`)
	got, hash, err := ReadConversations(path, map[string]string{"messages": "chat"})
	require.NoError(t, err)
	require.Len(t, hash, 64)
	require.Equal(t, []bool{false, false, false, true}, got[0].Learned)
	require.Len(t, got[0].Tools, 1)
	require.Equal(t, `{"type": "function", "function": {"name": "b", "description": "a"}}`, string(got[0].Tools[0]), "keys keep their order, in which chat templates write them")
	m := &SFT{Conversations: got, Eval: got}
	require.ErrorContains(t, m.refuseOverlap(), "is the same conversation as")
}

func FuzzReadConversations(f *testing.F) {
	f.Add(`{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 1}], "tools": []}`)
	f.Add(`{"messages": [{"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]}`)
	f.Add(`{"messages": [null, 1]}`)
	f.Fuzz(func(t *testing.T, text string) {
		path := write(t, "f.jsonl", text)
		got, _, err := ReadConversations(path, nil)
		if err != nil {
			require.Contains(t, err.Error(), path)
			return
		}
		for _, c := range got {
			require.Len(t, c.Learned, len(c.Messages))
		}
	})
}

// stored puts trajectories of one token each into a run's store: task, reward, token, and whether they failed.
func stored(t *testing.T, all []*trajectory.Trajectory) string {
	t.Helper()
	dir := t.TempDir()
	db, err := store.Open(filepath.Join(dir, store.File))
	require.NoError(t, err)
	for _, tr := range all {
		require.NoError(t, db.AddTrajectory(t.Context(), strings.Split(tr.ID, "-")[0], trajectory.Task{ID: tr.TaskID}, tr))
	}
	require.NoError(t, db.Close())
	return dir
}

func TestChoosingFromARun(t *testing.T) {
	made := func(id, task string, step, index int, reward float64, token int32, err string) *trajectory.Trajectory {
		s := &trajectory.Sample{}
		s.AppendObservation([]int32{1})
		require.NoError(t, s.AppendResponse([]int32{token, 9}, []float32{-1, -2}, []int32{0, 0}))
		group := int(id[len(id)-3] - '0')
		return &trajectory.Trajectory{ID: id, TaskID: task, Step: step, Group: group, Index: index, Reward: reward, Err: err, Samples: []*trajectory.Sample{s}}
	}
	empty := made("train-0-0-9", "a", 0, 9, 1, 40, "")
	empty.Samples = empty.Samples[:0]
	cut := made("train-1-0-3", "a", 1, 3, 1, 28, "")
	cut.StopReason, cut.Turns = trajectory.StopMaxTokens, []trajectory.Turn{{CompletionStart: 1, CompletionEnd: 3, ObservationEnd: 3, FinishReason: trajectory.FinishLength}}
	dir := stored(t, []*trajectory.Trajectory{
		made("train-0-0-0", "a", 0, 0, 1, 20, ""),
		made("train-0-0-1", "a", 0, 1, 0.5, 21, ""),
		made("train-1-0-0", "a", 1, 0, 1, 20, ""), // the same tokens as the first
		made("train-1-0-1", "a", 1, 1, 0.9, 22, ""),
		made("train-1-0-2", "a", 1, 2, 1, 23, ""),
		made("train-0-1-0", "b", 0, 0, 0.2, 24, ""),
		made("train-0-1-1", "b", 0, 1, 1, 25, "gone"), // failed
		made("eval-0-0-0", "c", 0, 0, 1, 26, ""),      // held out
		made("greedy-0-0-0", "a", 0, 0, 1, 27, ""),
		empty, cut,
	})
	ids := func(d job.Data) (out []string, hash string) {
		all, hash, err := chooseFromRun(dir, d)
		require.NoError(t, err)
		for _, tr := range all {
			out = append(out, tr.ID)
		}
		return out, hash
	}
	reward := 0.9
	all, one := ids(job.Data{})
	require.Equal(t, []string{"train-0-0-1", "train-0-1-0", "train-1-0-0", "train-1-0-1", "train-1-0-2"}, all, "the newer of two that are equal")
	good, two := ids(job.Data{MinReward: &reward})
	require.Equal(t, []string{"train-1-0-0", "train-1-0-1", "train-1-0-2"}, good)
	best, _ := ids(job.Data{MinReward: &reward, BestOf: 2})
	require.Equal(t, []string{"train-1-0-0", "train-1-0-2"}, best)
	each, _ := ids(job.Data{BestOf: 1})
	require.Equal(t, []string{"train-0-1-0", "train-1-0-0"}, each)
	_, again := ids(job.Data{})
	require.Equal(t, one, again)
	require.NotEqual(t, one, two)
	chosen, _, err := chooseFromRun(dir, job.Data{BestOf: 1})
	require.NoError(t, err)
	require.Equal(t, []float32{0, -1, -2}, chosen[1].Samples[0].SamplingLogprobs, "as it was sampled")
	high := 2.0
	_, _, err = chooseFromRun(dir, job.Data{MinReward: &high})
	require.EqualError(t, err, dir+" holds no finished training trajectory with the reward 2 or more that data.min_reward asks for; the best has 1: lower it")
	low, none := -1000.0, stored(t, []*trajectory.Trajectory{made("eval-0-0-0", "c", 0, 0, 1, 26, ""), made("train-0-1-1", "b", 0, 1, 1, 25, "gone")})
	for _, least := range []*float64{nil, &low} {
		_, _, err = chooseFromRun(none, job.Data{MinReward: least})
		require.EqualError(t, err, none+" holds no finished training trajectory to learn; name a run whose job samples, which one with sft does not")
	}
	distilled := made("train-0-0-0", "a", 0, 0, 0, 20, "")
	distilled.Unscored = true
	unscored := stored(t, []*trajectory.Trajectory{distilled})
	chosen, _, err = chooseFromRun(unscored, job.Data{})
	require.NoError(t, err)
	require.Len(t, chosen, 1)
	_, _, err = chooseFromRun(unscored, job.Data{MinReward: &low})
	require.EqualError(t, err, unscored+" holds no training trajectory that has a reward, which data.min_reward asks for; leave it out")
	_, _, err = chooseFromRun(t.TempDir(), job.Data{})
	require.ErrorContains(t, err, "name a run folder that holds a store.db")
}

// What the run itself does not train is not learned from it either: replies that were discarded, what the agent asks on the side, and the roles that
// its job freezes.
func TestChoosingFromARunLeavesOutWhatItDoesNotTrain(t *testing.T) {
	made := func(id string, roles ...trajectory.Role) *trajectory.Trajectory {
		tr := &trajectory.Trajectory{ID: id, TaskID: id, Samples: []*trajectory.Sample{{}}}
		for i, role := range roles {
			s := tr.Samples[0]
			s.AppendObservation([]int32{1})
			turn := trajectory.Turn{CompletionStart: s.Len(), CompletionEnd: s.Len() + 2, ObservationEnd: s.Len() + 2, FinishReason: trajectory.FinishStop, Role: role}
			require.NoError(t, s.AppendResponse([]int32{int32(20 + i), 9}, []float32{-1, -2}, []int32{3, 3}))
			tr.Turns = append(tr.Turns, turn)
		}
		return tr
	}
	dir := stored(t, []*trajectory.Trajectory{
		made("train-0-0-0", "", trajectory.RoleDiscarded),
		made("train-0-1-0", trajectory.RoleAuxiliary, "planner", "solver"),
		made("train-0-2-0", "planner", "planner"),
	})
	masks := func() map[string][]bool {
		all, _, err := chooseFromRun(dir, job.Data{})
		require.NoError(t, err)
		out := map[string][]bool{}
		for _, tr := range all {
			out[tr.ID] = tr.Samples[0].ResponseMask
		}
		return out
	}
	off, on := []bool{false, false, false}, []bool{false, true, true}
	require.Equal(t, map[string][]bool{
		"train-0-0-0": slices.Concat(on, off),
		"train-0-1-0": slices.Concat(off, on, on),
		"train-0-2-0": slices.Concat(on, on),
	}, masks(), "no job says what is frozen")

	text := "model: {path: \"${A_VARIABLE_THAT_IS_NOT_SET}\"}\nsomething: new\nagent: {kind: external, roles: [{name: planner, system: ^plan, train: false}, {name: solver}]}\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "job.yaml"), []byte(text), 0o600))
	require.Equal(t, map[string][]bool{
		"train-0-0-0": slices.Concat(on, off),
		"train-0-1-0": slices.Concat(off, off, on),
	}, masks(), "nothing is left of the third; what else is wrong with the job does not matter")

	for _, text := range []string{
		"agent: {kind: external, roles: [{name: planner, train: \"${A_VARIABLE_THAT_IS_NOT_SET}\"}]}\n",
		"agent: {kind: external, roles: [{name: \"${A_VARIABLE_THAT_IS_NOT_SET}\", train: false}]}\n",
		"agent: [\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "job.yaml"), []byte(text), 0o600))
		_, _, err := chooseFromRun(dir, job.Data{})
		require.ErrorContains(t, err, "the roles that the run does not train cannot be read: ", text)
	}

	text = "agent: {kind: external, roles: [{name: auxiliary, system: ^side}, {name: planner, train: false}]}\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "job.yaml"), []byte(text), 0o600))
	require.Equal(t, slices.Concat(on, off, on), masks()["train-0-1-0"])
}

// The branches of a tree share step, group and index, and two tasks may have the same tokens: what is chosen, its order and its hash are the same in
// every process, or a run would not go on with --resume.
func TestChoosingFromARunIsTheSameEachTime(t *testing.T) {
	made := func(id, task string, group int, branch trajectory.Branch, token int32) *trajectory.Trajectory {
		s := &trajectory.Sample{}
		s.AppendObservation([]int32{1})
		require.NoError(t, s.AppendResponse([]int32{token}, []float32{-1}, []int32{0}))
		return &trajectory.Trajectory{ID: id, TaskID: task, Group: group, Branch: branch, Reward: 1, Samples: []*trajectory.Sample{s}}
	}
	all := []*trajectory.Trajectory{made("train-0-0-0", "a", 0, "", 20), made("train-0-1-0", "b", 1, "", 20)}
	for group, task := range []string{"a", "b", "c"} {
		for n := range 20 {
			branch := strconv.Itoa(n)
			all = append(all, made("train-0-"+strconv.Itoa(group)+"-0."+branch, task, group, trajectory.Branch(branch), int32(100*group+n+30)))
		}
	}
	dir := stored(t, all)
	choose := func(best int) (ids []string, hash string) {
		chosen, hash, err := chooseFromRun(dir, job.Data{BestOf: best})
		require.NoError(t, err)
		for _, tr := range chosen {
			ids = append(ids, tr.ID)
		}
		return ids, hash
	}
	for _, best := range []int{0, 5} {
		ids, hash := choose(best)
		require.Contains(t, ids, "train-0-0-0")
		require.NotContains(t, ids, "train-0-1-0", "its tokens are those of the other task's")
		for range 50 {
			again, same := choose(best)
			require.Equal(t, ids, again)
			require.Equal(t, hash, same)
		}
	}
}
