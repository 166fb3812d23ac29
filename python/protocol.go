package python

import (
	"encoding/json"
	"time"
)

// A worker reads JSON lines from its standard input and writes JSON lines to its standard output, in any order. Every request with an id
// gets one reply with that id.
//
//	→ {"id": 1, "op": "load", "file": "/job/tools.py", "source": "…"}      the first request, once
//	← {"id": 1, "functions": [{…}], "tests": ["test_area"]}               what the file decorates, in its order: type function
//	← {"id": 1, "errors": ["3: area: the argument w: …"]}                 line, function, what is wrong and what to do
//	→ {"id": 2, "op": "call", "name": "area", "trajectory": "t1", "arguments": {"w": 2}}
//	← {"id": 2, "result": …}                                              what the function returned, as JSON
//	← {"id": 2, "error": "ValueError: w is negative"}                     the last line of its traceback
//	← {"id": 2, "error": "it needs more memory …", "broken": true}        the worker, not the code's logic, failed
//	→ {"op": "cancel", "id": 2}                                           nobody waits for it: end it, reply in any way, or be killed
//	→ {"id": 3, "op": "end", "trajectory": "t1"}                          forget its state, and close what is in it
//	← {"id": 3}                                                           it is closed
//
// Standard error is for people: tracebacks, and what the functions print. A worker ends when its standard input does,
// and on SIGTERM, with everything that it started. "test:NAME" calls a test function.
type request struct {
	ID         int64           `json:"id,omitempty"`
	Op         string          `json:"op"`
	File       string          `json:"file,omitempty"`
	Source     string          `json:"source,omitempty"`
	Name       string          `json:"name,omitempty"`
	Trajectory string          `json:"trajectory,omitempty"`
	Arguments  json.RawMessage `json:"arguments,omitempty"`
	Metadata   json.RawMessage `json:"metadata,omitempty"` // what the argument context offers as metadata; an object
}

type reply struct {
	ID        int64           `json:"id"`
	Functions []declared      `json:"functions"`
	Tests     []string        `json:"tests"`
	Errors    []string        `json:"errors"`
	Result    json.RawMessage `json:"result"`
	Error     string          `json:"error"`
	Broken    bool            `json:"broken"`
}

// declared is a decorated function as a worker describes it. The docstring is raw: describe.go reads it.
type declared struct {
	Kind       string      `json:"kind"`
	Name       string      `json:"name"`
	Line       int         `json:"line"`
	Doc        string      `json:"doc"`
	Async      bool        `json:"async"`      // any number of calls run at once in a worker
	Stateful   bool        `json:"stateful"`   //
	Parameters []parameter `json:"parameters"` // without the injected ones
	Open       bool        `json:"open"`       // it takes further arguments (**kwargs)
	Injected   []string    `json:"injected"`   // "context", "env"
	Options    options     `json:"options"`    // those that were given
}

type parameter struct {
	Name     string          `json:"name"`
	Schema   json.RawMessage `json:"schema"` // an object may have "doc", the raw docstring of its class
	Required bool            `json:"required"`
}

// options of a decorator, with the values that stand in the file. The second part are AgentFly's.
type options struct {
	Description   string  `json:"description"`
	Timeout       float64 `json:"timeout"` // seconds
	MaxTokens     int     `json:"max_tokens"`
	Environment   string  `json:"environment"`
	Terminal      bool    `json:"terminal"`
	Idempotent    bool    `json:"idempotent"`
	Deterministic bool    `json:"deterministic"`

	Schema       json.RawMessage `json:"schema"`
	Status       string          `json:"status"`
	MaxLength    int             `json:"max_length"`
	EnvClass     bool            `json:"env_cls"`       // it was given
	ResourceSpec bool            `json:"resource_spec"` // it was given
	PoolSize     int             `json:"pool_size"`
	Backend      string          `json:"backend"`
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
