package openenv

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/trajectory"
)

const (
	mostTasks = 1_000   // of one request
	lastTask  = 100_000 // that may be asked for
)

// taskRoutes are OpenEnv's routes for the tasks of an environment, of a source that has some. How many there are nobody knows: they are made as
// they are asked for.
func taskRoutes(ctx context.Context, mux *http.ServeMux, name string, s environments.Source) {
	mux.HandleFunc("GET /list_environments", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, []string{name}) })
	from, ok := s.(environments.Tasker)
	none := func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotImplemented, r.URL.Path+" is not supported for this environment")
	}
	if !ok {
		for _, route := range []string{"GET /{env}/splits", "POST /{env}/tasks", "POST /{env}/num_tasks", "POST /{env}/task", "POST /{env}/task_range"} {
			mux.HandleFunc(route, none)
		}
		return
	}
	v := &taskServer{name: name, from: from, ctx: ctx, turn: make(chan struct{}, 1), made: map[string][]trajectory.Task{}}
	mux.HandleFunc("POST /{env}/tasks", none)
	mux.HandleFunc("POST /{env}/num_tasks", none)
	mux.HandleFunc("GET /{env}/splits", func(w http.ResponseWriter, r *http.Request) {
		if v.isNamed(w, r) {
			answer(w, http.StatusOK, []map[string]string{{"name": environments.Train, "type": "train"}, {"name": environments.Eval, "type": "test"}})
		}
	})
	mux.HandleFunc("POST /{env}/task", func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Split string
			Index int
		}
		if !v.asked(w, r, &q) {
			return
		}
		if all, ok := v.tasks(w, r, q.Split, q.Index, q.Index+1); ok {
			answer(w, http.StatusOK, map[string]any{"task": all[0]})
		}
	})
	mux.HandleFunc("POST /{env}/task_range", func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Split       string
			Start, Stop *int
		}
		if !v.asked(w, r, &q) {
			return
		}
		begin := 0
		if q.Start != nil {
			begin = *q.Start
		}
		if q.Stop == nil {
			fail(w, http.StatusBadRequest, "stop is missing: the tasks are made as they are asked for, and have no last one")
			return
		}
		if all, ok := v.tasks(w, r, q.Split, begin, *q.Stop); ok {
			answer(w, http.StatusOK, map[string]any{"tasks": all})
		}
	})
}

// taskServer makes the tasks of a source.
type taskServer struct {
	name string
	from environments.Tasker
	ctx  context.Context              // of the server
	turn chan struct{}                // holds a token while tasks are made; it guards what follows
	made map[string][]trajectory.Task // of a split, as far as somebody asked
}

func (v *taskServer) isNamed(w http.ResponseWriter, r *http.Request) bool {
	if r.PathValue("env") == v.name {
		return true
	}
	fail(w, http.StatusNotFound, "unknown environment "+strconv.Quote(clip(r.PathValue("env"))))
	return false
}

func (v *taskServer) asked(w http.ResponseWriter, r *http.Request, into any) bool {
	if !v.isNamed(w, r) {
		return false
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(into); err != nil {
		fail(w, http.StatusUnprocessableEntity, "the request is no JSON of its form: "+err.Error())
		return false
	}
	return true
}

// tasks are those of a range, each as one object.
//
// They may take long to make: one request at a time makes them.
func (v *taskServer) tasks(w http.ResponseWriter, r *http.Request, split string, begin, end int) ([]map[string]any, bool) {
	if begin < 0 || end <= begin || end > lastTask || end-begin > mostTasks {
		fail(w, http.StatusBadRequest, fmt.Sprintf("Invalid task index: tasks %d to %d, where 0 to %d may be asked for, %d tasks at a time", begin, end, lastTask, mostTasks))
		return nil, false
	}
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
	case <-r.Context().Done():
		return nil, false
	case <-v.ctx.Done():
		fail(w, http.StatusServiceUnavailable, "the server is shutting down")
		return nil, false
	}
	all, err := v.made[split], error(nil)
	if len(all) < end {
		all, err = v.from.Tasks(split, end)
	}
	if err != nil || len(all) < end {
		if err == nil {
			err = fmt.Errorf("there are %d", len(all))
		}
		fail(w, http.StatusBadRequest, "no such tasks: "+err.Error())
		return nil, false
	}
	v.made[split] = all
	out := make([]map[string]any, 0, end-begin)
	for _, t := range all[begin:end] {
		task := map[string]any{"id": t.ID}
		for name, value := range t.Fields {
			task[name] = value
		}
		out = append(out, task)
	}
	return out, true
}
