package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// bpe is the byte-pair model: symbols are merged in the order of the merge list until none applies (arXiv:1508.07909).
// In a byte-level vocabulary the symbols and tokens are held as the raw bytes that they stand for.
type bpe struct {
	ids          map[string]int32 // token (raw bytes if byteLevel) -> id
	merges       map[uint64]merge // left<<32 | right -> merge
	single       [256]int32       // id of a symbol of one byte, -1 if there is none
	fallback     [256]int32       // id of <0xXX>, -1 if there is none
	byteLevel    bool
	byteFallback bool
	ignoreMerges bool
	fuseUnk      bool
	hasUnk       bool
	unk          int32 // -1 if unk_token is named but not in the vocabulary
	cutAtMeta    bool  // no merge reaches over the start of a run of ▁ (see findCut)
	cache        *wordCache
}

type merge struct{ rank, id int32 }

func pairKey(a, b int32) uint64 { return uint64(uint32(a))<<32 | uint64(uint32(b)) }

// maxCached is the length in bytes of the longest word that is remembered.
const maxCached = 64

// meta is the letter that metaspace vocabularies write for a space.
const meta = "▁"

// encode appends the ids of one word, which is not empty. A metaspace vocabulary without a pre-tokenizer has whole
// texts as words; they are cut where no merge can reach over, which changes no id.
func (m *bpe) encode(word string, out []int32) []int32 {
	if !m.cutAtMeta {
		return m.encodeWord(word, out)
	}
	start := 0
	for i := 1; i < len(word); {
		k := strings.Index(word[i:], meta)
		if k < 0 {
			break
		}
		if i += k; i > start && !strings.HasSuffix(word[:i], meta) {
			out = m.encodeWord(word[start:i], out)
			start = i
		}
		i += len(meta)
	}
	return m.encodeWord(word[start:], out)
}

// findCut sets cutAtMeta if ▁ is a token and no merge makes a token that has another character before a ▁.
func (m *bpe) findCut() {
	if _, ok := m.ids[meta]; !ok || m.byteLevel || m.ignoreMerges {
		return
	}
	made := make(map[int32]bool, len(m.merges))
	for _, v := range m.merges {
		made[v.id] = true
	}
	for token, id := range m.ids {
		if made[id] && strings.Contains(strings.TrimLeft(token, meta), meta) {
			return
		}
	}
	m.cutAtMeta = true
}

// encodeWord appends the ids of a word. An unknown character in a model whose unk_token is missing
// from its vocabulary cannot reach here: such a model is refused at load.
func (m *bpe) encodeWord(word string, out []int32) []int32 {
	if m.ignoreMerges {
		if id, ok := m.ids[word]; ok {
			return append(out, id)
		}
	}
	if len(word) == 1 && m.single[word[0]] >= 0 {
		return append(out, m.single[word[0]])
	}
	if len(word) > maxCached {
		return append(out, m.merge(m.symbols(word, nil))...)
	}
	if ids, ok := m.cache.get(word); ok {
		return append(out, ids...)
	}
	ids := m.merge(m.symbols(word, make([]int32, 0, len(word))))
	m.cache.put(word, ids)
	return append(out, ids...)
}

// symbols appends the ids of the single characters (bytes) of word: the state before any merge.
func (m *bpe) symbols(word string, out []int32) []int32 {
	unk := 0 // unknown symbols not yet written; they are written before the next known character, as the library does
	flush := func() {
		for ; unk > 0; unk-- {
			out = append(out, m.unk)
		}
	}
	for i := 0; i < len(word); {
		n := 1
		id := m.single[word[i]]
		if !m.byteLevel && word[i] >= utf8.RuneSelf {
			_, n = utf8.DecodeRuneInString(word[i:])
			var ok bool
			if id, ok = m.ids[word[i:i+n]]; !ok {
				id = -1
			}
		}
		symbol := word[i : i+n]
		i += n
		if id >= 0 {
			flush()
			out = append(out, id)
			continue
		}
		if m.byteFallback {
			if with, ok := m.bytesOf(symbol, out); ok {
				out = with
				continue
			}
		}
		if m.hasUnk && (unk == 0 || !m.fuseUnk) {
			if unk > 0 {
				flush()
			}
			unk = 1
		}
	}
	flush()
	return out
}

// bytesOf appends <0xXX> for each byte of a character; it fails if one of them is missing.
func (m *bpe) bytesOf(symbol string, out []int32) ([]int32, bool) {
	if m.byteLevel { // the fallback is by the bytes of the letter that stands for the byte
		symbol = string(byteToRune(symbol[0]))
	}
	start := len(out)
	for i := 0; i < len(symbol); i++ {
		id := m.fallback[symbol[i]]
		if id < 0 {
			return out[:start], false
		}
		out = append(out, id)
	}
	return out, true
}

