package rollout_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/orchestrator/external"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/trajectory"
)

func TestACutCompletionIsNeitherACallNorAnAnswer(t *testing.T) {
	for name, text := range map[string]string{
		"a call":                   "<calculator>2+3</calculator> and so",
		"an answer":                "<answer>5</answer> because",
		"a call that is not whole": "<calculator>2+",
		"text":                     "I think that",
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			r := rollouttest.New(t, func(engines.Request) (engines.Completion, error) { asked++; return rollouttest.SayCut(text) })
			tr := r.Sample(t.Context(), rollout.Place{Task: rollouttest.Task("sum", "2 and 3?", "5"), Phase: "train"})
			require.Empty(t, tr.Err)
			require.Equal(t, trajectory.StopMaxTokens, tr.StopReason)
			require.Equal(t, 1, asked)
			require.Len(t, tr.Turns, 1)
			turn := tr.Turns[0]
			require.Empty(t, turn.Results)
			require.False(t, turn.AnsweredThisTurn)
			require.Empty(t, turn.FinalAnswer)
			require.Zero(t, turn.ParseErrors)
			require.Zero(t, tr.Reward)
		})
	}
}

// A model behind an endpoint may think up to the limit, and the text has nothing of it: that was cut, and counts, as a longer completion does. Of
// an engine with token ids, and of a completion that was not cut, nothing is no completion.
func TestACutCompletionMayBeEmpty(t *testing.T) {
	place := rollout.Place{Task: rollouttest.Task("sum", "2 and 3?", "5"), Phase: "eval"}
	for _, c := range []struct {
		cut  string
		stop trajectory.StopReason
	}{{rollout.CutScore, trajectory.StopMaxTokens}, {rollout.CutZero, trajectory.StopMaxTokens}, {rollout.CutParse, trajectory.StopNoAction}} {
		r := rollouttest.New(t, nil)
		r.Engine, r.Cut = nothing{r.Engine, trajectory.FinishLength, false}, c.cut
		tr := r.Sample(t.Context(), place)
		require.Empty(t, tr.Err)
		require.Equal(t, c.stop, tr.StopReason)
		require.Len(t, tr.Turns, 1)
		require.Empty(t, tr.Turns[0].Completion)
		require.Zero(t, tr.ResponseTokens())
		require.Zero(t, tr.Reward)

		r.Engine, r.Recovered = nothing{reason: trajectory.FinishStop}, func(string) (*trajectory.Trajectory, bool) { return tr, false }
		require.Equal(t, rollouttest.Timeless(tr), rollouttest.Timeless(r.Sample(t.Context(), place)), "a run that goes on")
	}
	for _, e := range []nothing{{reason: trajectory.FinishStop}, {reason: trajectory.FinishLength, ids: true}} {
		r := rollouttest.New(t, nil)
		e.Engine, r.Engine = r.Engine, e
		tr := r.Sample(t.Context(), place)
		require.Equal(t, trajectory.OriginEngine, tr.ErrOrigin)
		require.Contains(t, tr.Err, "turn 0: the completion is empty")
	}
}

// nothing is an engine whose completions are empty.
type nothing struct {
	engines.Engine
	reason trajectory.FinishReason
	ids    bool
}

func (e nothing) Capabilities() engines.Capabilities { return engines.Capabilities{TokenIDs: e.ids} }

func (e nothing) Generate(context.Context, engines.Request) (engines.Completion, error) {
	return engines.Completion{FinishReason: e.reason}, nil
}

// A format for which the whole completion is the answer must not take a fragment for one.
func TestACutFragmentIsNoAnswerOfAWholeTextFormat(t *testing.T) {
	r := rollouttest.New(t, func(engines.Request) (engines.Completion, error) { return rollouttest.SayCut("5") })
	var err error
	r.Format, err = agents.NewFormat("hermes", r.Tools.Specs(), agents.FormatOptions{})
	require.NoError(t, err)
	tr := r.Sample(t.Context(), rollout.Place{Task: rollouttest.Task("sum", "2 and 3?", "5"), Phase: "train"})
	require.Equal(t, trajectory.StopMaxTokens, tr.StopReason)
	_, answered := tr.FinalAnswer()
	require.Equal(t, -1, answered)
	require.Zero(t, tr.Reward)
}

