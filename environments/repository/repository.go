// Package repository has an agent mend a repository with a shell and file tools, and pays it by tests that it never saw: instances of SWE-bench and
// R2E in their files of JSON lines (instances.go), or small Python packages with a planted fault that are generated from a seed (generate.go).
//
//	snapshot ── at the reset, without its history beyond base_commit ──> folder of the episode ── submit ──> hidden tests put in place, run ──> 1 or 0
//
// The hidden tests are in no file that the sandbox shows. They are applied when every program of the agent is dead. Those of generated packages are
// calls whose values this process compares, so that nothing in the repository can say that they passed (generate.go).
//
// It does not fetch repositories or install what they need, and it starts no container.
package repository

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/environments/boxed"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/sandbox"
	"github.com/agentfly/agentfly/trajectory"
)

// Name of the kind.
const Name = "repository"

// Params of the environment in a job.
type Params struct {
	Instances string   `json:"instances"` // file of JSON lines; "": packages are generated
	Snapshots string   `json:"snapshots"` // folder of the repositories that instances name; "": that of the file
	Python    string   `json:"python"`    // program that runs the tests of instances; python3
	Show      []string `json:"show"`      // further folders of the host that programs may read, such as the virtual environment of python
	Timeout   int      `json:"timeout"`   // seconds of the hidden tests, 1 to 7,200; 600 of instances, 20 of generated packages
	Seed      int64    `json:"seed"`      // of generated packages and of the split; 1
	boxed.Limits
}

// Kind declares the environment.
func Kind() environments.Kind {
	return environments.Kind{
		Name:        Name,
		Description: "repositories to mend, paid by hidden tests: SWE-bench and R2E instances, or generated Python packages with a planted fault",
		New:         New,
	}
}

// New makes the source of one job. The file of instances is read here; snapshots are read at the resets.
func New(ctx context.Context, r *resources.Resources, params map[string]any) (environments.Source, error) {
	var given Params
	if err := resources.Decode(params, &given); err != nil {
		return nil, err
	}
	p := Params{Seed: 1, Limits: boxed.Standard, Python: "python3", Timeout: 20}
	if given.Instances != "" {
		p.Timeout, p.Memory, p.Disk = 600, 4096, 1024
	}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	if p.Timeout < 1 || p.Timeout > 7200 {
		return nil, fmt.Errorf("timeout is %d; give 1 to 7200 seconds", p.Timeout)
	}
	s := &source{params: p, controls: map[string]*control{}}
	var err error
	if p.Instances != "" {
		path := r.Resolve(p.Instances)
		dir := filepath.Dir(path)
		if p.Snapshots != "" {
			dir = r.Resolve(p.Snapshots)
		}
		if s.instances, err = readInstances(path, dir); err != nil {
			return nil, err
		}
	} else if p.Snapshots != "" {
		return nil, errors.New("snapshots are those of instances; name their file with instances")
	}
	for i, path := range p.Show {
		if s.params.Show[i], err = r.Whole(path); err == nil {
			_, err = os.Stat(s.params.Show[i])
		}
		if err != nil {
			return nil, fmt.Errorf("show: %w", err)
		}
	}
	if s.params.Python, err = r.Program(p.Python); err != nil {
		return nil, err
	}
	s.folders, err = boxed.Open(ctx, r)
	return s, err
}

// source makes environments over instances, or over generated packages. It is safe for concurrent use.
type source struct {
	params    Params
	instances map[string]*instance // nil: generated
	folders   *boxed.Folders

	mu       sync.Mutex
	controls map[string]*control
}

var (
	_ environments.Source = (*source)(nil)
	_ environments.Tasker = (*source)(nil)
)

// instructions have the name of the repository's folder.
const instructions = `You mend a repository, which is %s, through tools. shell runs a bash script there; there is no network, and programs that you start end with their call.
When you are done, call submit: tests that you cannot see decide whether it is mended.`

func (s *source) Spec() environments.Spec {
	where := "the folder /workspace"
	if s.folders.Kind() != sandbox.Bubblewrap { // which alone shows it under that name
		where = "the folder in which scripts begin"
	}
	return environments.Spec{Tools: append(s.folders.Tools(), boxed.Submit), Instructions: fmt.Sprintf(instructions, where), Deterministic: true}
}

func (s *source) New(context.Context, string) (environments.Environment, error) {
	return &environment{source: s}, nil
}

func (s *source) Close() error { return s.folders.Close() }

// Tasks are instances of a split by the field "instance", or generated packages by the field "level".
func (s *source) Tasks(split string, n int) ([]trajectory.Task, error) {
	if s.instances == nil {
		return environments.LevelTasks(fmt.Sprintf("repository-%d", s.params.Seed), split, n, func(level int64) string { return generate(s.params.Seed, level).content() })
	}
	names, err := s.split(split)
	if err != nil {
		return nil, err
	}
	return boxed.Tasks(Name, "instance", s.params.Instances, split, names, n)
}

func (s *source) split(split string) ([]string, error) {
	return boxed.Split(Name, s.params.Seed, slices.Collect(maps.Keys(s.instances)), split)
}

// work is what an episode is about.
type work struct {
	name    string
	problem string
	fill    func(ctx context.Context, s *source, f *boxed.Folder) error // makes the repository in an empty folder
	judge   func(ctx context.Context, s *source, f *boxed.Folder) (*verdict, error)
	solve   []string // scripts that mend it
}

// workOf is the task that a start asks for: an instance or a generated package, by its field, else one of the training split by the seed.
func (s *source) workOf(start environments.Start) (*work, error) {
	if s.instances == nil {
		level, err := environments.LevelOf(start)
		if err != nil {
			return nil, err
		}
		return generate(s.params.Seed, level).work(), nil
	}
	var fields struct {
		Instance string `json:"instance"`
	}
	if err := environments.DecodeTask(start, []string{"instance"}, &fields); err != nil {
		return nil, err
	}
	if fields.Instance == "" {
		names, err := s.split(environments.Train)
		if err != nil {
			return nil, err
		}
		fields.Instance = names[int(start.Seed)%len(names)]
	}
	if i := s.instances[fields.Instance]; i != nil {
		return i.work(), nil
	}
	return nil, environments.WrongTask("there is no instance %q%s in %s", wording.Clip(fields.Instance, 64), wording.DidYouMean(fields.Instance, slices.Sorted(maps.Keys(s.instances))), s.params.Instances)
}
