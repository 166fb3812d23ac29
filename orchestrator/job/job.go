// Package job reads the job file: one YAML dialect for train, rollout and eval.
//
// Reading is strict. Every problem of a file is reported at once, each with file, line and column, what is wrong, what
// is allowed, and the nearest known name. The struct Job is the only description of the dialect: its tags carry the
// default, range, unit and meaning of each key, and the decoder, the JSON schema and the effective job are derived from
// them. A Job is plain data and read-only after Load.
//
// What needs nothing but the job is checked here: by Load, and for what one command needs by Algorithm, Trainable, Evaluable,
// Samplable and Replayable. What needs data, a model or an engine is checked by the package that opens these.
//
// What a job reads has paths relative to the job file's folder (Job.Resolve); output, which it writes, to the working folder, as --output. ${NAME} reads the environment; the copy of the job in a run folder keeps
// the name, never the value.
//
// Tags: yaml, default (YAML), min and max (inclusive), above (exclusive minimum), enum (a|b), names (kinds or formats: those that package agents has,
// and the program added), unit, doc, and the flag need.
//
// It does not run or open anything that a job names: what a setting does is the packages' that read it.
package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/tools"
)

// Job is a whole job.
type Job struct {
	Version       int               `yaml:"version" need:"true" min:"1" max:"1" doc:"version of this dialect"`
	Name          string            `yaml:"name" need:"true" doc:"names the run: letters, digits, dots, _ and -"`
	Seed          uint64            `yaml:"seed" default:"1" min:"0" doc:"every random choice of a run derives from it"`
	Deterministic bool              `yaml:"deterministic" default:"false" doc:"the same bits whatever the timing of tools and goroutines, by an engine whose results do not depend on what runs beside; the local one computes on the CPUs for that"`
	Device        string            `yaml:"device" default:"auto" enum:"auto|cpu|cuda" doc:"where model and engine compute; auto takes CUDA where it is usable"`
	Model         Model             `yaml:"model" doc:"the policy"`
	Engine        Engine            `yaml:"engine" doc:"what samples"`
	Agent         Agent             `yaml:"agent" doc:"how the model is prompted and how its completions are read"`
	Sandbox       string            `yaml:"sandbox" default:"auto" enum:"auto|bubblewrap|landlock|none" doc:"where code that the model wrote runs; auto: bubblewrap, else landlock, else the job is refused; none: unconfined, in the machine's own file system and network"`
	Environment   *Environment      `yaml:"environment" doc:"a world that the agent acts in, see docs/environments.md; null: none"`
	Rewards       []Reward          `yaml:"rewards" need:"unless sft distill environment" doc:"the reward is the sum of these times their weights: names, or {name: NAME, weight: 1, as: NAME, parameter: value}; see docs/rewards.md"`
	Data          Data              `yaml:"data" doc:"tasks"`
	Rollout       Rollout           `yaml:"rollout" doc:"sampling of trajectories"`
	Algorithm     algorithms.Config `yaml:"algorithm" doc:"what an update optimises; see docs/algorithms.md"`
	SFT           *SFT              `yaml:"sft" doc:"supervised fine-tuning on data.train (recorded conversations) or data.run (a run's trajectories), in place of rollouts"`
	Distill       *Distill          `yaml:"distill" doc:"on-policy distillation: the policy samples the tasks, a teacher computes the logprobs of the sampled tokens, and its logprob minus the policy's is each token's advantage; rewards are then only reported"`
	Trainer       Trainer           `yaml:"trainer" doc:"the optimizer: AdamW"`
	Eval          Eval              `yaml:"eval" doc:"evaluation on held-out tasks, before and after the run and between steps"`
	Checkpoint    Checkpoint        `yaml:"checkpoint" doc:"what is saved on the way"`
	Report        []Report          `yaml:"report" doc:"formats of agentfly export that the run keeps up to date: [tensorboard, {mlflow: URL}, {otlp: URL}]; see docs/export.md"`
	Control       Control           `yaml:"control" doc:"makes a run that must not learn, to hold a claim against"`
	Output        string            `yaml:"output" doc:"folder of the run, relative to the working folder; empty: runs/NAME"`

	path    string // of the job file
	source  []byte
	secrets map[string]string // by path of the value: what the copy of the job shows instead
	found   *findings         // where its values stand
	agents  *agents.Registry  // that its agent was checked against
	broken  broken            // of a Draft
	given   map[string]bool   // paths of the keys that the file or --set names
	copied  bool              // see Options.Copied
	leftOut []string          // notes
}

// Model says which policy is trained.
type Model struct {
	Path         string   `yaml:"path" doc:"a folder, a .gguf file or a hub id ORG/NAME@revision; this or scratch"`
	DType        string   `yaml:"dtype" default:"auto" enum:"auto|fp32|bfloat16" doc:"type that the trainer computes in; auto: fp32. bfloat16: a rounded copy of the weights is read, the weights themselves, their gradients and the optimizer stay fp32; sample in the same type (engine.dtype, engine.serve.dtype), or correct for the difference with algorithm.correction"`
	ChatTemplate string   `yaml:"chat_template" doc:"a Jinja file that replaces the model's own templates"`
	TemplateDate string   `yaml:"template_date" doc:"the day, YYYY-MM-DD, that a chat template which asks for it (strftime_now) is told, in every rollout and evaluation; it is saved with the checkpoints, and agentfly serve tells the same. Empty: the one that the model's folder records, else 1970-01-01"`
	LoRA         LoRA     `yaml:"lora" doc:"low-rank adapters"`
	Scratch      *Scratch `yaml:"scratch" doc:"a small Llama model with random weights and one token a character, for tests and demonstrations"`
}

// LoRA says that low-rank adapters are trained and the model's own weights are not.
type LoRA struct {
	Rank    int      `yaml:"rank" default:"0" min:"0" max:"4096" doc:"of the adapters; 0: all weights are trained"`
	Alpha   float64  `yaml:"alpha" default:"0" min:"0" max:"1000000" doc:"the adapters' share is multiplied by alpha/rank; 0: twice the rank"`
	Targets []string `yaml:"targets" doc:"projections with an adapter: q_proj k_proj v_proj o_proj gate_proj up_proj down_proj; empty: all"`
	Path    string   `yaml:"path" doc:"a PEFT adapter to begin with, which brings rank, alpha and targets; leave those out"`
}

// On tells whether adapters are trained.
func (l LoRA) On() bool { return l.Rank > 0 || l.Path != "" }

// Scratch is a small random Llama model with one token a character.
type Scratch struct {
	HiddenSize       int     `yaml:"hidden_size" default:"64" min:"8" max:"4096" doc:"a multiple of num_heads"`
	IntermediateSize int     `yaml:"intermediate_size" default:"128" min:"8" max:"16384" doc:"width of the feed-forward layers"`
	NumLayers        int     `yaml:"num_layers" default:"2" min:"1" max:"64" doc:"transformer blocks"`
	NumHeads         int     `yaml:"num_heads" default:"4" min:"1" max:"64" doc:"attention heads"`
	NumKVHeads       int     `yaml:"num_kv_heads" default:"2" min:"1" max:"64" doc:"key and value heads; num_heads is a multiple"`
	MaxPositions     int     `yaml:"max_positions" default:"256" min:"16" max:"131072" unit:"tokens" doc:"longest sequence"`
	InitStd          float64 `yaml:"init_std" default:"0.08" min:"0.001" max:"1" doc:"standard deviation of the random weights"`
	Alphabet         string  `yaml:"alphabet" need:"true" doc:"the characters of its tokenizer: printable ASCII, tab and newline"`
	ChatTemplate     string  `yaml:"chat_template" need:"true" doc:"Jinja source"`
}

