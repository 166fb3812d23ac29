package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFold(t *testing.T) {
	step := "step   1/4   reward 0.020  answered 33/128  calls 44 (0 failed)  sample 6646 tok/s  train 20246 tok/s   0.1 s  left 0s\n"
	require.Equal(t, "step   1/4   reward 0.020  answered 33/128  calls 44 (0 failed)\n"+
		"             sample 6646 tok/s  train 20246 tok/s   0.1 s  left 0s\n", fold(step, 80))
	require.Equal(t, step, fold(step, 119))
	command := "go on with     agentfly train first/job.yaml --output run --set rollout.groups=2 --set rollout.group_size=4 --resume\n"
	require.Equal(t, command, fold(command, 80))
	require.Equal(t, "note: words that\n      go on, and\n      on\n", fold("note: words that go on, and on\n", 17))
	long := "note: " + strings.Repeat("x", 100) + "\n"
	require.Equal(t, long, strings.ReplaceAll(fold(long, 80), "\n      ", " ")) // what has no blank stays whole
	require.Equal(t, "note: 日本 日本\n      日本\n", fold("note: 日本 日本 日本\n", 15), "a character of two columns")
	for width := range 130 {
		require.Equal(t, strings.Fields(step), strings.Fields(fold(step, width)), width)
	}

	var out strings.Builder
	n, err := folding{&out, func() int { return 80 }}.Write([]byte(step + command))
	require.NoError(t, err)
	require.Len(t, step+command, n)
	require.Equal(t, fold(step, 80)+command, out.String())
}
