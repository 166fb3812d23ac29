package data

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/trajectory"
)

// Tasks are the tasks of one data file, or of several sources.
type Tasks struct {
	Path  string
	Hash  string // SHA-256 of the file, for the record of the run; empty for several
	Key   string // of the job, where they are its environment's own; "": they are of files
	Tasks []trajectory.Task

	Sources []Tasks // when there are several: each by itself; Tasks are all of theirs
	Name    string  // of a source
}

// Own are the tasks that an environment has of its own: the first n of a split.
type Own func(split string, n int) ([]trajectory.Task, error)

// Read reads the tasks of a job: those to train on with their sampler, and those to evaluate on, the first so many
// that the job wants. What the job does not name is nil. Where it names no files to train on, they are those of the environment; own is nil without
// one.
func Read(j *job.Job, own Own) (train, eval *Tasks, deal *Dealer, err error) {
	var wrong []error
	train, deal, err = ReadTraining(j, own)
	wrong = append(wrong, err)
	if j.HasEval() {
		eval, err = evalTasks(j, own, train)
		wrong = append(wrong, inputError(err))
	}
	if err := j.Collect(wrong...); err != nil {
		return nil, nil, nil, err
	}
	return train, eval, deal, nil
}

// ReadTraining reads the tasks that a job trains on, as Read does, and none to evaluate on.
func ReadTraining(j *job.Job, own Own) (train *Tasks, deal *Dealer, err error) {
	if len(j.Data.Train) == 0 && j.Environment == nil {
		return nil, nil, nil
	}
	if train, err = trainTasks(j, own); err == nil {
		deal, err = NewDealer(train, j.Data, j.Rollout.Groups, j.Seed)
	}
	if c := j.Data.Curriculum; err == nil && c != nil && c.By == "success_rate" {
		deal.curriculum.shaped = j.Algorithm.Overlong.Buffer > 0
		err = needAnswers(j, train, "data.curriculum")
	}
	return train, deal, inputError(err)
}

// inputError marks an error of the user's files; nil stays nil.
func inputError(err error) error {
	if known := (*job.Error)(nil); err == nil || errors.As(err, &known) {
		return err
	}
	return job.InputError(errors.New(job.Words(err)))
}

// evalTasks are those that are evaluated: of the job's files, else the environment's own.
func evalTasks(j *job.Job, own Own, train *Tasks) (eval *Tasks, err error) {
	if len(j.Data.Eval) > 0 {
		eval, err = readSources(j, j.Data.Eval, "data.eval")
	} else {
		eval, err = ownTasks(j, own, environments.Eval, j.Environment.Tasks.Eval)
	}
	if err == nil && train != nil {
		err = refuseOverlap(train, eval)
	}
	if err == nil {
		err = CheckEvaluation(j, eval)
	}
	if err == nil {
		err = checkShown(j, eval)
	}
	if err != nil {
		return nil, err
	}
	eval.first(j.Eval.Tasks)
	return eval, nil
}

// checkShown refuses a field of eval.by that no task has. The default, source, is a field where there are several files, and "" asks for no table.
func checkShown(j *job.Job, eval *Tasks) error {
	by, known := j.Eval.By, map[string]bool{}
	for _, t := range eval.Tasks {
		for field := range t.Fields {
			known[field] = true
		}
	}
	if by == "" || by == sourceField || known[by] {
		return nil
	}
	fields := slices.Sorted(maps.Keys(known))
	return j.Fail("eval.by", "no task of %s has a field %q%s; they have %s", eval.Path, by, wording.DidYouMean(by, fields), cmp.Or(strings.Join(fields, ", "), "none"))
}

// trainTasks are those of the job's files, else the environment's own.
func trainTasks(j *job.Job, own Own) (*Tasks, error) {
	if len(j.Data.Train) > 0 {
		return readSources(j, j.Data.Train, "data.train")
	}
	return ownTasks(j, own, environments.Train, j.Environment.Tasks.Train)
}

// ownTasks are tasks of the job's environment. Their hash is that of all that the environment says of them.
func ownTasks(j *job.Job, own Own, split string, n int) (*Tasks, error) {
	if own == nil {
		return nil, fmt.Errorf("environment.kind: %s has no tasks of its own; name files with data.train and data.eval", j.Environment.Kind)
	}
	key := "environment.tasks." + split
	tasks, err := own(split, n)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	text, err := json.Marshal(tasks)
	if err != nil {
		return nil, fmt.Errorf("environment.kind: %s: its tasks cannot be recorded: %w", j.Environment.Kind, err)
	}
	hash := sha256.Sum256(text)
	return &Tasks{Path: "environment " + j.Environment.Kind + ", " + split, Hash: hex.EncodeToString(hash[:]), Key: key, Tasks: tasks}, nil
}

