package tokenizer

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// Tokenizer turns text into ids and back. Make one with Load, FromJSON or FromVocabulary.
type Tokenizer struct {
	tables    *tables
	normalize normalizer // nil: none
	split     splitter
	model     *bpe
	decode    decoder
	raw       *finder // added tokens looked for in the raw text
	normed    *finder // added tokens looked for in normalized text

	ids     map[string]int32 // every token as it is spelled in the file
	tokens  []string         // by id; as decoding sees it
	known   []bool           // by id: is there such a token
	special []bool           // by id
	added   []AddedToken     // by rising id
	before  []int32          // what the post-processor would put in front
	after   []int32
	source  []byte // tokenizer.json
}

// Load reads dir/tokenizer.json.
func Load(dir string) (*Tokenizer, error) {
	path := filepath.Join(dir, "tokenizer.json")
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w; a model folder needs a tokenizer.json", err)
	}
	t, err := FromJSON(data)
	if err != nil {
		return nil, fmt.Errorf("%w (in %s)", err, path)
	}
	return t, nil
}

// Encode gives the ids of text. Added tokens (special ones too) that stand in the text are recognised; none is put
// around it. Text that is not valid UTF-8 is repaired as the package comment says.
func (t *Tokenizer) Encode(text string) []int32 { return t.EncodeMarked(text, "") }

// EncodeMarked gives the ids of text without a mark, a text that normalizing does not change and that stands for nothing else. Added
// tokens are looked for while the mark is there, so that one stands for itself where a mark interrupts it. "" is no mark.
func (t *Tokenizer) EncodeMarked(text, mark string) []int32 {
	unmarked := func(s string) string {
		if mark == "" {
			return s
		}
		return strings.ReplaceAll(s, mark, "")
	}
	text = lossy(text)
	out := make([]int32, 0, len(text)/4+4)
	word := func(w string, _ bool) { out = t.model.encode(w, out) }
	t.raw.walk(text, func(id int32, from, to int) {
		if id >= 0 {
			out = append(out, id)
			return
		}
		piece := text[from:to]
		if mark != "" && unmarked(piece) == "" {
			return
		}
		if t.normalize != nil {
			piece = t.normalize(piece)
		}
		t.normed.walk(piece, func(id int32, f, to int) {
			if id >= 0 {
				out = append(out, id)
				return
			}
			if plain := unmarked(piece[f:to]); plain != "" {
				t.split(plain, from == 0 && f == 0, word)
			}
		})
	})
	return out
}

// Decode gives the text of ids, as the library's decode does: bytes that are not valid UTF-8 become U+FFFD, ids
// that are not in the vocabulary are left out. With skipSpecial the special tokens are left out.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	list := make([]string, 0, len(ids))
	for _, id := range ids {
		if !t.has(id) || skipSpecial && t.special[id] {
			continue
		}
		list = append(list, t.tokens[id])
	}
	return t.decode.text(list)
}

// Bytes gives the bytes that id adds to a text, not to be changed by what stands around it: nil for an unknown id. A
// caller that streams joins them and cuts at the character boundaries. For a metaspace vocabulary the one space
// that Decode takes from the front of a text is still there.
func (t *Tokenizer) Bytes(id int32) []byte {
	if !t.has(id) {
		return nil
	}
	return t.decode.bytes(t.tokens[id])
}

// ID gives the id of a token as the file spells it (byte-level vocabularies write a space as "Ġ").
func (t *Tokenizer) ID(token string) (int32, bool) {
	id, ok := t.ids[token]
	return id, ok
}

// Token is the inverse of ID.
func (t *Tokenizer) Token(id int32) (string, bool) {
	if !t.has(id) {
		return "", false
	}
	if a, ok := t.addedByID(id); ok {
		return a.Content, true
	}
	return t.tokens[id], true
}

// Size is one more than the largest id: the rows that an embedding needs at least.
func (t *Tokenizer) Size() int { return len(t.tokens) }

// IsSpecial tells whether Decode with skipSpecial leaves id out.
func (t *Tokenizer) IsSpecial(id int32) bool { return t.has(id) && t.special[id] }

// Specials gives the texts of the special tokens.
func (t *Tokenizer) Specials() []string { return t.texts(true) }

// OtherAdded gives the texts of the added tokens that are not special.
func (t *Tokenizer) OtherAdded() []string { return t.texts(false) }

func (t *Tokenizer) texts(special bool) []string {
	var out []string
	for _, a := range t.added {
		if a.Special == special {
			out = append(out, a.Content)
		}
	}
	return out
}

// AddedByTemplate gives the ids that the file's post-processor would put around a text (Llama's <s>). Encode does
// not add them; chat templates write them themselves.
func (t *Tokenizer) AddedByTemplate() (before, after []int32) {
	return append([]int32(nil), t.before...), append([]int32(nil), t.after...)
}

// HF gives a tokenizer.json to save beside a model: the bytes it was read from, or for a GGUF vocabulary a generated
// file that gives the same ids.
func (t *Tokenizer) HF() []byte { return append([]byte(nil), t.source...) }

func (t *Tokenizer) has(id int32) bool { return id >= 0 && int(id) < len(t.known) && t.known[id] }

func (t *Tokenizer) addedByID(id int32) (AddedToken, bool) {
	i := sort.Search(len(t.added), func(i int) bool { return t.added[i].ID >= id })
	if i < len(t.added) && t.added[i].ID == id {
		return t.added[i], true
	}
	return AddedToken{}, false
}
