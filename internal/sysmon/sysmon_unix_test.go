//go:build unix

package sysmon

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// rounds tells this test's program to be the one that may stand still: the tests themselves have timers.
const rounds = "SYSMON_TEST_ROUNDS"

func TestMain(m *testing.M) {
	switch os.Getenv(rounds) {
	case "":
		os.Exit(m.Run())
	case "awake":
		KeepAwake()
	}
	longest, err := longestRound(10 * time.Second)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Print(longest)
	os.Exit(0)
}

// longestRound has two goroutines send a byte to and fro by blocking calls, while the world is stopped at ever other moments. Without
// KeepAwake a round of a minute comes after about 10,000, in a second or two.
func longestRound(limit time.Duration) (time.Duration, error) {
	var there, back [2]int
	for _, p := range []*[2]int{&there, &back} {
		if err := syscall.Pipe(p[:]); err != nil {
			return 0, err
		}
	}
	go func() {
		b := make([]byte, 1)
		for {
			if _, err := syscall.Read(there[0], b); err != nil {
				return
			}
			if _, err := syscall.Write(back[1], b); err != nil {
				return
			}
		}
	}()
	var longest time.Duration
	var memory runtime.MemStats
	b := make([]byte, 1)
	for start, n := time.Now(), 0; time.Since(start) < limit; n++ {
		begin := time.Now()
		if _, err := syscall.Write(there[1], b); err != nil {
			return 0, err
		}
		for wait := begin.Add(time.Duration(n%40) * 50 * time.Nanosecond); time.Now().Before(wait); {
		}
		runtime.ReadMemStats(&memory) // stops the world
		if _, err := syscall.Read(back[0], b); err != nil {
			return 0, err
		}
		longest = max(longest, time.Since(begin))
	}
	return longest, nil
}

func longest(t *testing.T, mode string) time.Duration {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), rounds+"="+mode)
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
	d, err := time.ParseDuration(strings.TrimSpace(string(out)))
	require.NoError(t, err, string(out))
	return d
}

func TestAProcessThatIsKeptAwakeNeverStandsStill(t *testing.T) {
	require.Less(t, longest(t, "awake"), 20*time.Second, "without KeepAwake it is a minute")
}

// When this fails, Go is mended: then this package can go.
func TestGoStandsStill(t *testing.T) {
	if os.Getenv("AGENTFLY_LONG") == "" {
		t.Skip("a minute, and chance has a part in it: run by AGENTFLY_LONG=1 go test ./internal/sysmon")
	}
	require.Greater(t, longest(t, "asleep"), 30*time.Second)
}
