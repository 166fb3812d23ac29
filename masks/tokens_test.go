package masks_test

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/internal/home"
	"github.com/agentfly/agentfly/jinja"
	"github.com/agentfly/agentfly/jinja/jinjatest"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/masks/tokenizer"
	"github.com/agentfly/agentfly/trajectory"
)

var _ masks.Encoder = (*tokenizer.Tokenizer)(nil)

// smollm2 is the tokenizer of SmolLM2-135M-Instruct.
func smollm2(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	var v struct {
		Pre    string
		Tokens []string
		Types  []int32
		Merges []string
	}
	f, err := os.Open("tokenizer/testdata/smollm2.vocabulary.json.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(z).Decode(&v))
	tok, err := tokenizer.FromVocabulary(tokenizer.Vocabulary{Model: "gpt2", Pre: v.Pre, Tokens: v.Tokens, Types: v.Types, Merges: v.Merges})
	require.NoError(t, err)
	return tok
}

// public is a tokenizer that scripts/goldens/fetch_tokenizers.sh fetched.
func public(t testing.TB, name string) *tokenizer.Tokenizer {
	t.Helper()
	dir, err := home.Cache("tokenizers", name)
	require.NoError(t, err)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("tokenizer %s is not in the cache folder; scripts/goldens/fetch_tokenizers.sh fetches it", name)
	}
	tok, err := tokenizer.Load(dir)
	require.NoError(t, err)
	return tok
}

// Where the model writes what the tokenizer would have written, a sequence that grew turn by turn is the tokenization of
// the whole conversation.
func TestObservationsJoinWithoutASeam(t *testing.T) {
	for name, c := range map[string]struct {
		tok      func(testing.TB) *tokenizer.Tokenizer
		template string
		options  jinja.Options
		stops    []string
	}{
		"SmolLM2": {smollm2, "HuggingFaceTB-SmolLM2-135M-Instruct", jinja.Options{BOSToken: "<|im_start|>", EOSToken: "<|im_end|>"}, []string{"<|im_end|>"}},
		"Qwen2.5": {func(t testing.TB) *tokenizer.Tokenizer { return public(t, "qwen3") }, "Qwen-Qwen2.5-7B-Instruct", jinja.Options{EOSToken: "<|im_end|>"}, []string{"<|im_end|>"}},
		"Qwen3":   {func(t testing.TB) *tokenizer.Tokenizer { return public(t, "qwen3") }, "Qwen-Qwen3-0.6B", jinja.Options{EOSToken: "<|im_end|>"}, []string{"<|im_end|>"}},
		"Llama 3.1": {
			func(t testing.TB) *tokenizer.Tokenizer { return public(t, "llama3_1") }, "meta-llama-Llama-3.1-8B-Instruct",
			jinja.Options{BOSToken: "<|begin_of_text|>", EOSToken: "<|eot_id|>"},
			[]string{"<|eot_id|>"},
		},
		"DeepSeek V3": {
			func(t testing.TB) *tokenizer.Tokenizer { return public(t, "deepseek_v3") }, "lenml-deepseek_v3",
			jinja.Options{BOSToken: "<｜begin▁of▁sentence｜>", EOSToken: "<｜end▁of▁sentence｜>"},
			[]string{"<｜end▁of▁sentence｜>"},
		},
		"Gemma 3": {
			func(t testing.TB) *tokenizer.Tokenizer { return public(t, "gemma3") }, "lenml-gemma3",
			jinja.Options{BOSToken: "<bos>", EOSToken: "<eos>"},
			[]string{"<end_of_turn>", "<eos>"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tok := c.tok(t)
			tmpl, err := jinja.Compile(jinjatest.Template(t, c.template), c.options)
			require.NoError(t, err)
			r, err := masks.NewRenderer(tok, tmpl, masks.Options{})
			require.NoError(t, err)
			var stops []string
			for _, id := range r.StopIDs() {
				stops = append(stops, tok.Decode([]int32{id}, false))
			}
			require.Equal(t, c.stops, stops)
			for _, stopped := range []bool{true, false} {
				history := []trajectory.Message{trajectory.Text("user", "What is 112 * 13?\n 12?")}
				ids, _, err := r.Prompt(history, nil, true)
				require.NoError(t, err)
				for _, completion := range []string{"<calc>112 * 13</calc>", "{\"name\": \"é 你好 🙂\"}", "It is 1456"} {
					sampled := tok.Encode(completion)
					if stopped {
						sampled = append(sampled, r.StopIDs()[0])
					}
					p := masks.Reply{History: history, Completion: completion, Results: []trajectory.Message{trajectory.Text("user", "  1456\n")}, Sampled: sampled}
					ids = append(ids, sampled...)
					observation, err := r.Observation(p)
					require.NoError(t, err)
					ids = append(ids, observation...)
					history = p.Messages()
					whole, text, err := r.Prompt(history, nil, true)
					require.NoError(t, err)
					require.True(t, slices.Equal(whole, ids), "%q\nwhole %v\ngrown %v", text, whole, ids)
				}
			}
		})
	}
}

func BenchmarkObservation(b *testing.B) {
	tok := smollm2(b)
	tmpl, err := jinja.Compile(jinjatest.Template(b, "HuggingFaceTB-SmolLM2-135M-Instruct"), jinja.Options{EOSToken: "<|im_end|>"})
	require.NoError(b, err)
	r, err := masks.NewRenderer(tok, tmpl, masks.Options{})
	require.NoError(b, err)
	p := masks.Reply{
		History:    []trajectory.Message{trajectory.Text("system", "Solve it by calling the calculator."), trajectory.Text("user", "What is 112 * 13?")},
		Completion: "<calc>112 * 13</calc>", Results: []trajectory.Message{trajectory.Text("user", "1456")}, Sampled: r.StopIDs()[:1],
	}
	for b.Loop() {
		if _, err := r.Observation(p); err != nil {
			b.Fatal(err)
		}
	}
}
