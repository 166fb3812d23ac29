// Package panics makes errors of panics in code that somebody else may have written: estimators, losses, rewards, tools,
// formats, and what makes them. The error names that code, so that a run ends with a message and can be resumed, where a
// panic would end the process.
//
// It does not catch panics of this program's own code, which end the process: they are faults to mend.
package panics

import (
	"fmt"
	"runtime/debug"
	"strings"
)

// Error is a panic that was caught.
type Error struct {
	What  string // the code that panicked, such as "advantage mine"
	Value any    // that it panicked with
	Stack []byte // of the panic
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s panicked: %v", e.What, e.Value)
	if at := Place(e.Stack); at != "" {
		text += ", at " + at
	}
	return text
}

// Guard calls f. A panic of it becomes an [*Error].
func Guard(what string, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &Error{what, v, debug.Stack()}
		}
	}()
	return f()
}

// Value is [Guard] for a function that returns a value.
func Value[T any](what string, f func() (T, error)) (v T, err error) {
	err = Guard(what, func() (err error) {
		v, err = f()
		return err
	})
	return v, err
}

// Place is the file and line of the panic in a stack that [debug.Stack] gave while it was recovered; "" where there is none.
func Place(stack []byte) string {
	_, after, _ := strings.Cut(string(stack), "\npanic(")
	lines := strings.Split(after, "\n") // the rest of this line, its file; then each function and its file
	for i := 2; i+1 < len(lines); i += 2 {
		if strings.HasPrefix(lines[i], "runtime.") { // on the way from a fault of the processor
			continue
		}
		at, _, _ := strings.Cut(strings.TrimSpace(lines[i+1]), " +0x")
		return at
	}
	return ""
}
