// Package search finds passages of a local corpus by their words: BM25 over an inverted index of bleve, which is built once, kept in
// a folder and mapped into memory.
//
// The score of a passage d for a query q is Robertson's, as Lucene computes it, with the settings that Search-R1's BM25 server has:
//
//	Σ over the terms t of q:  count(t, q) · ln(1 + (N − df + 0.5) / (df + 0.5)) · tf / (tf + k1 · (1 − b + b · |d| / avgdl))
//
// with k1 = 0.9, b = 0.4, N passages, df of them with t, tf occurrences of t in d, |d| terms in d, avgdl on average. bleve stores and
// decodes the postings; its own score is not used: it takes the root of tf, divides the number of distinct terms by N for avgdl and
// multiplies by the share of the query's terms that match. Here the order depends on nothing but the passages: equal scores are
// ordered by id, and terms are added up in the order of their bytes.
//
// It does not read passages from files: package tools/corpus does.
package search

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/agentfly/agentfly/tools/corpus"
	"github.com/blevesearch/bleve/v2/index/scorch"
	index "github.com/blevesearch/bleve_index_api"
)

const (
	k1 = 0.9
	b  = 0.4
)

// Options of an index. The zero value searches titles and texts.
type Options struct {
	Fields []string          // "title", "text"; nil: both
	Warn   func(text string) // is told, in one line, that a damaged index is built again; nil: nobody
}

// Index is safe for concurrent use.
type Index struct {
	mu      sync.RWMutex // held for reading by queries: what they read is mapped until Close
	closed  bool
	store   *corpus.Store
	scorch  index.Index
	reader  index.IndexReader
	words   *analyzer
	numbers []uint32  // [N] the passage of a document of the segment
	norms   []float64 // [N] k1 · (1 − b + b · |d| / avgdl)
	scratch sync.Pool

	postings cache
}

// Open opens the index of the passages of files of JSON lines, and builds it where the folder cache has none.
func Open(ctx context.Context, files []string, cache string, o Options) (*Index, error) {
	fields, err := checkFields(o.Fields)
	if err != nil {
		return nil, err
	}
	words, err := newAnalyzer()
	if err != nil {
		return nil, err
	}
	settings := append([]string{format}, fields...)
	dir, err := corpus.Build(ctx, files, cache, settings, o.Warn, func(dir string, passages []corpus.Passage) error {
		return build(ctx, dir, passages, fields, words)
	})
	if err != nil {
		return nil, err
	}
	return open(ctx, dir, words)
}

func checkFields(fields []string) ([]string, error) {
	if len(fields) == 0 {
		return []string{"title", "text"}, nil
	}
	for _, f := range fields {
		if f != "title" && f != "text" {
			return nil, fmt.Errorf("search: there is no field %q; fields has title, text or both", f)
		}
	}
	out := slices.Clone(fields)
	slices.SortFunc(out, func(a, b string) int { return cmp.Compare(b, a) }) // title first
	return slices.Compact(out), nil
}

func open(ctx context.Context, dir string, words *analyzer) (x *Index, err error) {
	x = &Index{words: words}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("search: opening the index %s: %w", dir, err), x.Close())
			x = nil
		}
	}()
	if x.store, err = corpus.OpenStore(dir); err != nil {
		return x, err
	}
	s, err := scorch.NewScorch(scorch.Name, map[string]any{"path": filepath.Join(dir, segmentFolder), "read_only": true}, nil)
	if err != nil {
		return x, err
	}
	if err := s.Open(); err != nil {
		return x, err
	}
	x.scorch = s
	if x.reader, err = s.Reader(); err != nil {
		return x, err
	}
	n := x.store.Len()
	if count, err := x.reader.DocCount(); err != nil || count != uint64(n) {
		return x, errors.Join(err, fmt.Errorf("%d documents of %d passages; delete the folder", count, n))
	}
	if err := x.readNorms(filepath.Join(dir, lengthsFile)); err != nil {
		return x, err
	}
	x.scratch.New = func() any { return &scratch{scores: make([]float64, n)} }
	if err := x.readNumbers(); err != nil {
		return x, err
	}
	return x, x.warm(ctx, filepath.Join(dir, frequentFile))
}

// warm decodes the postings of the terms that most passages have: the first query with several of them would take as long as a
// hundred others.
func (x *Index) warm(ctx context.Context, path string) error {
	terms, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for term := range strings.FieldsSeq(string(terms)) {
		if _, err := x.postings.get(ctx, term, x.decode); err != nil {
			return err
		}
	}
	return nil
}

