package jinja

import (
	"encoding/json"
	"strings"

	"github.com/agentfly/agentfly/trajectory"
)

// probeTool is the schema that UsesTools shows to a template.
const probeTool = `{"type": "function", "function": {"name": "probe_tool", "description": "probe", "parameters": {"type": "object", ` +
	`"properties": {"x": {"type": "string", "description": "probe"}}, "required": ["x"]}}}`

// UsesTools tells whether the template writes the schemas of tools. SmolLM2's, for one, ignores them.
func (t *Template) UsesTools() bool {
	for _, messages := range [][]trajectory.Message{
		{trajectory.Text("system", "s"), trajectory.Text("user", "u")},
		{trajectory.Text("user", "u")},
	} {
		in := Input{Messages: messages, Tools: []json.RawMessage{json.RawMessage(probeTool)}, AddGenerationPrompt: true, Now: probeTime}
		text, err := t.Render(in)
		if err == nil && strings.Contains(text, "probe_tool") {
			return true
		}
	}
	return false
}
