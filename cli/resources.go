package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/overview"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
)

// resources is the command that shows what a run lends to its trajectories.
func (e *env) resources() *cli.Command {
	return &cli.Command{
		Name: "resources", Usage: "show who holds and waits for the environments of a run", ArgsUsage: "RUN",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "one JSON object"}}, Action: e.showResources,
	}
}

func (e *env) showResources(x *cli.Context) error {
	dir, err := one(x, "the run folder")
	if err != nil {
		return err
	}
	if err := overview.Check(dir); err != nil {
		return job.InputError(err)
	}
	r, err := runfolder.ReadResources(dir)
	if err != nil {
		return err
	}
	now := time.Now()
	if x.Bool("json") {
		return e.print(struct {
			Running bool `json:"running"`
			runfolder.Resources
		}{r.Running(now), r})
	}
	return writeResources(e.text, r, now)
}

// writeResources is the text for people.
func writeResources(w io.Writer, r runfolder.Resources, now time.Time) error {
	var b strings.Builder
	at := r.Written.Local().Format(time.DateTime)
	switch {
	case r.Running(now):
		fmt.Fprintf(&b, "process %d on %s, %s ago\n", r.PID, r.Host, span(now.Sub(r.Written).Seconds()))
		now = r.Written
	case r.Ended:
		fmt.Fprintf(&b, "not running: it ended at %s\n", at)
	default:
		fmt.Fprintf(&b, "not running: process %d on %s was last heard of at %s, and said no end; what it held then stands below\n", r.PID, r.Host, at)
		now = r.Written
	}
	for _, p := range r.Pools {
		broken := ""
		if p.Broken {
			broken = "; none can be made"
		}
		fmt.Fprintf(&b, "%s: %d of %d in use, %d ready, %d starting, %d waiting%s\n", p.Name, p.InUse, p.Size, p.Ready, p.Starting, p.Waiting, broken)
		fmt.Fprintf(&b, "  leases %d, waited p50 %s p99 %s, held p50 %s p99 %s\n", p.Leases, span(p.Wait.P50), span(p.Wait.P99), span(p.Held.P50), span(p.Held.P99))
		fmt.Fprintf(&b, "  made %d, failed to make %d, replaced %d\n", p.Made, p.Failed, p.Replaced)
		if p.Reset != nil && p.Step != nil {
			fmt.Fprintf(&b, "  resets %d, p50 %s p99 %s; steps %d, p50 %s p99 %s\n", p.Reset.Count, span(p.Reset.P50), span(p.Reset.P99), p.Step.Count, span(p.Step.P50), span(p.Step.P99))
		}
		for _, what := range slices.Sorted(maps.Keys(p.Failures)) {
			fmt.Fprintf(&b, "  failed: %s %d\n", what, p.Failures[what])
		}
		list(&b, "held by", p.Holders, p.InUse, now)
		list(&b, "waiting", p.Queue, p.Waiting, now)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// list names those who hold or wait, of which there are all.
func list(b *strings.Builder, what string, named []runfolder.Holder, all int, now time.Time) {
	for _, h := range named {
		group := ""
		if h.Group != "" {
			group = " of group " + h.Group
		}
		fmt.Fprintf(b, "  %s %s%s for %s\n", what, h.Name, group, span(now.Sub(h.Since).Seconds()))
	}
	if more := all - len(named); more > 0 {
		fmt.Fprintf(b, "  %s %d more\n", what, more)
	}
}

// span is a time that people read.
func span(seconds float64) string {
	d := time.Duration(max(seconds, 0) * float64(time.Second))
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}
