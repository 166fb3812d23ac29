package export

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/overview"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

func sample() Run {
	return Run{Name: "calc", Began: time.Unix(1_700_000_000, 0), Metrics: overview.Metrics{
		"reward/mean":     {Steps: []int{1, 2, 3}, Values: []float64{0.25, 0.5, 1}},
		"seconds/elapsed": {Steps: []int{1, 2, 3}, Values: []float64{1.5, 3, 4.5}},
		"eval/reward":     {Steps: []int{0, 3}, Values: []float64{0.125, 0.75}},
	}}
}

// readEvents reads an event file by the definition, field by field.
func readEvents(t *testing.T, b []byte) (events []map[string]any) {
	t.Helper()
	for len(b) > 0 {
		n := binary.LittleEndian.Uint64(b)
		require.Equal(t, masked(b[:8]), binary.LittleEndian.Uint32(b[8:]))
		body := b[12 : 12+n]
		require.Equal(t, masked(body), binary.LittleEndian.Uint32(b[12+n:]))
		b = b[16+n:]
		e := map[string]any{}
		require.Equal(t, byte(1<<3|1), body[0])
		e["time"] = math.Float64frombits(binary.LittleEndian.Uint64(body[1:]))
		require.Equal(t, byte(2<<3), body[9])
		step, k := binary.Uvarint(body[10:])
		e["step"] = int(step)
		rest := body[10+k:]
		size, k := binary.Uvarint(rest[1:])
		require.Len(t, rest[1+k:], int(size))
		switch rest[0] {
		case 3<<3 | 2:
			e["version"] = string(rest[1+k:])
		case 5<<3 | 2:
			for v := rest[1+k:]; len(v) > 0; {
				require.Equal(t, byte(1<<3|2), v[0])
				size, k := binary.Uvarint(v[1:])
				value := v[1+k : 1+k+int(size)]
				v = v[1+k+int(size):]
				require.Equal(t, byte(1<<3|2), value[0])
				length, k := binary.Uvarint(value[1:])
				tag := string(value[1+k : 1+k+int(length)])
				value = value[1+k+int(length):]
				require.Equal(t, byte(2<<3|5), value[0])
				e[tag] = math.Float32frombits(binary.LittleEndian.Uint32(value[1:]))
			}
		}
		events = append(events, e)
	}
	return events
}

func TestEventsAreTensorBoards(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, writeEvents(t.Context(), &b, sample()))
	require.Equal(t, []map[string]any{
		{"time": 1.7e9, "step": 0, "version": "brain.Event:2"},
		{"time": 1.7e9, "step": 0, "eval/reward": float32(0.125)},
		{"time": 1.7e9 + 1.5, "step": 1, "reward/mean": float32(0.25), "seconds/elapsed": float32(1.5)},
		{"time": 1.7e9 + 3, "step": 2, "reward/mean": float32(0.5), "seconds/elapsed": float32(3)},
		{"time": 1.7e9 + 4.5, "step": 3, "reward/mean": float32(1), "seconds/elapsed": float32(4.5), "eval/reward": float32(0.75)},
	}, readEvents(t, b.Bytes()))
	require.Equal(t, "events.out.tfevents.1700000000.calc", eventFile(sample()))
}

// The checksum of the format's documentation: CRC-32C of "123456789" is 0xe3069283, rotated right by 15 and shifted by a constant.
func TestMasked(t *testing.T) {
	c := uint32(0xe3069283)
	require.Equal(t, c>>15|c<<17, masked([]byte("123456789"))-0xa282ead8)
}

func TestTextsHoldEveryNumber(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, writeCSV(t.Context(), &b, sample()))
	rows, err := csv.NewReader(&b).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 9)
	require.Equal(t, []string{"run", "metric", "step", "value"}, rows[0])
	require.Equal(t, []string{"calc", "eval/reward", "0", "0.125"}, rows[1])
	b.Reset()
	require.NoError(t, writeLines(t.Context(), &b, sample()))
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	require.Len(t, lines, 8)
	var p point
	require.NoError(t, json.Unmarshal([]byte(lines[7]), &p))
	require.Equal(t, point{"calc", "seconds/elapsed", 3, 4.5}, p)
}

