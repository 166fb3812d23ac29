//go:build torch && unix

package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The blocks of docs/recipes.md that are marked sh run in one shell, top to bottom, in a folder with the example jobs.
func TestRecipesRun(t *testing.T) {
	needTorch(t)
	needPython(t)
	onPath(t)
	page, err := os.ReadFile("docs/recipes.md")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "examples"), os.DirFS("examples")))
	blocks := regexp.MustCompile("(?s)\n## ([^\n]+)\n(?:[^#]|#[^#])*?\n```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.Len(t, blocks, len(regexp.MustCompile("(?m)^```sh$").FindAllString(string(page), -1)), "a section has one block that runs")
	require.GreaterOrEqual(t, len(blocks), 7)
	var script strings.Builder
	for _, block := range blocks {
		fmt.Fprintf(&script, "echo '## %s'\n%s", block[1], block[2])
	}
	sh := exec.Command("sh", "-euc", script.String())
	sh.Dir = dir
	out, err := sh.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
