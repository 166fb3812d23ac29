//go:build linux

package sandbox

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func openFallback(t testing.TB) *Sandbox {
	t.Helper()
	s, err := Open(t.Context(), Landlock)
	if err != nil {
		t.Skip(err.Error())
	}
	return s
}

func TestLandlock(t *testing.T) {
	s := openFallback(t)
	require.Equal(t, Landlock, s.Kind())
	testBasics(t, s)
}

func TestNone(t *testing.T) {
	s, err := Open(t.Context(), None)
	require.NoError(t, err)
	require.Equal(t, None, s.Kind())
	testBasics(t, s)
	t.Setenv("AGENTFLY_SECRET", "x")
	require.Equal(t, "none\n", string(run(t, s, shell("echo ${AGENTFLY_SECRET-none}")).Stdout))
}

func testBasics(t *testing.T, s *Sandbox) {
	t.Setenv("TMPDIR", t.TempDir())
	r := run(t, s, shell("echo out; echo err >&2; echo x >f; cat f; exit 3"))
	require.Equal(t, "out\nx\n", string(r.Stdout))
	require.Equal(t, "err\n", string(r.Stderr))
	require.Equal(t, 3, r.Exit)
	p := shell("cat; echo $X; pwd; cat $0")
	p.Stdin, p.Env, p.Workspace = []byte("in\n"), []string{"X=1"}, t.TempDir()
	p.ReadOnly = []string{filepath.Join(t.TempDir(), "file")}
	p.Args = append(p.Args, p.ReadOnly[0])
	require.NoError(t, os.WriteFile(p.ReadOnly[0], []byte("read\n"), 0o644))
	if os.Geteuid() == 0 && s.Kind() == Landlock { // nobody cannot pass folders of root
		p.Args = p.Args[:3]
		p.Args[2] = "cat; echo $X; pwd; echo read"
	}
	require.Equal(t, "in\n1\n"+p.Workspace+"\nread\n", string(run(t, s, p).Stdout))
	require.Equal(t, "SIGSEGV", run(t, s, shell("kill -SEGV $$")).Signal)
	require.Equal(t, 127, run(t, s, Program{Args: []string{"no-such-program"}}).Exit)

	p = shell("while :; do :; done")
	p.Limits.CPU = time.Second
	require.Equal(t, "SIGXCPU", run(t, s, p).Signal)
	p = python("try: print('ACHIEVED', len(bytearray(1 << 29)))\nexcept MemoryError: pass\nfork(lambda: (os.setsid(), time.sleep(1000)))\nprint('tried everything', flush=True)\ntime.sleep(1000)")
	p.Limits.Memory, p.Limits.Wall = 256<<20, 3*time.Second
	r = attack(t, s, p)
	require.True(t, r.TimedOut, "%s", r.Stderr)
	contained(t, r)

	p = python(`
def daemon():
    os.setsid()
    if os.fork() > 0: os._exit(0)
    while True:
        open("beat", "a").write("x")
        time.sleep(0.001)
for _ in range(5): fork(daemon)
while not os.path.exists("beat"): time.sleep(0.001)
`)
	p.Limits.Processes = 256 // other users of this kind of sandbox share them
	r = attack(t, s, p)
	require.Zero(t, r.Exit, "%s", r.Stderr)
	if s.Kind() == Landlock { // nothing bounds the processes of root without a sandbox
		p = python("while True:\n    try: os.fork()\n    except BlockingIOError: pass") // a shell ends where a fork of its own finds no place
		p.Limits.Wall = 2 * time.Second
		r = run(t, s, p)
		require.True(t, r.TimedOut, "%+v\n%s", r, r.Stderr)
	}
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, err)
	require.Empty(t, left)

	live, err := s.Start(t.Context(), shell("read x; echo $x; sleep 1000"))
	require.NoError(t, err)
	_, err = live.Stdin().Write([]byte("hello\n"))
	require.NoError(t, err)
	b := make([]byte, 10)
	n, err := live.Stdout().Read(b)
	require.NoError(t, err)
	require.Equal(t, "hello\n", string(b[:n]))
	require.NoError(t, live.Kill())
}

// What the fallback contains. It does not hide that files exist, nor the machine's load and network interfaces, and the limit of processes is
// shared with what else the user runs.
func TestLandlockAttacks(t *testing.T) {
	s := openFallback(t)
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o666))
	require.NoError(t, os.Chmod(dir, 0o777))
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	t.Setenv("AGENTFLY_SECRET", "agentfly-secret-value")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	unixListener, err := net.Listen("unix", filepath.Join(dir, "socket"))
	require.NoError(t, err)
	defer unixListener.Close()
	home, err := os.UserHomeDir()
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	p := python(`
secret, home, port, host = sys.argv[1], sys.argv[2], int(sys.argv[3]), os.getppid()
read = lambda path: open(path).read()
for path in [secret, "/etc/shadow", "/etc/passwd", "/etc/hostname", home + "/.bashrc", "/proc/1/environ", "/proc/self/root" + secret,
             "/proc/%d/environ" % host, "/proc/%d/status" % host, "/proc/%d/root/etc/passwd" % host, "/proc/version", "/dev/vda", "/dev/mem", "../" * 10 + secret]:
    attempt("read " + path, read, path)
for path in ["/", "/proc", home, os.path.dirname(secret), "/tmp", "/dev", "/run", "/sys"]:
    attempt("list " + path, os.listdir, path)
for path in [secret, os.path.dirname(secret) + "/new", "/tmp/new", "/usr/new", "/etc/new", "/var/tmp/new", "/dev/shm/new", "/new", "/proc/self/oom_score_adj",
             "/proc/sys/kernel/hostname", "/run/new"]:
    attempt("write " + path, write, path)
for name in os.environ:
    if "SECRET" in name: print("ACHIEVED", name)
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK, 40):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        attempt("socket", socket.socket, family, kind, refused=(errno.EPROTONOSUPPORT,))
for pid in [host, 1, int(sys.argv[4])]:
    for n in (0, 15, 19): attempt("signal %d to %d" % (n, pid), os.kill, pid, n)
    def trace():
        if libc.ptrace(16, pid, 0, 0) != 0: raise OSError(ctypes.get_errno(), "ptrace")
    attempt("ptrace", trace)
child = os.fork()
if child == 0: time.sleep(100)
os.kill(child, 9); os.waitpid(child, 0)  # its own it may
attempt("setuid", os.setuid, 0)
attempt("chroot", os.chroot, ".")
attempt("remove", os.remove, secret)
attempt("link", os.link, secret, "link", refused=(errno.EXDEV,))
write("own"); os.link("own", "linked"); os.remove("own")
os.symlink(secret, "symlink"); attempt("symlink", read, "symlink")
os.kill(os.getpid(), 0)
print("tried everything", flush=True)
os.kill(-1, 15)
`, secret, home, port, strconv.Itoa(os.Getpid()))
	p.Workspace = t.TempDir()
	contained(t, attack(t, s, p))
	text, err := os.ReadFile(secret)
	require.NoError(t, err)
	require.Equal(t, "secret", string(text))

	p = python("i = 0\nwhile True:\n    open('%d' % i, 'wb').write(b'x' * 65536); i += 1\n    time.sleep(0.0005)")
	p.Limits.Disk = 16 << 20
	require.Equal(t, "disk", attack(t, s, p).Exceeded)
}
