package tools

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type point struct {
	X float64 `json:"x" doc:"to the right"`
	Y float64 `json:"y"`
}

type common struct {
	Verbose bool `json:"verbose,omitempty"`
}

type everything struct {
	common
	Name    string          `json:"name" doc:"of the city"`
	Unit    string          `json:"unit,omitempty" enum:"celsius,fahrenheit"`
	Digits  *int            `json:"digits" enum:"1,2"`
	Where   point           `json:"where"`
	Path    []point         `json:"path,omitempty"`
	Labels  map[string]int  `json:"labels,omitempty"`
	Tags    []string        `json:"tags,omitzero" enum:"a,b"`
	Any     any             `json:"any,omitempty"`
	Raw     json.RawMessage `json:"raw,omitempty"`
	When    *time.Time      `json:"when"`
	Plain   uint8           //
	Ignored func()          `json:"-"`
	//lint:ignore U1000 unexported fields are left out
	hidden map[int]chan bool
}

func TestSchemaOf(t *testing.T) {
	s, err := SchemaOf[everything]()
	require.NoError(t, err)
	b, err := json.Marshal(s)
	require.NoError(t, err)
	const pointJSON = `{"type":"object","properties":{"x":{"type":"number","description":"to the right"},"y":{"type":"number"}},"required":["x","y"],"additionalProperties":false}`
	want := `{"type":"object","properties":{"verbose":{"type":"boolean"},"name":{"type":"string","description":"of the city"},` +
		`"unit":{"type":"string","enum":["celsius","fahrenheit"]},"digits":{"type":"integer","enum":[1,2]},"where":` + pointJSON +
		`,"path":{"type":"array","items":` + pointJSON + `},"labels":{"type":"object","additionalProperties":{"type":"integer"}},` +
		`"tags":{"type":"array","items":{"type":"string","enum":["a","b"]}},"any":{},"raw":{},` +
		`"when":{"type":"string","description":"RFC 3339 time"},"Plain":{"type":"integer"}},` +
		`"required":["name","where","Plain"],"additionalProperties":false}`
	require.Equal(t, want, string(b))

	back, err := ParseSchema(b)
	require.NoError(t, err)
	again, err := json.Marshal(back)
	require.NoError(t, err)
	require.Equal(t, want, string(again), "reading and writing keeps the order")
	require.Equal(t, `{"verbose": boolean (optional), "name": string, "unit": one of "celsius", "fahrenheit" (optional), `+
		`"digits": one of 1, 2 (optional), "where": {"x": number, "y": number}, "path": list of {"x": number, "y": number} (optional), `+
		`"labels": object (optional), "tags": list of one of "a", "b" (optional), "any": any value (optional), `+
		`"raw": any value (optional), "when": string (optional), "Plain": integer}`, s.Usage())
}

type loop struct {
	Next *loop `json:"next"`
}

func TestSchemaOfErrors(t *testing.T) {
	refuse := func(want string) func(*Schema, error) {
		return func(_ *Schema, err error) { t.Helper(); require.EqualError(t, err, want) }
	}
	refuse("tools: schema of string: the arguments must be a struct")(SchemaOf[string]())
	refuse("tools: schema of tools.loop: field Next: tools.loop contains itself")(SchemaOf[loop]())
	refuse("tools: schema of struct { F func() }: field F: func() is not supported")(SchemaOf[struct{ F func() }]())
	refuse("tools: schema of struct { B []uint8 }: field B: []uint8 is not supported; use string")(SchemaOf[struct{ B []byte }]())
	refuse("tools: schema of struct { M map[int]int }: field M: map[int]int is not supported; the keys of a map must be strings")(SchemaOf[struct{ M map[int]int }]())
	refuse("tools: schema of struct { E error }: field E: error is not supported")(SchemaOf[struct{ E error }]())
	_, err := SchemaOf[struct {
		N int `enum:"1,x"`
	}]()
	require.ErrorContains(t, err, `enum value "x" is not of type integer`)
	_, err = SchemaOf[struct {
		B bool `enum:"true"`
	}]()
	require.ErrorContains(t, err, "an enum needs a string or a number")
	_, err = SchemaOf[struct {
		common
		V bool `json:"verbose"`
	}]()
	require.ErrorContains(t, err, `the name "verbose" is used twice`)
}

