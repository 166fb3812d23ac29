package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
)

func TestTheCommandThatGoesOn(t *testing.T) {
	for line, want := range map[string]string{
		"bin/agentfly train job.yaml":                                 "bin/agentfly train job.yaml --resume",
		"agentfly train --resume job.yaml":                            "agentfly train --resume job.yaml",
		"agentfly train job.yaml --resume=true":                       "agentfly train job.yaml --resume=true",
		"agentfly train job.yaml --overwrite --yes --set a.b=2":       "agentfly train job.yaml --set a.b=2 --resume",
		"agentfly train job.yaml --set rewards=[a,_b] --output my$x/": "agentfly train job.yaml --set 'rewards=[a,_b]' --output 'my$x/' --resume",
		"agentfly train it's --overwrite=true":                        `agentfly train 'it'\''s' --resume`,
		"agentfly train --set x=1 -- --job.yaml":                      "agentfly train --set x=1 --resume -- --job.yaml",
	} {
		require.Equal(t, want, goesOn(strings.Fields(line)))
	}
	require.Equal(t, `agentfly train '' 'a b' --resume`, goesOn([]string{"agentfly", "train", "", "a b"}))
}

// --overwrite deletes a run only where somebody said yes: --yes says so, and off a terminal nobody else does.
func TestOverwriteAsks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	f := runfolder.New(dir, false)
	require.NoError(t, f.Open(&job.Job{}, func(string) {}))
	for step := range 2 {
		require.NoError(t, f.DB.AddStep(context.Background(), step, map[string]float64{"reward/mean": 1}, nil))
	}
	require.NoError(t, f.Close())
	before, err := os.ReadFile(filepath.Join(dir, "store.db"))
	require.NoError(t, err)
	run := func(args ...string) error {
		p := Program{In: strings.NewReader("y\n"), Out: io.Discard, ErrOut: io.Discard}
		return p.Run(context.Background(), append([]string{"agentfly", "train", "../examples/tiny.yaml", "--output", dir}, args...))
	}
	for want, args := range map[string][]string{
		"--overwrite deletes the run of 2 steps in " + dir + "; give --yes with it, or run it on a terminal, which asks": {"--overwrite"},
		"--resume goes on with the run that --overwrite deletes; give one of the two":                                    {"--overwrite", "--resume"},
	} {
		err := run(args...)
		var usage *UsageError
		require.True(t, errors.As(err, &usage), "%v", err)
		require.EqualError(t, err, want)
	}
	after, err := os.ReadFile(filepath.Join(dir, "store.db"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(before, after))
}
