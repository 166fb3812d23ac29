package job

import (
	"slices"
	"strings"
)

// agentFormats are the formats of each kind of agent, its own first. A kind custom takes those that a program added.
var agentFormats = map[string][]string{
	"tool_call": {"hermes", "tags", "llama3_json", "mistral", "qwen3_coder"},
	"react":     {"react"}, "code": {"fenced"}, "search_r1": {"search_r1"}, "action": {"action"},
}

// completeAgent fills in the format of the agent's kind.
func (a *Agent) completeAgent() {
	if own := agentFormats[a.Kind]; a.Format == "" && len(own) > 0 {
		a.Format = own[0]
	}
}

// checkAgent finds contradictions between the settings of an agent.
func (d *decoder) checkAgent(a Agent, fail func(path, format string, args ...any)) {
	own := agentFormats[a.Kind]
	kind := ""
	for k, formats := range agentFormats {
		if slices.Contains(formats, a.Format) {
			kind = k
		}
	}
	switch {
	case a.Kind != "custom" && a.Python != "":
		fail("agent.python", "kind %s has its own format; use kind custom, or leave it out", a.Kind)
	case a.Kind != "custom" && kind == "" && len(own) > 1:
		fail("agent.format", "there is no %q; allowed with kind %s: %s%s", a.Format, a.Kind, strings.Join(own, ", "), near(a.Format, own))
	case a.Kind != "custom" && kind == "":
		fail("agent.format", "%s, but kind %s writes %s; leave it out", a.Format, a.Kind, own[0])
	case a.Kind != "custom" && kind != a.Kind:
		fail("agent.format", "%s is a format of kind %s, and the kind is %s; change one of the two", a.Format, kind, a.Kind)
	case a.Kind == "custom" && (a.Format == "") == (a.Python == ""):
		fail("agent", "kind custom needs exactly one of python (a file) and format (a name that the program added)")
	case a.Kind == "custom" && kind != "":
		fail("agent.format", "%s is a format of kind %s; set that kind, or name a format that the program added", a.Format, kind)
	}
	if !slices.Contains([]string{"code", "search_r1", "action"}, a.Kind) {
		return
	}
	sources := slices.ContainsFunc(a.Tools, func(t Tool) bool { return t.Source != "" })
	if !sources && len(a.Tools) != 1 {
		fail("agent.tools", "kind %s calls exactly one tool, which takes one text; got %d", a.Kind, len(a.Tools))
	}
}
