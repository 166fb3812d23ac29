package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

// resident is the memory of a process in bytes.
func resident(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(data)
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/%d/statm holds %q", pid, data)
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// ticks is Linux's USER_HZ, the unit of the times in /proc/PID/stat.
const ticks = 100

// cpuSeconds is what a process has used; 0 for process 0.
func cpuSeconds(pid int) (float64, error) {
	if pid == 0 {
		return 0, nil
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat holds %q", pid, data)
	}
	total := 0.0
	for _, f := range fields[11:13] { // user, system
		n, err := strconv.ParseFloat(string(f), 64)
		if err != nil {
			return 0, err
		}
		total += n / ticks
	}
	return total, nil
}

// watch looks at this process's memory until it is stopped.
type watch struct {
	done   chan struct{}
	joined sync.WaitGroup
	most   int64
}

func newWatch() *watch {
	w := &watch{done: make(chan struct{})}
	w.joined.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			if now, err := resident(os.Getpid()); err == nil {
				w.most = max(w.most, now)
			}
			select {
			case <-tick.C:
			case <-w.done:
				return
			}
		}
	})
	return w
}

func (w *watch) stop() int64 {
	close(w.done)
	w.joined.Wait()
	return w.most
}
