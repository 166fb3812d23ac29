package openenv

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/pool"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

// A world behind our server is the world itself: the same observations, rewards, ends, anchors and info.
func TestTwoWay(t *testing.T) {
	for name, spec := range map[string]environments.Spec{"texts": {Instructions: "Guess.", Deterministic: true}, "tools": withTools()} {
		t.Run(name, func(t *testing.T) {
			s := &worlds{spec: spec}
			_, url := serve(t, s, ServerOptions{})
			far := client(t, map[string]any{"hosts": []any{url}})
			require.Equal(t, spec.Instructions, far.Spec().Instructions)
			require.Equal(t, spec.Deterministic, far.Spec().Deterministic)
			require.Len(t, far.Spec().Tools, len(spec.Tools))
			here, there := &world{source: &worlds{}}, begin(t, far)
			action := func(text string) environments.Action {
				if len(spec.Tools) == 0 {
					return environments.Action{Text: text}
				}
				return environments.Action{Name: "guess", Arguments: json.RawMessage(`{"digit":` + text + `}`)}
			}
			ends := map[string]int{}
			for seed := range int64(30) {
				at := start(seed, map[string]any{"low": float64(seed % 3), "answer": "for rewards alone"})
				first, err := there.Reset(t.Context(), at)
				require.NoError(t, err)
				delete(at.Task.Fields, "answer")
				want, err := here.Reset(t.Context(), at)
				require.NoError(t, err)
				require.Equal(t, want, first)
				for guess := 3; ; guess++ {
					text := string(rune('0' + guess%10))
					want, err := here.Step(t.Context(), action(text))
					require.NoError(t, err)
					got, err := there.Step(t.Context(), action(text))
					require.NoError(t, err)
					if want.Over() {
						want.Info["truncated"] = want.Truncated
					}
					data, err := json.Marshal(got.Info)
					require.NoError(t, err)
					got.Info = nil
					require.NoError(t, json.Unmarshal(data, &got.Info)) // numbers as float64
					require.Equal(t, want, got)
					if got.Over() {
						ends[want.Observation[0].Text]++
						break
					}
				}
			}
			require.Greater(t, ends["right"], 2)
			require.Greater(t, len(ends), 1)
		})
	}
}

// A tool whose name is longer than ours may be is offered under the letters that fit, and called by its own name.
func TestLongNamesOfTools(t *testing.T) {
	spec := withTools()
	long := strings.Repeat("guess_", 12)[:70]
	for _, name := range []string{long[:63], long[:64], long} {
		spec.Tools[0].Name = name
		var called string
		_, url := serve(t, &worlds{spec: spec, step: func(_ context.Context, _ *world, a environments.Action) (environments.Result, error) {
			called = a.Name
			return environments.Result{}, nil
		}}, ServerOptions{})
		source := client(t, map[string]any{"hosts": []any{url}})
		m, err := environments.Open(source, nil, environments.Options{Kind: "openenv"})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, m.Close()) })
		e := begin(t, source)
		_, err = e.Reset(t.Context(), start(1, nil))
		require.NoError(t, err)
		_, err = e.Step(t.Context(), environments.Action{Name: name[:min(len(name), 64)], Arguments: json.RawMessage(`{"digit":1}`)})
		require.NoError(t, err)
		require.Equal(t, name, called)
	}
}

// What the agent does wrong is its own failure, and the episode goes on.
func TestPolicyFailures(t *testing.T) {
	s := &worlds{}
	_, url := serve(t, s, ServerOptions{})
	e := begin(t, client(t, map[string]any{"hosts": []any{url}}))
	_, err := e.Reset(t.Context(), start(1, nil))
	require.NoError(t, err)
	r, err := e.Step(t.Context(), environments.Action{Text: "x"})
	require.NoError(t, err)
	require.Equal(t, trajectory.FailurePolicy, r.Failure)
	require.Equal(t, environments.Text("not a digit: x"), r.Observation)
	r, err = e.Step(t.Context(), environments.Action{Text: "1"})
	require.NoError(t, err)
	require.Empty(t, r.Failure)

	_, url = serve(t, &worlds{spec: withTools()}, ServerOptions{})
	e = begin(t, client(t, map[string]any{"hosts": []any{url}}))
	_, err = e.Reset(t.Context(), start(1, nil))
	require.NoError(t, err)
	r, err = e.Step(t.Context(), environments.Action{Name: "guess", Arguments: json.RawMessage(`{"digit":"x"}`)})
	require.NoError(t, err)
	require.Equal(t, trajectory.FailurePolicy, r.Failure)
	require.Contains(t, r.Observation[0].Text, `the argument "digit" must be an integer`)
	_, err = e.Step(t.Context(), environments.Action{Name: "nope"})
	require.ErrorContains(t, err, `no tool "nope"`)
}

