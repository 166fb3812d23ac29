package rollout_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/external"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/orchestrator/tree"
	"github.com/agentfly/agentfly/trajectory"
)

// program is an agent of its own that is a function of its replies: what it reads decides whether it asks a sub-agent, and when it makes its history short.
type program struct {
	url   string
	begun atomic.Int64
	clock bool                 // it also tells the model how many agents began, which no agent does again
	posts bool                 // it judges each reply that it gets
	idle  func(id string) bool // it asks for nothing; nil: none does
}

func (p *program) Enter(ctx context.Context) (func(), error) { return func() {}, ctx.Err() }
func (p *program) Close() error                              { return nil }

func (p *program) Run(ctx context.Context, a external.Assignment) (end external.Ended, err error) {
	began := p.begun.Add(1)
	if p.idle != nil && p.idle(a.ID) {
		return end, nil
	}
	messages := append([]trajectory.Message{}, a.Task.Prompt...)
	for range 8 {
		said, err := p.ask(ctx, a.Key, messages)
		if err != nil {
			return end, err
		}
		if strings.Contains(said, "<answer>") || strings.Contains(said, "budget of this session") {
			return end, nil
		}
		h := hashed(said)
		result := fmt.Sprint(h % 1000)
		if p.clock {
			result += fmt.Sprint(" at ", began)
		}
		if h%3 == 0 {
			if result, err = p.ask(ctx, a.Key, []trajectory.Message{trajectory.Text("user", "sub-agent, "+result)}); err != nil {
				return end, err
			}
		}
		next := trajectory.Text("user", "<result>"+result+"</result>")
		messages = append(messages, trajectory.Text("assistant", said), next)
		if h%5 == 0 {
			messages = append(append([]trajectory.Message{}, a.Task.Prompt...), next)
		}
	}
	return end, nil
}

func (p *program) ask(ctx context.Context, key string, messages []trajectory.Message) (said string, err error) {
	var read struct {
		ID      string `json:"id"`
		Choices []struct {
			Message trajectory.Message `json:"message"`
		} `json:"choices"`
	}
	if err := p.post(ctx, key, "/v1/chat/completions", map[string]any{"messages": messages}, &read); err != nil {
		return "", err
	}
	said, _ = read.Choices[0].Message.TextContent()
	if p.posts && !strings.Contains(said, "budget of this session") {
		err = p.post(ctx, key, "/agentfly/reward", map[string]any{"reward": float64(hashed(said)%5) / 4, "call": read.ID}, &struct{}{})
	}
	return said, err
}

func (p *program) post(ctx context.Context, key, path string, asked, into any) error {
	body, err := json.Marshal(asked)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	switch {
	case err != nil:
		return err
	case reply.StatusCode/100 != 2:
		return fmt.Errorf("it got status %d: %s", reply.StatusCode, text)
	case len(text) == 0:
		return nil
	}
	return json.Unmarshal(text, into)
}

// programs has programs of their own be the agents of a forest.
func programs(t testing.TB, f *forest) *program {
	p := &program{}
	g := guests(t, f.Sampler, p)
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

// The trees of agents that are programs of their own: what stands before a fork is sampled once, also where it is in several samples, within replies too, and
// a leaf has its parent's tokens up to the fork. A tree that is grown again is the same.
func TestAgentsOfTheirOwnFork(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 1))
	forks, within, several := 0, 0, 0
	for trial := range 80 {
		size := 1 + rng.IntN(10)
		f := newForest(t, anyTrees(rng, size))
		p := programs(t, f)
		task := rollouttest.Task(fmt.Sprint("q", trial), "1+1?", "2")
		group, err := f.Grow(t.Context(), rollout.Place{Phase: "train", Step: trial}, task, size, nil, nil)
		require.NoError(t, err)
		sampled := checkTrees(t, group, size)
		require.Equal(t, len(sampled), int(f.asked.Load()), "a request a turn")
		require.Equal(t, size, int(p.begun.Load()), "an agent a leaf")
		own := 0
		for _, tr := range group.Trajectories {
			require.Empty(t, tr.Err)
			require.NotNil(t, tr.RewardParts, "a reward a leaf")
			for k := tr.Forked; k < len(tr.Turns); k++ {
				own += tr.Turns[k].Sampled()
			}
			if tr.Branch == "" {
				continue
			}
			forks++
			if tr.ForkedAt > 0 {
				within++
			}
			if tr.Forked > 0 && len(tr.Samples) > 1 {
				several++
			}
			if f.Trees.Measure {
				require.GreaterOrEqual(t, tr.Turns[tr.Forked].Incoming.After, 0, "before a turn that reads a result")
			}
		}
		require.Equal(t, int(f.sampled.Load()), own, "every sampled token is one trajectory's own")
		again := newForest(t, *f.Trees)
		programs(t, again)
		same, err := again.Grow(t.Context(), rollout.Place{Phase: "train", Step: trial}, task, size, nil, nil)
		require.NoError(t, err)
		for i := range same.Trajectories {
			require.Equal(t, rollouttest.Timeless(group.Trajectories[i]), rollouttest.Timeless(same.Trajectories[i]))
		}
	}
	t.Logf("%d forks, %d within replies, %d in trajectories of several samples", forks, within, several)
	require.Greater(t, forks, 60)
	require.Greater(t, within, 15)
	require.Greater(t, several, 20)
}

