package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"unicode/utf8"
)

// file is tokenizer.json, version 1.0.
type file struct {
	Version       *string         `json:"version"`
	Added         []AddedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         *modelPart      `json:"model"`
}

type modelPart struct {
	Type         string           `json:"type"`
	Dropout      *float64         `json:"dropout"`
	Unk          *string          `json:"unk_token"`
	Prefix       *string          `json:"continuing_subword_prefix"`
	Suffix       *string          `json:"end_of_word_suffix"`
	FuseUnk      bool             `json:"fuse_unk"`
	ByteFallback bool             `json:"byte_fallback"`
	IgnoreMerges bool             `json:"ignore_merges"`
	Vocab        json.RawMessage  `json:"vocab"`
	Merges       json.RawMessage  `json:"merges"`
	vocab        map[string]int32 // read from Vocab once the type is known to be BPE
	pairs        [][2]string      // read from Merges
}

// part is any normalizer, pre-tokenizer, post-processor or decoder: the union of the fields of those we know.
type part struct {
	Type           string                     `json:"type"`
	Normalizers    []json.RawMessage          `json:"normalizers"`
	PreTokenizers  []json.RawMessage          `json:"pretokenizers"`
	Processors     []json.RawMessage          `json:"processors"`
	Decoders       []json.RawMessage          `json:"decoders"`
	Prepend        string                     `json:"prepend"`
	Pattern        *pattern                   `json:"pattern"`
	Content        string                     `json:"content"`
	Start          int                        `json:"start"`
	Stop           int                        `json:"stop"`
	Behavior       behavior                   `json:"behavior"`
	Invert         bool                       `json:"invert"`
	PrefixSpace    *bool                      `json:"add_prefix_space"`
	UseRegex       *bool                      `json:"use_regex"`
	Individual     bool                       `json:"individual_digits"`
	Replacement    string                     `json:"replacement"`
	PrependScheme  string                     `json:"prepend_scheme"`
	SplitMeta      *bool                      `json:"split"`
	Single         []templatePiece            `json:"single"`
	TemplateTokens map[string]templateSpecial `json:"special_tokens"`
}

type pattern struct {
	String *string `json:"String"`
	Regex  *string `json:"Regex"`
}

type templatePiece struct {
	SpecialToken *struct {
		ID string `json:"id"`
	} `json:"SpecialToken"`
	Sequence *struct {
		ID string `json:"id"`
	} `json:"Sequence"`
}

type templateSpecial struct {
	IDs []int32 `json:"ids"`
}

// maxID bounds the ids of a vocabulary, so that a damaged file cannot ask for all memory.
const maxID = 1 << 22

// FromJSON reads the content of a tokenizer.json. data is kept: it must not be changed afterwards.
func FromJSON(data []byte) (*Tokenizer, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("tokenizer: not a tokenizer.json: %w", err)
	}
	if f.Version != nil && *f.Version != "1.0" {
		return nil, fmt.Errorf("tokenizer: version %q of tokenizer.json is not supported (1.0 is)", *f.Version)
	}
	if f.Model == nil {
		return nil, fmt.Errorf("tokenizer: no model in tokenizer.json; the file is damaged")
	}
	if err := f.Model.read(); err != nil {
		return nil, err
	}
	return build(&f, data)
}

// build makes the tokenizer of a file whose vocabulary and merges have been read.
func build(f *file, source []byte) (*Tokenizer, error) {
	t := &Tokenizer{tables: unicodeTables(), ids: f.Model.vocab, source: source}
	r := reader{t: t, letters: newLetters()}
	norms, err := r.normalizers(f.Normalizer)
	if err != nil {
		return nil, err
	}
	t.normalize = sequence(norms)
	splits, err := r.splitters(f.PreTokenizer)
	if err != nil {
		return nil, err
	}
	if r.firstOnly && r.prepends {
		return nil, fmt.Errorf("tokenizer: a Prepend normalizer together with Metaspace prepend_scheme \"first\" is not supported")
	}
	t.split = chain(splits)
	if t.model, err = newBPE(f.Model, r.byteLevel, r.letters); err != nil {
		return nil, err
	}
	if err := t.addTokens(f.Added, f.Model.vocab); err != nil {
		return nil, err
	}
	steps, err := r.decodeSteps(f.Decoder)
	if err != nil {
		return nil, err
	}
	t.decode = decoder{steps: steps}
	if len(steps) == 0 {
		t.decode.join = " "
	}
	if err := r.processor(f.PostProcessor); err != nil {
		return nil, err
	}
	return t, nil
}

