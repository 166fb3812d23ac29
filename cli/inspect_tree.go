package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/internal/terminal"
	"github.com/agentfly/agentfly/orchestrator"
	"github.com/agentfly/agentfly/orchestrator/overview"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/orchestrator/tree"
	"github.com/agentfly/agentfly/trajectory"
)

// tree draws the groups of a run whose trajectories branch.
func (c inspectCommands) tree(x *cli.Context) error {
	if x.String("run") == "" {
		return usagef("agentfly inspect tree needs --run with a run folder")
	}
	if err := checkStore(x.String("run")); err != nil {
		return err
	}
	if x.Int("limit") < 0 {
		return usagef("--limit is %d; it is 0 (all) or more", x.Int("limit"))
	}
	each := func(q store.Selection, f func(r store.Record, _ func([]int32) string) error) error {
		return orchestrator.EachStored(x.Context, x.String("run"), overview.Filter{Selection: q}, c.registries.Agents, f)
	}
	wanted := ""
	if id := x.String("id"); id != "" {
		if err := each(store.Selection{ID: id}, func(store.Record, func([]int32) string) error { return nil }); err != nil {
			return err // there is none
		}
		wanted = groupOf(id)
	}
	var group []store.Record
	drawn, most := 0, x.Int("limit")
	flush := func() error {
		if len(group) == 0 || most > 0 && drawn >= most {
			return nil
		}
		text := drawGroup(group)
		group = nil
		if text != "" {
			drawn++
		}
		_, err := io.WriteString(c.out, text)
		return err
	}
	err := each(store.Selection{}, func(r store.Record, _ func([]int32) string) error {
		name := groupOf(r.Trajectory.ID)
		if wanted != "" && name != wanted {
			return nil
		}
		if len(group) > 0 && groupOf(group[0].Trajectory.ID) != name {
			if err := flush(); err != nil {
				return err
			}
			group = nil
		}
		r.Trajectory.Samples, r.Updates = nil, nil // of thousands of groups, one is held whole
		group = append(group, r)
		return nil
	})
	var left *overview.LeftOut
	if err != nil && !errors.As(err, &left) {
		return err
	}
	if err := flush(); err != nil {
		return err
	}
	if drawn == 0 {
		if _, err := fmt.Fprintln(c.out, "none of these trajectories branches; a job's rollout.tree makes them branch"); err != nil {
			return err
		}
	}
	return err
}

// groupOf is the id of a trajectory without its index and branch.
func groupOf(id string) string { return id[:max(0, strings.LastIndexByte(id, '-'))] }

// drawGroup draws the trees of a group, a line a trajectory below the one that it forks off; "" where none does.
func drawGroup(records []store.Record) string {
	all := make([]*trajectory.Trajectory, len(records))
	roots, forks, turns, sampled := 0, 0, 0, map[string]bool{}
	for i, r := range records {
		t := r.Trajectory
		all[i] = t
		if t.Branch == "" {
			roots++
		} else {
			forks++
		}
		turns += len(t.Turns)
		for k, turn := range t.Turns {
			name := turn.Shared
			if name == "" {
				name = trajectory.SharedName(t.ID, k)
			}
			sampled[name] = true
		}
	}
	if forks == 0 {
		return ""
	}
	tree.Sort(all)
	var b strings.Builder
	fmt.Fprintf(&b, "== %s  task %s  %d trajectories of %d roots  %d turns sampled, %d with what is shared\n",
		terminal.Text(groupOf(all[0].ID)), terminal.Text(all[0].TaskID), len(all), roots, len(sampled), turns)
	for i, t := range all {
		name := fmt.Sprint(t.Index)
		if t.Branch != "" {
			name += "." + string(t.Branch)
		}
		line := lead(all, i) + terminal.Text(name)
		own := fmt.Sprintf("turns %d to %d", t.Forked+1, len(t.Turns))
		if n := len(t.Turns) - t.Forked; n == 1 {
			own = fmt.Sprintf("turn %d", t.Forked+1)
		} else if n < 1 {
			own = "no turn of its own"
		}
		fmt.Fprintf(&b, "%-24s %-16s reward %s  %s", line, own, rewardOf(t), terminal.Text(string(t.StopReason)))
		if t.ForkedAt > 0 {
			fmt.Fprintf(&b, "  from token %d on", t.ForkedAt+1)
		}
		if t.Forked < len(t.Turns) && t.Turns[t.Forked].Entropy > 0 {
			fmt.Fprintf(&b, "  entropy %.2f", t.Turns[t.Forked].Entropy)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// lead is what stands before a trajectory: a line down to each that still follows, and the corner that it hangs on.
func lead(all []*trajectory.Trajectory, i int) string {
	depth := depthOf(all[i].Branch)
	out := ""
	for level := 1; level <= depth; level++ {
		follows := false // another child of the same one, at this level
		for _, t := range all[i+1:] {
			if d := depthOf(t.Branch); t.Index != all[i].Index || d < level {
				break
			} else if d == level {
				follows = true
				break
			}
		}
		switch {
		case level < depth && follows:
			out += "│ "
		case level < depth:
			out += "  "
		case follows:
			out += "├ "
		default:
			out += "└ "
		}
	}
	return out
}

func depthOf(b trajectory.Branch) int {
	if b == "" {
		return 0
	}
	return 1 + strings.Count(string(b), ".")
}
