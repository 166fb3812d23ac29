package agents

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestThoughtSplitter: however the text is cut, thought and content are the same.
func TestThoughtSplitter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, c := range []struct {
		text             string
		opened           bool
		thought, content string
	}{
		{"<think>\nI add.\n</think>\n\nIt is 3. ", false, "I add.", "It is 3. "},
		{" \n<think>a</think>b", false, "a", "b"},
		{"a\n b\n</think>\n\nc", true, "a\n b", "c"},
		{"no thought </think> x", false, "", "no thought </think> x"},
		{" \n plain", false, "", " \n plain"},
		{"<thin", false, "", "<thin"},
		{"<thinking>x", false, "", "<thinking>x"},
		{"<think>never ends </thi", false, "never ends </thi", ""},
		{"<think> \n</think> ", false, "", ""},
		{"", true, "", ""},
		{"  ", false, "", "  "},
		{"<think>a</think>b<think>c</think>", false, "a", "b<think>c</think>"},
		{"<think>a <</think>\n \n", false, "a <", ""},
	} {
		for range 200 {
			s := NewThoughtSplitter(c.opened)
			var thought, content strings.Builder
			add := func(a, b string) {
				require.True(t, a == "" || content.Len() == 0, "a thought behind content")
				thought.WriteString(a)
				content.WriteString(b)
			}
			for rest := c.text; rest != ""; {
				n := 1 + r.IntN(min(4, len(rest)))
				add(s.Push(rest[:n]))
				rest = rest[n:]
			}
			add(s.End())
			require.Equal(t, c.thought, thought.String(), c.text)
			require.Equal(t, c.content, content.String(), c.text)
			a, b := s.End()
			require.Empty(t, a+b)
		}
	}
}

// TestThoughtTokens: a token is of the thought where it stands before the end of </think>, whatever else it holds.
func TestThoughtTokens(t *testing.T) {
	for _, c := range []struct {
		tokens string // with bars between
		opened bool
		want   int
	}{
		{"<think>|I| add|.|</think>|It| is|</think>", false, 5},
		{"\n|<th|ink>a</thi|nk>b|c", false, 4},
		{"a|b</think>|c", true, 2},
		{"</think>|c", true, 1},
		{"<think>|never| ends", false, 3},
		{"never| ends", true, 2},
		{"no| thought| </think>| x", false, 0},
		{"<thinking>|</think>", false, 0},
		{"", true, 0},
	} {
		var ids []int32
		tokens := strings.Split(c.tokens, "|")
		for i := range tokens {
			ids = append(ids, int32(i))
		}
		if c.tokens == "" {
			ids = nil
		}
		decode := func(ids []int32) string { return strings.Join(tokens[:len(ids)], "") }
		require.Equal(t, c.want, ThoughtTokens(ids, decode(ids), decode, c.opened), c.tokens)
	}
}
