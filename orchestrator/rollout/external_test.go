package rollout_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/internal/sessionkey"
	"github.com/agentfly/agentfly/orchestrator/external"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// guests gives a sampler agents that are programs of their own.
func guests(t testing.TB, r *rollout.Sampler, runner external.Runner, set ...func(*gateway.Options)) *gateway.Gateway {
	t.Helper()
	renderer := rollouttest.Renderer(t, rollouttest.ChatML)
	o := gateway.Options{
		Engine: r.Engine, Renderer: renderer, Decode: rollouttest.Decode, Model: "policy", MaxTotal: r.MaxTotal, Sampling: r.Sampling,
		Format: func(specs []tools.Spec) (agents.Format, error) {
			return agents.NewFormat("hermes", specs, agents.FormatOptions{})
		},
	}
	for _, f := range set {
		f(&o)
	}
	g, err := gateway.New(o)
	require.NoError(t, err)
	t.Cleanup(g.Close)
	r.External = &rollout.External{Gateway: g, Runner: runner, Secret: []byte("secret")}
	r.Frozen = func(trajectory.Role) bool { return false }
	return g
}

// lateRunner has a place for an agent only after the time of a trajectory.
type lateRunner struct {
	wait  time.Duration
	given int
	left  time.Duration // that the agent had
}

func (l *lateRunner) Enter(context.Context) (func(), error) {
	time.Sleep(l.wait)
	return func() { l.given++ }, nil
}

func (l *lateRunner) Run(ctx context.Context, _ external.Assignment) (external.Ended, error) {
	end, _ := ctx.Deadline()
	l.left = time.Until(end)
	return external.Ended{}, ctx.Err()
}

func (l *lateRunner) Close() error { return nil }

// agentOf is an agent in Go: it gets the gateway's address and its key.
type agentOf func(url, key string) error

func (a agentOf) Enter(ctx context.Context) (func(), error) { return func() {}, ctx.Err() }

func (a agentOf) Run(_ context.Context, as external.Assignment) (end external.Ended, err error) {
	return end, a(as.URL, as.Key)
}

func (a agentOf) Close() error { return nil }

// The failure of an agent that ends behind a refused request says what the gateway refused: the agent's own words often hold the status alone.
func TestAFailureNamesTheRefusedRequest(t *testing.T) {
	gaveUp := errors.New("the agent ended with exit status 1; it printed last: HTTP Error 404: Not Found")
	const refused = "orchestrator: train-0-0-0: the gateway refused POST /v1/v1/chat/completions (404): there is no route POST /v1/v1/chat/completions; leave one /v1 out, with which OPENAI_BASE_URL ends; "
	for name, c := range map[string]struct {
		err  error
		says string
	}{
		"that fails":      {gaveUp, refused + gaveUp.Error()},
		"that just ended": {nil, refused + "the agent ended and got no reply"},
	} {
		t.Run(name, func(t *testing.T) {
			r := rollouttest.New(t, func(engines.Request) (engines.Completion, error) { return rollouttest.Say("x") })
			g := guests(t, r, agentOf(func(url, key string) error {
				status, body := post(t, url+"/v1/v1/chat/completions", key, `{"messages":[{"role":"user","content":"x"}]}`)
				require.Equal(t, http.StatusNotFound, status, body)
				return c.err
			}))
			server := httptest.NewServer(g)
			t.Cleanup(server.Close)
			r.External.URL = server.URL
			got := r.Sample(t.Context(), rollout.Place{Phase: "train", Task: rollouttest.Task("q", "1+1?", "2")})
			require.Equal(t, trajectory.OriginAgent, got.ErrOrigin)
			require.Equal(t, c.says, got.Err)
		})
	}
}

// Waiting for a place is no time of the trajectory: its deadline begins with its agent.
func TestWaitingForAPlaceIsNoTimeOfAnAgent(t *testing.T) {
	r := rollouttest.New(t, func(engines.Request) (engines.Completion, error) { return rollouttest.Say("x") })
	r.Deadline = time.Minute
	late := &lateRunner{wait: 2 * time.Second}
	guests(t, r, late)
	got := r.Sample(t.Context(), rollout.Place{Phase: "train", Task: rollouttest.Task("q", "1+1?", "2")})
	require.Equal(t, trajectory.OriginAgent, got.ErrOrigin, got.Err)
	require.Greater(t, late.left, time.Minute-time.Second)
	require.Positive(t, late.given, "the place is given back")
}

