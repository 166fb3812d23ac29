package session

import (
	"errors"
	"strings"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/trainer"
)

// loadPolicy loads the model at path; "" is the job's own.
func loadPolicy(j *job.Job, path string) (*policy.Policy, error) {
	o := policy.Options{Device: j.Device, BFloat16: j.Model.DType == "bfloat16"}
	switch c := j.Model.Scratch; {
	case path != "":
		return policy.Load(path, o)
	case c != nil:
		return policy.Scratch(ScratchOf(c), c.Alphabet, c.ChatTemplate, j.Seed, o)
	}
	path = j.ModelPath(j.Model.Path)
	p, err := policy.Load(path, o)
	if err != nil && !errors.Is(err, cgo.ErrUnavailable) {
		err = j.Fail("model.path", "%v", err)
	}
	return p, err
}

// ScratchOf is the model that the job makes with random weights.
func ScratchOf(c *job.Scratch) policy.ScratchConfig {
	return policy.ScratchConfig{
		HiddenSize: c.HiddenSize, IntermediateSize: c.IntermediateSize, NumLayers: c.NumLayers, NumHeads: c.NumHeads,
		NumKVHeads: c.NumKVHeads, MaxPositions: c.MaxPositions, InitStd: c.InitStd,
	}
}

// scheduleOf is the shape of the learning rate over a run. The job counts steps of the run, the trainer places for optimizer
// steps, of which a step has as many as a.Updates says.
func scheduleOf(t job.Trainer, a *algorithms.Algorithm) trainer.Schedule {
	each := a.Updates()
	return trainer.Schedule{LearningRate: t.LearningRate, Kind: t.Schedule, Warmup: t.WarmupSteps * each, Total: t.Steps * each}
}

// checkWeights refuses a way of moving weights that this machine lacks something for.
func checkWeights(j *job.Job) error {
	if j.Engine.Kind == "vllm" && j.Engine.Weights == "ipc" && (j.Device == "cpu" || cgo.CUDADevices() == 0) {
		return j.Fail("engine.weights", "ipc: servers open the memory of the trainer's card, and the trainer is on the CPU; use transfer, gloo or disk")
	}
	if j.Engine.Kind != "vllm" || j.Engine.Weights != "nccl" {
		return nil
	}
	if j.Device == "cpu" {
		return j.Fail("engine.weights", "nccl: the trainer is on the CPU (device: cpu), and NCCL sends from a CUDA device; use gloo, transfer or disk")
	}
	if _, err := cgo.NCCL(""); err != nil {
		return j.Fail("engine.weights", "nccl: %s; use gloo, transfer or disk", strings.TrimPrefix(job.Plain(err, "cgo: "), "nccl: "))
	}
	return nil
}

// checkLocal refuses a type that the local engine does not compute in where it would compute.
func checkLocal(j *job.Job) error {
	if j.Engine.Kind != "local" || j.SFT != nil || !policy.HasDevice(j.Device) {
		return nil
	}
	_, err := j.Local(policy.DeviceOf(j.Device))
	return err
}

// addAdapter gives the policy the job's adapter: a new one, or that of a PEFT folder.
func addAdapter(j *job.Job, p *policy.Policy) error {
	l := j.Model.LoRA
	if l.Path != "" {
		if err := checkAdapter(j); err != nil {
			return err
		}
		if err := p.LoadAdapter(j.Resolve(l.Path)); err != nil {
			return j.Fail("model.lora.path", "%s", job.Plain(err, "policy: "))
		}
		return nil
	}
	if err := checkRank(j, p); err != nil {
		return err
	}
	alpha := l.Alpha
	if alpha == 0 {
		alpha = 2 * float64(l.Rank)
	}
	err := p.Model.AddAdapter(cgo.AdapterConfig{Rank: l.Rank, Alpha: alpha, Targets: l.Targets, Seed: j.Seed})
	if err != nil {
		return j.Fail("model.lora", "%s", job.Plain(err, "cgo: "))
	}
	return nil
}
