package trainer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

// sampleOf makes a sample of ids; mask is a text of 0 and 1.
func sampleOf(ids []int32, mask string) *trajectory.Sample {
	s := &trajectory.Sample{TokenIDs: ids}
	for _, c := range mask {
		on := c == '1'
		s.ResponseMask = append(s.ResponseMask, on)
		version, logprob := int32(-1), float32(0)
		if on {
			version, logprob = 0, -1
		}
		s.PolicyVersion = append(s.PolicyVersion, version)
		s.SamplingLogprobs = append(s.SamplingLogprobs, logprob)
	}
	return s
}

func TestPackLiteral(t *testing.T) {
	items := []PackItem{
		{Sample: sampleOf([]int32{1, 2, 3, 4, 5}, "00011")},
		{Sample: sampleOf([]int32{1, 2, 3, 7}, "0001")}, // its only row stands on the shared token 3
		{Sample: sampleOf([]int32{1, 2, 8, 9, 6, 5}, "000110")},
		{Sample: sampleOf([]int32{9, 9}, "00")}, // no row: not packed
	}
	got, err := Pack(items, PackOptions{MicroBatchTokens: 100, minShared: 2, Temperature: 0.5})
	require.NoError(t, err)
	require.Len(t, got, 1)
	mb := got[0]
	// Needed paths: [1 2 3 4], [1 2 3], [1 2 8 9]. All three share [1 2]; beyond it [3] is one token, too short to share.
	require.Equal(t, []int32{1, 2, 3, 3, 4, 8, 9}, mb.Tokens)
	require.Equal(t, []int32{0, 1, 2, 2, 3, 2, 3}, mb.Positions)
	require.Equal(t, []int32{0, 2, 3, 5}, mb.SegmentStart)
	require.Equal(t, []int32{2, 1, 2, 2}, mb.SegmentLength)
	require.Equal(t, []int32{-1, 0, 0, 0}, mb.SegmentParent)
	require.Equal(t, []int32{3, 4, 2, 5, 6}, mb.RowToken)
	require.Equal(t, []int32{4, 5, 7, 9, 6}, mb.RowTarget)
	require.Equal(t, []Row{{0, 3}, {0, 4}, {1, 3}, {2, 3}, {2, 4}}, mb.Rows)
	require.Equal(t, 11, mb.Unpacked)
	require.Equal(t, 0.5, mb.Temperature)

	got, err = Pack(items, PackOptions{MicroBatchTokens: 100, minShared: 1, Temperature: 1})
	require.NoError(t, err)
	require.Equal(t, []int32{1, 2, 3, 4, 8, 9}, got[0].Tokens)
	require.Equal(t, []int32{-1, 0, 1, 0}, got[0].SegmentParent)
	require.Equal(t, []int32{2, 3, 2, 4, 5}, got[0].RowToken) // two samples predict from the same token 3
}

func TestPackRefuses(t *testing.T) {
	o := PackOptions{MicroBatchTokens: 10, MaxLength: 4, Temperature: 1}
	_, err := Pack([]PackItem{{Sample: sampleOf([]int32{1, 2, 3, 4, 5}, "00011"), Name: "g2/7"}}, o)
	require.EqualError(t, err, "trainer: pack: trajectory g2/7 has 5 tokens, the model takes 4; lower rollout.max_tokens")
	_, err = Pack([]PackItem{{Sample: sampleOf([]int32{1, 2}, "10"), Name: "x"}}, o)
	require.ErrorContains(t, err, "trajectory x: trajectory: token 0 is marked as sampled")
	for _, bad := range []PackOptions{{}, {MicroBatchTokens: 1}, {Temperature: 1}} {
		_, err = Pack(nil, bad)
		require.Error(t, err)
	}
	got, err := Pack(nil, o)
	require.NoError(t, err)
	require.Empty(t, got)
}

