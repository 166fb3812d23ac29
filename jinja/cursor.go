package jinja

import "fmt"

// cursor is a place in the tokens of a template, the last of which is eof. It also counts how deep the parsers are nested there.
type cursor struct {
	tokens []token
	pos    int
	depth  int
}

func (c *cursor) cur() *token { return &c.tokens[c.pos] }

// look is the token after the current one.
func (c *cursor) look() *token { return &c.tokens[min(c.pos+1, len(c.tokens)-1)] }

func (c *cursor) next() *token {
	t := c.cur()
	if c.pos < len(c.tokens)-1 {
		c.pos++
	}
	return t
}

func (c *cursor) skipIf(kind string) bool {
	if c.cur().is(kind) {
		c.next()
		return true
	}
	return false
}

func (c *cursor) skipKeyword(name string) bool {
	if c.cur().keyword(name) {
		c.next()
		return true
	}
	return false
}

// skipAny skips an operator or keyword that is one of the words, and says which; "" where the next token is none of them.
func (c *cursor) skipAny(words ...string) string {
	for _, w := range words {
		if c.skipIf(w) || c.skipKeyword(w) {
			return w
		}
	}
	return ""
}

func (c *cursor) expect(kind string) (*token, error) {
	t := c.cur()
	if t.kind == kind {
		return c.next(), nil
	}
	if t.kind == tokEOF {
		return nil, syntaxError(t.line, "unexpected end of template, expected %q", kind)
	}
	return nil, syntaxError(t.line, "expected token %q, got %q", kind, describe(t))
}

func (c *cursor) expectKeyword(name string) error {
	if t := c.cur(); !t.keyword(name) {
		return syntaxError(t.line, "expected token %q, got %q", name, describe(t))
	}
	c.next()
	return nil
}

// enter counts a level of nesting; every call is followed by a deferred leave.
func (c *cursor) enter() error {
	if c.depth++; c.depth > maxNest {
		return syntaxError(c.cur().line, "nested deeper than %d levels", maxNest)
	}
	return nil
}

func (c *cursor) leave() { c.depth-- }

// dotted parses the name of a filter or test.
func (c *cursor) dotted() (string, int, error) {
	t, err := c.expect(tokName)
	if err != nil {
		return "", 0, err
	}
	name := t.text
	for c.skipIf(".") {
		part, err := c.expect(tokName)
		if err != nil {
			return "", 0, err
		}
		name += "." + part.text
	}
	return name, t.line, nil
}

func describe(t *token) string {
	if t.kind == tokName {
		return t.text
	}
	return t.kind
}

func syntaxError(line int, format string, args ...any) error {
	return &CompileError{Line: line, Description: fmt.Sprintf(format, args...)}
}

func refuse(line int, construct, why string) error {
	return &CompileError{Line: line, Construct: construct, Description: why}
}
