// Generate writes the data of the example jobs: `go run ./examples/generate -dir examples`. The output depends on the
// constants of this package alone; a test compares it with the committed files.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// put writes one JSON value a line, without escaping < and >.
func put[T any](out map[string][]byte, path string, values []T) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, v := range values {
		if err := e.Encode(v); err != nil {
			return fmt.Errorf("generate: %s: %w", path, err)
		}
	}
	out[path] = b.Bytes()
	return nil
}

// files returns every generated file by its path below examples/.
func files() (map[string][]byte, error) {
	train, held := calculatorData(calculatorSeed)
	twoTrain, twoHeld := twoStepData(twoStepSeed)
	threeTrain, threeHeld := threeStepData(threeStepSeed)
	learned, heldOut := tinyConversations()
	prompts, heldOutPrompts := tinyPrompts()
	codeTasks, heldCodeTasks := codeData(codeSeed)
	out := map[string][]byte{}
	for _, err := range []error{
		put(out, "calculator/train.jsonl", train),
		put(out, "calculator/eval.jsonl", held),
		put(out, "calculator/worked.jsonl", calculatorWorked()),
		put(out, "code/train.jsonl", codeTasks),
		put(out, "code/eval.jsonl", heldCodeTasks),
		put(out, "code/worked.jsonl", codeWorked()),
		put(out, "tiny/tasks.jsonl", tinyData()),
		put(out, "tiny/prompts.jsonl", prompts),
		put(out, "tiny/prompts_eval.jsonl", heldOutPrompts),
		put(out, "tiny/conversations.jsonl", learned),
		put(out, "tiny/conversations_eval.jsonl", heldOut),
		put(out, "two_step/train.jsonl", twoTrain),
		put(out, "two_step/eval.jsonl", twoHeld),
		put(out, "two_step/worked.jsonl", twoStepWorked()),
		put(out, "two_step/demonstrations.jsonl", demonstrated(twoStepKinds, twoTrain, twoStepSeed)),
		put(out, "three_step/train.jsonl", threeTrain),
		put(out, "three_step/eval.jsonl", threeHeld),
		put(out, "three_step/worked.jsonl", threeStepWorked()),
		put(out, "three_step/demonstrations.jsonl", demonstrated(threeStepKinds, threeTrain, threeStepSeed)),
		put(out, "agents/things.jsonl", agentsThings()),
		put(out, "agents/doors.jsonl", agentsDoors()),
	} {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func run(dir string) error {
	all, err := files()
	if err != nil {
		return err
	}
	for path, data := range all {
		full := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return fmt.Errorf("generate: %w", err)
		}
		if err := os.WriteFile(full, data, 0o644); err != nil {
			return fmt.Errorf("generate: %w", err)
		}
	}
	return nil
}

func main() {
	dir := flag.String("dir", "examples", "folder that holds the example jobs")
	flag.Parse()
	if err := run(*dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
