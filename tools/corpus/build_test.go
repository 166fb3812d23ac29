package corpus

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBuild(t *testing.T) {
	path, cache := filepath.Join(t.TempDir(), "c.jsonl"), t.TempDir()
	write := func(text string) {
		require.NoError(t, os.WriteFile(path, []byte(`{"id": "1", "text": "`+text+`"}`), 0o600))
	}
	write("one")
	builds := 0
	build := func(_ string, passages []Passage) error {
		require.Equal(t, []Passage{{ID: "1", Text: "one"}}, passages)
		builds++
		return nil
	}
	for range 2 {
		dir, err := Build(t.Context(), []string{path}, cache, []string{"s"}, nil, build)
		require.NoError(t, err)
		s, err := OpenStore(dir)
		require.NoError(t, err)
		require.Equal(t, 1, s.Len())
		require.NoError(t, s.Close())
	}
	require.Equal(t, 1, builds)
	_, err := Build(t.Context(), []string{path}, cache, []string{"other"}, nil, build)
	require.NoError(t, err)
	require.Equal(t, 2, builds)

	_, err = buildOf(t.Context(), func(ctx context.Context, files []string) ([]Passage, error) {
		write("two")
		return Read(ctx, files)
	}, []string{path}, t.TempDir(), nil, nil, build)
	require.EqualError(t, err, "corpus: "+path+" changed while it was read; run again")
	require.Equal(t, 2, builds)
}
