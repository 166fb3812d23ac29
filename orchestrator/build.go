package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
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
	Tools      *tools.Catalog
	Agents     *agents.Registry // kinds of agents and call formats; nil: those of package agents
	Rewards    *rewards.Registry
	Algorithms *algorithms.Registry
	Engines    *engines.Registry // nil: the program's own kinds
}

// session is everything a run computes with, opened from a job.
type session struct {
	job       *job.Job
	policy    *policy.Policy
	reference *policy.Policy // frozen, as the job's model began; nil unless kl needs it
	worker    *cgo.Worker
	weights   weights.Sync // the engine, and the way to it
	renderer  *masks.Renderer
	agent     *agents.Agent
	marks     []string // of the agent: texts that stay special tokens
	resources *resources.Resources
	rollout   rollout.Sampler
	notes     notes
	ranks     *processes.Group // that train together; nil: this process alone
}

// newSession holds nothing yet. It is equipped first, then opened, and closed whatever became of that.
func newSession(j *job.Job) *session {
	s := &session{job: j}
	s.resources = newResources(j, s.notes.note, false)
	return s
}

// equip makes the job's tools, the agent that calls them, and its rewards: what is wrong with them is told before a model is
// opened.
func (s *session) equip(ctx context.Context, r Registries) (err error) {
	defer watchdog.Enter(ctx, "start", "tools and rewards").Leave()
	s.rollout.Tools, s.agent, err = makeTools(ctx, s.job, r, s.resources, tools.Options{Report: s.panics()})
	var wrong error
	s.rollout.Reward, wrong = makeReward(s.job, r.Rewards.Builder(ctx, s.resources))
	return errors.Join(err, wrong, s.weights.Check(s.job, r.Engines))
}

// reach asks whether what the tools call elsewhere is there, before a model is opened: calls that nobody can answer would be tried again and
// again, and a model that reads nothing but errors learns nothing.
func (s *session) reach(ctx context.Context, toolsOff bool) error {
	if s.job.SFT != nil || s.job.Control.ToolsOff || toolsOff { // nothing is called
		return nil
	}
	defer watchdog.Enter(ctx, "start", "services").Leave()
	return s.resources.Begin(ctx)
}

// open loads the policy from path ("" is the job's own) and everything around it.
func (s *session) open(ctx context.Context, path string) (err error) {
	j := s.job
	s.worker = cgo.NewWorker()
	defer watchdog.Enter(ctx, "start", "model and engine").Leave()
	if s.policy, err = loadPolicy(j, path); err != nil {
		return err
	}
	if path == "" && j.Model.LoRA.On() { // a checkpoint's weights are merged
		if err := s.addAdapter(); err != nil {
			return err
		}
	}
	if err := s.overrideTemplate(); err != nil {
		return err
	}
	compiled, err := s.policy.Template()
	if err != nil {
		return err
	}
	now, err := s.policy.Now(j.Model.TemplateDate)
	if err != nil {
		return err
	}
	if s.marks, err = s.agent.Marks(); err != nil {
		return s.agentError(err)
	}
	if s.renderer, err = masks.NewRenderer(s.policy.Tokenizer, compiled, masks.Options{
		StopIDs: s.policy.StopIDs, Now: now, Markup: j.Agent.SpecialTokens == "markup", Marks: s.marks, AssistantMarkup: j.SFT != nil,
	}); err != nil {
		return err
	}
	if ok, reason := s.renderer.AppendOnly(); !ok {
		s.notes.know("the chat template rewrites history (" + reason + "); where a turn needs it, a new sample begins")
	}
	if j.SFT != nil { // nothing is sampled
		return s.makeRollout()
	}
	if err := checkWeights(j); err != nil {
		return err
	}
	if err := s.weights.Open(ctx, weights.Config{Job: j, Policy: s.policy, Worker: s.worker, Note: s.notes.know, Report: s.notes.note}); err != nil {
		return err
	}
	if j.Deterministic && !s.weights.Engine().Capabilities().BatchInvariant {
		return j.Fail("deterministic", "true needs an engine whose results do not depend on what runs beside a request; use engine: {kind: local}")
	}
	return s.makeRollout()
}

