package agents

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/tools"
)

// What makes a format may panic: the error names the format.
func TestPanicsOfFactoriesAreErrors(t *testing.T) {
	r := NewFormats()
	require.NoError(t, r.Add("wild", func([]tools.Spec, FormatOptions) (Format, error) { panic("no grammar") }))
	require.NoError(t, r.Add("none", func([]tools.Spec, FormatOptions) (Format, error) { return nil, nil }))
	_, err := r.Make("wild", nil, FormatOptions{})
	require.Regexp(t, `^tools: format wild: its factory panicked: no grammar, at \S+panics_test\.go:\d+$`, err.Error())
	_, err = r.Make("none", nil, FormatOptions{})
	require.EqualError(t, err, "tools: format none: its factory returned no format")
}
