package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/agentfly/agentfly/orchestrator/tree"
	"github.com/agentfly/agentfly/trajectory"
)

// trajectories puts the trajectories of a store together from the rows of its tables.
type trajectories struct{ file *file }

// trajectoryRow is a row of the table trajectories.
type trajectoryRow struct {
	id    string
	body  []byte        // its JSON, without turns and what was posted
	turns []byte        // numbers of rows of the table turns; nil: version 1 wrote it
	crc   sql.NullInt64 // of body
}

// record reads a row of a query of records, and what updates added.
func (s trajectories) record(rows *sql.Rows) (Record, error) {
	var r Record
	var row trajectoryRow
	var task []byte
	err := rows.Scan(&r.Phase, &row.id, &row.body, &row.turns, &row.crc, &task)
	if err != nil {
		return r, err
	}
	if r.Trajectory, err = s.checked(row); err != nil {
		return r, err
	}
	if r.Task, err = decodeTask(task); err != nil {
		return r, fmt.Errorf("task %s %w: %w", r.Trajectory.TaskID, errDamaged, err)
	}
	r.Updates, err = s.updates(r.Trajectory.ID)
	return r, err
}

// finished returns a trajectory that has its end; nil: there is none.
func (s trajectories) finished(ctx context.Context, id string) (*trajectory.Trajectory, error) {
	row := trajectoryRow{id: id}
	query := "SELECT json, " + s.file.turnColumns("trajectories") + " FROM trajectories WHERE id = ?"
	err := s.file.db.QueryRowContext(ctx, query, id).Scan(&row.body, &row.turns, &row.crc)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("trajectory %s: %w", id, err)
	}
	return s.checked(row)
}

// checked is the trajectory of a row, its samples checked.
func (s trajectories) checked(row trajectoryRow) (*trajectory.Trajectory, error) {
	t, err := s.join(row, s.turn)
	if err != nil {
		return nil, err
	}
	for k, sample := range t.Samples {
		if err := sample.Check(); err != nil {
			return nil, fmt.Errorf("trajectory %s %w: sample %d: %w", row.id, errDamaged, k, err)
		}
	}
	return t, nil
}

const selectTurn = "SELECT body FROM turns WHERE n = ?"

func (s trajectories) turn(n int64) *sql.Row { return s.file.db.QueryRow(selectTurn, n) }

// join puts a trajectory together from its row and those of its turns, which turn reads. Its errors name it.
func (s trajectories) join(row trajectoryRow, turn func(n int64) *sql.Row) (t *trajectory.Trajectory, err error) {
	defer func() {
		switch {
		case passing(err):
			t, err = nil, fmt.Errorf("trajectory %s: %w", row.id, err)
		case err != nil:
			t, err = nil, fmt.Errorf("trajectory %s %w: %w", row.id, errDamaged, err)
		}
	}()
	if row.crc.Valid && row.crc.Int64 != checksum(row.body) {
		return nil, errors.New("its checksum is wrong")
	}
	t = &trajectory.Trajectory{}
	if err := json.Unmarshal(row.body, t); err != nil {
		return nil, err
	}
	if t.ID != row.id {
		return nil, fmt.Errorf("it says that it is %q", t.ID)
	}
	if t.Failure == "" { // versions 1 and 2 do not say it
		t.Failure = t.ErrOrigin.Failure()
	}
	if row.turns == nil {
		return t, s.samples(t)
	}
	numbers, err := decodeRows(row.turns)
	if err != nil {
		return nil, err
	}
	for _, n := range numbers {
		var body []byte
		if err = turn(n).Scan(&body); err == nil {
			err = grow(t, body)
		}
		if err != nil {
			return nil, fmt.Errorf("row %d of turns: %w", n, err)
		}
	}
	if t.Unpaid { // the rows of its turns were written before
		t.TakeBack()
	}
	return t, nil
}

// lastRow is the row of turns that holds the end of a trajectory; 0: version 1 wrote it, which had none.
func (s trajectories) lastRow(ctx context.Context, id string) (int64, error) {
	var turns []byte
	err := s.file.db.QueryRowContext(ctx, "SELECT turns FROM trajectories WHERE id = ?", id).Scan(&turns)
	if err != nil {
		return 0, err
	}
	rows, err := decodeRows(turns)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	return rows[len(rows)-1], nil
}

// samples reads the tokens of a trajectory that version 1 wrote.
func (s trajectories) samples(t *trajectory.Trajectory) error {
	rows, err := s.file.db.Query("SELECT token_ids, response_mask, sampling_logprobs, policy_version FROM samples WHERE trajectory_id = ? ORDER BY idx", t.ID)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var ids, mask, logprobs, versions []byte
		if err := rows.Scan(&ids, &mask, &logprobs, &versions); err != nil {
			return err
		}
		n := len(mask)
		sample := &trajectory.Sample{TokenIDs: make([]int32, n), ResponseMask: make([]bool, n), SamplingLogprobs: make([]float32, n), PolicyVersion: make([]int32, n)}
		if err := errors.Join(unblob(ids, sample.TokenIDs), unblob(mask, sample.ResponseMask), unblob(logprobs, sample.SamplingLogprobs), unblob(versions, sample.PolicyVersion)); err != nil {
			return err
		}
		if err := sample.Check(); err != nil {
			return err
		}
		t.Samples = append(t.Samples, sample)
	}
	return rows.Err()
}

