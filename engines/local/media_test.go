package local

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/trajectory"
)

// randomMedia puts images of few contents among tokens; one id is the placeholder of all of them, and an id of texts too.
func randomMedia(r *rand.Rand) (ids []int32, media []trajectory.Medium) {
	for range 1 + r.IntN(6) {
		if r.IntN(2) == 0 {
			m := trajectory.Medium{At: len(ids), Tokens: 1 + r.IntN(12), Kind: trajectory.MediaImage, SHA256: trajectory.Digest{byte(1 + r.IntN(2))}}
			if r.IntN(8) == 0 {
				m.Kind = "audio"
			}
			media = append(media, m)
			ids = append(ids, make([]int32, m.Tokens)...)
			continue
		}
		for range 1 + r.IntN(9) {
			ids = append(ids, r.Int32N(2))
		}
	}
	return ids, media
}

// identities say what each token is to a model, for the dumb twin.
func identities(ids []int32, media []trajectory.Medium) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = fmt.Sprint(id)
		for _, m := range media {
			if i >= m.At && i < m.End() {
				out[i] += fmt.Sprint(m.Kind, m.SHA256, m.Tokens, i-m.At)
			}
		}
	}
	return out
}

// A request finds in the cache what earlier ones computed up to the first token that is another to the model, by whole blocks:
// never anything behind another image, and all of it behind an equal one.
func TestCacheTellsMediaApart(t *testing.T) {
	behindMedia, cut := 0, 0
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 7))
		e, m := startToy(t, Options{MaxModelLen: 200, BlockSize: 8, CacheTokens: 1 << 16})
		var known [][]string
		var before []engines.Request
		for i := range 40 {
			ids, media := randomMedia(r)
			if i > 0 && r.IntN(2) == 0 { // an earlier prompt, perhaps with another image
				old := before[r.IntN(i)]
				ids, media = old.Prompt, slices.Clone(old.Media)
				if len(media) > 0 && r.IntN(2) == 0 {
					media[r.IntN(len(media))].SHA256[0] ^= 3
				}
			}
			request := engines.Request{
				ID: fmt.Sprint(i), Prompt: ids, Media: media, Seed: uint64(i), Sampling: engines.Sampling{MaxTokens: 1 + r.IntN(20), Temperature: 1, TopP: 1},
			}
			require.NoError(t, request.Validate())
			before = append(before, request)
			s, err := e.newSequence(context.Background(), &request) // what check refuses, because no model of ours takes it
			require.NoError(t, err)
			require.NoError(t, e.submit(s))
			is := identities(ids, media)
			want, alike := 0, 0
			for _, k := range known {
				n := 0
				for n < min(len(k), len(is)) && k[n] == is[n] {
					n++
				}
				want, alike = max(want, n/8*8), max(alike, n)
			}
			want = min(want, len(ids)-1)
			require.Equal(t, want, s.completion.CachedTokens, "seed %d, request %d", seed, i)
			if len(media) > 0 && want >= media[0].End() {
				behindMedia++
			}
			if alike < len(ids) && len(media) > 0 {
				cut++
			}
			computed := slices.Concat(ids, s.completion.TokenIDs[:len(s.completion.TokenIDs)-1])
			known = append(known, identities(computed, media))
		}
		require.NotZero(t, m.steps)
	}
	require.Greater(t, behindMedia, 100, "images were shared")
	require.Greater(t, cut, 100, "and told apart")
}
