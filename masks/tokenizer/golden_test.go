package tokenizer

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/internal/home"
)

// golden is what scripts/goldens/tokenizer.py wrote.
type golden struct {
	Tokenizers string         `json:"tokenizers"`
	IDs        [][]int32      `json:"ids"`
	Decoded    map[int]string `json:"decoded"` // where it is not the input
	Skipped    map[int]string `json:"skipped"` // where it is not Decoded
	Noise      []struct {
		IDs  []int32 `json:"ids"`
		Skip bool    `json:"skip"`
		Text string  `json:"text"`
	} `json:"noise"`
}

func readGz(t testing.TB, name string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	data, err := io.ReadAll(z)
	require.NoError(t, err)
	return data
}

func readJSON(t testing.TB, name string, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(readGz(t, name), into))
}

// hardStrings are the 2,000 inputs, some of them broken UTF-8.
func hardStrings(t testing.TB) []string {
	t.Helper()
	var coded []string
	readJSON(t, "strings.json.gz", &coded)
	out := make([]string, len(coded))
	for i, c := range coded {
		b, err := base64.StdEncoding.DecodeString(c)
		require.NoError(t, err)
		out[i] = string(b)
	}
	require.Len(t, out, 2000)
	return out
}

// checkGolden compares every id and text with Hugging Face; every is 1, or 4 where only each fourth string was used.
func checkGolden(t *testing.T, tok *Tokenizer, name string, every int) {
	t.Helper()
	var want golden
	readJSON(t, name+".golden.json.gz", &want)
	var inputs []string
	for i, s := range hardStrings(t) {
		if i%every == 0 {
			inputs = append(inputs, s)
		}
	}
	require.Len(t, want.IDs, len(inputs))
	bad := 0
	for i, s := range inputs {
		ids := tok.Encode(s)
		if !sameIDs(ids, want.IDs[i]) {
			t.Errorf("%s: encode %q\n got %v\nwant %v", name, s, ids, want.IDs[i])
			bad++
		}
		text, ok := want.Decoded[i]
		if !ok {
			text = lossy(s)
		}
		if got := tok.Decode(want.IDs[i], false); got != text {
			t.Errorf("%s: decode %v\n got %q\nwant %q", name, want.IDs[i], got, text)
			bad++
		}
		if short, ok := want.Skipped[i]; ok {
			text = short
		}
		if got := tok.Decode(want.IDs[i], true); got != text {
			t.Errorf("%s: decode %v without special tokens\n got %q\nwant %q", name, want.IDs[i], got, text)
			bad++
		}
		if bad > 5 {
			t.Fatalf("%s: stopped at string %d of %d", name, i, len(inputs))
		}
	}
	for _, n := range want.Noise {
		require.Equal(t, n.Text, tok.Decode(n.IDs, n.Skip), "%s: decode %v, skip %t", name, n.IDs, n.Skip)
	}
}

func sameIDs(a, b []int32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// cacheFolder is where scripts/goldens/fetch_tokenizers.sh has put a public tokenizer; without it the test is skipped.
func cacheFolder(t testing.TB, name string) string {
	t.Helper()
	dir, err := home.Cache("tokenizers", name)
	require.NoError(t, err)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("tokenizer %s is not in the cache folder; scripts/goldens/fetch_tokenizers.sh fetches it", name)
	}
	return dir
}

func loadPublic(t testing.TB, name string) *Tokenizer {
	t.Helper()
	tok, err := Load(cacheFolder(t, name))
	require.NoError(t, err)
	return tok
}

func smollm2(t testing.TB) (*Tokenizer, Vocabulary) {
	t.Helper()
	var v struct {
		Vocabulary
		AddBOS bool `json:"add_bos"`
	}
	readJSON(t, "smollm2.vocabulary.json.gz", &v)
	v.Vocabulary.AddBOS = v.AddBOS
	tok, err := FromVocabulary(v.Vocabulary)
	require.NoError(t, err)
	return tok, v.Vocabulary
}

func loadSmall(t testing.TB, name string) *Tokenizer {
	t.Helper()
	tok, err := FromJSON(readGz(t, name+".tokenizer.json.gz"))
	require.NoError(t, err)
	return tok
}

func TestGoldenSmolLM2(t *testing.T) {
	tok, _ := smollm2(t)
	checkGolden(t, tok, "smollm2", 1)
	again, err := FromJSON(tok.HF())
	require.NoError(t, err)
	checkGolden(t, again, "smollm2", 1)
}

func TestGoldenSmall(t *testing.T) {
	for _, name := range []string{"byte_level", "prefix_space", "metaspace_first", "metaspace_always", "llama2_small", "deepseek_llm", "deepseek_coder"} {
		t.Run(name, func(t *testing.T) { checkGolden(t, loadSmall(t, name), name, 4) })
	}
}

func TestGoldenPublic(t *testing.T) {
	for _, name := range []string{"qwen3", "llama3_1", "llama2", "deepseek_v3", "gptoss", "gpt4o", "gpt35turbo", "gemma3", "tekken", "mistral_v1"} {
		t.Run(name, func(t *testing.T) { checkGolden(t, loadPublic(t, name), name, 1) })
	}
}
