//go:build linux

package sandbox

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"
)

// helperName is the name under which this program starts itself for sandboxes without bubblewrap: once to supervise a tree, of which it is
// the reaper, and once more to become the program. A sandbox
// with bubblewrap starts it to listen on the loopback inside.
const helperName = "agentfly-sandbox"

// listenWord has the helper listen in the network that it was started in.
const listenWord = "listen"

// init is the helper's main: every program that can open a sandbox can be it, also a test. The name is no program's.
func init() {
	if len(os.Args) == 4 && os.Args[1] == helperName && os.Args[2] == listenWord { // nsenter gives a program its path as name
		if err := handOver(3, os.Args[3]); err != nil {
			fmt.Fprintf(os.Stderr, "sandbox: %v\n", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) != 2 || os.Args[0] != helperName {
		return
	}
	var err error
	switch os.Args[1] {
	case "supervise":
		err = supervise(os.NewFile(3, "status"), os.NewFile(4, "control"), os.NewFile(5, "orders")) // 6 is the lock of its folder
	case "become":
		err = become(os.NewFile(3, "orders"))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "sandbox: %v\n", err)
		os.Exit(127)
	}
	os.Exit(0)
}

// orders are what the helper does.
type orders struct {
	Args, Env          []string
	Folder             string
	Limits             Limits
	Filter             []byte   // seccomp program; nil: no confinement
	Writable, ReadOnly []string // folders
	Own                string   // folder that is removed at the end
	User               int      // to become; 0: stay
}

// supervise starts the program and waits for all its descendants. It kills them when the program ends, and when control is closed, which is
// so as well when the starting process dies; then nobody else removes the folder.
func supervise(status, control, config *os.File) error {
	var o orders // which the program's process reads too, from the beginning
	if err := json.NewDecoder(io.NewSectionReader(config, 0, 1<<40)).Decode(&o); err != nil {
		return err
	}
	// What is left to a reaper belongs to its first thread, which runs this.
	children, err := os.Open(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	c := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{helperName, "become"}, Env: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		ExtraFiles: []*os.File{config}, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := c.Start(); err != nil {
		return err
	}
	for _, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} { // the program's alone
		_ = f.Close()
	}
	if _, err := fmt.Fprintf(status, "{\"child-pid\": %d}\n", c.Process.Pid); err != nil {
		return err
	}
	go func() {
		_, _ = control.Read(make([]byte, 1))
		killAll(children)
	}()
	code := 127
	for {
		var st unix.WaitStatus
		pid, err := unix.Wait4(-1, &st, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil: // nobody is left
			_ = RemoveAll(o.Own)
			_, err = fmt.Fprintf(status, "{\"exit-code\": %d}\n", code)
			return err
		case pid == c.Process.Pid:
			code = st.ExitStatus()
			if st.Signaled() {
				code = 128 + int(st.Signal())
			}
			go killAll(children)
		}
	}
}

// killAll kills the descendants of this process until there are none. It stops them first: who is stopped makes no new ones, and still
// counts. Where it cannot look for them, having no descriptor left, it kills its own children, whose file is open, and so those who become
// its children by that, until it has none.
func killAll(children *os.File) {
	for {
		var stopped []int
		for {
			pids, err := descendants(os.Getpid())
			if err != nil {
				stopped = own(children)
				if len(stopped) == 0 {
					return
				}
				break
			}
			if len(pids) == 0 {
				return
			}
			slices.Sort(pids)
			for _, pid := range pids {
				_ = unix.Kill(pid, unix.SIGSTOP)
			}
			if slices.Equal(pids, stopped) {
				break
			}
			stopped = pids
		}
		for _, pid := range stopped {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		time.Sleep(time.Millisecond)
	}
}

// own are the children of this process.
func own(children *os.File) []int {
	text := make([]byte, 64<<10) // more are killed next time
	n, _ := children.ReadAt(text, 0)
	return numbers(string(text[:n]))
}

// become turns this process into the program.
func become(config *os.File) error {
	runtime.LockOSThread() // what holds one thread holds the program that it becomes
	var o orders
	if err := json.NewDecoder(config).Decode(&o); err != nil {
		return err
	}
	processes := tasks(cmp.Or(o.User, os.Getuid())) // which cannot be counted from within
	var unshown error
	if o.User != 0 {
		unshown = show(o)
	}
	if err := os.Chdir(o.Folder); err != nil {
		return fmt.Errorf("enter the workspace: %w", err)
	}
	path, err := lookPath(o.Args[0], o.Env)
	if err != nil {
		return err
	}
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	if o.Filter != nil {
		if err := confine(o); err != nil {
			return err
		}
		if err := reach(o, path, unshown); err != nil {
			return err
		}
	}
	if err := unix.CloseRange(3, 1<<30, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return err
	}
	// prlimit sets the limits: this process could not live with that of memory.
	prlimit, err := inUsr("prlimit")
	if err != nil {
		return err
	}
	if o.Limits.Processes += processes; os.Getuid() == 0 {
		o.Limits.Processes = 1 << 20 // it does not bind root
	}
	args := append(append([]string{prlimit}, rlimitArguments(o.Limits)...), "--", path)
	args = append(args, o.Args[1:]...)
	if o.Filter != nil {
		if err := install(o.Filter); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: %w", prlimit, unix.Exec(prlimit, args, o.Env))
}

// confine gives up rights, in an order in which each step may still be taken.
func confine(o orders) error {
	if o.User != 0 {
		for c := range uintptr(64) { // of capabilities that the kernel has
			if unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0) != nil {
				break
			}
		}
	}
	rules := []landlock.Rule{
		landlock.RODirs("/usr"), landlock.RODirs("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/alternatives", "/proc/self").IgnoreIfMissing(),
		landlock.ROFiles("/etc/ld.so.cache").IgnoreIfMissing(),
		landlock.RWFiles("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom").IgnoreIfMissing(),
		landlock.RWDirs(o.Writable...),
	}
	for _, path := range o.ReadOnly {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return err
		case info.IsDir():
			rules = append(rules, landlock.RODirs(path))
		default:
			rules = append(rules, landlock.ROFiles(path))
		}
	}
	if err := landlock.V6.Restrict(rules...); err != nil {
		return err
	}
	if o.User != 0 {
		if err := syscall.Setgroups(nil); err != nil {
			return err
		}
		if err := syscall.Setgid(o.User); err != nil {
			return err
		}
		if err := syscall.Setuid(o.User); err != nil {
			return err
		}
	}
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

// install makes the seccomp program hold this thread.
func install(filter []byte) error {
	instructions := make([]unix.SockFilter, len(filter)/8)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&instructions[0])), len(filter)), filter)
	program := unix.SockFprog{Len: uint16(len(instructions)), Filter: &instructions[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(instructions)
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}

// lookPath finds a program on the PATH of its own environment.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	dirs := ""
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, "PATH="); ok {
			dirs = value
		}
	}
	for _, dir := range filepath.SplitList(dirs) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: not found", name)
}

// tasks counts the threads of a user.
func tasks(user int) int {
	n := 0
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range processes {
		var st syscall.Stat_t
		if syscall.Stat(dir, &st) == nil && int(st.Uid) == user {
			if threads, err := os.ReadDir(dir + "/task"); err == nil {
				n += len(threads)
			}
		}
	}
	return n
}
