package memory

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is counted follows the buffers of the sources: a size that is changed there and not here would make the plan of a job wrong, on a device
// without any other test.
func TestLimitsAreThoseOfTheSources(t *testing.T) {
	for _, l := range []struct {
		file, pattern string
		are           []int64
	}{
		{"panel.h", `kPanel = (.*?);`, []int64{panelColumns}},
		{"head.cc", `kRows = (.*?);`, []int64{tileRows}},
		{"head.cc", `kLeastColumns = (.*?);`, []int64{tileColumns}},
		{"head.cc", `kTileFloats = (.*?);`, []int64{tileNumbers}},
		{"head.cc", `kChunk = (.*?);`, []int64{chunkRows}},
		{"head.cc", `kKernelFloats = (.*?), kLeastRows = (.*?), kMostRows = (.*?);`, []int64{kernelNumbers, leastKernelRows, kernelRows}},
		{"attention.cc", `kBlockRows = (.*?);`, []int64{blockRows}},
		{"attention.cc", `kLeastTokens = (.*?), kMostTokens = (.*?);`, []int64{leastBlockRows, mostBlockRows}},
		{"decode_device.cc", `kLeastRun = (.*?);`, []int64{leastRun}},
		{"decode_device.cc", `kMostGathered = (.*?);`, []int64{gatheredKeys}},
		{"cuda/launch.cc", `kSpan = (.*?),`, []int64{partKeys}},
		{"cuda/launch.cc", `kMostParts = (.*?);`, []int64{partNumbers}},
		{"single_rows.cc", `kMostRows = (.*?);`, []int64{recordedRows}},
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", "cgo", "src", l.file))
		require.NoError(t, err)
		found := regexp.MustCompile(l.pattern).FindAllSubmatch(text, -1)
		require.Len(t, found, 1, "%s: %s", l.file, l.pattern)
		for i, value := range found[0][1:] {
			require.Equal(t, l.are[i], number(t, string(value)), "%s: %s", l.file, found[0][0])
		}
	}
}

// number is a constant of C++: a number, or one shifted to the left.
func number(t *testing.T, text string) int64 {
	t.Helper()
	value, by, shifted := strings.Cut(text, " << ")
	n, err := strconv.ParseInt(value, 10, 64)
	require.NoError(t, err)
	if shifted {
		places, err := strconv.Atoi(by)
		require.NoError(t, err)
		n <<= places
	}
	return n
}
