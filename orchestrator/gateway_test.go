package orchestrator

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/orchestrator/external"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// refusedGateway is why a folder may not be a gateway's.
func refusedGateway(t *testing.T, dir string) error {
	t.Helper()
	j, err := job.Parse("", []byte("version: 1\nname: x\nmodel: {path: m}\nagent: {kind: external, online: true, key: k}\nrollout: {timeout: 100}\nrewards: [posted]\ndata: {train: t.jsonl}\n"), job.Options{})
	require.NoError(t, err)
	r := Registries{Tools: tools.NewCatalog(), Agents: agents.NewRegistry(), Rewards: rewards.Prebuilt(), Algorithms: algorithms.NewRegistry()}
	return Gateway(t.Context(), j, "", dir, r, func(string) {}, func(*trajectory.Trajectory) {}, func(note string) { t.Error(note) })
}

// A gateway and a run, or two gateways, number the records of one store as if each were alone: the second one is refused.
func TestAGatewayHasItsFolderForItself(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kept")
	f := runfolder.New(dir, false)
	require.NoError(t, f.Open(&job.Job{}, func(string) {}))
	err := refusedGateway(t, dir)
	require.EqualError(t, err, "orchestrator: another process trains in "+dir+" or serves a gateway there; wait until it has ended, or give another folder with --output")
	require.NoError(t, f.Close())
}

// What agents of a gateway do is no part of a run: it would join what the run trained on, and count in its curves.
func TestAGatewayBeginsInNoRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	f := runfolder.New(dir, false)
	require.NoError(t, f.Open(&job.Job{}, func(string) {}))
	require.NoError(t, f.Close())
	require.EqualError(t, refusedGateway(t, dir), dir+" is the folder of a run or of a job (it has a job.yaml); give the gateway another one with --output")
	require.NoFileExists(t, filepath.Join(dir, "gateway.key"))
}

// aDesk is a gateway alone over a scripted engine, as Gateway runs it, on a folder; kill ends it as a kill does, where stored trajectories are concerned.
func aDesk(t *testing.T, dir string) (post func(path, key, body string) (status int, text string), kill func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := rollouttest.New(t, func(engines.Request) (engines.Completion, error) { return rollouttest.Say("said") })
	gate, err := gateway.New(gateway.Options{
		Engine: r.Engine, Renderer: rollouttest.Renderer(t, rollouttest.ChatML), Decode: rollouttest.Decode, Model: "policy", MaxTotal: r.MaxTotal, Sampling: r.Sampling,
		Format: func(specs []tools.Spec) (agents.Format, error) {
			return agents.NewFormat("hermes", specs, agents.FormatOptions{})
		},
	})
	require.NoError(t, err)
	gate.Recover()
	online := &external.Online{Key: "begin", Expects: gate.Expects}
	db, err := store.OpenGateway(filepath.Join(dir, store.File))
	require.NoError(t, err)
	r.External = &rollout.External{Gateway: gate, Runner: online, Secret: []byte("secret"), Adopt: true, Forget: db.Restart}
	r.Record, r.Reward = db.AddTurn, nil
	log, err := db.Recover(ctx, 0)
	require.NoError(t, err)
	ended := make(chan string, 9)
	d := newDesk(r, db, func(t *trajectory.Trajectory) { ended <- t.ID })
	r.Recovered = d.recovered
	online.Begin = func(_ context.Context, task trajectory.Task) (string, error) { return d.begin(ctx, task) }
	d.resume(ctx, log)
	routes := online.Routes()
	post = func(path, key, body string) (int, string) {
		q := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		q.Header.Set("Authorization", "Bearer "+key)
		w := httptest.NewRecorder()
		if route := routes[path]; route != nil {
			route(w, q)
		} else {
			gate.ServeHTTP(w, q)
		}
		if path == "/agentfly/result" && w.Code == http.StatusOK {
			select {
			case <-ended:
			case <-time.After(100 * time.Millisecond): // it was over already
			}
		}
		return w.Code, w.Body.String()
	}
	return post, func() {
		cancel()
		d.running.Wait()
		require.NoError(t, d.failed)
		gate.Close()
		require.NoError(t, db.Close())
	}
}

// An agent that did not read that its result is stored posts it again, also where the gateway began anew since; another result is refused.
func TestAResultOfBeforeTheGatewayBeganAnew(t *testing.T) {
	dir := t.TempDir()
	post, kill := aDesk(t, dir)
	status, text := post("/agentfly/sessions", "begin", `{}`)
	require.Equal(t, http.StatusOK, status, text)
	var own external.Assignment
	require.NoError(t, json.Unmarshal([]byte(text), &own))
	status, text = post("/v1/chat/completions", own.Key, `{"messages":[{"role":"user","content":"x"}]}`)
	require.Equal(t, http.StatusOK, status, text)
	for range 3 {
		status, text = post("/agentfly/result", own.Key, `{"answer":"so"}`)
		require.Equal(t, http.StatusOK, status, text)
		kill()
		post, kill = aDesk(t, dir)
	}
	status, text = post("/agentfly/result", own.Key, `{"answer":"no"}`)
	require.Equal(t, http.StatusConflict, status, text)
	kill()
}

// A gateway keeps one task of an id, by whose fields a session is judged that goes on after a restart: a task with the id of another one is refused.
func TestTasksWithOneID(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		post, kill := aDesk(t, dir)
		for _, body := range []string{
			`{"task":{"id":"0","prompt":[{"role":"user","content":"2+2?"}],"fields":{"answer":4,"of":{"b":[1.5],"a":"<"}}}}`,
			`{"task":{"id":"1","prompt":[{"role":"user","content":"2+2?"}],"fields":{"answer":4}}}`,
			`{}`,
		} {
			for range 2 {
				status, text := post("/agentfly/sessions", "begin", body)
				require.Equal(t, http.StatusOK, status, text)
			}
		}
		for _, body := range []string{
			`{"task":{"id":"1","prompt":[{"role":"user","content":"2+3?"}],"fields":{"answer":4}}}`,
			`{"task":{"id":"1","prompt":[{"role":"user","content":"2+2?"}],"fields":{"answer":5}}}`,
		} {
			status, text := post("/agentfly/sessions", "begin", body)
			require.Equal(t, http.StatusConflict, status, text)
			require.Contains(t, text, `is known with another prompt or other fields; give each task an id of its own, or none`)
		}
		kill()
	}
}

// An agent may call a task of its own as the gateway calls those without an id: these get the next names that are free.
func TestATaskWithTheNameOfALaterOne(t *testing.T) {
	post, kill := aDesk(t, t.TempDir())
	defer kill()
	for _, body := range []string{
		`{}`, `{"task":{"id":"gateway-0-2-0","prompt":[{"role":"user","content":"2+2?"}]}}`, `{}`, `{}`,
	} {
		status, text := post("/agentfly/sessions", "begin", body)
		require.Equal(t, http.StatusOK, status, text)
	}
}
