//go:build linux

package sandbox

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The first thread of a process may end and leave the others: /proc says of the process then that it uses nothing.
func TestAttackFirstThread(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Sandbox) {
		p := python(systemCalls + `
def child():
    def thread():
        time.sleep(0.3)  # the first thread has ended
        keep = bytearray(os.urandom(1) * (100 << 20))
        time.sleep(100)
    threading.Thread(target=thread).start()
    libc.syscall(number(60, 93), 0)
for _ in range(8): fork(child)
time.sleep(100)
`)
		p.Limits.Memory, p.Limits.Wall = 256<<20, 15*time.Second
		require.Equal(t, "memory", attack(t, s, p).Exceeded)
	})
}

// A thread may have descriptors that the process does not have, and hold removed files with them.
func TestAttackDescriptorsOfAThread(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Sandbox) {
		p := python(`
VM, SIGHAND, THREAD, VFORK = 0x100, 0x800, 0x10000, 0x4000
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
def thread(_):
    files = []
    while True:
        f = open("f", "w+b", 0); os.remove("f"); files.append(f)
        f.write(b"x" * (1 << 20))
        time.sleep(0.01)
stack = ctypes.create_string_buffer(4 << 20)
libc.clone(thread, ctypes.c_void_p(ctypes.addressof(stack) + (3 << 20)), VM | SIGHAND | THREAD | VFORK, None)
`)
		p.Workspace, p.Limits.Disk, p.Limits.Wall = t.TempDir(), 16<<20, 15*time.Second
		r := attack(t, s, p)
		require.Equal(t, "disk", r.Exceeded, "%+v %s", r, r.Stderr)
	})
}

// Where this process has no descriptor left to look with, the tree ends.
func TestBlindWatch(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Sandbox) {
		p, err := s.Start(t.Context(), shell("sleep 1000"))
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Kill()) }()
		ended := make(chan error, 1)
		go func() { ended <- p.Wait() }()
		require.NoError(t, withoutDescriptors(t, func() error {
			select {
			case err := <-ended:
				ended <- err
				return nil
			case <-time.After(10 * time.Second):
				return os.ErrDeadlineExceeded
			}
		}))
		var exit *ExitError
		require.ErrorAs(t, <-ended, &exit)
		require.Equal(t, Unwatched, exit.Exceeded)
		require.ErrorIs(t, exit.Cause, unix.EMFILE)
		require.ErrorContains(t, exit, "could not be watched")
	})
}

// Run tells such an end as an error of its own: the program did nothing wrong.
func TestBlindRun(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Sandbox) {
		p := shell("echo >begun; sleep 1000")
		p.Workspace, p.Limits.Wall = t.TempDir(), time.Minute
		ended := make(chan error, 1)
		go func() {
			_, err := s.Run(t.Context(), p)
			ended <- err
		}()
		require.Eventually(t, func() bool {
			_, err := os.Stat(filepath.Join(p.Workspace, "begun"))
			return err == nil
		}, 20*time.Second, 10*time.Millisecond)
		err := withoutDescriptors(t, func() error { return <-ended })
		require.EqualError(t, err, "sandbox: killed because its memory and disk could not be watched: this process has no descriptor left; allow it more open files (ulimit -n)")
		var exit *ExitError
		require.ErrorAs(t, err, &exit)
		require.True(t, exit.Blind())
	})
}

// A program that hides itself is not this process without descriptors.
func TestHiddenIsNotBlind(t *testing.T) {
	for cause, blind := range map[error]bool{
		unix.EMFILE: true, unix.ENFILE: true, unix.EACCES: false, errors.New("the program has more than 3 mappings"): false,
	} {
		cause = errors.Join(&os.PathError{Op: "open", Path: "/proc/3/maps", Err: cause})
		require.Equal(t, blind, (&ExitError{Exit: -1, Exceeded: Unwatched, Cause: cause}).Blind(), cause)
	}
	require.False(t, (&ExitError{Exit: -1, Exceeded: "memory"}).Blind())
}

// withoutDescriptors runs f while this process can open nothing.
func withoutDescriptors(t *testing.T, f func() error) error {
	t.Helper()
	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	now := before
	now.Cur = 3
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &now))
	err := f()
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before))
	return err
}