// longWord is the number of symbols from which a heap pays.
const longWord = 96

func (m *bpe) merge(ids []int32) []int32 {
	if len(ids) < 2 {
		return ids
	}
	if len(ids) > longWord {
		return m.mergeHeap(ids)
	}
	return m.mergeScan(ids)
}

const noRank = int32(1<<31 - 1)

func (m *bpe) lookup(a, b int32) merge {
	if v, ok := m.merges[pairKey(a, b)]; ok {
		return v
	}
	return merge{rank: noRank}
}

// mergeScan looks for the lowest rank, leftmost first, in a list that it keeps of the pairs' merges.
func (m *bpe) mergeScan(ids []int32) []int32 {
	var buf [longWord]merge
	next := buf[:len(ids)-1]
	for i := range next {
		next[i] = m.lookup(ids[i], ids[i+1])
	}
	for {
		best := 0
		for i := range next {
			if next[i].rank < next[best].rank {
				best = i
			}
		}
		if len(next) == 0 || next[best].rank == noRank {
			return ids
		}
		ids[best] = next[best].id
		copy(ids[best+1:], ids[best+2:])
		ids = ids[:len(ids)-1]
		copy(next[best:], next[best+1:])
		next = next[:len(next)-1]
		if best < len(next) {
			next[best] = m.lookup(ids[best], ids[best+1])
		}
		if best > 0 {
			next[best-1] = m.lookup(ids[best-1], ids[best])
		}
	}
}

// candidate is a possible merge of the symbol at pos with the one after it.
type candidate struct {
	rank, pos   int32
	id          int32
	left, right int32 // the symbols when it was found; it is stale if they have changed
}

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.pos < d.pos
}

// mergeHeap is mergeScan with a heap and a linked list, for long words: n log n.
func (m *bpe) mergeHeap(ids []int32) []int32 {
	n := int32(len(ids))
	prev, next := make([]int32, n), make([]int32, n)
	for i := range n {
		prev[i], next[i] = i-1, i+1
	}
	var h candidates
	try := func(i int32) {
		if i < 0 || next[i] >= n {
			return
		}
		if v := m.lookup(ids[i], ids[next[i]]); v.rank != noRank {
			h.push(candidate{v.rank, i, v.id, ids[i], ids[next[i]]})
		}
	}
	for i := range n - 1 {
		try(i)
	}
	for len(h) > 0 {
		c := h.pop()
		if ids[c.pos] != c.left || next[c.pos] >= n || ids[next[c.pos]] != c.right {
			continue
		}
		gone := next[c.pos]
		ids[c.pos], ids[gone] = c.id, -1
		next[c.pos] = next[gone]
		if next[gone] < n {
			prev[next[gone]] = c.pos
		}
		try(prev[c.pos])
		try(c.pos)
	}
	out := ids[:0]
	for i := int32(0); i < n; i = next[i] {
		out = append(out, ids[i])
	}
	return out
}

// candidates is a binary heap, lowest rank and leftmost on top.
type candidates []candidate

func (h *candidates) push(c candidate) {
	a := append(*h, c)
	for i := len(a) - 1; i > 0; {
		p := (i - 1) / 2
		if !a[i].before(a[p]) {
			break
		}
		a[i], a[p] = a[p], a[i]
		i = p
	}
	*h = a
}

func (h *candidates) pop() candidate {
	a := *h
	top, last := a[0], len(a)-1
	a[0] = a[last]
	a = a[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			break
		}
		if c+1 < last && a[c+1].before(a[c]) {
			c++
		}
		if !a[c].before(a[i]) {
			break
		}
		a[i], a[c] = a[c], a[i]
		i = c
	}
	*h = a
	return top
}

// addMerges fills the merge table. A pair that is listed twice has its later rank, as in the library.
func (m *bpe) addMerges(pairs [][2]string, ids map[string]int32) error {
	m.merges = make(map[uint64]merge, len(pairs))
	for rank, p := range pairs {
		a, okA := ids[p[0]]
		b, okB := ids[p[1]]
		ab, okAB := ids[p[0]+p[1]]
		if !okA || !okB || !okAB {
			return fmt.Errorf("tokenizer: merge %d (%q %q): the parts or their sum are not in the vocabulary; the file is damaged", rank, p[0], p[1])
		}
		m.merges[pairKey(a, b)] = merge{int32(rank), ab}
	}
	return nil
}
