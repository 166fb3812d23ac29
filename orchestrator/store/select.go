package store

import (
	"strings"

	"github.com/agentfly/agentfly/trajectory"
)

// Selection says which stored trajectories are meant by what can be asked for without reading their turns. Its zero value is all of them.
type Selection struct {
	ID    string // of one
	Phase string // one that ends in * is all that begin so
	Step  *int   // as ids count it, from 0; of an evaluation the steps before it
	Told  *int   // as people count: sampled for the step of that number, the first being 1, or evaluated after so many
	Task  string // the id of their task
	Stop  string // stop reason

	// Numbered has the members of groups in the order of their numbers, which is that of their ids up to ten of them. Without it they stand in the order
	// of their ids, in which runs have learned from trajectories of others.
	Numbered bool

	Damaged func(error) // is told of each trajectory that is damaged, which is left out; nil: the first one ends the reading
}

// Told is the number of a trajectory's step as people count, and Selection.Told does: from 1 in training, of an evaluation the steps before it.
func Told(phase string, step int) int {
	if strings.HasPrefix(phase, "eval-") {
		return step
	}
	return step + 1
}

// When is the place in time of what a trajectory was sampled for: an evaluation after a step stands behind that step, and before the next one.
func When(phase string, step int) int {
	told := 2 * Told(phase, step)
	if strings.HasPrefix(phase, "eval-") {
		told++
	}
	return told
}

// order is the order that is asked for.
func (q Selection) order() string {
	if !q.Numbered {
		return "t.phase, t.step, t.id"
	}
	number := func(of string) string {
		return "CASE WHEN json_valid(t.json) THEN json_extract(t.json, '$." + of + "') END, "
	}
	return "t.phase, t.step, " + number("group") + number("index") + "t.id"
}

// where is the condition, with what stands for its question marks.
func (q Selection) where() (string, []any) {
	all, args := []string{"1"}, []any(nil)
	one := func(condition string, values ...any) { all, args = append(all, condition), append(args, values...) }
	if q.ID != "" {
		one("t.id = ?", q.ID)
	}
	if begin, ok := strings.CutSuffix(q.Phase, "*"); ok {
		one("substr(t.phase, 1, length(?)) = ?", begin, begin)
	} else if q.Phase != "" {
		one("t.phase = ?", q.Phase)
	}
	if q.Step != nil {
		one("t.step = ?", *q.Step)
	}
	if q.Told != nil {
		one("t.step = ? - (substr(t.phase, 1, 5) <> 'eval-')", *q.Told)
	}
	if q.Task != "" {
		one("t.task_id = ?", q.Task)
	}
	if q.Stop != "" {
		one("CASE WHEN json_valid(t.json) THEN json_extract(t.json, '$.stop_reason') END = ?", q.Stop)
	}
	return strings.Join(all, " AND "), args
}

// Record is a stored trajectory with what the updates added to its samples.
type Record struct {
	Phase      string
	Task       trajectory.Task
	Trajectory *trajectory.Trajectory
	Updates    []Update
}

// Score is what one trajectory of an evaluation was paid.
type Score struct {
	Phase      string
	Step       int
	Task       string // its id
	TaskJSON   []byte // as it is stored: two runs have the same task where it is the same
	Reward     float64
	StopReason trajectory.StopReason
	Failed     bool
	Unscored   bool // it has no reward, because the job has none
}
