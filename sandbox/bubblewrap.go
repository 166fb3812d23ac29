//go:build linux

package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// nobody is who programs run as where this process is root's: the user of the same name, whom no file belongs to.
const nobody = 65534

// first is the tree's first process: it waits for the program, and reaps what is left to it. Its own words go nowhere.
const first = `exec 3>&2 2>/dev/null; "$@" 2>&3 3>&-; exit "$?"`

// before is what runs before bwrap. It makes the tree what the kernel kills first when memory is short; inside, /proc cannot be written, so
// that nothing takes that back. Then the program mount, which is $1 or empty, mounts the private folders as descriptor 7 says: bwrap's own
// cannot be bound in their number of files.
const before = `echo 1000 >/proc/self/oom_score_adj || exit 1
[ -z "$1" ] || "$1" -n -a -T /proc/self/fd/7 || exit 1
shift; exec "$@" 7<&-`

// rooms are where the private folders are mounted before bwrap binds them: folders that every kernel has and that no program is shown.
var rooms = map[string]string{"/tmp": "/sys/kernel", "/dev/shm": "/sys/devices", "/workspace": "/sys/class"}

// inodesPer is the room of a private folder for which it may have one file: an empty one takes half of it in the kernel.
const inodesPer = 2 * inodeBytes

// bubblewrap starts programs with bwrap. How they get their limits and lose their rights:
//
//	setpriv → sh → bwrap → [setpriv →] prlimit → sh → program
//
// The first setpriv forbids new privileges, because the program mount is setuid to the host's root, who is a user without rights in the
// namespace of a process of root. The first sh mounts the private folders; bwrap makes the namespaces and the file system, drops the capabilities, forbids new privileges
// and installs the seccomp filter; the second sh is the first process of the process namespace, with which the kernel ends all others.
//
// A process of root starts all of it as the user nobody in a user namespace whose root is nobody: with the rights of that root over the
// files of the host's root, which is user 1 there, bwrap reaches folders that only root can, and the program, which has no rights, does
// not; setpriv takes even the possibility of rights from it. Everything is one user, because bwrap's end must be able to signal the tree.
// RLIMIT_NPROC does not bind the host's root, and in a user namespace of its own it counts the processes of this tree alone (Linux 5.14).
//
// A process of another user mounts the private folders in a user namespace as well, within which bwrap makes one of its own. Where only
// bwrap may make them, as with some profiles of AppArmor, bwrap mounts the folders, and their files are counted by the watch.
type bubblewrap struct {
	bwrap, setpriv, prlimit, mount string
	nsenter                        string // "": nothing can be served inside
	filter                         []byte
	shownFilter                    []byte   // where folders of the host are shown
	base                           []string // arguments that every program has
	root                           bool
}

