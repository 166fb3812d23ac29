package external_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/external"
	"github.com/agentfly/agentfly/trajectory"
)

// come asks a route for a task, as an agent does. chunked: without the body's length.
func come(ctx context.Context, url, body string, chunked bool) (*http.Response, error) {
	var sent io.Reader = strings.NewReader(body)
	if chunked {
		sent = io.MultiReader(sent) // whose length net/http does not know
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, sent)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer run")
	return http.DefaultClient.Do(r)
}

// An agent that gives up before there is a task for it gets none: the next task goes to the agent that asks then.
func TestAnAgentThatLeftGetsNoTask(t *testing.T) {
	begins := func(context.Context, trajectory.Task) (string, error) { return "own-0", nil }
	for name, c := range map[string]struct {
		route, body string
		chunked     bool
		begin       func(context.Context, trajectory.Task) (string, error)
	}{
		"a task":                  {"/agentfly/task", `{}`, false, nil},
		"a task, chunked":         {"/agentfly/task", `{}`, true, nil},
		"a task, no body":         {"/agentfly/task", ``, false, nil},
		"a session":               {"/agentfly/sessions", `{}`, false, nil},
		"a session, chunked":      {"/agentfly/sessions", `{}`, true, nil},
		"a session, and a line":   {"/agentfly/sessions", "{}" + strings.Repeat("\n", 10_000), false, nil},
		"a task of its own":       {"/agentfly/sessions", `{"task":{"fields":{"a":1}}}`, true, begins},
		"a task of its own, long": {"/agentfly/sessions", `{"task":{"fields":{"a":1}}}` + strings.Repeat(" ", 10_000), false, begins},
	} {
		t.Run(name, func(t *testing.T) {
			o := &external.Online{Key: "run", Patience: time.Minute, Begin: c.begin}
			handle, came, left := o.Routes()[c.route], make(chan struct{}, 2), make(chan struct{}, 2)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				came <- struct{}{}
				handle(w, r)
				left <- struct{}{}
			}))
			server.Config.BaseContext = func(net.Listener) context.Context { return t.Context() } // a handler that does not notice ends with the test
			server.Start()
			t.Cleanup(server.Close)
			short, cancel := context.WithCancel(t.Context())
			go func() {
				<-came
				time.Sleep(100 * time.Millisecond) // it waits for a task
				cancel()
			}()
			_, err := come(short, server.URL, c.body, c.chunked)
			require.ErrorIs(t, err, context.Canceled)
			select {
			case <-left:
			case <-time.After(20 * time.Second):
				t.Fatal("the handler did not notice that its client left")
			}

			ctx, end := context.WithCancel(t.Context())
			ran := make(chan error)
			go func() {
				_, err := o.Run(ctx, assignment("own-0"))
				ran <- err
			}()
			reply, err := come(t.Context(), server.URL, c.body, c.chunked)
			require.NoError(t, err)
			defer reply.Body.Close()
			require.Equal(t, http.StatusOK, reply.StatusCode)
			var got external.Assignment
			require.NoError(t, json.NewDecoder(reply.Body).Decode(&got))
			require.Equal(t, "own-0", got.ID)
			end()
			require.ErrorIs(t, <-ran, context.Canceled)
		})
	}
}

