package openenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
)

// call posts one JSON-RPC request.
func call(ctx context.Context, url, method, params string) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":`+params+`}`))
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(q)
}

// A call that came by POST /mcp ends with the server, as one on a websocket does.
func TestDrainEndsACallByPost(t *testing.T) {
	begun := make(chan struct{})
	s := &worlds{spec: withTools(), step: func(ctx context.Context, _ *world, _ environments.Action) (environments.Result, error) {
		close(begun)
		<-ctx.Done()
		return environments.Result{}, ctx.Err()
	}}
	v, url := serve(t, s, ServerOptions{})
	answer, err := call(t.Context(), url, sessionCreate, `{}`)
	require.NoError(t, err)
	var made struct{ Result struct{ Session_id string } } //nolint:revive // the wire's name
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&made))
	require.NoError(t, answer.Body.Close())
	id := made.Result.Session_id
	r := connect(t, url+"/ws?session_id="+id)
	r.ask(`{"type": "reset", "data": {}}`)
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	posted := make(chan error, 1)
	go func() {
		answer, err := call(ctx, url, "tools/call", `{"name":"guess","arguments":{"digit":1},"session_id":"`+id+`"}`)
		if err == nil {
			err = answer.Body.Close()
		}
		posted <- err
	}()
	<-begun
	drained := make(chan error, 1)
	go func() { drained <- v.Drain(0) }()
	select {
	case err := <-drained:
		require.ErrorIs(t, err, ErrDrained)
	case <-time.After(10 * time.Second):
		t.Error("Drain waits for a call that nobody ends")
		hangUp()
		<-drained
	}
	<-posted
}

// late is an environment that takes longer than it may with what it is named after, whatever its context says.
func late(t *testing.T, what string) (s *worlds, free func()) {
	t.Helper()
	stop := make(chan struct{})
	s = &worlds{}
	switch what {
	case "new":
		s.build = func(context.Context) error { <-stop; return nil }
	case "reset":
		s.reset = func(context.Context) { <-stop }
	case "step":
		s.step = func(context.Context, *world, environments.Action) (environments.Result, error) {
			<-stop
			return environments.Result{}, nil
		}
	}
	return s, func() { close(stop) }
}

// An environment that does not return in time fails the message that waits for it, and is replaced; its session goes on.
func TestLateEnvironments(t *testing.T) {
	for what, frames := range map[string][]string{
		"new": nil, "reset": {`{"type": "reset", "data": {}}`}, "step": {`{"type": "reset", "data": {}}`, `{"type": "step", "data": {"action": "1"}}`},
	} {
		t.Run(what, func(t *testing.T) {
			s, free := late(t, what)
			o := ServerOptions{Reset: time.Minute, Step: time.Minute}
			if what == "step" {
				o.Step = 500 * time.Millisecond
			} else {
				o.Reset = 500 * time.Millisecond // for a new one, too
			}
			v, url := serve(t, s, o)
			r := connect(t, url+"/ws")
			got := ""
			if frames == nil {
				got = r.receive()
				require.Contains(t, got, codeFactory)
			}
			for _, f := range frames {
				got = r.ask(f)
			}
			require.Contains(t, got, "did not return within 500ms")
			if frames != nil {
				require.Contains(t, r.ask(`{"type": "step", "data": {"action": "1"}}`), "no episode has begun")
			}
			free()
			_ = r.ws.CloseNow()
			eventually(t, "what was made is closed", func() bool { return s.made.Load() == 1 && s.closed.Load() == 1 })
			eventually(t, "there is room", func() bool { v.sessions.mu.Lock(); defer v.sessions.mu.Unlock(); return len(v.sessions.byID) == 0 })
		})
	}
}

// An observation is cut as in a run, and one that no run would read fails the step.
func TestLongObservations(t *testing.T) {
	s := &worlds{step: func(_ context.Context, _ *world, a environments.Action) (environments.Result, error) {
		if a.Text == "strange" {
			return environments.Result{Observation: environments.Observation{{Type: "sound"}}}, nil
		}
		return environments.Result{Observation: environments.Text(strings.Repeat("x", 1<<20))}, nil
	}}
	_, url := serve(t, s, ServerOptions{MaxText: 1000})
	r := connect(t, url+"/ws")
	r.ask(`{"type": "reset", "data": {}}`)
	got := r.ask(`{"type": "step", "data": {"action": "1"}}`)
	require.Less(t, len(got), 2000)
	require.Contains(t, got, "bytes left out]")
	require.Contains(t, r.ask(`{"type": "step", "data": {"action": "strange"}}`), "neither a text nor an image")
}

