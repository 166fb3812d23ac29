//go:build linux

package rewards

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/sandbox"
	"github.com/agentfly/agentfly/trajectory"
)

// A grading whose programs were killed because this process had no descriptor left has no reward: nobody knows what the code is worth.
func TestCodeTestsWithoutDescriptors(t *testing.T) {
	for name, test := range map[string]any{
		"text":    "assert f() == 1",
		"program": map[string]any{"input": "", "output": "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			r := resources.New(resources.Options{Sandbox: sandbox.None}) // whose folders can be looked into
			t.Cleanup(func() { require.NoError(t, r.Close()) })
			reward, err := Prebuilt().Builder(t.Context(), r).Make("code_tests", map[string]any{"partial": true})
			require.NoError(t, err)
			ended := make(chan error, 1)
			go func() {
				_, err := reward.Score(t.Context(), Input{
					Trajectory: answered("import time\nopen('begun', 'w').close()\ntime.sleep(1000)"),
					Task:       trajectory.Task{Fields: map[string]any{"tests": []any{test}}},
				})
				ended <- err
			}()
			require.Eventually(t, func() bool {
				begun := false
				_ = filepath.WalkDir(os.TempDir(), func(_ string, d fs.DirEntry, err error) error {
					begun = begun || err == nil && d.Name() == "begun"
					return nil
				})
				return begun
			}, 20*time.Second, 10*time.Millisecond)
			require.ErrorContains(t, withoutDescriptors(t, func() error { return <-ended }), "could not be watched: this process has no descriptor left")
		})
	}
}

// The tests tell the same of a code that was killed for that as of one that ended itself: they come to their end, and fail.
func TestCodeTestsOfABlindEnd(t *testing.T) {
	for blind, code := range map[bool]error{
		true:  &sandbox.ExitError{Exit: -1, Signal: "SIGKILL", Exceeded: sandbox.Unwatched, Cause: syscall.EMFILE},
		false: &sandbox.ExitError{Exit: 1},
	} {
		_, err := carry(over{"ready\ndone\n", nil}, over{"ready\n", code}, nil)
		require.Equal(t, blind, err != nil, code)
	}
}

// over is a process that wrote something and has ended.
type over struct {
	wrote string
	err   error
}

func (o over) Stdin() io.WriteCloser { return nopCloser{io.Discard} }
func (o over) Stdout() io.Reader     { return strings.NewReader(o.wrote) }
func (o over) Stderr() io.Reader     { return strings.NewReader("") }
func (o over) Wait() error           { return o.err }
func (o over) Kill() error           { return nil }

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// withoutDescriptors runs f while this process can open nothing.
func withoutDescriptors(t *testing.T, f func() error) error {
	t.Helper()
	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	now := before
	now.Cur = 3
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &now))
	err := f()
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before))
	return err
}
