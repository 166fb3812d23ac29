package agents

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/tools"
)

// What makes a format may panic: the error names the format.
func TestPanicsOfFactoriesAreErrors(t *testing.T) {
	r := NewRegistry()
	require.NoError(t, r.AddFormat(FormatSpec{Name: "wild", New: func([]tools.Spec, FormatOptions) (Format, error) { panic("no grammar") }}))
	require.NoError(t, r.AddFormat(FormatSpec{Name: "none", New: func([]tools.Spec, FormatOptions) (Format, error) { return nil, nil }}))
	_, err := r.NewFormat("wild", nil, FormatOptions{})
	require.Regexp(t, `^agents: format wild: its factory panicked: no grammar, at \S+panics_test\.go:\d+$`, err.Error())
	_, err = r.NewFormat("none", nil, FormatOptions{})
	require.EqualError(t, err, "agents: format none: its factory returned no format")
}
