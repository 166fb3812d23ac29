package orchestrator

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/trajectory"
)

// recorded is a trajectory as a conversation.
func recorded(t *testing.T, r *Rollout, task trajectory.Task, tr *trajectory.Trajectory) Conversation {
	c := Conversation{ID: tr.ID, Messages: slices.Clone(task.Prompt), Learned: make([]bool, len(task.Prompt))}
	for i, turn := range tr.Turns {
		c.Messages = append(c.Messages, trajectory.Text("assistant", turn.Completion))
		c.Learned = append(c.Learned, true)
		if i+1 < len(tr.Turns) {
			results, err := r.Format.Observe(t.Context(), turn.Results)
			require.NoError(t, err)
			c.Messages = append(c.Messages, results...)
			c.Learned = append(c.Learned, make([]bool, len(results))...)
		}
	}
	return c
}

// What a rollout sampled, written down as a conversation and laid out again, has the ids and the mask of the rollout.
func TestAConversationHasTheMaskOfItsRollout(t *testing.T) {
	turns := map[int][]string{
		0: {"<calculator>2+3</calculator>", "so <answer>5</answer>"}, // every turn ends at a stop string
		1: {"<calculator>2+3</calculator> and <calculator>1/0</calculator>", "<calculator>7</calculator>", "well"},
		2: {"<calculator>2+", "x"}, // cannot be read, and no action
		3: {" \n<calculator>2+3</calculator>", "<answer>5</answer>"},
	}
	r := newRollout(t, func(q engines.Request) (engines.Completion, error) {
		at := strings.Split(q.ID, "-")
		return say(turns[index(q)][at[len(at)-1][0]-'0'])
	})
	s := &session{renderer: r.Renderer, rollout: *r}
	for i := range turns {
		task := task("sum", "2 and 3?", "5")
		tr := r.Sample(t.Context(), Place{Index: i, Task: task, Phase: "train"})
		require.Empty(t, tr.Err)
		got, err := s.render([]Conversation{recorded(t, r, task, tr)})
		require.NoError(t, err)
		require.Len(t, got[0].Samples, 1)
		require.Equal(t, tr.Samples[0].TokenIDs, got[0].Samples[0].TokenIDs, "%q", turns[i])
		require.Equal(t, tr.Samples[0].ResponseMask, got[0].Samples[0].ResponseMask)
	}
}

func TestAConversationWithASystemPromptStandsAlone(t *testing.T) {
	r := newRollout(t, func(engines.Request) (engines.Completion, error) { return say("x") })
	s := &session{renderer: r.Renderer, rollout: *r}
	say := trajectory.Text
	own := Conversation{Messages: []trajectory.Message{say("system", "Own."), say("user", "a"), say("assistant", "b")}, Learned: []bool{false, false, true}}
	bare := Conversation{Messages: own.Messages[1:], Learned: own.Learned[1:]}
	got, err := s.render([]Conversation{own, bare})
	require.NoError(t, err)
	text := letters{}.Decode(got[0].Samples[0].TokenIDs, false)
	require.Equal(t, "<|im_start|>system\nOwn.<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>", text)
	require.Equal(t, strings.Replace(text, "Own.", "Use it.", 1), letters{}.Decode(got[1].Samples[0].TokenIDs, false))
}

