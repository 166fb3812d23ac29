package export

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/agentfly/agentfly/orchestrator/store"
)

var parquetFile = Format{
	Name: "parquet", Description: "the trajectories with their tokens as a table, for pandas, datasets and DuckDB", Trajectories: true,
	File: func(r Run) string { return r.Name + ".parquet" }, Write: writeParquet,
}

// parquetRow is a trajectory. Maps are lists of names and values: the library datasets refuses a map.
type parquetRow struct {
	ID          string           `parquet:"id"`
	Phase       string           `parquet:"phase,dict"`
	Step        int64            `parquet:"step"`
	Group       int64            `parquet:"group"`
	Index       int64            `parquet:"index"`
	Task        string           `parquet:"task"`
	Fields      string           `parquet:"task_fields"` // JSON
	Reward      *float64         `parquet:"reward"`      // of the trajectory and its turns; null: it failed
	RewardParts []parquetPart    `parquet:"reward_parts,list"`
	Stop        string           `parquet:"stop_reason,dict"`
	Error       string           `parquet:"error"`
	Seconds     float64          `parquet:"seconds"`
	Messages    []parquetMessage `parquet:"messages,list"`
	Samples     []parquetSample  `parquet:"samples,list"`
}

type parquetPart struct {
	Name  string  `parquet:"name"`
	Value float64 `parquet:"value"`
}

type parquetMessage struct {
	Role    string        `parquet:"role"`
	Content string        `parquet:"content"`
	Calls   []parquetCall `parquet:"calls,list"`
	Thought string        `parquet:"reasoning"` // "": none, or the content has it as the model wrote it
}

type parquetCall struct {
	Name      string `parquet:"name"`
	Arguments string `parquet:"arguments"` // JSON
	Result    string `parquet:"result"`
	Failed    bool   `parquet:"failed"`
}

// parquetSample is a token sequence. What an update added is that of the newest one; empty: the sample was not trained.
type parquetSample struct {
	TokenIDs   []int32   `parquet:"token_ids,list"`
	Mask       []bool    `parquet:"response_mask,list"`
	Sampling   []float32 `parquet:"sampling_logprobs,list"`
	Versions   []int32   `parquet:"policy_version,list"`
	Old        []float32 `parquet:"old_logprobs,list"`
	Advantages []float32 `parquet:"advantages,list"`
	Entropy    []float32 `parquet:"entropy,list"` // nats, of the trainer's distribution before the update; empty too where an older program trained
}

// writeParquet writes groups of rows, so that a run of any size fits in memory.
func writeParquet(ctx context.Context, to io.Writer, r Run) (err error) {
	w := parquet.NewGenericWriter[parquetRow](to, parquet.Compression(&parquet.Zstd), parquet.MaxRowsPerRowGroup(1000))
	defer func() { err = errors.Join(err, w.Close()) }()
	return r.Trajectories(ctx, func(record store.Record) error {
		row, err := parquetOf(record)
		if err != nil {
			return err
		}
		_, err = w.Write([]parquetRow{row})
		return err
	})
}

func parquetOf(record store.Record) (parquetRow, error) {
	t, text := record.Trajectory, func(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
	fields, err := json.Marshal(record.Task.Fields)
	if err != nil {
		return parquetRow{}, err
	}
	row := parquetRow{
		ID: text(t.ID), Phase: text(record.Phase), Step: int64(t.Step), Group: int64(t.Group), Index: int64(t.Index), Task: text(t.TaskID), Fields: string(fields),
		Stop: text(string(t.StopReason)), Error: text(t.Err), Seconds: t.Seconds,
	}
	paid, parts, ok := rewards(t)
	if ok {
		row.Reward = &paid
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		row.RewardParts = append(row.RewardParts, parquetPart{text(name), parts[name]})
	}
	for _, l := range conversation(record) {
		m := parquetMessage{Role: text(l.Role), Content: text(l.Text), Thought: text(l.Thought)}
		for _, c := range l.Calls {
			arguments, err := json.Marshal(c.Arguments)
			if err != nil {
				return parquetRow{}, err
			}
			m.Calls = append(m.Calls, parquetCall{text(c.Name), string(arguments), text(c.Result), c.Failed})
		}
		row.Messages = append(row.Messages, m)
	}
	for k, s := range t.Samples {
		one := parquetSample{TokenIDs: s.TokenIDs, Mask: s.ResponseMask, Sampling: s.SamplingLogprobs, Versions: s.PolicyVersion}
		for _, u := range record.Updates {
			if u.Sample == k {
				one.Old, one.Advantages, one.Entropy = u.OldLogprobs, u.Advantages, u.Entropy
			}
		}
		row.Samples = append(row.Samples, one)
	}
	return row, nil
}
