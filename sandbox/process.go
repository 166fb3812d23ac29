//go:build linux

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// launch is a program that is ready to start.
type launch struct {
	cmd     *exec.Cmd
	theirs  []*os.File // that the child inherits
	status  *os.File   // where {"child-pid": N} comes once the tree has a first process, and {"exit-code": N} at its end
	control *os.File   // closing it ends the tree; nil: the first process of the tree is killed, and the kernel kills the others
	folder  *Folder    // closed when the tree is gone; nil: none
	// inodes is the memory of the private files of the tree beside their content; nil: the file system bounds it.
	inodes  func(pids []int) (int64, error)
	network bool // the tree has one of its own
	// listen makes a listener on the loopback of the tree whose first process has that number, before goes is written to, for which the program waits. nil: nothing is served.
	listen func(ctx context.Context, tree int) (net.Listener, error)
	goes   *os.File
}

func (l *launch) close() {
	for _, f := range append(l.theirs, l.status, l.control, l.goes) {
		if f != nil {
			_ = f.Close()
		}
	}
	if l.folder != nil {
		_ = l.folder.Close()
	}
}

// startTimeout bounds the making of a tree's first process.
const startTimeout = 30 * time.Second

// running is a started program.
type running struct {
	cmd            *exec.Cmd
	stdin          *os.File
	stdout, stderr *os.File
	cancel         func() bool   // forgets ctx
	ended          chan struct{} // closed when the whole tree is gone
	all            sync.WaitGroup
	closeOnce      sync.Once
	inodes         func(pids []int) (int64, error) // of launch
	network        bool                            // of launch

	mu       sync.Mutex
	tree     int      // pidfd of the tree's first process; -1: none
	control  *os.File // of launch
	killed   bool
	exceeded string
	blind    error         // why the limits could not be watched
	spent    time.Duration // processor time of the tree when it was killed: the kernel forgets that of the first process's children
	err      error         // of Wait
}

func (r *running) Stdin() io.WriteCloser { return r.stdin }
func (r *running) Stdout() io.Reader     { return r.stdout }
func (r *running) Stderr() io.Reader     { return r.stderr }