// randomItems makes groups with a common system prompt, a question each, and tokens of their own, with observations.
func randomItems(rng *rand.Rand) []PackItem {
	var items []PackItem
	random := func(n int) []int32 {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = rng.Int32N(3) // few values, so that chance agreements are frequent
		}
		return ids
	}
	system := random(rng.IntN(12))
	for g := range 1 + rng.IntN(4) {
		prompt := append(slices.Clone(system), random(1+rng.IntN(10))...)
		for i := range 1 + rng.IntN(5) {
			ids, mask := slices.Clone(prompt), make([]byte, len(prompt))
			for j := range mask {
				mask[j] = '0'
			}
			for range rng.IntN(4) {
				kind := byte('0' + rng.IntN(2))
				for _, id := range random(rng.IntN(6)) {
					ids, mask = append(ids, id), append(mask, kind)
				}
			}
			items = append(items, PackItem{Sample: sampleOf(ids, string(mask)), Group: g, Name: fmt.Sprint(g, "/", i)})
		}
	}
	return items
}

// ancestors is the dumb twin's view: the token ids that a packed token attends to, itself included, found by walking
// parents token by token.
func ancestors(mb MicroBatch, token int32) []int32 {
	var ids []int32
	for segment := range mb.SegmentStart {
		if token < mb.SegmentStart[segment] || token >= mb.SegmentStart[segment]+mb.SegmentLength[segment] {
			continue
		}
		for s, end := int32(segment), token+1; s >= 0; {
			ids = append(slices.Clone(mb.Tokens[mb.SegmentStart[s]:end]), ids...)
			if s = mb.SegmentParent[s]; s >= 0 {
				end = mb.SegmentStart[s] + mb.SegmentLength[s]
			}
		}
	}
	return ids
}

// firstWrongRow returns the first row whose hidden state has not seen exactly the tokens before its target, or "".
// shift is 0; a twin that is off by one gives another.
func firstWrongRow(items []PackItem, batches []MicroBatch, shift int) string {
	for b, mb := range batches {
		for i, r := range mb.Rows {
			s := items[r.Item].Sample
			seen := ancestors(mb, mb.RowToken[i])
			if r.Token+shift < 0 || r.Token+shift > s.Len() || !slices.Equal(seen, s.TokenIDs[:r.Token+shift]) || mb.RowTarget[i] != s.TokenIDs[r.Token] {
				return fmt.Sprintf("micro-batch %d, row %d, %+v: sees %v of %v", b, i, r, seen, s.TokenIDs)
			}
			if int(mb.Positions[mb.RowToken[i]]) != r.Token-1 {
				return fmt.Sprintf("micro-batch %d, row %d: position %d", b, i, mb.Positions[mb.RowToken[i]])
			}
		}
	}
	return ""
}

func TestPackAgainstDumbTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	shared := 0
	for range 2000 {
		items := randomItems(rng)
		o := PackOptions{MicroBatchTokens: 1 + rng.IntN(120), minShared: 1 + rng.IntN(8), Temperature: 1}
		batches, err := Pack(items, o)
		require.NoError(t, err)
		require.Empty(t, firstWrongRow(items, batches, 0))
		rows, want := map[Row]int{}, 0
		for _, mb := range batches {
			require.NoError(t, mb.Validate(3))
			samples := map[int]bool{}
			for _, r := range mb.Rows {
				rows[r]++
				samples[r.Item] = true
			}
			if len(mb.Tokens) > o.MicroBatchTokens {
				require.Len(t, samples, 1, "only a single sample may be over the budget")
			}
			shared += mb.Unpacked - len(mb.Tokens)
		}
		for i, it := range items {
			for tok, on := range it.Sample.ResponseMask {
				if on {
					want++
					require.Equal(t, 1, rows[Row{i, tok}])
				}
			}
		}
		require.Len(t, rows, want)
	}
	require.Positive(t, shared)
}

