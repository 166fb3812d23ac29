package export

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentfly/agentfly/orchestrator/overview"
	"github.com/agentfly/agentfly/orchestrator/store"
)

// WriteFile writes the file of a format that is no server.
func WriteFile(ctx context.Context, f Format, path string, r Run) error {
	return WriteWhole(path, func(w *os.File) error {
		if f.Build == nil {
			return f.Write(ctx, w, r)
		}
		if err := f.Build(ctx, w.Name(), r); err != nil {
			return err
		}
		for _, rest := range besideDatabase { // of the database that is replaced; SQLite would take them for parts of the new one
			if err := os.Remove(path + rest); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		return nil
	})
}

// Written are the files in a run folder that exports and reports of its run wrote there. Of a run that cannot be read they are not known.
func Written(ctx context.Context, dir string) (paths []string) {
	r, err := Open(ctx, dir)
	if err != nil {
		return nil
	}
	for _, f := range formats {
		if f.Send != nil {
			continue
		}
		path := filepath.Join(dir, f.Name, f.File(r))
		all := []string{path}
		if f.Build != nil {
			for _, rest := range besideDatabase {
				all = append(all, path+rest)
			}
		}
		for _, path := range all {
			if info, err := os.Lstat(path); err == nil && !info.IsDir() {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// besideDatabase ends the names of the files that SQLite keeps beside a database.
var besideDatabase = []string{"-wal", "-shm"}

// Open reads a run folder, or a file metrics.jsonl, to be exported.
func Open(ctx context.Context, dir string) (Run, error) {
	name, m, err := overview.ReadCurves(dir)
	if err != nil {
		return Run{}, err
	}
	r := Run{Name: name, Metrics: m}
	r.Began, r.ID = began(ctx, dir, m)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return r, err
	}
	about := overview.Read(dir)
	r.Model, r.Algorithm, r.State = about.Model, about.Algorithm, about.State
	r.Trajectories = func(ctx context.Context, f func(store.Record) error) error {
		return overview.Trajectories(ctx, dir, overview.Filter{}, f)
	}
	return r, nil
}

// began is when a run began: as its store tells, else when its job was written into its folder, else when it last wrote, less the time of its steps.
// Other programs know a run by it and by the id beside it in the store, so that a run which is exported again, resumed or not, is the same one there.
func began(ctx context.Context, dir string, m overview.Metrics) (at time.Time, id string) {
	if log, err := store.OpenReader(filepath.Join(dir, store.File)); err == nil { // who reads the trajectories is told what is wrong with it
		at, err := log.Began(ctx)
		id, failed := log.ID()
		if log.Close(); err == nil && failed == nil && !at.IsZero() {
			return at, id
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "job.yaml")); err == nil {
		return info.ModTime(), ""
	}
	info, err := os.Stat(dir)
	if err != nil {
		return time.Unix(0, 0), ""
	}
	at = info.ModTime()
	if all := m["seconds/elapsed"]; all != nil && len(all.Values) > 0 {
		at = at.Add(-time.Duration(all.Values[len(all.Values)-1] * float64(time.Second)))
	}
	return at, ""
}

// unfinished begins the names of files that are being written.
const unfinished = ".export-"

// Sweep removes what a killed process left unfinished in a folder that nobody else writes. What cannot be removed stays.
func Sweep(dir string) {
	files, _ := os.ReadDir(dir) //nolint:errcheck // it need not be there
	for _, f := range files {
		if strings.HasPrefix(f.Name(), unfinished) {
			_ = os.Remove(filepath.Join(dir, f.Name()))
		}
	}
}

// WriteWhole writes a file that is whole or not there. A link stays one, and the file that it names is written. What is there and no file, such as a pipe
// is written into, and so is what standard output or error goes to: a shell's >> has more in that file.
func WriteWhole(path string, write func(w *os.File) error) (err error) {
	info, err := os.Stat(path) // which finds a pipe behind /proc/self/fd/1, whose link names no file
	if err == nil {
		for _, stream := range []*os.File{os.Stdout, os.Stderr} {
			if at, err := stream.Stat(); err == nil && os.SameFile(at, info) {
				return write(stream)
			}
		}
	}
	if err == nil && !info.Mode().IsRegular() {
		w, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(write(w), w.Close())
	}
	switch whole, err := filepath.EvalSymlinks(path); {
	case err == nil:
		path = whole
	case errors.Is(err, os.ErrNotExist):
		if to, err := os.Readlink(path); err == nil { // a link to a file that is to be made
			if !filepath.IsAbs(to) {
				to = filepath.Dir(path) + string(filepath.Separator) + to
			}
			return WriteWhole(to, write)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	w, err := os.OpenFile(filepath.Join(filepath.Dir(path), unfinished+rand.Text()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666) // less what the user's umask takes
	if err != nil {
		return err
	}
	defer os.Remove(w.Name()) // it is gone where all went well
	if err = write(w); err == nil && info != nil {
		err = w.Chmod(info.Mode().Perm()) // who may read the file stays as it was
	}
	if closed := w.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(w.Name(), path)
}

// Live tells whether the format is cheap enough to be written again and again while a run trains.
func (f Format) Live() bool {
	return f.Send != nil || f.Write != nil && !f.Trajectories && f.Name != wandb.Name
}

// Follow brings the file of a run that trains up to date. TensorBoard reads on in the file that it has open, so its file grows where what stands
// there is the beginning of what is to be written, also where a killed process left half a record; else it is replaced. The newest step is left
// out of it: its evaluation may follow.
func Follow(ctx context.Context, f Format, path string, r Run) error {
	if f.Name != tensorboard.Name {
		return WriteFile(ctx, f, path, r)
	}
	if order, _ := r.steps(); r.State == overview.Running && len(order) > 0 {
		r.Metrics = before(r.Metrics, order[len(order)-1])
	}
	var all bytes.Buffer
	if err := f.Write(ctx, &all, r); err != nil {
		return err
	}
	there, err := os.ReadFile(path)
	if err != nil || !bytes.HasPrefix(all.Bytes(), there) {
		return WriteWhole(path, func(w *os.File) error {
			_, err := w.Write(all.Bytes())
			return err
		})
	}
	w, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = w.Write(all.Bytes()[len(there):])
	return errors.Join(err, w.Close())
}

// before are the curves up to a step, without it.
func before(m overview.Metrics, step int) overview.Metrics {
	out := overview.Metrics{}
	for key, c := range m {
		if n, _ := slices.BinarySearch(c.Steps, step); n > 0 {
			out[key] = &overview.Curve{Steps: c.Steps[:n], Values: c.Values[:n]}
		}
	}
	return out
}