// A command's agents wait for a place before they run, and get one when another leaves.
func TestPlacesOfACommand(t *testing.T) {
	c := &external.Command{Args: []string{"true"}, AtOnce: 1}
	leave, err := c.Enter(t.Context())
	require.NoError(t, err)
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = c.Enter(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	leave()
	leave() // again changes nothing
	for range 2 {
		leave, err = c.Enter(t.Context())
		require.NoError(t, err)
		leave()
	}
}

// online is a run whose agents come for tasks, with its store in a folder: again where an earlier one ended.
func online(t testing.TB, dir string, set ...func(*gateway.Options)) (r *rollout.Sampler, db *store.Store, url string) {
	t.Helper()
	r = rollouttest.New(t, func(engines.Request) (engines.Completion, error) { return rollouttest.Say("said") })
	online := &external.Online{Key: "run", Patience: time.Second}
	g := guests(t, r, online, set...)
	online.Expects = g.Expects
	r.External.Adopt = true
	mux := http.NewServeMux()
	for path, handle := range online.Routes() {
		mux.Handle("POST "+path, handle)
	}
	mux.Handle("/", g)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	db, err := store.Open(filepath.Join(dir, store.File))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	r.Record, r.External.Forget = db.AddTurn, db.Restart
	return r, db, server.URL
}

// take comes for a task.
func take(t testing.TB, url string) (task external.Assignment) {
	t.Helper()
	status, body := post(t, url+"/agentfly/task", "run", `{}`)
	require.Equal(t, http.StatusOK, status, body)
	require.NoError(t, json.Unmarshal([]byte(body), &task))
	return task
}

// A task whose agent had called nothing when the run was killed is handed out again. Of the two that have it then, who calls first goes on, and the other
// is told that it is over: one trajectory never has two agents.
func TestATaskHandedOutAgainHasOneAgent(t *testing.T) {
	const body = `{"messages":[{"role":"user","content":"x"}]}`
	const result = `{"answer":"2","reward":0.5}`
	for name, newFirst := range map[string]bool{"the one of before calls first": false, "the new one calls first": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			place := rollout.Place{Phase: "train", Task: rollouttest.Task("q", "1+1?", "2")}
			r, db, url := online(t, dir)
			require.NoError(t, db.Admit(t.Context(), store.Admission{Phase: "train", Size: 1, Task: place.Task}))
			ctx, kill := context.WithCancel(t.Context())
			ended := make(chan *trajectory.Trajectory, 1)
			go func() { ended <- r.Sample(ctx, place) }()
			before := take(t, url)
			kill() // before it called
			<-ended
			require.NoError(t, db.Close())

			r, db, url = online(t, dir)
			ctx, kill = context.WithCancel(t.Context())
			go func() { ended <- r.Sample(ctx, place) }()
			now := take(t, url)
			require.Equal(t, before.ID, now.ID)
			require.NotEqual(t, before.Key, now.Key)
			first, second := before.Key, now.Key
			if newFirst {
				first, second = second, first
			}
			status, text := post(t, url+"/v1/chat/completions", first, body)
			require.Equal(t, http.StatusOK, status, text)
			for _, path := range []string{"/v1/chat/completions", "/s/" + second + "/v1/chat/completions", "/agentfly/result"} {
				status, text = post(t, url+path, second, body)
				require.Equal(t, http.StatusUnauthorized, status, text)
				require.Contains(t, text, "the session of this key is over: another agent has "+now.ID)
			}
			kill() // once more: whose the trajectory is stands in its record
			<-ended
			require.NoError(t, db.Close())

			r, db, url = online(t, dir)
			log, err := db.Recover(t.Context(), 0)
			require.NoError(t, err)
			r.Recovered = func(string) (*trajectory.Trajectory, bool) { return log.Outstanding[0].Partial[0], false }
			go func() { ended <- r.Sample(t.Context(), place) }()
			require.Eventually(t, func() bool {
				status, text = post(t, url+"/v1/chat/completions", second, body)
				return !bytes.Contains([]byte(text), []byte("not that of a session")) // it is open
			}, 10*time.Second, time.Millisecond)
			require.Equal(t, http.StatusUnauthorized, status, text)
			require.Contains(t, text, "the session of this key is over")
			status, text = post(t, url+"/v1/chat/completions", first, `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"said"},{"role":"user","content":"y"}]}`)
			require.Equal(t, http.StatusOK, status, text)
			status, text = post(t, url+"/agentfly/result", first, result)
			require.Equal(t, http.StatusOK, status, text)
			got := <-ended
			require.Empty(t, got.Err)
			require.Len(t, got.Turns, 2)
			require.Len(t, got.Samples, 1)
		})
	}
}

