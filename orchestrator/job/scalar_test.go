package job

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What an error says to write is accepted where it is written.
func TestWhatAnErrorSaysToWriteIsAllowed(t *testing.T) {
	for given, want := range map[string]string{
		"seed=1.5": "", "seed=99999999999999999999": "", "seed=1e3": "; write 1000", "seed=4k": "; write 4000", "seed=1,024": "; write 1024", "seed=-1k": "",
		"trainer.learning_rate=nan": "", "trainer.learning_rate=inf": "", "trainer.learning_rate=0,5": "; write 0.5", "trainer.learning_rate='0.5'": "; write 0.5",
		"trainer.learning_rate=3,0e-5": "; write 0.00003", "rollout.temperature=0,7": "; write 0.7", "rollout.temperature=0,500": "; write 0.5", "rollout.temperature=-0,7": "",
		"rollout.temperature=0,7,5": "", "rollout.temperature=1.0,5": "", "seed=1,5": "", "seed=1,024,000": "; write 1024000", "seed=1,024.0": "; write 1024", "seed=10,24,000": "",
		"seed=1,0245": "", "seed=1,024k": "; write 1024000", "seed=1'024": "; write 1024",
		"rollout.timeout=90s": "; write the seconds alone: 90",
	} {
		_, err := Parse("job.yaml", []byte("version: 1\n"), Options{Set: []string{given}})
		var wrong *Error
		require.ErrorAs(t, err, &wrong, given)
		at := ""
		for _, line := range wrong.Lines {
			if len(line) > 6 && line[:6] == "--set " {
				at = line
			}
		}
		if want == "" {
			require.NotContains(t, at, "; write", given)
		} else {
			require.True(t, strings.HasSuffix(at, want), at)
		}
	}
}
