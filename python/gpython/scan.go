package gpython

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Kinds of tokens.
const (
	name = iota
	number
	text
	operator
	newline // the end of a logical line
)

// token is a piece of a source file. Comments and line ends within a statement are none.
type token struct {
	kind         int
	text         string
	start, end   int    // bytes
	line, column int    // from 1; a column counts characters
	first        bool   // it begins a statement
	within       string // the open brackets around it, the innermost one last
}

// operators of more than one character that matter; everything else is one character.
var operators = []string{"**=", "//=", ">>=", "<<=", "...", "**", "//", ">>", "<<", ":=", "->", "==", "!=", "<=", ">=", "+=", "-=", "*=", "/=", "%=", "@=", "&=", "|=", "^="}

// scan splits a source file into tokens. It accepts everything: what is wrong is the parser's to say.
func scan(source string) (tokens []token) {
	line, lineStart, first, within := 1, 0, true, ""
	for at := 0; at < len(source); {
		r, size := utf8.DecodeRuneInString(source[at:])
		t := token{start: at, line: line, column: utf8.RuneCountInString(source[lineStart:at]) + 1, first: first, within: within}
		switch {
		case r == '\n':
			if within == "" && !first {
				tokens = append(tokens, token{kind: newline, text: "\n", start: at, end: at + 1, line: line, column: t.column})
				first = true
			}
			at, line, lineStart = at+1, line+1, at+1
			continue
		case r == '#':
			for at < len(source) && source[at] != '\n' {
				at++
			}
			continue
		case r == '\\' && strings.HasPrefix(source[at:], "\\\n"):
			at, line, lineStart = at+2, line+1, at+2
			continue
		case unicode.IsSpace(r):
			at += size
			continue
		}
		t.kind, t.end = next(source, at, r)
		t.text = source[at:t.end]
		if t.kind == operator {
			switch t.text {
			case "(", "[", "{":
				within += t.text
			case ")", "]", "}":
				within = within[:max(len(within)-1, 0)]
			}
		}
		first = t.text == ";" && within == ""
		line += strings.Count(t.text, "\n")
		if i := strings.LastIndexByte(t.text, '\n'); i >= 0 {
			lineStart = at + i + 1
		}
		at = t.end
		tokens = append(tokens, t)
	}
	return tokens
}

// next reads the token that begins at a byte.
func next(source string, at int, r rune) (kind, end int) {
	rest := source[at:]
	if n := quoted(rest); n > 0 {
		return text, at + n
	}
	is := func(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) || c == '_' }
	length := func(good func(rune) bool) int {
		if i := strings.IndexFunc(rest, func(c rune) bool { return !good(c) }); i >= 0 {
			return i
		}
		return len(rest)
	}
	switch {
	case unicode.IsDigit(r) || r == '.' && len(rest) > 1 && rest[1] >= '0' && rest[1] <= '9':
		whole := true // a second point, or one after an exponent or in a number of another base, begins an attribute
		return number, at + length(func(c rune) bool {
			if c == '.' && whole {
				whole = false
				return true
			}
			whole = whole && unicode.IsDigit(c)
			return is(c)
		})
	case is(r):
		return name, at + length(is)
	}
	for _, o := range operators {
		if strings.HasPrefix(rest, o) {
			return operator, at + len(o)
		}
	}
	_, size := utf8.DecodeRuneInString(rest)
	return operator, at + size
}

// quoted is the length of the string literal that a text begins with; 0: none. An open one ends with its line, or with the file.
func quoted(s string) int {
	at := strings.IndexAny(s, `"'`)
	if at < 0 || at > 2 || strings.Trim(s[:at], "rRbBuUfF") != "" {
		return 0
	}
	quote := s[at : at+1]
	if strings.HasPrefix(s[at:], strings.Repeat(quote, 3)) {
		quote = s[at : at+3]
	}
	for i := at + len(quote); i < len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case strings.HasPrefix(s[i:], quote):
			return i + len(quote)
		case s[i] == '\n' && len(quote) == 1:
			return i
		}
	}
	return len(s)
}

// modulo stands for % in rewritten code: gpython formats strings with Go's fmt. x % y and x * modulo * y bind alike.
const modulo = "_agentfly_modulo"

// program is a source file as gpython gets it.
type program struct {
	source string
	lines  []int          // of the appended lines: where they stand in the file
	own    int            // lines of the file
	at     map[string]int // the line of a decorated function's decorators
}

// line is where a line of the rewritten file stands in the file.
func (p program) line(n int) int {
	if i := n - p.own - 1; i >= 0 && i < len(p.lines) {
		return p.lines[i]
	}
	return n
}

// rewrite works around what gpython compiles wrongly. Decorators of functions that have a default or an annotation: they become lines
// name = decorator(name) at the end, so that all others keep their numbers. The operator % becomes modulo.
func rewrite(source string) program {
	source = strings.TrimSuffix(strings.ReplaceAll(source, "\r\n", "\n"), "\n") + "\n"
	var out strings.Builder
	last := 0
	for _, t := range scan(source) {
		if t.kind == operator && t.text == "%" {
			out.WriteString(source[last:t.start] + " * " + modulo + " * ")
			last = t.end
		}
	}
	source = out.String() + source[last:]
	p := program{own: strings.Count(source, "\n"), at: map[string]int{}}
	b := []byte(source)
	var tail strings.Builder
	tokens := scan(source)
	for i := 0; i < len(tokens); i++ {
		if !tokens[i].first || tokens[i].text != "@" || tokens[i].column != 1 {
			continue
		}
		var applied []string
		first := tokens[i].line
		for i < len(tokens) && tokens[i].text == "@" {
			end := i + 1
			for end < len(tokens) && tokens[end].kind != newline {
				end++
			}
			from, to := tokens[i].start, tokens[end-1].end
			applied = append(applied, source[from+1:to])
			for k := from; k < to; k++ {
				if b[k] != '\n' {
					b[k] = ' '
				}
			}
			i = end + 1
		}
		if i+1 >= len(tokens) {
			break
		}
		target := tokens[i+1].text // after def or class
		p.at[target] = first
		for k := len(applied) - 1; k >= 0; k-- {
			line := target + " = " + strings.TrimSpace(applied[k]) + "(" + target + ")\n"
			tail.WriteString(line)
			for range strings.Count(line, "\n") {
				p.lines = append(p.lines, first)
			}
		}
	}
	p.source = string(b) + tail.String()
	return p
}
