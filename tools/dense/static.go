package dense

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/agentfly/agentfly/modelfile"
)

// Tokenizer splits a text into the tokens of a static model. It is safe for concurrent use.
type Tokenizer interface{ Encode(text string) []int32 }

// static is a sentence model without layers: the vector of a text is the mean of its tokens' vectors.
type static struct {
	name      string
	tokenizer Tokenizer
	table     Vectors // [V, D]
}

// weightsFile is the one file of a static model beside tokenizer.json.
const weightsFile = "model.safetensors"

// NewStatic opens a static sentence model: a folder with model.safetensors, which holds one matrix of token vectors [V, D], and
// tokenizer.json, which load reads.
func NewStatic(dir string, load func(dir string) (Tokenizer, error)) (Embedder, error) {
	path := filepath.Join(dir, weightsFile)
	weights, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("dense: model: %w; a static sentence model is a folder with %s and tokenizer.json", err, weightsFile)
	}
	table, err := readTable(path)
	if err != nil {
		return nil, err
	}
	t, err := load(dir)
	if err != nil {
		return nil, fmt.Errorf("dense: model: %w", err)
	}
	source, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		return nil, fmt.Errorf("dense: model: %w", err)
	}
	name := fmt.Sprintf("static %08x %08x", crc32.ChecksumIEEE(weights), crc32.ChecksumIEEE(source))
	return &static{name, t, table}, nil
}

func readTable(path string) (Vectors, error) {
	m, err := modelfile.OpenSafetensors(path)
	if err != nil {
		return Vectors{}, fmt.Errorf("dense: model: %w", err)
	}
	defer m.Close()
	names := m.Names()
	if len(names) != 1 {
		return Vectors{}, fmt.Errorf("dense: model: %s has %d tensors; a static sentence model has one, of token vectors", path, len(names))
	}
	tensor, err := m.Tensor(names[0])
	if err != nil {
		return Vectors{}, fmt.Errorf("dense: model: %w", err)
	}
	if len(tensor.Shape) != 2 || tensor.Shape[0] < 1 || tensor.Shape[1] < 1 {
		return Vectors{}, fmt.Errorf("dense: model: %s has the shape %v; a static sentence model has one matrix [tokens, dimensions]", path, tensor.Shape)
	}
	values, err := tensor.Float32()
	if err != nil {
		return Vectors{}, fmt.Errorf("dense: model: %w", err)
	}
	return Vectors{values, int(tensor.Shape[1])}, nil
}

func (s *static) Name() string { return s.name }

func (s *static) Close() error { return nil }

func (s *static) Embed(ctx context.Context, texts []string) (Vectors, error) {
	out := Vectors{make([]float32, len(texts)*s.table.D), s.table.D}
	workers := min(runtime.GOMAXPROCS(0), len(texts))
	var wait sync.WaitGroup
	errs := make([]error, workers)
	for w := range workers {
		wait.Go(func() {
			for i := w; i < len(texts) && ctx.Err() == nil && errs[w] == nil; i += workers {
				errs[w] = s.mean(out.Row(i), texts[i])
			}
		})
	}
	wait.Wait()
	return out, errors.Join(ctx.Err(), errors.Join(errs...))
}

// mean sets v to the mean of the vectors of the text's tokens; a text without a token keeps zeros.
func (s *static) mean(v []float32, text string) error {
	tokens := s.tokenizer.Encode(text)
	for _, t := range tokens {
		if t < 0 || int(t) >= s.table.N() {
			return fmt.Errorf("dense: model: the tokenizer gave token %d; the model has %d", t, s.table.N())
		}
		for j, x := range s.table.Row(int(t)) {
			v[j] += x
		}
	}
	for j := range v {
		v[j] /= float32(max(len(tokens), 1))
	}
	return nil
}