func openBubblewrap(ctx context.Context) (*Sandbox, error) {
	b := &bubblewrap{root: os.Geteuid() == 0}
	var err error
	if b.bwrap, err = exec.LookPath("bwrap"); err != nil {
		return nil, errors.New("bwrap is not installed; install the package bubblewrap")
	}
	if b.prlimit, err = inUsr("prlimit"); err != nil {
		return nil, err
	}
	if b.setpriv, err = inUsr("setpriv"); err != nil {
		return nil, err
	}
	if b.mount, err = inUsr("mount"); err != nil {
		return nil, err
	}
	b.nsenter, _ = inUsr("nsenter")
	if b.filter, err = filter(confinement{families: []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6}}); err != nil {
		return nil, err
	}
	// A folder that is read-only keeps nobody from connecting to a service of the host whose named socket lies in it.
	if b.shownFilter, err = filter(confinement{families: []uint32{unix.AF_INET, unix.AF_INET6}}); err != nil {
		return nil, err
	}
	b.base = b.arguments()
	s := &Sandbox{kind: Bubblewrap, command: b.command}
	err = s.prove(ctx)
	if err != nil && !b.root {
		b.mount = ""
		if s.prove(ctx) == nil {
			return s, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// inUsr finds a program that is inside every sandbox.
func inUsr(name string) (string, error) {
	for _, dir := range []string{"/usr/bin/", "/bin/", "/usr/sbin/", "/sbin/"} {
		if _, err := os.Stat(dir + name); err == nil {
			return dir + name, nil
		}
	}
	return "", fmt.Errorf("%s is not installed; install the packages util-linux and mount", name)
}

// arguments are those of bwrap that every program has, up to what it binds.
func (b *bubblewrap) arguments() []string {
	args := []string{
		"--json-status-fd", "3", "--seccomp", "4",
		"--die-with-parent", "--new-session", "--as-pid-1", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
		"--unshare-cgroup-try", "--hostname", "sandbox", "--cap-drop", "ALL",
	}
	if b.root {
		args = append(args, "--cap-add", "CAP_SETPCAP") // for setpriv
	} else {
		args = append(args, "--unshare-user", "--uid", strconv.Itoa(nobody), "--gid", strconv.Itoa(nobody))
	}
	args = append(args, "--ro-bind", "/usr", "/usr")
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		if target, err := os.Readlink(dir); err == nil {
			args = append(args, "--symlink", target, dir)
		} else if _, err := os.Stat(dir); err == nil {
			args = append(args, "--ro-bind", dir, dir)
		}
	}
	args = append(args,
		"--perms", "0644", "--file", "5", "/etc/passwd", "--perms", "0644", "--file", "6", "/etc/group",
		"--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache", "--ro-bind-try", "/etc/alternatives", "/etc/alternatives",
		"--proc", "/proc", "--dev", "/dev")
	// What of /proc tells of the machine or its kernel.
	for _, file := range []string{"cmdline", "config.gz", "kallsyms", "key-users", "keys", "modules", "timer_list"} {
		if _, err := os.Stat("/proc/" + file); err == nil {
			args = append(args, "--ro-bind", "/dev/null", "/proc/"+file)
		}
	}
	return args
}

const (
	passwd = "nobody:x:0:0::/workspace:/bin/sh\nnobody:x:65534:65534::/workspace:/bin/sh\n"
	group  = "nogroup:x:0:\nnogroup:x:65534:\n"
)

// command is a program's bwrap with its descriptors: 3 status, 4 filter, 5 passwd, 6 group, 7 what is mounted before, and 8 for which the program waits
// where it is served.
func (b *bubblewrap) command(p Program, l Limits) (out *launch, err error) {
	out = &launch{network: true}
	defer func() {
		if err != nil {
			out.close()
		}
	}()
	status, theirs, err := os.Pipe()
	if err != nil {
		return out, err
	}
	out.status, out.theirs = status, []*os.File{theirs}
	private, args, err := b.files(append([]string{}, b.base...), p, l)
	if err != nil {
		return out, err
	}
	seccomp := b.filter
	if p.shows() {
		seccomp = b.shownFilter
	}
	for _, data := range [][]byte{seccomp, []byte(passwd), []byte(group)} {
		f, err := filled(data)
		if err != nil {
			return out, err
		}
		out.theirs = append(out.theirs, f)
	}
	table, err := inMemory(private) // mount reads no pipe
	if err != nil {
		return out, err
	}
	out.theirs = append(out.theirs, table)
	if p.Serve != nil {
		if err := b.hold(out, p.Port); err != nil {
			return out, err
		}
		args = append(args, "--block-fd", "8")
	}
	args = append(args, "--clearenv")
	for _, v := range environment(p, "/workspace") {
		name, value, _ := strings.Cut(v, "=")
		args = append(args, "--setenv", name, value)
	}
	args = append(args, "--")
	if b.root {
		args = append(args, b.setpriv, "--inh-caps", "-all", "--ambient-caps", "-all", "--bounding-set", "-all",
			"--securebits", "+noroot,+noroot_locked", "--no-new-privs", "--")
	}
	args = append(append(args, b.prlimit), rlimitArguments(l)...)
	args = append(args, "--", "/bin/sh", "-c", first, "sh")
	command := append([]string{"--no-new-privs", "--", "/bin/sh", "-c", before, "sh", b.mount, b.bwrap}, args...)
	out.cmd = exec.Command(b.setpriv, append(command, p.Args...)...)
	if b.mount == "" {
		out.inodes = privateInodes
	}
	out.cmd.Env = []string{}
	out.cmd.Dir = "/"
	out.cmd.ExtraFiles = append([]*os.File{}, out.theirs...)
	out.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if b.root {
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: nobody, Size: 1}, {ContainerID: 1, HostID: 0, Size: 1}}
		out.cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
		out.cmd.SysProcAttr.UidMappings, out.cmd.SysProcAttr.GidMappings = ids, ids
		out.cmd.SysProcAttr.GidMappingsEnableSetgroups = true
		out.cmd.SysProcAttr.Credential = &syscall.Credential{} // of the namespace
	} else if b.mount != "" {
		out.cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
		out.cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		out.cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	return out, nil
}

// hold has the program wait until there is a listener on its loopback.
func (b *bubblewrap) hold(out *launch, port int) error {
	if b.nsenter == "" {
		return errors.New("nsenter is not installed, without which nothing is served to a program; install the package util-linux")
	}
	waits, goes, err := os.Pipe()
	if err != nil {
		return err
	}
	out.theirs, out.goes = append(out.theirs, waits), goes
	out.listen = func(ctx context.Context, tree int) (net.Listener, error) { return b.loopback(ctx, tree, port) }
	return nil
}

// privateInodes is what the files of the private folders take beside their content.
func privateInodes(pids []int) (int64, error) {
	var sum int64
	for _, dir := range []string{"/tmp", "/dev/shm", "/workspace"} {
		var st unix.Statfs_t
		if err := unix.Statfs("/proc/"+strconv.Itoa(pids[0])+"/root"+dir, &st); !gone(err) {
			return 0, err
		}
		if st.Type == unix.TMPFS_MAGIC {
			sum += int64(st.Files-st.Ffree) * inodeBytes
		}
	}
	return sum, nil
}

