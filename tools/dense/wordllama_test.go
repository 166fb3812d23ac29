package dense_test

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/agentfly/agentfly/internal/home"
	"github.com/agentfly/agentfly/masks/tokenizer"
	"github.com/agentfly/agentfly/tools/dense"
	"github.com/stretchr/testify/require"
)

func load(dir string) (dense.Tokenizer, error) { return tokenizer.Load(dir) }

// fetched is the folder of the sentence model that a package ships.
func fetched(t testing.TB) string {
	t.Helper()
	dir, err := home.Cache("models", "wordllama-l2-supercat-256")
	require.NoError(t, err)
	if _, err := os.Stat(dir); err != nil {
		out, err := exec.CommandContext(t.Context(), "python3", "../../scripts/fetch.py", "sentence-model").CombinedOutput()
		if err != nil {
			t.Skipf("the sentence model is not there: %s", out)
		}
	}
	return dir
}

// TestSameVectorsAsWordLlama compares with the package's own vectors (scripts/goldens/sentence.py).
func TestSameVectorsAsWordLlama(t *testing.T) {
	var golden struct {
		Texts   []string    `json:"texts"`
		Vectors [][]float64 `json:"vectors"`
	}
	b, err := os.ReadFile("testdata/wordllama.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &golden))
	require.Len(t, golden.Texts, 11)
	e, err := dense.NewStatic(fetched(t), load)
	require.NoError(t, err)
	v, err := e.Embed(t.Context(), golden.Texts)
	require.NoError(t, err)
	require.Equal(t, 256, v.D)
	worst := 0.0
	for i, want := range golden.Vectors {
		norm := 0.0
		for _, x := range v.Row(i) {
			norm += float64(x) * float64(x)
		}
		for j, x := range v.Row(i) {
			worst = max(worst, math.Abs(float64(x)/math.Sqrt(norm)-want[j]))
		}
	}
	t.Logf("largest difference %.1e", worst)
	require.Less(t, worst, 1e-6)
}

func TestWordLlamaFindsByMeaning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "corpus.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(`{"id": "paris", "text": "Paris is the capital and most populous city of France."}
{"id": "cell", "text": "Mitochondria generate most of the chemical energy of a cell."}
{"id": "tennis", "text": "Wimbledon is the oldest tennis tournament in the world."}
`), 0o600))
	e, err := dense.NewStatic(fetched(t), load)
	require.NoError(t, err)
	x, err := dense.Open(t.Context(), []string{path}, t.TempDir(), e, dense.Options{})
	require.NoError(t, err)
	defer x.Close()
	for query, want := range map[string]string{
		"Which town rules the French?": "paris", "powerhouse inside biological organisms": "cell", "sports competition with rackets": "tennis",
	} {
		hits, err := x.Query(t.Context(), query, 1)
		require.NoError(t, err)
		require.Equal(t, want, hits[0].ID, query)
	}
}
