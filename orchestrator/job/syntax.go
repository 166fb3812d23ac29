package job

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

var yamlLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

// notYAML says of a file that the parser refuses what is wrong in which line, and what to write instead where the line shows it.
func notYAML(file string, data []byte, err error) Problem {
	p := Problem{File: file}
	if line := indentedByTab(data); line > 0 {
		p.Line, p.Column, p.Text = line, 1, "a tab indents this line, and YAML takes blanks only; write two spaces for each tab"
		return p
	}
	if strings.Contains(err.Error(), "UTF-8") {
		p.Line, p.Column = notUTF8(data)
		p.Text = "the line is not UTF-8; save the file as UTF-8"
		return p
	}
	m := yamlLine.FindStringSubmatch(err.Error())
	if m == nil {
		p.Line, p.Column = whereBroken(data, err)
		p.Text = "not YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")
		return p
	}
	said := err.Error()[len(m[0]):]
	p.Line, _ = strconv.Atoi(m[1])
	lines := strings.Split(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")
	if n := firstBroken(data, lines); n > 0 {
		p.Line = n
	}
	p.Column, p.Text = 1, "not YAML: "+said
	if line, column, what := remedy(lines, max(1, min(p.Line, len(lines))), said); what != "" {
		p.Line, p.Column, p.Text = line, column, fmt.Sprintf("%s (not YAML: %s)", what, said)
	}
	return p
}

// mostLines and mostBytes are how long a file may be that is parsed line by line.
const (
	mostLines = 500
	mostBytes = 64 << 10
)

// firstBroken is the line behind the longest beginning of the file that is YAML: the parser tells where the block begins in which it gave up, or the
// line where it noticed. 0: the file is too long to look.
func firstBroken(data []byte, lines []string) int {
	if len(lines) > mostLines || len(data) > mostBytes {
		return 0
	}
	for n := len(lines) - 1; n > 0; n-- {
		if faultOf([]byte(strings.Join(lines[:n], "\n")+"\n")) == nil {
			return n + 1
		}
	}
	return 1
}

// faultOf is the parser's error of a file's documents; nil: they are YAML.
func faultOf(data []byte) error {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		switch err := dec.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

var (
	glued   = regexp.MustCompile(`^\s*(?:- )?[A-Za-z_][\w.-]*(:)[^\s:/\\]`)
	opened  = regexp.MustCompile(`(?:^|[:,\[{]\s+|-\s+)(["'])`)
	special = regexp.MustCompile("(?:^|[:,]\\s+|-\\s+)([@%`])")
)

// remedy reads off a line that is no YAML what its writer forgot, and where; "": it does not show.
func remedy(lines []string, at int, said string) (line, column int, what string) {
	text := lines[at-1]
	before, above := "", 0
	for n := at - 1; n > 0 && above == 0; n-- {
		if t := strings.TrimSpace(lines[n-1]); t != "" && !strings.HasPrefix(t, "#") {
			before, above = lines[n-1], n
		}
	}
	here := func(i int, what string) (int, int, string) { return at, utf8.RuneCountInString(text[:i]) + 1, what }
	if m := special.FindStringSubmatchIndex(text); m != nil && strings.Contains(said, "cannot start any token") {
		return here(m[2], fmt.Sprintf("a text that begins with %s needs quotes", text[m[2]:m[3]]))
	}
	if m := opened.FindStringSubmatchIndex(text); m != nil && strings.Contains(said, "unexpected end of stream") {
		return here(m[2], "the quote that opens here is not closed")
	}
	const noBlank = "a blank is missing behind the colon; write key: value"
	if m := glued.FindStringSubmatchIndex(text); m != nil {
		return here(m[2], noBlank)
	}
	if m := glued.FindStringSubmatchIndex(before); m != nil { // which alone is a text, and YAML
		return above, utf8.RuneCountInString(before[:m[2]]) + 1, noBlank
	}
	if i := secondColon(text); i >= 0 {
		return here(i, "a text with a colon and a blank in it needs quotes")
	}
	if i := openBracket(text); i >= 0 {
		return here(i, fmt.Sprintf("the bracket %c that opens here is not closed", text[i]))
	}
	blanks := func(s string) int { return len(s) - len(strings.TrimLeft(s, " ")) }
	if own, others := blanks(text), blanks(before); own != others && strings.Contains(text, ":") {
		return here(own, fmt.Sprintf("this line begins in column %d and the one before it in column %d; what belongs to one block begins in one column", own+1, others+1))
	}
	return 0, 0, ""
}

// secondColon is the place of a colon with a blank behind it in a value without quotes; -1: there is none.
func secondColon(text string) int {
	key := strings.Index(text, ": ")
	if key < 0 {
		return -1
	}
	value := strings.TrimLeft(text[key+2:], " ")
	if strings.HasPrefix(value, "{") { // a flow mapping with one key
		inner := secondColon(strings.TrimRight(value[1:], "}, "))
		if inner < 0 || strings.ContainsAny(value[1:1+inner], ",{}[]") {
			return -1
		}
		return len(text) - len(value) + 1 + inner
	}
	if value == "" || strings.ContainsAny(value[:1], "\"'[{|>&*!#") {
		return -1
	}
	if i := strings.Index(value, ": "); i >= 0 {
		return len(text) - len(value) + i
	}
	return -1
}

// openBracket is the place of the last bracket of a line that the line does not close; -1: there is none. What stands in quotes is text.
func openBracket(text string) int {
	var open []int
	quote := byte(0)
	for i := range len(text) {
		switch c := text[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'' && (i == 0 || strings.IndexByte(" [{,:", text[i-1]) >= 0):
			quote = c
		case c == '[' || c == '{':
			open = append(open, i)
		case (c == ']' || c == '}') && len(open) > 0:
			if (c == ']') != (text[open[len(open)-1]] == '[') { // of the other kind: the one that opened last is not closed
				return open[len(open)-1]
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) == 0 {
		return -1
	}
	return open[len(open)-1]
}

var unknownAnchor = regexp.MustCompile(`unknown anchor '(.*)' referenced$`)

// whereBroken is the place of an error that the parser tells without one: the line with which a file that ends there has it too.
func whereBroken(data []byte, err error) (line, column int) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	line = 1 + sort.Search(len(lines)-1, func(n int) bool {
		fault := faultOf(bytes.Join(lines[:n+1], nil))
		return fault != nil && fault.Error() == err.Error()
	})
	if m := unknownAnchor.FindStringSubmatch(err.Error()); m != nil {
		if before, _, found := bytes.Cut(lines[line-1], []byte("*"+m[1])); found {
			return line, utf8.RuneCount(before) + 1
		}
	}
	return line, 1
}

// notUTF8 is the place of the first byte that is not UTF-8.
func notUTF8(data []byte) (line, column int) {
	line, column = 1, 1
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if r == utf8.RuneError && size == 1 {
			return line, column
		}
		if column++; r == '\n' {
			line, column = line+1, 1
		}
		data = data[size:]
	}
	return 1, 1
}

// indentedByTab is the first line that begins with a tab, behind blanks or not; 0: there is none.
func indentedByTab(data []byte) int {
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if rest := bytes.TrimLeft(text, " "); len(rest) > 0 && rest[0] == '\t' && len(bytes.TrimSpace(rest)) > 0 {
			return line
		}
	}
	return 0
}
