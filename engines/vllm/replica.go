package vllm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sashabaranov/go-openai"

	"github.com/agentfly/agentfly/engines"
)

// condition says what a replica may be used for.
type condition int

const (
	serving  condition = iota // has the current weights and takes requests
	updating                  // its weights are being changed, or are not proven yet: requests wait
	down                      // does not answer
	behind                    // answers, but has not proven the current weights
)

func (c condition) String() string { return [...]string{"serving", "updating", "down", "behind"}[c] }

// replica is one server.
type replica struct {
	url     string // without a trailing slash
	options Options
	http    *http.Client
	openai  *openai.Client

	mu      sync.Mutex
	server  Server // what it can do; set by probe
	state   condition
	reason  error           // why it does not serve
	changed chan struct{}   // closed at the next change of state
	load    int             // requests that it works on
	epoch   context.Context // ends when the replica leaves service other than for an update: its requests end then
	leave   context.CancelFunc
	version string // name of the weights that it proved, or began with
	model   string // what requests name: the served model, or the adapter
	history []adopted
}

// adopted is a version that a replica was given. Requests in flight may name it and those after it.
type adopted struct {
	serial int
	name   string
	number int32
}

func newReplica(url string, o Options) *replica {
	base := http.DefaultTransport.(*http.Transport).Clone() // a type that net/http documents
	base.MaxIdleConnsPerHost = 1024
	if o.Transport != nil {
		base = o.Transport
	}
	r := &replica{url: strings.TrimRight(url, "/"), options: o, http: &http.Client{Transport: base}, state: down, changed: make(chan struct{})}
	r.url = strings.TrimSuffix(r.url, "/v1")
	config := openai.DefaultConfig(o.APIKey)
	config.BaseURL = r.url + "/v1"
	config.HTTPClient = &http.Client{Transport: tapTransport{base}}
	r.openai = openai.NewClientWithConfig(config)
	r.epoch, r.leave = context.WithCancel(context.Background())
	return r
}

// set changes the state. Leaving for down or behind ends the requests in flight: they are repeated elsewhere.
func (r *replica) set(s condition, reason error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setLocked(s, reason)
}

func (r *replica) setLocked(s condition, reason error) {
	if r.state == s && s != serving {
		r.reason = reason
		return
	}
	if s == down || s == behind {
		r.leave()
		r.epoch, r.leave = context.WithCancel(context.Background())
	}
	r.state, r.reason = s, reason
	close(r.changed)
	r.changed = make(chan struct{})
}

// fail takes a replica that serves out of service; during an update that is the update's matter.
func (r *replica) fail(s condition, reason error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == serving {
		r.setLocked(s, reason)
	}
}

func (r *replica) info() Server {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.server
}

func (r *replica) setInfo(s Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server = s
}

func (r *replica) status() (condition, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state, r.reason
}

// generate sends one request.
func (r *replica) generate(ctx context.Context, q engines.Request) (engines.Completion, error) {
	got, versions, err := r.ask(ctx, func(ctx context.Context, model string) (reply, error) {
		return r.send(ctx, model, q.Prompt, samplingParams(q.Sampling, q.Seed))
	})
	if err != nil {
		return engines.Completion{}, err
	}
	c := engines.Completion{TokenIDs: got.ids, Logprobs: got.logprobs, CachedTokens: got.cached}
	if c.FinishReason, err = got.finish(q.Sampling); err != nil {
		return engines.Completion{}, err
	}
	if c.Versions, err = got.perToken(versions); err != nil {
		var wrong *versionError
		if errors.As(err, &wrong) {
			r.fail(behind, err)
		}
		return engines.Completion{}, err
	}
	return c, nil
}

// ask sends and then waits, while the weights are not proven, for the verdict on them: nothing that unproven weights
// computed is returned. It also returns the versions that the replica had since the request was sent.
func (r *replica) ask(ctx context.Context, send func(ctx context.Context, model string) (reply, error)) (got reply, versions []adopted, err error) {
	r.mu.Lock()
	epoch, model, first := r.epoch, r.model, r.history[len(r.history)-1].serial
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, r.options.AttemptTimeout)
	defer cancel()
	stop := context.AfterFunc(epoch, cancel)
	defer stop()
	if got, err = send(ctx, model); err != nil {
		if epoch.Err() != nil {
			err = errLeft
		}
		return got, nil, err
	}
	versions, err = r.settle(ctx, epoch, first)
	if err == nil && got.spans == nil && len(versions) > 1 {
		err = errMixed
	}
	return got, versions, err
}

var (
	errLeft  = errors.New("the replica went out of service meanwhile")
	errMixed = errors.New("the weights changed meanwhile and the route does not say which sampled which token")
)

// settle waits until the replica is not updating and returns the versions that it had since the one of that serial.
func (r *replica) settle(ctx, epoch context.Context, first int) ([]adopted, error) {
	for {
		r.mu.Lock()
		state, changed := r.state, r.changed
		at := slices.IndexFunc(r.history, func(a adopted) bool { return a.serial >= first })
		since := slices.Clone(r.history[max(0, at):])
		r.mu.Unlock()
		if epoch.Err() != nil || state == down || state == behind || at < 0 {
			return nil, errLeft
		}
		if state == serving {
			return since, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if epoch.Err() != nil {
				return nil, errLeft
			}
			return nil, ctx.Err()
		}
	}
}