func (x *Index) readNorms(path string) error {
	lengths, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	n := x.store.Len()
	if len(lengths) != 4*n {
		return fmt.Errorf("%s has %d bytes for %d passages; delete the folder", path, len(lengths), n)
	}
	total := uint64(0)
	for i := range n {
		total += uint64(binary.LittleEndian.Uint32(lengths[4*i:]))
	}
	mean := max(float64(total)/float64(n), 1e-9) // no passage has a term
	x.norms = make([]float64, n)
	for i := range x.norms {
		x.norms[i] = k1 * (1 - b + b*float64(binary.LittleEndian.Uint32(lengths[4*i:]))/mean)
	}
	return nil
}

// readNumbers asks which passage each document is: bleve puts the documents of a batch in any order.
func (x *Index) readNumbers() error {
	x.numbers = make([]uint32, x.store.Len())
	id := make([]byte, 8)
	for i := range x.numbers {
		binary.BigEndian.PutUint64(id, uint64(i))
		name, err := x.reader.ExternalID(id)
		if err != nil {
			return err
		}
		n, err := strconv.ParseUint(name, 16, 32)
		if err != nil || n >= uint64(len(x.numbers)) {
			return fmt.Errorf("document %d has the id %q; delete the folder", i, name)
		}
		x.numbers[i] = uint32(n)
	}
	return nil
}

// Len is the number of passages.
func (x *Index) Len() int { return x.store.Len() }

// Query returns the k best passages, the best first; equal scores are ordered by id. Any text is a query; a passage without any of
// its terms is not found.
func (x *Index) Query(ctx context.Context, text string, k int) ([]corpus.Hit, error) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.closed {
		return nil, errors.New("search: the index is closed")
	}
	s, _ := x.scratch.Get().(*scratch)
	defer func() {
		s.reset()
		x.scratch.Put(s)
	}()
	for _, t := range x.words.query(text) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := x.add(ctx, s, t); err != nil {
			return nil, fmt.Errorf("search: %w", err)
		}
	}
	best := s.best(k)
	hits := make([]corpus.Hit, len(best))
	for i, n := range best {
		p, err := x.store.Passage(int(n))
		if err != nil {
			return nil, err
		}
		hits[i] = corpus.Hit{Passage: p, Score: s.scores[n]}
	}
	return hits, nil
}

// add adds what one term of the query is worth to the passages that have it.
func (x *Index) add(ctx context.Context, s *scratch, t queryTerm) error {
	p, err := x.postings.get(ctx, t.term, x.decode)
	if err != nil {
		return err
	}
	df, n := float64(len(p)), float64(len(x.numbers))
	weight := float64(t.count) * math.Log1p((n-df+0.5)/(df+0.5))
	for _, o := range p {
		if s.scores[o.passage] == 0 {
			s.touched = append(s.touched, o.passage)
		}
		tf := float64(o.count)
		s.scores[o.passage] += weight * tf / (tf + x.norms[o.passage])
	}
	return nil
}

// decode reads the postings of a term from the mapped segment.
func (x *Index) decode(ctx context.Context, term string) ([]occurrence, error) {
	r, err := x.reader.TermFieldReader(ctx, []byte(term), field, true, false, false)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	out := make([]occurrence, 0, r.Count())
	var d index.TermFieldDoc
	for {
		got, err := r.Next(&d)
		if err != nil {
			return nil, err
		}
		if got == nil {
			return out, nil
		}
		out = append(out, occurrence{x.numbers[binary.BigEndian.Uint64(got.ID)], uint32(got.Freq)})
	}
}

// Close releases the index once the queries that run have ended. It may be called twice.
func (x *Index) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil
	}
	x.closed = true
	var errs []error
	if x.reader != nil {
		errs = append(errs, x.reader.Close())
	}
	if x.scorch != nil {
		errs = append(errs, x.scorch.Close())
	}
	if x.store != nil {
		errs = append(errs, x.store.Close())
	}
	return errors.Join(errs...)
}

// scratch holds the scores of one query.
type scratch struct {
	scores  []float64 // [N] 0: without a term of the query
	touched []uint32
}

func (s *scratch) reset() {
	for _, n := range s.touched {
		s.scores[n] = 0
	}
	s.touched = s.touched[:0]
}

// best are the k passages with the highest scores; passages are numbered by id.
func (s *scratch) best(k int) []uint32 {
	if k <= 0 {
		return nil
	}
	better := func(a, b uint32) int {
		if c := cmp.Compare(s.scores[b], s.scores[a]); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	}
	var top []uint32
	worst := 0.0 // score of the last of k
	for _, n := range s.touched {
		if s.scores[n] < worst {
			continue
		}
		if len(top) == k {
			if better(top[k-1], n) < 0 {
				continue
			}
			top = top[:k-1]
		}
		at, _ := slices.BinarySearchFunc(top, n, better)
		top = slices.Insert(top, at, n)
		if len(top) == k {
			worst = s.scores[top[k-1]]
		}
	}
	return top
}
