package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/dialects/forms"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/pool"
	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/processes"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/weights"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trainer"
)

// Registries hold what job files name.
type Registries struct {
	Tools        *tools.Catalog
	Agents       *agents.Registry // kinds of agents and call formats; nil: those of package agents
	Rewards      *rewards.Registry
	Algorithms   *algorithms.Registry
	Engines      *engines.Registry      // nil: the program's own kinds
	Environments *environments.Registry // nil: none
}

// Session is everything that a run computes with, opened from a job. It is equipped first, then opened, and closed whatever became of that.
type Session struct {
	Job       *job.Job
	Policy    *policy.Policy // nil before Open
	Worker    *cgo.Worker    // the thread that the policy is trained on; nil before Open
	Weights   weights.Sync   // the engine, and the way to it
	Sampler   rollout.Sampler
	Notes     Notes
	Logs      Logs
	World     *World  // nil: the job has no environment
	Guests    *Guests // nil: the agents are no programs of their own; else from Open on
	Hold      bool    // the gateway of such agents answers nobody before Guests.Answer
	agent     *agents.Agent
	text      *text // nil before Open
	resources *resources.Resources
	formats   *agents.Registry
	look      bool           // nothing that the job names is run
	terms     []term         // the job's rewards
	reference *policy.Policy // frozen, as the job's model began; nil unless kl needs it
}

// New is a session that holds nothing yet.
func New(j *job.Job) *Session { return newSession(j, false) }

// NewLook is a session to check a job with: nothing that the job names is run or asked. It is equipped only.
func NewLook(j *job.Job) *Session { return newSession(j, true) }

func newSession(j *job.Job, look bool) *Session {
	s := &Session{Job: j, look: look}
	for _, note := range j.LeftOut() {
		s.Notes.Know(note)
	}
	s.resources = newResources(j, s.Notes.Once, &s.Logs, look)
	return s
}

// Equip makes the job's tools, the agent that calls them, and its rewards: what is wrong with them is told before a model is
// opened.
func (s *Session) Equip(ctx context.Context, r Registries) (err error) {
	defer watchdog.Enter(ctx, "start", "tools and rewards").Leave()
	s.formats = r.Agents
	if s.World, err = makeWorld(ctx, s.Job, r.Environments, s.resources, s.look, s.Notes.Note); err == nil {
		err = s.makeTools(ctx, r)
	}
	if err == nil {
		err = checkForks(s.Job, s.Sampler.Tools, s.World)
	}
	var wrong error
	s.Sampler.Reward, s.terms, wrong = makeReward(s.Job, r.Rewards.Builder(ctx, s.resources))
	return errors.Join(err, wrong, s.Weights.Check(s.Job, r.Engines))
}

// makeTools makes the job's tools, and the agent that calls them.
func (s *Session) makeTools(ctx context.Context, r Registries) (err error) {
	m := toolMaker{s.Job, r.Tools, s.resources, s.World}
	var whole bool
	if s.Sampler.Tools, whole, err = m.all(ctx, tools.Options{Report: reportPanics(s.Notes.Note)}); err != nil {
		return err
	}
	s.agent, err = makeAgent(ctx, s.Job, r.Agents, s.resources, systemOf(s.Job, s.World), s.Sampler.Tools.Specs())
	if err != nil && !whole { // it may want the tools that are not there
		s.agent, err = nil, nil
	}
	return err
}

// Reach asks whether what the tools call elsewhere is there, before a model is opened: calls that nobody can answer would be tried again and
// again, and a model that reads nothing but errors learns nothing.
func (s *Session) Reach(ctx context.Context, toolsOff bool) error {
	if s.Job.SFT != nil || s.Job.Control.ToolsOff || toolsOff { // nothing is called
		return nil
	}
	defer watchdog.Enter(ctx, "start", "services").Leave()
	return s.resources.Begin(ctx)
}

// OpenPolicy loads the policy from path ("" is the job's own) and nothing else: what a process needs that only trains.
func (s *Session) OpenPolicy(path string) (err error) {
	s.Worker = cgo.NewWorker()
	if s.Policy, err = loadPolicy(s.Job, path); err != nil {
		return err
	}
	if path == "" && s.Job.Model.LoRA.On() { // a checkpoint's weights are merged
		return addAdapter(s.Job, s.Policy)
	}
	return nil
}

