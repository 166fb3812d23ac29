package masks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agentfly/agentfly/masks/template"
	"github.com/agentfly/agentfly/trajectory"
)

// Contents are text: a message or a schema that spells a special token does not become that token, or a page that prints
// <|im_end|> could end a turn and begin one of the system. Only what the template itself writes is markup. The two are told apart
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
func (r *Renderer) encode(x rendering) []int32 {
	if x.mark == "" {
		return r.enc.Encode(x.text)
	}
	return r.enc.EncodeMarked(x.marked, x.mark)
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

// markup renders with the special tokens of the contents marked.
func (r *Renderer) markup(in template.Input) (rendering, error) {
	if r.options.Markup || !r.maySpell(in) {
		text, err := r.tmpl.Render(in)
		return rendering{text: text, marked: text}, err
	}
	var contents []string
	found := false
	in.Text = func(role, s string, free bool) string {
		contents = append(contents, s)
		found = found || len(r.spellings(role).places(s, free)) > 0
		return s
	}
	text, err := r.tmpl.Render(in)
	if err != nil || !found {
		return rendering{text: text, marked: text}, err
	}
	contents = append(contents, r.tmpl.Source())
	for c := marks; c < marksEnd; c++ {
		mark := string(c)
		if slices.ContainsFunc(contents, func(s string) bool { return strings.Contains(s, mark) }) {
			continue
		}
		in.Text = func(role, s string, free bool) string { return r.spellings(role).marked(s, mark, free) }
		text, err := r.tmpl.Render(in)
		return rendering{strings.ReplaceAll(text, mark, ""), text, mark}, err
	}
	return rendering{}, fmt.Errorf("masks: the contents spell special tokens and hold every character from %U to %U, so that none can mark them", marks, marksEnd-1)
}

// maySpell tells whether a conversation may spell a special token. Of JSON it looks at the source, whose escapes may spell one too.
func (r *Renderer) maySpell(in template.Input) bool {
	spells := func(s *spellings, free bool, texts ...string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return len(s.places(text, free)) > 0 })
	}
	escaped := func(s *spellings, raw json.RawMessage) bool {
		return bytes.IndexByte(raw, '\\') >= 0 || spells(s, false, string(raw))
	}
	for _, tool := range in.Tools {
		if escaped(r.theirs, tool) {
			return true
		}
	}
	for _, m := range in.Messages {
		s := r.spellings(m.Role)
		for _, p := range m.Content {
			if spells(s, true, p.Text) || spells(s, false, p.Image) {
				return true
			}
		}
		if spells(s, true, m.Reasoning) || spells(s, false, m.ToolCallID, m.Name) {
			return true
		}
		for _, c := range m.ToolCalls {
			if spells(s, false, c.ID, c.Name) || escaped(s, c.Arguments) {
				return true
			}
		}
	}
	return false
}

// spellings are the texts of special tokens that are text where a role says them.
func (r *Renderer) spellings(role string) *spellings {
	switch {
	case role == "assistant" && r.options.AssistantMarkup:
		return noSpellings
	case role == "assistant" || role == "system":
		return r.ours
	}
	return r.theirs
}

// spellings finds the texts of special tokens in contents.
type spellings struct {
	begin [256][]string // by their first byte
	ends  [256][]string // likewise their proper ends: with one that a content begins with, the text before it may make a whole
}

var noSpellings = newSpellings(nil, nil)

func newSpellings(all, without []string) *spellings {
	s := &spellings{}
	for _, text := range all {
		_, n := utf8.DecodeRuneInString(text)
		if slices.Contains(without, text) || n == len(text) { // nothing can be put into one character
			continue
		}
		s.begin[text[0]] = append(s.begin[text[0]], text)
		for at := n; at < len(text); {
			if end := text[at:]; !slices.Contains(s.ends[end[0]], end) {
				s.ends[end[0]] = append(s.ends[end[0]], end)
			}
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
	if free && content != "" && slices.ContainsFunc(s.ends[content[0]], func(end string) bool { return strings.HasPrefix(content, end) }) {
		out = append(out, 0)
	}
	for at := 0; at < len(content); at++ {
		for _, text := range s.begin[content[at]] {
			rest := content[at:] // spells the text, or begins it and the text behind the content may go on
			if !strings.HasPrefix(rest, text) && !(free && strings.HasPrefix(text, rest)) {
				continue
			}
			_, n := utf8.DecodeRuneInString(content[at:])
			if len(out) == 0 || out[len(out)-1] < at+n {
				out = append(out, at+n)
			}
			break
		}
	}
	return out
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

// checkRoles refuses roles that spell special tokens: templates write them into their markup.
func (r *Renderer) checkRoles(messages []trajectory.Message) error {
	for i, m := range messages {
		if !r.options.Markup && len(r.theirs.places(m.Role, false)) > 0 {
			return fmt.Errorf("message %d: the role %q spells a special token", i, m.Role)
		}
	}
	return nil
}
