package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/agentfly/agentfly/trajectory"
)

// Record is a stored trajectory with what the updates added to its samples.
type Record struct {
	Phase      string
	Task       trajectory.Task
	Trajectory *trajectory.Trajectory
	Updates    []Update
}

// Each calls f for every trajectory in the order of phase, step and id; id "" is all of them.
func (s *Store) Each(id string, f func(Record) error) error {
	turns := "t.turns, t.crc"
	if s.version < 2 {
		turns = "NULL, NULL"
	}
	rows, err := s.db.Query(`SELECT t.phase, t.id, t.json, `+turns+`, k.json FROM trajectories t LEFT JOIN tasks k ON k.id = t.task_id AND k.phase = t.phase
		WHERE ? = '' OR t.id = ? ORDER BY t.phase, t.step, t.id`, id, id)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer rows.Close()
	found := false
	for rows.Next() {
		found = true
		r, err := s.record(rows)
		if err != nil {
			return fmt.Errorf("store: %w", err)
		}
		if err := f(r); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if id != "" && !found {
		return fmt.Errorf("store: there is no trajectory %q", id)
	}
	return nil
}

func (s *Store) record(rows *sql.Rows) (Record, error) {
	var r Record
	var id string
	var body, turns, task []byte
	var crc sql.NullInt64
	err := rows.Scan(&r.Phase, &id, &body, &turns, &crc, &task)
	if err != nil {
		return r, err
	}
	if r.Trajectory, err = s.trajectory(id, body, turns, crc); err != nil {
		return r, err
	}
	if r.Task, err = decodeTask(task); err != nil {
		return r, fmt.Errorf("task %s: %w", r.Trajectory.TaskID, err)
	}
	r.Updates, err = s.updates(r.Trajectory.ID)
	return r, err
}

// trajectory puts a trajectory together from its rows. Its errors name it.
func (s *Store) trajectory(id string, body, turns []byte, crc sql.NullInt64) (t *trajectory.Trajectory, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("trajectory %s is damaged: %w", id, err)
		}
	}()
	if crc.Valid && crc.Int64 != checksum(body) {
		return nil, errors.New("its checksum is wrong")
	}
	t = &trajectory.Trajectory{}
	if err := json.Unmarshal(body, t); err != nil {
		return nil, err
	}
	if t.ID != id {
		return nil, fmt.Errorf("it says that it is %q", t.ID)
	}
	if t.Failure == "" { // versions 1 and 2 do not say it
		t.Failure = t.ErrOrigin.Failure()
	}
	if turns == nil {
		return t, s.samples(t)
	}
	numbers, err := decodeRows(turns)
	if err != nil {
		return nil, err
	}
	for _, n := range numbers {
		var row []byte
		if err = s.db.QueryRow("SELECT body FROM turns WHERE n = ?", n).Scan(&row); err == nil {
			err = grow(t, row)
		}
		if err != nil {
			return nil, fmt.Errorf("row %d of turns: %w", n, err)
		}
	}
	if t.Unpaid { // the rows of its turns were written before
		t.TakeBack()
	}
	for k, sample := range t.Samples {
		if err := sample.Check(); err != nil {
			return nil, fmt.Errorf("sample %d: %w", k, err)
		}
	}
	return t, nil
}

// decodeTask keeps numbers as they are written, as reading the data does.
func decodeTask(body []byte) (task trajectory.Task, err error) {
	if len(body) == 0 {
		return task, nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	return task, d.Decode(&task)
}

func (s *Store) samples(t *trajectory.Trajectory) error {
	rows, err := s.db.Query("SELECT token_ids, response_mask, sampling_logprobs, policy_version FROM samples WHERE trajectory_id = ? ORDER BY idx", t.ID)
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

func (s *Store) updates(id string) ([]Update, error) {
	rows, err := s.db.Query("SELECT idx, step, old_logprobs, advantages FROM updates WHERE trajectory_id = ? ORDER BY step, idx", id)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []Update
	for rows.Next() {
		u := Update{TrajectoryID: id}
		var old, advantages []byte
		if err := rows.Scan(&u.Sample, &u.Step, &old, &advantages); err != nil {
			return nil, err
		}
		u.OldLogprobs, u.Advantages = make([]float32, len(old)/4), make([]float32, len(advantages)/4)
		if err := errors.Join(unblob(old, u.OldLogprobs), unblob(advantages, u.Advantages)); err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	return out, rows.Err()
}

// Steps returns the metrics of the stored steps in order.
func (s *Store) Steps() ([]map[string]float64, error) {
	rows, err := s.db.Query("SELECT json FROM steps ORDER BY step")
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	defer rows.Close()
	var out []map[string]float64
	for rows.Next() {
		var body []byte
		m := map[string]float64{}
		if err := rows.Scan(&body); err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
		if err := json.Unmarshal(body, &m); err != nil {
			return nil, fmt.Errorf("store: step %d: %w", len(out)+1, err)
		}
		out = append(out, m)
	}
	return out, rows.Err()
}

// metricsOf returns the metrics of a stored step; nil: there is none.
func (s *Store) metricsOf(ctx context.Context, step int) (map[string]float64, error) {
	var body []byte
	err := s.db.QueryRowContext(ctx, "SELECT json FROM steps WHERE step = ?", step).Scan(&body)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	var m map[string]float64
	if err == nil {
		err = json.Unmarshal(body, &m)
	}
	if err != nil {
		return nil, fmt.Errorf("step %d: %w", step+1, err)
	}
	return m, nil
}

// unblob reads a whole slice; a blob of another length is an error.
func unblob(data []byte, into any) error {
	if want := binary.Size(into); want != len(data) {
		return fmt.Errorf("a blob has %d bytes, expected %d: the store is damaged", len(data), want)
	}
	return binary.Read(bytes.NewReader(data), binary.LittleEndian, into)
}
