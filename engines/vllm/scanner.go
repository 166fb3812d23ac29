package vllm

import "strconv"

// scanner reads JSON from the front to the back. ok turns false, for good, at what is not JSON and at what encoding/json
// might take for something else: escapes, capitals, keys that come twice. Lists and objects are read as
//
//	for more := s.begin('[', ']'); more; more = s.more(']') { … }
type scanner struct {
	data []byte
	at   int
	ok   bool
}

// seen has a bit for each key of an object that was read.
type seen uint8

// mostDepth is how deep a value may be nested that is passed over.
const mostDepth = 64

func (s *scanner) space() {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// next is the next byte that is not white space; 0 at the end.
func (s *scanner) next() byte {
	s.space()
	if !s.ok || s.at >= len(s.data) {
		return 0
	}
	return s.data[s.at]
}

// take moves over a byte that must be there.
func (s *scanner) take(c byte) {
	if s.next() != c {
		s.ok = false
		return
	}
	s.at++
}

// begin moves into a list or an object and tells whether it holds anything.
func (s *scanner) begin(open, end byte) bool {
	s.take(open)
	if s.next() == end {
		s.at++
		return false
	}
	return s.ok
}

// more moves to the next element, or out of the list or object.
func (s *scanner) more(end byte) bool {
	if s.next() == end {
		s.at++
		return false
	}
	s.take(',')
	return s.ok
}

// key moves over a key of an object and the colon behind it.
func (s *scanner) key() []byte {
	key := s.plain()
	for _, c := range key {
		if c >= 'A' && c <= 'Z' { // encoding/json folds
			s.ok = false
		}
	}
	s.take(':')
	return key
}

// once notes a key, which must not have come before.
func (s *scanner) once(all *seen, key seen) {
	if *all&key != 0 {
		s.ok = false
	}
	*all |= key
}

// plain is a string of ASCII without escapes, as it stands.
func (s *scanner) plain() []byte {
	s.take('"')
	start := s.at
	for s.ok && s.at < len(s.data) {
		switch c := s.data[s.at]; {
		case c == '"':
			s.at++
			return s.data[start : s.at-1]
		case c < 0x20 || c >= 0x7f || c == '\\':
			s.ok = false
		}
		s.at++
	}
	s.ok = false
	return nil
}

// word moves over a literal if it is there.
func (s *scanner) word(w string) bool {
	s.space()
	if !s.ok || len(s.data)-s.at < len(w) || string(s.data[s.at:s.at+len(w)]) != w {
		return false
	}
	s.at += len(w)
	return true
}

func (s *scanner) isNull() bool { return s.word("null") }

// digits moves over digits and returns how many.
func (s *scanner) digits() int {
	start := s.at
	for s.at < len(s.data) && s.data[s.at] >= '0' && s.data[s.at] <= '9' {
		s.at++
	}
	return s.at - start
}

func (s *scanner) is(c byte) bool { return s.at < len(s.data) && s.data[s.at] == c }

// literal is a number by JSON's grammar.
func (s *scanner) literal() (text []byte, whole bool) {
	s.space()
	start := s.at
	if s.is('-') {
		s.at++
	}
	if s.is('0') { // a digit after it is left for the caller to stumble over
		s.at++
	} else if s.digits() == 0 {
		s.ok = false
	}
	whole = true
	if s.is('.') {
		whole = false
		s.at++
		s.ok = s.digits() > 0 && s.ok
	}
	if s.is('e') || s.is('E') {
		whole = false
		s.at++
		if s.is('+') || s.is('-') {
			s.at++
		}
		s.ok = s.digits() > 0 && s.ok
	}
	return s.data[start:s.at], whole
}

func (s *scanner) number() float64 {
	text, _ := s.literal()
	v, err := strconv.ParseFloat(string(text), 64)
	s.ok = s.ok && err == nil
	return v
}

func (s *scanner) integer() int32 {
	text, whole := s.literal()
	v, err := strconv.ParseInt(string(text), 10, 32)
	s.ok = s.ok && whole && err == nil
	return int32(v)
}

// skip moves over any value.
func (s *scanner) skip(depth int) {
	if depth > mostDepth {
		s.ok = false
	}
	switch c := s.next(); {
	case c == '{':
		for more := s.begin('{', '}'); more; more = s.more('}') {
			s.quoted()
			s.take(':')
			s.skip(depth + 1)
		}
	case c == '[':
		for more := s.begin('[', ']'); more; more = s.more(']') {
			s.skip(depth + 1)
		}
	case c == '"':
		s.quoted()
	case c == '-' || c >= '0' && c <= '9':
		s.literal()
	default:
		s.ok = s.ok && (s.isNull() || s.word("true") || s.word("false"))
	}
}

// quoted moves over any string.
func (s *scanner) quoted() {
	s.take('"')
	for s.ok && s.at < len(s.data) {
		c := s.data[s.at]
		s.at++
		switch {
		case c == '"':
			return
		case c < 0x20:
			s.ok = false
		case c == '\\':
			s.escape()
		}
	}
	s.ok = false
}

func (s *scanner) escape() {
	if s.at >= len(s.data) {
		s.ok = false
		return
	}
	c := s.data[s.at]
	s.at++
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
	case 'u':
		for range 4 {
			if s.at >= len(s.data) || !isHex(s.data[s.at]) {
				s.ok = false
				return
			}
			s.at++
		}
	default:
		s.ok = false
	}
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }
