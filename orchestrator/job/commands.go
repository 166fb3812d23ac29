package job

import (
	"errors"
	"reflect"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/internal/hosted"
)

// What the commands refuse of a job that Load takes: train, eval, rollout and replay each need other settings.

// Trainable refuses what rollouts and evaluations allow, and training does not.
func Trainable(j *Job, a *algorithms.Algorithm) error {
	if err := j.TrainingErrors(); err != nil {
		return err
	}
	if j.SFT == nil && j.Distill == nil && j.Rollout.GroupSize == 1 && a.Estimator.NeedsSiblings() {
		return j.Fail("rollout.group_size", "1, but advantage %s compares the trajectories of a group with each other, so every advantage would be 0; set 2 or more, or use an estimator that needs no group", a.Estimator.Name)
	}
	return nil
}

// TrainingErrors are the settings that sampling allows and training refuses: nil, or an *Error.
func (j *Job) TrainingErrors() error {
	var all []Problem
	fail := func(path, format string, args ...any) { all = append(all, j.problem(path, format, args...)) }
	const why = "training needs the logprobs of the whole distribution that was sampled; this is for rollout and eval only, leave it out"
	if j.SFT != nil {
		j.supervisedErrors(fail)
		return asError(all)
	}
	if j.Distill != nil && j.Rollout.Temperature != 1 {
		fail("rollout.temperature", "%v: distill compares the distributions of policy and teacher at temperature 1; leave it out", j.Rollout.Temperature)
	}
	if j.Distill != nil && j.Control.ShuffleRewards {
		fail("control.shuffle_rewards", "distill does not train on rewards; use shuffle_teacher")
	}
	if !j.HasTrain() {
		fail("data.train", "the tasks to train on are missing; name a file")
	}
	if j.Rollout.Temperature == 0 {
		fail("rollout.temperature", "0 samples the same trajectory each time; training needs more")
	}
	if j.Rollout.TopP != 1 {
		fail("rollout.top_p", "%v: %s", j.Rollout.TopP, why)
	}
	if j.Rollout.TopK != 0 {
		fail("rollout.top_k", "%v: %s", j.Rollout.TopK, why)
	}
	if j.Rollout.MinP != 0 {
		fail("rollout.min_p", "%v: %s", j.Rollout.MinP, why)
	}
	if j.Agent.Forms == "held" {
		fail("agent.forms", "held: %s", why)
	}
	if j.Engine.Kind == "openai" {
		fail("engine.kind", "openai: such an endpoint returns text, and training needs the token ids that were sampled; use local or vllm (rollout and eval take openai)")
	}
	if j.Engine.Kind == "vllm" && j.Engine.Weights == "lora" && !j.Model.LoRA.On() {
		fail("engine.weights", "lora: the job trains no adapter; set model.lora.rank, or use auto, disk or transfer")
	}
	if !j.HasEval() {
		j.unevaluated(fail)
	}
	return asError(all)
}

// unevaluated are the settings of evaluations that never come, of a job without held-out tasks.
func (j *Job) unevaluated(fail func(path, format string, args ...any)) {
	if n := j.Eval.Every; n > 0 {
		fail("eval.every", "%d, but data.eval names no tasks", n)
	}
	if j.Eval.ToolOff {
		fail("eval.tool_off", "true, but data.eval names no tasks")
	}
	if n := j.Eval.Samples; n > 1 {
		fail("eval.samples", "%d, but data.eval names no tasks", n)
	}
	if len(j.Eval.K) > 0 {
		fail("eval.k", "pass@k, but data.eval names no tasks")
	}
	var unset Split // what a complete job says where nobody set it
	setDefaults(reflect.ValueOf(&unset).Elem(), "environment.tasks")
	if e := j.Environment; e != nil && e.Tasks.Eval > 0 && e.Tasks.Eval != unset.Eval {
		fail("environment.tasks.eval", "%d, but with data.train the held-out tasks are files too; name data.eval, or leave it out", e.Tasks.Eval)
	}
}

