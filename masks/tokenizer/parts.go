package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// reader reads the parts of a tokenizer.json and remembers what concerns other parts.
type reader struct {
	t         *Tokenizer
	letters   *letters
	byteLevel bool // the pre-tokenizer ends with ByteLevel: the model sees bytes
	prepends  bool // a normalizer prepends text
	firstOnly bool // Metaspace marks the first piece only
	depth     int  // of nested sequences

	steps    map[string]int     // of the normalizer, the pre-tokenizer, the decoder and the post-processor
	growth   map[string]float64 // how many times as long the Replace steps of normalizer and decoder can make a text
	prefixes int                // bytes that are prepended
}

// Bounds on what a file's steps cost for each text: a short file could ask for more memory than any machine has.
const (
	maxDepth    = 8    // nested sequences; real files have two
	maxSteps    = 256  // of one part; real files have five
	maxGrowth   = 64   // times; a space that becomes "▁" grows three times
	maxPrefixes = 1024 // bytes
)

// enter counts a step and a level of nesting; the caller leaves it by leave.
func (r *reader) enter(what string) error {
	r.depth++
	if r.depth > maxDepth {
		return fmt.Errorf("tokenizer: %s is nested more than %d deep", what, maxDepth)
	}
	if r.steps == nil {
		r.steps, r.growth = map[string]int{}, map[string]float64{}
	}
	if r.steps[what]++; r.steps[what] > maxSteps {
		return fmt.Errorf("tokenizer: %s: it has more than %d steps", what, maxSteps)
	}
	return nil
}

// replace is a Replace step of what. The steps multiply: each may make what the ones before it wrote longer.
func (r *reader) replace(what, from, to string) (normalizer, error) {
	growth := max(1, r.growth[what]) * max(1, float64(len(to))/float64(len(from)))
	if growth > maxGrowth {
		return nil, fmt.Errorf("tokenizer: %s: its Replace steps can make a text %.0f times as long, at most %d is allowed", what, growth, maxGrowth)
	}
	r.growth[what] = growth
	return replace(from, to), nil
}

// prepend is a Prepend step of the normalizer.
func (r *reader) prepend(prefix string) (normalizer, error) {
	r.prepends = true
	if r.prefixes += len(prefix); r.prefixes > maxPrefixes {
		return nil, fmt.Errorf("tokenizer: normalizer: it prepends %d bytes to a text, at most %d are allowed", r.prefixes, maxPrefixes)
	}
	return prepend(prefix), nil
}

// one is a list of one step.
func one[T any](step T, err error) ([]T, error) {
	if err != nil {
		return nil, err
	}
	return []T{step}, nil
}

func (r *reader) leave() { r.depth-- }

func isNull(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) == 0 || bytes.Equal(raw, []byte("null"))
}

func readPart(raw json.RawMessage, what string) (*part, error) {
	var p part
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", what, err)
	}
	if p.Type == "" {
		return nil, fmt.Errorf("tokenizer: %s without a type is not supported", what)
	}
	return &p, nil
}

func (r *reader) normalizers(raw json.RawMessage) ([]normalizer, error) {
	if isNull(raw) {
		return nil, nil
	}
	if err := r.enter("normalizer"); err != nil {
		return nil, err
	}
	defer r.leave()
	p, err := readPart(raw, "normalizer")
	if err != nil {
		return nil, err
	}
	switch p.Type {
	case "Sequence":
		var out []normalizer
		for _, n := range p.Normalizers {
			more, err := r.normalizers(n)
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
		}
		return out, nil
	case "NFC":
		return []normalizer{r.t.tables.nfc}, nil
	case "Prepend":
		return one(r.prepend(p.Prepend))
	case "Replace":
		from, err := p.Pattern.literal("normalizer Replace")
		if err != nil {
			return nil, err
		}
		return one(r.replace("normalizer", from, p.Content))
	}
	return nil, fmt.Errorf("tokenizer: normalizer %s is not supported (NFC, Prepend, Replace and Sequence are)", p.Type)
}

