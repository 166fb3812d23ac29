package masks

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/agentfly/agentfly/jinja"
	"github.com/agentfly/agentfly/trajectory"
)

// Encoder is what a Renderer needs of a tokenizer; masks/tokenizer implements it. It is not to add tokens of its own.
type Encoder interface {
	Encode(text string) []int32                  // special tokens in the text are recognised
	EncodeMarked(text, mark string) []int32      // Encode of the text without the mark, but no special token is recognised across a mark
	Specials() []string                          // the texts of the special tokens
	OtherAdded() []string                        // the texts of the other tokens that Encode looks for before it splits a text
	ID(token string) (id int32, ok bool)         // of such a token's text
	Decode(ids []int32, skipSpecial bool) string // with skipSpecial, special tokens give no text
}

// Options of a Renderer.
type Options struct {
	// StopIDs end a completion beside what the template says: the model's eos_token_id, from config.json and
	// generation_config.json.
	StopIDs []int32

	// Markup recognises special tokens in messages and schemas too, as vLLM and transformers do. Else what spells one is text: only
	// the template's own special tokens are tokens, and Marks, with which an agent's format begins calls and thoughts, in what system
	// and assistant say. AssistantMarkup recognises all in what the assistant says: in recorded conversations templates wrote its calls.
	Markup, AssistantMarkup bool
	Marks                   []string

	Now   time.Time      // what the template's strftime_now tells; one time for a whole run, or sequences would not repeat
	Extra map[string]any // further variables of the template, such as enable_thinking
}

// Renderer turns conversations of one model into token ids.
type Renderer struct {
	enc       Encoder
	tmpl      *jinja.Template
	options   Options
	separator separator
	usesTools bool
	stopIDs   []int32
	closings  []closing // before a user's and before a tool's message; empty if the template writes none
	reason    string    // why the template is not append-only; empty if it is

	probeTools []json.RawMessage // that probes are rendered with: nil, but for a template that is for conversations with tools alone
	toolUse    *Renderer         // of conversations with tools, where the template has another one for them; nil: this one
	noTools    error             // ToolsError
}

// closing is the text from the end of the assistant's content to the end of the end-of-turn token, and that token.
type closing struct {
	text string
	id   int32
}

// ErrRewritten says that the template renders the earlier turns differently now: the sequence so far cannot be continued,
// and a new sample begins with a new prompt.
var ErrRewritten = errors.New("masks: the chat template rewrites the history")

// NewRenderer probes the template once: its end-of-turn token, whether it writes tool schemas, and whether it is append-only.
// A template that cannot render a conversation of a user and an assistant at all is an error; one for conversations with tools is ToolsError's.
func NewRenderer(enc Encoder, tmpl *jinja.Template, o Options) (*Renderer, error) {
	r, err := newRenderer(enc, tmpl, o, nil)
	if err != nil {
		return nil, err
	}
	toolUse, err := tmpl.ToolUse()
	switch {
	case err != nil:
		r.noTools = fmt.Errorf("masks: chat template: %w", err)
	case toolUse != nil:
		if r.toolUse, err = newRenderer(enc, toolUse, o, []json.RawMessage{json.RawMessage(probeTool)}); err != nil {
			r.noTools = fmt.Errorf("%w (the chat template tool_use)", err)
		}
	}
	return r, nil
}

func newRenderer(enc Encoder, tmpl *jinja.Template, o Options, probeTools []json.RawMessage) (*Renderer, error) {
	r := &Renderer{
		enc: enc, tmpl: tmpl, options: o, separator: newSeparator(enc, tmpl, o, probeTools), usesTools: tmpl.UsesTools(), probeTools: probeTools,
	}
	if err := r.findStops(); err != nil {
		return nil, err
	}
	r.reason = r.probe()
	return r, nil
}

// with is the renderer of conversations with these tools.
func (r *Renderer) with(tools []json.RawMessage) (*Renderer, error) {
	switch {
	case len(tools) == 0:
		return r, nil
	case r.noTools != nil:
		return nil, r.noTools
	case r.toolUse != nil:
		return r.toolUse, nil
	}
	return r, nil
}