// updates reads what the optimizer steps added to the samples of a trajectory.
func (s trajectories) updates(id string) ([]Update, error) {
	rows, err := s.file.db.Query("SELECT idx, step, old_logprobs, advantages, "+s.file.entropyColumn()+" FROM updates WHERE trajectory_id = ? ORDER BY step, idx", id)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []Update
	for rows.Next() {
		u := Update{TrajectoryID: id}
		var old, advantages, entropy []byte
		if err := rows.Scan(&u.Sample, &u.Step, &old, &advantages, &entropy); err != nil {
			return nil, err
		}
		u.OldLogprobs, u.Advantages = make([]float32, len(old)/4), make([]float32, len(advantages)/4)
		if err := errors.Join(unblob(old, u.OldLogprobs), unblob(advantages, u.Advantages)); err != nil {
			return nil, err
		}
		if len(entropy) > 0 {
			u.Entropy = make([]float32, len(entropy)/4)
			if err := unblob(entropy, u.Entropy); err != nil {
				return nil, err
			}
		}
		out = append(out, u)
	}
	return out, rows.Err()
}

func (s trajectories) task(ctx context.Context, phase, id string) (trajectory.Task, error) {
	var body []byte
	err := s.file.db.QueryRowContext(ctx, "SELECT json FROM tasks WHERE id = ? AND phase = ?", id, phase).Scan(&body)
	if err != nil {
		return trajectory.Task{}, fmt.Errorf("task %s: %w", id, err)
	}
	task, err := decodeTask(body)
	if err != nil {
		return task, fmt.Errorf("task %s %w: %w", id, errDamaged, err)
	}
	return task, nil
}

// ofGroup are the trajectories of a group that have their end: those of the indices below size, and those that fork off them, in the order of their
// trees.
func (s trajectories) ofGroup(ctx context.Context, phase string, ref GroupRef, size int) (out []*trajectory.Trajectory, err error) {
	for i := range size {
		t, err := s.finished(ctx, ID(phase, ref.Step, ref.Group, i))
		if err != nil {
			return nil, err
		}
		if t != nil {
			out = append(out, t)
		}
	}
	if s.file.version < 3 || len(out) == 0 { // no program of then had trees
		return out, nil
	}
	prefix := groupPrefix(ID(phase, ref.Step, ref.Group, 0))
	rows, err := s.file.db.QueryContext(ctx, "SELECT id FROM trajectories WHERE phase = ? AND step = ? AND branch <> '' AND substr(id, 1, ?) = ?", phase, ref.Step, len(prefix), prefix)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	for _, id := range ids {
		t, err := s.finished(ctx, id)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	if len(out) > size {
		return nil, fmt.Errorf("%s has %d trajectories with an end, and %d were admitted", ref, len(out), size)
	}
	if len(ids) > 0 {
		tree.Sort(out)
	}
	return out, nil
}

// group reads a group of the phase train that was trained or is about to be, and its greedy trajectory where there is one.
func (s trajectories) group(ctx context.Context, ref GroupRef, greedy string) (g trajectory.Group, err error) {
	var body []byte
	err = s.file.db.QueryRowContext(ctx, "SELECT json FROM events WHERE kind = 'admit' AND phase = ? AND step = ? AND grp = ?", Train, ref.Step, ref.Group).Scan(&body)
	if err != nil {
		return g, fmt.Errorf("its admission: %w", err)
	}
	var a admitted
	if err := json.Unmarshal(body, &a); err != nil {
		return g, fmt.Errorf("its admission is damaged: %w", err)
	}
	if g.Task, err = s.task(ctx, Train, a.Task); err != nil {
		return g, err
	}
	if g.Trajectories, err = s.ofGroup(ctx, Train, ref, a.Size); err != nil {
		return g, err
	}
	if n := len(g.Trajectories); n < a.Size {
		missing := 0
		for missing < n && g.Trajectories[missing].Index == missing && g.Trajectories[missing].Branch == "" {
			missing++
		}
		if slices.ContainsFunc(g.Trajectories, func(t *trajectory.Trajectory) bool { return t.Branch != "" }) {
			return g, fmt.Errorf("%d of its %d trajectories are missing", a.Size-n, a.Size)
		}
		return g, fmt.Errorf("trajectory %s is missing", ID(Train, ref.Step, ref.Group, missing))
	}
	if greedy != "" {
		g.Greedy, err = s.finished(ctx, ID(greedy, ref.Step, ref.Group, 0))
	}
	return g, err
}
