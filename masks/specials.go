package masks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agentfly/agentfly/jinja"
	"github.com/agentfly/agentfly/trajectory"
)

// Contents are text: a message or a schema that spells a special token, or another with which the template writes roles, does not
// become that token, or a page that prints <|im_end|> could end a turn and begin one of the system. Only what the template itself writes is markup. The two are told apart
// behind the template by a mark: a character that no content holds is put into every such spelling, the conversation is rendered
// with it, and the Encoder leaves it out after it has looked for special tokens. A conversation whose contents spell none is
// rendered once, without marks.

// rendering is what the template wrote.
type rendering struct {
	text   string // without marks
	marked string // with them; text where there are none
	mark   string // "" for none
}

// encode gives the ids of a rendering.
func (x rendering) encode(enc Encoder) []int32 {
	if x.mark == "" {
		return enc.Encode(x.text)
	}
	return enc.EncodeMarked(x.marked, x.mark)
}

// last is the part of a rendering that ends it, n bytes of its text.
func (x rendering) last(n int) rendering {
	out := rendering{text: x.text[len(x.text)-n:], mark: x.mark}
	at := len(x.marked)
	for at > 0 && (n > 0 || x.mark != "" && strings.HasSuffix(x.marked[:at], x.mark)) {
		if x.mark != "" && strings.HasSuffix(x.marked[:at], x.mark) {
			at -= len(x.mark)
			continue
		}
		at--
		n--
	}
	out.marked = x.marked[at:]
	return out
}

// marks are rare characters that templates and Python write as they are. The first one that no content holds is the mark.
const marks, marksEnd = '\U00020000', '\U0002A6D0'

// separator renders a template so that special tokens in contents stay text.
type separator struct {
	tmpl            *jinja.Template
	markup          bool       // nothing is separated: Options.Markup
	assistantMarkup bool       // nor is what the assistant says: Options.AssistantMarkup
	ours            *spellings // special tokens that are text where system or assistant say them
	theirs          *spellings // likewise, all others
}

func newSeparator(enc Encoder, tmpl *jinja.Template, o Options, tools []json.RawMessage) separator {
	s := separator{tmpl: tmpl, markup: o.Markup, assistantMarkup: o.AssistantMarkup}
	if !o.Markup {
		texts := append(slices.Clone(enc.Specials()), roleTokens(enc, tmpl, o, tools)...)
		s.ours, s.theirs = newSpellings(texts, o.Marks), newSpellings(texts, nil)
	}
	return s
}

// render renders with the special tokens of the contents marked.
func (s *separator) render(in jinja.Input) (rendering, error) {
	if s.markup || !s.maySpell(in) {
		text, err := s.tmpl.Render(in)
		return rendering{text: text, marked: text}, err
	}
	var contents []string
	found := false
	in.Text = func(role, text string, free bool) string {
		contents = append(contents, text)
		found = found || len(s.saidBy(role).places(text, free)) > 0
		return text
	}
	text, err := s.tmpl.Render(in)
	if err != nil || !found {
		return rendering{text: text, marked: text}, err
	}
	contents = append(contents, s.tmpl.Source())
	for c := marks; c < marksEnd; c++ {
		mark := string(c)
		if slices.ContainsFunc(contents, func(content string) bool { return strings.Contains(content, mark) }) {
			continue
		}
		in.Text = func(role, text string, free bool) string { return s.saidBy(role).marked(text, mark, free) }
		in.Mark = mark
		text, err := s.tmpl.Render(in)
		return rendering{strings.ReplaceAll(text, mark, ""), text, mark}, err
	}
	return rendering{}, fmt.Errorf("masks: the contents spell special tokens and hold every character from %U to %U, so that none can mark them", marks, marksEnd-1)
}

// maySpell tells whether a conversation may spell a special token. Of JSON it looks at the source, whose escapes may spell one too.
func (s *separator) maySpell(in jinja.Input) bool {
	spells := func(special *spellings, free bool, texts ...string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return len(special.places(text, free)) > 0 })
	}
	escaped := func(special *spellings, raw json.RawMessage) bool {
		return bytes.IndexByte(raw, '\\') >= 0 || spells(special, false, string(raw))
	}
	for _, tool := range in.Tools {
		if escaped(s.theirs, tool) {
			return true
		}
	}
	for _, m := range in.Messages {
		special := s.saidBy(m.Role)
		for _, p := range m.Content {
			if spells(special, true, p.Text) || spells(special, false, p.Image) {
				return true
			}
		}
		if spells(special, true, m.Reasoning) || spells(special, false, m.ToolCallID, m.Name) {
			return true
		}
		for _, c := range m.ToolCalls {
			if spells(special, false, c.ID, c.Name) || escaped(special, c.Arguments) {
				return true
			}
		}
	}
	return false
}

// saidBy are the special tokens that are text where a role says them.
func (s *separator) saidBy(role string) *spellings {
	switch {
	case role == "assistant" && s.assistantMarkup:
		return noSpellings
	case role == "assistant" || role == "system":
		return s.ours
	}
	return s.theirs
}

// checkRoles refuses roles that spell special tokens: templates write them into their markup.
func (s *separator) checkRoles(messages []trajectory.Message) error {
	for i, m := range messages {
		if !s.markup && len(s.theirs.places(m.Role, false)) > 0 {
			return fmt.Errorf("message %d: the role %q spells a special token", i, m.Role)
		}
	}
	return nil
}