// supervisedErrors are those of a job with a block sft.
func (j *Job) supervisedErrors(fail func(path, format string, args ...any)) {
	if (len(j.Data.Train) == 0) == (j.Data.Run == "") {
		fail("data", "sft learns from exactly one of train (recorded conversations) and run (a run folder)")
	}
	if j.Data.Balance != "" {
		fail("data.balance", "sft deals conversations, not tasks; leave it out")
	}
	if j.Data.Spread != "" {
		fail("data.spread", "sft deals conversations, not tasks; leave it out")
	}
	if j.Rollout.Temperature != 1 {
		fail("rollout.temperature", "%v: sft learns the distribution at temperature 1; leave it out", j.Rollout.Temperature)
	}
	if j.Rollout.TopP != 1 {
		fail("rollout.top_p", "%v: sft samples nothing; leave it out", j.Rollout.TopP)
	}
	if j.Rollout.TopK != 0 {
		fail("rollout.top_k", "%v: sft samples nothing; leave it out", j.Rollout.TopK)
	}
	if j.Rollout.MinP != 0 {
		fail("rollout.min_p", "%v: sft samples nothing; leave it out", j.Rollout.MinP)
	}
	if s := j.Data.Success; s != nil {
		fail("data.success", "%v: sft learns what the conversations say, and samples nothing that could succeed; leave it out", *s)
	}
	if j.Control != (Control{}) {
		fail("control", "sft has no rewards to shuffle; leave it out")
	}
	if j.Eval.Temperature != 0 {
		fail("eval.temperature", "%v: sft evaluates the loss of held-out conversations; leave it out", j.Eval.Temperature)
	}
	if by := j.Eval.By; by != "" && by != "source" {
		fail("eval.by", "%s: sft evaluates the loss of held-out conversations; leave it out", by)
	}
	if j.Eval.ToolOff {
		fail("eval.tool_off", "sft evaluates the loss of held-out conversations; leave it out")
	}
	if len(j.Data.Eval) == 0 && j.Eval.Every > 0 {
		fail("eval.every", "%d, but data.eval names no conversations", j.Eval.Every)
	}
}

// Evaluable refuses what eval cannot evaluate.
func Evaluable(j *Job) error {
	if err := noRollouts(j); err != nil {
		return err
	}
	if !j.HasEval() {
		return InputError(errors.New(j.Path() + ": data.eval is missing; name the held-out tasks"))
	}
	return fixedSampling(j, "eval.temperature", j.Eval.Temperature)
}

// Samplable refuses what rollout cannot sample.
func Samplable(j *Job) error {
	if err := noRollouts(j); err != nil {
		return err
	}
	if !j.HasTrain() {
		return InputError(errors.New(j.Path() + ": data.train is missing; name the tasks to sample"))
	}
	return fixedSampling(j, "rollout.temperature", j.Rollout.Temperature)
}

// fixedSampling refuses sampling that the endpoint's model cannot do. key is the temperature's.
func fixedSampling(j *Job, key string, temperature float64) error {
	if j.Engine.Kind != "openai" || !hosted.FixedSampling(j.Engine.ServedModel) {
		return nil
	}
	var all []Problem
	for _, s := range []struct {
		key   string
		value float64
	}{{key, temperature}, {"rollout.top_p", j.Rollout.TopP}} {
		if s.value != 1 {
			all = append(all, j.problem(s.key, "%v: the model %s (engine.served_model) samples at 1 only; set 1", s.value, j.Engine.ServedModel))
		}
	}
	return asError(all)
}

// noRollouts refuses a job without tasks.
func noRollouts(j *Job) error {
	if j.SFT == nil {
		return nil
	}
	return j.Fail("sft", "supervised fine-tuning has conversations and no tasks to sample; use the job that trains with rewards, with --model for this run's checkpoint")
}

// Replayable refuses a job whose run replay cannot sample once more.
func Replayable(j *Job) error {
	switch {
	case j.SFT != nil:
		return j.Fail("sft", "supervised fine-tuning samples nothing that could be replayed; train it again with --output, and compare the checkpoints")
	case j.Engine.Kind != "local":
		return j.Fail("engine.kind", "%s: only what the local engine sampled can be sampled again bit for bit", j.Engine.Kind)
	}
	return nil
}
