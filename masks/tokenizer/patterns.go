package tokenizer

import (
	"slices"
	"unicode/utf8"
)

// The regular expressions of the known pre-tokenizers, written by hand. Each is chosen by the exact text of the
// expression in tokenizer.json; any other expression is refused. Alternatives are tried in order and the first that
// matches wins, as in a backtracking engine; exact_test.go checks every matcher against Hugging Face on all code
// points and on random text.

// matcher returns the end of the match that starts at byte i of s, or -1. s is valid UTF-8, i < len(s). Look-ahead
// sees the rest of s.
type matcher func(t *tables, s string, i int) int

const (
	patternGPT2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternQwen = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// cl100k of GPT-3.5, GPT-4 and Llama 3
	patternCL100K = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternO200K  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// Mistral's tekken: o200k without contractions, digits one by one
	patternTekken = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+` +
		`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*` +
		`|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternDigits3 = `\p{N}{1,3}`
	// CJK ideographs and kana of DeepSeek V3
	patternCJK      = "[一-龥\u3040-ゟ゠-ヿ]+"
	patternDeepSeek = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+" +
		"| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
	// Qwen 3.5: Qwen with marks counted to the words
	patternQwen35 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// The steps of DeepSeek Coder and DeepSeek LLM, each a Split of its own
	patternLineEnd      = "[\r\n]"
	patternSpaceLetters = `\s?\p{L}+`
	patternSpacePunct   = `\s?\p{P}+`
	patternSpacesAtEnd  = `\s+$`
	patternCJKHangul    = "[一-龥\u0800-一가-\ud7ff]+"
	patternCased        = `\s?[` + casedRanges + `]+`
	patternMarks        = `\s?[` + marksRanges + `]+`
)

// The members of a character class, as first-last or as single characters, without escapes.
const (
	casedRanges = "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377" +
		"\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556" +
		"\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15" +
		"\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe" +
		"\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113" +
		"\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184" +
		"\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e" +
		"\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3" +
		"\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
	marksRanges = "!-/:-~！-／：-～‘-‟\u3000-。"
)

func matcherOf(pattern string) (matcher, bool) {
	switch pattern {
	case patternGPT2:
		return matchGPT2, true
	case patternQwen:
		return func(t *tables, s string, i int) int { return matchCL100K(t, s, i, 1) }, true
	case patternCL100K:
		return func(t *tables, s string, i int) int { return matchCL100K(t, s, i, 3) }, true
	case patternO200K:
		return func(t *tables, s string, i int) int { return matchO200K(t, s, i, 3, true) }, true
	case patternTekken:
		return func(t *tables, s string, i int) int { return matchO200K(t, s, i, 1, false) }, true
	case patternDigits3:
		return func(t *tables, s string, i int) int { return orNone(i, upTo(t, s, i, number, 3)) }, true
	case patternCJK:
		return matchCJK, true
	case patternDeepSeek:
		return matchDeepSeek, true
	case patternQwen35:
		return matchQwen35, true
	case patternLineEnd:
		return func(_ *tables, s string, i int) int {
			if s[i] == '\r' || s[i] == '\n' {
				return i + 1
			}
			return -1
		}, true
	case patternSpaceLetters:
		return spaceThen(func(t *tables, r rune) bool { return t.classOf(r)&letter != 0 }), true
	case patternSpacePunct:
		return spaceThen(func(t *tables, r rune) bool { return t.classOf(r)&punct != 0 }), true
	case patternCased:
		return spaceThen(inRanges(casedRanges)), true
	case patternMarks:
		return spaceThen(inRanges(marksRanges)), true
	case patternCJKHangul:
		return func(_ *tables, s string, i int) int {
			return orNone(i, runOf(nil, s, i, func(_ *tables, r rune) bool { return r >= 0x0800 && r <= 0x9fa5 || r >= 0xac00 && r <= 0xd7ff }))
		}, true
	case patternSpacesAtEnd:
		return matchSpacesAtEnd, true
	}
	return nil, false
}

// inRanges tells the members of a character class.
func inRanges(text string) func(*tables, rune) bool {
	var ranges [][2]rune
	all := []rune(text)
	for i := 0; i < len(all); i++ {
		if i+2 < len(all) && all[i+1] == '-' {
			ranges = append(ranges, [2]rune{all[i], all[i+2]})
			i += 2
			continue
		}
		ranges = append(ranges, [2]rune{all[i], all[i]})
	}
	slices.SortFunc(ranges, func(a, b [2]rune) int { return int(a[0] - b[0]) })
	return func(_ *tables, r rune) bool {
		i, found := slices.BinarySearchFunc(ranges, r, func(x [2]rune, r rune) int { return int(x[0] - r) })
		return found || i > 0 && r <= ranges[i-1][1]
	}
}

