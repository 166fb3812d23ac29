package grammar_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/grammar"
)

// quote writes a text as the shortest JSON string.
func quote(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	require.NoError(t, e.Encode(text))
	return strings.TrimSuffix(b.String(), "\n")
}

// drawn is a schema with a way to draw instances of it in the form that is written.
type drawn struct {
	schema   string
	instance func(r *rand.Rand) string
}

func fixed(schema string, instances ...string) drawn {
	return drawn{schema, func(r *rand.Rand) string { return instances[r.IntN(len(instances))] }}
}

func someSchema(r *rand.Rand, depth int) drawn {
	if depth == 0 || r.IntN(4) == 0 {
		switch r.IntN(8) {
		case 0:
			return fixed(`{"type": "boolean"}`, "true", "false")
		case 1:
			return fixed(`{"type": ["null", "integer"]}`, "null", "0", "-12", "345")
		case 2:
			return fixed(`{"enum": ["a", 1, null, {"x": [1]}]}`, `"a"`, "1", "null", `{"x":[1]}`)
		case 3:
			return fixed(`{"const": "é\"\n"}`, `"é\"\n"`)
		case 4:
			low := r.IntN(300) - 150
			high := low + r.IntN(300)
			return drawn{fmt.Sprintf(`{"type": "integer", "minimum": %d, "exclusiveMaximum": %d}`, low, high+1), func(r *rand.Rand) string {
				return strconv.Itoa(low + r.IntN(high-low+1))
			}}
		case 5:
			return fixed(`{"type": "number"}`, "1.5", "-0.25", "1e5", "0", "12.50E-2")
		case 6:
			least := r.IntN(3)
			return drawn{fmt.Sprintf(`{"type": "string", "minLength": %d, "maxLength": %d}`, least, least+2), func(r *rand.Rand) string {
				return `"` + strings.Repeat([]string{"a", "é", `\n`, `\u0041`, `\ud83d\ude00`, "日"}[r.IntN(6)], least+r.IntN(3)) + `"`
			}}
		default:
			return fixed(`{"type": "string"}`, `""`, `"abc"`, `"日本 \\ \" / \t"`)
		}
	}
	switch r.IntN(4) {
	case 0:
		item := someSchema(r, depth-1)
		least, more := r.IntN(2), r.IntN(3)
		return drawn{fmt.Sprintf(`{"type": "array", "items": %s, "minItems": %d, "maxItems": %d}`, item.schema, least, least+more), func(r *rand.Rand) string {
			var items []string
			for range least + r.IntN(more+1) {
				items = append(items, item.instance(r))
			}
			return "[" + strings.Join(items, ", ") + "]"
		}}
	case 1:
		x, y := someSchema(r, depth-1), someSchema(r, depth-1)
		return drawn{fmt.Sprintf(`{"anyOf": [%s, %s]}`, x.schema, y.schema), func(r *rand.Rand) string {
			if r.IntN(2) == 0 {
				return x.instance(r)
			}
			return y.instance(r)
		}}
	}
	names := []string{"a", "ab", "é", "b\"c"}[:r.IntN(5)]
	var properties, required []string
	var values []drawn
	var needed []bool
	for _, name := range names {
		d := someSchema(r, depth-1)
		written, _ := json.Marshal(name)
		properties = append(properties, string(written)+": "+d.schema)
		values = append(values, d)
		need := r.IntN(2) == 0
		needed = append(needed, need)
		if need {
			required = append(required, string(written))
		}
	}
	schema := `{"type": "object", "properties": {` + strings.Join(properties, ", ") + `}, "required": [` + strings.Join(required, ", ") + `]`
	open := r.IntN(3) == 0
	if open {
		schema += `, "additionalProperties": {"type": "integer"}`
	} else {
		schema += `, "additionalProperties": false`
	}
	return drawn{schema + "}", func(r *rand.Rand) string {
		var pairs []string
		for i, name := range names {
			if needed[i] || r.IntN(2) == 0 {
				var b bytes.Buffer
				e := json.NewEncoder(&b)
				_ = e.Encode(name)
				pairs = append(pairs, strings.TrimSpace(b.String())+": "+values[i].instance(r))
			}
		}
		if open {
			for _, name := range []string{"c", "abc", ""}[:r.IntN(4)] {
				pairs = append(pairs, `"`+name+`": 7`)
			}
		}
		return "{" + strings.Join(pairs, ", ") + "}"
	}}
}

