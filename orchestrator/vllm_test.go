package orchestrator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/local"
	"github.com/agentfly/agentfly/engines/vllm"
	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/session"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/orchestrator/tree"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/tools/calculator"
	"github.com/agentfly/agentfly/trainer"
	"github.com/agentfly/agentfly/trajectory"
)

func prebuilt(t *testing.T) Registries {
	r := Registries{Tools: tools.NewCatalog(), Agents: agents.NewRegistry(), Rewards: rewards.Prebuilt(), Algorithms: algorithms.NewRegistry()}
	require.NoError(t, r.Tools.Register(calculator.New()))
	return r
}

const vllmJob = "../examples/tiny_vllm.yaml"

// vllmSteps are few for the sake of the time, and enough: on the local engine the reward rises from 0.03 to 0.95 and more in
// them, over four seeds.
const vllmSteps = 40

func vllmSets(t *testing.T) []string {
	if !cgo.Available() {
		t.Skip("this test binary was built without the torch tag; make test-vllm runs it with libtorch")
	}
	if os.Getenv("AGENTFLY_VLLM") == "" {
		t.Skip("no vLLM: AGENTFLY_VLLM is not set; run make test-vllm")
	}
	return []string{"engine.serve.command=" + os.Getenv("AGENTFLY_VLLM")}
}

// killer is the output of a run that kills its vLLM, as `kill -9` does, while it generates in the step after a line.
type killer struct {
	bytes.Buffer
	t      *testing.T
	after  string
	killed chan int // the process
}

func (k *killer) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte(k.after)) {
		url := regexp.MustCompile("note: engine (http://[^ ]+):").FindSubmatch(k.Bytes())
		require.NotNil(k.t, url, k.String())
		go k.kill(string(url[1]))
	}
	return k.Buffer.Write(p)
}

// kill waits until the server's own metrics show requests in generation.
func (k *killer) kill(url string) {
	defer close(k.killed)
	running := regexp.MustCompile(`(?m)^vllm:num_requests_running\{.*\} ([1-9][0-9]+)\.0$`)
	for until := time.Now().Add(time.Minute); time.Now().Before(until); {
		reply, err := http.Get(url + "/metrics")
		if err != nil {
			continue
		}
		text, _ := io.ReadAll(reply.Body) // what is cut off does not match
		reply.Body.Close()
		if n := running.FindSubmatch(text); n != nil {
			pid := servingChild(k.t)
			if err := syscall.Kill(pid, syscall.SIGKILL); err == nil {
				k.killed <- pid
				k.t.Logf("killed with %s requests in generation", n[1])
			}
			return
		}
	}
}

// servingChild is the process `vllm serve …` of this one.
func servingChild(t *testing.T) int {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Error(err)
	}
	for _, f := range files {
		stat, _ := os.ReadFile(f) // it may be gone
		command, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
		fields := strings.Fields(string(stat[max(0, bytes.LastIndexByte(stat, ')')):]))
		if len(fields) > 2 && fields[2] == strconv.Itoa(os.Getpid()) && bytes.Contains(command, []byte("\x00serve\x00")) && !bytes.Contains(command, []byte(sharedServer)) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			if err != nil {
				t.Error(err)
			}
			return pid
		}
	}
	t.Error("no vLLM of this process runs")
	return 0
}

