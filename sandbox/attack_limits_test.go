//go:build linux

package sandbox

import (
	"crypto/rand"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAttackForkBomb(t *testing.T) {
	s := open(t)
	p := python(`
n = 0
try:
    while n < 1000:
        if os.fork() == 0:
            time.sleep(100)
        n += 1
except OSError as e:
    print("ended after", n, errno.errorcode[e.errno])
`)
	r := attack(t, s, p)
	words := strings.Fields(string(r.Stdout))
	require.Len(t, words, 4, "%s %s", r.Stdout, r.Stderr)
	n, err := strconv.Atoi(words[2])
	require.NoError(t, err)
	require.LessOrEqual(t, n, Defaults.Processes)
	require.Greater(t, n, Defaults.Processes/2)
	require.Equal(t, "EAGAIN", words[3])

	p = shell(`bomb() { bomb | bomb & }; (bomb); exec sleep 100`) // a shell that finds no place for a fork ends: not the outer one
	p.Limits.Wall = 2 * time.Second
	require.True(t, attack(t, s, p).TimedOut)

	p = python(`
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    try:
        if os.fork() == 0: os.setsid()
    except OSError: pass
`)
	p.Limits.Wall = 2 * time.Second
	require.True(t, attack(t, s, p).TimedOut)
}

func TestAttackMemory(t *testing.T) {
	s := open(t)
	p := python(`
def bytes_of(n): return len(bytearray(n))
try: print("ACHIEVED", bytes_of(2 << 30))
except MemoryError: pass
import mmap
attempt("shared 2 GiB", lambda: len(mmap.mmap(-1, 2 << 30)), refused=(errno.ENOMEM,))
keep = []
try:
    while True: keep.append(bytearray(1 << 24))
except MemoryError:
    n = len(keep); keep.clear()
    print("one process had", n << 24)
print("tried everything")
`)
	p.Limits.Memory = 256 << 20
	r := attack(t, s, p)
	contained(t, r)
	_, after, _ := strings.Cut(string(r.Stdout), "had ")
	n, err := strconv.Atoi(strings.Fields(after)[0])
	require.NoError(t, err)
	require.Less(t, n, 256<<20)
	require.Greater(t, n, 128<<20)

	p = python(`
for _ in range(8):
    fork(lambda: (bytearray(os.urandom(1) * (100 << 20)), time.sleep(100)))
time.sleep(100)
`)
	p.Limits.Memory = 256 << 20
	r = attack(t, s, p)
	require.Equal(t, "memory", r.Exceeded)
	require.Equal(t, "SIGKILL", r.Signal)
	require.False(t, r.TimedOut)
}

func TestAttackDisk(t *testing.T) {
	s := open(t)
	fill := `
total = 0
for where in sys.argv[1:]:
    i = 0
    try:
        while True:
            with open(where + "/%d" % i, "wb", 0) as f:
                i += 1
                for _ in range(1000): total += f.write(b"x" * 65536)
    except OSError as e:
        print(where, errno.errorcode[e.errno])
print(total)
print("tried everything")
`
	p := python(fill, "/tmp", "/workspace", "/dev/shm", "/", "/dev", "/etc", "/run")
	p.Limits.Disk = 16 << 20
	r := attack(t, s, p)
	contained(t, r)
	lines := strings.Split(string(r.Stdout), "\n")
	require.Equal(t, []string{"/tmp ENOSPC", "/workspace ENOSPC", "/dev/shm ENOSPC", "/ EROFS", "/dev EROFS", "/etc EROFS", "/run ENOENT"}, lines[:7])
	total, err := strconv.Atoi(lines[7])
	require.NoError(t, err)
	require.LessOrEqual(t, total, 16<<20)
	require.Greater(t, total, 15<<20)

	// A folder of the host: one file is bound by an rlimit, many are seen while the program runs, also those that have no name any more.
	for name, code := range map[string]string{
		"one file": `
try:
    with open("big", "wb", 0) as f:
        while True: f.write(b"x" * 65536)
except OSError as e: print(errno.errorcode[e.errno], os.path.getsize("big"))
`,
		"many files": `
i = 0
while True:
    open("%d" % i, "wb").write(b"x" * 65536); i += 1
    time.sleep(0.0005)
`,
		"removed files": `
files = []
while True:
    f = open("f", "w+b", 0); os.remove("f"); files.append(f)
    f.write(b"x" * (1 << 20))
    time.sleep(0.01)
`,
		"deep folders": `
while True:
    os.mkdir("d" * 200); os.chdir("d" * 200)
`,
	} {
		t.Run(name, func(t *testing.T) {
			p := python(code)
			p.Workspace, p.Limits.Disk = t.TempDir(), 16<<20
			r := attack(t, s, p)
			if name == "one file" {
				require.Equal(t, "EFBIG 16777216\n", string(r.Stdout))
				return
			}
			require.Equal(t, "disk", r.Exceeded, "%s", r.Stderr)
			if name == "many files" {
				var size int64
				require.NoError(t, filepath.WalkDir(p.Workspace, func(_ string, d fs.DirEntry, _ error) error {
					info, err := d.Info()
					size += info.Size()
					return err
				}))
				require.Greater(t, size, int64(8<<20))
			}
		})
	}
}

func TestAttackInfiniteLoop(t *testing.T) {
	s := open(t)
	p := python("while True: pass")
	p.Limits.CPU = time.Second
	r := attack(t, s, p)
	require.Equal(t, "SIGXCPU", r.Signal)
	require.False(t, r.TimedOut)
	require.Greater(t, r.Processor, 800*time.Millisecond) // counted in ticks

	p = python("signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass")
	p.Limits.CPU = time.Second
	require.Equal(t, "SIGKILL", attack(t, s, p).Signal)

	p = python("for n in range(1, 32):\n  if n not in (9, 19): signal.signal(n, signal.SIG_IGN)\nwhile True: time.sleep(1)")
	p.Limits.Wall = time.Second
	require.True(t, attack(t, s, p).TimedOut)

	p = shell("kill -STOP $$")
	p.Limits.Wall = time.Second
	require.True(t, attack(t, s, p).TimedOut)
}

func TestAttackOutput(t *testing.T) {
	s := open(t)
	p := shell("(head -c 200000000 /dev/zero) & head -c 50000000 /dev/zero >&2; wait")
	r := attack(t, s, p)
	require.Len(t, r.Stdout, 1<<20)
	require.Len(t, r.Stderr, 1<<20)
	require.EqualValues(t, 250000000-2<<20, r.Dropped)
	require.Zero(t, r.Exit)

	p = shell("yes")
	p.Limits.Wall = time.Second
	r = attack(t, s, p)
	require.True(t, r.TimedOut)
	require.Len(t, r.Stdout, 1<<20)

	p = shell("echo unread")
	p.Stdin = make([]byte, 10<<20)
	require.Equal(t, "unread\n", string(attack(t, s, p).Stdout))
}

// A program that leaves processes behind, which hold its files and its output open.
func TestAttackAfterTheEnd(t *testing.T) {
	s := open(t)
	p := python(`
def daemon():
    os.setsid()
    if os.fork() > 0: os._exit(0)
    for n in range(1, 32):
        if n not in (9, 19): signal.signal(n, signal.SIG_IGN)
    while True:
        open("beat", "a").write("x")
        time.sleep(0.001)
for _ in range(5): fork(daemon)
while not os.path.exists("beat"): time.sleep(0.001)
print("the parent ends", flush=True)
`)
	p.Workspace = t.TempDir()
	r := attack(t, s, p)
	require.Equal(t, "the parent ends\n", string(r.Stdout))
	require.False(t, r.TimedOut)
	require.Zero(t, r.Exit)
	size := func() int64 {
		info, err := os.Stat(filepath.Join(p.Workspace, "beat"))
		require.NoError(t, err)
		return info.Size()
	}
	before := size()
	run(t, s, shell("sleep 0.1")) // the daemons would write a hundred times
	require.Equal(t, before, size())
}

// A process that is killed takes its sandboxes with it, and their folders.
func TestAttackAfterTheParentsEnd(t *testing.T) {
	const variable = "AGENTFLY_TEST_PARENT"
	if mark := os.Getenv(variable); mark != "" { // the parent
		kind, mark, _ := strings.Cut(mark, " ")
		s, err := Open(t.Context(), kind)
		require.NoError(t, err)
		p := python("os.setsid()\nfork(time.sleep, 1000)\ntime.sleep(1000)")
		p.Env = []string{mark}
		_, err = s.Start(t.Context(), p)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return len(marked(mark)) >= 2 }, time.Minute, time.Millisecond)
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGKILL))
	}
	eachKind(t, func(t *testing.T, s *Sandbox) {
		mark := "AGENTFLY_MARK=" + rand.Text()
		self, err := os.Executable()
		require.NoError(t, err)
		temporary := t.TempDir()
		c := exec.Command(self, "-test.run=^TestAttackAfterTheParentsEnd$")
		c.Env = append(os.Environ(), variable+"="+s.Kind()+" "+mark, "TMPDIR="+temporary)
		out, err := c.CombinedOutput()
		require.EqualError(t, err, "signal: killed", "%s", out)
		require.Eventually(t, func() bool {
			left, err := os.ReadDir(temporary)
			return err == nil && len(marked(mark))+len(left) == 0
		}, time.Minute, time.Millisecond)
	})
}

