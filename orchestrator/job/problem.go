package job

import (
	"errors"
	"fmt"
	"regexp"
	"sort"
	"strings"
	"time"

	"github.com/agentfly/agentfly/internal/home"
)

// Problem is one thing that is wrong with a job file.
type Problem struct {
	File         string // or the --set option
	Line, Column int    // from 1; 0 where there is none
	Text         string
	key          string // the path of the value, such as trainer.steps; "" where it is none
}

func (p Problem) String() string {
	switch {
	case p.File == "":
		return p.Text
	case p.Line == 0:
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Text)
}

// Error is what is wrong with a job, or with another file that the user gave: one line for each problem, in the order of
// the file.
type Error struct {
	Lines    []string
	problems []Problem // the same, where they are known
}

func (e *Error) Error() string { return strings.Join(e.Lines, "\n") }

// Of is the first problem with the value at a path, such as agent.roles, or within it; nil: there is none.
func (e *Error) Of(path string) *Problem {
	for i, p := range e.problems {
		if strings.HasPrefix(p.Text, path+".") || strings.HasPrefix(p.Text, path+":") {
			return &e.problems[i]
		}
	}
	return nil
}

func asError(all []Problem) error {
	if len(all) == 0 {
		return nil
	}
	sortProblems(all)
	e := &Error{}
	e.add(all)
	return e
}

// add appends problems, each once.
func (e *Error) add(all []Problem) {
	told := map[string]bool{}
	for _, line := range e.Lines {
		told[line] = true
	}
	for _, p := range all {
		if line := p.String(); !told[line] {
			told[line] = true
			e.Lines, e.problems = append(e.Lines, line), append(e.problems, p)
		}
	}
}

// sortProblems puts problems of one file into its order.
func sortProblems(all []Problem) {
	sort.SliceStable(all, func(i, k int) bool {
		a, b := all[i], all[k]
		return a.Line < b.Line || a.Line == b.Line && a.Column < b.Column
	})
}

// Collect makes one error of several, each of which may be several itself: every problem once, those of the job file in its order, then the
// others. What only follows from a value that could not be read is left out. nil: there is none.
func (j *Job) Collect(errs ...error) error { return j.collect(errs, false) }

// Stages collects what was found one after the other: what is said of a value that something was wrong with before is left out, too.
func (j *Job) Stages(errs ...error) error { return j.collect(errs, true) }

func (j *Job) collect(errs []error, stages bool) error {
	var here, elsewhere []Problem
	var stage int
	first := map[string]int{} // the stage that found fault with a value
	var add func(err error)
	add = func(err error) {
		several, joined := err.(interface{ Unwrap() []error }) //nolint:errorlint // what errors.Join made, and nothing around it
		input := (*Error)(nil)
		switch {
		case err == nil:
		case joined:
			for _, one := range several.Unwrap() {
				add(one)
			}
		case !errors.As(err, &input):
			elsewhere = append(elsewhere, Problem{Text: Words(err)})
		case len(input.problems) == 0:
			for _, line := range input.Lines {
				elsewhere = append(elsewhere, Problem{Text: line})
			}
		default:
			for _, p := range input.problems {
				if p.key != "" && j.broken.blames(p.key, p.Text) {
					continue
				}
				if was, found := first[p.key]; !found {
					first[p.key] = stage
				} else if stages && p.key != "" && was < stage {
					continue
				}
				if p.Line == 0 {
					elsewhere = append(elsewhere, p)
				} else {
					here = append(here, p)
				}
			}
		}
	}
	for n, err := range errs {
		stage = n
		add(err)
	}
	if len(here)+len(elsewhere) == 0 {
		return nil
	}
	sortProblems(here)
	e := &Error{}
	e.add(here)
	e.add(elsewhere)
	return e
}

// internalPrefix is what packages of this program begin their errors with; to who wrote a job it says nothing.
var internalPrefix = regexp.MustCompile(`^(?:(?:agents|algorithms|cgo|engines|environments|jinja|masks|modelfile|orchestrator|policy|resources|rewards|store|tokenizer|tools|trainer): )+`)

// Words is the text of an error without the names of the packages that it came through.
func Words(err error) string { return plainWords(err.Error()) }

// PlainText is text without names of packages in front.
func PlainText(text string) string { return plainWords(text) }

func plainWords(text string) string { return internalPrefix.ReplaceAllString(text, "") }

// broken are the paths of the values of a job that could not be read, and stand at their defaults.
type broken map[string]bool

// blames tells whether what was found in the value of key only follows from one that could not be read: the value itself, one around it or
// in it, or one that the text names.
func (b broken) blames(key, text string) bool {
	for path := range b {
		if path == key || strings.HasPrefix(key, path+".") || strings.HasPrefix(path, key+".") || strings.Contains(path, ".") && strings.Contains(text, path) {
			return true
		}
	}
	return false
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
	if local := j.Resolve(path); exists(local) {
		return local
	}
	return home.Expand(path) // RUN@best is no file
}
