package orchestrator

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/runfolder"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trajectory"
)

// refusedGateway is why a folder may not be a gateway's.
func refusedGateway(t *testing.T, dir string) error {
	t.Helper()
	j, err := job.Parse("", []byte("version: 1\nname: x\nmodel: {path: m}\nagent: {kind: external, online: true, key: k}\nrollout: {timeout: 100}\nrewards: [posted]\ndata: {train: t.jsonl}\n"), job.Options{})
	require.NoError(t, err)
	r := Registries{Tools: tools.NewCatalog(), Agents: agents.NewRegistry(), Rewards: rewards.Prebuilt(), Algorithms: algorithms.NewRegistry()}
	return Gateway(t.Context(), j, "", dir, r, func(string) {}, func(*trajectory.Trajectory) {}, func(note string) { t.Error(note) })
}

// A gateway and a run, or two gateways, number the records of one store as if each were alone: the second one is refused.
func TestAGatewayHasItsFolderForItself(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kept")
	f := runfolder.New(dir, false)
	require.NoError(t, f.Open(&job.Job{}, func(string) {}))
	err := refusedGateway(t, dir)
	require.EqualError(t, err, "orchestrator: another process trains in "+dir+" or serves a gateway there; wait until it has ended, or give another folder with --output")
	require.NoError(t, f.Close())
}

// What agents of a gateway do is no part of a run: it would join what the run trained on, and count in its curves.
func TestAGatewayBeginsInNoRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	f := runfolder.New(dir, false)
	require.NoError(t, f.Open(&job.Job{}, func(string) {}))
	require.NoError(t, f.Close())
	require.EqualError(t, refusedGateway(t, dir), dir+" is the folder of a run or of a job (it has a job.yaml); give the gateway another one with --output")
	require.NoFileExists(t, filepath.Join(dir, "gateway.key"))
}
