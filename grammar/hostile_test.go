package grammar_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/grammar"
)

func ofSchema(t testing.TB, schema string) *grammar.Grammar {
	t.Helper()
	e, err := grammar.JSONSchema([]byte(schema))
	require.NoError(t, err, schema)
	return compile(t, e)
}

// soon fails where f takes longer, or more memory: a request of a few bytes must not hold a server up.
func soon(t *testing.T, limit time.Duration, megabytes uint64, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(limit):
		require.FailNow(t, "too slow", "after %v", limit)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, (after.TotalAlloc-before.TotalAlloc)>>20, megabytes, "MiB were allocated")
}

// What no text of the form goes on with is never begun: an alternative that cannot be completed is none.
func TestAlternativesWithoutATextAreNotBegun(t *testing.T) {
	const loop = `"$defs": {"loop": {"type": "object", "properties": {"x": {"$ref": "#/$defs/loop"}}, "required": ["x"]}}`
	for _, c := range []struct {
		schema string
		no     []string // beginnings that lead nowhere
		yes    []string
	}{
		{`{"type": "object", "properties": {"a": false, "b": {"type": "integer"}}}`, []string{`{"a`}, []string{`{"b":1}`, `{}`}},
		{`{"anyOf": [{"$ref": "#/$defs/loop"}, {"const": 1}], ` + loop + `}`, []string{`{`}, []string{`1`}},
		{`{"type": "object", "properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/loop"}}}, ` + loop + `}`, []string{`{"a":[{`}, []string{`{"a":[]}`}},
		{`{"type": "array", "prefixItems": [{"type": "integer"}, false]}`, []string{`[1,`}, []string{`[1]`, `[]`}},
		{`{"type": "string", "pattern": "^(a[^\\x00-\\x{10FFFF}]|b)$"}`, []string{`"a`}, []string{`"b"`}},
		{`{"type": "object", "additionalProperties": {"$ref": "#/$defs/loop"}, ` + loop + `}`, []string{`{"`}, []string{`{}`}},
		{`{"anyOf": [{"type": "object", "required": ["a"], "additionalProperties": false}, {"const": 1}]}`, []string{`{`}, []string{`1`}},
	} {
		g := ofSchema(t, c.schema)
		for _, text := range c.no {
			prefix, _ := reads(t, g, text)
			require.False(t, prefix, "%s: %s", c.schema, text)
		}
		for _, text := range c.yes {
			require.True(t, matches(t, g, text), "%s: %s", c.schema, text)
		}
	}
	for _, schema := range []string{
		`false`, `{"$ref": "#/$defs/loop", ` + loop + `}`, `{"type": "object", "properties": {"a": false}, "required": ["a"]}`,
		`{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a", "b"], "additionalProperties": false}`,
	} {
		e, err := grammar.JSONSchema([]byte(schema))
		require.NoError(t, err)
		_, err = grammar.Compile(e, grammar.NewVocabulary(texts))
		require.ErrorContains(t, err, "grammar: no text has this form", schema)
	}
}

// lacking is a vocabulary without some bytes: SmolLM2's has none of a few control characters, nor 0xf1.
type lacking struct {
	vocabulary
	bytes string
}

func (l lacking) Bytes(id int32) []byte {
	b := l.vocabulary.Bytes(id)
	if strings.ContainsAny(string(b), l.bytes) || len(b) == 1 && strings.IndexByte(l.bytes, b[0]) >= 0 {
		return nil
	}
	return b
}

func TestBytesThatNoTokenHasAreNotBegun(t *testing.T) {
	v := grammar.NewVocabulary(lacking{texts, "z\xf1"})
	g, err := grammar.Compile(grammar.Choice(grammar.Text("ayz"), grammar.Text("b"), grammar.Text("ay\U00040000"), grammar.Text("ac")), v)
	require.NoError(t, err)
	m := g.Match()
	mask, _, err := m.Allowed()
	require.NoError(t, err)
	require.True(t, has(mask, 'a'))
	require.True(t, has(mask, 'b'))
	require.NoError(t, m.Take('a'))
	mask, _, err = m.Allowed()
	require.NoError(t, err)
	require.False(t, has(mask, 'y'), "nothing can be written behind it")
	require.True(t, has(mask, 'c'))
	_, err = grammar.Compile(grammar.Text("az"), v)
	require.ErrorContains(t, err, "grammar: no text has this form")
}

