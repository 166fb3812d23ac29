package tokenizer

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSmolLM2Literals(t *testing.T) {
	tok, v := smollm2(t)
	require.Equal(t, 49152, tok.Size())
	require.Equal(t, []int32{1, 4093, 198, 19556, 28, 905, 17, 2, 198}, tok.Encode("<|im_start|>user\nHello, world!<|im_end|>\n"))
	require.Equal(t, []int32{33, 34, 35, 1232, 216, 36, 37, 38}, tok.Encode("123 + 456"))
	id, ok := tok.ID("<|im_end|>")
	require.True(t, ok)
	require.Equal(t, int32(2), id)
	require.True(t, tok.IsSpecial(2))
	require.False(t, tok.IsSpecial(198))
	require.False(t, tok.IsSpecial(-1))
	require.False(t, tok.IsSpecial(1<<30))
	name, ok := tok.Token(198)
	require.True(t, ok)
	require.Equal(t, "Ċ", name)
	require.Equal(t, []byte("\n"), tok.Bytes(198))
	require.Equal(t, []byte("<|im_end|>"), tok.Bytes(2))
	require.Nil(t, tok.Bytes(49152))
	_, ok = tok.Token(-1)
	require.False(t, ok)
	require.Len(t, tok.Specials(), 17)
	before, after := tok.AddedByTemplate()
	require.Empty(t, before)
	require.Empty(t, after)
	require.Equal(t, int32(1), v.BOS)
}

// spelled tells whether every byte of s has a token. SmolLM2 has none for 21 bytes that no common text holds; the
// library drops them, and so do we.
func spelled(tok *Tokenizer, s string) bool {
	for i := 0; i < len(s); i++ {
		if tok.model.single[s[i]] < 0 {
			return false
		}
	}
	return true
}

// Encode and Decode are inverse for a byte-level vocabulary without a normalizer.
func TestRoundTrip(t *testing.T) {
	tok, _ := smollm2(t)
	missing := 0
	for _, id := range tok.model.single {
		if id < 0 {
			missing++
		}
	}
	require.Equal(t, 21, missing)
	for _, s := range hardStrings(t) {
		ids := tok.Encode(s)
		if !spelled(tok, s) {
			continue
		}
		require.Equal(t, lossy(s), tok.Decode(ids, false))
		var b []byte
		for _, id := range ids {
			b = append(b, tok.Bytes(id)...)
		}
		require.Equal(t, lossy(s), string(b), "the bytes of the ids, joined")
	}
}

// fileOf reads a tokenizer.json into the vocabulary that a GGUF of the same model has.
func vocabularyOf(t *testing.T, data []byte, model, pre string) Vocabulary {
	t.Helper()
	var f file
	require.NoError(t, json.Unmarshal(data, &f))
	require.NoError(t, f.Model.read())
	v := Vocabulary{Model: model, Pre: pre, BOS: -1, EOS: -1, UNK: -1, PAD: -1}
	size := len(f.Model.vocab)
	for _, a := range f.Added {
		size = max(size, int(a.ID)+1)
	}
	v.Tokens, v.Types = make([]string, size), make([]int32, size)
	for token, id := range f.Model.vocab {
		v.Tokens[id], v.Types[id] = token, TypeNormal
	}
	for _, a := range f.Added {
		v.Tokens[a.ID], v.Types[a.ID] = a.Content, TypeUserDefined
		if a.Special {
			v.Types[a.ID] = TypeControl
		}
	}
	for i, token := range v.Tokens {
		if token == "" { // the converter of llama.cpp fills holes in this way
			v.Tokens[i], v.Types[i] = "[PAD"+strings.Repeat("x", i)+"]", TypeUnused
		}
	}
	for _, p := range f.Model.pairs {
		v.Merges = append(v.Merges, p[0]+" "+p[1])
	}
	return v
}