// A client that sent its next message before the answer is pinged all the same: one that is gone ends a step that takes long.
func TestPingWhileACallRuns(t *testing.T) {
	begun := make(chan struct{})
	s := &worlds{step: func(ctx context.Context, _ *world, _ environments.Action) (environments.Result, error) {
		close(begun)
		<-ctx.Done()
		return environments.Result{}, ctx.Err()
	}}
	_, url := serve(t, s, ServerOptions{Ping: 10 * time.Millisecond, Pong: time.Second, Step: time.Minute})
	silent := connect(t, url+"/ws") // reads nothing but what it asks for, so that it sends no pong
	silent.send(`{"type": "reset", "data": {}}`)
	silent.send(`{"type": "step", "data": {"action": "1"}}`)
	silent.send(`{"type": "step", "data": {"action": "1"}}`)
	select {
	case <-begun:
	case <-time.After(20 * time.Second):
		t.Fatal("the session ended before its step began")
	}
	eventually(t, "its environment is closed", func() bool { return s.closed.Load() == 1 })
}

// A job does not wait at its start for a server that has no room.
func TestStartWithoutRoom(t *testing.T) {
	_, url := serve(t, &worlds{spec: withTools()}, ServerOptions{MaxSessions: 1})
	connect(t, url+"/ws").ask(`{"type": "reset", "data": {}}`)
	got := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		c := config{Hosts: []string{url}, MCP: true, Raised: infrastructure, TimeoutS: 0.3, MaxMessage: maxMessage}
		s, err := newSource(c, nil)
		if err == nil {
			err = errors.Join(s.discover(ctx, c), s.Close())
		}
		got <- err
	}()
	err := <-got
	require.NoError(t, ctx.Err(), "it waited as long as the run would")
	require.ErrorContains(t, err, "no session within the time for it: "+url+": it is full, with 1 of 1 sessions")
}

// A page whose name was bound to this machine's address anew has the Origin of its name and that name as Host: a server without a key refuses names
// that are not this machine's.
func TestRebinding(t *testing.T) {
	s := &worlds{spec: withTools()}
	_, url := serve(t, s, ServerOptions{})
	_, keyed := serve(t, &worlds{}, ServerOptions{Key: "secret"})
	ask := func(url, host string) int {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/schema", nil)
		require.NoError(t, err)
		q.Host = host
		q.Header.Set("Origin", "http://"+host)
		q.Header.Set("Authorization", "Bearer secret")
		answer, err := http.DefaultClient.Do(q)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	for host, want := range map[string]int{
		"evil.example": 403, "evil.example:8000": 403, "127.0.0.1.evil.example:80": 403, "10.0.0.1:8000": 403,
		"localhost": 200, "LOCALHOST:8000": 200, "127.0.0.1:8000": 200, "127.1.2.3": 200, "[::1]:8000": 200, "[::1]": 200,
	} {
		require.Equal(t, want, ask(url, host), host)
		require.Equal(t, http.StatusOK, ask(keyed, host), host)
	}
}

// An error does not repeat the credentials of a URL.
func TestCredentialsInHosts(t *testing.T) {
	for _, text := range []string{
		"http://user:hunter2@a:1", "user:hunter2@a:1", "http://a:1?key=hunter2", "http://a:1#hunter2", "ftp://user:hunter2@a?key=hunter2", "http://user:hunter2@a:x", "http://us er:hunter2@a", "//user:hunter2@",
		"http://user:hunter2@a/%zz",
	} {
		_, err := readHosts([]string{text})
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), "hunter2")
		require.Contains(t, err.Error(), "hosts[0]")
		if strings.Contains(text, "@") || strings.Contains(text, "?") {
			require.Contains(t, err.Error(), "give the key as api_key", text)
		}
	}
}

// The tasks of one request are few enough, and requests are answered in turn. The client asks as often as it must.
func TestManyTasks(t *testing.T) {
	s := &endless{}
	v, err := NewServer(s, ServerOptions{Name: "guess"})
	require.NoError(t, err)
	url := serveHandler(t, v)
	code, text := body(t, "POST", url+"/guess/task_range", `{"split":"train","start":0,"stop":1001}`)
	require.Equal(t, http.StatusBadRequest, code)
	require.Contains(t, text, "1000 tasks")
	code, _ = body(t, "POST", url+"/guess/task_range", `{"split":"train","start":500,"stop":1500}`)
	require.Equal(t, http.StatusOK, code)
	far := client(t, map[string]any{"hosts": []any{url}})
	tasks, err := far.(environments.Tasker).Tasks(environments.Train, 2500)
	require.NoError(t, err)
	require.Len(t, tasks, 2500)
	for i, task := range tasks {
		require.Equal(t, fmt.Sprintf("train-%d", i), task.ID)
	}
	s = &endless{} // which has made none yet
	v, err = NewServer(s, ServerOptions{Name: "guess"})
	require.NoError(t, err)
	url = serveHandler(t, v)
	got := make(chan int, 8)
	for range cap(got) {
		go func() {
			answer, err := http.Post(url+"/guess/task_range", "application/json", strings.NewReader(`{"split":"train","stop":3}`))
			if err != nil {
				got <- 0
				return
			}
			_ = answer.Body.Close()
			got <- answer.StatusCode
		}()
	}
	for range cap(got) {
		require.Equal(t, http.StatusOK, <-got)
	}
	require.EqualValues(t, 1, s.most.Load(), "requests for tasks at once")
}
