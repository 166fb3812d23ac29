package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/agentfly/agentfly/orchestrator/job"
)

// The system prompt and the model of a chat are what the command line says, letter by letter, whatever they would be as a job file's text.
func TestWhatIsSaidOfAChatIsTakenLiterally(t *testing.T) {
	t.Setenv("WHO", "expanded")
	dir := filepath.Join(t.TempDir(), "mo${WHO}${NOTHING}del")
	require.NoError(t, os.CopyFS(dir, os.DirFS("../examples/tiny/model")))
	for _, system := range []string{"Explain ${WHO} in bash", "${NOTHING}", "${--model}", "", "a: b", " x\ny", "é€"} {
		var j *job.Job
		var model string
		c := chatCommand{&env{}}.command()
		c.Action = func(x *cli.Context) (err error) {
			j, model, err = chatCommand{&env{}}.open(x)
			return err
		}
		app := cli.App{Commands: []*cli.Command{c}}
		require.NoError(t, app.Run([]string{"agentfly", "chat", "--system", system, "--temperature", "0.5", "--seed", "7", dir}))
		require.Equal(t, system, j.Agent.System)
		require.Equal(t, dir, j.Model.Path)
		require.Equal(t, dir, model)
		require.Equal(t, 0.5, j.Rollout.Temperature)
		require.Equal(t, uint64(7), j.Seed)
	}
}
