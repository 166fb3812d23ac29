package openenv

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/trajectory"
)

// raw is a websocket as any client may have one.
type raw struct {
	t  *testing.T
	ws *websocket.Conn
}

func connect(t *testing.T, url string, header ...string) raw {
	t.Helper()
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	ws, _, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPHeader: h})
	require.NoError(t, err)
	ws.SetReadLimit(-1)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return raw{t, ws}
}

func (r raw) send(text string) {
	r.t.Helper()
	require.NoError(r.t, r.ws.Write(r.t.Context(), websocket.MessageText, []byte(text)))
}

func (r raw) receive() string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	defer cancel()
	_, data, err := r.ws.Read(ctx)
	require.NoError(r.t, err)
	return string(data)
}

func (r raw) ask(text string) string {
	r.t.Helper()
	r.send(text)
	return r.receive()
}

// ends waits for the server's close and returns its code; -1 for a connection that broke.
func (r raw) ends() websocket.StatusCode {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	defer cancel()
	for {
		if _, _, err := r.ws.Read(ctx); err != nil {
			require.NoError(r.t, ctx.Err(), "the connection stays open")
			return websocket.CloseStatus(err)
		}
	}
}

// same compares the frames of a case, but for what only words say.
func same(t *testing.T, want, got string) {
	t.Helper()
	var a, b map[string]any
	require.NoError(t, json.Unmarshal([]byte(want), &a))
	require.NoError(t, json.Unmarshal([]byte(got), &b))
	for _, v := range []map[string]any{a, b} {
		data, _ := v["data"].(map[string]any)
		if v["type"] == "error" {
			require.NotEmpty(t, data["message"])
			if data["code"] != codeCapacity && data["code"] != codeUnknownType {
				delete(data, "message")
			}
			errors, _ := data["errors"].([]any)
			for _, e := range errors {
				delete(e.(map[string]any), "url")
			}
		}
	}
	require.Equal(t, a, b)
}

