package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/environments"
	"github.com/agentfly/agentfly/internal/panics"
	"github.com/agentfly/agentfly/internal/watchdog"
	"github.com/agentfly/agentfly/masks"
	"github.com/agentfly/agentfly/orchestrator/data"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/processes"
	"github.com/agentfly/agentfly/orchestrator/rollout"
	"github.com/agentfly/agentfly/orchestrator/weights"
	"github.com/agentfly/agentfly/policy"
	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/tools"
	"github.com/agentfly/agentfly/trainer"
	"github.com/agentfly/agentfly/trajectory"
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
	reference *policy.Policy // frozen, as the job's model began; nil unless kl needs it
	renderer  *masks.Renderer
	agent     *agents.Agent
	marks     []string // of the agent: texts that stay special tokens
	resources *resources.Resources
	world     *world  // nil: the job has no environment
	guests    *guests // nil: the agents are no programs of their own
	silent    bool    // the gateway answers nobody yet
	formats   *agents.Registry
	look      bool   // nothing that the job names is run
	terms     []term // the job's rewards
	train     *data.Tasks
	held      *data.Tasks
	learn     *data.SFT // what Check read; nil: nothing of the kind
}

// New is a session that holds nothing yet.
func New(j *job.Job) *Session { return newSession(j, false) }

// NewLook is a session to check a job with: nothing that the job names is run or asked. It is equipped only.
func NewLook(j *job.Job) *Session { return newSession(j, true) }

func newSession(j *job.Job, look bool) *Session {
	s := &Session{Job: j, look: look}
	s.resources = newResources(j, s.Notes.Once, &s.Logs, look)
	return s
}

// NotRun is what a session that only looks left out, because it would have run something of the job's.
func (s *Session) NotRun() []string { return s.resources.NotRun() }

// Check looks at all of a job that can be wrong without its model, and returns its algorithm. What it makes for that, tools and rewards, is
// what the session then has.
func (s *Session) Check(ctx context.Context, r Registries) (*algorithms.Algorithm, error) {
	j := s.Job
	var found []error
	add := func(err error) { found = append(found, err) }
	s.notePaths()
	equipped := s.Equip(ctx, r)
	add(checkDevice(j))
	add(s.readData())
	if j.Agent.Examples != "" {
		_, err := data.ReadExamples(j.Resolve(j.Agent.Examples))
		if err != nil {
			add(j.Fail("agent.examples", "%v", err))
		}
	}
	add(checkWeights(j))
	algorithm, err := job.Algorithm(j, r.Algorithms)
	add(err)
	add(equipped)
	if err := j.Collect(found...); err != nil {
		return nil, err
	}
	return algorithm, nil
}

// readData reads the job's data, as far as that runs nothing.
func (s *Session) readData() (err error) {
	j := s.Job
	switch {
	case j.SFT == nil && (j.Environment == nil || s.world != nil):
		s.train, s.held, _, err = data.Read(j, s.OwnTasks())
	case j.SFT != nil && (len(j.Data.Train) > 0) != (j.Data.Run != ""): // else it is refused for that
		s.learn, err = data.ReadSFT(j)
	}
	return err
}

