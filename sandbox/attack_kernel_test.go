//go:build linux

package sandbox

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// eachKind runs an attack in every kind of sandbox that this machine can open.
func eachKind(t *testing.T, f func(t *testing.T, s *Sandbox)) {
	t.Run(Bubblewrap, func(t *testing.T) { f(t, open(t)) })
	t.Run(Landlock, func(t *testing.T) { f(t, openFallback(t)) })
}

// systemCalls is what a Python program needs to make them by number.
const systemCalls = `
import platform
machine = platform.machine()
def number(x86_64, aarch64=None):
    return x86_64 if machine == "x86_64" else aarch64
def call(name, n, *a):
    if n is None: return
    ctypes.set_errno(0)
    def f():
        r = libc.syscall(n, *[x if isinstance(x, (bytes, ctypes.Array, ctypes.Structure)) else ctypes.c_long(x) for x in a])
        if r == -1: raise OSError(ctypes.get_errno(), name)
        return r
    return attempt(name, f)
`

// System V objects, message queues and their siblings outlive the process that made them, and take memory of the kernel that no rlimit
// counts. With landlock they are the machine's, so that the calls that use what another made are refused too.
func TestAttackKernelMemory(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Sandbox) {
		before := systemV(t)
		r := attack(t, s, python(systemCalls+`
buffer = ctypes.create_string_buffer(4096)
for i in range(3):
    call("semget", number(64, 190), 0, 32000, 0o1600)
    call("msgget", number(68, 186), 0, 0o1600)
    call("shmget", number(29, 194), 0, 1 << 20, 0o1600)
    call("mq_open", number(240, 180), b"agentfly", os.O_CREAT | os.O_RDWR, 0o600, 0)
call("mq_unlink", number(241, 181), b"agentfly")
for name, n, a in [("semop", number(65, 193), (0, buffer, 1)), ("semctl", number(66, 191), (0, 0, 3, buffer)), ("semtimedop", number(220, 192), (0, buffer, 1, 0)),
                   ("msgsnd", number(69, 189), (0, buffer, 1, 0o4000)), ("msgrcv", number(70, 188), (0, buffer, 1, 0, 0o4000)), ("msgctl", number(71, 187), (0, 3, buffer)),
                   ("shmat", number(30, 196), (0, 0, 0)), ("shmctl", number(31, 195), (0, 14, buffer)), ("mq_timedsend", number(242, 182), (0, buffer, 1, 0, 0)),
                   ("mq_timedreceive", number(243, 183), (0, buffer, 4096, 0, 0)), ("mq_notify", number(244, 184), (0, 0)), ("mq_getsetattr", number(245, 185), (0, 0, buffer))]:
    call(name, n, *a)
call("memfd_create", number(319, 279), b"x", 0)
call("memfd_secret", 447, 0)
call("userfaultfd", number(323, 282), 1)
call("io_uring_setup", 425, 8, ctypes.create_string_buffer(256))
call("perf_event_open", number(298, 241), buffer, 0, -1, -1, 0)
call("add_key", number(248, 217), b"user", b"agentfly", b"x", 1, -2)
call("keyctl", number(250, 219), 0, -2, 1)
call("request_key", number(249, 218), b"user", b"agentfly", 0, -2)
# Rules of landlock: 65,536 ports in each of any number of sets.
rules = (ctypes.c_uint64 * 3)(0, 3, 0)
call("landlock_create_ruleset", 444, rules, 16, 0)
call("landlock_restrict_self", 446, -1, 0)
call("inotify_init", number(253), )
call("inotify_init1", number(294, 26), 0)
call("fanotify_init", number(300, 262), 0, 0)
print("tried everything")
`))
		contained(t, r)
		require.Equal(t, before, systemV(t))
	})
}

// systemV are the System V objects of this machine.
func systemV(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for _, name := range []string{"sem", "msg", "shm"} {
		text, err := os.ReadFile("/proc/sysvipc/" + name)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			if words := strings.Fields(line); len(words) > 1 {
				out.WriteString(name + " " + words[0] + " " + words[1] + "\n")
			}
		}
	}
	return out.String()
}

// Timers and queued signals are counted over the user, whose other programs could have none any more.
func TestAttackTimers(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Sandbox) {
		r := attack(t, s, python(`
n, timer = 0, ctypes.c_void_p()
while n < 20000 and libc.timer_create(1, None, ctypes.byref(timer)) == 0: n += 1
print("timers", n, errno.errorcode.get(ctypes.get_errno()))
signal.pthread_sigmask(signal.SIG_BLOCK, [40])
class Value(ctypes.Union): _fields_ = [("i", ctypes.c_int), ("p", ctypes.c_void_p)]
m = 0
while m < 20000 and libc.sigqueue(os.getpid(), 40, Value(1)) == 0: m += 1
print("signals", m, errno.errorcode.get(ctypes.get_errno()))
`))
		require.Regexp(t, `^timers \d{1,3} EAGAIN\nsignals \d{1,3} EAGAIN\n$`, string(r.Stdout), "%s", r.Stderr)
	})
}

