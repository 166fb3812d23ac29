package session

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
	httptool "github.com/agentfly/agentfly/tools/http"
	"github.com/agentfly/agentfly/tools/mcp"
)

// A job whose tools or environment cannot fork is refused by name before it runs.
func TestWhatCannotForkIsRefused(t *testing.T) {
	catalog := tools.NewCatalog()
	plain := func(context.Context, argument) (string, error) { return "", nil }
	require.NoError(t, catalog.Register(tools.NewFunc("ask", "", plain), tools.NewFunc("notes", "", plain, func(s *tools.Spec) { s.Stateful = true }), tools.NewFunc("desk", "", plain, func(s *tools.Spec) { s.Stateful = true }),
		tools.NewFunc("diary", "", plain, func(s *tools.Spec) { s.Stateful, s.Replays = true, true })))
	worlds := environments.NewRegistry()
	for name, same := range map[string]bool{"fair": true, "dice": false} {
		require.NoError(t, worlds.Add(environments.Kind{Name: name, New: func(context.Context, *resources.Resources, map[string]any) (environments.Source, error) {
			return environments.Simple(environments.Spec{Deterministic: same, InProcess: true}, func() environments.Environment { return nil }), nil
		}}))
	}
	equip := func(more string) error {
		j, err := job.Parse("job.yaml", []byte("version: 1\nname: x\nmodel: {path: m}\nrewards: [final_answer]\ndata: {train: t.jsonl}\nrollout: {tree: {rule: entropy}}\n"+more), job.Options{})
		require.NoError(t, err)
		s := New(j)
		err = s.Equip(t.Context(), Registries{Tools: catalog, Agents: agents.NewRegistry(), Rewards: rewards.Prebuilt(), Environments: worlds})
		require.NoError(t, s.Close())
		return err
	}
	require.NoError(t, equip("agent: {kind: tool_call, tools: [ask]}\n"))
	require.EqualError(t, equip("agent: {kind: tool_call, tools: [ask, notes, desk]}\n"),
		"job.yaml:6:17: rollout.tree: trajectories that fork need tools without state of their own, or that come to it again by the same calls, and these keep some: desk, notes; leave them or the tree out")
	require.NoError(t, equip("agent: {kind: tool_call, tools: [ask, diary]}\n"))
	require.NoError(t, equip("environment: {kind: fair}\n"))
	require.EqualError(t, equip("environment: {kind: dice}\n"),
		"job.yaml:6:17: rollout.tree: trajectories that fork need an environment that does the same again, and kind dice does not say that it does; use another one, or leave the tree out")
}

// The tools of a server may change what it keeps for all, unless the server says that they read only, or the job that no call depends on another one.
// Without trees nothing changes.
func TestToolsOfServersForkWhereTheyKeepNothing(t *testing.T) {
	server := sdk.NewServer(&sdk.Implementation{Name: "notes", Version: "1"}, nil)
	for name, hints := range map[string]*sdk.ToolAnnotations{"read": {ReadOnlyHint: true}, "put": {IdempotentHint: true}, "note": nil} {
		server.AddTool(&sdk.Tool{Name: name, Annotations: hints, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{}, nil
		})
	}
	service := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil))
	t.Cleanup(service.Close)
	catalog := tools.NewCatalog()
	catalog.AddSource("mcp", mcp.Source)
	catalog.AddSource("http", httptool.Source)
	equip := func(rollout, entry string) (s *Session, err error) {
		j, err := job.Parse("job.yaml", []byte("version: 1\nname: x\nmodel: {path: m}\nrewards: [final_answer]\ndata: {train: t.jsonl}\nrollout: {"+rollout+"}\nagent: {kind: tool_call, tools: ["+entry+"]}\n"), job.Options{})
		require.NoError(t, err)
		s = New(j)
		err = s.Equip(t.Context(), Registries{Tools: catalog, Agents: agents.NewRegistry(), Rewards: rewards.Prebuilt(), Environments: environments.NewRegistry()})
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s, err
	}
	of := "{mcp: {url: '" + service.URL + "'}"
	web := "{http: {url: '" + service.URL + "', name: ask"
	const writes = "job.yaml:6:17: rollout.tree: trajectories that fork share what a server keeps, and calls of these tools may change it, as their server does not say otherwise: %; write stateful: false beside mcp or http if no call depends on earlier ones, or leave them or the tree out"
	const keeps = "job.yaml:6:17: rollout.tree: trajectories that fork need tools without state of their own, or that come to it again by the same calls, and these keep some: %; leave them or the tree out"
	for _, c := range []struct{ entry, says, names string }{
		{of + "}", writes, "note, put"},
		{of + ", only: [read]}", "", ""},
		{of + ", only: [note], deterministic: true}", writes, "note"},
		{of + ", stateful: false}", "", ""},
		{of + ", stateful: true}", keeps, "note, put, read"},
		{of + ", stateful: true, deterministic: true}", "", ""},
		{of + ", stateful: true, deterministic: false}", keeps, "note, put, read"},
		{web + "}}", writes, "ask"},
		{web + ", method: DELETE}}", writes, "ask"},
		{web + ", idempotent: true}}", writes, "ask"},
		{web + ", method: GET}}", "", ""},
		{web + "}, stateful: false}", "", ""},
		{web + ", method: GET}, stateful: true}", keeps, "ask"},
	} {
		_, err := equip("tree: {rule: entropy}", c.entry)
		if c.says == "" {
			require.NoError(t, err, c.entry)
		} else {
			require.EqualError(t, err, strings.Replace(c.says, "%", c.names, 1), c.entry)
		}
		s, err := equip("group_size: 4", c.entry)
		require.NoError(t, err, "without a tree, %s", c.entry)
		require.Equal(t, strings.Contains(c.entry, "stateful: true"), s.Sampler.Tools.KeepsState(), c.entry)
	}
	_, err := equip("group_size: 4", of+", stateful: often}")
	require.ErrorContains(t, err, "the parameter stateful must be of type bool, got a string")
}

