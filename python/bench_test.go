package python_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/python"
)

// BenchmarkCall is one call after another of a function that returns its argument.
func BenchmarkCall(b *testing.B) {
	file := filepath.Join(b.TempDir(), "tools.py")
	require.NoError(b, os.WriteFile(file, []byte("from agentfly import tool\n@tool()\ndef same(x: int):\n    return x\n@tool()\nasync def later(x: int):\n    return x\n"), 0o600))
	for _, name := range []string{"same", "later"} {
		b.Run(name, func(b *testing.B) {
			m, err := python.Load(b.Context(), file, python.Options{Workers: 1})
			if err != nil {
				b.Skip(err)
			}
			for b.Loop() {
				_, err := m.Call(b.Context(), name, "", json.RawMessage(`{"x": 1}`))
				require.NoError(b, err)
			}
			require.NoError(b, m.Close())
		})
	}
}

// BenchmarkStart is Load and Close of a small file.
func BenchmarkStart(b *testing.B) {
	file := filepath.Join(b.TempDir(), "tools.py")
	require.NoError(b, os.WriteFile(file, []byte("from agentfly import tool\n@tool()\ndef same(x: int):\n    return x\n"), 0o600))
	for b.Loop() {
		m, err := python.Load(b.Context(), file, python.Options{Workers: 1})
		if err != nil {
			b.Skip(err)
		}
		require.NoError(b, m.Close())
	}
}
