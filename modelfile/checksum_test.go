package modelfile

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The same weights have one checksum, however they are split into files and in whatever order; others have another one.
func TestChecksumIsOfTheWeights(t *testing.T) {
	a, b := constant("a", F32, []int{2}, []byte{1, 0, 0, 0, 0, 0, 0, 0}), constant("b", F32, []int{1}, []byte{2, 0, 0, 0})
	of := func(maxBytes int, sources ...Source) string {
		dir := t.TempDir()
		if maxBytes == 0 {
			require.NoError(t, WriteSafetensors(filepath.Join(dir, "model.safetensors"), nil, sources))
		} else {
			require.NoError(t, WriteSharded(dir, nil, sources, maxBytes))
		}
		m, err := Open(dir)
		require.NoError(t, err)
		defer m.Close()
		sum, err := m.Checksum()
		require.NoError(t, err)
		return sum
	}
	whole := of(0, a, b)
	require.Equal(t, whole, of(8, b, a))
	for name, other := range map[string][]Source{
		"a bit":      {a, constant("b", F32, []int{1}, []byte{3, 0, 0, 0})},
		"a shape":    {constant("a", F32, []int{1, 2}, []byte{1, 0, 0, 0, 0, 0, 0, 0}), b},
		"a name":     {a, constant("c", F32, []int{1}, []byte{2, 0, 0, 0})},
		"one fewer":  {a},
		"exchanged":  {constant("a", F32, []int{1}, []byte{2, 0, 0, 0}), constant("b", F32, []int{2}, []byte{1, 0, 0, 0, 0, 0, 0, 0})},
		"a datatype": {a, constant("b", "I32", []int{1}, []byte{2, 0, 0, 0})},
	} {
		require.NotEqual(t, whole, of(0, other...), name)
	}
}
