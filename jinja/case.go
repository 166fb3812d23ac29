package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Python maps case with Unicode's full mappings; Go's unicode package has the simple ones. The differences:

// specialUpper maps lower-case letters whose upper case is several letters.
var specialUpper = map[rune]string{
	0x00df: "SS", 0x0149: "ʼN", 0x01f0: "J\u030c", 0x0390: "Ι\u0308\u0301", 0x03b0: "Υ\u0308\u0301", 0x0587: "ԵՒ", 0x1e96: "H\u0331", 0x1e97: "T\u0308",
	0x1e98: "W\u030a", 0x1e99: "Y\u030a", 0x1e9a: "Aʾ", 0x1f50: "Υ\u0313", 0x1f52: "Υ\u0313\u0300", 0x1f54: "Υ\u0313\u0301", 0x1f56: "Υ\u0313\u0342", 0x1f80: "ἈΙ",
	0x1f81: "ἉΙ", 0x1f82: "ἊΙ", 0x1f83: "ἋΙ", 0x1f84: "ἌΙ", 0x1f85: "ἍΙ", 0x1f86: "ἎΙ", 0x1f87: "ἏΙ", 0x1f88: "ἈΙ",
	0x1f89: "ἉΙ", 0x1f8a: "ἊΙ", 0x1f8b: "ἋΙ", 0x1f8c: "ἌΙ", 0x1f8d: "ἍΙ", 0x1f8e: "ἎΙ", 0x1f8f: "ἏΙ", 0x1f90: "ἨΙ",
	0x1f91: "ἩΙ", 0x1f92: "ἪΙ", 0x1f93: "ἫΙ", 0x1f94: "ἬΙ", 0x1f95: "ἭΙ", 0x1f96: "ἮΙ", 0x1f97: "ἯΙ", 0x1f98: "ἨΙ",
	0x1f99: "ἩΙ", 0x1f9a: "ἪΙ", 0x1f9b: "ἫΙ", 0x1f9c: "ἬΙ", 0x1f9d: "ἭΙ", 0x1f9e: "ἮΙ", 0x1f9f: "ἯΙ", 0x1fa0: "ὨΙ",
	0x1fa1: "ὩΙ", 0x1fa2: "ὪΙ", 0x1fa3: "ὫΙ", 0x1fa4: "ὬΙ", 0x1fa5: "ὭΙ", 0x1fa6: "ὮΙ", 0x1fa7: "ὯΙ", 0x1fa8: "ὨΙ",
	0x1fa9: "ὩΙ", 0x1faa: "ὪΙ", 0x1fab: "ὫΙ", 0x1fac: "ὬΙ", 0x1fad: "ὭΙ", 0x1fae: "ὮΙ", 0x1faf: "ὯΙ", 0x1fb2: "ᾺΙ",
	0x1fb3: "ΑΙ", 0x1fb4: "ΆΙ", 0x1fb6: "Α\u0342", 0x1fb7: "Α\u0342Ι", 0x1fbc: "ΑΙ", 0x1fc2: "ῊΙ", 0x1fc3: "ΗΙ", 0x1fc4: "ΉΙ",
	0x1fc6: "Η\u0342", 0x1fc7: "Η\u0342Ι", 0x1fcc: "ΗΙ", 0x1fd2: "Ι\u0308\u0300", 0x1fd3: "Ι\u0308\u0301", 0x1fd6: "Ι\u0342", 0x1fd7: "Ι\u0308\u0342", 0x1fe2: "Υ\u0308\u0300",
	0x1fe3: "Υ\u0308\u0301", 0x1fe4: "Ρ\u0313", 0x1fe6: "Υ\u0342", 0x1fe7: "Υ\u0308\u0342", 0x1ff2: "ῺΙ", 0x1ff3: "ΩΙ", 0x1ff4: "ΏΙ", 0x1ff6: "Ω\u0342",
	0x1ff7: "Ω\u0342Ι", 0x1ffc: "ΩΙ", 0xfb00: "FF", 0xfb01: "FI", 0xfb02: "FL", 0xfb03: "FFI", 0xfb04: "FFL", 0xfb05: "ST",
	0xfb06: "ST", 0xfb13: "ՄՆ", 0xfb14: "ՄԵ", 0xfb15: "ՄԻ", 0xfb16: "ՎՆ", 0xfb17: "ՄԽ",
}

