package serve

import (
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// callSplitter takes a completion apart, however it is cut into pieces: well-formed calls in the hermes form, and content,
// which is everything else. A call that cannot be read stays content word for word, so that nothing is lost. White space
// around a call is dropped.
type callSplitter struct {
	format tools.Format
	single bool // only the first call counts: parallel_tool_calls is false
	buffer string
	calls  int
	space  string // white space that is content unless a call follows
	drop   bool   // white space is dropped: a call came before it
}

const (
	callOpen  = "<tool_call>"
	callClose = "</tool_call>"
)

// event is a piece of content or a call.
type event struct {
	content string
	call    *trajectory.ToolCall
}

// push adds text and returns what is certain now.
func (p *callSplitter) push(text string) []event {
	p.buffer += text
	return p.scan(false)
}

// end returns the rest.
func (p *callSplitter) end() []event { return p.scan(true) }

func (p *callSplitter) scan(last bool) []event {
	var out []event
	say := func(text string) {
		if text = p.say(text); text != "" {
			out = append(out, event{content: text})
		}
	}
	for p.buffer != "" {
		at := strings.Index(p.buffer, callOpen)
		if at < 0 {
			keep := 0
			if !last {
				keep = overlap(p.buffer, callOpen)
			}
			say(p.buffer[:len(p.buffer)-keep])
			p.buffer = p.buffer[len(p.buffer)-keep:]
			break
		}
		say(p.buffer[:at])
		p.buffer = p.buffer[at:]
		call, length := p.segment(last)
		if length == 0 {
			break // the call goes on
		}
		if call == nil {
			say(p.buffer[:length])
		} else if p.calls++; p.calls == 1 || !p.single {
			p.space, p.drop = "", true
			out = append(out, event{call: call})
		}
		p.buffer = p.buffer[length:]
	}
	if last && p.calls == 0 && p.space != "" {
		out = append(out, event{content: p.space})
		p.space = ""
	}
	return out
}

// say returns the content that text adds; white space at its end waits for what follows.
func (p *callSplitter) say(text string) string {
	if p.drop {
		text = strings.TrimLeft(text, " \t\r\n")
	}
	text = p.space + text
	trimmed := strings.TrimRight(text, " \t\r\n")
	p.space = text[len(trimmed):]
	if trimmed != "" {
		p.drop = false
	}
	return trimmed
}

// segment reads the call that the buffer begins with: its length, 0 when more text is needed, and the call, nil when it
// cannot be read.
func (p *callSplitter) segment(last bool) (*trajectory.ToolCall, int) {
	after := p.buffer[len(callOpen):]
	d := json.NewDecoder(strings.NewReader(after))
	var object json.RawMessage
	err := d.Decode(&object)
	length := len(p.buffer)
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		if !last {
			return nil, 0
		}
	case err != nil: // no JSON: it ends with its closing tag, wherever that stands
		at := strings.Index(after, callClose)
		if at < 0 {
			if !last {
				return nil, 0
			}
			return nil, length
		}
		return nil, len(callOpen) + at + len(callClose)
	default:
		end := int(d.InputOffset())
		rest := strings.TrimLeft(after[end:], " \t\r\n")
		switch {
		case strings.HasPrefix(rest, callClose):
			length = len(p.buffer) - len(rest) + len(callClose)
		case !last && strings.HasPrefix(callClose, rest):
			return nil, 0
		case rest != "": // text behind the object
			at := strings.Index(rest, callClose)
			if at < 0 && !last {
				return nil, 0
			}
			if at >= 0 {
				length = len(p.buffer) - len(rest) + at + len(callClose)
			}
			return nil, length
		}
	}
	parsed := p.format.Parse(p.buffer[:length])
	if len(parsed.Calls) != 1 || len(parsed.Errors) > 0 {
		return nil, length
	}
	return &parsed.Calls[0], length
}
