package trajectory

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What is not trained is never too stale: frozen roles and discarded turns do not count, nor do trajectories that failed.
func TestLowestVersionIsThatOfWhatIsTrained(t *testing.T) {
	of := func(role Role, version int32) *Trajectory {
		s := &Sample{}
		s.AppendObservation([]int32{1})
		require.NoError(t, s.AppendResponse([]int32{2}, []float32{-1}, []int32{version}))
		return &Trajectory{Samples: []*Sample{s}, Turns: []Turn{{CompletionStart: 1, CompletionEnd: 2, ObservationEnd: 2, Role: role}}}
	}
	failed := of("", 0)
	failed.Fail(OriginEngine, "gone")
	g := Group{Trajectories: []*Trajectory{of("", 7), of("judge", 2), of(RoleDiscarded, 1), of("sub", 5), failed}}
	frozen := func(r Role) bool { return r == "judge" }
	require.EqualValues(t, 5, g.LowestVersion(frozen))
	require.EqualValues(t, 2, g.LowestVersion(nil))
	require.EqualValues(t, -1, Group{Trajectories: g.Trajectories[1:3]}.LowestVersion(frozen))
	require.Same(t, g.Trajectories[0].Samples[0], g.Trajectories[0].Trained(frozen).Samples[0])
}
