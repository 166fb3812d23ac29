// Package external runs agents that are programs of their own: a command, one process a trajectory, or a service that is asked over HTTP. Each gets its
// task, the address of the gateway and the key of its session; what it samples there is its trajectory.
//
// It does not sample or record (package gateway does), and it does not score (package rewards does).
package external

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/trajectory"
)

// Assignment is what an agent is told.
type Assignment struct {
	ID    string          `json:"id"` // of the trajectory
	Phase string          `json:"phase"`
	Task  trajectory.Task `json:"task"`
	URL   string          `json:"base_url"` // of the gateway, without /v1
	Key   string          `json:"api_key"`

	Resumed bool                               `json:"-"` // an agent had it before this process began, and may live on
	Result  json.RawMessage                    `json:"-"` // that an agent gave then; nil: none
	Keep    func(result json.RawMessage) error `json:"-"` // stores the result that an agent posts; nil: nowhere

	Hold func(holder string) error `json:"-"` // refuses who bears the key as another holder than who called first; nil: there is one
	Held <-chan struct{}           `json:"-"` // closed when somebody called
}

// MarshalJSON implements json.Marshaler. The task always has its fields, which agents look into: a conversation and a session of an agent's own have none.
func (a Assignment) MarshalJSON() ([]byte, error) {
	type plain Assignment
	type task struct {
		trajectory.Task
		Fields map[string]any `json:"fields"`
	}
	of := task{a.Task, a.Task.Fields}
	if of.Fields == nil {
		of.Fields = map[string]any{}
	}
	return json.Marshal(struct {
		plain
		Task task `json:"task"`
	}{plain(a), of})
}

// Ended is what an agent left behind.
type Ended struct {
	Answer *string  `json:"answer"` // nil: the last reply without a call is the answer
	Reward *float64 `json:"reward"` // that the agent gives itself, for the reward "posted"; nil: none
	Output string   `json:"-"`      // the end of what it printed
}

// such is a result.
const such = `{"answer": "391", "reward": 1}`

// readResult reads what an agent says of its end. A key that a result does not have is an error: with a misspelt one the reward would be missing.
func readResult(data []byte, into any, keys ...string) error {
	_, err := wording.ReadObject(data, into, such, keys...)
	return err
}

// Runner runs agents. Its methods are safe for concurrent use.
type Runner interface {
	// Enter waits until the runner has a place for one more agent, which leave gives back. It comes before Run, so that waiting is no time of the agent.
	Enter(ctx context.Context) (leave func(), err error)
	// Run returns when the agent of one trajectory has ended, and all that it started. It honours ctx: the agent is killed. An error says that the
	// agent failed: the trajectory has no reward.
	Run(ctx context.Context, a Assignment) (Ended, error)
	Close() error
}

// most bounds what is kept of an agent's output, in bytes.
const most = 64 << 10

// patience is how long an agent that is told to end may take.
const patience = 2 * time.Second

// failedf is an agent's failure with the end of its output.
func failedf(output, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if last := lastLine(output); last != "" {
		text += "; it printed last: " + last
	}
	return fmt.Errorf("the agent %s", text)
}
