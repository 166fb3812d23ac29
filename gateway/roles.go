package gateway

import (
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/agentfly/agentfly/trajectory"
)

// RoleRule names the role of the calls that fit all that it asks for. A rule that asks for nothing fits every call.
type RoleRule struct {
	Role   trajectory.Role
	Header string         // that the request has, as NAME or NAME: VALUE; "": any
	System *regexp.Regexp // that the conversation's first message matches, where it is the system's; nil: any
	Tool   string         // that the request offers, by name; "": any
	Path   string         // of the request's URL, behind the key; "": any
}

// rules are those of a gateway, with what they named.
type rules struct {
	all   []RoleRule
	asked atomic.Bool   // a call came
	named []atomic.Bool // [all] the rule named a call
}

func newRules(all []RoleRule) *rules { return &rules{all: all, named: make([]atomic.Bool, len(all))} }

// role is that of the first rule that fits a call; "": none does.
func (r *rules) role(q asked) trajectory.Role {
	r.asked.Store(true)
	for i, rule := range r.all {
		if rule.fits(q) {
			r.named[i].Store(true)
			return rule.Role
		}
	}
	return ""
}

// silent are the rules that named no call, by their places; nil before a call came.
func (r *rules) silent() (out []int) {
	for i := range r.all {
		if r.asked.Load() && !r.named[i].Load() {
			out = append(out, i)
		}
	}
	return out
}

func (r RoleRule) fits(q asked) bool {
	if r.Header != "" && !hasHeader(q.header, r.Header) {
		return false
	}
	if r.Path != "" && r.Path != q.path {
		return false
	}
	if r.System != nil {
		if len(q.Messages) == 0 || q.Messages[0].Role != "system" {
			return false
		}
		if text, _ := q.Messages[0].TextContent(); !r.System.MatchString(text) {
			return false
		}
	}
	if r.Tool == "" {
		return true
	}
	specs, err := specsOf(q.Tools)
	for _, s := range specs {
		if err == nil && s.Name == r.Tool {
			return true
		}
	}
	return false
}

func hasHeader(h http.Header, want string) bool {
	name, value, exact := cutHeader(want)
	values := h.Values(name)
	return len(values) > 0 && (!exact || slices.Contains(values, value))
}

// assignRoles names the roles of a trajectory's turns, when all are there. A call that a rule of the job names has the rule's role, also where its reply was
// thrown away. Of the others, a reply that was never read, or that has no call behind it while another reply to the same prompt has, was discarded. Calls of
// a conversation that offers no tools, where another one does, are auxiliary. read tells whether a turn's reply was read.
func assignRoles(t *trajectory.Trajectory, read func(turn int) bool) {
	n := len(t.Turns)
	goes, prompts := make([]bool, n), make(map[key][]int, n) // whether a call follows; turns by their prompts
	root, tools, any := make([]int, n), make([]bool, n), false
	for i := range t.Turns {
		turn := &t.Turns[i]
		root[i] = i
		if after := turn.Incoming.After; after >= 0 && after < i {
			goes[after], root[i] = true, root[after]
		}
		tools[root[i]] = tools[root[i]] || turn.Incoming.Tools
		any = any || turn.Incoming.Tools
		p := promptOf(t, turn)
		prompts[p] = append(prompts[p], i)
	}
	for i := range t.Turns {
		turn := &t.Turns[i]
		twin := slices.ContainsFunc(prompts[promptOf(t, turn)], func(k int) bool { return k != i && goes[k] })
		switch {
		case turn.Incoming.Role != "":
			turn.Role = turn.Incoming.Role
		case !goes[i] && (twin || !read(i)):
			turn.Role = trajectory.RoleDiscarded
		case any && !tools[root[i]]:
			turn.Role = trajectory.RoleAuxiliary
		}
	}
	for k, s := range t.Samples {
		first := true
		for i := range t.Turns {
			if turn := &t.Turns[i]; turn.Sample != k {
			} else if first {
				s.Role, first = turn.Role, false
			} else if s.Role != turn.Role {
				s.Role = "" // its turns say
				break
			}
		}
	}
}

// promptOf names the ids that a turn was asked with.
func promptOf(t *trajectory.Trajectory, turn *trajectory.Turn) key {
	ids := t.Samples[turn.Sample].TokenIDs[:turn.CompletionStart]
	b := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	return sha256.Sum256(b)
}

// cutShort tells that a token limit of the job's cut the agent's last completion, in a trajectory that has its roles. One that was cut before
// decides nothing, because the agent went on behind it; with parse none is cut.
func cutShort(t *trajectory.Trajectory, parse bool) bool {
	last := t.Last()
	return !parse && last >= 0 && t.Turns[last].Cut()
}

// answerOf makes the trajectory's answer that of the last turn of the agent itself that said something without a call, else of any that was not
// discarded: turns behind it answer nothing. One that was cut has none.
func answerOf(t *trajectory.Trajectory, cut bool) {
	answer := -1
	for i, turn := range t.Turns {
		if cut || !turn.AnsweredThisTurn || turn.Role == trajectory.RoleDiscarded {
			continue
		}
		if aside := turn.Role == trajectory.RoleAuxiliary; answer < 0 || !aside || t.Turns[answer].Role == trajectory.RoleAuxiliary {
			answer = i
		}
	}
	for i := answer + 1; i < len(t.Turns); i++ {
		t.Turns[i].AnsweredThisTurn, t.Turns[i].FinalAnswer = false, ""
	}
}

// cutHeader reads NAME or NAME: VALUE.
func cutHeader(text string) (name, value string, exact bool) {
	name, value, exact = strings.Cut(text, ":")
	return strings.TrimSpace(name), strings.TrimSpace(value), exact
}
