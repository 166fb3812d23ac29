package dialects

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// A whole number may be written as a float, as OpenAI's servers and vLLM take it; another one is refused by name.
func TestWholeNumbersMayBeFloats(t *testing.T) {
	const user = `"messages":[{"role":"user","content":"x"}]`
	for _, c := range []struct {
		d        Dialect
		is, same string // members, without the fraction too
	}{
		{Chat(), `"n":2.0,"max_tokens":5.0,"min_tokens":1.0,"top_k":-1.0,"seed":1e3,"logprobs":true,"top_logprobs":3.0,` + user, `"n":2,"max_tokens":5,"min_tokens":1,"top_k":-1,"seed":1000,"logprobs":true,"top_logprobs":3,` + user},
		{Chat(), `"max_completion_tokens":5.0,"seed":-0.0,` + user, `"max_completion_tokens":5,"seed":0,` + user},
		{Completions(), `"prompt":"x","logprobs":2.0,"best_of":1.0,"seed":9223372036854775807`, `"prompt":"x","logprobs":2,"best_of":1,"seed":9223372036854775807`},
		{Responses(), `"input":"x","max_output_tokens":5.0,"top_logprobs":2.0`, `"input":"x","max_output_tokens":5,"top_logprobs":2`},
		{Messages(), `"max_tokens":5.0,"top_k":5.0,` + user, `"max_tokens":5,"top_k":5,` + user},
	} {
		is, same := parse(t, c.d, "{"+c.is+"}"), parse(t, c.d, "{"+c.same+"}")
		for _, q := range []*Request{is, same} {
			q.Asked, q.Digest = nil, [32]byte{}
		}
		require.Equal(t, same, is)
	}
	for number, said := range map[string]string{"5.5": "number 5.5", "1e30": "number 1e30", "9223372036854775808": "number 9223372036854775808", `"5"`: "string", "true": "bool"} {
		_, err := Chat().Parse(nil, []byte(`{"seed":`+number+`,`+user+`}`))
		require.EqualError(t, err, "seed: a JSON "+said+" does not fit, an integer is needed")
		_, err = Messages().Parse(nil, []byte(`{"top_k":`+number+`,`+user+`}`))
		require.EqualError(t, err, "top_k: a JSON "+said+" does not fit, an integer is needed")
	}
	var v struct{ N *Whole }
	require.NoError(t, json.Unmarshal([]byte(`{"N":null}`), &v))
	require.Nil(t, v.N)
}
