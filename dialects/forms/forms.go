// Package forms compiles the forms that clients ask replies in (response_format, structured_outputs, a required tool_choice) into grammars over
// a model's tokens. Packages serve and gateway have completions held to them.
// What is wrong with a form is a *dialects.Error that names the parameter.
//
// It does not read requests (package dialects), know automata (grammar) or sample.
package forms

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/grammar"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/masks"
)

// Tokenizer is what forms need of a tokenizer.
type Tokenizer interface {
	Encode(text string) []int32
	Decode(ids []int32, skipSpecial bool) string
	Bytes(id int32) []byte
	Token(id int32) (string, bool)
	IsSpecial(id int32) bool
}

// Forms are those of one model. They are safe for concurrent use.
type Forms struct {
	tokenizer Tokenizer
	tokens    func() *grammar.Vocabulary // made for the first request that needs it
}

// New takes a model's tokenizer, the size of its vocabulary and the ids that end its completions.
func New(t Tokenizer, size int, stops []int32) *Forms {
	return &Forms{tokenizer: t, tokens: sync.OnceValue(func() *grammar.Vocabulary { return grammar.NewVocabulary(sized{t, size, stops}) })}
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

func badf(param, format string, args ...any) error {
	return &dialects.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...), Param: param}
}

// Structured is vLLM's structured_outputs: exactly one of its fields.
type Structured struct {
	JSON    json.RawMessage `json:"json"` // a schema
	Object  bool            `json:"json_object"`
	Regex   string          `json:"regex"`
	Choice  []string        `json:"choice"`
	Grammar Present         `json:"grammar"`
	Tag     Present         `json:"structural_tag"`
	some    bool            // something is asked for
}

// UnmarshalJSON knows an object that asks for nothing from one that asks for what is unknown.
func (s *Structured) UnmarshalJSON(data []byte) error {
	type fields Structured
	var all Present
	_ = all.UnmarshalJSON(data) // never fails
	err := json.Unmarshal(data, (*fields)(s))
	if string(s.JSON) == "null" {
		s.JSON = nil
	}
	s.some = bool(all)
	return err
}

// Asked tells whether it asks for something.
func (s *Structured) Asked() bool { return s.some }

// Present is a field that may be there as long as it says nothing.
type Present bool

// UnmarshalJSON never fails.
func (p *Present) UnmarshalJSON(data []byte) error {
	switch string(data) {
	case "null", "{}", "[]", `""`, "false":
	default:
		*p = true
	}
	return nil
}

// Wanted is what a request says of the form of its reply.
type Wanted struct {
	Schema     *dialects.Schema // nil: free text
	Structured Structured
	Choice     dialects.Choice // of tools
	OneCall    bool            // a reply has one call at most
}

// Form is a form of a reply that is not compiled yet.
type Form struct {
	expr  grammar.Expr
	Param string // that asks for it
}

// Text is the form of a reply's text, and of a bare completion; nil: it is free.
func (w *Wanted) Text() (*Form, error) {
	s := w.Structured
	given := 0
	for _, set := range []bool{len(s.JSON) > 0, s.Object, s.Regex != "", s.Choice != nil, bool(s.Grammar), bool(s.Tag)} {
		if set {
			given++
		}
	}
	switch {
	case given > 1:
		return nil, badf("structured_outputs", "structured_outputs asks for %d forms; it must be one of json, json_object, regex and choice", given)
	case given == 1 && w.Schema != nil:
		return nil, badf("structured_outputs", "structured_outputs and %s are both given; give one", w.Schema.Param)
	case bool(s.Grammar), bool(s.Tag):
		return nil, badf("structured_outputs", "structured_outputs of a grammar or a structural tag is not supported by this server; allowed are json, json_object, regex and choice")
	case w.Schema != nil:
		e, err := schemaForm(w.Schema)
		return &Form{e, w.Schema.Param}, err
	case given == 0 && s.some:
		return nil, badf("structured_outputs", "structured_outputs asks for no form that is known; allowed are json, json_object, regex and choice")
	case given == 0:
		return nil, nil
	case s.Choice != nil && len(s.Choice) == 0:
		return nil, badf("structured_outputs", "structured_outputs.choice is an empty list; give at least one text")
	}
	e, err := s.expr()
	if err != nil {
		return nil, badf("structured_outputs", "structured_outputs: %v", err)
	}
	return &Form{e, "structured_outputs"}, nil
}

