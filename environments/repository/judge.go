package repository

import (
	"context"
	_ "embed"
	"encoding/json"
	"strings"
	"time"

	"github.com/agentfly/agentfly/environments/boxed"
	"github.com/agentfly/agentfly/internal/wording"
)

//go:embed judge.py
var driver string

// verdict is what hidden tests say of a repository.
type verdict struct {
	reward float64
	failed []string // tests, the first few
	said   string   // the end of what the tests wrote
	ran    int      // tests of an instance
}

// order is what the driver is told.
type order struct {
	Path  []string `json:"path,omitempty"`
	Calls []call   `json:"calls,omitempty"`
	Files []string `json:"files,omitempty"`
}

// report is what the driver wrote, why the sandbox ended it, if it did, and how it failed, be it by that or with a status of its own; "": it did not.
type report struct {
	text, said, stopped, failed string
}

const (
	mostReport = 16 << 20
	mostSaid   = 4 << 10
	mostFailed = 20
)

// run runs the driver in a folder. No program of the agent runs any more.
func (s *source) run(ctx context.Context, f *boxed.Folder, o order) (report, error) {
	o.Path = s.params.Show
	text, err := json.Marshal(o)
	if err != nil {
		return report{}, err
	}
	limit := time.Duration(s.params.Timeout) * time.Second
	p := f.Base
	p.Args, p.Stdin = []string{s.params.Python, "-I", "-B", "-c", driver}, text
	p.Limits.Wall, p.Limits.CPU, p.Limits.Output = boxed.Within(ctx, limit), boxed.Processor(limit), mostReport
	r, err := f.Run(ctx, p)
	if err != nil {
		return report{}, err
	}
	if err := boxed.Late(r, p.Limits.Wall, limit, "the hidden tests", "give environment.step_timeout more, or the parameter timeout less"); err != nil {
		return report{}, err
	}
	said := f.Hide(string(r.Stderr))
	if len(said) > mostSaid {
		said = "…" + strings.ToValidUTF8(said[len(said)-mostSaid:], "")
	}
	return report{string(r.Stdout), said, boxed.Stopped(r, limit), boxed.Failed(r, limit)}, nil
}

// answers are the values of calls, one JSON text for each.
func (s *source) answers(ctx context.Context, f *boxed.Folder, calls []call) ([]string, report, error) {
	r, err := s.run(ctx, f, order{Calls: calls})
	if err != nil {
		return nil, r, err
	}
	lines := strings.Split(strings.TrimSuffix(r.text, "\n"), "\n")
	for i, line := range lines {
		var v any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			return lines[:i], r, nil
		}
		b, err := json.Marshal(v) // in one way of writing
		if err != nil {
			return lines[:i], r, nil
		}
		lines[i] = string(b)
	}
	return lines, r, nil
}

// statuses are those of tests in files, by name; nil: there is no report.
func (s *source) statuses(ctx context.Context, f *boxed.Folder, files []string) (map[string]string, report, error) {
	r, err := s.run(ctx, f, order{Files: files})
	if err != nil || r.stopped != "" {
		return nil, r, err
	}
	var all map[string]string
	if json.Unmarshal([]byte(strings.TrimSpace(r.text)), &all) != nil {
		return nil, r, nil
	}
	return all, r, nil
}

// oneLine is the last line that a program wrote.
func oneLine(said string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	return wording.Clip(lines[len(lines)-1], 200)
}