// Engine says who samples.
type Engine struct {
	Kind         string         `yaml:"kind" default:"local" doc:"local: libtorch in this process; vllm: servers over HTTP; openai: any OpenAI-compatible chat endpoint, for rollout and eval only; or a kind that the program registers, see docs/engines.md"`
	Params       map[string]any `yaml:"params" doc:"of a kind that the program registers: parameters of its own. Beside them it takes folder, tolerance and sleep"`
	CacheTokens  int            `yaml:"cache_tokens" default:"32768" min:"64" max:"100000000" unit:"tokens" doc:"local: size of the key/value cache"`
	MaxSequences int            `yaml:"max_sequences" default:"128" min:"1" max:"4096" unit:"sequences" doc:"local: most that are decoded at once"`
	Device       string         `yaml:"device" default:"auto" enum:"auto|cpu" doc:"local: where sampling computes; auto: on the trainer's device, from the trainer's weights, but with deterministic: true on the CPUs; cpu: on the CPUs, and where the trainer has a device, from a float32 copy of the weights that every update renews"`
	DType        string         `yaml:"dtype" default:"auto" enum:"auto|float32|bfloat16" doc:"local: type that sampling computes in; auto: float32, on a device model.dtype, which is the only one there. bfloat16 is faster for a few sequences, and on a CPU its logprobs are those of a trainer with model.dtype bfloat16 on a CPU; beside one in fp32, on CUDA or with trainer.tensor_parallel, or with adapters, correct for the difference with algorithm.correction"`
	URLs         []string       `yaml:"urls" doc:"vllm: the servers, replicas of one policy, such as http://127.0.0.1:8000; these or serve. openai: one endpoint with /v1 at the end"`
	ServedModel  string         `yaml:"served_model" doc:"vllm, openai: the model's name on the servers; empty: vLLM's first"`
	APIKey       string         `yaml:"api_key" doc:"vllm, openai: sent to the servers; write ${NAME}; empty with serve: a new one, which only the job knows"`
	Weights      string         `yaml:"weights" default:"auto" enum:"auto|disk|lora|transfer|ipc|gloo|nccl" doc:"vllm: how new weights reach the servers: auto and disk: they reload a checkpoint; transfer: through shared memory; ipc: they open the memory of the trainer's card; gloo, nccl: broadcast over a process group; lora: they load the adapter, of a job with model.lora"`
	Tolerance    float64        `yaml:"tolerance" default:"0" min:"0" max:"10" unit:"nats" doc:"vllm: how far a server's logprob of a probe token may be from the trainer's. One token in 32 may be further, as long as the mean difference is at most an eighth of it. An update beyond that stops the run. 0: 0.001 where both compute in float32, 2 where one computes in bfloat16 or float16, see docs/engines.md"`
	Folder       string         `yaml:"folder" doc:"vllm: where checkpoints for the servers are written, which they must see; empty: the system's temporary folder"`
	Sleep        int            `yaml:"sleep" default:"0" min:"0" max:"2" doc:"vllm: the servers give their device's memory to the trainer between rollout and update: 1 keeps the weights in host memory, 2 drops them; 0: they do not"`
	Serve        *Serve         `yaml:"serve" doc:"vllm: the job starts a server itself, starts it again when it dies, and stops it"`
}

// Holds is how many tokens the local engine's cache holds: whole blocks of 16.
func (e Engine) Holds() int { return e.CacheTokens / 16 * 16 }

// Serve is a vLLM server that the job starts.
type Serve struct {
	Command string            `yaml:"command" default:"vllm" doc:"vLLM's command: a name on PATH, or a path"`
	Args    []string          `yaml:"args" doc:"more arguments of vllm serve"`
	Device  string            `yaml:"device" default:"auto" doc:"that the server computes on: auto: what the trainer computes on; cpu: this vLLM is the one for CPUs; cuda: all devices that this program sees; cuda:1 or cuda:0,1: these of them"`
	DType   string            `yaml:"dtype" default:"auto" enum:"auto|float32|bfloat16|float16" doc:"that the server computes in; auto: model.dtype, and where that is auto too bfloat16 on CUDA, float32 on a CPU"`
	Env     map[string]string `yaml:"env" doc:"variables of the server's environment, over those that it inherits; write ${NAME} for what this program's own has. It inherits neither the settings of PyTorch's allocator nor what a launcher tells its ranks"`
	Timeout float64           `yaml:"timeout" default:"600" min:"1" max:"100000" unit:"s" doc:"until the server answers"`
	// Restarts follow each other after 1 s, 2 s, … 60 s.
	Restarts int `yaml:"restarts" default:"3" min:"0" max:"1000" doc:"most new starts of a server that dies, in a row; it gets the current weights before it serves"`
}

// Devices reads the setting device: the CUDA devices that it numbers, if any. ok is false where it is none.
func (s Serve) Devices() (numbers []int, ok bool) {
	list, numbered := strings.CutPrefix(s.Device, "cuda:")
	if !numbered {
		return nil, s.Device == "auto" || s.Device == "cpu" || s.Device == "cuda"
	}
	for _, text := range strings.Split(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || slices.Contains(numbers, n) {
			return nil, false
		}
		numbers = append(numbers, n)
	}
	return numbers, true
}

