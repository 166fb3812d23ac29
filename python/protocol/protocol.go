// Package protocol holds the messages between a program and the workers that run its Python files: the program's side is package
// python; the workers are worker.py and package gpython. It does not start workers, and knows nothing of tools and rewards.
//
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
//	→ {"id": 4, "op": "call", "name": "walk", "trajectory": "t1", "arguments": {}, "environment": true}   the trajectory has one
//	← {"id": 4, "ask": {"id": 1, "op": "step", "arguments": {"text": "left"}}}                            in the middle of the call
//	→ {"id": 4, "op": "answer", "ask": 1, "result": {…}}                  or "error": "…", which the function sees as an exception
//	→ {"id": 3, "op": "end", "trajectory": "t1"}                          forget its state, and close what is in it
//	← {"id": 3}                                                           it is closed
//
// A worker that holds an environment is started with "environment" in its first line, reads these requests instead, and answers one after the
// other. Each names what it takes in "arguments"; "own" is the time that the class itself took, in nanoseconds.
//
//	→ {"id": 1, "op": "env_open", "arguments": {"class": "world.py:World", "kwargs": {}, …}}   makes the environment: package environments/python
//	← {"id": 1, "result": {"protocol": "gymnasium", "powers": ["actions"], "seeded": true, …}} type Environment
//	→ {"id": 2, "op": "env_reset", "arguments": {"seed": 7, "fields": {}, "prompt": []}}       fields are the task's, prompt OpenAI's messages;
//	                                                                                           "data" and "job" name fields that others read
//	← {"id": 2, "result": {"observation": [{"type": "text", "text": "…"}], "info": {}, "memory": 40000000}, "own": 52000}
//	→ {"id": 3, "op": "env_step", "arguments": {"text": "left"}}                               or {"name": …, "arguments": {…}} of a tool
//	← {"id": 3, "result": {"observation": […], "reward": 1, "terminated": false, "truncated": false, "failure": "policy", …}, "own": 9000}
//	← {"id": 3, "error": "step: the reward is nan; …"}                                         the environment failed, not the agent
//	← {"id": 2, "error": "the task has the field depth, …", "task": true}                      of env_reset: the task's fault
//	→ {"op": "env_actions"}  ← ["left", "right"]                                               what is possible now
//	→ {"op": "env_score"}  ← 0.5                                                               of the episode so far
//	→ {"op": "env_solution"}  ← [{"text": "left"}]                                             actions with full reward, right after env_reset
//	→ {"op": "env_state"}  ← {…}; {"op": "env_restore", "arguments": {"state": {…}}}           in another process too
//	→ {"op": "env_tasks", "arguments": {"split": "train", "n": 8}}  ← [{"id": …, "fields": {}}]
//	→ {"op": "env_call", "arguments": {"name": "look", "arguments": {}}}  ← what the method returned; "task": true where there is no such method
//	→ {"op": "env_check"}  ← {"memory": 40000000}                                              it still works
//	→ {"op": "env_close"}                                                                      the worker ends after its reply
//
// Standard error is for people: tracebacks, and what the functions print. A worker ends when its standard input does,
// and on SIGTERM, with everything that it started. "test:NAME" calls a test function.
package protocol

import "encoding/json"

// Request is what a worker reads.
type Request struct {
	ID         int64           `json:"id,omitempty"`
	Op         string          `json:"op"`
	File       string          `json:"file,omitempty"`
	Source     string          `json:"source,omitempty"`
	Name       string          `json:"name,omitempty"`
	Trajectory string          `json:"trajectory,omitempty"`
	Arguments  json.RawMessage `json:"arguments,omitempty"`
	Metadata   json.RawMessage `json:"metadata,omitempty"` // what the argument context offers as metadata; an object

	Environment bool            `json:"environment,omitempty"` // of a call: its trajectory has an environment, which answers what is asked
	Ask         int64           `json:"ask,omitempty"`         // of an answer: what it answers
	Result      json.RawMessage `json:"result,omitempty"`      // of an answer
	Error       string          `json:"error,omitempty"`       // of an answer: why there is no result
}

// Reply is what a worker writes.
type Reply struct {
	ID        int64           `json:"id"`
	Functions []Declared      `json:"functions,omitempty"`
	Tests     []string        `json:"tests,omitempty"`
	Errors    []string        `json:"errors,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     string          `json:"error,omitempty"`
	Broken    bool            `json:"broken,omitempty"`
	Task      bool            `json:"task,omitempty"` // the request is wrong, and the environment as it was: of env_reset the task, of env_call the name or the arguments
	Own       int64           `json:"own,omitempty"`  // of a request to an environment: nanoseconds that its class took
	Ask       *Ask            `json:"ask,omitempty"`  // the call of that id asks its environment; its reply comes later
}

// Ask is what a call asks the environment of its trajectory: "step" with the action, "actions", "score", or "call" with the name of a method and
// its arguments.
type Ask struct {
	ID        int64           `json:"id"`
	Op        string          `json:"op"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// Environment is what the worker says of an environment that it opened.
type Environment struct {
	Protocol     string     `json:"protocol"`     // what its class was recognised as
	Powers       []string   `json:"powers"`       // "actions", "score", "solution", "state", "tasks": what else it can
	Tools        []Declared `json:"tools"`        // its own; none: it takes texts
	Seeded       bool       `json:"seeded"`       // its reset takes a seed
	Instructions string     `json:"instructions"` // what the class says of itself, or its actions
}

// Declared is a decorated function as a worker describes it. The docstring is raw: package python reads it.
type Declared struct {
	Kind       string          `json:"kind"`
	Name       string          `json:"name"`
	Line       int             `json:"line"`
	Doc        string          `json:"doc"`
	Async      bool            `json:"async"`      // any number of calls run at once in a worker
	Stateful   bool            `json:"stateful"`   //
	Parameters []Parameter     `json:"parameters"` // without the injected ones
	Open       bool            `json:"open"`       // it takes further arguments (**kwargs)
	Rest       json.RawMessage `json:"rest"`       // the schema of each of these; null: not known
	Injected   []string        `json:"injected"`   // "context", "env", "environment" (of a tool)
	Options    Options         `json:"options"`    // those that were given
}

// Parameter is an argument of a function.
type Parameter struct {
	Name     string          `json:"name"`
	Schema   json.RawMessage `json:"schema"` // an object may have "doc", the raw docstring of its class
	Required bool            `json:"required"`
}

// Options of a decorator, with the values that stand in the file. The second part are AgentFly's.
type Options struct {
	Description   string  `json:"description,omitempty"`
	Timeout       float64 `json:"timeout,omitempty"` // seconds
	MaxTokens     int     `json:"max_tokens,omitempty"`
	Environment   string  `json:"environment,omitempty"`
	Terminal      bool    `json:"terminal,omitempty"`
	Idempotent    bool    `json:"idempotent,omitempty"`
	Deterministic bool    `json:"deterministic,omitempty"`

	Schema       json.RawMessage `json:"schema,omitempty"`
	Status       string          `json:"status,omitempty"`
	MaxLength    int             `json:"max_length,omitempty"`
	EnvClass     bool            `json:"env_cls,omitempty"`       // it was given
	ResourceSpec bool            `json:"resource_spec,omitempty"` // it was given
	PoolSize     int             `json:"pool_size,omitempty"`
	Backend      string          `json:"backend,omitempty"`
}
