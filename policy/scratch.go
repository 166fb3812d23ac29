package policy

import (
	"fmt"

	"github.com/agentfly/agentfly/masks/tokenizer"
	"github.com/agentfly/agentfly/modelfile"
)

// ScratchConfig describes a small Llama model that is made, not loaded. Sizes are counts of elements.
type ScratchConfig struct {
	HiddenSize       int // a multiple of NumHeads; the heads' dimension is even
	IntermediateSize int
	NumLayers        int
	NumHeads         int // a multiple of NumKVHeads
	NumKVHeads       int
	MaxPositions     int     // longest sequence
	RopeTheta        float64 // 0: 10000
	InitStd          float64 // standard deviation of matrices and embeddings; 0: 0.02
}

// Scratch makes a model with random weights and a tokenizer of single characters: the special tokens <pad>, <bos> and
// <eos>, then each distinct character of alphabet in order. The same seed gives the same bits on every machine.
func Scratch(c ScratchConfig, alphabet, chatTemplate string, seed uint64, o Options) (*Policy, error) {
	text, vocab, err := scratchText(alphabet, chatTemplate)
	if err != nil {
		return nil, err
	}
	config, err := c.config(vocab)
	if err != nil {
		return nil, err
	}
	p := &Policy{Config: config, Text: text, device: o.device()}
	if p.Model, err = o.model(config); err != nil {
		return nil, fmt.Errorf("policy: scratch: %w", err)
	}
	std := c.InitStd
	if std == 0 {
		std = 0.02
	}
	if err := p.Model.Init(seed, std); err != nil {
		p.Model.Close()
		return nil, fmt.Errorf("policy: scratch: %w", err)
	}
	return p, nil
}

// config checks the sizes by the rules of a config.json.
func (c ScratchConfig) config(vocab int) (*modelfile.Config, error) {
	theta := c.RopeTheta
	if theta == 0 {
		theta = 10000
	}
	text := fmt.Sprintf(`{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": %d, "hidden_size": %d,
		"intermediate_size": %d, "num_hidden_layers": %d, "num_attention_heads": %d, "num_key_value_heads": %d,
		"max_position_embeddings": %d, "rope_theta": %g, "rms_norm_eps": 1e-6, "tie_word_embeddings": true, "hidden_act": "silu",
		"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}`,
		vocab, c.HiddenSize, c.IntermediateSize, c.NumLayers, c.NumHeads, c.NumKVHeads, c.MaxPositions, theta)
	config, err := modelfile.ParseConfig([]byte(text), nil)
	if err != nil {
		return nil, fmt.Errorf("policy: scratch: %w", err)
	}
	return config, nil
}

// scratchText makes a tokenizer.json that has one token a character, which is a byte-level BPE without merges as long as
// the alphabet is ASCII.
func scratchText(alphabet, chatTemplate string) (*Text, int, error) {
	v := tokenizer.Vocabulary{
		Model: "gpt2", Pre: "gpt-2", Tokens: []string{"<pad>", "<bos>", "<eos>"}, Types: []int32{tokenizer.TypeControl, tokenizer.TypeControl, tokenizer.TypeControl},
		BOS: 1, EOS: 2, UNK: -1, PAD: 0,
	}
	seen := map[rune]bool{}
	for _, r := range alphabet {
		if r > 126 || r < 32 && r != '\n' && r != '\t' {
			return nil, 0, fmt.Errorf("policy: scratch: the alphabet has %q; printable ASCII, tab and newline are allowed", r)
		}
		if seen[r] {
			continue
		}
		seen[r] = true
		letter := string(r)
		if r <= ' ' {
			letter = string(r + 256) // how byte-level BPE spells the bytes up to the blank
		}
		v.Tokens = append(v.Tokens, letter)
		v.Types = append(v.Types, tokenizer.TypeNormal)
	}
	t, err := tokenizer.FromVocabulary(v)
	if err != nil {
		return nil, 0, fmt.Errorf("policy: scratch: %w", err)
	}
	return &Text{
		Tokenizer: t, ChatTemplate: chatTemplate, StopIDs: []int32{2},
		SpecialTokens: map[string]string{"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>"},
	}, len(v.Tokens), nil
}
