package jinja

import "fmt"

// Bounds of the parser: Python gives up at about the same sizes.
const (
	maxSource = 4 << 20 // bytes
	maxNest   = 200     // nested expressions and blocks
	maxChain  = 1000    // operands of one chain of binary operators, elifs of one if
)

// parser is jinja2/parser.py.
type parser struct {
	tokens []token
	pos    int
	depth  int
}

func (p *parser) cur() *token { return &p.tokens[p.pos] }

func (p *parser) look() *token { return &p.tokens[min(p.pos+1, len(p.tokens)-1)] }

func (p *parser) next() *token {
	t := p.cur()
	if p.pos < len(p.tokens)-1 {
		p.pos++
	}
	return t
}

func (t *token) is(kind string) bool      { return t.kind == kind }
func (t *token) keyword(name string) bool { return t.kind == tokName && t.text == name }

func (p *parser) skipIf(kind string) bool {
	if p.cur().is(kind) {
		p.next()
		return true
	}
	return false
}

func (p *parser) skipKeyword(name string) bool {
	if p.cur().keyword(name) {
		p.next()
		return true
	}
	return false
}

func (p *parser) fail(line int, format string, args ...any) error {
	return &CompileError{Line: line, Description: fmt.Sprintf(format, args...)}
}

func refuse(line int, construct, why string) error {
	return &CompileError{Line: line, Construct: construct, Description: why}
}

func describe(t *token) string {
	if t.kind == tokName {
		return t.text
	}
	return t.kind
}

func (p *parser) expect(kind string) (*token, error) {
	t := p.cur()
	if t.kind == kind {
		return p.next(), nil
	}
	if t.kind == tokEOF {
		return nil, p.fail(t.line, "unexpected end of template, expected %q", kind)
	}
	return nil, p.fail(t.line, "expected token %q, got %q", kind, describe(t))
}

func (p *parser) expectKeyword(name string) error {
	if t := p.cur(); !t.keyword(name) {
		return p.fail(t.line, "expected token %q, got %q", name, describe(t))
	}
	p.next()
	return nil
}

// enter counts a level of nesting; every call is followed by a deferred leave.
func (p *parser) enter() error {
	if p.depth++; p.depth > maxNest {
		return p.fail(p.cur().line, "nested deeper than %d levels", maxNest)
	}
	return nil
}

func (p *parser) leave() { p.depth-- }

// parse returns the statements of a template.
func parse(source string) ([]node, error) {
	if len(source) > maxSource {
		return nil, &CompileError{Line: 1, Description: fmt.Sprintf("the template is larger than %d bytes", maxSource)}
	}
	tokens, err := tokenize(source)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	return p.statements()
}

// body parses the statements of a block up to one of the end tags, whose name it returns; the end tag is consumed up to,
// not including, the end of its block.
func (p *parser) body(ends ...string) ([]node, string, error) {
	p.skipIf(":")
	if _, err := p.expect(tokBlockEnd); err != nil {
		return nil, "", err
	}
	nodes, err := p.statements(ends...)
	if err != nil {
		return nil, "", err
	}
	if p.cur().is(tokEOF) {
		return nil, "", p.fail(p.cur().line, "Unexpected end of template. Jinja was looking for the following tags: %q", ends)
	}
	return nodes, p.next().text, nil
}

func (p *parser) statements(ends ...string) ([]node, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	var out []node
	var data *outputNode
	add := func(n node, line int) {
		if data == nil {
			data = &outputNode{line: line}
			out = append(out, data)
		}
		data.items, data.lines = append(data.items, n), append(data.lines, line)
	}
	for !p.cur().is(tokEOF) {
		t := p.next()
		switch t.kind {
		case tokData:
			add(&dataNode{text: t.text}, t.line)
		case tokVariableBegin:
			n, err := p.tuple(tupleOptions{cond: true})
			if err != nil {
				return nil, err
			}
			if _, err := p.expect(tokVariableEnd); err != nil {
				return nil, err
			}
			add(n, t.line)
		case tokBlockBegin:
			data = nil
			for _, end := range ends {
				if p.cur().keyword(end) {
					return out, nil
				}
			}
			n, err := p.statement()
			if err != nil {
				return nil, err
			}
			out = append(out, n)
			if _, err := p.expect(tokBlockEnd); err != nil {
				return nil, err
			}
		default:
			return nil, p.fail(t.line, "unexpected %q", describe(t))
		}
	}
	return out, nil
}