// A supervisor that can open nothing kills its tree all the same.
func TestBlindSupervisor(t *testing.T) {
	for _, kind := range []string{Landlock, None} {
		t.Run(kind, func(t *testing.T) {
			s, err := Open(t.Context(), kind)
			if err != nil {
				t.Skip(err.Error())
			}
			mark := "AGENTFLY_MARK=" + rand.Text()
			p := python(`
def daemon():
    os.setsid()
    if os.fork() > 0: os._exit(0)
    while True:
        time.sleep(0.01)
for _ in range(5): fork(daemon)
print("up", flush=True)
time.sleep(1000)
`)
			p.Env = []string{mark}
			live, err := s.Start(t.Context(), p)
			require.NoError(t, err)
			_, err = io.ReadFull(live.Stdout(), make([]byte, 3))
			require.NoError(t, err)
			none := unix.Rlimit{}
			require.NoError(t, unix.Prlimit(live.(*running).cmd.Process.Pid, unix.RLIMIT_NOFILE, &none, nil))
			ended := make(chan error, 1)
			go func() { ended <- live.Kill() }()
			select {
			case err := <-ended:
				require.NoError(t, err)
			case <-time.After(20 * time.Second):
				for _, pid := range mustDescendants(t, os.Getpid()) {
					_ = unix.Kill(pid, unix.SIGKILL)
				}
				t.Fatal("the tree outlives its supervisor's descriptors")
			}
			require.Empty(t, marked(mark))
		})
	}
}

func mustDescendants(t *testing.T, pid int) []int {
	t.Helper()
	pids, err := descendants(pid)
	require.NoError(t, err)
	return pids
}

// What killed processes left is removed by the next that opens a sandbox; what lives is not, nor what is being made.
func TestStaleFolders(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	stale, used, young := tempFolder(t), tempFolder(t), tempFolder(t)
	require.NoError(t, os.MkdirAll(filepath.Join(stale.path, "a", "b"), 0o755))
	require.NoError(t, os.Chmod(filepath.Join(stale.path, "a"), 0))   // as a program does
	begun := strings.TrimSuffix(young.path, folderSuffix) + newSuffix // not locked yet, but in a moment
	require.NoError(t, os.Rename(young.path, begun))
	young.path = begun
	left := tempFolder(t)
	require.NoError(t, left.lock.Close())
	require.NoError(t, os.Rename(left.path, strings.TrimSuffix(left.path, folderSuffix)+newSuffix))
	left.path = strings.TrimSuffix(left.path, folderSuffix) + newSuffix
	long := time.Now().Add(-2 * settled)
	require.NoError(t, os.Chtimes(left.path, long, long))
	require.NoError(t, stale.lock.Close()) // as the kernel does
	require.NoError(t, young.lock.Close())
	_, err := Open(t.Context(), None)
	require.NoError(t, err)
	require.NoDirExists(t, stale.path)
	require.NoDirExists(t, left.path)
	require.DirExists(t, used.path)
	require.DirExists(t, young.path)
	require.NoError(t, used.Close())
	require.NoDirExists(t, used.path)
}

func tempFolder(t *testing.T) *Folder {
	t.Helper()
	f, err := TempFolder("test")
	require.NoError(t, err)
	return f
}

// What a program may read and run lies often in a folder that is closed to others, such as a Python in the home folder.
func TestClosedFolders(t *testing.T) {
	eachKind(t, func(t *testing.T, s *Sandbox) {
		home := t.TempDir()
		require.NoError(t, os.Chmod(home, 0o700))
		shown, other := filepath.Join(home, "deep", "shown"), filepath.Join(home, "other")
		for _, dir := range []string{filepath.Join(shown, "bin"), other} {
			require.NoError(t, os.MkdirAll(dir, 0o755))
		}
		program, err := os.ReadFile("/bin/cat")
		require.NoError(t, err)
		cat := filepath.Join(shown, "bin", "cat")
		require.NoError(t, os.WriteFile(cat, program, 0o755))
		for _, dir := range []string{shown, other} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "text"), []byte("text of "+filepath.Base(dir)+"\n"), 0o644))
		}
		p := shell(`"$1/bin/cat" "$1/text"; "$1/bin/cat" "$2/text" 2>/dev/null; ls "$2" 2>/dev/null; echo x 2>/dev/null >"$1/new"; mkdir "$3/new" 2>/dev/null; echo end`)
		p.Args = append(p.Args, "sh", shown, other, home)
		p.ReadOnly = []string{shown, filepath.Join(shown, "bin")}
		p.Workspace = filepath.Join(home, "work")
		require.NoError(t, os.Mkdir(p.Workspace, 0o755))
		r := run(t, s, p)
		require.Equal(t, "text of shown\nend\n", string(r.Stdout), "%s", r.Stderr)
		require.NoFileExists(t, filepath.Join(shown, "new"))
		require.NoDirExists(t, filepath.Join(home, "new"))
	})
}

