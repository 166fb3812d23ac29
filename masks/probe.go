package masks

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/trajectory"
)

// Contents that stand for what is not known yet. Templates do not look into them.
const (
	probeUser   = "Probe question."
	probeAnswer = "Probe answer."
	probeSecond = "Second probe answer."
	probeResult = "Probe result."
	probeTool   = `{"type": "function", "function": {"name": "probe", "description": "probe", "parameters": {"type": "object", "properties": {}}}}`
)

// findStops renders an assistant's turn before a user's, before a tool's and at the end, and reads the token that ends it behind
// the content.
func (r *Renderer) findStops() error {
	turn := []trajectory.Message{trajectory.Text("user", probeUser), trajectory.Text("assistant", probeAnswer)}
	full, err := r.render(append(turn, trajectory.Text("user", probeUser)), r.probeTools, true)
	if err != nil {
		return fmt.Errorf("masks: the chat template cannot render a user, an assistant and a user: %w", err)
	}
	if !strings.Contains(full, probeAnswer) {
		return fmt.Errorf("masks: the chat template does not write the assistant's content")
	}
	own := slices.Clone(r.options.StopIDs) // the model's
	if eos := r.tmpl.Options().EOSToken; eos != "" {
		id, ok := r.enc.ID(eos)
		if !ok {
			return fmt.Errorf("masks: the eos token %q is not in the tokenizer's vocabulary", eos)
		}
		own = slices.Insert(own, 0, id)
	}
	add := func(id int32) {
		if !slices.Contains(r.stopIDs, id) {
			r.stopIDs = append(r.stopIDs, id)
		}
	}
	for _, next := range [][]trajectory.Message{{turn[0]}, {trajectory.Text("tool", probeResult)}, nil} {
		full, err := r.render(append(slices.Clone(turn), next...), r.probeTools, next != nil)
		if err != nil {
			continue // many templates have no tool role; using it fails then
		}
		_, after, found := strings.Cut(full, probeAnswer)
		if !found {
			continue
		}
		if end, ok := endOfTurn(r.enc, after, own); ok {
			add(end.id)
			if next != nil && !slices.Contains(r.closings, end) {
				r.closings = append(r.closings, end)
			}
		}
	}
	for _, id := range own {
		add(id)
	}
	if len(r.stopIDs) == 0 {
		return fmt.Errorf("masks: no stop token: the model has neither an eos token nor an eos_token_id and the chat template writes none after the assistant's content")
	}
	return nil
}

// endOfTurn finds the token that text begins with, white space aside, and the text up to its end: a special token, or one of stops.
func endOfTurn(enc Encoder, text string, stops []int32) (closing, bool) {
	ids := enc.Encode(text)
	for i, id := range ids {
		if enc.Decode(ids[i:i+1], true) != "" && !slices.Contains(stops, id) {
			continue
		}
		token := enc.Decode(ids[i:i+1], false)
		at := strings.Index(text, token)
		if token == "" || at < 0 || strings.TrimFunc(text[:at], isSpace) != "" {
			break
		}
		return closing{text[:at+len(token)], id}, true
	}
	return closing{}, false
}

// probe renders growing conversations and names the first thing that the template rewrites.
func (r *Renderer) probe() string {
	say := trajectory.Text
	system, user := say("system", "Probe."), say("user", probeUser)
	for _, c := range []struct {
		name       string
		completion string
		result     trajectory.Message
	}{
		{"an earlier answer", probeAnswer, user},
		{"an earlier answer before a tool result", probeAnswer, say("tool", probeResult)},
		{"the thinking of an earlier turn when a user message follows", "<think>\nProbe thought.\n</think>\n\n" + probeAnswer, user},
		{"the thinking of an earlier turn when a tool result follows", "<think>\nProbe thought.\n</think>\n\n" + probeAnswer, say("tool", probeResult)},
	} {
		history := []trajectory.Message{system, user}
		if _, err := r.render(history, r.probeTools, true); err != nil {
			history = history[1:] // a template without a system role
		}
		for range 2 {
			p := Reply{History: history, Completion: c.completion, Results: []trajectory.Message{c.result}, Tools: r.probeTools}
			if _, err := r.render(p.Messages(), p.Tools, true); err != nil {
				break // this role is not supported; using it fails then
			}
			if _, _, _, err := r.observationText(p); err != nil {
				return c.name + ": " + strings.TrimPrefix(err.Error(), ErrRewritten.Error()+": ")
			}
			history = p.Messages()
		}
	}
	return r.probePlace()
}

// probePlace detects templates that write the schemas at the last user message instead of the first.
func (r *Renderer) probePlace() string {
	if !r.usesTools {
		return ""
	}
	p := Reply{
		History: []trajectory.Message{trajectory.Text("user", probeUser)}, Completion: probeSecond,
		Results: []trajectory.Message{trajectory.Text("user", probeUser)}, Tools: []json.RawMessage{json.RawMessage(probeTool)},
	}
	if _, err := r.render(p.Messages(), p.Tools, true); err != nil {
		return ""
	}
	if _, _, _, err := r.observationText(p); err != nil {
		return "it moves the list of tools to the last user message"
	}
	return ""
}
