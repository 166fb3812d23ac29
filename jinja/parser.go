package jinja

import "fmt"

// Bounds of the parser: Python gives up at about the same sizes.
const (
	maxSource = 4 << 20 // bytes
	maxNest   = 200     // nested expressions and blocks
	maxChain  = 1000    // operands of one chain of binary operators, elifs of one if
)

// parser reads statements, as jinja2/parser.py does.
type parser struct {
	tokens      *cursor
	expressions expressionParser
}

// parse returns the statements of a template.
func parse(source string) ([]node, error) {
	if len(source) > maxSource {
		return nil, &CompileError{Line: 1, Description: fmt.Sprintf("the template is larger than %d bytes", maxSource)}
	}
	tokens, err := tokenize(source)
	if err != nil {
		return nil, err
	}
	at := &cursor{tokens: tokens}
	return parser{at, expressionParser{at}}.statements()
}

// body parses the statements of a block up to one of the end tags, whose name it returns; the end tag is consumed up to,
// not including, the end of its block.
func (p parser) body(ends ...string) ([]node, string, error) {
	p.tokens.skipIf(":")
	if _, err := p.tokens.expect(tokBlockEnd); err != nil {
		return nil, "", err
	}
	nodes, err := p.statements(ends...)
	if err != nil {
		return nil, "", err
	}
	if p.tokens.cur().is(tokEOF) {
		return nil, "", syntaxError(p.tokens.cur().line, "Unexpected end of template. Jinja was looking for the following tags: %q", ends)
	}
	return nodes, p.tokens.next().text, nil
}

