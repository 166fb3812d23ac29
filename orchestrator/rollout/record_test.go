package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/trajectory"
)

func TestTurnsAreRecordedBeforeTheyAreUsed(t *testing.T) {
	var events []string
	r := rollouttest.New(t, func(r engines.Request) (engines.Completion, error) {
		events = append(events, fmt.Sprint("request of ", len(r.Prompt)))
		if strings.Count(rollouttest.Letters{}.Decode(r.Prompt, false), "<result>") == 2 {
			return rollouttest.Say("<answer>5</answer>")
		}
		return rollouttest.Say("<calculator>2+3</calculator>")
	})
	r.Record = func(_ context.Context, tr *trajectory.Trajectory) error {
		s := tr.Samples[0]
		require.Equal(t, s.Len(), tr.Turns[len(tr.Turns)-1].ObservationEnd)
		events = append(events, fmt.Sprintf("%d turns, %d tokens", len(tr.Turns), s.Len()))
		return nil
	}
	place := rollout.Place{Task: rollouttest.Task("sum", "2 and 3?", "5"), Phase: "train"}
	tr := r.Sample(context.Background(), place)
	require.Equal(t, trajectory.StopAnswer, tr.StopReason)
	one, two, three := tr.Turns[0], tr.Turns[1], tr.Turns[2]
	require.Equal(t, []string{
		fmt.Sprint("request of ", one.CompletionStart), fmt.Sprintf("1 turns, %d tokens", one.ObservationEnd),
		fmt.Sprint("request of ", two.CompletionStart), fmt.Sprintf("2 turns, %d tokens", two.ObservationEnd),
		fmt.Sprint("request of ", three.CompletionStart), fmt.Sprintf("3 turns, %d tokens", three.ObservationEnd),
	}, events)

	events = nil
	r.Record = func(context.Context, *trajectory.Trajectory) error { return errors.New("the disk is full") }
	tr = r.Sample(context.Background(), place)
	require.Equal(t, trajectory.StopError, tr.StopReason)
	require.Equal(t, trajectory.OriginStore, tr.ErrOrigin)
	require.Equal(t, "the disk is full", tr.Err)
	require.Len(t, events, 1, "nothing is asked after a turn that was not recorded")
}
