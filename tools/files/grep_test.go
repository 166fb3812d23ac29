package files

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/agentfly/agentfly/trajectory"
	"github.com/stretchr/testify/require"
)

// Patterns of a model cost no more than they should: not in memory, nor in time.
func TestGrepPatterns(t *testing.T) {
	a := newAgent(t)
	require.NoError(t, os.WriteFile(filepath.Join(a.dir, "text"), []byte("a needle\nx\n"), 0o600))
	var before, after runtime.MemStats
	for pattern, want := range map[string]string{
		strings.Repeat("a", 1001):                           "Error: the pattern has 1001 bytes; at most 1000 are allowed",
		`((a{100}){10})*`:                                   "text:1: a needle\ntext:2: x",
		`((a{100}){10}){1}(b{999})(c{999})`:                 "Error: the pattern is too large once its repetitions are written out",
		strings.Repeat(`(\pL{1000})`, 90):                   "Error: the pattern is too large once its repetitions are written out",
		strings.Repeat(`(.{0,1000})`, 90):                   "Error: the pattern is too large once its repetitions are written out",
		strings.Repeat("(", 500) + strings.Repeat(")", 500): "text:1: a needle\ntext:2: x",
		`n(e{2})dl[a-f]`:                                    "text:1: a needle",
		`(?i)NEEDLE|\bx\b`:                                  "text:1: a needle\ntext:2: x",
	} {
		runtime.ReadMemStats(&before)
		got := a.call("file_grep", args{"pattern": pattern})
		runtime.ReadMemStats(&after)
		require.True(t, strings.HasPrefix(got, want), "%.40s: %s", pattern, got)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20), "%.40s", pattern)
	}
}

// A search that takes long ends with its deadline, within a long line, too.
func TestGrepEndsWithItsDeadline(t *testing.T) {
	a := newAgent(t)
	require.NoError(t, os.WriteFile(filepath.Join(a.dir, "text"), []byte(strings.Repeat("ab", maxFile/2)), 0o600))
	raw, err := json.Marshal(args{"pattern": `(.{1,900}){1}(.{1,900})c$`})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begin := time.Now()
	r := a.all.Invoke(ctx, "a", trajectory.ToolCall{Name: "file_grep", Arguments: raw})
	require.True(t, r.Failed)
	require.Equal(t, "no line matches", a.call("file_grep", args{"pattern": "z"}), "the workspace is free again")
	require.Less(t, time.Since(begin), 10*time.Second)
}

// A long line is matched as a short one is.
func TestGrepLongLines(t *testing.T) {
	a := newAgent(t)
	long := strings.Repeat("é", 10000)
	require.NoError(t, os.WriteFile(filepath.Join(a.dir, "text"), []byte("start"+long+"\n"+long+"end\n"+long+"\n"), 0o600))
	for pattern, line := range map[string]string{`^start`: "1", `end$`: "2", `^é+$`: "3", `é\bend`: "2"} {
		got := a.call("file_grep", args{"pattern": pattern})
		require.Regexp(t, `^text:`+line+`: \S+$`, got, pattern)
	}
}

// What can be undone is bounded in bytes: a hundred changes of a large file would be as many copies of it.
func TestHistoryIsBounded(t *testing.T) {
	var f folder
	large := strings.Repeat("x", maxFile)
	for range 50 {
		f.remember(change{name: "a", before: large, after: large})
	}
	held := 0
	for _, c := range f.history {
		held += len(c.before) + len(c.after)
	}
	require.LessOrEqual(t, held, maxUndo)
	require.NotEmpty(t, f.history)
	for range 2 * maxHistory {
		f.remember(change{name: "b", after: "y"})
	}
	require.Len(t, f.history, maxHistory)
}
