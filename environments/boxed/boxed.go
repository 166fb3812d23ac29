// Package boxed is what environments have in common whose agent works on files in the sandbox: a folder for each episode with the tools shell and
// file_create, file_read, file_edit, file_undo, file_list and file_grep, programs of the environment's own in the same folder, and splits of tasks that
// have names.
//
// Every call of the shell is one process tree, which is gone when the call returns: nothing that an agent started lives on until the environment
// looks at the folder.
//
// It does not know what tasks are about, or rewards: the packages of the kinds do. It does not confine programs (package sandbox does).
package boxed

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/sandbox"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/tools/files"
	"github.com/agentfly/agentfly/tools/workspace"
	"github.com/agentfly/agentfly/trajectory"
)

const (
	ShellName  = "shell"  // the tool that runs a script
	SubmitName = "submit" // the tool that ends an episode
)

// Submit is the tool of environments that judge the files when the agent says that it is done.
var Submit = tools.Spec{
	Name: SubmitName, Description: "Ends the work and has it tested. Nothing can be changed after it.",
	Parameters: []byte(`{"type":"object","properties":{},"additionalProperties":false}`),
}

// fileTools are those of package tools/files.
var fileTools = []string{"file_create", "file_read", "file_edit", "file_undo", "file_list", "file_grep"}

// Folders are those of one source. All methods are safe for concurrent use.
type Folders struct {
	box    *sandbox.Sandbox
	own    *resources.Resources // of the folders alone, so that those of the job's tools are others
	spaces *workspace.Workspaces
	files  map[string]tools.Tool
	specs  []tools.Spec
	made   atomic.Int64
}

// Open opens the job's sandbox.
func Open(ctx context.Context, r *resources.Resources) (*Folders, error) {
	box, err := r.Sandbox(ctx)
	if err != nil {
		return nil, err
	}
	f := &Folders{box: box, own: resources.New(resources.Options{Sandbox: box.Kind()}), files: map[string]tools.Tool{}}
	if f.spaces, err = workspace.Of(f.own); err != nil {
		return nil, err
	}
	f.specs = []tools.Spec{{
		Name: ShellName, Description: "Runs a bash script and returns what it writes. Every call starts a new shell in the same folder; files stay, programs that it started do not.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"command":{"type":"string","description":"bash script"}},"required":["command"],"additionalProperties":false}`),
	}}
	c := tools.NewCatalog()
	if err := files.Add(c); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	for _, name := range fileTools {
		made, err := c.Make(ctx, f.own, tools.Ref{Name: name})
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		f.files[name] = made[0]
		f.specs = append(f.specs, made[0].Spec())
	}
	return f, nil
}

// Kind is that of the sandbox.
func (f *Folders) Kind() string { return f.box.Kind() }

// Tools are those that Folder.Do knows: the shell and the file tools.
func (f *Folders) Tools() []tools.Spec { return append([]tools.Spec{}, f.specs...) }

// Close removes all folders.
func (f *Folders) Close() error { return f.own.Close() }

// New makes an empty folder.
func (f *Folders) New() (*Folder, error) {
	name := fmt.Sprint(f.made.Add(1))
	w, err := f.spaces.Get(name)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(w.Dir(), 0o755); err != nil {
		return nil, err
	}
	return &Folder{folders: f, name: name, w: w}, nil
}

// Folder is that of one episode. Its methods are not called at once, but for Clone.
type Folder struct {
	// What every program in it has beside Args and Stdin; Workspace is the folder's own.
	Base sandbox.Program
	// Inside is the path under which programs know the folder beside /workspace, and Begin that in which scripts begin. "": they know no other.
	Inside, Begin string

	folders *Folders
	name    string
	w       *workspace.Workspace
	closed  map[string]fs.FileMode // of Freeze, by path: rights that kept this process out
}

// Root is the folder, which no link leads out of.
func (f *Folder) Root() *os.Root { return f.w.Root() }

// Dir is its path on the host, for mounts.
func (f *Folder) Dir() string { return f.w.Dir() }

// Close removes the folder.
func (f *Folder) Close() { f.folders.spaces.End(f.name) }

// Size is the room that the folder takes on its disk, as the limit of a program's disk counts it.
func (f *Folder) Size() (int64, error) { return sandbox.FolderBytes(f.w.Dir()) }

// Own gives the files of the folder to the user as whom programs run, after this process wrote some.
func (f *Folder) Own() error {
	if os.Geteuid() != 0 || !f.folders.own.Confined() {
		return nil
	}
	return filepath.WalkDir(f.w.Dir(), func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, workspace.Nobody, workspace.Nobody)
	})
}

