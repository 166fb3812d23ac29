package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/scripted"
	"github.com/agentfly/agentfly/trajectory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// letters is a tokenizer of bytes; 256 ends a turn, 257 begins one, 258 is put before every text, two begin calls, and two are the tags of a thought.
type letters struct{}

const (
	endOfTurn   = 256
	startOfTurn = 257
	begin       = 258
	toolCalls   = 259 // Mistral's token before a call
	pythonTag   = 260 // Llama's
	thinkOpen   = 261
	thinkClose  = 262
	vocabulary  = 300
)

var specials = map[int32]string{endOfTurn: "<|end|>", startOfTurn: "<|start|>", begin: "<s>", toolCalls: "[TOOL_CALLS]", pythonTag: "<|python_tag|>", thinkOpen: "<think>", thinkClose: "</think>"}

func (letters) Encode(text string) []int32 {
	var out []int32
	for text != "" {
		n, id := 1, int32(text[0])
		for special, name := range specials {
			if strings.HasPrefix(text, name) {
				n, id = len(name), special
			}
		}
		out, text = append(out, id), text[n:]
	}
	return out
}

func (l letters) Bytes(id int32) []byte {
	if name, ok := specials[id]; ok {
		return []byte(name)
	}
	if id < 0 || id > 255 {
		return nil
	}
	return []byte{byte(id)}
}

func (l letters) Decode(ids []int32, skipSpecial bool) string {
	var b []byte
	for _, id := range ids {
		if !skipSpecial || !l.IsSpecial(id) {
			b = append(b, l.Bytes(id)...)
		}
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

func (l letters) Token(id int32) (string, bool)      { return string(l.Bytes(id)), true }
func (letters) IsSpecial(id int32) bool              { return specials[id] != "" }
func (letters) AddedByTemplate() (before, _ []int32) { return []int32{begin}, nil }

// lines renders a conversation as one line a message.
type lines struct{}

func (lines) StopIDs() []int32 { return []int32{endOfTurn} }

func (lines) Prompt(messages []trajectory.Message, tools []json.RawMessage, addPrompt bool) ([]int32, string, error) {
	var b strings.Builder
	for _, t := range tools {
		b.WriteString("tool " + string(t) + "\n")
	}
	for _, m := range messages {
		text, err := m.TextContent()
		if err != nil {
			return nil, "", err
		}
		b.WriteString("<|start|>" + m.Role + ": " + text)
		for _, c := range m.ToolCalls {
			b.WriteString(" call " + c.Name + string(c.Arguments))
		}
		b.WriteString("<|end|>")
	}
	if addPrompt {
		b.WriteString("<|start|>assistant: ")
	}
	return letters{}.Encode(b.String()), b.String(), nil
}

// says is a script: the n-th seed gets the n-th text, the last one all after it, then the end of turn.
func says(texts ...string) func(engines.Request) (engines.Completion, error) {
	return func(r engines.Request) (engines.Completion, error) {
		ids := letters{}.Encode(texts[min(r.Seed, uint64(len(texts)-1))])
		c := engines.Completion{TokenIDs: append(ids, endOfTurn)}
		for i := range c.TokenIDs {
			c.Logprobs = append(c.Logprobs, -float32(i)/4)
		}
		return c, nil
	}
}

type harness struct {
	t      *testing.T
	engine *scripted.Engine
	server *Server
	http   *httptest.Server
	key    string
}

func start(t *testing.T, so scripted.Options, change func(*Options)) *harness {
	t.Helper()
	if so.Decode == nil {
		so.Decode = func(ids []int32) string {
			var b []byte
			for _, id := range ids {
				b = append(b, letters{}.Bytes(id)...)
			}
			return string(b)
		}
	}
	if so.MaxModelLen == 0 {
		so.MaxModelLen = 400
	}
	h := &harness{t: t, engine: scripted.New(so)}
	seed := uint64(0)
	o := Options{
		Engine: h.engine, Tokenizer: letters{}, Renderer: lines{}, StopIDs: []int32{endOfTurn}, Models: []string{"m", "alias"}, Root: "root",
		Vocab: vocabulary, Version: "0.0.1", Now: func() time.Time { return time.Unix(1700000000, 0) }, Seed: func() uint64 { return seed },
	}
	if change != nil {
		change(&o)
	}
	var err error
	h.server, err = New(o)
	require.NoError(t, err)
	h.http = httptest.NewServer(h.server)
	h.key = o.APIKey
	t.Cleanup(func() {
		h.server.Close()
		h.http.Close()
		require.NoError(t, h.engine.Close())
		require.Zero(t, h.server.queue.completions.Load())
		_, _, running := h.server.gate.state()
		require.Zero(t, running)
	})
	return h
}

func (h *harness) request(ctx context.Context, method, path, body string) *http.Request {
	r, err := http.NewRequestWithContext(ctx, method, h.http.URL+path, strings.NewReader(body))
	require.NoError(h.t, err)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if h.key != "" {
		r.Header.Set("Authorization", "Bearer "+h.key)
	}
	return r
}

// do returns the status and the JSON body as text with the reply's id and the calls' ids made plain.
func (h *harness) do(method, path, body string) (int, string) {
	h.t.Helper()
	resp, err := h.http.Client().Do(h.request(context.Background(), method, path, body))
	require.NoError(h.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(h.t, err)
	return resp.StatusCode, h.plain(string(data))
}

func (h *harness) plain(s string) string {
	for _, kind := range []string{"cmpl-", "chatcmpl-tool-", "chatcmpl-", "generate-"} {
		for at := strings.Index(s, kind+h.server.stamp.prefix); at >= 0; at = strings.Index(s, kind+h.server.stamp.prefix) {
			s = s[:at+len(kind)] + "ID" + s[at+len(kind)+len(h.server.stamp.prefix)+8:]
		}
	}
	return s
}

func (h *harness) post(path, body string) string {
	h.t.Helper()
	status, out := h.do("POST", path, body)
	require.Equal(h.t, http.StatusOK, status, out)
	return out
}

// events returns the events of a stream.
func (h *harness) events(path, body string) []string {
	h.t.Helper()
	resp, err := h.http.Client().Do(h.request(context.Background(), "POST", path, body))
	require.NoError(h.t, err)
	defer resp.Body.Close()
	require.Equal(h.t, "text/event-stream; charset=utf-8", resp.Header.Get("Content-Type"))
	var out []string
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if line := lines.Text(); line != "" {
			require.True(h.t, strings.HasPrefix(line, "data: "), line)
			out = append(out, h.plain(strings.TrimPrefix(line, "data: ")))
		}
	}
	require.Equal(h.t, "[DONE]", out[len(out)-1])
	return out[:len(out)-1]
}

func (h *harness) refuses(path, body string, status int, message string) {
	h.t.Helper()
	got, out := h.do("POST", path, body)
	require.Equal(h.t, status, got, out)
	var e errorBody
	require.NoError(h.t, json.Unmarshal([]byte(out), &e), out)
	require.Equal(h.t, status, e.Error.Code)
	require.Equal(h.t, kinds[status], e.Error.Type)
	require.Contains(h.t, e.Error.Message, message)
	require.NotContains(h.t, e.Error.Message, "\n")
}
