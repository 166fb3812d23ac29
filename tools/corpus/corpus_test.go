package corpus_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfly/agentfly/tools/corpus"
	"github.com/stretchr/testify/require"
)

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestRead(t *testing.T) {
	a := file(t, "a.jsonl", "\ufeff"+`{"id": "b", "title": "T", "text": "one", "more": [1]}`+"\r\n\n"+`{"id": 10, "text": "two \ud800"}`)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write([]byte(`{"id": "a", "text": "drei\nvier"}` + "\n" + `{"id": "c", "contents": "\"Go\"\nA game.\nOld."}`))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	got, err := corpus.Read(t.Context(), []string{a, file(t, "b.jsonl.gz", packed.String())})
	require.NoError(t, err)
	require.Equal(t, []corpus.Passage{{ID: "10", Text: "two \ufffd"}, {ID: "a", Text: "drei\nvier"}, {ID: "b", Title: "T", Text: "one"}, {ID: "c", Title: "Go", Text: "A game.\nOld."}}, got)
}

func TestErrorsNameFileAndLine(t *testing.T) {
	good := `{"id": "1", "text": "x"}` + "\n"
	for _, c := range []struct{ name, text, want string }{
		{"no object", good + "[1]", `line 2: not a JSON object such as {"id": "1", "title": "…", "text": "…"}`},
		{"cut", good + `{"id": "2", "te`, "line 2: not a JSON object"},
		{"no id", good + "\n" + `{"text": "x"}`, `line 3: the passage has no "id"`},
		{"null id", `{"id": null, "text": "x"}`, `line 1: the passage has no "id"`},
		{"empty id", `{"id": "", "text": "x"}`, `line 1: the passage has an empty "id"`},
		{"id of another type", `{"id": [1], "text": "x"}`, "line 1: id must be a string or a number"},
		{"no text", `{"id": "1"}`, `line 1: the passage has no "text"`},
		{"a title alone", `{"id": "1", "contents": "x"}`, `line 1: the passage has no "text"`},
		{"blank text", `{"id": "1", "text": " \n"}`, `line 1: the passage has no "text"`},
		{"text of another type", `{"id": "1", "text": 3}`, "line 1: text must be a string, not a number"},
		{"title of another type", `{"id": "1", "text": "x", "title": {}}`, "line 1: title must be a string, not a object"},
		{"twice", good + good, `line 2: the id "1" is already that of `},
		{"empty", "\n", "there is no passage; write JSON lines"},
		{"long line", good + strings.Repeat("x", 17<<20), "line 2: longer than 16 MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := file(t, "c.jsonl", c.text)
			_, err := corpus.Read(t.Context(), []string{path})
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, path)
			require.NotContains(t, err.Error(), "\n")
		})
	}
	_, err := corpus.Read(t.Context(), []string{"/nowhere/c.jsonl"})
	require.EqualError(t, err, "corpus: /nowhere/c.jsonl: there is no such file")
	_, err = corpus.Read(t.Context(), nil)
	require.ErrorContains(t, err, "give corpus: FILE")
	_, err = corpus.Read(t.Context(), []string{file(t, "c.jsonl.gz", good)})
	require.ErrorContains(t, err, "not a gzip file")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = corpus.Read(ctx, []string{file(t, "c.jsonl", good)})
	require.ErrorIs(t, err, context.Canceled)
}

func TestKey(t *testing.T) {
	a, b := file(t, "a.jsonl", "1"), file(t, "b.jsonl", "2")
	key := func(files []string, settings ...string) string {
		k, err := corpus.Key(t.Context(), files, settings...)
		require.NoError(t, err)
		return k
	}
	require.Regexp(t, "^[0-9a-f]{32}$", key([]string{a}))
	require.Equal(t, key([]string{a}, "x"), key([]string{file(t, "c.jsonl", "1")}, "x"), "the bytes count, not the name")
	different := []string{
		key([]string{a}), key([]string{b}), key([]string{a, b}), key([]string{b, a}), key([]string{file(t, "c", "12")}),
		key([]string{a}, "x"), key([]string{a}, "x", "y"), key([]string{a}, "xy"), key([]string{file(t, "a.gz", "1")}),
	}
	seen := map[string]int{}
	for i, k := range different {
		require.NotContains(t, seen, k, "%d", i)
		seen[k] = i
	}
}

func TestStore(t *testing.T) {
	dir := t.TempDir()
	passages := []corpus.Passage{{ID: "a", Text: "one\ntwo"}, {ID: "b", Title: "<é>", Text: "\u2028"}}
	require.NoError(t, corpus.WriteStore(dir, passages))
	s, err := corpus.OpenStore(dir)
	require.NoError(t, err)
	require.Equal(t, 2, s.Len())
	for i, want := range passages {
		got, err := s.Passage(i)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err = s.Passage(2)
	require.ErrorContains(t, err, "no passage 2 of 2")
	require.NoError(t, s.Close())
	_, err = s.Passage(0)
	require.EqualError(t, err, "corpus: the store is closed")
}

func TestLayout(t *testing.T) {
	require.Equal(t, "No passage matches; try other words.", corpus.Layout(nil, 10))
	require.Equal(t, "Doc 1(Title: Zürich) Stadt an d…\nDoc 2 kurz",
		corpus.Layout([]corpus.Passage{{ID: "1", Title: "Zürich", Text: "Stadt an der Limmat"}, {ID: "2", Text: "kurz"}}, 11))
	require.Equal(t, "ééé", corpus.Clip("ééé", 3))
	require.Equal(t, "éé…", corpus.Clip("éééé", 3))
	require.Equal(t, "…", corpus.Clip("éééé", 1))
	require.Equal(t, "éééé", corpus.Clip("éééé", 0))
}

func FuzzRead(f *testing.F) {
	f.Add(`{"id": "1", "title": "t", "text": "x"}` + "\n" + `{"id": 2, "text": "y"}`)
	f.Add("\xef\xbb\xbf{}\n\n[")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "c.jsonl")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		passages, err := corpus.Read(t.Context(), []string{path})
		if err != nil {
			require.ErrorContains(t, err, path)
			return
		}
		require.NotEmpty(t, passages)
		dir := t.TempDir()
		require.NoError(t, corpus.WriteStore(dir, passages))
		s, err := corpus.OpenStore(dir)
		require.NoError(t, err)
		defer s.Close()
		for i, want := range passages {
			got, err := s.Passage(i)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	})
}
