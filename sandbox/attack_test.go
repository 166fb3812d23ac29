//go:build linux

package sandbox

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// python is a program that prints what it achieved; nothing is what it should print.
func python(code string, args ...string) Program {
	return Program{Args: append([]string{"python3", "-I", "-c", attackPrelude + code}, args...)}
}

// attackPrelude's attempt tells three ends of an attempt apart: it succeeded, it was refused, and it failed for a reason that proves
// nothing, such as a value that the kernel does not take or a mistake in the attack.
const attackPrelude = `
import ctypes, errno, os, signal, socket, stat, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
REFUSED = {errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOENT, errno.ESRCH, errno.ENOSYS, errno.EAFNOSUPPORT, errno.ENETUNREACH}
def attempt(what, f, *a, refused=()):
    try:
        r = f(*a)
    except BaseException as e:
        if not isinstance(e, OSError) or e.errno not in REFUSED.union(refused): print("UNPROVEN", what, repr(e)[:200], flush=True)
        return e
    print("ACHIEVED", what, repr(r)[:80], flush=True)
def write(path, text=""):  # opening it is the achievement: files of /proc take few values
    with open(path, "w") as f: f.write(text)
def fork(f, *a):
    if os.fork() == 0:
        try: f(*a)
        finally: os._exit(0)
`

// neighbour is a session that must go on answering.
type neighbour struct {
	t     testing.TB
	p     Process
	lines *bufio.Scanner
	next  int
}

func newNeighbour(t testing.TB, s *Sandbox) *neighbour {
	p, err := s.Start(t.Context(), shell("while read x; do echo $((x*x)); done"))
	require.NoError(t, err)
	return &neighbour{t: t, p: p, lines: bufio.NewScanner(p.Stdout())}
}

// ask asks once; it runs beside the test's own goroutine.
func (n *neighbour) ask() error {
	n.next++
	if _, err := fmt.Fprintln(n.p.Stdin(), n.next); err != nil {
		return err
	}
	if !n.lines.Scan() {
		return fmt.Errorf("it answers no more: %w", n.lines.Err())
	}
	if want := strconv.Itoa(n.next * n.next); n.lines.Text() != want {
		return fmt.Errorf("%d squared is %s, not %q", n.next, want, n.lines.Text())
	}
	return nil
}

// attack runs a program while a neighbour answers, and requires that nothing of it is left.
func attack(t *testing.T, s *Sandbox, p Program) Result {
	t.Helper()
	n := newNeighbour(t, s)
	defer func() { require.NoError(t, n.p.Kill()) }()
	require.NoError(t, n.ask())
	stop, asked := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				asked <- nil
				return
			case <-time.After(5 * time.Millisecond):
				if err := n.ask(); err != nil {
					asked <- err
					return
				}
			}
		}
	}()
	mark := "AGENTFLY_MARK=" + rand.Text()
	p.Env = append(p.Env, mark)
	r := run(t, s, p)
	close(stop)
	require.NoError(t, <-asked, "the neighbour")
	require.NoError(t, n.ask(), "the neighbour afterwards")
	require.Greater(t, n.next, 1)
	require.Empty(t, marked(mark), "processes are left")
	return r
}

// marked are the processes of the machine with the mark in their environment.
func marked(mark string) []string {
	var out []string
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err == nil && bytes.Contains(text, []byte(mark)) {
			command, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
			out = append(out, string(bytes.ReplaceAll(command, []byte{0}, []byte(" "))))
		}
	}
	return out
}

func contained(t *testing.T, r Result) {
	t.Helper()
	require.NotContains(t, string(r.Stdout), "ACHIEVED")
	require.NotContains(t, string(r.Stdout), "UNPROVEN")
	require.Contains(t, string(r.Stdout), "tried everything", "%s", r.Stderr)
}