// The kinds of pre-tokenizer that a GGUF names give the ids of the tokenizer.json that the GGUF was made from.
func TestGoldenVocabularyKinds(t *testing.T) {
	for pre, name := range map[string]string{
		"qwen2": "qwen3", "llama-bpe": "llama3_1", "deepseek-v3": "deepseek_v3", "tekken": "tekken",
	} {
		t.Run(pre, func(t *testing.T) {
			source := loadPublic(t, name)
			tok, err := FromVocabulary(vocabularyOf(t, source.HF(), "gpt2", pre))
			require.NoError(t, err)
			checkGolden(t, tok, name, 1)
		})
	}
	for pre, name := range map[string]string{"deepseek-llm": "deepseek_llm", "deepseek-coder": "deepseek_coder"} {
		t.Run(pre, func(t *testing.T) {
			tok, err := FromVocabulary(vocabularyOf(t, loadSmall(t, name).HF(), "gpt2", pre))
			require.NoError(t, err)
			checkGolden(t, tok, name, 4)
		})
	}
}

// mistralV1 is the SentencePiece vocabulary of Mistral 7B v0.1.
func mistralV1(t *testing.T) (*Tokenizer, Vocabulary) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(cacheFolder(t, "mistral_v1"), "vocabulary.json"))
	require.NoError(t, err)
	var v struct {
		Vocabulary
		AddBOS bool `json:"add_bos"`
	}
	require.NoError(t, json.Unmarshal(data, &v))
	v.Vocabulary.AddBOS = v.AddBOS
	tok, err := FromVocabulary(v.Vocabulary)
	require.NoError(t, err)
	return tok, v.Vocabulary
}

// A SentencePiece vocabulary with its scores gives the ids of the published tokenizer.json.
func TestGoldenVocabularyLlama(t *testing.T) {
	tok, v := mistralV1(t)
	require.Equal(t, loadPublic(t, "mistral_v1").model.merges, tok.model.merges)
	checkGolden(t, tok, "mistral_v1", 1)
	before, after := tok.AddedByTemplate()
	require.Equal(t, []int32{1}, before)
	require.Empty(t, after)

	no := false
	v.AddSpacePrefix = &no
	bare, err := FromVocabulary(v)
	require.NoError(t, err)
	hello, _ := bare.ID("Hello")
	require.Equal(t, []int32{hello}, bare.Encode("Hello"))
	require.Equal(t, "Hello", bare.Decode([]int32{hello}, false))
}

func TestAddedByTemplate(t *testing.T) {
	before, after := loadSmall(t, "byte_level").AddedByTemplate()
	require.Equal(t, []int32{0}, before)
	require.Equal(t, []int32{1}, after)
}

// The ids are those of tokenizers 0.23.3. Where it ends the program, for the space that it would cut backwards, the white space is the first
// token's alone.
func TestAddedTokensThatTakeSpaceInARow(t *testing.T) {
	for strips, want := range map[string]map[string][]int32{
		`"lstrip":true`:                {"<m>  a": {2, 0}, "  <m>  a": {3, 2, 0}, "<m>  ": {2}, "<m>   a": {2, 0}},
		`"lstrip":true,"rstrip":true`:  {"<m>  a": {2, 0}, "<m>    a": {2, 0}},
		`"lstrip":false`:               {"<m>  a": {2, 3, 0}, "<m>   a": {2, 3, 1, 0}, "<m>    a": {2, 3, 3, 0}},
		`"lstrip":true,"special":true`: {"<m>  a": {2, 0}},
	} {
		tok, err := FromJSON([]byte(`{"added_tokens":[{"id":2,"content":"<m>","rstrip":true,"special":true},{"id":3,"content":"  ",` + strips + `}],
			"model":{"type":"BPE","vocab":{"a":0," ":1},"merges":[]}}`))
		require.NoError(t, err)
		for text, ids := range want {
			require.Equal(t, ids, tok.Encode(text), "%s: %q", strips, text)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	tok, _ := smollm2(t)
	inputs := hardStrings(t)[:400]
	want := make([][]int32, len(inputs))
	for i, s := range inputs {
		want[i] = tok.Encode(s)
	}
	fresh, err := FromJSON(tok.HF())
	require.NoError(t, err)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for k := range inputs {
				i := (k*7 + worker*53) % len(inputs)
				if got := fresh.Encode(inputs[i]); !sameIDs(got, want[i]) {
					t.Errorf("worker %d: %q: got %v, want %v", worker, inputs[i], got, want[i])
				}
				fresh.Decode(want[i], true)
			}
		})
	}
	wg.Wait()
}

