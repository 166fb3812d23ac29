package openenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/httpserver"
	"github.com/agentfly/agentfly/internal/wording"
)

// ServerOptions of a Server. A zero field is the default that stands beside it.
type ServerOptions struct {
	Name        string            // of the environment; "environment"
	Description string            // of it, one line
	Version     string            // of it
	Key         string            // that every request but /health must bear; "": none
	MaxSessions int               // environments at once; 64
	MaxMessage  int64             // bytes of a message from a client; 16 MB
	Ping        time.Duration     // between pings of a client; 20 s
	Pong        time.Duration     // for its answer, after which its session ends; 20 s
	Write       time.Duration     // for a client to take a message; 30 s
	Reset       time.Duration     // for an environment to be made, or to begin an episode, after which it is closed; a minute
	Step        time.Duration     // for it to act, or to score, likewise; 30 s
	MaxText     int               // bytes of the texts of an observation, of which the middle is left out beyond; 64 KiB
	Idle        time.Duration     // after which a session without a websocket ends; an hour
	Note        func(text string) // told what whoever serves should know; nil: nobody
}

// Server offers the environments of a source to OpenEnv's clients. It is an http.Handler, safe for concurrent use. Drain ends it; the source is
// its owner's to close.
type Server struct {
	o        ServerOptions
	offer    *offer
	sessions *sessions
	mcp      *mcp
	plain    http.Handler // the routes without websockets
}

// NewServer offers s.
func NewServer(s environments.Source, o ServerOptions) (*Server, error) {
	if o.Name == "" {
		o.Name = "environment"
	}
	if o.MaxSessions == 0 {
		o.MaxSessions = 64
	}
	if o.MaxMessage == 0 {
		o.MaxMessage = 16 << 20
	}
	for d, usual := range map[*time.Duration]time.Duration{&o.Ping: pingEvery, &o.Pong: 20 * time.Second, &o.Write: 30 * time.Second, &o.Idle: time.Hour} {
		if *d == 0 {
			*d = usual
		}
	}
	if o.Note == nil {
		o.Note = func(string) {}
	}
	of, err := newOffer(s, o)
	if err != nil {
		return nil, err
	}
	open := newSessions(of, o)
	v := &Server{o: o, offer: of, sessions: open, mcp: &mcp{of, open}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", v.health)
	mux.HandleFunc("GET /metadata", v.metadata)
	mux.HandleFunc("GET /schema", v.schema)
	mux.HandleFunc("GET /openapi.json", v.openAPI)
	mux.HandleFunc("POST /mcp", v.postMCP)
	for _, route := range []string{"POST /reset", "POST /step", "GET /state"} {
		mux.HandleFunc(route, noEpisode)
	}
	taskRoutes(open.ctx, mux, o.Name, s)
	v.plain = httpserver.Handler(mux, httpserver.Options{Write: o.Write})
	return v, nil
}

// ServeHTTP implements http.Handler.
func (v *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/health" {
		if v.o.Key != "" && !httpserver.Bears(r, v.o.Key) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.Header().Set("Connection", "close") // who has no key keeps no connection
			fail(w, http.StatusUnauthorized, "the API key is missing or wrong: send Authorization: Bearer KEY")
			return
		}
		if name := hostname(r.Host); v.o.Key == "" && !httpserver.Loopback(name) { // a page whose name was bound to this machine's address
			fail(w, http.StatusForbidden, fmt.Sprintf("requests for the host %q are refused: without an API key the server is localhost alone; give it a key, or call it 127.0.0.1", clip(name)))
			return
		}
		if from := r.Header.Get("Origin"); from != "" && !sameOrigin(from, r.Host) { // a page of another site in somebody's browser
			fail(w, http.StatusForbidden, "requests from pages of other sites are refused")
			return
		}
	}
	if r.URL.Path == "/ws" || r.URL.Path == "/mcp" && r.Method == http.MethodGet {
		v.websocket(w, r)
		return
	}
	v.plain.ServeHTTP(w, r)
}

// hostname is the Host of a request without its port.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

func sameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && strings.EqualFold(u.Host, host)
}

// fail answers as FastAPI does.
func fail(w http.ResponseWriter, status int, text string) {
	answer(w, status, map[string]string{"detail": text})
}

func answer(w http.ResponseWriter, status int, v any) {
	data, err := wording.JSON(v)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"detail":"the answer cannot be written"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data) // whoever asked may be gone
}

