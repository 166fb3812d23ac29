package checkpoint

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestACheckpointIsVerified(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "trainer"), 0o755))
	weights, moments := filepath.Join(dir, "model.safetensors"), filepath.Join(dir, "trainer", "optimizer.safetensors")
	require.NoError(t, os.WriteFile(weights, []byte("123456789"), 0o600))
	require.NoError(t, os.WriteFile(moments, nil, 0o600))
	sums, err := Checksums(dir)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"model.safetensors": "e3069283", "trainer/optimizer.safetensors": "00000000"}, sums) // CRC-32C's check value
	require.NoError(t, Verify(dir, sums))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("mine"), 0o600))
	require.NoError(t, Verify(dir, sums), "what somebody added is left alone")

	require.NoError(t, os.WriteFile(weights, []byte("123456788"), 0o600))
	require.ErrorContains(t, Verify(dir, sums), weights+" is not the file that was written")
	require.NoError(t, os.Remove(moments))
	sums = map[string]string{"trainer/optimizer.safetensors": "00000000"}
	require.EqualError(t, Verify(dir, sums), "orchestrator: checkpoint: "+moments+" is gone: point "+filepath.Join(filepath.Dir(dir), "last")+" to the checkpoint before it, or begin a new run")
}