// A text of the form is valid under the schema: const and enum hold beside a type, a bound holds for what a reader of float64 reads, a dot
// is no line break.
func TestNothingInvalidIsAllowed(t *testing.T) {
	for _, c := range []struct {
		schema  string
		yes, no []string
	}{
		{`{"type": "string", "enum": ["a", 1, null]}`, []string{`"a"`}, []string{`1`, `null`}},
		{`{"type": ["integer", "null"], "enum": ["a", 1, 1.0, 1.5, null, {"a": 1}]}`, []string{`1`, `1.0`, `null`}, []string{`1.5`, `"a"`, `{"a":1}`}},
		{`{"type": "number", "enum": [1, 2.5, "1", true]}`, []string{`1`, `2.5`}, []string{`"1"`, `true`}},
		{`{"anyOf": [{"type": "boolean", "const": 1}, {"type": "integer", "const": 2}]}`, []string{`2`}, []string{`1`}},
		{`{"type": "number", "exclusiveMaximum": 1, "minimum": 0}`, []string{`0.99999`, `0`, `0.5`}, []string{`0.99999999999999999999`, `1`, `1.0`}},
		{`{"type": "number", "exclusiveMinimum": 5}`, []string{`5.001`, `6`, `123456.5`}, []string{`5`, `5.0`, `5.0000000000000000001`, `5.00000000000000000000000000001`}},
		{`{"type": "number", "exclusiveMinimum": -5, "maximum": 5}`, []string{`-4.999`, `5.0`}, []string{`-4.99999999999999999999`, `-5`}},
		{`{"type": "number", "exclusiveMinimum": 0}`, []string{`0.0001`, `0.00000000000000001`}, []string{`0`, `0.0`, `-0.1`}},
		{`{"type": "string", "pattern": "^.$"}`, []string{`"a"`, `"é"`}, []string{`"\n"`, `"\r"`, `"ab"`, "\"\u2028\""}},
		{`{"type": "string", "pattern": "^(?s:.)$"}`, []string{`"\n"`}, nil},
		{`{"type": "string", "format": "date"}`, []string{`"2024-02-29"`, `"2000-02-29"`, `"2026-12-31"`, `"2026-04-30"`}, []string{`"2026-02-30"`, `"2026-04-31"`, `"2023-02-29"`, `"1900-02-29"`, `"0000-01-01"`}},
		{`{"type": "string", "format": "date-time"}`, []string{`"2024-02-29T01:02:03Z"`}, []string{`"2026-02-30T01:02:03Z"`}},
		{`{"type": "string", "format": "email"}`, []string{`"a.b@c-d.org"`}, []string{`"a@-b.c"`, `"a@b-.c"`, `"a..b@c.d"`}},
		{`{"type": "object", "required": ["a", "a"]}`, []string{`{"a":1}`}, []string{`{}`}},
	} {
		g := ofSchema(t, c.schema)
		for _, text := range c.yes {
			require.True(t, matches(t, g, text), "%s: %s", c.schema, text)
		}
		for _, text := range c.no {
			require.False(t, matches(t, g, text), "%s: %s", c.schema, text)
		}
	}
	for schema, want := range map[string]string{
		`{"type": "object", "required": ["a", "a"], "minProperties": 2}`: "schema: minProperties of 2 is not supported",
		`{"type": "string"`:     "schema: it is no JSON",
		`{"type": "string"} {}`: "schema: it is no JSON",
		`{"type": "string", "pattern": "^a", "format": "date"}`: `schema: pattern beside the format "date" is not supported`,
		`{"$ref": "#title", "title": {}}`:                       `schema: $ref is "#title", it must point into the schema itself`,
	} {
		_, err := grammar.JSONSchema([]byte(schema))
		require.ErrorContains(t, err, want, schema)
	}
}

