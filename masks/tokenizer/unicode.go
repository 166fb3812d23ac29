package tokenizer

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
)

// class is a set of character properties, as `tokenizers` sees them.
type class uint16

const (
	upper       class = 1 << iota // \p{Lu} or \p{Lt}
	lower                         // \p{Ll}
	otherLetter                   // \p{Lm} or \p{Lo}
	mark                          // \p{M}
	number                        // \p{N}
	punct                         // \p{P}
	symbol                        // \p{S}
	space                         // \s
	numeric                       // char::is_numeric of Rust's standard library (pre-tokenizer Digits)
	wordChar                      // \w of Rust's regex crate (added tokens with single_word)
	joins                         // may change under NFC, or may change a character before it

	letter = upper | lower | otherLetter // \p{L}
)

// unicodeText is written by scripts/goldens/tokenizer_unicode.py.
//
//go:embed unicode.txt
var unicodeText string

// tables is what unicode.txt holds, made for look-ups. It is read-only once built.
type tables struct {
	index     [0x110000 >> 8]uint16 // block of each 256 code points, into blocks
	blocks    [][256]class
	combining map[rune]uint8   // canonical combining class, where it is not 0
	decompose map[rune][]rune  // full canonical decomposition, Hangul aside
	compose   map[[2]rune]rune // canonical composition of a pair, Hangul aside
}

var unicodeTables = sync.OnceValue(func() *tables { return parseTables(unicodeText) })

// classOf returns the classes of r; a negative r (the end of the text) has none.
func (t *tables) classOf(r rune) class {
	if uint32(r) >= 0x110000 {
		return 0
	}
	return t.blocks[t.index[r>>8]][r&0xff]
}

func parseTables(text string) *tables {
	t := &tables{
		blocks:    make([][256]class, 1, 256),
		combining: map[rune]uint8{}, decompose: map[rune][]rune{}, compose: map[[2]rune]rune{},
	}
	for line := range strings.Lines(text) {
		if line[0] == '#' {
			continue
		}
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		var v []rune
		for f := range strings.FieldsSeq(rest) {
			x, err := strconv.ParseUint(f, 16, 32)
			if err != nil {
				continue // cannot happen: the file is embedded, and a test reads every line of it
			}
			v = append(v, rune(x))
		}
		switch kind {
		case "c":
			t.addRun(v[0], v[1], class(v[2]))
		case "k":
			for r := v[0]; r <= v[1]; r++ {
				t.combining[r] = uint8(v[2])
			}
		case "d":
			t.decompose[v[0]] = v[1:]
		case "p":
			t.compose[[2]rune{v[0], v[1]}] = v[2]
		}
	}
	t.markJoins()
	t.share()
	return t
}

// markJoins marks what canonical composition can touch: marks with a class, second parts of a pair, and characters
// whose composition is not themselves. Before any other character a text can be cut without changing the outcome.
func (t *tables) markJoins() {
	for r := range t.combining {
		t.mark(r, joins)
	}
	for p := range t.compose {
		t.mark(p[1], joins)
	}
	for r := rune(hangulV); r < hangulT+hangulTCount; r++ {
		t.mark(r, joins)
	}
	for r, d := range t.decompose {
		parts := append([]rune(nil), d...)
		t.order(parts)
		if parts = t.composed(parts); len(parts) != 1 || parts[0] != r {
			t.mark(r, joins)
		}
	}
}

func (t *tables) mark(r rune, c class) {
	t.addRun(r, r, t.classOf(r)|c)
}

func (t *tables) addRun(first, last rune, c class) {
	for r := first; r <= last; r++ {
		b := t.index[r>>8]
		if b == 0 {
			t.blocks = append(t.blocks, [256]class{})
			b = uint16(len(t.blocks) - 1)
			t.index[r>>8] = b
		}
		t.blocks[b][r&0xff] = c
	}
}

// share lets equal blocks (whole scripts of one class) be one block.
func (t *tables) share() {
	seen := make(map[[256]class]uint16, 300)
	var blocks [][256]class
	for i, b := range t.index {
		to, ok := seen[t.blocks[b]]
		if !ok {
			to = uint16(len(blocks))
			blocks = append(blocks, t.blocks[b])
			seen[t.blocks[b]] = to
		}
		t.index[i] = to
	}
	t.blocks = blocks
}