func (v *Server) health(w http.ResponseWriter, _ *http.Request) {
	if v.sessions.isDraining() {
		answer(w, http.StatusServiceUnavailable, map[string]string{"status": "unhealthy"})
		return
	}
	answer(w, http.StatusOK, map[string]string{"status": "healthy"})
}

func (v *Server) metadata(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{
		"name": v.o.Name, "description": v.o.Description, "readme_content": v.offer.spec.Instructions, "version": v.o.Version, "author": nil, "documentation_url": nil,
		ownMetadata: map[string]any{"instructions": v.offer.spec.Instructions, "deterministic": v.offer.spec.Deterministic},
	})
}

// schema describes the messages: texts for a source without tools of its own, MCP's calls for one with.
func (v *Server) schema(w http.ResponseWriter, _ *http.Request) {
	type object = map[string]any
	metadata := object{"type": "object", "additionalProperties": true}
	text, images := object{"type": "string"}, object{"type": "array", "items": object{"type": "string"}, "description": "URLs and data URLs"}
	first := object{"title": "Observation", "type": "object", "properties": object{"text": text, "images": images, "metadata": metadata}, "required": []string{"text"}}
	act := object{
		"title": "TextAction", "type": "object", "additionalProperties": false, "required": []string{"action"},
		"properties": object{"action": object{"type": "string", "description": "the action, as the environment reads it"}, "metadata": metadata},
	}
	out := object{"action": act, "observation": first, "reset_observation": first}
	if len(v.offer.spec.Tools) > 0 {
		out["action"] = object{
			"title": "CallToolAction", "type": "object", "additionalProperties": false, "required": []string{"tool_name"},
			"properties": object{"type": object{"const": callTool, "type": "string"}, "tool_name": object{"type": "string"}, "arguments": object{"type": "object"}, "metadata": metadata},
		}
		out["observation"] = object{
			"title": "CallToolObservation", "type": "object", "required": []string{"tool_name"},
			"properties": object{"tool_name": object{"type": "string"}, "result": object{}, "error": object{}, "metadata": metadata},
		}
	}
	out["state"] = object{
		"title": "State", "type": "object", "additionalProperties": true,
		"properties": object{"episode_id": object{"type": []string{"string", "null"}}, "step_count": object{"type": "integer", "minimum": 0}},
	}
	answer(w, http.StatusOK, out)
}

// openAPI names the routes, by which OpenEnv's validator knows in what mode a server is. The version is that of the description.
func (v *Server) openAPI(w http.ResponseWriter, _ *http.Request) {
	paths := map[string]any{}
	for _, route := range []string{"get /health", "get /metadata", "get /schema", "post /mcp"} {
		method, path, _ := strings.Cut(route, " ")
		paths[path] = map[string]any{method: map[string]any{"responses": map[string]any{"200": map[string]string{"description": "JSON"}}}}
	}
	answer(w, http.StatusOK, map[string]any{"openapi": "3.1.0", "info": map[string]string{"title": v.o.Name, "version": "1.0.0"}, "paths": paths})
}

// noEpisode refuses OpenEnv's routes that would make an environment for one call and close it after it.
func noEpisode(w http.ResponseWriter, r *http.Request) {
	fail(w, http.StatusNotImplemented, "HTTP "+r.URL.Path+" is not offered: each call would be an environment of its own, so that no episode could be played. Connect to the websocket at /ws")
}

func (v *Server) postMCP(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(io.LimitReader(r.Body, v.o.MaxMessage+1))
	switch {
	case err != nil:
		fail(w, http.StatusBadRequest, "the request's body did not arrive")
	case int64(len(data)) > v.o.MaxMessage:
		fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the request has more than %d bytes", v.o.MaxMessage))
	default:
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(v.sessions.ctx, cancel)() // the server ends: so does what it answers
		answer(w, http.StatusOK, v.mcp.answer(ctx, data, nil))
	}
}

