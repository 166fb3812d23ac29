package vllm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/internal/retry"
)

// replica is one server.
type replica struct {
	url       string // without a trailing slash
	part      string // that its requests wait for
	options   Options
	client    *client
	completer *completer
	looks     *looks
	standing  *standing
}

func newReplica(url string, o Options) *replica {
	base := http.DefaultTransport.(*http.Transport).Clone()     // a type that net/http documents
	base.MaxIdleConns, base.MaxIdleConnsPerHost = 0, o.InFlight // one that is closed after each request is dialled before the next
	base.IdleConnTimeout = idleConnections
	if o.Transport != nil {
		base = o.Transport
	}
	url = strings.TrimSuffix(strings.TrimRight(url, "/"), "/v1")
	c := newClient(url, o.APIKey, base)
	return &replica{
		url: url, part: "engine replica " + url, options: o,
		client: c, completer: newCompleter(c, base, o), looks: newLooks(c, o), standing: newStanding(),
	}
}

// idleConnections is shorter than the 5 s after which vLLM closes a connection that nobody uses: a request that meets that
// moment would fail.
const idleConnections = 4 * time.Second

// start takes a server into service as it is, but not one whose last update failed: that one waits for weights.
func (r *replica) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.options.StartTimeout)
	defer cancel()
	s, err := r.probe(ctx)
	if err != nil {
		return err
	}
	born := fresh
	if run, _ := cutVersion(s.Version); run == "" {
		born = s.Version
	}
	r.standing.hold(func(h *holding) { h.born = born })
	r.standing.adopt(s.Version, s.Model, r.options.number(s.Version, 0))
	if isUnproven(s.Version) {
		r.standing.set(behind, errors.New("an earlier update of this server failed; it needs one that succeeds"))
	} else {
		r.standing.set(serving, nil)
	}
	return nil
}

// generate sends one request.
func (r *replica) generate(ctx context.Context, q engines.Request) (engines.Completion, error) {
	got, versions, err := r.ask(ctx, func(ctx context.Context, model string) (reply, error) {
		s := r.standing.info()
		if s.Native {
			return r.completer.sendNative(ctx, model, q, s.logprobs(q.Top))
		}
		return r.completer.sendCompletions(ctx, model, q, s.logprobs(q.Top))
	})
	if err != nil {
		return engines.Completion{}, refusedTop(err, q.Top)
	}
	c := engines.Completion{TokenIDs: got.ids, Logprobs: got.logprobs, Top: got.top, CachedTokens: got.cached}
	if c.FinishReason, err = got.finish(q.Sampling); err != nil {
		return engines.Completion{}, err
	}
	if c.Versions, err = r.sampledBy(ctx, got, versions); err != nil {
		return engines.Completion{}, err
	}
	return c, nil
}

// logprobs are those of ids but the first.
func (r *replica) logprobs(ctx context.Context, ids []int32) ([]float32, error) {
	got, versions, err := r.ask(ctx, func(ctx context.Context, model string) (reply, error) {
		return r.completer.sendLogprobs(ctx, r.standing.info().Native, model, ids)
	})
	if err == nil && got.spans == nil && len(versions) > 1 {
		err = errMixed
	}
	if err == nil {
		_, err = r.sampledBy(ctx, got, versions)
	}
	return got.prompt, err
}

// sampledBy is the version of each token of a reply. A reply of weights that are not this engine's is an error. Where the
// route does not say which weights sampled, the server is asked which it has now, see looks.now: since the request was sent nobody but this
// engine can have given it back those that it had.
func (r *replica) sampledBy(ctx context.Context, got reply, versions []adopted) ([]int32, error) {
	out, err := got.perToken(versions)
	var wrong *versionError
	if err == nil && got.spans == nil && r.standing.info().Control {
		var now string
		if now, err = r.looks.now(ctx); err != nil {
			return nil, err
		}
		if now != versions[len(versions)-1].name && !r.options.ours(now) {
			err = &versionError{now}
		}
	}
	if errors.As(err, &wrong) {
		err = r.judge(wrong.version)
		r.standing.fail(behind, err)
	}
	return out, err
}

