package grammar

import (
	"bytes"
	"slices"
)

// Tokens are a tokenizer's (masks/tokenizer.Tokenizer).
type Tokens interface {
	Size() int               // ids are below
	Bytes(id int32) []byte   // what the token stands for in a text; empty: nothing
	IsSpecial(id int32) bool //
	Token(id int32) (string, bool)
}

// Vocabulary is the bytes of a tokenizer's tokens, sorted, so that what several tokens begin with is read once. It does not change and is
// safe for concurrent use.
type Vocabulary struct {
	size   int
	tokens []entry  // sorted by text
	texts  [][]byte // by id
	bytes  byteSet  // that a token has: some vocabularies lack a few
}

// text is what the token is read as; nil: it stands for nothing.
func (v *Vocabulary) text(id int32) []byte {
	if id < 0 || int(id) >= v.size {
		return nil
	}
	return v.texts[id]
}

type entry struct {
	id     int32
	text   []byte
	shared int // bytes that the entry before begins with too
}

// NewVocabulary reads the tokens. Special ones stand for themselves alone (Special), never for the text that they are written with.
func NewVocabulary(t Tokens) *Vocabulary {
	v := &Vocabulary{size: t.Size(), texts: make([][]byte, t.Size())}
	for id := range int32(v.size) {
		text := t.Bytes(id)
		if bytes.Contains(text, []byte(specialMark)) { // no text of UTF-8 has this byte, whatever stands around it
			text = nil
		}
		if t.IsSpecial(id) {
			name, _ := t.Token(id)
			text = []byte(specialMark + name + specialMark)
		}
		v.texts[id] = text
		if len(text) > 0 {
			v.tokens = append(v.tokens, entry{id: id, text: text})
			for _, b := range text {
				v.bytes.add(b, b)
			}
		}
	}
	slices.SortStableFunc(v.tokens, func(x, y entry) int { return bytes.Compare(x.text, y.text) })
	for i := 1; i < len(v.tokens); i++ {
		before, text := v.tokens[i-1].text, v.tokens[i].text
		n := 0
		for n < min(len(before), len(text)) && before[n] == text[n] {
			n++
		}
		v.tokens[i].shared = n
	}
	return v
}

// walk reads every token from the state s and returns those that can be read, a bit each: word id/64, bit id%64.
func (v *Vocabulary) walk(s *state, step func(*state, byte) (*state, error)) ([]uint64, error) {
	mask := make([]uint64, (v.size+63)/64)
	path := []*state{s} // behind each byte of the current token
	failed := -1        // the byte of the token that could not be read; -1: none
	for i := range v.tokens {
		t := &v.tokens[i]
		if failed >= 0 && t.shared > failed {
			continue
		}
		failed = -1
		path = path[:min(len(path), t.shared+1)]
		for at := len(path) - 1; at < len(t.text); at++ {
			next, err := step(path[at], t.text[at])
			if err != nil {
				return nil, err
			}
			if next == dead {
				failed = at
				break
			}
			path = append(path, next)
		}
		if failed < 0 {
			mask[t.id>>6] |= 1 << (t.id & 63)
		}
	}
	return mask, nil
}
