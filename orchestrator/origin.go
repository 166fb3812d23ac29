package orchestrator

import (
	"context"
	"errors"

	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
)

// begunWith makes sure that a run goes on with the model that it began with, which a checkpoint does not tell: its replay begins there. A run that
// begins, from "", records that model; an older program recorded none. What a job calls the model says nothing: a path may lead elsewhere today.
func (r *run) begunWith(ctx context.Context, from string) error {
	j, db := r.session.Job, r.folder.DB
	began, err := db.Reader.Fact(runfolder.ModelFact)
	if err != nil || began == "" && from != "" {
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
