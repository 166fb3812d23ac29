package enginetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/trajectory"
)

// exact is how far two logprobs of one token lie apart at most where the completions of one request have the same tokens.
const exact = 1e-4

// apart is how far two logprobs of one token may lie at temperature 1.
func (s *suite) apart() float64 {
	switch {
	case s.Engine.Capabilities().BatchInvariant:
		return 0
	case s.Apart > 0:
		return s.Apart
	}
	return exact
}

// apartOf is apart for the distribution that parameters make. A temperature divides the logits and so their differences; the sum over the
// few tokens that truncation leaves may be as far off as each of them.
func (s *suite) apartOf(p engines.Sampling) float64 {
	if p.Temperature == 0 || p.Temperature == 1 && p.TopP == 1 && p.TopK == 0 && p.MinP == 0 {
		return s.apart()
	}
	return 2 * s.apart() / min(1, p.Temperature)
}

// forks tells whether completions of one request may fork: logprobs that lie a little apart take neighbouring tokens, and what follows is
// two texts.
func (s *suite) forks() bool { return s.apart() > exact }

// prompts is how many prompts a test has at most: one, or where completions fork so many that a few pairs fork late.
func (s *suite) prompts() int {
	if s.forks() {
		return 16
	}
	return 1
}

// requests are those of a test, for n tokens each.
func (s *suite) requests(variant, n int) (out []engines.Request) {
	for i := range s.prompts() {
		out = append(out, s.request(variant+31*i, n))
	}
	return out
}

// points are what a test says of the completions of one request with one prompt after the other.
type points struct {
	*suite
	t    *testing.T
	held map[string]int // how often each point held
}

// vary calls test with a request for n tokens. Where completions fork, it does so with other prompts until each point held twice; one that
// does not is a fault.
func (s *suite) vary(t *testing.T, variant, n int, test func(p *points, r engines.Request)) {
	t.Helper()
	p := &points{s, t, map[string]int{}}
	for _, r := range s.requests(variant, n) {
		test(p, r)
		if p.open() == "" {
			return
		}
	}
	require.Fail(t, "a point does not hold", "%s; prompts: %d", p.open(), s.prompts())
}

// before generates completions; what it returns requires that whatever happened since did not change them.
func (s *suite) before(t *testing.T, variant, n int) (unchanged func(point string)) {
	t.Helper()
	want := map[string]engines.Completion{}
	for _, r := range s.requests(variant, n) {
		want[r.ID] = s.generate(t, r)
	}
	return func(point string) {
		t.Helper()
		s.vary(t, variant, n, func(p *points, r engines.Request) { p.same(point, r, want[r.ID], s.generate(t, r)) })
	}
}

// open is a point that did not hold often enough yet; "": all did.
func (p *points) open() string {
	for point, n := range p.held {
		if n < min(2, p.prompts()) {
			return point
		}
	}
	return ""
}

// hold counts that a point held, if ok.
func (p *points) hold(point string, ok bool) {
	p.held[point] += 0
	if ok {
		p.held[point]++
	}
}

// same is all that the suite says about two completions that one request may have. They have the same tokens and end alike, with logprobs
// that are the same bits where the engine is batch invariant, and lie within apartOf elsewhere. Completions that fork are compared up to the
// fork, and the point holds where they begin alike: an engine that loses the seed, at once or on the way, has none that do.
func (p *points) same(point string, r engines.Request, want, got engines.Completion) {
	p.t.Helper()
	n := common(want, got)
	if n == min(len(want.TokenIDs), len(got.TokenIDs)) || !p.forks() {
		require.Equal(p.t, want.TokenIDs, got.TokenIDs, point)
		require.Equal(p.t, want.FinishReason, got.FinishReason, point)
	}
	require.InDeltaSlice(p.t, want.Logprobs[:n], got.Logprobs[:n], p.apartOf(r.Sampling), point)
	require.Equal(p.t, want.Versions[:n], got.Versions[:n], point)
	p.hold(point, p.alike(want, got))
}

// alike tells whether two completions begin as those of one request do: with two tokens that are the same, or where completions never fork
// with all.
func (s *suite) alike(a, b engines.Completion) bool {
	n := max(len(a.TokenIDs), len(b.TokenIDs))
	if s.forks() {
		n = min(2, len(a.TokenIDs), len(b.TokenIDs))
	}
	return common(a, b) >= n
}

// common is how many tokens two completions have in common before they fork.
func common(a, b engines.Completion) (n int) {
	for n < min(len(a.TokenIDs), len(b.TokenIDs)) && a.TokenIDs[n] == b.TokenIDs[n] {
		n++
	}
	return n
}

// cut is a completion that ends after n tokens of another one.
func cut(c engines.Completion, n int, reason trajectory.FinishReason) engines.Completion {
	return engines.Completion{TokenIDs: c.TokenIDs[:n], Logprobs: c.Logprobs[:n], Versions: c.Versions[:n], FinishReason: reason}
}
