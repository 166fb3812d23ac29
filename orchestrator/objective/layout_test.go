package objective

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
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
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

// withAnswers is a trajectory as a conversation in which each answer of a tool is a message, as agentfly import writes it.
func withAnswers(task trajectory.Task, tr *trajectory.Trajectory) data.Conversation {
	c := data.Conversation{ID: tr.ID, Messages: slices.Clone(task.Prompt)}
	for _, turn := range tr.Turns {
		c.Messages = append(c.Messages, trajectory.Text("assistant", turn.Completion))
		for _, result := range turn.Results {
			answer := trajectory.Text("tool", result.Observation)
			answer.ToolCallID, answer.Name = result.Call.ID, result.Call.Name
			c.Messages = append(c.Messages, answer)
		}
	}
	for _, m := range c.Messages {
		c.Learned = append(c.Learned, m.Role == "assistant")
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
	r := rollouttest.New(t, func(q engines.Request) (engines.Completion, error) {
		at := strings.Split(q.ID, "-")
		return rollouttest.Say(turns[rollouttest.Index(q)][at[len(at)-1][0]-'0'])
	})
	s := Layout{sampler: r}
	for i := range turns {
		task := rollouttest.Task("sum", "2 and 3?", "5")
		tr := r.Sample(t.Context(), rollout.Place{Index: i, Task: task, Phase: "train"})
		require.Empty(t, tr.Err)
		got, err := s.render([]data.Conversation{recorded(t, r, task, tr)})
		require.NoError(t, err)
		require.Len(t, got[0].Samples, 1)
		require.Equal(t, tr.Samples[0].TokenIDs, got[0].Samples[0].TokenIDs, "%q", turns[i])
		require.Equal(t, tr.Samples[0].ResponseMask, got[0].Samples[0].ResponseMask)
		imported, err := s.render([]data.Conversation{withAnswers(task, tr)})
		require.NoError(t, err)
		require.Equal(t, got[0].Samples, imported[0].Samples, "%q, with answers of tools as messages of their own", turns[i])
	}
}

// Calls that are no text are the chat template's, and so are their answers.
func TestAnswersToToolCallsAreTheTemplates(t *testing.T) {
	r := rollouttest.New(t, func(engines.Request) (engines.Completion, error) { return rollouttest.Say("x") })
	call := trajectory.Text("assistant", "")
	call.ToolCalls = []trajectory.ToolCall{{ID: "c", Name: "calculator", Arguments: []byte(`{"expression":"2+3"}`)}}
	answer := trajectory.Text("tool", "5")
	answer.ToolCallID, answer.Name = "c", "calculator"
	c := data.Conversation{Messages: []trajectory.Message{trajectory.Text("user", "2+3?"), call, answer, trajectory.Text("assistant", "5")}, Learned: []bool{false, true, false, true}}
	got, err := Layout{sampler: r}.observed(c)
	require.NoError(t, err)
	require.Equal(t, c, got)
}

func TestAConversationWithASystemPromptStandsAlone(t *testing.T) {
	r := rollouttest.New(t, func(engines.Request) (engines.Completion, error) { return rollouttest.Say("x") })
	s := Layout{sampler: r}
	say := trajectory.Text
	own := data.Conversation{Messages: []trajectory.Message{say("system", "Own."), say("user", "a"), say("assistant", "b")}, Learned: []bool{false, false, true}}
	bare := data.Conversation{Messages: own.Messages[1:], Learned: own.Learned[1:]}
	got, err := s.render([]data.Conversation{own, bare})
	require.NoError(t, err)
	text := rollouttest.Letters{}.Decode(got[0].Samples[0].TokenIDs, false)
	require.Equal(t, "<|im_start|>system\nOwn.<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>", text)
	require.Equal(t, strings.Replace(text, "Own.", "Use it.", 1), rollouttest.Letters{}.Decode(got[1].Samples[0].TokenIDs, false))
}

// An error names a message as the line of the file counts it, whatever the job's prompt says before it.
func TestAnErrorCountsTheMessagesOfItsLine(t *testing.T) {
	r := rollouttest.New(t, func(engines.Request) (engines.Completion, error) { return rollouttest.Say("x") })
	require.NotEmpty(t, r.Prefix)
	bare := *r
	bare.Prefix = nil
	say := trajectory.Text
	image := trajectory.Message{Role: "assistant", Content: []trajectory.Part{{Type: "image", Image: "x"}}}
	for name, c := range map[string]struct {
		messages []trajectory.Message
		learned  []bool
		want     string
	}{
		"two of the assistant": {
			[]trajectory.Message{say("user", "a"), say("assistant", "b"), say("assistant", "c")},
			[]bool{false, true, true},
			"c.jsonl:7: message 1: another message of the assistant follows it; join them, or give one weight 0",
		},
		"an image":          {[]trajectory.Message{say("user", "a"), image}, []bool{false, true}, `c.jsonl:7: message 1: trajectory: assistant message: part 0 is "image", only text is supported here`},
		"a role of markup":  {[]trajectory.Message{say("user", "a"), say("<|im_end|>", "b"), say("assistant", "c")}, []bool{false, false, true}, `c.jsonl:7: message 1: the role "<|im_end|>" spells a special token`},
		"a user is learned": {[]trajectory.Message{say("user", "a"), say("user", "b")}, []bool{false, true}, `c.jsonl:7: message 1: its role is "user"; only what the assistant said can be learned`},
	} {
		t.Run(name, func(t *testing.T) {
			for _, sampler := range []*rollout.Sampler{r, &bare} {
				_, err := Layout{sampler: sampler}.render([]data.Conversation{{ID: "c.jsonl:7", Messages: c.messages, Learned: c.learned}})
				require.EqualError(t, err, c.want)
			}
		})
	}
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
	text, err := policy.LoadText("../../examples/tiny/model")
	require.NoError(t, err)
	compiled, err := text.Template()
	require.NoError(t, err)
	renderer, err := masks.NewRenderer(text.Tokenizer, compiled, masks.Options{})
	require.NoError(t, err)
	conversations, _, err := data.ReadConversations("../../examples/tiny/conversations.jsonl", nil)
	require.NoError(t, err)
	require.Len(t, conversations, 16)
	for name, stops := range map[string][]string{"stops": {"</calculator>", "</answer>"}, "none": nil} {
		s := Layout{sampler: &rollout.Sampler{Renderer: renderer, Sampling: engines.Sampling{Stop: stops}}}
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

// The data say how many steps some epochs are, and so whether the schedule has any left after its warm-up.
func TestEpochsMustOutlastTheWarmUp(t *testing.T) {
	for warmup, want := range map[string]string{
		"79": "", // of 80: 40 epochs of 16 conversations, 8 a step
		"80": "trainer.warmup_steps: 80 steps of warm-up leave schedule linear none of the steps of 40 epochs (80); lower it, or use constant",
		"81": "trainer.warmup_steps: 81 steps of warm-up are more than the steps of 40 epochs (80)",
	} {
		j, err := job.Load("../../examples/tiny_sft.yaml", "trainer.warmup_steps="+warmup)
		require.NoError(t, err)
		_, total, err := ReadSFT(j)
		require.NoError(t, err)
		counted, err := WithSteps(j, total, At{})
		if want != "" {
			require.ErrorContains(t, err, want)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, 80, counted.Trainer.Steps)
	}
}