// A method that the environment does not have is the caller's mistake, and the episode goes on.
func TestCallOfAnUnknownMethod(t *testing.T) {
	_, url := serve(t, &worlds{}, ServerOptions{})
	m, err := environments.Open(client(t, map[string]any{"hosts": []any{url}}), nil, environments.Options{Kind: "openenv"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	e, err := m.Begin(t.Context(), pool.Owner{Name: "a"}, start(1, nil))
	require.NoError(t, err)
	defer e.End()
	_, _, err = e.Call(t.Context(), "legal_moves", nil)
	wrong := (*environments.CallError)(nil)
	require.ErrorAs(t, err, &wrong)
	require.ErrorContains(t, err, `the method state alone, not "legal_moves"`)
	_, err = e.Step(t.Context(), environments.Action{Text: "x"})
	require.NoError(t, err)
	require.Empty(t, m.Stats().Failures)
}

// Metadata say that the goal is reached with a boolean or with a number.
func TestSuccessOfMetadata(t *testing.T) {
	for said, want := range map[string]bool{`"success": true`: true, `"won": 1`: true, `"solved": 1.0`: true, `"is_success": 0`: false, `"success": false`: false, `"success": 2`: false} {
		o := observed{Observation: json.RawMessage(`{"text":"x"}`), Done: true, Metadata: json.RawMessage("{" + said + "}")}
		r, err := new(source).result(o)
		require.NoError(t, err)
		require.Equal(t, want, r.Success, said)
	}
}

// The score of a whole episode is the sum of the rewards that a client sees.
func TestScoreIsTheSumOfTheRewards(t *testing.T) {
	_, url := serve(t, &worlds{score: true}, ServerOptions{})
	e := begin(t, client(t, map[string]any{"hosts": []any{url}}))
	for range 2 {
		_, err := e.Reset(t.Context(), start(1, nil))
		require.NoError(t, err)
		sum := 0.0
		for range 3 {
			r, err := e.Step(t.Context(), environments.Action{Text: "0"})
			require.NoError(t, err)
			if sum += r.Reward; r.Over() {
				break
			}
		}
		require.Equal(t, 10.0, sum)
	}
}

// frames are the literal frames of OpenEnv 0.10's own client and server, by case.
func frames(t testing.TB) map[string][]frame {
	file, err := os.Open("testdata/frames.jsonl")
	require.NoError(t, err)
	defer file.Close()
	out := map[string][]frame{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var f struct {
			Case string
			frame
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &f))
		out[f.Case] = append(out[f.Case], f.frame)
	}
	require.NoError(t, lines.Err())
	require.Greater(t, len(out), 20)
	return out
}

type frame struct{ Dir, Raw string }

const (
	guessAction = `{"action":{"type":"object","additionalProperties":false,"properties":{"metadata":{"type":"object"},"guess":{"type":"integer","minimum":0,"maximum":9}},"required":["guess"]}}`
	mcpAction   = `{"action":{"type":"object","properties":{"metadata":{"type":"object"},"type":{"const":"call_tool"},"tool_name":{"type":"string"},"arguments":{"type":"object"}},"required":["tool_name"]}}`
)

// replay is a server that expects the frames of a case, and answers as OpenEnv's did.
func replay(t *testing.T, schema string, scripts ...[]frame) string {
	t.Helper()
	var next atomic.Int64
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/schema":
			_, _ = w.Write([]byte(schema))
			return
		case "/ws":
		default:
			http.NotFound(w, r)
			return
		}
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer ws.CloseNow()
		script := scripts[min(int(next.Add(1)), len(scripts))-1]
		if _, data, err := ws.Read(r.Context()); err != nil || string(data) != `{"type":"state"}` {
			t.Errorf("the greeting is %s, %v", data, err)
			return
		}
		if len(script) > 0 && script[0].Dir == "greeting" {
			_ = ws.Write(r.Context(), websocket.MessageText, []byte(script[0].Raw))
			script = script[1:]
		} else {
			_ = ws.Write(r.Context(), websocket.MessageText, []byte(`{"type":"state","data":{"episode_id":null,"step_count":0,"target":0}}`))
		}
		for _, f := range script {
			if strings.HasPrefix(f.Raw, "<") {
				break
			}
			if f.Dir == "s2c" {
				_ = ws.Write(r.Context(), websocket.MessageText, []byte(f.Raw))
				continue
			}
			_, data, err := ws.Read(r.Context())
			if err != nil || string(data) == `{"type":"close"}` {
				return // the client's test ended before the case
			}
			var want, got any
			_ = json.Unmarshal([]byte(f.Raw), &want)
			_ = json.Unmarshal(data, &got)
			if want, ok := want.(map[string]any); ok && want["type"] == "reset" { // it left the seed out
				given, _ := got.(map[string]any)
				wanted, _ := want["data"].(map[string]any)
				if sent, _ := given["data"].(map[string]any); wanted["seed"] == nil && sent != nil {
					delete(sent, "seed")
				}
			}
			left, _ := json.Marshal(want)
			right, _ := json.Marshal(got)
			if string(left) != string(right) {
				t.Errorf("sent %s where OpenEnv's client sends %s", right, left)
				return
			}
		}
		_ = ws.Close(websocket.StatusNormalClosure, "")
	}))
	t.Cleanup(h.Close)
	return h.URL
}