// An agent that does something else where it is begun anew fails its leaf, which says what it asked and what was recorded; so does one that asks for nothing.
// The trajectories that begin at the prompt stand.
func TestAnAgentThatGoesAnotherWayFailsItsLeaf(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*program)
		want string
	}{
		"a clock": {func(p *program) { p.clock = true }, " asks for something else than was recorded: message "},
		"idle":    {func(p *program) { p.idle = func(id string) bool { return strings.Contains(id, ".") } }, "it ended, and "},
	} {
		t.Run(name, func(t *testing.T) {
			failed := 0
			for step := range 10 {
				f := newForest(t, rollout.Trees{Roots: 3, Rule: tree.StepRandom{Trees: 3, Nodes: 3, Rounds: 1}})
				c.set(programs(t, f))
				group, err := f.Grow(t.Context(), rollout.Place{Phase: "train", Step: step}, rollouttest.Task("q", "1+1?", "2"), 9, nil, nil)
				require.NoError(t, err)
				for _, tr := range group.Trajectories {
					if tr.Branch == "" {
						require.Empty(t, tr.Err)
					}
					if tr.Forked > 1 || tr.Forked == 1 && name == "idle" { // before its first result every agent does the same
						require.Equal(t, trajectory.OriginAgent, tr.ErrOrigin)
						require.Contains(t, tr.Err, "the agent does not do again what was recorded before the fork (agent.deterministic)")
						require.Contains(t, tr.Err, c.want)
						failed++
					}
				}
			}
			require.Greater(t, failed, 10)
		})
	}
}

// What forks off a trajectory whose record cannot be read, as an older program wrote it, fails by name, without an agent. It does not end the run, and what is
// stored of such a leaf gives way to its end; trajectories that begin at the prompt stand.
func TestForksOfWhatCannotBeReadFailAlone(t *testing.T) {
	task := rollouttest.Task("q3", "1+1?", "2")
	place := rollout.Place{Phase: "train", Step: 1}
	trees := rollout.Trees{Roots: 2, Rule: tree.StepRandom{Trees: 2, Nodes: 2, Rounds: 1}}
	path := filepath.Join(t.TempDir(), "s.db")
	f := newForest(t, trees)
	programs(t, f)
	whole := newForest(t, trees)
	programs(t, whole)
	want, err := whole.Grow(t.Context(), place, task, 6, nil, nil)
	require.NoError(t, err)
	records := 1 // until a leaf has a turn of its own
	for _, tr := range want.Trajectories {
		if tr.Branch == "" {
			records += len(tr.Turns)
		}
	}
	_, killed := process(t, path, f, place, task, 6, records+2)
	require.True(t, killed)
	spoil := func(tr *trajectory.Trajectory) {
		if tr != nil && tr.Branch == "" && len(tr.Turns) > 1 {
			in := *tr.Turns[0].Incoming
			in.Digest, tr.Turns[0].Incoming = "?", &in
		}
	}
	f = newForest(t, trees)
	p := programs(t, f)
	f.spoil = spoil
	group, _ := process(t, path, f, place, task, 6, 0)
	require.Len(t, group.Trajectories, 6)
	lost := 0
	for _, tr := range group.Trajectories {
		require.NoError(t, rollout.Fatal(tr))
		if _, ended := f.Recovered(tr.ID); tr.Branch == "" || tr.Forked == 0 || ended {
			require.Empty(t, tr.Err)
		} else {
			require.Equal(t, trajectory.OriginRender, tr.ErrOrigin)
			require.Equal(t, "orchestrator: "+tr.ID+": gateway: what was recorded before the fork cannot be read: an older program recorded it, or the template of the model changed since", tr.Err)
			require.Empty(t, tr.Turns)
			lost++
		}
	}
	require.Greater(t, lost, 1)
	require.LessOrEqual(t, int(p.begun.Load()), 6-lost)
}