func TestCheck(t *testing.T) {
	s, err := SchemaOf[everything]()
	require.NoError(t, err)
	right := `"name":"Rome","where":{"x":1,"y":2.5},"Plain":3`
	for _, ok := range []string{"", `,"digits":2,"unit":"celsius"`, `,"digits":2.0`, `,"path":[],"labels":{"a":1e2}`, `,"any":null,"raw":[1,{}],"tags":["b"]`} {
		require.NoError(t, s.Check([]byte("{"+right+ok+"}")), ok)
	}
	for extra, want := range map[string]string{
		`,"digits":3`:              `the argument "digits" must be one of 1, 2, got the number 3`,
		`,"digits":"2"`:            `the argument "digits" must be one of 1, 2, got the string "2"`,
		`,"unit":"kelvin"`:         `the argument "unit" must be one of "celsius", "fahrenheit", got the string "kelvin"`,
		`,"path":{}`:               `the argument "path" must be a list of {"x": number, "y": number}, got an object`,
		`,"path":[{"x":1}]`:        `the argument "path[0].y" is missing; the arguments are {"x": number, "y": number}`,
		`,"path":[{"x":true}]`:     `the argument "path[0].x" must be a number, got true`,
		`,"labels":{"a":1.5}`:      `the argument "labels.a" must be an integer, got the number 1.5`,
		`,"labels":{"a":1e-1}`:     `the argument "labels.a" must be an integer, got the number 1e-1`,
		`,"labels":{"a":1e999}`:    `the argument "labels.a" must be an integer, got the number 1e999`,
		`,"tags":["c"]`:            `the argument "tags[0]" must be one of "a", "b", got the string "c"`,
		`,"verbose":null`:          `the argument "verbose" must be a boolean, got null`,
		`,"where":{"x":1,"z":"a"}`: `there is no argument "where.z"; the arguments are {"x": number, "y": number}`,
	} {
		require.EqualError(t, s.Check([]byte("{"+right+extra+"}")), want, extra)
	}
}

func TestCheckForeignSchema(t *testing.T) {
	s, err := ParseSchema([]byte(`{"type":"object","$defs":{},"properties":{"a":{"type":["string","null"]},"b":{"anyOf":[{"type":"integer"},{"type":"null"}],"default":null}},"required":["a"]}`))
	require.NoError(t, err)
	require.NoError(t, s.Check([]byte(`{"a":null,"b":3,"c":"open"}`)))
	require.EqualError(t, s.Check([]byte(`{"a":1}`)), `the argument "a" must be a string or null, got the number 1`)
	require.EqualError(t, s.Check([]byte(`{"a":null,"b":"x"}`)), `the argument "b" must be integer or null, got the string "x"`)
	for _, bad := range []string{`[]`, `"x"`, `{"type":1}`, `{"properties":[]}`, `{"properties":{"a":1}}`, `{"items":3}`, `{"additionalProperties":3}`} {
		_, err := ParseSchema([]byte(bad))
		require.ErrorContains(t, err, "tools: schema: ", bad)
	}
}

// What stands beside anyOf holds with it, as in the schemas of servers that require one of several arguments; the error says what is wrong.
func TestCheckBesideAnyOf(t *testing.T) {
	s, err := ParseSchema([]byte(`{"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}, "at": {
		"anyOf": [{"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}, {"type": "string"}, {"type": "null"}]
	}}, "additionalProperties": false, "anyOf": [{"required": ["city"]}, {"required": ["zip"]}]}`))
	require.NoError(t, err)
	require.NoError(t, s.Check([]byte(`{"city": "Ulm"}`)))
	require.NoError(t, s.Check([]byte(`{"zip": 89073, "at": null}`)))
	require.NoError(t, s.Check([]byte(`{"zip": 89073, "at": {"x": 1}}`)))
	usage := `{"city": string (optional), "zip": integer (optional), "at": {"x": number} or string or null (optional)}`
	for in, want := range map[string]string{
		`{}`:                        `the argument "city" is missing, or the argument "zip" is missing`,
		`{"city": 5}`:               `the argument "city" must be a string, got the number 5`,
		`{"zip": 1, "town": "Ulm"}`: `there is no argument "town"; the arguments are ` + usage,
		`{"ctiy": "Ulm"}`:           `there is no argument "ctiy" (did you mean "city"?); the arguments are ` + usage,
		`[]`:                        `the arguments object must be ` + usage + `, got a list`,
		`{"zip": 1, "at": {}}`:      `the argument "at.x" is missing; the arguments are {"x": number}`,
		`{"zip": 1, "at": 3}`:       `the argument "at" must be {"x": number} or string or null, got the number 3`,
	} {
		require.EqualError(t, s.Check([]byte(in)), want, in)
	}
	require.Equal(t, usage, s.kind())
}

