package jinja

import (
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// token kinds are jinja2's names of them; an operator's kind is the operator itself.
const (
	tokEOF           = "eof"
	tokData          = "data"
	tokVariableBegin = "variable_begin"
	tokVariableEnd   = "variable_end"
	tokBlockBegin    = "block_begin"
	tokBlockEnd      = "block_end"
	tokName          = "name"
	tokString        = "string"
	tokInteger       = "integer"
	tokFloat         = "float"
)

type token struct {
	kind string
	text string
	num  any // of integer and float
	line int
}

func (t *token) is(kind string) bool      { return t.kind == kind }
func (t *token) keyword(name string) bool { return t.kind == tokName && t.text == name }

// lexer splits a template as jinja2/lexer.py does with trim_blocks and lstrip_blocks.
type lexer struct {
	src      string
	pos      int
	line     int
	newLine  bool // the last match ended with a line feed, or nothing was matched yet
	tokens   []token
	brackets []byte // closing brackets that are due inside a tag
}

var (
	rawBegin   = regexp.MustCompile(`^\{%([-+]?)` + space + `raw` + space + `(?:-%\}` + space + `|%\})`)
	rawEnd     = regexp.MustCompile(`\{%([-+]?)` + space + `endraw` + space + `(?:\+%\}|-%\}` + space + `|%\}\n?)`)
	commentEnd = regexp.MustCompile(`\+#\}|-#\}` + space + `|#\}\n?`)
	blockEnd   = regexp.MustCompile(`^(?:\+%\}|-%\}` + space + `|%\}\n?)`)
	varEnd     = regexp.MustCompile(`^(?:-\}\}` + space + `|\}\})`)
	floatRule  = regexp.MustCompile(`^(?:[0-9]+_)*[0-9]+(?:(?:\.(?:[0-9]+_)*[0-9]+)?[eE][+\-]?(?:[0-9]+_)*[0-9]+|\.(?:[0-9]+_)*[0-9]+)`)
	intRule    = regexp.MustCompile(`^(?:0[bB](?:_?[01])+|0[oO](?:_?[0-7])+|0[xX](?:_?[0-9a-fA-F])+|[1-9](?:_?[0-9])*|0(?:_?0)*)`)
	stringRule = regexp.MustCompile(`^(?s:'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*")`)
)

// space is Python's \s*: Unicode white space and the four information separators.
const space = `[\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]*`

func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

func rstrip(s string) string { return strings.TrimRightFunc(s, isSpace) }

func (l *lexer) fail(format string, args ...any) error {
	return &CompileError{Line: l.line, Description: fmt.Sprintf(format, args...)}
}

func (l *lexer) emit(kind, text string) {
	l.tokens = append(l.tokens, token{kind: kind, text: text, line: l.line})
}

// tokenize returns the tokens of a template, the last of kind eof.
func tokenize(source string) ([]token, error) {
	if !utf8.ValidString(source) {
		return nil, &CompileError{Line: 1, Description: "the template is not valid UTF-8"}
	}
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	l := &lexer{src: strings.TrimSuffix(source, "\n"), line: 1, newLine: true}
	for l.pos < len(l.src) {
		if err := l.root(); err != nil {
			return nil, err
		}
	}
	l.emit(tokEOF, "")
	return l.tokens, nil
}

// advance consumes n bytes as one match of a rule.
func (l *lexer) advance(n int) string {
	text := l.src[l.pos : l.pos+n]
	l.pos += n
	l.line += strings.Count(text, "\n")
	l.newLine = strings.HasSuffix(text, "\n")
	return text
}

// root handles text up to the next tag, and that tag.
func (l *lexer) root() error {
	rest := l.src[l.pos:]
	at := -1
	for i := 0; i+1 < len(rest); i++ {
		if rest[i] == '{' && (rest[i+1] == '{' || rest[i+1] == '%' || rest[i+1] == '#') {
			at = i
			break
		}
	}
	if at < 0 {
		l.emit(tokData, rest)
		l.advance(len(rest))
		return nil
	}
	tag, wide := rest[at+1], 2
	raw := rawBegin.FindStringSubmatch(rest[at:])
	var sign byte
	switch {
	case tag == '%' && raw != nil:
		wide = len(raw[0])
		if raw[1] != "" {
			sign = raw[1][0]
		}
	case at+2 < len(rest) && (rest[at+2] == '-' || rest[at+2] == '+'):
		sign, wide = rest[at+2], 3
	}
	l.data(rest[:at], sign, tag != '{')
	if tag == '%' && raw != nil {
		l.advance(at + wide)
		return l.raw()
	}
	first := l.line + strings.Count(rest[:at], "\n")
	l.advance(at + wide)
	switch tag {
	case '#':
		m := commentEnd.FindStringIndex(l.src[l.pos:])
		if m == nil {
			return l.fail("Missing end of comment tag")
		}
		l.advance(m[1])
		return nil
	case '{':
		l.tokens = append(l.tokens, token{kind: tokVariableBegin, line: first})
		return l.tag(varEnd, tokVariableEnd)
	default:
		l.tokens = append(l.tokens, token{kind: tokBlockBegin, line: first})
		return l.tag(blockEnd, tokBlockEnd)
	}
}

// data emits the text before a tag after the stripping that the tag asks for.
func (l *lexer) data(text string, sign byte, block bool) {
	switch {
	case sign == '-':
		text = rstrip(text)
	case sign != '+' && block:
		start := strings.LastIndexByte(text, '\n') + 1
		if (start > 0 || l.newLine) && rstrip(text[start:]) == "" {
			text = text[:start]
		}
	}
	if text != "" {
		l.emit(tokData, text)
	}
}

func (l *lexer) raw() error {
	m := rawEnd.FindStringSubmatchIndex(l.src[l.pos:])
	if m == nil {
		return l.fail("Missing end of raw directive")
	}
	var sign byte
	if m[3] > m[2] {
		sign = l.src[l.pos+m[2]]
	}
	l.data(l.src[l.pos:l.pos+m[0]], sign, true)
	l.advance(m[1])
	return nil
}

// tag emits the tokens of a tag up to its end.
func (l *lexer) tag(end *regexp.Regexp, kind string) error {
	l.brackets = l.brackets[:0]
	for l.pos < len(l.src) {
		rest := l.src[l.pos:]
		if len(l.brackets) == 0 {
			if m := end.FindString(rest); m != "" {
				l.emit(kind, "")
				l.advance(len(m))
				return nil
			}
		}
		if err := l.inTag(rest); err != nil {
			return err
		}
	}
	return nil // the parser reports the missing end
}

func (l *lexer) inTag(rest string) error {
	r, size := utf8.DecodeRuneInString(rest)
	switch {
	case isSpace(r):
		l.advance(size)
		return nil
	case r >= '0' && r <= '9':
		return l.number(rest)
	case r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) || r >= 0x80:
		n := strings.IndexFunc(rest, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && r < 0x80 })
		if n < 0 {
			n = len(rest)
		}
		for i := 0; i < n; i++ {
			if rest[i] >= 0x80 {
				return &CompileError{Line: l.line, Construct: rest[:n], Description: "names outside ASCII are not supported"}
			}
		}
		l.emit(tokName, rest[:n])
		l.advance(n)
		return nil
	case r == '\'' || r == '"':
		m := stringRule.FindString(rest)
		if m == "" {
			return l.fail("unexpected char %q at %d", r, l.pos)
		}
		text, err := l.unescape(m[1 : len(m)-1])
		if err != nil {
			return err
		}
		l.emit(tokString, text)
		l.advance(len(m))
		return nil
	}
	return l.operator(rest)
}

