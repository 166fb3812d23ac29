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

// lines writes one JSON value a line, without escaping < and >.
func lines[T any](values []T) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, v := range values {
		if err := e.Encode(v); err != nil {
			return nil, fmt.Errorf("generate: %w", err)
		}
	}
	return b.Bytes(), nil
}

// files returns every generated file by its path below examples/.
func files() (map[string][]byte, error) {
	out := map[string][]byte{}
	add := func(path string, data []byte, err error) error {
		out[path] = data
		return err
	}
	train, held := calculatorData(calculatorSeed)
	data, err := lines(train)
	if err := add("calculator/train.jsonl", data, err); err != nil {
		return nil, err
	}
	data, err = lines(held)
	if err := add("calculator/eval.jsonl", data, err); err != nil {
		return nil, err
	}
	data, err = lines(calculatorWorked())
	if err := add("calculator/worked.jsonl", data, err); err != nil {
		return nil, err
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
