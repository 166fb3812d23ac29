package search

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/agentfly/agentfly/tools/corpus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t testing.TB, passages []corpus.Passage) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "corpus.jsonl")
	f, err := os.Create(path)
	require.NoError(t, err)
	e := json.NewEncoder(f)
	for _, p := range passages {
		require.NoError(t, e.Encode(p))
	}
	require.NoError(t, f.Close())
	return path
}

func opened(t testing.TB, passages []corpus.Passage, o Options) *Index {
	t.Helper()
	x, err := Open(t.Context(), []string{write(t, passages)}, t.TempDir(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return x
}

func ids(t testing.TB, x *Index, query string, k int) []string {
	t.Helper()
	hits, err := x.Query(t.Context(), query, k)
	require.NoError(t, err)
	out := []string{}
	for _, h := range hits {
		out = append(out, h.ID)
	}
	return out
}

var animals = []corpus.Passage{
	{ID: "cat", Title: "Cats", Text: "The cat sat on the mat."},
	{ID: "dog", Title: "Dogs", Text: "A dog chased the cat, and the cat ran."},
	{ID: "fish", Text: "Fish swim in the sea."},
}

// The terms: cat = cat cat sat mat; dog = dog dog chase cat cat ran; fish = fish swim sea. N = 3, avgdl = 13/3.
func TestScoresByHand(t *testing.T) {
	x := opened(t, animals, Options{})
	hits, err := x.Query(t.Context(), "cats", 10)
	require.NoError(t, err)
	idf := math.Log(1 + 1.5/2.5) // in 2 of 3
	require.Len(t, hits, 2)
	require.Equal(t, animals[0], hits[0].Passage)
	require.Equal(t, animals[1], hits[1].Passage)
	require.InDelta(t, idf*2/(2+0.9*(0.6+0.4*4*3/13)), hits[0].Score, 1e-12)
	require.InDelta(t, idf*2/(2+0.9*(0.6+0.4*6*3/13)), hits[1].Score, 1e-12)

	hits, err = x.Query(t.Context(), "dogs and a dog in the sea", 10)
	require.NoError(t, err)
	idf = math.Log(1 + 2.5/1.5) // in 1 of 3
	require.Len(t, hits, 2)
	require.InDelta(t, 2*idf*2/(2+0.9*(0.6+0.4*6*3/13)), hits[0].Score, 1e-12, "a term counts as often as the query has it")
	require.InDelta(t, idf/(1+0.9*(0.6+0.4*3*3/13)), hits[1].Score, 1e-12)
}

func TestFields(t *testing.T) {
	title, text := opened(t, animals, Options{Fields: []string{"title"}}), opened(t, animals, Options{Fields: []string{"text"}})
	require.Equal(t, []string{"cat"}, ids(t, title, "cat", 5))
	require.Equal(t, []string{}, ids(t, title, "sea", 5))
	require.Equal(t, []string{"dog", "cat"}, ids(t, text, "cat", 5))
	_, err := Open(t.Context(), []string{write(t, animals)}, t.TempDir(), Options{Fields: []string{"body"}})
	require.EqualError(t, err, `search: there is no field "body"; fields has title, text or both`)
}

// twin computes every score from the passages, without an index.
type twin struct {
	words    *analyzer
	passages []corpus.Passage
	terms    [][]string // of each passage
	total    int
	df       map[string]int
}

func newTwin(words *analyzer, passages []corpus.Passage) *twin {
	w := &twin{words: words, passages: passages, df: map[string]int{}}
	for _, p := range passages {
		var terms []string
		seen := map[string]bool{}
		for _, token := range words.Analyze([]byte(p.Title + "\n" + p.Text)) {
			terms = append(terms, string(token.Term))
			seen[string(token.Term)] = true
		}
		for term := range seen {
			w.df[term]++
		}
		w.terms = append(w.terms, terms)
		w.total += len(terms)
	}
	return w
}

func (w *twin) query(query string, k int) []corpus.Hit {
	var hits []corpus.Hit
	for i, p := range w.passages {
		score := 0.0
		for _, token := range w.words.Analyze([]byte(query)) {
			term := string(token.Term)
			tf := 0
			for _, other := range w.terms[i] {
				if other == term {
					tf++
				}
			}
			n, d := float64(len(w.passages)), float64(w.df[term])
			score += math.Log(1+(n-d+0.5)/(d+0.5)) * float64(tf) / (float64(tf) + 0.9*(1-0.4+0.4*float64(len(w.terms[i]))/(float64(w.total)/n)))
		}
		if score > 0 {
			hits = append(hits, corpus.Hit{Passage: p, Score: score})
		}
	}
	slices.SortStableFunc(hits, func(a, b corpus.Hit) int {
		if math.Abs(a.Score-b.Score) < 1e-12 {
			return cmp.Compare(a.ID, b.ID)
		}
		return cmp.Compare(b.Score, a.Score)
	})
	return hits[:min(k, len(hits))]
}

// corpusOf makes n passages of words whose frequencies fall as those of a language do.
func corpusOf(n int, seed uint64) ([]corpus.Passage, func(words int) string) {
	r := rand.New(rand.NewPCG(seed, 1))
	zipf := rand.NewZipf(r, 1.05, 2.7, 200_000)
	syllables := strings.Fields("ba de ki lo mu na re si to vu za che fri gol hen jas pra ste tor win")
	common := strings.Fields("the of and to in a is that for it was on are as with his they be at this have from or had by not but what all were")
	word := func() string {
		w := int(zipf.Uint64())
		if w < len(common) {
			return common[w]
		}
		s := ""
		for w += 20; w > 0; w /= len(syllables) {
			s += syllables[w%len(syllables)]
		}
		return s
	}
	text := func(words int) string {
		out := make([]string, words)
		for i := range out {
			out[i] = word()
		}
		return strings.Join(out, " ")
	}
	out := make([]corpus.Passage, n)
	for i := range out {
		out[i] = corpus.Passage{ID: fmt.Sprint(i), Title: text(1 + r.IntN(3)), Text: text(30 + r.IntN(140))}
	}
	return out, text
}

func TestSameAsTwin(t *testing.T) {
	passages, text := corpusOf(600, 7)
	for i := range 20 { // equal scores
		passages = append(passages, corpus.Passage{ID: fmt.Sprintf("copy%02d", 19-i), Title: passages[3].Title, Text: passages[3].Text})
	}
	x := opened(t, passages, Options{})
	require.Equal(t, 620, x.Len())
	w, found := newTwin(x.words, passages), 0
	for i := range 60 {
		query := text(1 + i%30)
		if i%5 == 0 {
			query = passages[3].Text
		}
		k := 1 + i%25
		want := w.query(query, k)
		got, err := x.Query(t.Context(), query, k)
		require.NoError(t, err)
		require.Len(t, got, len(want), "%s", query)
		for j, w := range want {
			require.Equal(t, w.Passage, got[j].Passage, "%s: hit %d", query, j)
			require.InDelta(t, w.Score, got[j].Score, 1e-11)
		}
		found += len(got)
	}
	require.Greater(t, found, 500)
}

// TestOrderOfBuildDoesNotMatter: the same bits whatever order the files and bleve's batches have.
func TestOrderOfBuildDoesNotMatter(t *testing.T) {
	passages, text := corpusOf(300, 8)
	x := opened(t, passages, Options{})
	mixed := slices.Clone(passages)
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	y := opened(t, mixed, Options{})
	for range 30 {
		query := text(12)
		a, err := x.Query(t.Context(), query, 300)
		require.NoError(t, err)
		turned := strings.Fields(query)
		slices.Reverse(turned)
		b, err := y.Query(t.Context(), strings.Join(turned, " "), 300)
		require.NoError(t, err)
		require.Equal(t, a, b)
	}
}

func TestAnyTextIsAQuery(t *testing.T) {
	x := opened(t, animals, Options{})
	for _, query := range []string{
		"", " ", "the of and", `"`, `title:"`, "+cat -dog", "cat^2", "cat~", "/(/", "\\", "(", "AND OR NOT", "*", "?", "\x00\xff\xfe", "🐈", "[MASK]",
		strings.Repeat("cat ", 10000), strings.Repeat("x", 1<<20), "'s", "猫", "\u0301", "ﬁsh",
	} {
		_, err := x.Query(t.Context(), query, 3)
		require.NoError(t, err, "%.20q", query)
	}
	require.Equal(t, []string{"cat", "dog"}, ids(t, x, "+CAT's -\"mat\"", 3))
	require.Equal(t, []string{}, ids(t, x, "cat", 0))
	require.Equal(t, []string{}, ids(t, x, "cat", -1))
}

func FuzzQuery(f *testing.F) {
	for _, s := range []string{"cat", `"cat" -dog`, "\xff", "cat's sea"} {
		f.Add(s, 3)
	}
	x := opened(f, animals, Options{})
	f.Fuzz(func(t *testing.T, query string, k int) {
		got, err := x.Query(t.Context(), query, k)
		require.NoError(t, err)
		require.LessOrEqual(t, len(got), max(k, 0))
		want := newTwin(x.words, animals).query(query, max(min(k, 3), 0))
		require.Len(t, got, len(want))
		for i := range want {
			require.InDelta(t, want[i].Score, got[i].Score, 1e-9*want[i].Score)
		}
	})
}

func TestTextWithoutWords(t *testing.T) {
	x := opened(t, []corpus.Passage{{ID: "1", Text: "the of"}, {ID: "2", Text: "?!"}}, Options{})
	require.Equal(t, []string{}, ids(t, x, "the", 3))
	require.Equal(t, 2, x.Len())
}

func TestQueriesAtOnce(t *testing.T) {
	passages, text := corpusOf(400, 9)
	x := opened(t, passages, Options{})
	queries := make([]string, 16)
	want := make([][]corpus.Hit, len(queries))
	for i := range queries {
		queries[i] = text(8)
		var err error
		want[i], err = x.Query(t.Context(), queries[i], 7)
		require.NoError(t, err)
	}
	var wait sync.WaitGroup
	for w := range 8 {
		wait.Go(func() {
			for i := range 40 {
				n := (i + w) % len(queries)
				got, err := x.Query(t.Context(), queries[n], 7)
				if err != nil || !slices.Equal(got, want[n]) {
					t.Errorf("query %d: %v, %v", n, got, err)
				}
			}
		})
	}
	wait.Wait()
}

func TestIndexIsKept(t *testing.T) {
	path, cache := write(t, animals), t.TempDir()
	quiet := Options{Warn: func(text string) { t.Error(text) }}
	x, err := Open(t.Context(), []string{path}, cache, quiet)
	require.NoError(t, err)
	require.NoError(t, x.Close())
	require.NoError(t, x.Close())
	_, err = x.Query(t.Context(), "cat", 1)
	require.EqualError(t, err, "search: the index is closed")
	manifests, err := filepath.Glob(filepath.Join(cache, "*", "manifest.json"))
	require.NoError(t, err)
	require.Len(t, manifests, 1)
	before, err := os.Stat(manifests[0])
	require.NoError(t, err)
	x, err = Open(t.Context(), []string{path}, cache, quiet)
	require.NoError(t, err)
	require.Equal(t, []string{"dog", "cat"}, ids(t, x, "cat ran", 2))
	y, err := Open(t.Context(), []string{path}, cache, quiet) // beside the first
	require.NoError(t, err)
	require.NoError(t, x.Close())
	require.Equal(t, []string{"dog", "cat"}, ids(t, y, "cat ran", 2))
	require.NoError(t, y.Close())
	after, err := os.Stat(manifests[0])
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
}

func TestDamagedIndexIsBuiltAgain(t *testing.T) {
	path, cache := write(t, animals), t.TempDir()
	x, err := Open(t.Context(), []string{path}, cache, Options{})
	require.NoError(t, err)
	require.NoError(t, x.Close())
	var files []string
	for _, pattern := range []string{"*/*", "*/segments/*"} {
		found, err := filepath.Glob(filepath.Join(cache, pattern))
		require.NoError(t, err)
		files = append(files, slices.DeleteFunc(found, func(f string) bool { return filepath.Base(f) == "segments" })...)
	}
	require.Len(t, files, 7) // passages, their places, lengths, frequent terms, a manifest, a segment, bleve's root
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		b[len(b)/2] ^= 0x40
		require.NoError(t, os.Chmod(f, 0o600))
		require.NoError(t, os.WriteFile(f, b, 0o600))
		var warnings []string
		x, err := Open(t.Context(), []string{path}, cache, Options{Warn: func(text string) { warnings = append(warnings, text) }})
		require.NoError(t, err, f)
		require.Len(t, warnings, 1, f)
		require.NotContains(t, warnings[0], "\n")
		require.Equal(t, []string{"dog", "cat"}, ids(t, x, "cat ran", 2))
		require.NoError(t, x.Close())
	}
}

func TestBuildEndsWithTheContext(t *testing.T) {
	cache := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Open(ctx, []string{write(t, animals)}, cache, Options{})
	require.ErrorIs(t, err, context.Canceled)
	left, err := filepath.Glob(filepath.Join(cache, "*", "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestProcessesShareAnIndex starts this test as processes that open, and so build, one index.
func TestProcessesShareAnIndex(t *testing.T) {
	if cache := os.Getenv("SEARCH_TEST_CACHE"); cache != "" {
		x, err := Open(t.Context(), []string{os.Getenv("SEARCH_TEST_CORPUS")}, cache, Options{Warn: func(text string) { t.Error(text) }})
		require.NoError(t, err)
		defer x.Close()
		require.Equal(t, []string{"dog", "cat"}, ids(t, x, "cat ran", 2))
		return
	}
	cache, path := t.TempDir(), write(t, animals)
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() {
			c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProcessesShareAnIndex$")
			c.Env = append(os.Environ(), "SEARCH_TEST_CACHE="+cache, "SEARCH_TEST_CORPUS="+path)
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	wait.Wait()
}

// What many passages have is decoded when the index is opened, what few have when a query asks for it.
func TestFrequentTermsAreWarm(t *testing.T) {
	var passages []corpus.Passage
	for i := range 3 * rare {
		text := "common"
		if i < 2 {
			text += " seldom"
		}
		passages = append(passages, corpus.Passage{ID: fmt.Sprint(i), Text: text})
	}
	x := opened(t, passages, Options{})
	decoded := func() []string { return slices.Sorted(maps.Keys(x.postings.terms)) }
	require.Equal(t, []string{"common"}, decoded())
	require.Equal(t, 3*rare, x.postings.used)
	require.Equal(t, []string{"0", "1"}, ids(t, x, "seldom", 3))
	require.Equal(t, []string{"common", "seldom"}, decoded())
}