func TestWhatACutCompletionGetsIsASetting(t *testing.T) {
	sample := func(cut string) *trajectory.Trajectory {
		r := rollouttest.New(t, func(engines.Request) (engines.Completion, error) { return rollouttest.SayCut("<answer>5</answer>") })
		r.Cut = cut
		r.Reward = constantReward(t, -1)
		tr := r.Sample(t.Context(), rollout.Place{Task: rollouttest.Task("sum", "2 and 3?", "5"), Phase: "train"})
		require.Empty(t, tr.Err)
		return tr
	}
	for cut, want := range map[string]struct {
		reward float64
		stop   trajectory.StopReason
		cut    bool
	}{
		"":                {-1, trajectory.StopMaxTokens, true},
		rollout.CutScore:  {-1, trajectory.StopMaxTokens, true},
		rollout.CutZero:   {0, trajectory.StopMaxTokens, true},
		rollout.CutFilter: {-1, trajectory.StopMaxTokens, true},
		rollout.CutParse:  {-1, trajectory.StopAnswer, false},
	} {
		tr := sample(cut)
		require.Equal(t, want.reward, tr.Reward, cut)
		require.Equal(t, want.stop, tr.StopReason, cut)
		require.Equal(t, want.cut, tr.Cut(), cut)
	}
}

func constantReward(t *testing.T, value float64) rewards.Reward {
	sum, err := rewards.NewSum(time.Second, rewards.Weighted{Weight: 1, Reward: rewards.NewFunc("constant", func(context.Context, rewards.Input) (float64, error) { return value, nil })})
	require.NoError(t, err)
	return sum
}

// A run that an older version recorded goes on, and is replayed, as it was recorded: there the cut call ran.
func TestARecordedTurnStaysWhatItWasRecordedAs(t *testing.T) {
	call := func(r engines.Request) (engines.Completion, error) {
		if strings.Contains(rollouttest.LastTurn(r), "<result>") {
			return rollouttest.Say("<answer>5</answer>")
		}
		return rollouttest.SayCut("<calculator>2+3</calculator>")
	}
	old := rollouttest.New(t, call)
	old.Cut = rollout.CutParse
	at := rollout.Place{Task: rollouttest.Task("sum", "2 and 3?", "5"), Phase: "train"}
	was := old.Sample(t.Context(), at)
	require.Equal(t, trajectory.StopAnswer, was.StopReason)
	for _, turns := range []int{1, 2} {
		for _, again := range []bool{false, true} {
			recovered := *was
			recovered.Turns = was.Turns[:turns]
			if turns == 1 {
				recovered.StopReason = ""
			}
			r := rollouttest.New(t, call)
			r.Replay, r.Recovered = again, func(string) (*trajectory.Trajectory, bool) { return &recovered, false }
			got := r.Sample(t.Context(), at)
			require.Empty(t, got.Err)
			require.Equal(t, was.StopReason, got.StopReason)
			require.Equal(t, was.Samples[0].TokenIDs, got.Samples[0].TokenIDs)
		}
	}
	none := rollouttest.New(t, func(engines.Request) (engines.Completion, error) { return rollouttest.SayCut("hm") })
	none.Cut = rollout.CutParse
	was = none.Sample(t.Context(), at)
	require.Equal(t, trajectory.StopNoAction, was.StopReason)
	none.Cut, none.Replay, none.Recovered = rollout.CutScore, true, func(string) (*trajectory.Trajectory, bool) { return was, false }
	require.Equal(t, trajectory.StopNoAction, none.Sample(t.Context(), at).StopReason)
}

