package search

import (
	"context"
	"sync"
)

// occurrence is a passage that has a term, and how often.
type occurrence struct{ passage, count uint32 }

// cache keeps decoded postings: decoding costs ten times what scoring does, and the same terms come again and again. It is emptied
// when it is full.
type cache struct {
	mu    sync.RWMutex
	terms map[string][]occurrence
	used  int // occurrences
}

const cacheSize = 8 << 20 // occurrences of 8 bytes: 64 MiB

// get returns the postings of a term, which nobody may change.
func (c *cache) get(ctx context.Context, term string, decode func(context.Context, string) ([]occurrence, error)) ([]occurrence, error) {
	c.mu.RLock()
	p, ok := c.terms[term]
	c.mu.RUnlock()
	if ok {
		return p, nil
	}
	p, err := decode(ctx, term)
	if err != nil || len(p) == 0 { // a term that no passage has is found as fast
		return p, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.terms[term]; ok {
		return p, nil
	}
	if c.terms == nil || c.used+len(p) > cacheSize {
		c.terms, c.used = map[string][]occurrence{}, 0
	}
	if len(p) <= cacheSize {
		c.terms[term] = p
		c.used += len(p)
	}
	return p, nil
}
