package orchestrator

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// A token that was sampled has the numbers of the newest update, and no entropy where an older program trained.
func TestInspectedTokensHaveWhatTheUpdateStored(t *testing.T) {
	s := &trajectory.Sample{}
	s.AppendObservation([]int32{5})
	require.NoError(t, s.AppendResponse([]int32{7, 8}, []float32{-0.5, -1.25}, []int32{3, 3}))
	u := store.Update{OldLogprobs: []float32{0, -1, -2}, Advantages: []float32{0, 1, 1}, Entropy: []float32{0, 0.5, 1.25}}
	r := store.Record{Trajectory: &trajectory.Trajectory{Samples: []*trajectory.Sample{s}}, Updates: []store.Update{u}}
	decode := func(ids []int32) string { return fmt.Sprint(ids) }
	got := Inspect(r, decode).Samples[0]
	require.Nil(t, got[0].Entropy)
	require.Equal(t, float32(0.5), *got[1].Entropy)
	require.Equal(t, float32(1.25), *got[2].Entropy)
	require.Equal(t, float32(-2), *got[2].OldLogprob)
	r.Updates[0].Entropy = nil
	got = Inspect(r, decode).Samples[0]
	require.Nil(t, got[2].Entropy)
	require.Equal(t, float32(1), *got[2].Advantage)
}
