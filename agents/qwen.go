package agents

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	form "github.com/agentfly/agentfly/grammar"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

var _ = declareFormat(FormatSpec{
	Name: "qwen3_coder", Kind: defaultKind, Description: "<tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>",
	Parsers: []string{"qwen3_coder", "qwen3_xml"}, InTemplates: true, New: newQwen,
})

// qwen writes a call as <tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>, the form of Qwen3-Coder. Values
// are text, read as the types that the tool's schema gives them; one line break at each end of a value is markup. The tags around a
// function may be missing, and the closing tag of a parameter before another one. A turn without a call is the final answer, as in hermes.
type qwen struct {
	role  string
	tools string
	specs []tools.Spec
	types map[string]map[string][]string // of a tool's parameters, by their names
}

const (
	functionOpen   = "<function="
	functionClose  = "</function>"
	parameterOpen  = "<parameter="
	parameterClose = "</parameter>"
	qwenUsage      = "<tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>"
)

var (
	_ Format   = (*qwen)(nil)
	_ Required = (*qwen)(nil)
	_ grammar  = (*qwen)(nil)
)

func newQwen(specs []tools.Spec, o FormatOptions) (Format, error) {
	f := &qwen{role: cmp.Or(o.ObservationRole, "tool"), specs: specs, types: map[string]map[string][]string{}}
	for _, spec := range specs {
		f.types[spec.Name] = parameterTypes(spec.Parameters)
	}
	var err error
	f.tools, err = described(specs)
	return f, err
}

// Instructions follow Qwen3-Coder's chat template.
func (f *qwen) Instructions() string {
	return "# Tools\n\nYou have access to the following functions:\n\n<tools>\n" + f.tools + "\n</tools>\n\n" +
		"If you choose to call a function, reply in this format, with no text behind it:\n\n" +
		"<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n" +
		"<parameter=example_parameter_2>\nThe value of the second parameter,\nwhich can be several lines long\n</parameter>\n</function>\n</tool_call>"
}

// Stops is empty: a turn may hold several calls, and the model ends it itself.
func (f *qwen) Stops() []string { return nil }

// Calls implements Required.
func (f *qwen) Calls(several bool) (form.Expr, error) {
	var calls []form.Expr
	for _, spec := range f.specs {
		parameters, err := qwenParameters(spec, f.types[spec.Name])
		if err != nil {
			return form.Expr{}, fmt.Errorf("the parameters of %s: %w", spec.Name, err)
		}
		calls = append(calls, form.Sequence(form.Text(callOpen+"\n"+functionOpen+spec.Name+">\n"), parameters, form.Text(functionClose+"\n"+callClose)))
	}
	return listed(form.Choice(calls...), "\n", several), nil
}