// specialTitle is where the title case differs from the upper case of specialUpper.
var specialTitle = map[rune]string{
	0x00df: "Ss", 0x0587: "Եւ", 0x1f80: "ᾈ", 0x1f81: "ᾉ", 0x1f82: "ᾊ", 0x1f83: "ᾋ", 0x1f84: "ᾌ", 0x1f85: "ᾍ",
	0x1f86: "ᾎ", 0x1f87: "ᾏ", 0x1f88: "ᾈ", 0x1f89: "ᾉ", 0x1f8a: "ᾊ", 0x1f8b: "ᾋ", 0x1f8c: "ᾌ", 0x1f8d: "ᾍ",
	0x1f8e: "ᾎ", 0x1f8f: "ᾏ", 0x1f90: "ᾘ", 0x1f91: "ᾙ", 0x1f92: "ᾚ", 0x1f93: "ᾛ", 0x1f94: "ᾜ", 0x1f95: "ᾝ",
	0x1f96: "ᾞ", 0x1f97: "ᾟ", 0x1f98: "ᾘ", 0x1f99: "ᾙ", 0x1f9a: "ᾚ", 0x1f9b: "ᾛ", 0x1f9c: "ᾜ", 0x1f9d: "ᾝ",
	0x1f9e: "ᾞ", 0x1f9f: "ᾟ", 0x1fa0: "ᾨ", 0x1fa1: "ᾩ", 0x1fa2: "ᾪ", 0x1fa3: "ᾫ", 0x1fa4: "ᾬ", 0x1fa5: "ᾭ",
	0x1fa6: "ᾮ", 0x1fa7: "ᾯ", 0x1fa8: "ᾨ", 0x1fa9: "ᾩ", 0x1faa: "ᾪ", 0x1fab: "ᾫ", 0x1fac: "ᾬ", 0x1fad: "ᾭ",
	0x1fae: "ᾮ", 0x1faf: "ᾯ", 0x1fb2: "Ὰ\u0345", 0x1fb3: "ᾼ", 0x1fb4: "Ά\u0345", 0x1fb7: "Α\u0342\u0345", 0x1fbc: "ᾼ", 0x1fc2: "Ὴ\u0345",
	0x1fc3: "ῌ", 0x1fc4: "Ή\u0345", 0x1fc7: "Η\u0342\u0345", 0x1fcc: "ῌ", 0x1ff2: "Ὼ\u0345", 0x1ff3: "ῼ", 0x1ff4: "Ώ\u0345", 0x1ff7: "Ω\u0342\u0345",
	0x1ffc: "ῼ", 0xfb00: "Ff", 0xfb01: "Fi", 0xfb02: "Fl", 0xfb03: "Ffi", 0xfb04: "Ffl", 0xfb05: "St", 0xfb06: "St",
	0xfb13: "Մն", 0xfb14: "Մե", 0xfb15: "Մի", 0xfb16: "Վն", 0xfb17: "Մխ",
}

func upper(s string) (string, error) {
	var b strings.Builder
	for _, r := range s {
		if up, ok := specialUpper[r]; ok {
			b.WriteString(up)
		} else {
			b.WriteRune(unicode.ToUpper(r))
		}
	}
	return b.String(), nil
}

// lowerRune is the full lower case of a letter; sigma is handled by lower.
func lowerRune(r rune) string {
	if r == 'İ' {
		return "i̇"
	}
	return string(unicode.ToLower(r))
}

func cased(r rune) bool {
	return unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r) || unicode.Is(unicode.Other_Lowercase, r) || unicode.Is(unicode.Other_Uppercase, r)
}

func caseIgnorable(r rune) bool {
	return strings.ContainsRune("'.:^`¨\u00ad¯´·¸ʹ͵΄΅··՟״᾿⁄‘’․‧", r) && r != '⁄' || unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk)
}

func lower(s string) (string, error) {
	var b strings.Builder
	for i, r := range s {
		if r == 'Σ' {
			b.WriteRune(sigma(s, i))
			continue
		}
		b.WriteString(lowerRune(r))
	}
	return b.String(), nil
}

