package recovery

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// What is recorded beyond the checkpoint keeps the temperature that sampled it. A run with nothing of the kind may take another one, and so does one
// of an older program, which did not record its own.
func TestAnotherTemperatureIsTakenWhereNothingWasSampled(t *testing.T) {
	ended, failed := &trajectory.Trajectory{ID: "train-4-0-0"}, &trajectory.Trajectory{ID: "train-4-0-1", Err: "broken"}
	group := func(finished ...*trajectory.Trajectory) *store.Recovery {
		return &store.Recovery{Outstanding: []store.Outstanding{{
			Admission: store.Admission{Phase: store.Train, Step: 4, Size: len(finished)}, Finished: finished, Partial: make([]*trajectory.Trajectory, len(finished)),
		}}}
	}
	for name, c := range map[string]struct {
		fact, then string
		batches    int
		log        *store.Recovery
		wrong      string
	}{
		"nothing":                 {"1", "0.5", 0, &store.Recovery{}, ""},
		"admitted only":           {"1", "0.5", 0, group(nil, nil), ""},
		"failed, tried again":     {"1", "0.5", 0, group(nil, failed), ""},
		"of an older program":     {"", "0.5", 1, group(ended, nil), ""},
		"the same":                {"0.5", "0.5", 1, group(ended, nil), ""},
		"a batch":                 {"1", "1", 1, &store.Recovery{}, "steps that are trained again: 1; groups that go on: 0) was sampled at 1, and this job's is 0.5; give 1 back until step 4 is done"},
		"a group":                 {"1", "1", 0, group(ended, nil), "steps that are trained again: 0; groups that go on: 1) was sampled at 1, and this job's is 0.5; give 1 back until step 4 is done"},
		"a batch and a group":     {"1", "1", 1, group(ended, nil), "give 1 back until step 5 is done (with trainer.steps 5 the run ends there)"},
		"a group after two steps": {"1", "1", 2, group(ended, nil), "give 1 back until step 6 is done"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			db, err := store.Open(filepath.Join(dir, store.File))
			require.NoError(t, err)
			defer db.Close()
			require.NoError(t, db.SetFact(t.Context(), TemperatureFact, c.fact))
			p := Recovered{Batches: map[int]store.Batch{}, Log: c.log, Ended: map[string]*trajectory.Trajectory{ended.ID: ended}}
			for i := range c.batches {
				p.Batches[3+i] = store.Batch{Step: 3 + i}
			}
			j, err := job.Load("../../examples/tiny.yaml", "rollout.temperature=0.5")
			require.NoError(t, err)
			err = p.TakeTemperature(t.Context(), &runfolder.Folder{Dir: dir, DB: db}, j, 3)
			if c.wrong == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "rollout.temperature: what the run in "+dir+" recorded after step 3 (")
				require.ErrorContains(t, err, c.wrong)
			}
			fact, err := db.Reader.Fact(TemperatureFact)
			require.NoError(t, err)
			require.Equal(t, c.then, fact)
		})
	}
}
