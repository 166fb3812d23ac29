package terminal

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// hostile are texts that do something to a terminal, and what is shown instead.
var hostile = map[string]string{
	"plain, é, 漢, 🙂\n\tnext":                         "plain, é, 漢, 🙂\n\tnext",
	"\x1b[31mred\x1b[0m":                             `\x1b[31mred\x1b[0m`,
	"\x1b]52;c;cm0gLXJmIC8=\x07":                     `\x1b]52;c;cm0gLXJmIC8=\x07`,
	"\x1b]8;;http://evil\x1b\\good\x1b]8;;\x1b\\":    `\x1b]8;;http://evil\x1b\good\x1b]8;;\x1b\`,
	"over\rwritten\b\b\x7f":                          `over\x0dwritten\x08\x08\x7f`,
	"C1 as text \u009b2J, as bytes \x9b2J, \x90q":    `C1 as text \u009b2J, as bytes \x9b2J, \x90q`,
	"\u202egnp.exe \u2066x\u2069 \u200e\u200f\u061c": `\u202egnp.exe \u2066x\u2069 \u200e\u200f\u061c`,
	"one\u2028two\u2029\u0085":                       `one\u2028two\u2029\u0085`,
	"tag \U000e0041":                                 `tag \U000e0041`,
	"cut \xe6\xbc":                                   `cut \xe6\xbc`,
	"the sign \uFFFD itself":                         "the sign \uFFFD itself",
}

func TestText(t *testing.T) {
	for in, want := range hostile {
		require.Equal(t, want, Text(in), "%q", in)
	}
}

func TestWriter(t *testing.T) {
	for in, want := range hostile {
		var whole, bytewise bytes.Buffer
		w := NewWriter(&whole)
		n, err := w.Write([]byte(in))
		require.NoError(t, err)
		require.Equal(t, len(in), n)
		b := NewWriter(&bytewise)
		for i := range len(in) {
			_, err := b.Write([]byte{in[i]})
			require.NoError(t, err)
		}
		if in == "cut \xe6\xbc" { // the rest may come
			want = "cut "
		}
		require.Equal(t, want, whole.String(), "%q", in)
		require.Equal(t, want, bytewise.String(), "%q", in)
	}
}

func TestJSON(t *testing.T) {
	for in := range hostile {
		if !utf8.ValidString(in) {
			continue
		}
		data, err := json.Marshal(map[string]string{"text": in})
		require.NoError(t, err)
		safe := JSON(data)
		require.Equal(t, string(safe), Text(string(safe)), "nothing is left to spell")
		var back map[string]string
		require.NoError(t, json.Unmarshal(safe, &back))
		require.Equal(t, in, back["text"])
	}
}

func TestIs(t *testing.T) {
	require.False(t, Is(&bytes.Buffer{}))
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	require.False(t, Is(null), "a character device that is no terminal")
}

func FuzzText(f *testing.F) {
	for in := range hostile {
		f.Add([]byte(in), 3)
	}
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		out := Text(string(data))
		require.True(t, utf8.ValidString(out))
		require.Equal(t, out, Text(out), "what is safe stays as it is")
		var b bytes.Buffer
		w := NewWriter(&b)
		cut = max(0, min(cut, len(data)))
		for _, part := range [][]byte{data[:cut], data[cut:], []byte("\n")} { // a line ends whole
			_, err := w.Write(part)
			require.NoError(t, err)
		}
		require.Equal(t, Text(string(data)+"\n"), b.String())
	})
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		in    string
		width int
		want  []string
	}{
		{"", 10, []string{""}},
		{"a b c", 0, []string{"a b c"}},
		{"one two three", 7, []string{"one two", "three"}},
		{"one two three", 8, []string{"one two", "three"}},
		{"abcdefghij", 4, []string{"abcd", "efgh", "ij"}},
		{"x\n\nlong line here", 9, []string{"x", "", "long line", "here"}},
		{"äöü äöü", 3, []string{"äöü", "äöü"}},
		{"abcd", 4, []string{"abcd"}},
		{"漢字漢字漢", 4, []string{"漢字", "漢字", "漢"}}, // two columns each
		{"漢字 ab", 5, []string{"漢字", "ab"}},
		{"漢字", 1, []string{"漢", "字"}}, // wider than the terminal
	} {
		require.Equal(t, c.want, Wrap(c.in, c.width), "%q at %d", c.in, c.width)
	}
}
