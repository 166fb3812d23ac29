package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/agentfly/agentfly/internal/terminal"
)

// table lays rows out in columns, the first row being their names. Where they are wider than width (0: any), columns are left out from the right, and the
// first two are cut where they are wider still. A column's cells stand to the right where its name begins with >.
func table(rows [][]string, width int) []string {
	const between = 2
	columns := len(rows[0])
	wide, right := make([]int, columns), make([]bool, columns)
	for i, name := range rows[0] {
		rows[0][i], right[i] = strings.CutPrefix(name, ">")
	}
	for _, row := range rows {
		for i := range row {
			row[i] = terminal.Text(strings.ReplaceAll(row[i], "\n", " "))
			wide[i] = max(wide[i], terminal.ColumnsOf(row[i]))
		}
	}
	total := -between
	for i, w := range wide {
		if width > 0 && i > 1 && total+between+w > width {
			columns = i
			break
		}
		total += between + w
	}
	for i := 0; width > 0 && i < min(2, columns); i++ {
		cut := max(0, min(total-width, wide[i]-8))
		wide[i], total = wide[i]-cut, total-cut
	}
	var out []string
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row[:columns] {
			if terminal.ColumnsOf(cell) > wide[i] {
				cell = terminal.Cut(cell, wide[i]-1) + "…"
			}
			pad := strings.Repeat(" ", max(0, wide[i]-terminal.ColumnsOf(cell)))
			if i > 0 {
				b.WriteString(strings.Repeat(" ", between))
			}
			if right[i] {
				b.WriteString(pad + cell)
			} else {
				b.WriteString(cell + pad)
			}
		}
		out = append(out, strings.TrimRight(b.String(), " "))
	}
	return out
}

// ago is how long ago something was, as people say it.
func ago(t, now time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return "-"
	case d < 2*time.Second:
		return "now"
	default:
		return long(d) + " ago"
	}
}

// long is a time in its two largest units.
func long(d time.Duration) string {
	d = max(0, d)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}
