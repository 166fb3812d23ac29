package export

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/agentfly/agentfly/orchestrator/store"
)

// Trackio keeps a project in one SQLite file, $TRACKIO_DIR/PROJECT.db. The tables are those of version 2 of its schema (Trackio 0.43); the others it makes
// itself. A trajectory is a trace: its conversation, and a span for each tool call.
const trackioSchema = `
CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL, run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL, log_id TEXT, space_id TEXT);
CREATE TABLE configs (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, run_name TEXT NOT NULL, config TEXT NOT NULL, created_at TEXT NOT NULL, UNIQUE(run_id));
CREATE TABLE system_metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL, run_name TEXT NOT NULL, metrics TEXT NOT NULL, log_id TEXT, space_id TEXT);
CREATE TABLE traces (id TEXT PRIMARY KEY, run_id TEXT NOT NULL, timestamp TEXT NOT NULL, run_name TEXT NOT NULL, step INTEGER NOT NULL, key TEXT NOT NULL, trace_index INTEGER, messages TEXT NOT NULL, metadata TEXT NOT NULL, search_text TEXT NOT NULL, log_id TEXT, space_id TEXT, spans TEXT NOT NULL DEFAULT '[]');
PRAGMA user_version = 2;
`

var trackio = Format{
	Name: "trackio", Description: "curves and trajectories as a project of Trackio, for `trackio show`", Trajectories: true,
	File: func(r Run) string { return safe(r.Name) + ".db" }, Build: buildTrackio,
}

type trackioMessage struct {
	Role    string        `json:"role"`
	Content string        `json:"content"`
	Thought string        `json:"reasoning_content,omitempty"`
	Calls   []trackioCall `json:"tool_calls,omitempty"`
	CallID  string        `json:"tool_call_id,omitempty"`
}

type trackioCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type trackioSpan struct {
	ID     string         `json:"id"`
	Name   string         `json:"name"`
	Kind   string         `json:"kind"`
	Millis float64        `json:"duration_ms"`
	Status string         `json:"status"`
	Input  map[string]any `json:"input"`
	Output string         `json:"output"`
}

func buildTrackio(ctx context.Context, path string, r Run) (err error) {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.ExecContext(ctx, trackioSchema); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // says that it is done where it is
	id, stamp := safe(r.Name), func(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000000+00:00") }
	config, err := json.Marshal(map[string]any{"model": r.Model, "algorithm": r.Algorithm, "_Created": stamp(r.Began)})
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO configs (run_id, run_name, config, created_at) VALUES (?, ?, ?, ?)", id, id, string(config), stamp(r.Began)); err != nil {
		return err
	}
	order, values := r.steps()
	for _, step := range order {
		numbers, err := json.Marshal(values[step])
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?, ?)", id, stamp(r.at(step)), id, step, string(numbers)); err != nil {
			return err
		}
	}
	insert, err := tx.PrepareContext(ctx, "INSERT INTO traces VALUES (?, ?, ?, ?, ?, 'trajectory', NULL, ?, ?, ?, NULL, NULL, ?)")
	if err != nil {
		return err
	}
	defer insert.Close()
	if err := r.Trajectories(ctx, func(record store.Record) error {
		t := record.Trajectory
		messages, spans := trackioTrace(record)
		metadata := map[string]any{"id": t.ID, "phase": record.Phase, "task": t.TaskID, "step": t.Step, "stop_reason": t.StopReason}
		if paid, _, ok := rewards(t); ok {
			metadata["reward"] = number(paid)
		}
		if t.Failed() {
			metadata["error"] = t.Err
		}
		var text strings.Builder
		text.WriteString("trajectory")
		for _, m := range messages {
			text.WriteString(" " + m.Role + " " + m.Content)
		}
		step := store.Told(record.Phase, t.Step) // as curves count
		at := r.at(step)
		if !t.Started.IsZero() {
			at = t.Started
		}
		var columns []any
		for _, v := range []any{messages, metadata, spans} {
			b, err := json.Marshal(v)
			if err != nil {
				return err
			}
			columns = append(columns, string(b))
		}
		_, err := insert.ExecContext(ctx, id+":"+t.ID+":trajectory", id, stamp(at), id, max(0, step), columns[0], columns[1], strings.ToValidUTF8(text.String(), "\uFFFD"), columns[2])
		return err
	}); err != nil {
		return err
	}
	return tx.Commit()
}

func trackioTrace(record store.Record) (messages []trackioMessage, spans []trackioSpan) {
	messages, spans = []trackioMessage{}, []trackioSpan{}
	for _, l := range conversation(record) {
		m := trackioMessage{Role: l.Role, Content: l.Text, Thought: l.Thought}
		var answers []trackioMessage
		for _, c := range l.Calls {
			if c.Name == "" {
				answers = append(answers, trackioMessage{Role: "user", Content: c.Result})
				continue
			}
			arguments, _ := json.Marshal(c.Arguments) // came from JSON
			asked := trackioCall{ID: c.ID, Type: "function"}
			asked.Function.Name, asked.Function.Arguments = c.Name, string(arguments)
			m.Calls = append(m.Calls, asked)
			if l.Turn == nil {
				continue // what came back is a message of its own
			}
			answers = append(answers, trackioMessage{Role: "tool", Content: c.Result, CallID: c.ID})
			status := map[bool]string{true: "error", false: "ok"}[c.Failed]
			spans = append(spans, trackioSpan{c.ID, c.Name, "tool", c.Seconds * 1000, status, c.Arguments, c.Result})
		}
		messages = append(append(messages, m), answers...)
	}
	return messages, spans
}