// A turn that was recorded as cut, without its end, stays cut in a run that goes on with cut: parse: its call did not run, and what it
// says is no answer. One that was recorded with cut: parse is what it was.
func TestARecordedCutTurnStaysCut(t *testing.T) {
	at := rollout.Place{Task: rollouttest.Task("sum", "2 and 3?", "5"), Phase: "train"}
	for text, parsed := range map[string]trajectory.StopReason{
		"<calculator>2+3</calculator> and so": "", "<answer>5</answer> because": trajectory.StopAnswer, "<calculator>2+3": "", "I think that": trajectory.StopNoAction,
	} {
		for _, before := range []string{rollout.CutScore, rollout.CutParse} {
			for _, again := range []bool{false, true} {
				script := func(r engines.Request) (engines.Completion, error) {
					if strings.Contains(rollouttest.LastTurn(r), "<result>") {
						return rollouttest.Say("<answer>5</answer>")
					}
					return rollouttest.SayCut(text)
				}
				old := rollouttest.New(t, script)
				old.Cut = before
				was := old.Sample(t.Context(), at)
				require.Empty(t, was.Err)
				if before == rollout.CutParse && parsed != "" {
					require.Equal(t, parsed, was.StopReason)
				}
				recovered := *was
				recovered.Turns = was.Turns[:1]
				if !again {
					recovered.StopReason = ""
				}
				r := rollouttest.New(t, script)
				r.Cut, r.Replay, r.Recovered = rollout.CutParse, again, func(string) (*trajectory.Trajectory, bool) { return &recovered, false }
				got := r.Sample(t.Context(), at)
				require.Empty(t, got.Err, "%s %s", text, before)
				require.Equal(t, was.Samples[0].TokenIDs, got.Samples[0].TokenIDs, "%s %s", text, before)
				require.Equal(t, len(was.Turns), len(got.Turns), "%s %s", text, before)
				if before == rollout.CutParse || parsed != trajectory.StopNoAction { // of which nothing is recorded that tells the two apart
					require.Equal(t, was.StopReason, got.StopReason, "%s %s", text, before)
				}
			}
		}
	}
}

// poster is an agent of its own that posts bodies, one call after the other, and ends with a result.
type poster struct {
	gate   http.Handler
	bodies []string
	end    external.Ended
}

func (p *poster) Enter(context.Context) (func(), error) { return func() {}, nil }
func (p *poster) Close() error                          { return nil }

func (p *poster) Run(_ context.Context, a external.Assignment) (external.Ended, error) {
	for _, body := range p.bodies {
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+a.Key)
		out := httptest.NewRecorder()
		if p.gate.ServeHTTP(out, r); out.Code != http.StatusOK {
			return external.Ended{}, errors.New(out.Body.String())
		}
	}
	return p.end, nil
}

