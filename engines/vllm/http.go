package vllm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/internal/retry"
)

const maxReply = 256 << 20 // bytes of one reply

// statusError is a reply other than 200.
type statusError struct {
	Status     int
	Message    string
	RetryAfter time.Duration // 0: at once, or not given
}

func (e *statusError) Error() string { return fmt.Sprintf("%d: %s", e.Status, e.Message) }

// Is implements errors.Is: a request that was refused for what it says is engines.ErrRefused.
func (e *statusError) Is(target error) bool {
	return target == engines.ErrRefused && slices.Contains([]int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}, e.Status)
}

// errReply says that a reply with status 200 was not what the route promises.
var errReply = errors.New("unusable reply")

// client talks to one server over HTTP.
type client struct {
	url     string // without a trailing slash
	key     string // "": none
	http    *http.Client
	buffers sync.Pool // *bytes.Buffer of replies
}

func newClient(url, key string, transport http.RoundTripper) *client {
	return &client{url: url, key: key, http: &http.Client{Transport: transport}, buffers: sync.Pool{New: func() any { return new(bytes.Buffer) }}}
}

// call sends in as JSON (nil: no body) and reads the reply into out (nil: not read). ctx bounds all of it.
func (c *client) call(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	return c.exchange(ctx, method, path, body, func(data []byte) error {
		if out == nil {
			return nil
		}
		return decode(data, out)
	})
}

// exchange sends a body of JSON (nil: none) and hands the reply's to use, which must not keep it.
func (c *client) exchange(ctx context.Context, method, path string, body []byte, use func(data []byte) error) error {
	var from io.Reader
	if body != nil {
		from = bytes.NewReader(body)
	}
	q, err := http.NewRequestWithContext(ctx, method, c.url+path, from)
	if err != nil {
		return err
	}
	if body != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		q.Header.Set("Authorization", "Bearer "+c.key)
	}
	if path == nativePath { // the same body samples the same tokens, so a connection that the server closes meanwhile costs nothing
		q.Header["Idempotency-Key"] = nil
	}
	reply, err := c.http.Do(q)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	buffer := c.buffer()
	defer c.free(buffer)
	if err := readInto(buffer, reply.Body); errors.Is(err, errReply) {
		return err
	} else if err != nil { // as what fails before the body, see lost
		return &url.Error{Op: method, URL: c.url + path, Err: err}
	}
	if reply.StatusCode != http.StatusOK {
		return newStatusError(reply.StatusCode, reply.Header, buffer.Bytes())
	}
	return use(buffer.Bytes())
}

// buffer is one for a reply, until it is given to free.
func (c *client) buffer() *bytes.Buffer {
	b := c.buffers.Get().(*bytes.Buffer)
	b.Reset()
	return b
}

func (c *client) free(b *bytes.Buffer) {
	if b.Cap() <= mostBuffer { // large ones are left to the collector
		c.buffers.Put(b)
	}
}

const mostBuffer = 64 << 10 // bytes of a buffer that is used again

func (c *client) post(ctx context.Context, path string, body any) error {
	if err := c.call(ctx, http.MethodPost, path, body, nil); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func readInto(b *bytes.Buffer, body io.Reader) error {
	n, err := b.ReadFrom(io.LimitReader(body, maxReply+1))
	if err == nil && n > maxReply {
		err = fmt.Errorf("%w: more than %d bytes", errReply, maxReply)
	}
	return err
}

func readAll(body io.Reader) ([]byte, error) {
	var b bytes.Buffer
	err := readInto(&b, body)
	return b.Bytes(), err
}

func decode(data []byte, out any) error {
	if err := json.Unmarshal(data, out); err != nil {
		if isPage(data) {
			return fmt.Errorf("%w: %s", errReply, aPage)
		}
		return fmt.Errorf("%w: %w in %q", errReply, err, short(string(data)))
	}
	return nil
}

// newStatusError finds the message in the forms that vLLM and FastAPI use.
func newStatusError(status int, header http.Header, body []byte) *statusError {
	e := &statusError{Status: status, Message: short(string(body))}
	e.RetryAfter, _ = retry.After(header, time.Now())
	if isPage(body) {
		e.Message = aPage
		return e
	}
	var forms struct {
		Error   json.RawMessage `json:"error"`
		Detail  json.RawMessage `json:"detail"`
		Message string          `json:"message"`
	}
	if json.Unmarshal(body, &forms) != nil {
		return e
	}
	var inner struct {
		Message string `json:"message"`
	}
	for _, raw := range []json.RawMessage{forms.Error, forms.Detail} {
		var text string
		switch {
		case len(raw) == 0:
		case json.Unmarshal(raw, &text) == nil && text != "":
			e.Message = short(text)
			return e
		case json.Unmarshal(raw, &inner) == nil && inner.Message != "":
			e.Message = short(inner.Message)
			return e
		}
	}
	if forms.Message != "" {
		e.Message = short(forms.Message)
	}
	return e
}

// aPage stands for a reply that is a web page, a proxy's or another server's, whose text says less than its status.
const aPage = "a web page"

func isPage(body []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(body), []byte("<")) }

// short makes a text fit into an error of one line. What a terminal would obey, such as the escape character, is replaced: the
// text is a server's, or its log's.
func short(s string) string {
	const most = 300
	s = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return utf8.RuneError
		}
		return c
	}, strings.Join(strings.Fields(s), " "))
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// tap travels with the context of a go-openai call: it adds keys that the library does not know to the request, and keeps
// the reply, of which the library drops what it does not know.
type tap struct {
	extra  map[string]any
	status int
	header http.Header
	body   []byte
}

type tapKey struct{}

// tapTransport is the transport of go-openai's client. The library refuses prompts of token ids and some models' names, omits a temperature of 0
// and logprobs of 0, and drops token_ids and prompt_logprobs.
type tapTransport struct{ base http.RoundTripper }

func (t tapTransport) RoundTrip(q *http.Request) (*http.Response, error) {
	p, ok := q.Context().Value(tapKey{}).(*tap)
	if !ok || q.Body == nil {
		return t.base.RoundTrip(q)
	}
	data, err := io.ReadAll(q.Body)
	q.Body.Close()
	if err != nil {
		return nil, err
	}
	body := map[string]any{}
	if err := json.Unmarshal(data, &body); err != nil {
		return nil, err
	}
	for key, value := range p.extra {
		body[key] = value
	}
	if data, err = json.Marshal(body); err != nil {
		return nil, err
	}
	q = q.Clone(q.Context())
	q.Body, q.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	q.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	reply, err := t.base.RoundTrip(q)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	if p.body, err = readAll(reply.Body); err != nil {
		return nil, err
	}
	p.status, p.header = reply.StatusCode, reply.Header
	reply.Body = io.NopCloser(bytes.NewReader(p.body))
	return reply, nil
}
