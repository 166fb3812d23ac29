//go:build torch

package policy_test

import (
	"compress/gzip"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/jinja"
	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/trainer"
)

const smolLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"

// needModel skips where `make setup` has not fetched the model.
func needModel(t *testing.T) {
	if _, err := modelfile.Resolve(smolLM2); err != nil {
		t.Skipf("SmolLM2 is not on this machine: %v", err)
	}
}

// TestSmolLM2 loads the packaged GGUF, saves it as a Hugging Face folder and loads that: the same parameters, token ids,
// template and stop ids.
func TestSmolLM2(t *testing.T) {
	needModel(t)
	p, err := policy.Load(smolLM2, policy.Options{Device: "cpu"})
	require.NoError(t, err)
	defer p.Close()
	require.Equal(t, []int32{2}, p.StopIDs)
	require.Equal(t, []int32{1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2, 198},
		p.Tokenizer.Encode("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"))
	compiled, err := p.Template()
	require.NoError(t, err)
	text, err := compiled.RenderJSON([]byte(`[{"role": "user", "content": "2 + 2?"}]`), nil, jinja.Input{AddGenerationPrompt: true})
	require.NoError(t, err)
	require.Equal(t, "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"+
		"<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n", text)
	params := p.Model.Parameters()
	require.Len(t, params, 272)

	dir := filepath.Join(t.TempDir(), "checkpoint")
	require.NoError(t, p.SaveHF(dir, modelfile.F32))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.Equal(t, []string{"chat_template.jinja", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}, names)

	q, err := policy.Load(dir, policy.Options{Device: "cpu"})
	require.NoError(t, err)
	defer q.Close()
	require.Equal(t, p.ChatTemplate, q.ChatTemplate)
	require.Equal(t, p.SpecialTokens, q.SpecialTokens)
	require.Equal(t, p.StopIDs, q.StopIDs)
	require.Equal(t, params, q.Model.Parameters())
	for _, info := range params {
		a, err := p.Model.Parameter(info.Name)
		require.NoError(t, err)
		b, err := q.Model.Parameter(info.Name)
		require.NoError(t, err)
		for i := range a {
			if a[i] != b[i] {
				t.Fatalf("%s[%d] is %g, saved as %g", info.Name, i, a[i], b[i])
			}
		}
	}
	if keep := os.Getenv("AGENTFLY_KEEP_CHECKPOINT"); keep != "" { // for scripts/goldens/check_checkpoint.py
		require.NoError(t, p.SaveHF(keep, modelfile.F32))
		writeProbe(t, p, keep+".probe.json")
	}
}

// writeProbe records token ids and logprobs for check_checkpoint.py --probe.
func writeProbe(t *testing.T, p *policy.Policy, path string) {
	var tokens, score []map[string]any
	for _, text := range []string{"What is 417 plus 298?", "naïve café 🙂👩🏽‍💻\n\n\tx  = 3.14", "日本語とالعربية", "<|im_start|>user\nhi<|im_end|>\n"} {
		ids := p.Tokenizer.Encode(text)
		tokens = append(tokens, map[string]any{"text": text, "ids": ids})
		score = append(score, map[string]any{"ids": ids, "logprobs": logprobsOf(t, p, ids)})
	}
	long := make([]int32, 200)
	for i := range long {
		long[i] = int32(i*7919+13) % int32(p.Config.VocabSize)
	}
	score = append(score, map[string]any{"ids": long, "logprobs": logprobsOf(t, p, long)})
	compiled, err := p.Template()
	require.NoError(t, err)
	messages := json.RawMessage(`[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a < b & c\n"}]`)
	rendered, err := compiled.RenderJSON(messages, nil, jinja.Input{AddGenerationPrompt: true})
	require.NoError(t, err)
	templates := []any{map[string]any{"messages": messages, "text": rendered}}
	require.NoError(t, modelfile.WriteJSON(path, map[string]any{"tokens": tokens, "score": score, "template": templates}))
}

// logprobsOf returns the logprobs of ids[1:]: [len(ids)-1].
func logprobsOf(t *testing.T, p *policy.Policy, ids []int32) []float32 {
	n := len(ids)
	b := &cgo.Batch{
		Tokens: ids, SegmentStart: []int32{0}, SegmentLength: []int32{int32(n)}, SegmentParent: []int32{-1}, RowTarget: ids[1:], Temperature: 1,
	}
	for i := range ids {
		b.Positions = append(b.Positions, int32(i))
	}
	b.RowToken = b.Positions[:n-1]
	logprobs, _, err := p.Model.Logprobs(b)
	require.NoError(t, err)
	return logprobs
}

