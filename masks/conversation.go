package masks

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/trajectory"
)

// Recorded is a conversation that was written down as messages, to be learned from.
type Recorded struct {
	Prefix   []trajectory.Message // stands before the conversation, and is not counted among its messages; may be empty
	Messages []trajectory.Message
	Learned  []bool            // [messages] the assistant's messages that are learned; false for all others
	Tools    []json.RawMessage // as given to Prompt
	Stops    []string          // a message that ends with one of them ended there: a rollout with these stop strings samples no end-of-turn token behind it
}

// Samples lays a recorded conversation out as a rollout of it would have: the messages before the first learned one are
// the prompt, a learned message is tokenized alone and on the response mask together with the end-of-turn token that ends
// it, and what stands between two of them is the Observation. The sampling logprobs and policy versions of recorded tokens
// are 0. A message with tool calls or reasoning is the text that the template writes for it. Behind a prompt that opened
// a thought a message ends the thought, with nothing more in it where the message has none. Where the template rewrites the history a
// new sample begins.
func (r *Renderer) Samples(c Recorded) ([]*trajectory.Sample, error) {
	r, err := r.with(c.Tools)
	if err != nil {
		return nil, err
	}
	first := slices.Index(c.Learned, true)
	switch {
	case len(c.Learned) != len(c.Messages):
		return nil, fmt.Errorf("masks: conversation: %d messages and %d marks", len(c.Messages), len(c.Learned))
	case first < 0:
		return nil, fmt.Errorf("masks: conversation: no message of the assistant is to be learned")
	case first == 0 && len(c.Prefix) == 0:
		return nil, fmt.Errorf("masks: conversation: it begins with a message that is to be learned; nothing asks for it")
	}
	if err := r.separator.checkRoles(c.Messages); err != nil {
		return nil, fmt.Errorf("masks: conversation: %w", err)
	}
	var out []*trajectory.Sample
	history := slices.Concat(c.Prefix, c.Messages[:first])
	prompt := "" // the text of history; "": a sample begins
	for at := first; at >= 0 && at < len(c.Messages); {
		next := slices.Index(c.Learned[at+1:], true) + at + 1 // at when there is none
		if prompt == "" {
			ids, text, err := r.Prompt(history, c.Tools, true)
			if err != nil {
				return nil, err
			}
			prompt = text
			out = append(out, &trajectory.Sample{})
			out[len(out)-1].AppendObservation(ids)
		}
		p := Reply{History: history, Tools: c.Tools, Results: c.Messages[at+1:], Prompt: prompt}
		if next > at {
			p.Results = c.Messages[at+1 : next]
		}
		var err error
		if prompt, err = r.learn(out[len(out)-1], c, c.Messages[at], &p, next > at); err != nil {
			return nil, fmt.Errorf("masks: conversation: message %d: %w", at, err)
		}
		if next <= at {
			break
		}
		history, at = p.Messages(), next
	}
	return out, nil
}

// learn appends a learned message and, with more, what stands before the next one. It fills in p, and returns the text of the prompt
// that the sample goes on with; "" where it does not: the template writes the history anew.
func (r *Renderer) learn(s *trajectory.Sample, c Recorded, m trajectory.Message, p *Reply, more bool) (prompt string, err error) {
	if m.Role != "assistant" {
		return "", fmt.Errorf("its role is %q; only what the assistant said can be learned", m.Role)
	}
	if more && len(p.Results) == 0 {
		return "", errors.New("another message of the assistant follows it; join them, or give one weight 0")
	}
	if p.Completion, err = r.written(*p, m); err != nil {
		return "", err
	}
	ids := r.enc.Encode(p.Completion)
	cut := slices.ContainsFunc(c.Stops, func(stop string) bool { return stop != "" && strings.HasSuffix(p.Completion, stop) })
	end, err := r.endOf(*p)
	rewritten := errors.Is(err, ErrRewritten)
	if err != nil && !rewritten {
		return "", err
	}
	ended := len(ids) > 0 && slices.Contains(r.stopIDs, ids[len(ids)-1]) // by the token that the template writes behind calls
	if !cut && !ended && end.text != "" {
		ids = append(ids, end.id)
	}
	p.Sampled = ids
	if len(ids) == 0 {
		return "", errors.New("it is empty, and the template writes no end of turn that could be learned instead")
	}
	if err := s.AppendResponse(ids, make([]float32, len(ids)), make([]int32, len(ids))); err != nil {
		return "", err
	}
	if !more || rewritten {
		return "", nil
	}
	between, prompt, err := r.Continue(*p)
	if err != nil {
		return "", err
	}
	s.AppendObservation(between)
	return prompt, nil
}