// refused are jinja2's statements that are not rendered here.
var refused = map[string]string{
	"block": "template inheritance is not supported", "extends": "template inheritance is not supported",
	"include": "there is no loader of other templates", "import": "there is no loader of other templates",
	"from": "there is no loader of other templates", "autoescape": "automatic escaping is not supported",
}

func (p *parser) statement() (node, error) {
	t := p.cur()
	if !t.is(tokName) {
		return nil, p.fail(t.line, "tag name expected")
	}
	if why, ok := refused[t.text]; ok {
		return nil, refuse(t.line, "{% "+t.text+" %}", why)
	}
	p.next()
	switch t.text {
	case "for":
		return p.forLoop(t.line)
	case "if":
		return p.ifBlock(t.line)
	case "set":
		return p.set(t.line)
	case "with":
		return p.with(t.line)
	case "print":
		return p.print(t.line)
	case "macro":
		return p.macro(t.line)
	case "call":
		return p.callBlock(t.line)
	case "generation":
		n := &callBlockNode{macroNode: macroNode{line: t.line}}
		var err error
		n.body, _, err = p.body("endgeneration")
		return n, err
	case "filter":
		n := &filterBlockNode{line: t.line}
		var err error
		if n.filter, err = p.filters(nil, true); err != nil {
			return nil, err
		}
		n.body, _, err = p.body("endfilter")
		return n, err
	case "break", "continue":
		return &jumpNode{stop: t.text == "break", line: t.line}, nil
	}
	return nil, p.fail(t.line, "Encountered unknown tag %q.", t.text)
}

func (p *parser) set(line int) (node, error) {
	target, err := p.target(tupleOptions{namespace: true})
	if err != nil {
		return nil, err
	}
	if p.skipIf("=") {
		value, err := p.tuple(tupleOptions{cond: true})
		return &assignNode{target, value, line}, err
	}
	n := &assignBlockNode{target: target, line: line}
	if n.filter, err = p.filters(nil, false); err != nil {
		return nil, err
	}
	n.body, _, err = p.body("endset")
	return n, err
}

func (p *parser) forLoop(line int) (node, error) {
	n := &forNode{line: line}
	var err error
	if n.target, err = p.target(tupleOptions{end: "in"}); err != nil {
		return nil, err
	}
	if err = p.expectKeyword("in"); err != nil {
		return nil, err
	}
	if n.iter, err = p.tuple(tupleOptions{end: "recursive"}); err != nil {
		return nil, err
	}
	if p.skipKeyword("if") {
		if n.test, err = p.expression(true); err != nil {
			return nil, err
		}
	}
	n.recursive = p.skipKeyword("recursive")
	var end string
	if n.body, end, err = p.body("endfor", "else"); err != nil || end == "endfor" {
		return n, err
	}
	n.orElse, _, err = p.body("endfor")
	return n, err
}

func (p *parser) ifBlock(line int) (node, error) {
	first := &ifNode{line: line}
	n := first
	for chain := 0; ; chain++ {
		if chain > maxChain {
			return nil, p.fail(line, "more than %d branches", maxChain)
		}
		var err error
		if n.test, err = p.tuple(tupleOptions{}); err != nil {
			return nil, err
		}
		var end string
		if n.body, end, err = p.body("elif", "else", "endif"); err != nil {
			return nil, err
		}
		switch end {
		case "elif":
			n = &ifNode{line: p.cur().line}
			first.elifs = append(first.elifs, n)
			continue
		case "else":
			first.orElse, _, err = p.body("endif")
		}
		return first, err
	}
}

