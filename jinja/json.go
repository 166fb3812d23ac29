package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/agentfly/agentfly/internal/wording"
)

// decoder reads JSON as Python's json.loads does, keeping the order of keys and the kind of numbers.
type decoder struct {
	src   string
	pos   int
	depth int
}

func decodeJSON(src string) (any, error) {
	if !utf8.ValidString(src) {
		return nil, fmt.Errorf("template: the JSON is not valid UTF-8")
	}
	d := &decoder{src: src}
	v, err := d.value()
	if err != nil {
		return nil, err
	}
	if d.space(); d.pos < len(d.src) {
		return nil, d.fail("extra data")
	}
	return v, nil
}

func (d *decoder) fail(what string) error {
	return fmt.Errorf("template: JSON at byte %d: %s", d.pos, what)
}

func (d *decoder) space() {
	for d.pos < len(d.src) && strings.IndexByte(" \t\r\n", d.src[d.pos]) >= 0 {
		d.pos++
	}
}

func (d *decoder) accept(word string) bool {
	if strings.HasPrefix(d.src[d.pos:], word) {
		d.pos += len(word)
		return true
	}
	return false
}

func (d *decoder) value() (any, error) {
	if d.depth++; d.depth > maxNestRepr {
		return nil, d.fail("nested too deeply")
	}
	defer func() { d.depth-- }()
	d.space()
	switch {
	case d.pos >= len(d.src):
		return nil, d.fail("a value is missing")
	case d.accept("{"):
		return d.object()
	case d.accept("["):
		return d.array()
	case d.accept(`"`):
		return d.str()
	case d.accept("null"):
		return nil, nil
	case d.accept("true"):
		return true, nil
	case d.accept("false"):
		return false, nil
	case d.accept("NaN"):
		return math.NaN(), nil
	case d.accept("Infinity"):
		return math.Inf(1), nil
	case d.accept("-Infinity"):
		return math.Inf(-1), nil
	}
	return d.number()
}

func (d *decoder) object() (any, error) {
	out := newDict()
	d.space()
	if d.accept("}") {
		return out, nil
	}
	for {
		d.space()
		if !d.accept(`"`) {
			return nil, d.fail("a property name in double quotes is expected")
		}
		key, err := d.str()
		if err != nil {
			return nil, err
		}
		d.space()
		if !d.accept(":") {
			return nil, d.fail("':' is expected")
		}
		val, err := d.value()
		if err != nil {
			return nil, err
		}
		out.put(key, val)
		d.space()
		switch {
		case d.accept(","):
		case d.accept("}"):
			return out, nil
		default:
			return nil, d.fail("',' is expected")
		}
	}
}

func (d *decoder) array() (any, error) {
	out := &list{}
	d.space()
	if d.accept("]") {
		return out, nil
	}
	for {
		v, err := d.value()
		if err != nil {
			return nil, err
		}
		out.items = append(out.items, v)
		d.space()
		switch {
		case d.accept(","):
		case d.accept("]"):
			return out, nil
		default:
			return nil, d.fail("',' is expected")
		}
	}
}

func (d *decoder) str() (string, error) {
	var b strings.Builder
	for d.pos < len(d.src) {
		c := d.src[d.pos]
		switch {
		case c == '"':
			d.pos++
			return b.String(), nil
		case c < 0x20:
			return "", d.fail("a control character in a string")
		case c != '\\':
			b.WriteByte(c)
			d.pos++
			continue
		}
		if d.pos++; d.pos >= len(d.src) {
			break
		}
		c = d.src[d.pos]
		d.pos++
		if k := strings.IndexByte(`"\/bfnrt`, c); k >= 0 {
			b.WriteByte("\"\\/\b\f\n\r\t"[k])
			continue
		}
		if c != 'u' {
			return "", d.fail("an invalid escape")
		}
		r, err := d.unicode()
		if err != nil {
			return "", err
		}
		b.WriteRune(r)
	}
	return "", d.fail("a string without end")
}

