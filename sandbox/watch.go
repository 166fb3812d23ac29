package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A tree is looked at ten times a second while it changes, once a second while it does not.
const (
	watchMin = 100 * time.Millisecond
	watchMax = time.Second
)

// watch ends the tree when its memory, or its files in folders of the host, grow beyond the limits: rlimits bind a process and a file, not
// a tree and a folder.
func (r *running) watch(l Limits, folders ...string) {
	every := watchMin
	timer := time.NewTimer(every)
	defer timer.Stop()
	var before [2]int64
	for {
		select {
		case <-r.ended:
			return
		case <-timer.C:
		}
		pids := descendants(r.cmd.Process.Pid)
		now := [2]int64{residentBytes(pids), 0}
		if now[0] > l.Memory { // shared pages count for each process: count again, exactly
			now[0] = proportionalBytes(pids)
		}
		for _, dir := range folders {
			if dir != "" {
				now[1] += folderBytes(dir, pids)
			}
		}
		switch {
		case now[0] > l.Memory:
			r.end("memory")
		case now[1] > l.Disk:
			r.end("disk")
		}
		if every = min(2*every, watchMax); now != before {
			every = watchMin
		}
		before = now
		timer.Reset(every)
	}
}

// descendants are the processes below root, root not included.
func descendants(root int) []int {
	var out []int
	queue := []int{root}
	for len(queue) > 0 {
		dir := "/proc/" + strconv.Itoa(queue[0]) + "/task"
		queue = queue[1:]
		threads, err := os.ReadDir(dir)
		if err != nil {
			continue // it ended
		}
		for _, t := range threads {
			text, err := os.ReadFile(dir + "/" + t.Name() + "/children")
			if err != nil {
				continue
			}
			for _, word := range strings.Fields(string(text)) {
				if pid, err := strconv.Atoi(word); err == nil {
					queue, out = append(queue, pid), append(out, pid)
				}
			}
		}
	}
	return out
}

func residentBytes(pids []int) int64 {
	var sum int64
	for _, pid := range pids {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
		if err != nil {
			continue
		}
		if words := strings.Fields(string(text)); len(words) > 1 {
			pages, _ := strconv.ParseInt(words[1], 10, 64)
			sum += pages * int64(os.Getpagesize())
		}
	}
	return sum
}

// proportionalBytes counts a page that n processes share for 1/n in each.
func proportionalBytes(pids []int) int64 {
	var sum int64
	for _, pid := range pids {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
		if err != nil {
			continue
		}
		_, after, _ := strings.Cut(string(text), "\nPss:")
		if words := strings.Fields(after); len(words) > 0 {
			kilobytes, _ := strconv.ParseInt(words[0], 10, 64)
			sum += kilobytes << 10
		}
	}
	return sum
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
		_, after, _ := strings.Cut(string(text), ") ") // the name may hold spaces
		if words := strings.Fields(after); len(words) > 14 {
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

// folderBytes is the room that a folder takes on its disk, with files of its file system that are removed and still open in one of the
// processes.
func folderBytes(dir string, pids []int) int64 {
	var sum int64
	var device uint64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, syscall.ENAMETOOLONG) {
			return err
		}
		if err != nil {
			return nil // it was removed meanwhile
		}
		info, err := d.Info()
		if err != nil {
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
		return 1 << 60
	}
	for _, pid := range pids {
		open := "/proc/" + strconv.Itoa(pid) + "/fd"
		entries, err := os.ReadDir(open)
		if err != nil {
			continue
		}
		for _, e := range entries {
			var st syscall.Stat_t
			if syscall.Stat(open+"/"+e.Name(), &st) == nil && st.Nlink == 0 && uint64(st.Dev) == device && st.Mode&syscall.S_IFMT == syscall.S_IFREG {
				sum += st.Blocks * 512
			}
		}
	}
	return sum
}
