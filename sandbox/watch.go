//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A tree is looked at ten times a second while it changes, once a second while it does not.
const (
	watchMin = 100 * time.Millisecond
	watchMax = time.Second

	watchReserved = 2 * watchMin // at most where no process is bound by itself
)

// blindLooks is how many looks in a row may fail before the tree is ended: this process may be short of descriptors for a moment.
const blindLooks = 3

// begunFull is what a tree may add to folders that are beyond its limit when it begins: bash and Python write a little by themselves.
const begunFull = 1 << 20

// overfull are the folders for which a tree was ended, until a tree begins in them that has room.
type overfull struct {
	mu      sync.Mutex
	folders map[string]bool
}

func (f *overfull) add(folders []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.folders, func(dir string, _ bool) bool {
		_, err := os.Lstat(dir)
		return errors.Is(err, fs.ErrNotExist)
	})
	if f.folders == nil {
		f.folders = map[string]bool{}
	}
	for _, dir := range folders {
		f.folders[dir] = true
	}
}

// room is how far a tree that has not begun may fill its folders: to the limit. Where an earlier tree was ended for them, this one is not ended for
// what that left, since it may be there to remove files, but it may not make them grow. Folders of twice the limit are too large for any tree.
func (f *overfull) room(limit int64, folders []string) int64 {
	f.mu.Lock()
	known := slices.ContainsFunc(folders, func(dir string) bool { return f.folders[dir] })
	f.mu.Unlock()
	if !known {
		return limit
	}
	var now int64
	for _, dir := range folders {
		n, _ := folderBytes(dir, holdings{})
		now += n
	}
	if now > limit {
		return min(now+begunFull, 2*limit)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, dir := range folders {
		delete(f.folders, dir)
	}
	return limit
}

// watch ends the tree when its memory, or its files in folders of the host, grow beyond the limits: rlimits bind a process and a file, not
// a tree and a folder. It ends the tree as well when it cannot look: what is not seen is not bound. room is that of the folders; full is called before the
// tree is ended for them.
func (r *running) watch(l Limits, folders []string, room int64, full func()) {
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
		case now[1] > room:
			full()
			r.end("disk")
		}
		if blind++; err == nil {
			blind = 0
		}
		if blind >= blindLooks {
			r.endBlind(err)
		}
		longest := watchMax
		if l.Reserved > 0 {
			longest = watchReserved
		}
		if every = min(2*every, longest); now != before || err != nil {
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
	held, err := heldBy(pids)
	add(0, held.buffers, err)
	shared, err := mappedBy(pids, held.removed)
	add(0, shared, err)
	n, err := residentBytes(pids)
	if n+shared > l.Memory { // shared pages count for each process: count again, exactly
		n, err = proportionalBytes(pids)
	}
	add(0, n, err)
	if r.network && len(pids) > 0 {
		n, err := queuedBytes(pids)
		add(0, n, err)
		n, err = localBytes(pids, held.sockets)
		add(0, n, err)
	}
	for _, dir := range folders {
		n, err := folderBytes(dir, held)
		add(1, n, err)
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

// proportionalBytes counts a page that n processes share for 1/n in each, and those of mappedBy not at all.
func proportionalBytes(pids []int) (int64, error) {
	return each(pids, "smaps", func(text string) int64 {
		var sum int64
		counted := false
		for line := range strings.Lines(text) {
			if m, ok := mappingOf(line); ok {
				counted = m.path != sharedMemory
			} else if after, ok := strings.CutPrefix(line, "Pss:"); ok && counted {
				if kilobytes := numbers(after); len(kilobytes) > 0 {
					sum += int64(kilobytes[0]) << 10
				}
			}
		}
		return sum
	})
}

// sharedMemory is the name that the kernel gives to memory of mmap that is shared and of no file. Its pages stay until the last process
// unmaps the last of it, also those that no process has any more: of memory with MADV_DONTNEED, or around a part that is still mapped.
const sharedMemory = "/dev/zero (deleted)"

// maxMappings is how many a look reads at most, so that a program cannot make it slow; a process has 65,530 at most.
const maxMappings = 1 << 18

// mapping is a line of /proc/PID/maps.
type mapping struct {
	addresses, path string
	file            file
	end             int64 // within the file
}

func mappingOf(line string) (mapping, bool) {
	words := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 6) // addresses rights offset device inode path
	if len(words) < 6 || strings.HasSuffix(words[0], ":") {
		return mapping{}, false
	}
	from, to, _ := strings.Cut(words[0], "-")
	major, minor, found := strings.Cut(words[3], ":")
	if !found {
		return mapping{}, false
	}
	hex := func(word string) uint64 {
		n, _ := strconv.ParseUint(word, 16, 64)
		return n
	}
	inode, _ := strconv.ParseUint(words[4], 10, 64)
	return mapping{
		addresses: words[0], path: strings.TrimSpace(words[5]),
		file: file{unix.Mkdev(uint32(hex(major)), uint32(hex(minor))), inode}, end: int64(hex(words[2]) + hex(to) - hex(from)),
	}, true
}

// mappedBy is the size of the shared memory of the processes, and adds the removed files that they have mapped. Root reads how much of a
// file there is; for another user it reaches to the end of what is mapped.
func mappedBy(pids []int, removed map[file]int64) (int64, error) {
	shared := map[file]int64{}
	var errs []error
	lines := 0
	for _, pid := range pids {
		dirs, err := alive(pid)
		errs = append(errs, err)
		if len(dirs) == 0 {
			continue
		}
		text, err := os.ReadFile(dirs[0] + "/maps")
		errs = append(errs, unlessGone(err))
		if lines += strings.Count(string(text), "\n"); lines > maxMappings {
			return 0, errors.Join(append(errs, fmt.Errorf("the program has more than %d mappings", maxMappings))...)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.HasSuffix(line, " (deleted)\n") {
				continue
			}
			m, ok := mappingOf(line)
			if !ok {
				continue
			}
			to := shared
			if m.path != sharedMemory {
				to = removed
			}
			bytes := m.end
			var st syscall.Stat_t
			if syscall.Stat("/proc/"+filepath.Base(dirs[0])+"/map_files/"+m.addresses, &st) == nil {
				bytes = st.Blocks * 512
			}
			to[m.file] = max(to[m.file], bytes)
		}
	}
	var sum int64
	for _, bytes := range shared {
		sum += bytes
	}
	return sum, errors.Join(errs...)
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

// inodeBytes is what a name of a file takes beside the file's blocks: on a tmpfs each name is an inode.
const inodeBytes = 1 << 10

// holdings are what the descriptors of a tree hold beside memory and named files.
type holdings struct {
	removed map[file]int64  // bytes of the files that have no name any more
	sockets map[uint64]bool // inodes of its sockets
	buffers int64           // that its pipes and sockets may fill in the kernel
}

type file struct{ device, inode uint64 }

// heldBy looks at the descriptors of each thread, which need not be those of the process.
func heldBy(pids []int) (holdings, error) {
	out := holdings{removed: map[file]int64{}, sockets: map[uint64]bool{}}
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
					out.sockets[st.Ino] = true
					out.buffers += socketBytes() * (1 + onTheirWay(dir+"/fdinfo/"+e.Name()))
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

// onTheirWay is how many descriptors wait in a local socket to be received; each may be a socket.
func onTheirWay(fdinfo string) int64 {
	text, _ := os.ReadFile(fdinfo) // a socket that was closed has none
	_, after, _ := strings.Cut(string(text), "scm_fds:")
	line, _, _ := strings.Cut(after, "\n")
	if n := numbers(line); len(n) > 0 {
		return int64(n[0])
	}
	return 0
}

// datagrams is how many a local socket of datagrams holds at most, each of another sender.
const datagrams = 11

// localBytes is what the local sockets of a network of the tree's own may hold beside what heldBy counted: those of connections that
// nobody accepted and those on their way are no process's, and one of datagrams holds what sockets sent that are closed.
func localBytes(pids []int, held map[uint64]bool) (int64, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pids[0]) + "/net/unix")
	var sum int64
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line) // address: references protocol flags type state inode [path]
		if len(words) < 7 || words[0] == "Num" {
			continue
		}
		n := int64(1)
		if words[4] == "0002" { // SOCK_DGRAM
			n = datagrams
		}
		if inode, err := strconv.ParseUint(words[6], 10, 64); err == nil && held[inode] {
			n--
		}
		sum += n * socketBytes()
	}
	return sum, unlessGone(err)
}

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

// FolderBytes is the room that a folder of the host takes of Limits.Disk.
func FolderBytes(dir string) (int64, error) { return folderBytes(dir, holdings{}) }

// folderBytes is the room that a folder takes on its disk, with files of its file system that are removed and still open in one of the
// processes. Its error names a folder that cannot be listed.
func folderBytes(dir string, held holdings) (int64, error) {
	var sum int64
	var device uint64
	var errs []error
	linked := map[file]bool{} // files of several names whose blocks are counted already
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
			f := file{uint64(st.Dev), st.Ino}
			sum += inodeBytes
			if !linked[f] {
				sum += st.Blocks * 512
			}
			if st.Nlink > 1 && !d.IsDir() {
				linked[f] = true
			}
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