// A replay samples the calls of programs once, and of those that others sampled, or began, what is a leaf's own.
func TestForksOfAgentsAreReplayed(t *testing.T) {
	for _, within := range []bool{false, true} {
		trees := rollout.Trees{Roots: 2, Rule: tree.StepRandom{Trees: 2, Nodes: 3, Rounds: 1}}
		if within {
			trees = rollout.Trees{Roots: 2, Within: true, Rule: tree.TokenNLL{Trees: 2, Tokens: 3, Branches: 1, Rounds: 1}}
		}
		f := newForest(t, trees)
		programs(t, f)
		task := rollouttest.Task("q", "1+1?", "2")
		group, err := f.Grow(t.Context(), rollout.Place{Phase: "train"}, task, 8, nil, nil)
		require.NoError(t, err)
		asked := f.asked.Swap(0)
		f.Replay = true
		byID := map[string]*trajectory.Trajectory{}
		for _, tr := range group.Trajectories {
			byID[tr.ID] = tr
		}
		f.Recovered = func(id string) (*trajectory.Trajectory, bool) { return byID[id], false }
		for _, tr := range group.Trajectories {
			got := f.Sample(t.Context(), rollout.Place{Phase: "train", Index: tr.Index, Branch: tr.Branch, Task: task})
			require.Empty(t, got.Err)
			require.Equal(t, tr.Samples, got.Samples)
			require.Equal(t, rollouttest.Timeless(&trajectory.Trajectory{Turns: tr.Turns}), rollouttest.Timeless(&trajectory.Trajectory{Turns: got.Turns}))
		}
		require.Equal(t, asked, f.asked.Load(), "each is sampled once")
	}
}

// A service is asked for the agent of a leaf anew, and forks as a command does.
func TestForksOfAService(t *testing.T) {
	f := newForest(t, rollout.Trees{Roots: 2, Rule: tree.StepRandom{Trees: 2, Nodes: 3, Rounds: 1}})
	p := programs(t, f)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var a external.Assignment
		if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		} else if _, err := p.Run(r.Context(), a); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	defer service.Close()
	f.External.Runner = &external.Callback{URL: service.URL}
	group, err := f.Grow(t.Context(), rollout.Place{Phase: "train"}, rollouttest.Task("q", "1+1?", "2"), 8, nil, nil)
	require.NoError(t, err)
	for _, tr := range group.Trajectories {
		require.Empty(t, tr.Err)
	}
	require.Equal(t, len(checkTrees(t, group, 8)), int(f.asked.Load()), "a request a turn")
	require.EqualValues(t, 8, p.begun.Load())
}

// A leaf whose agent has a reward posted for a turn that it shares, before it has a turn of its own, goes on from the same token after a kill, whenever that comes.
func TestForksWithinTurnsOutliveRewards(t *testing.T) {
	trees := rollout.Trees{Roots: 1, Within: true, Rule: tree.TokenNLL{Trees: 1, Tokens: 3, Branches: 1, Rounds: 2}}
	for trial := 0; ; trial++ {
		task := rollouttest.Task(fmt.Sprint("q", trial), "1+1?", "2")
		place := rollout.Place{Phase: "train", Step: 1}
		whole := newForest(t, trees)
		programs(t, whole).posts = true
		want, err := whole.Grow(t.Context(), place, task, 4, nil, nil)
		require.NoError(t, err)
		if !slices.ContainsFunc(want.Trajectories, func(tr *trajectory.Trajectory) bool { return tr.ForkedAt > 0 && tr.Forked > 0 }) {
			continue
		}
		for kill, killed := 1, true; killed; kill++ {
			path := filepath.Join(t.TempDir(), "s.db")
			f := newForest(t, trees)
			programs(t, f).posts = true
			_, killed = process(t, path, f, place, task, 4, kill)
			f = newForest(t, trees)
			programs(t, f).posts = true
			group, _ := process(t, path, f, place, task, 4, 0)
			for i, tr := range group.Trajectories {
				require.Equal(t, rollouttest.Timeless(want.Trajectories[i]), rollouttest.Timeless(tr), "trial %d, killed at record %d", trial, kill)
			}
		}
		return
	}
}