// script begins in a folder and runs what comes on standard input, with standard error in the order in which it is written.
const script = `exec 2>&1; cd -- "$1" || exit 1; IFS= read -r -d "" boxed; set --; eval "unset boxed; $boxed" </dev/null`

// Script is a program that runs a bash script in the folder.
func (f *Folder) Script(text string) sandbox.Program {
	p := f.Base
	begin := f.Begin
	if begin == "" {
		begin = "."
	}
	p.Args, p.Stdin = []string{"bash", "-c", script, "bash", begin}, []byte(text)
	return p
}

// Run runs a program in the folder. An error is the infrastructure's, or ctx's.
func (f *Folder) Run(ctx context.Context, p sandbox.Program) (sandbox.Result, error) {
	p.Workspace = f.w.Dir()
	for _, dir := range append(writable(p.Mounts), p.Workspace) { // a program may have taken the rights from its own folder
		if _, _, err := open(dir); err != nil {
			return sandbox.Result{}, err
		}
	}
	return f.folders.box.Run(ctx, p)
}

func writable(mounts []sandbox.Mount) (out []string) {
	for _, m := range mounts {
		if m.Writable {
			out = append(out, m.Host)
		}
	}
	return out
}

// Hide leaves the folder's path on the host out of a text.
func (f *Folder) Hide(text string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(text, f.w.Dir(), "."), "\uFFFD")
}

// Do runs a call of one of Tools. limit bounds the time of a script. known is false where the action is no such call. What the agent did wrong is in
// the result; an error is the infrastructure's.
func (f *Folder) Do(ctx context.Context, a environments.Action, limit time.Duration) (_ environments.Result, known bool, _ error) {
	if t := f.folders.files[a.Name]; t != nil {
		r, err := f.file(ctx, t, a.Arguments)
		return r, true, err
	}
	if a.Name != ShellName {
		return environments.Result{}, false, nil
	}
	var args struct {
		Command string `json:"command"`
	}
	if err := json.Unmarshal(a.Arguments, &args); err != nil {
		return Refuse("the arguments cannot be read: " + err.Error()), true, nil
	}
	if strings.ContainsRune(args.Command, 0) {
		return Refuse("the command holds a zero byte; leave it out"), true, nil
	}
	p := f.Script(args.Command)
	p.Limits.Wall = limit
	r, err := f.Run(ctx, p)
	if err != nil {
		return environments.Result{}, true, err
	}
	return environments.Result{Observation: environments.Text(f.Said(r, limit)), Info: map[string]any{"exit": status(r)}}, true, nil
}

// Said is what an agent reads of a program that ran.
func (f *Folder) Said(r sandbox.Result, limit time.Duration) string {
	text := strings.TrimRight(f.Hide(string(r.Stdout)+string(r.Stderr)), "\n")
	if r.Dropped > 0 {
		text += fmt.Sprintf("\n[%d bytes left out]", r.Dropped)
	}
	switch why := Stopped(r, limit); {
	case why != "":
		text += "\n[stopped: " + why + "]"
	case r.Exit != 0:
		text += fmt.Sprintf("\n[exit status %d]", status(r))
	case text == "":
		text = "(no output)"
	}
	return strings.TrimLeft(text, "\n")
}

// status is what a shell calls the exit status. The sandbox takes one above 128 for a signal, also where a script ended with the status of its last
// program.
func status(r sandbox.Result) int {
	if r.Signal != "" {
		return 128 + int(unix.SignalNum(r.Signal))
	}
	return r.Exit
}

// Stopped says why the sandbox ended a program; "": it came to its own end, be it by a signal.
func Stopped(r sandbox.Result, limit time.Duration) string {
	switch {
	case r.TimedOut:
		return fmt.Sprintf("it ran longer than %s", limit.Round(100*time.Millisecond))
	case r.Exceeded == "memory":
		return "it used too much memory"
	case r.Exceeded == "disk":
		return "its files took too much room"
	case r.Exceeded != "":
		return "its use of memory and disk could not be watched"
	case r.Signal == "SIGXCPU":
		return "it used too much processor time"
	}
	return ""
}

// Failed says why a program failed that did not come to its own end, or ended with a status of its own; "": it did well.
func Failed(r sandbox.Result, limit time.Duration) string {
	if why := Stopped(r, limit); why != "" || r.Exit == 0 {
		return why
	}
	return fmt.Sprintf("exit status %d", status(r))
}

// Full tells whether a program failed because the host's disk is full: it says so, and the disk has less room than the folder may take. A program that
// filled a private folder of its sandbox says the same.
func (f *Folder) Full(r sandbox.Result) bool {
	if !strings.Contains(string(r.Stdout)+string(r.Stderr), "No space left on device") {
		return false
	}
	var st unix.Statfs_t
	err := unix.Statfs(f.w.Dir(), &st)
	return err == nil && int64(st.Bavail)*int64(st.Bsize) < f.Base.Limits.Disk
}

