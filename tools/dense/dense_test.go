package dense

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/tools/corpus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t testing.TB, passages ...corpus.Passage) string {
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

func random(r *rand.Rand, n, d int) Vectors {
	v := Vectors{make([]float32, n*d), d}
	for i := range v.Values {
		v.Values[i] = float32(r.NormFloat64())
	}
	return v
}

// TestScanSameAsTwin compares with a sort of all products, for sizes around those that goroutines share.
func TestScanSameAsTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 7, share - 1, share, share + 1, 3*share + 17} {
		for _, d := range []int{1, 3, 8, 13, 64} {
			v := random(r, n, d)
			for range n / 10 { // equal scores
				copy(v.Row(r.IntN(n)), v.Row(r.IntN(n)))
			}
			q := random(r, 1, d).Values
			all := make([]scored, n)
			for i := range all {
				all[i] = scored{i, dot(v.Row(i), q)}
			}
			slices.SortStableFunc(all, func(a, b scored) int { return cmp.Compare(b.score, a.score) })
			for _, k := range []int{1, 3, 50, n} {
				got, err := nearest(t.Context(), v, q, k)
				require.NoError(t, err)
				require.Equal(t, all[:min(k, n)], got, "n %d, d %d, k %d", n, d, k)
			}
			exact := 0.0
			for j, x := range v.Row(0) {
				exact += float64(x) * float64(q[j])
			}
			require.InDelta(t, exact, dot(v.Row(0), q), 1e-5*float64(d))
		}
	}
	got, err := nearest(t.Context(), random(r, 3, 2), []float32{1, 1}, 0)
	require.NoError(t, err)
	require.Empty(t, got)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = nearest(ctx, random(r, 3, 2), []float32{1, 1}, 1)
	require.ErrorIs(t, err, context.Canceled)
}

// letters is a model whose vector counts letters a, b, c.
type letters struct {
	mu    sync.Mutex
	texts []string
	bad   func(texts []string) (Vectors, error)
}

func (*letters) Name() string { return "letters" }
func (*letters) Close() error { return nil }
func (l *letters) Embed(_ context.Context, texts []string) (Vectors, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.texts = append(l.texts, texts...)
	if l.bad != nil {
		return l.bad(texts)
	}
	v := Vectors{make([]float32, 3*len(texts)), 3}
	for i, text := range texts {
		for j, letter := range []string{"a", "b", "c"} {
			v.Row(i)[j] = float32(strings.Count(text, letter))
		}
	}
	return v, nil
}

var passages = []corpus.Passage{{ID: "3", Text: "aaa"}, {ID: "1", Title: "b", Text: "b"}, {ID: "2", Text: "ab"}, {ID: "4", Text: "aa"}, {ID: "0", Text: "x"}}

func TestIndex(t *testing.T) {
	path, cache, l := write(t, passages...), t.TempDir(), &letters{}
	x, err := Open(t.Context(), []string{path}, cache, l, Options{QueryPrefix: "c", PassagePrefix: "p "})
	require.NoError(t, err)
	require.Equal(t, []string{"p x", "p b\nb", "p ab", "p aaa", "p aa"}, l.texts)
	hits, err := x.Query(t.Context(), "aaaaaaaa", 4)
	require.NoError(t, err)
	require.Equal(t, "caaaaaaaa", l.texts[5])
	require.Equal(t, []string{"3", "4", "2", "0"}, []string{hits[0].ID, hits[1].ID, hits[2].ID, hits[3].ID}, "equal scores by id; zeros score 0")
	require.InDelta(t, 8/8.06225774, hits[0].Score, 1e-6)
	require.InDelta(t, 8/8.06225774/1.41421356, hits[2].Score, 1e-6)
	require.Zero(t, hits[3].Score)
	require.NoError(t, x.Close())

	again := &letters{}
	y, err := Open(t.Context(), []string{path}, cache, again, Options{QueryPrefix: "c", PassagePrefix: "p "})
	require.NoError(t, err)
	require.Empty(t, again.texts, "the vectors are kept")
	same, err := y.Query(t.Context(), "aaaaaaaa", 4)
	require.NoError(t, err)
	require.Equal(t, hits, same)
	require.NoError(t, y.Close())

	z, err := Open(t.Context(), []string{path}, cache, again, Options{PassagePrefix: "q "})
	require.NoError(t, err)
	require.Len(t, again.texts, 6, "another prefix has other vectors")
	require.NoError(t, z.Close())
}

