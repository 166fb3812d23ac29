package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// quick are bounds for servers that fail. A start has the usual time, for a loaded machine.
var quick = bounds{start: usual.start, check: 5 * time.Second, grace: 2 * time.Second, backoff: time.Millisecond, most: 4 * time.Millisecond, patience: 5}

// opened is a running server whose warnings are kept.
type opened struct {
	*server
	mu     sync.Mutex
	warned []string
}

func (o *opened) warnings() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string{}, o.warned...)
}

func openTest(t *testing.T, c config, b bounds) *opened {
	t.Helper()
	o := new(opened)
	s, err := open(t.Context(), c, b, func(text string) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.warned = append(o.warned, text)
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	o.server = s
	return o
}

// registryOf registers the tools of a server.
func registryOf(t *testing.T, s *opened, o tools.Options) *tools.Registry {
	t.Helper()
	made, err := makeTools(s.config, tools.Declared{}, s.server, s.first)
	require.NoError(t, err)
	r := tools.NewRegistry(o)
	require.NoError(t, r.Register(made...))
	return r
}

func invoke(t *testing.T, r *tools.Registry, name, arguments string) trajectory.ToolResult {
	t.Helper()
	return r.Invoke(t.Context(), "t", trajectory.ToolCall{Name: name, Arguments: json.RawMessage(arguments)})
}

// ask is a call that must succeed.
func ask(t *testing.T, s *opened, name, arguments string) string {
	t.Helper()
	o, err := s.call(t.Context(), name, json.RawMessage(arguments))
	require.NoError(t, err)
	return o.Text
}

// in resolves paths as a job file in dir does.
func in(dir string) func(string) string {
	return func(path string) string {
		if filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(dir, path)
	}
}

func TestSchemasAreMended(t *testing.T) {
	for schema, want := range map[string]string{
		`{"properties":{"a":{"type":"string"}}}`: `{"type":"object","properties":{"a":{"type":"string"}}}`,
		`{}`:                                     `{"type":"object"}`,
		`null`:                                   `{"type":"object"}`,
		`{"type": "object", "properties": []}`:   `{"type":"object","properties":{}}`,
		`{"type":"object","properties":{"o":{"type":"object","properties":[]}}}`:   `{"type":"object","properties":{"o":{"type":"object","properties":{}}}}`,
		`{"type":"object","description":"with \"properties\":[]","properties":{}}`: `{"type":"object","description":"with \"properties\":[]","properties":{}}`,
	} {
		o, err := describe(&sdk.Tool{Name: "t", InputSchema: json.RawMessage(schema)})
		require.NoError(t, err, schema)
		require.JSONEq(t, want, string(o.Parameters))
		_, err = tools.ParseSchema(o.Parameters)
		require.NoError(t, err, schema)
	}
	_, err := describe(&sdk.Tool{Name: "t", InputSchema: json.RawMessage(`[]`)})
	require.EqualError(t, err, `tool "t": its schema is no JSON object`)
}

// What a server says of its tools is kept in a recording, too. A tool may write unless it says that it only reads: that it may be repeated says nothing of it.
func TestHintsOfTools(t *testing.T) {
	yes, no := true, false
	for name, c := range map[string]struct {
		hints    *sdk.ToolAnnotations
		declared tools.Declared
		want     tools.Spec
	}{
		"none":            {nil, tools.Declared{}, tools.Spec{Writes: true}},
		"reads":           {&sdk.ToolAnnotations{ReadOnlyHint: true}, tools.Declared{}, tools.Spec{Idempotent: true}},
		"idempotent":      {&sdk.ToolAnnotations{IdempotentHint: true}, tools.Declared{}, tools.Spec{Idempotent: true, Writes: true}},
		"the job: none":   {nil, tools.Declared{Stateful: &no}, tools.Spec{}},
		"the job: some":   {&sdk.ToolAnnotations{ReadOnlyHint: true}, tools.Declared{Stateful: &yes}, tools.Spec{Idempotent: true, Stateful: true}},
		"the job: replay": {nil, tools.Declared{Stateful: &yes, Deterministic: &yes}, tools.Spec{Stateful: true, Replays: true, Deterministic: true}},
		"the job: kept":   {&sdk.ToolAnnotations{ReadOnlyHint: true}, tools.Declared{Deterministic: &yes}, tools.Spec{Idempotent: true, Deterministic: true}},
	} {
		o, err := describe(&sdk.Tool{Name: "t", InputSchema: json.RawMessage(`{"type":"object"}`), Annotations: c.hints})
		require.NoError(t, err)
		text, err := json.Marshal(o)
		require.NoError(t, err)
		o = offer{}
		require.NoError(t, json.Unmarshal(text, &o))
		made, err := makeTools(config{}, c.declared, nil, []offer{o})
		require.NoError(t, err)
		c.want.Name, c.want.Parameters = "t", json.RawMessage(`{"type":"object"}`)
		require.Equal(t, c.want, made[0].Spec(), name)
	}
}

func TestServerOverStdio(t *testing.T) {
	t.Setenv("SECRET_OF_THE_HOST", "s3cret")
	dir := t.TempDir()
	shared := resources.New(resources.Options{Resolve: in(dir)})
	made, err := Source(t.Context(), shared, map[string]any{"mcp": map[string]any{
		"command": []any{os.Args[0]}, "env": map[string]any{"MCP_TEST_SERVER": "tools", "GIVEN": "value"}, "prefix": "my_",
	}})
	require.NoError(t, err)
	r := tools.NewRegistry(tools.Options{})
	require.NoError(t, r.Register(made...))
	require.Equal(t, []string{
		"my_add", "my_big", "my_change", "my_crash", "my_cwd", "my_deny", "my_dotted_name", "my_env", "my_fail", "my_freeze", "my_gate", "my_hang", "my_internal",
		"my_noise", "my_parts", "my_pid", "my_refuse", "my_spawn", "my_structured", "my_waiting",
	}, r.Names())
	add := r.Specs()[0]
	require.Equal(t, "Tool add.", add.Description)
	require.JSONEq(t, `{"type":"object","properties":{"b":{"type":"integer","description":"second"},"a":{"type":"integer"}},"required":["b","a"]}`, string(add.Parameters))

	got := invoke(t, r, "my_add", `{"a": 2, "b": 40}`)
	require.Equal(t, "42", got.Observation)
	require.False(t, got.Failed)
	got = invoke(t, r, "my_add", `{"a": 2}`)
	require.True(t, got.Failed)
	require.Contains(t, got.Observation, `the argument "b" is missing`)
	require.Equal(t, "", invoke(t, r, "my_env", `{"text": "SECRET_OF_THE_HOST"}`).Observation)
	require.Equal(t, "value", invoke(t, r, "my_env", `{"text": "GIVEN"}`).Observation)
	real, err := filepath.EvalSymlinks(dir)
	require.NoError(t, err)
	require.Equal(t, real, invoke(t, r, "my_cwd", `{}`).Observation)
	require.Equal(t, "dotted", invoke(t, r, "my_dotted_name", ``).Observation)

	for name, want := range map[string]struct {
		text   string
		broken bool
	}{
		"my_fail":     {"Error: the city is unknown", false},
		"my_refuse":   {"Error: n must be even", false},
		"my_internal": {"Error: the server of this tool failed: the disk is full", true},
	} {
		got := invoke(t, r, name, `{}`)
		require.Equal(t, want.text, got.Observation)
		require.True(t, got.Failed)
		require.Equal(t, want.broken, got.Cause == trajectory.CauseBroken, name)
	}
	require.NoError(t, shared.Close())
	got = invoke(t, r, "my_add", `{"a": 2, "b": 40}`)
	require.Equal(t, "Error: the server of this tool was closed", got.Observation)
	require.Equal(t, trajectory.CauseBroken, got.Cause)
}

// structuredObservation is that of the tool structured: the digits are the server's, and no character is escaped for a web page.
var structuredObservation = tools.Observation{
	Text: `{"id":1234567890123456789,"tag":"<a&b>"}`, Info: map[string]any{"id": json.Number("1234567890123456789"), "tag": "<a&b>"},
}

func TestResults(t *testing.T) {
	s := openTest(t, command("tools"), usual)
	o, err := s.call(t.Context(), "add", json.RawMessage(`{"a":1,"b":2}`))
	require.NoError(t, err)
	require.Equal(t, tools.Observation{Text: "3", Info: map[string]any{"sum": json.Number("3")}}, o)
	o, err = s.call(t.Context(), "structured", nil)
	require.NoError(t, err)
	require.Equal(t, structuredObservation, o)
	o, err = s.call(t.Context(), "parts", nil)
	require.NoError(t, err)
	require.Equal(t, "one\na: file:///a first\ntwo\n[file:///c: 2 bytes left out]\n[1 more images left out]\n[sound left out]", o.Text)
	require.Equal(t, "data:image/png;base64,AQID", o.Image)
	for range 3 {
		require.Equal(t, "quiet", ask(t, s, "noise", ""), "a line that is no message does not end the connection")
	}
	require.Empty(t, s.warnings())
	require.Len(t, ask(t, s, "big", `{"n": 1000000}`), 1000000)
}

func TestGarbageBeforeTheFirstMessage(t *testing.T) {
	s := openTest(t, command("banner"), quick)
	require.Equal(t, "3", ask(t, s, "add", `{"a":1,"b":2}`))
}

func TestNames(t *testing.T) {
	long := strings.Repeat("n", 100)
	made, err := makeTools(config{Prefix: "my_"}, tools.Declared{}, nil, []offer{{Name: "get weather!"}, {Name: "web/search.v2"}, {Name: "größe"}, {Name: long}})
	require.NoError(t, err)
	var names, theirs []string
	for _, m := range made {
		names, theirs = append(names, m.Spec().Name), append(theirs, m.(*tool).name)
	}
	require.Equal(t, []string{"my_get_weather_", "my_web_search_v2", "my_gr__e", "my_" + long[:61]}, names)
	require.Equal(t, []string{"get weather!", "web/search.v2", "größe", long}, theirs, "the server is asked by its own name")
}

// A crash fails what the server was carrying out, and nothing else.
func TestCrashInMidCall(t *testing.T) {
	s := openTest(t, command("tools"), quick)
	before := ask(t, s, "pid", "")
	var wg sync.WaitGroup
	errs := make([]error, 20)
	for i := range errs {
		wg.Go(func() { _, errs[i] = s.call(t.Context(), "gate", json.RawMessage(`{"n": 1000}`)) })
	}
	require.Eventually(t, func() bool { return ask(t, s, "waiting", "") == "20" }, 20*time.Second, time.Millisecond)
	_, err := s.call(t.Context(), "crash", nil)
	wg.Wait()
	for _, err := range append(errs, err) {
		var broken *tools.BrokenError
		require.ErrorAs(t, err, &broken)
		require.EqualError(t, err, "the server of this tool broke off during the call; try it again")
	}
	after := ask(t, s, "pid", "")
	require.NotEqual(t, before, after)
	require.Len(t, s.warnings(), 1)
	require.Contains(t, s.warnings()[0], "the server ended with exit status 3; it said: boom; it is started again")
	require.NotContains(t, running(t), before)
}

// Calls that come while the server is started again wait for it.
func TestCallsWaitForTheRestart(t *testing.T) {
	s := openTest(t, command("tools"), quick)
	for range 20 { // each start has answered a call: it is never given up
		_, err := s.call(t.Context(), "crash", nil)
		require.Error(t, err)
		require.Equal(t, "3", ask(t, s, "add", `{"a":1,"b":2}`))
	}
}

func TestAServerThatAlwaysEndsIsDown(t *testing.T) {
	b := quick
	s := openTest(t, command("tools"), b)
	var broken *tools.BrokenError
	for range b.patience {
		_, err := s.call(t.Context(), "crash", nil)
		require.ErrorAs(t, err, &broken)
	}
	require.Eventually(t, func() bool { return len(s.warnings()) == 2 }, 20*time.Second, time.Millisecond)
	require.Contains(t, s.warnings()[1], "its tools fail until it starts again")
}

func TestHangIsTheCallsAlone(t *testing.T) {
	s := openTest(t, command("tools"), quick)
	r := registryOf(t, s, tools.Options{Timeout: 300 * time.Millisecond})
	before := ask(t, s, "pid", "")
	got := invoke(t, r, "hang", `{}`)
	require.Equal(t, trajectory.CauseBroken, got.Cause)
	require.Equal(t, "Error: hang took longer than 300ms; ask it for less work", got.Observation)
	require.Equal(t, before, ask(t, s, "pid", ""), "it answers other calls: it is not ended")
}

func TestAFrozenServerIsStartedAgain(t *testing.T) {
	s := openTest(t, command("tools"), quick)
	r := registryOf(t, s, tools.Options{Timeout: 300 * time.Millisecond})
	before := ask(t, s, "pid", "")
	require.Equal(t, trajectory.CauseBroken, invoke(t, r, "freeze", `{}`).Cause)
	require.Eventually(t, func() bool { return !alive(before) }, 20*time.Second, time.Millisecond)
	require.NotEqual(t, before, ask(t, s, "pid", ""))
}

func TestListChanged(t *testing.T) {
	s := openTest(t, command("tools"), quick)
	require.Equal(t, "3", ask(t, s, "add", `{"a":1,"b":2}`))
	require.Equal(t, "changed", ask(t, s, "change", ""))
	requireNoAdd(t, s)
	require.Equal(t, "quiet", ask(t, s, "noise", ""))
}

// A change that comes before the server has begun to tell changes is seen, too.
func TestListChangedBeforeTheSubscription(t *testing.T) {
	s := openTest(t, command("late"), quick)
	requireNoAdd(t, s)
}

// requireNoAdd waits until it is known that the server no longer offers add.
func requireNoAdd(t *testing.T, s *opened) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := s.call(t.Context(), "add", json.RawMessage(`{"a":1,"b":2}`))
		return err != nil && err.Error() == "its server no longer offers this tool; use another one"
	}, 20*time.Second, time.Millisecond)
}