// While an interrupted run ends, which may take a while, its agents are told to try again: their trajectories go on when it is resumed. One whose
// trajectory is over is told so.
func TestTheAgentsOfARunThatIsInterrupted(t *testing.T) {
	dir := t.TempDir()
	places := []rollout.Place{
		{Phase: "train", Task: rollouttest.Task("q", "1+1?", "2")},
		{Phase: "train", Index: 1, Task: rollouttest.Task("q", "1+1?", "2")},
	}
	ctx, interrupt := context.WithCancel(t.Context())
	r, db, url := online(t, dir, func(o *gateway.Options) { o.Ending = func() bool { return ctx.Err() != nil } })
	require.NoError(t, db.Admit(t.Context(), store.Admission{Phase: "train", Size: 2, Task: places[0].Task}))
	const body, result = `{"messages":[{"role":"user","content":"x"}]}`, `{"answer":"2"}`
	ended := make(chan *trajectory.Trajectory, 1)
	go func() { ended <- r.Sample(ctx, places[0]) }()
	over := take(t, url)
	status, text := post(t, url+"/v1/chat/completions", over.Key, body)
	require.Equal(t, http.StatusOK, status, text)
	status, text = post(t, url+"/agentfly/result", over.Key, result)
	require.Equal(t, http.StatusOK, status, text)
	<-ended
	go func() { ended <- r.Sample(ctx, places[1]) }()
	task := take(t, url)
	status, text = post(t, url+"/v1/chat/completions", task.Key, body)
	require.Equal(t, http.StatusOK, status, text)
	interrupt()
	<-ended
	for path, body := range map[string]string{"/v1/chat/completions": body, "/agentfly/reward": `{"reward":1}`, "/agentfly/result": result} {
		status, text = post(t, url+path, task.Key, body)
		require.Equal(t, http.StatusServiceUnavailable, status, "%s: %s", path, text)
		require.Contains(t, text, "try again later")
	}
	status, text = post(t, url+"/v1/chat/completions", over.Key, body)
	require.Equal(t, http.StatusUnauthorized, status, text)
	require.NoError(t, db.Close())

	r, db, url = online(t, dir)
	log, err := db.Recover(t.Context(), 0)
	require.NoError(t, err)
	r.Recovered = func(string) (*trajectory.Trajectory, bool) { return log.Outstanding[0].Partial[1], false }
	r.AwaitAgents(places[1].ID())
	go func() { ended <- r.Sample(t.Context(), places[1]) }()
	status, text = post(t, url+"/agentfly/result", task.Key, result)
	require.Equal(t, http.StatusOK, status, text)
	got := <-ended
	require.Empty(t, got.Err)
	require.Len(t, got.Turns, 1)
}

// The result of an agent whose trajectory goes on too late is no result of one that is over: it may be posted again.
func TestAResultBeforeItsTrajectoryGoesOn(t *testing.T) {
	r, _, url := online(t, t.TempDir())
	r.AwaitAgents("train-0-0-0")
	key := sessionkey.ForHolder(sessionkey.Of([]byte("secret"), r.RunName+"/train-0-0-0"), "holder")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	open, later := r.External.Gateway.Expects(ctx, key)
	require.False(t, open)
	require.True(t, later)
	open, later = r.External.Gateway.Expects(t.Context(), "sk-agentfly-another")
	require.False(t, open || later)
	status, text := post(t, url+"/agentfly/result", "sk-agentfly-another", `{}`)
	require.Equal(t, http.StatusUnauthorized, status, text)
}

// A trajectory that failed before its session opened does not go on: its agent is told so.
func TestATrajectoryThatFailsBeforeItsAgentGoesOn(t *testing.T) {
	r, _, url := online(t, t.TempDir())
	r.AwaitAgents("train-0-0-0")
	r.External.Runner = noPlace{}
	require.Equal(t, trajectory.OriginAgent, r.Sample(t.Context(), rollout.Place{Phase: "train", Task: rollouttest.Task("q", "1+1?", "2")}).ErrOrigin)
	key := sessionkey.ForHolder(sessionkey.Of([]byte("secret"), r.RunName+"/train-0-0-0"), "holder")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, later := r.External.Gateway.Expects(ctx, key)
	require.False(t, later)
	status, text := post(t, url+"/v1/chat/completions", key, `{"messages":[{"role":"user","content":"x"}]}`)
	require.Equal(t, http.StatusUnauthorized, status, text)
}