func (s *Sandbox) start(ctx context.Context, p Program) (*running, error) {
	if err := check(p); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	limits := p.Limits.or(Defaults)
	l, err := s.command(p, limits)
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	r := &running{cmd: l.cmd, ended: make(chan struct{}), tree: -1, control: l.control, inodes: l.inodes, network: l.network}
	if err := r.pipes(l); err != nil {
		l.close()
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	folders := p.folders(l)
	room := s.overfull.room(limits.Disk, folders)
	err = s.starter.do(func() error {
		// Descriptors that this process inherited, or that a C library opened, are none of the program's business.
		if err := unix.CloseRange(3, 1<<30, unix.CLOSE_RANGE_CLOEXEC); err != nil {
			return err
		}
		return l.cmd.Start()
	})
	for _, f := range l.theirs {
		_ = f.Close()
	}
	if err != nil {
		l.theirs = nil
		l.close()
		r.closePipes()
		return nil, fmt.Errorf("sandbox: start %s: %w", filepath.Base(l.cmd.Path), err)
	}
	status := json.NewDecoder(l.status)
	first := r.awaitTree(l, status)
	r.cancel = context.AfterFunc(ctx, func() { r.end("") })
	r.all.Go(func() { r.wait(&s.starter, l, status) })
	r.all.Go(func() { r.watch(limits, folders, room, func() { s.overfull.add(folders) }) })
	if l.listen != nil {
		if err := r.serve(ctx, l, first, p.Serve); err != nil {
			_ = r.Kill()
			return nil, fmt.Errorf("sandbox: %w", err)
		}
	}
	return r, nil
}

// folders are those of the host that the program may fill.
func (p Program) folders(l *launch) (out []string) {
	if p.Workspace != "" {
		out = append(out, p.Workspace)
	}
	for _, m := range p.Mounts {
		if m.Writable && m.Host != p.Workspace {
			out = append(out, m.Host)
		}
	}
	if l.folder != nil {
		out = append(out, l.folder.Path())
	}
	return out
}

// serve has what the tree asks on its loopback answered, and lets the program begin. A tree that has ended before says at its end why.
func (r *running) serve(ctx context.Context, l *launch, tree int, answer func(net.Listener)) error {
	defer l.goes.Close()
	listener, err := l.listen(ctx, tree)
	if err != nil {
		select {
		case <-r.ended:
			return nil
		case <-time.After(time.Second):
			return err
		}
	}
	r.all.Go(func() {
		<-r.ended
		_ = listener.Close()
	})
	r.all.Go(func() { answer(listener) })
	_, _ = l.goes.Write([]byte{0}) // a tree that is gone says why
	return nil
}

func check(p Program) error {
	if len(p.Args) == 0 || p.Args[0] == "" {
		return errors.New("sandbox: the program has no arguments; Args[0] is what runs")
	}
	for _, path := range append([]string{p.Workspace}, p.ReadOnly...) {
		if path != "" && !filepath.IsAbs(path) {
			return fmt.Errorf("sandbox: %q is not an absolute path", path)
		}
	}
	for _, path := range p.ReadOnly {
		if info, err := os.Stat(path); err == nil && info.Mode()&(fs.ModeSocket|fs.ModeNamedPipe) != 0 {
			return fmt.Errorf("sandbox: %q is a socket or a named pipe; what is shown read-only are folders and files", path)
		}
	}
	for _, m := range p.Mounts {
		if err := m.check(); err != nil {
			return err
		}
	}
	for _, text := range append(append([]string{}, p.Args...), p.Env...) {
		if strings.ContainsRune(text, 0) {
			return errors.New("sandbox: an argument or a variable holds a zero byte")
		}
	}
	return nil
}

// shows says whether the program sees folders in which the host's services may listen. A writable mount is a copy made for the program.
func (p Program) shows() bool {
	return len(p.ReadOnly) > 0 || slices.ContainsFunc(p.Mounts, func(m Mount) bool { return !m.Writable })
}

// taken are the folders of the root that every sandbox has already.
var taken = []string{"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "tmp", "usr", "workspace"}

func (m Mount) check() error {
	top, _, _ := strings.Cut(strings.TrimPrefix(m.Inside, "/"), "/")
	switch {
	case !filepath.IsAbs(m.Host):
		return fmt.Errorf("sandbox: %q is not an absolute path", m.Host)
	case !filepath.IsAbs(m.Inside) || filepath.Clean(m.Inside) != m.Inside || m.Inside == "/":
		return fmt.Errorf("sandbox: a folder cannot be mounted at %q; give an absolute path without . and .., which is not /", m.Inside)
	case slices.Contains(taken, top):
		return fmt.Errorf("sandbox: a folder cannot be mounted at %q: /%s is the sandbox's own", m.Inside, top)
	case strings.ContainsRune(m.Host+m.Inside, 0):
		return errors.New("sandbox: a mount holds a zero byte")
	}
	return nil
}

// pipes makes the standard streams.
func (r *running) pipes(l *launch) error {
	in, stdin, err := os.Pipe()
	if err != nil {
		return err
	}
	l.theirs, r.stdin = append(l.theirs, in), stdin
	stdout, out, err := os.Pipe()
	if err != nil {
		r.closePipes()
		return err
	}
	l.theirs, r.stdout = append(l.theirs, out), stdout
	stderr, errs, err := os.Pipe()
	if err != nil {
		r.closePipes()
		return err
	}
	l.theirs, r.stderr = append(l.theirs, errs), stderr
	l.cmd.Stdin, l.cmd.Stdout, l.cmd.Stderr = in, out, errs
	return nil
}

func (r *running) closePipes() {
	for _, f := range []*os.File{r.stdin, r.stdout, r.stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// awaitTree learns of the tree's first process, and returns its number. What goes wrong shows when the program ends.
func (r *running) awaitTree(l *launch, status *json.Decoder) int {
	var first struct {
		PID int `json:"child-pid"`
	}
	_ = l.status.SetReadDeadline(time.Now().Add(startTimeout))
	err := status.Decode(&first)
	_ = l.status.SetReadDeadline(time.Time{})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = l.cmd.Process.Kill()
	}
	if err != nil || first.PID <= 0 || r.control != nil {
		return 0
	}
	if fd, err := unix.PidfdOpen(first.PID, 0); err == nil {
		r.tree = fd
	}
	return first.PID
}

// endBlind ends the tree because nothing says what it uses.
func (r *running) endBlind(err error) {
	r.mu.Lock()
	if !r.killed {
		r.blind = err
	}
	r.mu.Unlock()
	r.end(Unwatched)
}

// end kills the tree and does not wait for that.
func (r *running) end(exceeded string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.ended:
		return
	default:
	}
	if r.exceeded == "" && !r.killed {
		r.exceeded = exceeded
	}
	if !r.killed {
		pids, _ := descendants(r.cmd.Process.Pid)
		r.killed, r.spent = true, processorTime(pids)
	}
	switch {
	case r.control != nil:
		_ = r.control.Close()
	case r.tree >= 0:
		_ = unix.PidfdSendSignal(r.tree, unix.SIGKILL, nil, 0)
	default: // bwrap takes the tree with it
		_ = r.cmd.Process.Kill()
	}
}

// wait waits until the tree is gone, and reads how it ended.
func (r *running) wait(s *starter, l *launch, status *json.Decoder) {
	waited := r.cmd.Wait()
	var last struct {
		Code *int `json:"exit-code"`
	}
	_ = l.status.SetReadDeadline(time.Now().Add(startTimeout))
	for last.Code == nil && status.Decode(&last) == nil {
	}
	_ = l.status.Close()
	if l.folder != nil {
		_ = l.folder.Close()
	}
	r.cancel()
	s.release()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tree >= 0 {
		_ = unix.Close(r.tree)
	}
	if r.control != nil {
		_ = r.control.Close()
	}
	switch {
	case last.Code == nil && r.killed:
		r.err = &ExitError{Exit: -1, Signal: "SIGKILL", Exceeded: r.exceeded, Cause: r.blind}
	case last.Code == nil:
		r.err = fmt.Errorf("sandbox: the program was not started (%w)", orEnded(waited))
	case *last.Code > 128 && unix.SignalName(syscall.Signal(*last.Code-128)) != "":
		r.err = &ExitError{Exit: -1, Signal: unix.SignalName(syscall.Signal(*last.Code - 128)), Exceeded: r.exceeded, Cause: r.blind}
	case *last.Code != 0:
		r.err = &ExitError{Exit: *last.Code, Exceeded: r.exceeded, Cause: r.blind}
	}
	close(r.ended)
}

func orEnded(err error) error {
	if err == nil {
		return errors.New("it ended before")
	}
	return err
}

func (r *running) Wait() error {
	<-r.ended
	return r.err
}

func (r *running) Kill() error {
	r.end("")
	r.all.Wait()
	r.closeOnce.Do(r.closePipes)
	return nil
}

// processor is the time that the tree computed. It is known after Wait.
func (r *running) processor() time.Duration {
	if r.cmd.ProcessState == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(r.spent, r.cmd.ProcessState.UserTime()+r.cmd.ProcessState.SystemTime())
}

// starter starts processes on a thread of its own, which it keeps while one of them lives: bwrap dies with the thread that started it,
// and the runtime ends threads that goroutines had locked.
type starter struct {
	mu       sync.Mutex
	programs int
	jobs     chan func()
	loop     sync.WaitGroup
}

func (s *starter) do(start func() error) error {
	s.mu.Lock()
	if s.programs == 0 {
		jobs := make(chan func())
		s.jobs = jobs
		s.loop.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for f := range jobs {
				f()
			}
		})
	}
	s.programs++
	jobs := s.jobs
	s.mu.Unlock()
	result := make(chan error, 1)
	jobs <- func() { result <- start() }
	err := <-result
	if err != nil {
		s.release()
	}
	return err
}

// release says that a process has ended.
func (s *starter) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.programs--
	if s.programs == 0 {
		close(s.jobs)
		s.loop.Wait()
	}
}

// filled is the reading end of a pipe that holds data, which must fit a pipe's buffer.
func filled(data []byte) (*os.File, error) {
	if len(data) > 64<<10 {
		return nil, fmt.Errorf("%d bytes are too many for a pipe", len(data))
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if _, err := w.Write(data); err != nil {
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}
