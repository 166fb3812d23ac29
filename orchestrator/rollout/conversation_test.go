package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

type piece struct {
	text string
	on   bool
}

// laidOut are the ids and the mask of pieces.
func laidOut(pieces ...piece) (ids []int32, mask []bool) {
	for _, p := range pieces {
		part := rollouttest.Letters{}.Encode(p.text)
		ids = append(ids, part...)
		mask = append(mask, slices.Repeat([]bool{p.on}, len(part))...)
	}
	return ids, mask
}

// A summary ends a sample and begins another: worked by hand.
func TestSummarizeBeginsASample(t *testing.T) {
	tr := rollouttest.Summing(t).Sample(t.Context(), rollout.Place{Task: rollouttest.Task("sum", "2, 3 and 1?", "6"), Phase: "train"})
	require.Empty(t, tr.Err)
	require.Equal(t, trajectory.StopAnswer, tr.StopReason)
	require.Equal(t, 1.0, tr.Reward)
	const head = "<|im_start|>system\nUse it.<|im_end|>\n<|im_start|>user\n2, 3 and 1?<|im_end|>\n<|im_start|>"
	ids, mask := laidOut(
		piece{head + "assistant\n", false}, // every turn ends at a stop string: the end of turn is observed
		piece{"<calculator>2+3</calculator>", true},
		piece{"<|im_end|>\n<|im_start|>user\n<result>5</result><|im_end|>\n<|im_start|>assistant\n", false},
		piece{"<summarize>five, add 1</summarize>", true}, // nothing of the sample follows
	)
	require.Len(t, tr.Samples, 2)
	require.Equal(t, ids, tr.Samples[0].TokenIDs)
	require.Equal(t, mask, tr.Samples[0].ResponseMask)
	again, mask := laidOut(
		piece{head + "user\nWhat came before is gone. Your summary of it:\nfive, add 1<|im_end|>\n<|im_start|>assistant\n", false},
		piece{"<calculator>5+1</calculator>", true},
		piece{"<|im_end|>\n<|im_start|>user\n<result>6</result><|im_end|>\n<|im_start|>assistant\n", false},
		piece{"<answer>6</answer>", true},
	)
	require.Equal(t, again, tr.Samples[1].TokenIDs)
	require.Equal(t, mask, tr.Samples[1].ResponseMask)

	offsets := make([][4]int, len(tr.Turns))
	for i, turn := range tr.Turns {
		offsets[i] = [4]int{turn.Sample, turn.CompletionStart, turn.CompletionEnd, turn.ObservationEnd}
	}
	first := len(rollouttest.Letters{}.Encode(head + "assistant\n"))
	second := len(rollouttest.Letters{}.Encode(head + "user\nWhat came before is gone. Your summary of it:\nfive, add 1<|im_end|>\n<|im_start|>assistant\n"))
	const call, observed = 28, 39 // ids of a call, and of what comes between it and the next turn
	require.Equal(t, [][4]int{
		{0, first, first + call, first + call + observed},
		{0, first + call + observed, len(ids), len(ids)},
		{1, second, second + call, second + call + observed},
		{1, second + call + observed, len(again), len(again)},
	}, offsets)
	require.Equal(t, "The conversation was replaced by the summary.", tr.Turns[1].Results[0].Observation)

	// The state behind a summary is what it says, and not that there is one.
	require.NotEmpty(t, tr.Turns[2].Anchor)
	require.Equal(t, []string{"", "", tr.Turns[2].Anchor, ""}, []string{tr.Turns[0].Anchor, tr.Turns[1].Anchor, tr.Turns[2].Anchor, tr.Turns[3].Anchor})
	said := []string{"<calculator>2+3</calculator>", "<summarize>add 1 to five</summarize>", "<answer>6</answer>"}
	r := rollouttest.New(t, func(engines.Request) (engines.Completion, error) {
		next := said[0]
		said = said[1:]
		return rollouttest.Say(next)
	}, tools.NewSummarize())
	r.MaxTurns = 6
	other := r.Sample(t.Context(), rollout.Place{Task: rollouttest.Task("sum", "2, 3 and 1?", "6"), Phase: "train"})
	require.Len(t, other.Turns, 3)
	require.NotEmpty(t, other.Turns[2].Anchor)
	require.NotEqual(t, tr.Turns[2].Anchor, other.Turns[2].Anchor)
}

