package rewards

import (
	"context"
	"fmt"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/rewards/mathequal"
)

type mathEqualParams struct {
	Field     string  `json:"field"`     // of the task that holds the right answer, or a list of right ones; default answer
	Tolerance float64 `json:"tolerance"` // largest relative difference of numbers; default 0: they must be equal
	Boxed     bool    `json:"boxed"`     // only what stands in \boxed{…} counts
}

var _ = declareReward("math_equal", newMathEqual, "1 when the answer states the same mathematics as a right one; else 0")

// newMathEqual makes math_equal: 1 when the final answer states the same as a right one, by package mathequal, else 0. Of an answer in
// sentences the last \boxed{…} counts, else what follows "answer is", else its last formula or number, and one line also counts as it
// is; the part extracted is 1 where there was anything to compare.
func newMathEqual(_ *Builder, params map[string]any) (Reward, error) {
	p := mathEqualParams{Field: "answer"}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	if p.Tolerance < 0 || p.Tolerance >= 1 {
		return nil, fmt.Errorf("the parameter tolerance is %v; allowed is a number from 0 up to 1", p.Tolerance)
	}
	return needsAnswers(p.Field, NewFuncParts("math_equal", func(_ context.Context, in Input) (Score, error) {
		golds, err := rightAnswers(in.Task, p.Field)
		if err != nil {
			return Score{}, err
		}
		text, given := in.Trajectory.FinalAnswer()
		answers := mathequal.Answers(text)
		if p.Boxed {
			boxed, _ := mathequal.Boxed(text)
			answers = []string{boxed}
		}
		if given < 0 || answers[0] == "" {
			return Score{0, map[string]float64{"extracted": 0}}, nil
		}
		return Score{truth(sameMath(answers, golds, p.Tolerance)), map[string]float64{"extracted": 1}}, nil
	})), nil
}

// sameMath tells whether one of the answers is one of the right ones.
func sameMath(answers, golds []string, tolerance float64) bool {
	for _, gold := range golds {
		if boxed, ok := mathequal.Boxed(gold); ok { // a worked solution
			gold = boxed
		}
		for _, answer := range answers {
			if mathequal.Equal(answer, gold, mathequal.Options{Tolerance: tolerance}) {
				return true
			}
		}
	}
	return false
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
