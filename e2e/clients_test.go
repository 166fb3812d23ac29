//go:build torch

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator/store"
)

// Unmodified clients, each a process of its own, sample SmolLM2 over the gateway of a run and train it for a step: every id that was sampled is a row of the
// update once and no other one is, and the trainer has the logprobs that the engine sampled with, which it would not for other ids.
func TestUnmodifiedClientsTrain(t *testing.T) {
	needTorch(t)
	clients := os.Getenv("AGENTFLY_GATEWAY_CLIENTS")
	if clients == "" {
		t.Skip("AGENTFLY_GATEWAY_CLIENTS is not set: make test-gateway installs the clients and sets it")
	}
	if _, err := modelfile.Resolve("HuggingFaceTB/SmolLM2-135M-Instruct"); err != nil {
		t.Skip("make setup fetches the model: ", err)
	}
	scripts, err := filepath.Abs("gateway/testdata/clients")
	require.NoError(t, err)
	for _, c := range [][2]string{ // those that take a reply that a token limit cut for one
		{"openai_loop.py", "chat"},
		{"openai_loop.py", "responses"},
		{"anthropic_loop.py", "stream"},
		{"agents_loop.py", "chat"},
		{"langgraph_loop.py", "plain"},
		{"pydantic_loop.py", "anthropic"},
	} {
		t.Run(strings.TrimSuffix(c[0], ".py")+"/"+c[1], func(t *testing.T) {
			job := fmt.Sprintf(`version: 1
name: clients
model: {path: HuggingFaceTB/SmolLM2-135M-Instruct}
agent: {kind: external, command: [%q, %q, %s], max_turns: 4, env: {OPENAI_AGENTS_DISABLE_TRACING: "1", LANGSMITH_TRACING: "false"}}
rewards: [repetition]
data: {train: tasks.jsonl}
rollout: {groups: 1, group_size: 3, max_new_tokens: 24}
trainer: {steps: 1}
`, filepath.Join(clients, "bin", "python"), filepath.Join(scripts, c[0]), c[1])
			dir := filepath.Join(t.TempDir(), "run")
			status, out, errs := command("", "train", guest(t, job, ""), "--output", dir)
			require.Zero(t, status, "%s%s", out, errs)
			db := opened(t, dir)
			sampled, trained := 0, 0
			require.NoError(t, db.Select(context.Background(), store.Selection{}, func(r store.Record) error {
				require.Empty(t, r.Trajectory.Err)
				for i := range r.Trajectory.Turns {
					sampled += r.Trajectory.Turns[i].CompletionEnd - r.Trajectory.Turns[i].CompletionStart
				}
				rows := map[int]bool{}
				for _, u := range r.Updates {
					require.False(t, rows[u.Sample], "a sample is trained once")
					rows[u.Sample] = true
					s := r.Trajectory.Samples[u.Sample]
					for i, on := range s.ResponseMask {
						if !on {
							require.Zero(t, u.OldLogprobs[i], "what was not sampled has no row")
							continue
						}
						trained++
						require.InDelta(t, s.SamplingLogprobs[i], u.OldLogprobs[i], 1e-3)
					}
				}
				return nil
			}))
			require.Positive(t, sampled)
			require.Equal(t, sampled, trained)
		})
	}
}
