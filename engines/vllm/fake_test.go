package vllm

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/modelfile"
)

const (
	fakeVocab   = 8
	fakeContext = 128
)

// fake is a scripted vLLM: a model whose weights are one number, with the routes that the engine uses.
type fake struct {
	*httptest.Server
	mu       sync.Mutex
	weights  float64
	version  string
	paused   bool
	asleep   map[string]bool // tags of memory that is not resident
	resumed  chan struct{}
	cache    map[string]float64 // weights that computed a prompt
	requests int                // completions asked for
	sampled  int                // tokens of all completions
	dtype    string             // that it says it computes in
	paths    []string           // control routes in the order of their calls

	routes    []string                                                     // of openapi.json
	limit     int                                                          // --max-logprobs
	shy       bool                                                         // what is beyond limit is refused in words that nobody knows
	raw       bool                                                         // logprobs of the model, not of what is sampled
	stale     bool                                                         // the prefix cache is not emptied, and the answer says that it was
	refuse    int                                                          // times that emptying the cache is refused
	deaf      bool                                                         // loads answer well and change nothing
	name      string                                                       // of its model; "": policy
	length    int                                                          // max_model_len; 0: fakeContext
	noVersion bool                                                         // replies do not say which weights sampled
	tells     bool                                                         // /v1/completions says it too
	half      bool                                                         // a load began and did not end: layers are empty, and a token ends vLLM
	died      bool                                                         // of that
	pace      time.Duration                                                // of a token, beyond a millisecond
	onAdapter func(name string)                                            // told of each adapter that is loaded; nil: nobody
	intercept func(w http.ResponseWriter, q *http.Request, n int) bool     // true: it has answered; n counts completions
	control   func(w http.ResponseWriter, q *http.Request) (answered bool) // the same for everything else
}

var allRoutes = []string{
	"/inference/v1/generate", "/v1/completions", "/pause", "/resume", "/is_paused", "/update_weight_version", "/weight_info", "/reset_prefix_cache",
	"/collective_rpc", "/sleep", "/wake_up", "/is_sleeping", "/v1/load_lora_adapter", "/update_weights", "/start_weight_update", "/finish_weight_update",
}

func newFake(t *testing.T) *fake {
	f := &fake{limit: 20, weights: 1, version: "default", cache: map[string]float64{}, routes: allRoutes, resumed: make(chan struct{})}
	close(f.resumed)
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// restart is what a crash and a new start leave.
func (f *fake) restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.weights, f.version, f.cache, f.asleep, f.half = 1, "default", map[string]float64{}, nil, false
	f.release()
}

// mortal is a server whose engine dies once, and which is not healthy from then on until it is back.
type mortal struct {
	*fake
	dying, dead, back atomic.Bool
}

// diesIn has the engine die in the first request for a path, which last ends. It says with dead when it is known, and calls revive. Other requests
// meanwhile get after; nil: their answers.
func (f *fake) diesIn(path string, last func(m *mortal, w http.ResponseWriter, q *http.Request), after func(http.ResponseWriter)) *mortal {
	m := &mortal{fake: f}
	f.set(func() {
		before := f.control
		f.control = func(w http.ResponseWriter, q *http.Request) bool {
			switch {
			case q.URL.Path == path && m.dying.CompareAndSwap(false, true):
				last(m, w, q)
			case m.dead.Load() && q.URL.Path == "/health":
				http.Error(w, "", http.StatusServiceUnavailable)
			case m.dead.Load() && after != nil:
				after(w)
			default:
				return before != nil && before(w, q)
			}
			return true
		}
	})
	return m
}

// revive starts the server again.
func (m *mortal) revive() {
	m.restart()
	m.back.Store(true)
	m.dead.Store(false)
}

// abort closes the connection without an answer.
func abort(http.ResponseWriter) { panic(http.ErrAbortHandler) }

