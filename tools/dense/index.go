// Package dense finds passages of a local corpus by the meaning of their words: unit vectors of an embedding model, compared by an
// exact scan. The vectors are computed once and kept in a folder. The model is an OpenAI-compatible endpoint or a static sentence
// model on the disk.
//
// It does not read passages from files: package tools/corpus does.
package dense

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/agentfly/agentfly/tools/corpus"
)

// Embedder turns texts into vectors. It is safe for concurrent use.
type Embedder interface {
	Name() string                                               // says which model it is; other vectors have another name
	Embed(ctx context.Context, texts []string) (Vectors, error) // one vector a text
	Close() error
}

// Vectors are rows of equal length.
type Vectors struct {
	Values []float32 // [N, D]
	D      int
}

// N is the number of rows.
func (v Vectors) N() int {
	if v.D == 0 {
		return 0
	}
	return len(v.Values) / v.D
}

// Row is the i-th.
func (v Vectors) Row(i int) []float32 { return v.Values[i*v.D : (i+1)*v.D] }

// Options of an index. The zero value adds no prefix.
type Options struct {
	QueryPrefix   string            // put before a query, as E5's "query: "
	PassagePrefix string            // put before a passage, as E5's "passage: "
	Warn          func(text string) // is told, in one line, that damaged vectors are computed again; nil: nobody
}

// Index is safe for concurrent use.
type Index struct {
	embedder Embedder
	options  Options
	store    *corpus.Store
	vectors  Vectors // [N, D] unit vectors
}

const (
	format      = "dense 1" // changes with whatever changes the files of an index
	vectorsFile = "vectors" // little-endian: uint32 N, uint32 D, float32 [N, D]
	batch       = 512       // passages that are embedded at once
)

// Open opens the vectors of the passages of files of JSON lines, and computes them where the folder cache has none. The embedder is
// the index's: Close closes it.
func Open(ctx context.Context, files []string, cache string, e Embedder, o Options) (*Index, error) {
	settings := []string{format, e.Name(), o.PassagePrefix}
	dir, err := corpus.Build(ctx, files, cache, settings, o.Warn, func(dir string, passages []corpus.Passage) error {
		return build(ctx, dir, passages, e, o)
	})
	if err != nil {
		return nil, err
	}
	vectors, err := readVectors(filepath.Join(dir, vectorsFile))
	if err != nil {
		return nil, err
	}
	store, err := corpus.OpenStore(dir)
	if err != nil {
		return nil, err
	}
	if store.Len() != vectors.N() {
		return nil, errors.Join(fmt.Errorf("dense: %s has %d vectors of %d passages; delete the folder", dir, vectors.N(), store.Len()), store.Close())
	}
	return &Index{e, o, store, vectors}, nil
}

func build(ctx context.Context, dir string, passages []corpus.Passage, e Embedder, o Options) error {
	var all Vectors
	for from := 0; from < len(passages); from += batch {
		part := passages[from:min(from+batch, len(passages))]
		texts := make([]string, len(part))
		for i, p := range part {
			texts[i] = o.PassagePrefix + p.Text
			if p.Title != "" {
				texts[i] = o.PassagePrefix + p.Title + "\n" + p.Text
			}
		}
		v, err := e.Embed(ctx, texts)
		if err != nil {
			return err
		}
		if v.N() != len(texts) || all.D != 0 && v.D != all.D {
			return fmt.Errorf("dense: %s gave %d vectors of length %d for %d texts, after vectors of length %d", e.Name(), v.N(), v.D, len(texts), all.D)
		}
		all.D = v.D
		all.Values = append(all.Values, v.Values...)
	}
	for i := range all.N() {
		if err := normalize(all.Row(i)); err != nil {
			return fmt.Errorf("dense: passage %q: %w", passages[i].ID, err)
		}
	}
	return writeVectors(filepath.Join(dir, vectorsFile), all)
}

// normalize makes v a unit vector; one of zeros stays.
func normalize(v []float32) error {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if math.IsNaN(sum) || math.IsInf(sum, 0) {
		return errors.New("the vector has a value that is not finite")
	}
	if sum == 0 {
		return nil
	}
	scale := 1 / math.Sqrt(sum)
	for i, x := range v {
		v[i] = float32(float64(x) * scale)
	}
	return nil
}

// Len is the number of passages.
func (x *Index) Len() int { return x.vectors.N() }

// Query returns the k passages whose vectors are nearest to the query's, the nearest first; equal scores are ordered by id.
func (x *Index) Query(ctx context.Context, text string, k int) ([]corpus.Hit, error) {
	v, err := x.embedder.Embed(ctx, []string{x.options.QueryPrefix + text})
	if err != nil {
		return nil, err
	}
	if v.N() != 1 || v.D != x.vectors.D {
		return nil, fmt.Errorf("dense: the model gave %d vectors of length %d for a query; the passages have length %d", v.N(), v.D, x.vectors.D)
	}
	if err := normalize(v.Values); err != nil {
		return nil, fmt.Errorf("dense: the query: %w", err)
	}
	best, err := nearest(ctx, x.vectors, v.Values, k)
	if err != nil {
		return nil, err
	}
	hits := make([]corpus.Hit, len(best))
	for i, s := range best {
		p, err := x.store.Passage(s.row)
		if err != nil {
			return nil, err
		}
		hits[i] = corpus.Hit{Passage: p, Score: float64(s.score)}
	}
	return hits, nil
}

// Close closes the embedder and the files. Queries must have ended.
func (x *Index) Close() error { return errors.Join(x.embedder.Close(), x.store.Close()) }

func writeVectors(path string, v Vectors) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("dense: %w", err)
	}
	defer func() {
		if e := f.Close(); err == nil && e != nil {
			err = fmt.Errorf("dense: %w", e)
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	buffer := binary.LittleEndian.AppendUint32(nil, uint32(v.N()))
	buffer = binary.LittleEndian.AppendUint32(buffer, uint32(v.D))
	for i := range v.N() {
		for _, x := range v.Row(i) {
			buffer = binary.LittleEndian.AppendUint32(buffer, math.Float32bits(x))
		}
		if _, err := w.Write(buffer); err != nil {
			return fmt.Errorf("dense: %w", err)
		}
		buffer = buffer[:0]
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("dense: %w", err)
	}
	return nil
}

func readVectors(path string) (Vectors, error) {
	f, err := os.Open(path)
	if err != nil {
		return Vectors{}, fmt.Errorf("dense: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Vectors{}, fmt.Errorf("dense: %w", err)
	}
	r := bufio.NewReaderSize(f, 1<<20)
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Vectors{}, fmt.Errorf("dense: %s: %w", path, err)
	}
	n, d := int64(binary.LittleEndian.Uint32(head[:])), int64(binary.LittleEndian.Uint32(head[4:]))
	if d == 0 || n > (1<<50)/d || info.Size() != 8+4*n*d {
		return Vectors{}, fmt.Errorf("dense: %s has %d bytes for %d vectors of length %d; delete the folder", path, info.Size(), n, d)
	}
	v := Vectors{make([]float32, n*d), int(d)}
	row := make([]byte, 4*d)
	for i := range v.N() {
		if _, err := io.ReadFull(r, row); err != nil {
			return Vectors{}, fmt.Errorf("dense: %s: %w", path, err)
		}
		for j := range v.Row(i) {
			v.Values[i*v.D+j] = math.Float32frombits(binary.LittleEndian.Uint32(row[4*j:]))
		}
	}
	return v, nil
}