// The ids, masks and losses of scripts/goldens/sft.py, which transformers computed.
func TestConversationsAgainstTransformers(t *testing.T) {
	var golden map[string]struct {
		IDs   [][]int32 `json:"ids"`
		Masks [][]int   `json:"masks"`
	}
	data, err := os.ReadFile("testdata/sft.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &golden))
	text, err := policy.LoadText("../examples/tiny/model")
	require.NoError(t, err)
	compiled, err := text.Template()
	require.NoError(t, err)
	renderer, err := masks.NewRenderer(text.Tokenizer, compiled, masks.Options{})
	require.NoError(t, err)
	conversations, _, err := ReadConversations("../examples/tiny/conversations.jsonl", nil)
	require.NoError(t, err)
	require.Len(t, conversations, 16)
	for name, stops := range map[string][]string{"stops": {"</calculator>", "</answer>"}, "none": nil} {
		s := &session{renderer: renderer}
		s.rollout.Sampling.Stop = stops
		got, err := s.render(conversations)
		require.NoError(t, err)
		for i, tr := range got {
			require.Equal(t, golden[name].IDs[i], tr.Samples[0].TokenIDs)
			for k, on := range tr.Samples[0].ResponseMask {
				require.Equal(t, golden[name].Masks[i][k] == 1, on, "%s, conversation %d, token %d", name, i, k)
			}
		}
	}
}

func TestBrokenConversations(t *testing.T) {
	for name, c := range map[string]struct{ line, want string }{
		"no messages":     {`{"prompt": "a"}`, `:1: the column "messages" must be a list of messages; another one is mapped with data.columns: {messages: NAME}`},
		"a text":          {`{"messages": "a"}`, `:1: the column "messages" must be a list of messages`},
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
	path := write(t, "c.jsonl", `{"chat": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "x", "weight": 0}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "c", "weight": 1}], "tools": [{"type": "function"}]}`)
	got, hash, err := ReadConversations(path, map[string]string{"messages": "chat"})
	require.NoError(t, err)
	require.Len(t, hash, 64)
	require.Equal(t, []bool{false, false, false, true}, got[0].Learned)
	require.Len(t, got[0].Tools, 1)
	m := &material{conversations: got, eval: got}
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
	db, err := store.Open(filepath.Join(dir, storeFile))
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
	require.EqualError(t, err, dir+" holds no finished training trajectory with the reward that data.min_reward asks for; lower it")
	_, _, err = chooseFromRun(t.TempDir(), job.Data{})
	require.ErrorContains(t, err, "name a run folder that holds a store.db")
}

func TestJobsOfSupervisedFineTuning(t *testing.T) {
	head := "version: 1\nname: x\nmodel: {path: m}\n"
	for name, c := range map[string]struct{ text, want string }{
		"no data":             {"sft: {}", "x.yaml:1:1: data: sft learns from exactly one of train (recorded conversations) and run (a run folder)"},
		"both":                {"sft: {}\ndata: {train: a, run: b}", "x.yaml:5:7: data: sft learns from exactly one of train (recorded conversations) and run (a run folder)"},
		"temperature":         {"sft: {}\ndata: {train: a}\nrollout: {temperature: 0.5}", "x.yaml:6:24: rollout.temperature: 0.5: sft learns the distribution at temperature 1; leave it out"},
		"balance":             {"sft: {}\ndata: {train: a, balance: kind}", "x.yaml:5:27: data.balance: sft deals conversations, not tasks; leave it out"},
		"control":             {"sft: {}\ndata: {train: a}\ncontrol: {shuffle_rewards: true}", "x.yaml:6:10: control: sft has no rewards to shuffle; leave it out"},
		"tool_off":            {"sft: {}\ndata: {train: a}\neval: {tool_off: true}", "x.yaml:6:18: eval.tool_off: sft evaluates the loss of held-out conversations; leave it out"},
		"nothing to evaluate": {"sft: {}\ndata: {train: a}\neval: {every: 2}", "x.yaml:6:15: eval.every: 2, but data.eval names no conversations"},
	} {
		t.Run(name, func(t *testing.T) {
			j, err := job.Parse("x.yaml", []byte(head+c.text+"\n"), job.Options{})
			require.NoError(t, err)
			require.EqualError(t, j.TrainingErrors(), c.want)
		})
	}
	for name, c := range map[string]struct{ text, want string }{
		"no rewards":         {"data: {train: a}", `x.yaml:1:1: the job: the key "rewards" is missing`},
		"a run without sft":  {"rewards: [final_answer]\ndata: {run: a}", "x.yaml:5:7: data: run, min_reward and best_of choose what a job with a block sft learns; add sft: {}, or leave them out"},
		"sft is null":        {"sft: null\ndata: {train: a}", "rewards: they are missing; name at least one"},
		"best_of of a file":  {"sft: {}\ndata: {train: a, best_of: 2}", "x.yaml:5:7: data: min_reward and best_of choose among the trajectories of data.run, which is missing"},
		"an unknown setting": {"sft: {batches: 2}", `x.yaml:4:7: unknown key "batches" in sft; allowed: batch, epochs; nearest: batch`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := job.Parse("x.yaml", []byte(head+c.text+"\n"), job.Options{})
			require.ErrorContains(t, err, c.want)
		})
	}
	for _, block := range []string{"advantage: grpo", "loss: ppo_clip", "clip_low: 0.1", "kl: {coefficient: 1}", "entropy: 0.1", "epochs: 2", "dynamic_sampling: true", "overlong: {buffer: 2, penalty: 1}", "correction: {kind: icepop}"} {
		j, err := job.Parse("x.yaml", []byte(head+"sft: {}\ndata: {train: a}\nalgorithm: {"+block+"}\n"), job.Options{})
		require.NoError(t, err)
		_, err = Algorithm(j, prebuilt(t))
		require.ErrorContains(t, err, "x.yaml:6:")
		require.ErrorContains(t, err, "the job has a block sft, whose loss is the negative log-likelihood")
	}
	j, err := job.Parse("x.yaml", []byte(head+"sft: {}\ndata: {train: a}\nalgorithm: {aggregation: seq-mean-token-mean}\n"), job.Options{})
	require.NoError(t, err)
	a, err := Algorithm(j, prebuilt(t))
	require.NoError(t, err)
	require.Contains(t, a.Describe(), "loss_t = -current, the negative log-likelihood")
	require.Contains(t, a.Describe(), "seq-mean-token-mean")
	_, err = Evaluate(t.Context(), j, "", false, prebuilt(t))
	require.ErrorContains(t, err, "sft: supervised fine-tuning has conversations and no tasks to sample")
}

// The data say how many steps some epochs are, and so whether the schedule has any left after its warm-up.
func TestEpochsMustOutlastTheWarmUp(t *testing.T) {
	for warmup, want := range map[string]string{
		"79": "", // of 80: 40 epochs of 16 conversations, 8 a step
		"80": "trainer.warmup_steps: 80 steps of warm-up leave schedule linear none of the steps of 40 epochs (80); lower it, or use constant",
		"81": "trainer.warmup_steps: 81 steps of warm-up are more than the steps of 40 epochs (80)",
	} {
		j, err := job.Load("../examples/tiny_sft.yaml", "trainer.warmup_steps="+warmup)
		require.NoError(t, err)
		counted, _, err := (&run{}).prepareSFT(j)
		if want != "" {
			require.ErrorContains(t, err, want)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, 80, counted.Trainer.Steps)
	}
}
