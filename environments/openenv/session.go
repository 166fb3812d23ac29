package openenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/panics"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/trajectory"
)

// session is one environment and the episode in it. Its messages are answered in turn, though MCP's requests may come beside its websocket.
type session struct {
	offer    *offer
	id       string
	attached bool      // a websocket has it; guarded by sessions
	used     time.Time // likewise
	busy     int       // requests that it answers beside a websocket; likewise

	mu      sync.Mutex
	env     environments.Environment // nil: closed
	played  bool                     // an episode was begun in env
	begun   bool                     // an episode is on, or over
	over    bool
	episode *string
	steps   int
	sum     float64 // of the rewards
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

// raised is an EXECUTION_ERROR.
func raised(format string, args ...any) error {
	return &serverError{details{Message: fmt.Sprintf(format, args...), Code: codeExecution}}
}

func invalid(faults ...detail) error {
	return &serverError{details{Message: "Invalid message", Code: codeValidation, Errors: faults}}
}

// extra are the data of JSON-RPC errors.
func (e *serverError) extra() any {
	if e.Max != nil {
		return map[string]any{"active_sessions": e.Active, "max_sessions": e.Max}
	}
	return nil
}

// make makes the environment. The lock is held.
func (s *session) make(ctx context.Context) (err error) {
	s.played, s.begun = false, false
	s.env, err = panics.Value("environment "+s.offer.name, func() (environments.Environment, error) { return s.offer.bound.New(ctx, owner) })
	if err == nil && s.env == nil {
		err = errors.New("the source made no environment")
	}
	if err != nil {
		s.env = nil
		s.offer.note(fmt.Sprintf("an environment could not be made: %v", err))
	}
	return err
}

// shut closes the environment, once. The lock is held.
func (s *session) shut() {
	if s.env == nil {
		return
	}
	env := s.env
	s.env = nil
	if err := panics.Guard("environment "+s.offer.name, env.Close); err != nil {
		s.offer.note(fmt.Sprintf("an environment could not be closed: %v", err))
	}
}

// reset begins an episode. What the data hold beside seed and episode_id are the task's fields.
func (s *session) reset(ctx context.Context, raw json.RawMessage) (any, error) {
	fields := map[string]any{}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &fields); err != nil {
			return nil, invalid(detail{"dict_type", []any{"data"}, "Input should be a valid dictionary", nil})
		}
	}
	start := environments.Start{Seed: rand.Int64N(math.MaxInt32)}
	if seed, ok := fields["seed"]; ok && seed != nil {
		n, ok := seed.(float64)
		if !ok || n != math.Trunc(n) || n < 0 || n > math.MaxInt32 {
			return nil, invalid(detail{"int_type", []any{"data", "seed"}, "Input should be a whole number from 0 to 2147483647", seed})
		}
		start.Seed = int64(n)
	}
	var episode *string
	if id, ok := fields["episode_id"]; ok && id != nil {
		name, ok := id.(string)
		if !ok || len(name) > 255 {
			return nil, invalid(detail{"string_type", []any{"data", "episode_id"}, "Input should be a valid string of at most 255 bytes", id})
		}
		episode, start.Task.ID = &name, name
	}
	delete(fields, "seed")
	delete(fields, "episode_id")
	start.Task.Fields = fields
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.env != nil && s.played && s.offer.spec.Once {
		s.shut()
	}
	if s.env == nil {
		if ctx.Err() != nil {
			return nil, raised("the session has ended")
		}
		if err := s.make(ctx); err != nil {
			return nil, raised("the environment could not be made anew: %v", err)
		}
	}
	s.played, s.begun, s.over, s.episode, s.steps, s.sum = true, false, false, episode, 0, 0
	seen, err := panics.Value("environment "+s.offer.name, func() (environments.Observation, error) { return s.env.Reset(ctx, start) })
	if wrong := (*environments.TaskError)(nil); errors.As(err, &wrong) { // the environment can be reset for another task
		return nil, invalid(detail{Type: "value_error", Where: []any{"data"}, Text: wrong.Text})
	}
	if err != nil {
		return nil, s.broke("reset", err)
	}
	s.begun = true
	return frameOf(seenObject(seen), nil, false, nil), nil
}

