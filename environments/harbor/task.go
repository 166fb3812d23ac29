package harbor

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/agentfly/agentfly/internal/wording"
)

// config is what of task.toml is honoured.
type config struct {
	Agent struct {
		Timeout float64 `toml:"timeout_sec"`
		User    string  `toml:"user"`
	} `toml:"agent"`
	Verifier struct {
		Timeout float64           `toml:"timeout_sec"`
		Env     map[string]string `toml:"env"`
		User    string            `toml:"user"`
	} `toml:"verifier"`
	Solution struct {
		Env map[string]string `toml:"env"`
	} `toml:"solution"`
	Environment struct {
		Build    float64           `toml:"build_timeout_sec"`
		Image    string            `toml:"docker_image"`
		OS       string            `toml:"os"`
		CPUs     float64           `toml:"cpus"`
		MemoryMB int               `toml:"memory_mb"`
		Memory   string            `toml:"memory"`
		DiskMB   int               `toml:"storage_mb"`
		Disk     string            `toml:"storage"`
		GPUs     int               `toml:"gpus"`
		GPUTypes []string          `toml:"gpu_types"`
		Internet bool              `toml:"allow_internet"`
		Env      map[string]string `toml:"env"`
	} `toml:"environment"`
	Steps []any `toml:"steps"`
}

// task is a folder that was read.
type task struct {
	name, dir   string
	instruction string
	recipe      *recipe
	config      config
	memory      int // MiB; 0: not said
	disk        int
	solution    bool // there is solution/solve.sh
}

const (
	standardTimeout = 600 // seconds, where task.toml says none
	longest         = 7 * 24 * 3600
	mostText        = 1 << 20 // bytes of task.toml, instruction.md, a Dockerfile or a script
)

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// readTask reads a task's folder. Its error says in one line what of it cannot be honoured.
func readTask(dir string, p Params) (*task, error) {
	t := &task{name: filepath.Base(dir), dir: dir}
	text, err := read(dir, "task.toml")
	if err != nil {
		return nil, err
	}
	meta, err := toml.Decode(text, &t.config)
	if err != nil {
		return nil, fmt.Errorf("task.toml: %s", strings.ReplaceAll(strings.TrimPrefix(err.Error(), "toml: "), "\n", " "))
	}
	if err := t.check(meta, p); err != nil {
		return nil, fmt.Errorf("task.toml: %w", err)
	}
	if t.instruction, err = read(dir, "instruction.md"); err != nil {
		return nil, err
	}
	if strings.TrimSpace(t.instruction) == "" {
		return nil, fmt.Errorf("instruction.md is empty")
	}
	if _, err := read(dir, "tests/test.sh"); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, "solution", "solve.sh")); err == nil {
		t.solution = true
	}
	for _, name := range []string{"docker-compose.yaml", "docker-compose.yml", "compose.yaml"} {
		if _, err := os.Stat(filepath.Join(dir, "environment", name)); err == nil {
			return nil, fmt.Errorf("environment/%s needs containers", name)
		}
	}
	if text, err := read(dir, "environment/.dockerignore"); err == nil && strings.TrimSpace(text) != "" {
		return nil, fmt.Errorf("environment/.dockerignore is not supported; remove it, and what it names")
	}
	docker, err := read(dir, "environment/Dockerfile")
	if err != nil {
		return nil, err
	}
	t.recipe, err = parse(docker, filepath.Join(dir, "environment"), p.Images)
	return t, err
}

func read(dir, name string) (string, error) {
	path := filepath.Join(dir, filepath.FromSlash(name))
	info, err := os.Stat(path)
	switch {
	case os.IsNotExist(err):
		return "", fmt.Errorf("there is no %s", name)
	case err != nil:
		return "", err
	case !info.Mode().IsRegular() || info.Size() > mostText:
		return "", fmt.Errorf("%s is no file of at most %d bytes", name, mostText)
	}
	text, err := os.ReadFile(path)
	return string(text), err
}

// check refuses what a sandbox without containers, network and graphics cards cannot give. Keys of the sections that describe how a task is played
// and that nobody here knows are refused too: an unknown one may change what the task is.
func (t *task) check(meta toml.MetaData, p Params) error {
	c := &t.config
	for _, key := range meta.Undecoded() {
		if len(key) > 1 && slices.Contains([]string{"agent", "verifier", "environment"}, key[0]) {
			return fmt.Errorf("%s is not supported", wording.Clip(key.String(), 80))
		}
	}
	for name, s := range map[string]*float64{"agent.timeout_sec": &c.Agent.Timeout, "verifier.timeout_sec": &c.Verifier.Timeout, "environment.build_timeout_sec": &c.Environment.Build} {
		if *s == 0 && !meta.IsDefined(strings.Split(name, ".")...) {
			*s = standardTimeout
		}
		if !(*s > 0 && *s <= longest) {
			return fmt.Errorf("%s is %v; give seconds above 0 and at most %d", name, *s, longest)
		}
	}
	for name, env := range map[string]map[string]string{"environment.env": c.Environment.Env, "verifier.env": c.Verifier.Env, "solution.env": c.Solution.Env} {
		for _, k := range slices.Sorted(maps.Keys(env)) {
			if strings.Contains(env[k], "${") {
				return fmt.Errorf("%s.%s takes its value from this machine, %s; a program that nobody trusts must not see that, write the value", name, wording.Clip(k, 40), wording.Clip(env[k], 40))
			}
			if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(env[k], 0) {
				return fmt.Errorf("%s has a name or a value that no program can have", name)
			}
		}
	}
	e := c.Environment
	switch {
	case len(c.Steps) > 0:
		return fmt.Errorf("tasks of several steps are not supported")
	case e.Image != "":
		return fmt.Errorf("environment.docker_image = %q needs containers", wording.Clip(e.Image, 80))
	case e.OS != "" && e.OS != "linux":
		return fmt.Errorf("environment.os = %q is not supported", wording.Clip(e.OS, 20))
	case e.GPUs > 0 || len(e.GPUTypes) > 0:
		return fmt.Errorf("environment.gpus: the sandbox has none")
	case e.Internet && !p.Offline:
		return fmt.Errorf("environment.allow_internet = true: the sandbox has no network; say offline: true to play such tasks without it")
	}
	for _, user := range []string{c.Agent.User, c.Verifier.User} {
		if user != "" && user != "root" && user != "0" {
			return fmt.Errorf("user = %q: the sandbox has one user", wording.Clip(user, 40))
		}
	}
	var err error
	if t.memory, err = megabytes("memory", e.MemoryMB, e.Memory); err != nil {
		return err
	}
	t.disk, err = megabytes("storage", e.DiskMB, e.Disk)
	return err
}

// megabytes are those of NAME_mb, or of the older NAME, such as "2G".
func megabytes(name string, mb int, text string) (int, error) {
	if text != "" && mb == 0 {
		unit := map[byte]int{'K': -1024, 'M': 1, 'G': 1024, 'T': 1 << 20}[strings.ToUpper(text)[len(text)-1]]
		n, err := strconv.ParseFloat(text[:len(text)-1], 64)
		if err != nil || unit == 0 || !(n > 0 && n < 1e9) {
			return 0, fmt.Errorf("environment.%s = %q cannot be read; write %s_mb", name, wording.Clip(text, 20), name)
		}
		if unit < 0 {
			return max(1, int(n)/1024), nil
		}
		return max(1, int(n*float64(unit))), nil
	}
	if mb < 0 {
		return 0, fmt.Errorf("environment.%s_mb is %d", name, mb)
	}
	return mb, nil
}
