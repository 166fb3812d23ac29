package orchestrator

import (
	"context"

	"github.com/agentfly/agentfly/orchestrator/recovery"
)

// recover reads the log of the run, from which its steps then go on: what was recorded is neither sampled nor evaluated
// again.
func (t *run) recover(ctx context.Context) error {
	db := t.folder.DB
	log, err := db.Recover(ctx, t.state.Step)
	if err != nil {
		return err
	}
	if log.Events == 0 { // supervised fine-tuning, or a program that kept no log
		if err := db.Truncate(ctx, t.state.Step); err != nil {
			return err
		}
	}
	older, note, err := recovery.TakeRules(ctx, db, t.options.Resume)
	if err != nil {
		return err
	}
	if note != "" {
		t.notes.know(note)
	}
	if older {
		t.rollout.Restart = recovery.Restart(db, t.notes.note)
	}
	if t.past, err = recovery.Read(log, t.folder, &t.state, t.dealer, t.rollout.Tools.KeepsState()); err != nil {
		return err
	}
	if note, err = t.past.MendMetrics(t.folder, &t.state); err != nil {
		return err
	}
	if note != "" {
		t.notes.know(note)
	}
	if t.options.Resume {
		t.notes.know(t.past.Summary(t.state.Step))
	}
	t.rollout.Recovered = t.past.Trajectory
	return nil
}
