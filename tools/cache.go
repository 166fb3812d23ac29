package tools

import (
	"bytes"
	"container/list"
	"context"
	"encoding/json"
	"sync"
)

// cacheBytes bounds what is kept of one tool.
const cacheBytes = 64 << 20

// cache keeps the observations of one deterministic tool over all trajectories, the least recently used ones no longer. Of equal calls
// at the same time one runs and the others take what it gives.
type cache struct {
	mu      sync.Mutex
	bytes   int // at most limit, or one entry
	limit   int
	entries map[string]*list.Element // of *kept
	recent  *list.List               // the newest in front
	running map[string]chan struct{} // closed when the call ends
}

// kept is what a call that succeeded gave.
type kept struct {
	key  string
	text string // as the model reads it
	info json.RawMessage
}

func (k *kept) size() int { return len(k.key) + len(k.text) + len(k.info) }

func newCache() *cache {
	return &cache{limit: cacheBytes, entries: map[string]*list.Element{}, recent: list.New(), running: map[string]chan struct{}{}}
}

// cacheKey writes the arguments in one way: no space, keys sorted. They were checked to be JSON.
func cacheKey(arguments json.RawMessage) (string, error) {
	d := json.NewDecoder(bytes.NewReader(arguments))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return "", err
	}
	key, err := json.Marshal(v)
	return string(key), err
}

// get returns what is kept, or nil to the one caller who then computes it and calls done, whatever the outcome. Others wait for that.
func (c *cache) get(ctx context.Context, key string) (*kept, error) {
	for {
		c.mu.Lock()
		if e := c.entries[key]; e != nil {
			c.recent.MoveToFront(e)
			c.mu.Unlock()
			return e.Value.(*kept), nil
		}
		other := c.running[key]
		if other == nil {
			c.running[key] = make(chan struct{})
			c.mu.Unlock()
			return nil, nil
		}
		c.mu.Unlock()
		select {
		case <-other: // it may have failed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// done ends the computation of key; nil keeps nothing.
func (c *cache) done(key string, k *kept) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.running[key])
	delete(c.running, key)
	if k == nil {
		return
	}
	c.entries[key] = c.recent.PushFront(k)
	for c.bytes += k.size(); c.bytes > c.limit && c.recent.Len() > 1; {
		old := c.recent.Remove(c.recent.Back()).(*kept)
		delete(c.entries, old.key)
		c.bytes -= old.size()
	}
}
