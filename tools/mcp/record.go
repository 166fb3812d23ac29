package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/tools"
)

// A recording is a file of JSON lines: first what the server offers, then each call with its result, in the order of the results.
//
//	{"tools":[{"name":"add","description":"Adds.","parameters":{…}}]}
//	{"tool":"add","arguments":{"a":1,"b":2},"text":"3"}
//	{"tool":"add","arguments":{"a":1},"error":"b is missing"}
type entry struct {
	Tools     []offer         `json:"tools,omitempty"`
	Tool      string          `json:"tool,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Text      string          `json:"text,omitempty"`
	Image     string          `json:"image,omitempty"`
	Info      map[string]any  `json:"info,omitempty"`
	Error     string          `json:"error,omitempty"`
	Broken    bool            `json:"broken,omitempty"` // the error was the server's own
}

// offer is a tool as its server describes it.
type offer struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
	Idempotent  bool            `json:"idempotent,omitempty"`
	ReadOnly    bool            `json:"read_only,omitempty"` // a call changes nothing
}

// caller carries out the calls of a server's tools.
type caller interface {
	call(ctx context.Context, tool string, arguments json.RawMessage) (tools.Observation, error)
}

// recorder writes down what passes through it.
type recorder struct {
	to   caller
	mu   sync.Mutex
	file *os.File
	warn func(text string)
	err  error // of the first line that could not be written
	torn bool  // half a line is at the end, and nothing more is written
}

// newRecorder goes on with the recording that is there, of an earlier start of the same job, say. It must have the same offers.
func newRecorder(path string, to caller, offers []offer, warn func(text string)) (*recorder, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	first, err := lineOf(entry{Tools: offers})
	if err == nil {
		err = goOn(file, first)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("record: %w", err), file.Close())
	}
	return &recorder{to: to, file: file, warn: warn}, nil
}

// goOn leaves a file with its first line and whole lines behind it: a process that was killed may have cut the last one.
func goOn(file *os.File, first []byte) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	begins := make([]byte, min(size, int64(len(first))))
	if _, err := file.ReadAt(begins, 0); err != nil && len(begins) > 0 {
		return err
	}
	if !bytes.HasPrefix(first, begins) {
		return fmt.Errorf("%s does not begin with the tools that this server offers; move it away, or name another file", file.Name())
	}
	whole := size // the end of the last whole line
	for part := make([]byte, 1<<16); whole > 0; {
		part = part[:min(whole, int64(cap(part)))]
		if _, err := file.ReadAt(part, whole-int64(len(part))); err != nil {
			return err
		}
		end := int64(bytes.LastIndexByte(part, '\n') + 1)
		whole -= int64(len(part)) - end
		if end > 0 {
			break
		}
	}
	if whole < size {
		if err := file.Truncate(whole); err != nil {
			return err
		}
	}
	if whole == 0 {
		_, err = file.Write(first)
	}
	return err
}

func (r *recorder) call(ctx context.Context, tool string, arguments json.RawMessage) (tools.Observation, error) {
	o, err := r.to.call(ctx, tool, arguments)
	e := entry{Tool: tool, Arguments: arguments, Text: o.Text, Image: o.Image, Info: o.Info}
	var broken *tools.BrokenError
	switch {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded):
		e.Error, e.Broken = "the server did not answer in time", true
	case ctx.Err() != nil: // the run was interrupted: that is no result
		return o, err
	default:
		e.Error, e.Broken = err.Error(), errors.As(err, &broken)
	}
	r.write(e)
	return o, err
}

func lineOf(e entry) ([]byte, error) {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line) // ends the line
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(e)
	return line.Bytes(), err
}

func (r *recorder) write(e entry) {
	line, err := lineOf(e)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && !r.torn {
		err = r.append(line)
	}
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("mcp: record: %w", err)
		r.warn(fmt.Sprintf("the recording %s lacks calls: %v", filepath.Base(r.file.Name()), err))
	}
}

// append writes a line whole or not at all: behind half a line, which a full disk leaves, no later one could be read.
func (r *recorder) append(line []byte) error {
	n, err := r.file.Write(line)
	if err == nil || n == 0 {
		return err
	}
	info, failed := r.file.Stat()
	if failed == nil {
		failed = r.file.Truncate(info.Size() - int64(n))
	}
	r.torn = failed != nil
	return errors.Join(err, failed)
}

// Close reports the first line that is missing.
func (r *recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.err, r.file.Close())
}

// replay answers from a recording. A call that was recorded several times gets its results in their order, and the last one from then on.
type replay struct {
	mu    sync.Mutex
	calls map[string][]entry // by tool and arguments
}

// readRecording reads a recording and what its server offers.
func readRecording(path string) (*replay, []offer, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("replay: %w", err)
	}
	defer file.Close()
	fail := func(line int, format string, args ...any) error {
		return fmt.Errorf("replay: %s:%d: %s; record it again", filepath.Base(path), line, fmt.Sprintf(format, args...))
	}
	out := &replay{calls: map[string][]entry{}}
	var offers []offer
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 2*maxMessage)
	for n := 1; lines.Scan(); n++ {
		var e entry
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		d.DisallowUnknownFields()
		d.UseNumber()
		if err := d.Decode(&e); err != nil {
			return nil, nil, fail(n, "the line cannot be read: %v", err)
		}
		switch {
		case n == 1 && len(e.Tools) == 0:
			return nil, nil, fail(n, "the first line must hold the server's tools")
		case n == 1:
			offers = e.Tools
			continue
		case e.Tool == "":
			return nil, nil, fail(n, "the line names no tool")
		}
		key, err := callKey(e.Tool, e.Arguments)
		if err != nil {
			return nil, nil, fail(n, "arguments: %v", err)
		}
		out.calls[key] = append(out.calls[key], e)
	}
	if err := lines.Err(); err != nil {
		return nil, nil, fmt.Errorf("replay: %s: %w", filepath.Base(path), err)
	}
	if offers == nil {
		return nil, nil, fail(1, "the file is empty")
	}
	return out, offers, nil
}

func (r *replay) call(_ context.Context, tool string, arguments json.RawMessage) (tools.Observation, error) {
	key, err := callKey(tool, arguments)
	if err != nil {
		return tools.Observation{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	results := r.calls[key]
	switch {
	case len(results) == 0:
		return tools.Observation{}, &tools.BrokenError{Text: fmt.Sprintf("the recording has no call of %s with the arguments %s; record it with the server", tool, wording.Clip(string(arguments), 200))}
	case len(results) > 1:
		r.calls[key] = results[1:]
	}
	e := results[0]
	switch {
	case e.Broken:
		return tools.Observation{}, &tools.BrokenError{Text: e.Error}
	case e.Error != "":
		return tools.Observation{}, &tools.TextError{Text: e.Error}
	}
	return tools.Observation{Text: e.Text, Image: e.Image, Info: e.Info}, nil
}

// callKey is the same for arguments that differ in the order of their members or in white space.
func callKey(tool string, arguments json.RawMessage) (string, error) {
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	d := json.NewDecoder(bytes.NewReader(arguments))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return "", err
	}
	b, err := json.Marshal(v)
	return tool + " " + string(b), err
}
