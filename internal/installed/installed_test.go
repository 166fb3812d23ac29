package installed

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheWayOfAProgram(t *testing.T) {
	for _, c := range []struct {
		files   []string
		program string
		want    Way
	}{
		{[]string{"share/fetch.py", "bin/agentfly"}, "libexec/agentfly", Release},
		{[]string{"scripts/fetch.py", "Makefile"}, "bin/agentfly", Checkout},
		{[]string{"Makefile"}, "bin/mine", Alone}, // a user's own
		{nil, "bin/agentfly", Alone},              // go install
	} {
		dir := t.TempDir()
		for _, name := range c.files {
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		}
		way, root := Of(filepath.Join(dir, c.program))
		require.Equal(t, c.want, way, c.program)
		if way != Alone {
			require.Equal(t, dir, root)
		}
	}
	require.Equal(t, "agentfly model pull ORG/NAME", FetchModel("ORG/NAME"), "the program of a test lies alone")
}