// The tags of a thought. No role begins with them, and prompts name them to ask for thoughts.
const thinkOpen, thinkClose = "<think>", "</think>"

// roleTokens are the texts of the tokens that are not special, but with which the template writes roles and their ends, as DeepSeek's
// does with <｜User｜>, or that end a completion. Those with which an assistant writes thoughts and calls are not among them: tools are given
// where the template is for conversations with tools alone, and what precedes the user's message, which may explain calls, is left out then.
func roleTokens(enc Encoder, tmpl *jinja.Template, o Options, tools []json.RawMessage) []string {
	others := enc.OtherAdded()
	if len(others) == 0 {
		return nil
	}
	say := trajectory.Text
	system, user, assistant, tool := say("system", "s"), say("user", "u"), say("assistant", "a"), say("tool", "t")
	var written strings.Builder
	input := jinja.Input{Tools: tools, Extra: o.Extra, Now: o.Now}
	opening := ""
	if tools != nil {
		input.Messages = []trajectory.Message{user}
		opening, _ = tmpl.Render(input) // a template that cannot is refused later
	}
	for _, messages := range [][]trajectory.Message{{user}, {system, user}, {user, assistant, user}, {user, assistant, tool, tool}, {user, assistant, tool, assistant, user}} {
		for _, prompt := range []bool{false, true} {
			input.Messages, input.AddGenerationPrompt = messages, prompt
			text, err := tmpl.Render(input)
			if err == nil && (tools == nil || messages[0].Role == "user") { // else a role that this template does not have
				written.WriteString(text[common(text, opening):] + "\n")
			}
		}
	}
	roles := written.String()
	markup := func(c rune) bool { return !unicode.IsLetter(c) && !unicode.IsDigit(c) && !isSpace(c) }
	var out []string
	for _, text := range others {
		id, _ := enc.ID(text)
		stops := slices.Contains(o.StopIDs, id) || text == tmpl.Options().EOSToken
		writes := strings.Contains(roles, text) && strings.ContainsFunc(text, markup) // white space and words stand in every content
		if (stops || writes) && text != thinkOpen && text != thinkClose {
			out = append(out, text)
		}
	}
	return out
}

// spellings finds the texts of special tokens in contents.
type spellings struct {
	texts   tree
	ends    map[string]bool // their proper ends: with one that a content begins with, the text before it may make a whole
	longest int             // of ends
}

var noSpellings = newSpellings(nil, nil)

func newSpellings(all, without []string) *spellings {
	s := &spellings{ends: map[string]bool{}}
	for _, text := range all {
		_, n := utf8.DecodeRuneInString(text)
		if slices.Contains(without, text) || n == len(text) { // nothing can be put into one character
			continue
		}
		s.texts.add(text)
		s.longest = max(s.longest, len(text)-n)
		for at := n; at < len(text); {
			s.ends[text[at:]] = true
			_, n := utf8.DecodeRuneInString(text[at:])
			at += n
		}
	}
	return s
}

// places are the positions of a content at which a mark interrupts every special token that it spells, and if it is free every one
// that it spells together with what stands before or behind it. They rise.
func (s *spellings) places(content string, free bool) []int {
	var out []int
	if free && s.ended(content) {
		out = append(out, 0)
	}
	for at := 0; at < len(content); at++ {
		if found, _ := s.texts.find(content[at:], free); !found {
			continue
		}
		_, n := utf8.DecodeRuneInString(content[at:])
		if len(out) == 0 || out[len(out)-1] < at+n {
			out = append(out, at+n)
		}
	}
	return out
}

// ended says that a content begins with the proper end of a special token.
func (s *spellings) ended(content string) bool {
	for n := 1; n <= min(len(content), s.longest); n++ {
		if s.ends[content[:n]] {
			return true
		}
	}
	return false
}

// tree holds texts by their bytes, so that a search looks at no more bytes of a content than the longest text has, however many
// texts there are: models have a thousand special tokens that begin alike. The first node is the root.
type tree []node

type node struct {
	bytes string // that go on from here
	next  []int  // the nodes that they lead to
	whole bool   // a text ends here
}

func (t *tree) add(text string) {
	if len(*t) == 0 {
		*t = tree{{}}
	}
	at := 0
	for i := range len(text) {
		k := strings.IndexByte((*t)[at].bytes, text[i])
		if k < 0 {
			k = len((*t)[at].next)
			(*t)[at].bytes += text[i : i+1]
			(*t)[at].next = append((*t)[at].next, len(*t))
			*t = append(*t, node{})
		}
		at = (*t)[at].next[k]
	}
	(*t)[at].whole = true
}

// find says that a content begins with one of the texts, or if it is free that one of them begins with the content and may go on
// behind it, and how many bytes it looked at.
func (t tree) find(content string, free bool) (found bool, looked int) {
	if len(t) == 0 {
		return false, 0
	}
	n := &t[0]
	for i := range len(content) {
		k := strings.IndexByte(n.bytes, content[i])
		if k < 0 {
			return false, i + 1
		}
		if n = &t[n.next[k]]; n.whole {
			return true, i + 1
		}
	}
	return free, len(content)
}

// marked is the content with the mark at its places.
func (s *spellings) marked(content, mark string, free bool) string {
	var b strings.Builder
	from := 0
	for _, at := range s.places(content, free) {
		b.WriteString(content[from:at])
		b.WriteString(mark)
		from = at
	}
	b.WriteString(content[from:])
	return b.String()
}