func TestDamagedVectorsAreComputedAgain(t *testing.T) {
	path, cache := write(t, passages...), t.TempDir()
	x, err := Open(t.Context(), []string{path}, cache, &letters{}, Options{})
	require.NoError(t, err)
	require.NoError(t, x.Close())
	files, err := filepath.Glob(filepath.Join(cache, "*", "vectors"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	b, err := os.ReadFile(files[0])
	require.NoError(t, err)
	require.Len(t, b, 8+5*3*4)
	b[20] ^= 1
	require.NoError(t, os.WriteFile(files[0], b, 0o600))
	var warnings []string
	x, err = Open(t.Context(), []string{path}, cache, &letters{}, Options{Warn: func(text string) { warnings = append(warnings, text) }})
	require.NoError(t, err)
	require.NoError(t, x.Close())
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "the checksum of vectors is wrong")
}

func TestBadModels(t *testing.T) {
	nan := float32(0)
	nan /= nan
	for _, c := range []struct {
		name string
		bad  func(texts []string) (Vectors, error)
		want string
	}{
		{"fails", func([]string) (Vectors, error) { return Vectors{}, errors.New("no memory") }, "no memory"},
		{"too few", func([]string) (Vectors, error) { return Vectors{make([]float32, 3), 3}, nil }, "gave 1 vectors of length 3 for 5 texts"},
		{"not finite", func(texts []string) (Vectors, error) {
			v := Vectors{make([]float32, len(texts)), 1}
			v.Values[1] = nan
			return v, nil
		}, `passage "1": the vector has a value that is not finite`},
	} {
		cache := t.TempDir()
		_, err := Open(t.Context(), []string{write(t, passages...)}, cache, &letters{bad: c.bad}, Options{})
		require.ErrorContains(t, err, c.want)
		left, err := filepath.Glob(filepath.Join(cache, "*", "*"))
		require.NoError(t, err)
		require.Empty(t, left)
	}
	l := &letters{}
	x, err := Open(t.Context(), []string{write(t, passages...)}, t.TempDir(), l, Options{})
	require.NoError(t, err)
	defer x.Close()
	l.bad = func([]string) (Vectors, error) { return Vectors{make([]float32, 2), 2}, nil }
	_, err = x.Query(t.Context(), "a", 1)
	require.ErrorContains(t, err, "gave 1 vectors of length 2 for a query; the passages have length 3")
}

// characters is a tokenizer of one token a byte.
type characters struct{}

func (characters) Encode(text string) []int32 {
	out := make([]int32, len(text))
	for i := range text {
		out[i] = int32(text[i] - 'a')
	}
	return out
}

func model(t *testing.T, tensors ...modelfile.Source) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, modelfile.WriteSafetensors(filepath.Join(dir, "model.safetensors"), nil, tensors))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte("{}"), 0o600))
	return dir
}

func TestStatic(t *testing.T) {
	load := func(string) (Tokenizer, error) { return characters{}, nil }
	e, err := NewStatic(model(t, tensor("e", []int{3, 2}, 1, 2, 3, 4, 5, 6)), load)
	require.NoError(t, err)
	require.Regexp(t, "^static [0-9a-f]{8} [0-9a-f]{8}$", e.Name())
	v, err := e.Embed(t.Context(), []string{"a", "abc", "", "cc"})
	require.NoError(t, err)
	require.Equal(t, Vectors{[]float32{1, 2, 3, 4, 0, 0, 5, 6}, 2}, v)
	_, err = e.Embed(t.Context(), []string{"a", "d"})
	require.EqualError(t, err, "dense: model: the tokenizer gave token 3; the model has 3")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = e.Embed(ctx, []string{"a"})
	require.ErrorIs(t, err, context.Canceled)
	other, err := NewStatic(model(t, tensor("e", []int{3, 2}, 1, 2, 3, 4, 5, 7)), load)
	require.NoError(t, err)
	require.NotEqual(t, e.Name(), other.Name(), "other weights, other vectors")

	_, err = NewStatic(t.TempDir(), load)
	require.ErrorContains(t, err, "a static sentence model is a folder with model.safetensors and tokenizer.json")
	_, err = NewStatic(model(t, tensor("a", []int{1, 1}, 1), tensor("b", []int{1, 1}, 1)), load)
	require.ErrorContains(t, err, "has 2 tensors; a static sentence model has one")
	_, err = NewStatic(model(t, tensor("a", []int{2}, 1, 2)), load)
	require.ErrorContains(t, err, "has the shape [2]")
}

func tensor(name string, shape []int, values ...float32) modelfile.Source {
	return modelfile.Source{Name: name, DType: modelfile.F32, Shape: shape, Write: func(w io.Writer) error {
		return binary.Write(w, binary.LittleEndian, values)
	}}
}
