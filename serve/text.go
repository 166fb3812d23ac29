package serve

import (
	"strings"
	"unicode/utf8"

	"github.com/agentfly/agentfly/internal/wording"
)

// textStream turns a choice's tokens into text: whole characters only, up to a stop string.
type textStream struct {
	tokenizer   Tokenizer
	skipSpecial bool
	stops       []string
	includeStop bool
	least       int // tokens before a stop string counts

	pushed  int     // tokens
	context []int32 // the ids before pending whose text was given out last: decoders look at neighbours
	pending []int32 // not given out yet
	tail    []byte  // the last bytes of pending, at most utf8.UTFMax
	held    string  // decoded; could be the beginning of a stop string
	matched string  // the stop string that ended the text
	ended   bool
}

// push adds a token and returns the text that is certain now.
func (t *textStream) push(id int32) string {
	t.pending = append(t.pending, id)
	t.pushed++
	if t.skipSpecial && t.tokenizer.IsSpecial(id) {
		return ""
	}
	t.tail = append(t.tail, t.tokenizer.Bytes(id)...)
	t.tail = t.tail[max(0, len(t.tail)-utf8.UTFMax):]
	if !whole(t.tail) {
		return ""
	}
	return t.cut(t.decode(), false)
}

// whole says that b does not end within a character.
func whole(b []byte) bool {
	return len(wording.WholeRunes(b)) == len(b)
}

// decode gives the text of what is pending.
func (t *textStream) decode() string {
	if len(t.pending) == 0 {
		return ""
	}
	var out string
	if len(t.context) == 0 {
		out = t.tokenizer.Decode(t.pending, t.skipSpecial)
	} else {
		before := t.tokenizer.Decode(t.context, t.skipSpecial)
		all := t.tokenizer.Decode(append(append([]int32(nil), t.context...), t.pending...), t.skipSpecial)
		after, ok := strings.CutPrefix(all, before)
		if !ok {
			after = t.tokenizer.Decode(t.pending, t.skipSpecial)
		}
		out = after
	}
	if out != "" {
		t.context, t.pending = t.pending, nil
	}
	t.tail = t.tail[:0]
	return out
}

// cut holds back what may begin a stop string and ends the text at one.
func (t *textStream) cut(more string, last bool) string {
	if t.ended {
		return ""
	}
	text := t.held + more
	at, stop := -1, ""
	for _, s := range t.stops {
		if t.pushed <= t.least { // what stands in these tokens does not count, and neither does it later
			break
		}
		from := max(0, len(t.held)-len(s)+1)
		if i := strings.Index(text[from:], s); i >= 0 && (at < 0 || from+i < at) {
			at, stop = from+i, s
		}
	}
	t.held = ""
	if at >= 0 {
		t.ended, t.matched = true, stop
		if t.includeStop {
			at += len(stop)
		}
		return text[:at]
	}
	if last {
		return text
	}
	hold := 0
	for _, s := range t.stops {
		hold = max(hold, wording.Overlap(text, s))
	}
	t.held = text[len(text)-hold:]
	return text[:len(text)-hold]
}

// end returns the rest: what is pending, broken characters as U+FFFD, and what was held back.
func (t *textStream) end() string { return t.cut(t.decode(), true) }