// broke closes an environment that failed: the next reset makes another one.
func (s *session) broke(what string, err error) error {
	s.begun = false
	s.shut()
	s.offer.note(fmt.Sprintf("%s failed: %v", what, err))
	return raised("%v", err)
}

// frameOf are the data of an observation. Metadata stand in it and beside it, as OpenEnv's servers write them.
func frameOf(object map[string]any, reward *float64, done bool, metadata map[string]any) map[string]any {
	if metadata == nil {
		metadata = map[string]any{}
	}
	object["metadata"] = metadata
	out := map[string]any{"observation": object, "reward": reward, "done": done}
	if len(metadata) > 0 {
		out["metadata"] = metadata
	}
	return out
}

// seenObject is an observation of texts and images as an object.
func seenObject(o environments.Observation) map[string]any {
	out := map[string]any{"text": textOf(o)}
	var images []string
	for _, p := range o {
		if p.Type == "image" {
			images = append(images, p.Image)
		}
	}
	if len(images) > 0 {
		out["images"] = images
	}
	return out
}

func textOf(o environments.Observation) string {
	var texts []string
	for _, p := range o {
		if p.Type == "text" {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// step acts, as OpenEnv's step messages do: with a text, or with MCP's list_tools and call_tool.
func (s *session) step(ctx context.Context, raw json.RawMessage) (any, error) {
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, invalid(detail{"dict_type", []any{"data"}, "Input should be a valid dictionary", nil})
	}
	if len(s.offer.spec.Tools) == 0 {
		text, faults := textAction(fields)
		if len(faults) > 0 {
			return nil, invalid(faults...)
		}
		r, err := s.act(ctx, environments.Action{Text: text})
		if err != nil {
			return nil, err
		}
		return frameOf(seenObject(r.Observation), &r.Reward, r.Over(), metadataOf(r)), nil
	}
	if fields["type"] == listTools {
		return frameOf(map[string]any{"tools": s.offer.toolList("input_schema")}, nil, false, nil), nil
	}
	name, arguments, faults := callAction(fields, raw)
	if len(faults) > 0 {
		return nil, invalid(faults...)
	}
	if kind, text := s.offer.checkCall(name, arguments); kind != "" {
		return frameOf(map[string]any{"tool_name": name, "result": nil, "error": map[string]string{"error_type": kind, "message": text}}, nil, false, nil), nil
	}
	r, err := s.act(ctx, environments.Action{Name: name, Arguments: arguments})
	if err != nil {
		return nil, err
	}
	return frameOf(map[string]any{"tool_name": name, "result": callResult(r), "error": nil}, &r.Reward, r.Over(), metadataOf(r)), nil
}

// textAction reads {"action": text}.
func textAction(fields map[string]any) (text string, faults []detail) {
	given, ok := fields["action"]
	text, isText := given.(string)
	switch {
	case !ok:
		faults = append(faults, detail{"missing", []any{"action"}, "Field required", fields})
	case !isText:
		faults = append(faults, detail{"string_type", []any{"action"}, "Input should be a valid string", given})
	}
	return text, append(faults, others(fields, "action")...)
}

// callAction reads {"type": "call_tool", "tool_name": …, "arguments": {…}}.
func callAction(fields map[string]any, raw json.RawMessage) (name string, arguments json.RawMessage, faults []detail) {
	var literal struct {
		Arguments json.RawMessage `json:"arguments"`
	}
	_ = json.Unmarshal(raw, &literal) // it was read before
	if kind, ok := fields["type"]; ok && kind != callTool {
		faults = append(faults, detail{"literal_error", []any{"type"}, "Input should be 'call_tool' or 'list_tools'", kind})
	}
	given, ok := fields["tool_name"]
	name, isText := given.(string)
	switch {
	case !ok:
		faults = append(faults, detail{"missing", []any{"tool_name"}, "Field required", fields})
	case !isText:
		faults = append(faults, detail{"string_type", []any{"tool_name"}, "Input should be a valid string", given})
	}
	arguments = json.RawMessage(`{}`)
	if v, ok := fields["arguments"]; ok {
		if _, object := v.(map[string]any); !object {
			faults = append(faults, detail{"dict_type", []any{"arguments"}, "Input should be a valid dictionary", v})
		}
		arguments = literal.Arguments
	}
	return name, arguments, append(faults, others(fields, "type", "tool_name", "arguments")...)
}

// others are the fields of an action that nobody knows.
func others(fields map[string]any, known ...string) (faults []detail) {
	for _, name := range sortedKeys(fields) {
		if name != "metadata" && !slices.Contains(known, name) {
			faults = append(faults, extra([]any{name}, fields[name]))
		}
	}
	return faults
}

// act plays one step. The rewards of an environment that scores the whole episode add up to its score: the last one makes up the difference.
func (s *session) act(ctx context.Context, a environments.Action) (r environments.Result, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.begun:
		return r, raised("no episode has begun: reset the environment first")
	case s.over:
		return r, raised("the episode is over: reset the environment")
	}
	err = panics.Guard("environment "+s.offer.name, func() error {
		if r, err = s.env.Step(ctx, a); err != nil || !r.Over() {
			return err
		}
		if scorer, ok := s.env.(environments.Scorer); ok {
			score, err := scorer.Score(ctx)
			r.Reward = score - s.sum
			return err
		}
		return nil
	})
	if err == nil && (math.IsNaN(r.Reward) || math.IsInf(r.Reward, 0)) {
		err = fmt.Errorf("the environment gave the reward %v", r.Reward)
	}
	if err == nil {
		if _, bad := wording.JSON(r.Info); bad != nil {
			err = fmt.Errorf("the environment's info is no JSON: %w", bad)
		}
	}
	if err != nil {
		return r, s.broke("step", err)
	}
	s.steps++
	s.sum += r.Reward
	s.over = r.Over()
	return r, nil
}

// metadataOf is what OpenEnv's wire has no other place for.
func metadataOf(r environments.Result) map[string]any {
	out := maps.Clone(r.Info)
	if out == nil {
		out = map[string]any{}
	}
	if r.Over() {
		out["truncated"] = r.Truncated
	}
	ours := own{Anchor: r.Anchor}
	if r.Failure == trajectory.FailurePolicy {
		ours.Failure = policy
	}
	if r.Over() {
		ours.Success = &r.Success
	}
	if ours != (own{}) {
		out[ownMetadata] = ours
	}
	return out
}

// callResult is a step's observation as the result of an MCP tool.
func callResult(r environments.Result) map[string]any {
	content := []map[string]any{}
	for _, p := range r.Observation {
		if p.Type == "image" {
			kind, data, ok := strings.Cut(strings.TrimPrefix(p.Image, "data:"), ";base64,")
			if ok && strings.HasPrefix(p.Image, "data:") {
				content = append(content, map[string]any{"type": "image", "data": data, "mimeType": kind})
				continue
			}
			content = append(content, map[string]any{"type": "text", "text": p.Image}) // the address of an image
			continue
		}
		content = append(content, map[string]any{"type": "text", "text": p.Text})
	}
	return map[string]any{
		"content": content, "structured_content": nil, "meta": map[string]any{"reward": r.Reward, "done": r.Over()}, "data": textOf(r.Observation),
		"is_error": r.Failure == trajectory.FailurePolicy,
	}
}

// state is the server's record of the episode.
func (s *session) state() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return map[string]any{"episode_id": s.episode, "step_count": s.steps}
}
