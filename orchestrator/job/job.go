// Package job reads job files: one strict YAML dialect for train, rollout, eval and serve.
//
// All errors of a file are reported at once, each with file, line, column, what is allowed and the nearest name. Paths
// are relative to the job file; ${NAME} reads the environment, and the copy kept in a run folder holds the name, never
// the value.
package job

import "github.com/agentfly/agentfly/algorithms"

// Job is a job file. Tags state the default, the allowed range or values, and whether a key must be given.
type Job struct {
	Version       int               `yaml:"version" need:"true" range:"1,1"`
	Name          string            `yaml:"name" need:"true"`
	Seed          uint64            `yaml:"seed" default:"1"`
	Deterministic bool              `yaml:"deterministic"` // the same bits whatever the timing: a batch-invariant engine
	Device        string            `yaml:"device" default:"auto" enum:"auto,cpu,cuda"`
	Model         Model             `yaml:"model"`
	Engine        Engine            `yaml:"engine"`
	Agent         Agent             `yaml:"agent"`
	Rewards       []Reward          `yaml:"rewards" need:"true"`
	Data          Data              `yaml:"data"`
	Rollout       Rollout           `yaml:"rollout"`
	Algorithm     algorithms.Config `yaml:"algorithm"`
	Trainer       Trainer           `yaml:"trainer"`
	Eval          Eval              `yaml:"eval"`
	Checkpoint    Checkpoint        `yaml:"checkpoint"`
	Control       Control           `yaml:"control"`
	Output        string            `yaml:"output"` // run folder; default runs/NAME beside the working folder

	path   string // of the job file
	source []byte // YAML of the job as it runs: --set applied, ${NAME} kept
}

// Model says which policy is trained.
type Model struct {
	Path         string   `yaml:"path"`          // a folder, a .gguf, or a hub id; this or scratch
	ChatTemplate string   `yaml:"chat_template"` // a file that overrides the model's
	DType        string   `yaml:"dtype" default:"auto" enum:"auto,fp32"`
	Scratch      *Scratch `yaml:"scratch"`
}

// Scratch is a small random Llama model with one token a character; for tests and demonstrations.
type Scratch struct {
	HiddenSize       int     `yaml:"hidden_size" default:"64" range:"8,4096"`
	IntermediateSize int     `yaml:"intermediate_size" default:"128" range:"8,16384"`
	NumLayers        int     `yaml:"num_layers" default:"2" range:"1,64"`
	NumHeads         int     `yaml:"num_heads" default:"4" range:"1,64"`
	NumKVHeads       int     `yaml:"num_kv_heads" default:"2" range:"1,64"`
	MaxPositions     int     `yaml:"max_positions" default:"256" range:"16,131072"`
	InitStd          float64 `yaml:"init_std" default:"0.08" range:"0.001,1"`
	Alphabet         string  `yaml:"alphabet" need:"true"`      // ASCII characters, one token each
	ChatTemplate     string  `yaml:"chat_template" need:"true"` // Jinja source
}

// Engine says who samples.
type Engine struct {
	Kind         string `yaml:"kind" default:"local" enum:"local"`
	CacheTokens  int    `yaml:"cache_tokens" default:"32768" range:"64,100000000"` // tokens of key/value cache
	MaxSequences int    `yaml:"max_sequences" default:"128" range:"1,4096"`        // sequences decoded at once
}

// Agent is how the model is prompted and read.
type Agent struct {
	Kind            string   `yaml:"kind" default:"tool_call" enum:"tool_call"`
	Format          string   `yaml:"format" default:"hermes" enum:"hermes,tags"`
	System          string   `yaml:"system"`
	Examples        string   `yaml:"examples"` // JSON lines of {"messages": […]} that precede the task's messages
	MaxTurns        int      `yaml:"max_turns" default:"4" range:"1,1000"`
	Tools           []string `yaml:"tools"`
	Instructions    bool     `yaml:"instructions" default:"true"` // describe the tools: to the template, or in the system prompt where it ignores them
	ObservationRole string   `yaml:"observation_role"`
}

// Reward is a name, or a mapping with name, weight and the reward's own parameters.
type Reward struct {
	Name   string
	Weight float64
	Params map[string]any
}

// Data are the tasks. Columns map prompt (default prompt) and id (default id) to the file's names.
type Data struct {
	Train   string            `yaml:"train"`
	Eval    string            `yaml:"eval"`
	Columns map[string]string `yaml:"columns"`
	Balance string            `yaml:"balance"` // a field: every step takes the same number of tasks of each of its values
}

// Rollout bounds sampling.
type Rollout struct {
	Groups       int     `yaml:"groups" default:"8" range:"1,100000"`
	GroupSize    int     `yaml:"group_size" default:"8" range:"1,100000"`
	MaxNewTokens int     `yaml:"max_new_tokens" default:"256" range:"1,1000000"` // of a turn
	MaxTokens    int     `yaml:"max_tokens" default:"2048" range:"2,10000000"`   // of a trajectory
	Temperature  float64 `yaml:"temperature" default:"1" range:"0.01,100"`
	TopP         float64 `yaml:"top_p" default:"1" range:"0.0001,1"`
	TopK         int     `yaml:"top_k" range:"0,1000000"`
	MinP         float64 `yaml:"min_p" range:"0,0.9999"`
	Mode         string  `yaml:"mode" default:"sync" enum:"sync"`
	MaxFailed    float64 `yaml:"max_failed" default:"0.5" range:"0,1"`            // share of a step's trajectories that may fail
	TurnTimeout  float64 `yaml:"turn_timeout" default:"600" range:"0.01,1000000"` // seconds for one completion
}

// Trainer is the update.
type Trainer struct {
	Steps            int     `yaml:"steps" default:"100" range:"1,10000000"`
	LearningRate     float64 `yaml:"learning_rate" default:"1e-6" range:"0,1"`
	Schedule         string  `yaml:"schedule" default:"constant" enum:"constant,linear,cosine"`
	WarmupSteps      int     `yaml:"warmup_steps" range:"0,1000000"`
	WeightDecay      float64 `yaml:"weight_decay" range:"0,10"`
	Beta1            float64 `yaml:"beta1" default:"0.9" range:"0,0.999999"`
	Beta2            float64 `yaml:"beta2" default:"0.999" range:"0,0.999999"`
	Eps              float64 `yaml:"eps" default:"1e-8" range:"1e-20,1"`
	ClipGrad         float64 `yaml:"clip_grad" default:"1" range:"0,1000000"` // 0: no clipping
	MicroBatchTokens int     `yaml:"micro_batch_tokens" default:"4096" range:"1,100000000"`
	Checkpointing    bool    `yaml:"checkpointing"` // recompute activations in backward
}

// Eval is held-out evaluation, before the first step, every so many steps, and after the last one.
type Eval struct {
	Every       int     `yaml:"every" range:"0,10000000"` // 0: before and after only
	Tasks       int     `yaml:"tasks" range:"0,10000000"` // 0: all
	Temperature float64 `yaml:"temperature" range:"0,100"`
	ToolOff     bool    `yaml:"tool_off"` // once more at the end with the tools switched off
}

// Checkpoint says how often the run is saved and how many saved states are kept.
type Checkpoint struct {
	Every int `yaml:"every" range:"0,10000000"` // 0: at the end only
	Keep  int `yaml:"keep" default:"2" range:"1,10000"`
}

// Control makes a run that must not learn, to hold a learning claim against.
type Control struct {
	ShuffleRewards bool `yaml:"shuffle_rewards"` // rewards are permuted over the trajectories of a step
}
