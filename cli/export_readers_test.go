package cli

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/overview/overviewtest"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// exportOf exports a run and returns the file.
func exportOf(t *testing.T, dir, format string) string {
	t.Helper()
	out, _, err := command(t, "export", "--out", filepath.Join(t.TempDir(), "out"), dir, format)
	require.NoError(t, err)
	path, _, told := strings.Cut(strings.TrimPrefix(out, "wrote     "), "  ")
	require.True(t, told, out)
	return path
}

// readBack has the program that a format is for read a file.
func readBack(t *testing.T, format, path string, into any) {
	t.Helper()
	python := os.Getenv("AGENTFLY_EXPORT_PYTHON")
	if python == "" {
		t.Skip("AGENTFLY_EXPORT_PYTHON names no interpreter with the programs that read exports: make test-export")
	}
	c := exec.Command(python, "testdata/readers.py", format, path)
	var errOut bytes.Buffer
	c.Stderr = &errOut
	b, err := c.Output()
	require.NoError(t, err, errOut.String())
	require.NoError(t, json.Unmarshal(b, into), string(b))
}

// hostile is a run with all that a reader may trip over. \xff is no UTF-8; the half of a surrogate pair is valid JSON that is no text.
func hostile(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "hos_tile <b>")
	huge := strings.Repeat("long é ", 200_000)
	paid := 0.25
	overviewtest.Run{
		Job: overviewtest.Job("hostile", 3),
		Steps: []map[string]float64{
			{"reward/mean": 0.1, "seconds/elapsed": 1.5, "grad/norm": math.NaN(), "tool/<b>/calls": 3, "big": 1e300},
			{"reward/mean": 1.0 / 3, "seconds/elapsed": 3, "grad/norm": math.Inf(1)},
			{"reward/mean": -7, "seconds/elapsed": 4.5, "grad/norm": 2},
		},
		Evaluations: []overviewtest.Evaluation{{Name: "after", Step: 3, Rewards: map[string]float64{"k": 0.75}, Answer: "4"}},
		Train: []overviewtest.Sampled{
			{Stop: trajectory.StopAnswer, Reward: 0.5, Turns: []trajectory.Turn{
				{Completion: "<tool_call>\x1b[31m\xff", FinishReason: "stop", Results: []trajectory.ToolResult{
					{Call: trajectory.ToolCall{Name: "calc", Arguments: []byte(`{"x": 9007199254740993, "s": "\ud800"}`)}, Observation: "a\x00b\xff", Failed: true},
					{Call: trajectory.ToolCall{Name: "calc", Arguments: []byte(`[1]`)}, Observation: huge},
					{Observation: "moved", Outcome: &trajectory.Outcome{Reward: 1}},
				}},
				{Completion: "4", FinishReason: "length", FinalAnswer: "4", AnsweredThisTurn: true, Reward: &paid},
			}},
			{Index: 1, Stop: trajectory.StopError, Err: "the world is gone"},
		},
	}.Write(t, dir)
	return dir
}

// older is a run whose store is of version 2.
func older(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "older")
	require.NoError(t, os.Mkdir(dir, 0o700))
	script, err := os.ReadFile("../orchestrator/store/testdata/version2.sql")
	require.NoError(t, err)
	db, err := sql.Open("sqlite", filepath.Join(dir, store.File))
	require.NoError(t, err)
	_, err = db.Exec(string(script))
	require.NoError(t, err)
	require.NoError(t, db.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "job.yaml"), []byte(overviewtest.Job("older", 1)), 0o600))
	return dir
}

func empty(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "empty")
	overviewtest.Run{}.Write(t, dir)
	return dir
}

func TestReadersOfCurves(t *testing.T) {
	want := map[string][][2]float64{
		"reward/mean": {{1, 0.1}, {2, 1.0 / 3}, {3, -7}}, "seconds/elapsed": {{1, 1.5}, {2, 3}, {3, 4.5}}, "grad/norm": {{3, 2}}, "tool/<b>/calls": {{1, 3}}, "big": {{1, 1e300}},
		"eval/reward": {{3, 0.75}}, "eval/accuracy": {{3, 0}},
	}
	for _, format := range []string{"csv", "jsonl", "tensorboard"} {
		t.Run(format, func(t *testing.T) {
			got := map[string][][2]float64{}
			if format == "tensorboard" { // it keeps 32 bits
				delete(want, "big")
				for _, points := range want {
					for i := range points {
						points[i][1] = float64(float32(points[i][1]))
					}
				}
			}
			readBack(t, format, exportOf(t, hostile(t), format), &got)
			require.Equal(t, want, got)
			got = map[string][][2]float64{}
			readBack(t, format, exportOf(t, empty(t), format), &got)
			require.Empty(t, got)
		})
	}
}

