package orchestrator

import "github.com/agentfly/agentfly/agents"

// Decoder decodes the tokens of a run folder, with the tokenizer of its last checkpoint or of its job's model; without either it shows the
// ids.
func Decoder(dir string, known *agents.Registry) func([]int32) string { return decoder(dir, known) }