// OpenEnv's own client, frame by frame: what does not depend on the environment is answered as its own server answers it.
func TestServerAgainstLiteralFrames(t *testing.T) {
	all := frames(t)
	for name, c := range map[string]struct {
		from, to int
		tools    bool
	}{
		"invalid_json": {0, 2, false}, "unknown_type": {0, 4, false}, "mcp_not_supported": {0, 2, false}, "json_not_object": {0, 2, false},
		"mcp_env": {6, 8, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &worlds{}
			if c.tools {
				s.spec = withTools()
			}
			_, url := serve(t, s, ServerOptions{})
			r := connect(t, url+"/ws")
			if c.tools {
				r.ask(`{"type": "reset", "data": {}}`)
			}
			for i := c.from; i < c.to; i += 2 {
				same(t, all[name][i+1].Raw, r.ask(all[name][i].Raw))
			}
			if name == "json_not_object" {
				require.Equal(t, websocket.StatusNormalClosure, r.ends())
			}
		})
	}
	t.Run("faults of a message", func(t *testing.T) {
		_, url := serve(t, &worlds{}, ServerOptions{})
		r := connect(t, url+"/ws")
		same(t, all["bad_action_value"][7].Raw, strings.ReplaceAll(r.ask(all["bad_action_value"][6].Raw), `"action"`, `"guess"`)) // a field is missing
		same(t, all["bad_action_value"][9].Raw, r.ask(all["bad_action_value"][8].Raw))                                            // no data
		same(t, all["reset_bad_arg"][5].Raw, r.ask(all["reset_bad_arg"][4].Raw))                                                  // a key beside data
		got := r.ask(`{"type": "step", "data": {"action": "1", "x": 2}}`)
		same(t, all["bad_action_value"][5].Raw, got)
	})
	t.Run("episode", func(t *testing.T) {
		_, url := serve(t, &worlds{}, ServerOptions{})
		r := connect(t, url+"/ws")
		require.JSONEq(t, `{"type":"observation","data":{"observation":{"metadata":{},"text":"Guess a digit."},"reward":null,"done":false}}`,
			r.ask(`{"type": "reset", "data": {"seed": 5, "episode_id": "ep-1", "low": 9}}`))
		require.JSONEq(t, `{"type":"observation","data":{"observation":{"metadata":{"left":2,"agentfly":{"anchor":"left 2"}},"text":"higher"},"reward":0,"done":false,"metadata":{"left":2,"agentfly":{"anchor":"left 2"}}}}`,
			r.ask(`{"type": "step", "data": {"action": "0"}}`))
		require.JSONEq(t, `{"type":"observation","data":{"observation":{"metadata":{"left":1,"truncated":false,"agentfly":{"anchor":"left 1","success":true}},"text":"right"},"reward":1,"done":true,"metadata":{"left":1,"truncated":false,"agentfly":{"anchor":"left 1","success":true}}}}`,
			r.ask(`{"type": "step", "data": {"action": "9"}}`))
		require.JSONEq(t, `{"type":"state","data":{"episode_id":"ep-1","step_count":2}}`, r.ask(`{"type": "state"}`))
		require.Contains(t, r.ask(`{"type": "step", "data": {"action": "9"}}`), "the episode is over: reset the environment")
		require.Contains(t, r.ask(`{"type": "reset", "data": {"seed": 5, "foo": 1}}`), `the environment's reset has no \"foo\"`)
		require.Contains(t, r.ask(`{"type": "step", "data": {"action": "9"}}`), "no episode has begun")
		require.Contains(t, r.ask(`{"type": "reset", "data": {"seed": 5}}`), "Guess a digit.")
		for _, bad := range []string{`"x"`, `-1`, `1.5`, `1e30`} {
			require.Contains(t, r.ask(`{"type": "reset", "data": {"seed": `+bad+`}}`), codeValidation)
		}
		r.send(`{"type": "close"}`)
		require.Equal(t, websocket.StatusNormalClosure, r.ends())
	})
	t.Run("capacity", func(t *testing.T) {
		_, url := serve(t, &worlds{}, ServerOptions{MaxSessions: 2})
		connect(t, url+"/ws").ask(`{"type": "reset", "data": {}}`)
		connect(t, url+"/ws").ask(`{"type": "reset", "data": {}}`)
		r := connect(t, url+"/ws")
		same(t, all["capacity_third_connection"][1].Raw, r.receive())
		require.Equal(t, websocket.StatusNormalClosure, r.ends())
	})
	t.Run("factory", func(t *testing.T) {
		_, url := serve(t, &worlds{build: func(context.Context) error { return errors.New("no such file") }}, ServerOptions{Name: "Bad"})
		same(t, all["factory_error"][0].Raw, connect(t, url+"/ws").receive())
	})
	t.Run("unknown session", func(t *testing.T) {
		_, url := serve(t, &worlds{}, ServerOptions{})
		same(t, all["attach_after_reaper"][0].Raw, connect(t, url+"/ws?session_id=6fdb7b23").receive())
	})
}

