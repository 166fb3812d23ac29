package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/agentfly/agentfly/trajectory"
)

// Cursor is a place in the log of a run: all before it was seen. The zero Cursor is the beginning. It may be kept, as JSON too, and
// holds in a later process: the log only grows.
type Cursor struct {
	Turn  int64 `json:"turn"`  // last row of turns
	Event int64 `json:"event"` // last event
}

// Entry is one thing that the log holds.
type Entry struct {
	Event Event
	Next  Cursor // behind it: what Tail goes on after
}

// Event is what became of a run: a TrajectoryGrew, GroupAdmitted, GroupDropped, BatchTaken, StepEnded or StepsForgotten. A program that follows runs of newer versions ignores those that it does not know.
type Event interface{ isEvent() }

// The events of a log.
type (
	// TrajectoryGrew says that turns of a trajectory are stored, or its end.
	TrajectoryGrew struct {
		ID    string
		First int               // turns before these; 0: it begins, or begins anew
		Turns []trajectory.Turn // may be none where it ended
		Ended bool              // it is stored whole, scored or failed: Reader.Trajectory returns it. Version 2 did not log it
	}
	// GroupAdmitted says that the sampling of a group begins. Its Task has an ID only.
	GroupAdmitted struct{ Admission }
	// GroupDropped says that a group will not be trained, and why.
	GroupDropped struct {
		GroupRef
		Reason string
	}
	// BatchTaken says what a step trains on; it begins.
	BatchTaken struct{ Batch }
	// StepEnded says that a step is trained. A run that goes on at an earlier checkpoint ends its steps once more.
	StepEnded struct {
		Step    int
		Metrics map[string]float64 // as they are stored now; nil where they were forgotten since
	}
	// StepsForgotten says that what is stored of a step and later ones was removed, to be made again.
	StepsForgotten struct{ From int }
)

func (TrajectoryGrew) isEvent() {}
func (GroupAdmitted) isEvent()  {}
func (GroupDropped) isEvent()   {}
func (BatchTaken) isEvent()     {}
func (StepEnded) isEvent()      {}
func (StepsForgotten) isEvent() {}

const (
	tailPage  = 256         // rows of each table that Tail reads at a time
	tailPause = time.Second // between looks for more: they take time from a run on the same machine
)

// tail is one reader of the log that follows it, and where it stands.
type tail struct {
	file    *file
	at      Cursor
	yield   func(Entry, error) bool
	stopped bool
}

// loggedEvent is a row of events; turn is the number of the row of turns that came next.
type loggedEvent struct {
	n, crc, turn int64
	kind, phase  string
	ref          GroupRef
	body         []byte
}

// page yields what follows in both tables. more tells whether there may be still more now.
func (t *tail) page(ctx context.Context) (more bool, err error) {
	rows, err := t.rows(ctx) // first: each event that comes before one of these rows is found by the query after it
	if err != nil {
		return false, err
	}
	events, err := t.logged(ctx)
	if err != nil {
		return false, err
	}
	fullRows, fullEvents := len(rows) == tailPage, len(events) == tailPage
	for !t.stopped {
		row := t.at.Turn + 1 // the next one
		switch {
		case len(events) > 0 && events[0].turn <= row:
			if err := t.event(ctx, events[0]); err != nil {
				return false, fmt.Errorf("event %d: %w", events[0].n, err)
			}
			events = events[1:]
		case len(events) == 0 && fullEvents || len(rows) == 0: // the next event may come before the next row
			return fullRows || fullEvents, nil
		default:
			if err := t.row(rows[0]); err != nil {
				return false, fmt.Errorf("row %d of turns: %w", row, err)
			}
			rows = rows[1:]
		}
	}
	return false, nil
}

// rows reads the rows of turns after the cursor. Their numbers follow each other.
func (t *tail) rows(ctx context.Context) (out [][]byte, err error) {
	rows, err := t.file.db.QueryContext(ctx, "SELECT n, body FROM turns WHERE n > ? ORDER BY n LIMIT ?", t.at.Turn, tailPage)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for want := t.at.Turn + 1; rows.Next(); want++ {
		var n int64
		var body []byte
		if err := rows.Scan(&n, &body); err != nil {
			return nil, err
		}
		if n != want {
			return nil, fmt.Errorf("row %d of turns is missing", want)
		}
		out = append(out, body)
	}
	return out, rows.Err()
}

// logged reads the events after the cursor.
func (t *tail) logged(ctx context.Context) (out []loggedEvent, err error) {
	turn := "turn"
	if t.file.version < 3 {
		turn = "0"
	}
	rows, err := t.file.db.QueryContext(ctx, "SELECT n, kind, phase, step, grp, json, crc, "+turn+" FROM events WHERE n > ? ORDER BY n LIMIT ?", t.at.Event, tailPage)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for want := t.at.Event + 1; rows.Next(); want++ {
		var e loggedEvent
		if err := rows.Scan(&e.n, &e.kind, &e.phase, &e.ref.Step, &e.ref.Group, &e.body, &e.crc, &e.turn); err != nil {
			return nil, err
		}
		if e.n != want {
			return nil, fmt.Errorf("event %d is missing", want)
		}
		out = append(out, e)
	}
	return out, rows.Err()
}

// row yields what a row of turns says.
func (t *tail) row(body []byte) error {
	head, _, err := readHead(body)
	if err != nil {
		return err
	}
	turns, err := turnsOf(body)
	if err != nil {
		return err
	}
	t.at.Turn++
	if len(turns) > 0 || head.ended { // version 2 logged tokens alone at an end
		t.give(TrajectoryGrew{head.id, head.first, turns, head.ended})
	}
	return nil
}

// event yields what a row of events says.
func (t *tail) event(ctx context.Context, e loggedEvent) error {
	if checksum(e.body) != e.crc {
		return errors.New("its checksum is wrong")
	}
	out, err := t.typed(ctx, e)
	if err != nil {
		return err
	}
	t.at.Event = e.n
	if out != nil {
		t.give(out)
	}
	return nil
}

// typed is the event of a row; nil: a newer program wrote it.
func (t *tail) typed(ctx context.Context, e loggedEvent) (Event, error) {
	switch e.kind {
	case kindAdmit:
		var a admitted
		err := json.Unmarshal(e.body, &a)
		return GroupAdmitted{a.admission(e.phase, e.ref)}, err
	case kindDrop:
		var d dropped
		err := json.Unmarshal(e.body, &d)
		return GroupDropped{e.ref, d.Reason}, err
	case kindBatch:
		b := Batch{Step: e.ref.Step}
		err := json.Unmarshal(e.body, &b)
		return BatchTaken{b}, err
	case kindStep:
		metrics, err := t.metricsOf(ctx, e.ref.Step)
		return StepEnded{e.ref.Step, metrics}, err
	case kindForget:
		return StepsForgotten{e.ref.Step}, nil
	}
	return nil, nil
}

func (t *tail) give(e Event) { t.stopped = !t.yield(Entry{e, t.at}, nil) }

// metricsOf returns the metrics of a stored step; nil: there is none.
func (t *tail) metricsOf(ctx context.Context, step int) (map[string]float64, error) {
	var body []byte
	err := t.file.db.QueryRowContext(ctx, "SELECT json FROM steps WHERE step = ?", step).Scan(&body)
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
