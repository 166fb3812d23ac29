package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/agentfly/agentfly/dialects"
)

// places are what a request takes of a queue: one while its text is turned into tokens, then one for each completion.
// A request without a place computes and samples nothing. /tokenize and /detokenize have a queue of their own, as long
// as that of the completions: they are answered while those are sampled.
type places struct {
	queue *atomic.Int64
	most  int64
	what  string // it holds, for errors
	n     int64
}

// enter takes the first place of a request in the queue of the completions, or of texts. leave must be called.
func (s *Server) enter(texts bool) (*places, error) {
	p := &places{queue: &s.queued, most: int64(s.o.MaxQueue), what: "completions are running"}
	if texts {
		p.queue, p.what = &s.texting, "texts are being tokenized"
	}
	return p, p.need(1)
}

// need takes places until there are n, or none where the queue has not so many left.
func (p *places) need(n int) error {
	more := int64(n) - p.n
	if more <= 0 {
		return nil
	}
	if now := p.queue.Add(more); now > p.most {
		p.queue.Add(-more)
		return &dialects.Error{Status: http.StatusTooManyRequests, Message: fmt.Sprintf("the queue is full: %d %s or waiting, %d are allowed; try again later", now-more-p.n, p.what, p.most)}
	}
	p.n += more
	return nil
}

// leave gives the places back; a second call does nothing.
func (p *places) leave() {
	p.queue.Add(-p.n)
	p.n = 0
}

// withText calls f, which turns text into tokens or tokens into text. Few do so at once: it takes a processor whole, and
// cannot be interrupted.
func (s *Server) withText(ctx context.Context, f func()) error {
	select {
	case s.texts <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.texts }()
	f()
	return nil
}

// checkText refuses a text of so many bytes that it cannot fit, before it is tokenized.
func (s *Server) checkText(param, what string, bytes int) error {
	if bytes > s.maxText {
		return badf(param, "%s has %d bytes; at most %d are tokenized, as this model's maximum context length is %d tokens", what, bytes, s.maxText, s.maxLen)
	}
	return nil
}

// leastText is how many bytes of text are always tokenized, however short the context is: /tokenize counts them.
const leastText = 1 << 20

// textLimit is how many bytes of text a request may bring: a context of the longest tokens.
func textLimit(t Tokenizer, vocab, maxLen int) int {
	longest := 1
	for id := range int32(vocab) {
		longest = max(longest, len(t.Bytes(id)))
	}
	return max(leastText, maxLen*longest)
}

// holding counts the bytes of a request as they come, for the sum of all requests that are held at once.
type holding struct {
	io.Reader
	s *Server
	n int64
}

func (h *holding) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	h.n += int64(n)
	if h.s.held.Add(int64(n)) > h.s.o.MaxHeld {
		return n, &dialects.Error{Status: http.StatusTooManyRequests, Message: fmt.Sprintf("requests of more than %d bytes are being answered; try again later", h.s.o.MaxHeld)}
	}
	return n, err
}

// release forgets the bytes of an answered request.
func (h *holding) release() { h.s.held.Add(-h.n) }

// listLimit is how many elements a list of texts or objects has at most: as what Go makes of them they take many times their text.
const listLimit = 1 << 16

// rawList is a list whose elements are read later.
type rawList []json.RawMessage

func (l *rawList) UnmarshalJSON(data []byte) error {
	out, err := readList[json.RawMessage](data)
	*l = out
	return err
}

// readList reads a list element by element, up to the limit.
func readList[T any](data []byte) ([]T, error) {
	if data[0] != '[' {
		var out []T
		return out, json.Unmarshal(data, &out) // null, or its error says what is wrong
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	out := []T{}
	for d.More() {
		if len(out) == listLimit {
			return nil, badf("", "a list has more than %d elements", listLimit)
		}
		var element T
		if err := d.Decode(&element); err != nil {
			return nil, err
		}
		out = append(out, element)
	}
	return out, nil
}

// checkParts refuses a conversation of more messages, calls and tools than the context has tokens.
func (s *Server) checkParts(parts int) error {
	if parts > s.maxLen {
		return badf("messages", "the conversation has %d messages, calls and tools; this model's maximum context length is %d tokens", parts, s.maxLen)
	}
	return nil
}
