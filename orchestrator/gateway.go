package orchestrator

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"github.com/agentfly/agentfly/dialects"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/orchestrator/session"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// Gateway serves a job's gateway alone: agents begin trajectories and end them, nothing is trained, and all is kept in the store of a folder. Sessions
// that are open when it ends go on when it begins again. ready is told the address, note what the user should know.
func Gateway(ctx context.Context, j *job.Job, path, dir string, r Registries, ready func(url string), ended func(*trajectory.Trajectory), note func(string)) (err error) {
	if !j.Agent.Online {
		return j.Fail("agent", "a gateway alone has agents that come by themselves; set kind: external, online: true, key: KEY")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	folder := runfolder.New(dir, true)
	if err := folder.Lock(note); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	if err := folder.CheckGateway(); err != nil {
		return err
	}
	s := session.New(j)
	s.Hold = true
	s.Notes.Tell(note)
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Equip(ctx, r); err != nil {
		return err
	}
	if err := s.Start(ctx, path, false); err != nil {
		return err
	}
	db, err := store.OpenGateway(filepath.Join(dir, store.File))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	log, err := db.Recover(ctx, 0)
	if err != nil {
		return err
	}
	s.Sampler.Record = db.AddTurn
	s.BeginAnew(db.Restart)
	if err := s.Guests.Keep(dir, s.Sampler.External); err != nil {
		return err
	}
	d := newDesk(&s.Sampler, db, ended)
	s.Sampler.Recovered = d.recovered
	url := s.Guests.BringTasks(func(_ context.Context, task trajectory.Task) (string, error) { return d.begin(ctx, task) })
	d.resume(ctx, log)
	s.Guests.Answer()
	ready(url)
	<-ctx.Done()
	d.running.Wait()
	s.NoteLeftOver()
	return d.failed
}

// desk begins the trajectories of agents that come by themselves.
type desk struct {
	sampler *rollout.Sampler
	db      *store.Store
	ended   func(*trajectory.Trajectory)
	running sync.WaitGroup

	mu     sync.Mutex
	next   int                               // group
	tasks  map[string][sha256.Size]byte      // what each is, by its id
	open   map[string]*trajectory.Trajectory // recorded before this process began, and without an end
	failed error                             // of the store
}

func newDesk(sampler *rollout.Sampler, db *store.Store, ended func(*trajectory.Trajectory)) *desk {
	return &desk{sampler: sampler, db: db, ended: ended, open: map[string]*trajectory.Trajectory{}, tasks: map[string][sha256.Size]byte{}}
}

func (d *desk) recovered(id string) (*trajectory.Trajectory, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open[id], false
}

// place is where the trajectory of a task that an agent brings is. A task with the id of another one is refused: the store has one task of an id, by whose
// fields a session would be judged that goes on after a restart.
func (d *desk) place(task trajectory.Task) (rollout.Place, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := rollout.Place{Phase: store.Gateway, Group: d.next, Task: task}
	if p.Task.ID == "" {
		for _, taken := d.tasks[p.ID()]; taken; _, taken = d.tasks[p.ID()] { // an agent called a task of its own so
			p.Group++
		}
		p.Task.ID, d.next = p.ID(), p.Group
	}
	is, err := contentOf(p.Task)
	if err != nil {
		return p, err
	}
	if was, known := d.tasks[p.Task.ID]; known && was != is {
		return p, &dialects.Error{
			Status:  http.StatusConflict,
			Message: fmt.Sprintf("the task %q is known with another prompt or other fields; give each task an id of its own, or none", wording.Clip(p.Task.ID, 80)),
		}
	}
	d.tasks[p.Task.ID] = is
	d.next++
	return p, nil
}

// contentOf names what a task is.
func contentOf(task trajectory.Task) ([sha256.Size]byte, error) {
	body, err := json.Marshal(task)
	return sha256.Sum256(body), err
}

// begin begins a trajectory, which is in the log before it is told of.
func (d *desk) begin(ctx context.Context, task trajectory.Task) (string, error) {
	p, err := d.place(task)
	if err != nil {
		return "", err
	}
	if err := d.db.Admit(ctx, store.Admission{Phase: p.Phase, Group: p.Group, Size: 1, Task: p.Task}); err != nil {
		return "", err
	}
	d.run(ctx, p)
	return p.ID(), nil
}

// resume goes on with the trajectories that were open.
func (d *desk) resume(ctx context.Context, log *store.Recovery) {
	var going []rollout.Place
	var ids []string
	var ended []*trajectory.Trajectory
	for _, o := range log.Outstanding {
		d.next = max(d.next, o.Group+1)
		if is, err := contentOf(o.Task); err == nil { // it was read from JSON
			d.tasks[o.Task.ID] = is
		}
		if o.Finished[0] == nil {
			p := rollout.Place{Phase: store.Gateway, Group: o.Group, Task: o.Task}
			d.mu.Lock()
			if d.open[p.ID()] = o.Partial[0]; o.Partial[0] == nil {
				d.open[p.ID()] = &trajectory.Trajectory{ID: p.ID()}
			}
			d.mu.Unlock()
			going = append(going, p)
			ids = append(ids, p.ID())
		} else {
			ended = append(ended, o.Finished[0])
		}
	}
	d.sampler.External.KnowEnded(d.sampler.RunName, ended...)
	d.sampler.AwaitAgents(ids...)
	for _, p := range going {
		d.run(ctx, p)
	}
}

// run has a trajectory sampled and stored. One that this process's end interrupts stays open.
func (d *desk) run(ctx context.Context, p rollout.Place) {
	d.running.Go(func() {
		t := d.sampler.Sample(ctx, p)
		if ctx.Err() != nil {
			return
		}
		err := d.db.AddTrajectory(ctx, p.Phase, p.Task, t)
		d.mu.Lock()
		d.failed = errors.Join(d.failed, err)
		d.mu.Unlock()
		d.ended(t)
	})
}
