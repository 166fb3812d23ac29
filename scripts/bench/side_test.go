package bench_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// burn keeps one CPU busy until the test ends.
func burn(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ctx.Err() == nil; n++ { // Err takes a lock: this is work
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// What a benchmark measured while other work took a CPU is refused, and its figures are not kept; what it measured within the
// bound is kept.
func TestABenchmarkBesideOtherWorkIsRefused(t *testing.T) {
	if _, err := os.Stat("/proc/stat"); err != nil {
		t.Skip("no /proc/stat: the benchmarks run on Linux")
	}
	burn(t)
	lines := filepath.Join(t.TempDir(), "lines")
	side := func(others string, command string) (string, error) {
		c := exec.Command("python3", "../bench_side.py", lines, "the tortoise", "sh", "-c", command)
		c.Env = append(os.Environ(), "BENCH_OTHERS="+others, "BENCH_TRIES=2")
		out, err := c.CombinedOutput()
		return string(out), err
	}
	const work = `sleep 0.5; echo decode at 1 sequences: 7; echo '{"value": 7}'; echo '{"value": 8}' >>"$BENCH_SIDE_LINES"`
	out, err := side("0.3", work)
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, out)
	require.Equal(t, 3, exit.ExitCode(), out)
	require.Regexp(t, `bench: not comparable: while the tortoise ran, other work took \d+\.\d\d CPUs, more than 0\.3 \(BENCH_OTHERS\); try 1 of 2\n.*try 2 of 2\n`, out)
	require.Contains(t, out, "bench: refused: the machine is not idle")
	require.NoFileExists(t, lines)

	out, err = side("1000", work)
	require.NoError(t, err, out)
	require.Contains(t, out, "decode at 1 sequences: 7")
	kept, err := os.ReadFile(lines)
	require.NoError(t, err)
	require.Equal(t, "{\"value\": 7}\n{\"value\": 8}\n", string(kept))

	out, err = side("1000", "echo broken; exit 5")
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 5, exit.ExitCode())
	require.Contains(t, out, "broken")
}

// Rounds that do not agree are refused, and no page is written.
func TestABenchmarkWhoseRoundsLieApartIsRefused(t *testing.T) {
	page, err := os.ReadFile("../../docs/performance.md")
	require.NoError(t, err)
	table := func(values ...string) (string, error) {
		lines := filepath.Join(t.TempDir(), "lines")
		var text strings.Builder
		for _, v := range values {
			text.WriteString(`{"engine": "agentfly", "dtype": "float32", "what": "decode", "sequences": 8, "value": ` + v + "}\n")
			text.WriteString(`{"engine": "agentfly", "dtype": "float32", "what": "decode_spread", "sequences": 8, "value": ` + v + "}\n")
		}
		require.NoError(t, os.WriteFile(lines, []byte(text.String()), 0o600))
		c := exec.Command("python3", "../bench_table.py", "engine", lines, "0.1", "x")
		c.Env = append(os.Environ(), "BENCH_DRY=1")
		out, err := c.CombinedOutput()
		return string(out), err
	}
	out, err := table("1621", "1700", "9518")
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, out)
	require.Equal(t, 3, exit.ExitCode(), out)
	require.Contains(t, out, "bench: refused: rounds lie more than a factor of 1.25 apart")
	require.Contains(t, out, "agentfly float32 decode 8 sequences: rounds from 1621 to 9518 tokens/s")
	out, err = table("1621", "1700", "1950")
	require.NoError(t, err, out)
	require.Contains(t, out, "| decode, float32 | 8 | 1700 |")
	now, err := os.ReadFile("../../docs/performance.md")
	require.NoError(t, err)
	require.Equal(t, string(page), string(now))
}
