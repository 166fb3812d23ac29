package report

// Step is the record of one step: a line of metrics.jsonl and a row of the store's table steps. The tags of its fields are what
// docs/metrics.md says: metric is the key (capitals behind its last slash stand for an open set of keys, of a group it is what the
// keys begin with), unit and doc explain it, when says which steps have it; title and about begin a section. A step has no key of a
// group or number that is nil, nor of a number that is 0 and tagged omitzero.
type Step struct {
	Rollouts *Rollouts // nil in supervised fine-tuning, which samples nothing
	Update   Update    `title:"The update"`
	Tokens   Tokens    `title:"Tokens of the update"`
	Seconds  Seconds   `title:"Wall clock"`
	SFT      *SFT      `title:"Supervised fine-tuning" about:"A step of supervised fine-tuning has these keys, those of the update, of its tokens and of the wall clock, and no others."` // nil elsewhere
	Distill  *Distill  `title:"Distillation" about:"A step of distillation has this key beside those of other steps that sample."`                                                        // nil elsewhere
}

// Rollouts are what was sampled for a step, and what its update says of the sampled tokens.
type Rollouts struct {
	Reward       Reward       `title:"Rewards"`
	Greedy       *Greedy      // nil where no group has a greedy baseline
	Trajectories Trajectories `title:"Trajectories"`
	Groups       Groups       `title:"Groups"`
	Turns        *Turns       `title:"Turns and tool calls" about:"Only where the step has a turn."` // nil where no trajectory has one
	Lengths      Lengths      `title:"Lengths"`
	Sampling     Sampling     `title:"Speed of sampling, and what the trainer waited for"`

	Environments *Environments `title:"Environments" about:"Only in a job with an environment. Counts and times are of what this process did since the last step, evaluations between them included: a step that is trained again as it was recorded needs no environment."` // nil without one

	Policy Policy `title:"The update, against the engine, the reference and the critic"`
}

// Reward is that of a step's finished trajectories.
type Reward struct {
	Mean  *float64           `metric:"reward/mean" unit:"reward" doc:"mean reward of the finished trajectories" when:"where one finished, and the job has rewards"`
	Parts map[string]float64 `metric:"reward/NAME" unit:"reward" doc:"mean value of a reward before its weight"`
}

// Greedy is the baseline of temperature 0.
type Greedy struct {
	Reward *float64 `metric:"greedy/reward" unit:"reward" doc:"mean reward of the greedy baselines" when:"with an estimator that has such baselines, where one finished"`
	Failed int      `metric:"greedy/failed" unit:"trajectories" doc:"greedy baselines that failed" when:"with an estimator that has such baselines"`
}

// Trajectories are those of the groups that a step used up.
type Trajectories struct {
	Finished int            `metric:"trajectories/finished" unit:"trajectories" doc:"trajectories without an error"`
	Failed   int            `metric:"trajectories/failed" unit:"trajectories" doc:"a failed one has an error (errors/ORIGIN) and leaves the update"`
	Errors   map[string]int `metric:"errors/ORIGIN" unit:"trajectories, calls" doc:"failed trajectories by origin (agent, deadline, engine, environment, render, reward, teacher: it has no logprobs of it); errors/tool: calls that broke (docs/deadlines.md)"`
	Running  int            `metric:"trajectories/running" unit:"trajectories" doc:"those that go on being sampled while this step's batch is trained"`
	Cut      int            `metric:"trajectories/cut" unit:"trajectories" doc:"of the trained ones, those that were running when an earlier batch was chosen"`
	Empty    int            `metric:"trajectories/empty,omitzero" unit:"trajectories" doc:"those that the update left out because they have no token to learn from: nothing was sampled, or roles that are not trained (agent.roles) sampled all" when:"where there is one"`
	Filtered *int           `metric:"trajectories/filtered" unit:"trajectories" doc:"those that the update left out because their last completion was cut, or that of their group's greedy rollout" when:"with rollout.cut: filter"`
	Stops    map[string]int `metric:"stop/REASON" unit:"trajectories" doc:"trajectories by stop reason: answer, no_action, max_turns, max_tokens, max_calls, terminated, truncated (an episode that the environment or its limit ended), error" when:"for reasons that the step has"`
}

// Groups are those that a step used up.
type Groups struct {
	Flat     int `metric:"groups/flat" unit:"groups" doc:"groups whose advantages are all 0: rewards that are all equal, or nothing that counts; they give no gradient"`
	Sampled  int `metric:"groups/sampled" unit:"groups" doc:"groups that were sampled"`
	Dropped  int `metric:"groups/dropped" unit:"groups" doc:"groups that dynamic sampling left out"`
	Refills  int `metric:"groups/refills" unit:"rounds" doc:"rounds of sampling after the first; without rounds (async, oversample) the groups that took the place of those that were left out"`
	TooStale int `metric:"groups/too_stale" unit:"groups" doc:"groups that were dropped because no step could have trained them within rollout.max_staleness (rollout.stale: drop)"`
}

