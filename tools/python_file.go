package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/python"
	"github.com/agentfly/agentfly/resources"
)

// pythonTool is a function of a Python file that carries @tool.
type pythonTool struct {
	module   *python.Module
	function python.Function
}

var (
	_ Tool  = pythonTool{}
	_ Ender = pythonTool{}
)

// PythonFile is the source {python: FILE, runtime: auto, interpreter: python3, sandboxed: false, show: [PATH], workers: N, memory: MIB}: every function
// of the file that carries @tool.
func PythonFile(ctx context.Context, r *resources.Resources, params map[string]any) ([]Tool, error) {
	var p resources.PythonFile
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	m, err := r.LoadPython(ctx, p)
	if err != nil {
		return nil, err
	}
	all := PythonTools(m)
	if len(all) == 0 {
		return nil, fmt.Errorf("%s decorates no function with @tool; write from agentfly import tool, and @tool() above a function", p.Python)
	}
	return all, nil
}

// PythonTools are the tools of a loaded file. They do not close it.
func PythonTools(m *python.Module) []Tool {
	var all []Tool
	for _, f := range m.Functions() {
		if f.Kind == "tool" {
			all = append(all, pythonTool{m, f})
		}
	}
	return all
}

func (t pythonTool) Spec() Spec {
	f := t.function
	return Spec{
		Name: f.Name, Description: f.Description, Parameters: f.Parameters,
		Limits:   Limits{Timeout: f.Timeout, MaxTokens: f.MaxTokens, Concurrency: f.Concurrency},
		Terminal: f.Terminal, Idempotent: f.Idempotent, Deterministic: f.Deterministic, Stateful: f.Stateful, Environment: f.Environment,
		Replays: f.Stateful && f.Deterministic && f.Environment == "",
	}
}

func (t pythonTool) Call(ctx context.Context, c Call) (Observation, error) {
	result, err := t.module.Do(ctx, python.Call{Name: t.function.Name, Trajectory: c.Trajectory, Arguments: c.Arguments, Environment: c.Environment})
	var broken *python.BrokenError
	if errors.As(err, &broken) {
		return Observation{}, &BrokenError{Text: broken.Text}
	}
	if err != nil {
		return Observation{}, err
	}
	o, err := observation(result)
	o.Text = firstRunes(o.Text, t.function.MaxLength)
	return o, err
}

// End forgets what the function keeps of a trajectory.
func (t pythonTool) End(trajectory string) {
	if t.function.Stateful {
		t.module.End(trajectory)
	}
}

// observation reads what a function returned: a string is the text; a dict with observation is text, image and what else it holds;
// None is the empty text; anything else is its JSON, with the keys in the function's order.
func observation(result json.RawMessage) (Observation, error) {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(result, &members) // nil: no dict
	inner, has := members["observation"]
	if !has {
		text, err := asText(result)
		return Observation{Text: text}, err
	}
	text, err := asText(inner)
	if err != nil {
		return Observation{}, err
	}
	var info map[string]any
	d := json.NewDecoder(bytes.NewReader(result))
	d.UseNumber()
	if err := d.Decode(&info); err != nil {
		return Observation{}, fmt.Errorf("the result cannot be read: %s", wording.JSONReason(err))
	}
	o := Observation{Text: text}
	delete(info, "observation")
	if image, given := info["image"]; given && image != nil {
		var ok bool
		if o.Image, ok = image.(string); !ok {
			return Observation{}, errors.New("the image must be a URL, bytes or a PIL image")
		}
	}
	delete(info, "image")
	if len(info) > 0 {
		o.Info = info
	}
	return o, nil
}

// asText is a string, nothing of null, and of anything else its JSON without spaces.
func asText(v json.RawMessage) (string, error) {
	var text *string
	if json.Unmarshal(v, &text) == nil {
		if text == nil {
			return "", nil
		}
		return *text, nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, v); err != nil {
		return "", fmt.Errorf("the result cannot be read: %s", wording.JSONReason(err))
	}
	return b.String(), nil
}

// firstRunes is AgentFly's max_length; 0 keeps all.
func firstRunes(s string, n int) string {
	if n <= 0 || utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n])
}
