package cli

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/internal/terminal"
	"github.com/agentfly/agentfly/orchestrator"
	"github.com/agentfly/agentfly/trainer/memory"
)

func (c jobCommands) memoryCommand() *cli.Command {
	return &cli.Command{
		Name: "memory", Usage: "print what training a job needs on each rank, and whether it fits", ArgsUsage: "JOB", Action: c.memory,
		Description: "Of the model it reads config.json alone, so that a job can be planned before its weights are here.",
		Flags: []cli.Flag{
			setFlag(), &cli.IntFlag{Name: "ranks", Value: 1, Usage: "processes that train"},
			&cli.StringFlag{Name: "device-memory", Usage: "plan for a CUDA device of so much memory, such as 140GB or 80GiB, that need not be here: `SIZE`"},
			&cli.BoolFlag{Name: "json", Usage: "print JSON"},
		},
	}
}

func (c jobCommands) memory(x *cli.Context) error {
	if x.Int("ranks") < 1 {
		return usagef("--ranks is %d; allowed: 1 or more", x.Int("ranks"))
	}
	o := orchestrator.MemoryOptions{Ranks: x.Int("ranks")}
	if x.IsSet("device-memory") {
		var ok bool
		if o.Device, ok = size(x.String("device-memory")); !ok {
			return usagef("--device-memory %s: allowed: a number above 0 with GB, GiB, MB or MiB, such as 140GB", x.String("device-memory"))
		}
	}
	j, err := c.load(x)
	if err != nil {
		return err
	}
	m, err := orchestrator.PlanMemory(x.Context, j, c.registries, o)
	if err != nil {
		return err
	}
	if x.Bool("json") {
		encoder := json.NewEncoder(c.out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(m)
	}
	return c.printMemory(m)
}

// size reads a number of bytes with its unit.
func size(text string) (int64, bool) {
	for unit, bytes := range map[string]float64{"GB": 1e9, "GiB": 1 << 30, "MB": 1e6, "MiB": 1 << 20} {
		if number, ok := strings.CutSuffix(text, unit); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
			return int64(n * bytes), err == nil && n > 0 && n*bytes >= 1 && n*bytes < math.MaxInt64/2
		}
	}
	return 0, false
}

func (c jobCommands) printMemory(m orchestrator.Memory) error {
	rows := [][]string{{"part", ">bytes", "where", "ranks", "kind", "how"}}
	for _, p := range m.Parts {
		kind := "at most"
		if p.Exact {
			kind = "exact"
		}
		if p.During != "" {
			kind += " *"
		}
		rows = append(rows, []string{p.Name, memory.GB(p.Bytes), p.Place, p.Ranks, kind, p.How})
	}
	lines := table(rows, terminal.Width(c.out))
	for _, p := range m.Parts {
		if p.During != "" {
			lines = append(lines, "* there for a time: of these only the one that needs most counts")
			break
		}
	}
	lines = append(lines, "")
	for _, p := range m.Places {
		of := "of each rank"
		if p.Place == memory.Host {
			of = fmt.Sprintf("of %d rank(s)", m.Ranks)
		}
		has := "unknown"
		if p.Has.Bytes > 0 {
			has = fmt.Sprintf("%s has %s", p.Has.Of, memory.GB(p.Has.Bytes))
		}
		lines = append(lines, fmt.Sprintf("%s memory %s: %s exact, up to %s in all; %s; fits: %s", p.Place, of, memory.GB(p.Need.Exact), memory.GB(p.Need.Most), has, p.Fits))
		for _, r := range p.Remedies {
			after := ""
			if p.Has.Bytes > 0 && r.After.Most <= p.Has.Bytes {
				after = ", and fits"
			}
			lines = append(lines, fmt.Sprintf("  %s saves %s (%s)%s", r.Change, memory.GB(r.Saves.Most), r.But, after))
		}
	}
	for _, note := range m.Notes {
		lines = append(lines, "note: "+note)
	}
	_, err := fmt.Fprintln(c.text, strings.Join(lines, "\n"))
	return err
}
