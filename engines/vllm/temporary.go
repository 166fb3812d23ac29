package vllm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// TempPattern is a pattern for os.MkdirTemp and os.CreateTemp that names this machine and process: what a killed one leaves
// behind is found by it, see RemoveStale.
func TempPattern(kind string) string {
	return fmt.Sprintf("%s%d-%s-*", tempPrefix(kind), os.Getpid(), hostName())
}

func tempPrefix(kind string) string { return "agentfly-" + kind + "-" }

// hostName keeps a process from judging those of other machines that share the folder.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return strings.ReplaceAll(name, "*", "_")
}

// RemoveStale removes what processes of this machine that are no more made in a folder with TempPattern(kind), and returns
// the names.
func RemoveStale(folder, kind string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var removed []string
	var errs []error
	for _, entry := range entries {
		pid, host, ok := cutTemp(entry.Name(), kind)
		if !ok || host != hostName() || alive(pid) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(folder, entry.Name())); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, entry.Name())
	}
	return removed, errors.Join(errs...)
}

// cutTemp reads a name that was made with TempPattern(kind). Its last part, after the host, are os.MkdirTemp's random digits.
func cutTemp(name, kind string) (pid int, host string, ok bool) {
	rest, ok := strings.CutPrefix(name, tempPrefix(kind))
	number, rest, _ := strings.Cut(rest, "-")
	end := strings.LastIndexByte(rest, '-')
	pid, err := strconv.Atoi(number)
	if !ok || err != nil || pid <= 0 || end < 0 {
		return 0, "", false
	}
	_, err = strconv.ParseUint(rest[end+1:], 10, 64)
	return pid, rest[:end], err == nil
}

// alive tells whether a process exists; one that belongs to somebody else does.
func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	err = p.Signal(syscall.Signal(0))
	return !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, syscall.ESRCH)
}
