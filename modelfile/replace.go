package modelfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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
	tmp, err := os.MkdirTemp(parent, "."+base+".*.tmp")
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

// removeLeftovers deletes what a killed process left of an earlier replacement: the folders that MkdirTemp made, with a number in their names. The
// pattern alone also matches what is being written for base.f32.
func removeLeftovers(parent, base string) error {
	old, err := filepath.Glob(filepath.Join(escapeGlob(parent), "."+escapeGlob(base)+".*.tmp"))
	if err != nil {
		return fmt.Errorf("modelfile: %w", err)
	}
	for _, path := range old {
		number := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "."+base+"."), ".tmp")
		if strings.Trim(number, "0123456789") != "" {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("modelfile: %w", err)
		}
	}
	return nil
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
