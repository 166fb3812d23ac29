package recovery

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/report"
)

// A run that was finished and went on to more steps keeps the line of its first end.
func TestMetricsKeepTheLineOfAnEarlierEnd(t *testing.T) {
	var state checkpoint.State
	state.Evaluations = report.Evaluations{{Name: "after", Step: 10}, {Name: "after", Step: 20}}
	var p Recovered
	lines, unknown, err := p.metricsLines([]byte(`{"step":10,"eval":{"name":"after","step":10}}`+"\n"+`{"step":15,"eval":{"name":"step-15","step":15}}`+"\n"), &state)
	require.NoError(t, err)
	require.Empty(t, unknown)
	require.Len(t, lines, 2)
	require.Equal(t, `{"step":10,"eval":{"name":"after","step":10}}`+"\n", string(lines[0].text))
	require.Contains(t, string(lines[1].text), `"name":"after","step":20`)
}

// Steps are counted from 1, as on the console. metrics.jsonl of an older program, which counted them from 0, is written anew.
func TestMetricsOfAnOlderProgramAreCountedFromOne(t *testing.T) {
	state := checkpoint.State{Totals: report.Totals{Evaluations: report.Evaluations{{Name: "step-1", Step: 1}}}}
	p := Recovered{Steps: map[int]map[string]float64{0: {"reward/mean": 0.5}, 1: {"reward/mean": 0.25}, 2: {"reward/mean": 1}}}
	const want = `{"reward/mean":0.5,"skipped":"a \"step\":0","step":1}` + "\n" + `{"step":1,"eval":{"name":"step-1","step":1}}` + "\n" +
		`{"reward/mean":0.25,"step":2}` + "\n" + `{"reward/mean":1,"step":3}` + "\n"
	const older = `{"reward/mean":0.5,"skipped":"a \"step\":0","step":0}` + "\n" + `{"step":1,"eval":{"name":"step-1","step":1}}` + "\n" +
		`{"reward/mean":0.25,"step":1}` + "\n" + `{"reward/mean":1,"step":2}` + "\n"
	for _, text := range []string{want, older, older[:len(older)-20], want[:len(want)-20]} { // a kill cuts the last line
		lines, unknown, err := p.metricsLines([]byte(text), &state)
		require.NoError(t, err)
		require.Empty(t, unknown)
		got := ""
		for _, l := range lines {
			got += string(l.text)
		}
		require.Equal(t, want, got)
	}
	delete(p.Steps, 2)
	for _, text := range []string{want, older} {
		_, unknown, err := p.metricsLines([]byte(text), &state)
		require.NoError(t, err)
		require.Equal(t, []int{3}, unknown)
	}
}
