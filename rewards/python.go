package rewards

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/python"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

// pythonReward is a function of a Python file that carries @reward.
type pythonReward struct {
	module    *python.Module
	function  python.Function
	arguments pythonArguments
}

// pythonArguments is what the function's signature says.
type pythonArguments struct {
	Properties map[string]pythonHint `json:"properties"`
	Required   []string              `json:"required"`
	Open       bool                  `json:"additionalProperties"` // it takes the fields of the task that it does not name (**kwargs)
}

// pythonHint is the schema of one argument.
type pythonHint struct {
	Type  any          `json:"type"` // a name or several
	AnyOf []pythonHint `json:"anyOf"`
}

// isList tells whether the hint is a list, or a list and None, as that of an argument whose default is None.
func (h pythonHint) isList() bool {
	several, _ := h.Type.([]any)
	return h.Type == "array" || slices.Contains(several, any("array")) || slices.ContainsFunc(h.AnyOf, pythonHint.isList)
}

// newPython makes the reward {python: FILE, name: FUNCTION}, with the parameters that a file has in agent.tools.
func newPython(b *Builder, name string, params map[string]any) (Reward, error) {
	var p resources.PythonFile
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	m, err := b.Resources.LoadPython(b.Context, p)
	if err != nil {
		return nil, err
	}
	return PythonReward(m, name)
}

// PythonReward is a reward of a loaded file. It does not close it.
func PythonReward(m *python.Module, name string) (Reward, error) {
	var names []string
	for _, f := range m.Functions() {
		if f.Kind != "reward" {
			continue
		}
		names = append(names, f.Name)
		if f.Name != name {
			continue
		}
		r := pythonReward{module: m, function: f}
		if err := json.Unmarshal(f.Parameters, &r.arguments); err != nil {
			return nil, fmt.Errorf("the arguments of %s cannot be read: %w", name, err)
		}
		return r, nil
	}
	if len(names) == 0 {
		return nil, errors.New("the file decorates no function with @reward; write from agentfly import reward, and @reward() above a function")
	}
	return nil, fmt.Errorf("the file has no reward %q%s; its rewards are %s", name, wording.DidYouMean(name, names), strings.Join(names, ", "))
}

func (r pythonReward) Name() string { return r.function.Name }

func (r pythonReward) Score(ctx context.Context, in Input) (Score, error) {
	arguments, err := r.match(in)
	if err != nil {
		return Score{}, err
	}
	var metadata json.RawMessage
	if r.function.Context {
		if metadata, err = json.Marshal(in.Task.Fields); err != nil {
			return Score{}, fmt.Errorf("the fields of task %q cannot be sent: %w", in.Task.ID, err)
		}
	}
	own := ctx
	if r.function.Timeout > 0 {
		var cancel context.CancelFunc
		own, cancel = context.WithTimeout(ctx, r.function.Timeout)
		defer cancel()
	}
	id := ""
	if in.Trajectory != nil {
		id = in.Trajectory.ID
	}
	if r.function.Stateful && !r.module.Keeps(id) { // no tool ends what the reward begins
		defer r.module.End(id)
	}
	call := python.Call{Name: r.function.Name, Trajectory: id, Arguments: arguments, Metadata: metadata}
	if e, ok := in.Episode.(Answerer); ok && slices.Contains(r.function.Arguments, "environment") {
		call.Environment = e.Ask
	}
	result, err := r.module.Do(own, call)
	var broken *python.BrokenError
	if errors.As(err, &broken) && broken.Detail != "" {
		return Score{}, fmt.Errorf("%w: %s", err, broken.Detail)
	}
	if err != nil && own.Err() != nil && ctx.Err() == nil {
		return Score{}, fmt.Errorf("no score after %s, the timeout of its decorator", r.function.Timeout)
	}
	if err != nil {
		return Score{}, err
	}
	return readScore(result)
}

// match gives every argument its value by name.
func (r pythonReward) match(in Input) (json.RawMessage, error) {
	known := knownArguments(in)
	out := map[string]any{}
	for name, p := range r.arguments.Properties {
		if special, ok := known[name]; ok {
			v := special()
			if t, is := v.(map[string]any); is && name == "trajectory" && p.isList() {
				v = t["messages"] // AgentFly's is a list of messages
			}
			out[name] = v
		} else if v, ok := in.Task.Fields[name]; ok {
			out[name] = v
		}
	}
	for _, name := range r.arguments.Required {
		if _, ok := out[name]; !ok {
			return nil, fmt.Errorf("the argument %s is no field of task %q; known are %s, and its fields %s", name, in.Task.ID,
				strings.Join(slices.Sorted(maps.Keys(known)), ", "), cmp.Or(strings.Join(slices.Sorted(maps.Keys(in.Task.Fields)), ", "), "(none)"))
		}
	}
	if r.arguments.Open {
		for name, v := range in.Task.Fields {
			if _, ok := out[name]; !ok {
				out[name] = v
			}
		}
	}
	data, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("the arguments cannot be sent: %w", err)
	}
	return data, nil
}