// until are the first n frames of a case.
func until(all []frame, n int) []frame { return all[:n] }

// The client sends what OpenEnv's own client sends, and reads what its server answers.
func TestClientAgainstLiteralFrames(t *testing.T) {
	all := frames(t)
	type object = map[string]any
	t.Run("episode", func(t *testing.T) {
		url := replay(t, guessAction, all["client_episode"])
		e := begin(t, client(t, object{"hosts": []any{url}, "success": 1, "reset": object{"episode_id": "ep-1"}}))
		first, err := e.Reset(t.Context(), start(5, object{"difficulty": "hard"}))
		require.NoError(t, err)
		require.Equal(t, environments.Text("Guess a digit. extra=['difficulty']"), first)
		r, err := e.Step(t.Context(), environments.Action{Text: "0"})
		require.NoError(t, err)
		require.Equal(t, environments.Result{Observation: environments.Text("higher"), Info: object{"truncated": false}}, r)
		for range 2 { // their server answers a step after the end, too
			r, err = e.Step(t.Context(), environments.Action{Text: " 9 "})
			require.NoError(t, err)
			require.Equal(t, environments.Result{Observation: environments.Text("right"), Reward: 1, Terminated: true, Success: true, Info: object{"truncated": false}}, r)
		}
		state, err := e.(environments.Caller).Call(t.Context(), "state", nil)
		require.NoError(t, err)
		require.JSONEq(t, `{"episode_id":"ep-1","step_count":3,"target":9}`, string(state))
		r, err = e.Step(t.Context(), environments.Action{Text: "77"})
		require.NoError(t, err)
		require.Equal(t, environments.Result{Observation: environments.Text("Error: guess: Input should be less than or equal to 9"), Failure: trajectory.FailurePolicy}, r)
	})
	t.Run("truncated", func(t *testing.T) {
		e := begin(t, client(t, object{"hosts": []any{replay(t, guessAction, all["step_after_done"])}}))
		_, err := e.Reset(t.Context(), start(5, nil))
		require.NoError(t, err)
		for n := range 3 {
			r, err := e.Step(t.Context(), environments.Action{Text: "0"})
			require.NoError(t, err)
			require.Equal(t, n == 2, r.Truncated)
			require.False(t, r.Terminated)
		}
	})
	t.Run("bad actions", func(t *testing.T) {
		e := begin(t, client(t, object{"hosts": []any{replay(t, guessAction, all["bad_action_value"][:4])}}))
		_, err := e.Reset(t.Context(), start(0, nil))
		require.NoError(t, err)
		r, err := e.Step(t.Context(), environments.Action{Text: "99"})
		require.NoError(t, err)
		require.Equal(t, trajectory.FailurePolicy, r.Failure)
	})
	for raised, failed := range map[string]bool{"infrastructure": true, "policy": false} {
		t.Run("raised "+raised, func(t *testing.T) {
			e := begin(t, client(t, object{
				"hosts": []any{replay(t, guessAction, until(all["execution_error"], 4))}, "execution_error": raised, "action": `{"guess": 1, "metadata": {"boom": {{value .}}}}`,
			}))
			_, err := e.Reset(t.Context(), start(0, nil))
			require.NoError(t, err)
			r, err := e.Step(t.Context(), environments.Action{Text: "1"})
			if failed {
				require.ErrorContains(t, err, "the server answered EXECUTION_ERROR: boom")
				return
			}
			require.NoError(t, err)
			require.Equal(t, environments.Result{Observation: environments.Text("Error: boom"), Failure: trajectory.FailurePolicy}, r)
		})
	}
	t.Run("reset fails", func(t *testing.T) {
		e := begin(t, client(t, object{"hosts": []any{replay(t, guessAction, all["reset_bad_arg"])}, "reset": object{"low": "x"}}))
		_, err := e.Reset(t.Context(), start(0, nil))
		require.ErrorContains(t, err, "the server answered EXECUTION_ERROR: invalid literal for int()")
	})
	t.Run("mcp", func(t *testing.T) {
		reset, list, calls := all["mcp_env"][:2], all["mcp_env"][2:4], all["mcp_env"][4:10]
		src := client(t, object{"hosts": []any{replay(t, mcpAction, list, append(append([]frame{}, reset...), calls...))}})
		require.Len(t, src.Spec().Tools, 1)
		require.Equal(t, "add", src.Spec().Tools[0].Name)
		require.Equal(t, "Add two numbers", src.Spec().Tools[0].Description)
		e := begin(t, src)
		first, err := e.Reset(t.Context(), start(0, nil))
		require.NoError(t, err)
		require.Equal(t, environments.Text(`{"metadata":{"prompt":"use add"}}`), first)
		r, err := e.Step(t.Context(), environments.Action{Name: "add", Arguments: json.RawMessage(`{"a": 2, "b": 3}`)})
		require.NoError(t, err)
		require.Equal(t, environments.Result{Observation: environments.Text("5")}, r)
	})
	t.Run("a reward of another type", func(t *testing.T) {
		for name, want := range map[string]float64{"odd_nan": 0, "odd_bool": 1, "odd_int": 3} {
			var m message
			require.NoError(t, json.Unmarshal([]byte(all[name][1].Raw), &m))
			var o observed
			require.NoError(t, json.Unmarshal(m.Data, &o))
			got, err := reward(o.Reward)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		for _, bad := range []string{`"1"`, `{}`, `[1]`, `1e999`} {
			_, err := reward(json.RawMessage(bad))
			require.ErrorContains(t, err, "no finite number", bad)
		}
	})
	t.Run("capacity, factory, session", func(t *testing.T) {
		for name, code := range map[string]string{"capacity_third_connection": codeCapacity, "factory_error": codeFactory, "attach_after_reaper": codeSession} {
			last := all[name][len(all[name])-1]
			_, err := parseReply([]byte(last.Raw))
			require.Equal(t, code, codeOf(err), name)
		}
	})
}

// A full host is not asked again at once: another one is, and a session that ends makes room. Where nobody has room the error says so.
func TestCapacity(t *testing.T) {
	one, two := &worlds{}, &worlds{}
	_, first := serve(t, one, ServerOptions{MaxSessions: 2})
	_, second := serve(t, two, ServerOptions{MaxSessions: 1})
	s := client(t, map[string]any{"hosts": []any{first, second}})
	a, b := begin(t, s), begin(t, s)
	c, err := s.New(t.Context(), "")
	require.NoError(t, err)
	require.EqualValues(t, 2, one.made.Load())
	require.EqualValues(t, 1, two.made.Load())
	_, _ = a, b
	short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err = s.New(short, "")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, first+": it is full, with 2 of 2 sessions")
	require.ErrorContains(t, err, second+": it is full, with 1 of 1 sessions")
	got := make(chan error, 1)
	go func() {
		d, err := s.New(context.Background(), "")
		if err == nil {
			err = d.Close()
		}
		got <- err
	}()
	select {
	case err := <-got:
		t.Fatalf("there was no room, and it returned %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, c.Close())
	require.NoError(t, <-got)
}

// Sessions go to the host that has fewest; a dead one is left alone for a while, and named when nobody answers.
func TestHosts(t *testing.T) {
	dead := "http://" + deadAddress(t)
	one, two := &worlds{}, &worlds{}
	first, firstURL := serve(t, one, ServerOptions{})
	_, secondURL := serve(t, two, ServerOptions{})
	s := client(t, map[string]any{"hosts": []any{dead, firstURL, secondURL}})
	all := make([]environments.Environment, 6)
	for i := range all {
		all[i] = begin(t, s)
	}
	require.EqualValues(t, 3, one.made.Load())
	require.EqualValues(t, 3, two.made.Load())
	require.NotZero(t, s.(*source).hosts.all[0].failures)
	require.True(t, s.(*source).hosts.all[0].deadUntil.After(time.Now()))

	require.ErrorIs(t, first.Drain(0), ErrDrained) // a host goes away in the middle
	e := all[0]
	if e.(*environment).host.url != firstURL {
		e = all[1]
	}
	require.Equal(t, firstURL, e.(*environment).host.url)
	_, err := e.Reset(t.Context(), start(1, nil))
	require.ErrorContains(t, err, firstURL+": it closed the connection (1001: the server is shutting down)")
	require.ErrorContains(t, e.(environments.Checker).Check(t.Context()), firstURL)
	for range 3 {
		begin(t, s)
	}
	require.EqualValues(t, 6, two.made.Load(), "the other host takes them")

	_, err = open(t, map[string]any{"hosts": []any{dead, "http://" + deadAddress(t)}})
	require.ErrorContains(t, err, dead+": dial tcp")
	require.ErrorContains(t, err, "connection refused")
}

func deadAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

func TestParameters(t *testing.T) {
	type object = map[string]any
	_, url := serve(t, &worlds{}, ServerOptions{Key: "secret"})
	ok := object{"hosts": []any{url}, "api_key": "secret"}
	begin(t, client(t, ok))
	for want, params := range map[string]object{
		"hosts is missing":                       {},
		"no URL of a server":                     {"hosts": []any{"http://"}},
		"begins with ftp://":                     {"hosts": []any{"ftp://a"}},
		"is listed twice":                        {"hosts": []any{"a:1", "ws://a:1/ws"}},
		`unknown field "host"`:                   {"host": url},
		"mcp is maybe":                           {"mcp": "maybe"},
		"execution_error is \"x\"":               {"execution_error": "x"},
		"timeout_s is -1":                        {"timeout_s": -1},
		"max_message is 5":                       {"max_message": 5},
		"leave seed out":                         {"reset": object{"seed": 1}},
		"text: template":                         {"text": "{{.x"},
		"action: template":                       {"action": "{{.x"},
		"the template made no JSON object":       {"action": `{"x": "{{.}}"}`},
		`the server's actions have no field "x"`: {"action": "x"},
		"mcp is true, and the server lists no":   {"mcp": true},
		"api_key is not filled in":               {"api_key": "${NOT_SET}"},
		"give its key as api_key":                {"api_key": "wrong"},
	} {
		t.Run(want, func(t *testing.T) {
			merged := object{}
			for k, v := range ok {
				merged[k] = v
			}
			for k, v := range params {
				merged[k] = v
			}
			if len(params) == 0 || params["host"] != nil {
				delete(merged, "hosts")
			}
			_, err := open(t, merged)
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "secret")
		})
	}
	r := environments.NewRegistry()
	require.NoError(t, r.Add(Kind()))
	_, err := r.Make(t.Context(), resources.New(resources.Options{Look: true}), "openenv", object{"hosts": []any{"http://" + deadAddress(t)}})
	var notRun *resources.NotRunError
	require.ErrorAs(t, err, &notRun)
}

// How an observation becomes text, and a text an action.
func TestTexts(t *testing.T) {
	for _, c := range []struct{ text, observation, want, err string }{
		{"", `{"metadata":{},"text":"a","result":"b"}`, "a", ""},
		{"", `{"result":"b","message":3}`, "b", ""},
		{"", `{"metadata":{},"grid":[[1,2],[3,4]],"n":12345678901234567890}`, `{"grid":[[1,2],[3,4]],"n":12345678901234567890}`, ""},
		{"", `"bare <text>"`, "bare <text>", ""},
		{"", `null`, "null", ""},
		{"board.rows.1", `{"board":{"rows":["a","b"]}}`, "b", ""},
		{"board", `{"board":{"rows":["a<"]}}`, `{"rows":["a<"]}`, ""},
		{"bord", `{"board":1}`, "", `the observation has no "bord" (did you mean "board"?); there are board`},
		{"board.2", `{"board":[1]}`, "", `the observation has no "board.2": board is a list of 1`},
		{"board.x.y", `{"board":{"x":1}}`, "", `the observation has no "board.x.y": board.x is neither`},
		{"{{.a}} and {{json .b}}", `{"a":"1","b":["<"]}`, `1 and ["<"]`, ""},
		{"{{.c}}", `{"a":"1"}`, "", `map has no entry for key "c"`},
		{"", `{"result":{"content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}}`, "one\ntwo", ""},
	} {
		x, err := newTexter(c.text, "")
		require.NoError(t, err)
		got, err := x.observation(json.RawMessage(c.observation))
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, environments.Text(c.want), got)
	}
	x, err := newTexter("", "screen.png")
	require.NoError(t, err)
	got, err := x.observation(json.RawMessage(`{"text":"t","screen":{"png":"AAAA"}}`))
	require.NoError(t, err)
	require.Equal(t, environments.Observation{{Type: "text", Text: "t"}, {Type: "image", Image: "data:image/png;base64,AAAA"}}, got)

	number := json.RawMessage(`{"properties":{"metadata":{},"guess":{"type":"integer"}},"required":["guess"]}`)
	text := json.RawMessage(`{"properties":{"message":{"type":"string"}}}`)
	either := json.RawMessage(`{"properties":{"v":{"anyOf":[{"type":"integer"},{"type":"string"}]}}}`)
	two := json.RawMessage(`{"properties":{"x":{"type":"integer"},"y":{"type":"integer"}},"required":["x","y"]}`)
	for _, c := range []struct {
		action string
		schema json.RawMessage
		text   string
		want   string
		err    string
	}{
		{"", number, " 7\n", `{"guess":7}`, ""},
		{"", number, "seven", `{"guess":"seven"}`, ""},
		{"", text, "7", `{"message":"7"}`, ""},
		{"", either, "7", `{"v":"7"}`, ""},
		{"message", nil, "a <b>", `{"message":"a <b>"}`, ""},
		{`{"x": 1, "y": {{json .}}}`, two, `"`, `{"x": 1, "y": "\""}`, ""},
		{"x", two, "", "", `need the field "y" too`},
		{"", nil, "", "", "has no schema of its actions"},
		{"*", nil, "", "", "has no schema of its actions"},
	} {
		a, err := newActioner(config{Action: c.action}, c.schema)
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		data, err := a.write(c.text)
		require.NoError(t, err)
		require.Equal(t, c.want, string(data))
	}
	a, err := newActioner(config{}, two)
	require.NoError(t, err)
	require.JSONEq(t, string(two), string(a.schema))
}