// A summary together with another call would lose what that one returned: it is refused, and the history stays.
func TestSummarizeIsTheOnlyCallOfItsTurn(t *testing.T) {
	const both = `<tool_call>{"name":"summarize","arguments":{"text":"x"}}</tool_call><tool_call>{"name":"calculator","arguments":{"expression":"1+1"}}</tool_call>`
	r := rollouttest.New(t, func(q engines.Request) (engines.Completion, error) {
		if strings.Contains(rollouttest.LastTurn(q), "must be the only call") {
			return rollouttest.Say("2")
		}
		return engines.Completion{TokenIDs: append(rollouttest.Letters{}.Encode(both), rollouttest.End)}, nil
	}, tools.NewSummarize())
	var err error
	r.Format, err = agents.NewFormat("hermes", r.Tools.Specs(), agents.FormatOptions{ObservationRole: "user"})
	require.NoError(t, err)
	r.Sampling.MaxTokens, r.Sampling.Stop = 200, nil
	tr := r.Sample(t.Context(), rollout.Place{Task: rollouttest.Task("a", "1+1?", "2")})
	require.Empty(t, tr.Err)
	require.Len(t, tr.Samples, 1)
	require.True(t, tr.Turns[0].Results[0].Failed)
	require.Equal(t, trajectory.CauseRaised, tr.Turns[0].Results[0].Cause)
	require.Equal(t, "Error: summarize must be the only call of its turn; nothing was replaced", tr.Turns[0].Results[0].Observation)
	require.Equal(t, "2", tr.Turns[0].Results[1].Observation)
}

func TestASummaryThatDoesNotFitEndsTheTrajectory(t *testing.T) {
	r := rollouttest.New(t, func(engines.Request) (engines.Completion, error) {
		return rollouttest.Say("<summarize>" + strings.Repeat("x", 30) + "</summarize>")
	}, tools.NewSummarize())
	r.MaxTotal = 120
	tr := r.Sample(t.Context(), rollout.Place{Task: rollouttest.Task("a", "1?", "1")})
	require.Empty(t, tr.Err)
	require.Equal(t, trajectory.StopMaxTokens, tr.StopReason)
	require.Len(t, tr.Samples, 1)
}

// A trajectory of several samples goes on after each of its turns, and replays, as one of a single sample does.
func TestSamplesGoOnAndReplay(t *testing.T) {
	r := rollouttest.Summing(t)
	place := rollout.Place{Phase: "train", Task: rollouttest.Task("q", "2, 3 and 1?", "6")}
	want := r.Sample(t.Context(), place)
	require.Len(t, want.Samples, 2)
	for kill := range len(want.Turns) + 1 { // turns that are recorded
		db, err := store.Open(filepath.Join(t.TempDir(), fmt.Sprint(kill, ".db")))
		require.NoError(t, err)
		require.NoError(t, db.Admit(t.Context(), store.Admission{Phase: "train", Size: 1, Task: place.Task}))
		first := *r
		first.Record = func(ctx context.Context, tr *trajectory.Trajectory) error {
			if len(tr.Turns) > kill {
				return errors.New("killed")
			}
			return db.AddTurn(ctx, tr)
		}
		first.Sample(t.Context(), place)
		log, err := db.Recover(t.Context(), 0)
		require.NoError(t, err)
		asked := 0
		second := *r
		second.Engine = rollouttest.OnCompletion(r.Engine, func(engines.Request, engines.Completion) { asked++ })
		second.Record = db.AddTurn
		second.Recovered = func(string) (*trajectory.Trajectory, bool) { return log.Outstanding[0].Partial[0], false }
		got := second.Sample(t.Context(), place)
		require.Equal(t, rollouttest.Timeless(want), rollouttest.Timeless(got))
		require.Equal(t, len(want.Turns)-kill, asked)
		require.NoError(t, db.AddTrajectory(t.Context(), "train", place.Task, got))
		log, err = db.Recover(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, rollouttest.Timeless(want), rollouttest.Timeless(log.Outstanding[0].Finished[0]))
		require.NoError(t, db.Close())
	}

	replay := *r
	replay.Replay = true
	replay.Recovered = func(string) (*trajectory.Trajectory, bool) { return want, false }
	got := replay.Sample(t.Context(), place)
	require.Equal(t, rollouttest.Timeless(want), rollouttest.Timeless(got))

	other := *want // what was recorded in its second sample is not what the job does now
	other.Samples = slices.Clone(want.Samples)
	changed := *want.Samples[1]
	changed.TokenIDs = slices.Clone(changed.TokenIDs)
	changed.TokenIDs[3]++
	other.Samples[1] = &changed
	changedRun := *r
	changedRun.Recovered = func(string) (*trajectory.Trajectory, bool) { return &other, false }
	got = changedRun.Sample(t.Context(), place)
	require.Equal(t, "orchestrator: train-0-0-0 turn 2: its prompt is not the one that was recorded; the job's prompt, tools or model changed since", got.Err)
}

