package grammar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
)

// JSONSchema is the JSON texts that a schema describes. What is written is a part of what the schema allows, and every text of it is valid:
//   - properties come in the schema's order; others come behind them, and only where additionalProperties says so, or where the schema
//     names no properties at all;
//   - oneOf is read as anyOf;
//   - format holds for date, time, date-time, uuid, email and ipv4, and is a remark otherwise, as JSON Schema has it.
//
// A keyword that cannot be honoured is refused by name.
func JSONSchema(schema []byte) (Expr, error) {
	r, err := newSchemaReader(schema, asIs)
	if err != nil {
		return Expr{}, err
	}
	return r.expr(r.root, "schema", 0)
}

// Document is a JSON schema that is read part by part, as JSONSchema reads the whole: a $ref of a part points into the document. The values of
// the parts stand between tags: in them < is always written \u003c, so that no text of theirs is taken for a tag. A Document is not safe for
// concurrent use, and of no use behind an error.
type Document struct{ reader *schemaReader }

// NewDocument refuses what JSONSchema refuses before it has read a keyword.
func NewDocument(schema []byte) (*Document, error) {
	r, err := newSchemaReader(schema, betweenTags)
	if err != nil {
		return nil, err
	}
	return &Document{r}, nil
}

func newSchemaReader(schema []byte, w *writing) (*schemaReader, error) {
	switch {
	case len(schema) > maxSchema:
		return nil, fmt.Errorf("schema: it has %d bytes, at most %d are supported", len(schema), maxSchema)
	case !json.Valid(schema):
		return nil, errors.New("schema: it is no JSON")
	}
	root, err := readSchema(schema)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	return &schemaReader{
		root: root, document: bytes.TrimSpace(schema), writing: w, rules: map[string]*Rule{}, places: map[string]map[string]json.RawMessage{}, left: maxParts,
	}, nil
}

// Part is the JSON texts that a schema within the document describes.
func (d *Document) Part(schema []byte) (Expr, error) {
	n, err := readSchema(schema)
	if err != nil {
		return Expr{}, fmt.Errorf("schema: %w", err)
	}
	return d.reader.expr(n, "schema", 0)
}

// At is what a $ref such as #/$defs/a points to.
func (d *Document) At(ref string) (json.RawMessage, bool) {
	switch {
	case ref == "#":
		return d.reader.document, true
	case !strings.HasPrefix(ref, "#/"):
		return nil, false
	}
	return d.reader.place(ref)
}

// The most that a schema may bring: a request of a few bytes must not take memory without bound.
const (
	maxSchema = 1 << 20 // bytes
	maxParts  = 1 << 20 // nodes of the expression, about
)

// budget is how many nodes an expression may still have.
type budget int

func (b *budget) spend(nodes int) error {
	if *b -= budget(nodes); *b < 0 {
		return errors.New("it is too large; write fewer values, names, bounds, or classes of characters")
	}
	return nil
}

// schemaReader turns the schemas of one document into expressions.
type schemaReader struct {
	root     *schemaNode
	document json.RawMessage
	writing  *writing
	rules    map[string]*Rule                      // by $ref
	places   map[string]map[string]json.RawMessage // what lies below a pointer
	left     budget
}

// schemaNode is a schema: true, false, or an object with its keys in order.
type schemaNode struct {
	never  bool
	keys   []string
	values map[string]json.RawMessage
}

func readSchema(data []byte) (*schemaNode, error) {
	data = bytes.TrimSpace(data)
	switch string(data) {
	case "true":
		return &schemaNode{}, nil
	case "false":
		return &schemaNode{never: true}, nil
	}
	n := &schemaNode{values: map[string]json.RawMessage{}}
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("it must be a JSON object, true or false, got %s", wording.Clip(string(data), 40))
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		name := key.(string)
		if _, twice := n.values[name]; !twice {
			n.keys = append(n.keys, name)
		}
		n.values[name] = value
	}
	return n, nil
}

// remarks are keywords that describe and do not restrict, and those that others read.
var remarks = []string{
	"title", "description", "default", "examples", "example", "$schema", "$id", "$comment", "$defs", "definitions", "$anchor", "deprecated",
	"readOnly", "writeOnly", "contentMediaType", "contentEncoding", "discriminator", "strict", "format",
}

