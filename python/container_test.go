package python

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A container that ends while the orphans are looked for keeps none of them back. The engine is scripted.
func TestOrphansBesideContainersThatEnd(t *testing.T) {
	bin := t.TempDir()
	script := `#!/bin/sh
case "$1 $*" in
  "ps "*"label=agentfly.host="*) echo gone; echo mine; echo living;;
  inspect*gone) echo "no such container gone" >&2; exit 125;;
  inspect*mine) echo "/mine ` + filepath.Join(bin, "no") + `";;
  inspect*living) echo "/living ` + bin + `";;
  "rm "*) echo "$*" >>` + filepath.Join(bin, "removed") + `;;
esac
`
	require.NoError(t, os.WriteFile(filepath.Join(bin, "podman"), []byte(script), 0o755))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	removed, err := Container{Image: "x", Engine: "podman"}.RemoveOrphans(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"mine"}, removed)
	did, err := os.ReadFile(filepath.Join(bin, "removed"))
	require.NoError(t, err)
	require.Equal(t, "rm --force mine", strings.TrimSpace(string(did)))
}
