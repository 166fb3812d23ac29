package job

import (
	"slices"

	"github.com/agentfly/agentfly/agents"
)

// Environment says in which world the agent acts, and how many of it there are.
type Environment struct {
	Kind         string         `yaml:"kind" need:"true" doc:"a kind of environment, see docs/environments.md: agentfly env list names them"`
	Params       map[string]any `yaml:"params" doc:"the kind's own parameters"`
	Tasks        Split          `yaml:"tasks" doc:"how many of the environment's own tasks there are, where data names no files"`
	Pool         Pool           `yaml:"pool" doc:"the environments that are shared by all trajectories; one plays one episode at a time"`
	ResetTimeout float64        `yaml:"reset_timeout" default:"60" min:"0.01" max:"1000000" unit:"s" doc:"longest time for the beginning of an episode; waiting for an environment is not counted"`
	StepTimeout  float64        `yaml:"step_timeout" default:"30" min:"0.01" max:"1000000" unit:"s" doc:"longest time for one action"`
	Retries      int            `yaml:"retries" default:"1" min:"0" max:"100" unit:"trajectories" doc:"a trajectory whose environment failed begins anew in another one, so many times; then it fails, and leaves statistics, baselines and the loss"`
	Credit       string         `yaml:"credit" default:"auto" enum:"auto|turn|trajectory" doc:"where the environment's rewards are paid. turn: at the end of the turn that earned them, and the trajectory's reward leaves them out; trajectory: their sum is the reward environment; auto: turn where the estimator reads rewards of turns (gae, gigpo, turn, reinforce_pp) and the job's only reward is environment with weight 1, else trajectory"`
	Instructions bool           `yaml:"instructions" default:"true" doc:"the system prompt tells what the environment says of itself: the world, the actions, the goal"`
}

// Split is a number of tasks for training and of held-out ones.
type Split struct {
	Train int `yaml:"train" default:"512" min:"1" max:"10000000" unit:"tasks" doc:"to train on, in place of data.train"`
	Eval  int `yaml:"eval" default:"100" min:"0" max:"10000000" unit:"tasks" doc:"held-out ones, in place of data.eval; 0: none"`
}

// Pool bounds the environments of a run.
type Pool struct {
	Size    int     `yaml:"size" default:"0" min:"0" max:"100000" unit:"environments" doc:"at once; a rollout begins when its environment is there. 0: 4096 for those of this process, else the number of processors"`
	Warm    int     `yaml:"warm" default:"0" min:"0" max:"100000" unit:"environments" doc:"kept ready from the start on"`
	Age     float64 `yaml:"age" default:"0" min:"0" max:"10000000" unit:"s" doc:"after which one is replaced, between episodes; 0: any"`
	Uses    int     `yaml:"uses" default:"0" min:"0" max:"1000000000" unit:"episodes" doc:"after which one is replaced; 0: any number"`
	Memory  int     `yaml:"memory" default:"0" min:"0" max:"10000000" unit:"MiB" doc:"of its process, beyond which one is replaced; 0: any"`
	Lease   float64 `yaml:"lease" default:"600" min:"0" max:"10000000" unit:"s" doc:"after which an environment is taken back whose trajectory gave no sign of life; 0: never"`
	Breaker int     `yaml:"breaker" default:"5" min:"1" max:"1000000" unit:"failures" doc:"in a row to make one, after which trajectories fail at once instead of waiting, until one is made again"`
}

// EnvironmentReward is the reward of the environment, which a job has that names none.
const EnvironmentReward = "environment"

// completeEnvironment fills in what follows from the environment: its reward, and an agent that writes one action a turn where the job names
// neither an agent's kind nor tools.
func completeEnvironment(j *Job) {
	if j.Environment == nil {
		return
	}
	if len(j.Rewards) == 0 && j.SFT == nil { // in distillation it is reported
		j.Rewards = []Reward{{Name: EnvironmentReward, Weight: 1}}
	}
	if !j.given["agent.kind"] && !j.given["agent.format"] && len(j.Agent.Tools) == 0 {
		j.Agent.Kind = agents.OneAction
	}
}

// checkEnvironment finds contradictions between the environment and the rest.
func checkEnvironment(j *Job, fail func(path, format string, args ...any)) {
	own := slices.ContainsFunc(j.Rewards, func(r Reward) bool { return r.Name == EnvironmentReward })
	switch e := j.Environment; {
	case e == nil && own:
		fail("rewards", "the reward environment is what an environment pays; name one with environment: {kind: …}")
	case e == nil:
	case j.SFT != nil:
		fail("environment", "sft samples nothing; leave it out")
	case e.Pool.Size > 0 && e.Pool.Warm > e.Pool.Size:
		fail("environment.pool.warm", "%d, and the pool has %d (size)", e.Pool.Warm, e.Pool.Size)
	case e.Credit == "turn" && !own:
		fail("environment.credit", "turn pays the environment's rewards by turn, and the job's rewards do not name environment; add it")
	}
}

// HasTrain tells whether the job has tasks to train on: files, or the environment's own.
func (j *Job) HasTrain() bool { return len(j.Data.Train) > 0 || j.Environment != nil && j.SFT == nil }

// HasEval tells whether the job has held-out tasks: files, or the environment's own where the tasks to train on are its own too.
func (j *Job) HasEval() bool {
	return len(j.Data.Eval) > 0 || j.Environment != nil && len(j.Data.Train) == 0 && j.Environment.Tasks.Eval > 0 && j.SFT == nil
}