// Whatever tokens are chosen among the allowed ones, the text is valid under its schema by another hand's validator; and what is valid, in
// the form that is written, is allowed in each way in which the vocabulary can write it.
func TestSchemasHold(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	sampled, cut := 0, 0
	for range 150 {
		d := someSchema(r, 3)
		e, err := grammar.JSONSchema([]byte(d.schema))
		require.NoError(t, err, d.schema)
		g := compile(t, e)
		var schema jsonschema.Schema
		require.NoError(t, json.Unmarshal([]byte(d.schema), &schema), d.schema)
		validator, err := schema.Resolve(nil)
		require.NoError(t, err, d.schema)
		valid := func(text string) error {
			var v any
			if err := json.Unmarshal([]byte(text), &v); err != nil {
				return err
			}
			return validator.Validate(v)
		}
		for range 6 {
			text, whole := sample(t, r, g)
			if !whole {
				cut++
				continue
			}
			sampled++
			require.NoError(t, valid(text), "%s\n%s", d.schema, text)
		}
		for range 6 {
			text := d.instance(r)
			require.NoError(t, valid(text), "%s\n%s", d.schema, text)
			require.True(t, tokenized(t, r, g, text), "%s\n%s", d.schema, text)
		}
	}
	t.Logf("%d texts sampled, %d cut", sampled, cut)
	require.Greater(t, sampled, 5*cut)
}

// sample chooses tokens by chance, until the text is whole; false: it became too long.
func sample(t *testing.T, r *rand.Rand, g *grammar.Grammar) (string, bool) {
	m, text := g.Match(), ""
	for n := range 300 {
		mask, end, err := m.Allowed()
		require.NoError(t, err, "behind %q", text)
		var next, closing []int32
		for id := range int32(texts.Size()) {
			if has(mask, id) {
				next = append(next, id)
				if b := texts.Bytes(id); strings.ContainsRune(`"}]`, rune(b[0])) {
					closing = append(closing, id)
				}
			}
		}
		if end && (len(next) == 0 || r.IntN(2) == 0) {
			return text, true
		}
		if len(closing) > 0 && r.IntN(200) < 30+n {
			next = closing
		}
		id := next[r.IntN(len(next))]
		require.NoError(t, m.Take(id))
		text += string(texts.Bytes(id))
	}
	return text, false
}

// tokenized writes the text in tokens chosen by chance and tells whether each was allowed, and the end.
func tokenized(t *testing.T, r *rand.Rand, g *grammar.Grammar, text string) bool {
	m := g.Match()
	for text != "" {
		mask, _, err := m.Allowed()
		require.NoError(t, err)
		var next []int32
		for id := range int32(texts.Size() - 1) {
			if strings.HasPrefix(text, string(texts.Bytes(id))) {
				next = append(next, id)
			}
		}
		id := next[r.IntN(len(next))]
		if !has(mask, id) {
			return false
		}
		require.NoError(t, m.Take(id))
		text = text[len(texts.Bytes(id)):]
	}
	_, end, err := m.Allowed()
	require.NoError(t, err)
	return end
}

func TestBoundsOfNumbers(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for range 150 {
		low, high := r.IntN(240)-120, r.IntN(240)-120
		for _, kind := range []string{"integer", "number"} {
			schema := fmt.Sprintf(`{"type": %q`, kind)
			in := func(float64) bool { return true }
			add := func(keyword string, bound int, ok func(v, bound float64) bool) {
				if r.IntN(3) == 0 {
					return
				}
				schema += fmt.Sprintf(`, %q: %d`, keyword, bound)
				before := in
				in = func(v float64) bool { return before(v) && ok(v, float64(bound)) }
			}
			if r.IntN(2) == 0 {
				add("minimum", low, func(v, b float64) bool { return v >= b })
			} else {
				add("exclusiveMinimum", low, func(v, b float64) bool { return v > b })
			}
			if r.IntN(2) == 0 {
				add("maximum", high, func(v, b float64) bool { return v <= b })
			} else {
				add("exclusiveMaximum", high, func(v, b float64) bool { return v < b })
			}
			schema += "}"
			e, err := grammar.JSONSchema([]byte(schema))
			if err != nil {
				require.ErrorContains(t, err, "no number is between its bounds")
				for v := -130.0; v <= 130; v += 0.5 {
					require.False(t, in(v) && (kind == "number" || v == float64(int(v))), "%s: %v", schema, v)
				}
				continue
			}
			g, err := grammar.Compile(e, grammar.NewVocabulary(texts))
			if err != nil {
				require.Greater(t, low+1, high-1, schema)
				continue
			}
			for v := -130; v <= 130; v++ {
				require.Equal(t, in(float64(v)), matches(t, g, strconv.Itoa(v)), "%s: %d", schema, v)
				for _, f := range []string{".0", ".5", ".01", ".10"} {
					text := strconv.Itoa(v) + f
					exact, _ := strconv.ParseFloat(text, 64)
					require.Equal(t, kind == "number" && in(exact), matches(t, g, text), "%s: %s", schema, text)
				}
			}
			require.False(t, matches(t, g, "007"))
		}
	}
}

