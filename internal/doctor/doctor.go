// Package doctor checks what a machine offers to AgentFly and names the remedy for each thing that is missing.
// It is a leaf; it runs the programs it looks for with a deadline and changes nothing.
//
// It does not mend what it finds.
package doctor

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/agentfly/agentfly/internal/home"
	"github.com/agentfly/agentfly/internal/installed"
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

// Sandbox opens the sandbox of a job that does not choose one: its kind, or an error that says why there is none.
type Sandbox func(ctx context.Context) (kind string, err error)

// part is a program or a library that something of the project starts, with the Debian package that brings it.
type part struct {
	command, pkg string
	args         []string // with which it says its version; nil: that it is there is enough
}

// Run makes all checks; work is the folder whose disk counts. What is missing is named whole: every package, with its remedy.
func Run(ctx context.Context, torch Torch, box Sandbox, work string) []Check {
	checks := []Check{
		libtorch(torch), driver(ctx, torch), packaged(), memory(HostMemory()), disk(work),
		python(ctx),
		confined(ctx, box),
		parts(ctx, "bubblewrap", "the first choice of sandbox", part{"bwrap", "bubblewrap", []string{"--version"}}, part{"prlimit", "util-linux", nil}, part{"setpriv", "util-linux", nil}, part{"mount", "mount", nil}),
		vllm(ctx),
	}
	if way, _ := installed.Here(); way == installed.Release { // what follows is of a checkout
		return checks
	}
	return append(checks,
		parts(ctx, "compiler", "building from source", part{"g++", "g++", []string{"--version"}}, part{"make", "make", nil}),
		program(ctx, "go", "building from source", "install Go 1.26 (https://go.dev/dl)", "go", "version"),
		vllmCPU(ctx),
		parts(ctx, "git", "commits in figures, make lint, fuzz and fmt", part{"git", "git", []string{"--version"}}),
		parts(ctx, "linters", "make lint", part{"shellcheck", "shellcheck", nil}, part{"clang-format", "clang-format", nil}),
	)
}

// parts is one check of several programs: it names all that are missing, and installs them with one command.
func parts(ctx context.Context, name, purpose string, all ...part) Check {
	var missing, packages []string
	for _, p := range all {
		if _, err := exec.LookPath(p.command); err != nil {
			missing = append(missing, p.command)
			if !slices.Contains(packages, p.pkg) {
				packages = append(packages, p.pkg)
			}
		}
	}
	if len(missing) > 0 {
		return Check{name, Optional, strings.Join(missing, ", ") + " not found; needed for " + purpose, "apt-get install " + strings.Join(packages, " ")}
	}
	found := "found"
	for _, p := range all {
		if p.args == nil {
			continue
		}
		out, err := output(ctx, p.command, p.args...)
		if err != nil {
			return Check{name, Optional, fmt.Sprintf("%s does not run: %v; needed for %s", p.command, err, purpose), "apt-get install --reinstall " + p.pkg}
		}
		found = firstLine(out)
	}
	return Check{name, OK, found, ""}
}

// confined opens the sandbox, which is more than to look for its programs.
func confined(ctx context.Context, box Sandbox) Check {
	if box == nil {
		return Check{"sandbox", Optional, "not tried", "agentfly doctor tries it"}
	}
	kind, err := box(ctx)
	switch {
	case err != nil:
		return Check{"sandbox", Optional, "the tools python and shell, code_tests and sandboxed files are refused: " + firstLine(err.Error()), "apt-get install bubblewrap util-linux mount"}
	case kind != "bubblewrap":
		return Check{"sandbox", Optional, kind + ", which holds less than bubblewrap (docs/sandbox.md)", "apt-get install bubblewrap util-linux mount"}
	}
	return Check{"sandbox", OK, kind, ""}
}