// The ids that come back are the caller's own: writing to them changes no later answer.
func TestEncodeGivesOwnMemory(t *testing.T) {
	tok, _ := smollm2(t)
	first := tok.Encode("calculator")
	want := append([]int32(nil), first...)
	for i := range first {
		first[i] = -7
	}
	require.Equal(t, want, tok.Encode("calculator"))
}

// bpeTwin merges by the definition: again and again the pair of lowest rank, the leftmost of those.
func bpeTwin(m *bpe, ids []int32) []int32 {
	ids = append([]int32(nil), ids...)
	for {
		best, at := merge{rank: noRank}, -1
		for i := 0; i+1 < len(ids); i++ {
			if v, ok := m.merges[pairKey(ids[i], ids[i+1])]; ok && v.rank < best.rank {
				best, at = v, i
			}
		}
		if at < 0 {
			return ids
		}
		ids = append(append(append([]int32(nil), ids[:at]...), best.id), ids[at+2:]...)
	}
}

func TestMergeAgainstTwin(t *testing.T) {
	tok, _ := smollm2(t)
	r := lcg(5)
	letters := "etaoinshrdlu  ETA12.,\xc3\xa9\xe4\xb8"
	for n := range 400 {
		word := make([]byte, 1+n)
		for i := range word {
			word[i] = letters[r.below(len(letters))]
		}
		ids := tok.model.symbols(string(word), nil)
		want := bpeTwin(tok.model, ids)
		require.Equal(t, want, tok.model.mergeHeap(append([]int32(nil), ids...)), "heap, %q", word)
		if len(ids) <= longWord {
			require.Equal(t, want, tok.model.mergeScan(append([]int32(nil), ids...)), "scan, %q", word)
		}
	}
}

// edit changes one field of a small tokenizer.json.
func edit(t *testing.T, name string, change func(doc map[string]any)) []byte {
	t.Helper()
	var doc map[string]any
	readJSON(t, name+".tokenizer.json.gz", &doc)
	change(doc)
	data, err := json.Marshal(doc)
	require.NoError(t, err)
	return data
}

