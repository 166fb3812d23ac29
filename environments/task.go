package environments

import (
	"fmt"
	"maps"
	"slices"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

// DecodeTask reads the fields of a task into a struct with json tags, for Reset. A field that known does not name is an error, but for those that
// Reserved names.
func DecodeTask(t trajectory.Task, known []string, into any) error {
	fields := make(map[string]any, len(t.Fields))
	for _, name := range slices.Sorted(maps.Keys(t.Fields)) {
		switch {
		case slices.Contains(known, name):
			fields[name] = t.Fields[name]
		case !slices.Contains(Reserved, name):
			return fmt.Errorf("task %s: the environment knows no field %q%s; its fields are %q, and rewards and data may have %q",
				wording.Clip(t.ID, 64), wording.Clip(name, 64), wording.DidYouMean(name, known), known, Reserved)
		}
	}
	if err := resources.Decode(fields, into); err != nil {
		return fmt.Errorf("task %s: %w", wording.Clip(t.ID, 64), err)
	}
	return nil
}
