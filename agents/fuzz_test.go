package agents

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/internal/wording"
)

// fuzzFormat fuzzes a format: Parse keeps its promises, and a stream in pieces tells what the whole tells.
func fuzzFormat(f *testing.F, name string) {
	format := allFormats(f)[name]
	for i, s := range completions {
		f.Add(s, uint8(i))
	}
	f.Fuzz(func(t *testing.T, text string, size uint8) {
		p := parse(t, format, text)
		checkParsed(t, p)
		require.Equal(t, p, parse(t, format, text))
		var cuts []int
		for at := 0; at < len(text); at += int(size%11) + 1 {
			cuts = append(cuts, at)
		}
		checkSplits(t, format, text, cuts...)
	})
}

func FuzzSplitTags(f *testing.F)   { fuzzFormat(f, "tags") }
func FuzzSplitHermes(f *testing.F) { fuzzFormat(f, "hermes") }
func FuzzLlama(f *testing.F)       { fuzzFormat(f, "llama3_json") }
func FuzzMistral(f *testing.F)     { fuzzFormat(f, "mistral") }
func FuzzQwen(f *testing.F)        { fuzzFormat(f, "qwen3_coder") }
func FuzzReact(f *testing.F)       { fuzzFormat(f, "react") }
func FuzzFenced(f *testing.F)      { fuzzFormat(f, "fenced") }
func FuzzSearch(f *testing.F)      { fuzzFormat(f, "search_r1") }
func FuzzAction(f *testing.F)      { fuzzFormat(f, "action") }

// A value that is written as text comes back as it was.
func FuzzQwenText(f *testing.F) {
	for _, s := range []string{"", "\n", "a\nb", " x ", "</param", "</think>", "5", "null"} {
		f.Add(s)
	}
	format := allFormats(f)["qwen3_coder"]
	f.Fuzz(func(t *testing.T, s string) {
		s = strings.ToValidUTF8(s, "?")
		for _, markup := range []string{parameterClose, parameterOpen, functionClose} {
			if strings.Contains(s, markup) {
				return
			}
		}
		want, err := wording.JSON(s)
		require.NoError(t, err)
		require.Equal(t, called("calculator", `{"expression": `+string(want)+`}`), parse(t, format, "<function=calculator><parameter=expression>\n"+s+"\n</parameter></function>"))
	})
}
