// Package doctor checks what a machine offers to AgentFly and names the remedy for each thing that is missing.
// It is a leaf; it runs the programs it looks for with a deadline and changes nothing.
package doctor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// State of one check.
type State string

// The states. Only Missing makes a training run on this machine impossible.
const (
	OK       State = "ok"
	Optional State = "optional" // absent, and only some jobs need it
	Missing  State = "missing"
)

// Check is one line of the report.
type Check struct {
	Name   string `json:"name"`
	State  State  `json:"state"`
	Found  string `json:"found"`            // what is there, or what was looked for
	Remedy string `json:"remedy,omitempty"` // one line; empty when ok
}

// Torch is what the running binary knows of its libtorch.
type Torch struct {
	Version     string // empty in a build without the torch tag
	CUDADevices int
}

const (
	timeout      = 10 * time.Second
	needDiskGiB  = 4 // libtorch 0.5, downloads 0.6, a run with its checkpoints 1.5, room
	needMemoryGB = 8
)

// Run makes all checks; work is the folder whose disk counts.
func Run(ctx context.Context, torch Torch, work string) []Check {
	return []Check{
		compiler(ctx), libtorch(torch), driver(ctx, torch), packaged(), memory(), disk(work),
		python(ctx),
		vllm(ctx),
		program(ctx, "java", "ScienceWorld environments", "apt-get install default-jre-headless", "java", "-version"),
		program(ctx, "bubblewrap", "sandboxed tools", "apt-get install bubblewrap", "bwrap", "--version"),
		program(ctx, "chromium", "browser environments", "apt-get install chromium", "chromium", "--version"),
	}
}

func compiler(ctx context.Context) Check {
	c := program(ctx, "compiler", "building from source", "apt-get install g++ make", "g++", "--version")
	if _, err := exec.LookPath("make"); err != nil && c.State == OK {
		c.State, c.Remedy = Optional, "apt-get install make"
	}
	return c
}

func libtorch(t Torch) Check {
	if t.Version == "" {
		return Check{"libtorch", Missing, "this binary was built without the torch tag", "make build"}
	}
	return Check{"libtorch", OK, t.Version, ""}
}

func driver(ctx context.Context, t Torch) Check {
	if t.CUDADevices > 0 {
		return Check{"gpu", OK, fmt.Sprintf("%d CUDA device(s) visible to libtorch", t.CUDADevices), ""}
	}
	out, err := output(ctx, "nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
	if err != nil {
		return Check{"gpu", Optional, "no NVIDIA driver; training runs on the CPU", "install the NVIDIA driver 580 or newer for CUDA"}
	}
	return Check{"gpu", Optional, firstLine(out) + ", but this libtorch has no CUDA", "set LIBTORCH to a CUDA build of torch 2.8 or newer and run make build"}
}

// cached is what matches a pattern in AgentFly's cache folder.
func cached(pattern ...string) ([]string, error) {
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, err
		}
		cache = filepath.Join(home, ".cache")
	}
	return filepath.Glob(filepath.Join(append([]string{cache, "agentfly"}, pattern...)...))
}

func packaged() Check {
	found, err := cached("models", "*", "*.gguf")
	switch {
	case err != nil:
		return Check{"model", Optional, err.Error(), "set HOME"}
	case len(found) == 0:
		return Check{"model", Optional, "SmolLM2-135M-Instruct is not in the cache folder", "make setup"}
	}
	return Check{"model", OK, filepath.Base(found[0]), ""}
}

// vllm looks for one that is installed, then for the one that scripts/vllm_install.sh keeps.
func vllm(ctx context.Context) Check {
	c := program(ctx, "vllm", "the vLLM engine", "pip install vllm on a GPU machine, scripts/vllm_install.sh on a CPU; engine: local needs none", "vllm", "--version")
	if found, err := cached("vllm", "*", "bin", "vllm"); c.State != OK && err == nil && len(found) > 0 {
		return Check{"vllm", OK, found[len(found)-1], ""}
	}
	return c
}

func python(ctx context.Context) Check {
	c := program(ctx, "python3", "set-up and Python tools", "apt-get install python3 python3-pip", "python3", "--version")
	if _, err := output(ctx, "python3", "-m", "pip", "--version"); err != nil && c.State == OK {
		c.State, c.Remedy = Optional, "apt-get install python3-pip"
	}
	return c
}

func disk(work string) Check {
	var s syscall.Statfs_t
	if err := syscall.Statfs(work, &s); err != nil {
		return Check{"disk", Missing, fmt.Sprintf("%s: %v", work, err), "run from a folder that exists"}
	}
	free := float64(s.Bavail) * float64(s.Bsize) / (1 << 30)
	c := Check{Name: "disk", State: OK, Found: fmt.Sprintf("%.1f GiB free", free)}
	if free < needDiskGiB {
		c.State, c.Remedy = Missing, fmt.Sprintf("free at least %d GiB", needDiskGiB)
	}
	return c
}

var memTotal = regexp.MustCompile(`(?m)^MemTotal:\s+(\d+) kB`)

func memory() Check {
	data, err := os.ReadFile("/proc/meminfo")
	m := memTotal.FindSubmatch(data)
	if err != nil || m == nil {
		return Check{"memory", Optional, "size unknown", "8 GB are needed for SmolLM2-135M"}
	}
	kb, _ := strconv.ParseFloat(string(m[1]), 64) // the pattern admits digits only
	c := Check{Name: "memory", State: OK, Found: fmt.Sprintf("%.1f GB", kb*1024/1e9)}
	if kb*1024/1e9 < needMemoryGB {
		c.State, c.Remedy = Optional, fmt.Sprintf("%d GB are needed for SmolLM2-135M; use a smaller model", needMemoryGB)
	}
	return c
}

func program(ctx context.Context, name, purpose, remedy, command string, args ...string) Check {
	out, err := output(ctx, command, args...)
	if err != nil {
		return Check{name, Optional, "not found; needed for " + purpose, remedy}
	}
	return Check{name, OK, firstLine(out), ""}
}

func output(ctx context.Context, command string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c := exec.CommandContext(ctx, command, args...)
	c.WaitDelay = time.Second // what it started may hold its output open
	out, err := c.CombinedOutput()
	return string(out), err
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
