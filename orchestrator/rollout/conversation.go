package rollout

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// conversation is what was said in a trajectory, as its newest sample has it.
type conversation struct {
	renderer *masks.Renderer
	schemas  []json.RawMessage // of the tools that the prompt describes
	most     int               // tokens of a sample

	opening  []trajectory.Message // that precede the first completion
	messages []trajectory.Message
	text     string             // that they were rendered to
	sample   *trajectory.Sample // the newest; nil: its prompt did not fit
	replaced string             // names the history that a tool put in the place of what came before the next turn; "": none did
}

// begin begins a sample with the prompt of the messages, and returns the number of its tokens.
func (c *conversation) begin(t *trajectory.Trajectory) (int, error) {
	var prompt []int32
	var err error
	onFreshStack(func() { prompt, c.text, err = c.renderer.Prompt(c.messages, c.schemas, true) })
	if err != nil {
		return 0, &failure{trajectory.OriginRender, err}
	}
	if c.sample = nil; len(prompt) >= c.most {
		return len(prompt), nil
	}
	c.sample = &trajectory.Sample{}
	c.sample.AppendObservation(prompt)
	t.Samples = append(t.Samples, c.sample)
	return len(prompt), nil
}

// restart begins a sample because the history was rewritten.
func (c *conversation) restart(t *trajectory.Trajectory) (trajectory.StopReason, error) {
	if _, err := c.begin(t); err != nil {
		return "", err
	}
	if c.sample == nil {
		return trajectory.StopMaxTokens, nil
	}
	return "", nil
}

// observe appends what the turn observed, or says why the trajectory ends here. Where the history is rewritten, by a tool or by the chat
// template, a new sample begins, and the turn has no observation: it stands in the prompt of that sample. calls is how many the trajectory
// asked for so far.
func (r *Sampler) observe(ctx context.Context, p Place, t *trajectory.Trajectory, c *conversation, record *trajectory.Turn, calls int) (trajectory.StopReason, error) {
	turn := len(t.Turns)
	switch {
	case over(record) != "":
		return over(record), nil
	case record.AnsweredThisTurn:
		return trajectory.StopAnswer, nil
	case r.MaxCalls > 0 && calls > r.MaxCalls:
		return trajectory.StopMaxCalls, nil
	case turn+1 >= r.MaxTurns:
		return trajectory.StopMaxTurns, nil
	case len(record.Results) == 0: // neither a call nor an answer: there is nothing to observe
		return trajectory.StopNoAction, nil
	}
	var summary, results []trajectory.Message
	err := ask(ctx, r.AgentTimeout, p, turn, "rewriting the history", func(context.Context) (err error) {
		summary, err = rewritten(r.Tools, record.Results)
		return err
	})
	if err != nil {
		return "", err
	}
	c.replaced = ""
	if summary != nil {
		c.messages, c.replaced = slices.Concat(c.opening, summary), historyName(summary)
		return c.restart(t)
	}
	err = ask(ctx, r.AgentTimeout, p, turn, "observe", func(ctx context.Context) (err error) {
		results, err = r.Format.Observe(ctx, record.Results)
		return err
	})
	if err != nil {
		return "", err
	}
	s := c.sample
	reply := masks.Reply{
		History: c.messages, Tools: r.Schemas, Completion: record.Completion, Results: results,
		Sampled: s.TokenIDs[record.CompletionStart:record.CompletionEnd], Prompt: c.text,
	}
	var ids []int32
	var next string
	onFreshStack(func() { ids, next, err = r.Renderer.Continue(reply) })
	if errors.Is(err, masks.ErrRewritten) {
		c.messages = reply.Messages()
		return c.restart(t)
	}
	if err != nil {
		return "", &failure{trajectory.OriginRender, fmt.Errorf("orchestrator: %s turn %d: %w", p.ID(), turn, err)}
	}
	c.messages, c.text = reply.Messages(), next
	if s.Len()+len(ids) >= r.MaxTotal {
		return trajectory.StopMaxTokens, nil
	}
	s.AppendObservation(ids)
	record.ObservationEnd = s.Len()
	return "", nil
}

// historyName names the state of a turn whose prompt has these messages in the place of all that came before: what the tool returned, which is the same
// whatever they say, does not.
func historyName(messages []trajectory.Message) string {
	text, _ := json.Marshal(messages) // of messages, which never fails
	h := sha256.Sum256(text)
	return "history " + hex.EncodeToString(h[:])
}

// ask has the agent's format, which may be somebody else's code, do something for a turn. A panic is an error, and so is what
// comes after the deadline; neither ends more than this trajectory.
func ask(ctx context.Context, timeout time.Duration, p Place, turn int, what string, f func(ctx context.Context) error) (err error) {
	defer watchdog.Enter(ctx, "agent", p.ID()+"-"+strconv.Itoa(turn)).Leave()
	own, cancel := ctx, func() {}
	if timeout > 0 {
		own, cancel = context.WithTimeout(ctx, timeout)
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%s panicked: %v", what, v)
		}
		if err != nil && own.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("%s took longer than %v (rollout.tool_timeout)", what, timeout)
		}
		if err != nil {
			err = &failure{trajectory.OriginAgent, fmt.Errorf("orchestrator: %s turn %d: %w", p.ID(), turn, err)}
		}
		cancel()
	}()
	return f(own)
}

// rewriter is the tool of that name if it replaces the history.
func rewriter(registry *tools.Registry, name string) tools.Rewriter {
	if registry == nil || name == "" {
		return nil
	}
	t, err := registry.Lookup(name)
	if err != nil {
		return nil
	}
	w, _ := t.(tools.Rewriter)
	return w
}

// onlyCall refuses a call that would replace the history together with what came back beside it.
func onlyCall(registry *tools.Registry, results []trajectory.ToolResult) {
	if len(results) < 2 {
		return
	}
	for i := range results {
		if o := &results[i]; !o.Failed && rewriter(registry, o.Call.Name) != nil {
			o.Fail(trajectory.CauseRaised, "Error: "+o.Call.Name+" must be the only call of its turn; nothing was replaced")
		}
	}
}

// rewritten is what stands behind the task from now on; nil when no call replaced the history.
func rewritten(registry *tools.Registry, results []trajectory.ToolResult) ([]trajectory.Message, error) {
	for _, o := range results {
		if o.Failed {
			continue
		}
		if w := rewriter(registry, o.Call.Name); w != nil {
			return w.Rewrite(o.Call.Arguments)
		}
	}
	return nil, nil
}
