package mathequal

import (
	"math/big"
	"slices"
	"strings"
)

// chain makes one node of sides with relations between them.
func chain(sides []*node, ops []string) (*node, error) {
	if len(ops) == 0 {
		return sides[0], nil
	}
	sides, ops = exactPart(sides, ops)
	if len(ops) == 0 {
		return sides[0], nil
	}
	last := sides[len(sides)-1]
	if ops[0] == "in" && len(ops) == 1 {
		return last, nil
	}
	equations := true
	for _, op := range ops {
		if op == "in" || op == "!=" && len(ops) > 1 {
			return nil, errParse
		}
		equations = equations && op == "="
	}
	if equations {
		switch {
		case sides[0].kind == kindText: // area = 5
			if last.kind != kindText && !wordless(last) || changes.MatchString(sides[0].name) { // total = 15 (dollars), half = 15
				return nil, errParse
			}
			return &node{kind: kindNamed, name: sides[0].name, inWords: true, args: []*node{last}}, nil
		case sides[0].kind == kindSymbol: // x = 5, f(2) = 5
			return &node{kind: kindNamed, name: sides[0].name, of: sides[0].of, args: []*node{last}}, nil
		case len(sides) == 2 && last.kind == kindSymbol && !constants[last.name]: // 5 = x
			return &node{kind: kindNamed, name: last.name, args: []*node{sides[0]}}, nil
		case points(sides[0]) != "" && constant(last):
			return &node{kind: kindNamed, name: points(sides[0]), of: sides[0], args: []*node{last}}, nil
		case len(sides) == 2 && points(last) != "" && constant(sides[0]): // 5 = AB
			return &node{kind: kindNamed, name: points(last), of: last, args: []*node{sides[0]}}, nil
		case variables(sides[0]) != "" && last.kind == kindTuple && last.open == "(" && last.close == ")" && len(last.args) == len(sides[0].args):
			return &node{kind: kindNamed, name: variables(sides[0]), args: []*node{last}}, nil
		case len(ops) > 1 || constant(sides[0]) && constant(last):
			return last, nil
		}
		return &node{kind: kindRelation, name: "=", args: []*node{sides[0], last}}, nil
	}
	if n := asInterval(sides, ops); n != nil {
		return n, nil
	}
	if len(ops) > 1 {
		return nil, errParse
	}
	return &node{kind: kindRelation, name: ops[0], args: sides}, nil
}

// points is the name of a length: AB and |AB|, two points side by side. Empty: it is none.
func points(n *node) string {
	if n.kind == kindFunc && n.name == "abs" {
		n = n.args[0]
	}
	if n.kind != kindMul || !capital(n.args[0]) || !capital(n.args[1]) {
		return ""
	}
	return min(n.args[0].name, n.args[1].name) + max(n.args[0].name, n.args[1].name)
}

func capital(n *node) bool {
	return n.kind == kindSymbol && len(n.name) == 1 && strings.ToLower(n.name) != n.name
}

// variables is the name of a tuple of different variables: (x, y). Empty: it is none, or its Latin letters do not stand in order, so that
// its values may not either: (y, x).
func variables(n *node) string {
	if n.kind != kindTuple || n.open != "(" || n.close != ")" {
		return ""
	}
	var names, latin []string
	for _, a := range n.args {
		if a.kind != kindSymbol || constants[a.name] || slices.Contains(names, a.name) {
			return ""
		}
		names = append(names, a.name)
		if !greek[a.name] {
			latin = append(latin, a.name)
		}
	}
	if !slices.IsSorted(latin) {
		return ""
	}
	return "(" + strings.Join(names, ",") + ")"
}

// exactPart cuts what is only near: of x = 1/3 ≈ 0.33 and √2 ≈ 1.41 what stands before counts. x ≈ 0.33 is as good as x = 0.33.
func exactPart(sides []*node, ops []string) ([]*node, []string) {
	for i, op := range ops {
		if op != "approx" {
			continue
		}
		if i > 0 || sides[0].kind != kindSymbol || constants[sides[0].name] {
			return sides[:i+1], ops[:i]
		}
		ops = append([]string{"="}, ops[1:]...)
	}
	return sides, ops
}