func runOf(t *tables, s string, i int, is func(*tables, rune) bool) int {
	for i < len(s) {
		r, n := runeAt(s, i)
		if !is(t, r) {
			break
		}
		i += n
	}
	return i
}

// spaceThen matches an optional white space character and then one or more characters that are.
func spaceThen(is func(*tables, rune) bool) matcher {
	return func(t *tables, s string, i int) int {
		r, n := runeAt(s, i)
		if t.classOf(r)&space != 0 {
			if end := runOf(t, s, i+n, is); end > i+n {
				return end
			}
		}
		return orNone(i, runOf(t, s, i, is))
	}
}

// matchSpacesAtEnd matches `\s+$`, where $ is the end of a line: of the text, or before \n.
func matchSpacesAtEnd(t *tables, s string, i int) int {
	end := while(t, s, i, space)
	for end > i && end < len(s) && s[end] != '\n' {
		_, n := utf8.DecodeLastRuneInString(s[:end])
		end -= n
	}
	return orNone(i, end)
}

func matchQwen35(t *tables, s string, i int) int {
	if end := contraction(s, i, true); end > i {
		return end
	}
	const word = letter | mark
	r, n := runeAt(s, i)
	c := t.classOf(r)
	if r != '\r' && r != '\n' && c&(letter|number) == 0 {
		if end := while(t, s, i+n, word); end > i+n {
			return end
		}
	}
	if c&word != 0 {
		return while(t, s, i+n, word)
	}
	if c&number != 0 {
		return i + n
	}
	j := i
	if r == ' ' {
		j++
	}
	if end := whileNot(t, s, j, space|word|number); end > j {
		return newlines(s, end, false)
	}
	return spacesOrLines(t, s, i)
}

// orNone is end, or -1 where nothing was taken.
func orNone(start, end int) int {
	if end == start {
		return -1
	}
	return end
}

// while is the end of the run of characters at i that have a class of want.
func while(t *tables, s string, i int, want class) int {
	for i < len(s) {
		r, n := runeAt(s, i)
		if t.classOf(r)&want == 0 {
			return i
		}
		i += n
	}
	return i
}

// upTo is while for at most max characters.
func upTo(t *tables, s string, i int, want class, max int) int {
	for ; max > 0 && i < len(s); max-- {
		r, n := runeAt(s, i)
		if t.classOf(r)&want == 0 {
			return i
		}
		i += n
	}
	return i
}

// whileNot is the end of the run of characters at i that have no class of not.
func whileNot(t *tables, s string, i int, not class) int {
	for i < len(s) {
		r, n := runeAt(s, i)
		if t.classOf(r)&not != 0 {
			return i
		}
		i += n
	}
	return i
}

func newlines(s string, i int, slash bool) int {
	for i < len(s) && (s[i] == '\r' || s[i] == '\n' || slash && s[i] == '/') {
		i++
	}
	return i
}

// spaces matches `\s+(?!\S)|\s+` at i: a run of white space, less its last character if text follows and more than
// one is there.
func spaces(t *tables, s string, i int) int {
	end, last := i, i
	for end < len(s) {
		r, n := runeAt(s, end)
		if t.classOf(r)&space == 0 {
			break
		}
		last = end
		end += n
	}
	if end == i {
		return -1
	}
	if end < len(s) && last > i {
		return last
	}
	return end
}

// spacesOrLines matches `\s*[\r\n]+|\s+(?!\S)|\s+`.
func spacesOrLines(t *tables, s string, i int) int {
	end, last := i, -1
	for end < len(s) {
		r, n := runeAt(s, end)
		if t.classOf(r)&space == 0 {
			break
		}
		end += n
		if r == '\r' || r == '\n' {
			last = end
		}
	}
	if last >= 0 {
		return last
	}
	return spaces(t, s, i)
}

// contraction matches 's 't 're 've 'm 'll 'd after its apostrophe at i, or gives i. With fold the case of letters
// does not matter, and U+017F counts as s.
func contraction(s string, i int, fold bool) int {
	if i >= len(s) || s[i] != '\'' {
		return i
	}
	at := func(k int) byte {
		if k >= len(s) {
			return 0
		}
		c := s[k]
		if fold && c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		return c
	}
	switch at(i + 1) {
	case 's', 't', 'm', 'd':
		return i + 2
	case 'r', 'v':
		if at(i+2) == 'e' {
			return i + 3
		}
	case 'l':
		if at(i+2) == 'l' {
			return i + 3
		}
	case 0xc5: // U+017F, long s
		if fold && i+2 < len(s) && s[i+2] == 0xbf {
			return i + 3
		}
	}
	return i
}