// Agent is how the model is prompted and read.
type Agent struct {
	Kind            string `yaml:"kind" default:"tool_call" names:"kinds" doc:"prompt, call format, stop rule and observation format in one; see docs/agents.md"`
	Format          string `yaml:"format" names:"formats" doc:"how a call is written, a format of the kind; empty: the first of these"`
	Python          string `yaml:"python" doc:"custom: a Python file with functions that carry @agent: parse(completion) and observe(results), and where wanted instructions(tools) and stops()"`
	System          string `yaml:"system" doc:"system prompt"`
	Examples        string `yaml:"examples" doc:"JSON lines of worked conversations {\"messages\": […]} that precede every task"`
	MaxTurns        int    `yaml:"max_turns" default:"4" min:"1" max:"1000" unit:"turns" doc:"completions of a trajectory"`
	MaxCalls        int    `yaml:"max_calls" default:"0" min:"0" max:"100000" unit:"calls" doc:"of tools in a trajectory; one that asks for more ends with the stop reason max_calls. 0: any number"`
	MaxAtOnce       int    `yaml:"max_at_once" default:"32" min:"1" max:"1000" unit:"calls" doc:"of tools in one turn, which run side by side; the model reads that those beyond it did not run"`
	Tools           []Tool `yaml:"tools" doc:"names, or {name: NAME, parameter: value}, {python: FILE}, {mcp: …}, {http: …}; each with only, timeout, max_tokens, concurrency, rate, retries, cache; mcp and http also with stateful, deterministic"`
	Instructions    bool   `yaml:"instructions" default:"true" doc:"describe the tools to the model: by its template, or in the system prompt where template or format do not"`
	SpecialTokens   string `yaml:"special_tokens" default:"text" enum:"text|markup" doc:"what spells a special token of the model (<|im_end|>) in prompts, schemas and observations. text: it is text, and only the chat template writes special tokens, so that a page cannot end a turn; markup: it is that token, as servers read it"`
	ObservationRole string `yaml:"observation_role" doc:"role of the message that carries results; empty: the format's own, with engine openai user"`

	Command   []string          `yaml:"command" doc:"external: the agent's program and its arguments, one process a trajectory, in the job file's folder; it finds its task, the address and the key in its environment, see docs/gateway.md"`
	URL       string            `yaml:"url" doc:"external: a service that is posted each task with the address and the key, in place of command, and answers when its agent has ended"`
	Online    bool              `yaml:"online" default:"false" doc:"external: agents that run elsewhere come for tasks, in place of command, see docs/gateway.md"`
	Sandbox   bool              `yaml:"sandbox" default:"false" doc:"external: the command runs in bubblewrap's sandbox: it reaches the gateway and no other address, and reads its program, show and the system's /usr, see docs/gateway.md"`
	Show      []string          `yaml:"show" doc:"external: files and folders that the command reads in the sandbox, beside its program"`
	Key       string            `yaml:"key" doc:"external: that agents bear who come for tasks; write ${NAME}"`
	Env       map[string]string `yaml:"env" doc:"external: variables of the command's environment; write ${NAME} for what this program's own has"`
	Processes int               `yaml:"processes" default:"0" min:"0" max:"100000" unit:"agents" doc:"external: at once; 0: as many as trajectories are sampled at once"`
	MaxTokens int               `yaml:"max_tokens" default:"0" min:"0" max:"1000000000" unit:"tokens" doc:"external: that a trajectory samples over all its calls, after which the agent is told to stop; 0: any number. max_turns bounds its calls likewise"`
	MaxTime   float64           `yaml:"max_time" default:"0" min:"0" max:"10000000" unit:"s" doc:"external: of an agent, after which it is told to stop as by max_turns and may still end; 0: none. At rollout.timeout it is killed"`
	Forms     string            `yaml:"forms" default:"free" enum:"free|held" doc:"external: what becomes of the forms that an agent asks its replies in (response_format, structured_outputs, a required tool_choice). free: nothing, the policy samples freely; held: the reply has the form, on the local engine, for eval, rollout and the gateway alone, as training needs free samples"`
	History   string            `yaml:"history" default:"as_sampled" enum:"as_sampled|as_sent" doc:"external: what the model reads of its own earlier turns. as_sampled: its tokens as they were sampled, thoughts included; as_sent: what the agent sends of them, so that a new sample begins where it leaves thoughts out"`
	Roles     []AgentRole       `yaml:"roles" doc:"external: names for the calls of a trajectory, the first that fits"`
	Listen    string            `yaml:"listen" default:"127.0.0.1:0" doc:"external: address of the gateway, host:port; port 0 is a free one"`

	Deterministic bool `yaml:"deterministic" default:"false" doc:"external: with the same replies the agent makes the same calls again, so that its trajectories can fork (rollout.tree): it is begun anew and answered as was recorded up to the fork, each call held against the record; see docs/trees.md"`
}

