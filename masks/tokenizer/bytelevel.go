package tokenizer

// Byte-level vocabularies spell a byte as a printable letter (GPT-2's bytes_to_unicode): printable Latin-1 stands for
// itself, the other 68 bytes are U+0100 and up in order.

func printable(b byte) bool {
	return b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae
}

func byteToRune(b byte) rune {
	if printable(b) {
		return rune(b)
	}
	n := rune(0)
	for c := 0; c < int(b); c++ {
		if !printable(byte(c)) {
			n++
		}
	}
	return 0x100 + n
}

// letters is the table from letters to bytes.
type letters struct {
	byte [0x144]int16 // -1 where the character stands for no byte
}

func newLetters() *letters {
	l := &letters{}
	for i := range l.byte {
		l.byte[i] = -1
	}
	for b := range 256 {
		l.byte[byteToRune(byte(b))] = int16(b)
	}
	return l
}

// raw gives the bytes that a token spells; it fails if one of its characters spells none.
func (l *letters) raw(token string) (string, bool) {
	out := make([]byte, 0, len(token))
	for _, r := range token {
		if r < 0 || int(r) >= len(l.byte) || l.byte[r] < 0 {
			return "", false
		}
		out = append(out, byte(l.byte[r]))
	}
	return string(out), true
}
