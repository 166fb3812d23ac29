package gateway

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"hash"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/trajectory"
)

// key names a conversation, or a part of it. What clients change in a conversation without changing what was said gives the same key.
type key [sha256.Size]byte

// with is the key of the conversation that k names and one more message.
func (k key) with(message key) key {
	return sha256.Sum256(append(k[:], message[:]...))
}

// keyOf is the key of a message. What the assistant said is compared without white space, because clients strip and join it, and arguments as JSON
// values; what others said is compared as it is, whether as a text or as parts. Names and ids of calls do not count. thoughts: what the assistant
// thought counts.
func keyOf(m trajectory.Message, thoughts bool) key {
	h := sha256.New()
	add(h, m.Role)
	if m.Role != "assistant" {
		for _, p := range joined(m.Content) {
			add(h, p.Type)
			add(h, p.Text)
			add(h, p.Image)
		}
		return key(h.Sum(nil))
	}
	text, _ := m.TextContent() // of an image among it, nothing
	reasoning := m.Reasoning
	if thought, rest, whole := cutThought(text); whole && reasoning == "" { // some clients put it back into the content
		reasoning, text = thought, rest
	}
	if add(h, bare(text)); thoughts {
		add(h, bare(reasoning))
	}
	for _, c := range m.ToolCalls {
		add(h, c.Name)
		add(h, dialects.Canonical(c.Arguments))
	}
	return key(h.Sum(nil))
}

func hashOf(text string) key { return sha256.Sum256([]byte(text)) }

// add adds a text, so that two of them cannot be taken for one.
func add(h hash.Hash, text string) {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(text)))
	h.Write(n[:])
	h.Write([]byte(text))
}

// joined are the parts of a content with neighbouring texts as one.
func joined(parts []trajectory.Part) (out []trajectory.Part) {
	for _, p := range parts {
		if n := len(out) - 1; n >= 0 && p.Type == "text" && out[n].Type == "text" {
			out[n].Text += p.Text
		} else if p.Type != "text" || p.Text != "" {
			out = append(out, p)
		}
	}
	return out
}

// bare is a text without white space.
func bare(text string) string { return strings.Join(strings.Fields(text), "") }

const thinkOpen, thinkClose = "<think>", "</think>"

// cutThought takes the thought off a completion that begins with one. whole says that the thought ends.
func cutThought(text string) (thought, rest string, whole bool) {
	after, ok := strings.CutPrefix(strings.TrimSpace(text), thinkOpen)
	if !ok {
		return "", text, false
	}
	return strings.Cut(after, thinkClose)
}

// said is one reply of the policy, as a later call goes on after it.
type said struct {
	turn       int // of the trajectory
	schemas    key // of the tools that its prompt described
	tools      []json.RawMessage
	history    []trajectory.Message
	sent       []trajectory.Message // the same, its replies as a client repeats them
	text       string               // that history was rendered to
	completion string               // decoded, without the token that ended it
	ids        []int32              // of the sample up to the end of the completion
	sampled    []int32              // the completion's, the end of ids
	calls      string               // the ids of its calls
	thought    string               // what it thought, without white space
	asked      key                  // the conversation that it was asked with
	echo       trajectory.Message   // as a client repeats it that changes nothing
	behind     int                  // calls that went on after it, or are about to
}

// history knows the replies of a session by the conversations that they end.
type history struct {
	thoughts bool            // what the assistant thought is part of what it said
	replies  map[key][]*said // those with the same words, in the order of their turns
}

// keyOf is the key of a conversation.
func (h *history) keyOf(messages []trajectory.Message) key {
	k, _, _ := h.walk(messages, hints{})
	return k
}

// add makes a reply known behind the conversation that it was asked with. Clients may echo it in one of several forms.
func (h *history) add(k key, echoes []trajectory.Message, s *said) {
	s.asked, s.echo = k, echoes[0]
	for _, e := range echoes {
		at := k.with(keyOf(e, h.thoughts))
		s.calls, s.thought = callsOf(e), bare(e.Reasoning)
		h.replies[at] = append(h.replies[at], s)
	}
}

// same tells whether two replies have the same words, to the same conversation with the same tools. Either may be nil.
func (h *history) same(a, b *said) bool {
	return a != nil && b != nil && a.asked == b.asked && a.schemas == b.schemas && keyOf(a.echo, h.thoughts) == keyOf(b.echo, h.thoughts)
}

// callsOf are the ids of a message's calls.
func callsOf(m trajectory.Message) string {
	var b strings.Builder
	for _, c := range m.ToolCalls {
		b.WriteString(c.ID + "\x00")
	}
	return b.String()
}

// hints are what is known of a call beside its messages, where these do not tell which of several replies it goes on after.
type hints struct {
	schemas key     // of its tools
	prompt  []int32 // that was recorded for it; nil: none was
}

// find is the reply that stands last in a conversation, and the messages behind it; nil: none of it is known.
func (h *history) find(messages []trajectory.Message, known hints) (s *said, rest []trajectory.Message) {
	_, s, rest = h.walk(messages, known)
	return s, rest
}

// walk is keyOf and find. A reply that is known counts as its echo that changes nothing, whichever of its forms the client sends: what follows has the same
// key after a restart, when only the reply is known.
func (h *history) walk(messages []trajectory.Message, known hints) (k key, s *said, rest []trajectory.Message) {
	for i, m := range messages {
		k = k.with(keyOf(m, h.thoughts))
		if m.Role != "assistant" {
			continue
		}
		if found := h.replies[k]; len(found) > 0 {
			s, rest = closest(found, m, known), messages[i+1:]
			k = s.asked.with(keyOf(s.echo, h.thoughts))
		}
	}
	return k, s, rest
}

// closest is, of replies with the same words, the one that the recorded prompt goes on after; else the one whose calls or thoughts a client repeats; else one
// that was asked for with the same tools; else one that no call went on after, so that of several branches that got the same reply each goes on after its own,
// or one that is as good; else the newest.
func closest(found []*said, m trajectory.Message, known hints) *said {
	best, most := found[len(found)-1], -1
	calls, thought := callsOf(m), bare(m.Reasoning)
	for _, s := range found {
		score := 0
		for i, fits := range []bool{s.behind == 0, known.schemas == s.schemas, thought == s.thought, calls == s.calls, isPrefix(s.ids, known.prompt)} {
			if fits {
				score += 1 << i
			}
		}
		if score >= most {
			best, most = s, score
		}
	}
	return best
}

// isPrefix tells whether ids begin with others.
func isPrefix(others, ids []int32) bool {
	return len(others) <= len(ids) && slices.Equal(others, ids[:len(others)])
}