// Whatever the model writes, the trainable tokens of all samples are the sampled ones, and each prompt is the sample so far.
func TestTrainableTokensOfSeveralSamples(t *testing.T) {
	choices := []string{"<summarize>", "</summarize>", "<calculator>1+2</calculator>", "<answer>", "</answer>", "<|im_end|>", " ", "x", "<summarize>s</summarize>", "<summarize>s</summarize>", "é"}
	samples := 0
	for seed := range uint64(80) {
		var prompts, sampled [][]int32
		r := rollouttest.New(t, func(q engines.Request) (engines.Completion, error) {
			n := q.Seed
			var ids []int32
			for range 1 + n%4 {
				n = n*6364136223846793005 + 1442695040888963407
				ids = append(ids, rollouttest.Letters{}.Encode(choices[(n>>33)%uint64(len(choices))])...)
			}
			return engines.Completion{TokenIDs: ids}, nil
		}, tools.NewSummarize())
		r.MaxTurns, r.MaxTotal, r.Seed = 8, 400, seed
		r.Engine = rollouttest.OnCompletion(r.Engine, func(q engines.Request, c engines.Completion) {
			prompts, sampled = append(prompts, q.Prompt), append(sampled, c.TokenIDs)
		})
		tr := r.Sample(t.Context(), rollout.Place{Task: rollouttest.Task("a", "1?", "1")})
		require.Empty(t, tr.Err)
		require.Len(t, sampled, len(tr.Turns))
		total := 0
		for i, turn := range tr.Turns {
			s := tr.Samples[turn.Sample]
			require.Equal(t, s.TokenIDs[:turn.CompletionStart], prompts[i])
			require.Equal(t, s.TokenIDs[turn.CompletionStart:turn.CompletionEnd], sampled[i])
			require.NotContains(t, s.ResponseMask[turn.CompletionStart:turn.CompletionEnd], false)
			total += len(sampled[i])
		}
		for _, s := range tr.Samples {
			require.NoError(t, s.Check())
			require.Positive(t, s.ResponseTokens())
		}
		require.Equal(t, total, tr.ResponseTokens())
		samples = max(samples, len(tr.Samples))
	}
	require.Greater(t, samples, 2)
}

// A template that leaves out what was thought in earlier turns rewrites the history: a sample begins, with the new prompt.
func TestATemplateThatDropsThoughtsBeginsASample(t *testing.T) {
	r := rollouttest.New(t, func(q engines.Request) (engines.Completion, error) {
		if strings.Contains(rollouttest.LastTurn(q), "<result>") {
			return rollouttest.Say("<answer>5</answer>")
		}
		return rollouttest.Say("<think>add</think><calculator>2+3</calculator>")
	})
	r.Renderer = rollouttest.Renderer(t, `{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content.split('</think>')[-1] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`)
	tr := r.Sample(t.Context(), rollout.Place{Task: rollouttest.Task("a", "2+3?", "5")})
	require.Empty(t, tr.Err)
	require.Equal(t, 1.0, tr.Reward)
	require.Len(t, tr.Samples, 2)
	text := func(s *trajectory.Sample) string { return rollouttest.Letters{}.Decode(s.TokenIDs, false) }
	const head = "<|im_start|>system\nUse it.<|im_end|>\n<|im_start|>user\n2+3?<|im_end|>\n<|im_start|>assistant\n"
	require.Equal(t, head+"<think>add</think><calculator>2+3</calculator>", text(tr.Samples[0]))
	require.Equal(t, head+"<calculator>2+3</calculator><|im_end|>\n<|im_start|>user\n<result>5</result><|im_end|>\n<|im_start|>assistant\n<answer>5</answer>", text(tr.Samples[1]))
	require.Equal(t, []int{0, 1}, []int{tr.Turns[0].Sample, tr.Turns[1].Sample})
}