func TestRefusals(t *testing.T) {
	part := func(field, raw string) func(map[string]any) {
		return func(doc map[string]any) { doc[field] = json.RawMessage(raw) }
	}
	model := func(field, raw string) func(map[string]any) {
		return func(doc map[string]any) { doc["model"].(map[string]any)[field] = json.RawMessage(raw) }
	}
	for _, c := range []struct {
		name   string
		change func(map[string]any)
		want   string
	}{
		{"unigram", model("type", `"Unigram"`), `tokenizer: model type "Unigram" is not supported (BPE is)`},
		{"wordpiece", model("type", `"WordPiece"`), `tokenizer: model type "WordPiece" is not supported (BPE is)`},
		{"dropout", model("dropout", `0.1`), `tokenizer: BPE dropout 0.1 is not supported: ids would be random`},
		{"prefix", model("continuing_subword_prefix", `"##"`), `tokenizer: continuing_subword_prefix "##" is not supported`},
		{"suffix", model("end_of_word_suffix", `"</w>"`), `tokenizer: end_of_word_suffix "</w>" is not supported`},
		{"merges", model("merges", `[["a","zz"]]`), `tokenizer: merge 0 ("a" "zz"): the parts or their sum are not in the vocabulary; the file is damaged`},
		{"merge text", model("merges", `["abc"]`), `tokenizer: merge 0 ("abc"): want two tokens with one space between`},
		{"no vocabulary", model("vocab", `null`), `tokenizer: model.vocab: want an object of token to id (<nil>)`},
		{"negative id", model("vocab", `{"a":-1}`), ``},
		{"version", part("version", `"2.0"`), `tokenizer: version "2.0" of tokenizer.json is not supported (1.0 is)`},
		{"no model", part("model", `null`), `tokenizer: no model in tokenizer.json; the file is damaged`},
		{"normalizer", part("normalizer", `{"type":"Lowercase"}`), `tokenizer: normalizer Lowercase is not supported (NFC, Prepend, Replace and Sequence are)`},
		{"normalizer in a sequence", part("normalizer", `{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"NFKC"}]}`), `tokenizer: normalizer NFKC is not supported (NFC, Prepend, Replace and Sequence are)`},
		{"normalizer that multiplies", part("normalizer", `{"type":"Sequence","normalizers":[`+strings.Repeat(`{"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaaaa"},`, 20)+`{"type":"NFC"}]}`), `tokenizer: normalizer: its Replace steps can make a text 100 times as long, at most 64 is allowed`},
		{"normalizer of long text", part("normalizer", `{"type":"Replace","pattern":{"String":"ab"},"content":"`+strings.Repeat("x", 200)+`"}`), `tokenizer: normalizer: its Replace steps can make a text 100 times as long, at most 64 is allowed`},
		{"normalizer of long prefix", part("normalizer", `{"type":"Prepend","prepend":"`+strings.Repeat("x", 2000)+`"}`), `tokenizer: normalizer: it prepends 2000 bytes to a text, at most 1024 are allowed`},
		{"normalizer of many prefixes", part("normalizer", `{"type":"Sequence","normalizers":[`+strings.Repeat(`{"type":"Prepend","prepend":"`+strings.Repeat("x", 1000)+`"},`, 2)+`{"type":"Replace","pattern":{"String":"x"},"content":"yyy"}]}`), `tokenizer: normalizer: it prepends 2000 bytes to a text, at most 1024 are allowed`},
		{"decoder that multiplies", part("decoder", `{"type":"Sequence","decoders":[`+strings.Repeat(`{"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaaaa"},`, 20)+`{"type":"Fuse"}]}`), `tokenizer: decoder: its Replace steps can make a text 100 times as long, at most 64 is allowed`},
		{"normalizer of many steps", part("normalizer", `{"type":"Sequence","normalizers":[`+strings.Repeat(`{"type":"Replace","pattern":{"String":"a"},"content":"b"},`, 300)+`{"type":"NFC"}]}`), `tokenizer: normalizer: it has more than 256 steps`},
		{"normalizer regex", part("normalizer", `{"type":"Replace","pattern":{"Regex":"a+"},"content":"b"}`), `tokenizer: normalizer Replace: regular expression "a+" is not supported (a string is)`},
		{"pre-tokenizer", part("pre_tokenizer", `{"type":"BertPreTokenizer"}`), `tokenizer: pre-tokenizer BertPreTokenizer is not supported (ByteLevel, Split, Digits, Metaspace and Sequence are)`},
		{"regex", part("pre_tokenizer", `{"type":"Split","pattern":{"Regex":"\\w+"},"behavior":"Isolated","invert":false}`), `tokenizer: pre-tokenizer Split: regular expression "\\w+" is not among those supported`},
		{"behavior", part("pre_tokenizer", `{"type":"Split","pattern":{"String":" "},"behavior":"Other","invert":false}`), `tokenizer: pre-tokenizer Split: behavior "Other" is not known`},
		{"order", part("pre_tokenizer", `{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]}`), `tokenizer: pre-tokenizer Digits after ByteLevel or Metaspace is not supported`},
		{"post-processor", part("post_processor", `{"type":"RobertaProcessing"}`), `tokenizer: post-processor RobertaProcessing is not supported (ByteLevel, TemplateProcessing and Sequence are)`},
		{"decoder", part("decoder", `{"type":"WordPiece"}`), `tokenizer: decoder WordPiece is not supported (ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace and Sequence are)`},
		{"no type", part("decoder", `{"prefix":"##"}`), `tokenizer: decoder without a type is not supported`},
		{"nested too deep", part("decoder", strings.Repeat(`{"type":"Sequence","decoders":[`, 20)+`{"type":"Fuse"}`+strings.Repeat(`]}`, 20)), `tokenizer: decoder is nested more than 8 deep`},
		{"same id", model("vocab", `{"a":1,"b":1}`), ``},
		{"same text", func(doc map[string]any) {
			doc["normalizer"] = json.RawMessage(`{"type":"NFC"}`)
			doc["added_tokens"] = json.RawMessage(`[{"id":500,"content":"e\u0301","normalized":true},{"id":501,"content":"é","normalized":true}]`)
		}, "tokenizer: added tokens \"e\u0301\" and \"é\" are the same text \"é\"; remove one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := FromJSON(edit(t, "prefix_space", c.change))
			if c.want == "" {
				require.Error(t, err)
				return
			}
			require.EqualError(t, err, c.want)
		})
	}
	_, err := FromJSON([]byte(`{"version"`))
	require.EqualError(t, err, "tokenizer: not a tokenizer.json: unexpected end of JSON input")
	_, err = Load(t.TempDir())
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestVocabularyRefusals(t *testing.T) {
	_, good := smollm2(t)
	for _, c := range []struct {
		name   string
		change func(*Vocabulary)
		want   string
	}{
		{"pre", func(v *Vocabulary) { v.Pre = "bloom" }, `tokenizer: pre-tokenizer kind "bloom" (tokenizer.ggml.pre) is not supported`},
		{"no pre", func(v *Vocabulary) { v.Pre = "" }, `tokenizer: pre-tokenizer kind "" (tokenizer.ggml.pre) is not supported`},
		{"model", func(v *Vocabulary) { v.Model = "bert" }, `tokenizer: vocabulary model "bert" (tokenizer.ggml.model) is not supported (gpt2 and llama are)`},
		{"types", func(v *Vocabulary) { v.Types = v.Types[:3] }, `tokenizer: 3 token types for 49152 tokens; the file is damaged`},
		{"scores", func(v *Vocabulary) { v.Model = "llama" }, `tokenizer: 0 scores for 49152 tokens: a llama vocabulary needs one each`},
		{"empty", func(v *Vocabulary) { v.Tokens = nil }, `tokenizer: a vocabulary of 0 tokens is not supported`},
		{"twice", func(v *Vocabulary) { v.Tokens = append([]string{"<|im_end|>"}, v.Tokens[1:]...) }, `tokenizer: tokens 0 and 2 are both "<|im_end|>"`},
		{"bytes", func(v *Vocabulary) { v.Tokens = append([]string{"\xff"}, v.Tokens[1:]...) }, `tokenizer: token 0 ("\xff") is not valid UTF-8`},
		{"eos", func(v *Vocabulary) { v.EOS = 49152 }, `tokenizer: special token id 49152 is outside a vocabulary of 49152; the file is damaged`},
		{"merge", func(v *Vocabulary) { v.Merges = []string{"a b c"} }, `tokenizer: merge 0 ("a b c"): want two tokens with one space between`},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := good
			c.change(&v)
			_, err := FromVocabulary(v)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// The file that FromVocabulary generates gives the same ids and texts in Python `tokenizers` as here.
func TestHFUnderPython(t *testing.T) {
	python := os.Getenv("AGENTFLY_GOLDENS_PYTHON")
	if python == "" {
		t.Skip("AGENTFLY_GOLDENS_PYTHON is not set; AGENTFLY_GOLDENS_PYTHON=$(scripts/goldens/venv.sh)/bin/python runs this test")
	}
	tok, _ := smollm2(t)
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	require.NoError(t, os.WriteFile(path, tok.HF(), 0o600))
	out, err := exec.Command(python, "../../scripts/goldens/tokenizer.py", "--check", path, "smollm2").CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Run("llama", func(t *testing.T) {
		tok, _ := mistralV1(t)
		path := filepath.Join(t.TempDir(), "tokenizer.json")
		require.NoError(t, os.WriteFile(path, tok.HF(), 0o600))
		out, err := exec.Command(python, "../../scripts/goldens/tokenizer.py", "--check", path, "mistral_v1").CombinedOutput()
		require.NoError(t, err, "%s", out)
	})
}
