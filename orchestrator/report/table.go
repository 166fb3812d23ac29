package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/agentfly/agentfly/internal/terminal"
	"github.com/agentfly/agentfly/trajectory"
)

// mostLines of a table: a field with more values (an id) is none to group by.
const mostLines = 50

// noValue is the line of tasks without the field.
const noValue = "(none)"

// table scores the tasks by the values of the field; nothing where there is one value, or too many.
func (c Scoring) table(groups []trajectory.Group) (by string, lines map[string]Score) {
	byValue := map[string][]trajectory.Group{}
	for _, g := range groups {
		value := noValue
		if v, ok := g.Task.Fields[c.By]; ok && v != nil {
			value = fmt.Sprint(v)
		}
		byValue[value] = append(byValue[value], g)
	}
	if len(byValue) < 2 || len(byValue) > mostLines {
		return "", nil
	}
	lines = map[string]Score{}
	for value, some := range byValue {
		lines[value] = c.of(some)
	}
	return c.By, lines
}

// Table lays an evaluation out, a line for each value of the field and one for all. It is empty where the one line of
// String says everything.
func (e Evaluation) Table() []string {
	if len(e.Sources) == 0 && len(e.Pass) == 0 {
		return nil
	}
	ks := slices.SortedFunc(maps.Keys(e.Pass), func(a, b string) int {
		x, _ := strconv.Atoi(a)
		y, _ := strconv.Atoi(b)
		return cmp.Compare(x, y)
	})
	head := []string{cmp.Or(e.By, "tasks of"), "tasks", "reward", "right"}
	for _, k := range ks {
		head = append(head, "pass@"+k)
	}
	rows := [][]string{append(head, "failed")}
	for _, value := range slices.Sorted(maps.Keys(e.Sources)) {
		rows = append(rows, e.Sources[value].row(value, ks))
	}
	return aligned(append(rows, Score{e.Tasks, e.reward(), &e.Accuracy, e.Pass, e.Failed}.row("all", ks)))
}

// row lays a line out. What no trajectory tells, because all failed or the job has no rewards, is a dash.
func (s Score) row(name string, ks []string) []string {
	out := []string{name, strconv.Itoa(s.Tasks), shown("%.3f", s.Reward), "-"}
	if s.Accuracy != nil {
		out[3] = fmt.Sprintf("%.1f%%", 100**s.Accuracy)
	}
	for _, k := range ks {
		cell := "-"
		if p, ok := s.Pass[k]; ok {
			cell = fmt.Sprintf("%.3f", p)
		}
		out = append(out, cell)
	}
	return append(out, strconv.Itoa(s.Failed))
}

// aligned pads the columns: names on the left, numbers on the right.
func aligned(rows [][]string) []string {
	width := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, cell := range r {
			width[i] = max(width[i], terminal.ColumnsOf(cell))
		}
	}
	var out []string
	for _, r := range rows {
		var b strings.Builder
		for i, cell := range r {
			pad := strings.Repeat(" ", width[i]-terminal.ColumnsOf(cell))
			switch i {
			case 0:
				b.WriteString(cell + pad)
			default:
				b.WriteString("  " + pad + cell)
			}
		}
		out = append(out, b.String())
	}
	return out
}

// Lines are what a run says of an evaluation: one line and its table.
func (e Evaluation) Lines() []string {
	out := []string{"evaluation   " + e.String()}
	for _, line := range e.Table() {
		out = append(out, "             "+line)
	}
	for _, line := range e.failures {
		out = append(out, "  "+line)
	}
	return out
}
