package openenv

import (
	"context"
	"encoding/json"

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

// mcp answers JSON-RPC.
type mcp struct {
	offer    *offer
	sessions *sessions
}

// answer answers MCP's tools/list and tools/call, and OpenEnv's two methods for sessions over HTTP. of is the session of the websocket that it came
// on; nil: it came by POST, and names a session in its parameters.
func (m *mcp) answer(ctx context.Context, data []byte, of *session) map[string]any {
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
		return m.createSession(ctx, q.ID, of)
	case sessionClose:
		return m.closeSession(q.ID, params.Session, of)
	case "tools/list", "tools/call":
	default:
		return rpcFailure(q.ID, rpcMethod, "Method not found: "+clip(q.Method), nil)
	}
	if len(m.offer.spec.Tools) == 0 {
		return rpcFailure(q.ID, rpcInternal, "Environment does not support MCP", nil)
	}
	s, end, text := m.sessions.named(params.Session, of)
	if text != "" {
		return rpcFailure(q.ID, rpcParams, text, nil)
	}
	defer end()
	switch {
	case q.Method == "tools/list":
		return rpcSuccess(q.ID, map[string]any{"tools": m.offer.toolList("inputSchema")})
	case params.Name == "":
		return rpcFailure(q.ID, rpcParams, "Missing 'name' in params", nil)
	case s == nil:
		return rpcFailure(q.ID, rpcParams, "Missing 'session_id' in params: a call acts in the episode of a session, which "+sessionCreate+" opens", nil)
	}
	arguments := params.Arguments
	if len(arguments) == 0 || string(arguments) == "null" {
		arguments = json.RawMessage(`{}`)
	}
	if kind, text := m.offer.checkCall(params.Name, arguments); kind != "" {
		return rpcFailure(q.ID, rpcParams, text, nil)
	}
	r, err := s.act(ctx, environments.Action{Name: params.Name, Arguments: arguments})
	if err != nil {
		return rpcFailure(q.ID, rpcInternal, saidOf(err, codeExecution).Message, nil)
	}
	return rpcSuccess(q.ID, callResult(r))
}

func (m *mcp) createSession(ctx context.Context, id any, of *session) map[string]any {
	if of != nil {
		return rpcSuccess(id, map[string]any{"session_id": of.id})
	}
	s, err := m.sessions.open(ctx, false)
	if err != nil {
		said := saidOf(err, codeExecution)
		return rpcFailure(id, rpcServer, said.Message, said.extra())
	}
	return rpcSuccess(id, map[string]any{"session_id": s.id})
}

// closeSession ends a session that has no websocket; one that has ends with it.
func (m *mcp) closeSession(id any, name string, of *session) map[string]any {
	if name == "" {
		return rpcFailure(id, rpcParams, "Invalid params - 'session_id' is required", nil)
	}
	if of != nil && of.id == name {
		return rpcFailure(id, rpcRequest, "Cannot close active WebSocket-managed session via MCP method", nil)
	}
	s, attached := m.sessions.seize(name)
	switch {
	case s == nil:
		return rpcFailure(id, rpcParams, "Unknown session_id: "+clip(name), nil)
	case attached:
		return rpcSuccess(id, map[string]any{"session_id": name, "closed": false, "closing": true})
	}
	m.sessions.drop(s)
	return rpcSuccess(id, map[string]any{"session_id": name, "closed": true})
}
