package vllm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agentfly/agentfly/engines"
)

// MaxLogprobs is how many likeliest tokens a server tells at most unless it was started with --max-logprobs.
const MaxLogprobs = 20

// excluded is what vLLM writes for minus infinity, which JSON cannot say.
const excluded = -9999

// likeliest puts the list that a reply has for each token in order, most likely first, and cuts it after top. A list has the sampled token and the likeliest
// ones, of which it may be one. /v1/completions gives top of them and, beside them, a sampled token that is none. /inference/v1/generate cuts that list at as
// many as were asked for: where no more than top were, a sampled token that is the least likely in it may stand in the place of a likelier one, and goes.
func (r reply) likeliest(top int, cut bool) (reply, error) {
	if top == 0 {
		return r, nil
	}
	for i, list := range r.top {
		if len(list) < top {
			return r, fmt.Errorf("%w: %d likeliest tokens at token %d, %d were asked for", errReply, len(list), i, top)
		}
		mass := 0.0
		for n, a := range list {
			if !(a.Logprob <= 1e-4) {
				return r, fmt.Errorf("%w: the logprob of token %d, which token %d could have been, is %v", errReply, a.ID, i, a.Logprob)
			}
			if list[n].Logprob = min(a.Logprob, 0); a.Logprob <= excluded {
				list[n].Logprob = float32(math.Inf(-1))
			}
			mass += math.Exp(float64(a.Logprob))
		}
		if mass > 1.01 {
			return r, fmt.Errorf("%w: the likeliest tokens at token %d have a probability of %.3g together", errReply, i, mass)
		}
		slices.SortStableFunc(list, func(a, b engines.Alternative) int { return cmp.Compare(b.Logprob, a.Logprob) })
		n := top
		if cut && len(list) == top && list[top-1].ID == r.ids[i] {
			n--
		}
		r.top[i] = list[:n:n]
	}
	return r, nil
}

// listedTokens are the entries of top_logprobs in /inference/v1/generate.
func listedTokens(data raw) ([]engines.Alternative, error) {
	var entries []struct {
		TokenID *int32   `json:"token_id"`
		Logprob *float64 `json:"logprob"`
	}
	if data == nil {
		return nil, fmt.Errorf("%w: the key is missing", errReply)
	}
	if err := decode(data, &entries); err != nil {
		return nil, err
	}
	out := make([]engines.Alternative, 0, len(entries))
	for _, e := range entries {
		if e.TokenID == nil || e.Logprob == nil {
			return nil, fmt.Errorf("%w: an entry has no token_id or no logprob", errReply)
		}
		out = append(out, engines.Alternative{ID: *e.TokenID, Logprob: float32(*e.Logprob)})
	}
	return out, nil
}

// namedTokens are the entries of top_logprobs in /v1/completions, whose keys are token_id:N.
func namedTokens(entry map[string]float64) ([]engines.Alternative, error) {
	out := make([]engines.Alternative, 0, len(entry))
	for name, logprob := range entry {
		number, _ := strings.CutPrefix(name, "token_id:")
		id, err := strconv.ParseInt(number, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%w: top_logprobs has a token %q, which is no token_id:N", errReply, short(name))
		}
		out = append(out, engines.Alternative{ID: int32(id), Logprob: float32(logprob)})
	}
	slices.SortFunc(out, func(a, b engines.Alternative) int { return cmp.Compare(a.ID, b.ID) }) // a map has no order
	return out, nil
}

// logprobs is how many logprobs a request asks for that wants so many likeliest tokens: on the native route one more where the server tells it, because the
// sampled token takes a place of the list. That is no more than the vocabulary, beyond which a server dies: Request.Top is below it.
func (s Server) logprobs(top int) int {
	if s.Native && top > 0 && s.MaxLogprobs > top {
		return top + 1
	}
	return top
}

// top is how many likeliest tokens every server tells.
func (f *fleet) top() int {
	most := math.MaxInt32 // a server that does not say how many refuses by itself what is too many
	for _, r := range f.replicas {
		if n := r.standing.info().MaxLogprobs; n > 0 {
			most = min(most, n)
		}
	}
	return most
}

// checkTop refuses a request for more likeliest tokens than the servers tell.
func (f *fleet) checkTop(q *engines.Request) error {
	if err := q.ValidateTop(math.MaxInt); err != nil || q.Top == 0 {
		return err
	}
	for _, r := range f.replicas {
		if n := r.standing.info().MaxLogprobs; n > 0 && q.Top > n {
			return fmt.Errorf("the request asks for the %d likeliest tokens, and %s tells %d; start vLLM with --max-logprobs %d", q.Top, r.url, n, q.Top+1)
		}
	}
	return nil
}

// refusedTop says what to set where a server refused a request, which may be for the number of its likeliest tokens.
func refusedTop(err error, top int) error {
	var status *statusError
	if top == 0 || !errors.As(err, &status) || status.Status != http.StatusBadRequest || !strings.Contains(status.Message, "logprobs") {
		return err
	}
	return fmt.Errorf("%w; the request asks for the %d likeliest tokens (rollout.tree.top): ask for fewer, or start vLLM with --max-logprobs %d", err, top, top+1)
}

// mostLogprobs is how a refusal names the limit: vLLM's "greater than max allowed: 20", and "allowed are 0 to 20" of `agentfly serve`.
var mostLogprobs = regexp.MustCompile(`(?:max allowed: |allowed are 0 to )(\d+)`)

// probeMaxLogprobs asks for more logprobs than any server tells, which vLLM refuses before it computes anything; 0: the refusal does not say how many it would.
func probeMaxLogprobs(ctx context.Context, c *completer, native bool, model string) (int, error) {
	params := samplingParams(engines.Sampling{MaxTokens: 1, TopP: 1}, 0)
	params["logprobs"] = 1 << 30
	_, err := c.send(ctx, native, model, []int32{0, 0}, params)
	var status *statusError
	if !errors.As(err, &status) {
		if lost(err) || ctx.Err() != nil {
			return 0, err
		}
		return 0, nil
	}
	if found := mostLogprobs.FindStringSubmatch(status.Message); found != nil {
		if n, err := strconv.Atoi(found[1]); err == nil {
			return n, nil
		}
	}
	return 0, nil
}