// A result that is none is refused in words of JSON, and leaves the trajectory to the right one.
func TestPostedResultsThatAreNone(t *testing.T) {
	o := &external.Online{Key: "run", Patience: time.Minute}
	routes := o.Routes()
	reward := make(chan float64, 1)
	go func() {
		a := assignment("train-0-0-0")
		a.Resumed = true // its agent has it
		end, _ := o.Run(t.Context(), a)
		reward <- *end.Reward
	}()
	post := func(body string) (int, string) {
		r := httptest.NewRequest(http.MethodPost, "/agentfly/result", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+assignment("train-0-0-0").Key)
		w := httptest.NewRecorder()
		routes["/agentfly/result"](w, r)
		return w.Code, w.Body.String()
	}
	require.Eventually(t, func() bool { status, _ := post(`no`); return status == http.StatusBadRequest }, 10*time.Second, time.Millisecond)
	for body, says := range map[string]string{
		`{"rewards":1}`:          `the result has the unknown key \"rewards\" (did you mean \"reward\"?); allowed: answer, reward, error`,
		`{"score":0.5}`:          `the result has the unknown key \"score\"; allowed: answer, reward, error`,
		`{"reward":true}`:        `a JSON bool does not fit reward`,
		`{"error":1}`:            `a JSON number does not fit error`,
		`{"reward":1`:            `the result is not JSON such as {\"answer\": \"391\", \"reward\": 1}: `,
		strings.Repeat("1", 1e5): `send at most 65536 bytes`,
	} {
		status, text := post(body)
		require.Equal(t, http.StatusBadRequest, status, text)
		require.Contains(t, text, says)
		require.NotContains(t, text, "Go")
	}
	status, text := post(`{"reward":0.5}`)
	require.Equal(t, http.StatusOK, status, text)
	require.Equal(t, 0.5, <-reward)
}

// postTo sends a body to a route with a key.
func postTo(o *external.Online, route, key, body string) (status int, text string) {
	r := httptest.NewRequest(http.MethodPost, route, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+key)
	w := httptest.NewRecorder()
	o.Routes()[route](w, r)
	return w.Code, w.Body.String()
}

// Who posts a result once more while the first is still being stored, because its client waits for a slow disk no longer, is told that it is stored; another
// result is refused.
func TestAResultThatIsPostedAgain(t *testing.T) {
	o := &external.Online{Key: "run", Patience: time.Second}
	a := assignment("train-0-0-0")
	a.Resumed = true // its agent has it
	storing, stored := make(chan struct{}, 3), make(chan struct{})
	a.Keep = func(json.RawMessage) error {
		storing <- struct{}{}
		<-stored
		return nil
	}
	ran := make(chan float64, 1)
	go func() {
		end, _ := o.Run(t.Context(), a)
		ran <- *end.Reward
	}()
	require.Eventually(t, func() bool {
		status, _ := postTo(o, "/agentfly/result", a.Key, `no`)
		return status == http.StatusBadRequest // it is known
	}, 10*time.Second, time.Millisecond)
	statuses := make(chan int, 3)
	post := func(reward string) {
		status, _ := postTo(o, "/agentfly/result", a.Key, `{"reward":`+reward+`}`)
		statuses <- status
	}
	for range 3 {
		go post("0.5")
	}
	for range 3 {
		<-storing
	}
	close(stored)
	require.Equal(t, []int{http.StatusOK, http.StatusOK, http.StatusOK}, []int{<-statuses, <-statuses, <-statuses})
	require.InDelta(t, 0.5, <-ran, 0)
	post("0.50")
	require.Equal(t, http.StatusOK, <-statuses)
	post("1")
	require.Equal(t, http.StatusConflict, <-statuses)
}

