package wording

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNames(t *testing.T) {
	a := strings.Repeat("a", 70)
	for name, want := range map[string]string{
		"get_user-2":  "get_user-2",
		"a.b c/d":     "a_b_c_d",
		"größe":       "gr__e",
		"a\nb\xff":    "a_b_",
		"_":           "_",
		a[:63]:        a[:63],
		a[:64]:        a[:64],
		a[:65]:        a[:64],
		a:             a[:64],
		a[:63] + "ä.": a[:63] + "_",
	} {
		require.Equal(t, want, AsName(name))
		require.True(t, ValidName(want), want)
		require.Equal(t, name == want, ValidName(name), name)
	}
	require.Empty(t, AsName(""))
	require.False(t, ValidName(""))
}
