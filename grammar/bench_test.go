package grammar_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/grammar"
	"github.com/agentfly/agentfly/internal/home"
	"github.com/agentfly/agentfly/masks/tokenizer"
)

// BenchmarkAllowed is the time that a form adds to a token, with Qwen3's vocabulary of 151,669 tokens: the first time that a state is seen,
// and when it is known. It needs the tokenizer that the tests of masks/tokenizer fetched.
func BenchmarkAllowed(b *testing.B) {
	folder, err := home.Cache("tokenizers", "qwen3")
	require.NoError(b, err)
	if _, err := os.Stat(folder); err != nil {
		b.Skip("the tokenizer of Qwen3 is not in the cache; go test ./masks/tokenizer fetches it")
	}
	folders, err := filepath.Glob(filepath.Join(folder, "*"))
	require.NoError(b, err)
	tok, err := tokenizer.Load(folder)
	if err != nil && len(folders) > 0 {
		tok, err = tokenizer.Load(folders[0])
	}
	require.NoError(b, err)
	v := grammar.NewVocabulary(tok)
	e, err := grammar.JSONSchema([]byte(`{"type": "object", "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}}, "required": ["name", "tags"]}`))
	require.NoError(b, err)
	ids := tok.Encode(`{"name": "a longer text with spaces, and commas", "tags": ["one", "two", "three"]}`)
	run := func(g *grammar.Grammar) {
		m := g.Match()
		for _, id := range ids {
			_, _, err := m.Allowed()
			require.NoError(b, err)
			require.NoError(b, m.Take(id))
		}
	}
	perToken := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(ids)), "µs/token")
	}
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			g, err := grammar.Compile(e, v)
			require.NoError(b, err)
			run(g)
		}
		perToken(b)
	})
	b.Run("known", func(b *testing.B) {
		g, err := grammar.Compile(e, v)
		require.NoError(b, err)
		for b.Loop() {
			run(g)
		}
		perToken(b)
	})
}
