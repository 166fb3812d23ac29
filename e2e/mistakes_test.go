package e2e_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
)

// sound is a job without a mistake, by section.
var sound = [][2]string{
	{"version", "version: 1"},
	{"name", "name: mistakes"},
	{"device", "device: cpu"},
	{"model", "model: {path: MODEL}"},
	{"engine", "engine: {kind: local}"},
	{"agent", "agent: {kind: tool_call, format: tags, max_turns: 2, tools: [calculator], instructions: false}"},
	{"rewards", "rewards: [final_answer]"},
	{"data", "data: {train: tasks.jsonl, eval: held.jsonl}"},
	{"rollout", "rollout: {groups: 2, group_size: 2, max_new_tokens: 2, max_tokens: 64}"},
	{"algorithm", "algorithm: {advantage: grpo}"},
	{"trainer", "trainer: {steps: 2}"},
}

// planted is a folder with a job in which sections are replaced, and with the files that it names. edits go by section; other names are those
// of files.
func planted(t *testing.T, edits map[string]string) (dir, path string) {
	t.Helper()
	dir = t.TempDir()
	files := map[string]string{
		"tasks.jsonl": `{"prompt": "1+1", "answer": "2"}` + "\n" + `{"prompt": "1+2", "answer": "3"}` + "\n",
		"held.jsonl":  `{"prompt": "2+2", "answer": "4"}` + "\n",
	}
	model, err := filepath.Abs("examples/tiny/model")
	require.NoError(t, err)
	var lines []string
	for _, s := range sound {
		text := s[1]
		if edit, ok := edits[s[0]]; ok {
			text = edit
		}
		if text != "" {
			lines = append(lines, text)
		}
	}
	known := func(name string) bool {
		return slices.ContainsFunc(sound, func(s [2]string) bool { return s[0] == name })
	}
	for name, text := range edits {
		switch {
		case name == "more":
			lines = append(lines, text)
		case name == "whole":
			lines = []string{text}
		case !known(name):
			files[name] = text
		}
	}
	files["job.yaml"] = strings.NewReplacer("MODEL", model, "DIR", dir).Replace(strings.Join(lines, "\n") + "\n")
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir, filepath.Join(dir, "job.yaml")
}

type edits = map[string]string

// mistake is one that a user may make: what is changed in the sound job, further arguments, and what the one answer must hold. JOB stands for
// the job file, DIR for its folder.
type mistake struct {
	edits edits
	args  []string // "" in place of the job file leaves it out
	want  []string
}

