package agents

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"

	form "github.com/agentfly/agentfly/grammar"
	"github.com/agentfly/agentfly/tools"
)

// letters is a scripted tokenizer: every byte, and Mistral's mark as a special token.
type letters struct{}

func (letters) Size() int { return 257 }

func (letters) Bytes(id int32) []byte {
	if id == 256 {
		return []byte(mistralMark)
	}
	return []byte{byte(id)}
}

func (letters) IsSpecial(id int32) bool         { return id == 256 }
func (l letters) Token(id int32) (string, bool) { return string(l.Bytes(id)), true }

func requiredSpecs() []tools.Spec {
	return append(testSpecs(),
		tools.Spec{Name: "order", Description: "Orders.", Parameters: json.RawMessage(`{"type": "object", "properties": {
			"item": {"type": "string"}, "size": {"enum": ["small", "large"], "type": "string"}, "count": {"type": "integer", "minimum": 1, "maximum": 99},
			"address": {"type": "object", "properties": {"street": {"type": "string"}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}}, "required": ["zip"]},
			"tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3}}, "required": ["item", "count"]}`)},
	)
}

// Whatever is sampled in the form of a format's calls, the format reads as calls, of its tools, with arguments that are valid.
func TestRequiredCallsAreCalls(t *testing.T) {
	for _, name := range []string{"hermes", "llama3_json", "mistral", "qwen3_coder"} {
		for _, several := range []bool{false, true} {
			specs := requiredSpecs()
			f, err := NewFormat(name, specs, FormatOptions{})
			require.NoError(t, err)
			e, err := f.(Required).Calls(several)
			require.NoError(t, err)
			g, err := form.Compile(e, form.NewVocabulary(letters{}))
			require.NoError(t, err)
			r := rand.New(rand.NewPCG(1, uint64(len(name))))
			most, called := 0, map[string]bool{}
			for range 150 {
				text := sampledForm(t, r, g)
				p := parse(t, f, text)
				require.Empty(t, p.Errors, "%s", text)
				require.NotEmpty(t, p.Calls, "%s", text)
				require.True(t, several || len(p.Calls) == 1, "%s", text)
				most = max(most, len(p.Calls))
				for _, call := range p.Calls {
					called[call.Name] = true
					validCall(t, specs, call.Name, call.Arguments, text)
				}
			}
			require.Len(t, called, len(specs), name)
			require.Equal(t, several, most > 1, name)
		}
	}
}

func validCall(t *testing.T, specs []tools.Spec, name string, arguments json.RawMessage, text string) {
	t.Helper()
	for _, spec := range specs {
		if spec.Name != name {
			continue
		}
		var v any
		require.NoError(t, json.Unmarshal(arguments, &v), text)
		if len(spec.Parameters) == 0 {
			require.Equal(t, map[string]any{}, v)
			return
		}
		var schema jsonschema.Schema
		require.NoError(t, json.Unmarshal(spec.Parameters, &schema))
		resolved, err := schema.Resolve(nil)
		require.NoError(t, err)
		require.NoError(t, resolved.Validate(v), text)
		return
	}
	require.Fail(t, "there is no such tool", "%s in %s", name, text)
}

// sampledForm writes bytes by chance among those that are allowed, rather closing than going on.
func sampledForm(t *testing.T, r *rand.Rand, g *form.Grammar) string {
	m := g.Match()
	var text strings.Builder
	for range 5000 {
		mask, end, err := m.Allowed()
		require.NoError(t, err)
		var next, closing []int32
		for id := range int32(letters{}.Size()) {
			if mask[id>>6]>>(id&63)&1 != 0 {
				next = append(next, id)
				if strings.ContainsRune("\"}]\n<", rune(id)) {
					closing = append(closing, id)
				}
			}
		}
		if end && (len(next) == 0 || r.IntN(3) > 0) {
			return text.String()
		}
		if len(closing) > 0 && r.IntN(4) == 0 {
			next = closing
		}
		id := next[r.IntN(len(next))]
		require.NoError(t, m.Take(id))
		text.Write(letters{}.Bytes(id))
	}
	require.Fail(t, "the form does not end")
	return ""
}

