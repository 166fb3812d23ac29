package procgroup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// markName is the environment variable by which a later start finds what a process that was killed left: everything that a program starts inherits it,
// also where it leaves its process group.
const markName = "AGENTFLY_OWNER"

// namespace names the space of process numbers: a number means nothing in another one, such as a container's.
var namespace = sync.OnceValue(func() string {
	name, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return name
})

// marks counts those of this process.
var marks atomic.Int64

// Mark is a variable NAME=value, another one each time, for a program that must not outlive this process; "": the system cannot tell.
func Mark() string {
	started, ok := startOf(os.Getpid())
	if !ok || namespace() == "" {
		return ""
	}
	return fmt.Sprintf("%s=%s/%d/%s/%d", markName, namespace(), os.Getpid(), started, marks.Add(1))
}

// CollectMarked kills everything that has a mark: what a program started that left its process group.
func CollectMarked(mark string) {
	if name, value, ok := strings.Cut(mark, "="); ok {
		CollectBearers(name, value)
	}
}

// CollectBearers kills every process of this user that was started with a variable of that value, but for this one and its ancestors: what a program
// starts inherits its variables, also where it leaves its process group. A process that was started with an environment of its own is not found.
func CollectBearers(name, value string) {
	for range 10 { // what is killed may have started something meanwhile
		if len(collectAll(name, func(of string) bool { return of == value })) == 0 {
			return
		}
	}
}

// startOf is when a process began, in ticks since the system did: with its number it names the process.
func startOf(pid int) (string, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" { // after the name: field 22 of the line
		return "", false
	}
	return fields[19], true
}

// Collect kills what processes that are gone left behind of the programs that had their Mark, and says what that was.
func Collect() []string { return collectAll(markName, orphaned) }

// collectAll kills the processes of this user whose variable of that name has one of those values. This process and its ancestors are spared: they may
// have inherited it, where a program that has the variable started this one.
func collectAll(variable string, is func(value string) bool) (killed []string) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	spared := lineage(os.Getpid())
	for _, dir := range all {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || spared[pid] || !marked(pid, variable, is) {
			continue
		}
		if name := collect(pid, variable, is); name != "" {
			killed = append(killed, name)
		}
	}
	return killed
}

// lineage is a process with its ancestors.
func lineage(pid int) map[int]bool {
	out := map[int]bool{}
	for pid > 0 && !out[pid] {
		out[pid] = true
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			break
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // after the name: field 4 of the line is the parent's number
		if len(fields) < 2 {
			break
		}
		pid, _ = strconv.Atoi(fields[1])
	}
	return out
}

// collect kills a process; its descriptor makes sure that it is still the same one. A kernel before 5.3 has none: there its number and start must do.
func collect(pid int, variable string, is func(value string) bool) string {
	kill := func() error { return syscall.Kill(pid, syscall.SIGKILL) }
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case err == nil:
		defer unix.Close(fd)
		kill = func() error { return unix.PidfdSendSignal(fd, syscall.SIGKILL, nil, 0) }
	case !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM):
		return ""
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil || !marked(pid, variable, is) || kill() != nil {
		return ""
	}
	return fmt.Sprintf("%s (process %d)", strings.TrimSpace(string(name)), pid)
}

// marked tells whether a process of this user has the variable with one of those values.
func marked(pid int, name string, is func(value string) bool) bool {
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // another user's cannot be read, but by root
	if err != nil {
		return false
	}
	if info, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil || !ours(info) {
		return false
	}
	for _, variable := range bytes.Split(environ, []byte{0}) {
		value, ok := strings.CutPrefix(string(variable), name+"=")
		if ok && is(value) {
			return true
		}
	}
	return false
}

// orphaned tells whether the process is gone that gave a mark.
func orphaned(mark string) bool {
	parts := strings.Split(mark, "/")
	if len(parts) != 4 || parts[0] != namespace() {
		return false
	}
	owner, err := strconv.Atoi(parts[1])
	if err != nil || owner <= 0 {
		return false
	}
	started, alive := startOf(owner)
	return !alive || started != parts[2]
}

func ours(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
