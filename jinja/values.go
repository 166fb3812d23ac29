package jinja

import (
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agentfly/agentfly/internal/wording"
)

// Values are Python's: nil is None; bool; int (and *big.Int where int overflows); float64; string; markup; *list; tuple;
// *dict; span (range); *view; *generator; *undefined; *namespace; *loopContext; *macro; *function values (*callable).

type (
	// markup is markupsafe.Markup, a string that escape leaves alone.
	markup string
	list   struct{ items []any }
	tuple  []any
	// span is Python's range.
	span struct{ start, step, n int }
	// view is what keys(), values() and items() return.
	view struct {
		kind string // "keys", "values", "items"
		of   *dict
	}
	// generator is consumed once.
	generator struct {
		kind string
		next func() (any, bool, error)
	}
	undefined struct {
		hint   string
		obj    any
		hasObj bool
		name   any
		kind   string // of the error
	}
	namespace struct{ attrs *dict }
	// callable is a function or bound method. It must not keep args.
	callable struct {
		name string
		call func(vm *machine, a arguments) (any, error)
	}
	arguments struct {
		pos  []any
		keys []string
		vals []any
	}
	missingType struct{}
)

// missing marks a slot without a value; it never reaches a template.
var missing any = missingType{}

func undefinedName(name string) *undefined { return &undefined{name: name, kind: "UndefinedError"} }
func undefinedHint(hint string) *undefined { return &undefined{hint: hint, kind: "UndefinedError"} }
func undefinedOf(obj, name any) *undefined {
	return &undefined{obj: obj, hasObj: true, name: name, kind: "UndefinedError"}
}

func (u *undefined) fail() error {
	if u.hint != "" {
		return raise(u.kind, "%s", u.hint)
	}
	name := "?"
	if r, err := repr(u.name); err == nil {
		name = r
	}
	if !u.hasObj {
		return raise(u.kind, "%s is undefined", name)
	}
	of := typeName(u.obj) + " object"
	if u.obj == nil {
		of = "None"
	}
	if _, ok := u.name.(string); ok {
		return raise(u.kind, "'%s' has no attribute %s", of, name)
	}
	return raise(u.kind, "%s has no element %s", of, name)
}

func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case markup:
		return "Markup"
	case *list:
		return "list"
	case tuple:
		return "tuple"
	case *dict:
		return "dict"
	case span:
		return "range"
	case *view:
		return "dict_" + v.kind
	case *generator:
		return v.kind
	case *undefined:
		return "Undefined"
	case *namespace:
		return "Namespace"
	case *loopContext:
		return "LoopContext"
	case *macro:
		return "Macro"
	case *cycler:
		return "Cycler"
	case *joiner:
		return "Joiner"
	}
	return "function"
}

// text is the characters of a string or markup.
func text(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case markup:
		return string(v), true
	}
	return "", false
}

func truth(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case int:
		return v != 0
	case *big.Int:
		return v.Sign() != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case markup:
		return v != ""
	case *list:
		return len(v.items) > 0
	case tuple:
		return len(v) > 0
	case *dict:
		return v.len() > 0
	case span:
		return v.n > 0
	case *view:
		return v.of.len() > 0
	case *undefined:
		return false
	}
	return true
}

func length(v any) (int, error) {
	switch v := v.(type) {
	case string:
		return utf8.RuneCountInString(v), nil
	case markup:
		return utf8.RuneCountInString(string(v)), nil
	case *list:
		return len(v.items), nil
	case tuple:
		return len(v), nil
	case *dict:
		return v.len(), nil
	case span:
		return v.n, nil
	case *view:
		return v.of.len(), nil
	case *undefined:
		return 0, nil
	case *loopContext:
		return v.length()
	}
	return 0, typeError("object of type '%s' has no len()", typeName(v))
}

func sliceIterator(items []any) func() (any, bool, error) {
	i := 0
	return func() (any, bool, error) {
		if i >= len(items) {
			return nil, false, nil
		}
		i++
		return items[i-1], true, nil
	}
}

// iterate is Python's iter(): every call of the result gives the next value.
func iterate(v any) (func() (any, bool, error), error) {
	switch v := v.(type) {
	case string, markup:
		s, _ := text(v)
		_, safe := v.(markup)
		return func() (any, bool, error) {
			if s == "" {
				return nil, false, nil
			}
			_, n := utf8.DecodeRuneInString(s)
			c := s[:n]
			s = s[n:]
			if safe {
				return nil, false, unsupported("iterating over a Markup string")
			}
			return c, true, nil
		}, nil
	case *list:
		return sliceIterator(v.items), nil
	case tuple:
		return sliceIterator(v), nil
	case *dict:
		return sliceIterator(v.keys), nil
	case *view:
		return sliceIterator(v.items()), nil
	case span:
		i := 0
		return func() (any, bool, error) {
			if i >= v.n {
				return nil, false, nil
			}
			i++
			return v.start + (i-1)*v.step, true, nil
		}, nil
	case *generator:
		return v.next, nil
	case *undefined:
		return sliceIterator(nil), nil
	case *loopContext:
		return nil, unsupported("iterating over loop")
	}
	return nil, typeError("'%s' object is not iterable", typeName(v))
}