// An environment that fails is closed and replaced at the next reset; its session goes on.
func TestEnvironmentsThatFail(t *testing.T) {
	for name, step := range map[string]func(context.Context, *world, environments.Action) (environments.Result, error){
		"the file is gone": func(context.Context, *world, environments.Action) (environments.Result, error) {
			return environments.Result{}, errors.New("the file is gone")
		},
		"panicked: boom": func(context.Context, *world, environments.Action) (environments.Result, error) { panic("boom") },
		"the reward NaN": func(context.Context, *world, environments.Action) (environments.Result, error) {
			return environments.Result{Reward: math.NaN()}, nil
		},
		"the reward +Inf": func(context.Context, *world, environments.Action) (environments.Result, error) {
			return environments.Result{Reward: math.Inf(1)}, nil
		},
		"info is no JSON": func(context.Context, *world, environments.Action) (environments.Result, error) {
			return environments.Result{Info: map[string]any{"x": func() {}}}, nil
		},
		"the failure is the infrastructure's": func(context.Context, *world, environments.Action) (environments.Result, error) {
			return environments.Result{Observation: environments.Text("the lights are out"), Failure: trajectory.FailureInfrastructure}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &worlds{step: step}
			var notes []string
			_, url := serve(t, s, ServerOptions{Note: func(text string) { notes = append(notes, text) }})
			r := connect(t, url+"/ws")
			for n := range 3 {
				r.ask(`{"type": "reset", "data": {}}`)
				got := r.ask(`{"type": "step", "data": {"action": "1"}}`)
				require.Contains(t, got, codeExecution)
				require.Contains(t, got, name)
				require.Contains(t, r.ask(`{"type": "step", "data": {"action": "1"}}`), "no episode has begun")
				require.EqualValues(t, n+1, s.closed.Load())
				require.EqualValues(t, n+1, s.made.Load())
			}
			r.ask(`{"type": "reset", "data": {}}`)
			require.NoError(t, r.ws.CloseNow())
			eventually(t, "it is closed", func() bool { return s.closed.Load() == 4 })
			require.Contains(t, notes[0], name)
		})
	}
}

// sweeping is a source whose environments can outlive this process.
type sweeping struct {
	worlds
	owners []string // of what was made and swept
}

func (s *sweeping) New(ctx context.Context, owner string) (environments.Environment, error) {
	s.owners = append(s.owners, owner)
	return s.worlds.New(ctx, owner)
}

func (s *sweeping) Sweep(_ context.Context, owner string) ([]string, error) {
	s.owners = append(s.owners, owner)
	return []string{"container-7"}, nil
}

// What the environments of a server that was killed left behind is removed by the next start.
func TestServerSweepsWhatAKilledOneLeft(t *testing.T) {
	s, notes := &sweeping{}, []string{}
	v, err := NewServer(s, ServerOptions{Name: "guess", Note: func(text string) { notes = append(notes, text) }})
	require.NoError(t, err)
	require.Equal(t, []string{"environment guess: removed what an earlier start left behind: container-7"}, notes)
	connect(t, serveHandler(t, v)+"/ws").ask(`{"type": "reset", "data": {}}`)
	require.Len(t, s.owners, 2)
	require.Equal(t, s.owners[0], s.owners[1], "its environments have the label that is swept")
}

// An environment for one episode only is replaced at the second reset.
func TestOnce(t *testing.T) {
	s := &worlds{spec: environments.Spec{Once: true}}
	_, url := serve(t, s, ServerOptions{})
	r := connect(t, url+"/ws")
	for n := range 3 {
		r.ask(`{"type": "reset", "data": {}}`)
		require.EqualValues(t, n+1, s.made.Load())
		require.EqualValues(t, n, s.closed.Load())
	}
}

// A client that is killed in the middle of a step ends its session: the step's context ends, and the environment is closed once.
func TestClientThatIsKilled(t *testing.T) {
	begun := make(chan struct{})
	s := &worlds{step: func(ctx context.Context, _ *world, _ environments.Action) (environments.Result, error) {
		close(begun)
		<-ctx.Done()
		return environments.Result{}, ctx.Err()
	}}
	v, url := serve(t, s, ServerOptions{MaxSessions: 1})
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	ws, _, err := websocket.Dial(t.Context(), url+"/ws", &websocket.DialOptions{HTTPClient: &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}}})
	require.NoError(t, err)
	r := raw{t, ws}
	r.ask(`{"type": "reset", "data": {}}`)
	r.send(`{"type": "step", "data": {"action": "1"}}`)
	<-begun
	require.NoError(t, conn.(*net.TCPConn).SetLinger(0))
	require.NoError(t, conn.Close())
	eventually(t, "the environment is closed", func() bool { return s.closed.Load() == 1 })
	eventually(t, "there is room", func() bool { v.sessions.mu.Lock(); defer v.sessions.mu.Unlock(); return len(v.sessions.byID) == 0 })
	_ = ws.CloseNow()
}

