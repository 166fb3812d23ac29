package jinja

// The nodes are jinja2's (jinja2/nodes.py); kids returns children in its field order, on which scope analysis depends.

type node interface{ kids() []node }

// A name is loaded, stored, or a parameter of a macro.
const (
	ctxLoad = iota
	ctxStore
	ctxParam
)

type (
	nameNode struct {
		name string
		ctx  int
		line int
	}
	nsRefNode struct { // target of {% set name.attr = … %}
		name, attr string
		line       int
	}
	constNode struct{ val any }
	dataNode  struct{ text string }
	tupleNode struct{ items []node }
	listNode  struct{ items []node }
	dictNode  struct{ keys, values []node }
	condNode  struct {
		test, yes, no node // no may be nil
		line          int
	}
	callArgs struct {
		args       []node
		keys       []string
		values     []node
		dynArgs    node
		dynKeyArgs node
	}
	filterNode struct {
		in   node // nil in a filter block
		name string
		callArgs
		line int
	}
	testNode struct {
		in   node
		name string
		callArgs
		line int
	}
	callNode struct {
		fn node
		callArgs
	}
	itemNode  struct{ in, arg node }
	sliceNode struct{ start, stop, step node }
	attrNode  struct {
		in   node
		attr string
	}
	concatNode  struct{ items []node }
	compareNode struct {
		first node
		ops   []string
		rest  []node
	}
	binNode struct {
		op   string
		l, r node
	}
	unaryNode struct {
		op string
		in node
	}

	outputNode struct {
		items []node
		lines []int // of the items
		line  int
	}
	forNode struct {
		target, iter node
		body, orElse []node
		test         node
		recursive    bool
		line         int
	}
	ifNode struct {
		test   node
		body   []node
		elifs  []*ifNode
		orElse []node
		line   int
	}
	macroNode struct { // also the body of a call block
		name     string
		args     []*nameNode
		defaults []node
		body     []node
		line     int
	}
	callBlockNode struct { // call is nil for the generation tag
		call node
		macroNode
	}
	filterBlockNode struct {
		filter node
		body   []node
		line   int
	}
	withNode struct {
		targets, values []node
		body            []node
		line            int
	}
	assignNode struct {
		target, value node
		line          int
	}
	assignBlockNode struct {
		target, filter node // filter may be nil
		body           []node
		line           int
	}
	jumpNode struct { // break or continue
		stop bool
		line int
	}
)

func some(nodes ...node) []node {
	out := nodes[:0]
	for _, n := range nodes {
		if n != nil {
			out = append(out, n)
		}
	}
	return out
}

func join(lists ...[]node) []node {
	var out []node
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

func (a *callArgs) kids() []node { return join(a.args, a.values, some(a.dynArgs, a.dynKeyArgs)) }

func (*nameNode) kids() []node      { return nil }
func (*nsRefNode) kids() []node     { return nil }
func (*constNode) kids() []node     { return nil }
func (*dataNode) kids() []node      { return nil }
func (*jumpNode) kids() []node      { return nil }
func (n *tupleNode) kids() []node   { return n.items }
func (n *listNode) kids() []node    { return n.items }
func (n *condNode) kids() []node    { return some(n.test, n.yes, n.no) }
func (n *filterNode) kids() []node  { return join(some(n.in), n.callArgs.kids()) }
func (n *testNode) kids() []node    { return join(some(n.in), n.callArgs.kids()) }
func (n *callNode) kids() []node    { return join(some(n.fn), n.callArgs.kids()) }
func (n *itemNode) kids() []node    { return some(n.in, n.arg) }
func (n *sliceNode) kids() []node   { return some(n.start, n.stop, n.step) }
func (n *attrNode) kids() []node    { return some(n.in) }
func (n *concatNode) kids() []node  { return n.items }
func (n *compareNode) kids() []node { return join(some(n.first), n.rest) }
func (n *binNode) kids() []node     { return some(n.l, n.r) }
func (n *unaryNode) kids() []node   { return some(n.in) }
func (n *outputNode) kids() []node  { return n.items }
func (n *forNode) kids() []node {
	return join(some(n.target, n.iter), n.body, n.orElse, some(n.test))
}
func (n *filterBlockNode) kids() []node { return join(n.body, some(n.filter)) }
func (n *withNode) kids() []node        { return join(n.targets, n.values, n.body) }
func (n *assignNode) kids() []node      { return some(n.target, n.value) }
func (n *assignBlockNode) kids() []node { return join(some(n.target, n.filter), n.body) }

func (n *dictNode) kids() []node {
	var out []node
	for i := range n.keys {
		out = append(out, n.keys[i], n.values[i])
	}
	return out
}

func (n *ifNode) kids() []node {
	out := join(some(n.test), n.body)
	for _, e := range n.elifs {
		out = append(out, e)
	}
	return append(out, n.orElse...)
}

func (n *macroNode) kids() []node {
	var out []node
	for _, a := range n.args {
		out = append(out, a)
	}
	return join(out, n.defaults, n.body)
}

func (n *callBlockNode) kids() []node { return join(some(n.call), n.macroNode.kids()) }

// walk visits n and all nodes below it until visit returns false.
func walk(n node, visit func(node) bool) bool {
	if !visit(n) {
		return false
	}
	for _, k := range n.kids() {
		if !walk(k, visit) {
			return false
		}
	}
	return true
}

// undeclared returns those of the names that the nodes load before they store them (jinja2's find_undeclared).
func undeclared(nodes []node, names ...string) map[string]bool {
	left, found := map[string]bool{}, map[string]bool{}
	for _, n := range names {
		left[n] = true
	}
	for _, n := range nodes {
		walk(n, func(n node) bool {
			if v, ok := n.(*nameNode); ok {
				if v.ctx == ctxLoad && left[v.name] {
					found[v.name] = true
				} else {
					delete(left, v.name)
				}
			}
			return len(left) > 0
		})
	}
	return found
}
