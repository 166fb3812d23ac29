package report

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/trajectory"
)

const (
	mostCauses = 3   // of a step that are told
	mostCause  = 240 // runes of a cause
)

// FailureLines say why trajectories of a step failed, a line for each cause, and what the calls of tools answered that failed: how many, and the
// most frequent message of each tool, and of the calls and actions that could not be read.
func FailureLines(groups []trajectory.Group) []string {
	all, failed := 0, causes{}
	calls, byTool := map[string]int{}, map[string]causes{}
	made := 0
	for _, g := range groups {
		for _, t := range g.Trajectories {
			if t.StopReason == trajectory.StopCancelled {
				continue
			}
			if all++; t.Failed() {
				failed.add(string(t.ErrOrigin) + ": " + placeless(t.Err))
			}
			for k, turn := range t.Turns {
				if !t.Owns(k) {
					continue
				}
				for _, r := range turn.Results {
					name := r.Call.Name
					made++
					if calls[name]++; !r.Failed {
						continue
					}
					if byTool[name] == nil {
						byTool[name] = causes{}
					}
					byTool[name].add(strings.TrimPrefix(r.Observation, "Error: "))
				}
			}
		}
	}
	out := failed.lines(fmt.Sprintf("failed %%d/%d", all))
	names := slices.SortedFunc(maps.Keys(byTool), func(a, b string) int { // the policy may invent any number of names
		return cmp.Or(cmp.Compare(byTool[b].total(), byTool[a].total()), cmp.Compare(a, b))
	})
	for _, name := range names[:min(len(names), mostCauses)] {
		told := byTool[name]
		worst := told.sorted()[0]
		line := fmt.Sprintf("tool errors %d/%d  %s: %s", told.total(), calls[name], wording.Clip(strings.Join(strings.Fields(name), " "), 64), worst.text)
		if name == "" { // a call or an action that cannot be read names no tool
			line = fmt.Sprintf("unreadable %d/%d  %s", told.total(), made, worst.text)
		}
		if worst.n < told.total() {
			line += fmt.Sprintf(" (%d of them)", worst.n)
		}
		out = append(out, line)
	}
	return out
}

// cause is one message, and how many have the same but for numbers and names in quotes.
type cause struct {
	text string // the first one's
	n    int
}

// causes are messages by what they have in common.
type causes map[string]*cause

var varying = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'[^']*'|\d+(?:\.\d+)?`)

func (c causes) add(text string) {
	text = wording.Clip(strings.Join(strings.Fields(text), " "), mostCause)
	key := varying.ReplaceAllString(text, "#")
	if c[key] == nil {
		c[key] = &cause{text: text}
	}
	c[key].n++
}

func (c causes) total() (n int) {
	for _, one := range c {
		n += one.n
	}
	return n
}

// sorted begins with the most frequent.
func (c causes) sorted() []cause {
	var out []cause
	for _, one := range c {
		out = append(out, *one)
	}
	slices.SortFunc(out, func(a, b cause) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.text, b.text)) })
	return out
}

// lines begin with head, in which the count stands.
func (c causes) lines(head string) []string {
	var out []string
	rest := 0
	for i, one := range c.sorted() {
		if i < mostCauses {
			out = append(out, fmt.Sprintf(head, one.n)+"  "+one.text)
		} else {
			rest += one.n
		}
	}
	if rest > 0 {
		out = append(out, fmt.Sprintf(head, rest)+"  other causes; agentfly inspect trajectory shows them")
	}
	return out
}

// place is how errors name the trajectory and turn in which they happened; how many have the same cause matters more.
var place = regexp.MustCompile(`^(?:orchestrator: )?[a-z][a-z0-9_-]*-\d+-\d+-\d+\S*(?: turn \d+)?: `)

// placeless is an error without the trajectory that it happened in, and without names of packages.
func placeless(text string) string {
	return strings.TrimPrefix(job.PlainText(place.ReplaceAllString(text, "")), "sum: ")
}