// Equip makes the job's tools, the agent that calls them, and its rewards: what is wrong with them is told before a model is
// opened.
func (s *Session) Equip(ctx context.Context, r Registries) (err error) {
	defer watchdog.Enter(ctx, "start", "tools and rewards").Leave()
	s.formats = r.Agents
	if s.world, err = s.makeWorld(ctx, r.Environments); err == nil {
		s.Sampler.Tools, s.agent, err = s.makeTools(ctx, r, tools.Options{Report: s.panics()})
	}
	if err == nil {
		err = s.forks()
	}
	var wrong error
	s.Sampler.Reward, s.terms, wrong = makeReward(s.Job, r.Rewards.Builder(ctx, s.resources))
	return errors.Join(err, wrong, s.Weights.Check(s.Job, r.Engines))
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
		return s.addAdapter()
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
	if err := s.openText(); err != nil {
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
	return s.openGateway(ctx)
}

// openText makes the renderer of the policy's text and of the job's agent.
func (s *Session) openText() error {
	j := s.Job
	if err := s.overrideTemplate(); err != nil {
		return err
	}
	compiled, err := s.Policy.Template()
	if err != nil {
		return err
	}
	now, err := s.Policy.Now(j.Model.TemplateDate)
	if err != nil {
		return err
	}
	if s.marks, err = s.agent.Marks(); err != nil {
		return s.agentError(err)
	}
	if s.renderer, err = masks.NewRenderer(s.Policy.Tokenizer, compiled, masks.Options{
		StopIDs: s.Policy.StopIDs, Now: now, Markup: j.Agent.SpecialTokens == "markup", Marks: s.marks, AssistantMarkup: j.SFT != nil,
	}); err != nil {
		return err
	}
	if ok, reason := s.renderer.AppendOnly(); !ok {
		s.Notes.Know("the chat template rewrites history (" + reason + "); where a turn needs it, a new sample begins")
	}
	return nil
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

// addAdapter gives the policy the job's adapter: a new one, or that of a PEFT folder.
func (s *Session) addAdapter() error {
	l := s.Job.Model.LoRA
	if l.Path != "" {
		if err := s.Policy.LoadAdapter(s.Job.Resolve(l.Path)); err != nil {
			return s.Job.Fail("model.lora.path", "%s", job.Plain(err, "policy: "))
		}
		return nil
	}
	alpha := l.Alpha
	if alpha == 0 {
		alpha = 2 * float64(l.Rank)
	}
	err := s.Policy.Model.AddAdapter(cgo.AdapterConfig{Rank: l.Rank, Alpha: alpha, Targets: l.Targets, Seed: s.Job.Seed})
	if err != nil {
		return s.Job.Fail("model.lora", "%s", job.Plain(err, "cgo: "))
	}
	return nil
}

// overrideTemplate gives the policy the job's chat template, where it has one.
func (s *Session) overrideTemplate() error {
	if s.Job.Model.ChatTemplate == "" {
		return nil
	}
	text, err := os.ReadFile(s.Job.Resolve(s.Job.Model.ChatTemplate))
	if err != nil {
		return s.Job.Fail("model.chat_template", "%v; name a Jinja file", err)
	}
	s.Policy.ChatTemplate = string(text)
	return nil
}

// agentError is an error of the job's agent: a panic of its format is a fault of the job.
func (s *Session) agentError(err error) error {
	if caught := (*panics.Error)(nil); errors.As(err, &caught) {
		return s.Job.Fail("agent.format", "%v", err)
	}
	return err
}

// makeSampler makes what samples, of tools, policy and engine.
func (s *Session) makeSampler() error {
	j, chosen := s.Job, s.Sampler.Tools
	chosen.Measure(s.Policy.Tokenizer)
	prompt, err := s.prompt()
	if err != nil {
		return err
	}
	stops, err := s.agent.Stops()
	if err != nil {
		return s.agentError(err)
	}
	kept := masks.Kept(s.Policy.Tokenizer, s.marks)
	s.Sampler = rollout.Sampler{
		Engine: s.Weights.Engine(), Renderer: s.renderer, Format: s.agent.Format, Tools: chosen, Reward: s.Sampler.Reward, Schemas: prompt.Schemas, Prefix: prompt.Messages,
		Decode: func(ids []int32) string { return masks.DecodeKeeping(s.Policy.Tokenizer, ids, kept) },
		Sampling: engines.Sampling{
			MaxTokens: j.Rollout.MaxNewTokens, Temperature: j.Rollout.Temperature, TopP: j.Rollout.TopP, TopK: j.Rollout.TopK,
			MinP: j.Rollout.MinP, StopIDs: s.renderer.StopIDs(), Stop: stops,
		},
		MaxTurns: j.Agent.MaxTurns, MaxCalls: j.Agent.MaxCalls, MaxAtOnce: j.Agent.MaxAtOnce, MaxTotal: j.Rollout.MaxTokens,
		Timeout: job.Seconds(j.Rollout.TurnTimeout), Deadline: job.Seconds(j.Rollout.Timeout), Seed: j.Seed, RunName: j.Name,
		AgentTimeout: job.Seconds(j.Rollout.ToolTimeout), ToolsOff: j.Control.ToolsOff, Cut: j.Rollout.Cut, World: s.sampled(),
	}
	limits := []int{s.Policy.Config.MaxContext()}
	if e := s.Weights.Engine(); e != nil {
		limits = append(limits, e.Capabilities().MaxModelLen)
	}
	for _, limit := range limits {
		if limit > 0 && limit < j.Rollout.MaxTokens && s.Weights.Engine() != nil && j.Given("rollout.max_tokens") {
			s.Notes.Once(fmt.Sprintf("rollout.max_tokens is %d, and the model's context or engine.cache_tokens hold %d: trajectories end there", j.Rollout.MaxTokens, limit))
		}
		if limit > 0 {
			s.Sampler.MaxTotal = min(s.Sampler.MaxTotal, limit)
		}
	}
	s.Sampler.Frozen = s.frozen()
	s.Sampler.Trees = rollout.TreesOf(j.Rollout, s.Policy.Config.VocabSize)
	return nil
}

// panics notes the first panic of each tool.
func (s *Session) panics() func(tool string, err error, trace []byte) {
	var seen sync.Map
	return func(tool string, err error, trace []byte) {
		if _, again := seen.LoadOrStore(tool, true); !again {
			s.Notes.Note(panicked(err, trace))
		}
	}
}

// prompt is what precedes the messages of every task.
func (s *Session) prompt() (p agents.Prompt, err error) {
	e := s.Weights.Engine()
	t := agents.Template{Renders: e == nil || e.Capabilities().TokenIDs, IgnoresTools: s.renderer.ToolsInSystemPrompt()}
	var examples []trajectory.Message
	if path := s.Job.Agent.Examples; path != "" {
		if examples, err = data.ReadExamples(s.Job.Resolve(path)); err != nil {
			return p, err
		}
	}
	if p, err = s.agent.Prompt(t, examples); err != nil {
		return p, s.agentError(err)
	}
	if p.Schemas != nil && t.IgnoresTools {
		s.Notes.Know("the chat template ignores tools; their schemas stand in the system prompt, in training, evaluation and serving alike")
	}
	return p, nil
}

// Trainer makes the trainer whose writes to the parameters go through the engine's barrier, if there is one, with what the algorithm needs
// beside the policy: a critic's value head, a frozen reference. ranks are the processes that train together, nil is this one alone; version
// is the policy's, which the trainer's writes raise.
func (s *Session) Trainer(a *algorithms.Algorithm, ranks *processes.Group, version *int32) (*trainer.Trainer, error) {
	t := s.Job.Trainer
	c := trainer.Config{
		Schedule: scheduleOf(t, a),
		AdamW:    cgo.AdamWConfig{Beta1: t.Beta1, Beta2: t.Beta2, Eps: t.Eps, WeightDecay: t.WeightDecay},
		ClipGrad: t.ClipGrad, Temperature: s.Job.Rollout.Temperature, MicroBatchTokens: t.MicroBatchTokens,
		MaxLength: s.Policy.Config.MaxContext(), Checkpoint: t.Checkpointing,
	}
	if s.Weights.Engine() != nil {
		c.Barrier = s.Weights.Barrier(version)
	}
	if ranks != nil {
		c.Group = ranks.Group
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

// LeftOver says which tools still run calls that nobody waits for; "": none.
func (s *Session) LeftOver() string { return leftOver(s.Sampler.Tools) }

// Close closes what was opened and equipped.
func (s *Session) Close() error {
	var errs []error
	errs = append(errs, s.guests.close(), s.Weights.Close())
	if s.world != nil {
		errs = append(errs, s.world.manager.Close())
	}
	errs = append(errs, s.resources.Close(), s.Logs.Close())
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