// What JSON Schema can say of a place in the schema is found.
func TestReferencesArePointers(t *testing.T) {
	g := ofSchema(t, `{"anyOf": [{"const": 1}, {"type": "array", "items": {"$ref": "#/anyOf/0"}}, {"$ref": "#/$defs/a%20b~1c"}], "$defs": {"a b/c": {"const": 2}}}`)
	require.True(t, matches(t, g, `[1, 1]`))
	require.True(t, matches(t, g, `2`))
	require.False(t, matches(t, g, `[2]`))
}

// A whole pattern may bind itself wherever Go's regexp lets it, and ends a quotation that it has begun.
func TestWholePatternsMatchWhatRegexpMatches(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	for _, pattern := range []string{
		`(^a$)`, `^a|b$`, `^(?:a|^b$)`, `a`, ``, `\Qa.b`, `a.c`, `(?s)a.c`, `[^a]`, `(?i)aé`, `(a|b)*?c`, `\d{1,3}`, `(?:a|ab)(?:c|bc)`, `\p{L}\P{L}`, `[[:upper:]]+`, `a{0}b`, `^^a$$`,
	} {
		e, err := grammar.Regexp(pattern)
		if err != nil && pattern == `^(?:a|^b$)` {
			continue // refused in words
		}
		require.NoError(t, err, pattern)
		g := compile(t, e)
		re := regexp.MustCompile(`^(?:` + strings.Replace(pattern, `\Qa.b`, `a\.b`, 1) + `)$`)
		alphabet := []rune("abcABÉé1.\n")
		for range 1500 {
			var b strings.Builder
			for range r.IntN(5) {
				b.WriteRune(alphabet[r.IntN(len(alphabet))])
			}
			require.Equal(t, re.MatchString(b.String()), matches(t, g, b.String()), "%q with %q", pattern, b.String())
		}
	}
}

// Schemas of a modest size are honoured, however deep what is optional or repeated lies in them.
func TestDeepSchemasAreHonoured(t *testing.T) {
	nested, text := `{"type": "integer"}`, `1`
	for i := range 25 {
		if i%2 == 0 {
			nested, text = `{"type": "object", "properties": {"a": `+nested+`, "b": {"type": "string"}}}`, `{"a": `+text+`}`
		} else {
			nested, text = `{"type": "array", "items": `+nested+`}`, `[`+text+`, `+text+`]`
		}
		if len(text) > 3000 {
			text = `[]`
		}
	}
	soon(t, 5*time.Second, 500, func() { require.True(t, matches(t, ofSchema(t, nested), text)) })
}

// Many values and names are followed together where they begin alike.
func TestManyAlternatives(t *testing.T) {
	values, names := make([]string, 10000), make([]string, 1500)
	for i := range values {
		values[i] = fmt.Sprintf("%q", fmt.Sprintf("v%d-%x", i, i*7919))
	}
	for i := range names {
		names[i] = fmt.Sprintf(`"name%d": {"type": "integer"}`, i)
	}
	soon(t, 10*time.Second, 1000, func() {
		g := ofSchema(t, `{"enum": [`+strings.Join(values, ",")+`]}`)
		require.True(t, matches(t, g, values[777]))
		require.False(t, matches(t, g, `"v1-x"`))
	})
	soon(t, 20*time.Second, 2000, func() {
		g := ofSchema(t, `{"type": "object", "properties": {`+strings.Join(names, ",")+`}}`)
		require.True(t, matches(t, g, `{"name3": 1, "name1400": 2}`))
		require.False(t, matches(t, g, `{"name1400": 1, "name3": 2}`))
	})
}

