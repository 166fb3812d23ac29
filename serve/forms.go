package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/grammar"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/masks"
)

// forms compile the forms that completions are held to: response_format, structured_outputs, and a required tool_choice.
type forms struct {
	codec  *codec
	engine engines.Engine
	tokens func() *grammar.Vocabulary // made for the first request that needs it
}

func newForms(c *codec, e engines.Engine) *forms {
	return &forms{codec: c, engine: e, tokens: sync.OnceValue(func() *grammar.Vocabulary {
		return grammar.NewVocabulary(sized{c.tokenizer, c.vocab, c.stopIDs})
	})}
}

// sized is a tokenizer that knows how many tokens the model has, and which of them end a completion: those stand for no text of a form,
// whatever the tokenizer says, as a form would be cut where its text has theirs.
type sized struct {
	Tokenizer
	size  int
	stops []int32
}

// Size implements grammar.Tokens.
func (s sized) Size() int { return s.size }

// IsSpecial implements grammar.Tokens.
func (s sized) IsSpecial(id int32) bool {
	return slices.Contains(s.stops, id) || s.Tokenizer.IsSpecial(id)
}

// Token implements grammar.Tokens: a stop id that is text otherwise has no name.
func (s sized) Token(id int32) (string, bool) {
	if !s.Tokenizer.IsSpecial(id) && slices.Contains(s.stops, id) {
		return "", true
	}
	return s.Tokenizer.Token(id)
}

// structured is vLLM's structured_outputs: exactly one of its fields.
type structured struct {
	JSON    json.RawMessage `json:"json"` // a schema
	Object  bool            `json:"json_object"`
	Regex   string          `json:"regex"`
	Choice  []string        `json:"choice"`
	Grammar present         `json:"grammar"`
	Tag     present         `json:"structural_tag"`
	some    bool            // something is asked for
}

// UnmarshalJSON knows an object that asks for nothing from one that asks for what is unknown.
func (s *structured) UnmarshalJSON(data []byte) error {
	type fields structured
	var all present
	_ = all.UnmarshalJSON(data) // never fails
	err := json.Unmarshal(data, (*fields)(s))
	if string(s.JSON) == "null" {
		s.JSON = nil
	}
	s.some = bool(all)
	return err
}

// wanted is the form that the sampling parameters ask for; false: none.
func (p *sampling) wanted() (e grammar.Expr, param string, ok bool, err error) {
	s := p.Structured
	given := 0
	for _, set := range []bool{len(s.JSON) > 0, s.Object, s.Regex != "", s.Choice != nil, bool(s.Grammar), bool(s.Tag)} {
		if set {
			given++
		}
	}
	schema := p.Schema
	if schema == nil {
		schema, err = dialects.ParseFormat(p.Format)
	}
	switch {
	case err != nil:
		return e, "", false, err
	case given > 1:
		return e, "", false, badf("structured_outputs", "structured_outputs asks for %d forms; it must be one of json, json_object, regex and choice", given)
	case given == 1 && schema != nil:
		return e, "", false, badf("structured_outputs", "structured_outputs and response_format are both given; give one")
	case bool(s.Grammar), bool(s.Tag):
		return e, "", false, badf("structured_outputs", "structured_outputs of a grammar or a structural tag is not supported by this server; allowed are json, json_object, regex and choice")
	case schema != nil:
		e, err = schemaForm(schema.Schema)
		return e, "response_format", true, err
	case given == 0 && s.some:
		return e, "", false, badf("structured_outputs", "structured_outputs asks for no form that is known; allowed are json, json_object, regex and choice")
	case given == 0:
		return e, "", false, nil
	case s.Object:
		return grammar.JSON(), "structured_outputs", true, nil
	case s.Regex != "":
		e, err = grammar.Regexp(s.Regex)
	case s.Choice != nil:
		if len(s.Choice) == 0 {
			return e, "", false, badf("structured_outputs", "structured_outputs.choice is an empty list; give at least one text")
		}
		e = grammar.Texts(s.Choice...)
	case s.JSON[0] == '"': // a schema within a string
		var text string
		if err = json.Unmarshal(s.JSON, &text); err == nil {
			e, err = grammar.JSONSchema([]byte(text))
		}
	default:
		e, err = grammar.JSONSchema(s.JSON)
	}
	if err != nil {
		err = badf("structured_outputs", "structured_outputs: %v", err)
	}
	return e, "structured_outputs", true, err
}