// endOf is the end of turn that the template writes behind a completion, before the messages that follow or at the end of
// the conversation. With ErrRewritten it is what the template usually writes.
func (r *Renderer) endOf(p Reply) (closing, error) {
	if len(p.Results) > 0 {
		_, _, end, err := r.observationText(p)
		if errors.Is(err, ErrRewritten) && len(r.closings) > 0 {
			end = r.closings[0]
		}
		return end, err
	}
	full, err := r.render(p.Messages(), p.Tools, false)
	if err != nil {
		return closing{}, err
	}
	if rest, ok := strings.CutPrefix(full, p.Prompt); ok {
		if after, ok := afterContent(rest, p.Completion, ""); ok {
			if end, ok := endOfTurn(r.enc, after, r.stopIDs); ok {
				return end, nil
			}
			return closing{}, nil
		}
	}
	if len(r.closings) > 0 {
		return r.closings[0], nil
	}
	return closing{}, nil
}

// written is the text of a message as a model would have sampled it behind the prompt of p. Where that opened a thought, the text goes
// on with it or ends it.
func (r *Renderer) written(p Reply, m trajectory.Message) (string, error) {
	content, err := m.TextContent()
	if err != nil {
		return "", err
	}
	thought := openThought(p.Prompt)
	if len(m.ToolCalls) == 0 && m.Reasoning == "" {
		own, begins := strings.CutPrefix(strings.TrimLeftFunc(content, isSpace), thinkOpen)
		switch {
		case thought == "":
			return content, nil
		case begins:
			return strings.TrimPrefix(own, strings.TrimPrefix(thought, thinkOpen)), nil
		case strings.Contains(content, thinkClose):
			return content, nil
		}
	}
	text, err := r.writtenByTemplate(p, m, content)
	switch {
	case thought == "" || err == nil && strings.Contains(text, thinkClose):
		return text, err
	case len(m.ToolCalls) == 0:
		return strings.TrimSpace(m.Reasoning) + EndOfThought(p.Prompt) + content, nil
	case err == nil:
		return "", errors.New("the template writes its tool calls into the thought that the generation prompt opened; write them into the content")
	}
	return "", err
}

// writtenByTemplate is the text that the template writes for a message with a content.
func (r *Renderer) writtenByTemplate(p Reply, m trajectory.Message, content string) (string, error) {
	full, err := r.render(append(slices.Clone(p.History), m), p.Tools, false)
	if err != nil {
		return "", err
	}
	text, ok := strings.CutPrefix(full, p.Prompt)
	if !ok {
		return "", fmt.Errorf("the template writes its tool calls or reasoning as %q, which does not follow the generation prompt; write them into the content", head(full[common(full, p.Prompt):]))
	}
	for _, end := range r.closings {
		at := strings.LastIndex(text, end.text)
		if at >= 0 && end.text != "" && strings.TrimFunc(text[at+len(end.text):], isSpace) == "" {
			text = text[:at]
			break
		}
	}
	for _, call := range m.ToolCalls {
		if !strings.Contains(text, call.Name) {
			return "", fmt.Errorf("the template does not write the call of %s; write it into the content as the agent's format has it", call.Name)
		}
	}
	if m.Reasoning != "" && !strings.Contains(text, strings.TrimSpace(m.Reasoning)) {
		return "", errors.New("the template does not write the reasoning; write it into the content")
	}
	if len(m.ToolCalls) == 0 {
		text = withContent(text, strings.TrimSpace(m.Reasoning), content)
	}
	return text, nil
}

// withContent ends a template's text with the content, where that stands right behind the thought: the end of turn that follows need not
// be one that the tokenizer knows.
func withContent(text, reasoning, content string) string {
	_, behind, _ := strings.Cut(text, reasoning)
	_, behind, ended := strings.Cut(behind, thinkClose)
	written := strings.TrimLeftFunc(behind, isSpace)
	if !ended || !strings.HasPrefix(written, strings.TrimFunc(content, isSpace)) {
		return text
	}
	return strings.TrimSuffix(text, written) + strings.TrimLeftFunc(content, isSpace)
}

// openThought is the end of a prompt that opens a thought: the tag and the white space behind it.
func openThought(prompt string) string {
	if strings.HasSuffix(strings.TrimRightFunc(prompt, isSpace), thinkOpen) {
		return prompt[strings.LastIndex(prompt, thinkOpen):]
	}
	return ""
}

// EndOfThought is what ends a thought that a prompt opened; "" where it opened none. The tags stand in lines of their own, or neither does.
func EndOfThought(prompt string) string {
	thought := openThought(prompt)
	if thought == "" {
		return ""
	}
	space := strings.TrimPrefix(thought, thinkOpen)
	return space + thinkClose + space + space
}
