// Package export writes the curves of runs in formats that other programs read: TensorBoard's event files, CSV and JSON lines.
//
// It does not own the curves (package orchestrator/overview reads them) and reads no trajectories: `agentfly inspect trajectory` prints those.
package export

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/agentfly/agentfly/orchestrator/overview"
)

// Curves are the metrics of a run by name.
type Curves struct {
	Run     string
	Metrics overview.Metrics
	Began   time.Time // the first step is that much later than seconds/elapsed says
}

// Format writes curves into a file.
type Format struct {
	Name        string
	Description string
	File        func(c Curves) string // the name of its file in the output folder
	Write       func(w io.Writer, c Curves) error
}

var formats = []Format{
	{"tensorboard", "an event file for TensorBoard, and for W&B by `wandb sync`", eventFile, writeEvents},
	{"csv", "a line for each step and metric", func(c Curves) string { return c.Run + ".csv" }, writeCSV},
	{"jsonl", "a JSON object for each step and metric", func(c Curves) string { return c.Run + ".jsonl" }, writeLines},
}

// Formats are all formats, in the order of the help.
func Formats() []Format { return slices.Clone(formats) }

// Lookup is the format of a name.
func Lookup(name string) (Format, error) {
	var names []string
	for _, f := range formats {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	return Format{}, fmt.Errorf("there is no format %q; allowed: %v", name, names)
}

// point is one number of a run.
type point struct {
	Run    string  `json:"run"`
	Metric string  `json:"metric"`
	Step   int     `json:"step"`
	Value  float64 `json:"value"`
}

// each calls f for every number, metric by metric.
func (c Curves) each(f func(p point) error) error {
	for _, key := range c.Metrics.Keys() {
		curve := c.Metrics[key]
		for i, step := range curve.Steps {
			if err := f(point{c.Run, key, step, curve.Values[i]}); err != nil {
				return err
			}
		}
	}
	return nil
}

func writeCSV(w io.Writer, c Curves) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{"run", "metric", "step", "value"}) // Flush tells
	_ = c.each(func(p point) error {
		return out.Write([]string{p.Run, p.Metric, strconv.Itoa(p.Step), strconv.FormatFloat(p.Value, 'g', -1, 64)})
	})
	out.Flush()
	return out.Error()
}

func writeLines(w io.Writer, c Curves) error {
	e := json.NewEncoder(w)
	return c.each(func(p point) error { return e.Encode(p) })
}