// Turns are the completions of a step and the tool calls in them.
type Turns struct {
	Turns int   `metric:"turns" unit:"completions" doc:"completions"`
	Cut   int   `metric:"turns/cut,omitzero" unit:"completions" doc:"completions that a token limit of the job's cut: rollout.max_new_tokens, rollout.max_tokens, agent.max_tokens or the model's context (rollout.cut, docs/training.md)" when:"where there is one"`
	Calls Calls // of all turns together

	TokensSampled int `metric:"tokens/sampled" unit:"tokens" doc:"sampled tokens of the trajectories that the step used up, each where it was sampled, once: in trees too, and whichever process of a run that was resumed sampled it"`
	TokensCached  int `metric:"tokens/cached" unit:"tokens" doc:"prompt tokens that the engine had computed before"`
}

// Calls are the tool calls of a step's turns.
type Calls struct {
	Read         int     `metric:"tools/calls" unit:"calls" doc:"calls that could be read"`
	Failed       int     `metric:"tools/failed" unit:"calls" doc:"results that are errors"`
	ParseErrors  int     `metric:"tools/parse_errors" unit:"calls" doc:"calls that could not be read"`
	Unknown      int     `metric:"tools/unknown" unit:"calls" doc:"of the failed ones: there is no such tool"`
	BadArguments int     `metric:"tools/bad_arguments" unit:"calls" doc:"of the failed ones: arguments that are no JSON, or not what the schema asks for"`
	Broken       int     `metric:"tools/broken" unit:"calls" doc:"of the failed ones: the deadline passed, a panic, the process or the server is gone (docs/tools.md)"`
	Retries      int     `metric:"tools/retries" unit:"attempts" doc:"attempts after the first"`
	Cached       int     `metric:"tools/cached" unit:"calls" doc:"results that were taken from the cache"`
	Seconds      float64 `metric:"seconds/tools" unit:"seconds" doc:"time of all calls together, waiting for a turn included"`
}

// Lengths tell whether a mode of sampling favours short trajectories: then those that were cut would be few, or those that were
// dropped long.
type Lengths struct {
	Response *float64 `metric:"length/response_mean" unit:"tokens" doc:"sampled tokens per finished trajectory" when:"where one finished"`
	Trained  *Spread  `metric:"length/trained_" doc:"sampled tokens of the trained trajectories"`
	Cut      *Spread  `metric:"length/cut_" doc:"sampled tokens of those that trajectories/cut counts" when:"where there is one"`
	Dropped  *Spread  `metric:"length/dropped_" doc:"sampled tokens of the trajectories of groups that were given up as too stale, as far as they got, which ended since the last step" when:"where there is one"`
}

// Spread is the distribution of the sampled tokens of some trajectories; there is none of no trajectory.
type Spread struct {
	Mean float64 `metric:"mean" unit:"tokens" doc:"mean"`
	P50  float64 `metric:"p50" unit:"tokens" doc:"median"`
	P90  float64 `metric:"p90" unit:"tokens" doc:"ninetieth percentile"`
	Max  float64 `metric:"max" unit:"tokens" doc:"longest"`
}

// Sampling is the time that a step's rollouts took.
type Sampling struct {
	Seconds         float64 `metric:"seconds/sample" unit:"seconds" doc:"until the batch was there, as seconds/wait; in mode async and with over-sampling the whole step, as sampling never rests"`
	Wait            float64 `metric:"seconds/wait" unit:"seconds" doc:"until the batch was there"`
	Sync            float64 `metric:"seconds/sync" unit:"seconds" doc:"part of seconds/train: saving, loading and proving new weights on an engine that does not share them; 0 for local"`
	TokensPerSecond float64 `metric:"tokens/sample_per_second" unit:"tokens per second" doc:"sampled tokens per second of sampling, without those that an earlier process of the run recorded"`
}

// Environments are what the manager of a job's environments did.
type Environments struct {
	InUse    int     `metric:"environments/in_use" unit:"environments" doc:"environments that trajectories hold at the end of the step"`
	Waiting  int     `metric:"environments/waiting" unit:"trajectories" doc:"trajectories that wait for an environment at the end of the step"`
	Leases   int64   `metric:"environments/leases" unit:"leases" doc:"times that an environment was lent"`
	WaitP50  float64 `metric:"environments/wait_p50" unit:"seconds" doc:"from a trajectory's asking for an environment to its lease, median; beside seconds/wait it says whether the trainer waits for environments"`
	WaitP99  float64 `metric:"environments/wait_p99" unit:"seconds" doc:"the same, 99th percentile"`
	Resets   int64   `metric:"environments/resets" unit:"resets" doc:"episodes that began"`
	ResetP50 float64 `metric:"environments/reset_p50" unit:"seconds" doc:"time of a reset, median"`
	ResetP99 float64 `metric:"environments/reset_p99" unit:"seconds" doc:"the same, 99th percentile"`
	Steps    int64   `metric:"environments/steps" unit:"steps" doc:"actions that environments were given"`
	StepP50  float64 `metric:"environments/step_p50" unit:"seconds" doc:"time of an action, median"`
	StepP99  float64 `metric:"environments/step_p99" unit:"seconds" doc:"the same, 99th percentile"`
	Failures int64   `metric:"environments/failures" unit:"failures" doc:"failures of environments, whatever they were asked, and leases that nobody got because no environment could be made"`
	Replaced int64   `metric:"environments/replaced" unit:"environments" doc:"environments that were closed for another: they failed, their lease ended because nobody kept it alive, or age, uses, memory or check ended them"`
}

