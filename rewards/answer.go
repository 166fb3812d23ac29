package rewards

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

type finalAnswerParams struct {
	Field        string `json:"field"`         // of the task that holds the right answer; default answer
	RequireTool  bool   `json:"require_tool"`  // the answer counts only in a turn after a successful call's observation
	Tool         string `json:"tool"`          // with require_tool: only calls of this tool count
	RequireSteps bool   `json:"require_steps"` // the answer counts only after calls returned every result in the field steps
	Steps        string `json:"steps"`         // of the task that holds the list of needed results; default steps
}

var _ = declareReward("final_answer", newFinalAnswer, "1 when the final answer equals the task's, numbers by value, text without case; else 0")

// newFinalAnswer makes final_answer: 1 when the trajectory's final answer equals the task's, else 0. Numbers compare
// by value (936, 936.0 and "936"), other texts without regard to case and outer space.
func newFinalAnswer(_ *Builder, params map[string]any) (Reward, error) {
	p := finalAnswerParams{Field: "answer", Steps: "steps"}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	if p.Tool != "" && !p.RequireTool {
		return nil, fmt.Errorf("the parameter tool needs require_tool: true")
	}
	return needs(func(task trajectory.Task) error {
		_, err := field(task, p.Field)
		if err == nil && p.RequireSteps {
			_, err = neededResults(task, p.Field, p.Steps)
		}
		return err
	}, NewFunc("final_answer", func(_ context.Context, in Input) (float64, error) {
		want, err := field(in.Task, p.Field)
		if err != nil {
			return 0, err
		}
		got, turn := in.Trajectory.FinalAnswer()
		if turn < 0 || !Equal(got, want) || p.RequireTool && !observed(in.Trajectory.Turns[:turn], p.Tool) {
			return 0, nil
		}
		if !p.RequireSteps {
			return 1, nil
		}
		needed, err := neededResults(in.Task, p.Field, p.Steps)
		if err != nil {
			return 0, err
		}
		for _, want := range needed {
			if !returned(in.Trajectory.Turns[:turn], want) {
				return 0, nil
			}
		}
		return 1, nil
	})), nil
}

// observed reports whether a call succeeded in one of the turns; tool "" is any.
func observed(turns []trajectory.Turn, tool string) bool {
	for _, t := range turns {
		for _, r := range t.Results {
			if !r.Failed && (tool == "" || r.Call.Name == tool) {
				return true
			}
		}
	}
	return false
}

type rightCallParams struct {
	Field string `json:"field"` // of the task that holds the right answer; default answer
	Steps string `json:"steps"` // of the task that holds the list of needed results; default steps
}

var _ = declareReward("right_call", newRightCall, "share of the needed results that a call returned")

// newRightCall makes right_call: the share of the results that the task needs which some successful call returned. The
// needed results are the task's field steps where it has one, else its answer alone. It says nothing about the final
// answer: give it a small weight.
func newRightCall(_ *Builder, params map[string]any) (Reward, error) {
	p := rightCallParams{Field: "answer", Steps: "steps"}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	return needs(func(task trajectory.Task) error {
		_, err := neededResults(task, p.Field, p.Steps)
		return err
	}, NewFunc("right_call", func(_ context.Context, in Input) (float64, error) {
		needed, err := neededResults(in.Task, p.Field, p.Steps)
		if err != nil {
			return 0, err
		}
		found := 0
		for _, want := range needed {
			if returned(in.Trajectory.Turns, want) {
				found++
			}
		}
		return float64(found) / float64(len(needed)), nil
	})), nil
}

func neededResults(task trajectory.Task, answerField, stepsField string) ([]string, error) {
	steps, ok := task.Fields[stepsField]
	if !ok {
		want, err := field(task, answerField)
		return []string{want}, err
	}
	list, ok := steps.([]any)
	if !ok || len(list) == 0 {
		return nil, fmt.Errorf("task %q: the field %q must be a list of results that is not empty", task.ID, stepsField)
	}
	out := make([]string, len(list))
	for i, v := range list {
		s, ok := scalar(v)
		if !ok {
			return nil, fmt.Errorf("task %q: %s[%d] must be a string or a number", task.ID, stepsField, i)
		}
		out[i] = s
	}
	return out, nil
}

// found tells whether a result is what a tool found. That of an answering tool is the answer, which the policy wrote.
func found(r trajectory.ToolResult) bool { return !r.Failed && !r.Terminal }

func returned(turns []trajectory.Turn, want string) bool {
	for _, t := range turns {
		for _, r := range t.Results {
			if found(r) && Equal(r.Observation, want) {
				return true
			}
		}
	}
	return false
}

var _ = declareReward("format", newFormat, "share of turns with a call or an answer and nothing unreadable; 0 without a final answer")

// newFormat makes format: the share of the turns that hold a call or an answer and no call that cannot be read; 0 when
// the trajectory gave no final answer or has no turn.
func newFormat(_ *Builder, params map[string]any) (Reward, error) {
	if err := resources.Decode(params, &struct{}{}); err != nil {
		return nil, err
	}
	return NewFunc("format", func(_ context.Context, in Input) (float64, error) {
		if _, turn := in.Trajectory.FinalAnswer(); turn < 0 {
			return 0, nil
		}
		right := 0
		for _, t := range in.Trajectory.Turns {
			if t.ParseErrors == 0 && (len(t.Results) > 0 || t.AnsweredThisTurn) {
				right++
			}
		}
		return float64(right) / float64(len(in.Trajectory.Turns)), nil
	}), nil
}

func field(task trajectory.Task, name string) (string, error) {
	v, ok := task.Fields[name]
	if !ok {
		return "", fmt.Errorf("task %q has no field %q; add the column to the data or name another one", task.ID, name)
	}
	s, ok := scalar(v)
	if !ok {
		return "", fmt.Errorf("task %q: the field %q must be a string or a number", task.ID, name)
	}
	return s, nil
}

func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return string(v), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	case int:
		return strconv.Itoa(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case bool:
		return strconv.FormatBool(v), true
	default:
		return "", false
	}
}

// numberPattern is a decimal, with commas between groups of three digits or without, or a fraction. Its exponent has three digits
// at most: big.Rat would write out 1e1000000.
var numberPattern = regexp.MustCompile(`^[+-]?((\d{1,3}(,\d{3})+|\d+)(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?(/\d+)?$`)

const maxNumber = 10000 // characters

// Equal reports whether an answer is the right one: by value when both are numbers, else as text without regard to
// case and outer space.
func Equal(got, want string) bool {
	got, want = strings.TrimSpace(got), strings.TrimSpace(want)
	a, okA := parseNumber(got)
	b, okB := parseNumber(want)
	if okA && okB {
		return a.Cmp(b) == 0
	}
	return strings.EqualFold(got, want)
}

func parseNumber(s string) (*big.Rat, bool) {
	s = strings.ReplaceAll(s, "−", "-")
	if len(s) > maxNumber || !numberPattern.MatchString(s) {
		return nil, false
	}
	numerator, denominator, isFraction := strings.Cut(strings.ReplaceAll(s, ",", ""), "/")
	v, ok := new(big.Rat).SetString(numerator)
	if !ok || !isFraction {
		return v, ok
	}
	d, ok := new(big.Rat).SetString(denominator)
	if !ok || d.Sign() == 0 {
		return nil, false
	}
	return v.Quo(v, d), true
}