// A trajectory of a group that is given up before its session opened does not go on either. Where the run ends it does.
func TestATrajectoryThatIsGivenUpBeforeItsAgentGoesOn(t *testing.T) {
	for cause, waits := range map[error]bool{rollout.ErrGivenUp: false, context.Canceled: true} {
		r, _, url := online(t, t.TempDir())
		r.AwaitAgents("train-0-0-0")
		given, giveUp := context.WithCancelCause(t.Context())
		giveUp(cause)
		require.Equal(t, trajectory.StopCancelled, r.Sample(given, rollout.Place{Phase: "train", Task: rollouttest.Task("q", "1+1?", "2")}).StopReason)
		key := sessionkey.ForHolder(sessionkey.Of([]byte("secret"), r.RunName+"/train-0-0-0"), "holder")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, later := r.External.Gateway.Expects(ctx, key)
		require.Equal(t, waits, later)
		if !waits {
			status, text := post(t, url+"/v1/chat/completions", key, `{"messages":[{"role":"user","content":"x"}]}`)
			require.Equal(t, http.StatusUnauthorized, status, text)
		}
	}
}

// noPlace has no place for an agent.
type noPlace struct{ external.Runner }

func (noPlace) Enter(context.Context) (func(), error) { return nil, errors.New("full") }

// A task that its agent of before goes on with is offered to nobody else.
func TestATaskThatGoesOnIsNotOffered(t *testing.T) {
	dir := t.TempDir()
	place := rollout.Place{Phase: "train", Task: rollouttest.Task("q", "1+1?", "2")}
	r, db, url := online(t, dir)
	require.NoError(t, db.Admit(t.Context(), store.Admission{Phase: "train", Size: 1, Task: place.Task}))
	ctx, kill := context.WithCancel(t.Context())
	ended := make(chan *trajectory.Trajectory, 1)
	go func() { ended <- r.Sample(ctx, place) }()
	task := take(t, url)
	kill()
	<-ended
	require.NoError(t, db.Close())

	r, _, url = online(t, dir)
	go func() { ended <- r.Sample(t.Context(), place) }()
	require.Eventually(t, func() bool {
		status, _ := post(t, url+"/v1/chat/completions", task.Key, `{"messages":[{"role":"user","content":"x"}]}`)
		return status == http.StatusOK
	}, 10*time.Second, time.Millisecond)
	status, text := post(t, url+"/agentfly/task", "run", `{}`)
	require.Equal(t, http.StatusNoContent, status, text)
	status, text = post(t, url+"/agentfly/result", task.Key, `{"answer":"2"}`)
	require.Equal(t, http.StatusOK, status, text)
	require.Empty(t, (<-ended).Err)
}

// A result that an agent posted is stored before the agent is told so: after a kill the trajectory ends with it, and the agent may post it again.
func TestAResultOutlivesAKill(t *testing.T) {
	dir := t.TempDir()
	place := rollout.Place{Phase: "train", Task: rollouttest.Task("q", "1+1?", "2")}
	live := func() (*rollout.Sampler, *store.Store, string) { return online(t, dir) }
	r, db, url := live()
	require.NoError(t, db.Admit(t.Context(), store.Admission{Phase: "train", Size: 1, Task: place.Task}))
	ended := make(chan *trajectory.Trajectory, 1)
	go func() { ended <- r.Sample(t.Context(), place) }()
	task := take(t, url)
	status, body := post(t, url+"/v1/chat/completions", task.Key, `{"messages":[{"role":"user","content":"x"}]}`)
	require.Equal(t, http.StatusOK, status, body)
	result := `{"answer":"2","reward":0.5}`
	status, body = post(t, url+"/agentfly/result", task.Key, result)
	require.Equal(t, http.StatusOK, status, body)
	want := <-ended
	require.Empty(t, want.Err)
	status, _ = post(t, url+"/agentfly/result", task.Key, result)
	require.Equal(t, http.StatusOK, status, "its sender did not read the answer")
	status, _ = post(t, url+"/agentfly/result", task.Key, `{"answer":"3"}`)
	require.Equal(t, http.StatusConflict, status)
	require.NoError(t, db.Close()) // killed: the trajectory's end was not stored

	r, db, url = live()
	log, err := db.Recover(t.Context(), 0)
	require.NoError(t, err)
	partial := log.Outstanding[0].Partial[0]
	require.NotNil(t, partial)
	r.Recovered = func(string) (*trajectory.Trajectory, bool) { return partial, false }
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got := r.Sample(ctx, place)
	require.Empty(t, got.Err)
	require.Equal(t, rollouttest.Timeless(want).Turns, rollouttest.Timeless(got).Turns)
	require.Equal(t, want.Reward, got.Reward)
	answer, _ := got.FinalAnswer()
	require.Equal(t, "2", answer)
	status, _ = post(t, url+"/agentfly/result", task.Key, result)
	require.Equal(t, http.StatusOK, status)
	require.NoError(t, db.AddTrajectory(t.Context(), "train", place.Task, got))
}

