package mcp

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// killMarked kills every process whose environment has the mark: what a server started and what then left its process group. They may
// start others meanwhile, so it looks until there are none.
func killMarked(mark string) {
	for range 100 {
		found := false
		dirs, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range dirs {
			if !hasMark(dir, mark) {
				continue
			}
			pid, _ := strconv.Atoi(filepath.Base(dir))
			p, err := os.FindProcess(pid) // holds on to the process, whoever gets its number later
			if err != nil {
				continue
			}
			if hasMark(dir, mark) {
				found = p.Kill() == nil || found
			}
			_ = p.Release()
		}
		if !found {
			return
		}
	}
}

// hasMark is false for a process that has ended and is not reaped: it has no environment any more.
func hasMark(dir, mark string) bool {
	environment, err := os.ReadFile(filepath.Join(dir, "environ"))
	return err == nil && bytes.Contains(environment, []byte(mark))
}
