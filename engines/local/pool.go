package local

import "github.com/agentfly/agentfly/trajectory"

// pool hands out the cache's blocks. A block that holds the keys of BlockSize tokens can be listed: found again by the
// tokens in it, with their media, and by the block before it, so that equal prefixes are computed once. Unreferenced blocks keep what they
// hold until they are taken, the least recently used first.
type pool struct {
	size   int // tokens of a block
	blocks []block
	idle   int // unreferenced blocks
	table  map[key]int32
	serial uint64 // last one given
	bytes  []byte // scratch
}

// key names the content of a full block exactly: what is before it by the serial of that content, its own tokens in full.
type key struct {
	parent uint64 // 0: the block begins the sequence
	tokens string // trajectory.Prefix.AppendKey: the ids, and the media behind placeholders among them
}

// block 0 .. n-1 are the cache's; block n is the head of the ring of unreferenced ones, oldest at next.
type block struct {
	refs       int
	prev, next int32
	listed     bool
	key        key
	serial     uint64 // of its content, while listed
}

func newPool(blocks, size int) *pool {
	p := &pool{size: size, blocks: make([]block, blocks+1), table: map[key]int32{}}
	head := int32(blocks)
	p.blocks[head].prev, p.blocks[head].next = head, head
	for i := range int32(blocks) {
		p.insert(i, head)
	}
	return p
}

func (p *pool) total() int { return len(p.blocks) - 1 }

// insert puts an unreferenced block before at: the head makes it the youngest, the head's next the oldest.
func (p *pool) insert(id, at int32) {
	before := p.blocks[at].prev
	p.blocks[id].prev, p.blocks[id].next = before, at
	p.blocks[before].next, p.blocks[at].prev = id, id
	p.idle++
}

func (p *pool) remove(id int32) {
	b := &p.blocks[id]
	p.blocks[b.prev].next, p.blocks[b.next].prev = b.next, b.prev
	p.idle--
}

// take returns an unreferenced block, referenced once; its content is gone. false: all are referenced.
func (p *pool) take() (int32, bool) {
	if p.idle == 0 {
		return 0, false
	}
	id := p.blocks[len(p.blocks)-1].next
	p.remove(id)
	p.unlist(id)
	p.blocks[id].refs = 1
	return id, true
}

// share references the block once more.
func (p *pool) share(id int32) {
	if p.blocks[id].refs == 0 {
		p.remove(id)
	}
	p.blocks[id].refs++
}

// release drops one reference of each block of a sequence. The last ones grow old first, because a prefix without its
// beginning is of no use; what is not listed is of no use at all.
func (p *pool) release(ids []int32) {
	head := int32(p.total())
	for i := len(ids) - 1; i >= 0; i-- {
		b := &p.blocks[ids[i]]
		b.refs--
		if b.refs > 0 {
			continue
		}
		if b.listed {
			p.insert(ids[i], head)
		} else {
			p.insert(ids[i], p.blocks[head].next)
		}
	}
}

// key names the block from token start on of a sequence.
func (p *pool) key(parent uint64, of trajectory.Prefix, start int) key {
	p.bytes = of.AppendKey(p.bytes[:0], start, start+p.size)
	return key{parent, string(p.bytes)}
}

// find returns the block that holds the tokens from start on of a sequence after that parent, and its serial.
func (p *pool) find(parent uint64, of trajectory.Prefix, start int) (int32, uint64, bool) {
	id, ok := p.table[p.key(parent, of, start)]
	if !ok {
		return 0, 0, false
	}
	return id, p.blocks[id].serial, true
}

// list makes a full block findable and returns its content's serial. Content that another block holds already keeps that
// block; listed is false then.
func (p *pool) list(id int32, parent uint64, of trajectory.Prefix, start int) (serial uint64, listed bool) {
	k := p.key(parent, of, start)
	if other, ok := p.table[k]; ok {
		return p.blocks[other].serial, other == id
	}
	p.serial++
	b := &p.blocks[id]
	b.listed, b.key, b.serial = true, k, p.serial
	p.table[k] = id
	return p.serial, true
}

// unlist forgets what the block holds.
func (p *pool) unlist(id int32) {
	if b := &p.blocks[id]; b.listed {
		delete(p.table, b.key)
		b.listed, b.key = false, key{}
	}
}

// forget unlists all blocks.
func (p *pool) forget() {
	for i := range p.blocks {
		p.blocks[i].listed, p.blocks[i].key = false, key{}
	}
	clear(p.table)
}
