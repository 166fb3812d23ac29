package openenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/trajectory"
)

// splitNames are the names, or types, of a server's splits that serve as one of ours, the best first.
var splitNames = map[string][]string{environments.Train: {"train"}, environments.Eval: {"eval", "test", "validation"}}

// Tasks asks a server for its own tasks, which OpenEnv's from 0.10 on may have. Each task's fields are data of its reset.
func (s *source) Tasks(split string, n int) ([]trajectory.Task, error) {
	var errs []error
	for _, h := range s.hosts.all {
		all, err := s.tasksOf(context.Background(), h, split, n)
		if err == nil {
			return all, nil
		}
		if errors.Is(err, errMissing) {
			err = errors.New("it lists no tasks; give the job a data file with one task a line, whose fields its reset takes")
		}
		errs = append(errs, fmt.Errorf("%s: %w", h.url, err))
	}
	return nil, errors.Join(errs...)
}

func (s *source) tasksOf(ctx context.Context, h *host, split string, n int) ([]trajectory.Task, error) {
	var names []string
	if err := s.get(ctx, h.url+"/list_environments", &names); err != nil {
		return nil, err
	}
	if len(names) != 1 {
		return nil, fmt.Errorf("it lists %d environments where one was expected", len(names))
	}
	base := h.url + "/" + url.PathEscape(names[0])
	var splits []struct {
		Name string `json:"name"`
		Type string `json:"type"`
	}
	if err := s.get(ctx, base+"/splits", &splits); err != nil {
		return nil, err
	}
	theirs := ""
	var known []string
	for _, name := range splitNames[split] {
		for _, sp := range splits {
			if theirs == "" && (sp.Name == name || sp.Type == name) {
				theirs = sp.Name
			}
		}
	}
	for _, sp := range splits {
		known = append(known, sp.Name)
	}
	if theirs == "" {
		return nil, fmt.Errorf("it has no split for %s; its splits are %s", split, strings.Join(known, ", "))
	}
	var count struct {
		N int `json:"num_tasks"`
	}
	err := s.post(ctx, base+"/num_tasks", map[string]any{"split": theirs}, &count)
	if err == nil && count.N < n {
		return nil, fmt.Errorf("its split %s has %d tasks, and %d are asked for", theirs, count.N, n)
	}
	all := make([]any, n)
	for stop := n; stop > 0; { // the last ones first: a server that has fewer says so at once, and one that makes them makes them once
		start := max(0, stop-mostTasks)
		var found struct {
			Tasks []any `json:"tasks"`
		}
		if err := s.post(ctx, base+"/task_range", map[string]any{"split": theirs, "start": start, "stop": stop}, &found); err != nil {
			return nil, err
		}
		if len(found.Tasks) < stop-start {
			return nil, fmt.Errorf("its split %s gave %d tasks where %d were asked for", theirs, start+len(found.Tasks), n)
		}
		copy(all[start:stop], found.Tasks)
		stop = start
	}
	out := make([]trajectory.Task, n)
	for i, t := range all {
		fields, ok := t.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("task %d of its split %s is no object: %s", i, theirs, clip(fmt.Sprint(t)))
		}
		id, _ := fields["id"].(string)
		if id == "" {
			id = fmt.Sprintf("%s-%d", theirs, i)
		}
		delete(fields, "id")
		out[i] = trajectory.Task{ID: id, Fields: fields}
	}
	return out, nil
}

func (s *source) post(ctx context.Context, url string, body, into any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return s.fetch(ctx, "POST", url, strings.NewReader(string(data)), into)
}