// mistakes are those of job files, tools, rewards and data. Each answer names the place, what is allowed, and what to do.
var mistakes = map[string]mistake{
	// the file
	"a tab indents":         {edits{"trainer": "trainer:\n\tsteps: 2"}, nil, []string{"JOB:12:1: ", "a tab", "two spaces"}},
	"an empty file":         {edits{"whole": ""}, nil, []string{"JOB:1:1: ", "the file is empty", "a job begins with version: 1"}},
	"two documents":         {edits{"more": "---\nversion: 1"}, nil, []string{"JOB:12:1: ", "a second document begins here; a job file holds one"}},
	"a list":                {edits{"whole": "- version: 1"}, nil, []string{"JOB:1:1: the job: a list, allowed is a mapping with the keys version, name"}},
	"a quote that is open":  {edits{"name": `name: "x`}, nil, []string{"JOB:2:7: the quote that opens here is not closed (not YAML: "}},
	"a key given twice":     {edits{"more": "name: again"}, nil, []string{"JOB:12:1: key \"name\" in the job is given twice; the first is in line 2"}},
	"an unknown key":        {edits{"model": "modle: {path: MODEL}"}, nil, []string{"JOB:4:1: unknown key \"modle\" in the job; allowed: version, name", "nearest: model"}},
	"no version":            {edits{"version": ""}, nil, []string{"JOB:1:1: the job: the key \"version\" is missing"}},
	"another version":       {edits{"version": "version: 2"}, nil, []string{"JOB:1:10: version: 2 is out of range, allowed is 1"}},
	"a name with a blank":   {edits{"name": "name: my run"}, nil, []string{"JOB:2:7: name: \"my run\" must be letters, digits, dots, _ and -"}},
	"no such variable":      {edits{"name": "name: ${AGENTFLY_NO_SUCH}"}, nil, []string{"JOB:2:7: name: the environment variable \"AGENTFLY_NO_SUCH\" is not set"}},
	"a key of another room": {edits{"trainer": "trainer: {steps: 2, group_size: 4}"}, nil, []string{"JOB:11:21: unknown key \"group_size\" in trainer: it stands at rollout.group_size"}},

	// values
	"a word for a number": {edits{"trainer": "trainer: {steps: lots}"}, nil, []string{"JOB:11:18: trainer.steps: the text \"lots\", allowed is a whole number from 1 to 10000000 (steps)"}},
	"a number in quotes":  {edits{"trainer": `trainer: {steps: "20"}`}, nil, []string{"JOB:11:18: trainer.steps: the text \"20\", allowed is a whole number", "write 20"}},
	"a k":                 {edits{"rollout": "rollout: {max_tokens: 2k}"}, nil, []string{"JOB:9:23: rollout.max_tokens: the text \"2k\", allowed is a whole number", "write 2000"}},
	"a duration":          {edits{"rollout": "rollout: {turn_timeout: 2m30s}"}, nil, []string{"JOB:9:25: rollout.turn_timeout: the text \"2m30s\", allowed is a number", "write the seconds alone: 150"}},
	"too small":           {edits{"rollout": "rollout: {groups: 0}"}, nil, []string{"JOB:9:19: rollout.groups: 0 is out of range, allowed is a whole number from 1"}},
	"too large":           {edits{"trainer": "trainer: {learning_rate: 2}"}, nil, []string{"JOB:11:26: trainer.learning_rate: 2 is out of range, allowed is a number above 0 up to 1"}},
	"not true or false":   {edits{"more": "deterministic: sure"}, nil, []string{"JOB:12:16: deterministic: the text \"sure\", allowed is true or false"}},
	"a wrong choice":      {edits{"trainer": "trainer: {schedule: linaer}"}, nil, []string{"JOB:11:21: trainer.schedule: \"linaer\" is not allowed; allowed: constant, linear, cosine; nearest: linear"}},
	"a wrong device":      {edits{"device": "device: gpu"}, nil, []string{"JOB:3:9: device: \"gpu\" is not allowed; allowed: auto, cpu, cuda"}},
	"a block as a word":   {edits{"trainer": "trainer: fast"}, nil, []string{"JOB:11:10: trainer: the text \"fast\", allowed is a mapping with the keys steps, learning_rate"}},
	"no room for a reply": {edits{"rollout": "rollout: {max_new_tokens: 64, max_tokens: 64}"}, nil, []string{"JOB:9:27: rollout.max_new_tokens: 64 tokens do not fit into rollout.max_tokens (64)"}},

	// what other programs call it
	"num_generations":             {edits{"rollout": "rollout: {num_generations: 4}"}, nil, []string{"JOB:9:11: ", "here it is rollout.group_size"}},
	"n":                           {edits{"rollout": "rollout: {n: 4}"}, nil, []string{"JOB:9:11: ", "here it is rollout.group_size"}},
	"lr":                          {edits{"trainer": "trainer: {lr: 1e-5}"}, nil, []string{"JOB:11:11: ", "here it is trainer.learning_rate"}},
	"learning_rate at the top":    {edits{"more": "learning_rate: 1e-5"}, nil, []string{"JOB:12:1: ", "it stands at trainer.learning_rate"}},
	"beta":                        {edits{"algorithm": "algorithm: {beta: 0.1}"}, nil, []string{"JOB:10:13: ", "here it is algorithm.kl.coefficient"}},
	"kl_coef":                     {edits{"algorithm": "algorithm: {kl_coef: 0.1}"}, nil, []string{"JOB:10:13: ", "here it is algorithm.kl.coefficient"}},
	"clip_eps":                    {edits{"algorithm": "algorithm: {clip_eps: 0.2}"}, nil, []string{"JOB:10:13: ", "here it is algorithm.clip_low and algorithm.clip_high"}},
	"epsilon":                     {edits{"algorithm": "algorithm: {epsilon: 0.2}"}, nil, []string{"JOB:10:13: ", "here it is algorithm.clip_low and algorithm.clip_high"}},
	"max_completion_length":       {edits{"rollout": "rollout: {max_completion_length: 64}"}, nil, []string{"JOB:9:11: ", "here it is rollout.max_new_tokens"}},
	"per_device_train_batch_size": {edits{"trainer": "trainer: {per_device_train_batch_size: 8}"}, nil, []string{"JOB:11:11: ", "rollout.groups x rollout.group_size"}},
	"gradient_accumulation_steps": {edits{"trainer": "trainer: {gradient_accumulation_steps: 8}"}, nil, []string{"JOB:11:11: ", "trainer.micro_batch_tokens"}},
	"num_train_epochs":            {edits{"trainer": "trainer: {num_train_epochs: 8}"}, nil, []string{"JOB:11:11: ", "here it is trainer.steps"}},
	"actor_rollout_ref":           {edits{"more": "actor_rollout_ref: {}"}, nil, []string{"JOB:12:1: ", "model, engine, rollout, algorithm and trainer"}},

	// models, runs and machines
	"no such model":            {edits{"model": "model: {path: nowhere}"}, nil, []string{"JOB:4:15: model.path: nowhere does not exist; name a folder, a .gguf file or a hub id"}},
	"a model not pulled":       {edits{"model": "model: {path: nobody/nothing}"}, nil, []string{"JOB:4:15: model.path: ", "run `agentfly model pull nobody/nothing`"}},
	"no model":                 {edits{"model": "model: {}"}, nil, []string{"JOB:4:8: model: exactly one of path and scratch is needed"}},
	"a folder without a model": {edits{"model": "model: {path: empty}", "empty/readme": "x"}, nil, []string{"JOB:4:15: model.path: "}},
	"no such template":         {edits{"model": "model: {path: MODEL, chat_template: no.jinja}"}, nil, []string{"model.chat_template: the file DIR/no.jinja cannot be read: no such file or directory"}},
	"a broken template":        {edits{"model": "model: {path: MODEL, chat_template: t.jinja}", "t.jinja": "{% for %}"}, nil, []string{"model.chat_template: "}},
	"no such adapter":          {edits{"model": "model: {path: MODEL, lora: {path: adapter}}"}, nil, []string{"model.lora.path: DIR/adapter holds no adapter (adapter_config.json); name the folder of a PEFT adapter"}},
	"a wrong target":           {edits{"model": "model: {path: MODEL, lora: {rank: 4, targets: [q]}}"}, nil, []string{"model.lora.targets.0: there is no \"q\"; allowed: q_proj"}},
	"no such teacher":          {edits{"more": "distill: {teacher: {path: nowhere}}", "algorithm": ""}, nil, []string{"JOB:11:27: distill.teacher.path: nowhere does not exist"}},
	"no such run":              {edits{"more": "sft: {}", "rewards": "", "algorithm": "", "data": "data: {run: nowhere}"}, nil, []string{"JOB:7:13: data.run: there is no run in DIR/nowhere (no store.db); train that one first"}},
	"a small cache":            {edits{"engine": "engine: {cache_tokens: 64}", "rollout": "rollout: {groups: 2, max_new_tokens: 2, max_tokens: 200}"}, nil, []string{"JOB:5:24: engine.cache_tokens: 64 tokens do not hold one trajectory, which may have"}},
	"more than the context":    {edits{"rollout": "rollout: {groups: 2, max_new_tokens: 2, max_tokens: 4000}"}, nil, []string{"JOB:9:53: rollout.max_tokens: 4000 tokens are more than the model's context"}},
	"an unknown engine":        {edits{"engine": "engine: {kind: vlm}"}, nil, []string{"JOB:5:16: engine.kind: ", "vllm"}},
	"vllm without servers":     {edits{"engine": "engine: {kind: vllm}"}, nil, []string{"JOB:5:9: engine: kind vllm needs exactly one of urls and serve"}},
	"no such vllm":             {edits{"engine": "engine: {kind: vllm, serve: {command: no-vllm}}"}, nil, []string{"JOB:5:39: engine.serve.command: the program \"no-vllm\" is not on PATH; install vLLM"}},
	"text for training":        {edits{"engine": "engine: {kind: openai, urls: [http://127.0.0.1:1/v1], served_model: m}"}, nil, []string{"JOB:5:16: engine.kind: openai: such an endpoint returns text", "use local or vllm"}},
	"top_p in training":        {edits{"rollout": "rollout: {top_p: 0.9, max_new_tokens: 2, max_tokens: 64}"}, nil, []string{"JOB:9:18: rollout.top_p: 0.9: training needs the logprobs of the whole distribution", "leave it out"}},

	"an adapter too large":     {edits{"model": "model: {path: MODEL, lora: {rank: 4096}}"}, nil, []string{"JOB:4:", ": model.lora.rank: 4096 is more than the model's width; allowed: 1 to 64"}},
	"an adapter's weights":     {edits{"model": "model: {path: MODEL, lora: {path: ad}}", "ad/adapter_config.json": "{}"}, nil, []string{"model.lora.path: DIR/ad holds no adapter (adapter_model.safetensors)"}},
	"no address":               {edits{"engine": "engine: {kind: vllm, urls: [\"127.0.0.1:1\"]}"}, nil, []string{"JOB:5:28: engine.urls: \"127.0.0.1:1\" must begin with http:// or https://"}},
	"a server that is not up":  {edits{"engine": "engine: {kind: vllm, urls: [\"http://127.0.0.1:1\"]}"}, []string{"--run-code", "JOB"}, []string{"JOB:5:28: engine.urls: nobody answers at http://127.0.0.1:1 (", "start the server"}},
	"an agent that is missing": {edits{"agent": "agent: {kind: external, command: [no-such-agent]}"}, nil, []string{"JOB:6:35: agent.command.0: the program \"no-such-agent\" is not there", "name one on PATH"}},
	"an agent's file":          {edits{"agent": "agent: {kind: external, command: [sh, agent.py]}"}, nil, []string{"JOB:6:39: agent.command.1: the file agent.py is not there; agents run in the job file's folder (DIR)"}},
	"an agent's address":       {edits{"agent": "agent: {kind: external, command: [sh], listen: \"192.0.2.1:99\"}"}, nil, []string{"JOB:6:48: agent.listen: ", "write host:port"}},
	"a file as run folder":     {edits{"more": "output: DIR/job.yaml"}, nil, []string{"JOB:12:9: output: DIR/job.yaml is a file; give a folder"}},
	"a run below a file":       {edits{"more": "output: DIR/job.yaml/run"}, nil, []string{"JOB:12:9: output: DIR/job.yaml is a file; give a folder"}},
	"a run in nowhere":         {edits{"more": "output: /proc/none/run"}, nil, []string{"JOB:12:9: output: the folder /proc/none/run cannot be made: /proc may not be written to; give another folder"}},
	"a run among other files":  {edits{"more": "output: DIR"}, nil, []string{"JOB:12:9: output: DIR is no run folder (it has no store.db), and its job.yaml would be overwritten"}},

	// data
	"an unknown role":         {edits{"tasks.jsonl": `{"prompt": [{"role": "usr", "content": "1+1"}], "answer": "2"}`}, nil, []string{"DIR/tasks.jsonl:1: the column \"prompt\" has a message (0) of role \"usr\"; allowed: system, developer, user, assistant, tool (did you mean \"user\"?)"}},
	"data that is not UTF-8":  {edits{"tasks.jsonl": "{\"prompt\": \"1+1\", \"answer\": \"2\"}\n{\"prompt\": \"1+2\xff\", \"answer\": \"3\"}\n"}, nil, []string{"DIR/tasks.jsonl:2: the line is not UTF-8; save the file as UTF-8"}},
	"no such data":            {edits{"data": "data: {train: nowhere.jsonl}"}, nil, []string{"JOB:8:15: data.train: the file DIR/nowhere.jsonl cannot be read: no such file or directory"}},
	"data with a broken line": {edits{"tasks.jsonl": "{\"prompt\": \"1+1\", \"answer\": \"2\"}\nnot json\n{\"prompt\": 7}\n"}, nil, []string{"DIR/tasks.jsonl:2: the line is not one JSON object", "DIR/tasks.jsonl:3: the column \"prompt\" must be text or a list of messages"}},
	"another column":          {edits{"tasks.jsonl": `{"question": "1+1", "answer": "2"}`}, nil, []string{"DIR/tasks.jsonl:1: the column \"prompt\" is missing; the line has answer, question; name the right one with data: {columns: {prompt: question}}"}},
	"an unknown column key":   {edits{"data": "data: {train: tasks.jsonl, columns: {promt: question}}"}, nil, []string{"data.columns: there is no column \"promt\"; allowed: prompt, id, answer, messages; nearest: prompt"}},
	"an id twice":             {edits{"tasks.jsonl": "{\"id\": \"a\", \"prompt\": \"1+1\", \"answer\": \"2\"}\n{\"id\": \"a\", \"prompt\": \"1+2\", \"answer\": \"3\"}\n"}, nil, []string{"DIR/tasks.jsonl:2: the id \"a\" was given in line 1 already"}},
	"no task":                 {edits{"tasks.jsonl": "\n"}, nil, []string{"DIR/tasks.jsonl: the file holds no task"}},
	"held out is trained":     {edits{"held.jsonl": `{"prompt": "1+1", "answer": "2"}`}, nil, []string{"DIR/held.jsonl: task \"1\" has the same content as task \"1\" of DIR/tasks.jsonl; evaluation tasks must be held out"}},
	"no field to balance by":  {edits{"data": "data: {train: tasks.jsonl, balance: kind}"}, nil, []string{"kind"}},
	"no field to show by":     {edits{"more": "eval: {by: nosuch}", "held.jsonl": `{"prompt": "2+2", "answer": "4", "level": "easy"}` + "\n"}, nil, []string{"JOB:12:12: eval.by: no task of DIR/held.jsonl has a field \"nosuch\"; they have answer, level"}},
	"a field to show by":      {edits{"more": "eval: {by: lev}", "held.jsonl": `{"prompt": "2+2", "answer": "4", "level": "easy"}` + "\n"}, nil, []string{"JOB:12:12: eval.by: no task of DIR/held.jsonl has a field \"lev\" (did you mean \"level\"?); they have answer, level"}},
	"a prompt too long":       {edits{"tasks.jsonl": `{"prompt": "` + strings.Repeat("1+", 100) + `1", "answer": "101"}`}, nil, []string{"JOB:9:68: rollout.max_tokens: 1 of 1 prompts of data.train leave no room for a reply", "raise it, or shorten the prompts"}},
	"no data":                 {edits{"data": "data: {}"}, nil, []string{"JOB:8:7: data.train: the tasks to train on are missing; name a file"}},

	// agents and tools
	"an unknown tool":        {edits{"agent": "agent: {tools: [calculater]}"}, nil, []string{"JOB:6:17: agent.tools.0: there is no tool \"calculater\" (did you mean \"calculator\"?); the tools are "}},
	"a parameter too many":   {edits{"agent": "agent: {tools: [{name: calculator, precision: 3}]}"}, nil, []string{"JOB:6:47: agent.tools.0.precision: calculator: ", "unknown field \"precision\"", "leave it out"}},
	"a tool of two sources":  {edits{"agent": "agent: {tools: [{python: a.py, mcp: {command: [sh]}}]}"}, nil, []string{"JOB:6:32: agent.tools.0: python and mcp in one entry; make two of it"}},
	"no such Python file":    {edits{"agent": "agent: {tools: [{python: no.py}]}"}, nil, []string{"JOB:6:17: agent.tools.0: python: the file no.py cannot be read: no such file or directory"}},
	"no such server":         {edits{"agent": "agent: {tools: [{mcp: {command: [no-such-program]}}]}"}, nil, []string{"JOB:6:17: agent.tools.0: ", "the program \"no-such-program\" is not on PATH"}},
	"an unknown format":      {edits{"agent": "agent: {kind: tool_call, format: hermess}"}, nil, []string{"JOB:6:34: agent.format: there is no \"hermess\"; allowed with kind tool_call: ", "nearest: hermes"}},
	"no tool in the file":    {edits{"agent": "agent: {format: hermes, tools: [{python: t.py}]}", "t.py": "def f(n: int) -> str:\n    return ''\n"}, []string{"--run-code", "JOB"}, []string{"JOB:6:33: agent.tools.0: ", "@tool"}},
	"a file that is no code": {edits{"agent": "agent: {format: hermes, tools: [{python: t.py}]}", "t.py": "def f(:\n"}, []string{"--run-code", "JOB"}, []string{"JOB:6:33: agent.tools.0: ", "t.py"}},
	"no such examples":       {edits{"agent": "agent: {format: tags, tools: [calculator], examples: no.jsonl}"}, nil, []string{"agent.examples: ", "no such file or directory"}},

	// rewards
	"an unknown reward":       {edits{"rewards": "rewards: [final_anser]"}, nil, []string{"JOB:7:11: rewards.0: there is no reward \"final_anser\" (did you mean \"final_answer\"?); the rewards are "}},
	"a reward's parameter":    {edits{"rewards": "rewards: [{name: final_answer, requires_tool: true}]"}, nil, []string{"JOB:7:47: rewards.0.requires_tool: final_answer: ", "allowed: field, require_tool, tool, require_steps, steps; nearest: require_tool"}},
	"a reward's wrong type":   {edits{"rewards": "rewards: [{name: final_answer, require_tool: 3}]"}, nil, []string{"JOB:7:11: rewards.0: final_answer: the parameter require_tool must be of type bool, got a number"}},
	"a reward without a name": {edits{"rewards": "rewards: [{weight: 1}]"}, nil, []string{"JOB:7:11: rewards.0: the key name is missing; write a name, or {name: NAME, weight: 1, parameter: value}"}},
	"a reward twice":          {edits{"rewards": "rewards: [final_answer, final_answer]"}, nil, []string{"JOB:7:25: rewards.1: \"final_answer\" is given twice; give one of the two another name with as: NAME"}},
	"no rewards":              {edits{"rewards": ""}, nil, []string{"JOB:1:1: the job: the key \"rewards\" is missing"}},
	"a field of one task":     {edits{"tasks.jsonl": "{\"prompt\": \"1+1\", \"answer\": \"2\"}\n{\"prompt\": \"1+2\"}\n"}, nil, []string{"JOB:7:11: rewards.0: final_answer: task \"2\" has no field \"answer\"; add the column to the data or name another one (1 of 2 tasks of data.train"}},
	"a field of no task":      {edits{"rewards": "rewards: [{name: final_answer, field: solution}]"}, nil, []string{"JOB:7:11: rewards.0: final_answer: task \"1\" has no field \"solution\"", "(2 of 2 tasks of data.train"}},
	"an argument of no task":  {edits{"rewards": "rewards: [{python: r.py, name: w}]", "r.py": "from agentfly import reward\n\n@reward()\ndef w(final_response: str, solution: str) -> float:\n    return 0.0\n"}, []string{"--run-code", "JOB"}, []string{"JOB:7:11: rewards.0: w: the argument solution is no field of task \"1\"; known are "}},

	// algorithm
	"a group of one":          {edits{"rollout": "rollout: {groups: 2, group_size: 1, max_new_tokens: 2, max_tokens: 64}"}, nil, []string{"JOB:9:34: rollout.group_size: 1, but advantage grpo compares the trajectories of a group", "set 2 or more"}},
	"an unknown estimator":    {edits{"algorithm": "algorithm: {advantage: grppo}"}, nil, []string{"JOB:10:24: algorithm.advantage: ", `(did you mean "grpo"?)`}},
	"too many mini-batches":   {edits{"algorithm": "algorithm: {mini_batches: 9}"}, nil, []string{"JOB:10:27: algorithm.mini_batches: 9 are more than the 4 trajectories of a step", "lower it"}},
	"warm-up without an end":  {edits{"trainer": "trainer: {steps: 2, warmup_steps: 3}"}, nil, []string{"JOB:11:35: trainer.warmup_steps: 3 steps of warm-up are more than trainer.steps (2)"}},
	"staleness without async": {edits{"rollout": "rollout: {max_staleness: 1, max_new_tokens: 2, max_tokens: 64}"}, nil, []string{"JOB:9:26: rollout.max_staleness: 1, but mode sync", "use mode async, or leave it out"}},

	// command lines
	"--set without a value":   {nil, []string{"--set", "trainer.steps", "JOB"}, []string{"--set trainer.steps: write key.path=value, such as trainer.steps=10"}},
	"--set of an unknown key": {nil, []string{"--set", "trainer.stepz=3", "JOB"}, []string{"--set trainer.stepz=3: unknown key \"stepz\" in trainer; allowed: steps", "nearest: steps"}},
	"--set of a wrong value":  {nil, []string{"--set", "trainer.steps=many", "JOB"}, []string{"--set trainer.steps=many: trainer.steps: the text \"many\", allowed is a whole number"}},
	"no job file":             {nil, []string{""}, []string{"takes one argument, the job file; got 0"}},
	"a folder":                {nil, []string{"DIR"}, []string{"DIR: this is a folder; give the path of a job file"}},
	"a file that is missing":  {nil, []string{"DIR/jbo.yaml"}, []string{"DIR/jbo.yaml: the job file cannot be read: no such file or directory"}},
	"two jobs":                {nil, []string{"JOB", "JOB"}, []string{"takes one argument, the job file; got 2"}},
	"for nothing":             {nil, []string{"--for", "fun", "JOB"}, []string{"--for fun: allowed: train, rollout, eval"}},
}

