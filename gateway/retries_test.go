package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

func metrics(t testing.TB, b *bench) string {
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

// equalCalls are clients that ask the same side by side.
type equalCalls struct {
	*bench
	asked   atomic.Int32 // the engine
	let     chan struct{}
	replies chan string
}

// newEqualCalls has the engine break for its first requests, and hold the others until they are let.
func newEqualCalls(t *testing.T, broken int) *equalCalls {
	c := &equalCalls{let: make(chan struct{}), replies: make(chan string, 9)}
	c.bench = newBench(t, func(engines.Request) (engines.Completion, error) {
		n := int(c.asked.Add(1))
		if n <= broken {
			return engines.Completion{}, errors.New("it starts")
		}
		<-c.let
		return rollouttest.Say(fmt.Sprintf("sample %d", n))
	})
	return c
}

// try sends the call, which its client sent so many times before.
func (c *equalCalls) try(before int) (status int, text string) {
	return c.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`, "X-Stainless-Retry-Count", strconv.Itoa(before))
}

// retry has so many clients send the call a second time.
func (c *equalCalls) retry(clients int) {
	for range clients {
		go func() {
			_, text := c.try(1)
			c.replies <- text
		}()
	}
}

// samples lets the engine answer once all requests have come, and demands so many replies, each another sample.
func (c *equalCalls) samples(requests, n int) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		repeated := 0
		_, after, _ := strings.Cut(metrics(c.t, c.bench), `calls_total{result="repeated"} `)
		_, _ = fmt.Sscan(after, &repeated)
		return int(c.asked.Load())+repeated == requests
	}, 5e9, 1e6)
	close(c.let)
	var said []string
	for range n {
		said = append(said, regexp.MustCompile(`sample \d+`).FindString(<-c.replies))
	}
	slices.Sort(said)
	require.Len(c.t, slices.Compact(slices.Clone(said)), n, "%q", said)
}

// Who samples a prompt several times side by side gets as many samples also where calls fail and its client asks again: a marked retry is of one call that
// failed, and of no other branch's.
func TestRetriesOfEqualCallsSideBySide(t *testing.T) {
	const branches = 4
	for name, fail := range map[string]int{"each failed once": branches, "one failed once": 1} {
		t.Run(name, func(t *testing.T) {
			c := newEqualCalls(t, fail)
			var failed sync.WaitGroup
			failed.Add(fail)
			for range branches {
				go func() {
					status, text := c.try(0)
					if status == http.StatusServiceUnavailable {
						failed.Done()
						failed.Wait()
						_, text = c.try(1)
					}
					c.replies <- text
				}()
			}
			c.samples(branches+fail, branches)
		})
	}
}

// Equal calls whose first attempts never arrived come as retries: each is a call of its own while the others wait.
func TestRetriesThatComeFirst(t *testing.T) {
	c := newEqualCalls(t, 0)
	c.retry(4)
	c.samples(4, 4)
}

// Two clients that gave up on equal calls, which is not known here yet, and ask again wait for one of them each.
func TestRetriesOfEqualCallsThatStillWait(t *testing.T) {
	c := newEqualCalls(t, 0)
	for range 2 {
		go c.try(0)
	}
	require.Eventually(t, func() bool { return c.asked.Load() == 2 }, 5e9, 1e6)
	c.retry(2)
	c.samples(4, 2)
	require.EqualValues(t, 2, c.asked.Load())
}

// Of a call that failed and an equal one that its client left, the two retries are one each.
func TestRetriesOfACallThatFailedAndOneThatWasLeft(t *testing.T) {
	c := newEqualCalls(t, 1)
	status, _ := c.try(0)
	require.Equal(t, http.StatusServiceUnavailable, status)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"messages":[{"role":"user","content":"x"}]}`))
		r.Header.Set("Authorization", "Bearer "+testKey)
		c.gate.ServeHTTP(httptest.NewRecorder(), r)
	}()
	require.Eventually(t, func() bool { return c.asked.Load() == 2 }, 5e9, 1e6)
	leave()
	<-left
	c.retry(2)
	c.samples(4, 2)
}

// Of calls that failed, a retry is of the one that was tried most often below it: an earlier one is that of another client, which comes too.
func TestRetriesOfCallsThatFailedDifferentlyOften(t *testing.T) {
	c := newEqualCalls(t, 3)
	for _, before := range []int{0, 1, 0} { // one client twice, another once
		status, _ := c.try(before)
		require.Equal(t, http.StatusServiceUnavailable, status)
	}
	for i, before := range []int{0, 2, 1} { // a third one, which does not fail, and both again
		go func() {
			_, text := c.try(before)
			c.replies <- text
		}()
		if i < 2 {
			require.Eventually(t, func() bool { return int(c.asked.Load()) == 4+i }, 5e9, 1e6)
		}
	}
	c.samples(6, 3)
}

// A retry that is marked waits for the call that nobody has a reply of yet, not for an equal one whose reply another client has read.
func TestARetryBesideAReplyThatWasRead(t *testing.T) {
	let := map[uint64]chan struct{}{100: make(chan struct{}), 101: make(chan struct{})}
	asked := make(chan struct{}, 2)
	b := newBench(t, func(r engines.Request) (engines.Completion, error) {
		asked <- struct{}{}
		<-let[r.Seed]
		return rollouttest.Say(map[uint64]string{100: "first", 101: "second"}[r.Seed])
	})
	older, newer, again := make(chan string, 1), make(chan string, 1), make(chan string, 1)
	ask := func(reply chan<- string, tries string) {
		_, text := b.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`, "X-Stainless-Retry-Count", tries)
		reply <- text
	}
	go ask(older, "0")
	<-asked
	go ask(newer, "0")
	<-asked
	close(let[101])
	require.Contains(t, <-newer, `"second"`)
	go ask(again, "1") // the older one's client, whose connection a proxy still holds
	require.Eventually(t, func() bool { return strings.Contains(metrics(t, b), `calls_total{result="repeated"} 1`) }, 5e9, 1e6)
	close(let[100])
	require.Contains(t, <-older, `"first"`)
	require.Contains(t, <-again, `"first"`)
}
