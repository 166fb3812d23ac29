package agents

import (
	"encoding/json"
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