// Open loads the policy from path ("" is the job's own) and everything around it. The session is equipped already.
func (s *Session) Open(ctx context.Context, path string) error {
	j := s.Job
	defer watchdog.Enter(ctx, "start", "model and engine").Leave()
	if err := s.OpenPolicy(path); err != nil {
		return err
	}
	var err error
	if s.text, err = newText(j, s.Policy, path, s.agent, s.Notes.Know); err != nil {
		return err
	}
	if j.SFT != nil { // nothing is sampled
		return s.makeSampler()
	}
	if err := checkWeights(j); err != nil {
		return err
	}
	if err := s.Weights.Open(ctx, weights.Config{Job: j, Policy: s.Policy, Worker: s.Worker, Note: s.Notes.Know, Report: s.Notes.Note}); err != nil {
		return err
	}
	if j.Deterministic && !s.Weights.Engine().Capabilities().BatchInvariant {
		return j.Fail("deterministic", "true needs an engine whose results do not depend on what runs beside a request; use engine: {kind: local}")
	}
	if err := s.makeSampler(); err != nil {
		return err
	}
	return s.openGuests(ctx)
}

// Start makes everything else that rollouts need, with the model at path; "" is the job's own. The session is equipped already.
func (s *Session) Start(ctx context.Context, path string, toolsOff bool) error {
	if err := s.Reach(ctx, toolsOff); err != nil {
		return err
	}
	if err := s.Open(ctx, path); err != nil {
		return err
	}
	return s.Weights.Begin(ctx, 0)
}

// makeSampler makes what samples, of tools, policy and engine.
func (s *Session) makeSampler() error {
	j, chosen := s.Job, s.Sampler.Tools
	chosen.Measure(s.Policy.Tokenizer)
	prompt, err := s.text.prompt(s.Weights.Engine(), s.Notes.Know)
	if err != nil {
		return err
	}
	stops, err := s.text.stops()
	if err != nil {
		return err
	}
	s.Sampler = rollout.Sampler{
		Engine: s.Weights.Engine(), Renderer: s.text.renderer, Format: s.agent.Format, Tools: chosen, Reward: s.Sampler.Reward, Schemas: prompt.Schemas, Prefix: prompt.Messages,
		Decode: s.text.decoder(s.Policy.Tokenizer),
		Sampling: engines.Sampling{
			MaxTokens: j.Rollout.MaxNewTokens, Temperature: j.Rollout.Temperature, TopP: j.Rollout.TopP, TopK: j.Rollout.TopK,
			MinP: j.Rollout.MinP, StopIDs: s.text.renderer.StopIDs(), Stop: stops,
		},
		MaxTurns: j.Agent.MaxTurns, MaxCalls: j.Agent.MaxCalls, MaxAtOnce: j.Agent.MaxAtOnce, MaxTotal: j.Rollout.MaxTokens,
		Timeout: job.Seconds(j.Rollout.TurnTimeout), Deadline: job.Seconds(j.Rollout.Timeout), Seed: j.Seed, RunName: j.Name,
		AgentTimeout: job.Seconds(j.Rollout.ToolTimeout), ToolsOff: j.Control.ToolsOff, Cut: j.Rollout.Cut, World: s.World.sampled(),
	}
	limits := []int{s.Policy.Config.MaxContext()}
	if e := s.Weights.Engine(); e != nil {
		limits = append(limits, e.Capabilities().MaxModelLen)
	}
	for _, limit := range limits {
		if limit > 0 && limit < j.Rollout.MaxTokens && s.Weights.Engine() != nil && j.ChosenTokens() {
			s.Notes.Once(fmt.Sprintf("rollout.max_tokens is %d, and the model's context or engine.cache_tokens hold %d: trajectories end there", j.Rollout.MaxTokens, limit))
		}
		if limit > 0 {
			s.Sampler.MaxTotal = min(s.Sampler.MaxTotal, limit)
		}
	}
	s.Sampler.Frozen = j.Agent.Frozen()
	s.Sampler.Trees = rollout.TreesOf(j.Rollout, s.Policy.Config.VocabSize)
	if e := s.Weights.Engine(); e != nil {
		return checkMeasured(j, s.Sampler.Trees, e.Capabilities())
	}
	return nil
}

// openGuests has agents that are programs of their own take the turns, where the job says so.
func (s *Session) openGuests(ctx context.Context) (err error) {
	if s.Job.Agent.Kind != agents.External || s.Weights.Engine() == nil {
		return nil
	}
	o := gatewayOf(s.Job, &s.Sampler, s.formats)
	o.Encode, o.Warn = s.Policy.Tokenizer.Encode, s.Notes.Note
	if s.Job.Agent.Forms == "held" {
		if !o.Engine.Capabilities().Constraints {
			return s.Job.Fail("agent.forms", "held: the engine does not constrain decoding; use engine: {kind: local}, or forms: free")
		}
		o.Forms = forms.New(s.Policy.Tokenizer, s.Policy.Config.VocabSize, s.Sampler.Sampling.StopIDs)
	}
	if s.Guests, err = openGuests(ctx, s.Job, o, s.resources.Sandbox, s.Hold); err != nil {
		return err
	}
	if !s.Hold { // else who lets it answer says where it is
		s.Notes.Know(fmt.Sprintf("agents of other programs sample over the gateway at %s", s.Guests.url))
	}
	s.Sampler.External = s.Guests.sampled()
	return nil
}