func (d *decoder) hex4() (rune, bool) {
	if d.pos+4 > len(d.src) {
		return 0, false
	}
	n, err := strconv.ParseUint(d.src[d.pos:d.pos+4], 16, 16)
	if err == nil {
		d.pos += 4
	}
	return rune(n), err == nil
}

func (d *decoder) unicode() (rune, error) {
	r, ok := d.hex4()
	if !ok {
		return 0, d.fail(`an invalid \u escape`)
	}
	if !utf16.IsSurrogate(r) {
		return r, nil
	}
	if d.accept(`\u`) {
		low, ok := d.hex4()
		if r = utf16.DecodeRune(r, low); ok && r != utf8.RuneError {
			return r, nil
		}
	}
	return 0, d.fail("a lone surrogate, which cannot be written as UTF-8")
}

func (d *decoder) number() (any, error) {
	start := d.pos
	digits := func() int {
		n := 0
		for d.pos < len(d.src) && d.src[d.pos] >= '0' && d.src[d.pos] <= '9' {
			d.pos++
			n++
		}
		return n
	}
	d.accept("-")
	if !d.accept("0") && digits() == 0 {
		return nil, d.fail("a value is expected")
	}
	whole := d.pos
	if d.accept(".") && digits() == 0 {
		d.pos = whole
	}
	mark := d.pos
	if d.accept("e") || d.accept("E") {
		if !d.accept("+") {
			d.accept("-")
		}
		if digits() == 0 {
			d.pos = mark
		}
	}
	s := d.src[start:d.pos]
	if d.pos == whole {
		if len(s) > maxDigits {
			return nil, d.fail(fmt.Sprintf("an integer of more than %d digits", maxDigits))
		}
		n, _ := new(big.Int).SetString(s, 10)
		return normInt(n), nil
	}
	f, _ := strconv.ParseFloat(s, 64) // out of range gives an infinity, as in Python
	return f, nil
}

// dumpOptions are the arguments of transformers' tojson.
type dumpOptions struct {
	ascii    bool
	indent   string // per level
	pretty   bool
	item     string
	key      string
	sortKeys bool
	mark     string // is not escaped
}

type encoder struct {
	dumpOptions
	b strings.Builder
}

func (e *encoder) newline(depth int) {
	if e.pretty {
		e.b.WriteByte('\n')
		for range depth {
			e.b.WriteString(e.indent)
		}
	}
}

func (e *encoder) write(v any, depth int) error {
	if depth > maxNestRepr {
		return raise("RecursionError", "maximum recursion depth exceeded while encoding a JSON object")
	}
	if e.b.Len() > maxText {
		return raise("Limit", "tojson writes more than %d bytes", maxText)
	}
	switch v := v.(type) {
	case *list:
		return e.array(v.items, depth)
	case tuple:
		return e.array(v, depth)
	case *dict:
		return e.object(v, depth)
	case string:
		e.str(v)
		return nil
	case markup:
		e.str(string(v))
		return nil
	}
	s, err := scalarJSON(v, "Object of type %s is not JSON serializable")
	e.b.WriteString(s)
	return err
}

// scalarJSON writes what is neither text nor holds other values; refusal is the error of anything else, with its type.
func scalarJSON(v any, refusal string) (string, error) {
	switch v := v.(type) {
	case nil:
		return "null", nil
	case bool:
		return strconv.FormatBool(v), nil
	case int:
		return strconv.Itoa(v), nil
	case *big.Int:
		return decimal(v)
	case float64:
		switch {
		case math.IsNaN(v):
			return "NaN", nil
		case math.IsInf(v, 1):
			return "Infinity", nil
		case math.IsInf(v, -1):
			return "-Infinity", nil
		}
		return wording.PythonFloat(v), nil
	}
	return "", typeError(refusal, typeName(v))
}

func (e *encoder) array(items []any, depth int) error {
	if len(items) == 0 {
		e.b.WriteString("[]")
		return nil
	}
	e.b.WriteByte('[')
	for i, item := range items {
		if i > 0 {
			e.b.WriteString(e.item)
		}
		e.newline(depth + 1)
		if err := e.write(item, depth+1); err != nil {
			return err
		}
	}
	e.newline(depth)
	e.b.WriteByte(']')
	return nil
}

