// Package tools defines the contract of a tool, its registry, the JSON schema of its arguments, the formats in which a
// model writes calls, and the prebuilt tools.
package tools

import (
	"context"
	"encoding/json"
)

// Spec describes a tool to the model.
type Spec struct {
	Name        string          // [a-zA-Z0-9_-]{1,64}
	Description string          //
	Parameters  json.RawMessage // JSON schema of the arguments object
}

// Call is one call of a tool within a trajectory.
type Call struct {
	ID         string
	Trajectory string          // id, for state that a tool keeps per trajectory
	Arguments  json.RawMessage // a JSON object; already checked against the schema
}

// Observation is what the model reads.
type Observation struct {
	Text string
}

// Keeper is a tool that keeps state of a trajectory in this process: what it did cannot be taken up by another process, so
// that a trajectory which the process left unfinished begins anew.
type Keeper interface{ KeepsState() bool }

// Tool does something for the model. Call is safe for concurrent use and honours ctx. An error becomes an observation
// that the model can read ("Error: …"), so its text must help the model to do it right and must name no host path.
type Tool interface {
	Spec() Spec
	Call(ctx context.Context, c Call) (Observation, error)
}