// javascriptSpace are texts of one character that is \s in JavaScript's regular expressions, and noSpace are others. Go's \s has fewer.
var (
	javascriptSpace = []string{
		`"\t"`, `"\n"`, `"\u000b"`, `"\f"`, `"\r"`, `" "`, "\"\u00a0\"", "\"\u1680\"", "\"\u2000\"", "\"\u2005\"", "\"\u200a\"", "\"\u2028\"", "\"\u2029\"", "\"\u202f\"",
		"\"\u205f\"", "\"\u3000\"", "\"\ufeff\"",
	}
	noSpace = []string{`"a"`, `"\u0000"`, `"\u001f"`, `"!"`, `"]"`, `"\\"`, "\"\u009f\"", "\"\u00a1\"", "\"\u180e\"", "\"\u200b\"", "\"\u2060\"", "\"\ufefe\"", "\"\uff00\"", `"😀"`, "\"\U0010ffff\""}
)

func TestSchemaDetails(t *testing.T) {
	for _, c := range []struct {
		schema  string
		yes, no []string
	}{
		{
			`{"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}}, "required": ["v", "next"], "additionalProperties": false}}}`,
			[]string{`{"v":1,"next":null}`, `{"v":1,"next":{"v":2,"next":null}}`},
			[]string{`{"v":1}`, `{"next":null,"v":1}`},
		},
		{`{"properties": {"a": {}}}`, []string{`{}`, `{"a": [1]}`}, []string{`{"b": 1}`}},
		{`{"type": "object"}`, []string{`{}`, `{"b": 1}`}, []string{`[]`}},
		{`{"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": true}`, []string{`{"a": 1, "b": "x"}`, `{"ab": 1}`}, []string{`{"a": "x"}`, `{"b": 1, "a": "x"}`, `{"\u0061": "x"}`}},
		{`{"properties": {"a": {}}, "required": ["b"]}`, []string{`{"b": 1}`, `{"a": 1, "b": "x"}`}, []string{`{"a": 1}`, `{"b": 1, "c": 1}`}},
		{`{"required": ["z"]}`, []string{`{"z": 1}`, `{"z": {}, "b": 2}`}, []string{`{}`}},
		{`{"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}], "items": false, "minItems": 1}`, []string{`[1]`, `[1, true]`}, []string{`[]`, `[true]`, `[1, true, 1]`}},
		{`{"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "boolean"}}`, []string{`[]`, `[1]`, `[1, true, false]`}, []string{`[true]`, `[1, 2]`}},
		{`{"type": "string", "format": "date"}`, []string{`"2026-02-28"`}, []string{`"2026-13-01"`, `"x"`}},
		{`{"type": "string", "format": "uri-template"}`, []string{`"x"`}, []string{`1`}},
		{`{"format": "ipv4"}`, []string{`"192.168.0.1"`}, []string{`"256.1.1.1"`}},
		{`{"type": "integer", "nullable": true}`, []string{`1`, `null`}, []string{`1.0`}},
		{`{"allOf": [{"type": "boolean"}]}`, []string{`true`}, []string{`null`}},
		{`{"enum": ["x<y", "a"], "type": "string"}`, []string{`"x<y"`}, []string{`"x\u003cy"`, `"b"`}},
		{`{"type": "string", "pattern": "^\\S$"}`, noSpace, javascriptSpace},
		{`{"type": "string", "pattern": "^[^\\s]$"}`, noSpace, javascriptSpace},
		{`{"type": "string", "pattern": "^[^\\s-]$"}`, noSpace, append([]string{`"-"`}, javascriptSpace...)},
		{`{"type": "string", "pattern": "^[\\S]$"}`, noSpace, javascriptSpace},
		{`{"type": "string", "pattern": "^[\\S\u00a0-]$"}`, append([]string{"\"\u00a0\"", `"-"`}, noSpace...), []string{`" "`, `"\u000b"`, "\"\u3000\""}},
		{`{"type": "string", "pattern": "^[]\\S]$"}`, noSpace, javascriptSpace},
		{`{"type": "string", "pattern": "^[[:digit:]\\S]\\S$"}`, []string{`"1a"`, `"a1"`}, []string{"\"1\u00a0\"", "\"\u00a01\""}},
		{`{"type": "string", "pattern": "^[^\\Sa]$"}`, []string{`" "`, `"\n"`}, []string{`"a"`, `"b"`, "\"\u200b\""}},
		{`{"type": "string", "pattern": "^[^a]\\s$"}`, []string{`"b "`}, []string{"\"b\u00a0\"", `"a "`}},
		{`{"type": "string", "pattern": "^[[:]\\s$"}`, []string{`"[ "`, `": "`}, []string{`"[a"`}},
		{`{"type": "string", "pattern": "^\\s[\\s]$"}`, []string{`"\t "`}, []string{`"a "`, `" a"`}},
		{`{"type": "string", "pattern": "^\\\\S[\\[\\]\\\\S]\\[\\S$"}`, []string{`"\\S[[a"`, `"\\S\\[a"`}, []string{`"aS[a"`, "\"\\\\S[[\u00a0\"", `"\\Sa[a"`}},
		{`{"type": "string", "pattern": "^\\Q\\S[\\E\\S$"}`, []string{`"\\S[a"`}, []string{"\"\\\\S[\u00a0\"", `"a[a"`}},
		{`{}`, []string{`1`, `{"a": null}`}, []string{`nul`}},
		{`true`, []string{`[]`}, nil},
	} {
		e, err := grammar.JSONSchema([]byte(c.schema))
		require.NoError(t, err, c.schema)
		g := compile(t, e)
		for _, text := range c.yes {
			require.True(t, matches(t, g, text), "%s: %s", c.schema, text)
		}
		for _, text := range c.no {
			require.False(t, matches(t, g, text), "%s: %s", c.schema, text)
		}
	}
}