// A job trains on a real vLLM that it starts itself. The server is killed while it generates, is started again and gets the
// current weights: the run goes on, every trajectory is there and whole, every update is proven, the reward rises, and the
// same sampled ids give the local engine's job the same masks, logprobs and loss.
func TestRealVLLMTrains(t *testing.T) {
	sets := append(vllmSets(t), "engine.weights=transfer", fmt.Sprint("trainer.steps=", vllmSteps), "output="+t.TempDir()+"/run", "engine.folder="+t.TempDir())
	j, err := job.Load(vllmJob, sets...)
	require.NoError(t, err)
	out := &killer{t: t, after: "step  10/", killed: make(chan int, 1)}
	sum, err := Train(t.Context(), j, prebuilt(t), Options{Out: out})
	require.NoError(t, err, out.String())
	t.Log(out.String())
	pid, ok := <-out.killed
	require.True(t, ok, "it was killed")
	require.Contains(t, out.String(), "note: the server ended: signal: killed; its log ")
	require.Contains(t, out.String(), "answers again; it gets the current weights and proves them before it serves")
	require.ErrorIs(t, syscall.Kill(-pid, 0), syscall.ESRCH, "its workers are gone too")
	require.Contains(t, out.String(), "note: engine http://127.0.0.1:")
	require.Equal(t, 1, strings.Count(out.String(), "weight updates: disk transfer"), "capabilities are printed once")
	require.Greater(t, sum.Reward["last"], sum.Reward["first"]+0.5, "it learns")
	require.Less(t, sum.MismatchMax, 1e-4, "engine and trainer disagree")
	require.Zero(t, sum.Trajectories["failed"])
	require.Equal(t, vllmSteps*128, sum.Trajectories["finished"], "%v", sum.Trajectories)
	left, err := os.ReadDir(j.Engine.Folder)
	require.NoError(t, err)
	require.Empty(t, left, "the weights are removed")

	db, err := store.Open(filepath.Join(j.Output, store.File))
	require.NoError(t, err)
	defer db.Close()
	steps, err := db.Reader.Steps()
	require.NoError(t, err)
	require.Len(t, steps, vllmSteps)
	versions := map[int32]bool{}
	var first []*trajectory.Trajectory
	require.NoError(t, db.Reader.Select(t.Context(), store.Selection{}, func(r store.Record) error {
		for _, s := range r.Trajectory.Samples {
			for i, on := range s.ResponseMask {
				if on {
					versions[s.PolicyVersion[i]] = true
					require.Equal(t, int32(r.Trajectory.Step), s.PolicyVersion[i], "each step samples with the weights of the step before")
				}
			}
		}
		if r.Trajectory.Step == 0 {
			first = append(first, r.Trajectory)
		}
		return nil
	}))
	require.Len(t, versions, vllmSteps)
	require.Len(t, first, 128)
	sameOnTheLocalEngine(t, first, steps[0]["update/loss"], sets)
}

// replayedTurns answers with what another run sampled, and the local engine's logprobs of it.
type replayedTurns struct {
	*local.Engine
	turns map[string][]int32                 // by request
	ends  map[string]trajectory.FinishReason // the same
}

func (r replayedTurns) Generate(ctx context.Context, q engines.Request) (engines.Completion, error) {
	ids, ok := r.turns[q.ID]
	if !ok {
		return engines.Completion{}, errors.New("the other run has no request " + q.ID)
	}
	scores, err := r.Logprobs(ctx, slices.Concat(q.Prompt, ids))
	if err != nil {
		return engines.Completion{}, err
	}
	return engines.Completion{TokenIDs: ids, Logprobs: scores[len(q.Prompt)-1:], Versions: make([]int32, len(ids)), FinishReason: r.ends[q.ID]}, nil
}

// sameOnTheLocalEngine runs the same step with engine: local on the ids that vLLM sampled.
func sameOnTheLocalEngine(t *testing.T, want []*trajectory.Trajectory, loss float64, sets []string) {
	j, err := job.Load(vllmJob, append(sets, "engine={kind: local}")...)
	require.NoError(t, err)
	registries := prebuilt(t)
	a, err := j.Algorithm.Resolve(registries.Algorithms)
	require.NoError(t, err)
	s := session.New(j)
	defer s.Close()
	require.NoError(t, s.Equip(t.Context(), registries))
	require.NoError(t, s.Open(t.Context(), ""))
	version := int32(0)
	updates, err := s.Trainer(a, nil, &version)
	require.NoError(t, err)
	defer updates.Close()
	r := replayedTurns{s.Weights.Engine().(*local.Engine), map[string][]int32{}, map[string]trajectory.FinishReason{}}
	byID := map[string]*trajectory.Trajectory{}
	for _, tr := range want {
		byID[tr.ID] = tr
		for n, turn := range tr.Turns {
			id := fmt.Sprint(tr.ID, "-", n)
			r.turns[id], r.ends[id] = tr.Samples[0].TokenIDs[turn.CompletionStart:turn.CompletionEnd], turn.FinishReason
		}
	}
	s.Sampler.Engine = r
	_, _, deal, err := data.Read(j, nil)
	require.NoError(t, err)
	groups, err := s.Sampler.Groups(t.Context(), "train", 0, deal.Tasks(0, j.Rollout.Groups), j.Rollout.GroupSize, nil)
	require.NoError(t, err)
	for _, g := range groups {
		for _, got := range g.Trajectories {
			require.Empty(t, got.Err)
			other := byID[got.ID]
			require.Equal(t, other.Samples[0].TokenIDs, got.Samples[0].TokenIDs)
			require.Equal(t, other.Samples[0].ResponseMask, got.Samples[0].ResponseMask)
			require.InDeltaSlice(t, other.Samples[0].SamplingLogprobs, got.Samples[0].SamplingLogprobs, 1e-4)
			require.Equal(t, other.Reward, got.Reward)
			require.Equal(t, other.StopReason, got.StopReason)
		}
	}
	var trained []*trajectory.Group
	for i := range groups {
		trained = append(trained, &groups[i])
	}
	m, err := updates.Step(t.Context(), trainer.Batch{Groups: trained})
	require.NoError(t, err)
	require.InDelta(t, loss, m.Loss, 1e-6)
	require.NotZero(t, loss)
}

