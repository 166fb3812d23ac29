// Package openenv speaks OpenEnv's wire (PyPI openenv 0.10), on both sides: Kind plays the environments of its servers, and Server offers
// a source of ours to its clients. One websocket at /ws is one session, and one session is one environment: messages are answered in turn,
// and the environment ends with its connection. HTTP /reset and /step of OpenEnv make an environment for each call and are of no use for
// episodes; neither side uses them.
//
// The package owns the wire, sessions, and the choice among hosts. It does not pool environments, and bounds no episode: the Manager of
// package environments does.
package openenv

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// The codes of OpenEnv's error messages.
const (
	codeInvalidJSON = "INVALID_JSON"
	codeUnknownType = "UNKNOWN_TYPE"
	codeValidation  = "VALIDATION_ERROR"       // a message or an action that is not of its schema
	codeExecution   = "EXECUTION_ERROR"        // the environment raised; the session goes on
	codeCapacity    = "CAPACITY_REACHED"       // sent in place of a session, without being asked
	codeFactory     = "FACTORY_ERROR"          // the environment could not be made; likewise
	codeSession     = "SESSION_ERROR"          // the session ended
	maxMessage      = 100 << 20                // bytes of one message, as in OpenEnv's client
	mcpProtocol     = "2.0"                    // of JSON-RPC
	ownMetadata     = "agentfly"               // the key of metadata that tells our client what OpenEnv's wire has no place for
	tooManyToShow   = 300                      // bytes of another program's text in an error
	listTools       = "list_tools"             // the type of an MCP environment's action
	callTool        = "call_tool"              // likewise
	sessionCreate   = "openenv/session/create" // OpenEnv's methods beside MCP's
	sessionClose    = "openenv/session/close"
)

// message is one frame, of either side.
type message struct {
	Type string          `json:"type"`
	Data json.RawMessage `json:"data,omitempty"`
}

// observed is the data of an observation.
type observed struct {
	Observation json.RawMessage `json:"observation"`
	Reward      json.RawMessage `json:"reward"` // a number, a boolean or null
	Done        bool            `json:"done"`   // terminated or truncated
	Metadata    json.RawMessage `json:"metadata,omitempty"`
}

// details are the data of an error.
type details struct {
	Message     string   `json:"message"`
	Code        string   `json:"code"`
	Errors      []detail `json:"errors,omitempty"`
	Active      *int     `json:"active_sessions,omitempty"`
	Max         *int     `json:"max_sessions,omitempty"`
	FactoryName string   `json:"factory_name,omitempty"`
}

// detail is one fault of a message, as pydantic says it.
type detail struct {
	Type  string `json:"type"`
	Where []any  `json:"loc"`
	Text  string `json:"msg"`
	Input any    `json:"input"`
}

// own is what our server tells our client in metadata, under ownMetadata.
type own struct {
	Failure string `json:"failure,omitempty"`
	Anchor  string `json:"anchor,omitempty"`
	Success *bool  `json:"success,omitempty"` // of a step that ends the episode
}

// serverError is an error message of a server.
type serverError struct {
	details
}

func (e *serverError) Error() string {
	return fmt.Sprintf("the server answered %s: %s", e.Code, clip(e.text()))
}

// saidOf is what a client is told of an error; code is that of one without its own.
func saidOf(err error, code string) *serverError {
	var said *serverError
	if errors.As(err, &said) {
		return said
	}
	return &serverError{details{Message: err.Error(), Code: code}}
}

// text is what an agent is told of its action.
func (e *serverError) text() string {
	if len(e.Errors) == 0 {
		return e.Message
	}
	var lines []string
	for _, d := range e.Errors {
		where := make([]string, len(d.Where))
		for i, w := range d.Where {
			where[i] = fmt.Sprint(w)
		}
		line := d.Text
		if len(where) > 0 {
			line = strings.Join(where, ".") + ": " + line
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

// codeOf is the code of an error message in err; "" for none.
func codeOf(err error) string {
	var e *serverError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// clip is one line of what another program said.
func clip(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > tooManyToShow {
		text = strings.ToValidUTF8(text[:tooManyToShow], "") + "…"
	}
	return text
}

// parseReply reads a frame of a server. An error message becomes a *serverError.
func parseReply(data []byte) (message, error) {
	var m message
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("it answered what is no JSON object (%w): %s", err, clip(string(data)))
	}
	switch m.Type {
	case "observation", "state", "mcp":
		return m, nil
	case "error":
		e := &serverError{}
		if err := json.Unmarshal(m.Data, &e.details); err != nil || e.Code == "" {
			loose := struct {
				Message any `json:"message"`
				Code    any `json:"code"`
			}{}
			_ = json.Unmarshal(m.Data, &loose)
			code, _ := loose.Code.(string)
			if code == "" {
				code = "an error without a code"
			}
			e.details = details{Message: fmt.Sprint(loose.Message), Code: code}
			if loose.Message == nil {
				e.Message = clip(string(m.Data))
			}
		}
		return m, e
	case "":
		return m, fmt.Errorf("it answered a message without a type: %s", clip(string(data)))
	}
	return m, fmt.Errorf("it answered a message of the unknown type %q", clip(m.Type))
}
