package tokenizer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var smallNames = []string{"byte_level", "prefix_space", "metaspace_first", "metaspace_always", "llama2_small", "deepseek_llm", "deepseek_coder"}

// A damaged file is refused or gives a tokenizer that works: never a panic.
func FuzzFromJSON(f *testing.F) {
	// small files, one or more for every part: large ones make the fuzzer crawl
	model := `"model":{"type":"BPE","unk_token":"<unk>","fuse_unk":true,"byte_fallback":true,"vocab":{"<unk>":0,"a":1,"b":2,"ab":3,"▁":4,"▁a":5,"<0x41>":6,"Ġ":7},"merges":[["a","b"],["▁","a"]]}`
	added := `"added_tokens":[{"id":8,"content":"<s>","special":true,"lstrip":true,"rstrip":true},{"id":9,"content":"é","normalized":true,"single_word":true}]`
	for _, parts := range []string{
		`"pre_tokenizer":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"}`,
		`"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]}`,
		`"normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]},"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]}`,
		`"pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true},"decoder":{"type":"Metaspace","replacement":"▁"}`,
		`"pre_tokenizer":{"type":"Split","pattern":{"String":" "},"behavior":"MergedWithPrevious","invert":true}`,
		`"pre_tokenizer":{"type":"Split","pattern":{"Regex":` + quote(patternQwen) + `},"behavior":"Removed","invert":true}`,
		`"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"ids":[8]}}}`,
	} {
		f.Add([]byte("{"+added+","+parts+","+model+"}"), "a é中 <s> ab12")
	}
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}`), "abc")
	f.Add([]byte(`{"version":"1.0","model":{"vocab":{"a":7},"merges":[]},"added_tokens":[{"content":" ","lstrip":true,"rstrip":true}]}`), "a  a")
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
