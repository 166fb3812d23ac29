// Package pyenv makes environments of Python classes: Gymnasium, gym, TextArena, skyrl-gym, TRL's environment_factory, OpenEnv's Environment and
// AgentFly's BaseEnv, recognised by what the class offers. Each environment is a worker process, so that a crash, a hang or a leak of one is its
// own; the class runs in the worker of Python tools (package python).
//
// It does not know any world: what an action means, and what is observed, is the class's and the job's parameters'. Nor does it lend
// environments: package environments does.
package pyenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/python"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/sandbox"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// Params are those of kind python.
type Params struct {
	Class    string          `json:"class"`    // "module:Class", or "file.py:Class"; a function that makes one does too
	ID       string          `json:"id"`       // in place of class: gymnasium.make(id)
	Kwargs   json.RawMessage `json:"kwargs"`   // of the constructor
	Protocol string          `json:"protocol"` // auto, or one of protocols
	Text     string          `json:"text"`     // of an observation: a path such as board.text, or a template with paths in braces
	Render   string          `json:"render"`   // the observation is what render() gives: ansi or rgb_array, which the constructor gets as render_mode
	Images   bool            `json:"images"`   // arrays of height × width × 3 bytes are images; without it they are refused
	Actions  json.RawMessage `json:"actions"`  // names of actions: a list, of a discrete space's, or an object of names and values
	MaxSteps int             `json:"max_steps"`
	Success  *float64        `json:"success"` // the total reward from which an episode that is over counts as solved; default: what its info says

	Fields         []string          `json:"fields"`          // of tasks, that reset passes on without looking at them
	Instructions   *string           `json:"instructions"`    // what the agent is told of the world; default: the class's attribute instructions, or the names of its actions
	Deterministic  *bool             `json:"deterministic"`   // the same seed and actions give the same episode; default: where reset takes a seed
	MaxObservation int               `json:"max_observation"` // characters; default 65536
	Requires       map[string]string `json:"requires"`        // packages and the beginnings of their versions, which are checked

	Worker
}

// Worker says how a worker runs.
type Worker struct {
	Interpreter string   `json:"interpreter"` // default python3
	Sandboxed   bool     `json:"sandboxed"`   // in the job's sandbox
	Show        []string `json:"show"`        // sandboxed: further files and folders that it may read
	Memory      int      `json:"memory"`      // MiB of address space; default 2048, -1 for no limit

	Container *Container `json:"container"` // in place of this machine's Python
}

// Container says in which container of podman, docker or apptainer a worker runs.
type Container struct {
	Image   string   `json:"image"`   // one that is on this machine, with a Python 3.8 or newer: a name, or a path of apptainer's
	Engine  string   `json:"engine"`  // podman, docker or apptainer; default apptainer for a path, otherwise the first of the others that is on PATH
	Network bool     `json:"network"` // true: the engine's network; default none
	Options []string `json:"options"` // further options of the engine's command run (of apptainer exec), such as --memory=2g
}

var protocols = []string{"auto", "gymnasium", "gym", "textarena", "skyrl_gym", "trl", "openenv", "agentfly"}

// Kind is the kind "python".
func Kind() environments.Kind {
	return environments.Kind{
		Name: "python", Description: "a Python class: Gymnasium, gym, TextArena, skyrl-gym, TRL's environment_factory, OpenEnv's Environment, AgentFly's BaseEnv",
		New: func(ctx context.Context, r *resources.Resources, params map[string]any) (environments.Source, error) {
			var p Params
			if err := resources.Decode(params, &p); err != nil {
				return nil, err
			}
			return Open(ctx, r, p)
		},
	}
}