// keywords are those that each type reads.
var keywords = map[string][]string{
	"object":  {"properties", "required", "additionalProperties", "minProperties"},
	"array":   {"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "additionalItems"},
	"string":  {"minLength", "maxLength", "pattern"},
	"integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
	"number":  {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
	"boolean": {},
	"null":    {},
}

// inferred is the type of a schema without one that has a keyword of it.
var inferred = []string{"object", "array", "string", "number"}

func (r *schemaReader) expr(n *schemaNode, at string, depth int) (Expr, error) {
	switch {
	case depth > 64:
		return Expr{}, fmt.Errorf("%s: it is nested more than 64 deep", at)
	case r.left.spend(16) != nil:
		return Expr{}, fmt.Errorf("%s: %w", at, r.left.spend(0))
	case n.never:
		return Choice(), nil
	}
	for _, whole := range []struct {
		key  string
		read func(*schemaNode, json.RawMessage, string, int) (Expr, error)
	}{{"$ref", r.reference}, {"const", r.constant}, {"enum", r.enum}, {"anyOf", r.anyOf}, {"oneOf", r.anyOf}, {"allOf", r.allOf}} {
		value, ok := n.values[whole.key]
		if !ok {
			continue
		}
		for _, k := range n.keys { // beside it stand remarks alone, and for const and enum the type
			told := k == "nullable" || k == "type" && (whole.key == "const" || whole.key == "enum")
			if k != whole.key && !told && !slices.Contains(remarks, k) {
				return Expr{}, fmt.Errorf("%s: %q beside %q is not supported", at, wording.Clip(k, 64), whole.key)
			}
		}
		e, err := whole.read(n, value, at, depth)
		return r.nullable(n, e), err
	}
	types, err := n.types(at)
	if err != nil {
		return Expr{}, err
	}
	var known []string
	var choices []Expr
	for _, t := range types {
		known = append(known, keywords[t]...)
		e, err := r.typed(n, t, at, depth)
		if err != nil {
			return Expr{}, err
		}
		choices = append(choices, e)
	}
	for _, k := range n.keys {
		if k != "type" && k != "nullable" && !slices.Contains(remarks, k) && !slices.Contains(known, k) {
			return Expr{}, fmt.Errorf("%s: %q is not supported", at, wording.Clip(k, 64))
		}
	}
	if len(types) == 0 {
		return r.writing.value, nil
	}
	return r.nullable(n, Choice(choices...)), nil
}

// nullable is OpenAPI's way to allow null.
func (r *schemaReader) nullable(n *schemaNode, e Expr) Expr {
	if string(n.values["nullable"]) == "true" {
		return Choice(e, jsonNull)
	}
	return e
}

// types are the types that the schema names, or that its keywords are of; none is any value.
func (n *schemaNode) types(at string) ([]string, error) {
	raw, ok := n.values["type"]
	if !ok {
		for _, t := range inferred {
			for _, k := range keywords[t] {
				if _, ok := n.values[k]; ok {
					return []string{t}, nil
				}
			}
		}
		if _, ok := n.values["format"]; ok {
			return []string{"string"}, nil
		}
		return nil, nil
	}
	var types []string
	if err := json.Unmarshal(raw, &types); err != nil {
		var one string
		if err := json.Unmarshal(raw, &one); err != nil {
			return nil, fmt.Errorf("%s: type must be a name or a list of names, got %s", at, wording.Clip(string(raw), 64))
		}
		types = []string{one}
	}
	for _, t := range types {
		if _, ok := keywords[t]; !ok {
			return nil, fmt.Errorf("%s: type %q is unknown; the types are %s", at, wording.Clip(t, 64), strings.Join(slices.Sorted(maps.Keys(keywords)), ", "))
		}
	}
	if len(types) == 0 {
		return nil, fmt.Errorf("%s: type is an empty list", at)
	}
	slices.Sort(types)
	return slices.Compact(types), nil // a type that is named twice is read once
}

func (r *schemaReader) typed(n *schemaNode, t, at string, depth int) (Expr, error) {
	switch t {
	case "object":
		return r.object(n, at, depth)
	case "array":
		return r.array(n, at, depth)
	case "string":
		return r.text(n, at)
	case "integer":
		return r.number(n, at, true)
	case "number":
		return r.number(n, at, false)
	case "boolean":
		return jsonBool, nil
	default:
		return jsonNull, nil
	}
}

func (r *schemaReader) reference(_ *schemaNode, value json.RawMessage, at string, depth int) (Expr, error) {
	var ref string
	if err := json.Unmarshal(value, &ref); err != nil || ref != "#" && !strings.HasPrefix(ref, "#/") {
		return Expr{}, fmt.Errorf("%s: $ref is %s, it must point into the schema itself, such as #/$defs/name", at, wording.Clip(string(value), 80))
	}
	if rule, ok := r.rules[ref]; ok {
		return rule.Expr(), nil
	}
	rule := NewRule(ref)
	r.rules[ref] = rule
	n := r.root
	if ref != "#" {
		raw, ok := r.place(ref)
		if !ok {
			return Expr{}, fmt.Errorf("%s: $ref %q points to nothing", at, wording.Clip(ref, 80))
		}
		var err error
		if n, err = readSchema(raw); err != nil {
			return Expr{}, fmt.Errorf("%s: $ref %q: %w", at, wording.Clip(ref, 80), err)
		}
	}
	e, err := r.expr(n, ref, depth+1)
	if err != nil {
		return Expr{}, err
	}
	rule.Define(e)
	return rule.Expr(), nil
}

// place is what a pointer, #/a/b, points to. What lies around it is read once, however many pointers lead through it.
func (r *schemaReader) place(pointer string) (json.RawMessage, bool) {
	around, name := "#", strings.TrimPrefix(pointer, "#/")
	raw, ok := r.document, true
	if i := strings.LastIndexByte(pointer, '/'); i > 1 {
		around, name = pointer[:i], pointer[i+1:]
		if raw, ok = r.place(around); !ok {
			return nil, false
		}
	}
	below, known := r.places[around]
	if !known {
		var list []json.RawMessage
		if json.Unmarshal(raw, &below) != nil && json.Unmarshal(raw, &list) == nil {
			below = map[string]json.RawMessage{}
			for i, item := range list {
				below[strconv.Itoa(i)] = item
			}
		}
		r.places[around] = below
	}
	raw, ok = below[pointed(name)]
	return raw, ok
}

// Names are the names that a $ref into its own document, such as #/$defs/a, leads through; false: it leads elsewhere.
func Names(ref string) (names []string, ok bool) {
	rest, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil, ref == "#"
	}
	for name := range strings.SplitSeq(rest, "/") {
		names = append(names, pointed(name))
	}
	return names, true
}

// pointed is a name as it stands in a pointer, read.
func pointed(name string) string {
	if plain, err := url.PathUnescape(name); err == nil { // it is the fragment of a URI
		name = plain
	}
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
}

func (r *schemaReader) constant(n *schemaNode, value json.RawMessage, at string, _ int) (Expr, error) {
	return r.values(n, []json.RawMessage{value}, at)
}

func (r *schemaReader) enum(n *schemaNode, value json.RawMessage, at string, _ int) (Expr, error) {
	var values []json.RawMessage
	if err := json.Unmarshal(value, &values); err != nil || len(values) == 0 {
		return Expr{}, fmt.Errorf("%s: enum must be a list with at least one value", at)
	}
	return r.values(n, values, at)
}

// values is one of the values that have the type of the schema.
func (r *schemaReader) values(n *schemaNode, values []json.RawMessage, at string) (Expr, error) {
	var types []string
	if _, ok := n.values["type"]; ok {
		var err error
		if types, err = n.types(at); err != nil {
			return Expr{}, err
		}
	}
	var out []string
	for _, v := range values {
		if types != nil && !isOf(v, types) {
			continue
		}
		written, err := r.writing.compact(v)
		if err == nil {
			err = r.left.spend(len(written))
		}
		if err != nil {
			return Expr{}, fmt.Errorf("%s: %w", at, err)
		}
		out = append(out, written)
	}
	return Texts(out...), nil
}

// isOf tells whether a value has one of the types.
func isOf(value json.RawMessage, types []string) bool {
	has := func(t string) bool { return slices.Contains(types, t) }
	switch value[0] {
	case '{':
		return has("object")
	case '[':
		return has("array")
	case '"':
		return has("string")
	case 't', 'f':
		return has("boolean")
	case 'n':
		return has("null")
	}
	v, err := strconv.ParseFloat(string(value), 64)
	return has("number") || has("integer") && err == nil && v == math.Trunc(v)
}

func (r *schemaReader) anyOf(_ *schemaNode, value json.RawMessage, at string, depth int) (Expr, error) {
	var values []json.RawMessage
	if err := json.Unmarshal(value, &values); err != nil || len(values) == 0 {
		return Expr{}, fmt.Errorf("%s: anyOf and oneOf must be a list with at least one schema", at)
	}
	var out []Expr
	for i, v := range values {
		e, err := r.child(v, fmt.Sprintf("%s.anyOf[%d]", at, i), depth)
		if err != nil {
			return Expr{}, err
		}
		out = append(out, e)
	}
	return Choice(out...), nil
}

func (r *schemaReader) allOf(_ *schemaNode, value json.RawMessage, at string, depth int) (Expr, error) {
	var values []json.RawMessage
	if err := json.Unmarshal(value, &values); err != nil || len(values) != 1 {
		return Expr{}, fmt.Errorf("%s: allOf is supported with exactly one schema", at)
	}
	return r.child(values[0], at+".allOf[0]", depth)
}

func (r *schemaReader) child(raw json.RawMessage, at string, depth int) (Expr, error) {
	n, err := readSchema(raw)
	if err != nil {
		return Expr{}, fmt.Errorf("%s: %w", at, err)
	}
	return r.expr(n, at, depth+1)
}

// member is a property of an object.
type member struct {
	pair     Expr // its name and value
	required bool
}

func (r *schemaReader) object(n *schemaNode, at string, depth int) (Expr, error) {
	var required []string
	if raw, ok := n.values["required"]; ok {
		if err := json.Unmarshal(raw, &required); err != nil {
			return Expr{}, fmt.Errorf("%s: required must be a list of names", at)
		}
	}
	properties := &schemaNode{}
	if raw, ok := n.values["properties"]; ok {
		var err error
		if properties, err = readSchema(raw); err != nil {
			return Expr{}, fmt.Errorf("%s.properties: %w", at, err)
		}
	}
	others, err := r.others(n, len(properties.keys) > 0, at, depth)
	if err != nil {
		return Expr{}, err
	}
	names := slices.Clone(properties.keys)
	must := map[string]bool{}
	for _, name := range required {
		if _, named := properties.values[name]; !named && !must[name] {
			names = append(names, name)
		}
		must[name] = true
	}
	for _, name := range names {
		weight := 4 * len(name)
		if others != nil { // see keyBut
			weight = 80 * len(name)
		}
		if err := r.left.spend(weight + 16); err != nil {
			return Expr{}, fmt.Errorf("%s.properties: %w", at, err)
		}
	}
	var members []member
	for _, name := range names {
		value := r.writing.value
		switch {
		case others != nil:
			value = *others
		case string(n.values["additionalProperties"]) == "false": // the object must have it, and may not
			value = Choice()
		}
		if raw, ok := properties.values[name]; ok {
			if value, err = r.child(raw, at+"."+name, depth); err != nil {
				return Expr{}, err
			}
		}
		members = append(members, member{Sequence(Text(r.writing.literal(name)), colon, value), must[name]})
	}
	rest := Choice() // no other member
	if others != nil {
		rest = Sequence(r.writing.keyBut(names), colon, *others)
	}
	least, err := count(n, "minProperties", at)
	if err != nil {
		return Expr{}, err
	}
	if least > len(must) {
		return Expr{}, fmt.Errorf("%s: minProperties of %d is not supported, where %d properties are required", at, least, len(must))
	}
	return Sequence(Text("{"), blank, inOrder(members, rest, others != nil), Text("}")), nil
}

// others are the values that properties without a name in the schema may have; nil says that there are none.
func (r *schemaReader) others(n *schemaNode, named bool, at string, depth int) (*Expr, error) {
	raw, ok := n.values["additionalProperties"]
	switch {
	case string(raw) == "false", !ok && named:
		return nil, nil
	case !ok, string(raw) == "true":
		e := r.writing.value
		return &e, nil
	}
	e, err := r.child(raw, at+".additionalProperties", depth)
	return &e, err
}

// inOrder is the members in their order, those that are not required or not, then any number of others where they are open.
func inOrder(members []member, rest Expr, open bool) Expr {
	// behind[i] is what follows member i-1, of which at least one was written, up to the brace.
	behind := blank
	if open {
		behind = Sequence(Repeat(Sequence(comma, rest), 0, -1), blank)
	}
	first := Expr{} // where nothing was written yet
	if open {
		first = Optional(list(rest, 1, -1))
	}
	for _, m := range slices.Backward(members) {
		before := share(behind)
		behind = Sequence(comma, m.pair, before)
		started := Sequence(m.pair, before)
		if m.required {
			first = started
		} else {
			first = share(Choice(started, first))
			behind = Choice(behind, before)
		}
	}
	return first
}

// share is e as a rule: it is compiled once, wherever it stands.
func share(e Expr) Expr {
	r := NewRule("members")
	r.Define(e)
	return r.Expr()
}

func (r *schemaReader) array(n *schemaNode, at string, depth int) (Expr, error) {
	if string(n.values["uniqueItems"]) == "true" {
		return Expr{}, fmt.Errorf("%s: %q is not supported", at, "uniqueItems")
	}
	least, err := count(n, "minItems", at)
	if err != nil {
		return Expr{}, err
	}
	most := -1
	if _, ok := n.values["maxItems"]; ok {
		if most, err = count(n, "maxItems", at); err != nil {
			return Expr{}, err
		}
	}
	var leading []Expr
	if raw, ok := n.values["prefixItems"]; ok {
		var items []json.RawMessage
		if err := json.Unmarshal(raw, &items); err != nil {
			return Expr{}, fmt.Errorf("%s: prefixItems must be a list of schemas", at)
		}
		for i, item := range items {
			e, err := r.child(item, fmt.Sprintf("%s.prefixItems[%d]", at, i), depth)
			if err != nil {
				return Expr{}, err
			}
			leading = append(leading, e)
		}
	}
	item, open := r.writing.value, true
	if raw, ok := n.values["items"]; ok {
		if open = string(raw) != "false"; open {
			if item, err = r.child(raw, at+".items", depth); err != nil {
				return Expr{}, err
			}
		}
	}
	if !open {
		most = len(leading)
		if raw, ok := n.values["maxItems"]; ok {
			if v, _ := strconv.Atoi(string(raw)); v < most {
				most = v
			}
		}
	}
	if most >= 0 && least > most {
		return Expr{}, fmt.Errorf("%s: minItems is %d, above maxItems, %d", at, least, most)
	}
	return Sequence(Text("["), blank, items(leading, item, least, most), Text("]")), nil
}

// items is least to most items, the leading ones first; most below 0 is no bound.
func items(leading []Expr, item Expr, least, most int) Expr {
	if most == 0 {
		return Expr{}
	}
	if len(leading) == 0 {
		e := list(item, max(least, 1), most)
		if least == 0 {
			e = Optional(e)
		}
		return e
	}
	// from the last to the first: what stands behind item i
	rest := Repeat(Sequence(comma, item), max(least-len(leading), 0), max(most-len(leading), -1))
	if most >= 0 && most <= len(leading) {
		leading, rest = leading[:most], Expr{}
	}
	for i, e := range slices.Backward(leading) {
		if i == 0 {
			rest = Sequence(e, rest, blank)
		} else {
			rest = Sequence(comma, e, rest)
		}
		if i >= least {
			rest = Optional(rest)
		}
	}
	return rest
}

// count reads a number of things, which is no smaller than 0; without the key it is 0.
func count(n *schemaNode, key, at string) (int, error) {
	raw, ok := n.values[key]
	if !ok {
		return 0, nil
	}
	v, err := strconv.Atoi(string(raw))
	if err != nil || v < 0 {
		return 0, fmt.Errorf("%s: %s is %s, it must be a whole number of at least 0", at, key, wording.Clip(string(raw), 40))
	}
	if v > maxInstructions {
		return 0, fmt.Errorf("%s: %s is %d, at most %d is supported", at, key, v, maxInstructions)
	}
	return v, nil
}

const (
	year = `([1-9]\d{3}|0[1-9]\d{2}|00[1-9]\d|000[1-9])` // of those that every calendar has
	leap = `(\d\d(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)`
	// day is a day that there is.
	day   = `(` + year + `-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8]))|` + leap + `-02-29)`
	clock = `([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)`
)

// formats are the patterns of the formats that hold.
var formats = map[string]string{
	"date":      day,
	"time":      clock,
	"date-time": day + "T" + clock,
	"uuid":      `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`,
	"email":     `[A-Za-z0-9_+-]+(\.[A-Za-z0-9_+-]+)*@[A-Za-z0-9]+(-+[A-Za-z0-9]+)*(\.[A-Za-z0-9]+(-+[A-Za-z0-9]+)*)+`,
	"ipv4":      `((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`,
}

func (r *schemaReader) text(n *schemaNode, at string) (Expr, error) {
	least, err := count(n, "minLength", at)
	if err != nil {
		return Expr{}, err
	}
	most := -1
	if _, ok := n.values["maxLength"]; ok {
		if most, err = count(n, "maxLength", at); err != nil {
			return Expr{}, err
		}
		if most < least {
			return Expr{}, fmt.Errorf("%s: minLength is %d, above maxLength, %d", at, least, most)
		}
	}
	var pattern, format string
	if raw, ok := n.values["pattern"]; ok {
		if err := json.Unmarshal(raw, &pattern); err != nil {
			return Expr{}, fmt.Errorf("%s: pattern must be a text", at)
		}
	}
	if raw, ok := n.values["format"]; ok {
		_ = json.Unmarshal(raw, &format) // anything else is a remark
		known := formats[format]
		switch {
		case known != "" && pattern != "":
			return Expr{}, fmt.Errorf("%s: pattern beside the format %q is not supported", at, format)
		case known != "":
			pattern = "^(" + known + ")$"
		}
	}
	if pattern == "" {
		return Sequence(quote, Repeat(r.writing.letter, least, most), quote), nil
	}
	if least > 0 || most >= 0 {
		return Expr{}, fmt.Errorf("%s: minLength and maxLength beside pattern or format are not supported", at)
	}
	e, err := regular(pattern, r.writing, &r.left)
	if err != nil {
		return Expr{}, fmt.Errorf("%s: pattern %q: %w", at, wording.Clip(pattern, 80), err)
	}
	return Sequence(quote, e, quote), nil
}

// number is an integer, or a number, between the bounds of the schema.
func (r *schemaReader) number(n *schemaNode, at string, integer bool) (Expr, error) {
	if raw, ok := n.values["multipleOf"]; ok && !(integer && string(raw) == "1") {
		return Expr{}, fmt.Errorf("%s: %q is not supported", at, "multipleOf")
	}
	b := bounds{integer: integer}
	for _, k := range []string{"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"} {
		raw, ok := n.values[k]
		if !ok {
			continue
		}
		v, err := bound(raw)
		if err == nil {
			err = r.left.spend(512)
		}
		if err != nil {
			return Expr{}, fmt.Errorf("%s: %s is %s, %w", at, k, wording.Clip(string(raw), 40), err)
		}
		if err := b.add(k, v); err != nil {
			return Expr{}, fmt.Errorf("%s: %w", at, err)
		}
	}
	if b.low == nil && b.high == nil {
		if integer {
			return jsonInteger, nil
		}
		return jsonNumber, nil
	}
	e, ok := b.expr()
	if !ok {
		return Expr{}, fmt.Errorf("%s: no number is between its bounds", at)
	}
	return e, nil
}

// bound reads a number that is short: one of a few bytes may stand for millions of digits.
func bound(raw json.RawMessage) (*big.Rat, error) {
	var v json.Number
	if err := json.Unmarshal(raw, &v); err != nil || raw[0] == '"' {
		return nil, errors.New("it must be a number")
	}
	_, exponent, _ := strings.Cut(strings.ToLower(string(raw)), "e")
	if power, err := strconv.Atoi("0" + strings.TrimLeft(exponent, "+-")); err != nil || power > 99 || len(raw) > 99 {
		return nil, errors.New("which has more digits than is supported")
	}
	out, _ := new(big.Rat).SetString(string(raw)) // it is a number of JSON
	return out, nil
}

var errFraction = errors.New("a bound of numbers that is no whole number is not supported")
