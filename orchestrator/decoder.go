package orchestrator

import (
	"fmt"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/policy"
)

// Decoder decodes the tokens of a run folder with the tokenizer of its last checkpoint, or of the job's model before there is one. Without either
// found is false and text shows the ids: a model that the run makes itself, or that is fetched yet, has its tokenizer later.
func Decoder(dir string, known *agents.Registry) (text func([]int32) string, found bool) {
	paths := []string{checkpoint.LastOf(dir)}
	if j, _, err := copyOf(dir, known); err == nil && j.Model.Path != "" {
		paths = append(paths, j.ModelPath(j.Model.Path))
	}
	for _, path := range paths {
		if of, err := policy.LoadText(path); err == nil {
			return func(ids []int32) string { return of.Tokenizer.Decode(ids, false) }, true
		}
	}
	return func(ids []int32) string { return fmt.Sprint(ids) }, false
}