// A client that is silent loses its session; one that answers pings keeps it, also through a step that takes long.
func TestHeartbeat(t *testing.T) {
	free := make(chan struct{})
	s := &worlds{step: func(ctx context.Context, _ *world, _ environments.Action) (environments.Result, error) {
		select {
		case <-free:
			return environments.Result{Observation: environments.Text("slept")}, nil
		case <-ctx.Done():
			return environments.Result{}, ctx.Err()
		}
	}}
	_, url := serve(t, s, ServerOptions{Ping: 10 * time.Millisecond, Pong: 500 * time.Millisecond})
	lively := client(t, map[string]any{"hosts": []any{url}})
	e := begin(t, lively)
	_, err := e.Reset(t.Context(), start(1, nil))
	require.NoError(t, err)
	silent := connect(t, url+"/ws")
	silent.ask(`{"type": "reset", "data": {}}`) // and from now on it reads nothing, so that no pong is sent
	got := make(chan error, 1)
	go func() {
		_, err := e.Step(context.Background(), environments.Action{Text: "1"})
		got <- err
	}()
	eventually(t, "the silent one's environment is closed", func() bool { return s.closed.Load() == 1 })
	close(free)
	require.NoError(t, <-got)
}

// A client that reads nothing of what it asked for loses its session.
func TestSlowReader(t *testing.T) {
	s := &worlds{step: func(context.Context, *world, environments.Action) (environments.Result, error) {
		return environments.Result{Observation: environments.Text(strings.Repeat("x", 8<<20))}, nil
	}}
	_, url := serve(t, s, ServerOptions{Write: 50 * time.Millisecond, MaxText: 16 << 20})
	r := connect(t, url+"/ws")
	r.ask(`{"type": "reset", "data": {}}`)
	for range 8 {
		if r.ws.Write(t.Context(), websocket.MessageText, []byte(`{"type": "step", "data": {"action": "1"}}`)) != nil {
			break
		}
	}
	eventually(t, "the environment is closed", func() bool { return s.closed.Load() == 1 })
}

// A message that is too long, or binary, ends the session and says why; other sessions go on.
func TestHugeAndBinaryMessages(t *testing.T) {
	s := &worlds{}
	_, url := serve(t, s, ServerOptions{MaxMessage: 1000})
	other := connect(t, url+"/ws")
	other.ask(`{"type": "reset", "data": {}}`)
	huge := connect(t, url+"/ws")
	huge.send(`{"type": "step", "data": {"action": "` + strings.Repeat("1", 2000) + `"}}`)
	require.Equal(t, websocket.StatusMessageTooBig, huge.ends())
	binary := connect(t, url+"/ws")
	require.NoError(t, binary.ws.Write(t.Context(), websocket.MessageBinary, []byte("{}")))
	require.Equal(t, websocket.StatusUnsupportedData, binary.ends())
	// a session that its client ends while its environment is being made may never get one
	eventually(t, "theirs are closed", func() bool { return s.made.Load()-s.closed.Load() == 1 })
	require.Contains(t, other.ask(`{"type": "step", "data": {"action": "1"}}`), "observation")
	answer, err := http.Post(url+"/mcp", "application/json", strings.NewReader(strings.Repeat("x", 2000)))
	require.NoError(t, err)
	require.Equal(t, http.StatusRequestEntityTooLarge, answer.StatusCode)
	require.NoError(t, answer.Body.Close())
}

