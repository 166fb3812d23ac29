package masks_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/jinja"
	"github.com/agentfly/agentfly/jinja/jinjatest"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/trajectory"
)

// chatml is SmolLM2's vocabulary in miniature. Ids are positions: 0 is <|im_start|>, 1 is <|im_end|>.
var chatml = words{special: 3, vocab: []string{
	"<|im_start|>", "<|im_end|>", "<|endoftext|>", "\n", "system", "user", "assistant", "tool", // 0–7
	"Be brief.", "2*3?", "CALL 2*3", "6", "It is 6", ".", " ", "Thanks", "Bye", "wrong", // 8–17
}}

const (
	bos = 0
	eot = 1
	nl  = 3
)

func smol(t testing.TB) *masks.Renderer {
	t.Helper()
	tmpl := compile(t, jinjatest.Template(t, "HuggingFaceTB-SmolLM2-135M-Instruct"), jinja.Options{EOSToken: "<|im_end|>"})
	r, err := masks.NewRenderer(chatml, tmpl, masks.Options{})
	require.NoError(t, err)
	return r
}

func TestChatMLProbes(t *testing.T) {
	r := smol(t)
	require.Equal(t, []int32{eot}, r.StopIDs())
	ok, reason := r.AppendOnly()
	require.True(t, ok, reason)
	require.True(t, r.ToolsInSystemPrompt())
}

// conversation samples the completions of a trajectory of two turns and returns the sample.
type sampled struct {
	completion string
	ids        []int32
	stop       bool // the end-of-turn token is the last of ids
}

func roll(t testing.TB, r *masks.Renderer, history []trajectory.Message, turns []sampled, results [][]trajectory.Message) *trajectory.Sample {
	t.Helper()
	s := &trajectory.Sample{}
	ids, _, err := r.Prompt(history, nil, true)
	require.NoError(t, err)
	s.AppendObservation(ids)
	for i, turn := range turns {
		logprobs, versions := make([]float32, len(turn.ids)), make([]int32, len(turn.ids))
		for k := range logprobs {
			logprobs[k], versions[k] = -0.5, int32(i)
		}
		require.NoError(t, s.AppendResponse(turn.ids, logprobs, versions))
		if i >= len(results) {
			break
		}
		reply := masks.Reply{History: history, Completion: turn.completion, Results: results[i], Sampled: turn.ids}
		ids, err := r.Observation(reply)
		require.NoError(t, err)
		s.AppendObservation(ids)
		history = reply.Messages()
	}
	require.NoError(t, s.Check())
	return s
}

var twoTurns = []trajectory.Message{trajectory.Text("system", "Be brief."), trajectory.Text("user", "2*3?")}