// TestSmolLM2Logprobs holds the real model's forward against transformers' in float32, and both against float64
// (scripts/goldens/smollm2.py). Transformers' own float32 is 1.1e-5, 2.8e-5 and 1.7e-5 from float64 on the three texts, so
// two float32 programs cannot be closer than that in general; ours must be as close to float64 as transformers is.
func TestSmolLM2Logprobs(t *testing.T) {
	needModel(t)
	f, err := os.Open("testdata/smollm2.json.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	var cases []struct {
		Name                     string
		IDs                      []int32
		Logprobs, Entropy, Exact []float64
	}
	require.NoError(t, json.NewDecoder(z).Decode(&cases))
	require.Len(t, cases, 3)
	p, err := policy.Load(smolLM2, policy.Options{Device: "cpu"})
	require.NoError(t, err)
	defer p.Close()
	for _, c := range cases {
		logprobs, entropy, err := trainer.LogprobsOf(p.Model, c.IDs, 1)
		require.NoError(t, err)
		require.Len(t, logprobs, 199)
		var ours []float64
		for _, v := range logprobs {
			ours = append(ours, float64(v))
		}
		var entropies []float64
		for _, v := range entropy {
			entropies = append(entropies, float64(v))
		}
		worst, _ := distance(ours, c.Logprobs)
		noise, noiseMean := distance(c.Logprobs, c.Exact)
		error64, mean := distance(ours, c.Exact)
		worstEntropy, _ := distance(entropies, c.Entropy)
		t.Logf("%s: at most %.1e from transformers; from float64 %.1e, mean %.1e (transformers %.1e, mean %.1e); entropies %.1e",
			c.Name, worst, error64, mean, noise, noiseMean, worstEntropy)
		limit := 2e-5 + noise/2
		if c.Name == "conversation" {
			limit = 2e-5
		}
		require.LessOrEqual(t, worst, limit, c.Name)
		require.LessOrEqual(t, mean, 1.3*noiseMean, c.Name)
		require.LessOrEqual(t, worstEntropy, 5e-5, c.Name)
	}
}

// distance is the largest and the mean absolute difference.
func distance(a, b []float64) (worst, mean float64) {
	for i := range a {
		d := math.Abs(a[i] - b[i])
		worst = max(worst, d)
		mean += d / float64(len(a))
	}
	return worst, mean
}

// Engine and trainer that both compute in bfloat16 give a token that the engine sampled nearly one logprob, though each alone is
// some hundredths from float32: they round at the same places and add in the same order. Prompts are the chat template's.
func TestSmolLM2InBFloat16(t *testing.T) {
	needModel(t)
	p, err := policy.Load(smolLM2, policy.Options{Device: "cpu"})
	require.NoError(t, err)
	defer p.Close()
	compiled, err := p.Template()
	require.NoError(t, err)
	const prompts, length, block, blocks = 3, 48, 16, 12
	half, err := cgo.NewCache(p.Model, cgo.CacheConfig{Blocks: prompts * blocks, BlockSize: block, BFloat16: true})
	require.NoError(t, err)
	defer half.Close()
	var sequences [prompts][]int32
	var got []float64 // logprobs of the sampled tokens, sequence by sequence at each place
	next := &cgo.Step{MaxBlocks: blocks}
	for i, question := range []string{"What is 417 plus 298?", "Write a haiku about rain.", "Name three rivers of Europe."} {
		text, err := compiled.RenderJSON([]byte(`[{"role": "user", "content": "`+question+`"}]`), nil, jinja.Input{AddGenerationPrompt: true})
		require.NoError(t, err)
		sequences[i] = p.Tokenizer.Encode(text)
		for j := range int32(blocks) {
			next.Blocks = append(next.Blocks, int32(i)*blocks+j)
		}
	}
	begin := [prompts]int{}
	for range length { // prompts first, then a token of each at a time
		next.Tokens, next.Positions, next.Sequence, next.Outputs = nil, nil, nil, nil
		for i, ids := range sequences {
			for at := begin[i]; at < len(ids); at++ {
				next.Tokens, next.Positions, next.Sequence = append(next.Tokens, ids[at]), append(next.Positions, int32(at)), append(next.Sequence, int32(i))
			}
			begin[i] = len(ids)
			next.Outputs = append(next.Outputs, cgo.Output{Row: len(next.Tokens) - 1, Temperature: 1, TopP: 1, Seed: uint64(i), Counter: uint64(len(ids))})
		}
		require.NoError(t, half.Step(next))
		for i := range sequences {
			sequences[i], got = append(sequences[i], next.Sampled[i]), append(got, float64(next.Logprobs[i]))
		}
	}
	gap := func(dtype cgo.DType) (most, mean float64) {
		require.NoError(t, p.Model.SetDType(dtype))
		trained := make([]float64, prompts*length)
		for i, ids := range sequences {
			logprobs, _, err := trainer.LogprobsOf(p.Model, ids, 1)
			require.NoError(t, err)
			for j, v := range logprobs[len(logprobs)-length:] {
				trained[j*prompts+i] = float64(v)
			}
		}
		return distance(got, trained)
	}
	most, mean := gap(cgo.F32)
	t.Logf("engine in bfloat16, trainer in float32: mean %.1e, at most %.1e", mean, most)
	require.Greater(t, mean, 1e-3, "the engine computes in bfloat16")
	most, mean = gap(cgo.BF16)
	t.Logf("both in bfloat16: mean %.1e, at most %.1e", mean, most)
	require.Less(t, most, 1e-6)
}