// AgentRole names the calls that fit all that it asks for.
type AgentRole struct {
	Name   string `yaml:"name" need:"true" doc:"of the role: letters, digits, _ and -"`
	System string `yaml:"system" doc:"a regular expression that the system prompt matches"`
	Header string `yaml:"header" doc:"a header of the request, NAME or NAME: VALUE"`
	Tool   string `yaml:"tool" doc:"a tool that the request offers"`
	Path   string `yaml:"path" doc:"of the request, such as chat/completions"`
	Train  bool   `yaml:"train" default:"true" doc:"false: these calls are sampled and never trained"`
}

// Tool is an entry of agent.tools: a name, or a mapping.
type Tool = tools.Ref

// Reward is a name, or a mapping with name, weight and the reward's own parameters.
type Reward struct {
	Name   string
	Weight float64
	Params map[string]any
}

// Data are the tasks.
type Data struct {
	Train   Sources           `yaml:"train" doc:"JSON lines of tasks, or one JSON list: a path, or a list of paths and {path: FILE, weight: 1, name: NAME, columns: {…}}; of every (sum of the weights) tasks a source gives as many as its weight"`
	Eval    Sources           `yaml:"eval" doc:"held-out tasks, one file or several; none of them may be in train by content"`
	Columns map[string]string `yaml:"columns" doc:"the file's names of prompt (a text or a list of messages), id and answer; with sft of messages"`
	Balance string            `yaml:"balance" doc:"a field, or source: every step takes the same number of tasks of each of its values"`
	Spread  string            `yaml:"spread" doc:"a field whose values are dealt in turn, within a source or a value of balance: none comes again before each of the others has come; empty: an epoch is all tasks in a random order"`
	Success *float64          `yaml:"success" doc:"a trajectory succeeds with this reward or more, for pass@k and curricula; null: when its final answer equals the task's answer"`

	Curriculum *Curriculum `yaml:"curriculum" doc:"in which order, and how often, tasks are dealt; null: every epoch in a random order of its own"`

	Run       string   `yaml:"run" doc:"sft: a run folder whose finished training trajectories are learned as they were sampled, in place of train (rejection sampling)"`
	MinReward *float64 `yaml:"min_reward" doc:"with run: only trajectories with this reward or more; null: all"`
	BestOf    int      `yaml:"best_of" default:"0" min:"0" max:"1000000" unit:"trajectories" doc:"with run: at most so many of each task, those with the highest reward; 0: all"`
}

// Curriculum orders or weights the tasks of an epoch, each source for itself. No task comes twice in one.
type Curriculum struct {
	By     string `yaml:"by" need:"true" enum:"difficulty|success_rate|mask_count" doc:"difficulty: the first epochs go from the lowest to the highest value of field, later ones are random; success_rate: with the rate p of its last group, a task enters an epoch with probability 4p(1-p), 0.1 at least; mask_count: an epoch goes from few to many response tokens, as counted in each task's last group"`
	Field  string `yaml:"field" doc:"difficulty: the column with the number"`
	Epochs int    `yaml:"epochs" default:"1" min:"1" max:"1000000" unit:"epochs" doc:"difficulty: so many are ordered"`
}

// SFT is supervised fine-tuning: the negative log-likelihood of what the assistant said, with the masks of rollouts.
type SFT struct {
	Batch  int `yaml:"batch" default:"32" min:"1" max:"1000000" unit:"conversations" doc:"of a step"`
	Epochs int `yaml:"epochs" default:"0" min:"0" max:"1000000" unit:"epochs" doc:"passes over the data, in place of trainer.steps; 0: trainer.steps counts"`
}

