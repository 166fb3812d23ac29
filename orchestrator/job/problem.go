package job

import (
	"fmt"
	"os"
	"sort"
	"strings"
	"time"
)

// Problem is one thing that is wrong with a job file.
type Problem struct {
	File         string // or the --set option
	Line, Column int    // from 1; 0 where there is none
	Text         string
}

func (p Problem) String() string {
	if p.Line == 0 {
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Text)
}

// Error is what is wrong with a job, or with another file that the user gave: one line for each problem, in the order of
// the file.
type Error struct{ Lines []string }

func (e *Error) Error() string { return strings.Join(e.Lines, "\n") }

func asError(all []Problem) error {
	if len(all) == 0 {
		return nil
	}
	sort.SliceStable(all, func(i, k int) bool {
		a, b := all[i], all[k]
		return a.Line < b.Line || a.Line == b.Line && a.Column < b.Column
	})
	e := &Error{}
	for _, p := range all {
		e.Lines = append(e.Lines, p.String())
	}
	return e
}

// InputError marks an error of the user's files: exit status 2.
func InputError(err error) error { return &Error{Lines: []string{err.Error()}} }

// Plain is the text of an error without the prefix of the package that made it.
func Plain(err error, prefix string) string { return strings.TrimPrefix(err.Error(), prefix) }

// Seconds is a duration that a job gives in seconds.
func Seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Overlaps tells whether rollouts go on beside updates.
func (r Rollout) Overlaps() bool { return r.Mode == "async" || r.Oversample > 1 }

// ModelPath is where a model lies: relative to the job file where something is there, else as it is given, which may be a hub id.
func (j *Job) ModelPath(path string) string {
	local := j.Resolve(path)
	if _, err := os.Stat(local); err == nil {
		return local
	}
	return path
}