func (p Params) check() error {
	switch {
	case p.Class == "" && p.ID == "":
		return errors.New("the class is missing; write class: FILE.py:CLASS or class: MODULE:CLASS, or id: of gymnasium.make")
	case p.Class != "" && p.ID != "":
		return errors.New("class and id are both given; id is for gymnasium.make alone")
	case p.ID == "" && (!strings.Contains(p.Class, ":") || strings.HasSuffix(p.Class, ":")):
		return fmt.Errorf("class: %q names no class; write FILE.py:CLASS or MODULE:CLASS", p.Class)
	case p.Protocol != "" && !slices.Contains(protocols, p.Protocol):
		return fmt.Errorf("protocol: there is no %q; allowed: %s", p.Protocol, strings.Join(protocols, ", "))
	case p.MaxSteps < 0 || p.MaxObservation < 0:
		return errors.New("max_steps and max_observation must be above 0; leave them out for the defaults")
	case p.Render != "" && p.Render != "ansi" && p.Render != "rgb_array":
		return fmt.Errorf("render: %q is not known; allowed: ansi, rgb_array", p.Render)
	case p.Render == "rgb_array" && !p.Images:
		return errors.New("render: rgb_array gives images; write images: true with it")
	}
	return nil
}

// file is the class's file, "" where it is named by its import path.
func (p Params) file() string {
	file, _, _ := cutLast(p.Class)
	if strings.HasSuffix(file, ".py") || strings.ContainsAny(file, `/\`) {
		return file
	}
	return ""
}

func cutLast(class string) (file, name string, ok bool) {
	at := strings.LastIndex(class, ":")
	if at < 0 {
		return "", class, false
	}
	return class[:at], class[at+1:], true
}

// Open makes the source of a class, and its first environment, which says what the class is.
func Open(ctx context.Context, r *resources.Resources, p Params) (environments.Source, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	name := p.ID
	if name == "" {
		_, name, _ = cutLast(p.Class)
	}
	config := map[string]any{
		"class": p.Class, "id": p.ID, "text": p.Text, "render": p.Render, "images": p.Images, "max_steps": p.MaxSteps,
		"max_observation": p.MaxObservation, "fields": p.Fields, "requires": p.Requires,
	}
	for key, value := range map[string]json.RawMessage{"kwargs": p.Kwargs, "actions": p.Actions} {
		if len(value) > 0 {
			config[key] = value
		}
	}
	if p.Protocol != "" {
		config["protocol"] = p.Protocol
	}
	if p.Success != nil {
		config["success"] = *p.Success
	}
	o := Options{Name: name, Config: config, Worker: p.Worker, Deterministic: p.Deterministic, Instructions: p.Instructions}
	if file := p.file(); file != "" {
		o.File = r.Resolve(file)
	}
	return New(ctx, r, o)
}

// Options are those of New, for kinds that bring a Python file of their own.
type Options struct {
	Name          string         // in errors
	File          string         // that holds the class
	Source        []byte         // its text; nil: read from File
	Config        map[string]any // of env_open, see package python/protocol
	Variables     []string       // NAME=value, of the worker
	Instructions  *string        // nil: the class's
	Deterministic *bool          // nil: where reset takes a seed
	Once          bool           // an environment plays one episode only
	OpenTime      time.Duration  // for the first environment; 0 is two minutes
	Worker        Worker
}

// New makes the source of a class, and its first environment.
func New(ctx context.Context, r *resources.Resources, o Options) (environments.Source, error) {
	if o.Worker.Memory < -1 {
		return nil, errors.New("memory must be above 0, or -1 for no limit; leave it out for the default")
	}
	if len(o.Worker.Show) > 0 && !o.Worker.Sandboxed {
		return nil, errors.New("show names what a sandbox shows; write sandboxed: true with it, or leave it out")
	}
	interpreter := o.Worker.Interpreter
	if o.Worker.Container == nil { // else a program of the image
		var err error
		if interpreter, err = r.Interpreter(interpreter); err != nil {
			return nil, err
		}
	}
	if err := r.Run("the Python environment " + o.Name + ", which is not imported"); err != nil {
		return nil, err
	}
	config := map[string]any{"name": o.Name, "reserved": environments.Reserved}
	for k, v := range o.Config {
		config[k] = v
	}
	po := python.EnvironmentOptions{
		Interpreter: interpreter, Folder: folder(r), File: o.File, Source: o.Source, Config: config, Variables: o.Variables, Memory: int64(o.Worker.Memory) << 20,
	}
	if c := o.Worker.Container; c != nil {
		if c.Image == "" {
			return nil, errors.New("container.image is missing; write the name of an image that has a Python")
		}
		if o.Worker.Sandboxed {
			return nil, errors.New("container and sandboxed are both given; leave one of them out")
		}
		po.Container = &python.Container{Image: c.Image, Engine: c.Engine, Network: c.Network, Options: c.Options}
		if po.Container.OfPath() { // else the name of an image
			image, err := r.Whole(c.Image)
			if err != nil {
				return nil, err
			}
			po.Container.Image = image
		}
	}
	if o.Worker.Sandboxed {
		box, err := r.Sandbox(ctx)
		if err != nil {
			return nil, err
		}
		po.Sandbox = box
		for _, path := range o.Worker.Show {
			po.Show = append(po.Show, r.Resolve(path))
		}
	}
	var temp *sandbox.Folder
	if po.Sandbox == nil { // what a class leaves there goes with the source, or is removed by the next start
		var err error
		if temp, err = sandbox.TempFolder("environments"); err != nil {
			return nil, fmt.Errorf("%s: the folder for temporary files: %w", o.Name, err)
		}
		if po.Container == nil {
			po.Variables = append(slices.Clone(po.Variables), "TMPDIR="+temp.Path())
		} else {
			po.Container.Lock = temp.Path()
		}
	}
	workers, err := python.NewEnvironments(ctx, po)
	if err != nil {
		return nil, errors.Join(err, removeFolder(temp))
	}
	if o.OpenTime == 0 {
		o.OpenTime = 2 * time.Minute
	}
	own, cancel := context.WithTimeout(ctx, o.OpenTime)
	defer cancel()
	first, err := workers.Start(own)
	if err != nil {
		return nil, errors.Join(clear(o.Name, "open", err), removeFolder(temp))
	}
	s := &source{name: o.Name, temp: temp, container: po.Container, workers: workers, spare: first, powers: first.Powers, seeded: first.Seeded}
	if s.spec, err = specOf(first, o); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", o.Name, err), s.Close())
	}
	return s, nil
}

func removeFolder(f *sandbox.Folder) error {
	if f == nil {
		return nil
	}
	return f.Close()
}

// folder is where modules that are named by import path are found: the job file's.
func folder(r *resources.Resources) string {
	dir, err := r.Whole(".")
	if err != nil {
		return ""
	}
	return dir
}

func specOf(e *python.Environment, o Options) (environments.Spec, error) {
	s := environments.Spec{Instructions: e.Instructions, Deterministic: e.Seeded, Once: o.Once}
	if o.Instructions != nil {
		s.Instructions = *o.Instructions
	}
	if o.Deterministic != nil {
		s.Deterministic = *o.Deterministic
	}
	functions, err := e.Tools()
	for _, f := range functions {
		s.Tools = append(s.Tools, tools.Spec{Name: f.Name, Description: f.Description, Parameters: f.Parameters, Stateful: true})
	}
	return s, err
}

// clear names the environment in an error of its worker.
func clear(name, what string, err error) error {
	var broken *python.BrokenError
	if errors.As(err, &broken) {
		return fmt.Errorf("%s: %s: %s; %s", name, what, broken.Text, broken.Detail)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %s did not end in time: %w", name, what, err)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// source makes workers. Its first one, which said what the class is, is the first that New gives.
type source struct {
	name      string
	temp      *sandbox.Folder   // for temporary files of plain workers; nil: a sandbox has its own
	container *python.Container // nil: none
	workers   *python.Environments
	spec      environments.Spec
	powers    []string
	seeded    bool // its reset takes a seed

	mu     sync.Mutex
	spare  *python.Environment // nil while nobody gave one back
	closed bool
}

func (s *source) Spec() environments.Spec { return s.spec }

func (s *source) New(ctx context.Context, _ string) (environments.Environment, error) {
	worker, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	e := &environment{name: s.name, worker: worker}
	return e.with(s.powers), nil
}

// take gives the spare worker, or starts one.
func (s *source) take(ctx context.Context) (*python.Environment, error) {
	s.mu.Lock()
	worker := s.spare
	s.spare = nil
	s.mu.Unlock()
	if worker != nil && !gone(worker) {
		return worker, nil
	}
	worker, err := s.workers.Start(ctx)
	if err != nil {
		return nil, clear(s.name, "open", err)
	}
	return worker, nil
}

// keep makes a worker the spare one, where there is none.
func (s *source) keep(worker *python.Environment) {
	s.mu.Lock()
	spare := s.spare == nil && !s.closed
	if spare {
		s.spare = worker
	}
	s.mu.Unlock()
	if !spare {
		_ = worker.Close() // it told the tasks
	}
}

func gone(e *python.Environment) bool {
	select {
	case <-e.Gone():
		return true
	default:
		return false
	}
}

func (s *source) Close() error {
	s.mu.Lock()
	worker, temp := s.spare, s.temp
	s.spare, s.temp, s.closed = nil, nil, true
	s.mu.Unlock()
	if worker == nil {
		return removeFolder(temp)
	}
	return errors.Join(worker.Close(), removeFolder(temp))
}

// Sweep removes containers of runs that were killed, of whatever owner. Workers on this machine end with the process that started them.
func (s *source) Sweep(ctx context.Context, _ string) ([]string, error) {
	if s.container == nil {
		return nil, nil
	}
	return s.container.RemoveOrphans(ctx)
}

// evalSeeds begins where the seeds of held-out tasks do.
const evalSeeds = 1 << 30

// Tasks are the class's, where it has a method tasks, else seeds: those of split train begin at 0, those of eval at 2³⁰.
func (s *source) Tasks(split string, n int) ([]trajectory.Task, error) {
	if slices.Contains(s.powers, "tasks") {
		return s.own(split, n)
	}
	if !s.seeded {
		return nil, fmt.Errorf("%s: its reset takes no seed, so that all tasks would be the same; give data files, a method tasks, or reset an argument seed", s.name)
	}
	first := 0
	switch split {
	case environments.Train:
	case environments.Eval:
		first = evalSeeds
	default:
		return nil, fmt.Errorf("%s: there is no split %q; the splits are %s and %s", s.name, split, environments.Train, environments.Eval)
	}
	if n < 0 || n > evalSeeds {
		return nil, fmt.Errorf("%s: %d tasks were asked for; a split has %d", s.name, n, evalSeeds)
	}
	out := make([]trajectory.Task, n)
	for i := range out {
		out[i] = trajectory.Task{ID: "seed-" + strconv.Itoa(first+i), Fields: map[string]any{"seed": first + i}}
	}
	return out, nil
}

// own asks the class for its tasks.
func (s *source) own(split string, n int) ([]trajectory.Task, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	worker, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	defer s.keep(worker)
	arguments, err := json.Marshal(map[string]any{"split": split, "n": n})
	if err != nil {
		return nil, err
	}
	r, err := worker.Ask(ctx, "env_tasks", arguments)
	if err != nil {
		return nil, clear(s.name, "tasks", err)
	}
	var out []trajectory.Task
	if err := json.Unmarshal(r.Result, &out); err != nil {
		return nil, fmt.Errorf("%s: its tasks cannot be read: %w", s.name, err)
	}
	if len(out) < n {
		return nil, fmt.Errorf("%s: %d tasks of split %s were asked for; there are %d", s.name, n, split, len(out))
	}
	return out[:n], nil
}

var (
	_ environments.Source = (*source)(nil)
	_ environments.Tasker = (*source)(nil)
)
