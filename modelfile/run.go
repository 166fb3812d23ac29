package modelfile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A run folder as agentfly train leaves it, which stands for one of its checkpoints.
const (
	runJob         = "job.yaml"
	runCheckpoints = "checkpoints"
	runStore       = "store.db" // there before the first checkpoint
)

// isRun tells a run folder from a model: a folder that holds a model is that model.
func isRun(dir string) bool {
	for _, name := range []string{"config.json", "tokenizer.json", "model.safetensors", "model.safetensors.index.json"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return false
		}
	}
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	return has(runJob) && (has(runCheckpoints) || has(runStore))
}

// ofRun is the checkpoint that RUN, RUN@last, RUN@best or RUN@STEP names. ok is false where the path names no run.
func ofRun(path string) (checkpoint string, ok bool, err error) {
	dir, which := filepath.Clean(path), "last"
	if !isRun(dir) {
		before, after, found := strings.Cut(filepath.Base(path), "@")
		if dir = filepath.Join(filepath.Dir(path), before); !found || !isRun(dir) {
			return "", false, nil
		}
		which = after
	}
	name := which
	if _, err := strconv.Atoi(which); err == nil {
		name = "step-" + which
	}
	checkpoint = filepath.Join(dir, runCheckpoints, name)
	if _, err := os.Stat(checkpoint); err == nil && filepath.IsLocal(name) {
		return checkpoint, true, nil
	}
	kept := keptSteps(filepath.Join(dir, runCheckpoints))
	if len(kept) == 0 {
		return "", true, fmt.Errorf("modelfile: the run in %s has no checkpoint yet; it saves one when it ends, when Ctrl-C interrupts it, and as often as checkpoint.every of its job says", dir)
	}
	why := "checkpoint.keep of its job says how many"
	if which == "best" {
		why = "checkpoint.best of its job keeps the best"
	}
	return "", true, fmt.Errorf("modelfile: the run in %s keeps no checkpoint %s; it keeps last, %s (%s)", dir, which, strings.Join(kept, ", "), why)
}

// keptSteps are the steps of a run's checkpoints, in order.
func keptSteps(checkpoints string) (out []string) {
	entries, _ := os.ReadDir(checkpoints) // what cannot be read keeps none
	var steps []int
	for _, e := range entries {
		number, found := strings.CutPrefix(e.Name(), "step-")
		if n, err := strconv.Atoi(number); found && err == nil {
			steps = append(steps, n)
		}
	}
	slices.Sort(steps)
	for _, n := range steps {
		out = append(out, strconv.Itoa(n))
	}
	return out
}
