package checkpoint

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Checksums are the CRC-32C of every file below a checkpoint's folder, in hexadecimal, by path relative to it.
func Checksums(dir string) (map[string]string, error) {
	names, err := Files(dir)
	sums := map[string]string{}
	for _, name := range names {
		if sums[filepath.ToSlash(name)], err = checksum(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	return sums, err
}

// Files are the paths of the files below a folder, relative to it.
func Files(dir string) (names []string, err error) {
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		names = append(names, name)
		return err
	})
	return names, err
}

func checksum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close() // nothing was written
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%08x", h.Sum32()), nil
}

// remedy says what to do about a checkpoint in a folder that cannot be continued from.
func remedy(folder string) string {
	return fmt.Sprintf("point %s to the checkpoint before it, or begin a new run", filepath.Join(folder, Last))
}

// Verify reads every file of a checkpoint again and holds it against its checksum. Files that somebody added are left alone.
func Verify(dir string, sums map[string]string) error {
	for name, want := range sums {
		path := filepath.Join(dir, filepath.FromSlash(name))
		switch got, err := checksum(path); {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("orchestrator: checkpoint: %s is gone: %s", path, remedy(filepath.Dir(dir)))
		case err != nil:
			return fmt.Errorf("orchestrator: checkpoint: %w", err)
		case got != want:
			return fmt.Errorf("orchestrator: checkpoint: %s is not the file that was written (CRC-32C %s, then %s): %s", path, got, want, remedy(filepath.Dir(dir)))
		}
	}
	return nil
}
