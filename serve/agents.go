package serve

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/trajectory"
)

// agentAPI answers in a dialect that vLLM's routes do not have: Responses or Messages.
type agentAPI struct {
	dialects.Dialect
	models    *models
	stamp     *stamp
	codec     *codec
	queue     *queue
	talks     *conversations
	engine    *completer
	keepAlive time.Duration // after so long without a word a stream says that it lives
}

// dialectOf is the dialect of a path's errors; nil for vLLM's routes.
func dialectOf(path string) dialects.Dialect {
	switch {
	case path == "/v1/responses":
		return dialects.Responses()
	case path == "/v1/messages" || strings.HasPrefix(path, "/v1/messages/"):
		return dialects.Messages()
	}
	return nil
}

// refuse answers with an error in the form that the path's clients read.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	d := dialectOf(r.URL.Path)
	if d == nil {
		fail(w, err)
		return
	}
	if status := asAPI(err).Status; status == http.StatusUnauthorized || status == http.StatusForbidden { // who has no key keeps no connection
		w.Header().Set("Connection", "close")
	}
	failIn(d, w, err)
}

// handle reads a request and has it answered in its places of the queue.
func (a *agentAPI) handle(texts bool, answer func(http.ResponseWriter, *http.Request, *places, *dialects.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body json.RawMessage
		var q *dialects.Request
		release, err := a.queue.read(w, r, &body)
		defer release()
		if err == nil {
			q, err = a.Parse(r.Header, body)
		}
		if err == nil {
			err = a.queue.with(texts, func(p *places) error { return answer(w, r, p, q) })
		}
		if err != nil {
			failIn(a.Dialect, w, err)
		}
	}
}

// failIn answers with an error in the dialect's form. A client that is gone gets nothing.
func failIn(d dialects.Dialect, w http.ResponseWriter, err error) {
	if !errors.Is(err, context.Canceled) {
		d.Fail(w, asAPI(err))
	}
}

// read checks what the server cannot honour, and gives the conversation.
func (a *agentAPI) read(q *dialects.Request) (*conversation, error) {
	if err := a.models.check(&q.Model); err != nil {
		return nil, err
	}
	switch { // Messages has no such parameters
	case q.TopLogprobs != 0:
		return nil, badf("top_logprobs", "top_logprobs is %d, but this server tells no logprobs in Responses; leave it out, or use /v1/chat/completions", q.TopLogprobs)
	case q.Logprobs:
		return nil, badf("include", "include: message.output_text.logprobs is not supported by this server; leave it out, or use /v1/chat/completions")
	}
	return &conversation{
		messages: q.Messages, param: q.Param, tools: q.Tools, choice: q.Choice, oneCall: !q.Parallel, maxTokens: q.MaxTokens,
	}, nil
}

// countTokens tells how long the prompt of a conversation is.
func (a *agentAPI) countTokens(w http.ResponseWriter, r *http.Request, _ *places, q *dialects.Request) error {
	talk, err := a.read(q)
	if err != nil {
		return err
	}
	ids, _, err := talk.render(r.Context(), a.codec)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, dialects.CountTokens(len(ids)))
	return nil
}

// complete answers with a reply, streamed where the client wants it.
func (a *agentAPI) complete(w http.ResponseWriter, r *http.Request, p *places, q *dialects.Request) error {
	talk, err := a.read(q)
	if err != nil {
		return err
	}
	id := a.stamp.id("")[1:]
	params := sampling{Temperature: q.Temperature, TopP: q.TopP, TopK: (*dialects.Whole)(q.TopK), MinP: q.MinP, Stop: q.Stop, Seed: (*dialects.Whole64)(q.Seed), Schema: q.Format}
	choices, opened, err := a.talks.choices(r.Context(), talk, id, &params)
	if err != nil {
		return err
	}
	c := choices[0]
	if c.calls == nil {
		c.keep(a.codec.tokenizer, nil)
	}
	base := dialects.Reply{ID: id, Model: a.models.names[0], Created: a.stamp.now(), Usage: dialects.Usage{Prompt: len(c.request.Prompt)}}
	told := &telling{stamp: a.stamp, gate: a.engine.gate, choice: c, opened: opened, thought: agents.NewThoughtSplitter(opened), reply: base}
	if q.Stream {
		a.stream(w, r, p, told, a.Stream(w, q, base))
		return nil
	}
	if err := a.engine.run(r.Context(), p, choices, engines.Detail{}, func(*choice) error { return told.more(nil) }); err != nil {
		return err
	}
	reply, err := told.end()
	if err != nil {
		return err
	}
	body, err := a.Whole(q, reply)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, body)
	return nil
}

