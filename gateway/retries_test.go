package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/gateway"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/trajectory"
)

// A marked retry of a call that failed is asked for anew: an equal call before it, whose reply was read, is another one.
func TestARetryOfAFailedCall(t *testing.T) {
	broken, say := false, byRound("one", "two")
	b := newBench(t, func(r engines.Request) (engines.Completion, error) {
		if broken {
			return engines.Completion{}, errors.New("it is gone")
		}
		return say(r)
	})
	messages := []map[string]any{user("x")}
	require.Equal(t, "one", b.chat(messages)["content"])
	body := `{"model":"gpt-5","messages":[{"role":"user","content":"x"}]}`
	broken = true
	status, text := b.post("/v1/chat/completions", body)
	require.Equal(t, http.StatusServiceUnavailable, status, text)
	broken = false
	_, text = b.post("/v1/chat/completions", body, "X-Stainless-Retry-Count", "1")
	require.Contains(t, text, `"two"`)
	_, text = b.post("/v1/chat/completions", body, "X-Stainless-Retry-Count", "1")
	require.Contains(t, text, `"two"`, "what was sent last")
}

// Of two branches that ask the same at once, the one whose connection broke gets its own reply when it asks again, marked or not.
func TestARetryBesideAnEqualCall(t *testing.T) {
	for name, headers := range map[string][]string{"marked": {"X-Stainless-Retry-Count", "1"}, "not marked": nil} {
		t.Run(name, func(t *testing.T) {
			let, asked := make(chan struct{}), make(chan struct{}, 2)
			b := newBench(t, func(r engines.Request) (engines.Completion, error) {
				asked <- struct{}{}
				<-let
				return rollouttest.Say(map[uint64]string{100: "first", 101: "second"}[r.Seed])
			})
			const body = `{"messages":[{"role":"user","content":"x"}]}`
			ctx, reset := context.WithCancel(t.Context())
			left := make(chan struct{})
			go func() {
				defer close(left)
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
				r.Header.Set("Authorization", "Bearer "+testKey)
				b.gate.ServeHTTP(httptest.NewRecorder(), r)
			}()
			<-asked
			other := make(chan string)
			go func() {
				_, text := b.post("/v1/chat/completions", body)
				other <- text
			}()
			<-asked
			reset()
			<-left
			again := make(chan string)
			go func() {
				_, text := b.post("/v1/chat/completions", body, headers...)
				again <- text
			}()
			require.Eventually(t, func() bool { return strings.Contains(metrics(t, b), `calls_total{result="repeated"} 1`) }, 5e9, 1e6)
			close(let)
			require.Contains(t, <-other, `"second"`)
			require.Contains(t, <-again, `"first"`)
			require.Equal(t, gateway.Outcome{Calls: 2}, b.session.Finish())
			require.Equal(t, []trajectory.Role{"", ""}, roles(b.told), "both were read")
		})
	}
}

// A retry is of a call to the same API: the same body asks another one for something else.
func TestARetryOverAnotherAPI(t *testing.T) {
	b := newBench(t, byRound("one", "two"))
	const body = `{"max_tokens":9,"messages":[{"role":"user","content":"x"}]}`
	_, text := b.post("/v1/chat/completions", body)
	require.Contains(t, text, `"one"`)
	_, text = b.post("/v1/messages", body, "X-Stainless-Retry-Count", "1")
	require.Contains(t, text, `"two"`)
	for path, want := range map[string]string{"/v1/chat/completions": `"one"`, "/v1/messages": `"two"`} {
		_, text = b.post(path, body, "X-Stainless-Retry-Count", "1")
		require.Contains(t, text, want)
	}
}

func metrics(t *testing.T, b *bench) string {
	t.Helper()
	w := httptest.NewRecorder()
	b.gate.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// brokenWriter is a connection that breaks while the reply is written.
type brokenWriter struct{ *httptest.ResponseRecorder }

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("connection reset by peer") }

// A reply that was read stays read where it is asked for once more and does not arrive.
func TestAReplyThatWasReadStaysRead(t *testing.T) {
	b := newBench(t, byRound("one", "two"))
	const body = `{"messages":[{"role":"user","content":"x"}]}`
	_, text := b.post("/v1/chat/completions", body)
	require.Contains(t, text, `"one"`)
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+testKey)
	r.Header.Set("X-Stainless-Retry-Count", "1")
	b.gate.ServeHTTP(brokenWriter{httptest.NewRecorder()}, r)
	_, text = b.post("/v1/chat/completions", body)
	require.Contains(t, text, `"two"`, "who has read a reply and asks again gets another one")
	b.session.Finish()
	require.Equal(t, []trajectory.Role{"", ""}, roles(b.told))
}

// heldWriter is a client that takes nothing of its reply until it is let.
type heldWriter struct {
	*httptest.ResponseRecorder
	writing chan<- struct{}
	let     <-chan struct{}
}

func (w heldWriter) Write(p []byte) (int, error) {
	select {
	case w.writing <- struct{}{}:
	default:
	}
	<-w.let
	return w.ResponseRecorder.Write(p)
}

// An agent that samples a prompt several times side by side gets as many samples, also where a reply is there that its own client has not read yet.
func TestAnEqualCallBesideAReplyThatIsBeingWritten(t *testing.T) {
	b := newBench(t, byRound("one", "two"), func(o *gateway.Options, _ *gateway.SessionOptions) { o.Ping = time.Hour })
	const body = `{"messages":[{"role":"user","content":"x"}],"stream":true}`
	writing, let, first := make(chan struct{}, 1), make(chan struct{}), httptest.NewRecorder()
	var client sync.WaitGroup
	client.Go(func() {
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+testKey)
		b.gate.ServeHTTP(heldWriter{first, writing, let}, r)
	})
	<-writing
	_, second := b.post("/v1/chat/completions", body)
	close(let)
	client.Wait()
	require.Contains(t, first.Body.String(), `"one"`)
	require.Contains(t, second, `"two"`)
	require.Equal(t, gateway.Outcome{Calls: 2}, b.session.Finish())
}
