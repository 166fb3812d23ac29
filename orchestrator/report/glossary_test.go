package report

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every key that is explained stands on docs/metrics.md, and every curve shows metrics that there are and says what the first means.
func TestGlossaryIsThePage(t *testing.T) {
	text, err := os.ReadFile(pageFile)
	require.NoError(t, err)
	known := map[string]bool{"eval/reward": true, "eval/accuracy": true, "eval/pass/K": true, "eval/loss": true, "eval/reverse_kl": true}
	for _, e := range Glossary() {
		require.Contains(t, string(text), "`"+e.Key+"`")
		require.NotEmpty(t, e.Doc, e.Key)
		require.NotEmpty(t, e.Section, e.Key)
		known[e.Key] = true
	}
	for key := range (Step{Rollouts: &Rollouts{}}).Map() {
		require.True(t, known[key], key)
	}
	require.Greater(t, len(Curves()), 11)
	for _, c := range Curves() {
		for _, key := range c.Keys {
			require.True(t, known[key], "%s: %s", c.Title, key)
		}
		require.NotEmpty(t, c.Means, c.Title)
		require.True(t, strings.HasPrefix(c.Worry, "Worry when "), c.Title)
	}
}