func TestRequiredRefusesSchemas(t *testing.T) {
	for _, name := range []string{"hermes", "llama3_json", "mistral", "qwen3_coder"} {
		f, err := NewFormat(name, []tools.Spec{{Name: "x", Parameters: json.RawMessage(`{"type": "object", "properties": {"a": {"type": "number", "multipleOf": 3}}}`)}}, FormatOptions{})
		require.NoError(t, err)
		_, err = f.(Required).Calls(true)
		require.ErrorContains(t, err, `the parameters of x: schema.a: "multipleOf" is not supported`, name)
	}
}

// Arguments that may be text or something else come back valid: between tags a text has no quotes.
func TestRequiredCallsOfMixedValues(t *testing.T) {
	mixed := []tools.Spec{{Name: "mixed", Parameters: json.RawMessage(`{"type": "object", "properties": {
		"a": {"enum": ["x", null, 3]}, "b": {"anyOf": [{"type": "string", "minLength": 1, "maxLength": 3}, {"type": "null"}]}, "c": {"type": ["string", "null"], "enum": ["u", "v"]},
		"d": {"const": "w"}, "e": {"type": "integer", "const": 7}, "f": {"type": ["integer", "string"]}, "g": {"title": "anything"}, "h": {"type": ["integer", "null"], "minimum": 3}},
		"required": ["a", "b", "c", "d", "e", "f", "g", "h"]}`)}}
	for _, name := range []string{"hermes", "llama3_json", "mistral", "qwen3_coder"} {
		f, err := NewFormat(name, mixed, FormatOptions{})
		require.NoError(t, err)
		e, err := f.(Required).Calls(false)
		require.NoError(t, err, name)
		g, err := form.Compile(e, form.NewVocabulary(letters{}))
		require.NoError(t, err)
		r := rand.New(rand.NewPCG(4, uint64(len(name))))
		values := map[string]bool{}
		for range 200 {
			text := sampledForm(t, r, g)
			p := parse(t, f, text)
			require.Len(t, p.Calls, 1, "%s", text)
			validCall(t, mixed, "mixed", p.Calls[0].Arguments, text)
			var v struct{ A any }
			require.NoError(t, json.Unmarshal(p.Calls[0].Arguments, &v))
			values[string(mustMarshal(t, v.A))] = true
		}
		require.Len(t, values, 3, name)
	}
	for parameters, want := range map[string]string{
		`{"type": "object", "properties": {"a>b": {"type": "string"}}}`:                                  `the parameters of x: the name "a>b" cannot stand in a tag`,
		`{"type": "object", "properties": {" a": {"type": "string"}}}`:                                   `the parameters of x: the name " a" cannot stand in a tag`,
		`{"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "required": ["z"]}}}`:                   `the parameters of x: "$ref" beside the properties is not supported in this form of calls`,
		`{"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "array"}]}}}`:    `the parameters of x: a: a value that is text or of type array is not supported in this form of calls`,
		`{"type": "object", "properties": {"a": {"type": ["string", "integer"], "minimum": 3}}}`:         `the parameters of x: a: "minimum" of what may be text is not supported in this form of calls`,
		`{"type": "object", "properties": {"a": {"enum": ["1", 2], "type": ["string", "integer"]}}}`:     `the parameters of x: a: the value "1" cannot be written between tags`,
		`{"type": "object", "properties": {"a": {"type": "string", "pattern": "a"}}, "required": ["a"]}`: `the parameters of x: a: "pattern" of what may be text is not supported in this form of calls`,
		`{"type": "object", "properties": {"a": {"enum": ["a<b"]}}}`:                                     `the parameters of x: a: the value "a<b" cannot be written between tags`,
	} {
		f, err := NewFormat("qwen3_coder", []tools.Spec{{Name: "x", Parameters: json.RawMessage(parameters)}}, FormatOptions{})
		require.NoError(t, err)
		_, err = f.(Required).Calls(false)
		require.ErrorContains(t, err, want, parameters)
	}
}