func TestRefusedSchemas(t *testing.T) {
	for schema, want := range map[string]string{
		`[]`:               "schema: it must be a JSON object, true or false",
		`{"type": "text"}`: `schema: type "text" is unknown; the types are array, boolean, integer, null, number, object, string`,
		`{"type": []}`:     "schema: type is an empty list",
		`{"type": 3}`:      "schema: type must be a name or a list of names",
		`{"not": {}}`:      `schema: "not" is not supported`,
		`{"type": "object", "patternProperties": {}}`:                     `schema: "patternProperties" is not supported`,
		`{"type": "array", "uniqueItems": true}`:                          `schema: "uniqueItems" is not supported`,
		`{"type": "number", "multipleOf": 2}`:                             `schema: "multipleOf" is not supported`,
		`{"type": "number", "minimum": 0.5}`:                              "schema: minimum: a bound of numbers that is no whole number is not supported",
		`{"type": "integer", "minimum": 3, "maximum": 2}`:                 "schema: no number is between its bounds",
		`{"type": "string", "pattern": "(?=a)"}`:                          `schema: pattern "(?=a)": error parsing regexp`,
		`{"type": "string", "pattern": "a^b"}`:                            "is not supported; ^ and $ stand at its ends",
		`{"type": "string", "minLength": 3, "maxLength": 2}`:              "schema: minLength is 3, above maxLength, 2",
		`{"type": "string", "minLength": -1}`:                             "schema: minLength is -1, it must be a whole number of at least 0",
		`{"type": "string", "pattern": "a", "maxLength": 2}`:              "schema: minLength and maxLength beside pattern or format are not supported",
		`{"$ref": "http://x"}`:                                            "schema: $ref is \"http://x\", it must point into the schema itself",
		`{"$ref": "#/$defs/x"}`:                                           `schema: $ref "#/$defs/x" points to nothing`,
		`{"anyOf": []}`:                                                   "schema: anyOf and oneOf must be a list with at least one schema",
		`{"anyOf": [{}], "type": "object"}`:                               `schema: "type" beside "anyOf" is not supported`,
		`{"allOf": [{}, {}]}`:                                             "schema: allOf is supported with exactly one schema",
		`{"properties": {"a": {"items": {"type": "x"}}}}`:                 `schema.a.items: type "x" is unknown`,
		`{"type": "array", "minItems": 3, "maxItems": 2}`:                 "schema: minItems is 3, above maxItems, 2",
		`{"type": "object", "minProperties": 2}`:                          "schema: minProperties of 2 is not supported",
		strings.Repeat(`{"items": `, 70) + `{}` + strings.Repeat(`}`, 70): "it is nested more than 64 deep",
		`{"enum": []}`:                                              "schema: enum must be a list with at least one value",
		`{"type": "object", "properties": 3}`:                       "schema.properties: it must be a JSON object",
		`{"type": "integer", "minimum": "x"}`:                       "schema: minimum is \"x\", it must be a number",
		`{"type": "integer", "minimum": 1000000000000000000000000}`: "schema: minimum has more than 19 digits",
	} {
		_, err := grammar.JSONSchema([]byte(schema))
		require.ErrorContains(t, err, want, schema)
	}
	e, err := grammar.JSONSchema([]byte(`{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}}`))
	require.NoError(t, err)
	_, err = grammar.Compile(e, grammar.NewVocabulary(texts))
	require.ErrorContains(t, err, "comes to itself before anything is written")
}

