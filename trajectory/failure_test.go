package trajectory

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
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
	tr := Trajectory{ID: "x", StopReason: StopAnswer}
	require.False(t, tr.Failed())
	tr.Fail(OriginTeacher, "no")
	require.True(t, tr.Failed())
	require.Equal(t, Trajectory{ID: "x", StopReason: StopAnswer, Err: "no", ErrOrigin: OriginTeacher, Failure: FailureInfrastructure}, tr)
}

// The lists of what a trajectory or a call may say have every constant of the source.
func TestListsAreWhole(t *testing.T) {
	written := map[string][]string{}
	for _, name := range []string{"failure.go", "trajectory.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
				kind, named := spec.Type.(*ast.Ident)
				value, literal := spec.Values[0].(*ast.BasicLit)
				if named && literal {
					text, err := strconv.Unquote(value.Value)
					require.NoError(t, err)
					written[kind.Name] = append(written[kind.Name], text)
				}
			}
			return true
		})
	}
	require.Equal(t, written["Origin"], texts(Origins()))
	require.Equal(t, written["Cause"], texts(Causes()))
	require.Equal(t, written["StopReason"], texts(StopReasons()))
}

func texts[T ~string](all []T) (out []string) {
	for _, one := range all {
		out = append(out, string(one))
	}
	return out
}