func TestNewFunc(t *testing.T) {
	f := NewFunc("greet", "Greets.", func(_ context.Context, a point) (string, error) {
		b, err := json.Marshal(a)
		return string(b), err
	})
	require.Equal(t, "greet", f.Spec().Name)
	o, err := f.Call(t.Context(), Call{Arguments: json.RawMessage(`{"x":1,"y":2}`)})
	require.NoError(t, err)
	require.Equal(t, `{"x":1,"y":2}`, o.Text)
	_, err = f.Call(t.Context(), Call{Arguments: json.RawMessage(`{"x":"1"}`)})
	require.EqualError(t, err, `the argument "x" cannot hold the string; write another value`)
}

// A JSON integer may be written with a fraction or an exponent, as the schema's check knows; Go's int does not.
func TestIntegersOfGoTools(t *testing.T) {
	type args struct {
		N     int64     `json:"n"`
		X     float64   `json:"x,omitempty"`
		Words []string  `json:"words,omitempty"`
		Deep  []*args   `json:"deep,omitempty"`
		Raw   []float64 `json:"raw,omitempty"`
	}
	for in, want := range map[string]string{
		`{"n": 3.0}`: `{"n":3}`,
		`{"n": -2e3, "x": 2.50, "words": ["3.0", "a\\", "\"4.0", "e"]}`:    `{"n":-2000,"x":2.5,"words":["3.0","a\\","\"4.0","e"]}`,
		`{"n": 9007199254740993, "raw": [1e400, 1.0]}`:                     `the argument "raw" cannot hold the number 1e400; write another value`,
		`{"n": 9007199254740993, "raw": [-0.0, 1e20]}`:                     `{"n":9007199254740993,"raw":[0,100000000000000000000]}`,
		`{"n": 123456789012345678901234567890123456789012345678901234567}`: `the argument "n" cannot hold the number 12345678901234567890123456789012345678901234567890123…; write another value`,
		`{"n": 2.5}`: `the argument "n" cannot hold the number 2.5; write another value`,
	} {
		var a args
		if err := ReadArguments([]byte(in), &a); err != nil {
			require.EqualError(t, err, want, in)
			continue
		}
		out, err := json.Marshal(a)
		require.NoError(t, err)
		require.Equal(t, want, string(out), in)
	}
}

func FuzzSchema(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`), []byte(`{"a":"x"}`))
	f.Add([]byte(`{"anyOf":[{"enum":[1,"a",null]}],"items":{}}`), []byte(`[1]`))
	f.Add([]byte(`{"additionalProperties":{"type":["integer","null"]}}`), []byte(`{"a":1e400}`))
	f.Fuzz(func(t *testing.T, schema, value []byte) {
		s, err := ParseSchema(schema)
		if err != nil {
			return
		}
		b, err := json.Marshal(s)
		require.NoError(t, err)
		again, err := ParseSchema(b)
		require.NoError(t, err)
		first, second := s.Check(value), again.Check(value)
		require.Equal(t, first == nil, second == nil, "%v, %v", first, second)
		_ = s.Usage()
	})
}

// What servers in the world write beside an object as a schema says nothing of a value: a tuple, true.
func TestSchemasThatCheckNothing(t *testing.T) {
	s, err := ParseSchema([]byte(`{"type": "object", "properties": {
		"any": true,
		"list": {"type": "array", "items": true},
		"pair": {"type": "array", "items": [{"type": "number"}, {"type": "string"}], "additionalItems": false},
		"three": {"type": "array", "prefixItems": [{"type": "number"}], "items": false},
		"one": {"anyOf": [{"type": "string"}, true]}
	}, "required": ["any"]}`))
	require.NoError(t, err)
	require.NoError(t, s.Check([]byte(`{"any": {"a": 1}, "list": [1, "a", null], "pair": ["x", 1, 2], "three": [1], "one": 3}`)))
	require.ErrorContains(t, s.Check([]byte(`{"any": 1, "pair": 3}`)), `"pair" must be`)
	require.Equal(t, `{"any": any value, "list": list of any value (optional), "pair": list (optional), "three": list (optional), "one": string or any value (optional)}`, s.Usage())
	for text, want := range map[string]string{
		`{"properties": {"a": false}}`: `tools: schema: property "a": a schema must be a JSON object, got false`,
		`{"items": 3}`:                 "tools: schema: items: a schema must be a JSON object, got 3",
	} {
		_, err := ParseSchema([]byte(text))
		require.EqualError(t, err, want)
	}
}