// Drain lets sessions end, refuses new ones, and ends what is left when its time is over.
func TestDrain(t *testing.T) {
	s := &worlds{}
	v, url := serve(t, s, ServerOptions{})
	good, bad := connect(t, url+"/ws"), connect(t, url+"/ws")
	good.ask(`{"type": "reset", "data": {}}`)
	bad.ask(`{"type": "reset", "data": {}}`)
	drained := make(chan error, 1)
	go func() { drained <- v.Drain(time.Minute) }()
	eventually(t, "it drains", func() bool { return status(t, url+"/health") == http.StatusServiceUnavailable })
	_, answer, err := websocket.Dial(t.Context(), url+"/ws", nil)
	require.Error(t, err)
	require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	require.Contains(t, good.ask(`{"type": "step", "data": {"action": "1"}}`), "observation", "what is open goes on")
	good.send(`{"type": "close"}`)
	require.Equal(t, websocket.StatusNormalClosure, good.ends())
	select {
	case err := <-drained:
		t.Fatalf("one session is open, and it returned %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	bad.send(`{"type": "close"}`)
	require.NoError(t, <-drained)
	require.EqualValues(t, 2, s.closed.Load())

	v, url = serve(t, s, ServerOptions{})
	left := connect(t, url+"/ws")
	left.ask(`{"type": "reset", "data": {}}`)
	gone := make(chan websocket.StatusCode, 1)
	go func() { gone <- left.ends() }()
	require.ErrorIs(t, v.Drain(time.Millisecond), ErrDrained)
	require.Equal(t, websocket.StatusGoingAway, <-gone)
	require.EqualValues(t, 3, s.closed.Load())
	require.NoError(t, v.Drain(0))
}

func status(t *testing.T, url string) int {
	t.Helper()
	answer, err := http.Get(url)
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, answer.Body)
	require.NoError(t, answer.Body.Close())
	return answer.StatusCode
}

func body(t *testing.T, method, url, text string, header ...string) (int, string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(text))
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(q)
	require.NoError(t, err)
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(data)
}

// Who has no key gets nothing but /health, and no connection that stays.
func TestKey(t *testing.T) {
	s := &worlds{}
	_, url := serve(t, s, ServerOptions{Key: "secret"})
	for _, route := range []string{"/ws", "/mcp", "/schema", "/metadata", "/state", "/nothing", "/list_environments"} {
		code, text := body(t, "GET", url+route, "")
		require.Equal(t, http.StatusUnauthorized, code, route)
		require.NotContains(t, text, "secret")
	}
	require.Equal(t, http.StatusOK, status(t, url+"/health"))
	require.Zero(t, s.made.Load())
	_, answer, err := websocket.Dial(t.Context(), url+"/ws", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer wrong"}}})
	require.Error(t, err)
	require.Equal(t, http.StatusUnauthorized, answer.StatusCode)
	connect(t, url+"/ws", "Authorization", "Bearer secret").ask(`{"type": "reset", "data": {}}`)
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprint(conn, "POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusUnauthorized, reply.StatusCode)
	require.True(t, reply.Close)
}

// A page of another site cannot use a server of its visitor's machine.
func TestOrigin(t *testing.T) {
	_, url := serve(t, &worlds{spec: withTools()}, ServerOptions{})
	code, _ := body(t, "POST", url+"/mcp", `{"jsonrpc":"2.0","method":"openenv/session/create","id":1}`, "Origin", "http://evil.example")
	require.Equal(t, http.StatusForbidden, code)
	_, answer, err := websocket.Dial(t.Context(), url+"/ws", &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"http://evil.example"}}})
	require.Error(t, err)
	require.Equal(t, http.StatusForbidden, answer.StatusCode)
	code, _ = body(t, "GET", url+"/schema", "", "Origin", url)
	require.Equal(t, http.StatusOK, code)
}