// Distill is on-policy distillation.
type Distill struct {
	Teacher Teacher `yaml:"teacher" doc:"a model with the policy's tokenizer"`
}

// Teacher is a model in this process, or on servers.
type Teacher struct {
	Path        string   `yaml:"path" doc:"a folder, a .gguf file or a hub id; this or urls"`
	URLs        []string `yaml:"urls" doc:"vLLM servers of the teacher, such as http://127.0.0.1:8000; that its tokenizer is the policy's is checked where they offer /tokenize"`
	ServedModel string   `yaml:"served_model" doc:"the teacher's name on the servers; empty: their first"`
	APIKey      string   `yaml:"api_key" doc:"sent to the servers; write ${NAME}"`
}

// Rollout bounds sampling.
type Rollout struct {
	Groups       int     `yaml:"groups" default:"8" min:"1" max:"100000" unit:"tasks" doc:"tasks of a step"`
	GroupSize    int     `yaml:"group_size" default:"8" min:"1" max:"100000" unit:"trajectories" doc:"trajectories of a task, which share a baseline"`
	MaxNewTokens int     `yaml:"max_new_tokens" default:"256" min:"1" max:"1000000" unit:"tokens" doc:"longest completion of a turn"`
	MaxTokens    int     `yaml:"max_tokens" default:"2048" min:"2" max:"10000000" unit:"tokens" doc:"longest trajectory, prompt and observations included; of one whose history is rewritten, its longest sample"`
	Cut          string  `yaml:"cut" default:"score" enum:"score|zero|filter|parse" doc:"a completion that max_new_tokens, max_tokens or the model's context cut ends its trajectory (stop reason max_tokens) and is neither a call nor an answer; of an agent of kind external its last one. score: the rewards score it so; zero: its reward is 0; filter: the update leaves it out (overlong filtering); parse: it counts as if the model had ended it, for completions of a fixed length"`
	Temperature  float64 `yaml:"temperature" default:"1" min:"0" max:"100" doc:"of sampling; training needs more than 0"`
	TopP         float64 `yaml:"top_p" default:"1" above:"0" max:"1" doc:"1 is off; training needs 1"`
	TopK         int     `yaml:"top_k" default:"0" min:"0" max:"1000000" doc:"0 is off; training needs 0"`
	MinP         float64 `yaml:"min_p" default:"0" min:"0" max:"0.9999" doc:"0 is off; training needs 0"`
	Mode         string  `yaml:"mode" default:"sync" enum:"sync|async" doc:"sync: a step trains on what its own policy sampled; async: rollouts go on beside the updates, see docs/async.md"`
	MaxStaleness int     `yaml:"max_staleness" default:"0" min:"0" max:"100000" unit:"policy versions" doc:"most between the oldest sampled token of a trajectory and the version that trains it; async, and sync with oversample, need 1 or more"`
	Stale        string  `yaml:"stale" default:"wait" enum:"wait|drop" doc:"a group that would grow too stale if the next step left it: the step waits for it, or it is dropped and its task sampled anew"`
	Oversample   float64 `yaml:"oversample" default:"1" min:"1" max:"100" doc:"sync: groups sampled at once, in units of groups; a step takes those that end first, the others go on in the next one"`
	MaxRefills   int     `yaml:"max_refills" default:"10" min:"0" max:"100000" unit:"refills" doc:"algorithm.dynamic_sampling: how often a step samples further tasks in place of groups without variance; it then trains on what it has"`
	MaxFailed    float64 `yaml:"max_failed" default:"0.5" min:"0" max:"1" doc:"share of a step's or an evaluation's trajectories that may fail before the run stops"`
	Timeout      float64 `yaml:"timeout" default:"0" min:"0" max:"10000000" unit:"s" doc:"longest time for one trajectory, its reward included; one that is late fails. 0: only its turns and calls have deadlines"`
	TurnTimeout  float64 `yaml:"turn_timeout" default:"600" min:"0.01" max:"1000000" unit:"s" doc:"longest time for one completion"`
	ToolTimeout  float64 `yaml:"tool_timeout" default:"30" min:"0.01" max:"1000000" unit:"s" doc:"longest time for one tool call"`

	ToolTokens    int     `yaml:"tool_tokens" default:"1000" min:"1" max:"1000000" unit:"tokens" doc:"longest observation of one tool call; of a longer one head and tail are left, and a marker says how much is not"`
	RewardTimeout float64 `yaml:"reward_timeout" default:"60" min:"0.01" max:"1000000" unit:"s" doc:"longest time for one reward of one trajectory"`
	Gradings      int     `yaml:"gradings" default:"0" min:"0" max:"10000" unit:"gradings" doc:"trajectories that the rewards code_tests and command run programs for at once, in the whole run; neither waiting for a place nor running is time of reward_timeout. 0: the number of processors"`
	MaxFailedTool float64 `yaml:"max_failed_tool" default:"1" min:"0" max:"1" doc:"share of a step's or an evaluation's tool calls that may break (deadline passed, panic) before the run stops; 1: all"`
	MaxRaised     int     `yaml:"max_raised" default:"32" min:"0" max:"1000000" unit:"calls" doc:"of one tool that all raised the same error, with different arguments, before the run stops: such a tool teaches nothing; actions that an environment refuses do not count. 0: any number"`
	Watchdog      float64 `yaml:"watchdog" default:"120" min:"0" max:"1000000" unit:"s" doc:"when nothing moved for so long, the run says what it waits for, and for whom; 0: it does not"`

	Tree *Tree `yaml:"tree" doc:"the trajectories of a task branch, and share what was sampled before, see docs/trees.md; null: all begin at the prompt. Evaluations have no trees"`
}

