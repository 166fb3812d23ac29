package procgroup

import (
	"bytes"
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
	_, value, ok := strings.Cut(mark, "=")
	for range 10 { // what is killed may have started something meanwhile
		if !ok || len(collectAll(func(of string) bool { return of == value })) == 0 {
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
func Collect() []string { return collectAll(orphaned) }

// collectAll kills the processes of this user whose mark is one of those.
func collectAll(is func(mark string) bool) (killed []string) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() || !marked(pid, is) {
			continue
		}
		if name := collect(pid, is); name != "" {
			killed = append(killed, name)
		}
	}
	return killed
}

// collect kills a process; its descriptor makes sure that it is still the same one.
func collect(pid int, is func(mark string) bool) string {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil || !marked(pid, is) || unix.PidfdSendSignal(fd, syscall.SIGKILL, nil, 0) != nil {
		return ""
	}
	return fmt.Sprintf("%s (process %d)", strings.TrimSpace(string(name)), pid)
}

// marked tells whether a process of this user has one of those marks.
func marked(pid int, is func(mark string) bool) bool {
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // another user's cannot be read, but by root
	if err != nil {
		return false
	}
	if info, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil || !ours(info) {
		return false
	}
	for _, variable := range bytes.Split(environ, []byte{0}) {
		value, ok := strings.CutPrefix(string(variable), markName+"=")
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
