package job

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/internal/home"
)

// Options of Load.
type Options struct {
	Set    []string                         // key.path=value, in order; the last wins
	Env    func(name string) (string, bool) // nil: the process's environment
	Shown  string                           // of Parse: the file that messages name, where the text is not that of path; "" is path
	Copied bool                             // the text is a run folder's copy: it may have keys that nothing reads, which older programs took; those of engine are left out
	Agents *agents.Registry                 // kinds and formats that agent may name; nil: those of package agents
}

const maxFile = 1 << 20 // bytes of a job file

// Fail makes the error of a problem that was found later in the value of path, such as trainer.steps.
func (j *Job) Fail(path, format string, args ...any) error {
	return asError([]Problem{j.problem(path, format, args...)})
}

func (j *Job) problem(path, format string, args ...any) Problem {
	p := j.found.position(path)
	p.Text, p.key = path+": "+plainWords(fmt.Sprintf(format, args...)), path
	return p
}

// Source is the job as it runs, as a job file: every default filled in, --set applied. A value that came from the
// environment stands as ${NAME}, and a secret that the file held literally as (secret).
func (j *Job) Source() []byte { return j.source }

// ParseAs reads a run folder's copy of a job with the kinds and formats that j was read with.
func (j *Job) ParseAs(path string, data []byte) (*Job, error) {
	return Parse(path, data, Options{Agents: j.agents, Copied: true})
}

// Path is the job file's.
func (j *Job) Path() string { return j.path }

// Resolve makes a path that the job reads absolute or relative to the working folder: it is looked for in the folder of the job file. Where
// nothing is there and something lies at the same path in the working folder, it is that (FoundElsewhere).
func (j *Job) Resolve(path string) string {
	if path = home.Expand(path); path == "" || filepath.IsAbs(path) {
		return path
	}
	own := filepath.Join(filepath.Dir(j.path), path)
	if j.FoundElsewhere(path) != "" {
		return filepath.Clean(path)
	}
	return own
}

// Program is the first word of a command: a name on PATH stays one, a path is resolved as Resolve does. It is whole then, because ./NAME beside the
// job file would become a name on PATH.
func (j *Job) Program(name string) string {
	if !strings.ContainsRune(name, filepath.Separator) {
		return name
	}
	path := j.Resolve(name)
	if whole, err := filepath.Abs(path); err == nil { // else the working folder is gone
		return whole
	}
	return path
}

// FoundElsewhere is the note that a relative path is that of a file in the working folder, because the folder of the job file has none; "": it
// is not.
func (j *Job) FoundElsewhere(path string) string {
	if path = home.Expand(path); path == "" || filepath.IsAbs(path) {
		return ""
	}
	own := filepath.Join(filepath.Dir(j.path), path)
	if filepath.Clean(own) == filepath.Clean(path) || exists(own) || !exists(path) {
		return ""
	}
	return fmt.Sprintf("%s is taken from the working folder, because %s is not there; paths of a job file are relative to its folder: write it so that it works from anywhere", path, own)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Unreadable is the error of a file that the job names in key and that cannot be read.
func (j *Job) Unreadable(key, path string, err error) error {
	return j.Fail(key, "the file %s cannot be read: %s; relative paths are looked for in the folder of the job file, then in the working folder", j.Resolve(path), reason(err))
}

// Load reads, completes and checks a job file. sets are overrides of the form key.path=value, checked like the file
// itself. What is wrong with the job is an *Error.
func Load(path string, sets ...string) (*Job, error) { return LoadWith(path, Options{Set: sets}) }

// LoadWith is Load with options.
func LoadWith(path string, o Options) (*Job, error) {
	j, err := Draft(path, o)
	if err != nil {
		return nil, err
	}
	return j, nil
}

// Draft is LoadWith, but returns the job beside its error: with defaults in place of what could not be read, so that the rest of it can be
// checked in the same round (Collect). nil: nothing of it could be read.
func Draft(path string, o Options) (*Job, error) {
	fail := func(format string, args ...any) error {
		return &Error{Lines: []string{path + ": " + fmt.Sprintf(format, args...)}}
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fail("the job file cannot be read: %s; give the path of a job file, such as examples/calculator.yaml", reason(err))
	case info.IsDir():
		return nil, fail("this is a folder; give the path of a job file")
	case info.Size() > maxFile:
		return nil, fail("the file has %d bytes; a job file has at most %d", info.Size(), maxFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fail("the job file cannot be read: %s", reason(err))
	}
	return draft(path, data, o)
}

func reason(err error) string {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// Parse is LoadWith for text in memory; path names it in messages (but see Options.Shown) and anchors its relative paths.
func Parse(path string, data []byte, o Options) (*Job, error) {
	j, err := draft(path, data, o)
	if err != nil {
		return nil, err
	}
	return j, nil
}

// draft is Draft for text in memory.
func draft(path string, data []byte, o Options) (*Job, error) {
	if o.Agents == nil {
		o.Agents = agents.NewRegistry()
	}
	d := newDecoder(cmp.Or(o.Shown, path), o.Env, o.Agents)
	root := parseDocument(d.found, data)
	if root == nil {
		return nil, asError(d.found.problems)
	}
	if len(o.Set) > 0 {
		left := maxNodes
		if root = withoutAliases(root, &left); left < 0 {
			d.tooMany(root)
			return nil, asError(d.found.problems)
		}
	}
	for _, s := range o.Set {
		applySet(d.found, root, s)
	}
	j := &Job{path: path, secrets: d.scalars.secrets, agents: o.Agents, found: d.found, broken: d.broken, given: d.given, copied: o.Copied}
	d.structure(d.follow(root), reflect.ValueOf(j).Elem(), "")
	j.dropUnread(o.Copied)
	completeEnvironment(j)
	completeTree(j)
	j.Agent.completeAgent(o.Agents)
	if j.Output = home.Expand(j.Output); j.Output == "" && j.Name != "" {
		j.Output = filepath.Join("runs", j.Name)
	}
	if d.follow(root).Kind != yaml.MappingNode {
		return nil, asError(d.found.problems)
	}
	check(j)
	if len(d.found.problems) > 0 {
		return j, asError(d.found.problems)
	}
	var err error
	j.source, err = effectiveOf(j)
	return j, err
}

// ChosenTokens tells whether somebody chose rollout.max_tokens: it is not its default, which the copy of a job names where the job does not.
func (j *Job) ChosenTokens() bool {
	var unset Rollout
	setDefaults(reflect.ValueOf(&unset).Elem(), "rollout")
	return j.Rollout.MaxTokens != unset.MaxTokens
}

// Untimed tells whether a job's rollout.timeout is 0, and does not stand at 0 because it could not be read.
func Untimed(j *Job) bool {
	return j.Rollout.Timeout == 0 && !j.broken.blames("rollout.timeout", "")
}

// LeftOut are notes on the keys of the job file that another kind of engine would read than the one that --set names.
func (j *Job) LeftOut() []string { return j.leftOut }
