package export

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"io"
	"strconv"
)

var csvLines = Format{Name: "csv", Description: "a line for each step and metric", File: func(r Run) string { return r.Name + ".csv" }, Write: writeCSV}

var jsonLines = Format{Name: "jsonl", Description: "a JSON object for each step and metric", File: func(r Run) string { return r.Name + ".jsonl" }, Write: writeLines}

func writeCSV(_ context.Context, w io.Writer, r Run) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{"run", "metric", "step", "value"}) // Flush tells
	_ = r.each(func(p point) error {
		return out.Write([]string{p.Run, p.Metric, strconv.Itoa(p.Step), strconv.FormatFloat(p.Value, 'g', -1, 64)})
	})
	out.Flush()
	return out.Error()
}

func writeLines(_ context.Context, w io.Writer, r Run) error {
	e := json.NewEncoder(w)
	return r.each(func(p point) error { return e.Encode(p) })
}
