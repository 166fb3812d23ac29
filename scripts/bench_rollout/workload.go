package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/engines/vllm/vllmtest"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// The shape of the workload, in tokens of a turn.
const (
	turns         = 4
	promptTokens  = 200
	sampledTokens = 20
	observed      = 30
)

// workload is one conversation of which all trajectories are copies: every turn calls the tool.
type workload struct {
	Model       string  `json:"model"`
	Question    string  `json:"question"`
	Prompt      []int32 `json:"prompt"`      // [promptTokens]
	Completion  []int32 `json:"completion"`  // [sampledTokens]
	Call        string  `json:"call"`        // the text of Completion
	Observation []int32 `json:"observation"` // [observed]
	Result      string  `json:"result"`      // what the tool returns
	Turns       int     `json:"turns"`
	DelaySecond float64 `json:"delay_seconds"` // of a completion
	ToolSeconds float64 `json:"tool_seconds"`
}

func read(path string) (*workload, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	w := &workload{}
	return w, json.Unmarshal(data, w)
}

// write finds texts of exactly the wanted lengths in the tokens of a model.
func write(_ context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("usage: bench_rollout workload MODEL FILE")
	}
	w := &workload{Model: args[0], Turns: turns, DelaySecond: 0.05, ToolSeconds: 0.1}
	r, text, err := w.rollout()
	if err != nil {
		return err
	}
	system := trajectory.Text("system", "Solve the problem by calling the lookup.")
	w.Question, err = fit("question", promptTokens, func(s string) (int, error) {
		ids, _, err := r.Renderer.Prompt([]trajectory.Message{system, trajectory.Text("user", s)}, nil, true)
		w.Prompt = ids
		return len(ids), err
	})
	if err != nil {
		return err
	}
	w.Question = strings.TrimSpace(w.Question)
	_, err = fit("call", sampledTokens, func(s string) (int, error) {
		w.Call = "<lookup>" + s + "</lookup>"
		w.Completion = text.Tokenizer.Encode(w.Call)
		return len(w.Completion), nil
	})
	if err != nil {
		return err
	}
	history := []trajectory.Message{system, trajectory.Text("user", w.Question)}
	w.Result, err = fit("result", observed, func(s string) (int, error) {
		results, err := r.Format.Observe(context.Background(), []trajectory.ToolResult{{Observation: s}})
		if err != nil {
			return 0, err
		}
		w.Observation, err = r.Renderer.Observation(masks.Reply{History: history, Completion: w.Call, Results: results})
		return len(w.Observation), err
	})
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(w, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(args[1], append(data, '\n'), 0o644)
}

// fit makes a text of n tokens.
func fit(what string, n int, length func(string) (int, error)) (string, error) {
	words := strings.Fields("the price of a ticket rose by three and then by four more while nobody in town was looking at it")
	text := ""
	for i := 0; ; i++ {
		text = strings.TrimSpace(text + " " + words[i%len(words)])
		got, err := length(text)
		switch {
		case err != nil:
			return "", err
		case got == n:
			return text, nil
		case got > n:
			return "", fmt.Errorf("no %s of %d tokens was found in this vocabulary", what, n)
		}
	}
}

// server is what answers the workload.
func (w *workload) server(faults float64, seed uint64) (*vllmtest.Server, error) {
	return vllmtest.New(vllmtest.Options{
		Replies: []vllmtest.Reply{{TokenIDs: w.Completion, Text: w.Call}}, First: promptTokens, Each: sampledTokens + observed,
		Context: 4096, Delay: seconds(w.DelaySecond), Faults: faults, Seed: seed,
	})
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// task is the one question under a name of its own.
func (w *workload) task(id string) trajectory.Task {
	return trajectory.Task{ID: id, Prompt: []trajectory.Message{trajectory.Text("user", w.Question)}, Fields: map[string]any{"answer": "42"}}
}

// rollout is a job's Rollout but for its engine. The tool takes ToolSeconds; after is called as a call of it ends.
func (w *workload) rollout() (*rollout.Sampler, *policy.Text, error) {
	text, err := policy.LoadText(w.Model)
	if err != nil {
		return nil, nil, err
	}
	compiled, err := text.Template()
	if err != nil {
		return nil, nil, err
	}
	renderer, err := masks.NewRenderer(text.Tokenizer, compiled, masks.Options{Now: time.Unix(0, 0).UTC()})
	if err != nil {
		return nil, nil, err
	}
	registry := tools.NewRegistry(tools.Options{})
	if err := registry.Register(w.tool(func() {})); err != nil {
		return nil, nil, err
	}
	format, err := agents.NewFormat("tags", registry.Specs(), agents.FormatOptions{})
	if err != nil {
		return nil, nil, err
	}
	made, err := rewards.Prebuilt().Builder(context.Background(), nil).Make("final_answer", nil)
	if err != nil {
		return nil, nil, err
	}
	reward, err := rewards.NewSum(0, rewards.Weighted{Reward: made, Weight: 1})
	if err != nil {
		return nil, nil, err
	}
	r := &rollout.Sampler{
		Renderer: renderer, Format: format, Tools: registry, Reward: reward,
		Decode:   func(ids []int32) string { return text.Tokenizer.Decode(ids, true) },
		Prefix:   []trajectory.Message{trajectory.Text("system", "Solve the problem by calling the lookup.")},
		MaxTurns: turns, MaxTotal: 2048, Timeout: 10 * time.Minute, Seed: 1, RunName: "bench",
	}
	r.Sampling.MaxTokens, r.Sampling.Temperature, r.Sampling.TopP = 64, 1, 1
	r.Sampling.StopIDs, r.Sampling.Stop = renderer.StopIDs(), format.Stops()
	return r, text, nil
}

// tool waits, as one does that asks somebody else.
func (w *workload) tool(after func()) tools.Tool {
	return tools.NewFunc("lookup", "Looks something up.", func(ctx context.Context, _ struct {
		Query string `json:"query"`
	},
	) (string, error) {
		t := time.NewTimer(seconds(w.ToolSeconds))
		defer t.Stop()
		select {
		case <-t.C:
			after()
			return w.Result, nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	})
}