// Every mistake is answered in one round with its place, what is allowed and what to do, without the names of packages, and never with
// status 0.
func TestMistakesAreAnswered(t *testing.T) {
	require.GreaterOrEqual(t, len(mistakes), 60)
	_, path := planted(t, nil)
	status, out, errs := command("", "job", "validate", path)
	require.Zero(t, status, "the job without a mistake: %s", errs)
	require.Contains(t, out, path+": ok\n")
	for name, m := range mistakes {
		t.Run(name, func(t *testing.T) {
			if slices.Contains(m.args, "--run-code") {
				needPython(t)
			}
			dir, path := planted(t, m.edits)
			fill := strings.NewReplacer("JOB", path, "DIR", dir).Replace
			args := []string{"job", "validate"}
			if m.args == nil {
				args = append(args, path)
			}
			for _, a := range m.args {
				if a != "" {
					args = append(args, fill(a))
				}
			}
			status, out, errs := command("", args...)
			require.Equal(t, 2, status, out)
			for _, want := range m.want {
				require.Contains(t, errs, fill(want))
			}
			require.NotRegexp(t, `(?m)(^agentfly: |: )(orchestrator|modelfile|policy|masks|cgo|session): `, errs, "names of packages")
			if !cgo.Available() || slices.Contains(m.args, "--run-code") || slices.Contains(m.args, "--for") || slices.Contains(saidByTheRun, name) {
				return
			}
			args = append([]string{"train"}, args[2:]...)
			ownOutput := strings.Contains(m.edits["more"], "output: ")
			if !ownOutput {
				args = append([]string{"train", "--output", filepath.Join(dir, "new")}, args[1:]...)
			}
			status, out, told := command("", args...)
			errs = strings.ReplaceAll(errs, "agentfly job validate takes", "agentfly train takes")
			require.Equal(t, 2, status, "%s%s\nvalidate says %s", out, told, errs)
			for _, line := range strings.Split(strings.TrimSpace(told), "\n") {
				if ownOutput { // it names --output
					break
				}
				require.Contains(t, errs, strings.TrimPrefix(line, "agentfly: "), "train says another thing than validate")
			}
			require.NoDirExists(t, filepath.Join(dir, "new"))
		})
	}
}