// broken is a format whose code fails.
type broken struct {
	agents.Format
	parse, observe error
}

func (b broken) Parse(ctx context.Context, completion string) (agents.Parsed, error) {
	if b.parse != nil {
		return agents.Parsed{}, b.parse
	}
	return b.Format.Parse(ctx, completion)
}

func (b broken) Observe(ctx context.Context, results []trajectory.ToolResult) ([]trajectory.Message, error) {
	if b.observe != nil {
		return nil, b.observe
	}
	return b.Format.Observe(ctx, results)
}

func TestAFormatThatFailsFailsItsTrajectory(t *testing.T) {
	for name, b := range map[string]broken{"parse": {parse: errors.New("a.py: parse: KeyError: 'x'")}, "observe": {observe: errors.New("a.py: observe: KeyError: 'x'")}} {
		r := rollouttest.New(t, func(engines.Request) (engines.Completion, error) {
			return rollouttest.Say("<calculator>1</calculator>")
		})
		b.Format = r.Format
		r.Format = b
		tr := r.Sample(t.Context(), rollout.Place{Task: rollouttest.Task("a", "1?", "1")})
		require.Equal(t, trajectory.StopError, tr.StopReason)
		require.Equal(t, trajectory.OriginAgent, tr.ErrOrigin)
		require.Equal(t, "orchestrator: -0-0-0 turn 0: a.py: "+name+": KeyError: 'x'", tr.Err)
		require.Equal(t, map[trajectory.Origin]int{"agent": 1}, rollout.ErrorsOf(tr))
	}
}

// late is a format that honours its context and nothing else; wild one that panics.
type late struct{ agents.Format }

func (late) Parse(ctx context.Context, _ string) (agents.Parsed, error) {
	<-ctx.Done()
	return agents.Parsed{}, ctx.Err()
}

type wild struct{ agents.Format }

func (wild) Parse(context.Context, string) (agents.Parsed, error) { panic("a map of nothing") }

// A format that hangs or panics fails its trajectory, by name, and is what the watchdog says is waited for.
func TestAFormatThatHangsOrPanicsFailsItsTrajectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rollouttest.New(t, func(engines.Request) (engines.Completion, error) {
			return rollouttest.Say("<calculator>1</calculator>")
		})
		format := r.Format
		r.AgentTimeout = 30 * time.Second
		r.Format = late{format}
		board := watchdog.NewBoard()
		lines := make(chan []watchdog.Line, 1)
		time.AfterFunc(20*time.Second, func() { lines <- board.Lines() })
		start := time.Now()
		tr := r.Sample(board.On(t.Context()), rollout.Place{Phase: "train", Task: rollouttest.Task("a", "1?", "1")})
		require.Equal(t, 30*time.Second, time.Since(start).Truncate(time.Second))
		require.Equal(t, trajectory.OriginAgent, tr.ErrOrigin)
		require.Equal(t, "orchestrator: train-0-0-0 turn 0: parse took longer than 30s (rollout.tool_timeout)", tr.Err)
		require.Equal(t, "waiting for agent: train-0-0-0-0 for 20s", watchdog.Report(<-lines))
		r.Format = wild{format}
		tr = r.Sample(t.Context(), rollout.Place{Phase: "train", Task: rollouttest.Task("a", "1?", "1")})
		require.Equal(t, trajectory.OriginAgent, tr.ErrOrigin)
		require.Equal(t, "orchestrator: train-0-0-0 turn 0: parse panicked: a map of nothing", tr.Err)
	})
}