func (e *encoder) object(d *dict, depth int) error {
	if d.len() == 0 {
		e.b.WriteString("{}")
		return nil
	}
	order := make([]any, d.len())
	for i := range order {
		order[i] = i
	}
	if e.sortKeys {
		err := sortBy(order, func(a, b any) (bool, error) { return order2(d.keys[a.(int)], d.keys[b.(int)]) }, false)
		if err != nil {
			return err
		}
	}
	e.b.WriteByte('{')
	for n, at := range order {
		if n > 0 {
			e.b.WriteString(e.item)
		}
		e.newline(depth + 1)
		k := d.keys[at.(int)]
		key, ok := text(k)
		if !ok {
			var err error
			if key, err = scalarJSON(k, "keys must be str, int, float, bool or None, not %s"); err != nil {
				return err
			}
		}
		e.str(key)
		e.b.WriteString(e.key)
		if err := e.write(d.vals[at.(int)], depth+1); err != nil {
			return err
		}
	}
	e.newline(depth)
	e.b.WriteByte('}')
	return nil
}

func order2(a, b any) (bool, error) { return order("<", a, b) }

func (e *encoder) str(s string) {
	e.b.WriteByte('"')
	for _, r := range s {
		switch k := strings.IndexRune("\"\\\n\r\t\f\b", r); {
		case e.mark != "" && string(r) == e.mark:
			e.b.WriteString(e.mark)
		case k >= 0:
			e.b.WriteByte('\\')
			e.b.WriteByte(`"\nrtfb`[k])
		case r < 0x20 || e.ascii && r >= 0x7f && r < 0x10000:
			e.b.WriteString(`\u` + hex(r, 4))
		case e.ascii && r >= 0x10000:
			high, low := utf16.EncodeRune(r)
			e.b.WriteString(`\u` + hex(high, 4) + `\u` + hex(low, 4))
		default:
			e.b.WriteRune(r)
		}
	}
	e.b.WriteByte('"')
}

func tojson(vm *machine, v any, a arguments) (any, error) {
	args, err := a.bind("tojson", 0, "ensure_ascii", "indent", "separators", "sort_keys")
	if err != nil {
		return nil, err
	}
	given := func(i int) bool { return args[i] != missing && args[i] != nil }
	o := dumpOptions{mark: vm.mark, ascii: given(0) && truth(args[0]), item: ", ", key: ": ", sortKeys: given(3) && truth(args[3])}
	if given(1) {
		o.pretty, o.item = true, ","
		switch in := args[1].(type) {
		case string:
			o.indent = in
		case int:
			o.indent = strings.Repeat(" ", min(max(in, 0), 1000))
		case bool:
			o.indent = map[bool]string{true: " "}[in]
		default:
			return nil, typeError("can't multiply sequence by non-int of type '%s'", typeName(in))
		}
	}
	if given(2) {
		pair, err := collect(vm, args[2])
		if err != nil {
			return nil, err
		}
		if len(pair) != 2 {
			return nil, valueError("separators must be two strings")
		}
		var ok1, ok2 bool
		o.item, ok1 = text(pair[0])
		o.key, ok2 = text(pair[1])
		if !ok1 || !ok2 {
			return nil, typeError("separators must be strings")
		}
	}
	e := &encoder{dumpOptions: o}
	err = e.write(v, 0)
	return vm.made(e.b.String(), err)
}

// Dumps writes a JSON value as tojson does: one line, ", " and ": " between items, keys in their order, no escapes beyond
// those that JSON needs.
func Dumps(raw []byte) (string, error) {
	v, err := decodeJSON(string(raw))
	if err != nil {
		return "", err
	}
	e := &encoder{dumpOptions: dumpOptions{item: ", ", key: ": "}}
	err = e.write(v, 0)
	return e.b.String(), err
}