// Policy is what an update says of tokens that the policy sampled.
type Policy struct {
	ClipFraction  float64 `metric:"update/clip_fraction" unit:"share" doc:"share of tokens whose gradient the loss's clip holds back, of those that the update passed through the loss, each once an epoch: without those of trajectories whose advantages are all 0, unless kl in the loss, entropy or a critic trains them"`
	Dropped       float64 `metric:"update/dropped" unit:"share" doc:"share of tokens whose policy term the correction multiplied by 0, of the same tokens as update/clip_fraction; 0 without correction"`
	KL            float64 `metric:"update/kl" unit:"nats" doc:"mean of kl.estimator, old against the reference; 0 without a reference"`
	ValueLoss     float64 `metric:"update/value_loss" unit:"loss" doc:"the critic's loss before its coefficient; 0 without a critic"`
	Explained     float64 `metric:"update/explained" unit:"share" doc:"1 − Var(return − value) / Var(return); 0 without a critic"`
	MismatchMean  float64 `metric:"update/mismatch_mean" unit:"nats" doc:"mean of |d|, where d is the trainer's minus the engine's logprob of a sampled token"`
	MismatchMax   float64 `metric:"update/mismatch_max" unit:"nats" doc:"largest |d|"`
	MismatchK3    float64 `metric:"update/mismatch_k3" unit:"nats" doc:"mean of exp(d) − d − 1"`
	ESS           float64 `metric:"update/ess" unit:"share" doc:"effective sample size of exp(d) over n"`
	StalenessMean float64 `metric:"update/staleness_mean" unit:"versions" doc:"mean over the trained trajectories of the version before the update minus the lowest version of a sampled token"`
	StalenessMax  int     `metric:"update/staleness_max" unit:"versions" doc:"the largest of these differences"`
}

// SFT is what a step of supervised fine-tuning learned from.
type SFT struct {
	Loss          float64 `metric:"sft/loss" unit:"nats" doc:"mean negative log-likelihood of the learned tokens before the update"`
	Epoch         float64 `metric:"sft/epoch" unit:"passes" doc:"passes over the data so far"`
	Conversations int     `metric:"sft/conversations" unit:"conversations" doc:"conversations of the step"`
	TokensLearned int     `metric:"tokens/learned" unit:"tokens" doc:"learned tokens of the step"`
}

// Distill is what a teacher says of what was sampled.
type Distill struct {
	ReverseKL float64 `metric:"distill/reverse_kl" unit:"nats" doc:"mean of sampling − teacher logprobs of the sampled tokens that are trained" when:"where there is one"`
}

// Update is what every optimizer step reports.
type Update struct {
	Loss          float64 `metric:"update/loss" unit:"loss" doc:"loss, the mean over the optimizer steps of the step"`
	GradNorm      float64 `metric:"update/grad_norm" unit:"norm" doc:"global L2 norm of the gradient before clipping, the mean over the optimizer steps of the step"`
	LearningRate  float64 `metric:"update/learning_rate" unit:"rate" doc:"of the last optimizer step"`
	Entropy       float64 `metric:"update/entropy" unit:"nats" doc:"mean entropy of the tokens' distributions before the update"`
	PolicyVersion int     `metric:"update/policy_version" unit:"optimizer steps" doc:"optimizer steps that changed the weights so far"`
	Skipped       int     `metric:"update/skipped,omitzero" unit:"flag" doc:"1: a number was not finite and the update was passed over; the key skipped of the line says why. But for the policy version the step's other numbers of the update are then 0 and say nothing" when:"where it is 1"`
}

// Tokens are those that an update computed.
type Tokens struct {
	Packed         int     `metric:"tokens/packed" unit:"tokens" doc:"tokens that the update computes"`
	Unpacked       int     `metric:"tokens/unpacked" unit:"tokens" doc:"tokens that it would compute without shared prefixes"`
	TrainPerSecond float64 `metric:"tokens/train_per_second" unit:"tokens per second" doc:"unpacked tokens per second of updating"`
}

// Seconds are the wall clock of a step.
type Seconds struct {
	Train   float64 `metric:"seconds/train" unit:"seconds" doc:"the step without the wait for its batch"`
	Step    float64 `metric:"seconds/step" unit:"seconds" doc:"the whole step"`
	Elapsed float64 `metric:"seconds/elapsed" unit:"seconds" doc:"since the first rollout, over resumes"`
}