func FuzzJSONSchema(f *testing.F) {
	f.Add(`{"type": "object", "properties": {"a": {"enum": [1, "x"]}}}`)
	f.Add(`{"type": "string", "pattern": "^(a|b){2,5}$"}`)
	f.Add(`{"type": "array", "items": {"$ref": "#"}}`)
	v := grammar.NewVocabulary(texts)
	f.Fuzz(func(t *testing.T, schema string) {
		e, err := grammar.JSONSchema([]byte(schema))
		if err != nil {
			return
		}
		g, err := grammar.Compile(e, v)
		if err != nil {
			return
		}
		r := rand.New(rand.NewPCG(1, 1))
		m := g.Match()
		for range 40 {
			mask, end, err := m.Allowed()
			if err != nil || end && r.IntN(4) == 0 {
				return
			}
			var next []int32
			for id := range int32(texts.Size()) {
				if has(mask, id) {
					next = append(next, id)
				}
			}
			if len(next) == 0 {
				return
			}
			if err := m.Take(next[r.IntN(len(next))]); err != nil && !errors.Is(err, grammar.ErrCostly) {
				t.Fatal(err)
			}
		}
	})
}

// A part of a schema may point into the whole of it, so that a caller can write the parts apart, such as arguments each in a tag of its own, where
// no text of theirs ends the tag.
func TestDocumentParts(t *testing.T) {
	d, err := grammar.NewDocument([]byte(`{"properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/N"}}}, "$defs": {"N": {"enum": [1, "<"]}, "x/y": true}}`))
	require.NoError(t, err)
	part, ok := d.At("#/properties/a")
	require.True(t, ok)
	e, err := d.Part(part)
	require.NoError(t, err)
	g := compile(t, e)
	require.True(t, matches(t, g, `[1,"\u003c"]`))
	require.False(t, matches(t, g, `[1,"<"]`))
	require.False(t, matches(t, g, `[2]`))
	part, ok = d.At("#/$defs/x~1y")
	require.True(t, ok)
	require.Equal(t, "true", string(part))
	for _, ref := range []string{"#/$defs/M", "#a", "https://example.org/#/properties/a", ""} {
		_, ok = d.At(ref)
		require.False(t, ok, ref)
	}
	part, ok = d.At("#")
	require.True(t, ok)
	require.Contains(t, string(part), "$defs")
	_, err = d.Part([]byte(`{"$ref": "#/$defs/M"}`))
	require.EqualError(t, err, `schema: $ref "#/$defs/M" points to nothing`)
	_, err = grammar.NewDocument([]byte(`{`))
	require.EqualError(t, err, "schema: it is no JSON")
}
