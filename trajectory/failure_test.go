package trajectory

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhoseDoingAFailureIs(t *testing.T) {
	for cause, want := range map[Cause]Failure{
		"": "", CauseParse: FailurePolicy, CauseUnknownTool: FailurePolicy, CauseBadArguments: FailurePolicy, CauseRaised: FailurePolicy,
		CauseLimit: FailurePolicy, CauseOff: FailurePolicy, CauseBroken: FailureInfrastructure, CauseInterrupted: FailureInfrastructure,
	} {
		require.Equal(t, want, cause.Failure(), cause)
		r := ToolResult{Call: ToolCall{Name: "calc"}, Retries: 1}
		r.Fail(cause, "Error: no")
		require.Equal(t, ToolResult{Call: ToolCall{Name: "calc"}, Retries: 1, Failed: true, Cause: cause, Failure: want, Observation: "Error: no"}, r)
	}
	require.Empty(t, Origin("").Failure())
	var ends []Origin
	for _, o := range Origins() {
		require.Equal(t, FailureInfrastructure, o.Failure(), o)
		if o.EndsRun() {
			ends = append(ends, o)
		}
	}
	require.True(t, slices.IsSorted(Origins()))
	require.Equal(t, []Origin{OriginStore, OriginWeights}, ends)
	tr := Trajectory{ID: "x", StopReason: StopCancelled}
	tr.Fail(OriginTeacher, "no")
	require.Equal(t, Trajectory{ID: "x", StopReason: StopCancelled, Err: "no", ErrOrigin: OriginTeacher, Failure: FailureInfrastructure}, tr)
}
