package weights

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

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/local"
	"github.com/agentfly/agentfly/engines/openai"
	"github.com/agentfly/agentfly/engines/vllm"
	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/trainer"
)

// Config is what a Sync is opened with.
type Config struct {
	Job    *job.Job
	Policy *policy.Policy    // whose weights the engine gets
	Worker *cgo.Worker       // the trainer's thread, which computes proofs
	Note   func(text string) // takes what the user should know of how the job runs; called by Open only
	Report func(text string) // takes what happens while the run goes on; safe for concurrent use
}

// Lender is a trainer that gives its device's memory to the servers while they sample, and takes it back while they sleep.
type Lender interface {
	LendMemory(ctx context.Context) error
	ReclaimMemory(ctx context.Context) error
}

// Sync opens the job's engine, moves the policy's weights to it, version by version, and closes it. The zero value has no engine. An
// engine with SharedParameters reads the policy's own parameters, wherever they lie, or a mirror's on the CPU, and is only held still while they are written; any other
// gets a checkpoint, with a probe that proves that it computes with it. Its methods are called by one goroutine at a time; what they return is
// as safe as its own contract says.
type Sync struct {
	Run     string  // name of the run, which its weights have on servers; empty: Open makes one up
	Seconds float64 // spent by Push since the caller set it to 0
	Lender  Lender  // the trainer whose device the servers share where they sleep (engine.sleep); nil: it keeps its memory

	c       Config
	kinds   *engines.Registry // nil: this program's
	engine  engines.Engine
	server  *vllm.Kept // that the job started; nil for none
	log     serverLog  // of that server
	mirror  *mirror    // that a local engine on the CPUs reads of a policy on a device; nil for none
	folder  string     // of this process's checkpoints, removed by Close
	current string     // folder inside it that the engine has, or nothing yet
	probe   []int32
	sleep   int      // engine.sleep of the job
	types   []string // that the servers compute in
	tensors *tensors // of the last update that went from the device; nil for none
}

// NewRun makes a name for a run of a job, which its weights have on servers and those of no other run.
func NewRun(job string) string { return vllm.NewRun(job) }

// Engine is the engine that samples; nil before Open.
func (s *Sync) Engine() engines.Engine { return s.engine }

// Use puts another engine in the place of the one that was opened, such as one that records it. Close closes it.
func (s *Sync) Use(e engines.Engine) { s.engine = e }

// Check refuses a job whose kind of engine is neither one of this program's nor in r, from which Open makes it.
func (s *Sync) Check(j *job.Job, r *engines.Registry) error {
	s.kinds = r
	if err := r.Check(j.Engine.Kind); err != nil {
		return j.Fail("engine.kind", "%s", job.Plain(err, "engines: "))
	}
	return nil
}

// Trainable refuses to train with an engine that lacks what training needs. Without an engine nothing is refused.
func (s *Sync) Trainable() error {
	if s.engine == nil {
		return nil
	}
	var lacks string
	switch c := s.engine.Capabilities(); {
	case !c.TokenIDs:
		lacks = "the token ids and logprobs that were sampled, and the engine returns text (no capability TokenIDs)"
	case !c.WeightUpdates:
		lacks = "an engine that takes each step's weights, and this one takes none (no capability WeightUpdates)"
	default:
		return nil
	}
	kind := s.c.Job.Engine.Kind
	return s.c.Job.Fail("engine.kind", "%s: training needs %s; use it for rollout and eval, and local or vllm to train", kind, lacks)
}

