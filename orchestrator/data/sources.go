package data

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/trajectory"
)

// sourceField is the field of a task that names its source, where there are several.
const sourceField = "source"

// readSources reads the files of data.train or data.eval. Where there are several, the id of a task is SOURCE/ID, and its
// field source names the source.
func readSources(j *job.Job, sources job.Sources, key string) (*Tasks, error) {
	read := func(i int) (*Tasks, error) {
		at, s := key, sources[i]
		if len(sources) > 1 {
			at += "." + strconv.Itoa(i)
		}
		tasks, err := readTasks(j.Resolve(s.Path), s.ColumnsOr(j.Data.Columns), j.Environment != nil)
		if p := (*os.PathError)(nil); errors.As(err, &p) {
			return nil, j.Unreadable(at, s.Path, err)
		}
		return tasks, inputError(err)
	}
	if len(sources) == 1 {
		return read(0)
	}
	out := &Tasks{}
	var paths []string
	var wrong []error
	for i := range sources {
		_, err := os.Stat(j.Resolve(sources[i].Path))
		if err != nil {
			_, err = read(i)
		}
		wrong = append(wrong, err)
	}
	if err := j.Collect(wrong...); err != nil {
		return nil, err
	}
	for i, s := range sources {
		one, err := read(i)
		if err != nil {
			return nil, err
		}
		one.Name = s.Name
		for i := range one.Tasks {
			t := &one.Tasks[i]
			if v, taken := t.Fields[sourceField]; taken && v != s.Name {
				return nil, fmt.Errorf("%s: task %q has a field source (%v) and comes from the source %q; rename the column", one.Path, t.ID, v, s.Name)
			}
			t.ID, t.Fields[sourceField] = s.Name+"/"+t.ID, s.Name
		}
		out.Sources, out.Tasks = append(out.Sources, *one), append(out.Tasks, one.Tasks...)
		paths = append(paths, one.Path)
	}
	out.Path = strings.Join(paths, ", ")
	return out, nil
}

// first leaves the first n tasks of each file; 0 leaves all.
func (t *Tasks) first(n int) {
	if n == 0 {
		return
	}
	if len(t.Sources) == 0 {
		t.Tasks = t.Tasks[:min(n, len(t.Tasks))]
		return
	}
	t.Tasks = nil
	for i := range t.Sources {
		t.Sources[i].first(n)
		t.Tasks = append(t.Tasks, t.Sources[i].Tasks...)
	}
}

// File is a file that a run must find unchanged when it goes on.
type File struct {
	Name string // train or eval, or with /SOURCE
	Path string
	Hash string // SHA-256
	Key  string // of the job, where it is no file and the tasks are its environment's own
	Run  bool   // it is a run folder; the hash is that of what is chosen of it
}

// Files are those that the tasks are of, name is the key of data; nil has none.
func (t *Tasks) Files(name string) []File {
	if t == nil {
		return nil
	}
	if len(t.Sources) == 0 {
		return []File{{Name: name, Path: t.Path, Hash: t.Hash, Key: t.Key}}
	}
	var out []File
	for _, s := range t.Sources {
		out = append(out, File{Name: name + "/" + s.Name, Path: s.Path, Hash: s.Hash})
	}
	return out
}

// SameFiles returns the hashes of a run's files by name, once it is sure that a resumed run has those that it began with; began is nil for a
// new run. A run may begin or cease to evaluate: the files that it evaluated once stay known.
func SameFiles(dir string, began map[string]string, files []File) (map[string]string, error) {
	now := map[string]string{}
	for _, f := range files {
		now[f.Name] = f.Hash
		if before, ok := began[f.Name]; !ok || before == f.Hash {
			continue
		}
		switch {
		case f.Key != "":
			return nil, job.InputError(fmt.Errorf("%s: the run in %s began with other tasks of its environment; give the environment back its settings, or begin a new run with --output", f.Key, dir))
		case f.Run:
			return nil, job.InputError(fmt.Errorf("what is learned of the run %s is not what the run in %s began with: that run went on, or an older program chose other trajectories and turns; begin a new run with --output", f.Path, dir))
		}
		return nil, job.InputError(fmt.Errorf("%s is not the file that the run in %s began with; give it back its content, or begin a new run with --output", f.Path, dir))
	}
	for _, key := range []string{"train", "eval"} {
		had, have := filesOf(began, key), filesOf(now, key)
		if len(had) > 0 && len(have) > 0 && !slices.Equal(had, have) {
			return nil, job.InputError(fmt.Errorf("data.%s: the run in %s began with %s, not with %s; give it back its sources, or begin a new run with --output", key, dir, strings.Join(had, ", "), strings.Join(have, ", ")))
		}
	}
	maps.Copy(now, began)
	return now, nil
}

// filesOf are the names of the files that a key of data has.
func filesOf(hashes map[string]string, key string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(hashes)), func(name string) bool {
		own, _, _ := strings.Cut(name, "/")
		return own != key
	})
}

// worldOf is what says which episode of an environment a task is: its fields, or its id where they say nothing.
func worldOf(t trajectory.Task) any {
	fields := maps.Clone(t.Fields)
	delete(fields, "answer")
	delete(fields, sourceField)
	if len(fields) == 0 {
		return t.ID
	}
	return fields
}

// refuseOverlap makes sure that no evaluation task is a training task by content.
func refuseOverlap(train, eval *Tasks) error {
	key := func(t trajectory.Task) [sha256.Size]byte {
		data, _ := json.Marshal(t.Prompt) // messages that came from JSON go back to it
		if len(t.Prompt) == 0 {           // an environment shows what is to be done
			data, _ = json.Marshal(worldOf(t))
		}
		return sha256.Sum256(data)
	}
	seen := map[[sha256.Size]byte]string{}
	for _, t := range train.Tasks {
		seen[key(t)] = t.ID
	}
	for _, t := range eval.Tasks {
		if id, ok := seen[key(t)]; ok {
			return fmt.Errorf("%s: task %q has the same content as task %q of %s; evaluation tasks must be held out", eval.Path, t.ID, id, train.Path)
		}
	}
	return nil
}
