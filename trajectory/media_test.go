package trajectory

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func image(at, tokens int, sum byte) Medium {
	return Medium{At: at, Tokens: tokens, Kind: MediaImage, SHA256: Digest{sum}}
}

func TestMediaAreChecked(t *testing.T) {
	require.NoError(t, CheckMedia(nil, 0))
	require.NoError(t, CheckMedia([]Medium{image(0, 2, 1), image(2, 1, 1), image(9, 1, 2)}, 10))
	for says, media := range map[string][]Medium{
		"medium 0 has no kind":                                       {{Tokens: 1, SHA256: Digest{1}}},
		"medium 0 (image) has no content hash":                       {image(0, 1, 0)},
		"medium 0 (image) stands for 0 tokens":                       {image(0, 0, 1)},
		"medium 1 (image) begins at token 1, before the end of what": {image(0, 2, 1), image(1, 2, 1)},
		"medium 0 (image) begins at token -1":                        {image(-1, 2, 1)},
		"medium 0 (image) has tokens 9 to 11 of a sequence with 10":  {image(9, 2, 1)},
	} {
		require.ErrorContains(t, CheckMedia(media, 10), says)
	}
}

func TestSamplesWithMedia(t *testing.T) {
	s := &Sample{Role: "actor"}
	s.AppendObservation([]int32{1})
	require.NoError(t, s.AppendMedium(MediaImage, Digest{1}, []int32{9, 9}))
	require.NoError(t, s.AppendResponse([]int32{2}, []float32{-1}, []int32{0}))
	require.NoError(t, s.AppendMedium("audio", Digest{2}, []int32{8}))
	require.NoError(t, s.Check())
	require.Equal(t, []Medium{image(1, 2, 1), {At: 4, Tokens: 1, Kind: "audio", SHA256: Digest{2}}}, s.Media)
	require.Equal(t, []bool{false, false, false, true, false}, s.ResponseMask)
	require.Error(t, s.AppendMedium("", Digest{1}, []int32{9}))
	require.Error(t, s.AppendMedium(MediaImage, Digest{}, []int32{9}))
	require.Error(t, s.AppendMedium(MediaImage, Digest{1}, nil))
	require.Equal(t, 5, s.Len(), "what is refused leaves nothing")
	for n, media := range []int{0, 0, 1, 1, 1, 2} {
		require.Len(t, s.Prefix(n).Media, media, n)
	}
	s.Media[1].At = 3
	require.ErrorContains(t, s.Check(), "token 3 is marked as sampled, but it is a placeholder of medium 1 (audio)")
	s.Media[1].At = 5
	require.ErrorContains(t, s.Check(), "tokens 5 to 6 of a sequence with 5")

	text, err := json.Marshal(image(1, 2, 0xab))
	require.NoError(t, err)
	require.Equal(t, `{"at":1,"tokens":2,"kind":"image","sha256":"ab`+strings.Repeat("0", 62)+`"}`, string(text))
	var back Medium
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, image(1, 2, 0xab), back)
	for _, bad := range []string{"", "ab", strings.Repeat("0", 66), strings.Repeat("x", 64)} {
		require.ErrorContains(t, new(Digest).UnmarshalText([]byte(bad)), "is no SHA-256")
	}
}

// randomPrefix is made of few values, so that prefixes often agree; 9 is the placeholder, and an id of texts too.
func randomPrefix(r *rand.Rand) (p Prefix) {
	for range r.IntN(5) {
		if r.IntN(2) == 0 {
			m := image(len(p.IDs), 1+r.IntN(3), byte(1+r.IntN(2)))
			if r.IntN(4) == 0 {
				m.Kind = "audio"
			}
			p.Media = append(p.Media, m)
			p.IDs = append(p.IDs, slices.Repeat([]int32{9}, m.Tokens)...)
		} else {
			p.IDs = append(p.IDs, 9-int32(r.IntN(2)))
		}
	}
	s := Sample{TokenIDs: p.IDs, Media: p.Media} // and cut, perhaps within a medium
	return s.Prefix(len(p.IDs) - r.IntN(min(2, len(p.IDs)+1)))
}

// seen is what the model sees at each position, for the dumb twin.
func seen(p Prefix) []string {
	out := make([]string, len(p.IDs))
	for i, id := range p.IDs {
		out[i] = fmt.Sprintf("%d", id)
		for _, m := range p.Media {
			if i >= m.At && i < m.End() {
				out[i] += fmt.Sprintf(" %02d %s %x %d", m.Tokens, m.Kind, m.SHA256, i-m.At)
			}
		}
	}
	return out
}

// commonTwin walks token by token; a medium that is not whole within what is common does not count.
func commonTwin(a, b Prefix) int {
	x, y := seen(a), seen(b)
	n := 0
	for n < min(len(x), len(y)) && x[n] == y[n] {
		n++
	}
	for _, m := range a.Media {
		if m.At < n && m.End() > n {
			n = m.At
		}
	}
	return n
}

func TestPrefixesAgainstDumbTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	apart, beyond, inside := 0, 0, 0
	for range 50000 {
		a, b := randomPrefix(r), randomPrefix(r)
		x, y := seen(a), seen(b)
		n := a.Common(b)
		require.Equal(t, commonTwin(a, b), n, "%v and %v", x, y)
		require.Equal(t, n, b.Common(a))
		require.Equal(t, slices.Equal(x, y), a.Equal(b))
		require.Equal(t, slices.Compare(x, y), cmp.Compare(a.Compare(b), 0), "%v and %v", x, y)
		if slices.Equal(a.IDs, b.IDs) && !slices.Equal(x, y) {
			apart++ // the ids say nothing of it
			first := min(firstOnly(a, b), firstOnly(b, a))
			require.LessOrEqual(t, n, first, "nothing is shared from the first differing medium on")
		}
		if slices.ContainsFunc(a.Media, func(m Medium) bool { return m.End() <= n }) {
			beyond++
		}
		for _, m := range a.Media {
			require.False(t, m.At < n && n < m.End(), "a medium is cut")
		}
		if k := len(x); k > 0 && k <= len(y) {
			start := r.IntN(k)
			equal := slices.Equal(x[start:k], y[start:k])
			require.Equal(t, equal, string(a.AppendKey(nil, start, k)) == string(b.AppendKey(nil, start, k)), "%v and %v from %d", x, y, start)
			if start > 0 && equal && strings.Contains(x[start-1], "image") {
				inside++
			}
		}
	}
	require.Greater(t, apart, 300)
	require.Greater(t, beyond, 300)
	require.Greater(t, inside, 100)
}

// firstOnly is where the first medium of a begins that b has not.
func firstOnly(a, b Prefix) int {
	for _, m := range a.Media {
		if !slices.Contains(b.Media, m) {
			return m.At
		}
	}
	return len(a.IDs)
}

// Prefixes that are sorted have those with a common beginning as neighbours: what two share, all between them share.
func TestSortedPrefixesShareWithNeighbours(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for range 300 {
		all := make([]Prefix, 12)
		for i := range all {
			all[i] = randomPrefix(r)
		}
		slices.SortFunc(all, Prefix.Compare)
		for i := range all {
			least := len(all[i].IDs)
			for k := i + 1; k < len(all); k++ {
				least = min(least, all[k-1].Common(all[k]))
				require.Equal(t, least, all[i].Common(all[k]))
			}
		}
	}
}