// qwenParameters are the parameters of a call in the order of the schema, which names each that is required.
func qwenParameters(spec tools.Spec, types map[string][]string) (form.Expr, error) {
	if len(spec.Parameters) == 0 {
		return form.Expr{}, nil
	}
	if _, err := form.JSONSchema(spec.Parameters); err != nil { // refuses by name what cannot be honoured
		return form.Expr{}, err
	}
	schema, err := tools.ParseSchema(spec.Parameters)
	if err != nil {
		return form.Expr{}, err
	}
	var raw struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(spec.Parameters, &raw); err != nil {
		return form.Expr{}, err
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(spec.Parameters, &keys); err != nil {
		return form.Expr{}, err
	}
	for _, key := range []string{"$ref", "anyOf", "oneOf", "allOf", "enum", "const"} {
		if _, ok := keys[key]; ok {
			return form.Expr{}, fmt.Errorf("%q beside the properties is not supported in this form of calls", key)
		}
	}
	document, err := form.NewDocument(spec.Parameters)
	if err != nil {
		return form.Expr{}, err
	}
	values := qwenValues{document: document, left: maxRead}
	var parts []form.Expr
	for _, p := range schema.Properties {
		if strings.ContainsAny(p.Name, "<>") || strings.TrimSpace(p.Name) != p.Name || p.Name == "" {
			return form.Expr{}, fmt.Errorf("the name %q cannot stand in a tag", wording.Clip(p.Name, 64))
		}
		value, err := values.of(raw.Properties[p.Name], types[p.Name])
		if err != nil {
			return form.Expr{}, fmt.Errorf("%s: %w", p.Name, err)
		}
		part := form.Sequence(form.Text(parameterOpen+p.Name+">\n"), value, form.Text("\n"+parameterClose+"\n"))
		if !slices.Contains(schema.Required, p.Name) {
			part = form.Optional(part)
		}
		parts = append(parts, part)
	}
	for _, name := range schema.Required {
		if schema.Property(name) == nil {
			return form.Expr{}, fmt.Errorf("%s is required and not described", name)
		}
	}
	return form.Sequence(parts...), nil
}

// beside are keywords that describe, and those that qwenText reads.
var beside = []string{"title", "description", "default", "examples", "deprecated", "type", "minLength", "maxLength"}

// maxRead is how many bytes of schemas are read for the parameters of a tool: a few bytes may point to the same alternatives many times.
const maxRead = 1 << 24

// qwenValues are the values of a tool's parameters as they stand between the tags, such that each is read back as one that its schema allows: a
// text as it is, without a tag in it, and JSON otherwise.
type qwenValues struct {
	document *form.Document
	left     int // of maxRead
}

// of are the values of a schema that are read back as one of the types.
func (q *qwenValues) of(schema json.RawMessage, types []string) (form.Expr, error) {
	if !slices.Contains(types, "string") {
		return q.document.Part(schema)
	}
	alternatives, err := q.alternatives(schema, map[string]bool{})
	if err != nil {
		return form.Expr{}, err
	}
	var out []form.Expr
	var plain []string // the types of which every value is allowed
	free := false      // a text may be written that is no literal
	for _, a := range alternatives {
		literals, allowed, err := a.literals()
		if err != nil {
			return form.Expr{}, err
		}
		own := typesOf(a.raw)
		text := slices.Contains(own, "string")
		e := form.Expr{}
		switch {
		case literals != nil:
			e, err = qwenLiterals(literals, allowed, types)
		case text:
			free = true
			e, err = a.text(own)
			plain = append(plain, own...)
		default:
			if err = qwenPlain(a.raw); err == nil { // a text may be written that is read as this alternative
				e, err = q.document.Part(a.raw)
			}
			plain = append(plain, own...)
		}
		if err != nil {
			return form.Expr{}, err
		}
		out = append(out, e)
	}
	for _, t := range types {
		if free && t != "string" && !slices.Contains(plain, t) {
			return form.Expr{}, fmt.Errorf("a value that is any text or one of some of type %s is not supported in this form of calls", t)
		}
	}
	return form.Choice(out...), nil
}

// alternative is a schema of a value that is no choice between others and points to none.
type alternative struct {
	raw  json.RawMessage
	keys map[string]json.RawMessage
}

// alternatives are those that a value of the schema may be of. What a $ref points to is among them once.
func (q *qwenValues) alternatives(schema json.RawMessage, pointed map[string]bool) ([]alternative, error) {
	if q.left -= len(schema) + 64; q.left < 0 {
		return nil, errors.New("it is too large; write fewer alternatives")
	}
	a := alternative{raw: schema}
	switch string(bytes.TrimSpace(schema)) {
	case "true": // any text
		a.raw = json.RawMessage("{}")
	case "false":
		return nil, nil
	}
	if err := json.Unmarshal(a.raw, &a.keys); err != nil {
		return nil, err
	}
	for _, key := range []string{"$ref", "anyOf", "oneOf", "allOf"} {
		value, ok := a.keys[key]
		if !ok {
			continue
		}
		delete(a.keys, key)
		if err := a.only(beside); err != nil {
			return nil, err
		}
		var list []json.RawMessage
		var ref string
		switch {
		case key != "$ref":
			if err := json.Unmarshal(value, &list); err != nil {
				return nil, err
			}
		case json.Unmarshal(value, &ref) == nil && !pointed[ref]:
			pointed[ref] = true
			if to, ok := q.document.At(ref); ok {
				list = append(list, to)
			}
		}
		var out []alternative
		for _, schema := range list {
			some, err := q.alternatives(schema, pointed)
			if err != nil {
				return nil, err
			}
			out = append(out, some...)
		}
		return out, nil
	}
	return []alternative{a}, nil
}

// only refuses a keyword that is none of those.
func (a alternative) only(known []string) error {
	for _, key := range slices.Sorted(maps.Keys(a.keys)) {
		if !slices.Contains(known, key) {
			return fmt.Errorf("%q of what may be text is not supported in this form of calls", wording.Clip(key, 64))
		}
	}
	return nil
}

// literals are the values of const or enum, and the types that they must have.
func (a alternative) literals() ([]any, []string, error) {
	s, err := tools.ParseSchema(a.raw)
	if err != nil {
		return nil, nil, err
	}
	raw, ok := a.keys["const"]
	if !ok {
		return s.Enum, s.Types, nil
	}
	var v any
	err = json.Unmarshal(raw, &v)
	return []any{v}, s.Types, err
}

// text is a text, or a value of one of the other types.
func (a alternative) text(types []string) (form.Expr, error) {
	if err := a.only(beside); err != nil {
		return form.Expr{}, err
	}
	var out []form.Expr
	for _, t := range types {
		plain := json.RawMessage(`{"type": "` + t + `"}`)
		e, err := form.JSONSchema(plain)
		if t == "string" {
			e, err = qwenText(a.raw)
		} else if err == nil {
			err = qwenPlain(plain)
		}
		if err != nil {
			return form.Expr{}, err
		}
		out = append(out, e)
	}
	return form.Choice(out...), nil
}

// qwenPlain refuses what stands beside a text and is more than a type of short values: each text that is read as one must be allowed.
func qwenPlain(raw json.RawMessage) error {
	a := alternative{raw: raw}
	if err := json.Unmarshal(raw, &a.keys); err != nil {
		return err
	}
	kind := strings.Trim(string(a.keys["type"]), `"`)
	if kind != "" && !slices.Contains([]string{"null", "boolean", "integer", "number"}, kind) {
		return fmt.Errorf("a value that is text or of type %s is not supported in this form of calls", wording.Clip(kind, 64))
	}
	return a.only(beside[:6])
}

// qwenText is a text within its bounds.
func qwenText(raw json.RawMessage) (form.Expr, error) {
	var keys struct {
		MinLength int
		MaxLength *int
	}
	if err := json.Unmarshal(raw, &keys); err != nil {
		return form.Expr{}, err
	}
	most := -1
	if keys.MaxLength != nil {
		most = *keys.MaxLength
	}
	return form.TextWithout('<', keys.MinLength, most), nil
}

// qwenLiterals is one of the values that have one of the schema's types, where each is read back as it is.
func qwenLiterals(values []any, allowed, types []string) (form.Expr, error) {
	var out []string
	for _, v := range values {
		if len(allowed) > 0 && !slices.ContainsFunc(kindsOf(v), func(t string) bool { return slices.Contains(allowed, t) }) {
			continue
		}
		written, err := wording.JSON(v)
		if err != nil {
			return form.Expr{}, err
		}
		text, ok := v.(string)
		if !ok {
			text = string(written)
		}
		back, err := wording.JSON(typed(text, types))
		if err != nil || string(back) != string(written) || strings.Contains(text, "<") || strings.Trim(text, "\n") != text {
			return form.Expr{}, fmt.Errorf("the value %s cannot be written between tags", wording.Clip(string(written), 80))
		}
		out = append(out, text)
	}
	return form.Texts(out...), nil
}

func (f *qwen) Observe(_ context.Context, results []trajectory.ToolResult) ([]trajectory.Message, error) {
	return messages(f.role, results), nil
}

func (f *qwen) Parse(_ context.Context, completion string) (Parsed, error) {
	text := afterThinking(f, completion)
	calls, errs, _ := collect(f, text)
	if len(calls) > 0 || len(errs) > 0 {
		return Parsed{Calls: calls, Errors: errs}, nil
	}
	return answered(text, true), nil
}

func (f *qwen) next(text string, from int, last bool) segment {
	start, mark := first(text, from, callOpen, functionOpen)
	if start < 0 {
		return nothing(text, from, last, callOpen, functionOpen)
	}
	wrong := func(end int, why string) segment {
		return segment{start: start, end: end, errors: []string{why + "; write " + qwenUsage}}
	}
	at := start
	if mark == callOpen {
		at = skip(text, start+len(callOpen))
		switch {
		case !last && could(text[at:], functionOpen):
			return open(start)
		case !strings.HasPrefix(text[at:], functionOpen):
			return wrong(at, "behind <tool_call> comes no <function=")
		}
	}
	head := strings.IndexAny(text[at+1:], "<>")
	end := strings.Index(text[at:], functionClose)
	switch {
	case (head < 0 || end < 0) && !last:
		return open(start)
	case head < 0 || end < 0:
		return wrong(len(text), "the call is not closed")
	}
	name, body := text[at+len(functionOpen):at+1+head], text[at+1+head:at+end]
	end += at + len(functionClose)
	after := skip(text, end)
	closed := strings.HasPrefix(text[after:], callClose)
	if !closed && !last && could(text[after:], callClose) {
		return open(start)
	}
	if closed {
		end = after + len(callClose)
	}
	if name = strings.TrimSpace(name); name == "" || !strings.HasPrefix(body, ">") {
		return wrong(end, "the call has no name")
	}
	arguments, why := f.arguments(name, body[1:])
	if why != "" {
		return wrong(end, "the call of "+line(name)+why)
	}
	return segment{start: start, end: end, calls: []trajectory.ToolCall{{Name: name, Arguments: arguments}}}
}

// arguments reads what stands in a function, or says what is wrong with it.
func (f *qwen) arguments(name, body string) (json.RawMessage, string) {
	var keys []string
	values := map[string]any{}
	for body = strings.TrimLeft(body, blank); body != ""; body = strings.TrimLeft(body, blank) {
		rest, ok := strings.CutPrefix(body, parameterOpen)
		key, rest, closed := strings.Cut(rest, ">")
		if !ok || !closed {
			return nil, " has text that is no parameter"
		}
		value := rest
		end, mark := first(rest, 0, parameterClose, parameterOpen)
		switch {
		case end < 0:
			body = ""
		case mark == parameterClose:
			value, body = rest[:end], rest[end+len(mark):]
		default:
			value, body = rest[:end], rest[end:]
		}
		key = strings.TrimSpace(key)
		if _, again := values[key]; !again {
			keys = append(keys, key)
		}
		values[key] = typed(strings.TrimSuffix(strings.TrimPrefix(value, "\n"), "\n"), f.readAs(name, key))
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for i, key := range keys {
		k, err := wording.JSON(key)
		if err != nil {
			return nil, " cannot be read"
		}
		v, err := wording.JSON(values[key])
		if err != nil {
			return nil, " cannot be read"
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.Write(k)
		b.WriteString(": ")
		b.Write(v)
	}
	b.WriteByte('}')
	return b.Bytes(), ""
}

// readAs are the types that an argument is read as; one without a schema is text.
func (f *qwen) readAs(name, key string) []string {
	if types := f.types[name][key]; types != nil {
		return types
	}
	return []string{"string"}
}

// parameterTypes are the types that the parameters of a schema are read as. Nothing else of the schema is looked at: it is often a client's own, and may be
// written in ways that package tools does not know.
func parameterTypes(schema json.RawMessage) map[string][]string {
	d := schemaTypes{pointed: map[string][]string{}}
	_ = json.Unmarshal(schema, &d.document) // what cannot be read tells no types
	root, _ := d.document.(map[string]any)
	properties, _ := root["properties"].(map[string]any)
	types := make(map[string][]string, len(properties))
	for name, property := range properties {
		types[name] = d.of(property)
	}
	return types
}

// typesOf are the types that a schema's values are read as, where it stands alone.
func typesOf(schema json.RawMessage) []string {
	d := schemaTypes{pointed: map[string][]string{}}
	_ = json.Unmarshal(schema, &d.document) // what cannot be read tells no types
	return d.of(d.document)
}

// schemaTypes are the types that values of the schemas in a document are read as: those of vLLM 0.32.0's extract_types_from_schema and
// _TYPE_ALIASES. Beyond vLLM, for which a $ref is text, a $ref has the types of what it points to.
type schemaTypes struct {
	document any
	pointed  map[string][]string // the types of what a $ref points to
}

// of are the types of a decoded schema: all that it or an alternative of it names. A schema that names none is text, alternatives too.
func (d *schemaTypes) of(schema any) (types []string) {
	s, _ := schema.(map[string]any) // true and false tell none
	names, ok := s["type"].([]any)
	if !ok {
		names = []any{s["type"]}
	}
	for _, v := range names {
		if name, ok := v.(string); ok {
			types = append(types, typeNames[strings.ToLower(strings.TrimSpace(name))])
		}
	}
	values, _ := s["enum"].([]any)
	for _, v := range values {
		types = append(types, kindsOf(v)[0])
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		alternatives, _ := s[key].([]any)
		for _, o := range alternatives {
			types = append(types, d.of(o)...)
		}
	}
	if ref, ok := s["$ref"].(string); ok {
		types = append(types, d.at(ref)...)
	}
	if len(types) == 0 {
		return []string{"string"}
	}
	slices.Sort(types)
	return slices.Compact(types)
}

// at are the types of what a $ref points to, none where that is nothing or leads back to the $ref.
func (d *schemaTypes) at(ref string) []string {
	if types, ok := d.pointed[ref]; ok {
		return types
	}
	names, ok := form.Names(ref)
	if !ok {
		return nil
	}
	place := d.document
	for _, name := range names {
		switch around := place.(type) {
		case map[string]any:
			place, ok = around[name]
		case []any:
			i, err := strconv.Atoi(name)
			if ok = err == nil && 0 <= i && i < len(around); ok {
				place = around[i]
			}
		default:
			ok = false
		}
		if !ok {
			return nil
		}
	}
	d.pointed[ref] = nil // until it is known
	d.pointed[ref] = d.of(place)
	return d.pointed[ref]
}

// typeNames are the types by their names and by those that vLLM takes for them. Any other name stands for a type that no text has.
var typeNames = map[string]string{
	"null": "null", "integer": "integer", "number": "number", "boolean": "boolean", "object": "object", "array": "array", "string": "string",
	"str": "string", "text": "string", "varchar": "string", "char": "string", "enum": "string",
	"int": "integer", "int32": "integer", "int64": "integer", "uint": "integer", "uint32": "integer", "uint64": "integer", "long": "integer",
	"short": "integer", "unsigned": "integer", "float": "number", "float32": "number", "float64": "number", "double": "number",
	"bool": "boolean", "dict": "object", "arr": "array", "list": "array", "sequence": "array",
}

// kindsOf are the types of a decoded value, the widest first.
func kindsOf(v any) []string {
	switch v := v.(type) {
	case nil:
		return []string{"null"}
	case bool:
		return []string{"boolean"}
	case float64:
		if v == math.Trunc(v) {
			return []string{"number", "integer"}
		}
		return []string{"number"}
	case string:
		return []string{"string"}
	case []any:
		return []string{"array"}
	}
	return []string{"object"}
}

// typed is a text as the first of the types null, integer, number, boolean, object, array and string that it can be, among those given;
// where it can be none, as the JSON that it is, or as text: then the schema refuses it with a better word.
func typed(text string, types []string) any {
	for _, t := range []string{"null", "integer", "number", "boolean", "object", "array", "string"} {
		if !slices.Contains(types, t) {
			continue
		}
		if v, ok := as(t, text); ok {
			return v
		}
	}
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return text
}

func as(kind, text string) (any, bool) {
	trimmed := strings.TrimSpace(text)
	switch kind {
	case "null":
		return nil, strings.EqualFold(text, "null")
	case "integer":
		n, ok := new(big.Int).SetString(trimmed, 10)
		return n, ok && len(trimmed) <= 4300 // Python's own bound
	case "number":
		x, err := strconv.ParseFloat(trimmed, 64)
		switch {
		case err != nil || math.IsInf(x, 0) || math.IsNaN(x) || strings.ContainsAny(trimmed, "_xXpP"):
			return nil, false
		case json.Valid([]byte(trimmed)):
			return json.RawMessage(trimmed), true
		}
		return x, true
	case "boolean":
		lower := strings.ToLower(trimmed)
		return lower == "true" || lower == "1", slices.Contains([]string{"true", "1", "false", "0"}, lower)
	case "object", "array":
		return json.RawMessage(text), json.Valid([]byte(text))
	}
	return text, true
}
