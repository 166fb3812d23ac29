package pyenv

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// docs/environments.md has a row for each parameter of the kind, and no other, and names the protocols.
func TestThePageHasEveryParameter(t *testing.T) {
	page, err := os.ReadFile("../../docs/environments.md")
	require.NoError(t, err)
	_, after, found := strings.Cut(string(page), "## A Python class, or an id of Gymnasium\n")
	require.True(t, found)
	section, _, _ := strings.Cut(after, "\n## ")
	var rows, want []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(section, -1) {
		rows = append(rows, m[1])
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Params]()) {
		if !f.Anonymous {
			want = append(want, f.Tag.Get("json"))
		}
	}
	require.ElementsMatch(t, want, rows)
	for _, p := range protocols {
		require.Contains(t, section, "`"+p+"`")
	}
}
