// Masksearch writes the data of the retrieval job (MaskSearch's setting, arXiv 2505.20285): passages of WordNet with one to four of
// their salient spans masked, to be filled by searching. `go run ./examples/generate/masksearch -wordnet "$(python3 scripts/fetch.py
// wordnet)"`. The output depends on WordNet and on the constants of this package alone; a test compares it with the committed files.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// The sizes of the data.
const (
	seed       = 20251121
	trainTasks = 640
	evalTasks  = 120
)

// kinds take turns: any eight tasks in a row hold one with several masks.
var kinds = []string{kindTitle, kindName, kindNumber, kindTitle, kindName, kindNumber, kindName, kindSeveral}

// maskCounts are the numbers of masks that tasks of several masks take in turn.
var maskCounts = []int{2, 3, 2, 4, 2, 3, 2, 2}

// tasks draws the tasks of training and of the evaluation. No passage serves twice, and no text that an evaluation's task masks is
// masked in another task.
func (c *corpus) tasks(train, eval int) (learned, held []task, err error) {
	r := rand.New(rand.NewPCG(seed, 1))
	order := r.Perm(len(c.passages))
	masked := map[string]int{} // how often a text is masked
	next := map[string]int{}   // where in order a kind goes on
	used := map[int]bool{}
	for _, w := range workedPassages {
		for i, p := range c.passages {
			used[i] = used[i] || p.ID == w.id
		}
	}
	fill := func(n int, prefix string, atMost int) ([]task, error) {
		var out []task
		for i := range n {
			kind, masks := kinds[i%len(kinds)], 1
			if kind == kindSeveral {
				masks = maskCounts[i/len(kinds)%len(maskCounts)]
			}
			key := fmt.Sprint(kind, masks)
			t, at := task{}, 0
			for {
				if next[key] == len(order) {
					return nil, fmt.Errorf("generate: the corpus has too few passages for %d tasks with %d masks of kind %s", n, masks, kind)
				}
				at = order[next[key]]
				next[key]++
				if used[at] {
					continue
				}
				t, err = c.draw(r, at, masks)
				if err == nil && t.Kind == kind && fresh(masked, t, atMost) && c.unique(t) {
					break
				}
				if err != nil && !errors.Is(err, errNoMask) {
					return nil, err
				}
			}
			used[at] = true
			for _, a := range t.Answers {
				masked[strings.ToLower(a)]++
			}
			t.ID = fmt.Sprintf("%s-%03d", prefix, i)
			out = append(out, t)
		}
		return out, nil
	}
	if held, err = fill(eval, "eval", 1); err != nil {
		return nil, nil, err
	}
	for a := range masked { // what the evaluation masks is not masked again
		masked[a] = trainTasks
	}
	learned, err = fill(train, "train", 3)
	return learned, held, err
}

// fresh reports whether none of the task's texts was masked atMost times already, nor twice in the task.
func fresh(masked map[string]int, t task, atMost int) bool {
	own := map[string]bool{}
	for _, a := range t.Answers {
		a = strings.ToLower(a)
		if masked[a] >= atMost || own[a] {
			return false
		}
		own[a] = true
	}
	return true
}

// unique reports whether the task's passage is the only one that its visible text fits.
func (c *corpus) unique(t task) bool {
	var pieces []string
	rest := t.Question
	for i := range t.Answers {
		before, after, _ := strings.Cut(rest, mark(i))
		pieces = append(pieces, before)
		rest = after
	}
	fit := 0
	for _, p := range c.passages {
		if fits(p.Text, pieces, rest) {
			fit++
		}
	}
	return fit == 1
}

// fits reports whether a text is the pieces with something between them, and end.
func fits(text string, pieces []string, end string) bool {
	if !strings.HasPrefix(text, pieces[0]) || !strings.HasSuffix(text, end) {
		return false
	}
	text = text[len(pieces[0]):]
	for _, piece := range pieces[1:] {
		_, after, found := strings.Cut(text, piece)
		if !found {
			return false
		}
		text = after
	}
	return len(text) >= len(end)
}

// put writes one JSON value a line, without escaping < and >.
func put[T any](values []T) ([]byte, error) {
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

// files returns every generated file by its name in examples/masksearch.
func files(dataNoun []byte) (map[string][]byte, error) {
	passages, err := readWordNet(dataNoun)
	if err != nil {
		return nil, err
	}
	c := newCorpus(passages)
	learned, held, err := c.tasks(trainTasks, evalTasks)
	if err != nil {
		return nil, err
	}
	examples, err := c.worked()
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	var errs [4]error
	out["passages.jsonl"], errs[0] = put(passages)
	out["train.jsonl"], errs[1] = put(learned)
	out["eval.jsonl"], errs[2] = put(held)
	out["worked.jsonl"], errs[3] = put(examples)
	return out, errors.Join(errs[:]...)
}

func run(wordnet, dir string) error {
	if wordnet == "" {
		return errors.New(`generate: -wordnet is missing; give the folder that "python3 scripts/fetch.py wordnet" prints`)
	}
	data, err := os.ReadFile(filepath.Join(wordnet, "data.noun"))
	if err != nil {
		return fmt.Errorf("generate: %w; run python3 scripts/fetch.py wordnet", err)
	}
	all, err := files(data)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	for name, data := range all {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return fmt.Errorf("generate: %w", err)
		}
	}
	return nil
}

// printChance reads the files that run wrote.
func printChance(dir string) error {
	train, err := os.ReadFile(filepath.Join(dir, "train.jsonl"))
	if err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	held, err := os.ReadFile(filepath.Join(dir, "eval.jsonl"))
	if err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	return chance(context.Background(), train, held, os.Stdout)
}

func main() {
	wordnet := flag.String("wordnet", "", "folder with WordNet's data.noun")
	dir := flag.String("dir", filepath.Join("examples", "masksearch"), "folder of the job's data")
	only := flag.Bool("chance", false, "write nothing, but print what a constant answer scores")
	flag.Parse()
	err := error(nil)
	if *only {
		err = printChance(*dir)
	} else {
		err = run(*wordnet, *dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