// The trajectory of an agent that is a program of its own is cut where a limit of the job's cut the agent's own last completion: one at the limit that
// the agent set itself is what it asked for, calls aside and replies that it threw away decide nothing, and with parse the limit is an end as any other.
func TestWhatCutsTheTrajectoryOfAnAgentOfItsOwn(t *testing.T) {
	const tools = `,"tools":[{"type":"function","function":{"name":"submit","parameters":{"type":"object"}}}]`
	call := func(text, more string) string {
		return `{"messages":[{"role":"user","content":"` + text + `"}]` + more + `}`
	}
	said := "4"
	type outcome struct {
		stop   trajectory.StopReason
		cut    bool
		answer string // "": none
	}
	cut := outcome{trajectory.StopMaxTokens, true, ""}
	for name, c := range map[string]struct {
		bodies []string
		limit  int // rollout.max_new_tokens; 0: 64
		set    func(*rollout.Sampler)
		end    external.Ended
		want   outcome
		parsed outcome // with parse
	}{
		"a limit of its own":              {bodies: []string{call("22222", `,"max_tokens":1`)}, want: outcome{trajectory.StopAnswer, false, "2"}, parsed: outcome{trajectory.StopAnswer, false, "2"}},
		"the job's limit":                 {bodies: []string{call("22222", "")}, limit: 1, want: cut, parsed: outcome{trajectory.StopAnswer, false, "2"}},
		"a limit of its own as the job's": {bodies: []string{call("22222", `,"max_tokens":1`)}, limit: 1, want: cut, parsed: outcome{trajectory.StopAnswer, false, "2"}},
		"a limit of its own above the job's": {
			bodies: []string{call("22222", `,"max_tokens":9`)}, limit: 3, want: cut, parsed: outcome{trajectory.StopAnswer, false, "222"},
		},
		"the tokens of a trajectory": {
			bodies: []string{call("22222", `,"max_tokens":9`)}, set: func(r *rollout.Sampler) { r.External.Tokens = 2 }, want: cut, parsed: outcome{trajectory.StopAnswer, false, "22"},
		},
		"the context": {
			bodies: []string{call("22222", "")}, set: func(r *rollout.Sampler) {
				r.MaxTotal = 26 // two behind its prompt
			},
			want: cut, parsed: outcome{trajectory.StopAnswer, false, "22"},
		},
		"a title behind it": {
			bodies: []string{call("22222", tools), call("33", "")}, limit: 4, want: cut, parsed: outcome{trajectory.StopAnswer, false, "2222"},
		},
		"a title that is cut": {
			bodies: []string{call("2", tools), call("33333", "")}, limit: 4,
			want: outcome{trajectory.StopAnswer, false, "2"}, parsed: outcome{trajectory.StopAnswer, false, "2"},
		},
		"a title behind a call": {
			bodies: []string{call("CALL", tools), call("33333", `,"max_tokens":60`)},
			want:   outcome{trajectory.StopAnswer, false, "33333"}, parsed: outcome{trajectory.StopAnswer, false, "33333"},
		},
		"a title that is cut behind a call": {
			bodies: []string{call("CALL", tools), call(strings.Repeat("3", 70), "")},
			want:   outcome{trajectory.StopNoAction, false, ""}, parsed: outcome{trajectory.StopAnswer, false, strings.Repeat("3", 64)},
		},
		"one before the last": {
			bodies: []string{call("22222", ""), call("33", "")}, limit: 4,
			want: outcome{trajectory.StopAnswer, false, "33"}, parsed: outcome{trajectory.StopAnswer, false, "33"},
		},
		"one behind an answer": {
			bodies: []string{call("33", ""), call("22222", "")}, limit: 4, want: cut, parsed: outcome{trajectory.StopAnswer, false, "2222"},
		},
		"a refused call behind it": {
			bodies: []string{call("22222", ""), call("33", "")}, limit: 4, set: func(r *rollout.Sampler) { r.MaxTurns = 1 },
			want: cut, parsed: outcome{trajectory.StopAnswer, false, "2222"},
		},
		"a result behind it": {
			bodies: []string{call("22222", "")}, limit: 4, end: external.Ended{Answer: &said},
			want: outcome{trajectory.StopAnswer, false, "4"}, parsed: outcome{trajectory.StopAnswer, false, "4"},
		},
	} {
		for _, setting := range []string{rollout.CutScore, rollout.CutZero, rollout.CutFilter, rollout.CutParse} {
			t.Run(name+", "+setting, func(t *testing.T) {
				r := rollouttest.New(t, func(q engines.Request) (engines.Completion, error) {
					text := rollouttest.LastTurn(q)
					text = strings.TrimSuffix(text[strings.Index(text, "\n")+1:], "<|im_end|>\n<|im_start|>assistant\n")
					if text == "CALL" {
						text = `<tool_call>{"name": "submit", "arguments": {}}</tool_call>`
					}
					if most := q.Sampling.MaxTokens; most <= len(text) {
						return rollouttest.SayCut(text[:most])
					}
					return rollouttest.Say(text)
				})
				r.Cut, r.Reward, r.Sampling.Stop = setting, constantReward(t, -1), nil
				if c.limit > 0 {
					r.Sampling.MaxTokens = c.limit
				}
				agent := &poster{bodies: c.bodies, end: c.end}
				agent.gate = guests(t, r, agent)
				if c.set != nil {
					c.set(r)
				}
				tr := r.Sample(t.Context(), rollout.Place{Phase: "train", Task: rollouttest.Task("q", "1+1?", "2")})
				require.Empty(t, tr.Err)
				want := c.want
				if setting == rollout.CutParse {
					want = c.parsed
				}
				answer, at := tr.FinalAnswer()
				require.Equal(t, want, outcome{tr.StopReason, tr.Cut(), answer})
				require.Equal(t, want.answer != "", at >= 0)
				if setting == rollout.CutZero && want.cut {
					require.Zero(t, tr.Reward)
				} else {
					require.Equal(t, -1.0, tr.Reward, "the reward was asked")
				}
			})
		}
	}
}
