package trajectory

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// Role names the agent of a trajectory that a sample or a turn belongs to, where several agents share one: "planner", "reviewer".
// "" is the only agent of a trajectory that has one. The role of a Message is another thing: the chat template's.
type Role string

// Roles that a trajectory's turns have without a rule of the job's.
const (
	// RoleDiscarded: its reply was never read, because its client asked again. It is not trained.
	RoleDiscarded Role = "discarded"
	// RoleAuxiliary: the agent asked on the side, without the tools that it has otherwise: for a title, a summary.
	RoleAuxiliary Role = "auxiliary"
)

// Branch is the path of a trajectory through the forks of its tree: the numbers of the children that it came by, joined with dots.
// "" is a trajectory that forks off none, "2" the third child of that one, "2.0" the first child of "2". It is text, so that a Place is
// comparable.
type Branch string

// Child is the path of the n-th trajectory, from 0, that forks off b.
func (b Branch) Child(n int) Branch {
	if b == "" {
		return Branch(strconv.Itoa(n))
	}
	return b + "." + Branch(strconv.Itoa(n))
}

// Parent is the path that b forks off; ok is false where b forks off none.
func (b Branch) Parent() (parent Branch, ok bool) {
	return b[:max(0, strings.LastIndexByte(string(b), '.'))], b != ""
}

// Check reports a path that Child does not make.
func (b Branch) Check() error {
	if b == "" {
		return nil
	}
	for n := range strings.SplitSeq(string(b), ".") {
		if v, err := strconv.Atoi(n); err != nil || v < 0 || strconv.Itoa(v) != n {
			return fmt.Errorf("trajectory: branch %q: %q is no number of a child; a path is numbers from 0 joined with dots, such as 2.0", b, n)
		}
	}
	return nil
}

// Place says where a trajectory belongs in a run. Its id and the seeds of its requests follow from it and the run's seed alone, so
// that neither depends on timing.
type Place struct {
	Phase  string // "train", or what else samples: "rollout", the name of an evaluation
	Step   int    // the optimizer step that it is sampled for
	Group  int    // of the step
	Index  int    // in its group
	Branch Branch // in the tree that grows from Index; "" outside of trees
}

// ID of the trajectory, unique in a run. A task would not do: one step may hold the same task twice where an epoch ends. What follows
// the last hyphen is the index and, after its first dot, the branch.
func (p Place) ID() string {
	id := fmt.Sprintf("%s-%d-%d-%d", p.Phase, p.Step, p.Group, p.Index)
	if p.Branch != "" {
		id += "." + string(p.Branch)
	}
	return id
}

// Seed of the request that samples a turn of the trajectory, whose task has that id, in a run with that seed. Each branch has its own:
// the branches of one trajectory would sample the same otherwise.
func (p Place) Seed(run uint64, task string, turn int) uint64 {
	key := fmt.Sprintf("%d|%s|%d|%s|%d|%d|%d", run, p.Phase, p.Step, task, p.Group, p.Index, turn)
	if p.Branch != "" {
		key += "/" + string(p.Branch) // no key without a branch ends so, whatever the task is called
	}
	h := sha256.Sum256([]byte(key))
	return binary.LittleEndian.Uint64(h[:8])
}
