package grammar

import (
	"fmt"
	"slices"
	"strings"
)

// Expr is a set of byte strings. The zero Expr holds the empty string alone. An Expr has no state and is safe for concurrent use.
type Expr struct{ node *node }

// node is a node of an expression's syntax tree; nil is the empty string.
type node struct {
	kind     nodeKind
	bytes    byteSet // of kindByte
	parts    []*node // of kindSequence and kindChoice; one of kindRepeat
	min, max int     // of kindRepeat; max < 0 is no bound
	rule     *Rule   // of kindRule
}

type nodeKind uint8

const (
	kindByte nodeKind = iota
	kindSequence
	kindChoice
	kindRepeat
	kindRule
)

// byteSet is a set of bytes.
type byteSet [4]uint64

func (s *byteSet) add(low, high byte) {
	for b := int(low); b <= int(high); b++ {
		s[b>>6] |= 1 << (b & 63)
	}
}

func (s *byteSet) has(b byte) bool { return s[b>>6]>>(b&63)&1 != 0 }

// Text is the text alone.
func Text(text string) Expr {
	parts := make([]*node, len(text))
	for i := range len(text) {
		parts[i] = singles[text[i]]
	}
	return Expr{&node{kind: kindSequence, parts: parts}}
}

// Texts is one of the texts. What several begin with is read once, so that thousands are followed as one.
func Texts(texts ...string) Expr {
	return alternatives(slices.Compact(slices.Sorted(slices.Values(texts))))
}

// alternatives is one of the texts, which are sorted and differ.
func alternatives(texts []string) Expr {
	switch len(texts) {
	case 0:
		return Choice()
	case 1:
		return Text(texts[0])
	}
	first, last := texts[0], texts[len(texts)-1]
	n := 0
	for n < len(first) && first[n] == last[n] { // sorted: what these two begin with, all do
		n++
	}
	var out []Expr
	for begin := 0; begin < len(texts); {
		if len(texts[begin]) == n {
			out = append(out, Expr{})
			begin++
			continue
		}
		end := begin
		var group []string
		for ; end < len(texts) && texts[end][n] == texts[begin][n]; end++ {
			group = append(group, texts[end][n:])
		}
		out = append(out, alternatives(group))
		begin = end
	}
	return Sequence(Text(first[:n]), Choice(out...))
}

// specialMark surrounds the text of a special token: a byte that no text of UTF-8 has, so that a special token is never taken for the
// text that is written like it.
const specialMark = "\xff"

// Special is a special token of the vocabulary, such as Mistral's [TOOL_CALLS]. A text never stands for it.
func Special(token string) Expr { return Text(specialMark + token + specialMark) }

// Bytes are the bytes from low to high, one of them.
func Bytes(low, high byte) Expr { return Expr{byteNode(low, high)} }

// singles are the nodes of one byte, which all texts share.
var singles = func() (out [256]*node) {
	for b := range out {
		out[b] = byteNode(byte(b), byte(b))
	}
	return out
}()

func byteNode(low, high byte) *node {
	n := &node{kind: kindByte}
	n.bytes.add(low, high)
	return n
}

// Sequence is one text of each expression, one behind the other.
func Sequence(parts ...Expr) Expr { return Expr{&node{kind: kindSequence, parts: nodes(parts)}} }

// Choice is a text of one of the expressions; of none it is no text at all.
func Choice(parts ...Expr) Expr { return Expr{&node{kind: kindChoice, parts: nodes(parts)}} }

// Optional is a text of e, or the empty one.
func Optional(e Expr) Expr { return Repeat(e, 0, 1) }

// Repeat is at least min and at most max texts of e, one behind the other; max below 0 is no bound.
func Repeat(e Expr, least, most int) Expr {
	return Expr{&node{kind: kindRepeat, parts: []*node{e.node}, min: least, max: most}}
}

func nodes(parts []Expr) []*node {
	out := make([]*node, len(parts))
	for i, p := range parts {
		out[i] = p.node
	}
	return out
}

// Rule is an expression that may hold itself. It is used by Expr, and defined once.
type Rule struct {
	name string
	body *Expr
}

// NewRule names a rule for errors.
func NewRule(name string) *Rule { return &Rule{name: name} }

// Define says what the rule is.
func (r *Rule) Define(e Expr) { r.body = &e }

// Expr is the rule's expression, before or after its definition.
func (r *Rule) Expr() Expr { return Expr{&node{kind: kindRule, rule: r}} }

// TextWithout is any text of least to most characters, none of which is c; most below 0 is no bound.
func TextWithout(c rune, least, most int) Expr {
	return Repeat(everyRune.without(c).expr(), least, most)
}

// AnyText is any text of UTF-8.
func AnyText() Expr { return Repeat(everyRune.expr(), 0, -1) }

// Until is any text of UTF-8 that ends with the first end in it. end is ASCII and not empty.
func Until(end string) Expr {
	rules := make([]*Rule, len(end)) // what is read behind the first so many bytes of end, as Knuth, Morris and Pratt have it
	for i := range rules {
		rules[i] = NewRule(fmt.Sprintf("until %q", end))
	}
	after := func(read string) Expr {
		n := min(len(read), len(end))
		for !strings.HasSuffix(read, end[:n]) {
			n--
		}
		if n == len(end) {
			return Expr{}
		}
		return rules[n].Expr()
	}
	for i, r := range rules {
		others := everyRune
		var next []Expr
		for _, c := range end {
			if !others.has(c) { // it stood in end before
				continue
			}
			others = others.without(c)
			next = append(next, Sequence(Text(string(c)), after(end[:i]+string(c))))
		}
		r.Define(Choice(append(next, Sequence(others.expr(), rules[0].Expr()))...))
	}
	return rules[0].Expr()
}
