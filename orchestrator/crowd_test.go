package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/orchestrator/external"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// The variables by which the test tells a process of its own to be the gateway, and how large the crowd is.
const (
	crowdFolder   = "AGENTFLY_CROWD_FOLDER"
	crowdAddress  = "AGENTFLY_CROWD_ADDRESS"
	crowdDeadline = "AGENTFLY_CROWD_DEADLINE"
	crowdSize     = "AGENTFLY_CROWD" // sessions at once; 60 without
)

const (
	crowdKey   = "crowd"
	crowdTurns = 4
)

// crowdServer is the gateway's process: a gateway alone over a scripted engine, as Gateway runs it.
func crowdServer(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	deadline, err := time.ParseDuration(os.Getenv(crowdDeadline))
	require.NoError(t, err)
	var sampled atomic.Int64
	r := rollouttest.New(t, func(q engines.Request) (engines.Completion, error) {
		time.Sleep(time.Duration(q.Seed%40) * time.Millisecond)
		return rollouttest.Say(fmt.Sprintf("said %d by %d", sampled.Add(1), os.Getpid())) // no two replies are the same
	})
	r.MaxTotal, r.MaxTurns, r.Deadline = 4000, 3*crowdTurns, deadline
	renderer := rollouttest.Renderer(t, rollouttest.ChatML)
	gate, err := gateway.New(gateway.Options{
		Engine: r.Engine, Renderer: renderer, Decode: rollouttest.Decode, Model: "policy", MaxTotal: r.MaxTotal, Sampling: r.Sampling, Ping: 50 * time.Millisecond,
		Format: func(specs []tools.Spec) (agents.Format, error) {
			return agents.NewFormat("hermes", specs, agents.FormatOptions{})
		},
	})
	require.NoError(t, err)
	gate.Recover()
	online := &external.Online{Key: crowdKey, Expects: gate.Expects}
	db, err := store.Open(filepath.Join(os.Getenv(crowdFolder), store.File))
	require.NoError(t, err)
	r.External = &rollout.External{Gateway: gate, Runner: online, Secret: []byte("crowd"), Adopt: true, Forget: db.Restart}
	r.Frozen = func(trajectory.Role) bool { return false }
	r.Record, r.Reward = db.AddTurn, nil
	log, err := db.Recover(ctx, 0)
	require.NoError(t, err)
	var ended atomic.Int64
	d := newDesk(r, db, func(*trajectory.Trajectory) { ended.Add(1) })
	r.Recovered = d.recovered
	online.Begin = func(_ context.Context, task trajectory.Task) (string, error) { return d.begin(ctx, task) }
	var listener net.Listener
	for listener == nil { // the port of the process that was killed is free soon
		listener, _ = net.Listen("tcp", os.Getenv(crowdAddress))
	}
	mux := http.NewServeMux()
	for path, handle := range online.Routes() {
		mux.Handle("POST "+path, handle)
	}
	mux.HandleFunc("/crowd/ended", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, ended.Load()) })
	mux.Handle("/", gate)
	server := &http.Server{Handler: mux}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }() // before the sessions go on, as in a run
	time.Sleep(50 * time.Millisecond)
	d.resume(ctx, log)
	<-ctx.Done()
	d.running.Wait()
	require.NoError(t, d.failed)
	gate.Close()
	require.NoError(t, server.Close())
	<-served
	require.NoError(t, db.Close())
}

// visitor is an agent of the crowd, and what it read.
type visitor struct {
	number  int
	fate    string // "", killed, hung
	url     string
	client  *http.Client
	rng     *rand.Rand
	id, key string
	read    []string // replies, in order
	resets  int
	retries int
}