// Trackio's traces stand at the step of their curves: those that a step trains on, and those of an evaluation after it.
func TestTrackioCountsTracesAsCurves(t *testing.T) {
	r := sample()
	r.Trajectories = func(_ context.Context, f func(store.Record) error) (err error) {
		for i, one := range []struct {
			phase  string
			step   int
			reward float64
		}{
			{"train", 0, 0.25}, {"train", 1, 0.25}, {"train", 1, 0.75}, {"train", 2, 1}, {"eval-before", 0, 0.125}, {"eval-after", 3, 0.75},
		} {
			err = errors.Join(err, f(store.Record{Phase: one.phase, Trajectory: &trajectory.Trajectory{ID: fmt.Sprint(one.phase, i), Step: one.step, Reward: one.reward}}))
		}
		return err
	}
	path := filepath.Join(t.TempDir(), "calc.db")
	require.NoError(t, buildTrackio(t.Context(), path, r))
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), "SELECT metadata ->> 'phase', step, timestamp, avg(metadata ->> 'reward') FROM traces GROUP BY 1, 2")
	require.NoError(t, err)
	defer rows.Close()
	got := map[string]map[int]float64{"train": {}, "eval-before": {}, "eval-after": {}}
	for rows.Next() {
		var (
			phase, stamp string
			step         int
			mean         float64
		)
		require.NoError(t, rows.Scan(&phase, &step, &stamp, &mean))
		got[phase][step] = mean
		require.Equal(t, r.at(step).UTC().Format("2006-01-02T15:04:05.000000+00:00"), stamp)
	}
	require.NoError(t, rows.Err())
	require.Equal(t, map[string]map[int]float64{"train": {1: 0.25, 2: 0.5, 3: 1}, "eval-before": {0: 0.125}, "eval-after": {3: 0.75}}, got)
}

// Inspect knows four roles, and refuses a log with another; a sample that failed is not completed.
func TestInspectReadsEveryRole(t *testing.T) {
	r := sample()
	failed := &trajectory.Trajectory{ID: "b", StopReason: trajectory.StopError}
	failed.Fail(trajectory.OriginEngine, "gone")
	r.Trajectories = func(_ context.Context, f func(store.Record) error) error {
		prompt := []trajectory.Message{trajectory.Text("developer", "Be short."), trajectory.Text("user", "2 + 2?"), trajectory.Text("ipython", "4")}
		return errors.Join(f(store.Record{Task: trajectory.Task{Prompt: prompt}, Trajectory: &trajectory.Trajectory{ID: "a", Reward: 1}}), f(store.Record{Trajectory: failed}))
	}
	var b bytes.Buffer
	require.NoError(t, writeInspect(t.Context(), &b, r))
	var log struct {
		Results struct {
			Total     int `json:"total_samples"`
			Completed int `json:"completed_samples"`
		}
		Samples []inspectSample
	}
	require.NoError(t, json.Unmarshal(b.Bytes(), &log))
	var roles []string
	for _, m := range log.Samples[0].Messages {
		roles = append(roles, m.Role)
	}
	require.Equal(t, []string{"system", "user", "user"}, roles)
	require.Equal(t, "2 + 2?", log.Samples[0].Input)
	require.Equal(t, 2, log.Results.Total)
	require.Equal(t, 1, log.Results.Completed)
}

// A failed trajectory has no reward in any format, whatever its turns were paid before.
func TestAFailedTrajectoryHasNoReward(t *testing.T) {
	paid := 0.25
	failed := &trajectory.Trajectory{ID: "a", Reward: 0.5, RewardParts: map[string]float64{"right": 0.5}, Turns: []trajectory.Turn{{Completion: "4", Reward: &paid}}}
	failed.Fail(trajectory.OriginReward, "the judge is gone")
	record := store.Record{Phase: "train", Trajectory: failed}
	r := sample()
	r.Trajectories = func(_ context.Context, f func(store.Record) error) error { return f(record) }

	s := sampleOf(record, "m")
	require.Empty(t, s.Scores)
	require.NotContains(t, s.Metadata, "reward")
	d := atifOf(record, r)
	require.NotContains(t, d.Extra, "reward")
	require.NotContains(t, d.Extra, "reward_parts")
	spans := traceOf(record, r, false)
	require.Len(t, spans, 2, "the trajectory and its turn")
	for _, span := range spans {
		require.NotContains(t, valuesOf(span), "agentfly.reward", span.Name)
		require.NotContains(t, valuesOf(span), "agentfly.reward.right", span.Name)
	}
	row, err := parquetOf(record)
	require.NoError(t, err)
	require.Nil(t, row.Reward)
	require.Empty(t, row.RewardParts)

	metadata := trackioMetadata(t, r)
	require.NotContains(t, metadata, `"reward"`)
	require.Contains(t, metadata, "the judge is gone")
}

// trackioMetadata is that of the one trace that Trackio has of a run.
func trackioMetadata(t *testing.T, r Run) (metadata string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "calc.db")
	require.NoError(t, buildTrackio(t.Context(), path, r))
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT metadata FROM traces").Scan(&metadata))
	return metadata
}