// websocket serves one connection, which is one session at /ws and /mcp alike.
func (v *Server) websocket(w http.ResponseWriter, r *http.Request) {
	if !v.sessions.enter() {
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusServiceUnavailable, "the server is shutting down")
		return
	}
	defer v.sessions.all.Done()
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // it answered
	}
	c := newChannel(v.sessions.ctx, ws, v.o)
	defer c.end()
	s, err := v.sessions.of(c.ctx, r.URL.Query().Get("session_id"))
	rpc := r.URL.Path == "/mcp"
	if err != nil {
		c.write(refusal(err, rpc))
		c.close(websocket.StatusNormalClosure, "")
		return
	}
	defer v.sessions.drop(s)
	for {
		data, ok := c.next()
		if !ok {
			return
		}
		if rpc {
			reply, err := wording.JSON(v.mcp.answer(c.ctx, data, s))
			if err != nil || !c.write(reply) {
				return
			}
			continue
		}
		reply, over := v.handle(c.ctx, s, data)
		if reply != nil && !c.write(reply) {
			return
		}
		if over {
			v.sessions.drop(s) // there is room for the next one before the client goes on
			c.close(websocket.StatusNormalClosure, "")
			return
		}
	}
}

// refusal is what a client without a session is told.
func refusal(err error, rpc bool) []byte {
	said := saidOf(err, codeSession)
	if rpc {
		return must(rpcFailure(nil, rpcServer, said.Message, said.extra()))
	}
	return errorFrame(said.details)
}

func errorFrame(d details) []byte { return must(map[string]any{"type": "error", "data": d}) }

// must encodes what always can be.
func must(v any) []byte {
	data, err := wording.JSON(v)
	if err != nil {
		data, _ = wording.JSON(map[string]any{"type": "error", "data": details{Message: "the answer cannot be written: " + err.Error(), Code: codeExecution}})
	}
	return data
}

// handle answers a message of /ws. over: the session ends.
func (v *Server) handle(ctx context.Context, s *session, data []byte) (reply []byte, over bool) {
	var whole any
	if err := json.Unmarshal(data, &whole); err != nil {
		return errorFrame(details{Message: "Invalid JSON: " + err.Error(), Code: codeInvalidJSON}), false
	}
	fields, ok := whole.(map[string]any)
	if !ok {
		return errorFrame(details{Message: "a message must be a JSON object", Code: codeSession}), true
	}
	kind, _ := fields["type"].(string)
	var m struct {
		Data json.RawMessage `json:"data"`
	}
	_ = json.Unmarshal(data, &m)
	switch kind {
	case "reset", "step", "mcp":
		if faults := faultsOf(fields, kind); len(faults) > 0 {
			return errorFrame(details{Message: "Invalid message", Code: codeValidation, Errors: faults}), false
		}
	case "state", "close":
		if faults := faultsOf(fields, kind); len(faults) > 0 {
			return errorFrame(details{Message: "Invalid message", Code: codeValidation, Errors: faults}), false
		}
	default:
		return errorFrame(details{Message: "Unknown message type: " + clip(kind), Code: codeUnknownType}), false
	}
	var out any
	var err error
	switch kind {
	case "reset":
		out, err = s.reset(ctx, m.Data)
		kind = "observation"
	case "step":
		out, err = s.step(ctx, m.Data)
		kind = "observation"
	case "state":
		out = s.state()
	case "mcp":
		out = v.mcp.answer(ctx, m.Data, s)
	case "close":
		return nil, true
	}
	if err != nil {
		return errorFrame(saidOf(err, codeExecution).details), false
	}
	return must(map[string]any{"type": kind, "data": out}), false
}

// faultsOf are what is wrong with the form of a message, in pydantic's words.
func faultsOf(fields map[string]any, kind string) (out []detail) {
	data, given := fields["data"]
	_, object := data.(map[string]any)
	switch {
	case kind == "state" || kind == "close":
		if given {
			out = append(out, extra([]any{"data"}, data))
		}
	case !given && kind != "reset":
		out = append(out, detail{"missing", []any{"data"}, "Field required", fields})
	case given && !object:
		out = append(out, detail{"dict_type", []any{"data"}, "Input should be a valid dictionary", data})
	}
	for _, name := range sortedKeys(fields) {
		if name != "type" && name != "data" {
			out = append(out, extra([]any{name}, fields[name]))
		}
	}
	return out
}

func extra(where []any, input any) detail {
	return detail{"extra_forbidden", where, "Extra inputs are not permitted", input}
}

// ErrDrained is the error of Drain when sessions had to be ended.
var ErrDrained = errors.New("sessions were ended before their clients did")

// Drain refuses new sessions, waits until those that are open have ended, at most for the time given, and ends the rest. It returns when every
// environment is closed, and may be called again.
func (v *Server) Drain(within time.Duration) error { return v.sessions.drain(within) }
