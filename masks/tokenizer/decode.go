package tokenizer

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// decoder turns tokens back into text. Its steps repeat decode_chain of the library.
type decoder struct {
	steps []decodeStep
	join  string // between the tokens at the end: " " where the file has no decoder
}

// decodeStep changes a list of tokens. one is its effect on the bytes of a single token, for streaming.
type decodeStep struct {
	all func(tokens []string) []string
	one func(token string) string
}

func (d decoder) text(tokens []string) string {
	for _, s := range d.steps {
		tokens = s.all(tokens)
	}
	return strings.Join(tokens, d.join)
}

func (d decoder) bytes(token string) []byte {
	for _, s := range d.steps {
		token = s.one(token)
	}
	return []byte(token)
}

// each makes a step of a function on single tokens.
func each(one func(string) string) decodeStep {
	return decodeStep{
		one: one,
		all: func(tokens []string) []string {
			out := make([]string, len(tokens))
			for i, t := range tokens {
				out[i] = one(t)
			}
			return out
		},
	}
}

func same(token string) string { return token }

// decodeByteLevel: a token whose characters all spell bytes is those bytes, any other is its own text.
func decodeByteLevel(l *letters) decodeStep {
	one := func(token string) string {
		if raw, ok := l.raw(token); ok {
			return raw
		}
		return token
	}
	return decodeStep{one: one, all: func(tokens []string) []string {
		var out strings.Builder
		for _, t := range tokens {
			out.WriteString(one(t))
		}
		return []string{lossy(out.String())}
	}}
}

// byteToken reads <0xXX>.
func byteToken(token string) (byte, bool) {
	if len(token) != 6 || !strings.HasPrefix(token, "<0x") || token[5] != '>' {
		return 0, false
	}
	v, err := strconv.ParseUint(strings.TrimPrefix(token[3:5], "+"), 16, 8)
	return byte(v), err == nil
}

// decodeFallback joins runs of byte tokens; a run that is not valid UTF-8 becomes one U+FFFD a byte.
func decodeFallback() decodeStep {
	return decodeStep{
		one: func(token string) string {
			if b, ok := byteToken(token); ok {
				return string([]byte{b})
			}
			return token
		},
		all: func(tokens []string) []string {
			var out []string
			var run []byte
			flush := func() {
				if utf8.Valid(run) {
					out = append(out, string(run))
				} else {
					out = append(out, strings.Repeat("\uFFFD", len(run)))
				}
				run = run[:0]
			}
			for _, t := range tokens {
				if b, ok := byteToken(t); ok {
					run = append(run, b)
					continue
				}
				if len(run) > 0 {
					flush()
				}
				out = append(out, t)
			}
			if len(run) > 0 {
				flush()
			}
			return out
		},
	}
}

func decodeFuse() decodeStep {
	return decodeStep{one: same, all: func(tokens []string) []string { return []string{strings.Join(tokens, "")} }}
}

// decodeStrip takes up to start characters equal to content from the front of each token, and up to stop from its
// back. In a stream it does nothing, because what it strips is known only once tokens are fused.
func decodeStrip(content string, start, stop int) decodeStep {
	strip := func(token string) string {
		for i := 0; i < start && strings.HasPrefix(token, content); i++ {
			token = token[len(content):]
		}
		for i := 0; i < stop && strings.HasSuffix(token, content); i++ {
			token = token[:len(token)-len(content)]
		}
		return token
	}
	s := each(strip)
	s.one = same
	return s
}

// decodeMetaspace turns the replacement into a space, and drops it in the first token unless scheme is "never".
func decodeMetaspace(replacement, scheme string) decodeStep {
	spaces := func(token string) string { return strings.ReplaceAll(token, replacement, " ") }
	return decodeStep{one: spaces, all: func(tokens []string) []string {
		out := make([]string, len(tokens))
		for i, t := range tokens {
			if i == 0 && scheme != "never" {
				out[i] = strings.ReplaceAll(t, replacement, "")
			} else {
				out[i] = spaces(t)
			}
		}
		return out
	}}
}