func TestAttackFiles(t *testing.T) {
	s := open(t)
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o666))
	require.NoError(t, os.Chmod(dir, 0o777))
	home, err := os.UserHomeDir()
	require.NoError(t, err)
	work, err := os.Getwd()
	require.NoError(t, err)
	r := attack(t, s, python(`
secret, home, work = sys.argv[1:]
read = lambda path: open(path).read()
for path in [secret, "/etc/shadow", "/etc/hostname", "/etc/resolv.conf", "/etc/machine-id", "/proc/kcore", "/dev/mem", "/dev/sda", "/dev/vda",
             home + "/.bashrc", home + "/.ssh/id_rsa", work + "/sandbox.go", "/proc/1/root" + secret, "/proc/self/root" + secret,
             "/../../.." + secret, "/workspace/../" + secret, "/sys/class/net", "/var/log/dpkg.log"]:
    attempt("read " + path, read, path)
for path in [home, work, os.path.dirname(secret), "/home", "/root", "/var", "/run", "/sys", "/boot", "/mnt"]:
    attempt("list " + path, lambda: os.listdir(path)[0])
for path in [secret, os.path.dirname(secret) + "/new", "/new", "/usr/new", "/usr/bin/python3", "/usr/local/new", "/bin/new", "/lib/new", "/etc/new",
             "/etc/passwd", "/etc/ld.so.cache", "/dev/new", "/proc/new", "/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern",
             "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger", "/proc/1/oom_score_adj", "/proc/1/mem", "/proc/self/mem", "/proc/self/comm"]:
    attempt("write " + path, write, path)
# What is denied is denied for its reason: the same attempts work where they may.
write("/tmp/own"); write("/workspace/own"); write("/dev/shm/own"); os.chmod("/tmp/own", 0o700); os.link("/tmp/own", "/tmp/linked"); os.remove("/tmp/own")
attempt("mknod", os.mknod, "/tmp/dev", 0o666 | stat.S_IFBLK, os.makedev(254, 0))
attempt("chroot", os.chroot, "/tmp")
unmapped = errno.EINVAL  # the answer for a user that the namespace does not have
attempt("setuid", os.setuid, 1, refused=(unmapped,))  # who is the host's root where the tests are run by root
attempt("setgid", os.setgid, 1, refused=(unmapped,))
attempt("setgroups", os.setgroups, [1], refused=(unmapped,))
os.symlink(secret, "/tmp/link"); attempt("link", read, "/tmp/link")
attempt("hard link", os.link, "/usr/bin/python3", "/tmp/python", refused=(errno.EXDEV,))
attempt("remove", os.remove, "/usr/bin/env")
attempt("chmod", os.chmod, "/usr/bin/env", 0o777)
for n in os.listdir("/proc/self/fd"):
    if int(n) > 2 and os.path.exists("/proc/self/fd/" + n): print("ACHIEVED descriptor", n, os.readlink("/proc/self/fd/" + n))
print("tried everything")
`, secret, home, work))
	contained(t, r)
	text, err := os.ReadFile(secret)
	require.NoError(t, err)
	require.Equal(t, "secret", string(text))
	require.NoFileExists(t, filepath.Join(dir, "new"))
}

func TestAttackEnvironment(t *testing.T) {
	s := open(t)
	t.Setenv("AGENTFLY_SECRET", "agentfly-secret-value")
	r := attack(t, s, python(`
for name in ["AGENTFLY_SECRET", "GOPATH", "USER", "SHELL", "TERM", "TMPDIR"]:
    if name in os.environ: print("ACHIEVED", name)
for pid in os.listdir("/proc"):
    if pid.isdigit():
        try: text = open("/proc/" + pid + "/environ").read()
        except OSError: continue
        if "agentfly-" + "secret" in text: print("ACHIEVED environment of", pid)
        if "agentfly-" + "secret" in open("/proc/" + pid + "/cmdline").read().replace('"agentfly-" + "secret"', ""): print("ACHIEVED arguments of", pid)
print(sorted(os.environ))
print("tried everything")
`))
	contained(t, r)
	require.Contains(t, string(r.Stdout), `['AGENTFLY_MARK', 'HOME', 'LANG', 'PATH', 'PWD']`)
}

