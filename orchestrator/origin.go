package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/policy"
)

// origin is a part of what a run begins with, which no checkpoint tells.
type origin struct {
	fact  string                             // of the store, that tells it from others; an older program recorded none
	of    func(j *job.Job) (string, error)   // what the fact is for a job
	other func(j *job.Job, dir string) error // refuses a job that has another one than the run in a folder
}

var origins = []origin{{runfolder.ModelFact, weightsOf, otherWeights}, {runfolder.AdapterFact, adapterOf, otherAdapter}}

// begunWith makes sure that a run goes on with the model and the adapter that it began with: its replay begins there. A run that begins, from "",
// records them. What a job calls them says nothing: a path may lead elsewhere today.
func (r *run) begunWith(ctx context.Context, from string) error {
	j, db := r.session.Job, r.folder.DB
	for _, o := range origins {
		began, err := db.Reader.Fact(o.fact)
		if err != nil {
			return err
		}
		if began == "" && from != "" {
			continue
		}
		now, err := o.of(j)
		if err != nil {
			return err
		}
		if began == "" {
			err = db.SetFact(ctx, o.fact, now)
		} else if began != now {
			err = o.other(j, r.folder.Dir)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sameOrigin makes sure that the replay now began with what the run in a folder began with.
func sameOrigin(j *job.Job, dir string, run, now *store.Reader) error {
	for _, o := range origins {
		began, err := run.Fact(o.fact)
		if err != nil {
			return err
		}
		again, err := now.Fact(o.fact)
		if err != nil {
			return err
		}
		if began != "" && began != again {
			return o.other(j, dir)
		}
	}
	return nil
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

func otherWeights(j *job.Job, dir string) error {
	if j.Model.Path == "" {
		return j.Fail("model.scratch", "the run in %s began with a model.path; give it that back, or begin a new run with --output", dir)
	}
	return j.Fail("model.path", "the weights of %s are not those that the run in %s began with; give it that model back, or begin a new run with --output", j.Model.Path, dir)
}

// adapterOf is what tells the adapter that a job begins with from others; all jobs without model.lora.path have one name.
func adapterOf(j *job.Job) (string, error) {
	if j.Model.LoRA.Path == "" {
		return "none", nil
	}
	sum, err := policy.AdapterChecksum(j.Resolve(j.Model.LoRA.Path))
	if err != nil {
		return "", j.Fail("model.lora.path", "%s", job.Plain(err, "policy: "))
	}
	return sum, nil
}

func otherAdapter(j *job.Job, dir string) error {
	if j.Model.LoRA.Path == "" {
		return j.Fail("model.lora", "the run in %s began with the adapter of a model.lora.path; give it that back, or begin a new run with --output", dir)
	}
	return j.Fail("model.lora.path", "the adapter %s is not what the run in %s began with; give it back what it had, or begin a new run with --output", j.Model.LoRA.Path, dir)
}

// sameAdapter makes sure that the job's adapter has the rank, the alpha and the targets of the one in the checkpoint at from, which the run goes on
// with: its weights are multiplied by alpha/rank.
func (r *run) sameAdapter(from string) error {
	j := r.session.Job
	now, ok := r.session.Policy.Model.Adapter()
	if !ok || from == "" {
		return nil
	}
	was, err := policy.LookAdapter(filepath.Join(from, checkpoint.AdapterFolder))
	if errors.Is(err, os.ErrNotExist) { // it trained none, which the trainer refuses
		return nil
	} else if err != nil {
		return fmt.Errorf("orchestrator: the adapter of %s: %w", from, err)
	}
	for _, of := range []struct {
		key      string
		was, now any
	}{{"rank", was.Rank, now.Rank}, {"alpha", was.Alpha, now.Alpha}, {"targets", was.Targets, now.Targets}} {
		if !reflect.DeepEqual(of.was, of.now) {
			return j.Fail("model.lora."+of.key, "the run in %s trains an adapter with %s %v, and this job's has %v; give that back, or begin a new run with --output", r.folder.Dir, of.key, of.was, of.now)
		}
	}
	return nil
}
