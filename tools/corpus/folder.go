package corpus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/agentfly/agentfly/internal/filelock"
)

// manifestFile is written last: a folder without it is not whole.
const manifestFile = "manifest.json"

type manifest struct {
	Files map[string]fileSum `json:"files"` // by path below the folder
}

type fileSum struct {
	Size   int64  `json:"size"`
	CRC32C uint32 `json:"crc32c"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Folder returns the folder key of a cache. If it is missing, build fills a new folder, which takes its name once it is whole; if its
// checksums are wrong, warn is told in one line and it is built again. Two processes that need one folder build it once.
func Folder(ctx context.Context, cache, key string, warn func(text string), build func(dir string) error) (string, error) {
	dir := filepath.Join(cache, key)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("corpus: %w", err)
	}
	unlock, err := filelock.Wait(ctx, dir+".lock", "another process that builds the index")
	if err != nil {
		return "", fmt.Errorf("corpus: %w", err)
	}
	defer unlock()
	damage := check(ctx, dir)
	if damage == nil {
		return dir, nil
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if !errors.Is(damage, fs.ErrNotExist) && warn != nil {
		warn(fmt.Sprintf("corpus: the index in %s is damaged (%v); it is built again", dir, damage))
	}
	next := dir + ".tmp" // what a killed process left there is nobody's: this one has the lock
	for _, old := range []string{dir, next} {
		if err := os.RemoveAll(old); err != nil {
			return "", fmt.Errorf("corpus: %w", err)
		}
	}
	if err := os.Mkdir(next, 0o755); err != nil {
		return "", fmt.Errorf("corpus: %w", err)
	}
	err = build(next)
	if err == nil {
		err = seal(ctx, next)
	}
	if err == nil {
		err = os.Rename(next, dir)
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(next))
	}
	return dir, nil
}

// check tells what is wrong with a folder: fs.ErrNotExist where there is none.
func check(ctx context.Context, dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return fs.ErrNotExist
	}
	b, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if err != nil {
		return errors.New("no " + manifestFile)
	}
	var m manifest
	if err := json.Unmarshal(b, &m); err != nil || len(m.Files) == 0 {
		return errors.New(manifestFile + " cannot be read")
	}
	for name, want := range m.Files {
		got, err := sum(ctx, filepath.Join(dir, filepath.FromSlash(name)))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return errors.New(name + " is missing")
		case err != nil:
			return fmt.Errorf("%s: %s", name, reason(err)) // not %w: a missing file below is damage too
		case got.Size != want.Size:
			return fmt.Errorf("%s has %d bytes, not %d", name, got.Size, want.Size)
		case got != want:
			return fmt.Errorf("the checksum of %s is wrong", name)
		}
	}
	return nil
}

func reason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}

// seal writes the manifest. Nothing is synced: after a power cut the checksums tell.
func seal(ctx context.Context, dir string) error {
	m := manifest{map[string]fileSum{}}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		m.Files[filepath.ToSlash(name)], err = sum(ctx, path)
		return err
	})
	if err != nil {
		return fmt.Errorf("corpus: %w", err)
	}
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("corpus: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, manifestFile), append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("corpus: %w", err)
	}
	return nil
}

func sum(ctx context.Context, path string) (fileSum, error) {
	f, err := os.Open(path)
	if err != nil {
		return fileSum{}, err
	}
	defer f.Close()
	var s fileSum
	buffer := make([]byte, 1<<20)
	for {
		n, err := f.Read(buffer)
		s.Size += int64(n)
		s.CRC32C = crc32.Update(s.CRC32C, castagnoli, buffer[:n])
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return s, err
		}
		if ctx.Err() != nil {
			return s, ctx.Err()
		}
	}
}
