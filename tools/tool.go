// Package tools defines the contract of a tool, its registry, the JSON schema of its arguments, and the calls: with limits, deadlines,
// retries, a cache and a bound on what comes back. The prebuilt tools lie in the folders below it.
//
// It does not know how a model writes a call (package agents does), nor who calls and when.
package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/agentfly/agentfly/trajectory"
)

// Spec describes a tool to the model, and says how it may be called.
type Spec struct {
	Name        string          // 1 to 64 letters, digits, _ or -
	Description string          //
	Parameters  json.RawMessage // JSON schema of the arguments object
	Limits      Limits          // that the tool asks for; a job's go before them

	Terminal      bool   // a call that succeeds ends the trajectory, and its observation is the final answer
	Idempotent    bool   // a second call does no harm: a call that broke may be tried again
	Deterministic bool   // the same arguments give the same observation: a job may cache it
	Environment   string // kind of the job's environment that it acts in: its calls have Call.Environment; "": none
	Stateful      bool   // keeps state of a trajectory in this process: another process cannot take the trajectory up, it begins anew
	Replays       bool   // of a stateful tool: the same calls, one after the other, come to the same state, so that a trajectory can fork
	Writes        bool   // may change what lies outside this process, such as on a server, of which nobody makes a copy: a trajectory cannot fork
}

// Declared is what a job says of the state of the tools of a server, beside the key mcp or http: the server's own word may be missing or untrue.
type Declared struct {
	Stateful      *bool // later calls depend on earlier ones; nil: as the server says
	Deterministic *bool // the same arguments give the same observation; of stateful tools, the same calls, one after the other, do
}

// Of is the spec of a tool that the job says so of.
func (d Declared) Of(s Spec) Spec {
	if d.Deterministic != nil {
		s.Deterministic = *d.Deterministic
	}
	if d.Stateful != nil {
		s.Stateful, s.Writes = *d.Stateful, false
		s.Replays = s.Stateful && d.Deterministic != nil && *d.Deterministic
	}
	return s
}

// Limits of the calls of one tool. A zero field is no limit of its own.
type Limits struct {
	Timeout     time.Duration // of one call
	MaxTokens   int           // of an observation, the marker of what was left out included
	Concurrency int           // calls at once, over all trajectories
	Rate        float64       // calls a second, over all trajectories
	Retries     int           // more attempts of a call that broke, of an idempotent tool
}

// over are the limits with those of below where l says nothing.
func (l Limits) over(below Limits) Limits {
	return Limits{
		Timeout: cmp.Or(l.Timeout, below.Timeout), MaxTokens: cmp.Or(l.MaxTokens, below.MaxTokens),
		Concurrency: cmp.Or(l.Concurrency, below.Concurrency), Rate: cmp.Or(l.Rate, below.Rate), Retries: cmp.Or(l.Retries, below.Retries),
	}
}

// Call is one call of a tool within a trajectory.
type Call struct {
	ID         string
	Trajectory string          // id, for state that a tool keeps per trajectory
	Arguments  json.RawMessage // a JSON object; already checked against the schema

	// Environment answers, of a tool whose Spec names one, what it asks the environment of its trajectory, until the call returns: "step" with
	// {"text": …} or {"name": …, "arguments": {…}}, whose reward is the trajectory's; "actions"; "score"; "call" of a method of the environment's
	// with {"name": …, "arguments": {…}}. nil: there is none.
	Environment func(ctx context.Context, op string, arguments json.RawMessage) (json.RawMessage, error)
}

// Observation is what the model reads, and what rewards may read beside it.
type Observation struct {
	Text  string
	Image string         // URL, data URLs included; "": none
	Info  map[string]any // for rewards and the record, not for the model; encodes as JSON

	Outcome *trajectory.Outcome // of an action in an environment; nil for other calls
	Refused bool                // the action was not possible: the call failed, and Text says why in the environment's own words
}

// Ender is a tool that keeps something of a trajectory: a session, a workspace. End is called once when the trajectory is over and
// scored, also when it failed, and must return soon.
type Ender interface{ End(trajectory string) }

// BrokenError is a failure that is the tool's own: its deadline passed, its process died, its server did not answer. Text is what the
// model reads.
type BrokenError struct{ Text string }

func (e *BrokenError) Error() string { return e.Text }

// TextError is an error whose text the model reads as it stands, with its lines: what a program wrote before it failed, or what a service
// says of a call. It must name no host path but those that the tool's results name, too.
type TextError struct{ Text string }

func (e *TextError) Error() string { return e.Text }

// Tool does something for the model. Call is safe for concurrent use and honours ctx. An error becomes an observation
// that the model can read ("Error: …"), so its text must help the model to do it right and must name no host path; a *BrokenError
// says that the tool is to blame. A tool that is an io.Closer belongs to whoever made it.
type Tool interface {
	Spec() Spec
	Call(ctx context.Context, c Call) (Observation, error)
}
