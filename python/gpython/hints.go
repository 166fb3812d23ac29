package gpython

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"

	"github.com/go-python/gpython/py"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/python/protocol"
)

// hint is a name of the module typing, with what stands in its brackets.
type hint struct {
	name string
	args []py.Object
}

var hintType = py.NewType("typing", "a type hint")

func (h *hint) Type() *py.Type { return hintType }

// M__getitem__ is List[int].
func (h *hint) M__getitem__(key py.Object) (py.Object, error) {
	if args, ok := key.(py.Tuple); ok {
		return &hint{h.name, args}, nil
	}
	return &hint{h.name, []py.Object{key}}, nil
}

func (h *hint) M__repr__() (py.Object, error) { return py.String("typing." + h.name), nil }

var (
	lists = strings.Fields("List Tuple Set FrozenSet Sequence Iterable list tuple set frozenset")
	dicts = strings.Fields("Dict Mapping MutableMapping dict")
)

func typing() *py.ModuleImpl {
	globals := py.StringDict{"TYPE_CHECKING": py.False}
	for _, n := range append(strings.Fields("Any Optional Union Literal Annotated Callable Iterator Generator"), slices.Concat(lists[:6], dicts[:3])...) {
		globals[n] = &hint{name: n}
	}
	return &py.ModuleImpl{Info: py.ModuleInfo{Name: "typing"}, Globals: globals}
}

// schema is the JSON schema of a hint; empty: anything.
type schema struct {
	Type   any               `json:"type,omitempty"` // a string or several
	AnyOf  []schema          `json:"anyOf,omitempty"`
	Items  *schema           `json:"items,omitempty"`
	Values *schema           `json:"additionalProperties,omitempty"`
	Enum   []json.RawMessage `json:"enum,omitempty"`
	Text   string            `json:"description,omitempty"`
	Given  json.RawMessage   `json:"default,omitempty"`
}

func (s schema) json() string {
	b, _ := json.Marshal(s) // it holds nothing else
	return string(b)
}

// unsupported says what to write instead of a hint.
type unsupported struct{ text string }

func (u *unsupported) Error() string { return u.text }

// parts are the name of a hint and what stands in its brackets, whether it is a class or a name of typing.
func parts(t py.Object) (name string, args []py.Object) {
	switch t := t.(type) {
	case *hint:
		return t.name, t.args
	case *py.Type:
		return t.Name, nil
	case py.NoneType:
		return "None", nil
	}
	return "", nil
}

var simple = map[string]string{"str": "string", "int": "integer", "float": "number", "bool": "boolean", "None": "null"}

// schemaOf is that of a hint; nil is none.
func schemaOf(t py.Object) (schema, error) {
	n, args := parts(t)
	switch {
	case t == nil || n == "Any" || n == "object":
		return schema{}, nil
	case simple[n] != "":
		return schema{Type: simple[n]}, nil
	case n == "Annotated" && len(args) > 0:
		s, err := schemaOf(args[0])
		for _, a := range args[1:] {
			if text, ok := a.(py.String); ok {
				s.Text = string(text)
			}
		}
		return s, err
	case n == "Optional" || n == "Union":
		return unionSchema(members(t))
	case n == "Literal":
		return literalSchema(args)
	case slices.Contains(lists, n):
		args = slices.DeleteFunc(slices.Clone(args), func(a py.Object) bool { return a == py.Ellipsis })
		if len(args) == 0 {
			return schema{Type: "array"}, nil
		}
		inner, err := schemaOf(args[0])
		if strings.EqualFold(n, "tuple") && slices.ContainsFunc(args, func(a py.Object) bool { return a != args[0] }) {
			err = &unsupported{"a tuple of several types is not supported; use List[T]"}
		}
		return schema{Type: "array", Items: some(inner)}, err
	case slices.Contains(dicts, n):
		if len(args) < 2 {
			return schema{Type: "object"}, nil
		}
		if k, _ := parts(args[0]); k != "str" && k != "Any" {
			return schema{}, &unsupported{"the keys of a dict must be str, got " + k}
		}
		values, err := schemaOf(args[1])
		return schema{Type: "object", Values: some(values)}, err
	}
	if n == "" {
		n, _ = repr(t)
	}
	return schema{}, &unsupported{"the type " + n + " is not supported by gpython; use str, int, float, bool, List[T], Dict[str, T], Literal, Optional or Union"}
}