// ToolsError says why the template of conversations with tools cannot render any; nil: it can. It is the error of all that is rendered with tools.
func (r *Renderer) ToolsError() error { return r.noTools }

// StopIDs are the tokens that end a completion: the template's end-of-turn tokens, the eos token and Options.StopIDs.
func (r *Renderer) StopIDs() []int32 {
	out := slices.Clone(r.stopIDs)
	if r.toolUse == nil {
		return out
	}
	for _, id := range r.toolUse.stopIDs {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// ToolsInSystemPrompt says that the template of conversations with tools ignores them, so that their schemas are written into the system prompt.
func (r *Renderer) ToolsInSystemPrompt() bool {
	if r.toolUse != nil {
		r = r.toolUse
	}
	return !r.usesTools && r.noTools == nil
}

// AppendOnly tells whether every conversation can be continued without changing what was rendered before; if not, reason
// names what the template rewrites. Observation still works where a given turn is not affected, and returns ErrRewritten
// where it is.
func (r *Renderer) AppendOnly() (ok bool, reason string) {
	reason = r.reason
	if reason == "" && r.toolUse != nil {
		reason = r.toolUse.reason
	}
	return reason == "", reason
}

// Prompt renders messages. tools are OpenAI schemas; with addGenerationPrompt the text ends where the assistant begins.
func (r *Renderer) Prompt(messages []trajectory.Message, tools []json.RawMessage, addGenerationPrompt bool) (ids []int32, text string, err error) {
	if r, err = r.with(tools); err != nil {
		return nil, "", err
	}
	x, err := r.rendered(messages, tools, addGenerationPrompt)
	if err != nil {
		return nil, "", fmt.Errorf("masks: prompt: %w", err)
	}
	return x.encode(r.enc), x.text, nil
}

// render is the text of a conversation.
func (r *Renderer) render(messages []trajectory.Message, tools []json.RawMessage, addGenerationPrompt bool) (string, error) {
	x, err := r.rendered(messages, tools, addGenerationPrompt)
	return x.text, err
}

func (r *Renderer) rendered(messages []trajectory.Message, tools []json.RawMessage, addGenerationPrompt bool) (rendering, error) {
	if len(tools) == 0 {
		tools = nil
	}
	if tools != nil && !r.usesTools {
		var err error
		if messages, err = toolsInSystemPrompt(messages, tools); err != nil {
			return rendering{}, err
		}
		tools = nil
	}
	if err := r.separator.checkRoles(messages); err != nil {
		return rendering{}, err
	}
	return r.separator.render(jinja.Input{
		Messages: messages, Tools: tools, AddGenerationPrompt: addGenerationPrompt, Extra: r.options.Extra, Now: r.options.Now,
	})
}

// toolsInSystemPrompt returns messages with the schemas at the end of the system message (see the package comment).
func toolsInSystemPrompt(messages []trajectory.Message, tools []json.RawMessage) ([]trajectory.Message, error) {
	var b strings.Builder
	b.WriteString("# Tools\n\nYou may call one or more functions to assist with the user query.\n\n" +
		"You are provided with function signatures within <tools></tools> XML tags:\n<tools>")
	for i, tool := range tools {
		text, err := jinja.Dumps(tool)
		if err != nil {
			return nil, fmt.Errorf("tool %d: %w", i, err)
		}
		b.WriteString("\n" + text)
	}
	b.WriteString("\n</tools>\n\nFor each function call, return a json object with function name and arguments within " +
		"<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>")
	if len(messages) > 0 && messages[0].Role == "system" {
		system, err := messages[0].TextContent()
		if err != nil {
			return nil, err
		}
		out := slices.Clone(messages)
		out[0] = trajectory.Text("system", system+"\n\n"+b.String())
		return out, nil
	}
	return append([]trajectory.Message{trajectory.Text("system", b.String())}, messages...), nil
}

// Reply is a completion and what came back for it.
type Reply struct {
	History    []trajectory.Message // the messages of the prompt that the completion answered
	Tools      []json.RawMessage    // as given to Prompt
	Completion string               // decoded, without the stop token
	Results    []trajectory.Message // the observation; empty for none
	Sampled    []int32              // the completion's ids; nil: it does not end with the token that closes the turn
	Prompt     string               // the text that Prompt or Continue made of History; "": it is rendered again
}

// Messages is the history after the reply: what Prompt renders to begin a new sample, and the History of the next reply.
func (p *Reply) Messages() []trajectory.Message {
	out := append(make([]trajectory.Message, 0, len(p.History)+1+len(p.Results)), p.History...)
	return append(append(out, trajectory.Text("assistant", p.Completion)), p.Results...)
}

// Observation returns the ids between a completion and the next one: the end-of-turn token unless it was sampled (another
// stop token, such as a base model's, does not close the turn), what the template puts after it, the results, and the
// generation prompt. They are the ids of the template's text tokenized alone. The text is cut out of a full rendering that is
// checked to continue the prompt of this turn; if it does not, the error is ErrRewritten.
func (r *Renderer) Observation(p Reply) ([]int32, error) {
	ids, _, err := r.Continue(p)
	return ids, err
}

// Continue is Observation that also returns the text of the prompt that the ids complete: the Prompt of the next reply.
func (r *Renderer) Continue(p Reply) (ids []int32, prompt string, err error) {
	if len(p.Results) == 0 {
		return nil, "", fmt.Errorf("masks: observation: no message came back; the trajectory ends here")
	}
	if r, err = r.with(p.Tools); err != nil {
		return nil, "", err
	}
	text, prompt, end, err := r.observationText(p)
	if err != nil {
		return nil, "", err
	}
	ids = text.encode(r.enc)
	if n := len(p.Sampled); n > 0 && end.text != "" && p.Sampled[n-1] == end.id { // encoded with it, so that the text after it is cut as in the middle of a sequence
		ids = ids[slices.Index(ids, end.id)+1:]
	}
	return ids, prompt, nil
}

// observationText is the text after the completion, the end-of-turn token included, which is returned too, and the whole text
// that ends with it.
func (r *Renderer) observationText(p Reply) (text rendering, full string, end closing, err error) {
	before := p.Prompt
	if before == "" {
		if before, err = r.render(p.History, p.Tools, true); err != nil {
			return text, "", end, fmt.Errorf("masks: observation: the prompt: %w", err)
		}
	}
	all, err := r.rendered(p.Messages(), p.Tools, true)
	if err != nil {
		return text, "", end, fmt.Errorf("masks: observation: %w", err)
	}
	full = all.text
	rest, ok := strings.CutPrefix(full, before)
	if !ok {
		at := common(full, before)
		return text, "", end, fmt.Errorf("%w: the prompt went on with %q and now goes on with %q", ErrRewritten, head(before[at:]), head(full[at:]))
	}
	ends := r.closings
	if len(ends) == 0 {
		ends = []closing{{}}
	}
	for _, end := range ends {
		if after, ok := afterContent(rest, p.Completion, end.text); ok {
			return all.last(len(after)), full, end, nil
		}
	}
	return text, "", end, fmt.Errorf("%w: the completion %q is now written %q", ErrRewritten, head(p.Completion), head(rest))
}

// afterContent cuts the completion off rest. Templates that strip white space around it keep what follows it as it is; so
// the longest part of the completion's own trailing space is cut that leaves the end of turn behind it.
func afterContent(rest, completion, end string) (string, bool) {
	core := strings.TrimFunc(completion, isSpace)
	lead, trail, _ := strings.Cut(completion, core)
	if core == "" {
		lead, trail = "", completion
	}
	at := strings.Index(rest, core)
	if at < 0 || !strings.HasSuffix(lead, rest[:at]) && !strings.HasPrefix(lead, rest[:at]) {
		return "", false
	}
	rest = rest[at+len(core):]
	for n := len(trail); n >= 0; n-- {
		if after, ok := strings.CutPrefix(rest, trail[:n]); ok && strings.HasPrefix(after, end) {
			return after, true
		}
	}
	return "", false
}

// head is the beginning of a text, for messages.
func head(s string) string {
	const most = 30
	if n := []rune(s); len(n) > most {
		return string(n[:most]) + "…"
	}
	return s
}

// isSpace is white space as Python's strip sees it.
func isSpace(c rune) bool { return unicode.IsSpace(c) || c >= 0x1c && c <= 0x1f }

func common(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