// A job whose engine does not tell what its trees read of a distribution is refused when the engine is known, before anything is sampled.
func TestWhatIsNotToldIsRefused(t *testing.T) {
	check := func(engine, tree string, vocabulary int, c engines.Capabilities) error {
		j, err := job.Parse("job.yaml", []byte("version: 1\nname: x\nmodel: {path: m}\nrewards: [final_answer]\ndata: {train: t.jsonl}\nengine: "+engine+"\nrollout: {tree: {"+tree+"}}\n"), job.Options{})
		require.NoError(t, err)
		return checkMeasured(j, rollout.TreesOf(j.Rollout, vocabulary), c)
	}
	const servers, mine = "{kind: vllm, urls: ['http://a:1']}", "{kind: mine}"
	ids := func(top int) engines.Capabilities { return engines.Capabilities{TokenIDs: true, Top: top} }
	require.NoError(t, check(servers, "rule: entropy", 1000, ids(20)))
	require.EqualError(t, check(servers, "rule: entropy, top: 50", 1000, ids(20)), "job.yaml:7:38: rollout.tree.top: 50: the vLLM server tells the 20 likeliest tokens at most; start it with --max-logprobs 51, or set top: 20")
	require.NoError(t, check(servers, "rule: entropy, top: 50", 21, ids(20)), "20 of 21 tokens tell all")
	require.EqualError(t, check(servers, "rule: entropy", 1000, ids(5)), "job.yaml:7:17: rollout.tree.top: 20: the vLLM server tells the 5 likeliest tokens at most; start it with --max-logprobs 21, or set top: 5")
	require.NoError(t, check(mine, "rule: entropy", 1000, ids(0)))
	require.EqualError(t, check(mine, "rule: entropy, top: 3", 1000, ids(0)), "job.yaml:7:38: rollout.tree.top: 3: the engine does not tell the likeliest tokens (no capability Top); set top: 0, which estimates entropies by what was sampled")
	require.EqualError(t, check(mine, "rule: entropy, top: 3", 1000, ids(2)), "job.yaml:7:38: rollout.tree.top: 3: the engine tells the 2 likeliest tokens at most (its capability Top); set top: 2")
	require.EqualError(t, check(mine, "rule: entropy", 1000, engines.Capabilities{}), "job.yaml:7:24: rollout.tree.rule: entropy reads logprobs of what was sampled, and the engine returns text alone (no capability TokenIDs); use step_random or another engine")
	require.NoError(t, check(mine, "rule: step_random, roots: 4", 1000, engines.Capabilities{}))
	require.NoError(t, checkMeasured(nil, nil, engines.Capabilities{}))
}