// A session is not begun for a body with a misspelt key: what stands there would be missing, for the rewards too.
func TestSessionsWithMisspeltKeys(t *testing.T) {
	begun := 0
	own := &external.Online{Key: "run", Patience: time.Second, Begin: func(context.Context, trajectory.Task) (string, error) {
		begun++
		return "", errors.New("begun")
	}}
	run := &external.Online{Key: "run", Patience: time.Millisecond}
	for body, says := range map[string]string{
		`{"tsak":{"fields":{"answer":"391"}}}`:            `the session has the unknown key \"tsak\" (did you mean \"task\"?); allowed: task`,
		`{"prompt":[{"role":"user","content":"x"}]}`:      `the session has the unknown key \"prompt\"; allowed: task`,
		`{"task":{"feilds":{"answer":"391"}}}`:            `the task of the session has the unknown key \"feilds\" (did you mean \"fields\"?); allowed: id, prompt, fields`,
		`{"task":{"fields":{"answer":"391"}}} {"task":7}`: `the session is not JSON such as {\"task\": {\"prompt\": […], \"fields\": {…}}}: `,
		`{"task":7}`:              `the task of the session is not such as {\"prompt\": […], \"fields\": {…}}: a JSON number does not fit the whole`,
		`{"task":{"prompt":"x"}}`: `the task of the session is not such as {\"prompt\": […], \"fields\": {…}}: a JSON string does not fit prompt`,
		`{"task":`:                `the session is not JSON such as`,
	} {
		for _, o := range []*external.Online{own, run} {
			status, text := postTo(o, "/agentfly/sessions", "run", body)
			require.Equal(t, http.StatusBadRequest, status, text)
			require.Contains(t, text, says)
			require.NotContains(t, text, "Go")
		}
	}
	require.Zero(t, begun)
	for _, body := range []string{``, ` `, `{}`, `{"task":null}`, `{"task":{}}`, `{"task":{"id":"7","prompt":[{"role":"user","content":"x"}],"fields":{"a":1}}}`} {
		status, text := postTo(own, "/agentfly/sessions", "run", body)
		require.Equal(t, http.StatusServiceUnavailable, status, text)
		require.Contains(t, text, "begun")
	}
	require.Equal(t, 6, begun)
}

// A trajectory whose agent left before it was told of it is told to nobody behind its end, and is not kept.
func TestASessionThatEndedUnheard(t *testing.T) {
	o := &external.Online{Key: "run", Patience: time.Second, Begin: func(context.Context, trajectory.Task) (string, error) { return "own-0", nil }}
	over, end := context.WithCancel(t.Context())
	end()
	_, err := o.Run(over, assignment("own-0")) // whose agent is gone
	require.ErrorIs(t, err, context.Canceled)
	ctx, leave := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer leave()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/agentfly/sessions", strings.NewReader(`{}`))
	r.Header.Set("Authorization", "Bearer run")
	w := httptest.NewRecorder()
	o.Routes()["/agentfly/sessions"](w, r)
	require.Empty(t, w.Body.String())
}

// The key with which a result is posted is read as the gateway reads it: from any of its headers, beside a key of the agent's own, or from the path.
func TestTheKeyOfAResult(t *testing.T) {
	key := assignment("train-0-0-0").Key
	for name, c := range map[string]struct {
		path   string
		header http.Header
	}{
		"bearer":                  {"/agentfly/result", http.Header{"Authorization": {"Bearer " + key}}},
		"x-api-key":               {"/agentfly/result", http.Header{"X-Api-Key": {key}}},
		"x-goog-api-key":          {"/agentfly/result", http.Header{"X-Goog-Api-Key": {key}}},
		"beside one of the agent": {"/agentfly/result", http.Header{"Authorization": {"Bearer own"}, "X-Api-Key": {key}}},
		"in the path":             {"/s/" + key + "/agentfly/result", http.Header{"Authorization": {"Bearer own"}}},
	} {
		t.Run(name, func(t *testing.T) {
			o := &external.Online{Key: "run", Patience: time.Minute}
			result := o.Routes()["/agentfly/result"]
			var reward *float64
			var run sync.WaitGroup
			run.Go(func() {
				a := assignment("train-0-0-0")
				a.Resumed = true // its agent has it
				end, _ := o.Run(t.Context(), a)
				reward = end.Reward
			})
			require.Eventually(t, func() bool {
				r := httptest.NewRequest(http.MethodPost, c.path, strings.NewReader(`{"reward":0.5}`))
				r.Header = c.header
				w := httptest.NewRecorder()
				result(w, r)
				return w.Code == http.StatusOK
			}, 5*time.Second, time.Millisecond)
			run.Wait()
			require.InDelta(t, 0.5, *reward, 0)
		})
	}
}