// A vLLM teaches: what it says of the policy's tokens is what the same model says in this process, in every step.
func TestRealVLLMTeaches(t *testing.T) {
	vllmSets(t)
	model, err := filepath.Abs("../examples/tiny/model_vllm")
	require.NoError(t, err)
	server, err := vllm.Serve(t.Context(), vllm.ServeOptions{
		Command: os.Getenv("AGENTFLY_VLLM"), Model: model, CPU: true, Folder: t.TempDir(),
		Args: []string{"--no-enable-scale-out"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	student := filepath.Join(trained(t, "../examples/tiny_sft.yaml", "sft.epochs=5").Output, "checkpoints", "last")
	distill := func(teacher string) []map[string]float64 {
		j := trained(t, "../examples/tiny_distill.yaml", "model.path="+student, "trainer.steps=3", "distill={teacher: "+teacher+"}")
		db, err := store.Open(filepath.Join(j.Output, store.File))
		require.NoError(t, err)
		defer db.Close()
		steps, err := db.Reader.Steps()
		require.NoError(t, err)
		require.Len(t, steps, 3)
		return steps
	}
	here, there := distill("{path: "+model+"}"), distill("{urls: ["+server.URL+"], api_key: "+server.APIKey+"}")
	for i := range here {
		for _, key := range []string{"distill/reverse_kl", "update/loss", "update/grad_norm"} {
			require.InEpsilon(t, here[i][key], there[i][key], 1e-4, "step %d, %s", i, key)
		}
	}
	kl := func(i int) float64 { return there[i]["distill/reverse_kl"] }
	t.Logf("reverse KL %.4f, %.4f, %.4f", kl(0), kl(1), kl(2))
	require.Greater(t, kl(0), 1.0, "nats: they differ")
	require.Less(t, kl(2), kl(0))
}

// sharedServer names the model of the server that serves more than one job.
const sharedServer = "agentfly-shared-model"

// trained runs a job without its evaluations.
func trained(t *testing.T, path string, sets ...string) *job.Job {
	t.Helper()
	j, err := job.Load(path, append(sets, "data.eval=", "eval.every=0", "output="+t.TempDir()+"/run")...)
	require.NoError(t, err)
	var out bytes.Buffer
	_, err = Train(t.Context(), j, prebuilt(t), Options{Out: &out})
	require.NoError(t, err, out.String())
	return j
}

// Jobs on a server that runs already.
func TestRealVLLMJobs(t *testing.T) {
	vllmSets(t)
	model, err := filepath.Abs("../examples/tiny/model_vllm")
	require.NoError(t, err)
	link := filepath.Join(t.TempDir(), sharedServer)
	require.NoError(t, os.Symlink(model, link))
	server, err := vllm.Serve(t.Context(), vllm.ServeOptions{Command: os.Getenv("AGENTFLY_VLLM"), Model: link, CPU: true, Folder: t.TempDir(), MaxLogprobs: 21})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	sets := []string{"engine.serve=null", "engine.urls=[" + server.URL + "]", "engine.api_key=" + server.APIKey}

	// Trees branch by the entropy of the likeliest 20 tokens that the server tells. The engine of this process, given what the server sampled, tells the same tokens
	// with the same logprobs, and so the same entropy of every turn.
	t.Run("branches by entropy", func(t *testing.T) {
		here := localEngine(t, model)
		there, err := vllm.New(t.Context(), vllm.Options{URLs: []string{server.URL}, APIKey: server.APIKey})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, there.Close()) })
		require.Equal(t, 21, there.Capabilities().Top)
		for _, s := range []engines.Sampling{{Temperature: 1, TopP: 1}, {Temperature: 0.7, TopP: 1, TopK: 8}, {Temperature: 1.3, TopP: 0.8}, {TopP: 1}} {
			q := engines.Request{ID: "r", Prompt: []int32{5, 9, 7, 3, 11, 4, 8}, Seed: 3, Top: 20, Sampling: s}
			q.Sampling.MaxTokens = 6
			c, err := there.Generate(t.Context(), q)
			require.NoError(t, err)
			require.Len(t, c.Top, 6)
			for i, got := range c.Top {
				require.Len(t, got, 20)
				for n, want := range likeliestAt(t, here, q, c.TokenIDs[:i], 20) {
					if math.IsInf(float64(want.Logprob), -1) { // which of the excluded ones are listed says nothing
						require.Equal(t, want.Logprob, got[n].Logprob)
						continue
					}
					require.Equal(t, want.ID, got[n].ID, "%+v, token %d", s, i)
					require.InDelta(t, want.Logprob, got[n].Logprob, 1e-4)
				}
			}
		}

		agent := filepath.Join(t.TempDir(), "agent.py")
		require.NoError(t, os.WriteFile(agent, []byte(guestOfVLLM), 0o644))
		sets := append(sets, "engine.weights=disk", "agent={kind: external, command: [python3, "+agent+"], deterministic: true}", "rewards=[posted]", "rollout.tree={rule: entropy, base: 0.7, tokens: 3}",
			"algorithm.advantage={name: arpo}", "rollout.max_new_tokens=4", "rollout.max_tokens=128", "rollout.group_size=8", "trainer.steps=1", "output="+t.TempDir()+"/run")
		j, err := job.Load(vllmJob, sets...)
		require.NoError(t, err)
		require.Equal(t, 20, j.Rollout.Tree.Top)
		var out bytes.Buffer
		sum, err := Train(t.Context(), j, prebuilt(t), Options{Out: &out})
		require.NoError(t, err, out.String())
		require.Contains(t, out.String(), "logprobs of what is sampled and of the 21 likeliest tokens")
		require.Zero(t, sum.Trajectories["failed"])
		require.Less(t, sum.MismatchMax, 1e-4, "engine and trainer disagree")
		db, err := store.OpenReader(filepath.Join(j.Output, store.File))
		require.NoError(t, err)
		defer db.Close()
		forks, measured := 0, 0
		require.NoError(t, db.Select(t.Context(), store.Selection{}, func(r store.Record) error {
			tr := r.Trajectory
			if tr.Branch != "" {
				require.Equal(t, 1, tr.Forked, "the second call goes on after a reply")
				forks++
			}
			for _, turn := range tr.Turns {
				ids := tr.Samples[turn.Sample].TokenIDs
				q := engines.Request{ID: "r", Prompt: ids[:turn.CompletionStart], Sampling: engines.Sampling{MaxTokens: 1, Temperature: 1, TopP: 1}}
				var values []float64
				for i := range min(3, turn.CompletionEnd-turn.CompletionStart) {
					var top []float32
					for _, a := range likeliestAt(t, here, q, ids[turn.CompletionStart:turn.CompletionStart+i], 20) {
						top = append(top, a.Logprob)
					}
					low, high := tree.EntropyBounds(top, here.Capabilities().Top)
					require.Greater(t, high, low, "two tokens of 22 are not told")
					values = append(values, low)
				}
				require.InDelta(t, tree.First(values, 3), turn.Entropy, 1e-4)
				measured++
			}
			return nil
		}))
		require.Equal(t, 4*8*3, measured)
		require.Positive(t, forks)
		t.Logf("%d of %d trajectories forked", forks, 4*8)
	})

	// Between rollout and update the server sleeps, and every step wakes it with the new weights, which go over a Gloo group.
	// (vLLM on a CPU frees no memory; all else is as on a GPU.)
	t.Run("sleeps", func(t *testing.T) {
		j, err := job.Load(vllmJob, append(sets, "engine.sleep=2", "engine.weights=gloo", "trainer.steps=3", "rollout.group_size=8", "output="+t.TempDir()+"/run")...)
		require.NoError(t, err)
		var out bytes.Buffer
		sum, err := Train(t.Context(), j, prebuilt(t), Options{Out: &out})
		require.NoError(t, err, out.String())
		require.Less(t, sum.MismatchMax, 1e-4)
		require.Zero(t, sum.Trajectories["failed"])
		log, err := os.ReadFile(server.Log)
		require.NoError(t, err)
		for _, line := range []string{"POST /sleep?mode=keep&level=2", "wake up the engine with tags: ['weights']", "wake up the engine with tags: ['kv_cache']"} {
			require.Equal(t, 3, strings.Count(string(log), line), line)
		}
	})

	// Updates come while trajectories are sampled: their requests pause and go on, the server says which weights sampled which
	// token, and every update is proven.
	t.Run("async", func(t *testing.T) {
		const steps = 8
		j, err := job.Load(vllmJob, append(sets, "engine.weights=disk", "rollout.mode=async", "rollout.max_staleness=2", "algorithm.correction={kind: tis_token}",
			fmt.Sprint("trainer.steps=", steps), "rollout.group_size=8", "output="+t.TempDir()+"/run")...)
		require.NoError(t, err)
		before, err := os.ReadFile(server.Log)
		require.NoError(t, err)
		var out bytes.Buffer
		sum, err := Train(t.Context(), j, slowTools(t, 300*time.Millisecond, 1), Options{Out: &out})
		require.NoError(t, err, out.String())
		t.Log(out.String())
		require.Zero(t, sum.Trajectories["failed"])
		got := inspect(t, j.Output)
		t.Logf("%+v", got)
		require.Equal(t, steps*4*8, got.trained)
		require.Positive(t, got.mixed, "trajectories that went over an update")
		require.Positive(t, got.stale)
		require.LessOrEqual(t, got.stale, 2)
		log, err := os.ReadFile(server.Log)
		require.NoError(t, err)
		require.Equal(t, steps+1, strings.Count(string(log[len(before):]), "POST /pause?mode=keep"), "the first weights and one update a step")
	})

	// An agent that is a program of its own trains over the gateway: what the server sampled is what is trained, id by id, and the trainer's logprobs
	// are the server's. The weights before and after the step are proven, or the run stops.
	t.Run("an agent of its own", func(t *testing.T) {
		heard := &overheard{}
		between := heard.between(t, server.URL)
		agent := filepath.Join(t.TempDir(), "agent.py")
		require.NoError(t, os.WriteFile(agent, []byte(guestOfVLLM), 0o644))
		j, err := job.Load(vllmJob, append(sets, "engine.urls=["+between+"]", "engine.weights=disk", "agent={kind: external, command: [python3, "+agent+"]}", "rewards=[posted]",
			"rollout.max_new_tokens=4", "rollout.max_tokens=128", "rollout.group_size=8", "trainer.steps=1", "output="+t.TempDir()+"/run")...)
		require.NoError(t, err)
		var out bytes.Buffer
		sum, err := Train(t.Context(), j, prebuilt(t), Options{Out: &out})
		require.NoError(t, err, out.String())
		require.Zero(t, sum.Trajectories["failed"])
		require.Less(t, sum.MismatchMax, 1e-4, "engine and trainer disagree")
		heard.holds(t, j.Output, 4*8)
	})

	// An update that cannot be proven stops the run and says by how much.
	t.Run("stops on a disagreement", func(t *testing.T) {
		j, err := job.Load(vllmJob, append(sets, "trainer.steps=3", "rollout.group_size=4", "engine.tolerance=1e-9", "output="+t.TempDir()+"/run")...)
		require.NoError(t, err)
		var out bytes.Buffer
		_, err = Train(t.Context(), j, prebuilt(t), Options{Out: &out})
		require.ErrorContains(t, err, "vllm: update to version 0: http://127.0.0.1:")
		require.ErrorContains(t, err, "more than the tolerance of 1e-09")
		require.False(t, strings.Contains(err.Error(), "\n"), err)
	})
}