func loadPolicy(j *job.Job, path string) (*policy.Policy, error) {
	o := policy.Options{Device: j.Device, BFloat16: j.Model.DType == "bfloat16"}
	switch c := j.Model.Scratch; {
	case path != "":
		return policy.Load(path, o)
	case c != nil:
		return policy.Scratch(policy.ScratchConfig{
			HiddenSize: c.HiddenSize, IntermediateSize: c.IntermediateSize, NumLayers: c.NumLayers, NumHeads: c.NumHeads,
			NumKVHeads: c.NumKVHeads, MaxPositions: c.MaxPositions, InitStd: c.InitStd,
		}, c.Alphabet, c.ChatTemplate, j.Seed, o)
	}
	path = j.ModelPath(j.Model.Path)
	p, err := policy.Load(path, o)
	if err != nil && !errors.Is(err, cgo.ErrUnavailable) {
		err = j.Fail("model.path", "%v", err)
	}
	return p, err
}

// addAdapter gives the policy the job's adapter: a new one, or that of a PEFT folder.
func (s *session) addAdapter() error {
	l := s.job.Model.LoRA
	if l.Path != "" {
		if err := s.policy.LoadAdapter(s.job.Resolve(l.Path)); err != nil {
			return s.job.Fail("model.lora.path", "%s", job.Plain(err, "policy: "))
		}
		return nil
	}
	alpha := l.Alpha
	if alpha == 0 {
		alpha = 2 * float64(l.Rank)
	}
	err := s.policy.Model.AddAdapter(cgo.AdapterConfig{Rank: l.Rank, Alpha: alpha, Targets: l.Targets, Seed: s.job.Seed})
	if err != nil {
		return s.job.Fail("model.lora", "%s", job.Plain(err, "cgo: "))
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (s *session) overrideTemplate() error {
	if s.job.Model.ChatTemplate == "" {
		return nil
	}
	text, err := os.ReadFile(s.job.Resolve(s.job.Model.ChatTemplate))
	if err != nil {
		return fmt.Errorf("orchestrator: model.chat_template: %w", err)
	}
	s.policy.ChatTemplate = string(text)
	return nil
}

// agentError is an error of the job's agent: a panic of its format is a fault of the job.
func (s *session) agentError(err error) error {
	if caught := (*panics.Error)(nil); errors.As(err, &caught) {
		return s.job.Fail("agent.format", "%v", err)
	}
	return err
}

// makeRollout puts tools, policy and engine together.
func (s *session) makeRollout() error {
	j, chosen := s.job, s.rollout.Tools
	chosen.Measure(s.policy.Tokenizer)
	prompt, err := s.prompt()
	if err != nil {
		return err
	}
	stops, err := s.agent.Stops()
	if err != nil {
		return s.agentError(err)
	}
	kept := masks.Kept(s.policy.Tokenizer, s.marks)
	s.rollout = rollout.Sampler{
		Engine: s.weights.Engine(), Renderer: s.renderer, Format: s.agent.Format, Tools: chosen, Reward: s.rollout.Reward, Schemas: prompt.Schemas, Prefix: prompt.Messages,
		Decode: func(ids []int32) string { return masks.DecodeKeeping(s.policy.Tokenizer, ids, kept) },
		Sampling: engines.Sampling{
			MaxTokens: j.Rollout.MaxNewTokens, Temperature: j.Rollout.Temperature, TopP: j.Rollout.TopP, TopK: j.Rollout.TopK,
			MinP: j.Rollout.MinP, StopIDs: s.renderer.StopIDs(), Stop: stops,
		},
		MaxTurns: j.Agent.MaxTurns, MaxCalls: j.Agent.MaxCalls, MaxAtOnce: j.Agent.MaxAtOnce, MaxTotal: j.Rollout.MaxTokens,
		Timeout: job.Seconds(j.Rollout.TurnTimeout), Deadline: job.Seconds(j.Rollout.Timeout), Seed: j.Seed, RunName: j.Name,
		AgentTimeout: job.Seconds(j.Rollout.ToolTimeout), ToolsOff: j.Control.ToolsOff, Cut: j.Rollout.Cut,
	}
	limits := []int{s.policy.Config.MaxContext()}
	if e := s.weights.Engine(); e != nil {
		limits = append(limits, e.Capabilities().MaxModelLen)
	}
	for _, limit := range limits {
		if limit > 0 {
			s.rollout.MaxTotal = min(s.rollout.MaxTotal, limit)
		}
	}
	return nil
}

// panics notes the first panic of each tool.
func (s *session) panics() func(tool string, err error, trace []byte) {
	var seen sync.Map
	return func(tool string, err error, trace []byte) {
		if _, again := seen.LoadOrStore(tool, true); !again {
			s.notes.note(panicked(err, trace))
		}
	}
}

// makeTools makes the job's tools, with its deadline for a call, and the agent that calls them.
func makeTools(ctx context.Context, j *job.Job, all Registries, r *resources.Resources, o tools.Options) (*tools.Registry, *agents.Agent, error) {
	o.Timeout, o.MaxTokens = job.Seconds(j.Rollout.ToolTimeout), j.Rollout.ToolTokens
	chosen, whole := tools.NewRegistry(o), true
	for i, ref := range j.Agent.Tools {
		path := fmt.Sprintf("agent.tools.%d", i)
		made, err := all.Tools.Make(ctx, r, ref)
		if notRun(err) {
			whole = false
			continue
		}
		if err != nil {
			return nil, nil, j.Fail(path, "%s", job.Plain(err, "tools: "))
		}
		if ref.Cache && !slices.ContainsFunc(made, func(t tools.Tool) bool { return t.Spec().Deterministic }) {
			return nil, nil, j.Fail(path+".cache", "the tool does not say that it is deterministic, so nothing can be kept; leave it out")
		}
		if ref.Limits.Retries > 0 && !slices.ContainsFunc(made, func(t tools.Tool) bool { return t.Spec().Idempotent }) {
			return nil, nil, j.Fail(path+".retries", "the tool does not say that it is idempotent, so no call can be tried again; leave it out")
		}
		for _, t := range made {
			if err := chosen.RegisterAs(t, ref); err != nil {
				return nil, nil, j.Fail(path, "%s", job.Plain(err, "tools: "))
			}
		}
	}
	agent, err := makeAgent(ctx, j, all.Agents, r, chosen.Specs())
	if err != nil && !whole { // it may want the tools that are not there
		return chosen, nil, nil
	}
	return chosen, agent, err
}

// notRun says that a job is only looked at, and that something of it cannot be made without running what it names: resources.Run.
func notRun(err error) bool {
	var left *resources.NotRunError
	return errors.As(err, &left)
}

// makeAgent makes the job's agent for its tools.
func makeAgent(ctx context.Context, j *job.Job, all *agents.Registry, r *resources.Resources, specs []tools.Spec) (*agents.Agent, error) {
	a, err := all.New(ctx, r, agents.Config{
		Format: j.Agent.Format, Python: j.Agent.Python, System: j.Agent.System, Instructions: j.Agent.Instructions,
		ObservationRole: j.Agent.ObservationRole,
	}, specs)
	switch {
	case notRun(err):
		return nil, nil
	case err != nil && j.Agent.Python != "":
		return nil, j.Fail("agent.python", "%s", job.Plain(err, "agents: "))
	case err != nil:
		return nil, j.Fail("agent.format", "%s", job.Plain(err, "agents: "))
	}
	return a, nil
}

// newResources are what the job's tools and rewards share. look: nothing that the job names is run.
func newResources(j *job.Job, warn func(text string), look bool) *resources.Resources {
	return resources.New(resources.Options{Resolve: j.Resolve, Sandbox: j.Sandbox, Gradings: j.Rollout.Gradings, Warn: warn, Look: look})
}

func makeReward(j *job.Job, b *rewards.Builder) (rewards.Reward, error) {
	if len(j.Rewards) == 0 { // of a job that does not train on rewards
		return nil, nil
	}
	var terms []rewards.Weighted
	for i, w := range j.Rewards {
		made, err := b.Make(w.Name, w.Params)
		if notRun(err) {
			continue
		}
		if err != nil {
			return nil, j.Fail(strings.Join(append([]string{"rewards", strconv.Itoa(i)}, rewards.Keys(err)...), "."), "%s", job.Plain(err, "rewards: "))
		}
		terms = append(terms, rewards.Weighted{Reward: made, Weight: w.Weight})
	}
	if len(terms) == 0 { // of those that can be made without running anything
		return nil, nil
	}
	sum, err := rewards.NewSum(job.Seconds(j.Rollout.RewardTimeout), terms...)
	if err != nil {
		return nil, j.Fail("rewards", "%s", job.Plain(err, "rewards: "))
	}
	return sum, nil
}

// prompt is what precedes the messages of every task.
func (s *session) prompt() (p agents.Prompt, err error) {
	e := s.weights.Engine()
	t := agents.Template{Renders: e == nil || e.Capabilities().TokenIDs, IgnoresTools: s.renderer.ToolsInSystemPrompt()}
	var examples []trajectory.Message
	if path := s.job.Agent.Examples; path != "" {
		if examples, err = data.ReadExamples(s.job.Resolve(path)); err != nil {
			return p, err
		}
	}
	if p, err = s.agent.Prompt(t, examples); err != nil {
		return p, s.agentError(err)
	}
	if p.Schemas != nil && t.IgnoresTools {
		s.notes.know("the chat template ignores tools; their schemas stand in the system prompt, in training, evaluation and serving alike")
	}
	return p, nil
}

// trainer makes the trainer whose writes to the parameters go through the engine's barrier, if there is one, with what the algorithm needs
// beside the policy: a critic's value head, a frozen reference.
func (s *session) trainer(a *algorithms.Algorithm, version *int32) (*trainer.Trainer, error) {
	t := s.job.Trainer
	c := trainer.Config{
		Schedule: scheduleOf(t, a),
		AdamW:    cgo.AdamWConfig{Beta1: t.Beta1, Beta2: t.Beta2, Eps: t.Eps, WeightDecay: t.WeightDecay},
		ClipGrad: t.ClipGrad, Temperature: s.job.Rollout.Temperature, MicroBatchTokens: t.MicroBatchTokens,
		MaxLength: s.policy.Config.MaxContext(), Checkpoint: t.Checkpointing,
	}
	if s.weights.Engine() != nil {
		c.Barrier = s.weights.Barrier(version)
	}
	if s.ranks != nil {
		c.Group = s.ranks.Group
		if s.ranks.Config.Rank > 0 { // rank 0's comes with every step: it alone knows how many steps the data make
			c.Schedule = trainer.Schedule{LearningRate: t.LearningRate}
		}
	}
	if a.HasCritic() {
		if err := s.policy.Model.AddValueHead(); err != nil {
			return nil, err
		}
	}
	if _, adapted := s.policy.Model.Adapter(); adapted && a.NeedsReference() {
		c.Reference = trainer.AdapterOff{Model: s.policy.Model}
	} else if a.NeedsReference() {
		reference, err := loadPolicy(s.job, "") // also when a run is resumed: the reference is where the run began
		if err != nil {
			return nil, err
		}
		s.reference, c.Reference = reference, trainer.FrozenModel{Model: reference.Model}
	}
	return trainer.NewTrainer(s.policy.Model, s.worker, a, c)
}

// scheduleOf is the course of the learning rate over a run. The job counts steps of the run, the trainer places for optimizer
// steps, of which a step has updatesOf.
func scheduleOf(t job.Trainer, a *algorithms.Algorithm) trainer.Schedule {
	each := a.Updates()
	return trainer.Schedule{LearningRate: t.LearningRate, Kind: t.Schedule, Warmup: t.WarmupSteps * each, Total: t.Steps * each}
}

func (s *session) Close() error {
	var errs []error
	errs = append(errs, s.weights.Close(), s.resources.Close())
	if s.worker != nil {
		errs = append(errs, s.worker.Close())
	}
	for _, p := range []*policy.Policy{s.policy, s.reference} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	return errors.Join(errs...)
}