func (f *fake) release() {
	if f.paused {
		f.paused = false
		close(f.resumed)
	}
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// fakeLogprobs is the model: [vocabulary] after a sequence.
func fakeLogprobs(weights, temperature float64, ids []int32) []float64 {
	out := make([]float64, fakeVocab)
	total := 0.0
	data := binary.LittleEndian.AppendUint64(nil, math.Float64bits(weights))
	for _, id := range ids {
		data = binary.LittleEndian.AppendUint32(data, uint32(id))
	}
	h := fnv.New64a()
	h.Write(data)
	context := h.Sum64()
	for v := range out {
		x := (context + uint64(v)) * 0x9e3779b97f4a7c15 // the finalizer of splitmix64 spreads the bits
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		out[v] = float64((x>>32)%1000) / 300 / temperature
		total += math.Exp(out[v])
	}
	for v := range out {
		out[v] -= math.Log(total)
	}
	return out
}

func fakeScore(weights float64, ids []int32) []float32 {
	var out []float32
	for i := 1; i < len(ids); i++ {
		out = append(out, float32(fakeLogprobs(weights, 1, ids[:i])[ids[i]]))
	}
	return out
}

// fakeWeights writes a folder with one number and its probe.
func fakeWeights(t testing.TB, weights float32, version int32) engines.Weights {
	folder := t.TempDir()
	require.NoError(t, modelfile.WriteSafetensors(filepath.Join(folder, "model.safetensors"), nil, []modelfile.Source{{
		Name: "w", DType: modelfile.F32, Shape: []int{1}, Write: func(w io.Writer) error {
			data, err := modelfile.Encode(nil, []float32{weights}, modelfile.F32)
			if err == nil {
				_, err = w.Write(data)
			}
			return err
		},
	}}))
	ids := []int32{1, 2, 3, 4, 5, 6}
	return engines.Weights{Version: version, Path: folder, Probe: &engines.Probe{TokenIDs: ids, Logprobs: fakeScore(float64(weights), ids), Tolerance: 1e-3}}
}

// ServeHTTP routes.
func (f *fake) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	f.mu.Lock()
	intercept, control := f.intercept, f.control
	f.mu.Unlock()
	switch path := q.URL.Path; path {
	case "/inference/v1/generate", "/v1/completions":
		f.mu.Lock()
		f.requests++
		n := f.requests
		f.died = f.died || f.half
		died := f.died
		f.mu.Unlock()
		if died {
			http.Error(w, `{"error": {"message": "EngineDeadError"}}`, http.StatusInternalServerError)
			return
		}
		if intercept == nil || !intercept(w, q, n) {
			f.complete(w, q)
		}
	default:
		if control == nil || !control(w, q) {
			f.controls(w, q)
		}
	}
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}

