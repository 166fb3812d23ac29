package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/internal/httpserver"
	"github.com/agentfly/agentfly/internal/sessionkey"
	"github.com/agentfly/agentfly/internal/wording"
)

// handler is the HTTP side of a gateway.
type handler struct {
	o        Options
	sessions *sessions
	dialects map[string]dialects.Dialect // by the end of their path
	limited  http.Handler
}

func newHandler(o Options, all *sessions) *handler {
	h := &handler{o: o, sessions: all, dialects: map[string]dialects.Dialect{
		"chat/completions": dialects.Chat(), "completions": dialects.Completions(), "responses": dialects.Responses(), "messages": dialects.Messages(),
	}}
	h.limited = httpserver.Handler(http.HandlerFunc(h.serve), httpserver.Options{})
	return h
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.handler.limited.ServeHTTP(w, r)
}

// place is what a request's path and headers say: whose it is and what it wants.
type place struct {
	keys  []string // those that it bears: a program may send one of its own beside its session's
	route string   // without /v1/
}

func (h *handler) serve(w http.ResponseWriter, r *http.Request) {
	var p place
	p.keys, p.route = sessionkey.Read(r)
	if p.route == "health" {
		reply(w, http.StatusOK, map[string]string{"status": "ok"})
		return
	}
	if p.route == "metrics" && r.Method == http.MethodGet {
		h.metrics(w, r)
		return
	}
	d := h.dialects[p.route]
	said := d
	if said == nil {
		said = h.dialects["chat/completions"]
		if strings.HasPrefix(p.route, "messages/") {
			said = h.dialects["messages"]
		}
	}
	defer func() {
		if v := recover(); v != nil {
			if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(v)
			}
			h.o.Warn(fmt.Sprintf("gateway: %s %s panicked: %v", r.Method, p.route, v))
			said.Fail(w, &dialects.Error{Status: http.StatusInternalServerError, Message: fmt.Sprintf("%s panicked: %v", p.route, v)})
		}
	}()
	s, err := h.session(r.Context(), p)
	if err != nil {
		said.Fail(w, err)
		return
	}
	path := r.URL.Path
	if len(p.keys) > 0 { // who reads a failure needs no key
		path = strings.Replace(path, sessionkey.PathPrefix+p.keys[0], "", 1)
	}
	path = wording.Clip(path, 80)
	note := func(err error) { s.refusals.note(r.Method+" "+path, err) }
	if said = (noted{said, note}); d != nil {
		d = said
	}
	switch {
	case p.route == "models" && r.Method == http.MethodGet:
		reply(w, http.StatusOK, map[string]any{"object": "list", "data": []any{h.model(h.o.Model)}, "has_more": false})
	case strings.HasPrefix(p.route, "models/") && r.Method == http.MethodGet:
		reply(w, http.StatusOK, h.model(strings.TrimPrefix(p.route, "models/"))) // whatever it is called, the job pins the model
	case p.route == rewardRoute && r.Method == http.MethodPost:
		h.reward(w, r, said, s)
	case p.route == "messages/count_tokens" && r.Method == http.MethodPost:
		h.count(w, r, noted{dialects.MessagesCount(), note}, s)
	case d != nil && r.Method == http.MethodPost:
		h.answer(w, r, d, s, p)
	case d != nil:
		said.Fail(w, &dialects.Error{Status: http.StatusMethodNotAllowed, Message: fmt.Sprintf("%s takes POST, not %s", path, r.Method)})
	default:
		message := fmt.Sprintf("there is no route %s %s", r.Method, path)
		if strings.HasPrefix(p.route, "v1/") {
			message += "; leave one /v1 out, with which OPENAI_BASE_URL ends"
		}
		said.Fail(w, &dialects.Error{Status: http.StatusNotFound, Message: message})
	}
}

// session finds whose a request is: the first of its keys that is a session's says so.
func (h *handler) session(ctx context.Context, p place) (*Session, error) {
	f := h.sessions.find(ctx, p.keys...)
	switch {
	case f.session != nil:
		return f.session, f.session.Hold(f.holder)
	case f.wait:
		return nil, &dialects.Error{Status: http.StatusServiceUnavailable, Message: "the session of this key is not open yet; try again later", Code: "session_starting"}
	case f.later():
		return nil, &dialects.Error{Status: http.StatusServiceUnavailable, Message: "the gateway is about to end; try again later", Code: "session_starting"}
	case f.ended != "":
		return nil, &dialects.Error{Status: http.StatusUnauthorized, Message: "the session of this key is over: " + f.ended, Code: "session_over"}
	case len(p.keys) == 0:
		return nil, &dialects.Error{Status: http.StatusUnauthorized, Message: "the API key is missing; a session has one of its own: send it as Authorization: Bearer KEY, x-api-key, or in the path as " + sessionkey.PathPrefix + "KEY/v1", Code: "invalid_api_key"}
	}
	return nil, &dialects.Error{Status: http.StatusUnauthorized, Message: "the API key is not that of a session", Code: "invalid_api_key"}
}

func (h *handler) model(id string) map[string]any {
	return map[string]any{
		"id": id, "object": "model", "type": "model", "display_name": id, "owned_by": "agentfly", "created": 0, "created_at": "1970-01-01T00:00:00Z",
		"max_model_len": h.o.MaxTotal,
	}
}

// read reads and parses a request.
func (h *handler) read(w http.ResponseWriter, r *http.Request, d dialects.Dialect) (*dialects.Request, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.o.MaxBody))
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return nil, &dialects.Error{Status: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("the request has more than the %d bytes that are allowed", h.o.MaxBody)}
	}
	if err != nil {
		return nil, &dialects.Error{Status: http.StatusBadRequest, Message: "the request could not be read: " + err.Error()}
	}
	return d.Parse(r.Header, body)
}