// A recorded conversation has no reward in any format: nobody scored it. It did not fail either.
func TestARecordedConversationHasNoReward(t *testing.T) {
	record := store.Record{Phase: "sft", Trajectory: &trajectory.Trajectory{ID: "sft-0-0", StopReason: trajectory.StopRecorded}}
	r := sample()
	r.Trajectories = func(_ context.Context, f func(store.Record) error) error { return f(record) }
	var b bytes.Buffer
	require.NoError(t, writeInspect(t.Context(), &b, r))
	var log struct {
		Results struct {
			Completed int `json:"completed_samples"`
			Scores    []struct{ Metrics map[string]any }
		}
		Samples []inspectSample
	}
	require.NoError(t, json.Unmarshal(b.Bytes(), &log))
	require.Equal(t, 1, log.Results.Completed)
	require.Empty(t, log.Results.Scores[0].Metrics)
	require.Empty(t, log.Samples[0].Scores)
	require.NotContains(t, log.Samples[0].Metadata, "reward")
	require.Nil(t, log.Samples[0].Error)
	require.NotContains(t, atifOf(record, r).Extra, "reward")
	row, err := parquetOf(record)
	require.NoError(t, err)
	require.Nil(t, row.Reward)

	metadata := trackioMetadata(t, r)
	require.NotContains(t, metadata, `"reward"`)
	require.NotContains(t, metadata, `"error"`)
}

// The first call of an agent of another program holds the whole conversation: the task's prompt, which the agent put as it likes, does not stand
// before it a second time.
func TestAConversationHasItsPromptOnce(t *testing.T) {
	prompt := []trajectory.Message{trajectory.Text("user", "2 + 2?")}
	asked := func(whole bool, messages ...trajectory.Message) *trajectory.Incoming {
		raw, err := json.Marshal(messages)
		require.NoError(t, err)
		return &trajectory.Incoming{Whole: whole, Messages: raw}
	}
	system, user := trajectory.Text("system", "Be short."), trajectory.Text("user", "What is 2 + 2?")
	for name, c := range map[string]struct {
		turns []trajectory.Turn
		want  []string
	}{
		"nothing sampled": {nil, []string{"user: 2 + 2?"}},
		"own agent":       {[]trajectory.Turn{{Completion: "4"}}, []string{"user: 2 + 2?", "agent: 4"}},
		"other program":   {[]trajectory.Turn{{Completion: "4", Incoming: asked(true, system, user)}}, []string{"system: Be short.", "user: What is 2 + 2?", "agent: 4"}},
		"two calls": {
			[]trajectory.Turn{{Completion: "4", Incoming: asked(true, system, user)}, {Completion: "yes", Incoming: asked(false, trajectory.Text("user", "Sure?"))}},
			[]string{"system: Be short.", "user: What is 2 + 2?", "agent: 4", "user: Sure?", "agent: yes"},
		},
		"completion of a text": {[]trajectory.Turn{{Completion: "4", Incoming: asked(true)}}, []string{"user: 2 + 2?", "agent: 4"}},
	} {
		t.Run(name, func(t *testing.T) {
			record := store.Record{Task: trajectory.Task{Prompt: prompt}, Trajectory: &trajectory.Trajectory{ID: "a", Turns: c.turns}}
			var steps []string
			for _, s := range atifOf(record, sample()).Steps {
				steps = append(steps, s.Source+": "+string(s.Message))
			}
			require.Equal(t, c.want, steps)
		})
	}
}

