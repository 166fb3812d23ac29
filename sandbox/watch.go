//go:build linux

package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A tree is looked at ten times a second while it changes, once a second while it does not.
const (
	watchMin = 100 * time.Millisecond
	watchMax = time.Second
)

// blindLooks is how many looks in a row may fail before the tree is ended: this process may be short of descriptors for a moment.
const blindLooks = 3

// watch ends the tree when its memory, or its files in folders of the host, grow beyond the limits: rlimits bind a process and a file, not
// a tree and a folder. It ends the tree as well when it cannot look: what is not seen is not bound.
func (r *running) watch(l Limits, folders ...string) {
	every := watchMin
	timer := time.NewTimer(every)
	defer timer.Stop()
	var before [2]int64
	blind := 0
	for {
		select {
		case <-r.ended:
			return
		case <-timer.C:
		}
		now, err := r.look(l, folders)
		switch {
		case now[0] > l.Memory:
			r.end("memory")
		case now[1] > l.Disk:
			r.end("disk")
		}
		if blind++; err == nil {
			blind = 0
		}
		if blind >= blindLooks {
			r.endBlind(err)
		}
		if every = min(2*every, watchMax); now != before || err != nil {
			every = watchMin
		}
		before = now
		timer.Reset(every)
	}
}

// look is the memory of the tree and the room that its folders take. What it could not see is in the error, and not counted.
func (r *running) look(l Limits, folders []string) ([2]int64, error) {
	var out [2]int64
	pids, err := descendants(r.cmd.Process.Pid)
	errs := []error{err}
	add := func(i int, n int64, err error) {
		out[i] += n
		errs = append(errs, err)
	}
	n, err := residentBytes(pids)
	if n > l.Memory { // shared pages count for each process: count again, exactly
		n, err = proportionalBytes(pids)
	}
	add(0, n, err)
	held, err := heldBy(pids)
	add(0, held.buffers, err)
	if r.network && len(pids) > 0 {
		n, err := queuedBytes(pids)
		add(0, n, err)
	}
	for _, dir := range folders {
		if dir != "" {
			n, err := folderBytes(dir, held)
			add(1, n, err)
		}
	}
	if r.inodes != nil && len(pids) > 0 {
		n, err := r.inodes(pids)
		add(1, n, err)
	}
	return out, errors.Join(errs...)
}

// gone tells whether an error of a file of /proc, or of a file of a folder, says that it went away meanwhile.
func gone(err error) bool {
	return err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// unlessGone is an error that says more than that.
func unlessGone(err error) error {
	if gone(err) {
		return nil
	}
	return err
}

// descendants are the processes below root, root not included. With an error there may be more.
func descendants(root int) ([]int, error) {
	var out []int
	var errs []error
	queue := []int{root}
	for len(queue) > 0 {
		dirs, err := threads(queue[0])
		errs = append(errs, err)
		queue = queue[1:]
		for _, dir := range dirs {
			text, err := os.ReadFile(dir + "/children")
			errs = append(errs, unlessGone(err))
			pids := numbers(string(text))
			queue, out = append(queue, pids...), append(out, pids...)
		}
	}
	return out, errors.Join(errs...)
}

func numbers(text string) []int {
	var out []int
	for _, word := range strings.Fields(text) {
		if n, err := strconv.Atoi(word); err == nil {
			out = append(out, n)
		}
	}
	return out
}

// threads are the folders of the threads of a process, the first first.
func threads(pid int) ([]string, error) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, unlessGone(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, dir+"/"+e.Name())
	}
	return out, nil
}

// alive are the folders of the threads that have not ended. The first thread of a process may end before the others; what /proc says of the
// process is then what is left of that one, which is nothing.
func alive(pid int) ([]string, error) {
	all, err := threads(pid)
	errs := []error{err}
	var out []string
	for _, dir := range all {
		text, err := os.ReadFile(dir + "/stat")
		errs = append(errs, unlessGone(err))
		if state := afterName(string(text)); err == nil && !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X") {
			out = append(out, dir)
		}
	}
	return out, errors.Join(errs...)
}

// afterName is what follows the name in a stat of /proc: the name may hold anything.
func afterName(text string) string {
	return strings.TrimSpace(text[strings.LastIndexByte(text, ')')+1:])
}

// each adds up what a file of /proc says of the memory of each process: threads have the same.
func each(pids []int, file string, bytes func(text string) int64) (int64, error) {
	var sum int64
	var errs []error
	for _, pid := range pids {
		dirs, err := alive(pid)
		errs = append(errs, err)
		if len(dirs) == 0 {
			continue
		}
		text, err := os.ReadFile(dirs[0] + "/" + file)
		errs = append(errs, unlessGone(err))
		sum += bytes(string(text))
	}
	return sum, errors.Join(errs...)
}

