package orchestrator

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/trajectory"
)

// Tasks are the tasks of one data file.
type Tasks struct {
	Path  string
	Hash  string // SHA-256 of the file, for the record of the run
	Tasks []trajectory.Task
}

// readData reads the tasks of a job: those to train on with their sampler, and those to evaluate on, the first so many
// that the job wants. What the job does not name is nil.
func readData(j *job.Job) (train, eval *Tasks, deal *sampler, err error) {
	if j.Data.Train != "" {
		if train, err = ReadTasks(j.Resolve(j.Data.Train), j.Data.Columns); err == nil {
			deal, err = newSampler(train, j.Data, j.Rollout.Groups, j.Seed)
		}
		if err != nil {
			return nil, nil, nil, inputError(err)
		}
	}
	if j.Data.Eval == "" {
		return train, nil, deal, nil
	}
	if eval, err = ReadTasks(j.Resolve(j.Data.Eval), j.Data.Columns); err == nil && train != nil {
		err = refuseOverlap(train, eval)
	}
	if err != nil {
		return nil, nil, nil, inputError(err)
	}
	if n := j.Eval.Tasks; n > 0 && n < len(eval.Tasks) {
		eval.Tasks = eval.Tasks[:n]
	}
	return train, eval, deal, nil
}

// ReadTasks reads JSON lines, or one JSON list of objects. columns maps prompt and id to the file's names. A prompt is a text, which becomes one user
// message, or a list of messages. Every broken line is an error that names file and line.
func ReadTasks(path string, columns map[string]string) (*Tasks, error) {
	out := &Tasks{Path: path}
	promptKey, idKey := column(columns, "prompt"), column(columns, "id")
	seen := map[string]int{}
	hash, err := eachLine(path, func(line int, object map[string]any) error {
		prompt, err := promptOf(object[promptKey])
		if err != nil {
			return fmt.Errorf("the column %q %w", promptKey, err)
		}
		id := strconv.Itoa(line)
		if v, ok := object[idKey]; ok {
			if id, ok = v.(string); !ok || id == "" {
				return fmt.Errorf("the column %q must be text that is not empty", idKey)
			}
		}
		if first, ok := seen[id]; ok {
			return fmt.Errorf("the id %q was given in line %d already", id, first)
		}
		seen[id] = line
		delete(object, promptKey)
		if from := columns["answer"]; from != "" && from != "answer" {
			object["answer"] = object[from]
		}
		out.Tasks = append(out.Tasks, trajectory.Task{ID: id, Prompt: prompt, Fields: object})
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(out.Tasks) == 0 {
		return nil, fmt.Errorf("%s: the file holds no task", path)
	}
	out.Hash = hash
	return out, nil
}

func column(columns map[string]string, name string) string {
	if c := columns[name]; c != "" {
		return c
	}
	return name
}

func promptOf(v any) ([]trajectory.Message, error) {
	switch v := v.(type) {
	case nil:
		return nil, errors.New("is missing; map another one with data.columns: {prompt: NAME}")
	case string:
		if v == "" {
			return nil, errors.New("is empty")
		}
		return []trajectory.Message{trajectory.Text("user", v)}, nil
	case []any:
		data, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		var messages []trajectory.Message
		if err := json.Unmarshal(data, &messages); err != nil || len(messages) == 0 {
			return nil, errors.New(`must be text or a list of messages such as [{"role": "user", "content": "…"}]`)
		}
		return messages, nil
	}
	return nil, errors.New("must be text or a list of messages")
}

// eachLine calls f for every object of a file of JSON lines, or of one JSON list, with the line that it begins in, and
// returns the file's hash.
func eachLine(path string, f func(line int, object map[string]any) error) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("orchestrator: data: %w", err)
	}
	if text := bytes.TrimSpace(data); len(text) > 0 && text[0] == '[' {
		err = eachItem(path, data, f)
	} else {
		err = eachOf(path, data, f)
	}
	if err != nil {
		return "", err
	}
	hash := sha256.Sum256(data)
	return hex.EncodeToString(hash[:]), nil
}

func eachOf(path string, data []byte, f func(line int, object map[string]any) error) error {
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		var object map[string]any
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		err := d.Decode(&object)
		if err == nil {
			if _, more := d.Token(); !errors.Is(more, io.EOF) {
				err = errors.New("more follows the object")
			}
		}
		if err != nil || object == nil {
			return fmt.Errorf("%s:%d: the line is not one JSON object; mend or remove it", path, line)
		}
		if err := f(line, object); err != nil {
			return fmt.Errorf("%s:%d: %w", path, line, err)
		}
	}
	return nil
}

