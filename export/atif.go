package export

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"math"
	"time"

	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// ATIF is Harbor's Agent Trajectory Interchange Format (RFC 0001, version 1.8): a JSON document for each trajectory. A run has many: they are the lines of
// one file.

const atifVersion = "ATIF-v1.8"

var atif = Format{
	Name: "atif", Description: "the trajectories as ATIF 1.8, a document a line, for Harbor and `agentfly import`", Trajectories: true,
	File: func(r Run) string { return r.Name + ".atif.jsonl" }, Write: writeATIF,
}

type atifDocument struct {
	Version   string         `json:"schema_version"`
	Session   string         `json:"session_id,omitempty"`
	ID        string         `json:"trajectory_id,omitempty"`
	Agent     atifAgent      `json:"agent"`
	Steps     []atifStep     `json:"steps"`
	Final     *atifFinal     `json:"final_metrics,omitempty"`
	Extra     map[string]any `json:"extra,omitempty"`
	Subagents []atifDocument `json:"subagent_trajectories,omitempty"`
}

type atifAgent struct {
	Name    string            `json:"name"`
	Version string            `json:"version"`
	Model   string            `json:"model_name,omitempty"`
	Tools   []json.RawMessage `json:"tool_definitions,omitempty"`
}

type atifStep struct {
	ID      int              `json:"step_id"`
	Source  string           `json:"source"`
	Message atifContent      `json:"message"`
	Thought string           `json:"reasoning_content,omitempty"`
	Calls   []atifCall       `json:"tool_calls,omitempty"`
	Seen    *atifObservation `json:"observation,omitempty"`
	Metrics *atifMetrics     `json:"metrics,omitempty"`
	Copied  bool             `json:"is_copied_context,omitempty"`
	LLM     *int             `json:"llm_call_count,omitempty"`
	Extra   map[string]any   `json:"extra,omitempty"`
}

type atifCall struct {
	ID        string          `json:"tool_call_id"`
	Name      string          `json:"function_name"`
	Arguments json.RawMessage `json:"arguments"` // an object
}

type atifObservation struct {
	Results []atifResult `json:"results"`
}

type atifResult struct {
	Call    *string        `json:"source_call_id,omitempty"`
	Content atifContent    `json:"content"`
	Extra   map[string]any `json:"extra,omitempty"`
}

type atifMetrics struct {
	Prompt     int       `json:"prompt_tokens"`
	Completion int       `json:"completion_tokens"`
	Cached     int       `json:"cached_tokens"`
	IDs        []int32   `json:"completion_token_ids,omitempty"`
	Logprobs   []float32 `json:"logprobs,omitempty"`
}

// atifFinal is what the trajectory itself used. Its steps have the tokens that it shares with other branches of a tree too.
type atifFinal struct {
	Prompt     int `json:"total_prompt_tokens"`
	Completion int `json:"total_completion_tokens"`
	Cached     int `json:"total_cached_tokens"`
	Steps      int `json:"total_steps"`
}

// atifContent is a text, or a list of parts.
type atifContent string

// written marks a step whose message has the calls in it, as the model wrote them: to learn from it, the calls beside the message are left out.
const written = "agentfly_calls_in_message"

func writeATIF(ctx context.Context, to io.Writer, r Run) error {
	w := bufio.NewWriter(to)
	e := json.NewEncoder(w)
	if err := r.Trajectories(ctx, func(record store.Record) error { return e.Encode(atifOf(record, r)) }); err != nil {
		return err
	}
	return w.Flush()
}

