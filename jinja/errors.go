package jinja

import (
	"errors"
	"fmt"
)

// CompileError says why a template was refused: a syntax error, or a construct that is not rendered exactly.
type CompileError struct {
	Line        int
	Construct   string // what is refused, in the template's words; empty for a syntax error
	Description string
}

func (e *CompileError) Error() string {
	if e.Construct != "" {
		return fmt.Sprintf("template: line %d: %s: %s", e.Line, e.Construct, e.Description)
	}
	return fmt.Sprintf("template: line %d: %s", e.Line, e.Description)
}

// RaisedError is what the template's own raise_exception said.
type RaisedError struct{ Message string }

func (e *RaisedError) Error() string {
	return "template: the template refuses this conversation: " + e.Message
}

// RenderError is any other failure of a rendering. Kind is the Python exception that jinja2 would raise, "Unsupported" for
// what is not rendered exactly, or "Limit" for a bound that was exceeded.
type RenderError struct {
	Line    int // 0 if unknown
	Kind    string
	Message string
}

func (e *RenderError) Error() string {
	return fmt.Sprintf("template: line %d: %s: %s", e.Line, e.Kind, e.Message)
}

func raise(kind, format string, args ...any) error {
	return &RenderError{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

func typeError(format string, args ...any) error  { return raise("TypeError", format, args...) }
func valueError(format string, args ...any) error { return raise("ValueError", format, args...) }
func unsupported(format string, args ...any) error {
	return raise("Unsupported", format+" is not rendered exactly", args...)
}

// at adds the line of the statement to an error that has none.
func at(err error, line int) error {
	var r *RenderError
	if errors.As(err, &r) && r.Line == 0 {
		r.Line = line
	}
	return err
}
