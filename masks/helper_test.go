package masks_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/jinja"
	"github.com/agentfly/agentfly/masks"
)

// words is a tokenizer made by hand: the longest entry that fits is taken, anything else is a character of id 1000 + code point.
// The first special entries are special tokens, and the next other entries are added tokens that are not special.
type words struct {
	vocab          []string
	special, other int
}

var _ masks.Encoder = words{}

func (w words) Encode(text string) []int32 {
	var ids []int32
	for text != "" {
		best := -1
		for id, entry := range w.vocab {
			if strings.HasPrefix(text, entry) && (best < 0 || id >= w.special && best >= w.special && len(entry) > len(w.vocab[best])) {
				best = id
			}
		}
		if best >= 0 {
			ids = append(ids, int32(best))
			text = text[len(w.vocab[best]):]
			continue
		}
		c, n := utf8.DecodeRuneInString(text)
		ids = append(ids, 1000+c)
		text = text[n:]
	}
	return ids
}

func (w words) EncodeMarked(text, mark string) []int32 {
	var ids []int32
	for _, id := range w.Encode(text) {
		if mark == "" || id != 1000+[]rune(mark)[0] {
			ids = append(ids, id)
		}
	}
	return ids
}

func (w words) Specials() []string { return w.vocab[:w.special] }

func (w words) OtherAdded() []string { return w.vocab[w.special : w.special+w.other] }

func (w words) ID(token string) (int32, bool) {
	for id, entry := range w.vocab {
		if entry == token {
			return int32(id), true
		}
	}
	return 0, false
}

func (w words) Decode(ids []int32, skipSpecial bool) string {
	var b strings.Builder
	for _, id := range ids {
		switch {
		case id >= 1000:
			b.WriteRune(id - 1000)
		case int(id) >= w.special || !skipSpecial:
			b.WriteString(w.vocab[id])
		}
	}
	return b.String()
}

func compile(t testing.TB, source string, o jinja.Options) *jinja.Template {
	t.Helper()
	tmpl, err := jinja.Compile(source, o)
	require.NoError(t, err)
	return tmpl
}
