//go:build unix

package modelfile

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func writeText(path, text string) error {
	return WriteAtomic(path, func(w io.Writer) error { _, err := io.WriteString(w, text); return err })
}

func readAll(t *testing.T, dir string) map[string]string {
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		out[e.Name()] = string(data)
	}
	return out
}

// A small file is replaced whole, also beside what a killed process had begun to write, and a secret is nobody else's to read.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	for _, text := range []string{"a longer one", "short"} {
		require.NoError(t, WriteFile(path, []byte(text), 0o600))
		require.Equal(t, map[string]string{"key": text}, readAll(t, dir))
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
		require.NoError(t, writeText(path+".new", "half of what a killed process wro"))
	}
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.MkdirAll(filepath.Join(path, "in the way"), 0o755))
	require.Error(t, WriteFile(path, nil, 0o600))
	require.NoFileExists(t, path+".new")
}

func TestReplaceDir(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "runs", "last")
	save := func(version string) error {
		return ReplaceDir(dir, func(tmp string) error {
			return errors.Join(writeText(filepath.Join(tmp, "config.json"), version), writeText(filepath.Join(tmp, "only-"+version), version))
		})
	}
	require.NoError(t, save("1"))
	require.Equal(t, map[string]string{"config.json": "1", "only-1": "1"}, readAll(t, dir))
	require.NoError(t, os.Mkdir(filepath.Join(parent, "runs", ".last.77.tmp"), 0o700)) // of a killed process
	require.NoError(t, save("2"))
	require.Equal(t, map[string]string{"config.json": "2", "only-2": "2"}, readAll(t, dir))

	full := errors.New("disk is full")
	require.ErrorIs(t, ReplaceDir(dir, func(tmp string) error {
		require.NoError(t, writeText(filepath.Join(tmp, "config.json"), "3"))
		return full
	}), full)
	require.Equal(t, map[string]string{"config.json": "2", "only-2": "2"}, readAll(t, dir))

	link := filepath.Join(parent, "link")
	require.NoError(t, os.Symlink(dir, link))
	require.NoError(t, ReplaceDir(link, func(tmp string) error { return writeText(filepath.Join(tmp, "config.json"), "4") }))
	require.Equal(t, map[string]string{"config.json": "4"}, readAll(t, dir))
	entries, err := os.ReadDir(filepath.Join(parent, "runs"))
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

// A folder that was moved aside for a new one when the process was killed comes back, whatever becomes of the next attempt; one that the new one
// had taken the place of goes.
func TestReplaceDirAfterAKillBetweenItsRenames(t *testing.T) {
	full := errors.New("disk is full")
	for _, renamed := range []bool{false, true} {
		parent := t.TempDir()
		dir, tmp := filepath.Join(parent, "model"), filepath.Join(parent, ".model.77.tmp")
		older := filepath.Join(parent, ".model.5.tmp.old") // of a kill before
		for path, version := range map[string]string{older: "0", tmp + ".old": "1", tmp: "2"} {
			require.NoError(t, os.Mkdir(path, 0o755))
			require.NoError(t, writeText(filepath.Join(path, "config.json"), version))
		}
		require.NoError(t, os.Chtimes(older, time.Now(), time.Now().Add(-time.Hour)))
		want := "1"
		if renamed {
			require.NoError(t, os.Rename(tmp, dir))
			want = "2"
		}
		require.ErrorIs(t, ReplaceDir(dir, func(string) error { return full }), full)
		require.Equal(t, map[string]string{"config.json": want}, readAll(t, dir))
		entries, err := os.ReadDir(parent)
		require.NoError(t, err)
		require.Len(t, entries, 1)
	}
}

// What a killed process moved aside stays where something else has taken its place.
func TestReplaceDirKeepsWhatWasMovedAside(t *testing.T) {
	parent := t.TempDir()
	dir, old := filepath.Join(parent, "model"), filepath.Join(parent, ".model.77.tmp.old")
	for path, name := range map[string]string{dir: "thesis.tex", old: "config.json"} {
		require.NoError(t, os.Mkdir(path, 0o755))
		require.NoError(t, writeText(filepath.Join(path, name), "ten years"))
	}
	require.ErrorContains(t, ReplaceDir(dir, func(string) error { return nil }), "is neither empty nor a model's folder")
	require.Equal(t, map[string]string{"config.json": "ten years"}, readAll(t, old))
}

