package gpucheck

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// bundler is a repository of gpu_bundle.sh with shell scripts in place of what builds, beside a model of modelSize bytes.
type bundler struct {
	repository string
	environ    []string
}

const modelSize = 11<<20 - 5

func newBundler(t *testing.T) bundler {
	t.Helper()
	for _, program := range []string{"git", "python3"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is missing, which the script needs")
		}
	}
	top := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(top, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
	}
	for _, name := range []string{"gpu_bundle.sh", "gpu_check.sh"} {
		text, err := os.ReadFile("../" + name)
		require.NoError(t, err)
		write("repository/scripts/"+name, string(text))
	}
	for _, name := range []string{"cgo", "policy", "trainer", "examples"} {
		write("repository/"+name+"/x", "tracked\n")
	}
	write("model.gguf", string(make([]byte, modelSize)))
	write("native/env.sh", "AGENTFLY_LIBTORCH=/\n")
	write("gotorch/cgotorch/x", "")
	write("kernels", "")
	write("repository/scripts/build_native.sh", "#!/bin/sh\necho "+top+"/native\n")
	write("repository/scripts/cuda_kernels.sh", "#!/bin/sh\necho "+top+"/kernels\n")
	write("repository/scripts/fetch.py", "print("+`"`+top+`/model.gguf")`+"\n")
	write("bin/go", `#!/bin/sh
case $1 in
list) echo `+top+`/gotorch ;;
*) while test $# -gt 0; do test "$1" != -o || echo built >"$2"; shift; done ;;
esac
`)
	b := bundler{
		repository: filepath.Join(top, "repository"),
		environ: append(os.Environ(), "PATH="+filepath.Join(top, "bin")+":"+os.Getenv("PATH"), "TORCH=none",
			"GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b"),
	}
	for _, arguments := range [][]string{{"init", "-q"}, {"add", "-A"}, {"commit", "-q", "-m", "x"}} {
		b.run(t, b.repository, "git", arguments...)
	}
	return b
}

func (b bundler) run(t *testing.T, from, program string, arguments ...string) string {
	t.Helper()
	c := exec.Command(program, arguments...)
	c.Dir, c.Env = from, b.environ
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

// A bundle is made where the tables of an earlier check lie, and from another folder than the repository.
func TestABundleReplacesNothingButABundle(t *testing.T) {
	b := newBundler(t)
	here := t.TempDir()
	for name, text := range map[string]string{"gpu/out/stage-2.md": "a table", "gpu/bundle.tar.gz": "an old one", "gpu/model.part-4": "of an old one"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(here, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(here, name), []byte(text), 0o644))
	}
	b.run(t, here, filepath.Join(b.repository, "scripts/gpu_bundle.sh"), "gpu")
	table, err := os.ReadFile(filepath.Join(here, "gpu/out/stage-2.md"))
	require.NoError(t, err)
	require.Equal(t, "a table", string(table))
	entries, err := os.ReadDir(filepath.Join(here, "gpu"))
	require.NoError(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	require.Equal(t, []string{"bundle.tar.gz", "gpu_check.sh", "model.part-00", "out"}, names)
	require.NoDirExists(t, filepath.Join(here, "gpu.new"))
	archive, err := os.ReadFile(filepath.Join(here, "gpu/bundle.tar.gz"))
	require.NoError(t, err)
	require.NotEqual(t, "an old one", string(archive))
	require.Empty(t, b.run(t, b.repository, "git", "status", "--porcelain"))
}

func TestABundleOfManyParts(t *testing.T) {
	b := newBundler(t)
	b.environ = append(b.environ, "PART=1")
	here := t.TempDir()
	b.run(t, here, filepath.Join(b.repository, "scripts/gpu_bundle.sh"), here)
	parts, err := filepath.Glob(filepath.Join(here, "model.part-*"))
	require.NoError(t, err)
	require.Len(t, parts, 11)
	var size int64
	for _, part := range parts {
		info, err := os.Stat(part)
		require.NoError(t, err)
		size += info.Size()
	}
	require.EqualValues(t, modelSize, size)
}
