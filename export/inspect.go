package export

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"strings"
	"time"

	"github.com/agentfly/agentfly/orchestrator/overview"
	"github.com/agentfly/agentfly/orchestrator/store"
)

// An Inspect log is one JSON object, version 2 of inspect_ai.log.EvalLog: what was evaluated, samples, results. All trajectories of a run are the samples
// of one log; their metadata has the phase and the step.

var inspectLog = Format{
	Name: "inspect", Description: "the trajectories as a log of Inspect, for `inspect view` and read_eval_log", Trajectories: true, File: inspectFile, Write: writeInspect,
}

// inspectFile has Inspect's pattern, whose parts `inspect log list` reads.
func inspectFile(r Run) string {
	task := strings.ReplaceAll(safe(r.Name), ".", "-")
	return fmt.Sprintf("%s_%s_%08x.json", strings.ReplaceAll(r.Began.UTC().Format("2006-01-02T15:04:05+00:00"), ":", "-"), task, crc32.ChecksumIEEE([]byte(r.Name)))
}

type inspectSample struct {
	ID       string                  `json:"id"`
	Epoch    int                     `json:"epoch"`
	Input    string                  `json:"input"`
	Target   string                  `json:"target"`
	Messages []inspectMessage        `json:"messages"`
	Output   inspectOutput           `json:"output"`
	Scores   map[string]inspectScore `json:"scores"`
	Metadata map[string]any          `json:"metadata"`
	Seconds  float64                 `json:"total_time"`
	Error    *inspectError           `json:"error,omitempty"`
}

type inspectMessage struct {
	Role     string        `json:"role"`
	Content  any           `json:"content"` // a text, or a list of inspectPart
	Calls    []inspectCall `json:"tool_calls,omitempty"`
	CallID   string        `json:"tool_call_id,omitempty"`
	Function string        `json:"function,omitempty"`
	Error    *toolError    `json:"error,omitempty"`
}

// inspectPart is a part of a message: a thought, or the text behind it.
type inspectPart struct {
	Type      string  `json:"type"` // reasoning or text, which names the field that is set
	Reasoning *string `json:"reasoning,omitempty"`
	Text      *string `json:"text,omitempty"`
}

type inspectCall struct {
	ID        string         `json:"id"`
	Function  string         `json:"function"`
	Arguments map[string]any `json:"arguments"`
}

type toolError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

type inspectOutput struct {
	Model   string          `json:"model"`
	Choices []inspectChoice `json:"choices"`
	Usage   map[string]int  `json:"usage"`
}

type inspectChoice struct {
	Message inspectMessage `json:"message"`
	Stop    string         `json:"stop_reason"`
}

type inspectScore struct {
	Value  float64 `json:"value"`
	Answer string  `json:"answer"`
}

type inspectError struct {
	Message   string `json:"message"`
	Traceback string `json:"traceback"`
	ANSI      string `json:"traceback_ansi"`
}

// writeInspect writes sample after sample, so that a run of any size fits in memory, and behind them what is counted of them.
func writeInspect(ctx context.Context, to io.Writer, r Run) error {
	w := bufio.NewWriter(to)
	if _, err := io.WriteString(w, `{"version":2,"samples":[`); err != nil {
		return err
	}
	model := "agentfly/" + r.Model
	n, completed, scored, sum := 0, 0, 0, 0.0
	err := r.Trajectories(ctx, func(record store.Record) error {
		s := sampleOf(record, model)
		if score, ok := s.Scores["reward"]; ok {
			scored, sum = scored+1, sum+score.Value
		}
		if s.Error == nil {
			completed++
		}
		if n++; n > 1 {
			_ = w.WriteByte(',') // Flush tells
		}
		return json.NewEncoder(w).Encode(s)
	})
	if err != nil {
		return err
	}
	status := map[overview.State]string{overview.Running: "started", overview.Interrupted: "cancelled", overview.Failed: "error"}[r.State]
	if status == "" {
		status = "success"
	}
	at := r.Began.UTC().Format(time.RFC3339)
	metrics := map[string]any{}
	if mean := sum / float64(max(1, scored)); scored > 0 && !math.IsInf(mean, 0) {
		metrics["mean"] = map[string]any{"name": "mean", "value": mean}
	}
	_, _ = io.WriteString(w, "],")
	tail, err := json.Marshal(map[string]any{
		"status": status,
		"eval": map[string]any{
			"created": at, "task": r.Name, "dataset": map[string]any{"name": r.Name, "samples": n}, "model": model, "config": map[string]any{},
			"metadata": map[string]any{"algorithm": r.Algorithm},
		},
		"stats": map[string]any{"started_at": at, "completed_at": r.ended().UTC().Format(time.RFC3339)},
		"results": map[string]any{
			"total_samples": n, "completed_samples": completed, "scores": []any{map[string]any{"name": "reward", "scorer": "reward", "metrics": metrics}},
		},
	})
	if err != nil {
		return err
	}
	_, _ = w.Write(tail[1:]) // its first brace is the log's
	return w.Flush()
}