// A job that names two models is told so, and nothing that is wrong with either of them.
func TestTwoModelsAreOneMistake(t *testing.T) {
	_, path := planted(t, edits{"model": `model: {path: MODEL, scratch: {alphabet: ab, chat_template: "{{ 1 }}"}}`})
	status, _, errs := command("", "job", "validate", path)
	require.Equal(t, 2, status)
	require.Equal(t, "agentfly: "+path+":4:8: model: exactly one of path and scratch is needed\n", errs)
}

// saidByTheRun are the mistakes that a run says and goes on with: data and limits may fit most of what it samples.
var saidByTheRun = []string{"more than the context", "a small cache", "a field of one task", "a field of no task", "a prompt too long"}

// misuses are mistakes on the command lines of other commands than job validate, in a folder with a job (job.yaml), its run (run), the
// folder of a job that was never trained (first) and a Python file (t.py). Each answer says what is wrong and what to write.
var misuses = map[string]struct {
	args string
	want string
}{
	"a command below another":       {"vlaidate job.yaml", `there is no command "vlaidate" (there is "job validate"); see agentfly --help`},
	"a command misspelled":          {"trian job.yaml", `there is no command "trian" (did you mean "train"?); see agentfly --help`},
	"a subcommand misspelled":       {"job vlaidate job.yaml", `there is no command "job vlaidate" (did you mean "job validate"?); see agentfly job --help`},
	"a subcommand of others":        {"model list", `there is no command "model list" (there is "tools list", "rewards list"`},
	"tools lst":                     {"tools lst", `there is no command "tools lst" (did you mean "tools list"?)`},
	"inspect trajectry":             {"inspect trajectry", `there is no command "inspect trajectry" (did you mean "inspect trajectory"?)`},
	"a flag misspelled":             {"train job.yaml --ouput x", "there is no flag --ouput (did you mean --output?); see agentfly train --help"},
	"a flag without a value":        {"train job.yaml --output", "--output needs a value; see agentfly train --help"},
	"a flag's wrong type":           {"inspect trajectory --run run --limit x", `--limit "x": not a whole number; see agentfly inspect trajectory --help`},
	"train without a job":           {"train", "agentfly train takes one argument, the job file; got 0"},
	"train of a run":                {"train run", "run is a run folder; train takes a job file, and goes on with a run by: agentfly train DIR/job.yaml --set trainer.steps=1 --output run --resume"},
	"train into a job's folder":     {"train job.yaml --output first", "first is no run folder (it has no store.db), and its job.yaml would be overwritten; give another folder with --output"},
	"overwrite of a job's folder":   {"train job.yaml --output first --overwrite --yes", "its job.yaml would be overwritten; give another folder with --output"},
	"train into a file":             {"train job.yaml --output t.py", "t.py is a file; give a folder with --output"},
	"train into a run":              {"train job.yaml --output run", "run holds a run of 1 step already; continue it with --resume, give another folder with --output, or delete the run with --overwrite"},
	"resume of nothing":             {"train job.yaml --output none --resume", "none holds no run to resume; leave --resume out"},
	"resume and overwrite":          {"train job.yaml --output run --resume --overwrite", "--resume goes on with the run that --overwrite deletes; give one of the two"},
	"overwrite without an answer":   {"train job.yaml --output run --overwrite", "--overwrite deletes the run of 1 step in run; give --yes with it, or run it on a terminal, which asks"},
	"a seed below 0":                {"train job.yaml --output new --seed -1", `--seed "-1": not a whole number that is 0 or more`},
	"ranks below 0":                 {"train job.yaml --output new --ranks -2", "--ranks is -2; allowed: 1 or more"},
	"rollout of no step":            {"rollout job.yaml --steps 0", "--steps is 0; allowed: 1 or more"},
	"a log format":                  {"train job.yaml --output new --log-format xml", `--log-format is "xml"; allowed: text, json`},
	"eval without held-out tasks":   {"eval job.yaml --set data.eval=null", "data.eval is missing; name the held-out tasks"},
	"eval of no model":              {"eval job.yaml --model nowhere", "nowhere does not exist; name a folder, a .gguf file or a hub id (ORG/NAME)"},
	"eval of no checkpoint":         {"eval job.yaml --model run@9", "the run in run keeps no checkpoint 9; it keeps last, 1"},
	"a best that is not kept":       {"chat run@best", "the run in run keeps no checkpoint best; it keeps last, 1 (checkpoint.best of its job keeps the best)"},
	"try of a task beyond the data": {"try job.yaml --task 9", "--task is 9; the data has 2 tasks"},
	"try of nothing":                {"try nowhere.yaml", "nowhere.yaml: the job file cannot be read: no such file or directory; give the path of a job file"},
	"serve of nothing":              {"serve nowhere", "nowhere does not exist; name a folder, a .gguf file or a hub id (ORG/NAME)"},
	"serve on no port":              {"serve run --port 99999", "--port is 99999; allowed: 0 to 65535"},
	"serve to all without a key":    {"serve run --host 0.0.0.0", "--host 0.0.0.0 is reachable from elsewhere: give --api-key"},
	"serve in a wrong type":         {"serve run --dtype fp8", `--dtype is "fp8"; allowed: auto, float, float32, bfloat16`},
	"info of nothing":               {"model info nowhere", "nowhere does not exist; name a folder, a .gguf file or a hub id (ORG/NAME)"},
	"info without a model":          {"model info", "agentfly model info takes one argument, a folder, a .gguf or a hub id; got 0"},
	"import in a wrong type":        {"model import run out --dtype F8", `--dtype is "F8"; allowed: F32, F16, BF16`},
	"pull of no id":                 {"model pull smollm", `"smollm" is no hub id; write ORG/NAME or ORG/NAME@REVISION`},
	"runs in a file":                {"runs job.yaml", "job.yaml is no folder; name the one with the runs"},
	"runs nowhere":                  {"runs nowhere", "nowhere is no folder; name the one with the runs"},
	"status of a job's folder":      {"status first", `"first" is no run folder`},
	"a run misspelled":              {"status rnu", `"rnu" is no run folder (did you mean "run"?)`},
	"compare of one":                {"compare run", "agentfly compare takes two run folders or more; got 1"},
	"an unknown metric":             {"plot run --metric reward/maen", "reward/mean"},
	"an unknown format":             {"export run exel", `there is no format "exel"; allowed: `},
	"a trajectory of no run":        {"inspect trajectory", "agentfly inspect trajectory needs --run with a run folder"},
	"replay of nothing":             {"replay nowhere", "name a run folder"},
	"a tool misspelled":             {"tools call t.py tost '{}'", `there is no tool "tost" (did you mean "test"?); the tools are test`},
	"a tool's arguments":            {"tools call t.py test text", `the arguments "text" are not JSON; write an object such as {"name": "value"}`},
	"no Python file":                {"tools list nowhere.py", "the Python file nowhere.py cannot be read: no such file or directory; give its path"},
	"a job as a Python file":        {"tools list job.yaml", `"job.yaml" is no Python file; its name must end in .py`},
	"a reward misspelled":           {"rewards call t.py scroe '{}'", `the file has no reward "scroe" (did you mean "score"?); its rewards are score`},
	"a reward's arguments":          {"rewards call t.py score text", `the arguments "text" are not a JSON object; write an object such as {"name": "value"}`},
	"a prebuilt reward misspelled":  {"rewards call final_anser '{}'", `there is no reward "final_anser" (did you mean "final_answer"?)`},
	"init over a job":               {"init first", "nothing is written, because it is there already: first/job.yaml"},
	"init with no such model":       {"init second --model nowhere", "nowhere does not exist; name a folder, a .gguf file or a hub id (ORG/NAME)"},
	"init below a file":             {"init t.py/second --model run", "t.py is a file; name another folder"},
	"build of no program":           {"build first", "first holds no Go files; name the folder of your main package"},
	"a shell without completion":    {"completion tcsh", `there is no completion for "tcsh"; allowed: bash, zsh, fish`},
	"an unknown environment":        {"env play sokobn", `there is no environment "sokobn" (did you mean "sokoban"?); the environments are`},
	"an argument too many":          {"doctor now", `agentfly doctor takes no arguments; got "now"`},
	"resources of nothing":          {"resources nowhere", `"nowhere" is no run folder`},
}