// A process reaches itself by the number 0, and nobody else by any: with landlock the process table is the machine's, and the program is
// the user of its supervisor. The victims are the supervisor, this test's process, and another process of the program's user.
func TestAttackOtherProcesses(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Sandbox) {
		victim := asProgramUser(t, exec.Command("sleep", "1000"))
		before, err := os.ReadFile("/proc/" + victim + "/limits")
		require.NoError(t, err)
		p := python(systemCalls+`
shared = sys.argv[2] == "landlock"
buffer = ctypes.create_string_buffer(4096)
zero = (ctypes.c_uint64 * 2)(0, 0)
mask = (ctypes.c_uint64 * 16)(1)
prio = (ctypes.c_int * 1)(0)
attr = (ctypes.c_uint32 * 14)(56, 3, 0, 0)  # SCHED_BATCH
for pid in {int(sys.argv[1]), int(sys.argv[3]), os.getppid()}:
    if not shared and pid == os.getppid(): continue  # its own tree
    call("prlimit", number(302, 261), pid, 7, zero, 0)
    call("prlimit of files", number(302, 261), pid, 7, zero, buffer)
    call("sched_setaffinity", number(203, 122), pid, 128, mask)
    call("sched_setparam", number(142, 118), pid, prio)
    call("sched_setscheduler", number(144, 119), pid, 3, prio)
    call("sched_setattr", number(314, 274), pid, attr, 0)
    call("setpriority of a process", number(141, 140), 0, pid, 19)
    call("setpriority of a group", number(141, 140), 1, pid, 19)
    call("setpriority of a user", number(141, 140), 2, os.getuid() or 65534, 19) if shared else None
    call("ioprio_set of a process", number(251, 30), 1, pid, 3 << 13)
    call("ioprio_set of a group", number(251, 30), 2, pid, 3 << 13)
    call("ioprio_set of a user", number(251, 30), 3, os.getuid() or 65534, 3 << 13) if shared else None
    vector = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 8)
    call("process_vm_readv", number(310, 270), pid, vector, 1, vector, 1, 0)
    call("process_vm_writev", number(311, 271), pid, vector, 1, vector, 1, 0)
    call("kcmp", number(312, 272), pid, pid, 2, 0, 0)
    call("move_pages", number(279, 239), pid, 0, 0, 0, 0, 0)
    call("migrate_pages", number(256, 238), pid, 64, mask, mask)
    call("pidfd_open", 434, pid, 0)
    call("ptrace", number(101, 117), 16, pid, 0, 0)
    call("get_robust_list", number(274, 100), pid, buffer, buffer)
    call("sched_core", number(157, 167), 62, 1, pid, 0, 0)
    for name in ("mem", "environ", "maps", "fd", "cwd"):
        attempt("open %s of %d" % (name, pid), os.open, "/proc/%d/%s" % (pid, name), os.O_RDONLY)
    for n in (0, 9, 19): attempt("signal %d to %d" % (n, pid), os.kill, pid, n)
call("setpriority of its user", number(141, 140), 2, 0, 19) if shared else None
call("ioprio_set of its user", number(251, 30), 3, 0, 3 << 13) if shared else None
call("process_mrelease", 448, 1, 0)
call("process_madvise", 440, 1, buffer, 1, 20, 0)
call("pidfd_getfd", 438, 1, 0, 0)
# What is its own works.
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
os.sched_setaffinity(0, os.sched_getaffinity(0))
os.setpriority(os.PRIO_PROCESS, 0, min(19, os.getpriority(os.PRIO_PROCESS, 0) + 1))
print("tried everything")
`, victim, s.Kind(), strconv.Itoa(os.Getpid()))
		contained(t, attack(t, s, p))
		after, err := os.ReadFile("/proc/" + victim + "/limits")
		require.NoError(t, err)
		require.Equal(t, string(before), string(after))
	})
}

// asProgramUser starts a process as the user of the programs in a sandbox, and returns its number.
func asProgramUser(t *testing.T, c *exec.Cmd) string {
	t.Helper()
	if os.Geteuid() == 0 {
		c.SysProcAttr = asNobody()
	}
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return strconv.Itoa(c.Process.Pid)
}