// expr is the form of the one field that is given.
func (s *Structured) expr() (grammar.Expr, error) {
	switch {
	case s.Object:
		return grammar.JSON(), nil
	case s.Regex != "":
		return grammar.Regexp(s.Regex)
	case s.Choice != nil:
		return grammar.Texts(s.Choice...), nil
	case s.JSON[0] == '"': // a schema within a string
		var text string
		if err := json.Unmarshal(s.JSON, &text); err != nil {
			return grammar.Expr{}, err
		}
		return grammar.JSONSchema([]byte(text))
	}
	return grammar.JSONSchema(s.JSON)
}

// schemaForm is JSON of the schema; without one it is any JSON object.
func schemaForm(s *dialects.Schema) (grammar.Expr, error) {
	if len(bytes.TrimSpace(s.Schema)) == 0 {
		return grammar.JSON(), nil
	}
	e, err := grammar.JSONSchema(s.Schema)
	if err != nil {
		return e, badf(s.Param, "%s: %v", s.Param, err)
	}
	return e, nil
}

// Reply is the form of a conversation's reply; nil: it is free. format reads its calls, of the tool that the choice names alone where it names one, and
// is nil where there are none. opened: the prompt ends within a thought, which comes before the form.
func (f *Forms) Reply(w Wanted, format agents.Format, opened bool) (*Form, error) {
	form, err := w.Text()
	if err != nil {
		return nil, err
	}
	if format != nil && (form != nil || w.Choice.MustCall()) {
		calls, err := w.calls(format)
		switch {
		case err != nil:
			return nil, err
		case w.Choice.MustCall() && form != nil:
			return nil, badf(form.Param, "tool_choice requires a call, and %s a form of the reply; give one", form.Param)
		case w.Choice.MustCall():
			form = &Form{calls, "tool_choice"}
		default: // a call, or a reply of the form
			form.expr = grammar.Choice(calls, form.expr)
		}
	}
	if form != nil && opened {
		form.expr = grammar.Sequence(f.thought(), form.expr)
	}
	return form, nil
}

// Compile makes a form what an engine takes. It takes a processor for a while, for large forms.
func (f *Forms) Compile(form *Form) (engines.Constraint, error) {
	g, err := grammar.Compile(form.expr, f.tokens())
	if err != nil {
		return nil, badf(form.Param, "%s: %v", form.Param, err)
	}
	return constraint{g}, nil
}

// constraint is a grammar as an engine takes it.
type constraint struct{ grammar *grammar.Grammar }

// Match implements engines.Constraint.
func (c constraint) Match() engines.Matcher { return c.grammar.Match() }

// thought is the rest of a thought that the prompt opened, with the blanks behind it.
func (f *Forms) thought() grammar.Expr {
	end := grammar.Until(agents.ThoughtEnd)
	if len(masks.Kept(f.tokenizer, []string{agents.ThoughtEnd})) > 0 { // it is a special token
		end = grammar.Choice(end, grammar.Sequence(grammar.AnyText(), grammar.Special(agents.ThoughtEnd)))
	}
	return grammar.Sequence(end, grammar.Repeat(grammar.Text("\n"), 0, 2))
}

// calls are the replies that are calls.
func (w *Wanted) calls(format agents.Format) (grammar.Expr, error) {
	required, ok := format.(agents.Required)
	if !ok {
		return grammar.Expr{}, badf("tool_choice", "the form of calls of this server cannot be required; use tool_choice auto or none, or serve with another form of calls (--tool-call-parser, agent.format)")
	}
	e, err := required.Calls(!w.OneCall && w.Choice.Mode != dialects.ChoiceNamed)
	if err != nil {
		return e, badf("tools", "%s", wording.Clip(fmt.Sprint(err), 400))
	}
	return e, nil
}