func TestRoutes(t *testing.T) {
	_, url := serve(t, &worlds{spec: environments.Spec{Instructions: "Guess."}}, ServerOptions{Name: "guess", Description: "a digit"})
	for route, code := range map[string]int{"/health": 200, "/schema": 200, "/metadata": 200, "/openapi.json": 200, "/state": 501, "/nothing": 404, "/ws": 426} {
		got, _ := body(t, "GET", url+route, "")
		require.Equal(t, code, got, route)
	}
	for _, route := range []string{"/reset", "/step"} {
		code, text := body(t, "POST", url+route, "{}")
		require.Equal(t, http.StatusNotImplemented, code)
		require.Contains(t, text, "Connect to the websocket at /ws")
	}
	_, text := body(t, "GET", url+"/metadata", "")
	require.JSONEq(t, `{"name":"guess","description":"a digit","readme_content":"Guess.","version":"","author":null,"documentation_url":null,"agentfly":{"instructions":"Guess.","deterministic":false}}`, text)
	for text, want := range map[string]int{
		`{"split":"train","start":1,"stop":3}`: 200, `{"split":"train"}`: 400, `{"split":"train","start":3,"stop":3}`: 400, `{"split":"train","stop":99}`: 400,
		`{"split":"train","start":-1,"stop":3}`: 400, `{"split":"train","stop":1000000000}`: 400, `x`: 422,
	} {
		code, _ := body(t, "POST", url+"/guess/task_range", text)
		require.Equal(t, want, code, text)
	}
	code, text := body(t, "POST", url+"/guess/task", `{"split":"eval","index":2}`)
	require.Equal(t, 200, code)
	require.JSONEq(t, `{"task":{"id":"eval-2","low":2}}`, text)
	code, _ = body(t, "POST", url+"/other/task", `{"split":"eval","index":2}`)
	require.Equal(t, 404, code)
	code, _ = body(t, "POST", url+"/guess/num_tasks", `{"split":"eval"}`)
	require.Equal(t, 501, code)
}

