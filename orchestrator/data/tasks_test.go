package data

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/trajectory"
)

func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestReadTasks(t *testing.T) {
	columns := map[string]string{"prompt": "question", "answer": "solution"}
	lines := "{\"question\": \"1?\", \"solution\": \"1\", \"level\": 3}\n\n" +
		`{"id": "two", "question": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "2?"}], "solution": "2"}`
	list := "[\n{\"question\": \"1?\", \"solution\": \"1\", \"level\": 3},\n\n" +
		`{"id": "two", "question": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "2?"}], "solution": "2"}]`
	for name, text := range map[string]string{"a.jsonl": lines, "a.json": list} {
		t.Run(name, func(t *testing.T) {
			got, err := readTasks(write(t, name, text), columns, false)
			require.NoError(t, err)
			require.Len(t, got.Tasks, 2)
			require.Equal(t, []trajectory.Message{trajectory.Text("user", "1?")}, got.Tasks[0].Prompt)
			require.Equal(t, "1", got.Tasks[0].Fields["answer"])
			require.Equal(t, "3", fmt.Sprint(got.Tasks[0].Fields["level"]))
			require.Equal(t, "two", got.Tasks[1].ID)
			require.Equal(t, []trajectory.Message{trajectory.Text("system", "be brief"), trajectory.Text("user", "2?")}, got.Tasks[1].Prompt)
			require.Len(t, got.Hash, 64)
		})
	}
}

// Chat templates read a content as a text, and most write a list of parts as Python would print it.
func TestTextPartsOfAMessageAreOneText(t *testing.T) {
	for content, want := range map[string]string{
		`[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]`:                               "a\nb",
		`[{"type": "text", "text": "a"}]`:                                                              "a",
		`[{"type": "text", "text": ""}, {"type": "text", "text": "b"}, {"type": "text", "text": "c"}]`: "b\nc",
		`"a"`: "a",
	} {
		tasks, err := readTasks(write(t, "tasks.jsonl", `{"prompt": [{"role": "user", "content": `+content+`}]}`), nil, false)
		require.NoError(t, err)
		require.Equal(t, []trajectory.Message{trajectory.Text("user", want)}, tasks.Tasks[0].Prompt, content)
		conversations, _, err := ReadConversations(write(t, "c.jsonl", `{"messages": [{"role": "user", "content": `+content+`}, {"role": "assistant", "content": [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}]}]}`), nil)
		require.NoError(t, err)
		require.Equal(t, []trajectory.Message{trajectory.Text("user", want), trajectory.Text("assistant", "cd")}, conversations[0].Messages, "texts of the assistant are pieces of one completion")
	}
}

// Chat templates write a call's arguments in the order of their keys in the file, as transformers does.
func TestArgumentsOfACallKeepTheirOrder(t *testing.T) {
	const arguments = `{"to":"a","by":{"z":1.0,"b":"<&"}}`
	messages := func(written string) string {
		return `[{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": ` + written + `}}]}]`
	}
	for name, written := range map[string]string{"object": `{"to": "a", "by": {"z": 1.0, "b": "<&"}}`, "text": strconv.Quote(arguments)} {
		tasks, err := readTasks(write(t, "tasks.jsonl", `{"prompt": `+messages(written)+`}`), nil, false)
		require.NoError(t, err)
		require.Equal(t, arguments, string(tasks.Tasks[0].Prompt[1].ToolCalls[0].Arguments), name)
		path := write(t, "c.json", `[{"messages": `+messages(written)+`}]`)
		conversations, _, err := ReadConversations(path, nil)
		require.NoError(t, err)
		require.Equal(t, arguments, string(conversations[0].Messages[1].ToolCalls[0].Arguments), name)
		examples, err := ReadExamples(path)
		require.NoError(t, err)
		require.Equal(t, conversations[0].Messages, examples, name)
	}
}

// Items of a list that share a line, as json.dump writes all of them, are told apart by their number.
func TestAListInOneLine(t *testing.T) {
	for text, want := range map[string][]string{
		`[{"prompt": "a"}, {"prompt": "b"}, {"prompt": "c"}]`:              {"1", "2", "3"},
		`[{"prompt": "a"}, {"prompt": "b"},` + "\n\n" + `{"prompt": "c"}]`: {"1", "2", "3"},
		`[{"prompt": "a"},` + "\n\n" + `{"prompt": "c"}]`:                  {"1", "3"},
	} {
		path := write(t, "a.json", text)
		got, err := readTasks(path, nil, false)
		require.NoError(t, err, text)
		require.Equal(t, want, ids(got.Tasks), text)
		list := strings.NewReplacer(`{"prompt": `, `{"messages": [{"role": "assistant", "content": `, `}`, `}]}`).Replace(text)
		path = write(t, "b.json", list)
		conversations, _, err := ReadConversations(path, nil)
		require.NoError(t, err, list)
		require.Len(t, conversations, len(want))
		for i, c := range conversations {
			require.Equal(t, path+":"+want[i], c.ID)
		}
	}
	for text, want := range map[string]string{
		`[{"id": "x", "prompt": "a"}, {"id": "y", "prompt": "b"}, {"id": "x", "prompt": "c"}]`: `1: item 3: the id "x" was given in item 1 already`,
		`[{"id": "x", "prompt": "a"},` + "\n" + `{"id": "x", "prompt": "c"}]`:                  `2: the id "x" was given in line 1 already`,
		`[{"prompt": "a"}, {"prompt": "b"}, 3]`:                                                `1: the list is broken here; it must hold JSON objects`,
	} {
		path := write(t, "a.json", text)
		_, err := readTasks(path, nil, false)
		require.EqualError(t, err, path+":"+want)
	}
}

