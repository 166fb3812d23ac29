// Custom is agentfly with a tool, a reward, a format of calls, an advantage estimator and a loss of its own, in a Go module outside the repository: copy this folder
// and remove the replace line of go.mod. Build it with libtorch: agentfly build .
package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/agentfly/agentfly"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
)

func main() { agentfly.Main(options()...) }

// options are what this binary adds to what job files can name.
func options() []agentfly.Option {
	return []agentfly.Option{
		agentfly.WithTool(letters()), agentfly.WithReward(brevity()), agentfly.WithFormatFactory("words", "compute EXPRESSION, or say ANSWER", newWords),
		agentfly.WithEstimator(medianSpec()), agentfly.WithLoss(ratioSpec()),
	}
}

// lettersArgs are the arguments of the tool; the JSON schema that the model sees is made of them.
type lettersArgs struct {
	Word   string `json:"word" doc:"the word to look at"`
	Letter string `json:"letter" doc:"one letter"`
}

// letters is a tool: it counts a letter in a word. An error becomes an observation that tells the model what to do.
func letters() tools.Tool {
	return tools.NewFunc("letters", "Counts how often a letter occurs in a word.",
		func(_ context.Context, a lettersArgs) (string, error) {
			if len([]rune(a.Letter)) != 1 {
				return "", fmt.Errorf("letter must be one letter, got %q", a.Letter)
			}
			return fmt.Sprint(strings.Count(strings.ToLower(a.Word), strings.ToLower(a.Letter))), nil
		})
}

// brevity is a reward: 1 for a trajectory of at most 4 sampled tokens, less for a longer one.
func brevity() rewards.Reward {
	return rewards.NewFunc("brevity", func(_ context.Context, in rewards.Input) (float64, error) {
		tokens := 0
		for _, s := range in.Trajectory.Samples {
			tokens += s.ResponseTokens()
		}
		return 4 / float64(max(tokens, 4)), nil
	})
}
