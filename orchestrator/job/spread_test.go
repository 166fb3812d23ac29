package job_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
)

// Settings that would contradict the turns of data.spread are refused; beside balance and weights of sources it stands.
func TestSpreadAndItsContradictions(t *testing.T) {
	for data, want := range map[string]string{
		"{train: t.jsonl, balance: kind, spread: kind}":              "data.spread: kind is the field of data.balance: within one value of it there is no other to take turns with; name another field",
		"{train: t.jsonl, spread: s, curriculum: {by: mask_count}}":  "data.spread: data.curriculum orders the epochs already; leave one of the two out",
		"{run: runs/x, spread: story}\nsft: {}":                      "data.spread: sft deals conversations, not tasks; leave it out",
		"{train: [{path: a.jsonl, weight: 2}, b.jsonl], spread: s}":  "",
		"{train: t.jsonl, balance: kind, spread: story}":             "",
		"{train: [a.jsonl, b.jsonl], balance: source, spread: kind}": "",
	} {
		j, err := parse(strings.Replace(good, "data: {train: train.jsonl}", "data: "+data, 1), job.Options{})
		if err == nil {
			err = j.TrainingErrors()
		}
		if want == "" {
			require.NoError(t, err, data)
			require.NotEmpty(t, j.Data.Spread)
			continue
		}
		require.ErrorContains(t, err, want, data)
		require.NotContains(t, err.Error(), "\n", "one error")
	}
}