// Open makes the job's engine. One that does not share the trainer's parameters has weights of its own until Begin.
func (s *Sync) Open(ctx context.Context, c Config) (err error) {
	s.c, s.sleep = c, c.Job.Engine.Sleep
	e := c.Job.Engine
	if !engines.BuiltIn(e.Kind) {
		return s.openRegistered(ctx)
	}
	switch e.Kind {
	case "vllm":
		return s.openVLLM(ctx)
	case "openai":
		endpoint, err := openai.New(openai.Options{URL: e.URLs[0], Model: e.ServedModel, APIKey: e.APIKey, Encode: s.c.Policy.Tokenizer.Encode, MaxModelLen: s.c.Policy.Config.MaxContext()})
		if err != nil { // a nil of its type is not nil as an engine
			return err
		}
		s.engine = endpoint
		s.c.Note("engine " + e.URLs[0] + ": the endpoint returns text; the stored tokens are the tokenizer's, without logprobs")
		return nil
	}
	return s.openLocal()
}

// openLocal makes the engine in this process.
func (s *Sync) openLocal() error {
	e := s.c.Job.Engine
	model, computes, err := s.decoded(s.c.Policy.Device())
	if err != nil {
		return err
	}
	engine, err := local.New(model, local.Options{
		CacheTokens: e.CacheTokens, MaxSequences: e.MaxSequences, MaxModelLen: min(s.c.Policy.Config.MaxContext(), e.Holds()),
		Decoder: s.c.Policy.Tokenizer, BFloat16: computes.BFloat16,
	})
	if err != nil { // a nil of its type is not nil as an engine
		return err
	}
	s.engine = engine
	return nil
}

// decoded is the model that the local engine reads, of a policy on device: the policy's own, or, where the engine computes on the CPUs beside a
// device, a mirror. Several ranks change nothing: the trainer keeps rank 0's parameters whole for an engine that shares them (trainer.Config),
// and what ranks share of a layer are views of whole matrices.
func (s *Sync) decoded(device string) (*cgo.Model, job.Local, error) {
	model := s.c.Policy.Model
	computes, err := s.c.Job.Local(device)
	switch {
	case err != nil:
		return nil, computes, err
	case computes.Device != device:
		if s.mirror, err = newMirror(model); err != nil {
			return nil, computes, err
		}
		s.c.Note(s.mirror.note(device, computes.Why))
		return s.mirror.model, computes, nil
	case device != "cpu":
		s.c.Note("the local engine samples on " + device + " too, in the type of the trainer and from its weights")
	}
	return model, computes, nil
}

// openRegistered makes an engine of a kind that the program registered.
func (s *Sync) openRegistered(ctx context.Context) (err error) {
	j, p := s.c.Job, s.c.Policy
	if err := s.makeFolder(); err != nil {
		return err
	}
	s.engine, err = s.kinds.Make(ctx, j.Engine.Kind, engines.Setup{
		Params: j.Engine.Params, Resolve: j.Resolve, Encode: p.Tokenizer.Encode, Decode: func(ids []int32) string { return p.Tokenizer.Decode(ids, false) },
		MaxContext: p.Config.MaxContext(), Vocabulary: p.Config.VocabSize, Folder: s.folder,
		Note: func(text string) { s.c.Note("engine " + j.Engine.Kind + ": " + text) },
	})
	if err != nil {
		return j.Fail("engine", "%s", job.Plain(err, "engines: "))
	}
	c := s.engine.Capabilities()
	if c.MaxModelLen < 2 {
		return j.Fail("engine.kind", "%s: its Capabilities say that it takes %d tokens (MaxModelLen), and a prompt and a completion need 2", j.Engine.Kind, c.MaxModelLen)
	}
	if _, sleeps := s.engine.(engines.Sleeper); s.sleep > 0 && !sleeps {
		return j.Fail("engine.sleep", "%d: an engine of kind %s cannot sleep (it is no engines.Sleeper); leave it out", s.sleep, j.Engine.Kind)
	}
	if s.sleep > 0 && c.SharedParameters { // a step that writes nothing would leave it asleep
		return j.Fail("engine.sleep", "%d: an engine of kind %s shares the trainer's parameters, so it cannot sleep while they are written; leave it out", s.sleep, j.Engine.Kind)
	}
	if !c.WeightUpdates {
		s.c.Note("engine " + j.Engine.Kind + ": it takes no weights (no capability WeightUpdates); what it samples is its own model's")
	}
	return nil
}

