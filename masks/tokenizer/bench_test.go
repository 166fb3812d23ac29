package tokenizer

import (
	"strings"
	"testing"
)

// benchText is about 1 MB of the sentences and programs among the hard strings.
func benchText(b *testing.B) string {
	b.Helper()
	var s strings.Builder
	all := hardStrings(b)[40:76] // the scripts and the code
	for s.Len() < 1<<20 {
		for _, x := range all {
			s.WriteString(x)
			s.WriteByte('\n')
		}
	}
	return s.String()
}

func benchEncode(b *testing.B, tok *Tokenizer) {
	text := benchText(b)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		tok.Encode(text)
	}
}

func BenchmarkEncodeSmolLM2(b *testing.B) {
	tok, _ := smollm2(b)
	benchEncode(b, tok)
}

func BenchmarkEncodePublic(b *testing.B) {
	for _, name := range []string{"qwen3", "llama3_1", "llama2", "deepseek_v3"} {
		b.Run(name, func(b *testing.B) { benchEncode(b, loadPublic(b, name)) })
	}
}

func BenchmarkDecodeSmolLM2(b *testing.B) {
	tok, _ := smollm2(b)
	text := benchText(b)
	ids := tok.Encode(text)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		tok.Decode(ids, false)
	}
}

func BenchmarkLoad(b *testing.B) {
	tok, _ := smollm2(b)
	data := tok.HF()
	for b.Loop() {
		if _, err := FromJSON(data); err != nil {
			b.Fatal(err)
		}
	}
}