func residentBytes(pids []int) (int64, error) {
	return each(pids, "statm", func(text string) int64 {
		if pages := numbers(text); len(pages) > 1 {
			return int64(pages[1]) * int64(os.Getpagesize())
		}
		return 0
	})
}

// proportionalBytes counts a page that n processes share for 1/n in each.
func proportionalBytes(pids []int) (int64, error) {
	return each(pids, "smaps_rollup", func(text string) int64 {
		_, after, _ := strings.Cut(text, "\nPss:")
		line, _, _ := strings.Cut(after, "\n")
		if kilobytes := numbers(line); len(kilobytes) > 0 {
			return int64(kilobytes[0]) << 10
		}
		return 0
	})
}

// processorTime is what the processes computed, with those of their children that they waited for.
func processorTime(pids []int) time.Duration {
	const tick = time.Second / 100 // USER_HZ, which is the same on every machine
	var sum int64
	for _, pid := range pids {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			continue
		}
		if words := strings.Fields(afterName(string(text))); len(words) > 14 {
			for _, word := range words[11:15] { // utime, stime, cutime, cstime
				ticks, _ := strconv.ParseInt(word, 10, 64)
				sum += ticks
			}
		}
	}
	return time.Duration(sum) * tick
}

// inodeBytes is what a file takes beside its blocks.
const inodeBytes = 1 << 10

// holdings are what the descriptors of a tree hold beside memory and named files.
type holdings struct {
	removed map[file]int64 // bytes of the files that have no name any more
	buffers int64          // that its pipes and sockets may fill in the kernel
}

type file struct{ device, inode uint64 }

// heldBy looks at the descriptors of each thread, which need not be those of the process.
func heldBy(pids []int) (holdings, error) {
	out := holdings{removed: map[file]int64{}}
	seen := map[file]bool{}
	var errs []error
	for _, pid := range pids {
		dirs, err := alive(pid)
		errs = append(errs, err)
		for _, dir := range dirs {
			entries, err := os.ReadDir(dir + "/fd")
			errs = append(errs, unlessGone(err))
			for _, e := range entries {
				var st syscall.Stat_t
				if syscall.Stat(dir+"/fd/"+e.Name(), &st) != nil {
					continue // it was closed
				}
				f := file{uint64(st.Dev), st.Ino}
				if seen[f] {
					continue
				}
				seen[f] = true
				switch st.Mode & syscall.S_IFMT {
				case syscall.S_IFSOCK:
					out.buffers += socketBytes()
				case syscall.S_IFIFO:
					out.buffers += pipeBytes
				case syscall.S_IFREG:
					if st.Nlink == 0 {
						out.removed[f] = st.Blocks * 512
					}
				}
			}
		}
	}
	return out, errors.Join(errs...)
}

// pipeBytes is what a pipe holds at most; the filter keeps it from being made larger, and the buffers of sockets too.
const pipeBytes = 64 << 10

// socketBytes is what a socket may have sent that nobody has received.
var socketBytes = sync.OnceValue(func() int64 {
	if text, err := os.ReadFile("/proc/sys/net/core/wmem_default"); err == nil {
		if n := numbers(string(text)); len(n) > 0 {
			return int64(n[0])
		}
	}
	return 208 << 10
})

// queuedBytes is what waits in the TCP sockets of a network of the tree's own, whose buffers grow by themselves.
func queuedBytes(pids []int) (int64, error) {
	var sum int64
	var errs []error
	for _, name := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pids[0]) + "/net/" + name)
		errs = append(errs, unlessGone(err))
		for line := range strings.Lines(string(text)) {
			words := strings.Fields(line)
			if len(words) < 5 {
				continue
			}
			sent, received, _ := strings.Cut(words[4], ":") // hexadecimal; a header has other words there
			for _, word := range []string{sent, received} {
				if n, err := strconv.ParseInt(word, 16, 64); err == nil {
					sum += n
				}
			}
		}
	}
	return sum, errors.Join(errs...)
}

// folderBytes is the room that a folder takes on its disk, with files of its file system that are removed and still open in one of the
// processes. Its error names a folder that cannot be listed.
func folderBytes(dir string, held holdings) (int64, error) {
	var sum int64
	var device uint64
	var errs []error
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, syscall.ENAMETOOLONG) {
			return err
		}
		if err != nil {
			errs = append(errs, unlessGone(err))
			return nil
		}
		info, err := d.Info()
		if err != nil {
			errs = append(errs, unlessGone(err))
			return nil
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			sum += st.Blocks*512 + inodeBytes
			if device == 0 {
				device = uint64(st.Dev)
			}
		}
		return nil
	})
	if err != nil { // folders within folders until no path reaches them
		return 1 << 60, nil
	}
	for f, bytes := range held.removed {
		if f.device == device {
			sum += bytes
		}
	}
	return sum, errors.Join(errs...)
}