// The kernel kills sandboxed programs first when memory is short, whatever they do.
func TestAttackOutOfMemoryScore(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Sandbox) {
		p, err := s.Start(t.Context(), python(`
for path in ["/proc/self/oom_score_adj", "/proc/%d/oom_score_adj" % os.getpid(), "/proc/thread-self/oom_score_adj", "/proc/self/oom_adj", "/proc/1/oom_score_adj"]:
    for value in ("0", "-1", "999"):
        attempt(path, write, path, value)
def child():
    for value in ("0", "999"): attempt("child", write, "/proc/self/oom_score_adj", value)
fork(child); os.wait()
print("tried everything", flush=True)
time.sleep(1000)
`))
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Kill()) }()
		var said strings.Builder
		for b := make([]byte, 4096); !strings.Contains(said.String(), "tried everything"); {
			n, err := p.Stdout().Read(b)
			said.Write(b[:n])
			require.NoError(t, err, said.String())
		}
		contained(t, Result{Stdout: []byte(said.String())})
		pids, err := descendants(p.(*running).cmd.Process.Pid)
		require.NoError(t, err)
		require.NotEmpty(t, pids)
		for _, pid := range pids {
			score, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/oom_score_adj")
			require.NoError(t, err)
			require.Equal(t, "1000\n", string(score), "process %d", pid)
		}
	})
}

// Every file takes memory of the kernel beside its content: empty ones are bounded as well.
func TestAttackInodes(t *testing.T) {
	s := open(t)
	p := python(`
import resource
total = 0
for where in sys.argv[1:]:
    i = 0
    os.mkdir(where + "/d"); os.chdir(where + "/d")
    try:
        while i < 200000: os.close(os.open("%d" % i, os.O_CREAT | os.O_WRONLY)); i += 1
    except OSError as e: print(where, errno.errorcode[e.errno])
    total += i
print(total)
print("tried everything")
`, "/tmp", "/workspace", "/dev/shm")
	p.Limits.Disk = 16 << 20
	r := attack(t, s, p)
	contained(t, r)
	lines := strings.Split(string(r.Stdout), "\n")
	require.Equal(t, []string{"/tmp ENOSPC", "/workspace ENOSPC", "/dev/shm ENOSPC"}, lines[:3], "%s", r.Stderr)
	total, err := strconv.Atoi(lines[3])
	require.NoError(t, err)
	require.LessOrEqual(t, total, 16<<20/inodeBytes)
	require.Greater(t, total, 16<<20/inodeBytes/4)
}

// A program with the rights of another that it leaves behind would be run as the user of the sandbox by whoever finds it.
func TestAttackSetuid(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Sandbox) {
		p := python(systemCalls + `
open("f", "w").write("#!/bin/sh\n"); os.mkdir("d")
for mode in (0o4755, 0o2755, 0o6755):
    for path in ("f", "d"):
        attempt("chmod", os.chmod, path, mode)
        fd = os.open(path, os.O_RDONLY)
        attempt("fchmod", os.fchmod, fd, mode)
        call("fchmodat", number(268, 53), -100, path.encode(), mode, 0)
        call("fchmodat2", 452, -100, path.encode(), mode, 0)
        call("fchmodat2 of a descriptor", 452, fd, b"", mode, 0x1000)
    attempt("open", os.open, "open%o" % mode, os.O_CREAT | os.O_WRONLY, mode)
    attempt("unnamed", os.open, ".", os.O_TMPFILE | os.O_WRONLY, mode)
    call("creat", number(85), b"creat", mode)
    call("openat", number(257, 56), -100, b"openat", os.O_CREAT | os.O_WRONLY, mode)
    call("openat2", 437, -100, b"openat2", (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, mode, 0), 24)
    attempt("mknod", os.mknod, "node", mode | stat.S_IFREG)
    call("mknod", number(133), b"mknod", mode | stat.S_IFREG, 0)
attempt("capability", os.setxattr, "f", "security.capability", bytes.fromhex("0100000200200000000000000000000000000000"), refused=(errno.EOPNOTSUPP,))
os.close(os.open("plain", os.O_CREAT | os.O_WRONLY, 0o755))
print("tried everything")
`)
		p.Workspace = t.TempDir()
		contained(t, attack(t, s, p))
		require.NoError(t, filepath.WalkDir(p.Workspace, func(path string, d os.DirEntry, err error) error {
			require.NoError(t, err)
			info, err := d.Info()
			require.Zero(t, info.Mode()&(os.ModeSetuid|os.ModeSetgid), path)
			return err
		}))
	})
}

