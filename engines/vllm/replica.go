package vllm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

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
	asleep                    // has given its device memory back: requests wait for the next update
)

func (c condition) String() string {
	return [...]string{"serving", "updating", "down", "behind", "asleep"}[c]
}

// replica is one server.
type replica struct {
	url     string // without a trailing slash
	part    string // that its requests wait for
	options Options
	http    *http.Client
	openai  *openai.Client
	direct  *direct   // for completions; nil: they go through http
	buffers sync.Pool // *bytes.Buffer of replies

	mu      sync.Mutex
	server  Server // what it can do; set by probe
	state   condition
	reason  error           // why it does not serve
	changed chan struct{}   // closed at the next change of state
	load    int             // requests that it works on
	epoch   context.Context // ends when the replica leaves service other than for an update: its requests end then
	leave   context.CancelFunc
	version string // name of the weights that it proved, or began with
	born    string // name of the weights that it has after a start
	loaded  bool   // this engine has given it weights
	adapted bool   // and those were an adapter
	model   string // what requests name: the served model, or the adapter
	history []adopted
	looks   looks
}

// adopted is a version that a replica was given. Requests in flight may name it and those after it.
type adopted struct {
	serial int
	name   string
	number int32
}

func newReplica(url string, o Options) *replica {
	base := http.DefaultTransport.(*http.Transport).Clone()     // a type that net/http documents
	base.MaxIdleConns, base.MaxIdleConnsPerHost = 0, o.InFlight // one that is closed after each request is dialled before the next
	base.IdleConnTimeout = idleConnections
	if o.Transport != nil {
		base = o.Transport
	}
	r := &replica{url: strings.TrimRight(url, "/"), options: o, http: &http.Client{Transport: base}, state: down, changed: make(chan struct{})}
	r.url = strings.TrimSuffix(r.url, "/v1")
	r.part = "engine replica " + r.url
	config := openai.DefaultConfig(o.APIKey)
	config.BaseURL = r.url + "/v1"
	config.HTTPClient = &http.Client{Transport: tapTransport{base}}
	r.openai = openai.NewClientWithConfig(config)
	r.epoch, r.leave = context.WithCancel(context.Background())
	r.buffers.New = func() any { return new(bytes.Buffer) }
	r.direct = newDirect(r.url, nativePath, o)
	r.looks.turn = make(chan struct{}, 1)
	return r
}

// buffer is one for a reply, until it is given to free.
func (r *replica) buffer() *bytes.Buffer {
	b := r.buffers.Get().(*bytes.Buffer)
	b.Reset()
	return b
}

func (r *replica) free(b *bytes.Buffer) {
	if b.Cap() <= mostBuffer { // large ones are left to the collector
		r.buffers.Put(b)
	}
}

const mostBuffer = 64 << 10 // bytes of a buffer that is used again

// idleConnections is shorter than the 5 s after which vLLM closes a connection that nobody uses: a request that meets that
// moment would fail.
const idleConnections = 4 * time.Second

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

// fail takes a replica that serves or sleeps out of service; during an update that is the update's matter.
func (r *replica) fail(s condition, reason error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == serving || r.state == asleep {
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
		if r.info().Native {
			return r.sendNative(ctx, model, q)
		}
		return r.send(ctx, model, q.Prompt, samplingParams(q.Sampling, q.Seed))
	})
	if err != nil {
		return engines.Completion{}, err
	}
	c := engines.Completion{TokenIDs: got.ids, Logprobs: got.logprobs, CachedTokens: got.cached}
	if c.FinishReason, err = got.finish(q.Sampling); err != nil {
		return engines.Completion{}, err
	}
	if c.Versions, err = r.sampledBy(ctx, got, versions); err != nil {
		return engines.Completion{}, err
	}
	return c, nil
}

// sampledBy is the version of each token of a reply. A reply of weights that are not this engine's is an error. Where the
// route does not say which weights sampled, the server is asked which it has now, see lookNow: since the request was sent nobody but this
// engine can have given it back those that it had.
func (r *replica) sampledBy(ctx context.Context, got reply, versions []adopted) ([]int32, error) {
	out, err := got.perToken(versions)
	var wrong *versionError
	if err == nil && got.spans == nil && r.info().Control {
		var now string
		if now, err = r.lookNow(ctx); err != nil {
			return nil, err
		}
		if now != versions[len(versions)-1].name && !r.options.ours(now) {
			err = &versionError{now}
		}
	}
	if errors.As(err, &wrong) {
		err = r.judge(wrong.version)
		r.fail(behind, err)
	}
	return out, err
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
		var status *statusError
		switch {
		case epoch.Err() != nil:
			err = errLeft
		case errors.As(err, &status) && status.Status == http.StatusNotFound && model == r.options.adapterName(): // a server that was started again lost it
			err = r.withoutAdapter(ctx, err)
		}
		return got, nil, err
	}
	versions, err = r.settle(ctx, epoch, first)
	if err == nil && got.spans == nil && len(versions) > 1 {
		err = errMixed
	}
	return got, versions, err
}

// withoutAdapter says why a server does not know the run's adapter, or returns err.
func (r *replica) withoutAdapter(ctx context.Context, err error) error {
	got, failed := r.weightVersion(ctx)
	r.mu.Lock()
	want := r.version
	r.mu.Unlock()
	if failed != nil || got == want || isUnproven(got) && r.options.ours(got) {
		return err
	}
	err = r.judge(got)
	r.fail(behind, err)
	return err
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
		if err := r.call(ctx, http.MethodPost, nativePath, nativeRequest{prompt, params, model, false}, &data); err != nil {
			return reply{}, err
		}
		return parseNative(data, prompt)
	}
	return r.complete(ctx, model, prompt, params)
}

// sendNative is send for what a rollout asks, without detours.
func (r *replica) sendNative(ctx context.Context, model string, q engines.Request) (out reply, err error) {
	body := func(b []byte) []byte { return appendNative(b, model, q.Prompt, q.Sampling, q.Seed) }
	use := func(data []byte) error {
		out, err = parseNative(data, q.Prompt)
		return err
	}
	if r.direct == nil {
		err = r.exchange(ctx, http.MethodPost, nativePath, body(nil), use)
		return out, err
	}
	buffer := r.buffer()
	defer r.free(buffer)
	status, header, err := r.direct.post(ctx, body, buffer)
	if err != nil {
		return out, err
	}
	if status/100 == 3 { // http.Client knows where to go
		err = r.exchange(ctx, http.MethodPost, nativePath, body(nil), use)
		return out, err
	}
	if status != http.StatusOK {
		return out, newStatusError(status, header, buffer.Bytes())
	}
	err = use(buffer.Bytes())
	return out, err
}

const nativePath = "/inference/v1/generate"

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

// logprobs are the server's logprobs of ids but the first, computed anew: prompt logprobs are never read from the prefix cache.
func (r *replica) logprobs(ctx context.Context, model string, ids []int32) ([]float32, error) {
	got, err := r.sendLogprobs(ctx, model, ids)
	return got.prompt, err
}

func (r *replica) sendLogprobs(ctx context.Context, model string, ids []int32) (reply, error) {
	params := samplingParams(engines.Sampling{MaxTokens: 1, TopP: 1}, 0)
	params["prompt_logprobs"] = 0
	got, err := r.send(ctx, model, ids, params)
	if err == nil && got.prompt == nil {
		err = fmt.Errorf("%w: no prompt_logprobs", errReply)
	}
	return got, err
}
