package orchestrator

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/report"
)

// Advice is given for the job that the run has: its epochs, and what it refuses.
func TestAdviceKnowsTheJob(t *testing.T) {
	for add, want := range map[string]report.Setup{
		"rewards: [final_answer]":                      {Dir: "d"},
		"rewards: [final_answer]\ndeterministic: true": {Dir: "d", NoAsync: true},
		"rewards: [final_answer]\nrollout: {mode: async, max_staleness: 1, cut: parse}\nalgorithm: {correction: {kind: tis_token}}": {Dir: "d", Overlaps: true, CutParse: true},
		"distill: {teacher: {path: m}}": {Dir: "d", NoAsync: true, Distill: true},
		"sft: {epochs: 40}":             {Dir: "d", NoAsync: true, SFT: true, Epochs: 40},
	} {
		j, err := job.Parse("x.yaml", []byte("version: 1\nname: x\nmodel: {path: m}\n"+add), job.Options{})
		require.NoError(t, err, add)
		a, err := job.Algorithm(j, algorithms.NewRegistry())
		require.NoError(t, err, add)
		require.Equal(t, want, setupOf("d", j, a), add)
	}
}