// literalCases are whole conversations with their ids and masks written down by hand.
var literalCases = []struct {
	name     string
	turns    []sampled
	results  [][]trajectory.Message
	ids      []int32
	response []int // [T]
}{
	{
		name: "call, result, answer; both turns end in a sampled end-of-turn token",
		turns: []sampled{
			{"CALL 2*3", []int32{10, eot}, true},
			{"It is 6.", []int32{12, 13, eot}, true},
		},
		results: [][]trajectory.Message{{trajectory.Text("user", "6")}},
		ids: []int32{
			bos, 4, nl, 8, eot, nl, bos, 5, nl, 9, eot, nl, bos, 6, nl, // prompt
			10, eot, // sampled
			nl, bos, 5, nl, 11, eot, nl, bos, 6, nl, // observation
			12, 13, eot, // sampled
		},
		response: []int{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1},
	},
	{
		name: "the first turn is cut at a stop string: its end-of-turn token is an observation",
		turns: []sampled{
			{"CALL 2*3", []int32{10}, false},
			{"It is 6", []int32{12}, false},
		},
		results: [][]trajectory.Message{{trajectory.Text("tool", "6")}},
		ids: []int32{
			bos, 4, nl, 8, eot, nl, bos, 5, nl, 9, eot, nl, bos, 6, nl,
			10,
			eot, nl, bos, 7, nl, 11, eot, nl, bos, 6, nl,
			12,
		},
		response: []int{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
	},
	{
		name: "what was sampled stays as it was sampled, however the tokenizer would cut it; two results",
		turns: []sampled{
			{"CALL 2*3 ", []int32{1000 + 'C', 1000 + 'A', 1000 + 'L', 1000 + 'L', 14, 1000 + '2', 1000 + '*', 1000 + '3', 14, eot}, true},
			{"", []int32{eot}, true},
			{"It is 6", []int32{12, eot}, true},
		},
		results: [][]trajectory.Message{
			{trajectory.Text("tool", "6"), trajectory.Text("user", "Thanks")},
			{trajectory.Text("user", "wrong")},
		},
		ids: []int32{
			bos, 4, nl, 8, eot, nl, bos, 5, nl, 9, eot, nl, bos, 6, nl,
			1067, 1065, 1076, 1076, 14, 1050, 1042, 1051, 14, eot,
			nl, bos, 7, nl, 11, eot, nl, bos, 5, nl, 15, eot, nl, bos, 6, nl,
			eot,
			nl, bos, 5, nl, 17, eot, nl, bos, 6, nl,
			12, eot,
		},
		response: []int{
			0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
			0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1,
		},
	},
}

func ints(mask []bool) []int {
	out := make([]int, len(mask))
	for i, m := range mask {
		if m {
			out[i] = 1
		}
	}
	return out
}

func TestLiteralConversations(t *testing.T) {
	for _, c := range literalCases {
		t.Run(c.name, func(t *testing.T) {
			s := roll(t, smol(t), twoTurns, c.turns, c.results)
			require.Equal(t, c.ids, s.TokenIDs)
			require.Equal(t, c.response, ints(s.ResponseMask))
		})
	}
}

// verdict is what the suite asks of a response mask: that the tokens it marks are the sampled ones, in order.
func verdict(s *trajectory.Sample, turns []sampled, mask []bool) error {
	if len(mask) != s.Len() {
		return fmt.Errorf("%d entries for %d tokens", len(mask), s.Len())
	}
	var want, got []int32
	for _, turn := range turns {
		want = append(want, turn.ids...)
	}
	for i, trained := range mask {
		if trained {
			got = append(got, s.TokenIDs[i])
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("trains %v, sampled %v", got, want)
	}
	return nil
}

func TestTrainedTokensAreTheSampledOnes(t *testing.T) {
	r := smol(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var turns []sampled
		var results [][]trajectory.Message
		for range 1 + rng.IntN(4) {
			var turn sampled
			for range rng.IntN(5) {
				turn.ids = append(turn.ids, 1000+'a'+rng.Int32N(26))
			}
			turn.completion = chatml.Decode(turn.ids, true)
			if turn.stop = rng.IntN(2) == 0; turn.stop {
				turn.ids = append(turn.ids, eot)
			}
			turns = append(turns, turn)
			results = append(results, []trajectory.Message{trajectory.Text([]string{"user", "tool"}[rng.IntN(2)], "6")})
		}
		s := roll(t, r, twoTurns, turns, results)
		require.NoError(t, verdict(s, turns, s.ResponseMask))
	}
}

// The suite must catch what went unnoticed for seven months in the original: a mask that is off by one. That the trainer
// reads token t's logprob at position t-1 is held by policy's tests.
func TestTheSuiteRejectsAMaskThatIsOffByOne(t *testing.T) {
	c := literalCases[0]
	s := roll(t, smol(t), twoTurns, c.turns, c.results)
	require.NoError(t, verdict(s, c.turns, s.ResponseMask))
	early := append(append([]bool{}, s.ResponseMask[1:]...), false)
	late := append([]bool{false}, s.ResponseMask[:s.Len()-1]...)
	for name, twin := range map[string][]bool{"early": early, "late": late} {
		require.Error(t, verdict(s, c.turns, twin), name)
	}
}

func TestToolsEnterTheSystemPromptWhereTheTemplateIgnoresThem(t *testing.T) {
	schema := []json.RawMessage{json.RawMessage(`{"type":"function","function":{"name":"calc","description":"a < b"}}`)}
	block := "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n" +
		"You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n" +
		"{\"type\": \"function\", \"function\": {\"name\": \"calc\", \"description\": \"a < b\"}}\n</tools>\n\n" +
		"For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n" +
		"<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>"
	_, text, err := smol(t).Prompt(twoTurns, schema, true)
	require.NoError(t, err)
	require.Equal(t, "<|im_start|>system\nBe brief.\n\n"+block+"<|im_end|>\n<|im_start|>user\n2*3?<|im_end|>\n<|im_start|>assistant\n", text)
	_, text, err = smol(t).Prompt(twoTurns[1:], schema, true)
	require.NoError(t, err)
	require.Equal(t, "<|im_start|>system\n"+block+"<|im_end|>\n<|im_start|>user\n2*3?<|im_end|>\n<|im_start|>assistant\n", text)

	// Qwen2.5 writes the same words itself.
	tmpl := compile(t, jinjatest.Template(t, "Qwen-Qwen2.5-7B-Instruct"), jinja.Options{EOSToken: "<|im_end|>"})
	qwen, err := masks.NewRenderer(chatml, tmpl, masks.Options{})
	require.NoError(t, err)
	require.False(t, qwen.ToolsInSystemPrompt())
	_, text, err = qwen.Prompt(twoTurns, schema, true)
	require.NoError(t, err)
	require.Equal(t, "<|im_start|>system\nBe brief.\n\n"+block+"<|im_end|>\n<|im_start|>user\n2*3?<|im_end|>\n<|im_start|>assistant\n", text)
}
