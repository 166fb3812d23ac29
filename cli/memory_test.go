package cli

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJobMemory(t *testing.T) {
	out, err := runLine("job memory ../examples/tiny.yaml --device-memory 1MB")
	require.NoError(t, err)
	for _, want := range []string{"AdamW's moments", "fits: no", "trainer.checkpointing=true saves", "host memory of 1 rank(s)"} {
		require.Contains(t, out, want)
	}
	out, err = runLine("job memory ../examples/tiny.yaml --json --ranks 2 --set device=cpu")
	require.NoError(t, err)
	var m struct {
		Ranks  int
		Places []struct{ Place, Fits string }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &m))
	require.Equal(t, 2, m.Ranks)
	require.Equal(t, "host", m.Places[0].Place)
	require.Equal(t, "yes", m.Places[0].Fits)
	var wrong *UsageError
	for _, line := range []string{"--ranks 0", "--device-memory 140", "--device-memory -1GB", "--device-memory xGB"} {
		_, err = runLine("job memory ../examples/tiny.yaml " + line)
		require.True(t, errors.As(err, &wrong), line)
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]int64{"140GB": 140e9, "1.5 GiB": 3 << 29, "2MiB": 2 << 20} {
		got, ok := size(text)
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", "GB", "0GB", "NaNGB", "+InfGB"} {
		_, ok := size(text)
		require.False(t, ok, text)
	}
}
