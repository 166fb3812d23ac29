package agents

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/python"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

var _ = declareKind(Kind{Name: Custom, Description: "a format of a Go program or of a Python file"})

// pythonFormat is a format that a Python file defines with functions that carry @agent:
//
//	parse(completion) -> {"calls": [{"name": …, "arguments": {…}}], "answer": …, "errors": […]}, each of the three may be missing
//	observe(results) -> a string, or [{"role": …, "content": …}], for results [{"name", "arguments", "observation", "failed"}]
//	instructions(tools) -> a string, with OpenAI's schemas; may be missing
//	stops() -> [a string]; may be missing
type pythonFormat struct {
	file         string
	module       *python.Module
	role         string
	instructions string
	stops        []string
}

var _ Format = (*pythonFormat)(nil)

// NewPythonFormat loads the file's agent. Its workers are those of the file's tools and rewards, and are closed with r.
func NewPythonFormat(ctx context.Context, r *resources.Resources, file string, specs []tools.Spec, o FormatOptions) (Format, error) {
	m, err := r.LoadPython(ctx, resources.PythonFile{Python: file})
	if err != nil {
		return nil, err
	}
	f := &pythonFormat{file: filepath.Base(file), module: m, role: cmp.Or(o.ObservationRole, "user")}
	var names []string
	for _, c := range m.Functions() {
		if c.Kind == "agent" {
			names = append(names, c.Name)
		}
	}
	for _, name := range []string{"parse", "observe"} {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("%s has no function %s that carries @agent; write parse(completion) and observe(results)", f.file, name)
		}
	}
	if slices.Contains(names, "instructions") {
		schemas, err := tools.OpenAI(specs)
		if err != nil {
			return nil, err
		}
		if err := f.call(ctx, "instructions", map[string]any{"tools": json.RawMessage(schemas)}, &f.instructions); err != nil {
			return nil, err
		}
	}
	if slices.Contains(names, "stops") {
		if err := f.call(ctx, "stops", map[string]any{}, &f.stops); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *pythonFormat) Instructions() string { return f.instructions }

func (f *pythonFormat) Stops() []string { return f.stops }

// call runs a function and reads what it returns, strictly.
func (f *pythonFormat) call(ctx context.Context, name string, arguments map[string]any, into any) error {
	data, err := wording.JSON(arguments)
	if err != nil {
		return err
	}
	out, err := f.module.Call(ctx, name, "", data)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", f.file, name, err)
	}
	d := json.NewDecoder(bytes.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%s: %s returned %s, which cannot be read: %s", f.file, name, line(string(out)), wording.JSONReason(err))
	}
	return nil
}

// Parse calls the file's parse.
func (f *pythonFormat) Parse(ctx context.Context, completion string) (Parsed, error) {
	var out struct {
		Calls []struct {
			ID        string          `json:"id"`
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"calls"`
		Answer json.RawMessage `json:"answer"`
		Errors []string        `json:"errors"`
	}
	if err := f.call(ctx, "parse", map[string]any{"completion": completion}, &out); err != nil {
		return Parsed{}, err
	}
	p := Parsed{}
	for _, e := range out.Errors {
		p.Errors = append(p.Errors, strings.Join(strings.Fields(e), " "))
	}
	for _, c := range out.Calls {
		arguments, ok := object(c.Arguments)
		if c.Name == "" || !ok {
			return Parsed{}, fmt.Errorf("%s: parse returned a call without a name, or whose arguments are no dict", f.file)
		}
		p.Calls = append(p.Calls, trajectory.ToolCall{ID: c.ID, Name: c.Name, Arguments: arguments})
	}
	if len(out.Answer) == 0 || string(out.Answer) == "null" || len(p.Calls) > 0 || len(p.Errors) > 0 {
		return p, nil
	}
	p.HasAnswer = true
	if json.Unmarshal(out.Answer, &p.Answer) != nil { // a number, say
		p.Answer = string(out.Answer)
	}
	return p, nil
}

// Observe calls the file's observe.
func (f *pythonFormat) Observe(ctx context.Context, results []trajectory.ToolResult) ([]trajectory.Message, error) {
	type result struct {
		Name        string          `json:"name"`
		Arguments   json.RawMessage `json:"arguments"`
		Observation string          `json:"observation"`
		Failed      bool            `json:"failed"`
	}
	in := make([]result, len(results))
	for i, r := range results {
		in[i] = result{r.Call.Name, r.Call.Arguments, r.Observation, r.Failed}
		if len(r.Call.Arguments) == 0 {
			in[i].Arguments = json.RawMessage("{}")
		}
	}
	var raw json.RawMessage
	if err := f.call(ctx, "observe", map[string]any{"results": in}, &raw); err != nil {
		return nil, err
	}
	var text string
	if json.Unmarshal(raw, &text) == nil && len(raw) > 0 && raw[0] == '"' {
		return []trajectory.Message{trajectory.Text(f.role, text)}, nil
	}
	var out []trajectory.Message
	if json.Unmarshal(raw, &out) != nil || len(out) == 0 {
		return nil, fmt.Errorf("%s: observe returned %s; return a string, or a list of {\"role\": …, \"content\": …}", f.file, line(string(raw)))
	}
	for i := range out {
		out[i].Role = cmp.Or(out[i].Role, f.role)
	}
	return out, nil
}
