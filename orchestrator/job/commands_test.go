package job_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/job"
)

func TestWhatCommandsRefuse(t *testing.T) {
	const head, sft = "version: 1\nname: x\nmodel: {path: m}\n", "sft: {}\ndata: {train: a, eval: b}\n"
	const noTasks = "x.yaml:4:6: sft: supervised fine-tuning has conversations and no tasks to sample; use the job that trains with rewards, with --model for this run's checkpoint"
	const o3 = "rewards: [final_answer]\ndata: {train: a, eval: a}\nengine: {kind: openai, urls: [http://h/v1], served_model: o3-mini}\n"
	for name, c := range map[string]struct {
		refuse func(*job.Job) error
		text   string
		want   string // "": it is taken
	}{
		"eval of sft":                    {job.Evaluable, sft, noTasks},
		"eval of no tasks":               {job.Evaluable, "rewards: [final_answer]\ndata: {train: a}\n", "x.yaml: data.eval is missing; name the held-out tasks"},
		"eval":                           {job.Evaluable, "rewards: [final_answer]\ndata: {eval: a}\n", ""},
		"rollout of sft":                 {job.Samplable, sft, noTasks},
		"rollout of no tasks":            {job.Samplable, "rewards: [final_answer]\ndata: {eval: a}\n", "x.yaml: data.train is missing; name the tasks to sample"},
		"rollout":                        {job.Samplable, "rewards: [final_answer]\ndata: {train: a}\n", ""},
		"replay of sft":                  {job.Replayable, sft, "x.yaml:4:6: sft: supervised fine-tuning samples nothing that could be replayed; train it again with --output, and compare the checkpoints"},
		"replay of vllm's tokens":        {job.Replayable, "rewards: [final_answer]\ndata: {train: a}\nengine: {kind: vllm, urls: [http://h]}\n", "x.yaml:6:16: engine.kind: vllm: only what the local engine sampled can be sampled again bit for bit"},
		"replay":                         {job.Replayable, "rewards: [final_answer]\ndata: {train: a}\n", ""},
		"eval of a reasoning model":      {job.Evaluable, o3, "x.yaml:1:1: eval.temperature: 0: the model o3-mini (engine.served_model) samples at 1 only; set 1"},
		"eval of a reasoning model at 1": {job.Evaluable, o3 + "eval: {temperature: 1}\n", ""},
		"rollout of a reasoning model":   {job.Samplable, o3, ""},
		"rollout of a reasoning model at others": {
			job.Samplable, o3 + "rollout: {temperature: 0.7, top_p: 0.9}\n",
			"x.yaml:7:24: rollout.temperature: 0.7: the model o3-mini (engine.served_model) samples at 1 only; set 1\nx.yaml:7:36: rollout.top_p: 0.9: the model o3-mini (engine.served_model) samples at 1 only; set 1",
		},
		"eval of another model": {job.Evaluable, "rewards: [final_answer]\ndata: {eval: a}\nengine: {kind: openai, urls: [http://h/v1], served_model: gpt-4o}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			j, err := job.Parse("x.yaml", []byte(head+c.text), job.Options{})
			require.NoError(t, err)
			if c.want == "" {
				require.NoError(t, c.refuse(j))
				return
			}
			require.EqualError(t, c.refuse(j), c.want)
		})
	}
}