// inMemory is a file that has no name.
func inMemory(data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("private", unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate("private", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "private")
	if _, err := f.Write(data); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// files are the writable folders and those of the program. Every writable place has a size: what is left of the root and of /dev is
// made read-only last.
// private lists what is mounted before bwrap, as fstab does.
func (b *bubblewrap) files(args []string, p Program, l Limits) (private []byte, _ []string, _ error) {
	tmpfs := func(path string, size int64) {
		size = max(size, 4096)
		if b.mount == "" {
			args = append(args, "--perms", "1777", "--size", strconv.FormatInt(size, 10), "--tmpfs", path)
			return
		}
		private = fmt.Appendf(private, "private %s tmpfs size=%d,nr_inodes=%d,mode=1777,nosuid,nodev 0 0\n", rooms[path], size, max(size/inodesPer, 16))
		args = append(args, "--bind", rooms[path], path)
	}
	tmpfs("/tmp", l.Disk*3/8)
	tmpfs("/dev/shm", l.Disk/8)
	if p.Workspace == "" {
		tmpfs("/workspace", l.Disk/2)
	} else {
		if b.root {
			if err := os.Chown(p.Workspace, nobody, nobody); err != nil {
				return nil, nil, fmt.Errorf("give the workspace to the user nobody: %w", err)
			}
		}
		args = append(args, "--bind", p.Workspace, "/workspace")
	}
	bind := func(how, host, inside string) {
		for i := 1; i < len(inside); i++ { // bwrap makes the folders above for itself alone
			if inside[i] == '/' {
				args = append(args, "--perms", "0755", "--dir", inside[:i])
			}
		}
		args = append(args, how, host, inside)
	}
	for _, path := range p.ReadOnly {
		path = filepath.Clean(path)
		if path == "/" {
			return nil, nil, errors.New("the whole file system cannot be readable inside; name folders")
		}
		bind("--ro-bind", path, path)
	}
	for _, m := range p.Mounts {
		if !m.Writable {
			bind("--ro-bind", m.Host, m.Inside)
			continue
		}
		if b.root {
			if err := os.Chown(m.Host, nobody, nobody); err != nil {
				return nil, nil, fmt.Errorf("give %s to the user nobody: %w", m.Inside, err)
			}
		}
		bind("--bind", m.Host, m.Inside)
	}
	return private, append(args, "--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/workspace"), nil
}

// environment is that of a program whose home is given.
func environment(p Program, home string) []string {
	out := []string{"PATH=" + Path, "HOME=" + home, "LANG=C.UTF-8"}
	for _, v := range p.Env {
		name, _, found := strings.Cut(v, "=")
		if found && name != "" {
			out = append(out, v)
		}
	}
	return out
}

// rlimitArguments are those of prlimit; a limit that is already lower stays.
func rlimitArguments(l Limits) []string {
	var out []string
	for _, r := range rlimits(l) {
		out = append(out, fmt.Sprintf("--%s=%d:%d", r.name, r.soft, r.hard))
	}
	return out
}

type rlimit struct {
	name       string // of prlimit
	resource   int
	soft, hard uint64
}

// rlimits are those of every process, none above what this process may set.
func rlimits(l Limits) []rlimit {
	seconds := uint64((l.CPU + time.Second - 1) / time.Second)
	all := []rlimit{
		{"cpu", unix.RLIMIT_CPU, seconds, seconds + 1}, // the signal of the hard limit cannot be caught
		{"as", unix.RLIMIT_AS, uint64(cmp.Or(l.Reserved, l.Memory)), uint64(cmp.Or(l.Reserved, l.Memory))},
		{"nproc", unix.RLIMIT_NPROC, uint64(l.Processes), uint64(l.Processes)},
		{"fsize", unix.RLIMIT_FSIZE, uint64(l.Disk), uint64(l.Disk)},
		{"nofile", unix.RLIMIT_NOFILE, uint64(l.OpenFiles), uint64(l.OpenFiles)},
		{"core", unix.RLIMIT_CORE, 0, 0},
		{"memlock", unix.RLIMIT_MEMLOCK, 0, 0},
		{"msgqueue", unix.RLIMIT_MSGQUEUE, 0, 0},
		{"sigpending", unix.RLIMIT_SIGPENDING, 256, 256}, // timers too; counted over the user with landlock
		{"rtprio", unix.RLIMIT_RTPRIO, 0, 0},
		{"nice", unix.RLIMIT_NICE, 0, 0},
	}
	for i := range all {
		var now unix.Rlimit
		if unix.Getrlimit(all[i].resource, &now) == nil {
			all[i].hard = min(all[i].hard, now.Max)
			all[i].soft = min(all[i].soft, all[i].hard)
		}
	}
	return all
}