// MCP over HTTP: sessions that a client opens, plays with and closes, beside a websocket or without; one that nobody uses ends.
func TestMCPOverHTTP(t *testing.T) {
	s := &worlds{spec: withTools()}
	_, url := serve(t, s, ServerOptions{MaxSessions: 1, Idle: 200 * time.Millisecond})
	rpc := func(method, params string) string {
		code, text := body(t, "POST", url+"/mcp", `{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":`+params+`}`)
		require.Equal(t, http.StatusOK, code)
		return text
	}
	require.Contains(t, rpc("tools/list", `{}`), `"inputSchema":{"type":"object"`)
	require.Contains(t, rpc("tools/call", `{"name":"guess","arguments":{"digit":1}}`), "Missing 'session_id'")
	require.Contains(t, rpc("nope", `{}`), "-32601")
	require.Contains(t, rpc("tools/call", `[]`), "-32602")
	for _, bad := range []string{`{}`, `[]`, `{"jsonrpc":"1.0","method":"x"}`, `{"jsonrpc":"2.0","method":"tools/list","id":{}}`} {
		_, text := body(t, "POST", url+"/mcp", bad)
		require.Contains(t, text, "-32600", bad)
	}
	_, text := body(t, "POST", url+"/mcp", `nope`)
	require.Contains(t, text, "-32700")

	var made struct{ Result struct{ Session_id string } } //nolint:revive // the wire's name
	require.NoError(t, json.Unmarshal([]byte(rpc(sessionCreate, `{}`)), &made))
	id := made.Result.Session_id
	require.Len(t, id, 32)
	require.Contains(t, rpc(sessionCreate, `{}`), `{"active_sessions":1,"max_sessions":1}`)
	r := connect(t, url+"/ws?session_id="+id)
	r.ask(`{"type": "reset", "data": {"low": 9}}`)
	require.Contains(t, rpc("tools/call", `{"name":"guess","arguments":{"digit":0},"session_id":"`+id+`"}`), `"data":"higher"`)
	require.Contains(t, rpc("tools/call", `{"name":"guess","arguments":{"digit":"x"},"session_id":"`+id+`"}`), `must be an integer`)
	require.Contains(t, rpc("tools/call", `{"name":"guess","arguments":{"digit":9},"session_id":"`+id+`"}`), `"meta":{"done":true,"reward":1}`)
	require.Contains(t, rpc("tools/call", `{"name":"guess","arguments":{"digit":9},"session_id":"`+id+`"}`), `the episode is over`)
	require.Contains(t, connect(t, url+"/ws?session_id="+id).receive(), "already has an attached WebSocket")
	require.Contains(t, rpc(sessionClose, `{"session_id":"`+id+`"}`), `"closing":true`)
	require.Zero(t, s.closed.Load())
	require.NoError(t, r.ws.CloseNow())
	eventually(t, "the session ends with its websocket", func() bool { return s.closed.Load() == 1 })
	require.Contains(t, rpc("tools/call", `{"name":"guess","arguments":{"digit":9},"session_id":"`+id+`"}`), `Unknown session_id`)

	require.NoError(t, json.Unmarshal([]byte(rpc(sessionCreate, `{}`)), &made))
	require.Contains(t, rpc(sessionClose, `{"session_id":"`+made.Result.Session_id+`"}`), `"closed":true`)
	require.EqualValues(t, 2, s.closed.Load())
	rpc(sessionCreate, `{}`)
	eventually(t, "nobody used it", func() bool { return s.closed.Load() == 3 })

	ws := connect(t, url+"/mcp") // MCP on a websocket of its own
	require.Contains(t, ws.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`), `"guess"`)
	require.Contains(t, ws.ask(`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"guess","arguments":{"digit":1}}}`), `no episode has begun`)
	require.Contains(t, ws.ask(`x`), "-32700")
}

// Thirty-two clients at once, a third of which are cut off: every environment is closed once, and all places are free again.
func TestManyClients(t *testing.T) {
	s := &worlds{}
	v, url := serve(t, s, ServerOptions{MaxSessions: 8})
	far := client(t, map[string]any{"hosts": []any{url}})
	errs := make(chan error, 32)
	for n := range 32 {
		go func() {
			errs <- func() error {
				e, err := far.New(context.Background(), "")
				if err != nil {
					return err
				}
				defer e.Close()
				if _, err := e.Reset(context.Background(), start(int64(n), nil)); err != nil {
					return err
				}
				for over := false; !over; {
					if n%3 == 0 {
						e.(*environment).link.cut(errors.New("cut off"))
						return nil
					}
					r, err := e.Step(context.Background(), environments.Action{Text: "1"})
					if err != nil {
						return err
					}
					over = r.Over()
				}
				return nil
			}()
		}()
	}
	for range 32 {
		require.NoError(t, <-errs)
	}
	eventually(t, "all places are free", func() bool { v.sessions.mu.Lock(); defer v.sessions.mu.Unlock(); return len(v.sessions.byID) == 0 })
	require.GreaterOrEqual(t, s.made.Load(), int64(32))
}

// No frame makes the server panic: it answers each with one message, or ends the session.
func FuzzFrame(f *testing.F) {
	for _, all := range frames(f) {
		for _, fr := range all {
			f.Add(fr.Raw, false)
			f.Add(fr.Raw, true)
		}
	}
	f.Add(`{"type":"step","data":{"action":"5","metadata":null}}`, false)
	f.Fuzz(func(t *testing.T, raw string, withOwn bool) {
		s := &worlds{}
		if withOwn {
			s.spec = withTools()
		}
		v, err := NewServer(s, ServerOptions{})
		require.NoError(t, err)
		defer func() { _ = v.Drain(0) }()
		one, err := v.sessions.open(t.Context(), false)
		require.NoError(t, err)
		for range 2 { // before and after a reset
			reply, over := v.handle(t.Context(), one, []byte(raw))
			if over && reply == nil {
				continue
			}
			require.True(t, json.Valid(reply), "%s", reply)
			if _, err := parseReply(reply); err != nil {
				require.NotEmpty(t, codeOf(err), "%v", err)
			}
			_, err := json.Marshal(v.mcp.answer(t.Context(), []byte(raw), one))
			require.NoError(t, err)
			_, _ = v.handle(t.Context(), one, []byte(`{"type":"reset","data":{"seed":1}}`))
		}
	})
}
