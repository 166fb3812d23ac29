package wording

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJSON(t *testing.T) {
	for want, v := range map[string]any{
		`"<a href=\"x\">&</a>"`:    `<a href="x">&</a>`,
		`"a\n"`:                    "a\n",
		`{"<":[1,null],"b":"\\n"}`: map[string]any{"b": `\n`, "<": []any{1, nil}},
		`null`:                     nil,
	} {
		got, err := JSON(v)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	for _, v := range []any{math.NaN(), func() {}, []any{"a", math.Inf(1)}} {
		got, err := JSON(v)
		require.Error(t, err)
		require.Nil(t, got, "no part of it is taken for the whole")
	}
}