// adopt makes a version the one that new requests are answered with.
func (r *replica) adopt(name, model string, number int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	serial := 0
	if n := len(r.history); n > 0 {
		serial = r.history[n-1].serial + 1
	}
	const most = 1024 // no request lives through so many updates
	if len(r.history) >= most {
		r.history = slices.Clone(r.history[most/2:])
	}
	r.version, r.model = name, model
	r.history = append(r.history, adopted{serial, name, number})
}

// send asks for a completion by the best route that the server offers.
func (r *replica) send(ctx context.Context, model string, prompt []int32, params map[string]any) (reply, error) {
	if r.info().Native {
		var data raw
		if err := r.call(ctx, http.MethodPost, "/inference/v1/generate", nativeRequest{prompt, params, model, false}, &data); err != nil {
			return reply{}, err
		}
		return parseNative(data, prompt)
	}
	return r.complete(ctx, model, prompt, params)
}

// complete asks /v1/completions through go-openai.
func (r *replica) complete(ctx context.Context, model string, prompt []int32, params map[string]any) (reply, error) {
	t := &tap{extra: map[string]any{
		"prompt": prompt, "return_token_ids": true, "return_tokens_as_token_ids": true, "echo": false, "stream": false, "add_special_tokens": false,
	}}
	for key, value := range params {
		t.extra[key] = value
	}
	_, err := r.openai.CreateCompletion(context.WithValue(ctx, tapKey{}, t), openai.CompletionRequest{Model: model, Prompt: ""}) // extra has the ids
	switch {
	case t.status == 0:
		return reply{}, err
	case t.status != http.StatusOK:
		return reply{}, newStatusError(t.status, t.header, t.body)
	}
	return parseCompletions(t.body, prompt)
}

// score is the server's logprobs of ids but the first, computed anew: prompt logprobs are never read from the prefix cache.
func (r *replica) score(ctx context.Context, model string, ids []int32) ([]float32, error) {
	got, err := r.sendScore(ctx, model, ids)
	return got.prompt, err
}

func (r *replica) sendScore(ctx context.Context, model string, ids []int32) (reply, error) {
	params := samplingParams(engines.Sampling{MaxTokens: 1, TopP: 1}, 0)
	params["prompt_logprobs"] = 0
	got, err := r.send(ctx, model, ids, params)
	if err == nil && got.prompt == nil {
		err = fmt.Errorf("%w: no prompt_logprobs", errReply)
	}
	return got, err
}

// Server is what one server can do, as it was probed.
type Server struct {
	URL         string
	Release     string // vLLM's version
	Model       string // the served name
	MaxModelLen int
	Native      bool   // /inference/v1/generate
	Processed   bool   // logprobs are those of the distribution that was sampled
	Control     bool   // pause, resume and the weight version: the server can be updated
	Reload      bool   // checkpoints from disk
	LoRA        bool   // adapters at run time
	Transfer    bool   // weight transfer
	Extension   bool   // agentfly_transfer.py runs in its workers
	Version     string // of the weights that it has
}

// String is the summary that is printed once.
func (s Server) String() string {
	route, logprobs, versions := "/v1/completions", "raw logprobs (temperature 1 without truncation only)", "per request"
	if s.Native {
		route, versions = "/inference/v1/generate", "per token"
	}
	if s.Processed {
		logprobs = "logprobs of what is sampled"
	}
	var ways []string
	for _, w := range []struct {
		name Way
		has  bool
	}{{WayDisk, s.Reload}, {WayLoRA, s.LoRA}, {WayTransfer, s.Transfer}} {
		if s.Control && w.has {
			ways = append(ways, string(w.name))
		}
	}
	if ways == nil {
		ways = []string{"none"}
	}
	return fmt.Sprintf("%s: vLLM %s, model %s, context %d, %s, %s, versions %s, weight updates: %s, has weights %q",
		s.URL, s.Release, s.Model, s.MaxModelLen, route, logprobs, versions, strings.Join(ways, " "), s.Version)
}