func matchGPT2(t *tables, s string, i int) int {
	if end := contraction(s, i, false); end > i {
		return end
	}
	j := i
	if s[i] == ' ' {
		j++
	}
	r, n := runeAt(s, j)
	switch c := t.classOf(r); {
	case r < 0:
	case c&letter != 0:
		return while(t, s, j+n, letter)
	case c&number != 0:
		return while(t, s, j+n, number)
	case c&space == 0:
		return whileNot(t, s, j+n, space|letter|number)
	}
	return spaces(t, s, i)
}

func matchCL100K(t *tables, s string, i, digits int) int {
	if end := contraction(s, i, true); end > i {
		return end
	}
	r, n := runeAt(s, i)
	c := t.classOf(r)
	switch {
	case c&letter != 0:
		return while(t, s, i+n, letter)
	case c&number != 0:
		return upTo(t, s, i, number, digits)
	case r != '\r' && r != '\n':
		if end := while(t, s, i+n, letter); end > i+n {
			return end
		}
	}
	return punctuation(t, s, i, false)
}

// punctuation matches ` ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`; with slash, [\r\n/]*.
func punctuation(t *tables, s string, i int, slash bool) int {
	j := i
	if s[i] == ' ' {
		j++
	}
	if end := whileNot(t, s, j, space|letter|number); end > j {
		return newlines(s, end, slash)
	}
	return spacesOrLines(t, s, i)
}

func matchO200K(t *tables, s string, i, digits int, contractions bool) int {
	r, n := runeAt(s, i)
	c := t.classOf(r)
	// the optional [^\r\n\p{L}\p{N}] is taken first and given back if the rest does not match
	if r != '\r' && r != '\n' && c&(letter|number) == 0 {
		if end := o200kWord(t, s, i+n, true); end >= 0 {
			return withContraction(s, end, contractions)
		}
	}
	if end := o200kWord(t, s, i, true); end >= 0 {
		return withContraction(s, end, contractions)
	}
	if r != '\r' && r != '\n' && c&(letter|number) == 0 {
		if end := o200kWord(t, s, i+n, false); end >= 0 {
			return withContraction(s, end, contractions)
		}
	}
	if end := o200kWord(t, s, i, false); end >= 0 {
		return withContraction(s, end, contractions)
	}
	if c&number != 0 {
		return upTo(t, s, i, number, digits)
	}
	return punctuation(t, s, i, true)
}

func withContraction(s string, i int, allowed bool) int {
	if !allowed {
		return i
	}
	return contraction(s, i, true)
}

// o200kWord matches [Lu Lt Lm Lo M]*[Ll Lm Lo M]+ at i (endsLower) or [Lu Lt Lm Lo M]+[Ll Lm Lo M]*, or gives -1.
func o200kWord(t *tables, s string, i int, endsLower bool) int {
	const caps, small = upper | otherLetter | mark, lower | otherLetter | mark
	mid := i  // end of the run of caps
	both := i // end of the last character of that run that is also in small
	for mid < len(s) {
		r, n := runeAt(s, mid)
		c := t.classOf(r)
		if c&caps == 0 {
			break
		}
		mid += n
		if c&small != 0 {
			both = mid
		}
	}
	end := while(t, s, mid, small)
	if !endsLower {
		if mid == i {
			return -1
		}
		return end
	}
	if end > mid {
		return end
	}
	return orNone(i, both) // characters are given back until one of them can be the small part
}

func matchCJK(_ *tables, s string, i int) int {
	end := i
	for end < len(s) {
		r, n := runeAt(s, end)
		if !(r >= 0x4e00 && r <= 0x9fa5 || r >= 0x3040 && r <= 0x30ff) {
			break
		}
		end += n
	}
	return orNone(i, end)
}

func matchDeepSeek(t *tables, s string, i int) int {
	if asciiPunct(s[i]) {
		j := i + 1
		for j < len(s) && (s[j] >= 'a' && s[j] <= 'z' || s[j] >= 'A' && s[j] <= 'Z') {
			j++
		}
		if j > i+1 {
			return j
		}
	}
	const word, marks = letter | mark, punct | symbol
	r, n := runeAt(s, i)
	c := t.classOf(r)
	if r != '\r' && r != '\n' && c&(letter|punct|symbol) == 0 {
		if end := while(t, s, i+n, word); end > i+n {
			return end
		}
	}
	if c&word != 0 {
		return while(t, s, i+n, word)
	}
	j := i
	if r == ' ' {
		j++
	}
	if end := while(t, s, j, marks); end > j {
		return newlines(s, end, false)
	}
	return spacesOrLines(t, s, i)
}

func asciiPunct(c byte) bool {
	return c >= '!' && c <= '/' || c >= ':' && c <= '@' || c >= '[' && c <= '`' || c >= '{' && c <= '~'
}
