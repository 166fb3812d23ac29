package view

import (
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/internal/exposition"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/view/viewtest"
)

// Prometheus reads every metric of the last step of each run, each once, with what it means.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	x := serve(t, "", map[string]viewtest.Size{"a": small(), "b": {Steps: 3, Groups: 1, Each: 2, Seed: 2}})
	reply, err := http.Get(x.url + "/metrics")
	require.NoError(t, err)
	text, err := io.ReadAll(reply.Body)
	require.NoError(t, err)
	require.NoError(t, reply.Body.Close())
	line := regexp.MustCompile(`^([a-z_A-Z0-9]+)\{run="([ab])"(?:,key="([^"]*)")?\} (\S+)$`)
	got, family := map[string]float64{}, ""
	for _, l := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		if help, ok := strings.CutPrefix(l, "# HELP "); ok {
			name, doc, _ := strings.Cut(help, " ")
			require.NotEmpty(t, doc, name)
			continue
		}
		if kind, ok := strings.CutPrefix(l, "# TYPE "); ok {
			family = strings.TrimSuffix(kind, " gauge")
			continue
		}
		at := line.FindStringSubmatch(l)
		require.NotNil(t, at, l)
		require.Equal(t, family, at[1], "a sample stands below its family")
		id := at[2] + " " + at[1]
		if at[3] != "" {
			id += "/" + at[3]
		}
		require.NotContains(t, got, id)
		got[id], err = strconv.ParseFloat(at[4], 64)
		require.NoError(t, err)
	}
	for _, run := range []string{"a", "b"} {
		db, err := store.OpenReader(filepath.Join(x.dir, run, store.File))
		require.NoError(t, err)
		numbers, all := stepsOf(t, db)
		require.NoError(t, db.Close())
		require.EqualValues(t, len(numbers), got[run+" agentfly_steps"])
		last := all[len(all)-1]
		require.Greater(t, len(last), 20)
		for key, want := range last {
			v, ok := got[run+" agentfly_"+exposition.Name(key)]
			if !ok {
				cut := strings.LastIndexByte(key, '/')
				v, ok = got[run+" agentfly_"+exposition.Name(key[:cut])+key[cut:]]
			}
			require.True(t, ok, key)
			require.Equal(t, want, v, key)
		}
	}
}