type inspectRead struct {
	Status, Model string
	Mean          map[string]float64
	Samples       []struct {
		ID            string
		Reward        *float64
		Answer, Error *string
		Metadata      map[string]any
		Messages      [][]any
		Thoughts      []string
		Tokens        int
	}
}

func TestReadersOfInspect(t *testing.T) {
	var got inspectRead
	readBack(t, "inspect", exportOf(t, hostile(t), "inspect"), &got)
	require.Equal(t, "agentfly/tiny", got.Model)
	require.Len(t, got.Samples, 3)
	require.InDelta(t, (0.75+0.75)/2, got.Mean["mean"], 1e-12)
	s := got.Samples[1]
	require.Equal(t, "train-0-0-0", s.ID)
	require.Equal(t, 0.75, *s.Reward)
	require.Equal(t, "4", *s.Answer)
	require.Equal(t, "train", s.Metadata["phase"])
	require.Equal(t, 4, s.Tokens)
	call := func(arguments map[string]any) any { return []any{"calc", arguments} }
	require.Equal(t, [][]any{
		{"assistant", "<tool_call>\x1b[31m�", []any{call(map[string]any{"x": 9007199254740993.0, "s": "�"}), call(map[string]any{"arguments": []any{1.0}})}},
		{"tool", "a\x00b�", []any{}},
		{"tool", strings.Repeat("long é ", 200_000), []any{}},
		{"user", "moved", []any{}},
		{"assistant", "4", []any{}},
	}, s.Messages)
	require.Nil(t, got.Samples[2].Reward, "a failed trajectory has no score")
	require.Contains(t, *got.Samples[2].Error, "the world is gone")

	got = inspectRead{}
	readBack(t, "inspect", exportOf(t, older(t), "inspect"), &got)
	require.Len(t, got.Samples, 2)
	require.Equal(t, 0.75, *got.Samples[0].Reward)
	got = inspectRead{}
	readBack(t, "inspect", exportOf(t, empty(t), "inspect"), &got)
	require.Empty(t, got.Samples)
}

// What a thinking model wrote before the content of a message, which an agent of another program sent.
func TestReadersOfThoughts(t *testing.T) {
	said := trajectory.Text("assistant", "4")
	said.Reasoning = "two and two"
	sent, err := json.Marshal([]trajectory.Message{trajectory.Text("user", "2 + 2?"), said, trajectory.Text("user", "Sure?")})
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "thinking")
	overviewtest.Run{Steps: overviewtest.Steps(1), Train: []overviewtest.Sampled{
		{Stop: trajectory.StopAnswer, Turns: []trajectory.Turn{{Completion: "yes", FinishReason: "stop", Incoming: &trajectory.Incoming{Whole: true, Messages: sent}}}},
	}}.Write(t, dir)

	var log inspectRead
	readBack(t, "inspect", exportOf(t, dir, "inspect"), &log)
	require.Equal(t, []string{"two and two"}, log.Samples[0].Thoughts)
	require.Len(t, log.Samples[0].Messages, 4)
	require.Contains(t, log.Samples[0].Messages[1][1], "4")
	var rows []struct {
		Messages []struct{ Content, Reasoning string }
	}
	readBack(t, "parquet", exportOf(t, dir, "parquet"), &rows)
	require.Equal(t, []struct{ Content, Reasoning string }{{"2 + 2?", ""}, {"4", "two and two"}, {"Sure?", ""}, {"yes", ""}}, rows[0].Messages)
	var kept struct {
		Traces []struct{ Messages []map[string]any }
	}
	readBack(t, "trackio", exportOf(t, dir, "trackio"), &kept)
	require.Equal(t, "two and two", kept.Traces[0].Messages[1]["reasoning_content"])
}

