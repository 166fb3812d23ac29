package orchestrator

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/scripted"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/objective"
	"github.com/agentfly/agentfly/orchestrator/rollout/rollouttest"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

// What NCCL lacks is said when the job is read, not after the first rollout.
func TestNCCLIsRefusedEarly(t *testing.T) {
	if cgo.CUDADevices() > 0 {
		t.Skip("this machine has a CUDA device, so that nothing is refused")
	}
	why := "libtorch sees no CUDA device here"
	if !cgo.Available() {
		why = "this binary was built without the torch tag; take a release archive, or run make build in a checkout, which fetches libtorch and sets it"
	}
	j, err := job.Load(vllmJob, "engine.weights=nccl", "device=auto")
	require.NoError(t, err)
	require.ErrorContains(t, validate(t.Context(), j, prebuilt(t)), "engine.weights: nccl: "+why+"; use gloo, transfer or disk")
	j, err = job.Load(vllmJob, "engine.weights=nccl", "device=cpu")
	require.NoError(t, err)
	require.ErrorContains(t, validate(t.Context(), j, prebuilt(t)), "engine.weights: nccl: the trainer is on the CPU (device: cpu), and NCCL sends from a CUDA device; use gloo, transfer or disk")
}

// An engine that a program registers, made from the tokenizer that the job has, samples as any other: trajectories, rewards and an evaluation.
func TestARegisteredEngineSamples(t *testing.T) {
	kinds := engines.NewRegistry()
	require.NoError(t, kinds.Add("parrot", "says its parameter", func(_ context.Context, s engines.Setup) (engines.Engine, error) {
		var p struct {
			Says string `json:"says"`
		}
		if err := resources.Decode(s.Params, &p); err != nil {
			return nil, err
		}
		return scripted.New(scripted.Options{
			Respond: func(engines.Request) (engines.Completion, error) {
				return engines.Completion{TokenIDs: append(s.Encode(p.Says), rollouttest.End)}, nil
			},
			Decode: s.Decode, MaxModelLen: s.MaxContext,
		}), nil
	}))
	setup := engines.Setup{Params: map[string]any{"says": "<answer>5</answer>"}, Encode: rollouttest.Letters{}.Encode, Decode: rollouttest.Decode, MaxContext: 4000}
	r := rollouttest.New(t, nil)
	var err error
	r.Engine, err = kinds.Make(t.Context(), "parrot", setup)
	require.NoError(t, err)
	defer r.Engine.Close()
	tasks := []trajectory.Task{rollouttest.Task("a", "2+3?", "5"), rollouttest.Task("b", "2+2?", "4")}
	e, err := objective.Evaluate(t.Context(), *r, nil, "before", 0, tasks, evalJob(job.Eval{Samples: 2, Temperature: 1}))
	require.NoError(t, err)
	require.Equal(t, 0.5, e.Reward)
	groups, err := r.Groups(t.Context(), "train", 0, tasks, 3, nil)
	require.NoError(t, err)
	require.Equal(t, "<answer>5</answer>", groups[1].Trajectories[2].Turns[0].Completion)

	setup.Params = map[string]any{"say": "5"}
	_, err = kinds.Make(t.Context(), "parrot", setup)
	require.ErrorContains(t, err, `engines: parrot: the parameters cannot be read: unknown field "say"`)
}

// A kind of engine that nobody registered is named before a model is opened.
func TestAnUnknownKindOfEngineIsRefusedEarly(t *testing.T) {
	j, err := job.Load("../examples/tiny.yaml", "engine={kind: parrot}")
	require.NoError(t, err)
	require.ErrorContains(t, validate(t.Context(), j, prebuilt(t)), `engine.kind: unknown kind "parrot", known are local, openai, vllm`)
	err = Sample(t.Context(), j, "", 1, prebuilt(t), unheard, nil)
	require.ErrorContains(t, err, `engine.kind: unknown kind "parrot"`)
	r := prebuilt(t)
	r.Engines = engines.NewRegistry()
	require.NoError(t, r.Engines.AddEngine("parrot", scripted.New(scripted.Options{})))
	require.NoError(t, validate(t.Context(), j, r))
}
