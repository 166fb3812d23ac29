package modelfile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A run folder stands for its last checkpoint wherever a model is asked for, RUN@best for that of its best evaluation, RUN@N for that after
// step N.
func TestARunFolderIsItsCheckpoint(t *testing.T) {
	run := filepath.Join(t.TempDir(), "run")
	all := filepath.Join(run, "checkpoints")
	require.NoError(t, os.Mkdir(run, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(run, "job.yaml"), nil, 0o600))
	found, err := Resolve(run)
	require.NoError(t, err)
	require.Equal(t, run, found, "a folder with a job alone is no run")

	require.NoError(t, os.WriteFile(filepath.Join(run, "store.db"), nil, 0o600))
	_, err = Resolve(run)
	require.ErrorContains(t, err, "the run in "+run+" has no checkpoint yet", "of a run that was killed early")
	require.NoError(t, os.MkdirAll(all, 0o755))
	_, err = Resolve(run)
	require.EqualError(t, err, "modelfile: the run in "+run+" has no checkpoint yet; it saves one when it ends, when Ctrl-C interrupts it, and as often as checkpoint.every of its job says")
	_, err = Resolve(run + "@best")
	require.EqualError(t, err, "modelfile: the run in "+run+" has no checkpoint yet; it saves one when it ends, when Ctrl-C interrupts it, and as often as checkpoint.every of its job says")

	for name, to := range map[string]string{"step-10": "", "step-20": "", "last": "step-20"} {
		if to == "" {
			require.NoError(t, os.Mkdir(filepath.Join(all, name), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(all, name, "run.json"), []byte("{}"), 0o600))
			continue
		}
		require.NoError(t, os.Symlink(to, filepath.Join(all, name)))
	}
	for path, want := range map[string]string{
		run: filepath.Join(all, "last"), run + "/": filepath.Join(all, "last"), run + "@last": filepath.Join(all, "last"), run + "@10": filepath.Join(all, "step-10"),
		run + "/@20": filepath.Join(all, "step-20"), filepath.Join(all, "last"): filepath.Join(all, "last"),
	} {
		found, err := Resolve(path)
		require.NoError(t, err, path)
		require.Equal(t, want, found, path)
	}
	for path, want := range map[string]string{
		run + "@best": "modelfile: the run in " + run + " keeps no checkpoint best; it keeps last, 10, 20 (checkpoint.best of its job keeps the best)",
		run + "@15":   "modelfile: the run in " + run + " keeps no checkpoint 15; it keeps last, 10, 20 (checkpoint.keep of its job says how many)",
	} {
		_, err := Resolve(path)
		require.EqualError(t, err, want)
	}
	require.NoError(t, os.Symlink("step-10", filepath.Join(all, "best")))
	found, err = Resolve(run + "@best")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(all, "best"), found)

	// A folder that is a model is itself, whatever lies in it, and one whose name ends in @best is that folder.
	require.NoError(t, os.WriteFile(filepath.Join(run, "config.json"), nil, 0o600))
	found, err = Resolve(run)
	require.NoError(t, err)
	require.Equal(t, run, found)
	odd := run + "@best"
	require.NoError(t, os.Mkdir(odd, 0o755))
	found, err = Resolve(odd)
	require.NoError(t, err)
	require.Equal(t, odd, found)
}
