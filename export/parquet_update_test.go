package export

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// A row has what the newest update stored of each token.
func TestARowHasTheNewestUpdate(t *testing.T) {
	s := &trajectory.Sample{}
	s.AppendObservation([]int32{5})
	require.NoError(t, s.AppendResponse([]int32{7}, []float32{-0.5}, []int32{3}))
	row, err := parquetOf(store.Record{Trajectory: &trajectory.Trajectory{Samples: []*trajectory.Sample{s}}, Updates: []store.Update{
		{OldLogprobs: []float32{0, -9}, Advantages: []float32{0, 9}, Entropy: []float32{0, 9}},
		{Step: 1, OldLogprobs: []float32{0, -1}, Advantages: []float32{0, 1}, Entropy: []float32{0, 0.75}},
	}})
	require.NoError(t, err)
	require.Equal(t, []float32{0, -1}, row.Samples[0].Old)
	require.Equal(t, []float32{0, 1}, row.Samples[0].Advantages)
	require.Equal(t, []float32{0, 0.75}, row.Samples[0].Entropy)
}