// read checks the model and reads its vocabulary and merges.
func (m *modelPart) read() error {
	if m.Type != "BPE" {
		// old files do not name the type; BPE is the only one with merges
		if m.Type != "" || len(m.Merges) == 0 {
			return fmt.Errorf("tokenizer: model type %q is not supported (BPE is)", m.Type)
		}
	}
	if m.Dropout != nil && *m.Dropout != 0 {
		return fmt.Errorf("tokenizer: BPE dropout %v is not supported: ids would be random", *m.Dropout)
	}
	if m.Prefix != nil && *m.Prefix != "" {
		return fmt.Errorf("tokenizer: continuing_subword_prefix %q is not supported", *m.Prefix)
	}
	if m.Suffix != nil && *m.Suffix != "" {
		return fmt.Errorf("tokenizer: end_of_word_suffix %q is not supported", *m.Suffix)
	}
	if err := json.Unmarshal(m.Vocab, &m.vocab); err != nil || m.vocab == nil {
		return fmt.Errorf("tokenizer: model.vocab: want an object of token to id (%v)", err)
	}
	m.Vocab = nil
	merges := bytes.TrimSpace(m.Merges)
	m.Merges = nil
	if json.Unmarshal(merges, &m.pairs) == nil && m.pairs != nil {
		return nil
	}
	var lines []string
	if err := json.Unmarshal(merges, &lines); err != nil || lines == nil {
		return fmt.Errorf("tokenizer: model.merges: want a list of \"a b\" or of [\"a\", \"b\"] (%v)", err)
	}
	m.pairs = make([][2]string, 0, len(lines))
	for i, l := range lines {
		if strings.HasPrefix(l, "#version") {
			continue
		}
		a, b, ok := strings.Cut(l, " ")
		if !ok || strings.Contains(b, " ") {
			return fmt.Errorf("tokenizer: merge %d (%q): want two tokens with one space between", i, l)
		}
		m.pairs = append(m.pairs, [2]string{a, b})
	}
	return nil
}

// newBPE makes the model; in a byte-level one, tokens are kept as the bytes that they spell.
func newBPE(p *modelPart, byteLevel bool, l *letters) (*bpe, error) {
	m := &bpe{
		byteLevel: byteLevel, byteFallback: p.ByteFallback, ignoreMerges: p.IgnoreMerges, fuseUnk: p.FuseUnk,
		ids: p.vocab, cache: newWordCache(),
	}
	if byteLevel {
		m.ids = make(map[string]int32, len(p.vocab))
		for token, id := range p.vocab {
			if raw, ok := l.raw(token); ok {
				m.ids[raw] = id
			}
		}
	}
	complete := true // has every byte a token, so that no character is unknown
	for b := range 256 {
		m.single[b], m.fallback[b] = -1, -1
		if id, ok := m.ids[string([]byte{byte(b)})]; ok && (byteLevel || b < utf8.RuneSelf) {
			m.single[b] = id
		} else {
			complete = false
		}
		if id, ok := p.vocab[fmt.Sprintf("<0x%02X>", b)]; ok {
			m.fallback[b] = id
		}
	}
	if p.Unk != nil {
		id, ok := p.vocab[*p.Unk]
		if !ok && !(byteLevel && complete) {
			return nil, fmt.Errorf("tokenizer: unk_token %q is not in the vocabulary", *p.Unk)
		}
		m.hasUnk, m.unk = ok, id
	}
	if err := m.addMerges(p.pairs, p.vocab); err != nil {
		return nil, err
	}
	m.findCut()
	return m, nil
}

// addTokens fills the look-up tables and the finders of added tokens.
func (t *Tokenizer) addTokens(list []AddedToken, vocab map[string]int32) error {
	t.added = assignIDs(list, vocab)
	t.ids = make(map[string]int32, len(vocab)+len(t.added))
	top := int32(-1)
	for token, id := range vocab {
		if id < 0 || id >= maxID {
			return fmt.Errorf("tokenizer: id %d of %q is outside 0..%d; the file is damaged", id, token, maxID-1)
		}
		t.ids[token] = id
		top = max(top, id)
	}
	for _, a := range t.added {
		t.ids[a.Content] = a.ID
		top = max(top, a.ID)
	}
	t.tokens, t.known, t.special = make([]string, top+1), make([]bool, top+1), make([]bool, top+1)
	for token, id := range vocab {
		if t.known[id] {
			return fmt.Errorf("tokenizer: tokens %q and %q have the same id %d", token, t.tokens[id], id)
		}
		t.tokens[id], t.known[id] = token, true
	}
	var raw, normed []AddedToken
	var rawText, normedText []string
	specials := map[string]bool{}
	for _, a := range t.added {
		text := a.Content
		if a.Normalized && t.normalize != nil {
			text = t.normalize(text)
		}
		t.tokens[a.ID], t.known[a.ID] = text, true
		if a.Special {
			specials[a.Content] = true
		}
		if a.Normalized {
			normed, normedText = append(normed, a), append(normedText, text)
		} else {
			raw, rawText = append(raw, a), append(rawText, text)
		}
	}
	for id, token := range t.tokens {
		t.special[id] = t.known[id] && specials[token]
	}
	var err error
	if t.raw, err = newFinder(t.tables, raw, rawText); err != nil {
		return err
	}
	if t.normed, err = newFinder(t.tables, normed, normedText); err != nil {
		return err
	}
	sort.Slice(t.added, func(i, k int) bool { return t.added[i].ID < t.added[k].ID })
	return nil
}