// schemaForm is JSON of the schema; without one it is any JSON object.
func schemaForm(schema json.RawMessage) (grammar.Expr, error) {
	if len(bytes.TrimSpace(schema)) == 0 {
		return grammar.JSON(), nil
	}
	e, err := grammar.JSONSchema(schema)
	if err != nil {
		return e, badf("response_format", "response_format: %v", err)
	}
	return e, nil
}

// of is the form of a conversation's reply; nil is free. format reads its calls, and is nil where there are none. opened: the prompt ends
// within a thought, which comes before the form.
func (f *forms) of(ctx context.Context, c *conversation, format agents.Format, p *sampling, opened bool) (engines.Constraint, error) {
	e, param, held, err := p.wanted()
	if err != nil {
		return nil, err
	}
	if format != nil && (held || c.mustCall()) {
		calls, err := c.calls(format)
		switch {
		case err != nil:
			return nil, err
		case c.mustCall() && held:
			return nil, badf(param, "tool_choice requires a call, and %s a form of the reply; give one", param)
		case c.mustCall():
			e, param = calls, "tool_choice"
		default: // a call, or a reply of the form
			e = grammar.Choice(calls, e)
		}
		held = true
	}
	if !held {
		return nil, nil
	}
	if opened {
		e = grammar.Sequence(thought(f.codec.tokenizer), e)
	}
	return f.compile(ctx, e, param, p)
}

// ofText is the form of a bare completion; nil is free.
func (f *forms) ofText(ctx context.Context, p *sampling) (engines.Constraint, error) {
	e, param, held, err := p.wanted()
	if err != nil || !held {
		return nil, err
	}
	return f.compile(ctx, e, param, p)
}

func (f *forms) compile(ctx context.Context, e grammar.Expr, param string, p *sampling) (engines.Constraint, error) {
	if !f.engine.Capabilities().Constraints {
		return nil, badf(param, "%s is not supported by this server: its engine does not constrain decoding", param)
	}
	if or(p.MinTokens, 0) > 0 {
		return nil, badf("min_tokens", "min_tokens is %d, but with %s the form says when the reply ends; leave min_tokens out", *p.MinTokens, param)
	}
	var g *grammar.Grammar
	var failed error
	if err := f.codec.do(ctx, func() { g, failed = grammar.Compile(e, f.tokens()) }); err != nil {
		return nil, err
	}
	if failed != nil {
		return nil, badf(param, "%s: %v", param, failed)
	}
	return constraint{g}, nil
}

// constraint is a grammar as an engine takes it.
type constraint struct{ grammar *grammar.Grammar }

// Match implements engines.Constraint.
func (c constraint) Match() engines.Matcher { return c.grammar.Match() }

// thought is the rest of a thought that the prompt opened, with the blanks behind it.
func thought(t Tokenizer) grammar.Expr {
	end := grammar.Until(agents.ThoughtEnd)
	if len(masks.Kept(t, []string{agents.ThoughtEnd})) > 0 { // it is a special token
		end = grammar.Choice(end, grammar.Sequence(grammar.AnyText(), grammar.Special(agents.ThoughtEnd)))
	}
	return grammar.Sequence(end, grammar.Repeat(grammar.Text("\n"), 0, 2))
}

// mustCall tells whether the reply must be a call.
func (c *conversation) mustCall() bool {
	return c.choice.Mode == dialects.ChoiceRequired || c.choice.Mode == dialects.ChoiceNamed
}

// calls are the replies that are calls; of one tool where the choice names it.
func (c *conversation) calls(format agents.Format) (grammar.Expr, error) {
	required, ok := format.(agents.Required)
	if !ok {
		return grammar.Expr{}, badf("tool_choice", "the form of calls of this server cannot be required; use tool_choice auto or none, or serve with another --tool-call-parser")
	}
	e, err := required.Calls(!c.oneCall && c.choice.Mode != dialects.ChoiceNamed)
	if err != nil {
		return e, badf("tools", "%s", wording.Clip(fmt.Sprint(err), 400))
	}
	return e, nil
}