func TestATwinThatIsOffByOneFails(t *testing.T) {
	items := randomItems(rand.New(rand.NewPCG(5, 6)))
	batches, err := Pack(items, PackOptions{MicroBatchTokens: 1000, minShared: 2, Temperature: 1})
	require.NoError(t, err)
	require.Empty(t, firstWrongRow(items, batches, 0))
	require.NotEmpty(t, firstWrongRow(items, batches, 1))
	require.NotEmpty(t, firstWrongRow(items, batches, -1))
}

// withMedia puts images of few contents behind runs of observation tokens, all of which get the same id: what is drawn alike is the
// same in all samples, so that groups still share.
func withMedia(rng *rand.Rand, items []PackItem) {
	for _, it := range items {
		s := it.Sample
		for at := 0; at+2 <= s.Len(); at += 3 {
			if rng.IntN(3) > 0 && !s.ResponseMask[at] && !s.ResponseMask[at+1] {
				s.TokenIDs[at], s.TokenIDs[at+1] = 1, 1
				s.Media = append(s.Media, trajectory.Medium{At: at, Tokens: 2, Kind: trajectory.MediaImage, SHA256: trajectory.Digest{byte(1 + (at+rng.IntN(8)/7)%2)}})
			}
		}
	}
}

// way is the packed index of each token up to a row's, found by walking parents.
func way(mb MicroBatch, token int32) (at []int32) {
	for segment := range mb.SegmentStart {
		if token < mb.SegmentStart[segment] || token >= mb.SegmentStart[segment]+mb.SegmentLength[segment] {
			continue
		}
		for s, end := int32(segment), token+1; s >= 0; {
			for i := end - 1; i >= mb.SegmentStart[s]; i-- {
				at = append(at, i)
			}
			if s = mb.SegmentParent[s]; s >= 0 {
				end = mb.SegmentStart[s] + mb.SegmentLength[s]
			}
		}
	}
	slices.Reverse(at)
	return at
}

// Two samples share packed tokens only where the same media stand behind them; no segment begins within a medium.
func TestPackTellsMediaApart(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	told, shared := 0, 0
	for range 2000 {
		items := randomItems(rng)
		withMedia(rng, items)
		batches, err := Pack(items, PackOptions{MicroBatchTokens: 1 + rng.IntN(120), minShared: 1 + rng.IntN(4), Temperature: 1})
		require.NoError(t, err)
		require.Empty(t, firstWrongRow(items, batches, 0))
		for _, mb := range batches {
			ways := map[int][]int32{} // the longest of each item
			for i, r := range mb.Rows {
				ways[r.Item] = way(mb, mb.RowToken[i])
			}
			for a, x := range ways {
				for _, m := range items[a].Sample.Media {
					if m.End() < len(x) {
						require.Equal(t, x[m.At]+1, x[m.At+1], "a medium lies in one segment")
					}
				}
				for b, y := range ways {
					n := 0
					for n < min(len(x), len(y)) && x[n] == y[n] {
						n++
					}
					require.LessOrEqual(t, n, items[a].Sample.Prefix(len(x)).Common(items[b].Sample.Prefix(len(y))))
					for _, m := range items[a].Sample.Media {
						switch other := items[b].Sample.Media; {
						case a == b:
						case m.At < n:
							require.Contains(t, other, m, "what is shared has the same medium")
							shared++
						case m.At < len(y) && slices.Equal(items[a].Sample.TokenIDs[:m.At+1], items[b].Sample.TokenIDs[:m.At+1]):
							told++ // by ids alone it would be shared
						}
					}
				}
			}
		}
	}
	require.Greater(t, shared, 1000)
	require.Greater(t, told, 1000)
}

