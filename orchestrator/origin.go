package orchestrator

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
)

// begunWith makes sure that a run goes on with the model that it began with, which a checkpoint does not tell: its replay begins there. A run that
// begins, from "", records that model. An older program recorded none, and a job that names the model as before is believed.
func (r *run) begunWith(ctx context.Context, from string) error {
	j, db := r.session.Job, r.folder.DB
	began, err := db.Reader.Fact(runfolder.ModelFact)
	if err != nil || began == "" && from != "" || began != "" && namesModelOf(r.folder.Dir, j) {
		return err
	}
	now, err := weightsOf(j)
	if err != nil {
		return err
	}
	if began == "" {
		return db.SetFact(ctx, runfolder.ModelFact, now)
	}
	return sameModel(j, r.folder.Dir, began, now)
}

// namesModelOf tells whether a job names the model as the job in a run folder does.
func namesModelOf(dir string, j *job.Job) bool {
	text, err := os.ReadFile(filepath.Join(dir, runfolder.JobFile))
	if err != nil {
		return false
	}
	was, err := runfolder.Settings(text)
	if err != nil {
		return false
	}
	is, err := runfolder.Settings(j.Source())
	return err == nil && was["model.path"] == is["model.path"]
}

// weightsOf is what tells the weights that a job begins with from others; all models from scratch have one name.
func weightsOf(j *job.Job) (sum string, err error) {
	if j.Model.Path == "" {
		return "scratch", nil
	}
	m, err := modelfile.Open(j.ModelPath(j.Model.Path))
	if err != nil {
		return "", j.Fail("model.path", "%s", job.Plain(err, "modelfile: "))
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	return m.Checksum()
}

// sameModel refuses the model of a job whose weights are not those that the run in a folder began with.
func sameModel(j *job.Job, dir, began, now string) error {
	switch {
	case began == now:
		return nil
	case j.Model.Path == "":
		return j.Fail("model.scratch", "the run in %s began with a model.path; give it that back, or begin a new run with --output", dir)
	}
	return j.Fail("model.path", "the weights of %s are not those that the run in %s began with; give it that model back, or begin a new run with --output", j.Model.Path, dir)
}
