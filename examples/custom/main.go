//go:build torch

// Command custom is agentfly with a tool, a reward and a loss of its own. Build it like agentfly, with libtorch:
//
//	cd examples/custom && ../../scripts/torchgo build -o ../../bin/custom .
package main

import (
	"context"
	"strings"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
	"github.com/wangkuiyi/gotorch"
)

type args struct {
	Text string `json:"text" doc:"what to write backwards"`
}

func reverse(_ context.Context, a args) (string, error) {
	runes := []rune(a.Text)
	for i, j := 0, len(runes)-1; i < j; i, j = i+1, j-1 {
		runes[i], runes[j] = runes[j], runes[i]
	}
	return string(runes), nil
}

func brief(_ context.Context, in rewards.Input) (float64, error) {
	answer, _ := in.Trajectory.FinalAnswer()
	return 1 / float64(1+strings.Count(answer, " ")), nil
}

// squared is (1 - ratio)² + reinforce's -A · current: policy gradient with a soft pull to the old policy.
type squared struct{}

func (squared) Name() string { return "squared" }

func (squared) PerToken(in algorithms.LossInput) (gotorch.Tensor, error) {
	gap := in.Affine(in.Exp(in.Sub(in.Current, in.Old)), -1, 1)
	return in.Sub(in.Mul(gap, gap), in.Mul(in.Advantage, in.Current)), in.Err()
}

func main() {
	agentfly.Main(
		agentfly.WithTool(tools.NewFunc("reverse", "Write a text backwards.", reverse)),
		agentfly.WithReward(rewards.NewFunc("brief", brief)),
		agentfly.WithLoss(algorithms.LossSpec{
			Name: "squared", Formula: "(1 - ratio)^2 - A * current", Source: "this example",
			New: func(algorithms.Settings) (algorithms.Loss, error) { return squared{}, nil },
		}),
	)
}
