package serve

import (
	"context"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/dialects"
	forming "github.com/agentfly/agentfly/dialects/forms"
	"github.com/agentfly/agentfly/engines"
)

// forms compile the forms that completions are held to: response_format, structured_outputs, and a required tool_choice.
type forms struct {
	codec  *codec
	engine engines.Engine
	made   *forming.Forms
}

func newForms(c *codec, e engines.Engine) *forms {
	return &forms{codec: c, engine: e, made: forming.New(c.tokenizer, c.vocab, c.stopIDs)}
}

// wanted is what the sampling parameters say of the form.
func (p *sampling) wanted() (w forming.Wanted, err error) {
	w = forming.Wanted{Schema: p.Schema, Structured: p.Structured}
	if w.Schema == nil {
		w.Schema, err = dialects.ParseFormat(p.Format)
	}
	return w, err
}

// of is the form of a conversation's reply; nil is free. format reads its calls, and is nil where there are none. opened: the prompt ends
// within a thought, which comes before the form.
func (f *forms) of(ctx context.Context, c *conversation, format agents.Format, p *sampling, opened bool) (engines.Constraint, error) {
	w, err := p.wanted()
	if err != nil {
		return nil, err
	}
	w.Choice, w.OneCall = c.choice, c.oneCall
	form, err := f.made.Reply(w, format, opened)
	if err != nil {
		return nil, err
	}
	return f.compile(ctx, form, p)
}

// ofText is the form of a bare completion; nil is free.
func (f *forms) ofText(ctx context.Context, p *sampling) (engines.Constraint, error) {
	w, err := p.wanted()
	if err != nil {
		return nil, err
	}
	form, err := w.Text()
	if err != nil {
		return nil, err
	}
	return f.compile(ctx, form, p)
}

func (f *forms) compile(ctx context.Context, form *forming.Form, p *sampling) (c engines.Constraint, err error) {
	if form == nil {
		return nil, nil
	}
	if !f.engine.Capabilities().Constraints {
		return nil, badf(form.Param, "%s is not supported by this server: its engine does not constrain decoding", form.Param)
	}
	if or(p.MinTokens, 0) > 0 {
		return nil, badf("min_tokens", "min_tokens is %d, but with %s the form says when the reply ends; leave min_tokens out", *p.MinTokens, form.Param)
	}
	var failed error
	if err := f.codec.do(ctx, func() { c, failed = f.made.Compile(form) }); err != nil {
		return nil, err
	}
	return c, failed
}