func TestReadersOfATIF(t *testing.T) {
	for name, dir := range map[string]string{"hostile": hostile(t), "older": older(t), "empty": empty(t)} {
		t.Run(name, func(t *testing.T) {
			path := exportOf(t, dir, "atif")
			var want []map[string]any // as they were written
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			for line := range strings.Lines(string(text)) {
				var d map[string]any
				require.NoError(t, json.Unmarshal([]byte(line), &d))
				want = append(want, d)
			}
			var got []map[string]any
			readBack(t, "atif", path, &got)
			require.Len(t, got, map[string]int{"hostile": 3, "older": 2, "empty": 0}[name])
			if name != "empty" {
				require.Equal(t, want, got, "Harbor keeps every field, value by value")
			}
		})
	}
	path := exportOf(t, hostile(t), "atif")
	var got []struct {
		Extra map[string]any `json:"extra"`
		Steps []struct {
			Message string `json:"message"`
			Metrics struct {
				IDs      []int32   `json:"completion_token_ids"`
				Logprobs []float32 `json:"logprobs"`
			} `json:"metrics"`
		} `json:"steps"`
	}
	readBack(t, "atif", path, &got)
	require.Equal(t, 0.75, got[1].Extra["reward"])
	require.Equal(t, "4", got[1].Steps[1].Message)
	require.Equal(t, []int32{4, 5}, got[1].Steps[1].Metrics.IDs)
	require.Equal(t, []float32{-0.5, -1}, got[1].Steps[1].Metrics.Logprobs)
}

func TestReadersOfTrackio(t *testing.T) {
	var got struct {
		Runs    []string
		Metrics [][2]any
		Logs    []map[string]any
		Traces  []map[string]any
	}
	readBack(t, "trackio", exportOf(t, hostile(t), "trackio"), &got)
	require.Equal(t, []string{"hos-tile--b-"}, got.Runs)
	require.Equal(t, [][2]any{
		{1.0, map[string]any{"reward/mean": 0.1, "seconds/elapsed": 1.5, "tool/<b>/calls": 3.0, "big": 1e300}},
		{2.0, map[string]any{"reward/mean": 1.0 / 3, "seconds/elapsed": 3.0}},
		{3.0, map[string]any{"reward/mean": -7.0, "seconds/elapsed": 4.5, "grad/norm": 2.0, "eval/reward": 0.75, "eval/accuracy": 0.0}},
	}, got.Metrics)
	require.Len(t, got.Logs, 3)
	require.Equal(t, 1.0/3, got.Logs[1]["reward/mean"])
	traces := map[string]map[string]any{}
	for _, trace := range got.Traces {
		traces[trace["metadata"].(map[string]any)["id"].(string)] = trace
	}
	require.Len(t, traces, 3)
	one := traces["train-0-0-0"]
	require.Equal(t, 0.75, one["metadata"].(map[string]any)["reward"])
	require.Contains(t, traces["train-0-0-1"]["metadata"].(map[string]any)["error"], "the world is gone")
	said := one["messages"].([]any)
	require.Len(t, said, 5)
	require.Equal(t, "<tool_call>\x1b[31m�", said[0].(map[string]any)["content"])
	require.Equal(t, "a\x00b�", said[1].(map[string]any)["content"])
	require.Equal(t, strings.Repeat("long é ", 200_000), said[2].(map[string]any)["content"])
	require.Equal(t, "4", said[4].(map[string]any)["content"])

	got.Metrics, got.Traces = nil, nil
	readBack(t, "trackio", exportOf(t, older(t), "trackio"), &got)
	require.Len(t, got.Traces, 2)
}

