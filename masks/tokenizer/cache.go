package tokenizer

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

// cacheSlots bounds the word cache: at most this many words of at most maxCached bytes (about 10 MB when full).
const cacheSlots = 1 << 16

// wordCache remembers the ids of words. It is a table without locks: a word has one slot, and a newer word takes the
// slot of an older one.
type wordCache struct {
	seed  maphash.Seed
	slots [cacheSlots]atomic.Pointer[cachedWord]
}

type cachedWord struct {
	word string
	ids  []int32 // never written after it is stored
}

func newWordCache() *wordCache { return &wordCache{seed: maphash.MakeSeed()} }

func (c *wordCache) slot(word string) *atomic.Pointer[cachedWord] {
	return &c.slots[maphash.String(c.seed, word)%cacheSlots]
}

func (c *wordCache) get(word string) ([]int32, bool) {
	if e := c.slot(word).Load(); e != nil && e.word == word {
		return e.ids, true
	}
	return nil, false
}

func (c *wordCache) put(word string, ids []int32) {
	c.slot(word).Store(&cachedWord{strings.Clone(word), ids})
}
