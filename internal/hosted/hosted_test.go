package hosted

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFixedSampling(t *testing.T) {
	for _, model := range []string{"o1", "o3-mini", "o4-mini", "gpt-5-mini", "gpt-5-chat-latest", "gpt-6-sol", "gpt-6-astra"} {
		require.True(t, FixedSampling(model), model)
	}
	for _, model := range []string{"gpt-4o", "hosted", "Qwen/Qwen3-8B", "gpt-6-of-ours"} {
		require.False(t, FixedSampling(model), model)
	}
}