// Trainer is the update.
type Trainer struct {
	Steps            int     `yaml:"steps" default:"100" min:"1" max:"10000000" unit:"steps" doc:"steps of the run"`
	LearningRate     float64 `yaml:"learning_rate" default:"1e-6" above:"0" max:"1" doc:"largest of the schedule"`
	Schedule         string  `yaml:"schedule" default:"constant" enum:"constant|linear|cosine" doc:"shape of the learning rate after the warm-up: constant, or falling to 0 over the steps of the run, those without anything to learn included"`
	WarmupSteps      int     `yaml:"warmup_steps" default:"0" min:"0" max:"1000000" unit:"steps" doc:"in which the learning rate rises from 0, with every optimizer step of theirs"`
	WeightDecay      float64 `yaml:"weight_decay" default:"0" min:"0" max:"10" doc:"decoupled; of all that is trained, norms and biases too"`
	Beta1            float64 `yaml:"beta1" default:"0.9" min:"0" max:"0.999999" doc:"decay of the first moment"`
	Beta2            float64 `yaml:"beta2" default:"0.999" min:"0" max:"0.999999" doc:"decay of the second moment"`
	Eps              float64 `yaml:"eps" default:"1e-8" min:"1e-20" max:"1" doc:"added to the root of the second moment"`
	ClipGrad         float64 `yaml:"clip_grad" default:"1" min:"0" max:"1000000" doc:"largest gradient norm; 0: not clipped"`
	MicroBatchTokens int     `yaml:"micro_batch_tokens" default:"4096" min:"1" max:"100000000" unit:"tokens" doc:"of one forward and backward; a longer sample goes alone"`
	OnNonfinite      string  `yaml:"on_nonfinite" default:"stop" enum:"stop|skip" doc:"when a reward, logprob, loss or gradient is NaN or infinite: stop the run, or skip the rest of the step and go on, ten times in a row at most"`
	Checkpointing    bool    `yaml:"checkpointing" default:"false" doc:"compute activations again in backward: less memory, more time"`
	CheckpointLayers int     `yaml:"checkpoint_layers" default:"0" min:"0" max:"100000" unit:"layers" doc:"with checkpointing: compute so many layers again, from the first, and keep the activations of the others; 0: all. agentfly job memory says how few fit"`
	Shard            string  `yaml:"shard" default:"zero1" enum:"zero1|fsdp" doc:"of several training processes: zero1 spreads the optimizer's moments over them and exchanges gradients and weights within its step; fsdp exchanges them layer by layer while they compute, and with bfloat16 spreads the float32 weights too"`
	ContextParallel  int     `yaml:"context_parallel" default:"1" min:"1" max:"16384" unit:"processes" doc:"of several training processes: how many neighbours compute each micro-batch together, a share of its tokens each, so that its activations lie on all of them; it divides their number"`
	TensorParallel   int     `yaml:"tensor_parallel" default:"1" min:"1" max:"16384" unit:"processes" doc:"of several training processes: how many neighbours compute each micro-batch together, a share of every layer's heads and of its MLP's columns each, so that a layer's products and activations are shared; it divides their number, the model's query heads and the MLP's columns, and divides the key/value heads or is a multiple of them"`
	Offload          string  `yaml:"offload" default:"none" enum:"none|optimizer" doc:"optimizer: the moments lie in host memory and come to the device in chunks during a step, which takes longer and changes no bit; on a CPU they lie there anyway"`
	RankTimeout      float64 `yaml:"rank_timeout" default:"600" min:"0.1" max:"1000000" unit:"s" doc:"of several training processes: how long one may keep the others waiting before they name it and end"`
}

