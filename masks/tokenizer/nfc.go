package tokenizer

import "strings"

// Hangul syllables are composed by arithmetic (Unicode 3.12).
const (
	hangulS, hangulL, hangulV, hangulT            = 0xAC00, 0x1100, 0x1161, 0x11A7
	hangulLCount, hangulVCount, hangulTCount      = 19, 21, 28
	hangulSCount                                  = hangulLCount * hangulVCount * hangulTCount
	firstComposable                          rune = 0x300 // below it, no character changes under NFC
)

// nfc returns the canonical composition of s by the tables of the library, which are older than Go's. Only the
// stretches around characters that joins are worked on; the rest is copied.
func (t *tables) nfc(s string) string {
	var out strings.Builder
	var buf []rune
	copied, before := 0, 0 // s[:copied] is in out; the character before i begins at before
	for i := 0; i < len(s); {
		r, n := runeAt(s, i)
		if r < firstComposable || t.classOf(r)&joins == 0 {
			before = i
			i += n
			continue
		}
		end := i + n
		for end < len(s) {
			r, n := runeAt(s, end)
			if t.classOf(r)&joins == 0 {
				break
			}
			end += n
		}
		buf = buf[:0]
		for _, r := range s[before:end] {
			buf = t.appendDecomposed(buf, r)
		}
		t.order(buf)
		out.WriteString(s[copied:before])
		for _, r := range t.composed(buf) {
			out.WriteRune(r)
		}
		copied, before, i = end, end, end
	}
	if copied == 0 {
		return s
	}
	out.WriteString(s[copied:])
	return out.String()
}

func (t *tables) appendDecomposed(buf []rune, r rune) []rune {
	if r < 0xC0 {
		return append(buf, r)
	}
	if s := r - hangulS; s >= 0 && s < hangulSCount {
		buf = append(buf, hangulL+s/(hangulVCount*hangulTCount), hangulV+s%(hangulVCount*hangulTCount)/hangulTCount)
		if s%hangulTCount != 0 {
			buf = append(buf, hangulT+s%hangulTCount)
		}
		return buf
	}
	if d, ok := t.decompose[r]; ok {
		return append(buf, d...)
	}
	return append(buf, r)
}

// order sorts each run of combining marks by class, keeping equal classes in place.
func (t *tables) order(buf []rune) {
	for i := 0; i < len(buf); i++ {
		if t.classCCC(buf[i]) == 0 {
			continue
		}
		j := i
		for j < len(buf) && t.classCCC(buf[j]) != 0 {
			j++
		}
		t.stableSort(buf[i:j])
		i = j
	}
}

func (t *tables) classCCC(r rune) uint8 {
	if r < firstComposable {
		return 0
	}
	return t.combining[r]
}

func (t *tables) stableSort(run []rune) {
	var count [256]int
	for _, r := range run {
		count[t.combining[r]]++
	}
	at := 0
	for c, n := range count {
		count[c] = at
		at += n
	}
	sorted := make([]rune, len(run))
	for _, r := range run {
		c := t.combining[r]
		sorted[count[c]] = r
		count[c]++
	}
	copy(run, sorted)
}

// composed composes decomposed, ordered characters in place (Unicode 3.11, D117).
func (t *tables) composed(buf []rune) []rune {
	out := buf[:0]
	starter := -1  // index in out
	var last uint8 // class of the last character kept after the starter
	for _, r := range buf {
		c := t.classCCC(r)
		if starter >= 0 && (starter == len(out)-1 || last < c) {
			if p, ok := t.pair(out[starter], r); ok {
				out[starter] = p
				continue
			}
		}
		out = append(out, r)
		if c == 0 {
			starter = len(out) - 1
		}
		last = c
	}
	return out
}

func (t *tables) pair(a, b rune) (rune, bool) {
	if l := a - hangulL; l >= 0 && l < hangulLCount {
		if v := b - hangulV; v >= 0 && v < hangulVCount {
			return hangulS + (l*hangulVCount+v)*hangulTCount, true
		}
	}
	if s := a - hangulS; s >= 0 && s < hangulSCount && s%hangulTCount == 0 {
		if k := b - hangulT; k > 0 && k < hangulTCount {
			return a + k, true
		}
	}
	r, ok := t.compose[[2]rune{a, b}]
	return r, ok
}
