package grammar_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/grammar"
)

// vocabulary is a scripted tokenizer: every byte, and texts that reach over the parts of JSON. The last one is special.
type vocabulary struct {
	texts   []string
	special string
}

func (v vocabulary) Size() int { return 256 + len(v.texts) + 1 }

func (v vocabulary) Bytes(id int32) []byte {
	switch {
	case id < 256:
		return []byte{byte(id)}
	case int(id) < 256+len(v.texts):
		return []byte(v.texts[id-256])
	}
	return []byte(v.special)
}

func (v vocabulary) IsSpecial(id int32) bool { return int(id) == v.Size()-1 }

func (v vocabulary) Token(id int32) (string, bool) { return string(v.Bytes(id)), true }

var texts = vocabulary{
	texts: []string{
		`{"`, `{}`, `"}`, `": `, `":`, `", "`, `","`, `"]`, `],`, `}}`, "true", "null", "12", "345", "-1", "0.", "é", "日本", "\xe6\x97", "ab", "abc", " ", "\n  ", `\"`, `\u00`, "[TOOL",
	},
	special: "[TOOL_CALLS]",
}

func compile(t testing.TB, e grammar.Expr) *grammar.Grammar {
	t.Helper()
	g, err := grammar.Compile(e, grammar.NewVocabulary(texts))
	require.NoError(t, err)
	return g
}

func has(mask []uint64, id int32) bool { return mask[id>>6]>>(id&63)&1 != 0 }

// reads tells whether the matcher takes the text, byte by byte, and whether the text is whole then.
func reads(t testing.TB, g *grammar.Grammar, text string) (prefix, whole bool) {
	t.Helper()
	m := g.Match()
	for i := range len(text) {
		mask, _, err := m.Allowed()
		require.NoError(t, err)
		id := int32(text[i])
		if !has(mask, id) {
			require.Error(t, m.Take(id), "%q", text[:i+1])
			return false, false
		}
		require.NoError(t, m.Take(id))
	}
	_, end, err := m.Allowed()
	require.NoError(t, err, fmt.Sprintf("behind %q", text))
	return true, end
}

func matches(t testing.TB, g *grammar.Grammar, text string) bool {
	t.Helper()
	_, whole := reads(t, g, text)
	return whole
}