// Every answer to what our policy wrote comes back as a tool's, also that to a call that could not be read: the agent's format writes them all.
func TestAnswersToOurCallsComeBack(t *testing.T) {
	call := trajectory.ToolResult{Call: trajectory.ToolCall{Name: "calculator", Arguments: []byte(`{}`)}, Observation: "4"}
	unread := trajectory.ToolResult{Observation: "Error: x"}
	record := store.Record{Task: trajectory.Task{Prompt: []trajectory.Message{trajectory.Text("user", "2 + 2?")}}, Trajectory: &trajectory.Trajectory{ID: "a", Turns: []trajectory.Turn{
		{Completion: "a", Results: []trajectory.ToolResult{call, unread}}, {Completion: "b"},
	}}}
	text, err := json.Marshal(atifOf(record, sample()))
	require.NoError(t, err)
	var said []string
	_, err = ReadATIF(t.Context(), bytes.NewReader(text), func(c Conversation) error {
		for _, m := range c.Messages {
			said = append(said, m.Role+" "+m.Name+": "+plain(m.Content))
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{"user : 2 + 2?", "assistant : a", "tool calculator: 4", "tool : Error: x", "assistant : b"}, said)
}

// What a tree shares is counted where it was sampled: sums over trajectories count each token once.
func TestSharedTokensAreCountedOnce(t *testing.T) {
	sampled := func(shared string, begun ...trajectory.Begun) trajectory.Turn {
		return trajectory.Turn{CompletionStart: 10, CompletionEnd: 18, CachedTokens: 4, Shared: shared, Begun: begun}
	}
	for name, c := range map[string]struct {
		turns                   []trajectory.Turn
		prompt, sampled, cached int
	}{
		"alone":               {[]trajectory.Turn{sampled(""), sampled("")}, 20, 16, 8},
		"shares its first":    {[]trajectory.Turn{sampled("other:0"), sampled("own:1")}, 10, 8, 4},
		"forks within a turn": {[]trajectory.Turn{sampled("own:0", trajectory.Begun{Shared: "other:0", End: 6})}, 16, 2, 4},
	} {
		t.Run(name, func(t *testing.T) {
			record := store.Record{Trajectory: &trajectory.Trajectory{ID: "own", Turns: c.turns}}
			require.Equal(t, &atifFinal{c.prompt, c.sampled, c.cached, len(c.turns)}, atifOf(record, sample()).Final)
			require.Equal(t, map[string]int{"input_tokens": c.prompt, "output_tokens": c.sampled, "total_tokens": c.prompt + c.sampled}, sampleOf(record, "m").Output.Usage)
		})
	}
}

// What a thinking model wrote before its content is in every format that has messages.
func TestThoughtsAreExported(t *testing.T) {
	said := trajectory.Text("assistant", "4")
	said.Reasoning = "2 and 2"
	record := store.Record{Task: trajectory.Task{Prompt: []trajectory.Message{trajectory.Text("user", "2 + 2?"), said}}, Trajectory: &trajectory.Trajectory{ID: "a"}}
	require.Equal(t, "2 and 2", atifOf(record, sample()).Steps[1].Thought)
	row, err := parquetOf(record)
	require.NoError(t, err)
	require.Equal(t, "2 and 2", row.Messages[1].Thought)
	messages, _ := trackioTrace(record)
	require.Equal(t, trackioMessage{Role: "assistant", Content: "4", Thought: "2 and 2"}, messages[1])
	text, err := json.Marshal(sampleOf(record, "m").Messages)
	require.NoError(t, err)
	require.JSONEq(t, `[{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": [{"type": "reasoning", "reasoning": "2 and 2"}, {"type": "text", "text": "4"}]}]`, string(text))
}

// An Inspect log ends with the last step, and its targets are written as answers are: a million without an exponent.
func TestInspectTellsEndAndTargets(t *testing.T) {
	r := sample()
	answers := []any{"4", 1e6, 0.5, []any{1.0, "b"}, nil, true}
	r.Trajectories = func(_ context.Context, f func(store.Record) error) (err error) {
		for _, v := range answers {
			err = errors.Join(err, f(store.Record{Task: trajectory.Task{Fields: map[string]any{"answer": v}}, Trajectory: &trajectory.Trajectory{}}))
		}
		return err
	}
	var b bytes.Buffer
	require.NoError(t, writeInspect(t.Context(), &b, r))
	var log struct {
		Stats   map[string]string
		Samples []inspectSample
	}
	require.NoError(t, json.Unmarshal(b.Bytes(), &log))
	require.Equal(t, map[string]string{"started_at": "2023-11-14T22:13:20Z", "completed_at": "2023-11-14T22:13:24Z"}, log.Stats)
	var targets []string
	for _, s := range log.Samples {
		targets = append(targets, s.Target)
	}
	require.Equal(t, []string{"4", "1000000", "0.5", `[1,"b"]`, "null", "true"}, targets)
}

// The address of a server may hold a password, which no error tells.
func TestNoErrorTellsAPassword(t *testing.T) {
	for _, address := range []string{"ftp://me:secret@tracker", "http://me:secret@tracker:port", "http://me:secret@127.0.0.1:1"} {
		for _, f := range []Format{mlflow, otlp} {
			r := sample()
			r.Trajectories = func(_ context.Context, f func(store.Record) error) error {
				return f(store.Record{Trajectory: &trajectory.Trajectory{}})
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := f.Send(ctx, address, r)
			cancel()
			require.Error(t, err)
			require.NotContains(t, err.Error(), "secret", f.Name)
		}
	}
}

func TestLookup(t *testing.T) {
	for _, f := range Formats() {
		found, err := Lookup(f.Name)
		require.NoError(t, err)
		require.Equal(t, f.Name, found.Name)
		ways := 0
		for _, set := range []bool{found.Write != nil, found.Build != nil, found.Send != nil} {
			if set {
				ways++
			}
		}
		require.Equal(t, 1, ways, f.Name)
		require.Equal(t, found.Send == nil, found.File != nil, f.Name)
	}
	_, err := Lookup("xml")
	require.ErrorContains(t, err, `there is no format "xml"; allowed: tensorboard, csv, jsonl, inspect, atif, parquet, trackio, wandb, mlflow`)
}
