package trajectory

// Failure says whose doing a failure is: it decides whether the policy is trained on it. It is set on what failed (a ToolResult, a
// Trajectory) by whoever finds the failure; Cause.Failure and Origin.Failure are the one list of what counts as which.
type Failure string

const (
	// FailureInfrastructure: a part of the run failed (a server, a process, somebody's code). The policy is not to blame, so
	// a trajectory that ended with it has no reward: it leaves statistics, baselines and the loss. A tool's is told to the model.
	FailureInfrastructure Failure = "infrastructure"
	// FailurePolicy: what the policy did cannot succeed (a call that cannot be read, wrong arguments, code that never ends). It
	// counts: the model reads the error, and the reward is what it is.
	FailurePolicy Failure = "policy"
)

// Origin is the part of a run that the error of a trajectory comes from.
type Origin string

// The origins of errors. docs/metrics.md lists them as errors/ORIGIN.
const (
	OriginAgent       Origin = "agent"       // a call format that somebody else wrote: it failed, panicked or took too long
	OriginDeadline    Origin = "deadline"    // the trajectory was not done after rollout.timeout
	OriginEngine      Origin = "engine"      // no completion came, or one that cannot be used
	OriginEnvironment Origin = "environment" // an environment failed
	OriginRender      Origin = "render"      // the chat template, a prompt that is too long, a history that changed since it was recorded
	OriginReward      Origin = "reward"      // a reward gave no score
	OriginStore       Origin = "store"       // a turn cannot be stored; it ends the run: what is not stored must not be used
	OriginTeacher     Origin = "teacher"     // the teacher of a distillation has no logprobs of the trajectory
	OriginTool        Origin = "tool"        // a tool broke (CauseBroken), which fails its call, not the trajectory; or it did not answer a fork as it was recorded
	OriginWeights     Origin = "weights"     // another run's weights are on the engine's servers; it ends the run
)

// Origins are all of them, in the order of their names.
func Origins() []Origin {
	return []Origin{
		OriginAgent, OriginDeadline, OriginEngine, OriginEnvironment, OriginRender,
		OriginReward, OriginStore, OriginTeacher, OriginTool, OriginWeights,
	}
}

// Failure of an error with that origin. All of them are the infrastructure's: what the policy did wrong is no error of a trajectory
// but a result that it reads, or its reward. "" has none.
func (o Origin) Failure() Failure {
	if o == "" {
		return ""
	}
	return FailureInfrastructure
}

// EndsRun tells whether an error with that origin ends the run, instead of one trajectory.
func (o Origin) EndsRun() bool { return o == OriginStore || o == OriginWeights }

// Cause says why a call failed.
type Cause string

// The causes of a failed call.
const (
	CauseParse        Cause = "parse"         // the completion asks for a call that cannot be read
	CauseUnknownTool  Cause = "unknown_tool"  //
	CauseBadArguments Cause = "bad_arguments" // no JSON, or not what the tool's schema asks for
	CauseRaised       Cause = "raised"        // the tool returned an error
	CauseBroken       Cause = "broken"        // the tool is to blame: its deadline passed, it panicked, its process or server is gone
	CauseInterrupted  Cause = "interrupted"   // the trajectory ended meanwhile
	CauseLimit        Cause = "limit"         // more calls than the job allows
	CauseOff          Cause = "off"           // the tools are switched off
)

// Causes are all of them.
func Causes() []Cause {
	return []Cause{
		CauseParse, CauseUnknownTool, CauseBadArguments, CauseRaised, CauseBroken, CauseInterrupted, CauseLimit, CauseOff,
	}
}

// Ran tells whether a call with that cause of its failure, or "", reached its tool.
func (c Cause) Ran() bool { return c == "" || c == CauseRaised || c == CauseBroken }

// Failure of a call that failed for that reason; "" has none.
func (c Cause) Failure() Failure {
	switch c {
	case "":
		return ""
	case CauseBroken, CauseInterrupted:
		return FailureInfrastructure
	}
	return FailurePolicy // CauseParse, CauseUnknownTool, CauseBadArguments, CauseRaised, CauseLimit, CauseOff
}
