package local

import (
	"container/list"
	"encoding/binary"
	"hash/maphash"
	"slices"
)

// blocks hands out the blocks of the key/value cache and remembers which token prefixes they hold.
//
// A full block that is computed is published under the hash of its whole prefix; a later request with the same prefix takes
// it instead of computing it. Tokens are compared, not only hashes. A block that nobody uses stays published until its
// place is needed, oldest first.
type blocks struct {
	size   int
	free   []int32
	refs   []int
	entry  []*entry // by block; nil when it holds no published prefix
	byHash map[uint64][]*entry
	unused *list.List // of *entry: published, nobody uses them; front is the oldest
	seed   maphash.Seed
}

type entry struct {
	block  int32
	hash   uint64
	parent *entry  // the block before it; nil for the first
	tokens []int32 // of this block
	place  *list.Element
}

func newBlocks(count, size int) *blocks {
	b := &blocks{size: size, refs: make([]int, count), entry: make([]*entry, count), byHash: map[uint64][]*entry{}, unused: list.New(), seed: maphash.MakeSeed()}
	for i := count - 1; i >= 0; i-- {
		b.free = append(b.free, int32(i))
	}
	return b
}

// available counts the blocks that alloc could hand out.
func (b *blocks) available() int { return len(b.free) + b.unused.Len() }

// alloc returns a block with one reference, or false when all are in use.
func (b *blocks) alloc() (int32, bool) {
	if len(b.free) == 0 {
		oldest := b.unused.Front()
		if oldest == nil {
			return 0, false
		}
		b.forget(oldest.Value.(*entry))
	}
	block := b.free[len(b.free)-1]
	b.free = b.free[:len(b.free)-1]
	b.refs[block] = 1
	return block, true
}

// forget makes an unused published block free.
func (b *blocks) forget(e *entry) {
	b.unused.Remove(e.place)
	b.byHash[e.hash] = slices.DeleteFunc(b.byHash[e.hash], func(x *entry) bool { return x == e })
	if len(b.byHash[e.hash]) == 0 {
		delete(b.byHash, e.hash)
	}
	b.entry[e.block] = nil
	b.free = append(b.free, e.block)
}

func (b *blocks) hash(parent *entry, tokens []int32) uint64 {
	var h maphash.Hash
	h.SetSeed(b.seed)
	var word [8]byte
	if parent != nil {
		binary.LittleEndian.PutUint64(word[:], parent.hash)
		h.Write(word[:])
	}
	for _, t := range tokens {
		binary.LittleEndian.PutUint32(word[:4], uint32(t))
		h.Write(word[:4])
	}
	return h.Sum64()
}

// find returns the published block that continues parent with tokens. A parent that was forgotten meanwhile is never
// equal to one that is published, so its children cannot be found.
func (b *blocks) find(parent *entry, tokens []int32) *entry {
	for _, e := range b.byHash[b.hash(parent, tokens)] {
		if e.parent == parent && slices.Equal(e.tokens, tokens) {
			return e
		}
	}
	return nil
}

// use takes a reference to a published block.
func (b *blocks) use(e *entry) {
	if b.refs[e.block] == 0 {
		b.unused.Remove(e.place)
		e.place = nil
	}
	b.refs[e.block]++
}

// publish makes a full computed block findable. The block that is findable already wins; publish returns it.
func (b *blocks) publish(parent *entry, tokens []int32, block int32) *entry {
	if e := b.find(parent, tokens); e != nil {
		return e
	}
	e := &entry{block: block, hash: b.hash(parent, tokens), parent: parent, tokens: slices.Clone(tokens)}
	b.byHash[e.hash] = append(b.byHash[e.hash], e)
	b.entry[block] = e
	return e
}

// release gives up one reference.
func (b *blocks) release(block int32) {
	b.refs[block]--
	if b.refs[block] > 0 {
		return
	}
	if e := b.entry[block]; e != nil {
		e.place = b.unused.PushBack(e)
		return
	}
	b.free = append(b.free, block)
}

// reset forgets every published prefix: the weights changed. Blocks in use stay in use, unpublished.
func (b *blocks) reset() {
	for b.unused.Len() > 0 {
		b.forget(b.unused.Front().Value.(*entry))
	}
	clear(b.entry)
	clear(b.byHash)
}