// A tool whose parameters are of models that its schema defines once, as pydantic writes them, can be called where a call is required.
func TestRequiredCallsOfDefinedModels(t *testing.T) {
	models := []tools.Spec{{Name: "models", Parameters: json.RawMessage(`{"type": "object", "properties": {
		"list": {"type": "array", "items": {"$ref": "#/$defs/Model"}, "maxItems": 2}, "maybe": {"anyOf": [{"$ref": "#/$defs/Model"}, {"type": "null"}], "default": null},
		"model": {"allOf": [{"$ref": "#/$defs/Model"}], "description": "One."}, "zip": {"anyOf": [{"$ref": "#/$defs/Zip"}, {"type": "null"}]}, "size": {"$ref": "#/$defs/Size"},
		"either": {"oneOf": [{"$ref": "#/$defs/Zip"}, {"oneOf": [{"type": "integer"}, {"type": "boolean"}]}]}, "again": {"$ref": "#/properties/zip"},
		"literal": {"anyOf": [{"const": "auto", "type": "string"}, {"$ref": "#/$defs/Size"}]}},
		"required": ["list", "maybe", "model", "zip", "size", "either", "again", "literal"],
		"$defs": {"Model": {"type": "object", "properties": {"a": {"type": "integer"}, "in": {"anyOf": [{"$ref": "#/$defs/Model"}, {"type": "null"}]}}, "required": ["a"]},
			"Zip": {"type": "string", "minLength": 1, "maxLength": 5}, "Size": {"enum": ["small", "large"], "type": "string"}}}`)}}
	for _, name := range []string{"hermes", "llama3_json", "mistral", "qwen3_coder"} {
		f, g := requiredForm(t, name, models)
		r := rand.New(rand.NewPCG(7, uint64(len(name))))
		for range 40 {
			text := sampledForm(t, r, g)
			p := parse(t, f, text)
			require.Len(t, p.Calls, 1, "%s", text)
			validCall(t, models, "models", p.Calls[0].Arguments, text)
		}
	}
}

// A list or an object that holds the text of a tag cannot end its call there: a required call writes < in JSON as \u003c, and is read with the text.
func TestRequiredCallsHoldTagsInJSON(t *testing.T) {
	specs := []tools.Spec{{Name: "w", Parameters: json.RawMessage(`{"type": "object", "properties": {
		"x": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"<b>": {"const": ["<i>"]}, "p": {"type": "string", "pattern": "^[<>]a<$"}}},
			{"type": "object", "additionalProperties": {"$ref": "#/$defs/Any"}}, {"type": "array"}]}}}, "required": ["x"], "$defs": {"Any": {"enum": ["</parameter>", 1]}}}`)}}
	f, g := requiredForm(t, "qwen3_coder", specs)
	for written, want := range map[string]string{
		`["a>"]`:                       `["a>"]`,
		`["\u003c/parameter>"]`:        `["</parameter>"]`,
		`["\u003C/function>"]`:         `["</function>"]`,
		`[{"\u003cb>": ["\u003ci>"]}]`: `[{"<b>": ["<i>"]}]`,
		`[{"p": ">a\u003c"}]`:          `[{"p": ">a<"}]`,
		`[{"q": "\u003c/parameter>"}]`: `[{"q": "</parameter>"}]`,
		`[[{"\u003c": "\u003c"}]]`:     `[[{"<": "<"}]]`,
	} {
		call := "<tool_call>\n<function=w>\n<parameter=x>\n" + strings.ReplaceAll(written, `": `, `":`) + "\n</parameter>\n</function>\n</tool_call>"
		require.True(t, takes(g, call), written)
		p := parse(t, f, call)
		require.Len(t, p.Calls, 1, written)
		require.JSONEq(t, `{"x": `+want+`}`, string(p.Calls[0].Arguments))
		raw := strings.ReplaceAll(strings.ReplaceAll(call, `\u003c`, "<"), `\u003C`, "<")
		require.Equal(t, raw == call, takes(g, raw), raw)
	}
	// As is the JSON of the other forms, which end where their JSON ends.
	_, g = requiredForm(t, "hermes", specs)
	require.True(t, takes(g, "<tool_call>\n"+`{"name": "w", "arguments": {"x":["</parameter>"]}}`+"\n</tool_call>"))
}

// takes tells whether the form has the text.
func takes(g *form.Grammar, text string) bool {
	m := g.Match()
	for i := range len(text) {
		if m.Take(int32(text[i])) != nil {
			return false
		}
	}
	_, end, err := m.Allowed()
	return err == nil && end
}

