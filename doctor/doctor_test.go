package doctor_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentfly/agentfly/doctor"
	"github.com/stretchr/testify/require"
)

func find(t *testing.T, checks []doctor.Check, name string) doctor.Check {
	t.Helper()
	for _, c := range checks {
		if c.Name == name {
			return c
		}
	}
	require.Failf(t, "no such check", "%s in %v", name, checks)
	return doctor.Check{}
}

func TestEveryMissingThingHasARemedy(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // nothing is installed
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	checks := doctor.Run(context.Background(), doctor.Torch{}, t.TempDir())
	for _, name := range []string{"compiler", "libtorch", "gpu", "model", "python3", "vllm", "java", "bubblewrap", "chromium"} {
		c := find(t, checks, name)
		require.NotEqual(t, doctor.OK, c.State, name)
		require.NotEmpty(t, c.Remedy, name)
	}
	require.Equal(t, doctor.Missing, find(t, checks, "libtorch").State)
	require.Equal(t, doctor.Missing, find(t, doctor.Run(context.Background(), doctor.Torch{}, "/no/such/folder"), "disk").State)
}

func TestWhatIsThereIsNamed(t *testing.T) {
	bin, cache := t.TempDir(), t.TempDir()
	script := []byte("#!/bin/sh\necho bubblewrap 0.8.0\necho more\n")
	require.NoError(t, os.WriteFile(filepath.Join(bin, "bwrap"), script, 0o755))
	t.Setenv("PATH", bin)
	t.Setenv("XDG_CACHE_HOME", cache)
	folder := filepath.Join(cache, "agentfly", "models", "M")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "m.gguf"), nil, 0o600))

	checks := doctor.Run(context.Background(), doctor.Torch{Version: "2.13.0", CUDADevices: 2}, ".")
	require.Equal(t, doctor.Check{Name: "bubblewrap", State: doctor.OK, Found: "bubblewrap 0.8.0"}, find(t, checks, "bubblewrap"))
	require.Equal(t, doctor.Check{Name: "libtorch", State: doctor.OK, Found: "2.13.0"}, find(t, checks, "libtorch"))
	require.Equal(t, doctor.OK, find(t, checks, "gpu").State)
	require.Equal(t, "m.gguf", find(t, checks, "model").Found)
}