func TestReplaceDirKeepsOthersFiles(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, writeText(filepath.Join(dir, "thesis.tex"), "ten years"))
	err := ReplaceDir(dir, func(string) error { return nil })
	require.ErrorContains(t, err, "is neither empty nor a model's folder")
	require.Equal(t, map[string]string{"thesis.tex": "ten years"}, readAll(t, dir))
}

// The name of one folder may begin with that of another: what is being written for one is no leftover of the other.
func TestReplaceDirBesideAnotherOne(t *testing.T) {
	parent := t.TempDir()
	leftover := filepath.Join(parent, ".qwen.123.tmp")
	require.NoError(t, os.Mkdir(leftover, 0o700))
	require.NoError(t, ReplaceDir(filepath.Join(parent, "qwen.bf16"), func(tmp string) error {
		require.NoError(t, writeText(filepath.Join(tmp, "config.json"), "bf16"))
		require.NoError(t, ReplaceDir(filepath.Join(parent, "qwen"), func(tmp string) error {
			return writeText(filepath.Join(tmp, "config.json"), "f32")
		}))
		return writeText(filepath.Join(tmp, "more"), "bf16")
	}))
	require.Equal(t, map[string]string{"config.json": "f32"}, readAll(t, filepath.Join(parent, "qwen")))
	require.Equal(t, map[string]string{"config.json": "bf16", "more": "bf16"}, readAll(t, filepath.Join(parent, "qwen.bf16")))
	require.NoDirExists(t, leftover)
}

func TestSwap(t *testing.T) {
	parent := t.TempDir()
	a, b := filepath.Join(parent, "a"), filepath.Join(parent, "b")
	require.NoError(t, os.Mkdir(a, 0o755))
	require.NoError(t, os.Mkdir(b, 0o755))
	require.NoError(t, writeText(filepath.Join(a, "new"), ""))
	require.NoError(t, writeText(filepath.Join(b, "old"), ""))
	require.NoError(t, swap(a, b))
	require.Equal(t, map[string]string{"old": ""}, readAll(t, a))
	require.Equal(t, map[string]string{"new": ""}, readAll(t, b))
	require.Error(t, swap(filepath.Join(parent, "none"), b))
	require.Equal(t, map[string]string{"new": ""}, readAll(t, b))
}

// TestFullDisk: the operating system refuses to let a file grow, as a full disk does; the last good folder stays and
// nothing of the new one is left. The limit holds for a process, so the save runs in one of its own.
func TestFullDisk(t *testing.T) {
	const variable = "AGENTFLY_TEST_FULL_DISK"
	save := func(dir, version string, size int) error {
		return ReplaceDir(dir, func(tmp string) error {
			weights := constant("w", F32, []int{size}, make([]byte, 4*size))
			return errors.Join(writeText(filepath.Join(tmp, "config.json"), version), WriteSafetensors(filepath.Join(tmp, "model.safetensors"), nil, []Source{weights}))
		})
	}
	if dir := os.Getenv(variable); dir != "" {
		signal.Ignore(syscall.SIGXFSZ)
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 20, Max: 1 << 20}))
		err := save(dir, "2", 1<<20)
		require.ErrorIs(t, err, syscall.EFBIG)
		require.Equal(t, 0, strings.Count(err.Error(), "\n"))
		return
	}
	dir := filepath.Join(t.TempDir(), "last")
	require.NoError(t, save(dir, "1", 4))
	before := readAll(t, dir)
	child := exec.Command(os.Args[0], "-test.run", "^TestFullDisk$")
	child.Env = append(os.Environ(), variable+"="+dir)
	output, err := child.CombinedOutput()
	require.NoError(t, err, string(output))
	require.Equal(t, before, readAll(t, dir))
	entries, err := os.ReadDir(filepath.Dir(dir))
	require.NoError(t, err)
	require.Len(t, entries, 1)
}