// collect is Python's list().
func collect(vm *machine, v any) ([]any, error) {
	next, err := iterate(v)
	if err != nil {
		return nil, err
	}
	var out []any
	for {
		item, ok, err := next()
		if err != nil || !ok {
			return out, err
		}
		if err := vm.charge(16); err != nil {
			return nil, err
		}
		out = append(out, item)
	}
}

// Bounds of values that are written, compared or hashed: their nesting, the bytes written, the pairs compared, and the bytes
// that stand for a key. Lists share their items, so that a small template can make an exponential value.
const (
	maxNestRepr = 500
	maxText     = 32 << 20
	maxPairs    = 1_000_000
	maxKey      = 64 << 10
)

func str(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case markup:
		return string(v), nil
	case *undefined:
		return "", nil
	}
	return repr(v)
}

func repr(v any) (string, error) {
	var b strings.Builder
	err := writeRepr(&b, v, 0)
	return b.String(), err
}

func writeRepr(b *strings.Builder, v any, depth int) error {
	if depth > maxNestRepr {
		return raise("RecursionError", "maximum recursion depth exceeded")
	}
	if b.Len() > maxText {
		return raise("Limit", "the text of a value has more than %d bytes", maxText)
	}
	items := func(open, end string, items []any) error {
		b.WriteString(open)
		for i, item := range items {
			if i > 0 {
				b.WriteString(", ")
			}
			if err := writeRepr(b, item, depth+1); err != nil {
				return err
			}
		}
		b.WriteString(end)
		return nil
	}
	switch v := v.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		b.WriteString(map[bool]string{true: "True", false: "False"}[v])
	case int:
		b.WriteString(strconv.Itoa(v))
	case *big.Int:
		s, err := decimal(v)
		if err != nil {
			return err
		}
		b.WriteString(s)
	case float64:
		b.WriteString(wording.PythonFloat(v))
	case string:
		quote(b, v)
	case markup:
		b.WriteString("Markup(")
		quote(b, string(v))
		b.WriteString(")")
	case *list:
		return items("[", "]", v.items)
	case tuple:
		if len(v) == 1 {
			return items("(", ",)", v)
		}
		return items("(", ")", v)
	case *dict:
		return v.writeRepr(b, depth)
	case span:
		b.WriteString("range(" + strconv.Itoa(v.start) + ", " + strconv.Itoa(v.stop()))
		if v.step != 1 {
			b.WriteString(", " + strconv.Itoa(v.step))
		}
		b.WriteString(")")
	case *view:
		return items("dict_"+v.kind+"([", "])", v.items())
	case *undefined:
		b.WriteString("Undefined")
	case *namespace:
		b.WriteString("<Namespace ")
		if err := v.attrs.writeRepr(b, depth+1); err != nil {
			return err
		}
		b.WriteString(">")
	default:
		return unsupported("the text of a %s", typeName(v))
	}
	return nil
}

// maxDigits bounds what is quadratic in the digits of an integer, as Python does.
const maxDigits = 4300

var beyondDigits = new(big.Int).Exp(big.NewInt(10), big.NewInt(maxDigits), nil)

// isLong tells that an integer has more than maxDigits digits.
func isLong(n *big.Int) bool { return n.CmpAbs(beyondDigits) >= 0 }

// decimal is an integer in decimal.
func decimal(n *big.Int) (string, error) {
	if isLong(n) {
		return "", valueError("Exceeds the limit (%d digits) for integer string conversion", maxDigits)
	}
	return n.String(), nil
}

// quote writes Python's repr of a string.
func quote(b *strings.Builder, s string) {
	q := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		q = '"'
	}
	b.WriteByte(q)
	for _, r := range s {
		switch {
		case r == rune(q) || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20 || r == 0x7f:
			b.WriteString(`\x` + hex(r, 2))
		case r < 0x7f || unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			b.WriteString(`\x` + hex(r, 2))
		case r < 0x10000:
			b.WriteString(`\u` + hex(r, 4))
		default:
			b.WriteString(`\U` + hex(r, 8))
		}
	}
	b.WriteByte(q)
}

func hex(r rune, width int) string {
	s := strconv.FormatInt(int64(r), 16)
	return strings.Repeat("0", max(0, width-len(s))) + s
}

func (r span) stop() int { return r.start + r.n*r.step }