// send asks until the process that answers is there and answers.
func (v *visitor) send(path, key, body string, header ...string) (int, []byte) {
	for {
		r, err := http.NewRequest(http.MethodPost, v.url+path, strings.NewReader(body))
		if err != nil {
			panic(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		reply, err := v.client.Do(r)
		if err == nil {
			data, err := io.ReadAll(reply.Body)
			reply.Body.Close()
			if err == nil && reply.StatusCode < http.StatusInternalServerError {
				return reply.StatusCode, data
			}
		}
		v.retries++
		time.Sleep(time.Duration(20+v.rng.IntN(60)) * time.Millisecond)
	}
}

// reset sends a request and breaks the connection before the reply.
func (v *visitor) reset(body string) {
	c, err := net.Dial("tcp", strings.TrimPrefix(v.url, "http://"))
	if err != nil {
		return
	}
	v.resets++
	fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", v.key, len(body), body)
	time.Sleep(time.Duration(v.rng.IntN(30)) * time.Millisecond)
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

// visit lives the agent's life.
func (v *visitor) visit() error {
	status, data := v.send("/agentfly/sessions", crowdKey, fmt.Sprintf(`{"task":{"fields":{"visitor":%d}}}`, v.number))
	var a external.Assignment
	if err := json.Unmarshal(data, &a); status != http.StatusOK || err != nil {
		return fmt.Errorf("no session: %d %s", status, data)
	}
	v.id, v.key = a.ID, a.Key
	messages := []map[string]string{{"role": "user", "content": fmt.Sprint("visitor ", v.number)}}
	for turn := range crowdTurns {
		body, _ := json.Marshal(map[string]any{"messages": messages})
		if v.fate == "killed" && turn == 2 {
			v.reset(string(body)) // and is no more
			return nil
		}
		broken := v.rng.IntN(10) == 0
		if broken {
			v.reset(string(body))
		}
		status, data := v.send("/v1/chat/completions", v.key, string(body))
		var reply struct {
			ID      string
			Choices []struct{ Message struct{ Content string } }
		}
		if err := json.Unmarshal(data, &reply); status != http.StatusOK || err != nil {
			return fmt.Errorf("turn %d: %d %s", turn, status, data)
		}
		said := reply.Choices[0].Message.Content
		if !broken && v.rng.IntN(10) == 0 { // a client that is not sure asks again; of what was sent twice, either reply would do
			_, again := v.send("/v1/chat/completions", v.key, string(body), "X-Stainless-Retry-Count", "1")
			var same struct {
				Choices []struct{ Message struct{ Content string } }
			}
			if err := json.Unmarshal(again, &same); err != nil || same.Choices[0].Message.Content != said {
				return fmt.Errorf("turn %d: a retry of %q got %s", turn, said, again)
			}
		}
		v.read = append(v.read, said)
		if turn == 0 {
			if status, data := v.send("/agentfly/reward", v.key, fmt.Sprintf(`{"reward":0.5,"call":%q,"id":"first"}`, reply.ID)); status != http.StatusOK {
				return fmt.Errorf("reward: %d %s", status, data)
			}
		}
		if v.fate == "hung" && turn == 1 {
			return nil
		}
		messages = append(messages, map[string]string{"role": "assistant", "content": said}, map[string]string{"role": "user", "content": "on"})
	}
	status, data = v.send("/agentfly/result", v.key, fmt.Sprintf(`{"answer":"visitor %d"}`, v.number))
	if status != http.StatusOK {
		return fmt.Errorf("result: %d %s", status, data)
	}
	return nil
}

// Many agents at once, some of which are killed or hang, whose connections break and who ask again, over a gateway that is killed and goes on: what an
// agent read is in the log, once and in order, and nothing else is taken for what it did.
func TestACrowdOfAgents(t *testing.T) {
	if os.Getenv(crowdFolder) != "" {
		crowdServer(t)
		return
	}
	size, deadline := 60, 30*time.Second
	if text := os.Getenv(crowdSize); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		size, deadline = n, 90*time.Second
	}
	dir := t.TempDir()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	output, err := os.Create(filepath.Join(t.TempDir(), "output")) // read while the server goes on writing it
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, output.Close()) })
	said := func() string {
		text, err := os.ReadFile(output.Name())
		require.NoError(t, err)
		return string(text)
	}
	start := func() *exec.Cmd {
		c := exec.Command(os.Args[0], "-test.run", "^TestACrowdOfAgents$", "-test.timeout", "20m")
		c.Env = append(os.Environ(), crowdFolder+"="+dir, crowdAddress+"="+address, crowdDeadline+"="+deadline.String())
		c.Stdout, c.Stderr = output, output
		require.NoError(t, c.Start())
		return c
	}
	server := start()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: size}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	visitors := make([]*visitor, size)
	failed := make([]error, size)
	var all sync.WaitGroup
	var done atomic.Int64
	for i := range visitors {
		v := &visitor{number: i, url: "http://" + address, client: client, rng: rand.New(rand.NewPCG(uint64(i), 6))}
		switch per := max(1, size/100); {
		case i < per:
			v.fate = "killed"
		case i < 2*per:
			v.fate = "hung"
		}
		visitors[i] = v
		all.Go(func() {
			failed[i] = v.visit()
			done.Add(1)
		})
	}
	began := time.Now()
	for _, part := range []int{10, 3} { // twice in the midst of it: after a tenth and after a third
		for done.Load() < int64(size/part) {
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, server.Process.Kill())
		_ = server.Wait() // it says that it was killed
		server = start()
	}
	all.Wait()
	require.NoError(t, errors.Join(failed...), "%s", said())
	t.Logf("%d agents took %v", size, time.Since(began))

	reader, err := store.OpenReader(filepath.Join(dir, store.File))
	require.NoError(t, err)
	count := func() int { return len(ended(t, reader)) }
	require.Eventually(t, func() bool { return count() >= size }, deadline+time.Minute, 100*time.Millisecond, "%s", said())
	time.Sleep(100 * time.Millisecond)
	require.NoError(t, server.Process.Signal(syscall.SIGTERM))
	require.NoError(t, server.Wait(), "%s", said())
	stored := ended(t, reader)
	require.NoError(t, reader.Close())
	calls, resets, retries := 0, 0, 0
	for _, v := range visitors {
		tr := stored[v.id]
		require.NotNil(t, tr, "%s of visitor %d", v.id, v.number)
		calls, resets, retries = calls+len(tr.Turns), resets+v.resets, retries+v.retries
		var kept []string
		sampled := map[string]bool{}
		for _, turn := range tr.Turns {
			require.NotNil(t, turn.Incoming)
			require.False(t, sampled[turn.Completion], "%s: %q is there twice", v.id, turn.Completion)
			sampled[turn.Completion] = true
			if len(kept) < len(v.read) && turn.Completion == v.read[len(kept)] {
				require.NotEqual(t, trajectory.RoleDiscarded, turn.Role, "%s read %q", v.id, turn.Completion)
				kept = append(kept, turn.Completion)
			}
		}
		require.Equal(t, v.read, kept, "%s: what it read is what was stored, in order", v.id)
		require.LessOrEqual(t, len(tr.Turns)-len(kept), v.resets, "%s: what came again before it was seen that its connection was broken", v.id)
		switch v.fate {
		case "":
			require.Empty(t, tr.Err)
			require.Len(t, kept, crowdTurns)
			last := tr.Samples[tr.Turns[0].Sample]
			require.LessOrEqual(t, len(tr.Samples), 1+v.resets)
			require.NoError(t, last.Check())
			answer, _ := tr.FinalAnswer()
			require.Equal(t, fmt.Sprint("visitor ", v.number), answer)
		default:
			require.Equal(t, trajectory.OriginDeadline, tr.ErrOrigin, "%s (%s): %s", v.id, v.fate, tr.Err)
		}
		require.Equal(t, "first", tr.Posted[0].ID)
		require.Equal(t, v.read[0], tr.Turns[tr.Posted[0].Turn].Completion, "the reward is that of the reply that it named")
		require.Equal(t, 0.5, *tr.Turns[tr.Posted[0].Turn].Reward)
		delete(stored, v.id)
	}
	for id, tr := range stored { // sessions that were begun for an agent who never heard of it, because the process was killed
		require.Empty(t, tr.Turns, id)
	}
	require.LessOrEqual(t, len(stored), size)
	t.Logf("%d calls stored; %d connections broken, %d requests sent again, %d sessions that nobody heard of", calls, resets, retries, len(stored))
}

// ended are the trajectories of a store that have their end, by id.
func ended(t *testing.T, s *store.Reader) map[string]*trajectory.Trajectory {
	t.Helper()
	out := map[string]*trajectory.Trajectory{}
	require.NoError(t, s.Select(t.Context(), store.Selection{}, func(r store.Record) error {
		out[r.Trajectory.ID] = r.Trajectory
		return nil
	}))
	return out
}