func sampleOf(record store.Record, model string) inspectSample {
	t := record.Trajectory
	s := inspectSample{
		ID: t.ID, Epoch: 1, Seconds: t.Seconds, Messages: []inspectMessage{}, Scores: map[string]inspectScore{},
		Output: inspectOutput{Model: model, Choices: []inspectChoice{}, Usage: map[string]int{}},
		Metadata: map[string]any{
			"phase": record.Phase, "step": t.Step, "group": t.Group, "index": t.Index, "task": t.TaskID, "stop_reason": t.StopReason,
		},
	}
	answer, _ := t.FinalAnswer()
	if target, ok := record.Task.Fields["answer"]; ok {
		s.Target = textOf(target)
	}
	score := func(name string, v float64) {
		if _, named := number(v).(string); !named {
			s.Scores[name] = inspectScore{v, answer}
		}
	}
	if paid, parts, ok := rewards(t); ok {
		s.Metadata["reward"] = number(paid)
		score("reward", paid)
		for name, v := range parts {
			score("reward/"+name, v)
		}
	}
	if t.Failed() {
		s.Error = &inspectError{Message: t.Err}
		s.Metadata["error_origin"], s.Metadata["failure"] = t.ErrOrigin, t.Failure
	}
	asked := false
	for i, l := range conversation(record) {
		if user := l.Role == "user"; i == 0 || user && !asked { // what the user asks, and not what the system says before it
			s.Input, asked = l.Text, user
		}
		m := inspectMessage{Role: inspectRole(l.Role), Content: contentOf(l)}
		var answers []inspectMessage
		for _, c := range l.Calls {
			if c.Name == "" {
				answers = append(answers, inspectMessage{Role: "user", Content: c.Result})
				continue
			}
			m.Calls = append(m.Calls, inspectCall{c.ID, c.Name, c.Arguments})
			if l.Turn == nil {
				continue // what came back is a message of its own
			}
			a := inspectMessage{Role: "tool", Content: c.Result, CallID: c.ID, Function: c.Name}
			if c.Failed {
				a.Error = &toolError{"unknown", c.Result}
			}
			answers = append(answers, a)
		}
		s.Messages = append(append(s.Messages, m), answers...)
		if l.Turn != nil {
			s.Output.Choices = []inspectChoice{{m, stopOf(l)}}
			read, sampled := l.usage()
			s.Output.Usage["input_tokens"] += read
			s.Output.Usage["output_tokens"] += sampled
		}
	}
	s.Output.Usage["total_tokens"] = s.Output.Usage["input_tokens"] + s.Output.Usage["output_tokens"]
	return s
}

func contentOf(l line) any {
	if l.Thought == "" {
		return l.Text
	}
	return []inspectPart{{Type: "reasoning", Reasoning: &l.Thought}, {Type: "text", Text: &l.Text}}
}

// textOf is a task's answer as a reader compares it: a text as it is, all else as JSON, in which a million is 1000000.
func textOf(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return jsonText(v)
}

// inspectRole is one of the four that Inspect reads.
func inspectRole(role string) string {
	switch role {
	case "system", "user", "assistant", "tool":
		return role
	case "developer":
		return "system"
	}
	return "user"
}

func stopOf(l line) string {
	switch {
	case l.Turn.FinishReason == "length":
		return "max_tokens"
	case len(l.Calls) > 0:
		return "tool_calls"
	}
	return "stop"
}