// A parameter whose schema is true, which allows anything, is a text where calls are required; it was refused in Go's own words.
func TestRequiredCallsOfAnything(t *testing.T) {
	f, g := requiredForm(t, "qwen3_coder", []tools.Spec{{Name: "w", Parameters: json.RawMessage(`{"type": "object", "properties": {"a": true, "b": {"anyOf": [true, {"type": "null"}]},
		"c": {"anyOf": [{"$ref": "#/$defs/Never"}, {"type": "string", "maxLength": 1}]}}, "required": ["a", "b", "c"], "$defs": {"Never": false}}`)}})
	call := func(c string) string {
		return "<tool_call>\n<function=w>\n<parameter=a>\n[1]\n</parameter>\n<parameter=b>\nnull\n</parameter>\n<parameter=c>\n" + c + "\n</parameter>\n</function>\n</tool_call>"
	}
	require.True(t, takes(g, call("x")))
	require.False(t, takes(g, call("xx")))
	require.Equal(t, called("w", `{"a": "[1]", "b": null, "c": "x"}`), parse(t, f, call("x")))
}

// A text that is read as a number must be allowed as that number: where another alternative forbids it, the schema is refused by name.
func TestRequiredCallsOfTextsThatReadAsNumbers(t *testing.T) {
	for parameter, want := range map[string]string{
		`{"anyOf": [{"type": "string"}, {"enum": ["x", 2]}]}`:                        "a value that is any text or one of some of type number is not supported in this form of calls",
		`{"anyOf": [{"type": "string"}, {"$ref": "#/$defs/Two"}]}`:                   "a value that is any text or one of some of type integer is not supported in this form of calls",
		`{"anyOf": [{"enum": ["1"]}, {"enum": ["x", 2]}]}`:                           `the value "1" cannot be written between tags`,
		`{"anyOf": [{"$ref": "#/$defs/Zip"}, {"$ref": "#/$defs/List"}]}`:             "a value that is text or of type array is not supported in this form of calls",
		`{"oneOf": [{"type": "string", "pattern": "^a$"}, {"$ref": "#/$defs/Zip"}]}`: `"pattern" of what may be text is not supported in this form of calls`,
	} {
		f, err := NewFormat("qwen3_coder", []tools.Spec{{Name: "x", Parameters: json.RawMessage(`{"type": "object", "properties": {"a": ` + parameter +
			`}, "$defs": {"Zip": {"type": "string"}, "List": {"type": "array"}, "Two": {"type": "integer", "enum": [2]}}}`)}}, FormatOptions{})
		require.NoError(t, err)
		_, err = f.(Required).Calls(false)
		require.EqualError(t, err, "the parameters of x: a: "+want, parameter)
	}
}

// A schema of one page whose references lead to the same alternatives thousands of times is refused; it would take the server's memory.
func TestRequiredCallsAreBounded(t *testing.T) {
	var parameters []string
	for i := range 1000 {
		parameters = append(parameters, fmt.Sprintf(`"p%d": {"$ref": "#/$defs/Wide"}`, i))
	}
	f, err := NewFormat("qwen3_coder", []tools.Spec{{Name: "x", Parameters: json.RawMessage(`{"type": "object", "properties": {` + strings.Join(parameters, ", ") + `}, "$defs": {"Wide": {"anyOf": [` + strings.TrimSuffix(strings.Repeat(`{"type": "string"}, `, 2000), ", ") + `]}}}`)}}, FormatOptions{})
	require.NoError(t, err)
	_, err = f.(Required).Calls(false)
	require.ErrorContains(t, err, "it is too large; write fewer alternatives")
}

// requiredForm is a format and the form of its required calls.
func requiredForm(t *testing.T, name string, specs []tools.Spec) (Format, *form.Grammar) {
	t.Helper()
	f, err := NewFormat(name, specs, FormatOptions{})
	require.NoError(t, err)
	e, err := f.(Required).Calls(false)
	require.NoError(t, err, name)
	g, err := form.Compile(e, form.NewVocabulary(letters{}))
	require.NoError(t, err)
	return f, g
}

func mustMarshal(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return data
}