// A server that tells what its reset takes gets nothing else; one that does not is warned of once.
func TestUnknownResetKeys(t *testing.T) {
	all := frames(t)
	schema := guessAction[:len(guessAction)-1] + `,"reset":{"type":"object","properties":{"low":{}},"additionalProperties":false}}`
	e := begin(t, client(t, map[string]any{"hosts": []any{replay(t, schema, all["step_after_done"])}}))
	_, err := e.Reset(t.Context(), start(5, map[string]any{"lwo": 1}))
	require.ErrorContains(t, err, `reset has no "lwo" (did you mean "low"?); it takes low`)
	require.ErrorAs(t, err, new(*environments.TaskError))
	at := start(5, map[string]any{"low": 1.0, "kind": "x", "answer": "y"})
	at.Job = []string{"low", "kind"}
	require.Equal(t, map[string]any{"low": 1.0}, e.(*environment).dataOf(at), "what the job reads is sent where the reset takes it")
	at.Task.Fields = map[string]any{"low": 1.0, "high": 2.0}
	require.Equal(t, map[string]any{"low": 1.0, "high": 2.0}, e.(*environment).dataOf(at), "what nobody else reads is sent, and refused")

	var warnings []string
	s, err := newSource(config{Hosts: []string{"a:1"}, MCP: "auto", Raised: "policy", TimeoutS: 1, MaxMessage: 1 << 20}, func(text string) { warnings = append(warnings, text) })
	require.NoError(t, err)
	require.NoError(t, s.checkReset(map[string]any{}))
	require.Empty(t, warnings)
	for range 3 {
		require.NoError(t, s.checkReset(map[string]any{"b": 1, "a": 1}))
	}
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "resets send a, b; an OpenEnv server drops what its reset does not take")
}