// stream tells the reply while it is sampled, and pings where nothing comes for long: while a prompt is read, or the server is paused.
func (a *agentAPI) stream(w http.ResponseWriter, r *http.Request, p *places, told *telling, to dialects.Writer) {
	alive := newKeepAlive(a.keepAlive, to)
	err := a.engine.run(r.Context(), p, []*choice{told.choice}, engines.Detail{}, func(*choice) error {
		return alive.write(func() error { return told.more(to.Piece) })
	})
	alive.stop()
	var reply dialects.Reply
	if err == nil {
		reply, err = told.end()
	}
	if err == nil {
		err = to.End(reply)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		to.Fail(asAPI(err))
	}
}

// telling takes a choice apart while it is sampled: thought, content and calls.
type telling struct {
	stamp   *stamp
	gate    *gate
	choice  *choice
	opened  bool // the prompt ends within a thought
	thought *agents.ThoughtSplitter
	reply   dialects.Reply // so far
}

// more hands what the choice has that was not told yet to piece, where there is one, and adds it to the reply.
func (t *telling) more(piece func(dialects.Piece) error) error {
	_, text := t.choice.news()
	last := t.choice.finish != ""
	parts := []agents.Piece{{Content: text}}
	if calls := t.choice.calls; calls != nil {
		parts = calls.Push(text)
		if last {
			parts = append(parts, calls.End()...)
		}
	}
	var out []dialects.Piece
	say := func(thought, content string) {
		out = append(out, dialects.Piece{Reasoning: thought}, dialects.Piece{Content: content})
	}
	for _, p := range parts {
		if p.Call != nil {
			say(t.thought.End()) // what it held back stands before the call
			call := *p.Call
			call.ID = callID(t.choice.format, "call_"+t.stamp.id("")[1:])
			out = append(out, dialects.Piece{Call: &call})
			continue
		}
		say(t.thought.Push(p.Content))
	}
	if last {
		say(t.thought.End())
	}
	for _, p := range out {
		if p == (dialects.Piece{}) {
			continue
		}
		t.reply.Reasoning += p.Reasoning
		t.reply.Content += p.Content
		if p.Call != nil {
			t.reply.Calls = append(t.reply.Calls, *p.Call)
		}
		if piece != nil {
			if err := piece(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// end is the whole reply. One that was aborted is none: the client asks again.
func (t *telling) end() (dialects.Reply, error) {
	c, r := t.choice, t.reply
	r.Usage.Cached, r.Usage.Completion = c.cached, len(c.tokens)
	decode := func(ids []int32) string { return c.text.tokenizer.Decode(ids, c.text.skipSpecial) }
	all := ids(c.tokens)
	r.Usage.Reasoning = agents.ThoughtTokens(all, decode(all), decode, t.opened)
	switch {
	case c.finish == string(trajectory.FinishAbort):
		return r, t.gate.refusal()
	case c.finish == string(trajectory.FinishLength):
		r.Finish = dialects.FinishLength
	case len(r.Calls) > 0:
		r.Finish = dialects.FinishCalls
	default:
		r.Finish = dialects.FinishStop
		r.Stop, _ = c.reason.(string)
	}
	return r, nil
}

// keepAlive pings a client that hears nothing for a while.
type keepAlive struct {
	mu     sync.Mutex // of the writer
	timer  *time.Ticker
	quiet  bool // nothing was written since the last tick
	done   chan struct{}
	joined sync.WaitGroup
}

func newKeepAlive(every time.Duration, to dialects.Writer) *keepAlive {
	k := &keepAlive{timer: time.NewTicker(every), quiet: true, done: make(chan struct{})}
	k.joined.Go(func() {
		for {
			select {
			case <-k.done:
				return
			case <-k.timer.C:
			}
			k.mu.Lock()
			if k.quiet {
				_ = to.Ping() // the next piece tells that the client is gone
			}
			k.quiet = true
			k.mu.Unlock()
		}
	})
	return k
}

// write calls f, which writes.
func (k *keepAlive) write(f func() error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.quiet = false
	return f()
}

// stop ends the pings and waits until the last is written.
func (k *keepAlive) stop() {
	k.timer.Stop()
	close(k.done)
	k.joined.Wait()
}
