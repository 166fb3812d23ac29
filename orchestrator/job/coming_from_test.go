package job

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var settingName = regexp.MustCompile("`([a-z_0-9]+(?:\\.[a-z_0-9]+)*)`")

// docs/coming-from.md names settings that the reference has, and says what a job file is answered that uses the other name.
func TestComingFromOthersNamesSettingsThatExist(t *testing.T) {
	reference, err := os.ReadFile("../../docs/job-reference.md")
	require.NoError(t, err)
	known, block := map[string]bool{}, ""
	for _, line := range strings.Split(string(reference), "\n") {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			if block = name + "."; name == "The job" {
				block = ""
			}
		}
		if name, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "` |"); ok && strings.HasPrefix(line, "| `") {
			known[block+name] = true
		}
	}
	require.Greater(t, len(known), 100)

	page, err := os.ReadFile("../../docs/coming-from.md")
	require.NoError(t, err)
	rows, answered := 0, 0
	for _, line := range strings.Split(string(page), "\n") {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.SplitN(line, "|", 4)
		ours := settingName.FindAllStringSubmatch(cells[2], -1)
		require.NotEmpty(t, ours, line)
		for _, s := range ours {
			require.True(t, known[s[1]], "docs/coming-from.md names %s, which docs/job-reference.md does not have", s[1])
		}
		rows++
		theirs := settingName.FindStringSubmatch(cells[1])
		require.NotNil(t, theirs, line)
		last := theirs[1][strings.LastIndexByte(theirs[1], '.')+1:]
		if answer, ok := foreign[last]; ok {
			answered++
			require.Contains(t, answer, strings.TrimSuffix(ours[0][1], ".serve.args"), "a job with %s is told something else than docs/coming-from.md", last)
		}
	}
	require.Greater(t, rows, 75)
	require.Greater(t, answered, 55)
}