func (f *fake) controls(w http.ResponseWriter, q *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var body struct {
		Method     string            `json:"method"`
		Kwargs     map[string]string `json:"kwargs"`
		NewVersion string            `json:"new_version"`
		Version    string            `json:"weight_version"`
		LoRAPath   string            `json:"lora_path"`
		LoRAName   string            `json:"lora_name"`
		Update     *transferPlan     `json:"update_info"`
	}
	if q.Method == http.MethodPost {
		f.paths = append(f.paths, q.URL.Path)
		_ = json.NewDecoder(q.Body).Decode(&body) // a body is optional
	}
	switch q.URL.Path {
	case "/health":
	case "/version":
		answer(w, map[string]any{"version": "0.0-fake"})
	case "/v1/models":
		answer(w, map[string]any{"data": []any{map[string]any{"id": cmp.Or(f.name, "policy"), "max_model_len": cmp.Or(f.length, fakeContext)}}})
	case "/openapi.json":
		paths := map[string]any{}
		for _, r := range f.routes {
			paths[r] = map[string]any{}
		}
		answer(w, map[string]any{"paths": paths})
	case "/weight_info":
		answer(w, map[string]any{"weight_version": f.version})
	case "/pause":
		f.pause()
	case "/sleep", "/wake_up", "/is_sleeping":
		f.sleeps(w, q)
	case "/is_paused":
		answer(w, map[string]any{"is_paused": f.paused})
	case "/resume":
		f.release()
	case "/update_weight_version":
		f.version = body.NewVersion
	case "/reset_prefix_cache":
		if f.refuse > 0 {
			f.refuse--
			answer(w, map[string]any{"success": false})
			return
		}
		if !f.stale {
			f.cache = map[string]float64{}
		}
		answer(w, map[string]any{"success": true})
	case "/collective_rpc":
		switch body.Method {
		case "agentfly_present":
			f.paths = f.paths[:len(f.paths)-1] // asked before any update
			answer(w, map[string]any{"results": []any{map[string]any{"dtype": f.dtype}}})
		case "reload_weights":
			f.load(w, body.Kwargs["weights_path"])
		}
	case "/v1/load_lora_adapter":
		if f.onAdapter != nil {
			f.onAdapter(body.LoRAName)
		}
		if !f.deaf {
			f.weights += 10
		}
	case "/update_weights":
		data, err := os.ReadFile(body.Update.File)
		if err == nil && int64(len(data)) != body.Update.Size {
			err = fmt.Errorf("%d bytes of %d", len(data), body.Update.Size)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		values, err := modelfile.Tensor{TensorInfo: modelfile.TensorInfo{DType: modelfile.F32, Shape: []int{1}}, Data: data}.Float32()
		if err == nil && !f.deaf {
			f.weights = float64(values[0])
		}
	case "/start_weight_update": // initialize_layerwise_reload of model_loader/reload/layerwise.py (0.32.0)
		f.half = true
	case "/finish_weight_update":
		f.version, f.half = body.Version, false
	case "/init_weight_transfer_engine", "/shutdown_weight_transfer_engine":
	default:
		http.NotFound(w, q)
	}
}

func (f *fake) pause() {
	if !f.paused {
		f.paused, f.resumed = true, make(chan struct{})
	}
}

// sleeps is vLLM's entrypoints/serve/dev/sleep/api_router.py over v1/engine/core.py and v1/executor/abstract.py (0.32.0): sleep
// pauses and takes both tags; a wake of tags that do not sleep changes nothing; nothing runs before both are back.
func (f *fake) sleeps(w http.ResponseWriter, q *http.Request) {
	switch q.URL.Path {
	case "/sleep":
		level := q.URL.Query().Get("level")
		if mode := q.URL.Query().Get("mode"); !slices.Contains([]string{"0", "1", "2"}, level) || !slices.Contains([]string{"abort", "wait", "keep"}, mode) {
			http.Error(w, "", http.StatusUnprocessableEntity)
			return
		}
		f.pause()
		if level > "0" {
			f.cache, f.asleep = map[string]float64{}, map[string]bool{"weights": true, "kv_cache": true}
		}
		if level == "2" {
			f.weights = math.Inf(1) // what the memory holds when it is back
		}
		answer(w, map[string]any{"status": "sleeping", "level": level})
	case "/wake_up":
		tags := q.URL.Query()["tags"]
		if len(f.asleep) > 0 && !slices.ContainsFunc(tags, func(t string) bool { return !f.asleep[t] }) {
			for _, t := range tags {
				delete(f.asleep, t)
			}
			if tags == nil {
				f.asleep = nil
			}
		}
		status := "sleeping"
		if len(f.asleep) == 0 {
			status = "awake"
			f.release()
		}
		answer(w, map[string]any{"status": status, "tags": tags})
	case "/is_sleeping":
		answer(w, map[string]any{"is_sleeping": f.paused || len(f.asleep) > 0})
	}
}

func (f *fake) load(w http.ResponseWriter, path string) {
	if f.asleep["weights"] {
		http.Error(w, "the weights are not resident", http.StatusInternalServerError)
		return
	}
	if f.deaf {
		return
	}
	f.half = true
	m, err := modelfile.Open(path)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer m.Close()
	t, err := m.Tensor("w")
	if err == nil {
		f.half = false
		var values []float32
		if values, err = t.Float32(); err == nil {
			f.weights = float64(values[0])
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

type fakeRequest struct {
	Prompt   []int32         `json:"prompt"`
	TokenIDs []int32         `json:"token_ids"`
	Params   *fakeParameters `json:"sampling_params"`
	fakeParameters
}

type fakeParameters struct {
	MaxTokens   int     `json:"max_tokens"`
	Temperature float64 `json:"temperature"`
	TopK        int     `json:"top_k"`
	Seed        int64   `json:"seed"`
	StopIDs     []int32 `json:"stop_token_ids"`
	Score       *int    `json:"prompt_logprobs"`
	Logprobs    int     `json:"logprobs"`
}

// complete samples token by token and stops while the server is paused.
func (f *fake) complete(w http.ResponseWriter, q *http.Request) {
	var in fakeRequest
	if err := json.NewDecoder(q.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	native := in.Params != nil
	prompt, p := in.Prompt, in.fakeParameters
	if native {
		prompt, p = in.TokenIDs, *in.Params
	}
	if slices.Max(prompt) >= fakeVocab {
		http.Error(w, `{"error": {"message": "token out of vocabulary"}}`, http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	limit, shy := f.limit, f.shy
	f.mu.Unlock()
	switch {
	case p.Logprobs > limit && shy:
		http.Error(w, `{"error": {"message": "so many logprobs"}}`, http.StatusBadRequest)
		return
	case p.Logprobs > limit: // sampling_params.py (0.32.0)
		http.Error(w, fmt.Sprintf(`{"error": {"message": "Requested sample logprobs of %d, which is greater than max allowed: %d", "type": "BadRequestError", "param": "logprobs", "code": 400}}`, p.Logprobs, limit), http.StatusBadRequest)
		return
	case p.Logprobs > fakeVocab: // torch.topk raises, and the engine is dead
		http.Error(w, `{"error": {"message": "EngineDeadError"}}`, http.StatusInternalServerError)
		return
	}
	ids := slices.Clone(prompt)
	var logprobs []float64
	var tops [][]idLogprob
	var spans []span
	reason := "length"
	for len(logprobs) < p.MaxTokens {
		if !f.running(q.Context()) {
			return
		}
		f.mu.Lock()
		if f.paused { // since it was asked: as in vLLM, names of weights change between two tokens alone
			f.mu.Unlock()
			continue
		}
		weights, version, raw := f.weights, f.version, f.raw
		key := fmt.Sprint(prompt)
		if old, ok := f.cache[key]; ok && p.Score == nil {
			weights = old // keys and values of these weights
		} else {
			f.cache[key] = weights
		}
		f.sampled++
		f.mu.Unlock()
		id, logprob, distribution := fakeSample(weights, p, ids, raw)
		tops = append(tops, fakeTop(id, distribution, p.Logprobs))
		if n := len(spans); n == 0 || spans[n-1].Version != version {
			spans = append(spans, span{version, len(logprobs), 0})
		}
		ids, logprobs = append(ids, id), append(logprobs, logprob)
		spans[len(spans)-1].End = len(logprobs)
		if slices.Contains(p.StopIDs, id) {
			reason = "stop"
			break
		}
		if p.MaxTokens > 8 {
			time.Sleep(time.Millisecond + f.pace) // long ones last, so that something can happen meanwhile
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var scores []any
	if p.Score != nil {
		scores = append(scores, nil)
		for i, v := range fakeScore(f.weights, prompt) {
			scores = append(scores, map[string]any{strconv.Itoa(int(prompt[i+1])): map[string]any{"logprob": v}})
		}
	}
	if f.noVersion {
		spans = nil
	}
	answer(w, fakeReply(native, ids[len(prompt):], logprobs, tops, max(p.Logprobs, 1), reason, spans, f.tells, scores))
}

// running waits while the server is paused.
func (f *fake) running(ctx context.Context) bool {
	f.mu.Lock()
	resumed := f.resumed
	f.mu.Unlock()
	select {
	case <-resumed:
		return true
	case <-ctx.Done():
		return false
	}
}

// fakeSample is a token, its logprob, and the logprobs that the server tells: -9999 for what truncation excludes.
func fakeSample(weights float64, p fakeParameters, ids []int32, raw bool) (id int32, logprob float64, told []float64) {
	temperature := p.Temperature
	if temperature == 0 {
		temperature = 1
	}
	l := fakeLogprobs(weights, temperature, ids)
	if order := byLikelihood(l); p.TopK > 0 && p.Temperature > 0 {
		total := 0.0
		for _, v := range order[:p.TopK] {
			total += math.Exp(l[v])
		}
		for n, v := range order {
			if l[v] -= math.Log(total); n >= p.TopK {
				l[v] = -9999
			}
		}
	}
	id = byLikelihood(l)[0]
	if p.Temperature > 0 {
		h := fnv.New32a()
		fmt.Fprint(h, p.Seed, ids)
		at := float64(h.Sum32()%100000) / 100000
		for v := range int32(fakeVocab) {
			if at -= math.Exp(l[v]); at < 0 {
				id = v
				break
			}
		}
	}
	if raw {
		l = fakeLogprobs(weights, 1, ids)
	}
	return id, l[id], l
}

// byLikelihood are all tokens, most likely first.
func byLikelihood(logprobs []float64) []int32 {
	out := make([]int32, len(logprobs))
	for v := range out {
		out[v] = int32(v)
	}
	slices.SortStableFunc(out, func(a, b int32) int { return cmp.Compare(logprobs[b], logprobs[a]) })
	return out
}

type idLogprob struct {
	ID      int32   `json:"token_id"`
	Logprob float64 `json:"logprob"`
}

// fakeTop is what vLLM keeps of a token (v1/sample/sampler.py, logprobs.py, 0.32.0): the sampled one first, then the n likeliest, without the sampled one again.
func fakeTop(id int32, logprobs []float64, n int) []idLogprob {
	out := []idLogprob{{id, logprobs[id]}}
	for _, v := range byLikelihood(logprobs)[:n] {
		if v != id {
			out = append(out, idLogprob{v, logprobs[v]})
		}
	}
	return out
}

// fakeReply has all of tops in /v1/completions (entrypoints/openai/completion/serving.py), and cut of each in /inference/v1/generate
// (entrypoints/scale_out/token_in_token_out/serving.py).
func fakeReply(native bool, ids []int32, logprobs []float64, tops [][]idLogprob, cut int, reason string, spans []span, tells bool, scores []any) map[string]any {
	choice := map[string]any{"index": 0, "token_ids": ids, "finish_reason": reason}
	out := map[string]any{"choices": []any{choice}, "usage": map[string]any{"prompt_tokens_details": map[string]any{"cached_tokens": 2}}}
	if spans != nil && (native || tells) {
		choice["weight_versions"] = spans
	}
	if !native {
		var tokens []string
		var named []map[string]float64
		for i, id := range ids {
			tokens = append(tokens, "token_id:"+strconv.Itoa(int(id)))
			named = append(named, map[string]float64{})
			for _, one := range tops[i] {
				named[i]["token_id:"+strconv.Itoa(int(one.ID))] = one.Logprob
			}
		}
		choice["logprobs"] = map[string]any{"tokens": tokens, "token_logprobs": logprobs, "top_logprobs": named}
		choice["prompt_logprobs"] = scores
		return out
	}
	var content []any
	for i, id := range ids {
		content = append(content, map[string]any{"token_id": id, "logprob": logprobs[i], "top_logprobs": tops[i][:min(cut, len(tops[i]))]})
	}
	choice["logprobs"] = map[string]any{"content": content}
	out["prompt_logprobs"] = scores
	return out
}

// connect makes an engine over fakes that reacts fast, and asserts at the end that no goroutine is left.
func connect(t *testing.T, change func(o *Options), fakes ...*fake) *Engine {
	t.Helper()
	before := goleak.IgnoreCurrent()
	o := Options{HealthEvery: 5 * time.Millisecond, HealthTimeout: 2 * time.Second, Backoff: time.Millisecond, Patience: 3 * time.Second}
	for _, f := range fakes {
		o.URLs = append(o.URLs, f.URL)
	}
	if change != nil {
		change(&o)
	}
	e, err := New(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, e.Close())
		for _, f := range fakes {
			f.restart() // what waits on a paused server ends
			f.CloseClientConnections()
		}
		goleak.VerifyNone(t, before, goleak.IgnoreTopFunction("net/http/httptest.(*Server).goServe.func1"))
	})
	return e
}

func (f *fake) calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.paths)
}

// within requires that something becomes true soon.
func within(t *testing.T, what string, f func() bool) {
	t.Helper()
	require.Eventually(t, f, 5*time.Second, time.Millisecond, what)
}

func (e *Engine) states() string {
	var out []string
	for _, r := range e.fleet.replicas {
		s, _ := r.standing.status()
		out = append(out, s.String())
	}
	return strings.Join(out, " ")
}
