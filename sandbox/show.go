//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// show makes paths of the program reachable for the user that it runs as, where folders above them are closed to that user: a Python
// under root's home, say. The closed folder is covered, for this process alone, by one that holds nothing but the path. That takes the
// right to mount; its error says what was lacking, and is of interest where reach finds that a path cannot be reached.
func show(o orders) error {
	type shown struct {
		path, closed string
		writable     bool
		mount        int // descriptor
	}
	var all []shown
	add := func(path string, writable bool) error {
		paths := []string{filepath.Clean(path)}
		if real, err := filepath.EvalSymlinks(path); err == nil && real != paths[0] {
			paths = append(paths, real)
		}
		for _, path := range paths {
			closed, err := closedAbove(path)
			if err != nil {
				return err
			}
			if closed != "" && !slices.ContainsFunc(all, func(s shown) bool { return s.path == path }) {
				all = append(all, shown{path: path, closed: closed, writable: writable})
			}
		}
		return nil
	}
	for _, path := range o.Writable {
		if err := add(path, true); err != nil {
			return err
		}
	}
	for _, path := range o.ReadOnly {
		if err := add(path, false); err != nil {
			return err
		}
	}
	if len(all) == 0 {
		return nil
	}
	defer unix.Umask(unix.Umask(0o022)) // of the folders that are made
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("no mount namespace can be made: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts private: %w", err)
	}
	for i, s := range all { // before one of them is covered
		var err error
		if all[i].mount, err = unix.OpenTree(unix.AT_FDCWD, s.path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE); err != nil {
			return fmt.Errorf("show %s: %w", s.path, err)
		}
		defer unix.Close(all[i].mount)
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
		if !s.writable {
			attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
		}
		if err := unix.MountSetattr(all[i].mount, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
			return fmt.Errorf("show %s: %w", s.path, err)
		}
	}
	// A path within another one comes after it.
	slices.SortFunc(all, func(a, b shown) int { return strings.Compare(a.path, b.path) })
	var covered []string
	for _, s := range all {
		if !slices.Contains(covered, s.closed) {
			covered = append(covered, s.closed)
			if err := unix.Mount("none", s.closed, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m,nr_inodes=4096"); err != nil {
				return fmt.Errorf("cover %s: %w", s.closed, err)
			}
		}
		if err := place(s.path, s.mount); err != nil {
			return fmt.Errorf("show %s: %w", s.path, err)
		}
	}
	for _, path := range covered {
		if err := unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
			return fmt.Errorf("cover %s: %w", path, err)
		}
	}
	return nil
}

// place mounts a tree at its path, of which the last parts are missing in a folder that covers another.
func place(path string, tree int) error {
	var st unix.Stat_t
	if err := unix.Fstat(tree, &st); err != nil {
		return err
	}
	if _, err := os.Lstat(path); err != nil {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			err = os.Mkdir(path, 0o755)
		} else {
			err = os.WriteFile(path, nil, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return unix.MoveMount(tree, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// closedAbove is the topmost folder above a path that is closed to users whom nothing belongs to; "": none.
func closedAbove(path string) (string, error) {
	for i := 1; i < len(path); i++ {
		if path[i] != '/' {
			continue
		}
		info, err := os.Stat(path[:i])
		if err != nil {
			return "", err
		}
		if info.Mode().Perm()&0o001 == 0 {
			return path[:i], nil
		}
	}
	return "", nil
}

// reach tells whether the program's user may read what it is given and run what it should; unshown says why it was not made to.
func reach(o orders, program string, unshown error) error {
	for _, path := range append(slices.Clone(o.ReadOnly), o.Writable...) {
		mode := uint32(unix.R_OK)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			mode |= unix.X_OK
		}
		if err := unix.Access(path, mode); err != nil {
			return unreachable(o, path, "read", errors.Join(err, unshown))
		}
	}
	if err := unix.Access(program, unix.X_OK); errors.Is(err, unix.EACCES) {
		return unreachable(o, program, "run", errors.Join(err, unshown))
	}
	return nil
}

func unreachable(o orders, path, verb string, err error) error {
	if o.User == 0 {
		return fmt.Errorf("this user cannot %s %s: %w", verb, path, err)
	}
	why := strings.ReplaceAll(err.Error(), "\n", "; ")
	return fmt.Errorf("the user nobody (%d), as whom programs of root run, cannot %s %s (%s): open it and the folders above it to other users, "+
		"use what lies under /usr, start agentfly as the user whom it belongs to, or install bubblewrap", o.User, verb, path, why)
}