// Refuse is the result of an action that is not possible.
func Refuse(why string) environments.Result {
	return environments.Result{Observation: environments.Text(why), Failure: trajectory.FailurePolicy}
}

// file calls a file tool.
func (f *Folder) file(ctx context.Context, t tools.Tool, arguments json.RawMessage) (environments.Result, error) {
	var args map[string]any
	if err := json.Unmarshal(arguments, &args); err != nil {
		return Refuse("the arguments cannot be read: " + err.Error()), nil
	}
	if path, ok := args["path"].(string); ok && f.Inside != "" && strings.HasPrefix(path+"/", f.Inside+"/") {
		args["path"] = "/workspace" + strings.TrimPrefix(path, f.Inside)
		arguments, _ = json.Marshal(args) // it was JSON
	}
	f.w.Bound(f.Base.Limits.Disk)
	f.w.BeginIn(strings.TrimPrefix(strings.TrimPrefix(f.Begin, cmp.Or(f.Inside, "/workspace")), "/"))
	o, err := t.Call(ctx, tools.Call{Trajectory: f.name, Arguments: arguments})
	var broken *tools.BrokenError
	switch {
	case errors.As(err, &broken), HostFault(err), err != nil && ctx.Err() != nil:
		return environments.Result{}, err
	case err != nil:
		return Refuse(f.Hide(err.Error())), nil
	}
	return environments.Result{Observation: environments.Text(f.Hide(o.Text)), Info: o.Info}, nil
}

// Limits of an episode that a job can set.
type Limits struct {
	MaxSteps int `json:"max_steps"` // actions of an episode, 1 to 10,000
	Seconds  int `json:"seconds"`   // of one call of the shell, 1 to 3,600
	Memory   int `json:"memory"`    // MiB of a program and of all that it starts, 64 to 1,048,576
	Disk     int `json:"disk"`      // MiB of the folder, 1 to 1,048,576
}

// Standard are the limits where a job sets none.
var Standard = Limits{MaxSteps: 50, Seconds: 20, Memory: 1024, Disk: 64}

// Check refuses limits out of their range.
func (l Limits) Check() error {
	for _, c := range []struct {
		name            string
		is, least, most int
	}{{"max_steps", l.MaxSteps, 1, 10_000}, {"seconds", l.Seconds, 1, 3600}, {"memory", l.Memory, 64, 1 << 20}, {"disk", l.Disk, 1, 1 << 20}} {
		if c.is < c.least || c.is > c.most {
			return fmt.Errorf("%s is %d; give %d to %d", c.name, c.is, c.least, c.most)
		}
	}
	return nil
}

// outputLimit is how much of what a script writes is kept, in bytes.
const outputLimit = 16 << 10

// Sandbox are the limits of a program. Memory is what its tree uses: runtimes such as Java's, and the stacks of threads, reserve many times that.
func (l Limits) Sandbox() sandbox.Limits {
	wall := time.Duration(l.Seconds) * time.Second
	return sandbox.Limits{
		CPU: Processor(wall), Wall: wall, Memory: int64(l.Memory) << 20, Reserved: 1 << 40, Processes: 64, Output: outputLimit, Disk: int64(l.Disk) << 20, OpenFiles: 256,
	}
}

// Processor is the processor time of a program that may take so long by the clock: its threads run on all processors.
func Processor(wall time.Duration) time.Duration { return wall * time.Duration(runtime.NumCPU()) }

// LateError says that the deadline of a step stopped its tests before their own time was over.
type LateError struct {
	Lacked time.Duration // of their time
	text   string
}

func (e *LateError) Error() string { return e.text }

// Late is the LateError of tests, such as "the hidden tests", that had less time by Within than their limit and used it up, with what to do; nil: they
// ended by themselves, or had all of their time.
func Late(r sandbox.Result, given, limit time.Duration, tests, remedy string) error {
	if !r.TimedOut || given >= limit {
		return nil
	}
	return &LateError{limit - given, fmt.Sprintf("%s may take %s, and after %s the deadline of the step is near; %s", tests, limit, r.Wall.Round(time.Second), remedy)}
}

// Delayed tells whether a LateError is the doing of a script that ran before the tests in the same step: they lacked no more than it took.
func Delayed(err error, took time.Duration) bool {
	var late *LateError
	return errors.As(err, &late) && late.Lacked <= took
}

// Within is a deadline for a program that leaves time to say what happened before ctx's own.
func Within(ctx context.Context, limit time.Duration) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		limit = min(limit, left-min(time.Second, left/10))
	}
	return max(limit, time.Millisecond)
}
