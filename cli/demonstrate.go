package cli

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/orchestrator"
)

// demonstration is a line of what `env demonstrate` writes, which data.train of supervised fine-tuning reads.
type demonstration struct {
	ID       string            `json:"id"`
	Reward   float64           `json:"reward"`
	Messages []message         `json:"messages"`
	Tools    []json.RawMessage `json:"tools,omitempty"` // that the chat template writes into the prompt
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// demonstrate writes the solver's conversations of a job's tasks, and tells how many of its episodes did not reach the goal.
func (c envCommands) demonstrate(x *cli.Context) (err error) {
	if x.Int("tasks") < 1 {
		return usagef("--tasks is %d; it must be at least 1", x.Int("tasks"))
	}
	if _, err := one(x, "the job file"); err != nil {
		return err
	}
	j, err := c.load(x)
	if err != nil {
		return err
	}
	ctx, stop := runCommands(c).watch(x, j.Rollout.Watchdog)
	defer stop()
	p, err := orchestrator.NewPlayer(ctx, j, x.String("model"), c.registries, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	tasks := min(x.Int("tasks"), len(p.Tasks))
	written, why := 0, ""
	for i := range tasks {
		shown, t, err := p.Demonstrate(ctx, i)
		if ctx.Err() != nil {
			return orchestrator.ErrStopped
		}
		if err != nil {
			return fmt.Errorf("env: demonstrate: task %s: %w", p.Tasks[i].ID, err)
		}
		if o := t.LastOutcome(); t.Return() < 1 && (o == nil || !o.Success) {
			why = fmt.Sprintf("task %s ended with reward %g (%s)", t.TaskID, t.Return(), t.StopReason)
			continue
		}
		line := demonstration{ID: t.TaskID, Reward: t.Return(), Tools: shown.Tools}
		for _, m := range shown.Messages {
			text, err := m.TextContent()
			if err != nil {
				return fmt.Errorf("env: demonstrate: task %s: %w", t.TaskID, err)
			}
			line.Messages = append(line.Messages, message{m.Role, text})
		}
		if err := c.print(line); err != nil {
			return err
		}
		written++
	}
	if written < tasks {
		c.tell([]string{fmt.Sprintf("%d of %d episodes of the solver did not reach the goal and are left out, such as: %s; agent.max_turns and rollout.max_tokens bound them", tasks-written, tasks, why)})
	}
	if written == 0 {
		return errors.New("env: demonstrate: nothing was written")
	}
	return nil
}
