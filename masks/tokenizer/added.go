package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// AddedToken is a token that is found in the text before the model sees it.
type AddedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // only where no word character touches it
	LStrip     bool   `json:"lstrip"`      // takes the white space on its left with it
	RStrip     bool   `json:"rstrip"`      // takes the white space on its right with it
	Normalized bool   `json:"normalized"`  // is looked for in normalized text, in its own normalized form
	Special    bool   `json:"special"`     // is left out when decoding without special tokens
}

// assignIDs gives the added tokens their ids as the library does on loading a file: the id of the same token in the
// vocabulary, else the next free one. It does not believe the id that the file states. Repeated and empty tokens
// are dropped.
func assignIDs(list []AddedToken, vocab map[string]int32) []AddedToken {
	next := int32(len(vocab))
	at := map[string]int{}
	var out []AddedToken
	for _, a := range list {
		if a.Content == "" {
			continue
		}
		k, repeated := at[a.Content]
		switch id, ok := vocab[a.Content]; {
		case repeated:
			a.ID = out[k].ID
			a.Special = a.Special || out[k].Special
			out[k] = a
			continue
		case ok:
			a.ID = id
		default:
			a.ID = next
			next++
		}
		at[a.Content] = len(out)
		out = append(out, a)
	}
	return out
}

// finder finds added tokens: leftmost, and of those the longest.
type finder struct {
	tables *tables
	first  [256]bool        // can a token begin with this byte
	edges  map[uint64]int32 // node<<8 | byte -> node
	token  []int32          // index in list of the token that ends at a node, -1 if none
	list   []AddedToken
}

func newFinder(t *tables, list []AddedToken, patterns []string) (*finder, error) {
	f := &finder{tables: t, edges: map[uint64]int32{}, token: []int32{-1}, list: list}
	for k, p := range patterns {
		if p == "" {
			return nil, fmt.Errorf("tokenizer: added token %q is empty once normalized, which the library refuses too", list[k].Content)
		}
		node := int32(0)
		for i := 0; i < len(p); i++ {
			key := uint64(node)<<8 | uint64(p[i])
			to, ok := f.edges[key]
			if !ok {
				to = int32(len(f.token))
				f.token = append(f.token, -1)
				f.edges[key] = to
			}
			node = to
		}
		if f.token[node] >= 0 {
			return nil, fmt.Errorf("tokenizer: added tokens %q and %q are the same text %q; remove one", list[f.token[node]].Content, list[k].Content, p)
		}
		f.token[node] = int32(k)
		f.first[p[0]] = true
	}
	return f, nil
}

// longest is the longest token that begins at i: its index in list (-1: none) and its end.
func (f *finder) longest(s string, i int) (token int32, end int) {
	token = -1
	node := int32(0)
	for k := i; k < len(s); k++ {
		to, ok := f.edges[uint64(node)<<8|uint64(s[k])]
		if !ok {
			break
		}
		node = to
		if f.token[node] >= 0 {
			token, end = f.token[node], k+1
		}
	}
	return token, end
}

// walk cuts s into added tokens and the text between them, in order: id is -1 for text s[from:to], which is not empty.
// It repeats AddedVocabulary.find_matches of the library, whose search goes on behind the token itself and not
// behind the white space that the token took with it.
func (f *finder) walk(s string, emit func(id int32, from, to int)) {
	if s == "" {
		return
	}
	done := 0
	for i := 0; i < len(s); {
		if !f.first[s[i]] {
			i++
			continue
		}
		k, end := f.longest(s, i)
		if k < 0 {
			i++
			continue
		}
		a, start, stop := &f.list[k], i, end
		i = end
		if a.SingleWord && (f.wordBefore(s, start) || f.wordAfter(s, stop)) {
			continue
		}
		if a.LStrip {
			start = max(f.spaceStart(s, start), done)
		}
		if a.RStrip {
			stop = while(f.tables, s, stop, space)
		}
		if start >= stop { // the token before took all of this one, which is white space; the library drops an empty stretch too
			continue
		}
		if done < start {
			emit(-1, done, start)
		}
		emit(a.ID, start, stop)
		done = stop
	}
	if done < len(s) {
		emit(-1, done, len(s))
	}
}

func (f *finder) wordBefore(s string, i int) bool {
	if i == 0 {
		return false
	}
	r, _ := utf8.DecodeLastRuneInString(s[:i])
	return f.tables.classOf(r)&wordChar != 0
}

func (f *finder) wordAfter(s string, i int) bool {
	r, _ := runeAt(s, i)
	return f.tables.classOf(r)&wordChar != 0
}

// spaceStart is where the white space that ends at i begins.
func (f *finder) spaceStart(s string, i int) int {
	for i > 0 {
		r, n := utf8.DecodeLastRuneInString(s[:i])
		if f.tables.classOf(r)&space == 0 {
			break
		}
		i -= n
	}
	return i
}

// normalizer changes text before it is split; nil changes nothing.
type normalizer func(s string) string

func sequence(all []normalizer) normalizer {
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return func(s string) string {
		for _, n := range all {
			s = n(s)
		}
		return s
	}
}

func prepend(prefix string) normalizer {
	return func(s string) string {
		if s == "" {
			return s
		}
		return prefix + s
	}
}

func replace(from, to string) normalizer {
	return func(s string) string { return strings.ReplaceAll(s, from, to) }
}
