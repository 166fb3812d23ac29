package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/agentfly/agentfly/trajectory"
)

// Selection says which stored trajectories are meant by what can be asked for without reading their turns. Its zero value is all of them.
type Selection struct {
	ID    string // of one
	Phase string // one that ends in * is all that begin so
	Step  *int   // as ids count it, from 0; of an evaluation the steps before it
	Told  *int   // as people count: sampled for the step of that number, the first being 1, or evaluated after so many
	Task  string // the id of their task
	Stop  string // stop reason
}

// where is the condition, with what stands for its question marks.
func (q Selection) where() (string, []any) {
	all, args := []string{"1"}, []any(nil)
	one := func(condition string, values ...any) { all, args = append(all, condition), append(args, values...) }
	if q.ID != "" {
		one("t.id = ?", q.ID)
	}
	if begin, ok := strings.CutSuffix(q.Phase, "*"); ok {
		one("substr(t.phase, 1, length(?)) = ?", begin, begin)
	} else if q.Phase != "" {
		one("t.phase = ?", q.Phase)
	}
	if q.Step != nil {
		one("t.step = ?", *q.Step)
	}
	if q.Told != nil {
		one("t.step = ? - (substr(t.phase, 1, 5) <> 'eval-')", *q.Told)
	}
	if q.Task != "" {
		one("t.task_id = ?", q.Task)
	}
	if q.Stop != "" {
		one("CASE WHEN json_valid(t.json) THEN json_extract(t.json, '$.stop_reason') END = ?", q.Stop)
	}
	return strings.Join(all, " AND "), args
}

// Select calls f for the trajectories of a selection in the order of phase, step and id. f may read the store.
func (s *Store) Select(ctx context.Context, q Selection, f func(Record) error) error {
	turns := "t.turns, t.crc"
	if s.version < 2 {
		turns = "NULL, NULL"
	}
	where, args := q.where()
	rows, err := s.db.QueryContext(ctx, `SELECT t.phase, t.id, t.json, `+turns+`, k.json FROM trajectories t LEFT JOIN tasks k ON k.id = t.task_id AND k.phase = t.phase
		WHERE `+where+` ORDER BY t.phase, t.step, t.id`, args...)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
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
	return nil
}

// Score is what one trajectory of an evaluation was paid.
type Score struct {
	Phase      string
	Step       int
	Task       string // its id
	TaskJSON   []byte // as it is stored: two runs have the same task where it is the same
	Reward     float64
	StopReason trajectory.StopReason
	Failed     bool
}

// Scores calls f for the trajectories of all evaluations, without reading their turns: an evaluation's reward is all that a trajectory was paid.
func (s *Store) Scores(ctx context.Context, f func(Score) error) error {
	rows, err := s.db.QueryContext(ctx, `SELECT t.phase, t.step, t.task_id, k.json, json_extract(t.json, '$.reward'), json_extract(t.json, '$.stop_reason'), coalesce(json_extract(t.json, '$.err'), '')
		FROM trajectories t LEFT JOIN tasks k ON k.id = t.task_id AND k.phase = t.phase
		WHERE substr(t.phase, 1, 5) = 'eval-' AND json_valid(t.json) ORDER BY t.phase, t.step, t.id`)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var one Score
		var task []byte
		var reward sql.NullFloat64
		var stop, failed string
		if err := rows.Scan(&one.Phase, &one.Step, &one.Task, &task, &reward, &stop, &failed); err != nil {
			return fmt.Errorf("store: %w", err)
		}
		one.TaskJSON, one.Reward, one.StopReason, one.Failed = task, reward.Float64, trajectory.StopReason(stop), failed != ""
		if err := f(one); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}