func (l *lexer) number(rest string) error {
	if l.pos == 0 || l.src[l.pos-1] != '.' {
		if m := floatRule.FindString(rest); m != "" {
			f, err := strconv.ParseFloat(strings.ReplaceAll(m, "_", ""), 64)
			if err != nil && f == 0 {
				return l.fail("malformed number %q", m)
			}
			l.tokens = append(l.tokens, token{kind: tokFloat, text: m, num: f, line: l.line})
			l.advance(len(m))
			return nil
		}
	}
	m := intRule.FindString(rest)
	digits := strings.ReplaceAll(m, "_", "")
	base := 0
	if strings.Trim(digits, "0") == "" {
		digits = "0"
	}
	n, ok := new(big.Int).SetString(digits, base)
	if !ok || len(digits) > maxDigits {
		return l.fail("malformed number %q", m)
	}
	l.tokens = append(l.tokens, token{kind: tokInteger, text: m, num: normInt(n), line: l.line})
	l.advance(len(m))
	return nil
}

func (l *lexer) operator(rest string) error {
	n := 0
	if len(rest) > 1 {
		switch rest[:2] {
		case "//", "**", "==", "!=", ">=", "<=":
			n = 2
		}
	}
	if n == 0 && strings.IndexByte("+-/*%~[](){}><=.:|,;", rest[0]) >= 0 {
		n = 1
	}
	if n == 0 {
		r, _ := utf8.DecodeRuneInString(rest)
		return l.fail("unexpected char %q at %d", r, l.pos)
	}
	op := rest[:n]
	switch op {
	case "{":
		l.brackets = append(l.brackets, '}')
	case "(":
		l.brackets = append(l.brackets, ')')
	case "[":
		l.brackets = append(l.brackets, ']')
	case "}", ")", "]":
		if len(l.brackets) == 0 {
			return l.fail("unexpected '%s'", op)
		}
		want := l.brackets[len(l.brackets)-1]
		l.brackets = l.brackets[:len(l.brackets)-1]
		if want != op[0] {
			return l.fail("unexpected '%s', expected '%c'", op, want)
		}
	}
	l.emit(op, op)
	l.advance(n)
	return nil
}

