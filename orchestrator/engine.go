package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/local"
	"github.com/agentfly/agentfly/engines/openai"
	"github.com/agentfly/agentfly/engines/vllm"
	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/trainer"
)

// openEngine makes the job's engine. One that does not share the trainer's parameters has weights of its own until begin.
func (s *session) openEngine(ctx context.Context) (err error) {
	e := s.job.Engine
	switch e.Kind {
	case "vllm":
		return s.openVLLM(ctx)
	case "openai":
		s.engine, err = openai.New(openai.Options{URL: e.URLs[0], Model: e.ServedModel, APIKey: e.APIKey, Encode: s.policy.Tokenizer.Encode, MaxModelLen: s.policy.Config.MaxContext()})
		s.notes = append(s.notes, "engine "+e.URLs[0]+": the endpoint returns text; the stored tokens are the tokenizer's, without logprobs")
		return err
	}
	model := s.policy.Model
	if s.policy.Device() != "cpu" {
		if s.mirror, err = newMirror(model); err != nil {
			return err
		}
		model = s.mirror.model
		s.notes = append(s.notes, "the local engine decodes on the CPU, with a copy of the weights that each update renews; training runs on "+s.policy.Device())
	}
	s.engine, err = local.New(model, local.Options{
		CacheTokens: e.CacheTokens, MaxSequences: e.MaxSequences, MaxModelLen: min(s.policy.Config.MaxContext(), e.CacheTokens),
		Decoder: s.policy.Tokenizer, BFloat16: e.DType == "bfloat16",
	})
	return err
}

// openVLLM connects to the job's servers, or starts one with the policy's weights.
func (s *session) openVLLM(ctx context.Context) error {
	e := s.job.Engine
	if err := checkWeights(s.job); err != nil {
		return err
	}
	if err := s.makeWeightsFolder(); err != nil {
		return err
	}
	if s.weights.run == "" { // no training run
		s.weights.run = vllm.NewRun(s.job.Name)
	}
	o := vllm.Options{Run: s.weights.run, URLs: e.URLs, Model: e.ServedModel, APIKey: e.APIKey, Way: vllm.Way(e.Weights), Sleep: e.Sleep, Collectives: collectives{device: s.policy.Device()}}
	if e.Serve != nil {
		if err := s.serveVLLM(ctx); err != nil {
			return err
		}
		o.URLs, o.Gone, o.APIKey = []string{s.server.URL()}, s.server.Gone, s.server.APIKey()
		o.Patience = job.Seconds(e.Serve.Timeout) + patienceAfterStart // a request waits for a server that is started again
	}
	engine, err := vllm.New(ctx, o)
	if err != nil {
		return err
	}
	s.engine = engine
	for _, line := range strings.Split(engine.Summary(), "\n") {
		s.notes = append(s.notes, "engine "+line)
	}
	return nil
}

// patienceAfterStart is the time for the weights and their proof.
const patienceAfterStart = 5 * time.Minute

// serveVLLM starts a server, which is started again when it ends by itself.
func (s *session) serveVLLM(ctx context.Context) (err error) {
	e := s.job.Engine
	initial := filepath.Join(s.weights.folder, "initial")
	save := s.policy.SaveHF
	if e.Weights == "lora" { // the adapter comes on top
		save = s.policy.SaveBase
	}
	if err := save(initial, modelfile.F32); err != nil {
		return err
	}
	restarts := e.Serve.Restarts
	if restarts == 0 {
		restarts = -1
	}
	s.server, err = vllm.Keep(ctx, vllm.ServeOptions{
		Command: s.command(e.Serve.Command), Model: initial, MaxModelLen: s.policy.Config.MaxContext(), Args: e.Serve.Args,
		DType: e.Serve.DType, CPU: s.job.Device == "cpu", Timeout: job.Seconds(e.Serve.Timeout), Restarts: restarts, Sleep: e.Sleep > 0,
		Folder: filepath.Join(s.weights.folder, "vllm"), Backend: vllm.Way(e.Weights).ServerBackend(),
		LoRARank: s.servedRank(), APIKey: e.APIKey,
	}, s.note)
	return err
}

// note tells the user something that happens while the run goes on.
func (s *session) note(line string) {
	s.said.Lock()
	defer s.said.Unlock()
	s.late = append(s.late, line)
}

// lateNotes takes what was noted since the last call.
func (s *session) lateNotes() []string {
	s.said.Lock()
	defer s.said.Unlock()
	out := s.late
	s.late = nil
	return out
}

// servedRank is the rank that a server must allow, of those that vLLM takes; 0 leaves its default.
func (s *session) servedRank() int {
	c, ok := s.policy.Model.Adapter()
	if !ok {
		return 0
	}
	for _, rank := range []int{8, 16, 32, 64, 128, 256, 320, 512} {
		if c.Rank <= rank {
			return rank
		}
	}
	return c.Rank // vLLM says what it takes
}

// command is a name on PATH, or a path relative to the job file.
func (s *session) command(name string) string {
	if strings.ContainsRune(name, filepath.Separator) {
		return s.job.Resolve(name)
	}
	return name
}

