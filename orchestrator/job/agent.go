package job

import (
	"cmp"
	"maps"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/trajectory"
)

// completeAgent fills in the format of the agent's kind.
func (a *Agent) completeAgent(known *agents.Registry) {
	if kind, _ := known.Kind(a.Kind); a.Format == "" {
		a.Format = kind.Format.Name
	}
	if a.Kind == agents.External && a.Format == "" {
		a.Format = agents.DefaultParser
	}
}

// checkAgent finds contradictions between the settings of an agent.
func checkAgent(j *Job, fail func(path, format string, args ...any)) {
	a := j.Agent
	if checkExternal(j, fail); a.Kind == agents.External {
		return
	}
	own := j.agents.FormatNames(a.Kind)
	format, registered := j.agents.Format(a.Format)
	kind := cmp.Or(format.Kind, agents.Custom)
	switch {
	case a.Kind != agents.Custom && a.Python != "":
		fail("agent.python", "kind %s has its own format; use kind custom, or leave it out", a.Kind)
	case a.Kind != agents.Custom && !registered && len(own) > 1:
		fail("agent.format", "there is no %q; allowed with kind %s: %s%s", a.Format, a.Kind, strings.Join(own, ", "), near(a.Format, own))
	case a.Kind != agents.Custom && !registered:
		fail("agent.format", "%s, but kind %s writes %s; leave it out", a.Format, a.Kind, own[0])
	case a.Kind != agents.Custom && kind != a.Kind:
		fail("agent.format", "%s is a format of kind %s, and the kind is %s; change one of the two", a.Format, kind, a.Kind)
	case a.Kind == agents.Custom && (a.Format == "") == (a.Python == ""):
		fail("agent", "kind custom needs exactly one of python (a file) and format (a name that the program added)")
	case a.Kind != kind: // custom, and the format is another kind's
		fail("agent.format", "%s is a format of kind %s; set that kind, or name a format that the program added", a.Format, kind)
	}
	sources := slices.ContainsFunc(a.Tools, func(t Tool) bool { return t.Source != "" })
	one, who := format.OneTool, "format "+a.Format
	if its, _ := j.agents.Kind(a.Kind); its.Format.Name == a.Format || kind != a.Kind { // what is wrong with the format was said
		one, who = its.Format.OneTool, "kind "+a.Kind
	}
	if one && j.Environment != nil && len(a.Tools) > 0 {
		fail("agent.tools", "%s calls exactly one tool, which is the environment here; leave them out, or use a kind that names its tools", who)
	} else if one && j.SFT != nil && len(a.Tools) == 0 && j.Environment == nil {
		fail("agent", "%s calls a tool, and sft plays nothing; leave it out: the conversations hold what the agent says, those of agentfly env demonstrate too", who)
	} else if one && !sources && len(a.Tools) != 1 && j.Environment == nil {
		fail("agent.tools", "%s calls exactly one tool, which takes one text; got %d", who, len(a.Tools))
	}
}

// enumOf are the values that a field allows: those of its tag enum, or of the registry that its tag names has. nil: any.
func enumOf(f reflect.StructField, known *agents.Registry) []string {
	if f.Tag.Get("names") == "kinds" {
		return known.KindNames()
	}
	if enum := f.Tag.Get("enum"); enum != "" {
		return strings.Split(enum, "|")
	}
	return nil
}

// docOf describes a field, with what the registry that its tag names has.
func docOf(f reflect.StructField, known *agents.Registry) string {
	var list []string
	switch f.Tag.Get("names") {
	case "kinds":
		for _, name := range known.KindNames() {
			kind, _ := known.Kind(name)
			list = append(list, name+": "+kind.Description)
		}
	case "formats":
		for _, kind := range known.KindNames() {
			if names := known.FormatNames(kind); len(names) > 0 {
				list = append(list, kind+": "+strings.Join(names, ", "))
			}
		}
	default:
		return f.Tag.Get("doc")
	}
	return f.Tag.Get("doc") + ". " + strings.Join(list, "; ")
}

// Talks tells whether a person can talk to a job's policy: in an environment nobody answers, and a program of its own expects its tasks.
func Talks(j *Job) bool { return j.Environment == nil && j.Agent.Kind != agents.External }

