package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// lcg repeats the generator of scripts/goldens/tokenizer.py.
type lcg uint64

func (r *lcg) below(n int) int {
	*r = *r*6364136223846793005 + 1442695040888963407
	return int(uint64(*r>>33) % uint64(n))
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

func isCharacter(c rune) bool { return c < 0xd800 || c >= 0xe000 }

// Every matcher against the library: all strings of three characters of an alphabet that has every kind the
// expressions tell apart, random longer ones, and all 1,112,064 code points among others.
func TestPiecesAsHuggingFace(t *testing.T) {
	var want struct {
		Alphabet string `json:"alphabet"`
		Patterns []struct {
			Name    string   `json:"name"`
			Pattern string   `json:"pattern"`
			Threes  []string `json:"threes"`
			Eights  []string `json:"eights"`
			Points  []string `json:"points"`
		} `json:"patterns"`
	}
	readJSON(t, "pieces.json.gz", &want)
	require.Len(t, want.Patterns, 16)
	alphabet := []rune(want.Alphabet)
	tab := unicodeTables()
	splits := make([]splitter, len(want.Patterns))
	for k, p := range want.Patterns {
		m, ok := matcherOf(p.Pattern)
		require.True(t, ok, "the expression %s of %s is not known", p.Pattern, p.Name)
		splits[k] = splitMatches(tab, m)
	}
	block := func(texts []string, of func(k int) string, what string) {
		t.Helper()
		var b []byte
		for k := range splits {
			b = b[:0]
			for _, text := range texts {
				b = appendEnds(b, splits[k], text)
			}
			require.Equal(t, of(k), digest(string(b)), want.Patterns[k].Name+": "+what)
		}
	}
	for i, a := range alphabet {
		var texts []string
		for _, c := range alphabet {
			for _, d := range alphabet {
				texts = append(texts, string([]rune{a, c, d}))
			}
		}
		block(texts, func(k int) string { return want.Patterns[k].Threes[i] }, fmt.Sprintf("strings of three that begin with %q", a))
	}
	r := lcg(1)
	for i := range want.Patterns[0].Eights {
		var texts []string
		for range 500 {
			var s []rune
			for range 8 {
				s = append(s, alphabet[r.below(len(alphabet))])
			}
			texts = append(texts, string(s))
		}
		block(texts, func(k int) string { return want.Patterns[k].Eights[i] }, fmt.Sprintf("block %d of strings of eight", i))
	}
	for i := range want.Patterns[0].Points {
		var texts []string
		for start := rune(i) * 0x1000; start < rune(i+1)*0x1000; start += 0x40 {
			var text strings.Builder
			for c := start; c < start+0x40; c++ {
				if isCharacter(c) {
					s := string(c)
					text.WriteString(s + "a " + s + s + "1" + s + "\n" + s + ".'" + s + " A" + s + "\t" + s)
				}
			}
			texts = append(texts, text.String())
		}
		block(texts, func(k int) string { return want.Patterns[k].Points[i] }, fmt.Sprintf("code points from %#x", i*0x1000))
	}
}

// appendEnds appends where the pieces of text end, counted in characters.
func appendEnds(b []byte, split splitter, text string) []byte {
	at := 0
	split(text, true, func(piece string, _ bool) {
		if at > 0 {
			b = append(b, ',')
		}
		at += utf8.RuneCountInString(piece)
		b = strconv.AppendInt(b, int64(at), 10)
	})
	return append(b, ';')
}

func TestNFCAsHuggingFace(t *testing.T) {
	var want struct {
		Pool    int      `json:"pool"`
		Randoms []string `json:"randoms"`
		Points  []string `json:"points"`
	}
	readJSON(t, "nfc.json.gz", &want)
	tab := unicodeTables()
	pool := []rune{0x61, 0x1100, 0x1161, 0x11A8, 0xAC00, 0xAC01, 0x0898, 0x10EAC, 0x1AC0, 0x1E2EC, 0x11938}
	for r := range tab.combining {
		pool = append(pool, r)
	}
	for r, d := range tab.decompose {
		pool = append(append(pool, r), d...)
	}
	for p, r := range tab.compose {
		pool = append(pool, p[0], p[1], r)
	}
	slices.Sort(pool)
	pool = slices.Compact(pool)
	require.Len(t, pool, want.Pool)
	r := lcg(1)
	for i := range want.Randoms {
		var b strings.Builder
		for range 1000 {
			var s []rune
			for range 1 + r.below(10) {
				s = append(s, pool[r.below(len(pool))])
			}
			b.WriteString(tab.nfc(string(s)) + "\n")
		}
		require.Equal(t, want.Randoms[i], digest(b.String()), "block %d of random strings", i)
	}
	for i := range want.Points {
		var b strings.Builder
		for c := rune(i) * 0x1000; c < rune(i+1)*0x1000; c++ {
			if isCharacter(c) {
				b.WriteString(tab.nfc("a\u0301"+string(c)+"\u0323\u0301") + "\n")
			}
		}
		require.Equal(t, want.Points[i], digest(b.String()), "code points from %#x", i*0x1000)
	}
}

func TestUnicodeTextIsWhole(t *testing.T) {
	lines := 0
	for line := range strings.Lines(unicodeText) {
		lines++
		if line[0] == '#' {
			continue
		}
		f := strings.Fields(line)
		require.Contains(t, []string{"c", "k", "d", "p"}, f[0], "line %d", lines)
		for _, x := range f[1:] {
			_, err := strconv.ParseUint(x, 16, 32)
			require.NoError(t, err, "line %d", lines)
		}
		if f[0] == "d" {
			require.GreaterOrEqual(t, len(f), 3, "line %d", lines)
		} else {
			require.Len(t, f, 4, "line %d", lines)
		}
	}
	require.Equal(t, 6163, lines)
	tab := unicodeTables()
	require.Equal(t, upper|wordChar, tab.classOf('A'))
	require.Equal(t, number|numeric|wordChar, tab.classOf('7'))
	require.Equal(t, number|numeric, tab.classOf('½'))
	require.Equal(t, space, tab.classOf('\u3000'))
	require.Equal(t, class(0), tab.classOf(-1))
	require.Equal(t, class(0), tab.classOf(0x10ffff))
}

func TestLossyLikeRust(t *testing.T) {
	for in, want := range map[string]string{
		"":                                 "",
		"a\xffb":                           "a\ufffdb",
		"\xe2\x82":                         "\ufffd",
		"\xe2\x82(":                        "\ufffd(",
		"\xf0\x9f\x98\xf0\x9f\x98\x80":     "\ufffd😀",
		"\xed\xa0\x80":                     "\ufffd\ufffd\ufffd",
		"\xc0\xaf":                         "\ufffd\ufffd",
		"\xf4\x90\x80\x80":                 "\ufffd\ufffd\ufffd\ufffd",
		"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf": "\ufffd\ufffd\ufffd\ufffd",
	} {
		require.Equal(t, want, lossy(in), "%q", in)
	}
}

// EncodeMarked without a mark is Encode; with marks in what spells special tokens it is Encode of a tokenizer that has none, and of
// the text without them where nothing is interrupted.
func TestEncodeMarked(t *testing.T) {
	const mark = "𠀀"
	tok, v := smollm2(t)
	v.Types = make([]int32, len(v.Tokens))
	for i := range v.Types {
		v.Types[i] = TypeNormal
	}
	none, err := FromVocabulary(v) // nothing is special in it
	require.NoError(t, err)
	specials := tok.Specials()
	require.Contains(t, specials, "<|im_end|>")
	rng := rand.New(rand.NewPCG(5, 6))
	parts := append([]string{"a", " ", "\n", "word", "12", "é", "你", "<", "|", ">", "  ", "<|im_"}, specials...)
	for range 2000 {
		var plain, marked strings.Builder
		for range rng.IntN(8) {
			p := parts[rng.IntN(len(parts))]
			plain.WriteString(p)
			for _, r := range p { // between any two characters
				marked.WriteRune(r)
				marked.WriteString(mark)
			}
		}
		require.Equal(t, none.Encode(plain.String()), tok.EncodeMarked(marked.String(), mark), "%q", &plain)
		require.Equal(t, tok.Encode(plain.String()), tok.EncodeMarked(plain.String(), ""))
		require.Equal(t, tok.Encode("x"+plain.String()), tok.EncodeMarked(mark+"x"+plain.String(), mark))
	}
	ids := tok.EncodeMarked("<|im_start|>user\n<"+mark+"|im_end|><|im_end|>", mark)
	require.Equal(t, "<|im_start|>user\n<|im_end|><|im_end|>", tok.Decode(ids, false))
	require.Equal(t, 2, len(slices.DeleteFunc(ids, func(id int32) bool { return !tok.IsSpecial(id) })))
	require.Empty(t, tok.EncodeMarked(mark, mark))
}

// The same with normalizers that put a space in front of a text, and with splitters that do: interrupted tokens have the ids of their
// characters, and a mark in front of a text or behind it changes nothing.
func TestEncodeMarkedBehindPrependedSpaces(t *testing.T) {
	const mark = "𠀀"
	for _, name := range []string{"llama2_small", "metaspace_always", "metaspace_first", "prefix_space"} {
		tok := loadSmall(t, name)
		var file map[string]any
		require.NoError(t, json.Unmarshal(tok.HF(), &file))
		file["added_tokens"] = []any{}
		bare, err := json.Marshal(file)
		require.NoError(t, err)
		none, err := FromJSON(bare)
		require.NoError(t, err)
		added := append(tok.Specials(), tok.OtherAdded()...)
		require.GreaterOrEqual(t, len(added), 2)
		rng := rand.New(rand.NewPCG(9, 10))
		parts := append([]string{"a", " ", "\n", "word", "12", "é", "<", ">", "  ", "[INST"}, added...)
		for range 1000 {
			var plain, marked, harmless strings.Builder
			for range rng.IntN(8) {
				p := parts[rng.IntN(len(parts))]
				plain.WriteString(p)
				for i, r := range p {
					marked.WriteRune(r)
					if i == 0 && len(p) > 1 { // where masks puts one
						marked.WriteString(mark)
					}
				}
				if !slices.Contains(added, p) {
					harmless.WriteString(p)
				}
			}
			require.Equal(t, none.Encode(plain.String()), tok.EncodeMarked(marked.String(), mark), "%s %q", name, &plain)
			require.Equal(t, tok.Encode(harmless.String()), tok.EncodeMarked(mark+harmless.String()+mark, mark), "%s %q", name, &harmless)
			require.Equal(t, tok.Encode("</s>"+harmless.String()), tok.EncodeMarked("</s>"+mark+harmless.String(), mark), "%s %q", name, &harmless)
		}
	}
}
