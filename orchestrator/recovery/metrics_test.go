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
	state.Evaluations = report.Evaluations{{Name: "after", Step: 20}}
	p := Recovered{evals: map[string]bool{"after@10": true, "after@20": true}}
	lines, unknown, err := p.metricsLines([]byte(`{"step":10,"eval":{"name":"after","step":10}}`+"\n"+`{"step":15,"eval":{"name":"step-15","step":15}}`+"\n"), &state)
	require.NoError(t, err)
	require.Empty(t, unknown)
	require.Len(t, lines, 2)
	require.Equal(t, `{"step":10,"eval":{"name":"after","step":10}}`+"\n", string(lines[0].text))
	require.Contains(t, string(lines[1].text), `"name":"after","step":20`)
}