// Files that editors of Windows write begin with a byte order mark and end their lines with CR LF.
func TestTasksOfAWindowsEditor(t *testing.T) {
	for name, text := range map[string]string{
		"lines":  "\ufeff{\"prompt\": \"a\"}\r\n{\"prompt\": \"b\"}\r\n",
		"a list": "\ufeff[{\"prompt\": \"a\"},\r\n{\"prompt\": \"b\"}]\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tasks.jsonl")
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			var lines []int
			_, err := eachLine(path, func(at place, _ map[string]any, _ []byte) error {
				lines = append(lines, at.line)
				return nil
			})
			require.NoError(t, err)
			require.Equal(t, []int{1, 2}, lines)
		})
	}
}

func TestBrokenTasksNameTheirLine(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"cut":           {"{\"prompt\": \"a\"}\n{\"prompt\": \"b", ":2: the line is not one JSON object; mend or remove it"},
		"a list":        {"{\"prompt\": \"a\"}\n[1]", ":2: the line is not one JSON object"},
		"two objects":   {`{"prompt": "a"} {"prompt": "b"}`, ":1: the line is not one JSON object"},
		"a brace more":  {`{"prompt": "a"}}`, ":1: the line is not one JSON object"},
		"null":          {"null", ":1: the line is not one JSON object"},
		"no prompt":     {"{\"prompt\": \"a\"}\n{\"question\": \"b\"}", `:2: the column "prompt" is missing; the line has question; name the right one with data: {columns: {prompt: question}}`},
		"empty prompt":  {`{"prompt": ""}`, `:1: the column "prompt" is empty`},
		"prompt of 3":   {`{"prompt": 3}`, `:1: the column "prompt" must be text or a list of messages`},
		"same id":       {"{\"prompt\": \"a\", \"id\": \"x\"}\n{\"prompt\": \"b\", \"id\": \"x\"}", `:2: the id "x" was given in line 1 already`},
		"number as id":  {`{"prompt": "a", "id": 3}`, `:1: the column "id" must be text that is not empty`},
		"nothing":       {"\n\n", ": the file holds no task"},
		"list item":     {"[{\"prompt\": \"a\"},\n 3]", ":2: the list is broken here; it must hold JSON objects"},
		"list prompt":   {"[{\"prompt\": \"a\"},\n\n {\"prompt\": 3}]", `:3: the column "prompt" must be text`},
		"list is cut":   {"[{\"prompt\": \"a\"}\n", ":2: the list is broken here"},
		"after a list":  {"[{\"prompt\": \"a\"}]\n{}", ":2: more follows the list"},
		"empty list":    {"[]", ": the file holds no task"},
		"a broken role": {`{"prompt": [{"role": 3}]}`, `:1: the column "prompt" cannot be read: message 0 is not such as {"role": "user", "content": "…"}: a JSON number does not fit role`},
		"no messages":   {`{"prompt": []}`, `:1: the column "prompt" has no message`},
		"broken arguments": {
			`{"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]}`,
			`:1: the column "prompt" cannot be read: message 1: tool call 0: arguments are not JSON`,
		},
		"an image": {
			`{"prompt": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "http://a/b"}}]}]}`,
			`:1: the column "prompt" cannot be used: message 0 has a part of type "image_url"; text alone is supported`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, "tasks.jsonl", c.text)
			_, err := readTasks(path, nil, false)
			require.Error(t, err)
			require.Contains(t, err.Error(), path+c.want)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestEvaluationTasksMustBeHeldOut(t *testing.T) {
	train, err := readTasks(write(t, "train.jsonl", `{"prompt": "a", "answer": "1"}`), nil, false)
	require.NoError(t, err)
	eval, err := readTasks(write(t, "eval.jsonl", "{\"prompt\": \"b\"}\n{\"id\": \"copy\", \"prompt\": [{\"role\": \"user\", \"content\": \"a\"}], \"answer\": \"2\"}"), nil, false)
	require.NoError(t, err)
	require.ErrorContains(t, refuseOverlap(train, eval), `task "copy" has the same content as task "1" of `+train.Path)
	eval.Tasks = eval.Tasks[:1]
	require.NoError(t, refuseOverlap(train, eval))
}

// A table by a field that no task has would be left out without a word. "" asks for none.
func TestTheTableIsByAFieldOfTheTasks(t *testing.T) {
	eval := &Tasks{Path: "held.jsonl", Tasks: []trajectory.Task{{ID: "a"}, {ID: "b", Fields: map[string]any{"level": "easy"}}}}
	for by, want := range map[string]string{"": "", "source": "", "level": "", "lev": `eval.by: no task of held.jsonl has a field "lev" (did you mean "level"?); they have level`} {
		j, err := job.Parse("x.yaml", []byte("version: 1\nname: x\nmodel: {path: m}\nrewards: [final_answer]\ndata: {train: t.jsonl}\neval: {by: '"+by+"'}\n"), job.Options{})
		require.NoError(t, err)
		if err = checkShown(j, eval); want == "" {
			require.NoError(t, err, by)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}

func numbered(n int, kinds ...string) *Tasks {
	out := &Tasks{Path: "tasks"}
	for i := range n {
		t := trajectory.Task{ID: fmt.Sprint(i), Fields: map[string]any{}}
		if len(kinds) > 0 {
			t.Fields["kind"] = kinds[i%len(kinds)]
		}
		out.Tasks = append(out.Tasks, t)
	}
	return out
}

func TestSamplerDealsWithoutReplacement(t *testing.T) {
	s, err := NewDealer(numbered(10), job.Data{}, 4, 1)
	require.NoError(t, err)
	var dealt []string
	for step := range 10 { // four epochs
		for _, task := range s.Tasks(step, 4) {
			dealt = append(dealt, task.ID)
		}
	}
	orders := map[string]bool{}
	for epoch := range 4 {
		orders[strings.Join(dealt[epoch*10:epoch*10+10], " ")] = true
		require.ElementsMatch(t, strings.Fields("0 1 2 3 4 5 6 7 8 9"), dealt[epoch*10:epoch*10+10])
	}
	require.Len(t, orders, 4) // each epoch has an order of its own
	again, err := NewDealer(numbered(10), job.Data{}, 4, 1)
	require.NoError(t, err)
	require.Equal(t, s.Tasks(7, 4), again.Tasks(7, 4)) // a step's tasks do not depend on the steps before
	other, err := NewDealer(numbered(10), job.Data{}, 4, 2)
	require.NoError(t, err)
	require.NotEqual(t, s.Tasks(0, 4), other.Tasks(0, 4))
}

func TestSamplerBalances(t *testing.T) {
	data := numbered(30, "a", "b", "a", "a", "c", "a") // b and c are rare
	s, err := NewDealer(data, job.Data{Balance: "kind"}, 6, 1)
	require.NoError(t, err)
	for step := range 8 {
		count := map[any]int{}
		for _, task := range s.Tasks(step, 6) {
			count[task.Fields["kind"]]++
		}
		require.Equal(t, map[any]int{"a": 2, "b": 2, "c": 2}, count)
	}
	_, err = NewDealer(data, job.Data{Balance: "kind"}, 5, 1)
	require.ErrorContains(t, err, "kind has 3 values, so rollout.groups must be a multiple of 3, not 5")
	_, err = NewDealer(data, job.Data{Balance: "colour"}, 6, 1)
	require.ErrorContains(t, err, `task "0" has no text in the field "colour" that data.balance names`)
}

func FuzzReadTasks(f *testing.F) {
	f.Add("{\"prompt\": \"a\", \"id\": \"x\"}\n\n{\"prompt\": [{\"role\": \"user\", \"content\": null}]}")
	f.Add(`[{"prompt": "a"}, {"prompt": "b"}]`)
	f.Add("[\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := write(t, "f.jsonl", text)
		got, err := readTasks(path, nil, false)
		if err == nil {
			require.NotEmpty(t, got.Tasks)
			return
		}
		require.Contains(t, err.Error(), path)
	})
}

// Every different fault of a file is told at once, at its first line.
func TestFaultsOfAFileAreToldTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.jsonl")
	text := "{\"question\": \"a\"}\n{\"question\": \"b\"}\nbroken\n{\"prompt\": \"c\"}\n{\"prompt\": 1}\n{\"question\": \"d\"}\nbroken\n"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	_, err := readTasks(path, nil, false)
	require.EqualError(t, err, path+":1: the column \"prompt\" is missing; the line has question; name the right one with data: {columns: {prompt: question}} (and 2 more lines)\n"+
		path+":3: the line is not one JSON object; mend or remove it (and one more line)\n"+
		path+":5: the column \"prompt\" must be text or a list of messages")
}