// openVLLM connects to the job's servers, or starts one with the policy's weights.
func (s *Sync) openVLLM(ctx context.Context) error {
	e := s.c.Job.Engine
	if err := s.makeFolder(); err != nil {
		return err
	}
	if s.Run == "" { // no training run
		s.Run = NewRun(s.c.Job.Name)
	}
	o := clientOptions(s.c.Job)
	o.Run, o.Collectives = s.Run, collectives{device: s.c.Policy.Device()}
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
	for _, server := range engine.Servers() {
		s.types = append(s.types, server.DType)
	}
	for _, line := range strings.Split(engine.Summary(), "\n") {
		s.c.Note("engine " + line)
	}
	return nil
}

// clientOptions are those of the engine over the job's servers, as far as the job alone says them.
func clientOptions(j *job.Job) vllm.Options {
	e := j.Engine
	return vllm.Options{
		URLs: e.URLs, Model: e.ServedModel, APIKey: e.APIKey, Way: vllm.Way(e.Weights), Sleep: e.Sleep,
		AttemptTimeout: max(leastAttempt, job.Seconds(j.Rollout.TurnTimeout)),
	}
}

// leastAttempt is the time of an attempt where no completion may take longer. rollout.turn_timeout, which holds for all attempts of a completion
// together, is never longer than one attempt: a completion that hangs fails with it, and is not tried elsewhere.
const leastAttempt = 10 * time.Minute

// patienceAfterStart is the time for the weights and their proof.
const patienceAfterStart = 5 * time.Minute

// makeFolder makes the folder where the servers find checkpoints.
func (s *Sync) makeFolder() error {
	parent := os.TempDir()
	if f := s.c.Job.Engine.Folder; f != "" {
		parent = s.c.Job.Resolve(f)
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
		s.c.Note("weights of a killed run could not be removed: " + err.Error())
	}
	for _, name := range removed {
		s.c.Note("removed what a killed run left: " + filepath.Join(parent, name))
	}
	folder, err := os.MkdirTemp(parent, vllm.TempPattern("weights"))
	if err != nil {
		return fmt.Errorf("orchestrator: engine.folder: %w", err)
	}
	s.folder = folder
	if err := os.Chmod(folder, 0o755); err != nil { // the servers may run as somebody else
		return fmt.Errorf("orchestrator: engine.folder: %w", err)
	}
	return nil
}

// probeTokens is the length of the sequence that proves an update.
const probeTokens = 64

// Rest gives the device's memory to the trainer, if the job shares it. Push gives it back and wakes the engine again.
func (s *Sync) Rest(ctx context.Context) error {
	sleeper, ok := s.engine.(engines.Sleeper)
	if s.sleep == 0 || !ok {
		return nil
	}
	if err := sleeper.Sleep(ctx); err != nil {
		return err
	}
	if s.server != nil { // not before: Sleep waits for a server that ended, and one that ends now is not started at once either
		s.server.Hold(true)
	}
	if s.Lender == nil {
		return nil
	}
	return s.Lender.ReclaimMemory(ctx)
}

