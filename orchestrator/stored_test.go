package orchestrator

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/checkpoint"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// A run whose model it makes itself has no tokenizer before its first checkpoint: until then the ids are shown, and that is said.
func TestDecoderTellsWhetherThereIsATokenizer(t *testing.T) {
	dir := t.TempDir()
	ids := []int32{5, 7}
	decode, found := Decoder(dir, nil)
	require.False(t, found)
	require.Equal(t, "[5 7]", decode(ids))
	require.NoError(t, os.CopyFS(checkpoint.LastOf(dir), os.DirFS("../examples/tiny/model")))
	decode, found = Decoder(dir, nil)
	require.True(t, found)
	require.NotEqual(t, "[5 7]", decode(ids))
}

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
