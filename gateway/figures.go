package gateway

import (
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/agentfly/agentfly/internal/exposition"
)

// figures count what a gateway does, for Prometheus.
type figures struct {
	mu       sync.Mutex
	calls    map[string]int64 // by what became of them
	prompted int64            // tokens
	sampled  int64            // tokens
	seconds  float64          // of answered calls, from their request to their reply
}

// What becomes of a call.
const (
	callAnswered = "answered"
	callRepeated = "repeated" // asked for again: it gets the reply that there is
	callBudget   = "budget"   // got the reply that the budget is spent
	callFailed   = "failed"
)

func newFigures() *figures {
	return &figures{calls: map[string]int64{callAnswered: 0, callRepeated: 0, callBudget: 0, callFailed: 0}}
}

func (f *figures) call(became string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[became]++
}

// answered counts a call that took so long.
func (f *figures) answered(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[callAnswered]++
	f.seconds += d.Seconds()
}

// tokens counts those of a completion that an engine sampled. One that was recorded before, by another process or another trajectory of a tree, is none.
func (f *figures) tokens(prompt, sampled int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.prompted += int64(prompt)
	f.sampled += int64(sampled)
}

// metrics answers /metrics. It names no session and no key, so it asks for none.
func (h *handler) metrics(w http.ResponseWriter, r *http.Request) {
	open := h.sessions.count()
	f := h.o.figures
	f.mu.Lock()
	defer f.mu.Unlock()
	x := &exposition.Text{}
	x.Family("agentfly_gateway_sessions", "gauge", "sessions that are open")
	x.Sample("agentfly_gateway_sessions", float64(open))
	x.Family("agentfly_gateway_calls_total", "counter", "calls by what became of them; repeated ones got the reply that there was")
	for _, became := range slices.Sorted(maps.Keys(f.calls)) {
		x.Sample("agentfly_gateway_calls_total", float64(f.calls[became]), "result", became)
	}
	x.Family("agentfly_gateway_call_seconds_total", "counter", "seconds of answered calls, from their request to their reply")
	x.Sample("agentfly_gateway_call_seconds_total", f.seconds)
	x.Family("agentfly_gateway_prompt_tokens_total", "counter", "tokens of the prompts of completions that were sampled")
	x.Sample("agentfly_gateway_prompt_tokens_total", float64(f.prompted))
	x.Family("agentfly_gateway_sampled_tokens_total", "counter", "tokens that were sampled, by this process")
	x.Sample("agentfly_gateway_sampled_tokens_total", float64(f.sampled))
	x.ServeHTTP(w, r)
}
