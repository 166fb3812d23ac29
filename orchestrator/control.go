package orchestrator

import (
	"context"
	"time"

	"github.com/agentfly/agentfly/internal/retry"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
)

// controlEvery is how often a run that pauses looks whether it is to go on.
const controlEvery = 200 * time.Millisecond

// obey does what others asked of the run since the last step, and returns when it may go on. It is for the loop alone.
func (t *training) obey(ctx context.Context) error {
	if t.requests == nil {
		return ctx.Err()
	}
	paused := false
	for {
		asked, err := t.requests.Next()
		if err != nil && !t.deaf {
			t.deaf = true
			t.console.warn("what others ask of the run cannot be read: " + err.Error())
		}
		for _, q := range asked {
			next := t.state.Step + 1
			switch q.Action {
			case runfolder.Pause:
				if paused {
					continue
				}
				paused = true
				t.activity.begin(pausing, "pausing before step %d, as %s asked", next, q.By)
				t.console.say("pausing before step %d, as %s asked; agentfly control %s resume goes on", next, q.By, t.dir)
			case runfolder.Resume:
				if paused {
					paused = false
					t.console.say("going on with step %d, as %s asked", next, q.By)
				}
			case runfolder.Checkpoint:
				if err := t.save(); err != nil {
					return err
				}
				t.console.say("saved after step %d, as %s asked", t.state.Step, q.By)
				if paused {
					t.activity.begin(pausing, "pausing before step %d", next)
				}
			case runfolder.Stop:
				t.console.say("stopping before step %d, as %s asked", next, q.By)
				t.stop()
				return ctx.Err()
			}
		}
		if !paused {
			return ctx.Err()
		}
		if err := retry.Sleep(ctx, controlEvery); err != nil {
			return err
		}
	}
}
