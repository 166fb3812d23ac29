package weights

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines/vllm"
	"github.com/agentfly/agentfly/orchestrator/job"
)

// startScripted makes a Sync whose server is scripted, and returns what is reported of it. The server's log goes below temp; the run's folder is
// output.
func startScripted(t *testing.T, kind, temp, output string) (s *Sync, reported func() string, err error) {
	t.Setenv(scriptedServer, kind)
	t.Setenv("TMPDIR", temp)
	var mu sync.Mutex
	var lines []string
	s = &Sync{c: Config{
		Job: &job.Job{Output: output, Engine: job.Engine{Folder: t.TempDir()}}, Note: func(string) {},
		Report: func(text string) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, text)
		},
	}}
	require.NoError(t, s.makeFolder())
	err = s.startServer(t.Context(), vllm.ServeOptions{Command: os.Args[0], Model: "m", Restarts: -1})
	return s, func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(lines, "\n")
	}, err
}

// named is the log that a text names.
func named(t *testing.T, text string) string {
	found := regexp.MustCompile(`its log (\S+) ends: `).FindStringSubmatch(text)
	require.NotNil(t, found, text)
	return found[1]
}

// The log that an error names is there when the job has ended: of a server that does not start, before there is a run folder too, and of one that
// ends later.
func TestTheLogThatAnErrorNamesStays(t *testing.T) {
	s, _, err := startScripted(t, "broken", t.TempDir(), filepath.Join(t.TempDir(), "none"))
	require.ErrorContains(t, err, "the server ended: exit status 3")
	require.NoError(t, s.Close())
	log, failed := os.ReadFile(named(t, err.Error()))
	require.NoError(t, failed)
	require.Equal(t, "this is a server that is broken\n", string(log))

	output := t.TempDir()
	s, reported, err := startScripted(t, "fine", t.TempDir(), output)
	require.NoError(t, err)
	if reply, err := http.Get(s.server.URL() + "/end"); err == nil { // it ends without a reply
		reply.Body.Close()
	}
	require.Eventually(t, func() bool { return s.server.Gone() != nil }, 20*time.Second, time.Millisecond)
	require.NoError(t, s.Close())
	for _, path := range []string{named(t, reported()), filepath.Join(output, "vllm.log")} {
		log, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "this is a server that is fine\n", string(log), path)
	}
}

// A run that goes on, or an evaluation of it, adds its server's log to the run's. Where nothing went wrong no other log stays.
func TestTheLogsOfARunAreKept(t *testing.T) {
	output, temp := t.TempDir(), t.TempDir()
	for _, want := range []string{"this is a server that is first\n", "this is a server that is first\nthis is a server that is second\n"} {
		lines := strings.Fields(want)
		s, _, err := startScripted(t, lines[len(lines)-1], temp, output)
		require.NoError(t, err)
		require.NoError(t, s.Close())
		log, err := os.ReadFile(filepath.Join(output, "vllm.log"))
		require.NoError(t, err)
		require.Equal(t, want, string(log))
		left, err := os.ReadDir(temp)
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

// A log that does not fit in the run's folder is no failure of a run that is done: it stays where it was, which is told.
func TestALogThatDoesNotFitIsTold(t *testing.T) {
	output, temp := t.TempDir(), t.TempDir()
	require.NoError(t, os.Symlink("/dev/full", filepath.Join(output, "vllm.log")))
	s, reported, err := startScripted(t, "full", temp, output)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	left, err := filepath.Glob(filepath.Join(temp, "*", "vllm.log"))
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.Equal(t, "vLLM's log is not in the run's folder: write "+output+"/vllm.log: no space left on device; it stays in "+left[0], reported())
	log, err := os.ReadFile(left[0])
	require.NoError(t, err)
	require.Equal(t, "this is a server that is full\n", string(log))
}