func (p *parser) with(line int) (node, error) {
	n := &withNode{line: line}
	for !p.cur().is(tokBlockEnd) {
		if len(n.targets) > 0 {
			if _, err := p.expect(","); err != nil {
				return nil, err
			}
		}
		target, err := p.target(tupleOptions{})
		if err != nil {
			return nil, err
		}
		setContext(target, ctxParam)
		if _, err := p.expect("="); err != nil {
			return nil, err
		}
		value, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		n.targets, n.values = append(n.targets, target), append(n.values, value)
	}
	var err error
	n.body, _, err = p.body("endwith")
	return n, err
}

func (p *parser) print(line int) (node, error) {
	n := &outputNode{line: line}
	for !p.cur().is(tokBlockEnd) {
		if len(n.items) > 0 {
			if _, err := p.expect(","); err != nil {
				return nil, err
			}
		}
		item, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		n.items, n.lines = append(n.items, item), append(n.lines, line)
	}
	return n, nil
}

func (p *parser) signature(n *macroNode) error {
	if _, err := p.expect("("); err != nil {
		return err
	}
	for !p.cur().is(")") {
		if len(n.args) > 0 {
			if _, err := p.expect(","); err != nil {
				return err
			}
		}
		arg, err := p.nameTarget(ctxParam)
		if err != nil {
			return err
		}
		switch {
		case p.skipIf("="):
			value, err := p.expression(true)
			if err != nil {
				return err
			}
			n.defaults = append(n.defaults, value)
		case len(n.defaults) > 0:
			return p.fail(arg.line, "non-default argument follows default argument")
		}
		for _, other := range n.args {
			if other.name == arg.name {
				return p.fail(arg.line, "duplicate argument %q", arg.name)
			}
		}
		n.args = append(n.args, arg)
	}
	_, err := p.expect(")")
	return err
}

func (p *parser) macro(line int) (node, error) {
	n := &macroNode{line: line}
	name, err := p.nameTarget(ctxStore)
	if err != nil {
		return nil, err
	}
	n.name = name.name
	if err := p.signature(n); err != nil {
		return nil, err
	}
	n.body, _, err = p.body("endmacro")
	return n, err
}

func (p *parser) callBlock(line int) (node, error) {
	n := &callBlockNode{macroNode: macroNode{line: line}}
	if p.cur().is("(") {
		if err := p.signature(&n.macroNode); err != nil {
			return nil, err
		}
	}
	call, err := p.expression(true)
	if err != nil {
		return nil, err
	}
	if _, ok := call.(*callNode); !ok {
		return nil, p.fail(line, "expected call")
	}
	n.call = call
	n.body, _, err = p.body("endcall")
	return n, err
}

// nameTarget parses a name that is assigned to.
func (p *parser) nameTarget(ctx int) (*nameNode, error) {
	t, err := p.expect(tokName)
	if err != nil {
		return nil, err
	}
	if constants[t.text] {
		return nil, p.fail(t.line, "can't assign to %q", t.text)
	}
	return &nameNode{name: t.text, ctx: ctx, line: t.line}, nil
}

// target parses what is assigned to: a name, a namespace's attribute, or a tuple of them.
func (p *parser) target(o tupleOptions) (node, error) {
	o.simplified = true
	line := p.cur().line
	n, err := p.tuple(o)
	if err != nil {
		return nil, err
	}
	if !setContext(n, ctxStore) {
		return nil, p.fail(line, "can't assign to this expression")
	}
	return n, nil
}

// setContext marks the names of a target and reports whether it can be assigned to.
func setContext(n node, ctx int) bool {
	switch n := n.(type) {
	case *nameNode:
		n.ctx = ctx
		return true
	case *nsRefNode:
		return true
	case *tupleNode:
		for _, item := range n.items {
			if !setContext(item, ctx) {
				return false
			}
		}
		return true
	}
	return false
}
