package dialects

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// maxDepth bounds how deep a body is nested: the canonical form of objects within objects is sorted at each level.
const maxDepth = 256

// digest is of the canonical body without the members named in leave: clients send a retry streamed or not, and some put other random
// numbers into it.
func digest(body []byte, leave ...string) ([32]byte, *Error) {
	c := canonicalizer{src: body, leave: leave}
	if err := c.value(0); err != nil {
		return [32]byte{}, err
	}
	return sha256.Sum256(c.dst), nil
}

// Canonical writes a JSON value in the one way in which all that say the same are written: no white space, sorted keys, of a repeated key the last,
// a number by its value. What is no JSON, or is nested too deep, stays as it is.
func Canonical(raw json.RawMessage) string {
	c := canonicalizer{src: raw}
	if !json.Valid(raw) || c.value(0) != nil {
		return string(raw)
	}
	return string(c.dst)
}

// canonicalizer writes valid JSON without white space, with sorted keys and one spelling for each string and number. Of two members with
// the same key the last one counts, as encoding/json has it.
type canonicalizer struct {
	src, dst []byte
	at       int
	leave    []string // members of the outermost object
}

type member struct {
	key        string
	start, end int // in dst
}

func (c *canonicalizer) space() { c.at = skipSpace(c.src, c.at) }

func (c *canonicalizer) value(depth int) *Error {
	if depth > maxDepth {
		return badf("", "the request is nested deeper than %d levels", maxDepth)
	}
	c.space()
	switch c.src[c.at] {
	case '{':
		return c.object(depth)
	case '[':
		return c.list(depth)
	case '"':
		c.dst = c.appendText(c.dst)
	case 't', 'f', 'n':
		start := c.at
		c.at = skipValue(c.src, start)
		c.dst = append(c.dst, c.src[start:c.at]...)
	default:
		start := c.at
		c.at = skipValue(c.src, start)
		c.dst = append(c.dst, number(string(c.src[start:c.at]))...)
	}
	return nil
}

func (c *canonicalizer) list(depth int) *Error {
	c.at++
	c.dst = append(c.dst, '[')
	for first := true; ; first = false {
		c.space()
		if c.src[c.at] == ']' {
			c.at++
			c.dst = append(c.dst, ']')
			return nil
		}
		if !first {
			c.at++ // the comma
			c.dst = append(c.dst, ',')
		}
		if err := c.value(depth + 1); err != nil {
			return err
		}
	}
}

func (c *canonicalizer) object(depth int) *Error {
	c.at++
	c.dst = append(c.dst, '{')
	begin := len(c.dst)
	var members []member
	for {
		c.space()
		if c.src[c.at] == '}' {
			c.at++
			break
		}
		if c.src[c.at] == ',' {
			c.at++
			c.space()
		}
		m := member{start: len(c.dst)}
		m.key, _ = unquote(c.src, c.at)
		c.dst = append(c.appendText(c.dst), ':')
		c.space()
		c.at++ // the colon
		if err := c.value(depth + 1); err != nil {
			return err
		}
		c.dst = append(c.dst, ',')
		if m.end = len(c.dst); depth == 0 && slices.Contains(c.leave, m.key) {
			c.dst = c.dst[:m.start]
			continue
		}
		members = append(members, m)
	}
	c.sort(begin, members)
	c.dst = append(bytes.TrimSuffix(c.dst, []byte(",")), '}')
	return nil
}

// sort puts the members, which dst holds from begin on, in the order of their keys.
func (c *canonicalizer) sort(begin int, members []member) {
	sorted := true
	for i := 1; i < len(members); i++ {
		sorted = sorted && members[i-1].key < members[i].key
	}
	if sorted {
		return
	}
	slices.SortStableFunc(members, func(a, b member) int { return strings.Compare(a.key, b.key) })
	out := make([]byte, 0, len(c.dst)-begin)
	for i, m := range members {
		if i+1 == len(members) || members[i+1].key != m.key {
			out = append(out, c.dst[m.start:m.end]...)
		}
	}
	c.dst = append(c.dst[:begin], out...)
}

// appendText appends the string that is next, in one spelling.
func (c *canonicalizer) appendText(dst []byte) []byte {
	start := c.at
	text, escaped := unquote(c.src, start)
	c.at = skipValue(c.src, start)
	if !escaped {
		return append(dst, c.src[start:c.at]...)
	}
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(text); i++ {
		if text[i] < ' ' || text[i] == '"' || text[i] == '\\' { // not as JSON has it, but one spelling
			dst = append(append(dst, text[from:i]...), '\\')
			from = i
		}
	}
	return append(append(dst, text[from:]...), '"')
}

// unquote reads the string that begins at a position of valid JSON. escaped: it is written with backslashes.
func unquote(data []byte, at int) (text string, escaped bool) {
	quoted := data[at:skipValue(data, at)]
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1]), false
	}
	_ = json.Unmarshal(quoted, &text) // it is valid
	return text, true
}

// skipSpace is the position of what is not white space.
func skipSpace(data []byte, at int) int {
	for at < len(data) && (data[at] == ' ' || data[at] == '\n' || data[at] == '\t' || data[at] == '\r') {
		at++
	}
	return at
}

// skipValue is the position behind the value that begins at a position of valid JSON.
func skipValue(data []byte, at int) int {
	for depth := 0; ; {
		switch c := data[at]; c {
		case '"':
			for at++; data[at] != '"'; at++ {
				if data[at] == '\\' {
					at++
				}
			}
			at++
		case '{', '[':
			depth++
			at++
			continue
		case '}', ']':
			depth--
			at++
		default:
			begin := at
			for at < len(data) && bytes.IndexByte([]byte(" \n\t\r,:]}"), data[at]) < 0 {
				at++
			}
			if at == begin { // white space, a comma or a colon
				at++
				continue
			}
		}
		if depth == 0 {
			return at
		}
	}
}

// number is one spelling for each number: 17, 17.0 and 1.7e1 are the same. Digits without a point, then the power of ten.
func number(s string) string {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(s), "e")
	sign := ""
	if strings.HasPrefix(mantissa, "-") {
		sign, mantissa = "-", mantissa[1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0"
	}
	power := 0
	if exponent != "" {
		var err error
		if power, err = strconv.Atoi(exponent); err != nil || power > 1<<40 || power < -1<<40 {
			return s
		}
	}
	short := strings.TrimRight(digits, "0")
	power += len(digits) - len(short) - len(fraction)
	if power == 0 {
		return sign + short
	}
	return sign + short + "e" + strconv.Itoa(power)
}
