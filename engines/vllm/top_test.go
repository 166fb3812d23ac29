package vllm

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
)

func alternatives(pairs ...float64) (out []engines.Alternative) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, engines.Alternative{ID: int32(pairs[i]), Logprob: float32(pairs[i+1])})
	}
	return out
}

// What a reply of the native route lists of a token, with the sampled one first, comes out in order. A list of as many as are wanted has no room for a sampled
// token that is none of them, so where that is the last, it may stand in the place of a likelier one and goes; a list of one more has that room. -9999 is -Inf.
func TestLikeliestOfGenerate(t *testing.T) {
	none := math.Inf(-1)
	for top, want := range map[int][][]engines.Alternative{
		2: {alternatives(7, -0.5, 8, -1.5), alternatives(7, -0.5, 9, -1)},
		3: {alternatives(7, -0.5, 8, -1.5), alternatives(7, -0.5, 9, -1, 8, none)},
	} {
		for _, body := range []string{topBody, strings.Replace(topBody, `"choices"`, `"Choices"`, 1)} { // the second one encoding/json reads
			_, fast := scanNative([]byte(body), true)
			require.Equal(t, body == topBody, fast)
			got, err := parseNative([]byte(body), []int32{1}, top)
			require.NoError(t, err)
			require.Equal(t, want, got.top)
			require.Equal(t, []float32{-2.5, -1}, got.logprobs)
		}
	}
	got, err := parseNative([]byte(topBody), []int32{1}, 0)
	require.NoError(t, err)
	require.Nil(t, got.top)
	for change, want := range map[[2]string]string{
		{`{"token_id":8,"logprob":-1.5,"rank":2}`, `{"token_id":8}`}:                        "top_logprobs of token 0: unusable reply: an entry has no token_id or no logprob",
		{`,{"token_id":8,"logprob":-1.5,"rank":2}`, ``}:                                     "unusable reply: 2 likeliest tokens at token 0, 3 were asked for",
		{`"logprob":-1.5`, `"logprob":0.5`}:                                                 "unusable reply: the logprob of token 8, which token 0 could have been, is 0.5",
		{`"logprob":-1.5`, `"logprob":-0.6`}:                                                "unusable reply: the likeliest tokens at token 0 have a probability of 1.24 together",
		{`"top_logprobs":[{"token_id":9`, `"others":[{"token_id":9`}:                        "top_logprobs of token 1: unusable reply: the key is missing",
		{`"top_logprobs":[{"token_id":9,"logprob":-1},`, `"top_logprobs":[{"token_id":9},`}: "top_logprobs of token 1: unusable reply: an entry has no token_id or no logprob",
	} {
		body := strings.Replace(topBody, change[0], change[1], 1)
		require.NotEqual(t, topBody, body)
		_, err := parseNative([]byte(body), []int32{1}, 3)
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, errReply)
	}
}

// /v1/completions has an object for each token, with the sampled one beside those that were asked for.
func TestLikeliestOfCompletions(t *testing.T) {
	const body = `{"choices":[{"token_ids":[5,9],"logprobs":{"tokens":["token_id:5","token_id:9"],"token_logprobs":[-2.5,-1],"top_logprobs":[
		{"token_id:5":-2.5,"token_id:8":-1.5,"token_id:7":-0.5}, {"token_id:9":-1,"token_id:7":-1}]},"finish_reason":"length"}]}`
	got, err := parseCompletions([]byte(body), []int32{1}, 2)
	require.NoError(t, err)
	require.Equal(t, [][]engines.Alternative{alternatives(7, -0.5, 8, -1.5), alternatives(7, -1, 9, -1)}, got.top, "nothing is cut here")
	got, err = parseCompletions([]byte(body), []int32{1}, 0)
	require.NoError(t, err)
	require.Nil(t, got.top)
	for change, want := range map[[2]string]string{
		{`"token_id:8"`, `"eight"`}:                  `unusable reply: top_logprobs has a token "eight", which is no token_id:N`,
		{`,"token_id:7":-1}`, `}`}:                   "unusable reply: 1 likeliest tokens at token 1, 2 were asked for",
		{`"top_logprobs"`, `"tops"`}:                 "unusable reply: 0 top_logprobs for 2 token ids",
		{`, {"token_id:9"`, `, null, {"token_id:9"`}: "unusable reply: 3 top_logprobs for 2 token ids",
	} {
		changed := strings.Replace(body, change[0], change[1], 1)
		require.NotEqual(t, body, changed)
		_, err := parseCompletions([]byte(changed), []int32{1}, 2)
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, errReply)
	}
}

