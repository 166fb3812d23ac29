// Package export writes runs in formats that other programs read: curves for TensorBoard, W&B and spreadsheets, trajectories for Inspect's
// viewer and as ATIF. It reads ATIF files of others, too: as conversations to learn from.
//
// A format is one file of this package and its line in the list of formats. It does not read what a run folder holds itself (package orchestrator/overview does).
package export

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/agentfly/agentfly/internal/wording"
	"github.com/agentfly/agentfly/orchestrator/overview"
	"github.com/agentfly/agentfly/orchestrator/store"
)

// Run is what is exported.
type Run struct {
	Name      string
	Model     string         // "" where it is not known
	Algorithm string         // "" where it is not known
	State     overview.State // "" where it is not known
	Began     time.Time      // the first step is that much later than seconds/elapsed says
	ID        string         // no other run has it; "": an older program began the run, or there are curves alone
	Metrics   overview.Metrics

	// Sent is what an earlier Send to the same server left there, so that it is not asked for it again; Send keeps it. nil: the server is asked.
	Sent Sent

	// Trajectories calls f for every stored trajectory; nil: there are curves alone.
	Trajectories func(ctx context.Context, f func(store.Record) error) error
}

// Sent are the newest values by the server's name of the metric and by step.
type Sent map[string]map[int]sentValue

type sentValue struct {
	value     float64
	timestamp int64 // milliseconds
}

// Format writes a run for another program. One of Write, Build and Send is set.
type Format struct {
	Name         string
	Description  string
	Trajectories bool                                                              // it is made of trajectories: curves alone do not do
	File         func(r Run) string                                                // its path in the output folder, the same for the same run
	Write        func(ctx context.Context, w io.Writer, r Run) error               // the file's content
	Build        func(ctx context.Context, path string, r Run) error               // the file, which is there and empty
	Send         func(ctx context.Context, to string, r Run) (sent int, err error) // to a server; a second time what is new
}

// formats are in the order of the help.
var formats = []Format{tensorboard, csvLines, jsonLines, inspectLog, atif, parquetFile, trackio, wandb, mlflow, otlp}

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
	return Format{}, fmt.Errorf("there is no format %q; allowed: %s%s", name, strings.Join(names, ", "), wording.DidYouMean(name, names))
}

// point is one number of a run.
type point struct {
	Run    string  `json:"run"`
	Metric string  `json:"metric"`
	Step   int     `json:"step"`
	Value  float64 `json:"value"`
}

// each calls f for every number, metric by metric.
func (r Run) each(f func(p point) error) error {
	for _, key := range r.Metrics.Keys() {
		curve := r.Metrics[key]
		for i, step := range curve.Steps {
			if err := f(point{r.Name, key, step, curve.Values[i]}); err != nil {
				return err
			}
		}
	}
	return nil
}

// steps are all steps with their numbers by name, in order.
func (r Run) steps() (order []int, values map[int]map[string]float64) {
	values = map[int]map[string]float64{}
	_ = r.each(func(p point) error {
		if values[p.Step] == nil {
			values[p.Step] = map[string]float64{}
		}
		values[p.Step][p.Metric] = p.Value
		return nil
	})
	return slices.Sorted(maps.Keys(values)), values
}

// at is when a step ended.
func (r Run) at(step int) time.Time {
	if seconds := r.Metrics["seconds/elapsed"].At(step); seconds != nil {
		return r.Began.Add(time.Duration(*seconds * float64(time.Second)))
	}
	return r.Began
}

// ended is when the last step ended.
func (r Run) ended() time.Time {
	order, _ := r.steps()
	if len(order) == 0 {
		return r.Began
	}
	return r.at(order[len(order)-1])
}

// identity is what servers know a run by: the same for the same run, however often it is sent. A copy of a run folder under another name is another run.
func (r Run) identity() string {
	identity := fmt.Sprintf("%s-%d", safe(r.Name), r.Began.Unix())
	if r.ID != "" {
		identity += "-" + r.ID
	}
	return identity
}

// safe is a name of letters, digits, - and . alone, for files whose readers take names apart.
func safe(name string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' {
			return c
		}
		return '-'
	}, name)
}

// number is v where JSON can hold it, else its name: NaN, +Inf or -Inf.
func number(v float64) any {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return fmt.Sprint(v)
	}
	return v
}