func atifOf(record store.Record, r Run) atifDocument {
	t := record.Trajectory
	d := atifDocument{
		Version: atifVersion, Session: r.Name, ID: t.ID, Agent: atifAgent{Name: "agentfly", Version: "1", Model: r.Model}, Final: &atifFinal{},
		Extra: map[string]any{
			"phase": record.Phase, "step": t.Step, "group": t.Group, "index": t.Index, "task": t.TaskID, "stop_reason": t.StopReason,
			"seconds": number(t.Seconds),
		},
	}
	paid, parts, ok := rewards(t)
	if ok {
		d.Extra["reward"] = number(paid)
	}
	if len(parts) > 0 {
		numbers := map[string]any{}
		for name, v := range parts {
			numbers[name] = number(v)
		}
		d.Extra["reward_parts"] = numbers
	}
	if !t.Started.IsZero() {
		d.Extra["started"] = t.Started.UTC().Format(time.RFC3339Nano)
	}
	if t.Failed() {
		d.Extra["error"], d.Extra["error_origin"], d.Extra["failure"] = t.Err, t.ErrOrigin, t.Failure
	}
	for _, l := range conversation(record) {
		d.add(l, t)
	}
	if len(d.Steps) == 0 { // the format wants one
		d.Steps = []atifStep{{Source: "system", Message: atifContent("nothing was sampled: " + t.Err)}}
	}
	for i := range d.Steps {
		d.Steps[i].ID = i + 1
	}
	d.Final.Steps = len(d.Steps)
	return d
}

// add appends a message as a step. A tool's answer that an agent of its own sent back has no call to refer to: it is a step of the user's with an
// observation.
func (d *atifDocument) add(l line, t *trajectory.Trajectory) {
	s := atifStep{Source: map[string]string{"system": "system", "developer": "system", "assistant": "agent"}[l.Role], Message: atifContent(l.Text), Copied: l.Again}
	if s.Source == "" {
		s.Source = "user"
	}
	if l.Role == "tool" {
		s.Message, s.Seen = "", &atifObservation{[]atifResult{{Content: atifContent(l.Text)}}}
	}
	if s.Source != "agent" {
		d.Steps = append(d.Steps, s)
		return
	}
	s.Thought = l.Thought
	for _, c := range l.Calls {
		result := atifResult{Content: atifContent(c.Result)}
		if c.Failed {
			result.Extra = map[string]any{"failed": true}
		}
		if c.Name != "" {
			arguments, _ := json.Marshal(c.Arguments) // came from JSON
			s.Calls = append(s.Calls, atifCall{c.ID, c.Name, arguments})
			result.Call = &c.ID
		}
		if l.Turn == nil {
			continue
		}
		if s.Seen == nil {
			s.Seen = &atifObservation{}
		}
		s.Seen.Results = append(s.Seen.Results, result)
	}
	if l.Turn == nil { // an example in the prompt
		s.Copied = true
	} else {
		s.Metrics = tokens(l.Turn, t)
		s.Extra = map[string]any{written: true}
		read, sampled := l.usage()
		d.Final.Prompt += read
		d.Final.Completion += sampled
		if !l.Shared {
			d.Final.Cached += s.Metrics.Cached
		}
	}
	d.Steps = append(d.Steps, s)
}

// tokens are those of a turn. The prompt's ids are left out: with those of every turn, a file would grow with the square of its turns.
func tokens(turn *trajectory.Turn, t *trajectory.Trajectory) *atifMetrics {
	m := &atifMetrics{Prompt: turn.CompletionStart, Completion: turn.CompletionEnd - turn.CompletionStart, Cached: turn.CachedTokens}
	if turn.Sample < 0 || turn.Sample >= len(t.Samples) || turn.CompletionEnd > t.Samples[turn.Sample].Len() || turn.CompletionStart > turn.CompletionEnd {
		return m
	}
	s := t.Samples[turn.Sample]
	m.IDs = s.TokenIDs[turn.CompletionStart:turn.CompletionEnd]
	logprobs := s.SamplingLogprobs[turn.CompletionStart:turn.CompletionEnd]
	for _, v := range logprobs {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return m // JSON has no such number, and a list without it would be shifted
		}
	}
	m.Logprobs = logprobs
	return m
}
