package overview

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/store"
)

// Is tells whether a folder is that of a run.
func Is(dir string) bool { return len(lacking(dir)) == 0 }

// lacking are the files of a run folder that a folder does not have.
func lacking(dir string) (out []string) {
	for _, name := range []string{runfolder.JobFile, store.File} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			out = append(out, name)
		}
	}
	return out
}

const mostFolders = 20_000 // that are looked into

// Find returns the run folders in a folder, which may be one itself, in the order of their paths. It does not follow links, but for the folder that
// it is given.
func Find(root string) (out []string, err error) {
	top, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, err
	}
	looked := 0
	err = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && path == top:
			return err
		case err != nil || !d.IsDir(): // a folder that cannot be read holds no run that could be
			return nil
		case path != top && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules"):
			return fs.SkipDir
		}
		if looked++; looked > mostFolders {
			return fmt.Errorf("%s holds more than %d folders; name the one with the runs", root, mostFolders)
		}
		below, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		if Is(path) {
			out = append(out, filepath.Join(root, below)) // by the name that the folder was given
			return fs.SkipDir
		}
		if below != "." && strings.Count(below, string(filepath.Separator))+1 >= runfolder.Deepest {
			return fs.SkipDir
		}
		return nil
	})
	return out, err
}

// Check is an error where a path is no run folder. It names the run that may have been meant.
func Check(path string) error {
	lacks := lacking(path)
	switch {
	case len(lacks) == 0:
		return nil
	case slices.Equal(lacks, []string{runfolder.JobFile}):
		return fmt.Errorf("%q is no run folder: it has %s and no %s, as the folder of a gateway; agentfly inspect trajectory --run shows what it holds", path, store.File, runfolder.JobFile)
	}
	names := map[string]string{} // by the last part of their paths: the rest is as long for all of them
	for _, near := range []string{filepath.Dir(filepath.Clean(path)), "runs"} {
		found, _ := Find(near) // a folder that is not there holds none
		slices.SortStableFunc(found, func(a, b string) int {
			return strings.Count(a, string(filepath.Separator)) - strings.Count(b, string(filepath.Separator))
		})
		for _, dir := range found { // of one name the first: in the folder itself, then in those below it
			if name := filepath.Base(dir); names[name] == "" {
				names[name] = dir
			}
		}
	}
	name := filepath.Base(path)
	near, ok := names[name]
	if !ok {
		near = names[wording.Nearest(name, slices.Sorted(maps.Keys(names)))]
	}
	if near != "" {
		return fmt.Errorf("%q is no run folder (did you mean %q?)", path, near)
	}
	return fmt.Errorf("%q is no run folder: it has no %s; agentfly runs FOLDER lists those in a folder", path, strings.Join(lacks, " and "))
}
