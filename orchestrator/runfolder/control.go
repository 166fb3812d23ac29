package runfolder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/agentfly/agentfly/internal/wording"
)

// ControlFile is the name of the file in which others ask the process of a run for something: a JSON object a line, added at its end.
const ControlFile = "control.jsonl"

// Action is what the process of a run is asked for. It looks between two steps.
type Action string

// The actions.
const (
	Pause      Action = "pause"      // before the next step, until it is to resume
	Resume     Action = "resume"     // after a pause
	Checkpoint Action = "checkpoint" // now, of the steps that are done
	Stop       Action = "stop"       // as an interruption does: it can be resumed
)

// Actions are all of them, in the order of the help.
func Actions() []Action { return []Action{Pause, Resume, Checkpoint, Stop} }

// ParseAction is the action of a name.
func ParseAction(name string) (Action, error) {
	var names []string
	for _, a := range Actions() {
		if string(a) == name {
			return a, nil
		}
		names = append(names, string(a))
	}
	return "", fmt.Errorf("there is no action %q; allowed: pause, resume, checkpoint, stop%s", name, wording.DidYouMean(name, names))
}

// Request asks for an action.
type Request struct {
	Action Action    `json:"do"`
	By     string    `json:"by"` // who asks, for people
	At     time.Time `json:"at"`
}

// ErrNotRunning says that no process trains the run, so that nobody would hear.
var ErrNotRunning = errors.New("no process trains this run; agentfly train JOB --resume goes on with it")

// Ask asks the process of a run.
func Ask(dir string, r Request) error {
	now, err := ReadNow(dir)
	if err != nil {
		return err
	}
	if !now.Running(time.Now()) {
		return ErrNotRunning
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, ControlFile)
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // a pipe would hold the caller up
		return fmt.Errorf("%s is no file", path)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n')) // one write: two who ask at once do not mix
	return errors.Join(err, f.Close())
}

// Requests reads what a run is asked for.
type Requests struct {
	path   string
	offset int64 // up to which it was read
}

// mostAsked bounds what is read at once of a file that others write.
const mostAsked = 1 << 16

// NewRequests reads what is asked for from now on: what an earlier process was asked for is not done again.
func NewRequests(dir string) *Requests {
	r := &Requests{path: filepath.Join(dir, ControlFile)}
	if info, err := os.Stat(r.path); err == nil {
		r.offset = info.Size()
	}
	return r
}

// Next are the requests since the last call. Lines that are none are passed over.
func (r *Requests) Next() ([]Request, error) {
	info, err := os.Stat(r.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.offset = 0
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no file", r.path)
	case info.Size() < r.offset: // somebody wrote it anew
		r.offset = 0
	case info.Size() == r.offset:
		return nil, nil
	}
	f, err := os.Open(r.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.NewSectionReader(f, r.offset, mostAsked))
	if err != nil {
		return nil, err
	}
	end := bytes.LastIndexByte(data, '\n') + 1 // a line is taken when it is whole
	if end == 0 && len(data) == mostAsked {    // no request is so long
		end = len(data)
	}
	r.offset += int64(end)
	var out []Request
	for line := range bytes.Lines(data[:end]) {
		var q Request
		if json.Unmarshal(line, &q) != nil {
			continue
		}
		if _, err := ParseAction(string(q.Action)); err == nil {
			out = append(out, q)
		}
	}
	return out, nil
}
