package agents

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/trajectory"
)

// Piece is a part of a completion: content, or a call.
type Piece struct {
	Content string
	Call    *trajectory.ToolCall
}

// Splitter takes a completion apart while it arrives, however it is cut into pieces: calls, and content, which is everything else. A
// call is told as soon as nothing that follows can take it back, and then as Format.Parse reads it. What cannot be read stays content word
// for word; white space around a call is dropped, and so is what the format does not read behind a call. A Splitter belongs to one goroutine.
type Splitter struct {
	grammar grammar
	single  bool // only the first call counts
	text    strings.Builder
	begin   int // of what comes behind the thinking
	from    int // what comes before was told
	calls   int
	opened  bool   // the prompt opened a thought, with which the completion begins
	thought bool   // what the model thinks first, where calls are drafts, is told
	opens   int    // from here on the completion may open a thought; -1: it had one, or none can follow
	stopped bool   // nothing that follows is read
	plain   bool   // what follows is content: no call in it counts
	space   string // white space that is content unless a call follows
	drop    bool   // white space is dropped: a call came before it
}

// segment is what a grammar finds first behind a position of a completion. Before start is content. From start to end are calls, or
// text in which none can be read; end equal to start says that more text decides what begins there.
type segment struct {
	start, end int
	calls      []trajectory.ToolCall
	errors     []string // why there are none
	stop       bool     // no call behind it is read
	unmarked   bool     // no tag says that it is a call: where the completion opens a thought behind it, it is the words before that
}

// grammar is a Format that finds calls in a completion that may still go on. text is all that has arrived; last says that it is whole,
// and then end is beyond start, or start is the end of the text. Whatever follows, an answer for the same position with end beyond start
// does not change.
type grammar interface {
	next(text string, from int, last bool) segment
}

// NewSplitter returns a splitter for completions of a format. single: only the first call of a completion counts.
func NewSplitter(f Format, single bool) *Splitter {
	g, ok := f.(grammar)
	if !ok {
		g = atTheEnd{f}
	}
	return &Splitter{grammar: g, single: single}
}

// InThought says that the prompt opened a thought (OpensThought): the completion begins within it. It is called before Push.
func (s *Splitter) InThought() { s.opened = true }

// Push adds text and returns what is certain now.
func (s *Splitter) Push(text string) []Piece {
	s.text.WriteString(text)
	return s.scan(false)
}

// End returns the rest.
func (s *Splitter) End() []Piece { return s.scan(true) }

// Calls counts those that were told.
func (s *Splitter) Calls() int { return s.calls }

func (s *Splitter) scan(last bool) []Piece {
	var out []Piece
	text := s.text.String()
	say := func(to int) {
		if told := s.say(text[s.from:to]); told != "" {
			out = append(out, Piece{Content: told})
		}
		s.from = to
	}
	if !s.thought {
		s.thought = pastThinking(text, s.from, last, s.opened, say)
		s.begin = s.from
		if s.begin > 0 {
			s.opens = -1
		}
	}
	for s.thought && !s.stopped && s.from < len(text) {
		if s.plain {
			say(len(text))
			break
		}
		g := s.grammar.next(text[s.begin:], s.from-s.begin, last)
		start := s.begin + g.start
		if g.unmarked {
			start = len(text)
		}
		end, waits := s.thinks(text, start, last)
		if end > 0 {
			say(end)
			s.begin = s.from
			continue
		}
		say(s.begin + g.start)
		if waits || g.end == g.start {
			break
		}
		if len(g.calls)+len(g.errors) > 0 {
			s.opens = -1
		} else if s.opens >= 0 {
			s.opens = s.begin + g.end
		}
		if len(g.calls) == 0 {
			say(s.begin + g.end)
			s.plain = g.stop
			continue
		}
		for i := range g.calls {
			if s.calls++; s.calls == 1 || !s.single {
				s.space, s.drop = "", true
				out = append(out, Piece{Call: &g.calls[i]})
			}
		}
		s.from, s.stopped = s.begin+g.end, g.stop
	}
	if last && s.calls == 0 && s.space != "" {
		out = append(out, Piece{Content: s.space})
		s.space = ""
	}
	return out
}

const thinkOpen, thinkClose = "<think>", "</think>"

// ThoughtEnd ends a thought.
const ThoughtEnd = thinkClose

func isThinking(text string) bool {
	return strings.HasPrefix(strings.TrimSpace(text), thinkOpen)
}

// pastThinking says what stands between <think>, which the prompt may have opened, and </think> at the beginning of a completion, and
// reports that the completion is past it.
func pastThinking(text string, from int, last, opened bool, say func(to int)) bool {
	if !opened && !isThinking(text) {
		return last || !could(strings.TrimSpace(text), thinkOpen)
	}
	if at := strings.Index(text[from:], thinkClose); at >= 0 {
		say(from + at + len(thinkClose))
		return true
	}
	keep := 0
	if !last {
		keep = wording.Overlap(text[from:], thinkClose)
	}
	say(len(text) - keep)
	return last
}