// An agent with work of its own takes a session of the run, and brings no task; when its time is over it is told to stop, and may still end.
func TestTheTimeOfAnAgentOfAUser(t *testing.T) {
	r := rollouttest.New(t, func(engines.Request) (engines.Completion, error) { return rollouttest.Say("said") })
	online := &external.Online{Key: "run", Patience: time.Second}
	g := guests(t, r, online)
	r.External.Time, r.MaxTurns = 2*time.Second, 1_000_000
	mux := http.NewServeMux()
	for path, handle := range online.Routes() {
		mux.Handle("POST "+path, handle)
	}
	mux.Handle("/", g)
	server := httptest.NewServer(mux)
	defer server.Close()
	ended := make(chan *trajectory.Trajectory, 1)
	go func() {
		ended <- r.Sample(t.Context(), rollout.Place{Phase: "train", Task: rollouttest.Task("q", "1+1?", "2")})
	}()
	status, body := post(t, server.URL+"/agentfly/sessions", "run", `{"task":{"prompt":[{"role":"user","content":"mine"}]}}`)
	require.Equal(t, http.StatusConflict, status, body)
	require.Contains(t, body, "this run has tasks of its own, by which its rewards judge; leave task out, and post the reward")
	status, body = post(t, server.URL+"/agentfly/sessions", "none", `{}`)
	require.Equal(t, http.StatusUnauthorized, status, body)
	status, body = post(t, server.URL+"/agentfly/sessions", "run", ``)
	require.Equal(t, http.StatusOK, status, body)
	var task external.Assignment
	require.NoError(t, json.Unmarshal([]byte(body), &task))
	ask := func() string {
		status, body := post(t, server.URL+"/v1/chat/completions", task.Key, `{"messages":[{"role":"user","content":"x"}]}`)
		require.Equal(t, http.StatusOK, status, body)
		return body
	}
	require.Eventually(t, func() bool { return bytes.Contains([]byte(ask()), []byte("is spent: its time. Stop here.")) }, 10*time.Second, 20*time.Millisecond)
	status, body = post(t, server.URL+"/agentfly/result", task.Key, `{"reward":1}`)
	require.Equal(t, http.StatusOK, status, body)
	got := <-ended
	require.Empty(t, got.Err)
	require.NotEmpty(t, got.Turns)
}

// While a task waits for its agent, no time of the agent passes.
func TestTheTimeOfAnAgentBeginsWithIt(t *testing.T) {
	r, db, url := online(t, t.TempDir())
	place := rollout.Place{Phase: "train", Task: rollouttest.Task("q", "1+1?", "2")}
	require.NoError(t, db.Admit(t.Context(), store.Admission{Phase: "train", Size: 1, Task: place.Task}))
	r.External.Time = time.Second
	ended := make(chan *trajectory.Trajectory, 1)
	go func() { ended <- r.Sample(t.Context(), place) }()
	time.Sleep(1100 * time.Millisecond)
	task := take(t, url)
	status, body := post(t, url+"/v1/chat/completions", task.Key, `{"messages":[{"role":"user","content":"x"}]}`)
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, "said")
	status, body = post(t, url+"/agentfly/result", task.Key, `{"answer":"2"}`)
	require.Equal(t, http.StatusOK, status, body)
	require.Empty(t, (<-ended).Err)
}

// A sample ends where the run's others do, also where that is known only after its gateway is there: at the context of a teacher.
func TestTheContextOfAnAgentIsTheRuns(t *testing.T) {
	r, db, url := online(t, t.TempDir())
	place := rollout.Place{Phase: "train", Task: rollouttest.Task("q", "1+1?", "2")}
	require.NoError(t, db.Admit(t.Context(), store.Admission{Phase: "train", Size: 1, Task: place.Task}))
	r.MaxTotal = 30
	go func() { r.Sample(t.Context(), place) }()
	task := take(t, url)
	status, body := post(t, url+"/v1/chat/completions", task.Key, `{"messages":[{"role":"user","content":"This conversation is longer than that."}]}`)
	require.Equal(t, http.StatusBadRequest, status, body)
	require.Contains(t, body, "maximum context length is 30 tokens")
}

// post sends a body with a key.
func post(t testing.TB, url, key, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, url, bytes.NewReader([]byte(body)))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+key)
	reply, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	require.NoError(t, err)
	return reply.StatusCode, string(text)
}