// knownArguments are those that every reward may name; they go before fields of the task with the same name.
func knownArguments(in Input) map[string]func() any {
	t := in.Trajectory
	if t == nil {
		t = &trajectory.Trajectory{}
	}
	final := func() any { return finalResponse(t) }
	return map[string]func() any{
		"final_response": final,
		"prediction":     final,
		"trajectory":     func() any { return describeTrajectory(in.Task, t) },
		"messages":       func() any { return messages(in.Task, t) },
		"task": func() any {
			return map[string]any{"id": in.Task.ID, "prompt": in.Task.Prompt, "fields": in.Task.Fields}
		},
		"environment": func() any { return nil },
	}
}

// finalResponse is the final answer, or, where the agent gave none, what it wrote last, unless a token limit cut that.
func finalResponse(t *trajectory.Trajectory) string {
	answer, turn := t.FinalAnswer()
	if last := t.Last(); turn < 0 && last >= 0 && !t.Cut() {
		answer = t.Turns[last].Completion
	}
	return answer
}

// describeTrajectory is the argument trajectory.
func describeTrajectory(task trajectory.Task, t *trajectory.Trajectory) map[string]any {
	turns, results := []any{}, []any{}
	for _, turn := range t.Turns {
		own := []any{}
		for _, r := range turn.Results {
			own = append(own, map[string]any{
				"name": r.Call.Name, "arguments": callOf(r).Arguments, "observation": r.Observation, "failed": r.Failed, "broken": r.Cause == trajectory.CauseBroken,
				"seconds": r.Duration.Seconds(),
			})
		}
		results = append(results, own...)
		turns = append(turns, map[string]any{
			"completion": turn.Completion, "finish_reason": turn.FinishReason, "parse_errors": turn.ParseErrors, "results": own,
		})
	}
	var answer any
	if text, turn := t.FinalAnswer(); turn >= 0 {
		answer = text
	}
	return map[string]any{
		"id": t.ID, "task_id": task.ID, "step": t.Step, "messages": messages(task, t), "turns": turns, "results": results,
		"answer": answer, "final_response": finalResponse(t), "stop_reason": t.StopReason, "tokens": t.ResponseTokens(),
	}
}

// messages are the task's and those of the turns, in OpenAI's form.
func messages(task trajectory.Task, t *trajectory.Trajectory) []trajectory.Message {
	out := slices.Clone(task.Prompt)
	if out == nil {
		out = []trajectory.Message{}
	}
	for _, turn := range t.Turns {
		m := trajectory.Text("assistant", turn.Completion)
		var observed []trajectory.Message
		for _, r := range turn.Results {
			call := callOf(r)
			m.ToolCalls = append(m.ToolCalls, call)
			o := trajectory.Text("tool", r.Observation)
			o.Name, o.ToolCallID = call.Name, call.ID
			observed = append(observed, o)
		}
		out = append(append(out, m), observed...)
	}
	return out
}

// callOf is the call of a result, without arguments that are no JSON: what the model wrote is in the completion.
func callOf(r trajectory.ToolResult) trajectory.ToolCall {
	call := r.Call
	if !json.Valid(call.Arguments) {
		call.Arguments = json.RawMessage("{}")
	}
	return call
}

// readScore reads a number, or an object with reward and further numbers.
func readScore(result json.RawMessage) (Score, error) {
	var v any
	if err := json.Unmarshal(result, &v); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			return Score{}, fmt.Errorf("it returned the %s; return numbers from -%g to %[2]g", wording.Clip(kind.Value, 40), math.MaxFloat64)
		}
		return Score{}, fmt.Errorf("the result cannot be read: %s", wording.JSONReason(err))
	}
	if n, ok := scoreNumber(v); ok {
		return Score{Value: n}, nil
	}
	m, ok := v.(map[string]any)
	value, isNumber := scoreNumber(m["reward"])
	if !ok || !isNumber {
		return Score{}, fmt.Errorf("it returned %s; return a number, or a dict whose reward is a number", wording.Clip(string(result), 80))
	}
	s := Score{Value: value}
	for name, part := range m {
		if n, ok := scoreNumber(part); ok && name != "reward" { // texts are for people
			if s.Parts == nil {
				s.Parts = map[string]float64{}
			}
			s.Parts[name] = n
		}
	}
	return s, nil
}

func scoreNumber(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}