// A schema that would take a server's time or memory is honoured at once, or refused.
func TestBombs(t *testing.T) {
	doubled := `{"type": "integer"}`
	for range 40 {
		doubled = `{"type": ["object", "object"], "properties": {"a": ` + doubled + `}}`
	}
	tiny := make([]string, 3000)
	for i := range tiny {
		tiny[i] = fmt.Sprintf(`{"type": "integer", "minimum": 1e-99999%d}`, i%10)
	}
	var refs, defs, optional []string
	for i := range 2500 {
		refs = append(refs, fmt.Sprintf(`{"$ref": "#/$defs/d%d"}`, i))
		defs = append(defs, fmt.Sprintf(`"d%d": {"const": %d, "description": %q}`, i, i, strings.Repeat("x", 300)))
	}
	for i := range 20000 {
		optional = append(optional, fmt.Sprintf(`"%d": {}`, i))
	}
	for name, schema := range map[string]string{
		"types":    doubled,
		"bounds":   `{"anyOf": [` + strings.Join(tiny, ",") + `]}`,
		"name":     `{"type": "object", "properties": {"` + strings.Repeat("a", 200000) + `": {}}, "additionalProperties": true}`,
		"refs":     `{"anyOf": [` + strings.Join(refs, ",") + `], "$defs": {` + strings.Join(defs, ",") + `}}`,
		"optional": `{"type": "object", "properties": {` + strings.Join(optional, ",") + `}}`,
		"open":     `{"type": "object", "properties": {` + strings.Join(optional, ",") + `}, "additionalProperties": true}`,
		"pattern":  `{"type": "string", "pattern": "^((a?){30}){30}$"}`,
		"classes":  `{"type": "string", "pattern": "^(\\p{L}|\\p{Lu}|\\p{N}|\\p{S}){1,900}$"}`,
		"const":    `{"const": "` + strings.Repeat("é", 300000) + `"}`,
		"deep":     `{"const": ` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`,
		"required": `{"type": "object", "required": [` + strings.TrimSuffix(strings.Repeat(`"a",`, 200000), ",") + `]}`,
	} {
		t.Run(name, func(t *testing.T) {
			require.True(t, json.Valid([]byte(schema)))
			soon(t, 15*time.Second, 1500, func() {
				e, err := grammar.JSONSchema([]byte(schema))
				if err != nil {
					t.Log(err)
					return
				}
				g, err := grammar.Compile(e, grammar.NewVocabulary(texts))
				if err != nil {
					t.Log(err)
					return
				}
				_, _, err = g.Match().Allowed()
				require.NoError(t, err)
			})
		})
	}
}

// What is sampled in the form of a regular expression matches it whole, in Go's own regexp.
func FuzzRegexp(f *testing.F) {
	for _, pattern := range []string{`a|b$`, `(^a$)`, `[^\n]{2,4}?x`, `(?i)k\pL*`, `\Qa.b`, `(a|ab)(c|bcd)*`, `(?s).{3}`, `x{0}`, `[[:^alpha:]]\x{10FFFF}?`} {
		f.Add(pattern)
	}
	v := grammar.NewVocabulary(texts)
	f.Fuzz(func(t *testing.T, pattern string) {
		e, err := grammar.Regexp(pattern)
		if err != nil {
			return
		}
		g, err := grammar.Compile(e, v)
		if err != nil {
			return
		}
		re, err := regexp.Compile(pattern)
		require.NoError(t, err)
		re.Longest()
		r := rand.New(rand.NewPCG(1, 1))
		m, text := g.Match(), ""
		for range 30 {
			mask, end, err := m.Allowed()
			if errors.Is(err, grammar.ErrCostly) {
				return
			}
			require.NoError(t, err, "a dead end: %q behind %q", pattern, text)
			if end && utf8.ValidString(text) {
				require.Equal(t, []int{0, len(text)}, re.FindStringIndex(text), "%q: %q", pattern, text)
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
			id := next[r.IntN(len(next))]
			if err := m.Take(id); err != nil {
				require.ErrorIs(t, err, grammar.ErrCostly)
				return
			}
			text += string(texts.Bytes(id))
		}
	})
}

// Choices of one request walk through one grammar at once; under the race detector, and the masks that one holds do not change.
func TestOneGrammarForManyChoices(t *testing.T) {
	g := ofSchema(t, `{"type": "object", "properties": {"a": {"type": "string", "maxLength": 300}, "b": {"type": "array", "items": {"type": "integer"}}}, "required": ["a", "b"]}`)
	text := `{"a": "` + strings.Repeat("é", 250) + `", "b": [1, 2, 3]}`
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			m := g.Match()
			first, _, err := m.Allowed()
			require.NoError(t, err)
			kept := slices.Clone(first)
			for i := range len(text) {
				_, _, err := m.Allowed()
				require.NoError(t, err)
				require.NoError(t, m.Take(int32(text[i])))
			}
			_, end, err := m.Allowed()
			require.NoError(t, err)
			require.True(t, end)
			require.Equal(t, kept, first)
		})
	}
	all.Wait()
}
