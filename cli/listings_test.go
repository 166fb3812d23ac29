package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
)

// The engines of a program stand beside those of every program, each with what it is.
func TestEnginesOfAProgramAreListed(t *testing.T) {
	var out bytes.Buffer
	p := Program{In: strings.NewReader(""), Out: &out, ErrOut: io.Discard}
	p.Registries.Engines = engines.NewRegistry()
	require.NoError(t, p.Registries.Engines.Add("mine", "answers from a table", func(context.Context, engines.Setup) (engines.Engine, error) {
		return nil, errors.New("a listing makes no engine")
	}))
	require.NoError(t, p.Run(t.Context(), []string{"agentfly", "engines", "list"}))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 4)
	for i, start := range []string{"local ", "mine             answers from a table", "openai ", "vllm "} {
		require.True(t, strings.HasPrefix(lines[i], start), "%q", lines[i])
	}
	out.Reset()
	p.Registries.Engines = nil
	require.NoError(t, p.Run(t.Context(), []string{"agentfly", "engines", "list"}), "a program without a registry has those of every program")
	require.Contains(t, out.String(), "vllm ")
}
