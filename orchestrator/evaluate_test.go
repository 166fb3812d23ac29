package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/orchestrator/external"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/objective"
	"github.com/agentfly/agentfly/orchestrator/report"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/session"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

func evalJob(e job.Eval) *job.Job {
	return &job.Job{Eval: e, Rollout: job.Rollout{MaxFailed: 1, MaxFailedTool: 1}}
}

// The model answers right with the first so many samples of a task as its question says.
func answersByIndex(r engines.Request) (engines.Completion, error) {
	_, after, _ := strings.Cut(rollouttest.Decode(r.Prompt), "user\n")
	n, _ := strconv.Atoi(after[:1])
	switch i := rollouttest.Index(r); {
	case strings.Contains(after, "gone") && i == 3:
		return engines.Completion{}, errors.New("the engine is gone")
	case i < n:
		return rollouttest.Say("<answer>1</answer>")
	}
	return rollouttest.Say("<answer>2</answer>")
}

func held(id, question, source string) trajectory.Task {
	q := rollouttest.Task(id, question, "1")
	if source != "" {
		q.Fields["source"] = source
	}
	return q
}

func TestAnEvaluationInNumbers(t *testing.T) {
	r := rollouttest.New(t, answersByIndex)
	db, err := store.Open(filepath.Join(t.TempDir(), store.File))
	require.NoError(t, err)
	defer db.Close()
	tasks := []trajectory.Task{held("a", "2 right?", "web"), held("b", "0 right?", "web"), held("c", "4 right?", "book"), held("d", "1 gone?", "book"), held("e", "1 right?", "")}
	e, err := objective.Evaluate(t.Context(), *r, db, "step-3", 3, tasks, evalJob(job.Eval{Samples: 4, Temperature: 1, K: []int{1, 2}, By: "source"}))
	require.NoError(t, err)
	require.Equal(t, 4, e.Samples)
	require.Equal(t, 5, e.Tasks)
	require.InDelta(t, (0.5+0+1+1./3+0.25)/5, e.Reward, 1e-12, "the one of task d that failed is left out")
	require.InDelta(t, (0.5+0+1+1./3+0.25)/5, e.Accuracy, 1e-12)
	require.Equal(t, 1, e.Failed)
	require.Equal(t, map[string]int{"engine": 1}, e.Errors)
	// pass@2 of c right of 4 is 0, 1/2, 5/6 for c = 0, 1, 2: 1 - C(4-c,2)/6; of 1 of 3 it is 2/3
	require.InDelta(t, (0.5+0+1+1./3+0.25)/5, e.Pass["1"], 1e-12)
	require.InDelta(t, (5./6+0+1+2./3+0.5)/5, e.Pass["2"], 1e-12)
	require.Equal(t, "source", e.By)
	require.Len(t, e.Sources, 3)
	require.InDelta(t, 0.25, *e.Sources["web"].Reward, 1e-12)
	require.InDelta(t, 5./12, e.Sources["web"].Pass["2"], 1e-12)
	require.Equal(t, 1, e.Sources["book"].Failed)
	require.Equal(t, 1, e.Sources["(none)"].Tasks)
	require.Equal(t, []string{
		"source  tasks  reward  right  pass@1  pass@2  failed",
		"(none)      1   0.250  25.0%   0.250   0.500       0",
		"book        2   0.667  66.7%   0.667   0.833       1",
		"web         2   0.250  25.0%   0.250   0.417       0",
		"all         5   0.417  41.7%   0.417   0.600       1",
	}, e.Table())
	stored := 0
	require.NoError(t, db.Reader.Select(t.Context(), store.Selection{}, func(s store.Record) error {
		require.Equal(t, "eval-step-3", s.Phase)
		stored++
		return nil
	}))
	require.Equal(t, 20, stored)
}

// poster is an agent that calls once, posts a reward for the call, and answers.
type poster struct {
	gate   http.Handler
	reward float64
}

func (p poster) Enter(context.Context) (func(), error) { return func() {}, nil }