// sigma is the lower case of the Σ at byte i: final after a cased letter and before none.
func sigma(s string, i int) rune {
	before := false
	for rest := s[:i]; rest != ""; {
		r, n := utf8.DecodeLastRuneInString(rest)
		rest = rest[:len(rest)-n]
		if !caseIgnorable(r) {
			before = cased(r)
			break
		}
	}
	if !before {
		return 'σ'
	}
	for _, r := range s[i+len("Σ"):] {
		if !caseIgnorable(r) {
			if cased(r) {
				return 'σ'
			}
			break
		}
	}
	return 'ς'
}

func titleRune(r rune) string {
	if t, ok := specialTitle[r]; ok {
		return t
	}
	if up, ok := specialUpper[r]; ok {
		return up
	}
	return string(unicode.ToTitle(r))
}

// capitalize is str.capitalize: the first character in title case, the others in lower case.
func capitalize(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	r, _ := utf8.DecodeRuneInString(s)
	rest, err := lower(s)
	return titleRune(r) + rest[len(lowerOne(s, r)):], err
}

// lowerOne is what lower makes of the first character.
func lowerOne(s string, r rune) string {
	if r == 'Σ' {
		return string(sigma(s, 0))
	}
	return lowerRune(r)
}

// pythonTitle is str.title: words are runs of cased letters.
func pythonTitle(s string) (string, error) {
	var b strings.Builder
	inWord := false
	for i, r := range s {
		switch {
		case !inWord:
			b.WriteString(titleRune(r))
		case r == 'Σ':
			b.WriteRune(sigma(s, i))
		default:
			b.WriteString(lowerRune(r))
		}
		inWord = cased(r)
	}
	return b.String(), nil
}

func swapcase(s string) (string, error) {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == 'Σ':
			b.WriteRune(sigma(s, i))
		case unicode.IsUpper(r) || unicode.Is(unicode.Other_Uppercase, r):
			b.WriteString(lowerRune(r))
		case unicode.IsLower(r) || unicode.Is(unicode.Other_Lowercase, r):
			up, _ := upper(string(r))
			b.WriteString(up)
		default:
			b.WriteRune(r)
		}
	}
	return b.String(), nil
}

// casefold is exact on ASCII; full case folding of other text is refused.
func casefold(s string) (string, error) {
	for _, r := range s {
		if r >= 0x80 {
			return "", unsupported("casefold of text outside ASCII")
		}
	}
	return strings.ToLower(s), nil
}

func allOf(is func(rune) bool) func(string) bool {
	return func(s string) bool {
		return s != "" && strings.IndexFunc(s, func(r rune) bool { return !is(r) }) < 0
	}
}

func isAlnum(r rune) bool { return unicode.IsLetter(r) || isNumeric(r) }

// isDigit adds the superscripts, circled digits and the like to the decimal digits.
func isDigit(r rune) bool {
	return unicode.IsDigit(r) || r == 0xb2 || r == 0xb3 || r == 0xb9 || r == 0x2070 || r >= 0x2074 && r <= 0x2079 || r >= 0x2080 && r <= 0x2089 ||
		r >= 0x2460 && r <= 0x2468 || r >= 0x2474 && r <= 0x247c || r >= 0x2488 && r <= 0x2490
}

func isNumeric(r rune) bool { return unicode.IsNumber(r) }

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

func isPrintable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

func isLowerRune(r rune) bool { return unicode.IsLower(r) || unicode.Is(unicode.Other_Lowercase, r) }

func isUpperRune(r rune) bool { return unicode.IsUpper(r) || unicode.Is(unicode.Other_Uppercase, r) }

func isLower(s string) bool {
	return strings.IndexFunc(s, isLowerRune) >= 0 && strings.IndexFunc(s, func(r rune) bool { return isUpperRune(r) || unicode.IsTitle(r) }) < 0
}

func isUpper(s string) bool {
	return strings.IndexFunc(s, isUpperRune) >= 0 && strings.IndexFunc(s, func(r rune) bool { return isLowerRune(r) || unicode.IsTitle(r) }) < 0
}

func isTitle(s string) bool {
	inWord, any := false, false
	for _, r := range s {
		switch {
		case isUpperRune(r) || unicode.IsTitle(r):
			if inWord {
				return false
			}
			inWord, any = true, true
		case isLowerRune(r):
			if !inWord {
				return false
			}
			any = true
		default:
			inWord = false
		}
	}
	return any
}
