package vllm

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/enginetest"
	"github.com/agentfly/agentfly/modelfile"
)

// real is the server that the tests share, which is started again when it ends. scripts/test_vllm.sh sets the variables.
var real struct {
	once sync.Once
	kept *Kept
	url  string
	err  error
}

func TestMain(m *testing.M) {
	if os.Getenv(fakeServer) != "" {
		os.Exit(serveFake(os.Args[1:]))
	}
	status := m.Run()
	if real.kept != nil {
		if real.kept.Restarts() > 0 || real.kept.Gone() != nil {
			fmt.Print(crashes(real.kept.Log()))
		}
		if err := real.kept.Close(); err != nil {
			fmt.Println(err)
			status = 1
		}
	}
	os.Exit(status)
}

// crashes are the lines of a server's log that say why a process of it ended by itself.
func crashes(log string) string {
	data, err := os.ReadFile(log)
	if err != nil {
		return err.Error() + "\n"
	}
	why := regexp.MustCompile(`Fatal Python error|terminate called|what\(\):|died unexpectedly|[Ss]egmentation|Killed|Out of memory`)
	lines, text := strings.Split(string(data), "\n"), ""
	for i, line := range lines {
		if why.MatchString(line) {
			text += "    real vLLM: " + strings.Join(lines[max(0, i-3):min(len(lines), i+20)], "\n    real vLLM: ") + "\n"
		}
	}
	return text
}

const skipReason = "no vLLM: AGENTFLY_VLLM is not set; run make test-vllm"

// models is the folder that scripts/make_tiny_model.py wrote.
func models(t *testing.T) string {
	folder := os.Getenv("AGENTFLY_VLLM_MODELS")
	if folder == "" {
		t.Skip(skipReason)
	}
	return folder
}

func serveOptions(t *testing.T, folder string) ServeOptions {
	return ServeOptions{Command: os.Getenv("AGENTFLY_VLLM"), Model: filepath.Join(models(t), "a"), MaxModelLen: 1024, CPU: true, Folder: folder, LoRARank: 8}
}

// realURL is the shared server's address; it is started at the first call.
func realURL(t *testing.T) string {
	folder := models(t)
	real.once.Do(func() {
		if real.url = os.Getenv("AGENTFLY_VLLM_URL"); real.url != "" {
			return
		}
		logs := filepath.Join(filepath.Dir(folder), "log")
		real.err = os.RemoveAll(logs)
		if real.err != nil {
			return
		}
		start := time.Now()
		real.kept, real.err = Keep(context.Background(), serveOptions(t, logs), func(line string) { fmt.Println("    real vLLM:", line) })
		if real.err == nil {
			real.url = real.kept.URL()
			fmt.Printf("    real vLLM answers after %.0f s\n", time.Since(start).Seconds())
		}
	})
	require.NoError(t, real.err)
	return real.url
}

