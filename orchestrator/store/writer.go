package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
)

// writer is the one connection that writes. What callers add while a transaction is being committed goes together into
// the next one: thousands of them cost one sync of the disk.
type writer struct {
	conn       *sql.Conn
	raw        driver.Conn                       // conn's own, within a transaction
	statements map[string]driver.StmtExecContext // prepared on conn
	args       []driver.NamedValue
	turn       int64 // number of the next row of turns
	event      int64 // number of the next row of events

	mu      sync.Mutex
	pending *batch
	closed  bool
	wake    chan struct{} // buffered: pending has writes, or the store closes
	joined  sync.WaitGroup
}

// batch is what one transaction commits.
type batch struct {
	writes []*write
	done   chan struct{} // closed when every write has its err
}

type write struct {
	apply func(w *writer) error // runs in the writer's goroutine
	err   error
}

func newBatch() *batch { return &batch{done: make(chan struct{})} }

func startWriter(db *sql.DB) (*writer, error) {
	conn, err := db.Conn(context.Background())
	if err != nil {
		return nil, err
	}
	w := &writer{conn: conn, statements: map[string]driver.StmtExecContext{}, pending: newBatch(), wake: make(chan struct{}, 1)}
	err = conn.QueryRowContext(context.Background(), "SELECT coalesce((SELECT max(n) FROM turns), 0) + 1, coalesce((SELECT max(n) FROM events), 0) + 1").Scan(&w.turn, &w.event)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	w.joined.Go(w.run)
	return w, nil
}

// add hands a write over and returns when it is durable.
func (w *writer) add(apply func(w *writer) error) error {
	one := &write{apply: apply}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return errors.New("the store is closed")
	}
	b := w.pending
	b.writes = append(b.writes, one)
	first := len(b.writes) == 1
	w.mu.Unlock()
	if first {
		w.poke()
	}
	<-b.done
	return one.err
}

func (w *writer) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take returns what waits, nil for nothing, and whether the store is closed.
func (w *writer) take() (*batch, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending.writes) == 0 { // callers may still add to it
		return nil, w.closed
	}
	b := w.pending
	w.pending = newBatch()
	return b, w.closed
}

func (w *writer) run() {
	for {
		b, closed := w.take()
		if b != nil {
			w.commit(b)
			continue
		}
		if closed {
			return
		}
		<-w.wake
	}
}

// close commits what was added and frees the connection.
func (w *writer) close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.poke()
	w.joined.Wait()
	err := w.conn.Raw(func(any) error {
		var errs []error
		for _, s := range w.statements {
			errs = append(errs, s.(driver.Stmt).Close())
		}
		return errors.Join(errs...)
	})
	return errors.Join(err, w.conn.Close())
}

// commit writes a batch in one transaction. When one of its writes fails, each is tried alone, so that a bad record fails
// only its own call.
func (w *writer) commit(b *batch) {
	defer close(b.done)
	err := w.transact(b.writes)
	for _, one := range b.writes {
		one.err = err
		if err != nil && len(b.writes) > 1 {
			one.err = w.transact([]*write{one})
		}
	}
}

func (w *writer) transact(writes []*write) error {
	return w.conn.Raw(func(dc any) error {
		w.raw = dc.(driver.Conn)
		turn, event := w.turn, w.event
		err := w.exec("BEGIN IMMEDIATE")
		for i := 0; err == nil && i < len(writes); i++ {
			err = writes[i].apply(w)
		}
		if err == nil {
			err = w.exec("COMMIT")
		}
		if err != nil {
			w.turn, w.event = turn, event
			_ = w.exec("ROLLBACK") // fails when SQLite has done so itself; were a transaction open still, the next BEGIN would say so
		}
		return err
	})
}

// exec runs a statement, prepared once, on the connection itself: database/sql would add locks and copies to each row.
func (w *writer) exec(query string, args ...driver.Value) error {
	s := w.statements[query]
	if s == nil {
		prepared, err := w.raw.Prepare(query)
		if err != nil {
			return err
		}
		var ok bool
		if s, ok = prepared.(driver.StmtExecContext); !ok {
			return fmt.Errorf("the driver cannot run %q", query)
		}
		w.statements[query] = s
	}
	w.args = w.args[:0]
	for i, v := range args {
		w.args = append(w.args, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	_, err := s.ExecContext(context.Background(), w.args)
	return err
}

// addRow appends a row of turns.
func (w *writer) addRow(body []byte) (int64, error) {
	n := w.turn
	w.turn++
	return n, w.exec("INSERT INTO turns VALUES (?, ?)", n, body)
}

func (w *writer) addEvent(kind, phase string, step, group int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	n := w.event
	w.event++
	return w.exec("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)", n, kind, phase, int64(step), int64(group), string(body), checksum(body), w.turn)
}
