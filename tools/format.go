package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/trajectory"
)

// Format is the way in which a model writes calls and its final answer, and reads observations. It knows the tools it
// was made for. A Format has no state; all methods are safe for concurrent use.
type Format interface {
	Name() string
	// Instructions describe the tools and the format in words, for a system prompt whose template ignores `tools`.
	Instructions() string
	// Parse reads a completion. It never fails: what cannot be read becomes Parsed.Errors.
	Parse(completion string) Parsed
	// Observe writes the results of a turn, in their order, as the messages that the model reads next.
	Observe(results []trajectory.ToolResult) []trajectory.Message
	// Stops are the strings after which nothing in a completion is read; an engine may stop there. None is fine.
	Stops() []string
}

// Parsed is what a completion asks for. At most one of Calls and HasAnswer is set: an answer beside a call, or beside
// a call that cannot be read, was not given after its observation and does not count.
type Parsed struct {
	Calls     []trajectory.ToolCall
	Answer    string
	HasAnswer bool
	Errors    []string // one for each call that cannot be read: what is wrong and how to do it right
}

// Failures are the errors as results, for Format.Observe.
func (p Parsed) Failures() []trajectory.ToolResult {
	out := make([]trajectory.ToolResult, len(p.Errors))
	for i, e := range p.Errors {
		out[i] = trajectory.ToolResult{Observation: "Error: " + e, Failed: true, Cause: trajectory.CauseParse}
	}
	return out
}

// FormatOptions adjust a format.
type FormatOptions struct {
	ObservationRole string // of the message that carries results; empty is the format's own: tags user, hermes tool
}

// FormatNames are the names that NewFormat knows.
func FormatNames() []string { return []string{"hermes", "tags"} }

// NewFormat returns a format by name for the given tools.
func NewFormat(name string, specs []Spec, o FormatOptions) (Format, error) {
	switch name {
	case "hermes":
		return newHermes(specs, o)
	case "tags":
		return newTags(specs, o)
	default:
		return nil, fmt.Errorf("tools: there is no format %q%s; the formats are %s", name, suggest(name, FormatNames()),
			strings.Join(FormatNames(), ", "))
	}
}

// afterThinking leaves out what a thinking model wrote between <think> and </think>: calls in it are drafts. A block
// that is not closed leaves nothing.
func afterThinking(completion string) string {
	if _, after, found := strings.Cut(completion, "</think>"); found {
		return after
	}
	if strings.HasPrefix(strings.TrimSpace(completion), "<think>") {
		return ""
	}
	return completion
}

// OpenAI writes specs as OpenAI's `tools` array.
func OpenAI(specs []Spec) ([]byte, error) {
	type function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	type tool struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	out := make([]tool, len(specs))
	for i, s := range specs {
		out[i] = tool{"function", function{s.Name, s.Description, s.Parameters}}
	}
	return marshal(out)
}

// marshal writes JSON without escaping < > &, which a model would read as text.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("tools: %w", err)
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

func specNames(specs []Spec) []string {
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = s.Name
	}
	slices.Sort(names)
	return names
}
