// Package rollouttest makes the samplers that tests of several packages roll out: a tokenizer of letters, a chat template, the
// calculator, a reward for the right answer, and an engine that a test's script answers for. No model and no server is needed.
//
// It does not make runs, stores or trainers, and no engine under load: engines/enginetest and engines/scripted do.
package rollouttest

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/scripted"
	"github.com/agentfly/agentfly/jinja"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/tools/calculator"
	"github.com/agentfly/agentfly/trajectory"
)

// Script answers for the model.
type Script = func(r engines.Request) (engines.Completion, error)

// New makes a sampler whose engine is a script at policy version 7, in the format tags. More tools may be given beside the
// calculator. The reward is 1 for the task's answer.
func New(t testing.TB, respond Script, more ...tools.Tool) *rollout.Sampler {
	t.Helper()
	registry := tools.NewRegistry(tools.Options{Timeout: time.Minute})
	require.NoError(t, registry.Register(append([]tools.Tool{calculator.New()}, more...)...))
	format, err := agents.NewFormat("tags", registry.Specs(), agents.FormatOptions{})
	require.NoError(t, err)
	answer, err := rewards.Prebuilt().Builder(t.Context(), nil).Make("final_answer", nil)
	require.NoError(t, err)
	reward, err := rewards.NewSum(time.Minute, rewards.Weighted{Reward: answer, Weight: 1})
	require.NoError(t, err)
	engine := scripted.New(scripted.Options{Respond: respond, Decode: Decode, Version: 7})
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	renderer := Renderer(t, ChatML)
	return &rollout.Sampler{
		Engine: engine, Renderer: renderer, Decode: Decode, Format: format, Tools: registry, Reward: reward,
		Prefix:   []trajectory.Message{trajectory.Text("system", "Use it.")},
		Sampling: engines.Sampling{MaxTokens: 64, Temperature: 1, TopP: 1, StopIDs: renderer.StopIDs(), Stop: format.Stops()},
		MaxTurns: 3, MaxTotal: 1000, Timeout: 10 * time.Second, Seed: 5, RunName: "test",
	}
}

// Renderer renders a chat template into Letters.
func Renderer(t testing.TB, template string) *masks.Renderer {
	t.Helper()
	compiled, err := jinja.Compile(template, jinja.Options{EOSToken: "<|im_end|>"})
	require.NoError(t, err)
	renderer, err := masks.NewRenderer(Letters{}, compiled, masks.Options{})
	require.NoError(t, err)
	return renderer
}

// Summing is a sampler whose model asks the calculator, summarizes, asks again, and answers 6: its trajectory has two samples.
func Summing(t testing.TB) *rollout.Sampler {
	r := New(t, func(q engines.Request) (engines.Completion, error) {
		prompt := Letters{}.Decode(q.Prompt, false)
		switch {
		case strings.Contains(prompt, "<result>6</result>"):
			return Say("<answer>6</answer>")
		case strings.Contains(prompt, tools.SummaryPrefix):
			return Say("<calculator>5+1</calculator>")
		case strings.Contains(prompt, "<result>5</result>"):
			return engines.Completion{TokenIDs: Letters{}.Encode("<summarize>five, add 1</summarize>")}, nil
		}
		return Say("<calculator>2+3</calculator>")
	}, tools.NewSummarize())
	r.MaxTurns = 6
	return r
}

// Task is a question with its answer.
func Task(id, question, answer string) trajectory.Task {
	return trajectory.Task{ID: id, Prompt: []trajectory.Message{trajectory.Text("user", question)}, Fields: map[string]any{"answer": answer}}
}

// Say is a completion of the model that ends its turn itself.
func Say(text string) (engines.Completion, error) {
	return engines.Completion{TokenIDs: append(Letters{}.Encode(text), End)}, nil
}

// SayCut is a completion of the model that a token limit ended.
func SayCut(text string) (engines.Completion, error) {
	return engines.Completion{TokenIDs: Letters{}.Encode(text), FinishReason: trajectory.FinishLength}, nil
}

// Decode is the text of ids without special tokens.
func Decode(ids []int32) string { return Letters{}.Decode(ids, true) }

// LastTurn is what the model has to continue.
func LastTurn(r engines.Request) string {
	text := Letters{}.Decode(r.Prompt, false)
	return text[strings.LastIndex(strings.TrimSuffix(text, "<|im_start|>assistant\n"), "<|im_start|>"):]
}

// Index of the trajectory that a request belongs to.
func Index(r engines.Request) int {
	parts := strings.Split(r.ID, "-") // train-step-group-index-turn
	i, _ := strconv.Atoi(parts[len(parts)-2])
	return i
}

// Hurried has a tool's calls end after 50 ms.
func Hurried(s *tools.Spec) { s.Limits.Timeout = 50 * time.Millisecond }

// Stuck is a hurried tool that hangs until it is let go, whatever its context says.
func Stuck(let <-chan struct{}) tools.Tool {
	return tools.NewFunc("stuck", "Hangs.", func(context.Context, struct {
		Text string `json:"text"`
	},
	) (string, error) {
		<-let
		return "done", nil
	}, Hurried)
}

// Timeless is a trajectory without the times, which differ between two runs.
func Timeless(t *trajectory.Trajectory) trajectory.Trajectory {
	out := *t
	out.Started, out.Seconds = time.Time{}, 0
	out.Turns = append([]trajectory.Turn(nil), t.Turns...) // nil for none, as the store gives it back
	for i := range out.Turns {
		turn := &out.Turns[i]
		turn.EngineSeconds, turn.ToolSeconds = 0, 0
		if turn.Incoming != nil {
			in := *turn.Incoming
			in.Created, turn.Incoming = 0, &in
		}
		turn.Results = append([]trajectory.ToolResult(nil), turn.Results...)
		for k := range turn.Results {
			turn.Results[k].Duration = 0
		}
	}
	return out
}
