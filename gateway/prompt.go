package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// prompt is what a call asks the engine for.
type prompt struct {
	ids     []int32
	text    string
	history []trajectory.Message // that text renders
	after   int                  // the turn that it goes on after; -1: none
	fresh   []trajectory.Message // behind that turn's reply, whose ids go on; nil: all are rendered
	sent    []trajectory.Message // the conversation, its replies as a client repeats them
	schemas key
	format  agents.Format // nil: calls are not looked for
}

// tell says in what a turn keeps of its call which messages came with it: those behind the reply that it goes on after, or all.
func (p prompt) tell(in *trajectory.Incoming, q asked) {
	messages := p.fresh
	if in.After, in.Whole, in.Schemas = p.after, p.fresh == nil, nil; in.Whole {
		messages, in.Schemas = q.Messages, q.Tools
	}
	in.Messages, _ = json.Marshal(messages) // what cannot be written is not adopted after a restart
}

// prompter makes the prompts of requests.
type prompter struct {
	renderer Renderer
	encode   func(text string) []int32 // nil: texts are refused
	format   func(specs []tools.Spec) (agents.Format, error)
}

// render makes the prompt of a request: where it goes on after the reply before, of the ids up to there and the rest of its messages, else of
// all its messages. Both are combined only where the template refuses all of them as they are.
func (m prompter) render(q asked, before *said, rest []trajectory.Message) (p prompt, err error) {
	p = prompt{after: -1}
	if p.schemas, p.format, err = m.tools(q); err != nil {
		return p, err
	}
	bad := func(err error) error {
		return &dialects.Error{Status: http.StatusBadRequest, Message: err.Error(), Param: q.Param}
	}
	if q.Messages == nil {
		return m.completion(q, p)
	}
	if err := textAlone(q); err != nil {
		return p, err
	}
	if before != nil {
		p.after = before.turn
	}
	goesOn := before != nil && before.schemas == p.schemas && len(rest) > 0
	if goesOn && m.goOn(&p, before, q.Tools, rest, rest) == nil {
		return p, nil
	}
	if m.begin(&p, q.Tools, q.Messages) == nil || goesOn && m.goOn(&p, before, q.Tools, rest, dialects.Combined(rest, false)...) == nil {
		return p, nil
	}
	if err := m.begin(&p, q.Tools, dialects.Combined(q.Messages, true)...); err != nil {
		return p, bad(err)
	}
	return p, nil
}

// begin makes a prompt of all messages of a conversation, in the first of its forms that the template takes.
func (m prompter) begin(p *prompt, tools []json.RawMessage, forms ...[]trajectory.Message) (err error) {
	for _, messages := range forms {
		var ids []int32
		var text string
		if ids, text, err = m.renderer.Prompt(messages, tools, true); err == nil {
			p.ids, p.text, p.history, p.sent = ids, text, messages, messages
			return nil
		}
	}
	return err
}

// goOn makes a prompt of the ids up to a reply and the messages behind it, in the first of their forms that the template takes. Where the template refuses
// the replies as text, which they were sampled as, it has those before this one as the client repeats them: Mistral's templates take text of the assistant
// once between two messages of a user, and any number of calls. What stands behind the reply is the same, and the ids before it stay the sampled ones. An
// error says that a new prompt has to be made.
func (m prompter) goOn(p *prompt, before *said, tools []json.RawMessage, rest []trajectory.Message, forms ...[]trajectory.Message) (err error) {
	for _, messages := range forms {
		r := masks.Reply{History: before.history, Tools: tools, Completion: before.completion, Results: messages, Sampled: before.sampled, Prompt: before.text}
		var ids []int32
		var text string
		ids, text, err = m.renderer.Continue(r)
		if err != nil && !errors.Is(err, masks.ErrRewritten) {
			r.History, r.Prompt = before.sent, ""
			ids, text, err = m.renderer.Continue(r)
		}
		if err == nil {
			p.ids, p.text, p.history, p.fresh = slices.Concat(before.ids, ids), text, r.Messages(), rest
			p.sent = slices.Concat(before.sent, []trajectory.Message{before.echo}, messages)
			return nil
		}
	}
	return err
}

// textAlone refuses a conversation with an image: no engine gets one from here.
func textAlone(q asked) error {
	for i, m := range q.Messages {
		for _, part := range m.Content {
			if part.Type == "text" {
				continue
			}
			return &dialects.Error{
				Status: http.StatusBadRequest, Param: q.Param,
				Message: fmt.Sprintf("message %d of the conversation (%s) has an %s, and this gateway takes text alone; leave it out, or say in words what it shows", i+1, m.Role, part.Type),
			}
		}
	}
	return nil
}

// schemasOf names the tools of a request.
func schemasOf(tools []json.RawMessage) (schemas key) {
	for _, t := range tools {
		schemas = schemas.with(hashOf(dialects.Canonical(t)))
	}
	return schemas
}

// tools names the tools of a request, and makes the format of their calls; nil: calls are not looked for.
func (m prompter) tools(q asked) (schemas key, f agents.Format, err error) {
	schemas = schemasOf(q.Tools)
	if len(q.Tools) == 0 || q.Choice.Mode == dialects.ChoiceNone {
		return schemas, nil, nil
	}
	specs, err := specsOf(q.Tools)
	if err != nil {
		return schemas, nil, err
	}
	if f, err = m.format(specs); err != nil {
		return schemas, nil, &dialects.Error{Status: http.StatusBadRequest, Message: err.Error(), Param: "tools"}
	}
	return schemas, f, nil
}

// completion is the prompt of a request without a conversation.
func (m prompter) completion(q asked, p prompt) (prompt, error) {
	p.text, p.ids = q.Prompt.Text, q.Prompt.IDs
	if p.ids == nil && m.encode != nil {
		p.ids = m.encode(p.text)
	}
	if len(p.ids) == 0 {
		return p, &dialects.Error{Status: http.StatusBadRequest, Message: "the prompt is empty", Param: "prompt"}
	}
	return p, nil
}

// specsOf reads OpenAI's schemas.
func specsOf(schemas []json.RawMessage) ([]tools.Spec, error) {
	specs := make([]tools.Spec, len(schemas))
	for i, t := range schemas {
		var err error
		if specs[i], err = tools.ReadOpenAI(t); err != nil {
			return nil, &dialects.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf("tools[%d]: %v", i, err), Param: "tools"}
		}
	}
	return specs, nil
}
