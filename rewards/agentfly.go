package rewards

import (
	"context"
	"strings"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/rewards/mathequal"
	"github.com/agentfly/agentfly/trajectory"
)

// declareAgentFly declares a reward of AgentFly (agentfly/rewards of its public code) under its name there, so that its jobs can name it. The
// final_response is the final answer, or the last completion where there is none; a tool counts as used by calls that ran, other than of the
// tool that answers. Where theirs reads its arguments from the task, the parameter field names the field.
func declareAgentFly(name, defaultField, description string, score func(response string, golds []string, t *trajectory.Trajectory) Score) struct{} {
	return declareReward(name, func(_ *Builder, params map[string]any) (Reward, error) {
		p := goldParams{Field: defaultField}
		if err := resources.Decode(params, &p); err != nil {
			return nil, err
		}
		return needsAnswers(p.Field, NewFuncParts(name, func(_ context.Context, in Input) (Score, error) {
			golds, err := rightAnswers(in.Task, p.Field)
			if err == nil && name == "infoseek_reward" && in.Task.Fields["answer_eval"] != nil {
				var more []string
				more, err = rightAnswers(in.Task, "answer_eval")
				golds = append(golds, more...)
			}
			if err != nil {
				return Score{}, err
			}
			return score(finalResponse(in.Trajectory), golds, in.Trajectory), nil
		})), nil
	}, description)
}

var (
	_ = declareAgentFly("qa_f1_reward", "answer", "f1 of the field answer; parts f1, em, precision, recall", func(r string, golds []string, _ *trajectory.Trajectory) Score { return qaScore(r, golds, true) })
	_ = declareAgentFly("qa_f1_reward_tool", "answer", "qa_f1_reward where a tool was used, else 0", func(r string, golds []string, t *trajectory.Trajectory) Score {
		return qaScore(r, golds, usedTools(t))
	})
	_ = declareAgentFly("qa_em_reward", "golden_answers", "exact match of the final answer with one of golden_answers; of what <answer>…</answer> holds in it, and without one in the last completion", func(r string, golds []string, t *trajectory.Trajectory) Score { return emScore(r, golds, t, false) })
	_ = declareAgentFly("qa_em_format_reward", "golden_answers", "1 right, 0.1 wrong, in the right form: <answer>, a tool used, <think> in every turn but the last; else 0", func(r string, golds []string, t *trajectory.Trajectory) Score { return emScore(r, golds, t, true) })
	_ = declareAgentFly("qa_em_reward_tool_call", "golden_answers", "exact match of the answer given by a tool, or of all", func(r string, golds []string, _ *trajectory.Trajectory) Score {
		em := bestMatch(r, golds)
		return Score{em, map[string]float64{"em": em, "f1": bestOverlap(r, golds).f1}}
	})
	_ = declareAgentFly("ok_vqa_reward", "answers", "the largest F1 over answers", func(r string, golds []string, _ *trajectory.Trajectory) Score {
		return Score{Value: bestOverlap(r, golds).f1}
	})
	_ = declareAgentFly("infoseek_reward", "answer", "0.2 where a tool was used + 0.8 * the largest F1 over answer and answer_eval", func(r string, golds []string, t *trajectory.Trajectory) Score {
		return Score{Value: 0.2*truth(usedTools(t)) + 0.8*bestOverlap(r, golds).f1}
	})
	_ = declareAgentFly("math_equal_reward", "answer", "math_equal of the last \\boxed{…}, or of all", func(r string, golds []string, _ *trajectory.Trajectory) Score {
		return Score{Value: truth(sameMath(mathequal.Answers(r), golds, 0))}
	})
	_ = declareAgentFly("math_equal_reward_tool", "answer", "1 right, 0.1 wrong, where a tool was used; else 0", func(r string, golds []string, t *trajectory.Trajectory) Score {
		return mathScore(r, golds, usedTools(t))
	})
	_ = declareAgentFly("math_equal_reward_think", "answer", "math_equal_reward_tool where, besides, every turn holds <think>…</think>", func(r string, golds []string, t *trajectory.Trajectory) Score {
		return mathScore(r, golds, usedTools(t) && thinks(t.Own()))
	})
)

// usedTools tells whether a call other than of an answering tool ran.
func usedTools(t *trajectory.Trajectory) bool {
	for _, turn := range t.Turns {
		for _, r := range turn.Results {
			if r.Call.Name != "" && r.Cause.Ran() && !r.Terminal && !strings.HasPrefix(r.Call.Name, "answer") {
				return true
			}
		}
	}
	return false
}

func thinks(turns []trajectory.Turn) bool {
	for _, t := range turns {
		if !strings.Contains(t.Completion, "</think>") {
			return false
		}
	}
	return true
}

func qaScore(response string, golds []string, counts bool) Score {
	if !counts {
		return Score{0, map[string]float64{"f1": 0, "em": 0, "precision": 0, "recall": 0}}
	}
	o := bestOverlap(response, golds)
	return Score{o.f1, map[string]float64{"f1": o.f1, "em": bestMatch(response, golds), "precision": o.precision, "recall": o.recall}}
}

// behindThought is a completion without what stands up to the end of its thought, where an answer is a draft.
func behindThought(said string) string {
	before, thought, opened := strings.Cut(said, "<think>")
	if !opened || strings.Contains(before, "<answer>") {
		return said
	}
	_, rest, _ := strings.Cut(thought, "</think>")
	return rest
}

func emScore(response string, golds []string, t *trajectory.Trajectory, needsForm bool) Score {
	answer, within, hasTags := response, response, false // within: where the tags are looked for
	if last := t.Last(); last >= 0 && !t.Cut() {
		said := behindThought(t.Turns[last].Said())
		_, hasTags = lastTag(said, "answer")
		if _, turn := t.FinalAnswer(); turn < 0 {
			within = said
		}
	}
	if inner, found := lastTag(within, "answer"); found {
		answer = inner
	}
	em, used, own := bestMatch(answer, golds), usedTools(t), t.Own()
	think := len(own) == 0 || thinks(own[:len(own)-1])
	form := hasTags && used && think
	parts := map[string]float64{"em": em, "f1": bestOverlap(answer, golds).f1, "fmt": truth(form), "fmt_think": truth(think), "fmt_tool": truth(used)}
	switch {
	case !needsForm:
		return Score{em, parts}
	case !form:
		return Score{0, parts}
	case em == 1:
		return Score{1, parts}
	}
	return Score{0.1, parts}
}

func mathScore(response string, golds []string, counts bool) Score {
	right := counts && sameMath(mathequal.Answers(response), golds, 0)
	value := 0.0
	switch {
	case right:
		value = 1
	case counts:
		value = 0.1
	}
	return Score{value, map[string]float64{"acc": truth(right)}}
}
