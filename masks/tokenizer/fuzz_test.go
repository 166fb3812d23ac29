package tokenizer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var smallNames = []string{"byte_level", "prefix_space", "metaspace_first", "metaspace_always", "llama2_small", "deepseek_llm", "deepseek_coder"}

// A damaged file is refused or gives a tokenizer that works: never a panic.
func FuzzFromJSON(f *testing.F) {
	for _, name := range smallNames {
		f.Add(readGz(f, name+".tokenizer.json.gz"), "a é中 <s>")
	}
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}`), "abc")
	f.Add([]byte(`{"version":"1.0","model":{"vocab":{"a":4194303},"merges":[]},"added_tokens":[{"content":" ","lstrip":true,"rstrip":true}]}`), "a  a")
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		tok, err := FromJSON(data)
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		ids := tok.Encode(text)
		for _, id := range ids {
			_, ok := tok.Token(id)
			require.True(t, ok, "Encode gave id %d, which is not in the vocabulary", id)
		}
		tok.Decode(ids, true)
		again, err := FromJSON(tok.HF())
		require.NoError(t, err)
		require.Equal(t, ids, again.Encode(text))
	})
}

// decode(encode(s)) is s for a byte-level vocabulary, and the pieces of a text do not depend on the cache.
func FuzzEncodeDecode(f *testing.F) {
	tok, _ := smollm2(f)
	var small []*Tokenizer
	for _, name := range smallNames {
		t, err := FromJSON(readGz(f, name+".tokenizer.json.gz"))
		require.NoError(f, err)
		small = append(small, t)
	}
	for i, s := range hardStrings(f) {
		if i%20 == 0 {
			f.Add(s)
		}
	}
	f.Fuzz(func(t *testing.T, s string) {
		ids := tok.Encode(s)
		if spelled(tok, s) {
			require.Equal(t, lossy(s), tok.Decode(ids, false))
		}
		require.Equal(t, ids, tok.Encode(s))
		for _, x := range small {
			for _, id := range x.Encode(s) {
				_, ok := x.Token(id)
				require.True(t, ok)
			}
		}
	})
}

// A damaged vocabulary is refused or gives a tokenizer that works.
func FuzzFromVocabulary(f *testing.F) {
	f.Add("gpt2", "smollm", "a\nb\nab\n<|x|>", "a b", []byte{1, 1, 1, 3}, "ab <|x|>")
	f.Add("llama", "", "<unk>\n<s>\n▁\na\n▁a\n<0x41>", "", []byte{2, 3, 1, 1, 1, 6}, "a aA")
	f.Fuzz(func(t *testing.T, model, pre, tokens, merges string, types []byte, text string) {
		v := Vocabulary{Model: model, Pre: pre, Tokens: strings.Split(tokens, "\n"), BOS: 0, EOS: -1, UNK: -1, PAD: -1, AddBOS: true}
		if merges != "" {
			v.Merges = strings.Split(merges, "\n")
		}
		for i, k := range types {
			v.Types = append(v.Types, int32(k))
			v.Scores = append(v.Scores, -float32(i))
		}
		tok, err := FromVocabulary(v)
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		for _, id := range tok.Encode(text) {
			require.Less(t, int(id), len(v.Tokens))
		}
	})
}