// With landlock the program is the user whom the files around it belong to: what landlock does not look at, it could change.
func TestAttackAttributes(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Sandbox) {
		dir := t.TempDir()
		require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
		require.NoError(t, os.Chmod(dir, 0o777))
		mine, shown := filepath.Join(dir, "mine"), filepath.Join(dir, "shown")
		for _, path := range []string{mine, shown} {
			require.NoError(t, os.WriteFile(path, []byte("x"), 0o644))
		}
		before := attributesOf(t, dir, mine, shown)
		p := python(systemCalls+`
kind, own, paths = sys.argv[1], os.getuid(), sys.argv[2:]
for path in paths:
    if kind == "bubblewrap" and path == paths[0]: continue  # a folder of the sandbox's own
    for mode in (0, 0o777): attempt("chmod", os.chmod, path, mode)
    attempt("utime", os.utime, path, (1, 1))
    attempt("chown", os.chown, path, own, os.getgid())
    attempt("lchown", os.lchown, path, own, os.getgid())
    attempt("setxattr", os.setxattr, path, "user.x", b"x", refused=(errno.EOPNOTSUPP,))
    attempt("removexattr", os.removexattr, path, "user.x", refused=(errno.EOPNOTSUPP,))
    attempt("truncate", os.truncate, path, 0, refused=(errno.EISDIR,))
    attempt("open", os.open, path, os.O_RDWR, refused=(errno.EISDIR,))
    attempt("rename", os.rename, path, "here", refused=(errno.EXDEV,))
    attempt("link", os.link, path, "here", refused=(errno.EXDEV,))
    call("fchmodat2", 452, -100, path.encode(), 0, 0)
    try: fd = os.open(path, os.O_PATH)
    except OSError: continue
    call("fchmodat2 of a descriptor", 452, fd, b"", 0, 0x1000)
    attempt("through /proc", os.chmod, "/proc/self/fd/%d" % fd, 0)
    try: fd = os.open(path, os.O_RDONLY)
    except OSError: continue
    attempt("fchmod", os.fchmod, fd, 0)
    attempt("fchown", os.fchown, fd, own, os.getgid())
    attempt("fsetxattr", os.setxattr, fd, "user.x", b"x", refused=(errno.EOPNOTSUPP,))
# What is its own it may touch.
open("own", "w").close()
with open("own", "a") as f: os.utime(f.fileno())
print("tried everything")
`, s.Kind(), dir, mine, shown)
		p.ReadOnly = []string{shown}
		if os.Geteuid() == 0 { // whom nothing belongs to
			require.NoError(t, os.Chown(mine, 1, 1))
		}
		contained(t, attack(t, s, p))
		require.Equal(t, before, attributesOf(t, dir, mine, shown))
	})
}

func attributesOf(t *testing.T, paths ...string) []string {
	t.Helper()
	var out []string
	for _, path := range paths {
		info, err := os.Stat(path)
		require.NoError(t, err)
		out = append(out, info.Mode().String()+" "+info.ModTime().String())
	}
	return out
}

// Sockets that come in pairs, and protocols whose modules the kernel would load.
func TestAttackSockets(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Sandbox) {
		dir := t.TempDir()
		require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
		require.NoError(t, os.Chmod(dir, 0o777))
		path := filepath.Join(dir, "log")
		log, err := net.ListenPacket("unixgram", path)
		require.NoError(t, err)
		defer log.Close()
		require.NoError(t, os.Chmod(path, 0o777))
		p := python(`
def datagram(kind):
    a, b = socket.socketpair(socket.AF_UNIX, kind)
    if kind != socket.SOCK_DGRAM: return a.connect(sys.argv[1])
    try: a.sendto(b"forged", sys.argv[1])
    except OSError: a.connect(sys.argv[1]); a.send(b"forged")
for kind in (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_STREAM):
    attempt("datagram of a pair %d" % kind, datagram, kind, refused=(errno.EISCONN, errno.ENOTCONN, errno.EINVAL, errno.EOPNOTSUPP, errno.EPROTOTYPE))
for family in (30, 40, 16, 2, 10, 38):
    attempt("pair of family %d" % family, socket.socketpair, family, socket.SOCK_STREAM, refused=())
a, b = socket.socketpair(); a.send(b"x"); assert b.recv(1) == b"x"
for family in (socket.AF_INET, socket.AF_INET6):
    for kind, protocol in [(1, 132), (5, 132), (1, 262), (2, 136), (6, 33), (1, 33), (3, 1), (2, 1), (2, 58), (3, 255)]:
        attempt("protocol %d of family %d" % (protocol, family), socket.socket, family, kind, protocol, refused=(errno.EPROTONOSUPPORT,))
print("tried everything")
`, path)
		contained(t, attack(t, s, p))
		require.NoError(t, log.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
		_, _, err = log.ReadFrom(make([]byte, 10))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	})
}