// weightSync is what moves the policy to an engine that does not share its parameters.
type weightSync struct {
	run     string // name of the run, which the weights have on servers
	folder  string // of this session, removed at its end
	current string // folder inside it that the engine has, or nothing yet
	probe   []int32
	seconds float64 // spent on updates since the last step
}

// makeWeightsFolder makes the folder where the servers find checkpoints.
func (s *session) makeWeightsFolder() error {
	parent := os.TempDir()
	if f := s.job.Engine.Folder; f != "" {
		parent = s.job.Resolve(f)
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return fmt.Errorf("orchestrator: engine.folder: %w", err)
		}
	}
	parent, err := filepath.Abs(parent)
	if err != nil {
		return fmt.Errorf("orchestrator: engine.folder: %w", err)
	}
	removed, err := vllm.RemoveStale(parent, "weights")
	if err != nil { // somebody else's; not worth a run
		s.notes = append(s.notes, "weights of a killed run could not be removed: "+err.Error())
	}
	for _, name := range removed {
		s.notes = append(s.notes, "removed what a killed run left: "+filepath.Join(parent, name))
	}
	folder, err := os.MkdirTemp(parent, vllm.TempPattern("weights"))
	if err != nil {
		return fmt.Errorf("orchestrator: engine.folder: %w", err)
	}
	s.weights.folder = folder
	if err := os.Chmod(folder, 0o755); err != nil { // the servers may run as somebody else
		return fmt.Errorf("orchestrator: engine.folder: %w", err)
	}
	return nil
}

// probeTokens is the length of the sequence that proves an update.
const probeTokens = 64

// rest gives the device's memory to the trainer, if the job shares it. push wakes the engine again.
func (s *session) rest(ctx context.Context) error {
	sleeper, ok := s.engine.(engines.Sleeper)
	if s.job.Engine.Sleep == 0 || !ok {
		return nil
	}
	if s.server != nil {
		s.server.Hold(true)
	}
	return sleeper.Sleep(ctx)
}

// begin gives the engine the policy's weights before the first rollout. An engine that shares them needs the version alone.
func (s *session) begin(ctx context.Context, version int32) error {
	if s.engine == nil || !s.engine.Capabilities().TokenIDs { // not our weights
		return nil
	}
	if s.engine.Capabilities().SharedParameters {
		if version == 0 {
			return nil
		}
		return s.engine.Update(ctx, engines.Weights{Version: version, Apply: func(context.Context) error {
			if s.mirror != nil { // the trainer's folder may have changed the policy
				return s.mirror.renew()
			}
			return nil
		}})
	}
	r := rand.New(rand.NewPCG(s.job.Seed, probeTokens))
	for range min(probeTokens, s.engine.Capabilities().MaxModelLen/2) {
		s.weights.probe = append(s.weights.probe, int32(r.IntN(s.policy.Config.VocabSize)))
	}
	return s.push(ctx, version)
}

// push saves the policy and moves the engine to it, with what the trainer computes for the probe as the proof.
func (s *session) push(ctx context.Context, version int32) error {
	defer watchdog.Enter(ctx, "weights", "version "+strconv.Itoa(int(version))).Leave()
	start := time.Now()
	next := filepath.Join(s.weights.folder, "version-"+strconv.Itoa(int(version)))
	save := func() error { return s.policy.SaveHF(next, modelfile.F32) }
	if s.job.Engine.Weights == "lora" {
		save = func() error { return s.policy.SaveAdapter(next, "") }
	}
	if err := save(); err != nil {
		return err
	}
	var logprobs []float32
	err := s.worker.Do(ctx, func() (err error) {
		logprobs, _, err = trainer.ScoreIDs(s.policy.Model, s.weights.probe, 1)
		return err
	})
	if err != nil {
		return err
	}
	if s.server != nil {
		s.server.Hold(false)
	}
	err = s.engine.Update(ctx, engines.Weights{
		Version: version, Path: next, Probe: &engines.Probe{TokenIDs: s.weights.probe, Logprobs: logprobs, Tolerance: s.job.Engine.Tolerance},
	})
	if err != nil {
		return err
	}
	old := s.weights.current
	s.weights.current = next
	s.weights.seconds += time.Since(start).Seconds()
	if old == "" || old == next {
		return nil
	}
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("orchestrator: old weights: %w", err)
	}
	return nil
}

// keepLog copies the server's log into the run's folder, if the run got so far as to have one.
func (s *session) keepLog() error {
	if !exists(s.job.Output) {
		return nil
	}
	data, err := os.ReadFile(s.server.Log())
	if err == nil {
		err = os.WriteFile(filepath.Join(s.job.Output, "vllm.log"), data, 0o644)
	}
	if err != nil {
		return fmt.Errorf("orchestrator: vLLM's log: %w", err)
	}
	return nil
}

// closeEngine ends engine and server and removes the weights that only they needed.
func (s *session) closeEngine() error {
	var errs []error
	if s.engine != nil {
		errs = append(errs, s.engine.Close())
	}
	if s.mirror != nil {
		errs = append(errs, s.mirror.model.Close())
	}
	if s.server != nil {
		errs = append(errs, s.server.Close(), s.keepLog())
	}
	if s.weights.folder != "" {
		errs = append(errs, os.RemoveAll(s.weights.folder))
	}
	return errors.Join(errs...)
}