// Data of a reset that a server refuses are the task's fault; the session goes on. What its environment raised need not be.
func TestResetsThatServersRefuse(t *testing.T) {
	reset := frame{"c2s", `{"type":"reset","data":{}}`}
	e := begin(t, client(t, map[string]any{"hosts": []any{replay(t, guessAction, []frame{
		reset,
		{"s2c", `{"type":"error","data":{"message":"Invalid message","code":"VALIDATION_ERROR","errors":[{"type":"int","loc":["low"],"msg":"no integer","input":"x"}]}}`},
		reset,
		{"s2c", `{"type":"error","data":{"message":"boom","code":"EXECUTION_ERROR"}}`},
		reset,
		{"s2c", `{"type":"observation","data":{"observation":{"text":"hello"},"reward":null,"done":false}}`},
		{"c2s", `{"type":"close"}`},
	})}}))
	_, err := e.Reset(t.Context(), start(0, nil))
	require.ErrorAs(t, err, new(*environments.TaskError))
	require.ErrorContains(t, err, "VALIDATION_ERROR: low: no integer")
	_, err = e.Reset(t.Context(), start(0, nil))
	require.ErrorContains(t, err, "EXECUTION_ERROR: boom")
	require.False(t, errors.As(err, new(*environments.TaskError)))
	_, err = e.Reset(t.Context(), start(0, nil))
	require.NoError(t, err)
}