// localEngine is the engine of this process over a model.
func localEngine(t *testing.T, model string) *local.Engine {
	t.Helper()
	p, err := policy.Load(model, policy.Options{Device: "cpu"})
	require.NoError(t, err)
	t.Cleanup(func() { p.Close() })
	e, err := local.New(p.Model, local.Options{MaxModelLen: p.Config.MaxContext()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// likeliestAt are the likeliest tokens behind the prompt of a request and the tokens that were sampled.
func likeliestAt(t *testing.T, e engines.Engine, q engines.Request, sampled []int32, top int) []engines.Alternative {
	t.Helper()
	q.Prompt, q.Top, q.Sampling.MaxTokens = slices.Concat(q.Prompt, sampled), top, 1
	c, err := e.Generate(t.Context(), q)
	require.NoError(t, err)
	return c.Top[0]
}

// guestOfVLLM is an agent in Python without packages: it talks twice in one conversation, begins another one, and is paid for each 2 that it hears.
const guestOfVLLM = `
import json, os, urllib.request

def ask(messages):
    head = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    body = json.dumps({"model": "any", "messages": messages}).encode()
    reply = json.load(urllib.request.urlopen(urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, head)))
    return {"role": "assistant", "content": reply["choices"][0]["message"]["content"] or ""}

question = json.load(open(os.environ["AGENTFLY_TASK"]))["task"]["prompt"]
first = ask(question)
second = ask(question + [first, {"role": "user", "content": "1+1"}])
third = ask([{"role": "user", "content": "2+2"}])
said = first["content"] + second["content"] + third["content"]
json.dump({"answer": second["content"], "reward": said.count("2") / 12 + len(said) / 100}, open(os.environ["AGENTFLY_RESULT"], "w"))
`

// overheard is what a server was asked for and answered, as its own replies say.
type overheard struct {
	mu  sync.Mutex
	all []exchange
}

type exchange struct {
	prompt, sampled []int32
	logprobs        []float64
}

// between is the address of a proxy before a server, which listens.
func (o *overheard) between(t *testing.T, server string) string {
	t.Helper()
	target, err := url.Parse(server)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/inference/v1/generate" {
			proxy.ServeHTTP(w, r)
			return
		}
		asked, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(asked))
		reply := httptest.NewRecorder()
		proxy.ServeHTTP(reply, r)
		o.add(asked, reply.Body.Bytes())
		maps.Copy(w.Header(), reply.Header())
		w.WriteHeader(reply.Code)
		_, _ = w.Write(reply.Body.Bytes())
	}))
	t.Cleanup(front.Close)
	return front.URL
}