// probe finds out what the server can do.
func (r *replica) probe(ctx context.Context) (Server, error) {
	s := Server{URL: r.url}
	var models struct {
		Data []struct {
			ID     string  `json:"id"`
			Length int     `json:"max_model_len"`
			Parent *string `json:"parent"`
		} `json:"data"`
	}
	if err := r.call(ctx, http.MethodGet, "/v1/models", nil, &models); err != nil {
		return s, fmt.Errorf("models: %w", err)
	}
	for _, m := range models.Data {
		if m.ID == r.options.Model || r.options.Model == "" && m.Parent == nil && s.Model == "" {
			s.Model, s.MaxModelLen = m.ID, m.Length
		}
	}
	if s.Model == "" {
		return s, fmt.Errorf("the server has no model %q; it lists %d others", r.options.Model, len(models.Data))
	}
	if s.MaxModelLen < 2 {
		return s, errors.New("/v1/models gives no max_model_len; this is not a vLLM server")
	}
	var release struct{ Version string }
	if err := r.call(ctx, http.MethodGet, "/version", nil, &release); err != nil {
		return s, fmt.Errorf("version: %w", err)
	}
	s.Release = release.Version
	if err := r.probeRoutes(ctx, &s); err != nil {
		return s, err
	}
	r.setInfo(s) // what follows goes through send
	var err error
	if s.Processed, err = r.probeLogprobs(ctx, s.Model); err != nil {
		return s, fmt.Errorf("probe request: %w", err)
	}
	r.setInfo(s)
	return s, nil
}

func (r *replica) probeRoutes(ctx context.Context, s *Server) error {
	var docs struct {
		Paths map[string]raw `json:"paths"`
	}
	if err := r.call(ctx, http.MethodGet, "/openapi.json", nil, &docs); err != nil {
		return fmt.Errorf("list of routes: %w; start vLLM without --disable-fastapi-docs", err)
	}
	has := func(path string) bool { _, ok := docs.Paths[path]; return ok }
	s.Control = has("/pause") && has("/resume") && has("/update_weight_version") && has("/weight_info") && has("/reset_prefix_cache")
	s.Reload = has("/collective_rpc")
	s.LoRA = has("/v1/load_lora_adapter")
	s.Transfer = has("/update_weights") && has("/start_weight_update") && has("/finish_weight_update")
	s.Native = has("/inference/v1/generate")
	if has("/is_paused") {
		if err := r.wake(ctx); err != nil {
			return err
		}
	}
	if s.Native { // the route may be there and closed
		r.setInfo(*s)
		_, err := r.send(ctx, s.Model, []int32{0, 0}, samplingParams(engines.Sampling{MaxTokens: 1, TopP: 1}, 0))
		var status *statusError
		if errors.As(err, &status) && slices.Contains([]int{401, 403, 404, 405, 501}, status.Status) {
			s.Native = false
		} else if err != nil {
			return fmt.Errorf("probe request: %w", err)
		}
	}
	if s.Reload { // a method that a worker does not have is an error of that call alone
		body := map[string]any{"method": "agentfly_present"}
		s.Extension = r.call(ctx, http.MethodPost, "/collective_rpc", body, nil) == nil
	}
	s.Transfer = s.Transfer && s.Extension
	if !has("/weight_info") {
		return nil
	}
	var err error
	s.Version, err = r.weightVersion(ctx)
	return err
}

// wake resumes a server that a run left paused, because a paused one answers no probe. What it computes is not used before
// its weights are known: see unproven.
func (r *replica) wake(ctx context.Context) error {
	var state struct {
		Paused bool `json:"is_paused"`
	}
	if err := r.call(ctx, http.MethodGet, "/is_paused", nil, &state); err != nil {
		return fmt.Errorf("is paused: %w", err)
	}
	if !state.Paused {
		return nil
	}
	if err := r.call(ctx, http.MethodPost, "/resume", nil, nil); err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	return nil
}

func (r *replica) weightVersion(ctx context.Context) (string, error) {
	var info struct {
		Version *string `json:"weight_version"`
	}
	if err := r.call(ctx, http.MethodGet, "/weight_info", nil, &info); err != nil {
		return "", fmt.Errorf("weight version: %w", err)
	}
	if info.Version == nil {
		return "", fmt.Errorf("weight version: %w: no weight_version", errReply)
	}
	return *info.Version, nil
}

// probeLogprobs samples at temperature 0.5. Prompt logprobs are always the model's own, so a server that gives the same for
// every sampled token does not give those of what it sampled. (top_k 1 would not tell: vLLM makes that greedy.) Where all
// tokens are alike, as after padding, or one is certain, the temperature changes nothing: hence several prompts.
func (r *replica) probeLogprobs(ctx context.Context, model string) (bool, error) {
	for _, prompt := range [][]int32{{1, 2, 3}, {5, 4, 3, 2, 1}, {7, 6, 7}, {3, 1}} {
		sampled, err := r.send(ctx, model, prompt, samplingParams(engines.Sampling{MaxTokens: 1, Temperature: 0.5, TopP: 1}, 0))
		if err != nil {
			return false, err
		}
		if len(sampled.ids) != 1 {
			return false, fmt.Errorf("%w: %d tokens, expected 1", errReply, len(sampled.ids))
		}
		own, err := r.score(ctx, model, append(prompt, sampled.ids[0]))
		if err != nil {
			return false, err
		}
		const same = 1e-2
		if math.Abs(float64(sampled.logprobs[0]-own[len(own)-1])) > same {
			return true, nil
		}
	}
	return false, nil // nothing shows that they are
}

// number reads a weight version; what is none of ours counts as first.
func number(version string, first int32) int32 {
	if n, err := strconv.ParseInt(version, 10, 32); err == nil && n >= 0 {
		return int32(n)
	}
	return first
}