// What a server does wrong is an error that names it, and its session is of no more use.
func TestServersThatMisbehave(t *testing.T) {
	reset := frame{"c2s", `{"type":"reset","data":{}}`}
	for want, c := range map[string]struct {
		answer string
		params map[string]any
	}{
		"what is no JSON object":                 {answer: "<nothing>"[1:]},
		"a message without a type":               {answer: `{}`},
		`a message of the unknown type "x"`:      {answer: `{"type":"x"}`},
		`it answered "state" to "reset"`:         {answer: `{"type":"state","data":{}}`},
		"its observation cannot be read":         {answer: `{"type":"observation","data":[]}`},
		"the episode is over with its reset":     {answer: `{"type":"observation","data":{"observation":{},"done":true}}`},
		"more than 2048 bytes in one message":    {answer: `{"type":"` + strings.Repeat("x", 4096) + `"}`, params: map[string]any{"max_message": 2048}},
		"SESSION_ERROR: gone":                    {answer: `{"type":"error","data":{"message":"gone","code":"SESSION_ERROR"}}`},
		"an error without a code: 3":             {answer: `{"type":"error","data":{"message":3}}`},
		"EXECUTION_ERROR: [1 2]":                 {answer: `{"type":"error","data":{"message":[1,2],"code":"EXECUTION_ERROR"}}`},
		"closed the connection (1000)":           {},
		`text: the observation has no "a.b"`:     {answer: `{"type":"observation","data":{"observation":{"a":{}}}}`, params: map[string]any{"text": "a.b"}},
		"it did not answer \"reset\" within 50m": {answer: "wait", params: map[string]any{"timeout_s": 0.05}},
	} {
		t.Run(want, func(t *testing.T) {
			script := []frame{reset}
			switch c.answer {
			case "":
			case "wait":
				script = append(script, frame{"c2s", `{"type":"never"}`})
			default:
				script = append(script, frame{"s2c", c.answer}, frame{"c2s", `{"type":"close"}`})
			}
			params := map[string]any{"hosts": []any{replay(t, guessAction, script)}}
			for k, v := range c.params {
				params[k] = v
			}
			s := client(t, params)
			e := begin(t, s)
			_, err := e.Reset(t.Context(), start(0, nil))
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, s.(*source).hosts.all[0].url)
		})
	}
}