// What is wrong on a command line is said in one line, with what to write instead, and ends with status 2.
func TestMisusesAreAnswered(t *testing.T) {
	needTorch(t)
	needPython(t)
	dir, path := planted(t, edits{"t.py": "from agentfly import reward, tool\n\n@tool()\ndef test(n: int) -> str:\n    return ''\n\n@reward()\ndef score(final_response: str) -> float:\n    return 0.0\n", "first/job.yaml": "of the user"})
	run := func(line string) (int, string, string) {
		return command("", strings.Fields(strings.ReplaceAll(line, "'", ""))...)
	}
	t.Chdir(dir)
	status, out, errs := run("train job.yaml --output run --set trainer.steps=1")
	require.Zero(t, status, "%s%s", out, errs)
	for name, m := range misuses {
		t.Run(name, func(t *testing.T) {
			status, out, errs := run(m.args)
			require.Equal(t, 2, status, "%s%s", out, errs)
			require.Contains(t, errs, strings.ReplaceAll(m.want, "DIR", dir))
			require.Equal(t, 1, strings.Count(errs, "\n"), errs)
			require.NotRegexp(t, `^agentfly: [a-z]+: `, errs, "the name of a package")
		})
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(path), "first", "job.yaml"))
	require.NoError(t, err)
	require.Equal(t, "of the user", string(text))
}

