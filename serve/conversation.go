package serve

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// conversation is what a model is to go on with, in whatever dialect it was asked.
type conversation struct {
	messages  []trajectory.Message
	param     string            // what the request calls the messages
	tools     []json.RawMessage // OpenAI's schemas
	choice    dialects.Choice   // of tools; with none calls are not looked for
	oneCall   bool              // only the first call of a reply counts
	noPrompt  bool              // the assistant's turn is not begun
	special   bool              // what the tokenizer puts around a text is put around the conversation too
	maxTokens *int              // nil: as many as fit
}

// conversations have conversations answered, in whatever dialect they came.
type conversations struct {
	codec  *codec
	forms  *forms
	calls  callParser
	queue  *queue
	engine *completer
}

// choices are the completions that answer a conversation. opened: the prompt ends within a thought.
func (t *conversations) choices(ctx context.Context, c *conversation, id string, p *sampling) (choices []*choice, opened bool, err error) {
	format, err := c.format(t.calls)
	if err != nil {
		return nil, false, err
	}
	want, err := maxTokens(c.maxTokens, -1)
	if err != nil {
		return nil, false, err
	}
	params, err := p.engine(want, t.codec.stopIDs)
	if err != nil {
		return nil, false, err
	}
	if n := int(or(p.N, 1)); n > t.queue.most {
		return nil, false, t.queue.tooMany(1, n)
	}
	prompt, text, err := c.render(ctx, t.codec)
	if err != nil {
		return nil, false, err
	}
	if want, err = t.codec.checkPrompt(c.param, prompt, want); err != nil {
		return nil, false, err
	}
	opened = agents.OpensThought(text)
	form, err := t.forms.of(ctx, c, format, p, opened)
	if err != nil {
		return nil, false, err
	}
	choices = t.engine.choices(id, p, params, [][]int32{prompt}, []int{want}, form)
	if format != nil {
		for _, choice := range choices {
			choice.format, choice.calls = format, agents.NewSplitter(format, c.oneCall)
			if opened {
				choice.calls.InThought()
			}
			choice.keep(t.codec.tokenizer, format)
		}
	}
	return choices, opened, nil
}

// keep leaves the special tokens in the text that begin a call of the format, or are the tags of a thought. format may be nil.
func (c *choice) keep(t Tokenizer, format agents.Format) {
	c.text.tokenizer = keeping{t, masks.Kept(t, agents.MarksOf(format))}
}

// format reads the tools; nil says that calls are not looked for.
func (c *conversation) format(p callParser) (agents.Format, error) {
	specs := make([]tools.Spec, 0, len(c.tools))
	for i, t := range c.tools {
		at := fmt.Sprintf("tools[%d]", i)
		if _, err := dialects.ToolName(at, t); err != nil {
			return nil, err
		}
		spec, err := tools.ReadOpenAI(t)
		if err != nil {
			return nil, badf(at, "%s: %v", at, err)
		}
		if c.choice.Mode != dialects.ChoiceNamed || spec.Name == c.choice.Name {
			specs = append(specs, spec)
		}
	}
	if len(specs) == 0 || c.choice.Mode == dialects.ChoiceNone {
		return nil, nil
	}
	format, err := p.format(specs)
	if err != nil {
		return nil, badf("tools", "%v", err)
	}
	return format, nil
}

// render turns the conversation into ids, and their text.
func (c *conversation) render(ctx context.Context, in *codec) (ids []int32, text string, err error) {
	if in.renderer == nil {
		return nil, "", badf(c.param, "the model has no chat template; use /v1/completions")
	}
	parts, bytes := len(c.messages)+len(c.tools), 0
	for _, t := range c.tools {
		bytes += len(t)
	}
	for i, m := range c.messages {
		content, err := m.TextContent()
		if err != nil {
			return nil, "", badf(c.param, "message %d of the conversation (%s): this model reads text alone: %v", i+1, m.Role, err)
		}
		bytes += len(content) + len(m.Reasoning)
		for _, call := range m.ToolCalls {
			bytes += len(call.Name) + len(call.Arguments)
		}
		parts += len(m.ToolCalls)
	}
	if err := in.checkParts(c.param, parts); err != nil {
		return nil, "", err
	}
	if err := in.checkText(c.param, "the conversation", bytes); err != nil {
		return nil, "", err
	}
	var failed error
	prompt := func() {
		ids, text, failed = in.renderer.Prompt(c.messages, c.tools, !c.noPrompt)
		if failed == nil {
			return
		}
		for _, messages := range dialects.Combined(c.messages, true) {
			if ids, text, failed = in.renderer.Prompt(messages, c.tools, !c.noPrompt); failed == nil {
				return
			}
		}
	}
	if err := in.do(ctx, prompt); err != nil {
		return nil, "", err
	}
	if failed != nil {
		return nil, "", badf(c.param, "%v", failed)
	}
	if c.special {
		ids, err = in.encode(ctx, text, true)
	}
	return ids, text, err
}