func TestAttackNetwork(t *testing.T) {
	s := open(t)
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o777))
	reached := make(chan string, 100)
	var all sync.WaitGroup
	var listeners []net.Listener
	abstract := "@agentfly-" + rand.Text()
	for _, where := range [][2]string{{"tcp", "127.0.0.1:0"}, {"unix", filepath.Join(dir, "socket")}, {"unix", abstract}} {
		l, err := net.Listen(where[0], where[1])
		require.NoError(t, err)
		listeners = append(listeners, l)
		all.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				reached <- where[1]
				_ = c.Close()
			}
		})
	}
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	all.Go(func() {
		if n, _, err := udp.ReadFrom(make([]byte, 10)); err == nil && n > 0 {
			reached <- "udp"
		}
	})
	_, tcpPort, _ := net.SplitHostPort(listeners[0].Addr().String())
	_, udpPort, _ := net.SplitHostPort(udp.LocalAddr().String())
	p := python(`
tcp, udp, path, abstract = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], chr(0) + sys.argv[4][1:]
def connect(family, kind, to):
    with socket.socket(family, kind) as c:
        c.settimeout(2)
        c.connect(to)
closed = (errno.ECONNREFUSED,)  # its own loopback, where nobody listens
attempt("tcp", connect, socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", tcp), refused=closed)
attempt("tcp to outside", connect, socket.AF_INET, socket.SOCK_STREAM, ("1.1.1.1", 53))
attempt("tcp6", connect, socket.AF_INET6, socket.SOCK_STREAM, ("::1", tcp), refused=closed)
attempt("metadata", connect, socket.AF_INET, socket.SOCK_STREAM, ("169.254.169.254", 80))
attempt("udp to outside", connect, socket.AF_INET, socket.SOCK_DGRAM, ("1.1.1.1", 53))
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", udp))  # its own loopback
attempt("dns", socket.getaddrinfo, "example.org", 80, refused=(socket.EAI_AGAIN, socket.EAI_NONAME))
attempt("unix", connect, socket.AF_UNIX, socket.SOCK_STREAM, path)
attempt("abstract", connect, socket.AF_UNIX, socket.SOCK_STREAM, abstract, refused=closed)
for family, kind in [(socket.AF_NETLINK, socket.SOCK_RAW), (socket.AF_PACKET, socket.SOCK_RAW), (socket.AF_INET, socket.SOCK_RAW), (40, socket.SOCK_STREAM), (38, socket.SOCK_SEQPACKET)]:
    attempt("socket of family %d" % family, socket.socket, family, kind, refused=(errno.EPROTONOSUPPORT,))
with socket.create_server(("127.0.0.1", 0)) as own: connect(socket.AF_INET, socket.SOCK_STREAM, own.getsockname())
names = open("/proc/net/dev").read()
if names.count(":") != 1 or "lo:" not in names: print("ACHIEVED interfaces", names)
print("tried everything")
`, tcpPort, udpPort, filepath.Join(dir, "socket"), abstract)
	r := attack(t, s, p)
	contained(t, r)
	for _, l := range listeners {
		require.NoError(t, l.Close())
	}
	require.NoError(t, udp.Close())
	all.Wait()
	require.Empty(t, reached)
}

// A folder of the host that is shown read-only leads to no service that listens in it.
func TestAttackShownSockets(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Sandbox) {
		dir := t.TempDir()
		require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
		require.NoError(t, os.Chmod(dir, 0o755))
		stream, datagrams := filepath.Join(dir, "stream"), filepath.Join(dir, "datagrams")
		listener, err := net.Listen("unix", stream)
		require.NoError(t, err)
		defer listener.Close()
		log, err := net.ListenPacket("unixgram", datagrams)
		require.NoError(t, err)
		defer log.Close()
		require.NoError(t, os.Chmod(stream, 0o777))
		require.NoError(t, os.Chmod(datagrams, 0o777))
		p := python(`
stream, datagrams = sys.argv[1:]
def connect(kind, to): socket.socket(socket.AF_UNIX, kind).connect(to)
attempt("stream", connect, socket.SOCK_STREAM, stream)
attempt("datagrams", connect, socket.SOCK_DGRAM, datagrams)
attempt("datagram", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", datagrams))
for kind in (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    attempt("pair %d" % kind, lambda: socket.socketpair(socket.AF_UNIX, kind)[0].sendto(b"x", datagrams))
a, b = socket.socketpair(); a.send(b"x"); assert b.recv(1) == b"x"
attempt("a pair's", a.connect, stream, refused=(errno.EISCONN,))
import multiprocessing
multiprocessing.set_start_method("fork")
a, b = multiprocessing.Pipe(); a.send("x"); assert b.recv() == "x"
print("tried everything")
`, stream, datagrams)
		p.ReadOnly = []string{dir}
		contained(t, attack(t, s, p))
		require.NoError(t, log.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
		_, _, err = log.ReadFrom(make([]byte, 10))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)

		p.ReadOnly = []string{stream}
		_, err = s.Run(t.Context(), p)
		require.ErrorContains(t, err, "is a socket or a named pipe; what is shown read-only are folders and files")
	})
}

