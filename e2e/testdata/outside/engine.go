package main

import (
	"context"
	"errors"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

var newEngines = []agentfly.Option{
	agentfly.WithEngine("repeat", engine{func(r engines.Request) []int32 { return r.Prompt[:min(len(r.Prompt), r.Sampling.MaxTokens)] }}),
	agentfly.WithEngineFactory("script", "says the job's replies, one a turn", newScript),
}

// newScript makes the engine of a job that says engine: {kind: script, params: {replies: […]}}.
func newScript(_ context.Context, s engines.Setup) (engines.Engine, error) {
	var p struct {
		Replies []string `json:"replies"`
	}
	if err := resources.Decode(s.Params, &p); err != nil {
		return nil, err
	}
	if len(p.Replies) == 0 {
		return nil, errors.New("there are no replies")
	}
	return engine{func(r engines.Request) []int32 {
		turn := 0
		for _, m := range r.Messages {
			if m.Role == "assistant" {
				turn++
			}
		}
		ids := s.Encode(p.Replies[min(turn, len(p.Replies)-1)])
		if len(r.Sampling.StopIDs) > 0 {
			ids = append(ids, r.Sampling.StopIDs[0])
		}
		return ids
	}}, nil
}

// engine samples without a model: reply says what it answers. It takes no weights, so it serves rollout and eval.
type engine struct{ reply func(engines.Request) []int32 }

func (e engine) Generate(_ context.Context, r engines.Request) (engines.Completion, error) {
	ids := e.reply(r)
	return engines.Completion{TokenIDs: ids, Logprobs: make([]float32, len(ids)), Versions: make([]int32, len(ids)), FinishReason: trajectory.FinishStop}, nil
}

func (engine) Update(context.Context, engines.Weights) error {
	return errors.New("this engine takes no weights")
}

func (engine) Capabilities() engines.Capabilities {
	return engines.Capabilities{TokenIDs: true, MaxModelLen: 4096}
}

func (engine) Close() error { return nil }