func TestManyCallsAtOnce(t *testing.T) {
	s := openTest(t, command("tools"), usual)
	r := registryOf(t, s, tools.Options{Timeout: time.Minute})
	var wg sync.WaitGroup
	for i := range 200 { // none returns before all are there
		wg.Go(func() {
			got := invoke(t, r, "gate", `{"n": 200}`)
			require.Equal(t, "open", got.Observation)
			got = invoke(t, r, "add", fmt.Sprintf(`{"a": %d, "b": 1}`, i))
			require.Equal(t, strconv.Itoa(i+1), got.Observation)
		})
	}
	wg.Wait()
	require.Zero(t, r.Abandoned())
}

func TestAMessageThatIsTooLarge(t *testing.T) {
	s := openTest(t, command("tools"), quick)
	_, err := s.call(t.Context(), "big", json.RawMessage(`{"n": 17000000}`))
	var broken *tools.BrokenError
	require.ErrorAs(t, err, &broken)
	require.Equal(t, "3", ask(t, s, "add", `{"a":1,"b":2}`))
}

func TestNothingIsLeft(t *testing.T) {
	_, err := exec.Command("true").Output() // the runtime opens its own files for the first pipe
	require.NoError(t, err)
	descriptors := openFiles(t)
	for _, crash := range []bool{false, true} {
		s, err := open(t.Context(), command("tools"), quick, func(string) {})
		require.NoError(t, err)
		o, err := s.call(t.Context(), "pid", nil)
		require.NoError(t, err)
		children, err := s.call(t.Context(), "spawn", nil)
		require.NoError(t, err)
		pids := append(strings.Fields(children.Text), o.Text)
		require.Len(t, pids, 3)
		if crash {
			_, err = s.call(t.Context(), "crash", nil)
			require.Error(t, err)
			_, err = s.call(t.Context(), "pid", nil)
			require.NoError(t, err)
			requireGone(t, pids) // of the last start
		}
		require.NoError(t, s.Close())
		requireGone(t, pids)
	}
	require.Eventually(t, func() bool { return openFiles(t) == descriptors }, 5*time.Second, time.Millisecond) // pipes end with the last that holds them
}

