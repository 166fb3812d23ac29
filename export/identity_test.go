package export

import (
	"bytes"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/overview"
	"github.com/agentfly/agentfly/orchestrator/overview/overviewtest"
	"github.com/agentfly/agentfly/orchestrator/store"
	"github.com/agentfly/agentfly/trajectory"
)

// known is what other programs know a run by: the file of W&B, the tag of MLflow, the trace of OpenTelemetry.
type known struct{ wandb, mlflow, trace string }

func knownBy(t *testing.T, dir string) (k known) {
	t.Helper()
	r, err := Open(t.Context(), dir)
	require.NoError(t, err)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		var search struct{ Filter string }
		if json.Unmarshal(body, &search) == nil && search.Filter != "" {
			k.mlflow = search.Filter
		}
		_, _ = io.WriteString(w, "{}")
	}))
	defer s.Close()
	_, err = sendMLflow(t.Context(), s.URL, r)
	require.NoError(t, err)
	k.wandb = wandbFile(r)
	record := store.Record{Trajectory: &trajectory.Trajectory{ID: "train-0-0-0"}}
	k.trace = hex.EncodeToString(traceOf(record, r, false)[0].TraceId)
	return k
}

// Two runs of one name that began in one second are two to other programs. Runs that an older program began, whose stores have no id, are what they were.
func TestRunsOfOneNameAreTwo(t *testing.T) {
	root := t.TempDir()
	one, other := filepath.Join(root, "1", "run"), filepath.Join(root, "2", "run")
	for _, dir := range []string{one, other} {
		overviewtest.Run{Steps: overviewtest.Steps(0.1)}.Write(t, dir)
	}
	a, b := knownBy(t, one), knownBy(t, other)
	require.NotEqual(t, a.wandb, b.wandb)
	require.NotEqual(t, a.mlflow, b.mlflow)
	require.NotEqual(t, a.trace, b.trace)
	require.Equal(t, a, knownBy(t, one))
	require.True(t, strings.HasPrefix(a.mlflow, "tags.`agentfly.run` = 'run-1772600767-"), a.mlflow)

	db, err := sql.Open("sqlite", filepath.Join(one, store.File))
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "DELETE FROM facts WHERE name = 'id'")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	require.Equal(t, known{
		"offline-run-20260304_050607-e02db2e2/run-e02db2e2.wandb", "tags.`agentfly.run` = 'run-1772600767'", "7c8a632a47524d9afd2844c6bd46b064",
	}, knownBy(t, one))
}

// W&B shows how a run ended by its exit code: that of Ctrl-C where the run was interrupted, none where it still runs.
func TestWandbSaysHowTheRunEnded(t *testing.T) {
	for state, code := range map[overview.State]string{overview.Ended: "\x92\x01\x02\x08\x00", overview.Failed: "\x92\x01\x02\x08\x01", overview.Interrupted: "\x92\x01\x03\x08\xff\x01", overview.Running: ""} {
		var b bytes.Buffer
		r := Run{Name: "r", State: state, Metrics: overview.Metrics{"reward/mean": {Steps: []int{1}, Values: []float64{0.5}}}}
		require.NoError(t, writeWandb(t.Context(), &b, r))
		require.Equal(t, code != "", strings.Contains(b.String(), "\x92\x01"), state)
		require.True(t, strings.HasSuffix(b.String(), code), state)
	}
}