// ask sends and then waits, while the weights are not proven, for the verdict on them: nothing that unproven weights
// computed is returned. It also returns the versions that the replica had since the request was sent.
func (r *replica) ask(ctx context.Context, send func(ctx context.Context, model string) (reply, error)) (got reply, versions []adopted, err error) {
	epoch, model, first := r.standing.current()
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
	versions, err = r.standing.settle(ctx, epoch, first)
	return got, versions, err
}

// withoutAdapter says why a server does not know the run's adapter, or returns err.
func (r *replica) withoutAdapter(ctx context.Context, err error) error {
	got, failed := r.client.weightVersion(ctx)
	want := r.standing.held().version
	if failed != nil || got == want || isUnproven(got) && r.options.ours(got) {
		return err
	}
	err = r.judge(got)
	r.standing.fail(behind, err)
	return err
}

// probe finds out anew what the server can do. Its context stays that of the first time, which the run was planned with.
func (r *replica) probe(ctx context.Context) (Server, error) {
	s, err := probe(ctx, r.completer, r.options.Model)
	if err != nil {
		return s, err
	}
	if first := r.standing.info().MaxModelLen; first > 0 {
		if s.MaxModelLen < first {
			return s, fmt.Errorf("its context is %d tokens, it was %d; start it with --max-model-len %d", s.MaxModelLen, first, first)
		}
		s.MaxModelLen = first
	}
	r.standing.setInfo(s)
	return s, nil
}

// judge is the error of a version that is not the one that requests are to be answered with.
func (r *replica) judge(got string) error { return r.standing.held().judge(r.options, got) }

// healthy asks whether the server answers.
func (r *replica) healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.options.HealthTimeout)
	defer cancel()
	return r.client.call(ctx, http.MethodGet, "/health", nil, nil)
}

// dead is what says that the server has ended, or its engine; nil: nothing does. An API server whose engine died says that it is not healthy.
func (r *replica) dead(ctx context.Context) error {
	err := r.healthy(ctx)
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// whileItLives runs something, and ends it when the server is dead meanwhile; gone says why. vLLM leaves what a dead engine had begun without an
// answer, and waits for the client before it ends.
func (r *replica) whileItLives(ctx context.Context, run func(context.Context) error) (gone, err error) {
	ctx, end := context.WithCancel(ctx)
	var looks sync.WaitGroup
	looks.Go(func() {
		for retry.Pause(ctx, r.options.HealthEvery) == nil {
			if gone = r.dead(ctx); gone != nil {
				end()
			}
		}
	})
	err = run(ctx)
	end()
	looks.Wait()
	return gone, err
}

// isMine returns a ForeignError when a server that can be updated has another run's weights.
func (r *replica) isMine(ctx context.Context) error {
	_, err := r.myWeights(ctx)
	return err
}

// myWeights is isMine that returns their name, which is empty for a server that cannot be updated.
func (r *replica) myWeights(ctx context.Context) (name string, err error) {
	if !r.standing.info().Control {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.options.HealthTimeout)
	defer cancel()
	name, err = r.client.weightVersion(ctx)
	if err != nil {
		return "", err
	}
	var other *ForeignError
	if err := r.judge(name); errors.As(err, &other) {
		return name, err
	}
	return name, nil
}

// modelFor is what requests name after an update by that way.
func (r *replica) modelFor(w Way) string {
	if w == WayLoRA {
		return r.options.adapterName()
	}
	return r.standing.info().Model
}

// unload removes the run's adapter from the server's list. Its folder goes with the run.
func (r *replica) unload() {
	if state, _ := r.standing.status(); !r.standing.held().adapted || state == down {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.options.HealthTimeout)
	defer cancel()
	_ = r.client.call(ctx, http.MethodPost, "/v1/unload_lora_adapter", map[string]any{"lora_name": r.options.adapterName()}, nil) // one that stays is only a name
}