// Mistakes of different sections, in the settings and in what they name, are told together, in the order of the file.
func TestMistakesAreToldTogether(t *testing.T) {
	_, path := planted(t, edits{
		"name": "name: my run", "model": "model: {path: nowhere}", "agent": "agent: {tools: [calculater, {name: calculator, digits: 3}]}",
		"rewards": "rewards: [final_anser, {name: f1, golds: x}]", "data": "data: {train: no.jsonl, eval: none.jsonl}",
		"rollout": "rollout: {num_generations: 4, turn_timeout: 30s, group_size: 1}", "trainer": "trainer: {steps: lots, lr: 1}",
	})
	status, _, errs := command("", "job", "validate", path)
	require.Equal(t, 2, status)
	at := -1
	for _, want := range []string{
		":2:7: name", ":4:15: model.path", ":6:17: agent.tools.0", ":6:56: agent.tools.1.digits", ":7:11: rewards.0", ":7:42: rewards.1.golds", ":8:15: data.train",
		":8:31: data.eval", ":9:11: unknown key", ":9:45: rollout.turn_timeout", ":9:62: rollout.group_size", ":11:18: trainer.steps", ":11:24: unknown key",
	} {
		next := strings.Index(errs, path+want)
		require.Greater(t, next, at, "%s in\n%s", want, errs)
		at = next
	}
	require.Equal(t, 13, strings.Count(errs, "\n"), errs)
}

