package serve

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/grammar"
)

// Clients write null for what they leave out.
func TestNullsOfFormsAskForNothing(t *testing.T) {
	for body, want := range map[string]string{
		`{"structured_outputs":{"json":null,"regex":"a+","choice":null,"grammar":null,"json_object":null,"structural_tag":null,"whitespace_pattern":null}}`: "",
		`{"structured_outputs":null}`:                                "none",
		`{"structured_outputs":{"json":null,"regex":null}}`:          "asks for no form that is known",
		`{"structured_outputs":{"choice":[]}}`:                       "structured_outputs.choice is an empty list; give at least one text",
		`{"structured_outputs":{"json":null},"response_format":{}}`:  "asks for no form that is known",
		`{"structured_outputs":{"json":"{\"type\": \"integer\""}}`:   "structured_outputs: schema: it is no JSON",
		`{"structured_outputs":{"json":"{\"type\": \"integer\"}x"}}`: "structured_outputs: schema: it is no JSON",
	} {
		var p sampling
		require.NoError(t, json.Unmarshal([]byte(body), &p))
		_, _, held, err := p.wanted()
		switch want {
		case "", "none":
			require.NoError(t, err, body)
			require.Equal(t, want == "", held, body)
		default:
			require.ErrorContains(t, err, want, body)
		}
	}
}

// A stop id that the tokenizer takes for text is no text of a form: it would cut the form.
func TestStopIDsAreNoTextOfAForm(t *testing.T) {
	f := newForms(&codec{tokenizer: letters{}, stopIDs: []int32{'z'}, vocab: vocabulary}, nil)
	g, err := grammar.Compile(grammar.Sequence(grammar.Text("a"), grammar.AnyText()), f.tokens())
	require.NoError(t, err)
	m := g.Match()
	require.NoError(t, m.Take('a'))
	mask, end, err := m.Allowed()
	require.NoError(t, err)
	require.True(t, end)
	require.NotZero(t, mask['y'/64]>>('y'%64)&1)
	require.Zero(t, mask['z'/64]>>('z'%64)&1)
	_, err = grammar.Compile(grammar.Text("az"), f.tokens())
	require.ErrorContains(t, err, "no text has this form")
}
