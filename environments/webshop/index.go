package webshop

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/tools/corpus"
	"github.com/agentfly/agentfly/tools/search"
)

const (
	found = 50 // products of a search
	shown = 10 // of a page
)

// openIndex opens the search index of a catalogue, which package tools/search builds in the folder of caches the first time that it meets these
// products.
func openIndex(ctx context.Context, r *resources.Resources, c *catalogue) (*search.Index, error) {
	cache, err := r.Cache(Name)
	if err != nil {
		return nil, err
	}
	file, err := writePassages(cache, c.products)
	if err != nil {
		return nil, err
	}
	return search.Open(ctx, []string{file}, cache, search.Options{Warn: r.Warn})
}

// writePassages writes what is searched of each product into a file that its bytes name: title, description, the first feature and the options, as
// the original's index has them.
func writePassages(cache string, products []product) (path string, err error) {
	f, err := os.CreateTemp(cache, "products-*")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	sum := sha256.New()
	out := bufio.NewWriterSize(io.MultiWriter(f, sum), 1<<20)
	lines := json.NewEncoder(out)
	for _, p := range products {
		if err := lines.Encode(p.passage()); err != nil {
			return "", err
		}
	}
	if err := out.Flush(); err != nil {
		return "", err
	}
	if err := f.Chmod(0o644); err != nil {
		return "", err
	}
	path = filepath.Join(cache, fmt.Sprintf("products-%s.jsonl", hex.EncodeToString(sum.Sum(nil))[:16]))
	if err := os.Rename(f.Name(), path); err != nil {
		return "", err
	}
	return path, f.Close()
}

// passage is what is searched of a product: its title is the text where there is no other.
func (p product) passage() corpus.Passage {
	text := []string{p.description}
	if len(p.features) > 0 {
		text = append(text, p.features[0])
	}
	for _, o := range p.options {
		text = append(text, o.name+": "+strings.Join(o.values, ", "))
	}
	out := corpus.Passage{ID: p.id, Title: p.title, Text: strings.Join(text, "\n")}
	if strings.TrimSpace(out.Text) == "" {
		out.Title, out.Text = "", p.title
	}
	return out
}

// find are the products of a search, the best first.
func (s *shop) find(ctx context.Context, query string) ([]int, error) {
	hits, err := s.index.Query(ctx, query, found)
	if err != nil {
		return nil, fmt.Errorf("webshop: %w", err)
	}
	out := make([]int, len(hits))
	for i, h := range hits {
		n, ok := s.byID[strings.ToLower(h.ID)]
		if !ok {
			return nil, fmt.Errorf("webshop: the index has the product %q, the catalogue has not; delete the folder of caches", h.ID)
		}
		out[i] = n
	}
	return out, nil
}
