package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/orchestrator"
	"github.com/agentfly/agentfly/orchestrator/report"
)

// stepped are the events of a run of so many steps.
func stepped(d *display, rewards ...float64) {
	d.event(orchestrator.Event{Kind: orchestrator.Begin, Steps: 20})
	d.event(orchestrator.Event{Kind: orchestrator.Evaluated, Evaluation: &report.Evaluation{Reward: 0.25, Seconds: 10}})
	for i, r := range rewards {
		d.event(orchestrator.Event{Kind: orchestrator.Doing, Text: fmt.Sprint("the update of step ", i+1)})
		d.event(orchestrator.Event{Kind: orchestrator.StepDone, Step: i + 1, Steps: 20, Metrics: map[string]float64{
			"reward/mean": r, "seconds/step": 10, "seconds/wait": 6, "seconds/train": 4, "tokens/sample_per_second": 100, "tokens/train_per_second": 50,
		}})
	}
}

func TestWhatIsDrawn(t *testing.T) {
	at := time.Now()
	d := newDisplay()
	d.ascii, d.clock = true, func() time.Time { return at }
	require.Empty(t, d.lines(80, 24), "nothing is known yet")
	stepped(d, 0.1, 0.5, 0.3)
	board := watchdog.NewBoard()
	d.watch(board)
	d.event(orchestrator.Event{Kind: orchestrator.Evaluated, Evaluation: &report.Evaluation{Reward: 0.5, Seconds: 20}})
	d.event(orchestrator.Event{Kind: orchestrator.Evaluated, Evaluation: &report.Evaluation{Name: "tool_off"}}) // without tools it says nothing of the policy's progress
	d.event(orchestrator.Event{Kind: orchestrator.Doing, Text: "evaluation step-3" + escapes})
	d.event(orchestrator.Event{Kind: orchestrator.Rollouts, Done: 8, Of: 32})
	d.event(orchestrator.Event{Kind: orchestrator.Rollouts, Done: 7, Of: 32}) // a little late
	wait := watchdog.Enter(board.On(t.Context()), "tool x\x1b[2J", "train-0\n")
	defer wait.Leave()
	at = at.Add(4 * time.Second)
	lines := d.lines(200, 24)
	require.Equal(t, []string{
		"step   3/20  [####..........................]  15%  left 2m46s",
		"reward 0.300  _^-  first 0.100, best 0.500  held-out 0.250 -> 0.500",
		"speed  sampled 100 tok/s, trained 50 tok/s  sampling 30%, training 20%, evaluation 50%",
	}, lines[:3])
	require.Contains(t, lines[3], `evaluation step-3\x1b[2J`)
	require.True(t, strings.HasSuffix(lines[3], ", for 4s  8 of 32 trajectories, left 12s"), lines[3])
	require.Regexp(t, `^waits  tool x\\x1b\[2J: train-0  for \d+`, lines[4])
	safe(t, strings.Join(lines, ""))
	for _, columns := range []int{100, 80, 60, 40, 20, 5, 1} {
		narrow := d.lines(columns, 24)
		require.Len(t, narrow, 5)
		require.True(t, strings.HasPrefix(narrow[0], "step   3/20"), narrow[0])
	}
	require.Len(t, d.lines(80, 8), 1, "a small window is for the lines")
	d.event(orchestrator.Event{Kind: orchestrator.Summarized})
	require.Empty(t, d.lines(80, 24), "the summary says all")
}

// Figures of other objectives, and none at all.
func TestWhatIsDrawnOfALoss(t *testing.T) {
	d := newDisplay()
	d.ascii = true
	loss := 2.0
	d.event(orchestrator.Event{Kind: orchestrator.Evaluated, Evaluation: &report.Evaluation{Loss: &loss}})
	for i, v := range []float64{3, 1, 2} {
		d.event(orchestrator.Event{Kind: orchestrator.StepDone, Step: i + 1, Steps: 3, Metrics: map[string]float64{"sft/loss": v}})
	}
	lines := d.lines(80, 24)
	require.Equal(t, "loss   2  ^_-  first 3, best 1  held-out 2", lines[1])
	require.Equal(t, "step   3/3  [##############################]  100%", lines[0])
	none := newDisplay()
	none.event(orchestrator.Event{Kind: orchestrator.StepDone, Step: 1, Steps: 2})
	require.NotEmpty(t, none.lines(80, 24))
}

// A line of JSON for each event but those that come many times a second, whatever it holds.
func TestEventsAreLogged(t *testing.T) {
	var b bytes.Buffer
	e := &env{out: &b}
	e.logged(orchestrator.Event{Kind: orchestrator.StepDone, Text: "step\x1b", Step: 1, Steps: 2, Metrics: map[string]float64{"reward/mean": 0.5}})
	e.logged(orchestrator.Event{Kind: orchestrator.Rollouts, Done: 1, Of: 2})
	e.logged(orchestrator.Event{Kind: orchestrator.Evaluated, Text: "text", Evaluation: &report.Evaluation{Reward: math.NaN()}})
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	require.Len(t, lines, 2)
	var step, evaluation map[string]any
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &step))
	require.Equal(t, map[string]any{"reward/mean": 0.5}, step["metrics"])
	require.Equal(t, "step\x1b", step["text"])
	require.NotEmpty(t, step["time"])
	require.NoError(t, json.Unmarshal([]byte(lines[1]), &evaluation))
	require.Equal(t, "text", evaluation["text"])
	_, _, err := command(t, "train", "../examples/tiny.yaml", "--log-format", "xml")
	require.EqualError(t, err, `--log-format is "xml"; allowed: text, json`)
}

func TestWhatIsDrawnOfADownload(t *testing.T) {
	var d download
	require.Empty(t, d.lines(80, 24))
	d.progress("model\x1b.safetensors", 50e6, 200e6)
	require.Equal(t, []string{`model\x1b.safetensors  [#####...............]  25% of 200.0 MB`}, d.lines(80, 24))
	d.progress("b", 5e6, -1)
	require.Equal(t, []string{"b  5.0 MB"}, d.lines(80, 24))
	d.progress("c", 9, 1)
	require.NotEmpty(t, d.lines(10, 24))
}
