package forms

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/grammar"
	"github.com/agentfly/agentfly/tools"
)

// letters has a token for each byte, and no special ones.
type letters struct{}

func (letters) Encode(text string) []int32 {
	ids := make([]int32, len(text))
	for i := range text {
		ids[i] = int32(text[i])
	}
	return ids
}

func (letters) Decode(ids []int32, _ bool) string {
	text := make([]byte, len(ids))
	for i, id := range ids {
		text[i] = byte(id)
	}
	return string(text)
}

func (letters) Bytes(id int32) []byte      { return []byte{byte(id)} }
func (letters) Token(int32) (string, bool) { return "", false }
func (letters) IsSpecial(int32) bool       { return false }

// Clients write null for what they leave out.
func TestNullsOfFormsAskForNothing(t *testing.T) {
	for body, want := range map[string]string{
		`{"json":null,"regex":"a+","choice":null,"grammar":null,"json_object":null,"structural_tag":null,"whitespace_pattern":null}`: "",
		`{}`:                                  "none",
		`{"json":null,"regex":null}`:          "asks for no form that is known",
		`{"choice":[]}`:                       "structured_outputs.choice is an empty list; give at least one text",
		`{"json":"{\"type\": \"integer\""}`:   "structured_outputs: schema: it is no JSON",
		`{"json":"{\"type\": \"integer\"}x"}`: "structured_outputs: schema: it is no JSON",
	} {
		var w Wanted
		require.NoError(t, json.Unmarshal([]byte(body), &w.Structured))
		form, err := w.Text()
		switch want {
		case "", "none":
			require.NoError(t, err, body)
			require.Equal(t, want == "", form != nil, body)
		default:
			require.ErrorContains(t, err, want, body)
		}
	}
}

// What tools, choice and format say together: a call, a text of the form, or either.
func TestFormsOfReplies(t *testing.T) {
	hermes, err := agents.NewFormat("hermes", []tools.Spec{{Name: "roll", Parameters: json.RawMessage(`{"type":"object","properties":{"sides":{"enum":[6,20]}},"required":["sides"]}`)}}, agents.FormatOptions{})
	require.NoError(t, err)
	f := New(letters{}, 256, nil)
	const call, number = "<tool_call>\n{\"name\": \"roll\", \"arguments\": {\"sides\": 6}}\n</tool_call>", "7"
	integer := &dialects.Schema{Param: "text.format", Schema: json.RawMessage(`{"type":"integer","minimum":7,"maximum":7}`)}
	required := dialects.Choice{Mode: dialects.ChoiceRequired}
	for name, c := range map[string]struct {
		want    Wanted
		format  agents.Format
		opened  bool
		says    map[string]bool // texts, and whether they have the form; nil: there is none
		refused string
	}{
		"free":             {Wanted{}, hermes, false, nil, ""},
		"a call":           {Wanted{Choice: required}, hermes, false, map[string]bool{call: true, number: false}, ""},
		"a text":           {Wanted{Schema: integer}, nil, false, map[string]bool{call: false, number: true}, ""},
		"either":           {Wanted{Schema: integer}, hermes, false, map[string]bool{call: true, number: true, "8": false}, ""},
		"behind a thought": {Wanted{Schema: integer}, nil, true, map[string]bool{"hm</think>\n7": true, number: false}, ""},
		"both":             {Wanted{Schema: integer, Choice: required}, hermes, false, nil, "tool_choice requires a call, and text.format a form of the reply"},
	} {
		t.Run(name, func(t *testing.T) {
			form, err := f.Reply(c.want, c.format, c.opened)
			if c.refused != "" {
				require.ErrorContains(t, err, c.refused)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.says != nil, form != nil)
			for text, has := range c.says {
				made, err := f.Compile(form)
				require.NoError(t, err)
				m, taken := made.Match(), true
				for _, id := range f.tokenizer.Encode(text) {
					taken = taken && m.Take(id) == nil
				}
				end := false
				if taken {
					_, end, err = m.Allowed()
					require.NoError(t, err)
				}
				require.Equal(t, has, end, text)
			}
		})
	}
}

// A stop id that the tokenizer takes for text is no text of a form: it would cut the form.
func TestStopIDsAreNoTextOfAForm(t *testing.T) {
	f := New(letters{}, 256, []int32{'z'})
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
