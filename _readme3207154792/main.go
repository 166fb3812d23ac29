package main

import (
	"context"
	"strings"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
)

type args struct {
	City string `json:"city" doc:"name of the city"`
}

func main() {
	weather := tools.NewFunc("weather", "Weather of a city.", func(_ context.Context, a args) (string, error) {
		return "sunny in " + a.City, nil
	})
	polite := rewards.NewFunc("polite", func(_ context.Context, in rewards.Input) (float64, error) {
		answer, _ := in.Trajectory.FinalAnswer()
		if strings.Contains(answer, "please") {
			return 1, nil
		}
		return 0, nil
	})
	agentfly.Main(agentfly.WithTool(weather), agentfly.WithReward(polite))
}