// BeginAnew tells the sampler how a trajectory begins anew whose environment failed: drop forgets what was recorded of it. Notes say which do, and
// which go on after a process that ended.
func (s *Session) BeginAnew(drop func(id string)) {
	if s.Sampler.External != nil {
		s.Sampler.External.Forget = drop
	}
	if s.Sampler.World == nil {
		return
	}
	s.Sampler.World.Forget = func(id string, why error) {
		drop(id)
		s.Notes.Note(fmt.Sprintf("trajectory %s begins anew: %s", id, job.Plain(why, "orchestrator: "+id+": ")))
	}
	s.Sampler.World.WentOn = func(id, how string) { s.Notes.Note(fmt.Sprintf("trajectory %s goes on: %s", id, how)) }
}

// adamW is the job's optimizer. On a CPU the moments lie in host memory as it is.
func (s *Session) adamW() cgo.AdamWConfig {
	t := s.Job.Trainer
	c := cgo.AdamWConfig{Beta1: t.Beta1, Beta2: t.Beta2, Eps: t.Eps, WeightDecay: t.WeightDecay}
	if t.Offload == "optimizer" && s.Policy.Device() != "cpu" {
		c.Offload = cgo.OffloadChunk
	}
	return c
}

// Trainer makes the trainer whose writes to the parameters go through the engine's barrier, if there is one, with what the algorithm needs
// beside the policy: a critic's value head, a frozen reference. ranks are the processes that train together, nil is this one alone; version
// is the policy's, which the trainer's writes raise, also where no engine samples; nil is that of another rank.
func (s *Session) Trainer(a *algorithms.Algorithm, ranks *processes.Group, version *int32) (*trainer.Trainer, error) {
	t := s.Job.Trainer
	c := trainer.Config{
		Schedule: scheduleOf(t, a),
		AdamW:    s.adamW(),
		ClipGrad: t.ClipGrad, Temperature: s.Job.Rollout.Temperature, MicroBatchTokens: t.MicroBatchTokens,
		MaxLength: s.Policy.Config.MaxContext(), Checkpoint: t.Checkpointed(),
	}
	if version != nil {
		c.Barrier, c.Shared = s.Weights.Barrier(version), s.Weights.Shared()
	}
	if ranks != nil {
		c.Group, c.Neighbours = ranks.Group, ranks.Neighbours
		if ranks.Config.Rank > 0 { // rank 0's comes with every step: it alone knows how many steps the data make
			c.Schedule = trainer.Schedule{LearningRate: t.LearningRate}
		}
	}
	if a.HasCritic() {
		if err := s.Policy.Model.AddValueHead(); err != nil {
			return nil, err
		}
	}
	if _, adapted := s.Policy.Model.Adapter(); adapted && a.NeedsReference() {
		c.Reference = trainer.AdapterOff{Model: s.Policy.Model}
	} else if a.NeedsReference() {
		reference, err := loadPolicy(s.Job, "") // also when a run is resumed: the reference is where the run began
		if err != nil {
			return nil, err
		}
		s.reference, c.Reference = reference, trainer.FrozenModel{Model: reference.Model}
	}
	return trainer.NewTrainer(s.Policy.Model, s.Worker, a, c)
}

// Pools are the pools of all that the job lends to trajectories, as they are now: its environments, and what its tools keep ready.
func (s *Session) Pools() []pool.Stats { return s.resources.Pools().All() }

// NoteLeftOver notes which tools still run calls that nobody waits for.
func (s *Session) NoteLeftOver() {
	if left := leftOver(s.Sampler.Tools); left != "" {
		s.Notes.Note(left)
	}
}

// Close closes what was opened and equipped.
func (s *Session) Close() error {
	var errs []error
	errs = append(errs, s.Guests.close(), s.Weights.Close(), s.World.close(), s.resources.Close(), s.Logs.Close())
	if s.Worker != nil {
		errs = append(errs, s.Worker.Close())
	}
	for _, p := range []*policy.Policy{s.Policy, s.reference} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	return errors.Join(errs...)
}