// Eval is held-out evaluation, before the first step, every so many steps, and after the last one.
type Eval struct {
	Every       int     `yaml:"every" default:"0" min:"0" max:"10000000" unit:"steps" doc:"0: before and after the run only"`
	Tasks       int     `yaml:"tasks" default:"0" min:"0" max:"10000000" unit:"tasks" doc:"first so many of each file of data.eval; 0: all"`
	Temperature float64 `yaml:"temperature" default:"0" min:"0" max:"100" doc:"0 is greedy"`
	Samples     int     `yaml:"samples" default:"1" min:"1" max:"100000" unit:"trajectories" doc:"of each task; more than one needs a temperature"`
	K           []int   `yaml:"k" doc:"pass@k for these k, unbiased from samples; empty: none, or with several samples k = samples"`
	By          string  `yaml:"by" default:"source" doc:"a field of the tasks, by whose values a table shows the result; source: the files of data.eval"`
	StopAfter   int     `yaml:"stop_after" default:"0" min:"0" max:"1000000" unit:"evaluations" doc:"the run ends when so many in a row were no better than the best before them; 0: never"`
	ToolOff     bool    `yaml:"tool_off" default:"false" doc:"once more at the end with the tools switched off: the same prompt, but a call is answered with an error"`
}

// Checkpointed is how many layers, from the first, are computed again in backward, as of cgo.ForwardOptions.
func (t Trainer) Checkpointed() int {
	switch {
	case !t.Checkpointing:
		return 0
	case t.CheckpointLayers > 0:
		return t.CheckpointLayers
	}
	return cgo.AllLayers
}

// WarmupFault says what is wrong with a warm-up for t's steps, which are named; "" for nothing.
func (t Trainer) WarmupFault(steps string) string {
	switch {
	case t.WarmupSteps > t.Steps:
		return fmt.Sprintf("%d steps of warm-up are more than %s (%d)", t.WarmupSteps, steps, t.Steps)
	case t.WarmupSteps == t.Steps && t.Schedule != "constant":
		return fmt.Sprintf("%d steps of warm-up leave schedule %s none of %s (%d); lower it, or use constant", t.WarmupSteps, t.Schedule, steps, t.Steps)
	}
	return ""
}

// Checkpoint says how often the run is saved and how many saved states are kept.
type Checkpoint struct {
	Every int  `yaml:"every" default:"0" min:"0" max:"10000000" unit:"steps" doc:"0: at the end of the run only"`
	Keep  int  `yaml:"keep" default:"2" min:"1" max:"10000" unit:"checkpoints" doc:"older ones are deleted"`
	Best  bool `yaml:"best" default:"false" doc:"also keep the state with the best evaluation, as checkpoints/best"`
}

// Control makes a run that must not learn, to hold a learning claim against.
type Control struct {
	ShuffleRewards bool `yaml:"shuffle_rewards" default:"false" doc:"rewards are permuted over the trajectories of a step"`
	ShuffleTeacher bool `yaml:"shuffle_teacher" default:"false" doc:"distill: the teacher's logprobs are permuted over the tokens of a step"`
	ToolsOff       bool `yaml:"tools_off" default:"false" doc:"no call is answered, in training and in every evaluation: the same prompt, but a call gets an error"`
}

// PassAt are the k of pass@k.
func (e Eval) PassAt() []int {
	if len(e.K) == 0 && e.Samples > 1 {
		return []int{e.Samples}
	}
	return e.K
}
