// Package harbor plays folders of tasks in the format of Harbor (schemas to 1.4: task.toml, instruction.md, environment/, tests/, solution/) in the
// sandbox of this machine, without containers: the agent has a shell and file tools in the folders that the task's Dockerfile makes, and the task's
// own tests write its reward.
//
//	Dockerfile ── once a task ──> image ── copied at each reset ──> folders of the episode ── submit ──> tests/ put in place, run ──> reward.txt
//
// What of a Dockerfile can be honoured is: FROM an image for which this machine's programs stand in, WORKDIR, ENV, ARG, COPY and what RUN can do as an
// unprivileged user without network. The rest is refused, in one line that names it (dockerfile.go, task.go).
//
// It does not fetch tasks or images, and it starts no container.
package harbor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/boxed"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/sandbox"
	"github.com/agentfly/agentfly/trajectory"
)

// Name of the kind.
const Name = "harbor"

// Params of the environment in a job.
type Params struct {
	Path    string   `json:"path"`    // a folder of task folders, or one task folder
	Seed    int64    `json:"seed"`    // of the split; 1
	Skip    bool     `json:"skip"`    // tasks that cannot be honoured are left out, not an error
	Offline bool     `json:"offline"` // tasks that ask for internet are played without it
	Images  []string `json:"images"`  // further images for which this machine's programs stand in
	boxed.Limits
}

// Kind declares the environment.
func Kind() environments.Kind {
	return environments.Kind{
		Name:        Name,
		Description: "folders of Harbor tasks (task.toml, instruction.md, tests that write reward.txt) in the sandbox, with a shell and file tools",
		New:         New,
	}
}

// standard are the parameters of a job that gives none. A task's own limits hold where they are lower.
func standard() Params {
	p := Params{Seed: 1, Limits: boxed.Standard}
	p.Seconds, p.Memory, p.Disk = 60, 2048, 512
	return p
}

// New makes the source of one job. It reads all tasks, and starts none.
func New(ctx context.Context, r *resources.Resources, params map[string]any) (environments.Source, error) {
	p := standard()
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	if p.Path == "" {
		return nil, errors.New("the parameter path is missing; give a folder of Harbor tasks, each with a task.toml")
	}
	tasks, refused, err := readTasks(r.Resolve(p.Path), p)
	if err != nil {
		return nil, err
	}
	if len(refused) > 0 && !p.Skip {
		return nil, fmt.Errorf("%d of %d tasks cannot be played here: %s; mend them, or leave them out with skip: true",
			len(refused), len(refused)+len(tasks), strings.Join(refused[:min(3, len(refused))], "; "))
	}
	if len(tasks) == 0 {
		return nil, fmt.Errorf("no task of %s can be played here: %s", p.Path, strings.Join(refused[:min(3, len(refused))], "; "))
	}
	for _, line := range refused {
		r.Warn("harbor: left out: " + line)
	}
	folders, err := boxed.Open(ctx, r)
	if err != nil {
		return nil, err
	}
	s := &source{params: p, tasks: tasks, folders: folders, images: map[string]*image{}}
	r.OnBegin(func(context.Context) error { return s.usable() })
	return s, nil
}

// usable tells whether the sandbox shows folders under the paths that tasks name. It is asked when the run begins, and not where a job is only looked at.
func (s *source) usable() error {
	if kind := s.folders.Kind(); kind != sandbox.Bubblewrap {
		return fmt.Errorf("harbor: tasks name absolute paths (/app, /tests, /logs), which the sandbox %s cannot show; install the package bubblewrap", kind)
	}
	return nil
}

// readTasks reads the tasks of a folder. refused says of each that cannot be played why not.
func readTasks(dir string, p Params) (tasks map[string]*task, refused []string, _ error) {
	dirs := []string{dir}
	if _, err := os.Stat(filepath.Join(dir, "task.toml")); err != nil {
		if dirs, err = filepath.Glob(filepath.Join(escaped(dir), "*", "task.toml")); err != nil {
			return nil, nil, err
		}
		for i := range dirs {
			dirs[i] = filepath.Dir(dirs[i])
		}
		if _, err := os.Stat(dir); err != nil {
			return nil, nil, fmt.Errorf("path: %w", err)
		}
	}
	if len(dirs) == 0 {
		return nil, nil, fmt.Errorf("path: %s has no folder with a task.toml", dir)
	}
	tasks = map[string]*task{}
	slices.Sort(dirs)
	for _, d := range dirs {
		t, err := readTask(d, p)
		if err != nil {
			refused = append(refused, filepath.Base(d)+": "+err.Error())
			continue
		}
		tasks[t.name] = t
	}
	return tasks, refused, nil
}

// escaped is a path as a pattern that matches it alone.
func escaped(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// source makes environments over one folder of tasks. It is safe for concurrent use.
type source struct {
	params  Params
	tasks   map[string]*task
	folders *boxed.Folders

	mu     sync.Mutex
	images map[string]*image
}

var (
	_ environments.Source = (*source)(nil)
	_ environments.Tasker = (*source)(nil)
)

const instructions = `You work on the files of a computer through tools. shell runs a bash script; there is no network, and programs that you start end with their call.
When you are done, call submit: tests that you cannot see decide what your work is worth.`

func (s *source) Spec() environments.Spec {
	return environments.Spec{Tools: append(s.folders.Tools(), boxed.Submit), Instructions: instructions, Deterministic: true}
}

func (s *source) New(context.Context, string) (environments.Environment, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	return &environment{source: s}, nil
}

func (s *source) Close() error { return s.folders.Close() }

func (s *source) split(split string) ([]string, error) {
	return boxed.Split(Name, s.params.Seed, slices.Collect(maps.Keys(s.tasks)), split)
}

// Tasks are folders of a split. The field "task" names one.
func (s *source) Tasks(split string, n int) ([]trajectory.Task, error) {
	names, err := s.split(split)
	if err != nil {
		return nil, err
	}
	return boxed.Tasks(Name, "task", s.params.Path, split, names, n)
}

// taskOf is the task that a start asks for: by its name, else one of the training split by the seed.
func (s *source) taskOf(start environments.Start) (*task, error) {
	var fields struct {
		Task string `json:"task"`
	}
	if err := environments.DecodeTask(start, []string{"task"}, &fields); err != nil {
		return nil, err
	}
	if fields.Task == "" {
		names, _ := s.split(environments.Train)
		return s.tasks[names[int(start.Seed)%len(names)]], nil
	}
	if t := s.tasks[fields.Task]; t != nil {
		return t, nil
	}
	return nil, environments.WrongTask("there is no task %q%s in %s", wording.Clip(fields.Task, 64), wording.DidYouMean(fields.Task, slices.Sorted(maps.Keys(s.tasks))), s.params.Path)
}