func TestReadersOfParquet(t *testing.T) {
	type sample struct {
		IDs  []int32   `json:"token_ids"`
		Mask []bool    `json:"response_mask"`
		Logs []float32 `json:"sampling_logprobs"`
		Old  []float32 `json:"old_logprobs"`
	}
	type row struct {
		ID, Phase, Error string
		Reward           *float64
		Messages         []struct {
			Role, Content string
			Calls         []struct {
				Name, Arguments, Result string
				Failed                  bool
			}
		}
		Samples []sample
	}
	var got []row
	file := exportOf(t, hostile(t), "parquet")
	readBack(t, "parquet", file, &got)
	require.Len(t, got, 3)
	for _, reader := range []string{"datasets", "duckdb"} {
		var same []row
		readBack(t, reader, file, &same)
		require.Equal(t, got, same, reader)
	}
	one := got[1]
	require.Equal(t, "train-0-0-0", one.ID)
	require.Equal(t, "train", one.Phase)
	require.Equal(t, 0.75, *one.Reward)
	require.Equal(t, []sample{{
		[]int32{1, 2, 3, 4, 5, 4, 5}, []bool{false, false, false, true, true, true, true}, []float32{0, 0, 0, -0.5, -1, -0.5, -1}, []float32{},
	}}, one.Samples)
	require.Len(t, one.Messages, 2)
	require.Equal(t, "<tool_call>\x1b[31m�", one.Messages[0].Content)
	calls := one.Messages[0].Calls
	require.Equal(t, "a\x00b�", calls[0].Result)
	require.True(t, calls[0].Failed)
	require.JSONEq(t, `{"x": 9007199254740993, "s": "�"}`, calls[0].Arguments)
	require.Contains(t, calls[0].Arguments, "9007199254740993")
	require.Equal(t, strings.Repeat("long é ", 200_000), calls[1].Result)
	require.Contains(t, got[2].Error, "the world is gone")
	require.Nil(t, got[2].Reward)

	got = nil
	readBack(t, "parquet", exportOf(t, older(t), "parquet"), &got)
	require.Len(t, got, 2)
	require.Equal(t, 0.75, *got[0].Reward)
	for _, reader := range []string{"parquet", "duckdb"} { // datasets refuses a table without a row
		got = nil
		readBack(t, reader, exportOf(t, empty(t), "parquet"), &got)
		require.Empty(t, got)
	}
}

// What Trackio left beside an export of before is not part of the next one.
func TestExportReplacesADatabase(t *testing.T) {
	dir, out := hostile(t), t.TempDir()
	_, _, err := command(t, "export", "--out", out, dir, "trackio")
	require.NoError(t, err)
	path := filepath.Join(out, filepath.Base(dir), "hos-tile--b-.db")
	for _, rest := range []string{"-wal", "-shm"} {
		require.NoError(t, os.WriteFile(path+rest, []byte("of the database of before"), 0o600))
	}
	_, _, err = command(t, "export", "--out", out, dir, "trackio")
	require.NoError(t, err)
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1)
}

// A run that went on later, which writes job.yaml anew, is exported as the run that it was.
func TestExportAgainIsTheSameRun(t *testing.T) {
	tuned := filepath.Join(t.TempDir(), "tuned") // its conversations have no time
	overviewtest.Run{Job: overviewtest.SFTJob("tuned", 1), Planned: 2, Steps: []map[string]float64{{"sft/loss": 2, "seconds/elapsed": 1}}}.Write(t, tuned)
	for _, dir := range []string{hostile(t), tuned} {
		exportsAsTheSameRun(t, dir)
	}
}

func exportsAsTheSameRun(t *testing.T, dir string) {
	out := t.TempDir()
	files := func() (names []string) {
		for _, format := range []string{"tensorboard", "wandb", "inspect"} {
			_, _, err := command(t, "export", "--out", out, dir, format)
			require.NoError(t, err)
		}
		require.NoError(t, filepath.WalkDir(out, func(path string, d os.DirEntry, err error) error {
			if !d.IsDir() {
				names = append(names, path)
			}
			return err
		}))
		return names
	}
	before := files()
	later := time.Now().Add(time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(dir, "job.yaml"), later, later))
	require.Equal(t, before, files())
}