// some is nil for a schema that says nothing.
func some(s schema) *schema {
	if s.json() == "{}" {
		return nil
	}
	return &s
}

// members are those of an Optional or a Union, at any depth.
func members(t py.Object) (out []py.Object) {
	n, args := parts(t)
	if n != "Optional" && n != "Union" {
		return []py.Object{t}
	}
	for _, a := range args {
		out = append(out, members(a)...)
	}
	if n == "Optional" {
		out = append(out, py.None)
	}
	return out
}

func unionSchema(all []py.Object) (schema, error) {
	var out []schema
	var kinds []string
	for _, t := range all {
		s, err := schemaOf(t)
		if err != nil || s.json() == "{}" { // one of them is anything
			return schema{}, err
		}
		if slices.ContainsFunc(out, func(o schema) bool { return o.json() == s.json() }) {
			continue
		}
		out = append(out, s)
		if kind, ok := s.Type.(string); ok && s.json() == (schema{Type: kind}).json() {
			kinds = append(kinds, kind)
		}
	}
	switch {
	case len(out) == 1:
		return out[0], nil
	case len(kinds) == len(out):
		return schema{Type: kinds}, nil
	}
	return schema{AnyOf: out}, nil
}

func literalSchema(values []py.Object) (schema, error) {
	var s schema
	var kinds []string
	for _, v := range values {
		kind := simple[v.Type().Name]
		if v == py.None {
			kind = "null"
		}
		text, err := encode(v)
		if kind == "" || err != nil {
			return s, &unsupported{"a Literal of this value is not supported; use strings and numbers"}
		}
		s.Enum = append(s.Enum, text)
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	s.Type = kinds
	if len(kinds) == 1 {
		s.Type = kinds[0]
	}
	return s, nil
}

// convert makes of a value that the schema allows what the hint says.
func convert(t, v py.Object) py.Object {
	n, args := parts(t)
	inner := func(i int) py.Object {
		if i < len(args) {
			return args[i]
		}
		return nil
	}
	switch x := v.(type) {
	case py.Int:
		if n == "float" {
			return py.Float(x)
		}
	case *py.BigInt:
		if f, err := x.Float(); n == "float" && err == nil {
			return f
		}
	case py.Float:
		if n == "int" {
			if i, exact := big.NewFloat(float64(x)).Int(nil); exact == big.Exact {
				return (*py.BigInt)(i).MaybeInt()
			}
		}
	case *py.List:
		if slices.Contains(lists, n) {
			items := make([]py.Object, len(x.Items))
			for i, one := range x.Items {
				items[i] = convert(inner(0), one)
			}
			return collected(n, items)
		}
	case py.StringDict:
		if slices.Contains(dicts, n) {
			for k, one := range x {
				x[k] = convert(inner(1), one)
			}
		}
	}
	switch n {
	case "Annotated":
		return convert(inner(0), v)
	case "Literal":
		if i := meant(args, v); i >= 0 {
			return args[i]
		}
	case "Optional", "Union":
		all := members(t)
		for _, m := range all { // of float and int, 3 is the int
			if n, _ := parts(m); n == v.Type().Name {
				return convert(m, v)
			}
		}
		for _, m := range all {
			if fits(m, v) {
				return convert(m, v)
			}
		}
	}
	return v
}

func collected(name string, items []py.Object) py.Object {
	switch strings.ToLower(name) {
	case "tuple":
		return py.Tuple(items)
	case "set":
		return py.NewSetFromItems(items)
	case "frozenset":
		return py.NewFrozenSetFromItems(items)
	}
	return py.NewListFromItems(items)
}

// meant is the index of the value of a Literal that is meant: that of 1 where the model wrote 1.0, but not where it wrote true; -1: none.
func meant(values []py.Object, v py.Object) int {
	return slices.IndexFunc(values, func(value py.Object) bool {
		equal, err := py.Eq(value, v)
		return err == nil && equal == py.True && (value.Type() == py.BoolType) == (v.Type() == py.BoolType)
	})
}

// fits tells whether a member of a union is meant.
func fits(t, v py.Object) bool {
	n, args := parts(t)
	if n == "Annotated" && len(args) > 0 {
		return fits(args[0], v)
	}
	if n == "Literal" {
		return meant(args, v) >= 0
	}
	switch v := v.(type) {
	case py.Int, *py.BigInt:
		return n == "int" || n == "float"
	case py.Float:
		return n == "float" || n == "int" && float64(v) == math.Trunc(float64(v))
	case *py.List:
		return slices.Contains(lists, n)
	case py.StringDict:
		return slices.Contains(dicts, n)
	}
	return v.Type().Name == n
}

// signature reads the parameters of a function, and the schema of further ones; nil: it takes none. strict: a hint without a schema is an error.
func (e *entry) signature(strict bool) (parameters []protocol.Parameter, rest json.RawMessage, err error) {
	const variadic, keywords = 0x4, 0x8 // flags of a code object
	c := e.target.Code
	if c.Flags&variadic != 0 {
		return nil, nil, &unsupported{fmt.Sprintf("the argument %s is positional; arguments are passed by name, so write them out", c.Varnames[c.Argcount+c.Kwonlyargcount])}
	}
	if c.Flags&py.CO_GENERATOR != 0 {
		return nil, nil, &unsupported{fmt.Sprintf("a function with yield cannot be a %s; return the whole result", e.kind)}
	}
	all := int(c.Argcount + c.Kwonlyargcount)
	for i, n := range c.Varnames[:all] {
		if t, err := e.hint(n); err != nil && strict {
			return nil, nil, err
		} else if n == "context" && (t == nil || t == py.Object(contextType)) {
			e.injected = append(e.injected, n)
			continue
		}
		given := e.given(i)
		s, err := e.schema(n, given, strict)
		if err != nil {
			return nil, nil, err
		}
		if given != nil && given != py.None {
			s.Given, _ = encode(given) // the model need not know what is no JSON
			if _, text := given.(py.String); !text && bytes.Contains(s.Given, []byte(" at 0x")) {
				s.Given = nil // an object at an address, another in every worker
			}
		}
		text, err := wording.JSON(s)
		if err != nil {
			return nil, nil, err
		}
		parameters = append(parameters, protocol.Parameter{Name: n, Schema: text, Required: given == nil})
	}
	if c.Flags&keywords == 0 {
		return parameters, nil, nil
	}
	e.rest = c.Varnames[all]
	var further schema // a reward's arguments, and those of a tool with a schema of its own, are of any kind
	if strict {
		if further, err = e.schema(e.rest, nil, strict); err != nil {
			return nil, nil, err
		}
	}
	rest, err = wording.JSON(further)
	return parameters, rest, err
}

// given is the default of the parameter i, positional ones first; nil: it has none.
func (e *entry) given(i int) py.Object {
	positional := int(e.target.Code.Argcount)
	if k := i - positional + len(e.target.Defaults); i < positional && k >= 0 {
		return e.target.Defaults[k]
	}
	return e.target.KwDefaults[e.target.Code.Varnames[i]]
}

// schema is that of a parameter, which may be None if that is its default. Where its hint has none it is empty, strict: an error.
func (e *entry) schema(parameter string, given py.Object, strict bool) (schema, error) {
	t, err := e.hint(parameter)
	if err != nil && strict {
		return schema{}, err
	}
	if given == py.None && t != nil {
		t = &hint{"Optional", []py.Object{t}}
	}
	s, err := schemaOf(t)
	if err != nil && strict {
		return schema{}, &unsupported{fmt.Sprintf("the argument %s: %v", parameter, err)}
	} else if err != nil {
		return schema{}, nil
	}
	return s, nil
}

// hintOf is the hint of an argument that was given: of further ones it is that of **kwargs.
func (e *entry) hintOf(argument string) (py.Object, error) {
	c := e.target.Code
	if e.rest != "" && !slices.Contains(c.Varnames[:c.Argcount+c.Kwonlyargcount], argument) {
		argument = e.rest
	}
	return e.hint(argument)
}

// hint is that of a parameter; a string names it.
func (e *entry) hint(parameter string) (py.Object, error) {
	t := e.target.Annotations[parameter]
	n, ok := t.(py.String)
	if !ok {
		return t, nil
	}
	for _, names := range []py.StringDict{e.target.Globals, e.target.Context.Store().Builtins.Globals} {
		if t, ok := names[string(n)]; ok {
			return t, nil
		}
	}
	return nil, &unsupported{fmt.Sprintf("a type hint cannot be resolved: name '%s' is not defined; import what it names at the top of the file", string(n))}
}