// Memory that a program keeps and that is in no process: pages that were given back, data of sockets that nobody has.
func TestAttackKeptMemory(t *testing.T) {
	for name, keep := range map[string]string{
		"shared pages given back": `
import mmap
keep = []
def child():
    for _ in range(4):  # 100 MiB in each of 16 processes, of which nothing stays resident
        m = mmap.mmap(-1, 25 << 20)
        keep.append(m)
        for i in range(0, len(m), 1 << 20):
            m[i:i + (1 << 20)] = b"x" * (1 << 20)
            m.madvise(mmap.MADV_DONTNEED, i, 1 << 20)
    print("kept", flush=True)
    time.sleep(100)
`,
		"shared pages of which the first is mapped": `
import mmap
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
def child():
    for _ in range(25):
        m = libc.mmap(None, 4 << 20, 3, 1 | 32, -1, 0)
        ctypes.memset(m, 1, 4 << 20)
        libc.munmap(m + 4096, (4 << 20) - 4096)
    print("kept", flush=True)
    time.sleep(100)
`,
		"connections that nobody accepted": `
def child():
    keep, n = [socket.socket(socket.AF_UNIX)], os.getpid()
    keep[0].bind("/tmp/%d" % n); keep[0].listen(64)
    for _ in range(64):
        c = socket.socket(socket.AF_UNIX); c.connect("/tmp/%d" % n); c.setblocking(False)
        try:
            while True: c.send(b"x" * 4096)
        except BlockingIOError: pass
        c.close()
    print("kept", flush=True)
    time.sleep(100)
`,
		"datagrams of closed sockets": `
def child():
    keep = []
    for k in range(16):
        r = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); r.bind("/tmp/%d.%d" % (os.getpid(), k)); keep.append(r)
        for _ in range(11):
            s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.setblocking(False)
            s.sendto(b"x" * 200000, "/tmp/%d.%d" % (os.getpid(), k)); s.close()
    print("kept", flush=True)
    time.sleep(100)
`,
		"sockets on their way": `
import array
def child():
    keep = []
    for _ in range(4):
        a, b = socket.socketpair(); keep += [a, b]
        for _ in range(20):
            c, d = socket.socketpair(); d.setblocking(False)
            for s in (c, d):
                s.setblocking(False)
                try:
                    while True: s.send(b"x" * 4096)
                except BlockingIOError: pass
            a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [c.fileno(), d.fileno()]))])
            c.close(); d.close()
    print("kept", flush=True)
    time.sleep(100)
`,
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(name, "the first is mapped") && os.Geteuid() != 0 {
				t.Skip("the kernel tells root alone how large such memory is")
			}
			eachKind(t, func(t *testing.T, s *Sandbox) {
				if strings.Contains(keep, "AF_UNIX") && s.Kind() == Landlock {
					t.Skip("there are no named sockets")
				}
				p := python(keep + "for _ in range(16): fork(child)\ntime.sleep(100)\n")
				p.Limits.Memory, p.Limits.Wall = 320<<20, time.Minute
				p.Limits.OpenFiles = 4096 // which bounds the files on their way too
				r := attack(t, s, p)
				require.Equal(t, "memory", r.Exceeded, "%d children are done: %s", strings.Count(string(r.Stdout), "kept"), r.Stderr)
			})
		})
	}
}