// A message that comes in between belongs to no request: the session ends, instead of taking it for the next answer.
func TestMessagesThatNobodyAskedFor(t *testing.T) {
	s := client(t, map[string]any{"hosts": []any{replay(t, guessAction, []frame{{"s2c", `{"type":"observation","data":{"observation":{"text":"stale"},"reward":1,"done":false}}`}, {"c2s", `{}`}})}})
	e := begin(t, s)
	eventually(t, "the link fails", func() bool { return e.(environments.Checker).Check(t.Context()) != nil })
	_, err := e.Reset(t.Context(), start(0, nil))
	require.ErrorContains(t, err, "it sent a message that nobody asked for")
}

// A server that dies without a word is found by a ping, also while nobody plays.
func TestPingOfASilentServer(t *testing.T) {
	held := make(chan struct{})
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer ws.CloseNow()
		_, _, _ = ws.Read(r.Context())
		_ = ws.Write(r.Context(), websocket.MessageText, []byte(`{"type":"state","data":{}}`))
		<-held // reads no more, so that no pong is sent
	}))
	defer h.Close()
	defer close(held)
	l, err := dial(t.Context(), h.URL+"/ws", dialOptions{client: http.DefaultClient, maxMessage: 1024, ping: 10 * time.Millisecond, timeout: 50 * time.Millisecond})
	require.NoError(t, err)
	defer l.close()
	eventually(t, "the ping fails", func() bool { return l.failed() != nil })
	require.EqualError(t, l.failed(), "it did not answer a ping within 50ms")
}

