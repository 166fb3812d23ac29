package mcp

import (
	"bufio"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// A body is read as it is sent but for results with structured content, whole or event by event.
func TestExactBody(t *testing.T) {
	const message, kept = `{"id":1,"result":{"structuredContent":{"n":12345678901234567890}}}`,
		`{"id":1,"result":{"_meta":{"agentfly/structuredContent":"{\"n\":12345678901234567890}"},"structuredContent":{"n":12345678901234567890}}}`
	for name, c := range map[string]struct {
		sent, want string
		events     bool
	}{
		"a message":    {message, kept, false},
		"its own meta": {`{"result":{"structuredContent":1,"_meta":{"a":2}}}`, `{"result":{"_meta":{"a":2,"agentfly/structuredContent":"1"},"structuredContent":1}}`, false},
		"another":      {`{"id": 1, "result": {"content": ["structuredContent"]}}`, `{"id": 1, "result": {"content": ["structuredContent"]}}`, false},
		"no JSON":      {`{"structuredContent"`, `{"structuredContent"`, false},
		"nothing":      {"", "", false},
		"events":       {"event: message\nid: 1\ndata: " + message + "\n\n: ping\n\ndata:" + message + "\r\n\n", "event: message\nid: 1\ndata:" + kept + "\n\n: ping\n\ndata:" + kept + "\n\n", true},
		"lines of data": {
			"data: {\"id\":1,\nid: 7\ndata:\ndata: \"result\":{\"structuredContent\":\r\ndata:{\"n\":12345678901234567890}}}\n\ndata: {}\n\n",
			"id: 7\ndata:" + kept + "\n\ndata: {}\n\n", true,
		},
		"other lines": {"data: {\"structuredContent\":\ndata: 1}\n\n", "data: {\"structuredContent\":\ndata: 1}\n\n", true},
		"cut":         {"data: {\"result\":\ndata: {\"struct", "data: {\"result\":\ndata: {\"struct", true},
		"no end":      {"data: " + message, "data:" + kept + "\n", true},
	} {
		b := &exactBody{ReadCloser: io.NopCloser(strings.NewReader(c.sent))}
		if c.events {
			b.lines = bufio.NewReader(b.ReadCloser)
		}
		got, err := io.ReadAll(iotest.OneByteReader(b))
		require.NoError(t, err, name)
		require.Equal(t, c.want, string(got), name)
	}
}