// unescape decodes a string literal as Python does: non-ASCII text becomes escapes, then all escapes are decoded.
func (l *lexer) unescape(s string) (string, error) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	var ascii strings.Builder
	for _, r := range s {
		switch {
		case r < 0x80:
			ascii.WriteByte(byte(r))
		case r < 0x100:
			fmt.Fprintf(&ascii, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&ascii, `\u%04x`, r)
		default:
			fmt.Fprintf(&ascii, `\U%08x`, r)
		}
	}
	in := ascii.String()
	var out strings.Builder
	for i := 0; i < len(in); i++ {
		if in[i] != '\\' || i+1 == len(in) {
			out.WriteByte(in[i])
			continue
		}
		i++
		switch c := in[i]; c {
		case '\n':
		case 'x', 'u', 'U':
			digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			n, err := strconv.ParseUint(in[i+1:min(i+1+digits, len(in))], 16, 32)
			if err != nil || i+1+digits > len(in) || n > unicode.MaxRune {
				return "", l.fail("truncated \\%c escape in a string", c)
			}
			if n >= 0xd800 && n < 0xe000 {
				return "", &CompileError{Line: l.line, Construct: in[i-1 : i+1+digits], Description: "a lone surrogate cannot be written as UTF-8"}
			}
			out.WriteRune(rune(n))
			i += digits
		case '0', '1', '2', '3', '4', '5', '6', '7':
			j := i
			for j < len(in) && j < i+3 && in[j] >= '0' && in[j] <= '7' {
				j++
			}
			n, err := strconv.ParseUint(in[i:j], 8, 32)
			if err != nil {
				return "", l.fail("malformed octal escape in a string")
			}
			out.WriteRune(rune(n))
			i = j - 1
		case 'N':
			return "", &CompileError{Line: l.line, Construct: `\N{…}`, Description: "character names are not supported"}
		default:
			if k := strings.IndexByte(`abfnrtv\'"`, c); k >= 0 {
				out.WriteByte("\a\b\f\n\r\t\v\\'\""[k])
			} else {
				out.WriteByte('\\')
				out.WriteByte(c)
			}
		}
	}
	return out.String(), nil
}