// Begin gives the engine the policy's weights before the first rollout. An engine that shares them needs the version alone.
func (s *Sync) Begin(ctx context.Context, version int32) error {
	if s.engine == nil {
		return nil
	}
	if c := s.engine.Capabilities(); !c.TokenIDs || !c.WeightUpdates { // not our weights
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
	r := rand.New(rand.NewPCG(s.c.Job.Seed, probeTokens))
	for range min(probeTokens, s.engine.Capabilities().MaxModelLen/2) {
		s.probe = append(s.probe, int32(r.IntN(s.c.Policy.Config.VocabSize)))
	}
	return s.Push(ctx, version)
}

// Shared reports whether the engine reads the policy's parameters, or a copy that each write renews, without a Push.
func (s *Sync) Shared() bool { return s.engine != nil && s.engine.Capabilities().SharedParameters }

// Barrier is where the optimizer writes the parameters: no decode step of an engine that shares them reads them meanwhile.
func (s *Sync) Barrier(version *int32) func(context.Context, func(context.Context) error) error {
	return func(ctx context.Context, write func(context.Context) error) error {
		if !s.Shared() {
			if err := write(ctx); err != nil {
				return err
			}
			*version++ // the engine gets the last one of a step, see Push
			return nil
		}
		apply := write
		if s.mirror != nil {
			apply = func(ctx context.Context) error {
				if err := write(ctx); err != nil {
					return err
				}
				return s.mirror.renew()
			}
		}
		if err := s.engine.Update(ctx, engines.Weights{Version: *version + 1, Apply: apply}); err != nil {
			return err
		}
		*version++
		return nil
	}
}

// Push saves the policy and moves the engine to it, with what the trainer computes for the probe as the proof.
func (s *Sync) Push(ctx context.Context, version int32) error {
	defer watchdog.Enter(ctx, "weights", "version "+strconv.Itoa(int(version))).Leave()
	start := time.Now()
	w, err := s.weights(version)
	if err != nil {
		return err
	}
	var logprobs []float32
	err = s.c.Worker.Do(ctx, func() (err error) {
		logprobs, _, err = trainer.LogprobsOf(s.c.Policy.Model, s.probe, 1)
		return err
	})
	if err != nil {
		return err
	}
	if s.sleep > 0 && s.Lender != nil { // before a server wakes, and before one that died is started again
		if err := s.Lender.LendMemory(ctx); err != nil {
			return err
		}
	}
	if s.server != nil {
		s.server.Hold(false)
	}
	w.Probe = &engines.Probe{TokenIDs: s.probe, Logprobs: logprobs, Tolerance: s.tolerance()}
	err = s.engine.Update(ctx, w)
	if s.tensors != nil {
		err = errors.Join(err, s.tensors.free())
	}
	if err != nil {
		return err
	}
	old, next := s.current, w.Path
	s.current = next
	s.Seconds += time.Since(start).Seconds()
	if old == "" || old == next {
		return nil
	}
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("orchestrator: old weights: %w", err)
	}
	return nil
}

// weights are the policy's as the engine takes them: in the memory of its device, or in a folder, which is written now unless the engine has that
// version.
func (s *Sync) weights(version int32) (w engines.Weights, err error) {
	w.Version = version
	if s.direct() {
		s.tensors = newTensors(s.c.Policy.Model, s.wire(), s.c.Job.Engine.Weights == "ipc")
		w.Tensors = s.tensors
		return w, nil
	}
	w.Path = filepath.Join(s.folder, "version-"+strconv.Itoa(int(version)))
	if w.Path == s.current { // of a step that moved nothing: the engine only wakes
		return w, nil
	}
	if s.c.Job.Engine.Weights == "lora" {
		return w, s.c.Policy.SaveAdapter(w.Path, "")
	}
	return w, s.c.Policy.SaveHF(w.Path, modelfile.F32)
}

// Close ends engine and server and removes the weights that only they needed.
func (s *Sync) Close() error {
	var errs []error
	if s.engine != nil {
		errs = append(errs, s.engine.Close())
	}
	if s.tensors != nil {
		errs = append(errs, s.tensors.free())
	}
	if s.mirror != nil {
		errs = append(errs, s.mirror.model.Close())
	}
	if s.server != nil {
		errs = append(errs, s.server.Close())
	}
	if s.log.folder != "" {
		s.log.close(s.c.Job.Output, s.c.Report)
	}
	if s.folder != "" {
		errs = append(errs, os.RemoveAll(s.folder))
	}
	return errors.Join(errs...)
}
