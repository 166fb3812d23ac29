package tools

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// pairs is a tokenizer of two bytes a token, so that tokens end within runes.
type pairs struct{}

func (pairs) Encode(text string) (ids []int32) {
	for i := 0; i < len(text); i += 2 {
		id := int32(text[i]) + 1
		if i+1 < len(text) {
			id += 257 * (int32(text[i+1]) + 1)
		}
		ids = append(ids, id)
	}
	return ids
}

func (pairs) Decode(ids []int32, _ bool) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteByte(byte(id%257 - 1))
		if id >= 257 {
			b.WriteByte(byte(id/257 - 1))
		}
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}

func TestCutByTokens(t *testing.T) {
	require.Equal(t, "äöü", cut(pairs{}, "äöü", 3))
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		runes := make([]rune, 1+r.IntN(3000))
		for i := range runes {
			runes[i] = []rune("abc äö€😀\n")[r.IntN(9)]
		}
		s := string(runes)
		n := 1 + r.IntN(200)
		got := cut(pairs{}, s, n)
		all := len(pairs{}.Encode(s))
		require.LessOrEqual(t, len(pairs{}.Encode(got)), n)
		require.True(t, utf8.ValidString(got))
		if all <= n {
			require.Equal(t, s, got)
			continue
		}
		at := strings.Index(got, "\n[")
		if n < 16 { // no room for the marker
			continue
		}
		require.Positive(t, at, "limit %d", n)
		head, tail, _ := strings.Cut(got[at+2:], " tokens left out]\n")
		require.True(t, strings.HasPrefix(s, got[:at]))
		require.True(t, strings.HasSuffix(s, tail))
		var left int
		_, err := fmt.Sscan(head, &left)
		require.NoError(t, err)
		keptTokens := len(pairs{}.Encode(got[:at])) + len(pairs{}.Encode(tail))
		require.InDelta(t, all-keptTokens, left, 4, "what is left and what is left out add up, but for the runes that the edges cut")
	}
}

// A text beyond what is counted keeps its head and tail.
func TestCutOfAHugeText(t *testing.T) {
	s := "head " + strings.Repeat("ä", maxCounted) + " tail"
	got := cut(pairs{}, s, 50)
	require.LessOrEqual(t, len(pairs{}.Encode(got)), 50)
	require.Regexp(t, `^head ä+\n\[more than \d+ tokens left out\]\nä+ tail$`, got)
}

func TestObservationsAreCut(t *testing.T) {
	r := NewRegistry(Options{Tokenizer: pairs{}, MaxTokens: 40})
	long := strings.Repeat("0123456789", 30) // 150 tokens
	require.NoError(t, r.Register(constant("all", long)))
	require.NoError(t, r.RegisterAs(constant("less", long), Ref{Limits: Limits{MaxTokens: 20}}))
	require.Equal(t, long[:36]+"\n[122 tokens left out]\n"+long[len(long)-20:], invoke(t, r, "all", "{}").Observation)
	require.Equal(t, long[:10]+"\n[142 tokens left out]\n"+long[len(long)-6:], invoke(t, r, "less", "{}").Observation)
	r = NewRegistry(Options{MaxTokens: 40}) // without a tokenizer a token is four characters
	require.NoError(t, r.Register(constant("all", long)))
	require.Contains(t, invoke(t, r, "all", "{}").Observation, "[167 characters left out]")
}

// A terminal tool's observation is the final answer, which rewards judge and no model reads: it is cut only where the tool or the job says so.
func TestAFinalAnswerIsWhole(t *testing.T) {
	submit := NewFunc("submit", "Gives the final code.", func(_ context.Context, a struct {
		Code string `json:"code"`
	},
	) (string, error) {
		if a.Code == "" {
			return "", errors.New(strings.Repeat("no ", 100))
		}
		return a.Code, nil
	}, func(s *Spec) { s.Terminal, s.Deterministic = true, true })
	code := strings.Repeat("x = x + 1\n", 100)
	arguments := fmt.Sprintf(`{"code": %q}`, code)
	for name, ref := range map[string]Ref{"plain": {}, "kept": {Cache: true}} {
		r := NewRegistry(Options{MaxTokens: 20, Tokenizer: pairs{}})
		require.NoError(t, r.RegisterAs(submit, ref))
		for range 2 {
			got := invoke(t, r, "submit", arguments)
			require.True(t, got.Terminal, name)
			require.Equal(t, code, got.Observation, name)
		}
		got := invoke(t, r, "submit", `{"code": ""}`)
		require.False(t, got.Terminal)
		require.LessOrEqual(t, len(got.Observation), 40, "the model reads why it failed")
	}
	r := NewRegistry(Options{MaxTokens: 20, Tokenizer: pairs{}})
	require.NoError(t, r.RegisterAs(submit, Ref{Limits: Limits{MaxTokens: 30}}))
	require.Contains(t, invoke(t, r, "submit", arguments).Observation, "tokens left out]")
}
