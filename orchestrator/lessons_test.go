package orchestrator

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/trajectory"
)

// recorded is a trajectory as a conversation.
func recorded(t *testing.T, r *rollout.Sampler, task trajectory.Task, tr *trajectory.Trajectory) data.Conversation {
	c := data.Conversation{ID: tr.ID, Messages: slices.Clone(task.Prompt), Learned: make([]bool, len(task.Prompt))}
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
	s := layout{sampler: r}
	for i := range turns {
		task := task("sum", "2 and 3?", "5")
		tr := r.Sample(t.Context(), rollout.Place{Index: i, Task: task, Phase: "train"})
		require.Empty(t, tr.Err)
		got, err := s.render([]data.Conversation{recorded(t, r, task, tr)})
		require.NoError(t, err)
		require.Len(t, got[0].Samples, 1)
		require.Equal(t, tr.Samples[0].TokenIDs, got[0].Samples[0].TokenIDs, "%q", turns[i])
		require.Equal(t, tr.Samples[0].ResponseMask, got[0].Samples[0].ResponseMask)
	}
}

func TestAConversationWithASystemPromptStandsAlone(t *testing.T) {
	r := newRollout(t, func(engines.Request) (engines.Completion, error) { return say("x") })
	s := layout{sampler: r}
	say := trajectory.Text
	own := data.Conversation{Messages: []trajectory.Message{say("system", "Own."), say("user", "a"), say("assistant", "b")}, Learned: []bool{false, false, true}}
	bare := data.Conversation{Messages: own.Messages[1:], Learned: own.Learned[1:]}
	got, err := s.render([]data.Conversation{own, bare})
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
	raw, err := os.ReadFile("testdata/sft.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &golden))
	text, err := policy.LoadText("../examples/tiny/model")
	require.NoError(t, err)
	compiled, err := text.Template()
	require.NoError(t, err)
	renderer, err := masks.NewRenderer(text.Tokenizer, compiled, masks.Options{})
	require.NoError(t, err)
	conversations, _, err := data.ReadConversations("../examples/tiny/conversations.jsonl", nil)
	require.NoError(t, err)
	require.Len(t, conversations, 16)
	for name, stops := range map[string][]string{"stops": {"</calculator>", "</answer>"}, "none": nil} {
		s := layout{sampler: &rollout.Sampler{Renderer: renderer, Sampling: engines.Sampling{Stop: stops}}}
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
		counted, _, _, err := readSFT(j)
		if want != "" {
			require.ErrorContains(t, err, want)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, 80, counted.Trainer.Steps)
	}
}
