package modelfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ReplaceDir makes dir hold what write puts into the folder it is given, all of it or nothing: until everything is
// written and on disk, dir is as it was. A folder that is not empty and holds no config.json is not replaced, because
// it is not a model's. Two calls for one dir must not overlap.
func ReplaceDir(dir string, write func(tmp string) error) (err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("modelfile: %w", err)
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil { // replace what a link points to, not the link
		dir = real
	}
	if err := PutBack(dir); err != nil {
		return err
	}
	exists, err := replaceable(dir)
	if err != nil {
		return err
	}
	parent, base := filepath.Split(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fmt.Errorf("modelfile: %w", err)
	}
	if err := removeLeftovers(parent, base); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(parent, "."+base+".*"+unfinished)
	if err != nil {
		return fmt.Errorf("modelfile: %w", err)
	}
	defer func() { // the unfinished new folder, or the old one once they are exchanged
		if e := os.RemoveAll(tmp); e != nil && err == nil {
			err = fmt.Errorf("modelfile: %w", e)
		}
	}()
	if err := write(tmp); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return fmt.Errorf("modelfile: %w", err)
	}
	if err := SyncDir(tmp); err != nil {
		return err
	}
	if exists {
		err = exchange(tmp, dir)
	} else {
		err = os.Rename(tmp, dir)
	}
	if err != nil {
		return fmt.Errorf("modelfile: replacing %s: %w", dir, err)
	}
	return SyncDir(parent)
}

// replaceable tells whether dir exists; it fails where dir must not be replaced.
func replaceable(dir string) (exists bool, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("modelfile: %w", err)
	}
	if len(entries) == 0 {
		return true, nil
	}
	if _, err := os.Stat(filepath.Join(dir, "config.json")); err != nil {
		return false, fmt.Errorf("modelfile: %s is neither empty nor a model's folder; name another one", dir)
	}
	return true, nil
}

// PutBack gives dir the content that it had before a replacement whose process was killed between the renames of swap. Where dir holds anything it
// stays as it is.
func PutBack(dir string) error {
	parent, base := filepath.Split(dir)
	aside, err := leftovers(parent, base, movedAside)
	if err != nil || len(aside) == 0 {
		return err
	}
	if entries, err := os.ReadDir(dir); len(entries) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	newest, at := "", time.Time{}
	for _, path := range aside {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("modelfile: %w", err)
		}
		if newest == "" || info.ModTime().After(at) {
			newest, at = path, info.ModTime()
		}
	}
	if err := os.Rename(newest, dir); err != nil {
		return fmt.Errorf("modelfile: %w", err)
	}
	return SyncDir(filepath.Clean(parent))
}

// removeLeftovers deletes what a killed process left of an earlier replacement.
func removeLeftovers(parent, base string) error {
	for _, ending := range []string{unfinished, movedAside} {
		all, err := leftovers(parent, base, ending)
		if err != nil {
			return err
		}
		for _, path := range all {
			if err := os.RemoveAll(path); err != nil {
				return fmt.Errorf("modelfile: %w", err)
			}
		}
	}
	return nil
}

// Endings of the hidden folders beside one that is replaced.
const (
	unfinished = ".tmp"     // is being written
	movedAside = ".tmp.old" // was in the place that it takes, in swap
)

// leftovers are the folders with an ending that a killed process left of replacements: those that MkdirTemp named, with a number. The pattern alone
// also matches what is being written for base.f32.
func leftovers(parent, base, ending string) (out []string, err error) {
	all, err := filepath.Glob(filepath.Join(escapeGlob(parent), "."+escapeGlob(base)+".*"+ending))
	if err != nil {
		return nil, fmt.Errorf("modelfile: %w", err)
	}
	for _, path := range all {
		number := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "."+base+"."), ending)
		if strings.Trim(number, "0123456789") == "" {
			out = append(out, path)
		}
	}
	return out, nil
}

// swap puts tmp in dir's place by two renames; between them dir does not exist, but its content does, beside it.
func swap(tmp, dir string) error {
	old := tmp + ".old"
	if err := os.Rename(dir, old); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return errors.Join(err, os.Rename(old, dir))
	}
	return os.Rename(old, tmp) // the caller removes it
}