func realEngine(t *testing.T, change func(o *Options)) *Engine {
	o := Options{URLs: []string{realURL(t)}}
	if real.kept != nil {
		o.Gone, o.APIKey = real.kept.Gone, real.kept.APIKey()
	}
	if change != nil {
		change(&o)
	}
	e, err := New(t.Context(), o)
	for start := time.Now(); lost(err) && real.kept != nil && real.kept.Gone() == nil && time.Since(start) < 2*time.Minute; {
		time.Sleep(time.Second) // it is being started again
		e, err = New(t.Context(), o)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// realWeights names one of the folders with its probe.
func realWeights(t *testing.T, name string, version int32) engines.Weights {
	t.Helper()
	folder := filepath.Join(models(t), name)
	data, err := os.ReadFile(filepath.Join(folder, "probe.json"))
	require.NoError(t, err)
	var probe struct {
		IDs      []int32   `json:"ids"`
		Logprobs []float32 `json:"logprobs"`
	}
	require.NoError(t, json.Unmarshal(data, &probe))
	return engines.Weights{Version: version, Path: folder, Probe: &engines.Probe{TokenIDs: probe.IDs, Logprobs: probe.Logprobs, Tolerance: 1e-4}}
}

func vocabulary(t *testing.T) int {
	data, err := os.ReadFile(filepath.Join(models(t), "a", "config.json"))
	require.NoError(t, err)
	c, err := modelfile.ParseConfig(data, nil)
	require.NoError(t, err)
	return c.VocabSize
}

func request(n int, prompt ...int32) engines.Request {
	return engines.Request{ID: "r", Session: "s", Prompt: prompt, Seed: 5, Sampling: engines.Sampling{MaxTokens: n, Temperature: 1, TopP: 1}}
}

func TestRealCapabilities(t *testing.T) {
	e := realEngine(t, nil)
	s := e.Servers()[0]
	t.Log(e.Summary())
	require.Equal(t, "policy", s.Model)
	require.Equal(t, 1024, s.MaxModelLen)
	require.True(t, s.Native && s.Processed && s.Control && s.Reload && s.LoRA && s.Transfer, "%+v", s)
	require.Equal(t, engines.Capabilities{TokenIDs: true, WeightUpdates: true, Top: MaxLogprobs, MaxModelLen: 1024}, e.Capabilities())
}

// Both routes give the same tokens, and logprobs of what is sampled: at temperature 0.5 they are those of temperature 0.5. So they do of the likeliest tokens,
// but for the last one at places where the native route has no room for it.
func TestRealRoutesAgree(t *testing.T) {
	e := realEngine(t, nil)
	places, short := map[int]int{}, map[int]int{}
	for _, s := range []engines.Sampling{
		{MaxTokens: 12, Temperature: 1, TopP: 1},
		{MaxTokens: 12, Temperature: 0.5, TopP: 0.9, TopK: 20, MinP: 0.01},
		{MaxTokens: 12, Temperature: 0, TopP: 1},
		{MaxTokens: 12, Temperature: 0, TopP: 0.5, TopK: 3}, // greedy: truncation changes nothing
	} {
		q := request(12, 40, 41, 42, 43)
		q.Sampling = s
		native, err := e.Generate(t.Context(), q)
		require.NoError(t, err)
		info := e.fleet.replicas[0].standing.info()
		info.Native = false
		e.fleet.replicas[0].standing.setInfo(info)
		fallback, err := e.Generate(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, native.TokenIDs, fallback.TokenIDs)
		require.InDeltaSlice(t, native.Logprobs, fallback.Logprobs, 1e-5)
		require.Equal(t, native.Versions, fallback.Versions)
		require.Equal(t, native.FinishReason, fallback.FinishReason)
		for _, top := range []int{4, MaxLogprobs} {
			q.Top, info.Native = top, true
			e.fleet.replicas[0].standing.setInfo(info)
			one, err := e.Generate(t.Context(), q)
			require.NoError(t, err)
			info.Native = false
			e.fleet.replicas[0].standing.setInfo(info)
			other, err := e.Generate(t.Context(), q)
			require.NoError(t, err)
			require.Equal(t, native.TokenIDs, one.TokenIDs)
			require.Equal(t, native.TokenIDs, other.TokenIDs)
			for i, want := range other.Top {
				places[top]++
				require.Len(t, want, top)
				got := one.Top[i]
				if len(got) < top {
					short[top]++
				}
				require.GreaterOrEqual(t, len(got), top-1)
				for n, a := range got {
					if math.IsInf(float64(a.Logprob), -1) { // which ones these are, torch.topk may choose
						require.Equal(t, a.Logprob, want[n].Logprob)
						continue
					}
					require.Equal(t, want[n].ID, a.ID)
					require.InDelta(t, want[n].Logprob, a.Logprob, 1e-5)
				}
			}
		}
		q.Top, info.Native = 0, true
		e.fleet.replicas[0].standing.setInfo(info)
		fresh, err := e.fleet.replicas[0].completer.logprobs(t.Context(), info.Native, "policy", append(q.Prompt, native.TokenIDs...))
		require.NoError(t, err)
		if s.Temperature == 0 || s.Temperature == 1 {
			require.InDeltaSlice(t, fresh[3:], native.Logprobs, 1e-4, "%+v", s)
		} else {
			require.Greater(t, sum(native.Logprobs), sum(fresh[3:])+1, "a sharper distribution gives its tokens more")
		}
	}
	require.Zero(t, short[4], "one more is asked for")
	require.Positive(t, short[MaxLogprobs], "the server tells no more")
	t.Logf("of %d places %d lack the last of %d likeliest tokens", places[MaxLogprobs], short[MaxLogprobs], MaxLogprobs)
	q := request(4, 40, 41)
	q.Top = MaxLogprobs + 1
	_, err := e.Generate(t.Context(), q)
	require.ErrorContains(t, err, "tells 20; start vLLM with --max-logprobs 22")
	_, err = e.fleet.replicas[0].generate(t.Context(), q) // as if the limit were not known
	require.ErrorContains(t, err, "Requested sample logprobs of 21, which is greater than max allowed: 20")
	require.ErrorContains(t, err, "; the request asks for the 21 likeliest tokens (rollout.tree.top): ask for fewer, or start vLLM with --max-logprobs 22")
	require.ErrorIs(t, err, engines.ErrRefused)
	most, err := probeMaxLogprobs(t.Context(), e.fleet.replicas[0].completer, false, "policy")
	require.NoError(t, err)
	require.Equal(t, MaxLogprobs, most, "/v1/completions says it too")
}

func sum(v []float32) float64 {
	s := 0.0
	for _, x := range v {
		s += float64(x)
	}
	return s
}

func TestRealConformance(t *testing.T) {
	url := realURL(t)
	folder := filepath.Join(models(t), "a")
	m, err := modelfile.Open(folder)
	require.NoError(t, err)
	require.NoError(t, m.Close())
	enginetest.Run(t, func(t *testing.T) enginetest.Subject {
		o := Options{URLs: []string{url}}
		if real.kept != nil {
			o.APIKey = real.kept.APIKey()
		}
		e, err := New(t.Context(), o)
		require.NoError(t, err)
		return enginetest.Subject{
			Engine: e, Vocab: vocabulary(t), Version: e.options.number(e.Servers()[0].Version, 0), Decode: decoder(t, folder), Distribution: true,
			Weights: func(version int32, err error) engines.Weights {
				w := realWeights(t, "a", version)
				if err != nil {
					w.Probe.Logprobs[3] -= 1
				}
				return w
			},
		}
	})
}

// decoder spells tokens as vLLM does: byte-level BPE of ASCII.
func decoder(t *testing.T, folder string) func(ids []int32) string {
	data, err := os.ReadFile(filepath.Join(folder, "tokenizer.json"))
	require.NoError(t, err)
	var file struct {
		Model struct{ Vocab map[string]int32 }
		Added []struct {
			ID      int32
			Content string
		} `json:"added_tokens"`
	}
	require.NoError(t, json.Unmarshal(data, &file))
	text := map[int32]string{}
	for s, id := range file.Model.Vocab {
		var out []byte
		for _, r := range s {
			if r > 255 { // the blank and the newline
				r -= 256
			}
			out = append(out, byte(r))
		}
		text[id] = string(out)
	}
	for _, a := range file.Added {
		text[a.ID] = a.Content
	}
	return func(ids []int32) string {
		s := ""
		for _, id := range ids {
			s += text[id]
		}
		return s
	}
}

func TestRealUpdates(t *testing.T) {
	for _, way := range []Way{WayDisk, WayTransfer} {
		t.Run(string(way), func(t *testing.T) {
			e := realEngine(t, func(o *Options) { o.Way = way })
			q := request(16, 40, 41, 42, 43)
			require.NoError(t, e.Update(t.Context(), realWeights(t, "a", 1)))
			a, err := e.Generate(t.Context(), q)
			require.NoError(t, err)
			start := time.Now()
			require.NoError(t, e.Update(t.Context(), realWeights(t, "b", 2)))
			t.Logf("an update with its proof took %v", time.Since(start).Round(time.Millisecond))
			b, err := e.Generate(t.Context(), q)
			require.NoError(t, err)
			require.NotEqual(t, a.TokenIDs, b.TokenIDs)
			require.Equal(t, int32(2), b.Versions[0])
			require.NoError(t, e.Update(t.Context(), realWeights(t, "a", 3)))
			again, err := e.Generate(t.Context(), q)
			require.NoError(t, err)
			require.Equal(t, a.TokenIDs, again.TokenIDs)
			require.Equal(t, a.Logprobs, again.Logprobs, "the same bits")
		})
	}
}

// steps runs some steps of an update by hand, to leave out what a fault would.
func steps(t *testing.T, e *Engine, w engines.Weights, run func(u *updateRun) error) error {
	t.Helper()
	r := e.fleet.replicas[0]
	u := &updateRun{replica: r, weights: w, way: e.options.wayOf(w.Path), version: e.options.versionName(w.Version), before: r.standing.held().model}
	u.model = r.modelFor(u.way)
	return run(u)
}

// The failures that are known from practice, on the real server: the proof finds each, and an update repairs it.
func TestRealProofFinds(t *testing.T) {
	e := realEngine(t, nil)
	ctx := t.Context()
	for i, c := range []struct {
		name, want string
		run        func(u *updateRun) error
	}{
		{"stale prefix cache", "decoding after the prefix cache against computing anew", func(u *updateRun) error {
			require.NoError(t, u.warm(ctx))
			require.NoError(t, u.load(ctx)) // without pause and without emptying the cache
			require.NoError(t, u.name(ctx))
			return u.prove(ctx)
		}},
		{"missed update", "probe: the logprob of token", func(u *updateRun) error {
			require.NoError(t, u.name(ctx))
			return u.prove(ctx)
		}},
		{"missed version", "the server reports weight version", func(u *updateRun) error {
			require.NoError(t, u.load(ctx))
			require.NoError(t, u.empty(ctx))
			return u.prove(ctx)
		}},
		// The other half is memory that nobody wrote: where that is NaN, the server cannot even answer.
		{"half of the fused groups", "probe: the logprob of token|not JSON compliant", func(u *updateRun) error {
			u.weights.Path = filepath.Join(models(t), "half")
			require.NoError(t, u.load(ctx), "the server says nothing")
			require.NoError(t, u.name(ctx))
			require.NoError(t, u.empty(ctx))
			return u.prove(ctx)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			version := int32(10 * (i + 1))
			require.NoError(t, e.Update(ctx, realWeights(t, "a", version)))
			err := steps(t, e, realWeights(t, "b", version+1), c.run)
			require.NoError(t, e.Update(ctx, realWeights(t, "b", version+2)))
			require.Error(t, err)
			require.Regexp(t, c.want, err.Error())
			t.Log(err)
		})
	}
	half := realWeights(t, "half", 99)
	require.ErrorContains(t, e.Update(ctx, half), "so the group must come whole", "and it is refused before a server is touched")
}

func TestRealAdapter(t *testing.T) {
	e := realEngine(t, nil)
	q := request(16, 40, 41, 42, 43)
	require.NoError(t, e.Update(t.Context(), realWeights(t, "a", 1)))
	base, err := e.Generate(t.Context(), q)
	require.NoError(t, err)
	require.NoError(t, e.Update(t.Context(), realWeights(t, "lora", 2)))
	adapted, err := e.Generate(t.Context(), q)
	require.NoError(t, err)
	require.NotEqual(t, base.Logprobs, adapted.Logprobs)
	require.Equal(t, int32(2), adapted.Versions[0])

	// one that never arrived: the server answers well and computes with nothing of it
	w := realWeights(t, "lora", 3)
	empty := t.TempDir()
	config, err := os.ReadFile(filepath.Join(w.Path, "adapter_config.json"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(empty, "adapter_config.json"), config, 0o644))
	m, err := modelfile.OpenSafetensors(filepath.Join(w.Path, "adapter_model.safetensors"))
	require.NoError(t, err)
	defer m.Close()
	var zeros []modelfile.Source
	for _, name := range m.Names() {
		info, _ := m.Info(name)
		zeros = append(zeros, modelfile.Source{Name: name, DType: modelfile.F32, Shape: info.Shape, Write: func(w io.Writer) error {
			_, err := w.Write(make([]byte, 4*info.Elements()))
			return err
		}})
	}
	require.NoError(t, modelfile.WriteSafetensors(filepath.Join(empty, "adapter_model.safetensors"), nil, zeros))
	w.Path = empty
	var proof *ProofError
	require.ErrorAs(t, e.Update(t.Context(), w), &proof)
	t.Log(proof)
	require.NoError(t, e.Update(t.Context(), realWeights(t, "lora", 4)))
	require.NoError(t, e.Update(t.Context(), realWeights(t, "a", 5)), "and back to the model itself")
	again, err := e.Generate(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, base.TokenIDs, again.TokenIDs)
}

// A fork of a trajectory is found in the server's prefix cache: of its prompt, the other trajectory's tokens up to the fork, the server computes the last
// block alone, as it says in the reply and counts in its metrics. An equally long prompt of other tokens has none of it.
func TestRealForksHitThePrefixCache(t *testing.T) {
	e := realEngine(t, nil)
	counted := func() (hits float64) {
		reply, err := http.Get(realURL(t) + "/metrics")
		require.NoError(t, err)
		defer reply.Body.Close()
		text, err := io.ReadAll(reply.Body)
		require.NoError(t, err)
		found := regexp.MustCompile(`(?m)^vllm:prefix_cache_hits_total\{[^}]*\} (\S+)$`).FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, found, "the server tells no hits")
		for _, f := range found {
			n, err := strconv.ParseFloat(f[1], 64)
			require.NoError(t, err)
			hits += n
		}
		return hits
	}
	const block = 128 // no server has larger ones on a CPU
	prompt := make([]int32, 600)
	for i := range prompt {
		prompt[i] = int32(1 + i*i%(vocabulary(t)-2))
	}
	q := request(100, prompt...)
	q.ID, q.Session = "run/train-0-0-0-0", "run/train-0-0-0"
	parent, err := e.Generate(t.Context(), q)
	require.NoError(t, err)
	before := counted()
	for n, at := range []int{0, len(parent.TokenIDs) / 2} { // before a turn, and within it
		fork := q
		fork.ID, fork.Seed, fork.Prompt = fmt.Sprintf("run/train-0-0-0.%d-0", n), uint64(10+n), slices.Concat(prompt, parent.TokenIDs[:at])
		c, err := e.Generate(t.Context(), fork)
		require.NoError(t, err)
		require.GreaterOrEqual(t, c.CachedTokens, len(fork.Prompt)-block)
		t.Logf("a fork of %d tokens: %d were cached", len(fork.Prompt), c.CachedTokens)
	}
	require.Eventually(t, func() bool { return counted()-before >= float64(2*(len(prompt)-block)) }, 20*time.Second, 100*time.Millisecond, "hits before %v, now %v", before, counted())
	other := slices.Clone(prompt)
	slices.Reverse(other)
	q.Prompt, q.ID = other, "run/train-0-1-0-0"
	c, err := e.Generate(t.Context(), q)
	require.NoError(t, err)
	require.Zero(t, c.CachedTokens)
}

// A server that computes in bfloat16 says so, and its updates are proven within the tolerance of that type: float32's refuses
// it, and other weights are far outside.
func TestRealBFloat16(t *testing.T) {
	o := serveOptions(t, t.TempDir())
	o.DType, o.LoRARank = "bfloat16", 0
	server, err := Serve(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	e, err := New(t.Context(), Options{URLs: []string{server.URL}, APIKey: server.APIKey})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	s := e.Servers()[0]
	require.Equal(t, "bfloat16", s.DType)
	require.False(t, s.LoRA, "it was not started for adapters")
	w := realWeights(t, "b", 1)
	w.Probe.Tolerance = Tolerance(s.DType)
	require.NoError(t, e.Update(t.Context(), w))
	w.Version, w.Probe.Tolerance = 2, Tolerance("float32")
	var far *ProofError
	require.ErrorAs(t, e.Update(t.Context(), w), &far)
	t.Logf("bfloat16 is %.3g from float32", math.Abs(far.Engine-far.Trainer))
	wrong := realWeights(t, "a", 3)
	wrong.Probe = w.Probe
	wrong.Probe.Tolerance = Tolerance(s.DType)
	require.ErrorAs(t, e.Update(t.Context(), wrong), &far)
	require.Greater(t, math.Abs(far.Engine-far.Trainer), 1.0)
}