// literal is the text of a String pattern; a regular expression is refused.
func (p *pattern) literal(what string) (string, error) {
	switch {
	case p == nil || p.String == nil && p.Regex == nil:
		return "", fmt.Errorf("tokenizer: %s has no pattern", what)
	case p.String == nil:
		return "", fmt.Errorf("tokenizer: %s: regular expression %q is not supported (a string is)", what, *p.Regex)
	case *p.String == "":
		return "", fmt.Errorf("tokenizer: %s: an empty pattern is not supported", what)
	}
	return *p.String, nil
}

func (r *reader) splitters(raw json.RawMessage) ([]splitter, error) {
	if isNull(raw) {
		return nil, nil
	}
	if err := r.enter("pre-tokenizer"); err != nil {
		return nil, err
	}
	defer r.leave()
	p, err := readPart(raw, "pre-tokenizer")
	if err != nil {
		return nil, err
	}
	if r.byteLevel || r.firstOnly {
		return nil, fmt.Errorf("tokenizer: pre-tokenizer %s after ByteLevel or Metaspace is not supported", p.Type)
	}
	t := r.t.tables
	switch p.Type {
	case "Sequence":
		var out []splitter
		for _, s := range p.PreTokenizers {
			more, err := r.splitters(s)
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
		}
		return out, nil
	case "ByteLevel":
		r.byteLevel = true
		var out []splitter
		if p.PrefixSpace == nil || *p.PrefixSpace {
			out = append(out, spaceBefore)
		}
		if p.UseRegex == nil || *p.UseRegex {
			out = append(out, splitMatches(t, matchGPT2))
		}
		return out, nil
	case "Split":
		return p.split(t)
	case "Digits":
		if p.Individual {
			return []splitter{splitMatches(t, oneNumeric)}, nil
		}
		return []splitter{splitSpans(patternSpans(t, oneNumeric), contiguous, false)}, nil
	case "Metaspace":
		return r.metaspace(p)
	}
	return nil, fmt.Errorf("tokenizer: pre-tokenizer %s is not supported (ByteLevel, Split, Digits, Metaspace and Sequence are)", p.Type)
}

func (p *part) split(t *tables) ([]splitter, error) {
	switch p.Behavior {
	case removed, isolated, contiguous, withPrev, withNext:
	default:
		return nil, fmt.Errorf("tokenizer: pre-tokenizer Split: behavior %q is not known", p.Behavior)
	}
	var m matcher
	if p.Pattern != nil && p.Pattern.Regex != nil {
		var ok bool
		if m, ok = matcherOf(*p.Pattern.Regex); !ok {
			return nil, fmt.Errorf("tokenizer: pre-tokenizer Split: regular expression %q is not among those supported", *p.Pattern.Regex)
		}
	} else {
		s, err := p.Pattern.literal("pre-tokenizer Split")
		if err != nil {
			return nil, err
		}
		m = literal(s)
	}
	if p.Behavior == isolated { // inverting does not change what is isolated
		return []splitter{splitMatches(t, m)}, nil
	}
	return []splitter{splitSpans(patternSpans(t, m), p.Behavior, p.Invert)}, nil
}

func (r *reader) metaspace(p *part) ([]splitter, error) {
	scheme, err := p.scheme()
	if err != nil {
		return nil, err
	}
	r.firstOnly = true
	out := []splitter{metaspace(p.Replacement, scheme)}
	if p.SplitMeta == nil || *p.SplitMeta {
		out = append(out, splitSpans(patternSpans(r.t.tables, literal(p.Replacement)), withNext, false))
	}
	return out, nil
}

// scheme checks a Metaspace and gives its prepend scheme, with the older add_prefix_space taken into account.
func (p *part) scheme() (string, error) {
	if utf8.RuneCountInString(p.Replacement) != 1 {
		return "", fmt.Errorf("tokenizer: Metaspace: replacement %q is not one character", p.Replacement)
	}
	scheme := p.PrependScheme
	if scheme == "" {
		scheme = "always"
	}
	if p.PrefixSpace != nil && !*p.PrefixSpace {
		if p.PrependScheme != "" && p.PrependScheme != "never" {
			return "", fmt.Errorf("tokenizer: Metaspace: add_prefix_space false contradicts prepend_scheme %q", p.PrependScheme)
		}
		scheme = "never"
	}
	switch scheme {
	case "always", "first", "never":
		return scheme, nil
	}
	return "", fmt.Errorf("tokenizer: Metaspace: prepend_scheme %q is not known (always, first, never)", scheme)
}