// readTasks reads JSON lines, or one JSON list of objects. columns maps prompt and id to the file's names. A prompt is a text, which becomes one user
// message, or a list of messages; with bare a task may have none, because an environment shows what is to be done. Every broken line is an error
// that names file and line.
func readTasks(path string, columns map[string]string, bare bool) (*Tasks, error) {
	out := &Tasks{Path: path}
	promptKey, idKey := column(columns, "prompt"), column(columns, "id")
	seen := map[string]place{}
	hash, err := eachLine(path, func(at place, object map[string]any, text []byte) error {
		var prompt []trajectory.Message
		if object[promptKey] != nil || !bare {
			var err error
			if object[promptKey] == nil {
				return missingColumn("prompt", promptKey, object)
			}
			if prompt, err = promptOf(object[promptKey], text, promptKey); err != nil {
				return fmt.Errorf("the column %q %w", promptKey, err)
			}
		}
		id := strconv.Itoa(at.number())
		if v, ok := object[idKey]; ok {
			if id, ok = v.(string); !ok || id == "" {
				return fmt.Errorf("the column %q must be text that is not empty", idKey)
			}
		}
		if first, ok := seen[id]; ok {
			return fmt.Errorf("the id %q was given in %v already", id, first)
		}
		seen[id] = at
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

// usual are what a column is called in most files, the likeliest first.
var usual = map[string][]string{
	"prompt":   {"prompt", "question", "problem", "query", "instruction", "input", "text", "messages", "conversation", "conversations"},
	"messages": {"messages", "conversation", "conversations"},
}

// missingColumn says which columns a line has instead, and what to write.
func missingColumn(name, want string, object map[string]any) error {
	have := slices.Sorted(maps.Keys(object))
	guess := "NAME"
	if at := slices.IndexFunc(usual[name], func(column string) bool { return slices.Contains(have, column) }); at >= 0 {
		guess = usual[name][at]
	}
	return fmt.Errorf("the column %q is missing; the line has %s; name the right one with data: {columns: {%s: %s}}", want, cmp.Or(wording.Clip(strings.Join(have, ", "), 200), "none"), name, guess)
}

func column(columns map[string]string, name string) string {
	if c := columns[name]; c != "" {
		return c
	}
	return name
}

// roles are what a message of a prompt may be of: a template renders one that it does not know as nothing, or as if it were the user's.
var roles = []string{"system", "developer", "user", "assistant", "tool"}

// promptOf reads a column of an object: v is its value, and text what the object is written as. The error goes on with a sentence that begins with the
// column.
func promptOf(v any, text []byte, column string) ([]trajectory.Message, error) {
	switch v := v.(type) {
	case nil:
		return nil, errors.New("is missing")
	case string:
		if v == "" {
			return nil, errors.New("is empty")
		}
		return []trajectory.Message{trajectory.Text("user", v)}, nil
	case []any:
		return messagesOf(text, column)
	}
	return nil, errors.New("must be text or a list of messages")
}

// listOf is the list in a column of an object that is written as text. Chat templates write the arguments of a call and the schema of a tool with their
// keys in the order of the file, which a map forgets.
func listOf(text []byte, column string) (list []json.RawMessage, err error) {
	var whole map[string]json.RawMessage
	if err = json.Unmarshal(text, &whole); err == nil {
		err = json.Unmarshal(whole[column], &list)
	}
	return list, err
}

// messagesOf reads a list of messages in a column. The error goes on with a sentence that begins with the column.
func messagesOf(text []byte, column string) ([]trajectory.Message, error) {
	list, err := listOf(text, column)
	if err != nil {
		return nil, err
	}
	const such = `{"role": "user", "content": "…"}`
	if len(list) == 0 {
		return nil, errors.New("has no message; one is " + such)
	}
	messages := make([]trajectory.Message, len(list))
	for i, v := range list {
		var data bytes.Buffer // without the file's white space, which arguments would keep
		if err := json.Compact(&data, v); err != nil {
			return nil, err
		}
		m := &messages[i]
		if err := json.Unmarshal(data.Bytes(), m); err != nil {
			if kind := (*json.UnmarshalTypeError)(nil); errors.As(err, &kind) {
				_, err = wording.NotSuch(err, such)
				return nil, fmt.Errorf("cannot be read: message %d %w", i, err)
			}
			return nil, fmt.Errorf("cannot be read: message %d: %s", i, strings.TrimPrefix(err.Error(), "trajectory: "))
		}
		if !slices.Contains(roles, m.Role) {
			return nil, fmt.Errorf("has a message (%d) of role %q; allowed: %s%s", i, m.Role, strings.Join(roles, ", "), wording.DidYouMean(m.Role, roles))
		}
		if at := slices.IndexFunc(m.Content, func(p trajectory.Part) bool { return p.Type != "text" }); at >= 0 {
			return nil, fmt.Errorf("cannot be used: message %d has a part of type %q; text alone is supported", i, wording.Clip(m.Content[at].Type, 64))
		}
		if len(m.Content) > 1 {
			m.Content = []trajectory.Part{{Type: "text", Text: joined(m)}}
		}
	}
	return messages, nil
}

// joined is the one text of a message with several, as the gateway makes it: most chat templates read a content as a text. Texts of the assistant are
// pieces of one completion, others stand on lines of their own.
func joined(m *trajectory.Message) string {
	var texts []string
	for _, p := range m.Content {
		if p.Text != "" {
			texts = append(texts, p.Text)
		}
	}
	if m.Role == "assistant" {
		return strings.Join(texts, "")
	}
	return strings.Join(texts, "\n")
}

// place is where an object stands in a file.
type place struct {
	line int // that it begins in
	item int // its number, from 1, in a list of which items share a line; 0: the line tells which object it is
}

// number tells the object from the others of its file.
func (p place) number() int { return cmp.Or(p.item, p.line) }

func (p place) String() string {
	if p.item > 0 {
		return "item " + strconv.Itoa(p.item)
	}
	return "line " + strconv.Itoa(p.line)
}

// eachLine calls f for every object of a file of JSON lines, or of one JSON list, with the place that it has there, and
// returns the file's hash.
func eachLine(path string, f func(at place, object map[string]any, text []byte) error) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(data) {
		line := 1
		for text := range bytes.Lines(data) {
			if !utf8.Valid(text) {
				return "", fmt.Errorf("%s:%d: the line is not UTF-8; save the file as UTF-8", path, line)
			}
			line++
		}
	}
	hash := sha256.Sum256(data)
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // editors of Windows begin a file with a byte order mark
	if text := bytes.TrimSpace(data); len(text) > 0 && text[0] == '[' {
		err = eachItem(path, data, f)
	} else {
		err = eachOf(path, data, f)
	}
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(hash[:]), nil
}

// mostBroken is how many different faults of the lines of a file are told at once.
const mostBroken = 5

func eachOf(path string, data []byte, f func(at place, object map[string]any, text []byte) error) error {
	line := 0
	var broken []*faultyLine
	for text := range bytes.Lines(data) {
		line++
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		err := eachObject(text, func(object map[string]any) error { return f(place{line: line}, object, text) })
		if err == nil {
			continue
		}
		if at := slices.IndexFunc(broken, func(b *faultyLine) bool { return b.err.Error() == err.Error() }); at >= 0 {
			broken[at].more++
			continue
		}
		if broken = append(broken, &faultyLine{path, line, err, 0}); len(broken) == mostBroken {
			break
		}
	}
	out := make([]error, len(broken))
	for i, b := range broken {
		out[i] = b
	}
	return errors.Join(out...)
}

// faultyLine is the first line of a file with a fault, and how many behind it have the same.
type faultyLine struct {
	path string
	line int
	err  error
	more int
}

func (f *faultyLine) Error() string {
	text := fmt.Sprintf("%s:%d: %v", f.path, f.line, f.err)
	switch {
	case f.more == 1:
		text += " (and one more line)"
	case f.more > 1:
		text += fmt.Sprintf(" (and %d more lines)", f.more)
	}
	return text
}

func (f *faultyLine) Unwrap() error { return f.err }

// eachObject calls f for the one object of a line.
func eachObject(text []byte, f func(object map[string]any) error) error {
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
		return errors.New("the line is not one JSON object; mend or remove it")
	}
	return f(object)
}

func eachItem(path string, data []byte, f func(at place, object map[string]any, text []byte) error) error {
	items, broken := itemsOf(path, data)
	shared := false
	for i := 1; i < len(items); i++ {
		shared = shared || items[i].line == items[i-1].line
	}
	for i, item := range items {
		at, where := place{line: item.line}, ""
		if shared {
			at.item = i + 1
			where = at.String() + ": "
		}
		if err := eachObject(item.text, func(object map[string]any) error { return f(at, object, item.text) }); err != nil {
			return fmt.Errorf("%s:%d: %s%w", path, at.line, where, err)
		}
	}
	return broken
}

// item is one of a list, and the line that it begins in.
type item struct {
	line int
	text json.RawMessage
}

// itemsOf are the objects of a list, those before the place where it is broken.
func itemsOf(path string, data []byte) (items []item, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	counted, lines := 0, 1
	line := func() int { // of the next value
		at := int(d.InputOffset())
		for at < len(data) && (data[at] <= ' ' || data[at] == ',') {
			at++
		}
		lines += bytes.Count(data[counted:at], []byte{'\n'})
		counted = at
		return lines
	}
	broken := func(at int) error {
		return fmt.Errorf("%s:%d: the list is broken here; it must hold JSON objects", path, at)
	}
	if _, err := d.Token(); err != nil {
		return nil, broken(1)
	}
	for d.More() {
		at := line()
		var text json.RawMessage
		if err := d.Decode(&text); err != nil || text[0] != '{' {
			return items, broken(at)
		}
		items = append(items, item{at, text})
	}
	at := line()
	if _, err := d.Token(); err != nil {
		return items, broken(at)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return items, fmt.Errorf("%s:%d: more follows the list", path, line())
	}
	return items, nil
}

// ReadExamples reads worked conversations, one {"messages": […]} a line.
func ReadExamples(path string) ([]trajectory.Message, error) {
	var out []trajectory.Message
	_, err := eachLine(path, func(_ place, object map[string]any, text []byte) error {
		messages, err := promptOf(object["messages"], text, "messages")
		if err != nil {
			return fmt.Errorf(`the key "messages" %w`, err)
		}
		out = append(out, messages...)
		return nil
	})
	return out, err
}
