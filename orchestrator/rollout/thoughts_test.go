package rollout_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/trajectory"
)

// A generation prompt that opens <think> itself, as Qwen3-Thinking's, QwQ's and the R1 distillations' do.
const thinkingML = `{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content.split('</think>')[-1] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}`

func TestAThoughtThatThePromptOpened(t *testing.T) {
	for name, c := range map[string]struct {
		format, completion string
		calls              int
		answer             string
	}{
		"a draft in a thought that does not end":   {"tags", "maybe <calculator>2+3</calculator>", 0, ""},
		"an answer in a thought that does not end": {"tags", "maybe <answer>5</answer>", 0, ""},
		"a thought is no whole answer":             {"hermes", "maybe 5", 0, ""},
		"a draft, and a call behind the thought":   {"tags", "maybe <calculator>9+9</calculator> no</think>\n<calculator>2+3</calculator>", 1, ""},
		"an answer behind the thought":             {"hermes", "<tool_call>{}</tool_call> no</think>\n\n5", 0, "5"},
	} {
		t.Run(name, func(t *testing.T) {
			r := rollouttest.New(t, func(engines.Request) (engines.Completion, error) { return rollouttest.Say(c.completion) })
			r.MaxTurns, r.Sampling.MaxTokens, r.Sampling.Stop = 1, 200, nil // a stop string would end the completion within the thought
			var err error
			r.Format, err = agents.NewFormat(c.format, r.Tools.Specs(), agents.FormatOptions{})
			require.NoError(t, err)
			r.Renderer = rollouttest.Renderer(t, thinkingML)
			tr := r.Sample(t.Context(), rollout.Place{Task: rollouttest.Task("sum", "2 and 3?", "5"), Phase: "train"})
			require.Empty(t, tr.Err)
			require.Equal(t, c.completion, tr.Turns[0].Completion)
			require.True(t, tr.Turns[0].InThought)
			require.Zero(t, tr.Turns[0].ParseErrors)
			require.Len(t, tr.Turns[0].Results, c.calls)
			if c.calls > 0 {
				require.JSONEq(t, `{"expression": "2+3"}`, string(tr.Turns[0].Results[0].Call.Arguments))
			}
			answer, _ := tr.FinalAnswer()
			require.Equal(t, c.answer, answer)
		})
	}
}

// The thought is open in every turn, also where the history is rewritten or a turn was recorded.
func TestAThoughtIsOpenInEveryTurn(t *testing.T) {
	r := rollouttest.New(t, func(q engines.Request) (engines.Completion, error) {
		if strings.Contains(rollouttest.Letters{}.Decode(q.Prompt, false), "<result>") {
			return rollouttest.Say("maybe <answer>5</answer>")
		}
		return rollouttest.Say("so</think><calculator>2+3</calculator>")
	})
	r.Renderer = rollouttest.Renderer(t, thinkingML)
	at := rollout.Place{Task: rollouttest.Task("sum", "2 and 3?", "5"), Phase: "train"}
	tr := r.Sample(t.Context(), at)
	require.Empty(t, tr.Err)
	require.Len(t, tr.Turns, 2)
	require.Equal(t, trajectory.StopNoAction, tr.StopReason)
	require.True(t, tr.Turns[0].InThought && tr.Turns[1].InThought)
	recovered := *tr
	recovered.Turns = slices.Clone(tr.Turns[:1])
	recovered.Turns[0].InThought = false // an older program did not store it
	r.Recovered = func(string) (*trajectory.Trajectory, bool) { return &recovered, false }
	again := r.Sample(t.Context(), at)
	require.Empty(t, again.Err)
	require.Equal(t, trajectory.StopNoAction, again.StopReason)
	require.True(t, again.Turns[0].InThought && again.Turns[1].InThought)
}

// What an endpoint's model read is not known: its template may have opened a thought, or its server taken one off.
func TestAThoughtOfAnEndpoint(t *testing.T) {
	plain := strings.Replace(thinkingML, "<think>\n", "", 1)
	for name, c := range map[string]struct {
		template, completion, answer string
		inThought                    bool
	}{
		"its template opened a thought":   {plain, "<tool_call>{}</tool_call> no</think>\n\n5", "5", true},
		"its server took off a thought":   {thinkingML, "5", "5", false},
		"a thought as the model wrote it": {plain, "<think>no</think>5", "5", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := rollouttest.New(t, func(engines.Request) (engines.Completion, error) { return rollouttest.Say(c.completion) })
			r.Engine, r.Sampling.MaxTokens = textOnly{r.Engine}, 200
			var err error
			r.Format, err = agents.NewFormat("hermes", r.Tools.Specs(), agents.FormatOptions{})
			require.NoError(t, err)
			r.Renderer = rollouttest.Renderer(t, c.template)
			tr := r.Sample(t.Context(), rollout.Place{Task: rollouttest.Task("sum", "2 and 3?", "5"), Phase: "eval"})
			require.Empty(t, tr.Err)
			answer, _ := tr.FinalAnswer()
			require.Equal(t, c.answer, answer)
			require.Equal(t, c.inThought, tr.Turns[0].InThought)
		})
	}
}
