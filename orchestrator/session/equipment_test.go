package session

import (
	"context"
	"encoding/json"
	"errors"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

type argument struct {
	X string `json:"x"`
}

func TestThePlaceOfAPanicIsNoted(t *testing.T) {
	var got string
	r := tools.NewRegistry(tools.Options{Report: func(_ string, err error, trace []byte) { got = panicked(err, trace) }})
	require.NoError(t, r.Register(tools.NewFunc("boom", "", func(context.Context, struct{}) (string, error) {
		var m map[string]int
		//lint:ignore SA5000 the tool is to panic
		m["x"] = 1
		return "", nil
	})))
	r.Invoke(t.Context(), "x", trajectory.ToolCall{Name: "boom"})
	require.Regexp(t, `^tools: boom: panic: assignment to entry in nil map, at .*equipment_test.go:\d+; further ones are counted in tools/broken$`, got)
	require.Equal(t, "x", panicked(errors.New("x"), debug.Stack()), "a stack without a panic")
}

// A tool that ignores its context is named at the end of the run.
func TestWhatIsStillRunningIsNamed(t *testing.T) {
	let := make(chan struct{})
	r := rollouttest.New(t, nil, rollouttest.Stuck(let))
	require.Empty(t, leftOver(nil))
	require.Empty(t, leftOver(r.Tools))
	for range 2 {
		r.Tools.Invoke(t.Context(), "x", trajectory.ToolCall{Name: "stuck", Arguments: json.RawMessage(`{"text": "x"}`)})
	}
	require.Equal(t, "calls are still running that ignored their deadline (stuck: 2); these tools must honour ctx", leftOver(r.Tools))
	close(let)
	require.Eventually(t, func() bool { return leftOver(r.Tools) == "" }, 10*time.Second, time.Millisecond)
}

// The job's settings reach the registry, and its mistakes are told with their place.
func TestToolsOfAJob(t *testing.T) {
	catalog := tools.NewCatalog()
	shout := tools.NewFunc("shout", "Shouts.", func(_ context.Context, a argument) (string, error) { return strings.Repeat(a.X, 100), nil },
		func(s *tools.Spec) { s.Deterministic = true })
	require.NoError(t, catalog.Register(shout, tools.NewFunc("whisper", "", func(context.Context, argument) (string, error) { return "", nil })))
	require.NoError(t, catalog.Add("many", "", func(_ context.Context, _ *resources.Resources, params map[string]any) ([]tools.Tool, error) {
		var p struct {
			Names []string `json:"names"`
		}
		if err := resources.Decode(params, &p); err != nil {
			return nil, err
		}
		var out []tools.Tool
		for _, name := range p.Names {
			out = append(out, tools.NewFunc(name, "", func(context.Context, argument) (string, error) { return name, nil }))
		}
		return out, nil
	}))
	open := func(entries string) (*tools.Registry, error) {
		j, err := job.Parse("job.yaml", []byte("version: 1\nname: x\nmodel: {path: m}\nrewards: [final_answer]\nrollout: {tool_timeout: 3, tool_tokens: 20}\nagent: {tools: ["+entries+"]}"), job.Options{})
		require.NoError(t, err)
		shared := newResources(j, nil, nil, false)
		defer shared.Close()
		r, _, err := toolMaker{job: j, catalog: catalog, resources: shared}.all(t.Context(), tools.Options{Tokenizer: rollouttest.Letters{}})
		return r, err
	}
	r, err := open("shout, {name: many, names: [a, b], timeout: 1, concurrency: 2}")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "shout"}, r.Names())
	require.Equal(t, tools.Limits{Timeout: time.Second, MaxTokens: 20, Concurrency: 2}, r.Specs()[0].Limits)
	require.Equal(t, tools.Limits{Timeout: 3 * time.Second, MaxTokens: 20}, r.Specs()[2].Limits)
	got := r.Invoke(t.Context(), "x", trajectory.ToolCall{Name: "shout", Arguments: json.RawMessage(`{"x": "ha"}`)}).Observation
	require.LessOrEqual(t, len(rollouttest.Letters{}.Encode(got)), 20)

	for entries, want := range map[string]string{
		"{name: whisper, cache: true}":        "job.yaml:6:40: agent.tools.0.cache: the tool does not say that it is deterministic, so nothing can be kept; leave it out",
		"{name: whisper, retries: 1}":         "job.yaml:6:42: agent.tools.0.retries: the tool does not say that it is idempotent, so no call can be tried again; leave it out",
		"{name: many, nmes: [a]}":             `job.yaml:6:36: agent.tools.0.nmes: many: the parameters cannot be read: unknown field "nmes"; allowed: names; nearest: names`,
		"shout, {name: many, names: [shout]}": `job.yaml:6:24: agent.tools.1: register "shout": the name is already registered; give one of the two another name`,
		"{name: shoot}":                       `job.yaml:6:17: agent.tools.0: there is no tool "shoot" (did you mean "shout"?); the tools are many, shout, whisper`,
	} {
		_, err := open(entries)
		require.EqualError(t, err, want)
	}
	for environment, want := range map[string]string{
		"":                             "job.yaml:6:17: agent.tools.0: the tool walk acts in an environment of kind \"corridor\", and the job has none; write environment: {kind: corridor}",
		"environment: {kind: sokoban}": "job.yaml:6:17: agent.tools.0: the tool walk acts in an environment of kind \"corridor\", and the job's is of kind \"sokoban\"; name that one in the decorator, or leave the tool out",
	} {
		j, err := job.Parse("job.yaml", []byte("version: 1\nname: x\nmodel: {path: m}\nrewards: [final_answer]\n"+environment+"\nagent: {tools: [walk]}"), job.Options{})
		require.NoError(t, err)
		shared := newResources(j, nil, nil, false)
		walk := tools.NewCatalog()
		require.NoError(t, walk.Register(tools.NewFunc("walk", "", func(context.Context, argument) (string, error) { return "", nil }, func(s *tools.Spec) { s.Environment = "corridor" })))
		_, _, err = toolMaker{job: j, catalog: walk, resources: shared}.all(t.Context(), tools.Options{Tokenizer: rollouttest.Letters{}})
		require.EqualError(t, err, want)
		require.NoError(t, shared.Close())
	}
	_, err = open("{name: shout, cache: true}")
	require.NoError(t, err)
}