// add keeps an exchange that sampled something.
func (o *overheard) add(asked, answered []byte) {
	var request struct {
		IDs []int32 `json:"token_ids"`
	}
	var reply struct {
		Choices []struct {
			IDs      []int32 `json:"token_ids"`
			Logprobs *struct {
				Content []struct {
					Logprob float64 `json:"logprob"`
				} `json:"content"`
			} `json:"logprobs"`
		} `json:"choices"`
	}
	if json.Unmarshal(asked, &request) != nil || json.Unmarshal(answered, &reply) != nil || len(reply.Choices) == 0 || reply.Choices[0].Logprobs == nil {
		return
	}
	e := exchange{prompt: request.IDs, sampled: reply.Choices[0].IDs}
	for _, one := range reply.Choices[0].Logprobs.Content {
		e.logprobs = append(e.logprobs, one.Logprob)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, e)
}

// holds tells that what a run trained is what the server sampled, id by id: each turn is one exchange, of which the ids before the turn are the prompt,
// and nothing else is trained.
func (o *overheard) holds(t *testing.T, run string, trajectories int) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	db, err := store.OpenReader(filepath.Join(run, store.File))
	require.NoError(t, err)
	defer db.Close()
	seen, trained, sampled, updated := 0, 0, 0, 0
	asks := int32(-1) // the token before a reply
	require.NoError(t, db.Select(t.Context(), store.Selection{}, func(r store.Record) error {
		tr := r.Trajectory
		require.Empty(t, tr.Err)
		require.Len(t, tr.Turns, 3)
		require.Len(t, tr.Samples, 2, "the second conversation is a sample of its own")
		require.Equal(t, []int{0, 0, 1}, []int{tr.Turns[0].Sample, tr.Turns[1].Sample, tr.Turns[2].Sample})
		for _, turn := range tr.Turns {
			s := tr.Samples[turn.Sample]
			from, to := turn.CompletionStart, turn.CompletionEnd
			asks = s.TokenIDs[from-1]
			i := slices.IndexFunc(o.all, func(e exchange) bool {
				return slices.Equal(e.prompt, s.TokenIDs[:from]) && slices.Equal(e.sampled, s.TokenIDs[from:to]) && slices.EqualFunc(e.logprobs, s.SamplingLogprobs[from:to], func(a float64, b float32) bool {
					return float32(a) == b
				})
			})
			require.GreaterOrEqual(t, i, 0, "%s: the server did not sample %v after %v", tr.ID, s.TokenIDs[from:to], s.TokenIDs[:from])
			sampled += len(o.all[i].sampled)
			o.all = slices.Delete(o.all, i, i+1)
			for at := from; at < to; at++ {
				require.True(t, s.ResponseMask[at])
			}
		}
		for _, s := range tr.Samples {
			require.NoError(t, s.Check())
		}
		trained += tr.ResponseTokens()
		updated += len(r.Updates)
		seen++
		return nil
	}))
	require.Equal(t, trajectories, seen)
	require.Positive(t, sampled)
	require.Equal(t, sampled, trained)
	require.Positive(t, updated, "the step trained them")
	for _, e := range o.all { // the engine's own questions, by which it learns what the server can do, are no conversations
		require.NotEqual(t, asks, e.prompt[len(e.prompt)-1], "the server sampled %v after %v, and no trajectory has it", e.sampled, e.prompt)
	}
}

