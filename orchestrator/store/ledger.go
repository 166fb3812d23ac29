package store

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/agentfly/agentfly/trajectory"
)

// ledger is what an open Store knows of what is stored, so that what is added continues it: how much there is of trajectories without an
// end, which groups are admitted, which tasks are there.
type ledger struct {
	mu         sync.Mutex
	unfinished map[string]*mark         // trajectories that have turns and no end yet
	open       map[GroupRef][]Admission // admitted groups that are not trained or dropped
	tasks      map[taskKey]bool         // that this process stored
}

type taskKey struct{ phase, id string }

func newLedger() *ledger {
	return &ledger{unfinished: map[string]*mark{}, open: map[GroupRef][]Admission{}, tasks: map[taskKey]bool{}}
}

// markOf copies how much of a trajectory is stored.
func (l *ledger) markOf(id string) mark {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.unfinished[id]
	if m == nil {
		return mark{}
	}
	return mark{m.turns, m.posts, slices.Clone(m.lens), slices.Clip(m.rows)}
}

// grew keeps how much of a trajectory is stored now.
func (l *ledger) grew(id string, m *mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unfinished[id] = m
}

// ended says that a trajectory has its end, and that its task is stored.
func (l *ledger) ended(phase, task, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.unfinished, id)
	l.tasks[taskKey{phase, task}] = true
}

// restart makes a trajectory without an end begin anew: its next turn replaces those that are stored.
func (l *ledger) restart(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.unfinished, id)
}

// newTask is the JSON of a task that this process did not store yet; nil: it did.
func (l *ledger) newTask(phase string, task trajectory.Task) ([]byte, error) {
	l.mu.Lock()
	stored := l.tasks[taskKey{phase, task.ID}]
	l.mu.Unlock()
	if stored {
		return nil, nil
	}
	body, err := json.Marshal(task)
	if err != nil {
		return nil, fmt.Errorf("store: task %s: %w", task.ID, err)
	}
	return body, nil
}

// admitted says that groups are open, and that their tasks are stored. The groups whose tasks are sampled once more are settled.
func (l *ledger) admitted(all ...Admission) {
	for _, a := range all {
		if a.RetryOf != nil {
			l.settle(*a.RetryOf)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range all {
		l.open[a.ref()] = append(l.open[a.ref()], a)
		l.tasks[taskKey{a.Phase, a.Task.ID}] = true
	}
}

// recovered makes what is added go on where an earlier process stopped.
func (l *ledger) recovered(open []Outstanding, unfinished map[string]*mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range open {
		l.open[g.ref()] = append(l.open[g.ref()], g.Admission)
	}
	maps.Copy(l.unfinished, unfinished)
}

// isOpen tells whether a group is admitted and neither trained nor dropped.
func (l *ledger) isOpen(phase string, ref GroupRef) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.open[ref], func(a Admission) bool { return a.Phase == phase })
}

// settle forgets groups that nothing more comes of.
func (l *ledger) settle(refs ...GroupRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	settled := map[string]bool{}
	for _, ref := range refs {
		for _, a := range l.open[ref] {
			settled[groupPrefix(ID(a.Phase, a.Step, a.Group, 0))] = true
		}
		delete(l.open, ref)
	}
	maps.DeleteFunc(l.unfinished, func(id string, _ *mark) bool { return settled[groupPrefix(id)] }) // those that fork off another one too
}