func (p poster) Run(ctx context.Context, a external.Assignment) (external.Ended, error) {
	post := func(path, body string) ([]byte, error) {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+a.Key)
		w := httptest.NewRecorder()
		if p.gate.ServeHTTP(w, r); w.Code != http.StatusOK {
			return nil, fmt.Errorf("%s: %s", path, w.Body)
		}
		return w.Body.Bytes(), nil
	}
	var reply struct{ ID string }
	body, err := post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`)
	if err == nil {
		err = json.Unmarshal(body, &reply)
	}
	if err == nil {
		_, err = post("/agentfly/reward", fmt.Sprintf(`{"reward":%g,"call":%q}`, p.reward, reply.ID))
	}
	answer := "1"
	return external.Ended{Answer: &answer}, err
}

func (p poster) Close() error { return nil }

// What an agent posts for a call is in the reward of an evaluation's trajectory, by which evaluations are compared.
func TestAnEvaluationPaysWhatWasPostedForCalls(t *testing.T) {
	r := rollouttest.New(t, func(engines.Request) (engines.Completion, error) { return rollouttest.Say("said") })
	gate, err := gateway.New(gateway.Options{
		Engine: r.Engine, Renderer: rollouttest.Renderer(t, rollouttest.ChatML), Decode: rollouttest.Decode, Model: "policy", MaxTotal: r.MaxTotal, Sampling: r.Sampling,
		Format: func(specs []tools.Spec) (agents.Format, error) {
			return agents.NewFormat("hermes", specs, agents.FormatOptions{})
		},
	})
	require.NoError(t, err)
	defer gate.Close()
	r.External = &rollout.External{Gateway: gate, Runner: poster{gate, 0.5}, Secret: []byte("secret")}
	r.Frozen = func(trajectory.Role) bool { return false }
	db, err := store.Open(filepath.Join(t.TempDir(), store.File))
	require.NoError(t, err)
	defer db.Close()
	e, err := objective.Evaluate(t.Context(), *r, db, "before", 0, []trajectory.Task{held("a", "x", "")}, evalJob(job.Eval{Samples: 2, Temperature: 1}))
	require.NoError(t, err)
	require.Equal(t, 1.5, e.Reward, "1 for the answer")
	var scores []float64
	require.NoError(t, db.Reader.Scores(t.Context(), func(s store.Score) error {
		scores = append(scores, s.Reward)
		return nil
	}))
	require.Equal(t, []float64{1.5, 1.5}, scores)
	require.NoError(t, db.Reader.Select(t.Context(), store.Selection{}, func(s store.Record) error {
		require.Equal(t, 1.5, s.Trajectory.Return())
		require.Equal(t, []trajectory.Posted{{Turn: 0, Reward: 0.5}}, s.Trajectory.Posted)
		return nil
	}))
}

func TestTheTableOfAnEvaluation(t *testing.T) {
	r := rollouttest.New(t, answersByIndex)
	tasks := []trajectory.Task{held("a", "1 right?", ""), held("b", "0 right?", "")}
	e, err := objective.Evaluate(t.Context(), *r, nil, "x", 0, tasks, evalJob(job.Eval{Samples: 1, By: "source"}))
	require.NoError(t, err)
	require.Empty(t, e.Table(), "one line says everything")
	require.Empty(t, e.Pass)
	require.Zero(t, e.Samples)
	require.Equal(t, 0.5, e.Reward)

	tasks[0].Fields["level"], tasks[1].Fields["level"] = json.Number("3"), json.Number("1")
	e, err = objective.Evaluate(t.Context(), *r, nil, "x", 0, tasks, evalJob(job.Eval{Samples: 1, By: "level"}))
	require.NoError(t, err)
	require.Equal(t, []string{
		"level  tasks  reward   right  failed",
		"1          1   0.000    0.0%       0",
		"3          1   1.000  100.0%       0",
		"all        2   0.500   50.0%       0",
	}, e.Table())

	one := evalJob(job.Eval{Samples: 4, Temperature: 1, By: "source"})
	success := 0.5
	one.Data.Success = &success
	e, err = objective.Evaluate(t.Context(), *r, nil, "x", 0, tasks[:1], one)
	require.NoError(t, err)
	require.Equal(t, []string{"tasks of  tasks  reward  right  pass@4  failed", "all           1   0.250  25.0%   1.000       0"}, e.Table(), "k is samples where it is not given")
}

// Two evaluations and training ask with seeds of their own, and an evaluation that is repeated with the same.
func TestSeedsOfEvaluations(t *testing.T) {
	seeds := func(phase string) map[uint64]bool {
		var mu sync.Mutex
		out := map[uint64]bool{}
		r := rollouttest.New(t, func(r engines.Request) (engines.Completion, error) {
			mu.Lock()
			defer mu.Unlock()
			out[r.Seed] = true
			return rollouttest.Say("<answer>1</answer>")
		})
		tasks := []trajectory.Task{rollouttest.Task("a", "a?", "1"), rollouttest.Task("b", "b?", "1")}
		if phase == "train" {
			_, err := r.Groups(t.Context(), phase, 0, tasks, 8, nil)
			require.NoError(t, err)
			return out
		}
		_, err := objective.Evaluate(t.Context(), *r, nil, phase, 0, tasks, evalJob(job.Eval{Samples: 8, Temperature: 1}))
		require.NoError(t, err)
		return out
	}
	before, again, after, train := seeds("before"), seeds("before"), seeds("after"), seeds("train")
	require.Len(t, before, 16)
	require.Equal(t, before, again)
	for _, other := range []map[uint64]bool{after, train} {
		require.Len(t, other, 16)
		for s := range other {
			require.NotContains(t, before, s)
		}
	}
}

func TestAnEvaluationThatOnlyFailsIsAnError(t *testing.T) {
	r := rollouttest.New(t, func(engines.Request) (engines.Completion, error) { return engines.Completion{}, errors.New("gone") })
	_, err := objective.Evaluate(t.Context(), *r, nil, "x", 0, []trajectory.Task{rollouttest.Task("a", "a?", "1")}, evalJob(job.Eval{Samples: 3, Temperature: 1}))
	require.ErrorContains(t, err, "orchestrator: evaluation x: every trajectory failed, the first with: ")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = objective.Evaluate(ctx, *r, nil, "x", 0, []trajectory.Task{rollouttest.Task("a", "a?", "1")}, evalJob(job.Eval{Samples: 3, Temperature: 1}))
	require.ErrorIs(t, err, context.Canceled)
}

// An evaluation of which too much failed would look like a bad policy: it stops the run as a step does.
func TestAnEvaluationOfWhichTooMuchFailsIsAnError(t *testing.T) {
	r := rollouttest.New(t, func(q engines.Request) (engines.Completion, error) {
		if rollouttest.Index(q) > 0 {
			return engines.Completion{}, errors.New("gone")
		}
		return rollouttest.Say("<answer>1</answer>")
	})
	j := evalJob(job.Eval{Samples: 3, Temperature: 1})
	j.Rollout.MaxFailed = 0.6
	_, err := objective.Evaluate(t.Context(), *r, nil, "x", 0, []trajectory.Task{rollouttest.Task("a", "a?", "1")}, j)
	require.EqualError(t, err, "orchestrator: evaluation x: 2 of 3 trajectories failed, more than rollout.max_failed (0.6); the first: engine: orchestrator: eval-x-0-0-1 turn 0: scripted: request eval-x-0-0-1-0: gone")
	j.Rollout.MaxFailed = 0.7
	e, err := objective.Evaluate(t.Context(), *r, nil, "x", 0, []trajectory.Task{rollouttest.Task("a", "a?", "1")}, j)
	require.NoError(t, err)
	require.Equal(t, 2, e.Failed)
	require.Equal(t, map[string]int{"engine": 2}, e.Errors)
}

// evaluated is a run with the rewards of these evaluations, every ten steps, of a job that stops after so many.
func evaluatedRun(stopAfter int, rewards ...float64) *run {
	j := evalJob(job.Eval{Every: 10, StopAfter: stopAfter})
	j.Trainer.Steps = 1000
	t := &run{folder: &runfolder.Folder{}, session: &session.Session{Job: j}}
	for i, r := range rewards {
		t.state.Evaluations = append(t.state.Evaluations, report.Evaluation{Name: "step-" + strconv.Itoa(10*i), Step: 10 * i, Reward: r})
		t.state.Step = 10 * i
	}
	return t
}

// A run ends at its last step, or before it because of its evaluations up to now.
func TestStopAfter(t *testing.T) {
	r := evaluatedRun(2, 0.5, 0.7, 0.6, 0.1)
	require.True(t, r.training().stalled())
	require.Equal(t, "eval.stop_after: 2 evaluations in a row were no better than that after step 10", r.training().summary().Stopped)
	r.state.Step = 1000
	require.Empty(t, r.training().summary().Stopped)
	r.state.Step = 20
	require.False(t, r.training().stalled(), "a recovered run knows later evaluations, which say nothing yet")
	require.False(t, evaluatedRun(0, 0.5, 0.4, 0.3, 0.2).training().stalled())
}