func eachItem(path string, data []byte, f func(line int, object map[string]any) error) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	line := func() int { // of the next value
		at := int(d.InputOffset())
		for at < len(data) && (data[at] <= ' ' || data[at] == ',') {
			at++
		}
		return 1 + bytes.Count(data[:at], []byte{'\n'})
	}
	broken := func(at int) error {
		return fmt.Errorf("%s:%d: the list is broken here; it must hold JSON objects", path, at)
	}
	if _, err := d.Token(); err != nil {
		return broken(1)
	}
	for d.More() {
		at := line()
		var object map[string]any
		if err := d.Decode(&object); err != nil || object == nil {
			return broken(at)
		}
		if err := f(at, object); err != nil {
			return fmt.Errorf("%s:%d: %w", path, at, err)
		}
	}
	at := line()
	if _, err := d.Token(); err != nil {
		return broken(at)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s:%d: more follows the list", path, line())
	}
	return nil
}

// ReadExamples reads worked conversations, one {"messages": […]} a line.
func ReadExamples(path string) ([]trajectory.Message, error) {
	var out []trajectory.Message
	_, err := eachLine(path, func(_ int, object map[string]any) error {
		messages, err := promptOf(object["messages"])
		if err != nil {
			return fmt.Errorf(`the key "messages" %w`, err)
		}
		out = append(out, messages...)
		return nil
	})
	return out, err
}

// refuseOverlap makes sure that no evaluation task is a training task by content.
func refuseOverlap(train, eval *Tasks) error {
	key := func(t trajectory.Task) string {
		data, _ := json.Marshal(t.Prompt) // messages that came from JSON go back to it
		return string(data)
	}
	seen := map[string]string{}
	for _, t := range train.Tasks {
		seen[key(t)] = t.ID
	}
	for _, t := range eval.Tasks {
		if id, ok := seen[key(t)]; ok {
			return fmt.Errorf("%s: task %q has the same content as task %q of %s; evaluation tasks must be held out", eval.Path, t.ID, id, train.Path)
		}
	}
	return nil
}

// sampler deals tasks: a seeded shuffle without replacement, anew for every epoch. With balance, each stratum (a value
// of that field) is dealt in turn, so that every step takes the same number of tasks of each. What is dealt at a position
// depends on the seed and the position alone, which is what resume needs.
type sampler struct {
	strata [][]trajectory.Task
	seed   uint64
}

func newSampler(data *Tasks, d job.Data, groups int, seed uint64) (*sampler, error) {
	s := &sampler{seed: seed}
	if d.Balance == "" {
		s.strata = [][]trajectory.Task{data.Tasks}
		return s, nil
	}
	byValue := map[string][]trajectory.Task{}
	for _, t := range data.Tasks {
		v, ok := t.Fields[d.Balance].(string)
		if !ok {
			return nil, fmt.Errorf("%s: task %q has no text in the field %q that data.balance names", data.Path, t.ID, d.Balance)
		}
		byValue[v] = append(byValue[v], t)
	}
	values := make([]string, 0, len(byValue))
	for v := range byValue {
		values = append(values, v)
	}
	slices.Sort(values)
	for _, v := range values {
		s.strata = append(s.strata, byValue[v])
	}
	if groups%len(values) != 0 {
		return nil, fmt.Errorf("%s: data.balance: %s has %d values, so rollout.groups must be a multiple of %d, not %d", data.Path, d.Balance, len(values), len(values), groups)
	}
	return s, nil
}

// tasks returns the n tasks of a step in a run whose every step takes as many.
func (s *sampler) tasks(step, n int) []trajectory.Task {
	each := n / len(s.strata)
	var out []trajectory.Task
	for k := range s.strata {
		for i := range each {
			out = append(out, s.task(k, step*each+i))
		}
	}
	return out
}

// task is what a stratum deals at a position, from 0, over all epochs.
func (s *sampler) task(k, at int) trajectory.Task {
	return s.strata[k][deal(s.seed, k, len(s.strata[k]), at)]
}

// deal is the index among n things that a position gets: every epoch is a seeded permutation of its own.
func deal(seed uint64, stratum, n, at int) int {
	return rand.New(rand.NewPCG(seed, uint64(stratum)<<32|uint64(at/n))).Perm(n)[at%n]
}
