package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Capacity is how much memory there is.
type Capacity struct {
	Bytes int64  `json:"bytes"` // 0: unknown
	Of    string `json:"of"`    // the machine, a cgroup's limit, or a device
}

var memTotal = regexp.MustCompile(`(?m)^MemTotal:\s+(\d+) kB`)

// HostMemory is the machine's memory, or the limit of a cgroup that this process is in where that is lower.
func HostMemory() Capacity { return hostMemory("/") }

func hostMemory(root string) (c Capacity) {
	c.Of = "this machine"
	data, err := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	if m := memTotal.FindSubmatch(data); err == nil && m != nil {
		kb, _ := strconv.ParseInt(string(m[1]), 10, 64) // the pattern has digits alone; too many are unknown
		c.Bytes = kb * 1024
	}
	lower := func(file string) {
		text, err := os.ReadFile(filepath.Join(root, file))
		n, wrong := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && wrong == nil && n > 0 && (c.Bytes == 0 || n < c.Bytes) { // "max" is no number, and no limit
			c = Capacity{n, "this machine's cgroup"}
		}
	}
	groups, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup")) // without it there is none
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		base, name := "", ""
		switch {
		case parts[1] == "":
			base, name = "sys/fs/cgroup", "memory.max"
		case strings.Contains(","+parts[1]+",", ",memory,"):
			base, name = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for at := filepath.Clean("/" + parts[2]); ; at = filepath.Dir(at) { // every folder above has a limit of its own
			lower(filepath.Join(base, at, name))
			if at == "/" {
				break
			}
		}
	}
	return c
}

// DeviceMemory is the memory of the smallest of the first n CUDA devices, as NVIDIA's driver says it.
func DeviceMemory(ctx context.Context, n int) Capacity {
	out, err := output(ctx, "nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
	if err != nil {
		return Capacity{}
	}
	return smallest(out, n)
}

func smallest(out string, n int) (c Capacity) {
	for i, line := range strings.Split(strings.TrimSpace(out), "\n") {
		mib, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if err == nil && i < n && (c.Bytes == 0 || mib<<20 < c.Bytes) {
			c = Capacity{mib << 20, fmt.Sprintf("CUDA device %d", i)}
		}
	}
	return c
}
