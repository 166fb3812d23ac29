package runfolder

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator/job"
)

// JobFile is the name of the newest job of the run in its folder.
const JobFile = "job.yaml"

// Deepest is how many folders below the one that is searched a run folder is looked for.
const Deepest = 4

// writeJob puts the job into the run folder. Where the run goes on with another job than before, each setting that changed
// is noted, and the job of before stays beside it as job.1.yaml, job.2.yaml, … in the order in which they ended.
func (f *Folder) writeJob(j *job.Job, note func(string)) error {
	path, text := filepath.Join(f.Dir, JobFile), j.Source()
	before, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return modelfile.WriteFile(path, text, 0o644)
	case err != nil:
		return err
	case bytes.Equal(before, text):
		return nil
	}
	changes, unreadable := changedSettings(completed(j, before), text)
	if unreadable == nil && len(changes) == 0 { // the same settings, written otherwise
		return modelfile.WriteFile(path, text, 0o644)
	}
	kept, err := keepFile(f.Dir, before)
	if err != nil {
		return err
	}
	if unreadable != nil { // damaged by hand: no reason not to go on
		note(fmt.Sprintf("%s of the run folder cannot be read (%v), so what changed since is not known: it stays as %s", JobFile, strings.Join(strings.Fields(unreadable.Error()), " "), kept))
	}
	for _, change := range changes {
		note("the run goes on with another setting: " + change)
	}
	if unreadable == nil {
		note(fmt.Sprintf("the job of before stays as %s", kept))
	}
	return modelfile.WriteFile(path, text, 0o644)
}

// Changes are the settings that changed from one job of a run to the next, oldest first, read as j was. Jobs that cannot be read say nothing.
func Changes(dir string, j *job.Job) (changes []string, err error) {
	var before []byte
	for n := 1; ; n++ {
		text, err := os.ReadFile(filepath.Join(dir, keptName(n)))
		last := errors.Is(err, os.ErrNotExist)
		if last && n == 1 {
			return nil, nil
		}
		if last {
			text, err = os.ReadFile(filepath.Join(dir, JobFile))
		}
		if err != nil {
			return nil, err
		}
		if n > 1 {
			if more, err := changedSettings(completed(j, before), completed(j, text)); err == nil {
				changes = append(changes, more...)
			}
		}
		if last {
			return changes, nil
		}
		before = text
	}
}

// completed is a job file with the settings of today, of which an older program's has not all.
func completed(j *job.Job, text []byte) []byte {
	if old, err := j.ParseAs(j.Path(), text); err == nil {
		return old.Source()
	}
	return text
}

// keptName is the file of the n-th job that another one followed.
func keptName(n int) string { return "job." + strconv.Itoa(n) + ".yaml" }

// keepFile writes the text under the first of the names job.N.yaml that is free.
func keepFile(dir string, text []byte) (string, error) {
	for n := 1; ; n++ {
		path := filepath.Join(dir, keptName(n))
		if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
			return path, modelfile.WriteFile(path, text, 0o644)
		} else if err != nil {
			return "", err
		}
	}
}

// replaceFile writes a file so that a process that is killed leaves the old one or the new one. Nothing waits for the disk: after a loss of power the
// file is of no use.
func replaceFile(path string, text []byte) error {
	if err := os.WriteFile(path+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// changedSettings are the settings that differ between two complete job files, each as KEY: OLD → NEW, in order of their keys.
func changedSettings(before, after []byte) ([]string, error) {
	was, err := Settings(before)
	if err != nil {
		return nil, err
	}
	is, err := Settings(after)
	if err != nil {
		return nil, err
	}
	all := maps.Clone(was)
	maps.Copy(all, is)
	var out []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if was[key] != is[key] {
			out = append(out, fmt.Sprintf("%s: %s → %s", key, orNotSet(was[key]), orNotSet(is[key])))
		}
	}
	return out, nil
}

// Settings are those of a complete job file by their dotted keys, texts in quotes; what is null or empty is left out.
func Settings(job []byte) (map[string]string, error) {
	var all map[string]any
	if err := yaml.Unmarshal(job, &all); err != nil {
		return nil, err
	}
	out := map[string]string{}
	settings(out, "", all)
	return out, nil
}

func orNotSet(value string) string {
	if value == "" {
		return "not set"
	}
	return value
}

// settings lists the values of a job by their dotted keys; what is null or empty is not set.
func settings(into map[string]string, key string, v any) {
	under := func(name string) string {
		if key == "" {
			return name
		}
		return key + "." + name
	}
	switch x := v.(type) {
	case nil:
	case map[string]any:
		for name, value := range x {
			settings(into, under(name), value)
		}
	case []any:
		for i, value := range x {
			settings(into, under(strconv.Itoa(i)), value)
		}
	case string:
		into[key] = strconv.Quote(x)
	default:
		into[key] = fmt.Sprint(x)
	}
}
