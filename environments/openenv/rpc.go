package openenv

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/agentfly/agentfly/environments"
)

// The codes of JSON-RPC errors.
const (
	rpcParse    = -32700
	rpcRequest  = -32600
	rpcMethod   = -32601
	rpcParams   = -32602
	rpcInternal = -32603
	rpcServer   = -32000
)

func rpcFailure(id any, code int, text string, data any) map[string]any {
	return map[string]any{"jsonrpc": mcpProtocol, "id": id, "error": map[string]any{"code": code, "message": text, "data": data}}
}

func rpcSuccess(id, result any) map[string]any {
	return map[string]any{"jsonrpc": mcpProtocol, "id": id, "result": result}
}

// rpc answers MCP's tools/list and tools/call, and OpenEnv's two methods for sessions over HTTP. of is the session of the websocket that it came
// on; nil: it came by POST, and names a session in its parameters.
func (v *Server) rpc(ctx context.Context, data []byte, of *session) map[string]any {
	if !json.Valid(data) {
		return rpcFailure(nil, rpcParse, "Parse error", nil)
	}
	var q struct {
		Version string          `json:"jsonrpc"`
		Method  string          `json:"method"`
		ID      any             `json:"id"`
		Params  json.RawMessage `json:"params"`
	}
	if err := json.Unmarshal(data, &q); err != nil || q.Version != mcpProtocol || q.Method == "" {
		return rpcFailure(nil, rpcRequest, "Invalid request: it must be an object with jsonrpc \"2.0\" and a method", nil)
	}
	switch q.ID.(type) {
	case nil, string, float64:
	default:
		return rpcFailure(nil, rpcRequest, "Invalid request: id must be a string or a number", nil)
	}
	var params struct {
		Session   string          `json:"session_id"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if len(q.Params) > 0 {
		if err := json.Unmarshal(q.Params, &params); err != nil {
			return rpcFailure(q.ID, rpcParams, "Params must be an object: "+err.Error(), nil)
		}
	}
	switch q.Method {
	case sessionCreate:
		return v.createSession(ctx, q.ID, of)
	case sessionClose:
		return v.closeSession(q.ID, params.Session, of)
	case "tools/list", "tools/call":
	default:
		return rpcFailure(q.ID, rpcMethod, "Method not found: "+clip(q.Method), nil)
	}
	if len(v.spec.Tools) == 0 {
		return rpcFailure(q.ID, rpcInternal, "Environment does not support MCP", nil)
	}
	s, end, text := v.named(params.Session, of)
	if text != "" {
		return rpcFailure(q.ID, rpcParams, text, nil)
	}
	defer end()
	switch {
	case q.Method == "tools/list":
		return rpcSuccess(q.ID, map[string]any{"tools": v.toolList("inputSchema")})
	case params.Name == "":
		return rpcFailure(q.ID, rpcParams, "Missing 'name' in params", nil)
	case s == nil:
		return rpcFailure(q.ID, rpcParams, "Missing 'session_id' in params: a call acts in the episode of a session, which "+sessionCreate+" opens", nil)
	}
	arguments := params.Arguments
	if len(arguments) == 0 || string(arguments) == "null" {
		arguments = json.RawMessage(`{}`)
	}
	if kind, text := v.checkCall(params.Name, arguments); kind != "" {
		return rpcFailure(q.ID, rpcParams, text, nil)
	}
	r, err := s.act(ctx, environments.Action{Name: params.Name, Arguments: arguments})
	if err != nil {
		return rpcFailure(q.ID, rpcInternal, saidOf(err, codeExecution).Message, nil)
	}
	return rpcSuccess(q.ID, callResult(r))
}

// named is the session that a request means, which is not ended while it is answered; nil without a name.
func (v *Server) named(id string, of *session) (s *session, end func(), wrong string) {
	if of != nil || id == "" {
		return of, func() {}, ""
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	s = v.sessions[id]
	if s == nil {
		return nil, nil, "Unknown session_id: " + clip(id)
	}
	s.busy++
	s.used = time.Now()
	return s, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		s.busy--
		s.used = time.Now()
	}, ""
}

func (v *Server) createSession(ctx context.Context, id any, of *session) map[string]any {
	if of != nil {
		return rpcSuccess(id, map[string]any{"session_id": of.id})
	}
	s, err := v.open(ctx, false)
	if err != nil {
		said := saidOf(err, codeExecution)
		return rpcFailure(id, rpcServer, said.Message, said.extra())
	}
	return rpcSuccess(id, map[string]any{"session_id": s.id})
}

// closeSession ends a session that has no websocket; one that has ends with it.
func (v *Server) closeSession(id any, name string, of *session) map[string]any {
	if name == "" {
		return rpcFailure(id, rpcParams, "Invalid params - 'session_id' is required", nil)
	}
	if of != nil && of.id == name {
		return rpcFailure(id, rpcRequest, "Cannot close active WebSocket-managed session via MCP method", nil)
	}
	v.mu.Lock()
	s := v.sessions[name]
	attached := s != nil && s.attached
	if s != nil {
		s.attached = true // nobody attaches to it any more
	}
	v.mu.Unlock()
	switch {
	case s == nil:
		return rpcFailure(id, rpcParams, "Unknown session_id: "+clip(name), nil)
	case attached:
		return rpcSuccess(id, map[string]any{"session_id": name, "closed": false, "closing": true})
	}
	v.drop(s)
	return rpcSuccess(id, map[string]any{"session_id": name, "closed": true})
}

// toolList lists the source's tools. OpenEnv's actions and MCP name the schema differently.
func (v *Server) toolList(schema string) []map[string]any {
	out := make([]map[string]any, len(v.spec.Tools))
	for i, t := range v.spec.Tools {
		out[i] = map[string]any{"name": t.Name, "description": t.Description, schema: t.Parameters}
	}
	return out
}

const (
	mostTasks = 1_000   // of one request
	lastTask  = 100_000 // that may be asked for
)

// taskRoutes are OpenEnv's routes for the tasks of an environment, of a source that has some. How many there are nobody knows: they are made as
// they are asked for.
func (v *Server) taskRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /list_environments", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, []string{v.o.Name}) })
	tasker, ok := v.source.(environments.Tasker)
	none := func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotImplemented, r.URL.Path+" is not supported for this environment")
	}
	if !ok {
		for _, route := range []string{"GET /{env}/splits", "POST /{env}/tasks", "POST /{env}/num_tasks", "POST /{env}/task", "POST /{env}/task_range"} {
			mux.HandleFunc(route, none)
		}
		return
	}
	mux.HandleFunc("POST /{env}/tasks", none)
	mux.HandleFunc("POST /{env}/num_tasks", none)
	mux.HandleFunc("GET /{env}/splits", func(w http.ResponseWriter, r *http.Request) {
		if v.isNamed(w, r) {
			answer(w, http.StatusOK, []map[string]string{{"name": environments.Train, "type": "train"}, {"name": environments.Eval, "type": "test"}})
		}
	})
	mux.HandleFunc("POST /{env}/task", func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Split string
			Index int
		}
		if !v.asked(w, r, &q) {
			return
		}
		if all, ok := v.tasks(w, r, tasker, q.Split, q.Index, q.Index+1); ok {
			answer(w, http.StatusOK, map[string]any{"task": all[0]})
		}
	})
	mux.HandleFunc("POST /{env}/task_range", func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Split       string
			Start, Stop *int
		}
		if !v.asked(w, r, &q) {
			return
		}
		begin := 0
		if q.Start != nil {
			begin = *q.Start
		}
		if q.Stop == nil {
			fail(w, http.StatusBadRequest, "stop is missing: the tasks are made as they are asked for, and have no last one")
			return
		}
		if all, ok := v.tasks(w, r, tasker, q.Split, begin, *q.Stop); ok {
			answer(w, http.StatusOK, map[string]any{"tasks": all})
		}
	})
}

func (v *Server) isNamed(w http.ResponseWriter, r *http.Request) bool {
	if r.PathValue("env") == v.o.Name {
		return true
	}
	fail(w, http.StatusNotFound, "unknown environment "+strconv.Quote(clip(r.PathValue("env"))))
	return false
}

func (v *Server) asked(w http.ResponseWriter, r *http.Request, into any) bool {
	if !v.isNamed(w, r) {
		return false
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(into); err != nil {
		fail(w, http.StatusUnprocessableEntity, "the request is no JSON of its form: "+err.Error())
		return false
	}
	return true
}

// tasks are those of a range, each as one object.
//
// They may take long to make: one request at a time makes them.
func (v *Server) tasks(w http.ResponseWriter, r *http.Request, from environments.Tasker, split string, begin, end int) ([]map[string]any, bool) {
	if begin < 0 || end <= begin || end > lastTask || end-begin > mostTasks {
		fail(w, http.StatusBadRequest, fmt.Sprintf("Invalid task index: tasks %d to %d, where 0 to %d may be asked for, %d tasks at a time", begin, end, lastTask, mostTasks))
		return nil, false
	}
	select {
	case v.tasking <- struct{}{}:
		defer func() { <-v.tasking }()
	case <-r.Context().Done():
		return nil, false
	case <-v.ctx.Done():
		fail(w, http.StatusServiceUnavailable, "the server is shutting down")
		return nil, false
	}
	all, err := v.made[split], error(nil)
	if len(all) < end {
		all, err = from.Tasks(split, end)
	}
	if err != nil || len(all) < end {
		if err == nil {
			err = fmt.Errorf("there are %d", len(all))
		}
		fail(w, http.StatusBadRequest, "no such tasks: "+err.Error())
		return nil, false
	}
	v.made[split] = all
	out := make([]map[string]any, 0, end-begin)
	for _, t := range all[begin:end] {
		task := map[string]any{"id": t.ID}
		for name, value := range t.Fields {
			task[name] = value
		}
		out = append(out, task)
	}
	return out, true
}
