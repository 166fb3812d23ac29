package vllm

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
)

const nativeBody = `{"request_id":"r\u00e9","choices":[{"index":0,"token_ids":[5,-1,2147483647],"logprobs":{"content":[` +
	`{"token_id":5,"logprob":-0.5,"top_logprobs":[{"a":[1,"\"]"]}]},{"logprob":-1.25e-3,"token_id":-1},{"token_id":2147483647,"logprob":0}]},` +
	`"finish_reason":"stop","stop_reason":null,"weight_versions":[{"version":"7","start":0,"end":2},{"version":"8","start":2,"end":3}]}],` +
	`"prompt_logprobs":null,"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":4}}}`

// topBody lists tokens as vLLM does, the sampled one first.
const topBody = `{"choices":[{"token_ids":[5,9],"logprobs":{"content":[` +
	`{"token_id":5,"logprob":-2.5,"rank":4,"top_logprobs":[{"token_id":5,"logprob":-2.5,"rank":4},{"token_id":7,"logprob":-0.5,"rank":1},{"token_id":8,"logprob":-1.5,"rank":2}]},` +
	`{"token_id":9,"logprob":-1,"top_logprobs":[{"token_id":9,"logprob":-1},{"token_id":7,"logprob":-0.5},{"token_id":8,"logprob":-9999.0}]}]},"finish_reason":"length"}]}`

func TestScanNative(t *testing.T) {
	got, ok := scanNative([]byte(" "+nativeBody+"\n"), false)
	require.True(t, ok)
	require.Equal(t, reply{
		ids: []int32{5, -1, 2147483647}, logprobs: []float32{-0.5, -0.00125, 0}, reason: "stop", cached: 4,
		spans: []span{{"7", 0, 2}, {"8", 2, 3}},
	}, got)
	ids := `"token_ids":[5,-1,2147483647],` // in the order of vLLM's own fields they come after the logprobs
	other := strings.Replace(strings.Replace(nativeBody, ids, "", 1), `"stop_reason"`, ids+`"stop_reason"`, 1)
	require.NotEqual(t, nativeBody, other)
	again, ok := scanNative([]byte(other), false)
	require.True(t, ok)
	require.Equal(t, got, again)
}

// What is unusual is left to encoding/json, which takes it or says what is wrong with it.
func TestScanNativeLeavesWhatIsUnusual(t *testing.T) {
	for name, change := range map[string][2]string{
		"no ids":             {`"token_ids":[5,-1,2147483647],`, ``},
		"a key twice":        {`"index":0`, `"finish_reason":"length"`},
		"a capital":          {`"index"`, `"Token_ids"`},
		"an escape":          {`"version":"7"`, `"version":"\u0037"`},
		"another token":      {`{"token_id":5`, `{"token_id":6`},
		"a float":            {`[5,`, `[5.0,`},
		"too large":          {`2147483647]`, `2147483648]`},
		"a leading zero":     {`[5,`, `[05,`},
		"a null":             {`[5,`, `[null,`},
		"two choices":        {`"choices":[`, `"choices":[{},`},
		"something after":    {`"cached_tokens":4}}}`, `"cached_tokens":4}}}1`},
		"the end is missing": {`"cached_tokens":4}}}`, `"cached_tokens":4}}`},
		"prompt logprobs":    {`"prompt_logprobs":null`, `"prompt_logprobs":[null]`},
		"no logprob":         {`"logprob":-0.5,`, ``},
	} {
		t.Run(name, func(t *testing.T) {
			body := strings.Replace(nativeBody, change[0], change[1], 1)
			require.NotEqual(t, nativeBody, body)
			_, ok := scanNative([]byte(body), false)
			require.False(t, ok)
		})
	}
}

// What the scanner takes, encoding/json takes for the same.
func FuzzScanNative(f *testing.F) {
	for _, s := range []string{
		nativeBody, `{}`, `{"choices":[{"token_ids":[],"logprobs":{"content":[]}}]}`,
		`{"choices":[{"token_ids":[1],"logprobs":{"content":[{"token_id":1,"logprob":-1E+2}],"x":{"a":{},"b":[true,false,null,-0.0e-1]}},"finish_reason":"","weight_versions":null}],"usage":{"prompt_tokens_details":null}}`,
		`{"choices":[{"token_ids":[-0],"logprobs":{"content":[{"token_id":0,"logprob":1e-999}]}}],"usage":{"prompt_tokens_details":{"cached_tokens":null}}}`,
	} {
		f.Add([]byte(s))
	}
	f.Add([]byte(topBody))
	f.Add([]byte(strings.Replace(topBody, `"top_logprobs"`, `"top_logprobs":[],"top_logprobs"`, 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, tops := range []bool{false, true} {
			got, ok := scanNative(data, tops)
			if !ok {
				continue
			}
			prompt := []int32{1, 2, 3}
			fast, fastErr := got.check(got.cached, prompt)
			slow, slowErr := decodeNative(data, prompt, tops)
			if slow.logprobs == nil {
				slow.logprobs = []float32{}
			}
			require.Equal(t, slowErr, fastErr)
			if fastErr == nil && !reflect.DeepEqual(slow, fast) {
				t.Fatalf("%s\nencoding/json: %+v\nscanner:       %+v", data, slow, fast)
			}
		}
	})
}

// The request is what json.Marshal makes of the same parameters.
func FuzzAppendNative(f *testing.F) {
	f.Add("policy", []byte{1, 200}, "</call>\n\"\\", 1.0, 0.95, 20, 0.0, uint64(math.MaxUint64), 64)
	f.Add("", []byte{}, "\x01\u2028<&>\xff", 0.0, 1e-7, -1, 1e21, uint64(7), 1)
	f.Fuzz(func(t *testing.T, model string, prompt []byte, stop string, temperature, topP float64, topK int, minP float64, seed uint64, most int) {
		for _, v := range []float64{temperature, topP, minP} {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Skip("not a number that a request may hold")
			}
		}
		ids := make([]int32, len(prompt))
		for i, b := range prompt {
			ids[i] = int32(b) * 7919
		}
		s := engines.Sampling{MaxTokens: most, Temperature: temperature, TopP: topP, TopK: topK, MinP: minP, StopIDs: ids, Stop: []string{stop, ""}}
		want, err := json.Marshal(nativeRequest{ids, samplingParams(s, seed), model, false})
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(appendNative(nil, model, ids, s, seed, 0)))
		s.Stop, s.StopIDs = nil, nil
		s.MinTokens, s.Presence, s.Frequency, s.Repetition = topK, minP, topP, temperature
		params := samplingParams(s, seed)
		params["logprobs"] = most
		want, err = json.Marshal(nativeRequest{ids, params, model, false})
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(appendNative(nil, model, ids, s, seed, most)))
	})
}

func BenchmarkScanNative(b *testing.B) {
	var ids []int32
	var content []string
	for i := range 20 {
		ids = append(ids, int32(40000+i))
		content = append(content, fmt.Sprintf(`{"token":"token_id:%d","logprob":-0.51234567890123%d,"bytes":null,"top_logprobs":[],"token_id":%d}`, 40000+i, i, 40000+i))
	}
	list, err := json.Marshal(ids)
	require.NoError(b, err)
	data := []byte(`{"request_id":"x","choices":[{"index":0,"logprobs":{"content":[` + strings.Join(content, ",") + `]},"finish_reason":"stop","token_ids":` + string(list) +
		`,"weight_versions":[{"version":"0","start":0,"end":20}]}],"prompt_logprobs":null,"usage":{"prompt_tokens":200}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := scanNative(data, false); !ok {
			b.Fatal("not taken")
		}
	}
}