func TestAttackSystemCalls(t *testing.T) {
	s := open(t)
	r := attack(t, s, python(`
import platform, subprocess
victim = os.fork()
if victim == 0:
    time.sleep(100)
def call(name, number, *a):
    ctypes.set_errno(0)
    r = libc.syscall(number, *a)
    code = ctypes.get_errno()
    if r != -1 or code not in (errno.EPERM, errno.ENOSYS): print("ACHIEVED", name, r, errno.errorcode.get(code, code))
numbers = {
  "x86_64": dict(ptrace=101, process_vm_readv=310, process_vm_writev=311, unshare=272, setns=308, mount=165, umount2=166, pivot_root=155, chroot=161,
    open_tree=428, move_mount=429, fsopen=430, bpf=321, perf_event_open=298, userfaultfd=323, io_uring_setup=425, io_uring_enter=426,
    add_key=248, request_key=249, keyctl=250, kexec_load=246, init_module=175, finit_module=313, reboot=169, swapon=167, settimeofday=164,
    sethostname=170, open_by_handle_at=304, pidfd_getfd=438, memfd_create=319, shmget=29, personality=135, clone3=435, iopl=172, modify_ldt=154, syslog=103),
  "aarch64": dict(ptrace=117, process_vm_readv=270, process_vm_writev=271, unshare=97, setns=268, mount=40, umount2=39, pivot_root=41, chroot=51,
    open_tree=428, move_mount=429, fsopen=430, bpf=280, perf_event_open=241, userfaultfd=282, io_uring_setup=425, add_key=217, request_key=218,
    keyctl=219, kexec_load=104, init_module=105, finit_module=273, reboot=142, settimeofday=170, memfd_create=279, shmget=194, clone3=435, syslog=116),
}[platform.machine()]
for name, number in numbers.items():
    call(name, number, 16 if name == "ptrace" else 0, victim if name == "ptrace" else 0, 0, 0, 0, 0)
clone = {"x86_64": 56, "aarch64": 220}[platform.machine()]
for flag in (0x10000000, 0x00020000, 0x20000000, 0x40000000, 0x08000000, 0x04000000, 0x02000000):
    call("clone with %#x" % flag, clone, flag | 17, 0, 0, 0, 0)
for request in (0x5412, 0x541c):
    call("ioctl %#x" % request, {"x86_64": 16, "aarch64": 29}[platform.machine()], 0, request, 0)
if open("/proc/1/limits").read() != open("/proc/self/limits").read(): print("ACHIEVED other limits by way of process 1")
for line in open("/proc/self/status"):
    name, _, value = line.partition(":")
    if name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb") and int(value, 16) != 0: print("ACHIEVED", line)
    if name == "NoNewPrivs" and int(value) != 1 or name == "Seccomp" and int(value) != 2: print("ACHIEVED", line)
if subprocess.run(["unshare", "-U", "true"], capture_output=True).returncode == 0: print("ACHIEVED a user namespace")
if b"uid=0" in subprocess.run(["sh", "-c", "su -c id; mount -t tmpfs none /tmp && echo uid=0"], capture_output=True, stdin=subprocess.DEVNULL).stdout: print("ACHIEVED root")
os.kill(victim, 9)
print("tried everything")
`))
	contained(t, r)
}

func TestAttackProcesses(t *testing.T) {
	s := open(t)
	r := attack(t, s, python(`
own = {os.getpid(), os.getppid(), 1}
seen = {int(p) for p in os.listdir("/proc") if p.isdigit()}
if seen - own: print("ACHIEVED processes", seen - own)
host = int(sys.argv[1])
for pid in [host, os.getppid()] + list(range(50, 5000)):
    if pid not in seen: attempt("signal to %d" % pid, os.kill, pid, 0)
for path in ["/proc/%d" % host, "/proc/1/root/home", "/proc/1/cwd/../home", "/proc/self/task/%d/root/root" % os.getpid()]:
    if host not in seen or "%d" % host not in path: attempt(path, os.listdir, path)
for name in ["cmdline", "kallsyms", "keys"]:
    try:
        if open("/proc/" + name).read(): print("ACHIEVED /proc/" + name)
    except OSError: pass
for name in ["kernel/hostname", "kernel/randomize_va_space", "vm/overcommit_memory", "net/ipv4/ip_forward", "kernel/modprobe"]:
    attempt("sysctl " + name, write, "/proc/sys/" + name)
print("tried everything", flush=True)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.kill(1, 9); os.kill(1, 15)
os.kill(-1, 9)
`, strconv.Itoa(os.Getpid())))
	contained(t, r)
}
