// Package jinjatest has the chat templates that models come with, for tests of other packages. It does not compile or render them: package jinja does.
package jinjatest

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// Templates are the texts of real chat templates by name.
func Templates(t testing.TB) (all map[string]string) {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	f, err := os.Open(filepath.Join(filepath.Dir(here), "..", "testdata", "templates.json.gz"))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(z).Decode(&all))
	return all
}

// Template is the text of a real chat template.
func Template(t testing.TB, name string) string {
	t.Helper()
	all := Templates(t)
	require.Contains(t, all, name)
	return all[name]
}
