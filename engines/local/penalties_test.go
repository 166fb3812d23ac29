package local

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
)

// TestPenaltyEdits: token after token, the edits are those of a dumb twin that counts everything anew.
func TestPenaltyEdits(t *testing.T) {
	const vocab = 12
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		s := engines.Sampling{
			MinTokens: r.IntN(6), Presence: []float64{0, 1.5, -2}[r.IntN(3)], Frequency: []float64{0, 0.25, -1}[r.IntN(3)],
			Repetition: []float64{0, 1, 1.5, 0.5}[r.IntN(4)], StopIDs: []int32{int32(r.IntN(vocab)), int32(r.IntN(vocab)), vocab, -1},
		}
		if !s.Penalized() {
			continue
		}
		prompt := r.IntN(6)
		var tokens []int32
		for range prompt + r.IntN(3) { // some are sampled already, as where a completion goes on
			tokens = append(tokens, int32(r.IntN(vocab)))
		}
		p := &penalties{vocab: vocab}
		for range 8 {
			got := map[int32]cgo.Edit{}
			for _, e := range p.edits(&s, tokens, prompt) {
				if before, ok := got[e.Token]; ok { // a stop id that is named twice
					require.Equal(t, before, e)
				}
				got[e.Token] = e
			}
			for id := range int32(vocab) {
				count := 0
				for _, sampled := range tokens[prompt:] {
					if sampled == id {
						count++
					}
				}
				want := cgo.Edit{Token: id, Divide: 1, Minus: float32(s.Frequency * float64(count))}
				if count > 0 {
					want.Minus = float32(s.Frequency*float64(count) + s.Presence)
				}
				if s.Repeats() && slices.Contains(tokens, id) {
					want.Divide = float32(s.Repetition)
				}
				if len(tokens)-prompt < s.MinTokens && slices.Contains(s.StopIDs, id) {
					want = cgo.Edit{Token: id, Divide: 1, Minus: float32(math.Inf(1))}
				}
				e, ok := got[id]
				if !ok {
					e = cgo.Edit{Token: id, Divide: 1}
				}
				require.Equal(t, want, e)
			}
			tokens = append(tokens, int32(r.IntN(vocab)))
		}
	}
}

// TestMinTokensWithoutAWay: a request that could sample nothing is refused, and the others go on.
func TestMinTokensWithoutAWay(t *testing.T) {
	e, _ := startToy(t, Options{MaxModelLen: 100})
	var all []int32
	for id := range int32(toyVocab) {
		all = append(all, id)
	}
	r := engines.Request{ID: "r", Prompt: []int32{1}, Sampling: engines.Sampling{MaxTokens: 4, TopP: 1, MinTokens: 1, StopIDs: all}}
	_, err := e.Generate(t.Context(), r)
	require.ErrorContains(t, err, "every one of the 5000 tokens is a stop id")
	r.Sampling.StopIDs = all[1:]
	c, err := e.Generate(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, int32(0), c.TokenIDs[0])
}