// A value that could not be read is told alone: what only follows from its default is not.
func TestMistakesDoNotBreedOthers(t *testing.T) {
	_, path := planted(t, edits{"rollout": "rollout: {max_tokens: 9k, max_new_tokens: 5000}"})
	status, _, errs := command("", "job", "validate", path)
	require.Equal(t, 2, status)
	require.Equal(t, "agentfly: "+path+":9:23: rollout.max_tokens: the text \"9k\", allowed is a whole number from 2 to 10000000 (tokens); write 9000\n", errs)
}

// A device that is not there is blamed on the setting that names it, by validate and by train.
func TestADeviceThatIsNotThere(t *testing.T) {
	needTorch(t)
	if cgo.CUDADevices() > 0 {
		t.Skip("there is a CUDA device")
	}
	dir, path := planted(t, edits{"device": "device: cuda"})
	for _, args := range [][]string{{"job", "validate", path}, {"train", "--output", filepath.Join(dir, "run"), path}} {
		status, _, errs := command("", args...)
		require.Equal(t, 2, status)
		require.Contains(t, errs, path+":3:9: device: cuda: libtorch sees no CUDA device here; use auto or cpu")
		require.NotContains(t, errs, "model.path")
	}
}

// What is found in the working folder alone is taken, and said; what lies beside the job file goes first.
func TestPathsOfAJobHaveOneBase(t *testing.T) {
	dir, path := planted(t, edits{"data": "data: {train: elsewhere/tasks.jsonl, eval: held.jsonl}"})
	working := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(working, "elsewhere"), 0o755))
	require.NoError(t, os.Rename(filepath.Join(dir, "tasks.jsonl"), filepath.Join(working, "elsewhere", "tasks.jsonl")))
	t.Chdir(working)
	status, out, errs := command("", "job", "validate", path)
	require.Zero(t, status, errs)
	require.Contains(t, out, "note: elsewhere/tasks.jsonl is taken from the working folder, because "+filepath.Join(dir, "elsewhere", "tasks.jsonl")+" is not there")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "elsewhere"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "elsewhere", "tasks.jsonl"), []byte("broken"), 0o600))
	status, _, errs = command("", "job", "validate", path)
	require.Equal(t, 2, status)
	require.Contains(t, errs, filepath.Join(dir, "elsewhere", "tasks.jsonl")+":1: ")
}