// The number of logprobs that a server allows is asked once. What is beyond is refused before it is sent; where a server does not say, its own refusal says what
// to set. On the native route one more is asked for, if the server allows it, so that no place lacks one.
func TestMaxLogprobs(t *testing.T) {
	for _, native := range []bool{true, false} {
		for limit, missing := range map[int]bool{3: true, 4: false} {
			f := newFake(t)
			f.limit = limit
			if !native {
				f.routes, f.noVersion = allRoutes[1:], true
			}
			e := connect(t, nil, f)
			require.Equal(t, limit, e.Servers()[0].MaxLogprobs)
			require.Equal(t, limit, e.Capabilities().Top)
			require.Contains(t, e.Summary(), fmt.Sprintf("logprobs of what is sampled and of the %d likeliest tokens", limit))
			q := request(60, 1, 2, 3)
			q.Top = limit + 1
			asked := f.requests
			_, err := e.Generate(t.Context(), q)
			require.EqualError(t, err, fmt.Sprintf("vllm: request r: the request asks for the %d likeliest tokens, and %s tells %d; start vLLM with --max-logprobs %d", limit+1, f.URL, limit, limit+2))
			require.Equal(t, asked, f.requests, "nothing was sent")
			q.Top = 3
			c, err := e.Generate(t.Context(), q)
			require.NoError(t, err)
			short := 0
			for _, alternatives := range c.Top {
				if len(alternatives) < 3 {
					short++
				}
			}
			require.Equal(t, native && missing, short > 0, "%d places of %d lack one", short, len(c.Top))
		}
	}
	f := newFake(t)
	f.limit, f.shy = 3, true
	e := connect(t, nil, f)
	require.Zero(t, e.Servers()[0].MaxLogprobs)
	require.Greater(t, e.Capabilities().Top, 1000)
	require.NotContains(t, e.Summary(), "likeliest")
	q := request(6, 1, 2, 3)
	q.Top = 4
	_, err := e.Generate(t.Context(), q)
	require.EqualError(t, err, "vllm: request r: "+f.URL+`: 400: so many logprobs; the request asks for the 4 likeliest tokens (rollout.tree.top): ask for fewer, or start vLLM with --max-logprobs 5`)
	require.ErrorIs(t, err, engines.ErrRefused)
}

// A request that a server aborted, or whose reply lists too few tokens, is sampled again as a whole; one that goes on over an update lists the tokens of both
// weights.
func TestLikeliestAfterFaults(t *testing.T) {
	f := newFake(t)
	e := connect(t, nil, f)
	q := request(6, 1, 2, 3)
	q.Top = 2
	want, err := e.Generate(t.Context(), q)
	require.NoError(t, err)
	f.set(func() {
		first := f.requests
		f.intercept = func(w http.ResponseWriter, _ *http.Request, n int) bool {
			const one = `{"choices": [{"token_ids": [1], "finish_reason": "%s", "logprobs": {"content": [{"token_id": 1, "logprob": -1, "top_logprobs": [{"token_id": 1, "logprob": -1}%s]}]}}]}`
			switch n - first {
			case 1:
				fmt.Fprintf(w, one, "abort", `,{"token_id": 2, "logprob": -1}`)
			case 2:
				fmt.Fprintf(w, one, "length", "")
			default:
				return false
			}
			return true
		}
	})
	got, err := e.Generate(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Len(t, got.Top, 6)

	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 1, 1)))
	long := request(100, 1, 2, 3)
	long.Top = 2
	f.set(func() { f.pace = 4 * time.Millisecond })
	done := make(chan engines.Completion, 1)
	go func() {
		c, err := e.Generate(t.Context(), long)
		if err != nil {
			t.Error(err)
		}
		done <- c
	}()
	require.Eventually(t, func() (running bool) { f.set(func() { running = f.sampled > 40 }); return running }, time.Minute, time.Millisecond)
	require.NoError(t, e.Update(t.Context(), fakeWeights(t, 2, 2)))
	c := <-done
	require.Equal(t, int32(1), c.Versions[0])
	require.Equal(t, int32(2), c.Versions[99])
	ids := append([]int32{}, long.Prompt...)
	for i, id := range c.TokenIDs {
		l := fakeLogprobs(float64(c.Versions[i]), 1, ids)
		for n, v := range byLikelihood(l)[:2] {
			require.InDelta(t, l[v], c.Top[i][n].Logprob, 1e-6, "token %d", i)
			require.InDelta(t, l[c.Top[i][n].ID], c.Top[i][n].Logprob, 1e-6, "two tokens may be alike")
		}
		ids = append(ids, id)
	}
}