// thinks finds the thought that the completion opens behind its first words: its end, where it has ended. start is where the next call may
// begin; <think> in a call or an answer is text, and so is one that no </think> follows. waits says that more text decides whether calls
// behind <think> are drafts.
func (s *Splitter) thinks(text string, start int, last bool) (end int, waits bool) {
	if s.opens < 0 {
		return 0, false
	}
	at := strings.Index(text[s.opens:max(s.opens, start)], thinkOpen)
	if at < 0 {
		s.opens = max(s.opens, start-len(thinkOpen)+1)
		return 0, false
	}
	s.opens += at
	if !strings.Contains(text[:s.opens], "<"+answerTag+">") {
		behind := max(s.opens, s.from-len(thinkClose)) // what was told held no end
		if i := strings.Index(text[behind:], thinkClose); i >= 0 {
			s.opens = -1
			return behind + i + len(thinkClose), false
		}
		if !last {
			return 0, true
		}
	}
	s.opens = -1
	return 0, false
}

// say returns the content that text adds; white space at its end waits for what follows.
func (s *Splitter) say(text string) string {
	if s.drop {
		text = strings.TrimLeft(text, blank)
	}
	text = s.space + text
	trimmed := strings.TrimRight(text, blank)
	s.space = text[len(trimmed):]
	if trimmed != "" {
		s.drop = false
	}
	return trimmed
}

const blank = " \t\r\n"

// atTheEnd finds the calls of a format that reads whole completions only.
type atTheEnd struct{ Format }

func (f atTheEnd) next(text string, from int, last bool) segment {
	if !last {
		return segment{start: from, end: from}
	}
	out := segment{start: from, end: len(text)}
	if parsed, err := f.Parse(context.Background(), text[from:]); err == nil {
		out.calls, out.errors = parsed.Calls, parsed.Errors
	}
	return out
}

// collect takes a whole completion apart: its calls, why others cannot be read, and what is neither.
func collect(g grammar, text string) (calls []trajectory.ToolCall, errs []string, content string) {
	var b strings.Builder
	for from := 0; from < len(text); {
		s := g.next(text, from, true)
		b.WriteString(text[from:s.start])
		if s.end == s.start {
			break
		}
		if len(s.calls)+len(s.errors) == 0 {
			b.WriteString(text[s.start:s.end])
		}
		calls, errs = append(calls, s.calls...), append(errs, s.errors...)
		from = s.end
		if s.stop {
			break
		}
	}
	return calls, errs, b.String()
}

// nothing is the segment of a text without the beginning of a call, part of which may be one of marks.
func nothing(text string, from int, last bool, marks ...string) segment {
	keep := 0
	for _, mark := range marks {
		if !last {
			keep = max(keep, wording.Overlap(text[from:], mark))
		}
	}
	return segment{start: len(text) - keep, end: len(text) - keep}
}

// open is the segment of a call that begins at start and goes on.
func open(start int) segment { return segment{start: start, end: start} }

// first is the lowest index of one of marks behind from, and which it is; -1 for none.
func first(text string, from int, marks ...string) (at int, mark string) {
	at = -1
	for _, m := range marks {
		if i := strings.Index(text[from:], m); i >= 0 && (at < 0 || from+i < at) {
			at, mark = from+i, m
		}
	}
	return at, mark
}

// skip is the first position from at on that is not white space.
func skip(text string, at int) int {
	return len(text) - len(strings.TrimLeft(text[at:], blank))
}

// could tells that text is a beginning of mark, so that more text may complete it.
func could(text, mark string) bool { return strings.HasPrefix(mark, text) }

// value reads the JSON value that text begins with; of one that goes on, err is io.ErrUnexpectedEOF.
func value(text string) (json.RawMessage, int, error) {
	d := json.NewDecoder(strings.NewReader(text))
	var v json.RawMessage
	err := d.Decode(&v)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return v, int(d.InputOffset()), err
}

// namedCall reads {"name": …, "arguments": {…}}, where arguments stand under the first of keys that is there. Some models write them as
// a string that holds the object. The error tells how to do it right.
func namedCall(data json.RawMessage, usage string, keys ...string) (trajectory.ToolCall, string) {
	var in map[string]json.RawMessage
	if err := json.Unmarshal(data, &in); err != nil || in == nil {
		return trajectory.ToolCall{}, "the call is not a JSON object; write " + usage
	}
	var name string
	if err := json.Unmarshal(in["name"], &name); err != nil || name == "" {
		return trajectory.ToolCall{}, `the call has no "name"; write ` + usage
	}
	var raw json.RawMessage
	key := keys[0]
	for i := len(keys) - 1; i >= 0; i-- {
		if v, ok := in[keys[i]]; ok {
			raw, key = v, keys[i]
		}
	}
	arguments, ok := object(raw)
	if !ok {
		return trajectory.ToolCall{}, `"` + key + `" of ` + line(name) + " is not a JSON object; write " + usage
	}
	return trajectory.ToolCall{Name: name, Arguments: arguments}, ""
}

// object is raw as an object of arguments: none is an empty one, and a string is read as JSON.
func object(raw json.RawMessage) (json.RawMessage, bool) {
	if len(raw) > 0 && raw[0] == '"' {
		var s string
		if err := json.Unmarshal(raw, &s); err == nil {
			raw = json.RawMessage(s)
		}
	}
	if len(raw) == 0 || string(raw) == "null" {
		raw = json.RawMessage("{}")
	}
	var members map[string]json.RawMessage
	return raw, json.Unmarshal(raw, &members) == nil && members != nil
}

// line shortens what a model wrote to one line of an error text.
func line(s string) string { return wording.Clip(strings.Join(strings.Fields(s), " "), 64) }