// Names that come and go in a folder that cannot be listed.
func TestAttackWatching(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Sandbox) {
		dir := t.TempDir()
		require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
		require.NoError(t, os.Chmod(dir, 0o777))
		contained(t, attack(t, s, python(`
def watch():
    fd = libc.inotify_init1(0)
    if fd < 0: raise OSError(ctypes.get_errno(), "inotify")
    if libc.inotify_add_watch(fd, sys.argv[1].encode(), 0xfff) < 0: raise OSError(ctypes.get_errno(), "watch")
attempt("inotify", watch)
print("tried everything")
`, dir)))
	})
}

// A process that nobody may look into is not one that uses nothing.
func TestAttackUnseenMemory(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Sandbox) {
		for name, hide := range map[string]string{
			"prctl": "libc.prctl(4, 0, 0, 0, 0)",
			"a program that cannot be read": `
if len(sys.argv) < 2:
    import shutil
    with open("copy", "wb") as f: f.write(open(os.path.realpath("/usr/bin/python3"), "rb").read())
    os.close(os.open("copy", os.O_RDONLY))
    try: os.chmod("copy", 0o111)
    except OSError:
        os.remove("copy")
        with os.fdopen(os.open("copy", os.O_CREAT | os.O_WRONLY, 0o111), "wb") as f: f.write(open(os.path.realpath("/usr/bin/python3"), "rb").read())
    os.execv("./copy", ["python3", "-I", "-c", sys.orig_argv[3], "again"])
`,
		} {
			t.Run(name, func(t *testing.T) {
				p := python(hide + `
for _ in range(8):
    fork(lambda: (bytearray(os.urandom(1) * (100 << 20)), time.sleep(100)))
time.sleep(100)
`)
				p.Limits.Memory, p.Limits.Wall = 256<<20, 15*time.Second
				r := attack(t, s, p)
				require.Contains(t, []string{"memory", Unwatched}, r.Exceeded, "%s", r.Stderr)
			})
		}
	})
}

// A folder that nobody may list is not one that holds nothing.
func TestAttackUnseenFiles(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Sandbox) {
		p := python(`
old = os.umask(0o477); os.mkdir("hidden"); os.umask(old)
try: os.chmod("hidden", 0o300)
except OSError: pass
os.chdir("hidden")
i = 0
while True:
    with open("%d" % i, "wb") as f: f.write(b"x" * 65536)
    i += 1
    time.sleep(0.0005)
`)
		p.Workspace, p.Limits.Disk, p.Limits.Wall = t.TempDir(), 16<<20, 15*time.Second
		r := attack(t, s, p)
		require.Contains(t, []string{"disk", Unwatched}, r.Exceeded, "%s", r.Stderr)
		require.NoError(t, RemoveAll(p.Workspace)) // what took its own rights away does not stay
	})
}

// What sockets and pipes hold is memory of the kernel, which no process has.
func TestAttackBuffers(t *testing.T) {
	for name, fill := range map[string]string{
		"local sockets": `
def child():
    keep = []
    for _ in range(50):
        a, b = socket.socketpair()
        keep += [a, b]
        for s in (a, b):
            s.setblocking(False)
            try:
                while True: s.send(b"x" * 4096)
            except BlockingIOError: pass
    print("filled", flush=True)
    time.sleep(100)
`,
		"TCP": `
def child():
    keep = [socket.create_server(("127.0.0.1", 0), backlog=100)]
    for _ in range(8):
        a = socket.create_connection(keep[0].getsockname()); b = keep[0].accept()[0]
        keep += [a, b]
        for s in (a, b):
            s.setblocking(False)
            for _ in range(10):
                try:
                    while True: s.send(b"x" * 65536)
                except BlockingIOError: time.sleep(0.001)
    print("filled", flush=True)
    time.sleep(100)
`,
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, s *Sandbox) {
				if name == "TCP" && s.Kind() == Landlock {
					t.Skip("there are no sockets of TCP")
				}
				p := python(fill + "for _ in range(24): fork(child)\ntime.sleep(100)\n")
				p.Limits.Memory, p.Limits.Wall = 384<<20, 15*time.Second
				r := attack(t, s, p)
				require.Equal(t, "memory", r.Exceeded, "%d children are done: %s", strings.Count(string(r.Stdout), "filled"), r.Stderr)
			})
		})
	}
}