// One byte of a huge page in a pipe keeps all of the page, which no process has any more.
func TestAttackPinnedPages(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Sandbox) {
		contained(t, attack(t, s, python(systemCalls+`
buffer = ctypes.create_string_buffer(4096)
vector = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 1)
r, w = os.pipe()
call("vmsplice", number(278, 75), w, vector, 1, 0)
call("vmsplice of a gift", number(278, 75), w, vector, 1, 8)
r, w = os.pipe(); os.write(w, b"x"); r2, w2 = os.pipe()
if libc.splice(r, None, w2, None, 1, 0) != 1 or os.read(r2, 1) != b"x": print("UNPROVEN splice")  # which moves what pipes hold, works
print("tried everything")
`)))
	})
}

// With landlock a program gives files no attributes; programs that try to keep them go on without.
func TestCopiesWithAttributes(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Sandbox) {
		if s.Kind() == Landlock && os.Geteuid() != 0 {
			t.Skip("modes cannot be set")
		}
		r := run(t, s, shell(`echo text >a && cp a b && chmod 644 b 2>/dev/null; install -m 644 a c && cat c; cp -p a d && cat d; cp -a a e && cat e; mkdir f && cp -rp a f && cat f/a; mv a f/b && cat f/b`))
		require.Equal(t, strings.Repeat("text\n", 5), string(r.Stdout), "%s", r.Stderr)
	})
}

// Shared memory counts once, whoever has it and however often it is mapped.
func TestSharedMemoryCountsOnce(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Sandbox) {
		p := python(`
import mmap
m = mmap.mmap(-1, 150 << 20)
for i in range(0, len(m), 1 << 20): m[i:i + (1 << 20)] = b"x" * (1 << 20)
def child():
    for i in range(0, len(m), 4096): m[i]
    time.sleep(1)
for _ in range(3): fork(child)
for _ in range(3): os.wait()
print("done")
`)
		p.Limits.Memory = 256 << 20
		r := run(t, s, p)
		require.Empty(t, r.Exceeded)
		require.Equal(t, "done\n", string(r.Stdout), "%s", r.Stderr)
	})
}