func TestReadersOfWandb(t *testing.T) {
	var got struct {
		Records []struct {
			Type    string
			History struct{ Item map[string]any }
		}
		Sync string
	}
	readBack(t, "wandb", exportOf(t, hostile(t), "wandb"), &got)
	var history []map[string]any
	var types []string
	for _, r := range got.Records {
		types = append(types, r.Type)
		if r.Type == "history" {
			delete(r.History.Item, "_timestamp")
			delete(r.History.Item, "_runtime")
			history = append(history, r.History.Item)
		}
	}
	require.Equal(t, []map[string]any{
		{"_step": 1.0, "reward/mean": 0.1, "seconds/elapsed": 1.5, "tool/<b>/calls": 3.0, "big": 1e300},
		{"_step": 2.0, "reward/mean": 1.0 / 3, "seconds/elapsed": 3.0},
		{"_step": 3.0, "reward/mean": -7.0, "seconds/elapsed": 4.5, "grad/norm": 2.0, "eval/reward": 0.75, "eval/accuracy": 0.0},
	}, history, types)
	require.Contains(t, got.Sync, "ould sync")
	got.Records = nil
	readBack(t, "wandb", exportOf(t, empty(t), "wandb"), &got)
	require.NotEmpty(t, got.Records)

	// A record that is longer than a block of 32 KiB is written in several, and blocks end at every place of a record.
	long := filepath.Join(t.TempDir(), "long")
	var steps []map[string]float64
	for i := range 40 {
		m := map[string]float64{"seconds/elapsed": float64(i)}
		for k := range 5 + 60*i {
			m[fmt.Sprintf("metric/%d/%s", k, strings.Repeat("x", i))] = float64(k) / 3
		}
		steps = append(steps, m)
	}
	overviewtest.Run{Steps: steps}.Write(t, long)
	got.Records = nil
	readBack(t, "wandb", exportOf(t, long, "wandb"), &got)
	n := 0
	for _, r := range got.Records {
		if r.Type != "history" {
			continue
		}
		for name, v := range steps[n] {
			require.Equal(t, v, r.History.Item[name], "step %d: %s", n, name)
		}
		n++
	}
	require.Equal(t, 40, n)
}

// A run that trains is exported as it stands: each file is whole.
func TestExportWhileTheRunIsWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "live")
	overviewtest.Run{Steps: overviewtest.Steps(0.5)}.Write(t, dir)
	db, err := store.Open(filepath.Join(dir, store.File))
	require.NoError(t, err)
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			tr := &trajectory.Trajectory{ID: store.ID("rollout", 0, n, 0), TaskID: "k", Group: n, StopReason: trajectory.StopAnswer}
			if err := db.AddTrajectory(context.Background(), "rollout", trajectory.Task{ID: "k"}, tr); err != nil {
				done <- err
				return
			}
		}
	}()
	for range 5 {
		text, err := os.ReadFile(exportOf(t, dir, "atif"))
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			require.True(t, json.Valid([]byte(line)), line)
		}
		text, err = os.ReadFile(exportOf(t, dir, "inspect"))
		require.NoError(t, err)
		require.True(t, json.Valid(text))
	}
	close(stop)
	require.NoError(t, <-done)
	require.NoError(t, db.Close())
}