func (r *reader) decodeSteps(raw json.RawMessage) ([]decodeStep, error) {
	if isNull(raw) {
		return nil, nil
	}
	if err := r.enter("decoder"); err != nil {
		return nil, err
	}
	defer r.leave()
	p, err := readPart(raw, "decoder")
	if err != nil {
		return nil, err
	}
	switch p.Type {
	case "Sequence":
		var out []decodeStep
		for _, d := range p.Decoders {
			more, err := r.decodeSteps(d)
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
		}
		if len(out) == 0 { // it still joins the tokens without spaces
			out = append(out, each(same))
		}
		return out, nil
	case "ByteLevel":
		return []decodeStep{decodeByteLevel(r.letters)}, nil
	case "ByteFallback":
		return []decodeStep{decodeFallback()}, nil
	case "Fuse":
		return []decodeStep{decodeFuse()}, nil
	case "Replace":
		from, err := p.Pattern.literal("decoder Replace")
		if err != nil {
			return nil, err
		}
		step, err := r.replace("decoder", from, p.Content)
		return []decodeStep{each(step)}, err
	case "Strip":
		if utf8.RuneCountInString(p.Content) != 1 || p.Start < 0 || p.Stop < 0 {
			return nil, fmt.Errorf("tokenizer: decoder Strip: content %q (one character), start %d, stop %d", p.Content, p.Start, p.Stop)
		}
		return []decodeStep{decodeStrip(p.Content, p.Start, p.Stop)}, nil
	case "Metaspace":
		scheme, err := p.scheme()
		if err != nil {
			return nil, err
		}
		return []decodeStep{decodeMetaspace(p.Replacement, scheme)}, nil
	}
	return nil, fmt.Errorf("tokenizer: decoder %s is not supported (ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace and Sequence are)", p.Type)
}

// processor reads what a post-processor would add around one text. It changes no ids otherwise.
func (r *reader) processor(raw json.RawMessage) error {
	if isNull(raw) {
		return nil
	}
	if err := r.enter("post-processor"); err != nil {
		return err
	}
	defer r.leave()
	p, err := readPart(raw, "post-processor")
	if err != nil {
		return err
	}
	switch p.Type {
	case "ByteLevel": // trims offsets only
		return nil
	case "Sequence":
		for _, q := range p.Processors {
			if err := r.processor(q); err != nil {
				return err
			}
		}
		return nil
	case "TemplateProcessing":
		return r.template(p)
	}
	return fmt.Errorf("tokenizer: post-processor %s is not supported (ByteLevel, TemplateProcessing and Sequence are)", p.Type)
}

func (r *reader) template(p *part) error {
	var before, after []int32
	texts := 0
	for i, q := range p.Single {
		switch {
		case q.Sequence != nil && q.SpecialToken == nil && q.Sequence.ID == "A":
			texts++
		case q.SpecialToken != nil && q.Sequence == nil:
			s, ok := p.TemplateTokens[q.SpecialToken.ID]
			if !ok {
				return fmt.Errorf("tokenizer: post-processor TemplateProcessing: token %q has no ids", q.SpecialToken.ID)
			}
			if texts == 0 {
				before = append(before, s.IDs...)
			} else {
				after = append(after, s.IDs...)
			}
		default:
			return fmt.Errorf("tokenizer: post-processor TemplateProcessing: piece %d of single is neither a token nor text A", i)
		}
	}
	if texts != 1 {
		return fmt.Errorf("tokenizer: post-processor TemplateProcessing: single names the text %d times, not once", texts)
	}
	r.t.before = append(before, r.t.before...)
	r.t.after = append(r.t.after, after...)
	return nil
}