// Weights that do not fit config.json are found by their headers, before a model is made.
func TestWeightsThatDoNotFitAreFound(t *testing.T) {
	for name, change := range map[string]struct{ from, to, want string }{
		"width":  {`"hidden_size": 64`, `"hidden_size": 32`, "model.embed_tokens.weight has shape [22 64], expected [22 32]"},
		"layers": {`"num_hidden_layers": 2`, `"num_hidden_layers": 3`, "model.layers.2.input_layernorm.weight [64] is missing"},
		"fewer":  {`"num_hidden_layers": 2`, `"num_hidden_layers": 1`, "model.layers.1.input_layernorm.weight is unexpected"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, path := planted(t, edits{"model": "model: {path: model}"})
			model := filepath.Join(dir, "model")
			require.NoError(t, os.CopyFS(model, os.DirFS("examples/tiny/model")))
			config, err := os.ReadFile(filepath.Join(model, "config.json"))
			require.NoError(t, err)
			require.Contains(t, string(config), change.from)
			require.NoError(t, os.WriteFile(filepath.Join(model, "config.json"), []byte(strings.Replace(string(config), change.from, change.to, 1)), 0o600))
			status, _, errs := command("", "job", "validate", path)
			require.Equal(t, 2, status)
			require.Contains(t, errs, path+":4:15: model.path: the weights do not fit config.json: ")
			require.Contains(t, errs, change.want)
		})
	}
}