// requireGone waits for processes that were killed: the system ends those that are no children of ours when it comes to it.
func requireGone(t *testing.T, pids []string) {
	t.Helper()
	require.Eventually(t, func() bool { return !slices.ContainsFunc(pids, alive) }, 5*time.Second, time.Millisecond)
}

// alive tells whether a process runs; one that only waits to be reaped does not.
func alive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func running(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	var out []string
	for _, dir := range dirs {
		if pid := filepath.Base(dir); alive(pid) {
			out = append(out, pid)
		}
	}
	return out
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

func TestStartErrors(t *testing.T) {
	b := quick
	b.start = 3 * time.Second
	for name, c := range map[string]struct {
		config config
		want   string
	}{
		"it ends":         {command("exit"), os.Args[0] + ": the server ended with exit status 7 before it said what it offers; it said: reading the settings | no licence was found"},
		"it is silent":    {command("silent"), os.Args[0] + ": the server did not say what it offers within 3s; it said: loading"},
		"it cannot start": {config{Command: []string{"/dev/null"}}, "/dev/null cannot be started: permission denied"},
		"no folder":       {config{Command: []string{os.Args[0]}, Dir: "/nonexistent"}, os.Args[0] + " cannot be started: no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			b := b
			if name == "it ends" {
				b.start = quick.start
			}
			_, err := open(t.Context(), c.config, b, nil)
			require.EqualError(t, err, strings.ReplaceAll(c.want, os.Args[0], wording.Clip(os.Args[0], 100)))
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := open(ctx, command("tools"), quick, nil)
	require.ErrorIs(t, err, context.Canceled)
	shared := resources.New(resources.Options{})
	_, err = Source(t.Context(), shared, map[string]any{"mcp": map[string]any{"command": []any{os.Args[0]}, "env": map[string]any{"MCP_TEST_SERVER": "none"}}})
	require.ErrorContains(t, err, "the server offers no tools")
	require.NoError(t, shared.Close())
}

// A server's program beside the job file is found there by ./NAME, from the job's own folder too: it is no name on PATH.
func TestTheProgramBesideTheJob(t *testing.T) {
	folder := t.TempDir()
	t.Chdir(folder)
	require.NoError(t, os.WriteFile("server", []byte("#!/bin/sh\n"), 0o755))
	r := resources.New(resources.Options{Resolve: func(path string) string { return filepath.Join(".", path) }})
	program, err := find(r, "./server")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(folder, "server"), program)
}

func TestConfig(t *testing.T) {
	for want, params := range map[string]map[string]any{
		"give exactly one of command: [PROGRAM, ARGUMENT, …], url: URL and replay: FILE": {"command": []any{"a"}, "url": "http://a"},
		"env and dir belong to command": {"url": "http://a", "dir": "b"},
		"headers belong to url":         {"command": []any{"a"}, "headers": map[string]any{"a": "b"}},
		"record belongs to command or url: a replay has no server to record":         {"replay": "a", "record": "b"},
		`prefix "a.": allowed are letters, digits, _ and -`:                          {"url": "http://a", "prefix": "a."},
		`env: "a=b" is no name of a variable`:                                        {"command": []any{"a"}, "env": map[string]any{"a=b": "c"}},
		"url: allowed is http://HOST/PATH or https://HOST/PATH":                      {"url": "ftp://a"},
		`the program "no-such-program" is not on PATH; install it, or give its path`: {"command": []any{"no-such-program"}},
		`the program "./no-such-program" cannot be run: no such file or directory`:   {"command": []any{"./no-such-program"}},
		`the parameter mcp.command must be of type []string, got a string`:           {"command": "a"},
		`the parameters cannot be read: unknown field "comand"`:                      {"comand": []any{"a"}},
		"command: the program's name is empty":                                       {"command": []any{""}},
		"replay: none.jsonl: no such file":                                           nil,
	} {
		if params == nil {
			continue
		}
		_, err := Source(t.Context(), resources.New(resources.Options{}), map[string]any{"mcp": params})
		require.EqualError(t, err, want)
	}
	_, err := makeTools(config{URL: "http://u:p@host/a?key=s"}, tools.Declared{}, nil, []offer{{Name: "a.b"}, {Name: "a_b"}})
	require.EqualError(t, err, `http://host/a: its tools "a.b" and "a_b" would both be called a_b; a name has 1 to 64 letters, digits, _ or -`)
}
