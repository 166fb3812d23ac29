package orchestrator

import (
	"path/filepath"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/orchestrator/job"
)

// Resumes are the words behind the program's name that go on with the run in a folder: its job file, with the options of --set that make it the run's
// job. Where they cannot be told, the error says why and the words have none.
func Resumes(dir string, known *agents.Registry) (words []string, err error) {
	end := []string{"--output", dir, "--resume"}
	ran, _, err := copyOf(dir, known)
	if err != nil {
		return append([]string{"train", "JOB"}, end...), err
	}
	words = []string{"train", ran.Path()}
	sets, err := job.Overrides(ran)
	if err != nil {
		return append(words, end...), err
	}
	for _, set := range sets {
		words = append(words, "--set", set)
	}
	file, err := job.LoadWith(ran.Path(), job.Options{Set: sets, Agents: known})
	if err == nil && file.Output != ran.Output && filepath.Clean(ran.Output) == filepath.Clean(dir) { // --set output=DIR named it, not --output
		end = []string{"--set", "output=" + dir, "--resume"}
	}
	return append(words, end...), nil
}