// Equal ids with equal media are packed as if there were none, and with another medium only what is before it is shared.
func TestPackMediaLiteral(t *testing.T) {
	image := func(sum byte) []trajectory.Medium {
		return []trajectory.Medium{{At: 2, Tokens: 2, Kind: trajectory.MediaImage, SHA256: trajectory.Digest{sum}}}
	}
	pack := func(a, b []trajectory.Medium) MicroBatch {
		items := []PackItem{{Sample: sampleOf([]int32{1, 2, 9, 9, 3, 4}, "000001")}, {Sample: sampleOf([]int32{1, 2, 9, 9, 3, 5}, "000001")}}
		items[0].Sample.Media, items[1].Sample.Media = a, b
		got, err := Pack(items, PackOptions{MicroBatchTokens: 100, minShared: 1, Temperature: 1})
		require.NoError(t, err)
		require.Len(t, got, 1)
		return got[0]
	}
	text := pack(nil, nil)
	require.Equal(t, []int32{1, 2, 9, 9, 3}, text.Tokens)
	require.Equal(t, text, pack(image(1), image(1)))
	apart := pack(image(1), image(2))
	require.Equal(t, []int32{1, 2, 9, 9, 3, 9, 9, 3}, apart.Tokens)
	require.Equal(t, []int32{2, 3, 3}, apart.SegmentLength)
	require.Equal(t, []int32{-1, 0, 0}, apart.SegmentParent)
	require.Equal(t, []int32{0, 1, 2, 3, 4, 2, 3, 4}, apart.Positions)
	require.Equal(t, apart.Tokens, pack(image(1), nil).Tokens)
	longer := image(1)
	longer[0].Tokens = 3
	require.Equal(t, apart.Tokens, pack(image(1), longer).Tokens, "the same image at another size")
}

func TestPackComputesSharedPrefixesOnce(t *testing.T) {
	// 6 groups of 8: 270 tokens for all, 30 per group, 40 per sample: 270 + 6*30 + 48*40 = 2370 (last tokens left out).
	rng := rand.New(rand.NewPCG(7, 8))
	random := func(n int) []int32 {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = rng.Int32N(49152)
		}
		return ids
	}
	system := random(270)
	var items []PackItem
	for g := range 6 {
		question := random(30)
		for range 8 {
			mask := make([]byte, 341)
			for j := range mask {
				mask[j] = byte('0' + (j+41)/341)
			}
			items = append(items, PackItem{Sample: sampleOf(slices.Concat(system, question, random(41)), string(mask)), Group: g})
		}
	}
	rng.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	batches, err := Pack(items, PackOptions{MicroBatchTokens: 4096, Temperature: 1})
	require.NoError(t, err)
	require.Len(t, batches, 1)
	require.Len(t, batches[0].Tokens, 2370)
	require.Equal(t, 48*340, batches[0].Unpacked)
	require.Len(t, batches[0].SegmentStart, 1+6+48)

	// A group needs 270 + 30 + 8*40 = 620: at 1000 tokens two groups fit (270 + 2*350 = 970), and stay together.
	batches, err = Pack(items, PackOptions{MicroBatchTokens: 1000, Temperature: 1})
	require.NoError(t, err)
	require.Len(t, batches, 3)
	for _, mb := range batches {
		groups := map[int]bool{}
		for _, r := range mb.Rows {
			groups[items[r.Item].Group] = true
		}
		require.Len(t, groups, 2)
	}
	// At 500 no group fits: five samples do (300 + 5*40 = 500), so groups are cut between samples.
	batches, err = Pack(items, PackOptions{MicroBatchTokens: 500, Temperature: 1})
	require.NoError(t, err)
	require.Less(t, len(batches), 13)
}

func TestPackingIgnoresTheOrderOfItems(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for range 200 {
		items := randomItems(rng)
		o := PackOptions{MicroBatchTokens: 60, minShared: 3, Temperature: 1}
		a, err := Pack(items, o)
		require.NoError(t, err)
		shuffled := slices.Clone(items)
		rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		b, err := Pack(shuffled, o)
		require.NoError(t, err)
		require.Len(t, b, len(a))
		for i := range a {
			require.Equal(t, a[i].Tokens, b[i].Tokens)
			require.Equal(t, a[i].SegmentParent, b[i].SegmentParent)
		}
	}
}
