package orchestrator

import (
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/export"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/overview"
	"github.com/agentfly/agentfly/orchestrator/overview/overviewtest"
	"github.com/agentfly/agentfly/trajectory"
)

// reported are the reports of a run of three steps that ended, and how long the end took.
func reported(t *testing.T, dir string, limit time.Duration, of ...job.Report) (late []string, took time.Duration) {
	t.Helper()
	r, err := beginReports(t.Context(), dir, of, func(string) {})
	require.NoError(t, err)
	r.limit = func(bool) time.Duration { return limit }
	begin := time.Now()
	for range 1000 {
		r.step()
	}
	require.Less(t, time.Since(begin), time.Second, "a step waits for no target")
	begin = time.Now()
	return r.finish(t.Context(), overview.Ended), time.Since(begin)
}

func TestReportsThatCannotBeWrittenAreToldWithTheCommand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	overviewtest.Run{Steps: overviewtest.Steps(0.1, 0.2, 0.3)}.Write(t, dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "csv"), nil, 0o600)) // no folder can be made there, by nobody
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	dead := "http://u:secret@" + l.Addr().String()
	require.NoError(t, l.Close())
	late, _ := reported(t, dir, 20*time.Second, job.Report{Format: "csv"}, job.Report{Format: "mlflow", URL: dead}, job.Report{Format: "jsonl"}, job.Report{Format: "parquet"})
	require.Len(t, late, 2)
	require.Contains(t, late[0], "catch up with: agentfly export "+dir+" csv")
	require.Contains(t, late[1], "catch up with: agentfly export --to http://u:xxxxx@"+l.Addr().String()+" "+dir+" mlflow")
	require.NotContains(t, strings.Join(late, ""), "secret")
	text, err := os.ReadFile(filepath.Join(dir, "jsonl", "run.jsonl"))
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(string(text), `"reward/mean"`))
	files, err := os.ReadDir(filepath.Join(dir, "parquet"))
	require.NoError(t, err)
	require.Len(t, files, 1)
}

// What the deleted run was exported to is deleted with it, or TensorBoard would draw two runs as one. What others put beside it is kept.
func TestOverwriteRemovesWhatWasExported(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run x")
	overviewtest.Run{Steps: overviewtest.Steps(0.1, 0.2, 0.3), Train: []overviewtest.Sampled{{Reward: 1, Turns: make([]trajectory.Turn, 1)}}}.Write(t, dir)
	for _, f := range export.Formats() {
		if f.Send != nil {
			continue
		}
		r, err := export.Open(t.Context(), dir)
		require.NoError(t, err)
		require.NoError(t, export.WriteFile(t.Context(), f, filepath.Join(dir, f.Name, f.File(r)), r))
	}
	mine := []string{"csv/mine.csv", "tensorboard/events.out.tfevents.1.run x", "wandb/offline-run-20260304_050607-00000000/run-00000000.wandb"}
	for _, path := range mine {
		path = filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}
	f := folderOf(t.Context(), dir, Options{Overwrite: true})
	require.NoError(t, f.Open(&job.Job{}, func(string) {}))
	require.NoError(t, f.Close())
	var left []string
	for _, f := range export.Formats() {
		_ = filepath.WalkDir(filepath.Join(dir, f.Name), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				within, _ := filepath.Rel(dir, path)
				left = append(left, within)
			}
			return nil
		})
	}
	require.ElementsMatch(t, mine, left)
	require.NoDirExists(t, filepath.Join(dir, "parquet"))
}

func TestAServerThatHangsIsWaitedForABoundedTime(t *testing.T) {
	over := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	defer s.Close()
	defer close(over)
	dir := filepath.Join(t.TempDir(), "run")
	overviewtest.Run{Steps: overviewtest.Steps(0.1, 0.2, 0.3)}.Write(t, dir)
	late, took := reported(t, dir, 300*time.Millisecond, job.Report{Format: "mlflow", URL: s.URL})
	require.Len(t, late, 1)
	require.Less(t, took, 10*time.Second)
	http.DefaultClient.CloseIdleConnections()
}

// A process that is killed while it appends leaves a part of the file; the next one appends the rest.
func TestAnEventFileGrows(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	overviewtest.Run{Steps: overviewtest.Steps(0.1, 0.2, 0.3)}.Write(t, dir)
	f, err := export.Lookup("tensorboard")
	require.NoError(t, err)
	run, err := export.Open(t.Context(), dir)
	require.NoError(t, err)
	path := filepath.Join(dir, "tensorboard", f.File(run))
	run.State = overview.Running
	require.NoError(t, export.Follow(t.Context(), f, path, run))
	part, err := os.Stat(path)
	require.NoError(t, err)
	run.State = overview.Ended
	require.NoError(t, export.Follow(t.Context(), f, path, run))
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	now, err := os.Stat(path)
	require.NoError(t, err)
	require.Greater(t, now.Size(), part.Size(), "the newest step waits for its evaluation")
	require.True(t, os.SameFile(part, now), "TensorBoard has it open")
	for cut := range whole {
		require.NoError(t, os.Truncate(path, int64(len(whole)-cut)))
		require.NoError(t, export.Follow(t.Context(), f, path, run))
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, whole, got)
		if cut > 200 {
			break
		}
	}
}

// Package job lists the formats itself, because it is below package export.
func TestTheJobKnowsEveryFormat(t *testing.T) {
	text, err := os.ReadFile("../examples/tiny.yaml")
	require.NoError(t, err)
	for _, f := range export.Formats() {
		entry := f.Name
		if f.Send != nil {
			entry = "{" + f.Name + ": 'http://127.0.0.1:1'}"
		}
		path := filepath.Join(t.TempDir(), "job.yaml")
		require.NoError(t, os.WriteFile(path, append(text, []byte("\nreport: ["+entry+"]\n")...), 0o600))
		_, err := job.Load(path)
		require.NoError(t, err, f.Name)
	}
}