// Where the fallback cannot show a closed folder it says so.
func TestClosedFoldersAreRefusedInWords(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only a process of root runs programs as another user")
	}
	const variable = "AGENTFLY_TEST_MOUNTS"
	dir := t.TempDir() // of root
	require.NoError(t, os.WriteFile(filepath.Join(dir, "text"), nil, 0o644))
	p := shell("cat " + dir + "/text")
	p.ReadOnly = []string{dir}
	if os.Getenv(variable) != "" {
		r := run(t, openFallback(t), p)
		require.Equal(t, 127, r.Exit)
		require.Regexp(t, `the user nobody \(65534\), as whom programs of root run, cannot read `+dir+` \(permission denied; no mount namespace can be made: operation not permitted\): .* install bubblewrap`, string(r.Stderr))
		return
	}
	t.Run("no right to mount", func(t *testing.T) {
		self, err := os.Executable()
		require.NoError(t, err)
		c := exec.Command("setpriv", "--bounding-set", "-sys_admin", self, "-test.run=^TestClosedFoldersAreRefusedInWords$", "-test.v")
		c.Env = append(os.Environ(), variable+"=none")
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
		if why := regexp.MustCompile(`(?m)^.*cannot read ` + regexp.QuoteMeta(os.TempDir()) + `.*$`).Find(out); why != nil {
			t.Skipf("the folder for temporary files is closed: %s", why)
		}
		require.Contains(t, string(out), "--- PASS")
	})
	t.Run("a folder that is closed itself", func(t *testing.T) {
		require.NoError(t, os.Chmod(dir, 0o700))
		r := run(t, openFallback(t), p)
		require.Equal(t, 127, r.Exit)
		require.Contains(t, string(r.Stderr), "cannot read "+dir+" (permission denied)")
	})
}

// The limit of processes is for those of the tree: what else the program's user runs is added.
func TestLandlockCountsTheUsersProcesses(t *testing.T) {
	s := openFallback(t)
	for range Defaults.Processes + 8 {
		asProgramUser(t, exec.Command("sleep", "1000"))
	}
	p := python("pid = os.fork()\nif pid == 0: os._exit(0)\nos.waitpid(pid, 0)\nprint('forked')")
	r := run(t, s, p)
	require.Equal(t, "forked\n", string(r.Stdout), "%s", r.Stderr)
}

// Without mounts of this program's own, bubblewrap's folders are watched for their number of files.
func TestWatchedInodes(t *testing.T) {
	s := open(t)
	b := &bubblewrap{root: os.Geteuid() == 0, bwrap: "bwrap"}
	var err error
	b.bwrap, err = exec.LookPath("bwrap")
	require.NoError(t, err)
	b.prlimit, err = inUsr("prlimit")
	require.NoError(t, err)
	b.setpriv, err = inUsr("setpriv")
	require.NoError(t, err)
	b.filter, err = filter(confinement{families: []uint32{unix.AF_UNIX}})
	require.NoError(t, err)
	b.base = b.arguments()
	watched := &Sandbox{kind: Bubblewrap, command: b.command}
	require.NoError(t, watched.prove(t.Context()))
	p := python("os.mkdir('/tmp/d'); os.chdir('/tmp/d')\ni = 0\nwhile True: os.close(os.open(str(i), os.O_CREAT | os.O_WRONLY)); i += 1")
	p.Limits.Disk = 4 << 20
	require.Equal(t, "disk", run(t, watched, p).Exceeded)
	r := run(t, s, p) // which bounds them exactly
	require.Empty(t, r.Exceeded)
	require.True(t, strings.Contains(string(r.Stderr), "No space left on device"), "%s", r.Stderr)
}
