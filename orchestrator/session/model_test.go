package session

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/orchestrator/job"
)

// The job counts steps of the run, each of several updates; the rate falls over all of them and would reach 0 at the next.
func TestTheLearningRateFallsOverTheWholeRun(t *testing.T) {
	text := "version: 1\nname: x\nmodel: {path: m}\nrewards: [final_answer]\nalgorithm: {epochs: 2, mini_batches: 3}\ntrainer: {steps: 10, learning_rate: 0.4, warmup_steps: 2, schedule: linear}\n"
	j, err := job.Parse("x.yaml", []byte(text), job.Options{})
	require.NoError(t, err)
	a, err := job.Algorithm(j, algorithms.NewRegistry())
	require.NoError(t, err)
	s := scheduleOf(j.Trainer, a) // 6 optimizer steps a step: 12 of warm-up, then 48 from the peak to 0
	for at, want := range map[int]float64{0: 0.4 / 12, 5: 0.2, 11: 0.4, 12: 0.4, 36: 0.2, 59: 0.4 / 48, 60: 0} {
		require.InDelta(t, want, s.At(at), 1e-12, "optimizer step %d", at)
	}
}

// Whoever chooses another kind of engine on the command line is told what of the job file does not hold then.
func TestWhatAnotherKindOfEngineLeavesOutIsNoted(t *testing.T) {
	j, err := job.Load("../../examples/tiny_vllm.yaml", "engine.kind=local")
	require.NoError(t, err)
	require.Contains(t, NewLook(j).Notes.Early(), "engine.serve of the job file is left out because of --set engine.kind=local: only the kind vllm takes it")
}

// A type that the local engine does not compute in on the trainer's device is refused before a model is opened; a device that is not there is
// refused for itself.
func TestTheTypeOfSamplingIsCheckedEarly(t *testing.T) {
	check := func(sets ...string) error {
		j, err := job.Load("../../examples/tiny.yaml", sets...)
		require.NoError(t, err)
		return checkLocal(j)
	}
	require.NoError(t, check("device=cpu", "deterministic=false", "engine.dtype=bfloat16"))
	require.NoError(t, check("device=cuda", "engine.dtype=bfloat16"))
	require.NoError(t, check("device=cuda", "deterministic=false", "engine={kind: vllm, urls: [http://a:1]}"))
	err := check("device=cuda", "deterministic=false", "engine.dtype=bfloat16")
	if cgo.Available() && cgo.CUDADevices() == 0 {
		require.NoError(t, err)
		return
	}
	require.ErrorContains(t, err, "engine.dtype: bfloat16, but on cuda the local engine reads the weights")
}

// Every key of model.scratch that is a number arrives in the model under its name.
func TestScratchOf(t *testing.T) {
	var c job.Scratch
	of := reflect.ValueOf(&c).Elem()
	for i := range of.NumField() {
		switch f := of.Field(i); f.Kind() {
		case reflect.Int:
			f.SetInt(int64(i + 1))
		case reflect.Float64:
			f.SetFloat(float64(i + 1))
		}
	}
	got := reflect.ValueOf(ScratchOf(&c))
	for i := range of.NumField() {
		if name := of.Type().Field(i).Name; name != "Alphabet" && name != "ChatTemplate" {
			f := got.FieldByName(name)
			require.True(t, f.IsValid(), name)
			require.Equal(t, of.Field(i).Interface(), f.Interface(), name)
			require.NotZero(t, f.Interface(), name)
		}
	}
}