// OpenAI takes a message of role tool only behind a call in its own form, and calls are text here: unless the job names a role, results are the user's.
func TestTheRoleOfResults(t *testing.T) {
	const local, endpoint = "{kind: local}", "{kind: openai, urls: [http://127.0.0.1:1/v1], served_model: m}"
	for _, c := range []struct{ engine, format, named, want string }{
		{local, "hermes", "", "tool"},
		{local, "hermes", "user", "user"},
		{endpoint, "hermes", "", "user"},
		{endpoint, "llama3_json", "", "user"},
		{endpoint, "qwen3_coder", "", "user"},
		{endpoint, "tags", "", "user"},
		{endpoint, "hermes", "tool", "tool"},
	} {
		text := "version: 1\nname: x\nmodel: {path: m}\nrewards: [final_answer]\nengine: " + c.engine + "\nagent: {format: " + c.format + ", observation_role: \"" + c.named + "\"}"
		j, err := job.Parse("job.yaml", []byte(text), job.Options{})
		require.NoError(t, err)
		a, err := makeAgent(t.Context(), j, agents.NewRegistry(), nil, "", nil)
		require.NoError(t, err)
		results, err := a.Format.Observe(t.Context(), []trajectory.ToolResult{{Observation: "4"}})
		require.NoError(t, err)
		require.Len(t, results, 1)
		require.Equal(t, c.want, results[0].Role, "%+v", c)
	}
}
