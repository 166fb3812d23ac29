package masks

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// dumb finds the places that spellings.places finds, one text after the other.
func dumb(texts []string, content string, free bool) (out []int) {
	texts = slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return utf8.RuneCountInString(text) < 2 })
	for _, text := range texts {
		for at := range text {
			if free && at > 0 && strings.HasPrefix(content, text[at:]) {
				out = append(out, 0)
			}
		}
	}
	for at := range content {
		for _, text := range texts {
			if strings.HasPrefix(content[at:], text) || free && strings.HasPrefix(text, content[at:]) {
				_, n := utf8.DecodeRuneInString(content[at:])
				out = append(out, at+n)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func TestPlacesAreThoseOfADumbSearch(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	parts := []string{"<", "|", ">", "<|", "im", "_", "end", "é", "｜", "a", "<s>", "</"}
	text := func(most int) string {
		var b strings.Builder
		for range rng.IntN(most) {
			b.WriteString(parts[rng.IntN(len(parts))])
		}
		return b.String()
	}
	for range 3000 {
		texts := []string{"<|im_end|>"}
		for range rng.IntN(8) {
			if s := text(5); s != "" {
				texts = append(texts, s)
			}
		}
		s := newSpellings(texts, nil)
		content := text(12)
		for _, free := range []bool{false, true} {
			require.Equal(t, dumb(texts, content, free), s.places(content, free), "%q %q %v", texts, content, free)
		}
	}
}

// A page of tags is looked at once, however many special tokens begin as its tags do: Tekken has a thousand.
func TestAPageOfTagsIsLookedAtOnce(t *testing.T) {
	texts := []string{"<s>", "</s>"}
	for i := range 1000 {
		texts = append(texts, fmt.Sprintf("<SPECIAL_%d>", i))
	}
	s := newSpellings(texts, nil)
	page := strings.Repeat("<div>a < b</div>", 1000)
	looked := 0
	for at := range page {
		_, n := s.texts.find(page[at:], true)
		looked += n
	}
	require.Less(t, looked, 2*len(page))
	require.Empty(t, s.places(page, false))
	require.LessOrEqual(t, len(s.texts), 2+4+9+1000*4)
}
