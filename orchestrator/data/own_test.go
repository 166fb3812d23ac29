package data

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/trajectory"
)

// A run whose environment has other tasks than it began with is told of the setting, as no file is wrong.
func TestOtherTasksOfAnEnvironment(t *testing.T) {
	own := func(split string, n int) (tasks []trajectory.Task, err error) {
		for i := range n {
			tasks = append(tasks, trajectory.Task{ID: split + "-" + strconv.Itoa(i)})
		}
		return tasks, nil
	}
	files := func(tasks string) []File {
		text := "version: 1\nname: x\nmodel: {path: m}\nenvironment: {kind: voxel, tasks: " + tasks + "}\nrewards: [environment]\n"
		j, err := job.Parse("x.yaml", []byte(text), job.Options{})
		require.NoError(t, err)
		train, eval, _, err := Read(j, own)
		require.NoError(t, err)
		return append(train.Files("train"), eval.Files("eval")...)
	}
	began, err := SameFiles("runs/x", nil, files("{train: 4, eval: 2}"))
	require.NoError(t, err)
	_, err = SameFiles("runs/x", began, files("{train: 4, eval: 2}"))
	require.NoError(t, err)
	for tasks, key := range map[string]string{"{train: 4, eval: 3}": "environment.tasks.eval", "{train: 5, eval: 2}": "environment.tasks.train"} {
		_, err = SameFiles("runs/x", began, files(tasks))
		require.EqualError(t, err, key+": the run in runs/x began with other tasks of its environment; give the environment back its settings, or begin a new run with --output")
	}
}
