package weights

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/agentfly/agentfly/engines/vllm"
	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator/job"
)

// serveVLLM starts a server, which is started again when it ends by itself.
func (s *Sync) serveVLLM(ctx context.Context) (err error) {
	initial := filepath.Join(s.folder, "initial")
	save := s.c.Policy.SaveHF
	if s.c.Job.Engine.Weights == "lora" { // the adapter comes on top
		save = s.c.Policy.SaveBase
	}
	if err := save(initial, modelfile.F32); err != nil {
		return err
	}
	rank := 0
	if a, ok := s.c.Policy.Model.Adapter(); ok {
		rank = a.Rank
	}
	o := serveOptions(s.c.Job, s.c.Policy.Device(), rank)
	o.Model, o.MaxModelLen, o.Folder = initial, s.c.Policy.Config.MaxContext(), filepath.Join(s.folder, "vllm")
	s.server, err = vllm.Keep(ctx, o, s.c.Report)
	return err
}

// serveOptions are those of the job's server, but for its model. trainer is the device of the policy, rank that of its
// adapter, 0 for none.
func serveOptions(j *job.Job, trainer string, rank int) vllm.ServeOptions {
	e := j.Engine
	o := vllm.ServeOptions{
		Command: j.Program(e.Serve.Command), Args: e.Serve.Args, Timeout: job.Seconds(e.Serve.Timeout), Restarts: e.Serve.Restarts, Sleep: e.Sleep > 0,
		Backend: vllm.Way(e.Weights).ServerBackend(), APIKey: e.APIKey,
	}
	if o.Restarts == 0 {
		o.Restarts = -1
	}
	o.CPU = e.Serve.Device == "cpu" || e.Serve.Device == "auto" && trainer == "cpu"
	o.Devices, _ = e.Serve.Devices() // a job that was loaded has a device
	if o.DType = e.Serve.DType; o.DType == "auto" {
		o.DType = servedType(j.Model.DType, o.CPU)
	}
	if e.Weights == "lora" {
		o.LoRARank = servedRank(rank)
	}
	if t := j.Rollout.Tree; t != nil && t.Rule == "entropy" && t.Top > 0 {
		o.MaxLogprobs = max(vllm.MaxLogprobs, t.Top+1) // the sampled token takes a place of a reply's list
	}
	for name, value := range e.Serve.Env {
		o.Env = append(o.Env, name+"="+value)
	}
	slices.Sort(o.Env)
	return o
}

// servedType is the type that a server computes in where the job leaves it open: the trainer's. Where the job leaves that
// open too, it is bfloat16 on CUDA, because FlashAttention takes no float32.
func servedType(trainer string, cpu bool) string {
	if trainer == "bfloat16" || trainer == "auto" && !cpu {
		return "bfloat16"
	}
	return "float32"
}

// servedRank is the rank that a server must allow for an adapter of that rank, of those that vLLM takes.
func servedRank(rank int) int {
	for _, allowed := range []int{8, 16, 32, 64, 128, 256, 320, 512} {
		if rank <= allowed {
			return allowed
		}
	}
	return rank // vLLM says what it takes
}

// tolerance is the job's, or the one that the types of trainer and servers explain.
func (s *Sync) tolerance() float64 {
	if t := s.c.Job.Engine.Tolerance; t > 0 {
		return t
	}
	return vllm.Tolerance(append(s.types, s.c.Job.Model.DType)...)
}
