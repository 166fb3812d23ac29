package agents

import (
	"sort"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
)

// ThoughtSplitter takes the thought off a completion while its text arrives, however it is cut into pieces: what stands between <think>,
// which the prompt may have opened, and </think> at the beginning. White space around the tags belongs to neither the thought nor the
// content. A thought that does not end is all that the completion has. A ThoughtSplitter belongs to one goroutine.
type ThoughtSplitter struct {
	state thoughtState
	held  string // not decided yet
	any   bool   // some of the thought was told: white space before that is dropped
}

type thoughtState int

const (
	beforeThought thoughtState = iota
	inThought
	afterThought // white space is dropped
	pastThought
)

// NewThoughtSplitter returns a splitter for one completion. opened: the prompt ends within a thought (OpensThought).
func NewThoughtSplitter(opened bool) *ThoughtSplitter {
	t := &ThoughtSplitter{}
	if opened {
		t.state = inThought
	}
	return t
}

// Push adds text and returns what is certain now.
func (t *ThoughtSplitter) Push(text string) (thought, content string) { return t.push(text, false) }

// End returns the rest.
func (t *ThoughtSplitter) End() (thought, content string) { return t.push("", true) }

func (t *ThoughtSplitter) push(more string, last bool) (thought, content string) {
	text := t.held + more
	t.held = ""
	if t.state == beforeThought {
		switch trimmed := strings.TrimLeft(text, blank); {
		case strings.HasPrefix(trimmed, thinkOpen):
			t.state, text = inThought, trimmed[len(thinkOpen):]
		case !last && could(trimmed, thinkOpen):
			t.held = text
			return "", ""
		default:
			t.state = pastThought
		}
	}
	if t.state == inThought {
		told, after, ended := strings.Cut(text, thinkClose)
		if !ended && !last {
			certain := text[:len(text)-wording.Overlap(text, thinkClose)]
			told = strings.TrimRight(certain, blank) // white space waits for what follows
			t.held = text[len(told):]
		} else {
			told = strings.TrimRight(told, blank)
		}
		if !t.any {
			told = strings.TrimLeft(told, blank)
			t.any = told != ""
		}
		if thought = told; !ended {
			return thought, ""
		}
		t.state, text = afterThought, after
	}
	if t.state == afterThought {
		if text = strings.TrimLeft(text, blank); text != "" {
			t.state = pastThought
		}
	}
	return thought, text
}

// ThoughtTokens is how many tokens of a completion, and of its text, are those of the thought that it begins with, its tags included; all where it does not
// end. opened: the prompt ends within a thought (OpensThought).
func ThoughtTokens(ids []int32, text string, decode func([]int32) string, opened bool) int {
	if !opened && !strings.HasPrefix(strings.TrimLeft(text, blank), thinkOpen) {
		return 0
	}
	before := sort.Search(len(ids), func(n int) bool { return strings.Contains(decode(ids[:n+1]), thinkClose) })
	return min(before+1, len(ids))
}