// rewardRoute is where rewards are posted: {"reward": 0.5, "call": ID OF A REPLY}, or without call for the trajectory. With an id of its own, "id", a reward
// counts once however often it is posted.
const rewardRoute = "agentfly/reward"

func (h *handler) reward(w http.ResponseWriter, r *http.Request, d dialects.Dialect, s *Session) {
	var in struct {
		Reward *float64 `json:"reward"`
		Call   string   `json:"call"`
		ID     string   `json:"id"`
	}
	const such = `{"reward": 0.5}`
	field := ""
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<16))
	if err != nil {
		err = fmt.Errorf("is not JSON such as %s: %s", such, wording.JSONReason(err))
	} else {
		field, err = wording.ReadObject(data, &in, such, "reward", "call", "id")
	}
	switch {
	case err != nil:
		err = &dialects.Error{Status: http.StatusBadRequest, Message: "the reward " + err.Error(), Param: field}
	case in.Reward == nil:
		err = &dialects.Error{Status: http.StatusBadRequest, Message: "reward is missing; send " + such, Param: "reward"}
	default:
		err = s.Post(in.ID, in.Call, *in.Reward)
	}
	if err != nil {
		d.Fail(w, err)
		return
	}
	reply(w, http.StatusOK, map[string]bool{"ok": true})
}

// count answers how many tokens a conversation has. It is no call: nothing is sampled or recorded.
func (h *handler) count(w http.ResponseWriter, r *http.Request, d dialects.Dialect, s *Session) {
	q, err := h.read(w, r, d)
	if err != nil {
		d.Fail(w, err)
		return
	}
	p, err := s.render(nil, asked{Request: q})
	if err != nil {
		d.Fail(w, err)
		return
	}
	reply(w, http.StatusOK, json.RawMessage(dialects.CountTokens(len(p.ids))))
}

// answer answers a call: with the reply whole, or as events.
func (h *handler) answer(w http.ResponseWriter, r *http.Request, d dialects.Dialect, s *Session, p place) {
	q, err := h.read(w, r, d)
	if err != nil {
		d.Fail(w, err)
		return
	}
	if q.N > 1 {
		d.Fail(w, &dialects.Error{Status: http.StatusBadRequest, Param: "n", Message: fmt.Sprintf("n is %d, and a call of a trajectory has one reply; leave n out and ask %d times", q.N, q.N)})
		return
	}
	tries, _ := strconv.Atoi(r.Header.Get("X-Stainless-Retry-Count"))
	in := asked{Request: q, dialect: d.Name(), header: r.Header, path: p.route, tries: tries, mark: r.Header.Get("Idempotency-Key"), forms: formsAsked(q), variables: variablesAsked(q)}
	if unapplied := in.unapplied(h.o.Forms != nil); unapplied != nil {
		w.Header().Set(unappliedHeader, strings.Join(unapplied, ", "))
	}
	c, leave, err := s.begin(in)
	if err != nil {
		d.Fail(w, err)
		return
	}
	defer leave()
	if !q.Stream {
		select {
		case <-c.done:
		case <-r.Context().Done():
			return
		}
		whole(w, r, d, q, s, c)
		return
	}
	base := dialects.Reply{ID: c.id, Model: h.o.Model, Created: c.created}
	var out dialects.Writer // from the first keep-alive on: one that begins with the reply begins with its usage
	for alive := time.NewTicker(h.o.Ping); ; {
		select {
		case <-c.done:
			alive.Stop()
			if out == nil {
				base.Usage.Prompt, base.Usage.Cached = c.reply.Usage.Prompt, c.reply.Usage.Cached
				out = d.Stream(w, q, base)
			}
			stream(r, out, s, c)
			return
		case <-alive.C:
			if out == nil {
				out = d.Stream(w, q, base)
			}
			if out.Ping() != nil {
				alive.Stop()
				return
			}
		case <-r.Context().Done():
			alive.Stop()
			return
		}
	}
}

// whole writes a reply that is not streamed.
func whole(w http.ResponseWriter, r *http.Request, d dialects.Dialect, q *dialects.Request, s *Session, c *call) {
	body, err := []byte(nil), c.err
	if err == nil {
		body, err = d.Whole(q, c.reply)
	}
	if err != nil {
		d.Fail(w, err)
		return
	}
	if r.Context().Err() != nil { // its client is gone
		return
	}
	s.deliver(c, func() error {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(http.StatusOK)
		if _, err := w.Write(body); err != nil {
			return err
		}
		return http.NewResponseController(w).Flush()
	})
}

// stream writes a reply as events.
func stream(r *http.Request, out dialects.Writer, s *Session, c *call) {
	if c.err != nil {
		out.Fail(c.err)
		return
	}
	if r.Context().Err() != nil { // its client is gone
		return
	}
	pieces := []dialects.Piece{{Reasoning: c.reply.Reasoning}, {Content: c.reply.Content}}
	for i := range c.reply.Calls {
		pieces = append(pieces, dialects.Piece{Call: &c.reply.Calls[i]})
	}
	for _, p := range pieces {
		if p != (dialects.Piece{}) && out.Piece(p) != nil {
			return
		}
	}
	s.deliver(c, func() error { return out.End(c.reply) })
}

// reply writes v as JSON.
func reply(w http.ResponseWriter, status int, v any) {
	data, _ := wording.JSON(v) // of maps of texts and numbers
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data) // the client may be gone; nobody is left to tell
}