func (p parser) statements(ends ...string) ([]node, error) {
	if err := p.tokens.enter(); err != nil {
		return nil, err
	}
	defer p.tokens.leave()
	var out []node
	var data *outputNode
	add := func(n node, line int) {
		if data == nil {
			data = &outputNode{line: line}
			out = append(out, data)
		}
		data.items, data.lines = append(data.items, n), append(data.lines, line)
	}
	for !p.tokens.cur().is(tokEOF) {
		t := p.tokens.next()
		switch t.kind {
		case tokData:
			add(&dataNode{text: t.text}, t.line)
		case tokVariableBegin:
			n, err := p.expressions.tuple(tupleOptions{cond: true})
			if err != nil {
				return nil, err
			}
			if _, err := p.tokens.expect(tokVariableEnd); err != nil {
				return nil, err
			}
			add(n, t.line)
		case tokBlockBegin:
			data = nil
			for _, end := range ends {
				if p.tokens.cur().keyword(end) {
					return out, nil
				}
			}
			n, err := p.statement()
			if err != nil {
				return nil, err
			}
			out = append(out, n)
			if _, err := p.tokens.expect(tokBlockEnd); err != nil {
				return nil, err
			}
		default:
			return nil, syntaxError(t.line, "unexpected %q", describe(t))
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

func (p parser) statement() (node, error) {
	t := p.tokens.cur()
	if !t.is(tokName) {
		return nil, syntaxError(t.line, "tag name expected")
	}
	if why, ok := refused[t.text]; ok {
		return nil, refuse(t.line, "{% "+t.text+" %}", why)
	}
	p.tokens.next()
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
		if n.filter, err = p.expressions.filters(nil, true); err != nil {
			return nil, err
		}
		n.body, _, err = p.body("endfilter")
		return n, err
	case "break", "continue":
		return &jumpNode{stop: t.text == "break", line: t.line}, nil
	}
	return nil, syntaxError(t.line, "Encountered unknown tag %q.", t.text)
}

func (p parser) set(line int) (node, error) {
	target, err := p.target(tupleOptions{namespace: true})
	if err != nil {
		return nil, err
	}
	if p.tokens.skipIf("=") {
		value, err := p.expressions.tuple(tupleOptions{cond: true})
		return &assignNode{target, value, line}, err
	}
	n := &assignBlockNode{target: target, line: line}
	if n.filter, err = p.expressions.filters(nil, false); err != nil {
		return nil, err
	}
	n.body, _, err = p.body("endset")
	return n, err
}

func (p parser) forLoop(line int) (node, error) {
	n := &forNode{line: line}
	var err error
	if n.target, err = p.target(tupleOptions{end: "in"}); err != nil {
		return nil, err
	}
	if err = p.tokens.expectKeyword("in"); err != nil {
		return nil, err
	}
	if n.iter, err = p.expressions.tuple(tupleOptions{end: "recursive"}); err != nil {
		return nil, err
	}
	if p.tokens.skipKeyword("if") {
		if n.test, err = p.expressions.expression(true); err != nil {
			return nil, err
		}
	}
	n.recursive = p.tokens.skipKeyword("recursive")
	var end string
	if n.body, end, err = p.body("endfor", "else"); err != nil || end == "endfor" {
		return n, err
	}
	n.orElse, _, err = p.body("endfor")
	return n, err
}

func (p parser) ifBlock(line int) (node, error) {
	first := &ifNode{line: line}
	n := first
	for chain := 0; ; chain++ {
		if chain > maxChain {
			return nil, syntaxError(line, "more than %d branches", maxChain)
		}
		var err error
		if n.test, err = p.expressions.tuple(tupleOptions{}); err != nil {
			return nil, err
		}
		var end string
		if n.body, end, err = p.body("elif", "else", "endif"); err != nil {
			return nil, err
		}
		switch end {
		case "elif":
			n = &ifNode{line: p.tokens.cur().line}
			first.elifs = append(first.elifs, n)
			continue
		case "else":
			first.orElse, _, err = p.body("endif")
		}
		return first, err
	}
}

func (p parser) with(line int) (node, error) {
	n := &withNode{line: line}
	for !p.tokens.cur().is(tokBlockEnd) {
		if len(n.targets) > 0 {
			if _, err := p.tokens.expect(","); err != nil {
				return nil, err
			}
		}
		target, err := p.target(tupleOptions{})
		if err != nil {
			return nil, err
		}
		setContext(target, ctxParam)
		if _, err := p.tokens.expect("="); err != nil {
			return nil, err
		}
		value, err := p.expressions.expression(true)
		if err != nil {
			return nil, err
		}
		n.targets, n.values = append(n.targets, target), append(n.values, value)
	}
	var err error
	n.body, _, err = p.body("endwith")
	return n, err
}

func (p parser) print(line int) (node, error) {
	n := &outputNode{line: line}
	for !p.tokens.cur().is(tokBlockEnd) {
		if len(n.items) > 0 {
			if _, err := p.tokens.expect(","); err != nil {
				return nil, err
			}
		}
		item, err := p.expressions.expression(true)
		if err != nil {
			return nil, err
		}
		n.items, n.lines = append(n.items, item), append(n.lines, line)
	}
	return n, nil
}

func (p parser) signature(n *macroNode) error {
	if _, err := p.tokens.expect("("); err != nil {
		return err
	}
	for !p.tokens.cur().is(")") {
		if len(n.args) > 0 {
			if _, err := p.tokens.expect(","); err != nil {
				return err
			}
		}
		arg, err := p.nameTarget(ctxParam)
		if err != nil {
			return err
		}
		switch {
		case p.tokens.skipIf("="):
			value, err := p.expressions.expression(true)
			if err != nil {
				return err
			}
			n.defaults = append(n.defaults, value)
		case len(n.defaults) > 0:
			return syntaxError(arg.line, "non-default argument follows default argument")
		}
		for _, other := range n.args {
			if other.name == arg.name {
				return syntaxError(arg.line, "duplicate argument %q", arg.name)
			}
		}
		n.args = append(n.args, arg)
	}
	_, err := p.tokens.expect(")")
	return err
}

func (p parser) macro(line int) (node, error) {
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

func (p parser) callBlock(line int) (node, error) {
	n := &callBlockNode{macroNode: macroNode{line: line}}
	if p.tokens.cur().is("(") {
		if err := p.signature(&n.macroNode); err != nil {
			return nil, err
		}
	}
	call, err := p.expressions.expression(true)
	if err != nil {
		return nil, err
	}
	if _, ok := call.(*callNode); !ok {
		return nil, syntaxError(line, "expected call")
	}
	n.call = call
	n.body, _, err = p.body("endcall")
	return n, err
}

// nameTarget parses a name that is assigned to.
func (p parser) nameTarget(ctx int) (*nameNode, error) {
	t, err := p.tokens.expect(tokName)
	if err != nil {
		return nil, err
	}
	if constants[t.text] {
		return nil, syntaxError(t.line, "can't assign to %q", t.text)
	}
	return &nameNode{name: t.text, ctx: ctx, line: t.line}, nil
}

// target parses what is assigned to: a name, a namespace's attribute, or a tuple of them.
func (p parser) target(o tupleOptions) (node, error) {
	o.simplified = true
	line := p.tokens.cur().line
	n, err := p.expressions.tuple(o)
	if err != nil {
		return nil, err
	}
	if !setContext(n, ctxStore) {
		return nil, syntaxError(line, "can't assign to this expression")
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