// checkExternal finds contradictions in the settings of agents that are programs of their own.
func checkExternal(j *Job, fail func(path, format string, args ...any)) {
	a := j.Agent
	theirs := map[string]bool{ // settings that say something: the run's copy of a job has all of them
		"command": len(a.Command) > 0, "url": a.URL != "", "online": a.Online, "key": a.Key != "", "env": len(a.Env) > 0, "processes": a.Processes > 0, "max_tokens": a.MaxTokens > 0,
		"max_time": a.MaxTime > 0, "forms": a.Forms == "held", "history": a.History == "as_sent", "roles": len(a.Roles) > 0, "listen": a.Listen != "127.0.0.1:0",
		"sandbox": a.Sandbox, "show": len(a.Show) > 0, "deterministic": a.Deterministic,
	}
	ours := map[string]bool{
		"python": a.Python != "", "system": a.System != "", "examples": a.Examples != "", "tools": len(a.Tools) > 0, "max_calls": a.MaxCalls > 0,
		"max_at_once": a.MaxAtOnce != 32, "instructions": !a.Instructions, "observation_role": a.ObservationRole != "",
	}
	if a.Kind != agents.External {
		for _, name := range slices.Sorted(maps.Keys(theirs)) {
			if theirs[name] {
				fail("agent."+name, "it is for kind external, and the kind is %s; set kind: external, or leave it out", a.Kind)
			}
		}
		return
	}
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		if ours[name] {
			fail("agent."+name, "an agent of kind external has its own; leave it out")
		}
	}
	format, known := j.agents.Format(a.Format)
	switch {
	case !known || format.OneTool:
		var names []string
		for _, p := range j.agents.Parsers() {
			if f, _ := j.agents.Parser(p); !f.OneTool && !slices.Contains(names, f.Name) {
				names = append(names, f.Name)
			}
		}
		fail("agent.format", "%s is no format of calls that name their tool; allowed: %s%s", a.Format, strings.Join(names, ", "), near(a.Format, names))
	case count(len(a.Command) > 0, a.URL != "", a.Online) != 1:
		fail("agent", "kind external needs exactly one of command (the agent's program), url (a service that runs it) and online: true (agents come for tasks)")
	case a.Online && a.Key == "":
		fail("agent.key", "it is missing, and whoever reaches the gateway would get tasks; write key: ${NAME}")
	case len(a.Command) > 0 && a.Command[0] == "":
		fail("agent.command", "its program is empty")
	case a.URL != "" && !strings.HasPrefix(a.URL, "http://") && !strings.HasPrefix(a.URL, "https://"):
		fail("agent.url", "%q is no address; write http://HOST:PORT/PATH", a.URL)
	}
	switch {
	case a.Sandbox && len(a.Command) == 0:
		fail("agent.sandbox", "the run starts nothing with url or online, so that it can confine nothing; use command, or leave sandbox out")
	case a.Sandbox && j.Sandbox != "auto" && j.Sandbox != "bubblewrap":
		fail("agent.sandbox", "it needs bubblewrap, where a program has a network of its own, and the job says sandbox: %s; leave that out", j.Sandbox)
	case len(a.Show) > 0 && !a.Sandbox:
		fail("agent.show", "without sandbox: true the agent reads what this program reads; set that, or leave show out")
	}
	if a.Online && j.Rollout.Timeout == 0 {
		fail("rollout.timeout", "it is 0, and with agent.online a trajectory whose agent is gone would wait for ever; set it")
	}
	if j.Environment != nil {
		fail("environment", "an agent of kind external acts in worlds of its own; leave one of the two out")
	}
	if j.SFT != nil {
		fail("agent.kind", "sft samples nothing; leave agent out")
	}
	if j.Control.ToolsOff || j.Eval.ToolOff {
		fail("control.tools_off", "the tools of an agent of kind external are its own; leave tools_off and eval.tool_off out")
	}
	if _, _, err := net.SplitHostPort(a.Listen); err != nil {
		fail("agent.listen", "%q is no address; write HOST:PORT, port 0 is a free one", a.Listen)
	}
	for i, r := range a.Roles {
		at := "agent.roles." + strconv.Itoa(i)
		if _, err := regexp.Compile(r.System); err != nil {
			fail(at+".system", "%v", err)
		}
		if !wording.ValidName(r.Name) {
			fail(at+".name", "%q; a name has %s", r.Name, wording.NameRule)
		}
		if r.everything() && i < len(a.Roles)-1 {
			fail(at, "it fits every call, so that those behind it are never reached; put it last")
		}
	}
	if n := len(a.Roles); n > 0 && a.Roles[n-1].everything() && !slices.ContainsFunc(a.Roles, func(r AgentRole) bool { return r.Train }) {
		fail("agent.roles", "every call has a role with train: false, so that nothing would be learned; train one of them")
	}
}

// Frozen tells which roles' calls are not trained.
func (a Agent) Frozen() func(trajectory.Role) bool {
	roles := map[trajectory.Role]bool{trajectory.RoleAuxiliary: true}
	for _, r := range a.Roles {
		roles[trajectory.Role(r.Name)] = !r.Train
	}
	return func(r trajectory.Role) bool { return roles[r] }
}

// everything tells whether the role is that of every call that comes to it.
func (r AgentRole) everything() bool { return r.System+r.Header+r.Tool+r.Path == "" }

// String is the role's name, and what its calls fit.
func (r AgentRole) String() string {
	out := r.Name
	for _, asks := range []struct{ what, value string }{{"system", r.System}, {"header", r.Header}, {"tool", r.Tool}, {"path", r.Path}} {
		if asks.value != "" {
			out += ", " + asks.what + " " + asks.value
		}
	}
	return out
}

// count is how many hold.
func count(all ...bool) (n int) {
	for _, is := range all {
		if is {
			n++
		}
	}
	return n
}