// Tasks of a server are ours: their fields are data of a reset.
func TestTasks(t *testing.T) {
	_, url := serve(t, &worlds{}, ServerOptions{Name: "guess"})
	s := client(t, map[string]any{"hosts": []any{url}}).(environments.Tasker)
	all, err := s.Tasks(environments.Eval, 3)
	require.NoError(t, err)
	want, err := (&worlds{}).Tasks("eval", 3)
	require.NoError(t, err)
	require.Equal(t, want, all)
	_, err = s.Tasks(environments.Train, 51)
	require.ErrorContains(t, err, "there are 50 tasks, not 51")
	_, err = client(t, map[string]any{"hosts": []any{replay(t, guessAction)}}).(environments.Tasker).Tasks(environments.Train, 1)
	require.ErrorContains(t, err, "it lists no tasks; give the job a data file")
}

// No frame makes the client panic, and what it cannot use is an error.
func FuzzReply(f *testing.F) {
	for _, all := range frames(f) {
		for _, fr := range all {
			f.Add(fr.Raw)
		}
	}
	f.Add(`{"type":"observation","data":{"observation":{"result":{"content":[1,{"text":2}]}},"reward":1e400}}`)
	src, err := newSource(config{Hosts: []string{"a:1"}, MCP: "auto", Raised: "policy", TimeoutS: 1, MaxMessage: 1 << 20}, nil)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, raw string) {
		m, err := parseReply([]byte(raw))
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		if m.Type != "observation" {
			return
		}
		var o observed
		if json.Unmarshal(m.Data, &o) != nil {
			return
		}
		for _, tools := range []map[string]string{nil, {"a": "a"}} {
			src.tools = tools
			if r, err := src.result(o); err == nil {
				_, err := json.Marshal(r)
				require.NoError(t, err)
			}
		}
	})
}
