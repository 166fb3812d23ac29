package weights

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/agentfly/agentfly/engines/vllm"
	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator/job"
)

// serveVLLM starts a server, which is started again when it ends by itself.
func (s *Sync) serveVLLM(ctx context.Context) error {
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
	o.Model, o.MaxModelLen = initial, s.c.Policy.Config.MaxContext()
	return s.startServer(ctx, o)
}

// startServer starts one that is started again when it ends by itself. The folder of its log has no name that vllm.RemoveStale knows: a log that an
// error named stays when its job has ended, and that of a job that was killed is the only one of its server.
func (s *Sync) startServer(ctx context.Context, o vllm.ServeOptions) (err error) {
	if s.log.folder, err = os.MkdirTemp("", "agentfly-vllm-*"); err != nil {
		return fmt.Errorf("orchestrator: vLLM's log: %w", err)
	}
	o.Folder = s.log.folder
	s.server, err = vllm.Keep(ctx, o, func(text string) {
		s.log.named.Store(true)
		s.c.Report(text)
	})
	if err != nil {
		s.log.named.Store(true)
	}
	return err
}

// serverLog is the log of the job's server. It lies outside the folder of checkpoints, because it stays where it was named to the user.
type serverLog struct {
	folder string // "" before there is a server
	named  atomic.Bool
}

// close appends the log to that of a run's folder, if the run got so far as to have one. A log that cannot be kept there stays where it is, which is
// told: the run is done.
func (l *serverLog) close(output string, report func(text string)) {
	file := filepath.Join(l.folder, vllm.LogFile)
	log, err := os.ReadFile(file)
	if err == nil {
		err = addTo(output, log)
	} else if errors.Is(err, fs.ErrNotExist) { // the server was not even tried
		err = nil
	}
	if err != nil {
		report(fmt.Sprintf("vLLM's log is not in the run's folder: %v; it stays in %s", err, file))
		return
	}
	if len(log) == 0 || !l.named.Load() {
		if err := os.RemoveAll(l.folder); err != nil {
			report("vLLM's log could not be removed: " + err.Error())
		}
	}
}

// addTo appends a log to the one in a run's folder, if that is there.
func addTo(output string, log []byte) error {
	if _, err := os.Stat(output); err != nil {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(output, vllm.LogFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(log)
	return errors.Join(err, f.Close())
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