// A job with model.lora pushes adapters alone: the server keeps the base model, and every update is proven.
func TestRealVLLMTrainsAdapters(t *testing.T) {
	sets := append(vllmSets(t), "engine.weights=lora", "model.lora.rank=8", "trainer.learning_rate=0.01", "trainer.steps=4", "output="+t.TempDir()+"/run")
	j, err := job.Load(vllmJob, sets...)
	require.NoError(t, err)
	var out bytes.Buffer
	sum, err := Train(t.Context(), j, prebuilt(t), Options{Out: &out})
	require.NoError(t, err, out.String())
	t.Log(out.String())
	require.Less(t, sum.MismatchMax, 1e-3, "engine and trainer disagree: the server computes without the adapter")
	require.Zero(t, sum.Trajectories["failed"])
	last := filepath.Join(j.Output, "checkpoints", "last")
	merged, err := policy.Load(last, policy.Options{Device: "cpu"})
	require.NoError(t, err)
	defer merged.Close()
	base, err := policy.Load(j.ModelPath(j.Model.Path), policy.Options{Device: "cpu"})
	require.NoError(t, err)
	defer base.Close()
	require.NoError(t, base.LoadAdapter(filepath.Join(last, checkpoint.AdapterFolder)))
	ids := []int32{5, 9, 7, 3, 11, 4, 8}
	a, _, err := trainer.LogprobsOf(merged.Model, ids, 1)
	require.NoError(t, err)
	b, _, err := trainer.LogprobsOf(base.Model, ids, 1)
	require.NoError(t, err)
	base.Model.SetAdapter(false)
	off, _, err := trainer.LogprobsOf(base.Model, ids, 1)
	require.NoError(t, err)
	require.InDeltaSlice(t, a, b, 1e-4)
	moved := 0.0
	for i := range a {
		moved = max(moved, float64(max(a[i]-off[i], off[i]-a[i])))
	}
	require.Greater(t, moved, 10*sum.MismatchMax, "the adapter did nothing: the proof proves nothing")
}
