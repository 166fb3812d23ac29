package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// exactKey is the member of a result's _meta under which its structured content stands as the server wrote it. The library decodes the
// content itself, and with it every number into a float64, which has no room for the digits of long ids.
const exactKey = "agentfly/structuredContent"

// keepDigits adds to the message of a server the text of its result's structured content. Another message stays as it is.
func keepDigits(message []byte) []byte {
	if !bytes.Contains(message, []byte(`"structuredContent"`)) {
		return message
	}
	var envelope, result, meta map[string]json.RawMessage
	if json.Unmarshal(message, &envelope) != nil || json.Unmarshal(envelope["result"], &result) != nil || result["structuredContent"] == nil {
		return message
	}
	if raw := result["_meta"]; raw != nil && json.Unmarshal(raw, &meta) != nil {
		return message
	}
	if meta == nil {
		meta = map[string]json.RawMessage{}
	}
	for _, nested := range []struct {
		in   map[string]json.RawMessage
		name string
		v    any
	}{{meta, exactKey, string(result["structuredContent"])}, {result, "_meta", meta}, {envelope, "result", result}} {
		data, err := json.Marshal(nested.v)
		if err != nil {
			return message
		}
		nested.in[nested.name] = data
	}
	out, err := json.Marshal(envelope)
	if err != nil {
		return message
	}
	return out
}

// exactBody is the body of a response with keepDigits applied to its messages: to the whole of it, or to each event's data, whose lines are held
// back until the event ends.
type exactBody struct {
	io.ReadCloser
	lines *bufio.Reader // nil: the body is one message
	data  [][]byte      // lines of data of the event that is read
	held  int           // bytes of data
	rest  []byte        // read from the body, not yet from here
	err   error         // of the body, told after rest
}

func (b *exactBody) Read(p []byte) (int, error) {
	if len(b.rest) == 0 && b.err == nil {
		b.fill()
	}
	n := copy(p, b.rest)
	if b.rest = b.rest[n:]; n == 0 && len(p) > 0 {
		return 0, b.err
	}
	return n, nil
}

func (b *exactBody) fill() {
	if b.lines == nil {
		if b.rest, b.err = io.ReadAll(b.ReadCloser); b.err == nil {
			b.rest, b.err = keepDigits(b.rest), io.EOF
		}
		return
	}
	for len(b.rest) == 0 && b.err == nil {
		var line []byte
		line, b.err = b.lines.ReadBytes('\n')
		data := bytes.HasPrefix(line, []byte("data:"))
		if data {
			b.data, b.held = append(b.data, line), b.held+len(line)
		}
		if b.held > maxMessage {
			b.err = fmt.Errorf("mcp: %w", errTooLarge)
			return
		}
		if b.err != nil || len(bytes.TrimRight(line, "\r\n")) == 0 {
			b.rest = b.event()
		}
		if !data {
			b.rest = append(b.rest, line...)
		}
	}
}

// event are the lines of data that are held back: one line where their message is another with its digits.
func (b *exactBody) event() []byte {
	sent := bytes.Join(b.data, nil)
	for i, line := range b.data {
		b.data[i] = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("data:")))
	}
	message := bytes.Join(b.data, []byte("\n"))
	b.data, b.held = nil, 0
	if kept := keepDigits(message); len(kept) != len(message) {
		return append(append([]byte("data:"), kept...), '\n')
	}
	return sent
}