// What others recorded becomes the data of an sft job: that job's own reader reads it.
func TestImportATIF(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.json"), filepath.Join(dir, "out.jsonl")
	write := func(text string) { require.NoError(t, os.WriteFile(in, []byte(text), 0o600)) }
	write(`{"schema_version": "ATIF-v1.6", "agent": {"name": "x", "version": "2", "tool_definitions": [{"type": "function", "function": {"name": "read"}}]}, "steps": [
	  {"step_id": 1, "source": "system", "message": "be brief"}, {"step_id": 2, "source": "user", "message": [{"type": "text", "text": "read "}, {"type": "text", "text": "a"}]},
	  {"step_id": 3, "source": "agent", "message": "old", "is_copied_context": true},
	  {"step_id": 4, "source": "agent", "message": "", "reasoning_content": "hm", "tool_calls": [{"tool_call_id": "c", "function_name": "read", "arguments": {"n": 9007199254740993}}],
	   "observation": {"results": [{"source_call_id": "c", "content": "A"}]}},
	  {"step_id": 5, "source": "agent", "message": "done"}],
	  "subagent_trajectories": [{"schema_version": "ATIF-v1.8", "trajectory_id": "s", "agent": {"name": "y", "version": "2"}, "steps": [{"step_id": 1, "source": "user", "message": "alone"}]}]}`)
	_, said, err := command(t, "import", "--output", out, "atif", in)
	require.NoError(t, err)
	require.Contains(t, said, "1 conversation\n")
	require.Contains(t, said, "1 trajectory without a step of an agent")
	all, _, err := data.ReadConversations(out, nil)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Len(t, all[0].Tools, 1)
	require.Equal(t, []bool{false, false, false, true, false, true}, all[0].Learned)
	m := all[0].Messages
	require.Equal(t, trajectory.Text("user", "read a"), m[1])
	require.Equal(t, "hm", m[3].Reasoning)
	require.JSONEq(t, `{"n": 9007199254740993}`, string(m[3].ToolCalls[0].Arguments))
	require.Contains(t, string(m[3].ToolCalls[0].Arguments), "9007199254740993", "digits are not rounded")
	require.Equal(t, "tool", m[4].Role)
	require.Equal(t, "read", m[4].Name)

	// Our own come back with the calls as the model wrote them, once.
	_, _, err = command(t, "import", "--output", out, "atif", exportOf(t, hostile(t), "atif"))
	require.NoError(t, err)
	all, _, err = data.ReadConversations(out, nil)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, trajectory.Text("assistant", "<tool_call>\x1b[31m�"), all[0].Messages[0])

	require.NoError(t, os.Remove(out))
	const head = `{"schema_version": "ATIF-v1.8", "agent": {"name": "x", "version": "1"}, "steps": [`
	for says, text := range map[string]string{
		"in.json: the file holds no ATIF document":                        ``,
		"in.json: document 2 is no JSON":                                  head + `{"step_id": 1, "source": "agent", "message": "a"}]}` + "\n{",
		`document 1: schema_version is "ATIF-v2.0"; this program reads`:   `{"schema_version": "ATIF-v2.0"}`,
		`document 1: schema_version is ""`:                                `{"messages": []}`,
		"document 1 is no ATIF trajectory":                                `[7]`,
		"steps are missing":                                               `{"schema_version": "ATIF-v1.8"}`,
		"step_id of step 1 is 2":                                          head + `{"step_id": 2}]}`,
		`step 1: source is "robot"; allowed: system, user, agent`:         head + `{"step_id": 1, "source": "robot"}]}`,
		`a part of the type "image"`:                                      head + `{"step_id": 1, "source": "user", "message": [{"type": "image"}]}]}`,
		`step 1: observation 1 answers the call "z", which the step does`: head + `{"step_id": 1, "source": "agent", "message": "", "observation": {"results": [{"source_call_id": "z"}]}}]}`,
		"step 1: the arguments of tool call 1 are no object":              head + `{"step_id": 1, "source": "agent", "message": "", "tool_calls": [{"tool_call_id": "c", "function_name": "f", "arguments": "x"}]}]}`,
		"tool_calls of the user":                                          head + `{"step_id": 1, "source": "user", "message": "", "tool_calls": [{"tool_call_id": "c"}]}]}`,
		"the files hold no step of an agent":                              head + `{"step_id": 1, "source": "user", "message": "a"}]}`,
	} {
		write(text)
		_, _, err := command(t, "import", "--output", out, "atif", in)
		require.ErrorContains(t, err, says)
		require.NoFileExists(t, out)
	}
	for says, args := range map[string][]string{
		`no format "csv" to import; allowed: [atif]`: {"import", "csv", in},
		"needs --output":               {"import", "atif", in},
		"takes a format and the files": {"import", "atif"},
		"no-such-file":                 {"import", "--output", out, "atif", filepath.Join(dir, "no-such-file")},
	} {
		_, _, err := command(t, args...)
		require.ErrorContains(t, err, says)
	}
	_, _, err = command(t, "export", "--out", dir, filepath.Join("..", "docs", "curves", "none.jsonl"), "atif")
	require.Error(t, err)
}

// An import ends with the first signal, whether it reads or writes then, and leaves no file.
func TestAnImportIsEnded(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.json"), filepath.Join(dir, "out.jsonl")
	require.NoError(t, os.WriteFile(in, []byte(`{"schema_version": "ATIF-v1.8", "agent": {"name": "x", "version": "1"}, "steps": [{"step_id": 1, "source": "agent", "message": "a"}]}`), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Program{In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard}.Run(ctx, []string{"agentfly", "import", "atif", in, "--output", out})
	require.ErrorIs(t, err, orchestrator.ErrStopped)
	require.NoFileExists(t, out)
}