var flipped = map[string]string{"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}

// asInterval is what an inequality says of one variable: x > 2, 2 < x, 0 <= x < 1, x != 2. The result is named by the variable.
func asInterval(sides []*node, ops []string) *node {
	infinity := &node{kind: kindSymbol, name: "infty"}
	variable := func(n *node) bool { return n.kind == kindSymbol && !constants[n.name] }
	named := func(v, n *node) *node { return &node{kind: kindNamed, name: v.name, args: []*node{n}} }
	if len(sides) == 3 && variable(sides[1]) && constant(sides[0]) && constant(sides[2]) {
		a, b := ops[0], ops[1]
		from, to := sides[0], sides[2]
		if a[0] == '>' && b[0] == '>' {
			from, to, a, b = to, from, flipped[b], flipped[a]
		}
		if a[0] != '<' || b[0] != '<' {
			return nil
		}
		opening, closing := "(", ")"
		if a == "<=" {
			opening = "["
		}
		if b == "<=" {
			closing = "]"
		}
		return named(sides[1], interval(opening, from, to, closing))
	}
	if len(sides) != 2 {
		return nil
	}
	x, bound, op := sides[0], sides[1], ops[0]
	if !variable(x) {
		x, bound, op = bound, x, flipped[op]
	}
	if !variable(x) || !constant(bound) {
		return nil
	}
	switch op {
	case "<":
		return named(x, interval("(", negate(infinity), bound, ")"))
	case "<=":
		return named(x, interval("(", negate(infinity), bound, "]"))
	case ">":
		return named(x, interval("(", bound, infinity, ")"))
	case ">=":
		return named(x, interval("[", bound, infinity, ")"))
	default: // !=
		return named(x, &node{kind: kindUnion, args: []*node{
			interval("(", negate(infinity), bound, ")"), interval("(", bound, infinity, ")"),
		}})
	}
}

// constants are the symbols that are no variables.
var constants = set("pi", "e", "i", "infty", "dozen", "hundred", "thousand", "million", "billion", "trillion")

// constant tells whether no variable stands in an expression.
func constant(n *node) bool {
	if n.kind == kindSymbol {
		return constants[n.name]
	}
	for _, a := range n.args {
		if !constant(a) {
			return false
		}
	}
	return n.kind != kindText
}

func hasPlusMinus(n *node) bool {
	if n.kind == kindPlusMinus {
		return true
	}
	for _, a := range n.args {
		if hasPlusMinus(a) {
			return true
		}
	}
	return false
}

// expand takes the upper or the lower signs of all ± and ∓.
func expand(n *node, upper bool) *node {
	out := *n
	out.args = make([]*node, len(n.args))
	for i, a := range n.args {
		out.args[i] = expand(a, upper)
	}
	if n.kind != kindPlusMinus {
		return &out
	}
	last := len(out.args) - 1
	if upper != (n.name == "pm") {
		out.args[last] = negate(out.args[last])
	}
	if last == 0 {
		return out.args[0]
	}
	out.kind, out.name = kindAdd, ""
	return &out
}

// measure reads the unit after a value; nil is none.
func (p parser) measure() (*measure, error) {
	if p.tokens.peek().kind != tokWord {
		return nil, nil
	}
	m := &measure{factor: big.NewRat(1, 1), dimensions: map[string]int{}}
	sign, power := 1, 1
	for !p.tokens.done() {
		t := p.tokens.toks[p.tokens.pos]
		word := strings.ToLower(t.text)
		switch {
		case t.kind == tokWord && (word == "square" || word == "sq" || word == "squared"):
			power = 2
		case t.kind == tokWord && (word == "cubic" || word == "cubed"):
			power = 3
		case t.kind == tokWord && word == "per":
			sign = -1
		case t.kind == tokWord:
			p.tokens.pos++
			n, err := p.unitPower(power)
			if err != nil {
				return nil, err
			}
			p.tokens.pos--
			m.times(word, sign*n)
			sign, power = 1, 1
		case t.kind == tokOp && (t.text == "/" || t.text == "*") && p.tokens.pos+1 < len(p.tokens.toks) && p.tokens.toks[p.tokens.pos+1].kind == tokWord:
			if t.text == "/" {
				sign = -1
			}
		default:
			return m, nil
		}
		p.tokens.pos++
	}
	return m, nil
}

// unitPower reads what stands behind a unit: ^2, squared.
func (p parser) unitPower(power int) (int, error) {
	switch t := p.tokens.peek(); {
	case t.kind == tokWord && strings.EqualFold(t.text, "squared"):
		p.tokens.pos++
		return 2, nil
	case t.kind == tokWord && strings.EqualFold(t.text, "cubed"):
		p.tokens.pos++
		return 3, nil
	case p.tokens.accept("^"):
		n, err := p.exponent()
		if err != nil || n.kind != kindNumber || !n.value.IsInt() || n.value.Num().BitLen() > 3 {
			return 0, errParse
		}
		return int(n.value.Num().Int64()), nil
	}
	return power, nil
}

// times multiplies a measure by a power of a word.
func (m *measure) times(word string, power int) {
	b := basicUnit(word)
	if b == nil {
		m.counted = append(m.counted, countedWord{word, power})
		return
	}
	for range max(power, -power) {
		if power > 0 {
			m.factor.Mul(m.factor, b.factor)
		} else {
			m.factor.Quo(m.factor, b.factor)
		}
	}
	for d, n := range b.dimensions {
		if m.dimensions[d] += n * power; m.dimensions[d] == 0 {
			delete(m.dimensions, d)
		}
	}
}

// basicUnit is a unit by its name, or nil.
func basicUnit(word string) *measure {
	word = strings.ToLower(word)
	u, ok := units[word]
	if !ok && len(word) > 3 {
		u, ok = units[strings.TrimSuffix(word, "s")]
	}
	if !ok {
		return nil
	}
	d := basic[u.dimension]
	if d == nil {
		d = map[string]int{u.dimension: 1}
	}
	return &measure{factor: u.factor, dimensions: d}
}
