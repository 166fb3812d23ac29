package search

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/agentfly/agentfly/tools/corpus"
	"github.com/blevesearch/bleve/v2/analysis"
	"github.com/blevesearch/bleve/v2/analysis/lang/en"
	"github.com/blevesearch/bleve/v2/document"
	"github.com/blevesearch/bleve/v2/index/scorch"
	"github.com/blevesearch/bleve/v2/registry"
	index "github.com/blevesearch/bleve_index_api"
)

const (
	format        = "bm25 en 2" // changes with whatever changes the files of an index
	field         = "terms"
	segmentFolder = "segments"
	lengthsFile   = "lengths"  // [N] little-endian uint32: terms of a passage
	frequentFile  = "frequent" // the terms whose postings are decoded at opening, a line each
	rare          = 256        // a term that fewer than one passage in so many has is decoded when a query asks for it
	batch         = 4096       // passages whose terms are held at once
)

// build writes an index into a folder: bleve's single segment and the lengths of the passages.
func build(ctx context.Context, dir string, passages []corpus.Passage, fields []string, words *analyzer) (err error) {
	segments := filepath.Join(dir, segmentFolder)
	builder, err := scorch.NewBuilder(map[string]any{"path": segments, "buildPathPrefix": dir, "batchSize": batch, "mergeMax": 1 << 10})
	if err != nil {
		return fmt.Errorf("search: %w", err)
	}
	lengths := make([]byte, 0, 4*len(passages))
	in := map[string]int{} // passages that have a term
	for from := 0; from < len(passages); from += batch {
		if err := ctx.Err(); err != nil {
			return err
		}
		part := passages[from:min(from+batch, len(passages))]
		for i, f := range words.all(part, fields) {
			d := document.NewDocument(fmt.Sprintf("%x", from+i))
			d.AddField(f)
			if err := builder.Index(d); err != nil {
				return fmt.Errorf("search: passage %q: %w", part[i].ID, err)
			}
			for term := range f.frequencies {
				in[term]++
			}
			lengths = binary.LittleEndian.AppendUint32(lengths, uint32(f.length))
		}
	}
	if err := builder.Close(); err != nil {
		return fmt.Errorf("search: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, lengthsFile), lengths, 0o644); err != nil {
		return fmt.Errorf("search: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, frequentFile), []byte(strings.Join(frequent(in, len(passages)), "\n")), 0o644); err != nil {
		return fmt.Errorf("search: %w", err)
	}
	return nil
}

// frequent are the terms that are not rare, those of most passages first, as many as half of the cache holds.
func frequent(in map[string]int, passages int) []string {
	terms := slices.SortedFunc(maps.Keys(in), func(a, b string) int { return cmp.Or(cmp.Compare(in[b], in[a]), cmp.Compare(a, b)) })
	room := cacheSize / 2
	for i, t := range terms {
		if room -= in[t]; room < 0 || in[t] < passages/rare {
			return terms[:i]
		}
	}
	return terms
}

// analyzer splits a text into terms: words by Unicode's rules, in lower case, without 's, without English stop words, stems by
// Porter. It is safe for concurrent use.
type analyzer struct{ analysis.Analyzer }

func newAnalyzer() (*analyzer, error) {
	a, err := registry.NewCache().AnalyzerNamed(en.AnalyzerName)
	if err != nil {
		return nil, fmt.Errorf("search: %w", err)
	}
	return &analyzer{a}, nil
}

// all are the terms of passages, computed on all processors.
func (a *analyzer) all(passages []corpus.Passage, fields []string) []*terms {
	out := make([]*terms, len(passages))
	workers := min(runtime.GOMAXPROCS(0), len(passages))
	var wait sync.WaitGroup
	for w := range workers {
		wait.Go(func() {
			for i := w; i < len(passages); i += workers {
				out[i] = a.passage(passages[i], fields)
			}
		})
	}
	wait.Wait()
	return out
}

func (a *analyzer) passage(p corpus.Passage, fields []string) *terms {
	var text []string
	for _, f := range fields {
		if f == "title" {
			text = append(text, p.Title)
		} else {
			text = append(text, p.Text)
		}
	}
	tokens := a.Analyze([]byte(strings.Join(text, "\n")))
	return &terms{analysis.TokenFrequency(tokens, nil, index.IndexField), len(tokens)}
}

// queryTerm is a term and how often the query has it.
type queryTerm struct {
	term  string
	count int
}

// query are the terms of a query in the order of their bytes.
func (a *analyzer) query(text string) []queryTerm {
	counts := map[string]int{}
	for _, t := range a.Analyze([]byte(text)) {
		counts[string(t.Term)]++
	}
	out := make([]queryTerm, 0, len(counts))
	for t, n := range counts {
		out = append(out, queryTerm{t, n})
	}
	slices.SortFunc(out, func(x, y queryTerm) int { return cmp.Compare(x.term, y.term) })
	return out
}

// terms are a field that is analyzed already.
type terms struct {
	frequencies index.TokenFrequencies
	length      int
}

func (*terms) Name() string                                       { return field }
func (*terms) Value() []byte                                      { return nil } // the passages are kept beside the index
func (*terms) ArrayPositions() []uint64                           { return nil }
func (*terms) EncodedFieldType() byte                             { return 't' }
func (*terms) Analyze()                                           {}
func (*terms) Options() index.FieldIndexingOptions                { return index.IndexField }
func (t *terms) AnalyzedLength() int                              { return t.length }
func (t *terms) AnalyzedTokenFrequencies() index.TokenFrequencies { return t.frequencies }
func (*terms) NumPlainTextBytes() uint64                          { return 0 }
func (*terms) Size() int                                          { return 0 }