// vllmCPU is what scripts/vllm_install.sh needs beside Python's packages.
func vllmCPU(ctx context.Context) Check {
	c := parts(ctx, "vllm-cpu", "vLLM on a CPU (make test-vllm)", part{"python3.11", "python3.11", []string{"--version"}}, part{"cc", "gcc", nil}, part{"readelf", "binutils", nil})
	var more []string
	if _, err := output(ctx, "python3.11", "-c", "import ensurepip"); err != nil {
		more = append(more, "python3.11-venv")
	}
	if !library(ctx, "libnuma.so.1") {
		more = append(more, "libnuma1")
	}
	switch {
	case len(more) == 0:
	case c.State == OK:
		c = Check{c.Name, Optional, strings.Join(more, ", ") + " not found; needed for vLLM on a CPU (make test-vllm)", "apt-get install " + strings.Join(more, " ")}
	default:
		c.Remedy += " " + strings.Join(more, " ")
	}
	return c
}

// library tells whether the loader knows a shared library.
func library(ctx context.Context, name string) bool {
	for _, command := range []string{"ldconfig", "/sbin/ldconfig"} {
		if out, err := output(ctx, command, "-p"); err == nil {
			return strings.Contains(out, name+" ")
		}
	}
	return false
}

func libtorch(t Torch) Check {
	if t.Version == "" {
		return Check{"libtorch", Missing, "this binary was built without the torch tag", installed.WithLibtorch()}
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
	return Check{"gpu", Optional, firstLine(out) + ", but this libtorch has no CUDA", "set LIBTORCH to a CUDA build of torch 2.8 or newer and run make build in a checkout"}
}

// cached is what matches a pattern in AgentFly's cache folder.
func cached(pattern ...string) ([]string, error) {
	whole, err := home.Cache(pattern...)
	if err != nil {
		return nil, err
	}
	return filepath.Glob(whole)
}

func packaged() Check {
	found, err := cached("models", "*", "*.gguf")
	switch {
	case err != nil:
		return Check{"model", Optional, err.Error(), "set HOME"}
	case len(found) == 0:
		return Check{"model", Optional, "SmolLM2-135M-Instruct is not in the cache folder", installed.FetchModel("HuggingFaceTB/SmolLM2-135M-Instruct")}
	}
	return Check{"model", OK, filepath.Base(found[0]), ""}
}

// vllm looks for one that is installed, then for the one that scripts/vllm_install.sh keeps.
func vllm(ctx context.Context) Check {
	c := program(ctx, "vllm", "the vLLM engine", "pip install vllm on a GPU machine, scripts/vllm_install.sh of a checkout on a CPU; engine: local needs none", "vllm", "--version")
	if found, err := cached("vllm", "*", "bin", "vllm"); c.State != OK && err == nil && len(found) > 0 {
		return Check{"vllm", OK, found[len(found)-1], ""}
	}
	return c
}

func python(ctx context.Context) Check {
	c := program(ctx, "python3", "set-up and Python tools", "apt-get install python3 python3-pip python3-venv", "python3", "--version")
	var missing, packages []string
	for module, pkg := range map[string]string{"pip": "python3-pip", "ensurepip": "python3-venv"} {
		if _, err := output(ctx, "python3", "-c", "import "+module); err != nil {
			missing, packages = append(missing, module), append(packages, pkg)
		}
	}
	if c.State == OK && len(missing) > 0 {
		slices.Sort(missing)
		slices.Sort(packages)
		c.State, c.Found, c.Remedy = Optional, c.Found+" without "+strings.Join(missing, ", "), "apt-get install "+strings.Join(packages, " ")
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

func memory(has Capacity) Check {
	if has.Bytes == 0 {
		return Check{"memory", Optional, "size unknown", fmt.Sprintf("%d GB are needed for SmolLM2-135M", needMemoryGB)}
	}
	gb := float64(has.Bytes) / 1e9
	c := Check{Name: "memory", State: OK, Found: fmt.Sprintf("%s has %.1f GB", has.Of, gb)}
	if gb < needMemoryGB {
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
