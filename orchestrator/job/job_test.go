package job_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/tools"
)

const good = `version: 1
name: job
model: {path: some/model}
rewards: [final_answer, {name: right_call, weight: 0.2, strict: true}]
data: {train: train.jsonl}
`

func noEnv(string) (string, bool) { return "", false }

func parse(text string, o job.Options) (*job.Job, error) {
	if o.Env == nil {
		o.Env = noEnv
	}
	return job.Parse("/jobs/job.yaml", []byte(text), o)
}

func TestDefaultsAndValues(t *testing.T) {
	c, err := parse(good, job.Options{})
	require.NoError(t, err)
	require.Equal(t, "job", c.Name)
	require.Equal(t, "runs/job", c.Output)
	require.Equal(t, "/jobs/train.jsonl", c.Resolve(c.Data.Train[0].Path))
	require.Equal(t, "some/model", c.Model.Path)
	require.Equal(t, []job.Reward{
		{Name: "final_answer", Weight: 1},
		{Name: "right_call", Weight: 0.2, Params: map[string]any{"strict": true}},
	}, c.Rewards)
	require.Equal(t, 8, c.Rollout.Groups)
	require.Equal(t, 1e-8, c.Trainer.Eps)
	require.True(t, c.Agent.Instructions)
	require.Equal(t, uint64(1), c.Seed)
	require.Nil(t, c.Model.Scratch)
}

func TestEveryProblemAtOnce(t *testing.T) {
	_, err := parse(`version: 2
name: 7
modle: {}
model: {path: m, lora: {rank: -8}}
rewards: []
rollout:
  grups: 3
  temperature: hot
  top_p: 1.5
  groups: 0
device: gpu
environment: {name: chess}
algorithm: {los: x}
seed: 1
seed: 2
`, job.Options{})
	require.Equal(t, strings.Join([]string{
		`/jobs/job.yaml:1:10: version: 2 is out of range, allowed is 1`,
		`/jobs/job.yaml:2:7: name: 7, allowed is a text; write "7" in quotes`,
		`/jobs/job.yaml:3:1: unknown key "modle" in the job; allowed: version, name, seed, deterministic, device, model, engine, agent, sandbox, environment, rewards, data, rollout, algorithm, sft, distill, trainer, eval, checkpoint, report, control, output; nearest: model`,
		`/jobs/job.yaml:4:31: model.lora.rank: -8 is out of range, allowed is a whole number from 0 to 4096`,
		`/jobs/job.yaml:5:10: rewards: the list is empty; at least one entry is needed`,
		`/jobs/job.yaml:7:3: unknown key "grups" in rollout; allowed: groups, group_size, max_new_tokens, max_tokens, cut, temperature, top_p, top_k, min_p, mode, max_staleness, stale, oversample, max_refills, max_failed, timeout, turn_timeout, tool_timeout, tool_tokens, reward_timeout, gradings, max_failed_tool, max_raised, watchdog, tree; nearest: groups`,
		`/jobs/job.yaml:8:16: rollout.temperature: the text "hot", allowed is a number from 0 to 100`,
		`/jobs/job.yaml:9:10: rollout.top_p: 1.5 is out of range, allowed is a number above 0 up to 1`,
		`/jobs/job.yaml:10:11: rollout.groups: 0 is out of range, allowed is a whole number from 1 to 100000 (tasks)`,
		`/jobs/job.yaml:11:9: device: "gpu" is not allowed; allowed: auto, cpu, cuda; nearest: cpu`,
		`/jobs/job.yaml:12:14: environment: the key "kind" is missing: a kind of environment, see docs/environments.md: agentfly env list names them`,
		`/jobs/job.yaml:12:15: unknown key "name" in environment; allowed: kind, params, tasks, pool, reset_timeout, step_timeout, retries, credit, instructions`,
		`/jobs/job.yaml:13:13: unknown key "los" in algorithm; allowed: advantage, loss, clip_low, clip_high, dual_clip, aggregation, max_tokens, kl, entropy, value, correction, epochs, mini_batches, dynamic_sampling, overlong; nearest: loss`,
		`/jobs/job.yaml:15:1: key "seed" in the job is given twice; the first is in line 14`,
	}, "\n"), err.Error())
}

func TestProblemsBetweenValues(t *testing.T) {
	for name, c := range map[string]struct{ add, want string }{
		"no room for a prompt":         {"rollout: {max_new_tokens: 64, max_tokens: 64}", "/jobs/job.yaml:6:27: rollout.max_new_tokens: 64 tokens do not fit into rollout.max_tokens (64) together with a prompt"},
		"truncated sampling":           {"rollout: {top_k: 20}", "/jobs/job.yaml:6:18: rollout.top_k: 20: training needs the logprobs of the whole distribution that was sampled; this is for rollout and eval only, leave it out"},
		"greedy training":              {"rollout: {temperature: 0}", "/jobs/job.yaml:6:24: rollout.temperature: 0 samples the same trajectory each time; training needs more"},
		"unknown format":               {"agent: {format: tag}", `/jobs/job.yaml:6:17: agent.format: there is no "tag"; allowed with kind tool_call: hermes, llama3_json, mistral, qwen3_coder, tags; nearest: tags`},
		"a format of a kind":           {"agent: {format: react}", "/jobs/job.yaml:6:17: agent.format: react is a format of kind react, and the kind is tool_call; change one of the two"},
		"a kind's own format":          {"agent: {kind: react, format: hermes}", "/jobs/job.yaml:6:30: agent.format: hermes is a format of kind tool_call, and the kind is react; change one of the two"},
		"no format of a kind":          {"agent: {kind: code, format: x, tools: [calculator]}", "/jobs/job.yaml:6:29: agent.format: x, but kind code writes fenced; leave it out"},
		"unknown kind":                 {"agent: {kind: tool_cal}", `/jobs/job.yaml:6:15: agent.kind: "tool_cal" is not allowed; allowed: tool_call, action, code, custom, external, react, search_r1; nearest: tool_call`},
		"an actor in sft":              {"agent: {kind: action}\nsft: {}", "/jobs/job.yaml:6:8: agent: kind action calls a tool, and sft plays nothing; leave it out: the conversations hold what the agent says, those of agentfly env demonstrate too"},
		"code without a tool":          {"agent: {kind: code}", "/jobs/job.yaml:6:8: agent.tools: kind code calls exactly one tool, which takes one text; got 0"},
		"two tools for search":         {"agent: {kind: search_r1, tools: [calculator, summarize]}", `/jobs/job.yaml:6:33: agent.tools: kind search_r1 calls exactly one tool, which takes one text; got 2`},
		"python without custom":        {"agent: {python: a.py}", "/jobs/job.yaml:6:17: agent.python: kind tool_call has its own format; use kind custom, or leave it out"},
		"custom without either":        {"agent: {kind: custom}", "/jobs/job.yaml:6:8: agent: kind custom needs exactly one of python (a file) and format (a name that the program added)"},
		"custom with both":             {"agent: {kind: custom, python: a.py, format: x}", "/jobs/job.yaml:6:8: agent: kind custom needs exactly one of python (a file) and format (a name that the program added)"},
		"custom of ours":               {"agent: {kind: custom, format: hermes}", "/jobs/job.yaml:6:31: agent.format: hermes is a format of kind tool_call; set that kind, or name a format that the program added"},
		"tool twice":                   {"agent: {tools: [calculator, calculator]}", `/jobs/job.yaml:6:29: agent.tools.1: "calculator" is given twice`},
		"warm-up":                      {"trainer: {steps: 2, warmup_steps: 3}", "/jobs/job.yaml:6:35: trainer.warmup_steps: 3 steps of warm-up are more than trainer.steps (2)"},
		"layers without checkpointing": {"trainer: {checkpoint_layers: 3}", "/jobs/job.yaml:6:30: trainer.checkpoint_layers: 3 does nothing without trainer.checkpointing: true"},
		"nothing but warm-up":          {"trainer: {steps: 3, warmup_steps: 3, schedule: cosine}", "/jobs/job.yaml:6:35: trainer.warmup_steps: 3 steps of warm-up leave schedule cosine none of trainer.steps (3); lower it, or use constant"},
		"no learning rate":             {"trainer: {learning_rate: 0}", "/jobs/job.yaml:6:26: trainer.learning_rate: 0 is out of range, allowed is a number above 0 up to 1"},
		"stale in sync":                {"rollout: {max_staleness: 2}", "/jobs/job.yaml:6:26: rollout.max_staleness: 2, but mode sync without oversample trains on nothing stale; use mode async, or leave it out"},
		"drop in sync":                 {"rollout: {stale: drop}", "/jobs/job.yaml:6:18: rollout.stale: drop, but mode sync without oversample has nothing stale; use mode async, or leave it out"},
		"async without a bound":        {"rollout: {mode: async}", "/jobs/job.yaml:6:10: rollout.max_staleness: 0 lets nothing be sampled beside an update; set 1 or more, or use mode sync"},
		"async over-sampled":           {"rollout: {mode: async, max_staleness: 1, oversample: 2}", "/jobs/job.yaml:6:54: rollout.oversample: mode async samples max_staleness + 1 batches at once already; leave it out"},
		"oversample below 1":           {"rollout: {oversample: 0.5}", "/jobs/job.yaml:6:23: rollout.oversample: 0.5 is out of range, allowed is a number from 1 to 100"},
		"oversample alone":             {"rollout: {oversample: 1.5}", "/jobs/job.yaml:6:10: rollout.max_staleness: 0, but what oversample cuts goes on under the next policy version; set 1 or more"},
		"async bit for bit":            {"rollout: {mode: async, max_staleness: 1}\ndeterministic: true", "/jobs/job.yaml:7:16: deterministic: true, but the batches of mode async and of oversample depend on what ends first; agentfly replay repeats such a run where its engine computes on CPUs"},
		"async with sleep":             {"rollout: {mode: async, max_staleness: 1}\nengine: {kind: vllm, urls: [http://a], sleep: 1}", "/jobs/job.yaml:7:47: engine.sleep: 1: mode async samples while the trainer needs the memory; use mode sync, or give the servers a device of their own"},
		"async supervised":             {"rollout: {mode: async, max_staleness: 1}\nsft: {}", "/jobs/job.yaml:6:17: rollout.mode: sft samples nothing that could overlap; leave mode and oversample out"},
		"async distillation":           {"rollout: {mode: async, max_staleness: 1}\ndistill: {teacher: {path: m}}", "/jobs/job.yaml:6:17: rollout.mode: distill compares the teacher with the policy that samples, so nothing may be stale; leave mode and oversample out"},
		"evaluation of nothing":        {"eval: {every: 3}", "/jobs/job.yaml:6:15: eval.every: 3, but data.eval names no tasks"},
		"no tools off of nothing":      {"eval: {tool_off: true}", "/jobs/job.yaml:6:18: eval.tool_off: true, but data.eval names no tasks"},
		"samples of nothing":           {"eval: {samples: 4, temperature: 1}", "/jobs/job.yaml:6:17: eval.samples: 4, but data.eval names no tasks"},
		"pass@k of nothing":            {"eval: {k: [1]}", "/jobs/job.yaml:6:11: eval.k: pass@k, but data.eval names no tasks"},
	} {
		t.Run(name, func(t *testing.T) {
			j, err := parse(good+c.add, job.Options{})
			if err == nil {
				err = j.TrainingErrors()
			}
			require.EqualError(t, err, c.want)
		})
	}
}

func TestKindsHaveTheirFormat(t *testing.T) {
	for text, want := range map[string]string{
		"": "hermes", "agent: {kind: tool_call, format: mistral}": "mistral", "agent: {kind: react}": "react", "agent: {kind: action, tools: [a]}": "action",
		"agent: {kind: code, tools: [a]}": "fenced", "agent: {kind: search_r1, format: search_r1, tools: [{python: a.py}, b]}": "search_r1",
		"agent: {kind: custom, format: mine}": "mine", "agent: {kind: custom, python: a.py}": "",
	} {
		j, err := parse(good+text, job.Options{})
		require.NoError(t, err, text)
		require.Equal(t, want, j.Agent.Format, text)
		again, err := job.Parse("/jobs/job.yaml", j.Source(), job.Options{Env: noEnv})
		require.NoError(t, err, "%s", j.Source())
		require.Equal(t, j.Agent, again.Agent)
	}
}

// The copy of a job that a run writes is a job file that reads back as the same, as a new job too: that of every example, and of values which say what
// would hold without them.
func TestTheCopyOfAJobIsTheSameJob(t *testing.T) {
	texts := map[string]string{}
	for _, text := range []string{
		"algorithm: {}", "algorithm: {kl: {}}", "algorithm: {kl: {coefficient: 0}}", "algorithm: {kl: {coefficient: 0, estimator: k2}}", "algorithm: {kl: {coefficient: 0, in: reward}}",
		"algorithm: {correction: {}}", "algorithm: {correction: {kind: icepop, low: 0}}", "algorithm: {overlong: {buffer: 0, penalty: 0}}",
		"algorithm: {dual_clip: 0, clip_low: 0, clip_high: 0, entropy: 0, dynamic_sampling: false, max_tokens: 0}",
		"agent: {}", "agent: {tools: []}", "agent: {kind: external, command: [a], env: {}}", "control: {}", "checkpoint: {}", "eval: {}", "eval: {k: []}", "report: []", "seed: 0",
		"engine: {}", "engine: {params: {}}", "engine: {kind: vllm, serve: {}}", "engine: {kind: vllm, serve: {env: {}, args: []}}", "engine: {kind: vllm, urls: [http://h], sleep: 0}",
		`engine: {kind: mine, params: {a: {}, b: [], c: null, d: ""}}`, "environment: null", "distill: null", "distill: {teacher: {path: m}}", "sft: null", "sft: {}", "sft: {epochs: 0}",
		"rollout: {max_failed: 0, max_failed_tool: 0, max_refills: 0}", "rollout: {tree: null}", "rollout: {tree: {rule: entropy, top: 0}, group_size: 4}",
		"trainer: {schedule: constant, warmup_steps: 0}",
	} {
		texts[text] = good + text + "\n"
	}
	files, err := filepath.Glob("../../examples/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		texts[file] = string(data)
	}
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			j, err := parse(text, job.Options{})
			require.NoError(t, err)
			again, err := parse(string(j.Source()), job.Options{})
			require.NoError(t, err)
			require.Equal(t, string(j.Source()), string(again.Source()))
			for i, f := range reflect.VisibleFields(reflect.TypeFor[job.Job]()) {
				if f.IsExported() {
					require.Equal(t, reflect.ValueOf(j).Elem().Field(i).Interface(), reflect.ValueOf(again).Elem().Field(i).Interface(), f.Name)
				}
			}
		})
	}
}

// Kinds and formats of a program's own are checked like ours, and listed beside them.
func TestKindsOfAProgram(t *testing.T) {
	known := agents.NewRegistry()
	factory := func([]tools.Spec, agents.FormatOptions) (agents.Format, error) { return nil, nil }
	require.NoError(t, known.AddKind(agents.Kind{Name: "maze", Description: "walks", Format: agents.FormatSpec{Name: "steps", OneTool: true, New: factory}}))
	require.NoError(t, known.AddFormat(agents.FormatSpec{Name: "jumps", Kind: "maze", New: factory}))
	require.NoError(t, known.AddFormat(agents.FormatSpec{Name: "one", OneTool: true, New: factory}))
	o := job.Options{Agents: known}
	for text, want := range map[string]string{
		"agent: {kind: maze, tools: [a]}": "steps", "agent: {kind: maze, format: jumps}": "jumps", "agent: {kind: custom, format: one, tools: [a]}": "one",
	} {
		j, err := parse(good+text, o)
		require.NoError(t, err, text)
		require.Equal(t, want, j.Agent.Format, text)
		again, err := j.ParseAs("/jobs/job.yaml", j.Source())
		require.NoError(t, err)
		require.Equal(t, j.Agent, again.Agent)
	}
	for text, want := range map[string]string{
		"agent: {kind: maze}":                           "/jobs/job.yaml:6:8: agent.tools: kind maze calls exactly one tool, which takes one text; got 0",
		"agent: {kind: custom, format: one}":            "/jobs/job.yaml:6:8: agent.tools: format one calls exactly one tool, which takes one text; got 0",
		"agent: {kind: maze, format: jump, tools: [a]}": `/jobs/job.yaml:6:29: agent.format: there is no "jump"; allowed with kind maze: steps, jumps; nearest: jumps`,
		"agent: {kind: react, format: jumps}":           "/jobs/job.yaml:6:30: agent.format: jumps is a format of kind maze, and the kind is react; change one of the two",
		"agent: {kind: custom, format: jumps}":          "/jobs/job.yaml:6:31: agent.format: jumps is a format of kind maze; set that kind, or name a format that the program added",
		"agent: {kind: mase}":                           `/jobs/job.yaml:6:15: agent.kind: "mase" is not allowed; allowed: tool_call, action, code, custom, external, maze, react, search_r1; nearest: maze`,
	} {
		_, err := parse(good+text, o)
		require.EqualError(t, err, want)
	}
	_, err := parse(good+"agent: {kind: maze}", job.Options{})
	require.ErrorContains(t, err, `agent.kind: "maze" is not allowed`)

	data, err := json.Marshal(job.Schema(known))
	require.NoError(t, err)
	require.Contains(t, string(data), `"enum":["tool_call","action","code","custom","external","maze","react","search_r1"]`)
	require.Contains(t, string(data), "maze: walks")
	require.Contains(t, string(data), "maze: steps, jumps")
	require.Contains(t, string(data), "custom: one")
}

func TestNotAJob(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":     {"", "/jobs/job.yaml:1:1: the file is empty; a job begins with version: 1"},
		"comment":   {"# nothing\n", "/jobs/job.yaml:1:1: the file is empty; a job begins with version: 1"},
		"list":      {"- 1\n", "/jobs/job.yaml:1:1: the job: a list, allowed is a mapping with the keys version, name,"},
		"broken":    {"version: 1\n  name: [\n", "/jobs/job.yaml:2:9: the bracket [ that opens here is not closed (not YAML: "},
		"documents": {good + "---\nversion: 1\n", "/jobs/job.yaml:6:1: a second document begins here; a job file holds one"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(c.text, job.Options{})
			require.Error(t, err)
			require.True(t, strings.HasPrefix(err.Error(), c.want), "got %s", err)
			var p *job.Error
			require.True(t, errors.As(err, &p))
		})
	}
}

func TestSetGoesThroughTheSameChecks(t *testing.T) {
	c, err := parse(good, job.Options{Set: []string{"trainer.steps=3", "trainer.steps=5", "name=x", "rewards.1.weight=0.5", "algorithm.loss={name: sapo, tau_positive: 2}", "agent.tools=[a]"}})
	require.NoError(t, err)
	require.Equal(t, 5, c.Trainer.Steps)
	require.Equal(t, "x", c.Name)
	require.Equal(t, 0.5, c.Rewards[1].Weight)
	require.Equal(t, []job.Tool{{Name: "a"}}, c.Agent.Tools)
	require.Equal(t, "sapo", c.Algorithm.Loss.Name)
	require.Equal(t, map[string]any{"tau_positive": 2.0}, c.Algorithm.Loss.Keys)

	_, err = parse(good, job.Options{Set: []string{"trainer.stepps=3", "rollout.groups=0", "nonsense", "model.path.x=1"}})
	require.Equal(t, strings.Join([]string{
		`--set nonsense: write key.path=value, such as trainer.steps=10`,
		`--set model.path.x=1: model.path is the text "some/model", it has no "x"`,
		`--set trainer.stepps=3: unknown key "stepps" in trainer; allowed: steps, learning_rate, schedule, warmup_steps, weight_decay, beta1, beta2, eps, clip_grad, micro_batch_tokens, on_nonfinite, checkpointing, checkpoint_layers, shard, context_parallel, tensor_parallel, offload, rank_timeout; nearest: steps`,
		`--set rollout.groups=0: rollout.groups: 0 is out of range, allowed is a whole number from 1 to 100000 (tasks)`,
	}, "\n"), err.Error())
}

// A text of --set is the text that was given, also where YAML would take a part of it for a comment or an anchor, or join its lines.
func TestSetTakesTextsLetterByLetter(t *testing.T) {
	for given, want := range map[string]string{
		"You are #1": "You are #1", "#1": "#1", "one\n# two\n\n three": "one\n# two\n\n three", "&co is kind": "&co is kind", "a\n---\nb": "a\n---\nb", "say 'hi' #2": "say 'hi' #2",
		"'quoted' # and a comment": "quoted", `"a # b"`: "a # b", " blanks ": "blanks", "null": "", "": "", "a#b": "a#b", "${NAME} #1": "x #1",
	} {
		c, err := parse(good, job.Options{Set: []string{"agent.system=" + given}, Env: func(string) (string, bool) { return "x", true }})
		require.NoError(t, err, given)
		require.Equal(t, want, c.Agent.System, given)
	}
	_, err := parse(good, job.Options{Set: []string{"trainer.steps=5 # a few"}})
	require.ErrorContains(t, err, `trainer.steps: the text "5 # a few", allowed is a whole number`)
	for _, given := range []string{"'Hi' she said", `"Hi" she said`, "[a] b", "{a: 1} b", "'a'\n---\nb"} {
		_, err := parse(good, job.Options{Set: []string{"agent.system=" + given}})
		require.EqualError(t, err, "--set agent.system="+given+": the value is not YAML: text follows its end; put all of it into quotes", given)
	}
}

func TestEnvironmentAndSecrets(t *testing.T) {
	env := func(name string) (string, bool) {
		v, ok := map[string]string{"STEPS": "12", "WHERE": "/data", "KEY": "hunter2"}[name]
		return v, ok
	}
	text := `version: 1
name: env
model: {path: m}
rewards: [{name: judge, api_key: hunter3, url: "${KEY}"}]
data: {train: "${WHERE}/train.jsonl"}
trainer: {steps: "${STEPS}", learning_rate: "${NONE}"}
`
	_, err := parse(text, job.Options{Env: env})
	require.EqualError(t, err, `/jobs/job.yaml:6:45: trainer.learning_rate: the environment variable "NONE" is not set`)

	c, err := parse(strings.Replace(text, `, learning_rate: "${NONE}"`, "", 1), job.Options{Env: env})
	require.NoError(t, err)
	require.Equal(t, 12, c.Trainer.Steps)
	require.Equal(t, "/data/train.jsonl", c.Data.Train[0].Path)
	require.Equal(t, map[string]any{"api_key": "hunter3", "url": "hunter2"}, c.Rewards[0].Params)

	out := c.Source()
	require.NotContains(t, string(out), "hunter")
	require.NotContains(t, string(out), "/data")
	require.Contains(t, string(out), "api_key: (secret)")
	require.Contains(t, string(out), "url: ${KEY}")
	require.Contains(t, string(out), "steps: ${STEPS}")
}

// The gateway's key and passwords of addresses are in no copy of the job, which reads back, and whose own copy is the same.
func TestTheCopyHasNeitherTheGatewaysKeyNorPasswords(t *testing.T) {
	const data = "version: 1\nname: x\nmodel: {path: m}\ndata: {train: t.jsonl}\nrewards: [{name: json, key: shown}]\n"
	env := job.Options{Env: func(name string) (string, bool) { return "hunter3", name == "NAME" }}
	for text, want := range map[string]string{
		"agent: {kind: external, online: true, key: hunter2}\nrollout: {timeout: 9}":          "key: (secret)",
		`report: [{mlflow: "http://me:hunter2@host/x"}]`:                                      "mlflow: http://me:(secret)@host/x",
		`report: [csv, {otlp: "https://me:hun@ter2@host:4318"}]`:                              "otlp: https://me:(secret)@host:4318",
		`report: [{mlflow: "http://me:hunter2@${NAME}/x"}]`:                                   "mlflow: http://me:(secret)@${NAME}/x",
		`report: [{mlflow: "http://me:${NAME}@host"}]`:                                        "mlflow: http://me:${NAME}@host",
		`report: [{mlflow: "http://:hunter2@host"}]`:                                          "mlflow: http://:(secret)@host",
		`report: [{mlflow: "http://me@host:5000/a:b@c"}]`:                                     "mlflow: http://me@host:5000/a:b@c",
		`engine: {kind: vllm, urls: ["http://me:hunter2@host:8000"]}`:                         "- http://me:(secret)@host:8000",
		`agent: {tools: [{http: {url: "https://me:hunter2@host/", name: x}}]}`:                "url: https://me:(secret)@host/",
		`agent: {tools: [{mcp: {command: [s], env: {DB: "postgres://me:hunter2@host/db"}}}]}`: "DB: postgres://me:(secret)@host/db",
	} {
		j, err := parse(data+text+"\n", env)
		require.NoError(t, err, text)
		out := string(j.Source())
		require.NotContains(t, out, "hun", text)
		require.Contains(t, out, want)
		require.Contains(t, out, "key: shown", "the key of a reward is no secret")
		again, err := parse(out, env)
		require.NoError(t, err, out)
		require.Equal(t, out, string(again.Source()), "so that a run that goes on finds nothing changed")
	}
	j, err := parse(data+"report: [{mlflow: \"http://me:hunter2@host\"}]\n", env)
	require.NoError(t, err)
	require.Equal(t, "http://me:hunter2@host", j.Report[0].URL, "the run itself has it")
}

func TestEffectiveReadsBackAsTheSameJob(t *testing.T) {
	c, err := parse(good+"algorithm: {advantage: dr_grpo, clip_low: 0.1}\nagent: {system: 'yes', tools: ['1']}\n", job.Options{})
	require.NoError(t, err)
	out := c.Source()
	again, err := parse(string(out), job.Options{})
	require.NoError(t, err)
	a, err := json.Marshal(c)
	require.NoError(t, err)
	b, err := json.Marshal(again)
	require.NoError(t, err)
	require.JSONEq(t, string(a), string(b))
	require.Equal(t, "yes", again.Agent.System)
}

// A text of several lines reads back as it is, whatever white space it begins with, in a list too.
func TestTextsThatBeginWithWhiteSpaceReadBack(t *testing.T) {
	for _, text := range []string{"\na", "  a\nb", "\ta\nb", "\n    seed: 7\n", "\n\n# x", " \n", "a\n  b\n", "a\n", "\u00a0a\nb", "\u2028a\nb"} {
		t.Run(strconv.Quote(text), func(t *testing.T) {
			quoted, err := json.Marshal(text)
			require.NoError(t, err)
			c, err := parse(strings.Replace(good, "rewards: [", fmt.Sprintf("rewards: [{name: judge, prompt: %s}, ", quoted), 1)+fmt.Sprintf("agent: {system: %s}\n", quoted), job.Options{})
			require.NoError(t, err)
			again, err := parse(string(c.Source()), job.Options{})
			require.NoError(t, err, "%s", c.Source())
			require.Equal(t, text, again.Agent.System)
			require.Equal(t, text, again.Rewards[0].Params["prompt"])

			quoted, err = json.Marshal(text + "${NAME}")
			require.NoError(t, err)
			env := job.Options{Env: func(string) (string, bool) { return "x", true }}
			c, err = parse(strings.Replace(good, "rewards: [", fmt.Sprintf("rewards: [{name: judge, prompt: %s}, ", quoted), 1), env)
			require.NoError(t, err)
			again, err = parse(string(c.Source()), env)
			require.NoError(t, err, "%s", c.Source())
			require.Equal(t, text+"x", again.Rewards[0].Params["prompt"])
		})
	}
}

func TestAliasesAreFollowedAndBounded(t *testing.T) {
	c, err := parse("version: 1\nmodel: {path: m}\nname: a\nrewards: [&r final_answer]\nagent: {system: *r}\n", job.Options{})
	require.NoError(t, err)
	require.Equal(t, "final_answer", c.Agent.System)

	bomb := "version: 1\nname: a\nmodel: {path: m}\nrewards:\n- name: a\n  a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for i := range 8 {
		prev, next := string(rune('a'+i)), string(rune('b'+i))
		bomb += "  " + next + ": &" + next + " [" + strings.TrimSuffix(strings.Repeat("*"+prev+",", 10), ",") + "]\n"
	}
	_, err = parse(bomb, job.Options{})
	require.ErrorContains(t, err, "the file has more than 100000 values")
	_, err = parse(bomb, job.Options{Set: []string{"name=b"}})
	require.ErrorContains(t, err, "the file has more than 100000 values")
	_, err = parse("version: 1\nname: a\nmodel: {path: m}\nrewards: [{name: a, a: &a [*a]}]\n", job.Options{Set: []string{"name=b"}})
	require.ErrorContains(t, err, "the file has more than 100000 values")
}

// --set changes the key that it names and no other: neither those that refer to the same anchor, nor the one that has it.
func TestSetLeavesWhatSharesAnAnchor(t *testing.T) {
	text := good + "rollout: {group_size: &n 4}\ntrainer: {steps: *n}\n"
	for option, want := range map[string][2]int{"rollout.group_size=8": {8, 4}, "trainer.steps=8": {4, 8}} {
		c, err := parse(text, job.Options{Set: []string{option}})
		require.NoError(t, err)
		require.Equal(t, want, [2]int{c.Rollout.GroupSize, c.Trainer.Steps}, option)
	}
	c, err := parse(good+"engine: {kind: mine, params: {a: &p {k: 1}, b: *p, c: *p}}\n", job.Options{Set: []string{"engine.params.b.k=2", "engine.params.c=3"}})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"a": map[string]any{"k": int64(1)}, "b": map[string]any{"k": int64(2)}, "c": int64(3)}, c.Engine.Params)
	c, err = parse(good, job.Options{Set: []string{"engine={kind: mine, params: {a: &p {k: 1}, b: *p}}", "engine.params.b.k=2"}})
	require.NoError(t, err, "the anchor may stand in another option")
	require.Equal(t, map[string]any{"a": map[string]any{"k": int64(1)}, "b": map[string]any{"k": int64(2)}}, c.Engine.Params)
	_, err = parse(good, job.Options{Set: []string{"engine={kind: mine, params: {a: &a [*a]}}"}})
	require.ErrorContains(t, err, "the value has more than 100000 values")
}

func TestSchemaDescribesEveryKey(t *testing.T) {
	data, err := json.Marshal(job.Schema(nil))
	require.NoError(t, err)
	var s struct {
		Required   []string
		Properties map[string]struct {
			Description          string
			AdditionalProperties any
			Properties           map[string]struct {
				Description                string
				Type, Default, Minimum     any
				ExclusiveMinimum, MaxItems any
			}
		}
	}
	require.NoError(t, json.Unmarshal(data, &s))
	require.Equal(t, []string{"version", "name"}, s.Required) // rewards too, but in a job with sft or distill
	for key, p := range s.Properties {
		require.NotEmpty(t, p.Description, key)
		if key == "algorithm" { // package algorithms describes these
			continue
		}
		for sub, q := range p.Properties {
			require.NotEmpty(t, q.Description, key+"."+sub)
		}
	}
	require.Equal(t, 8.0, s.Properties["rollout"].Properties["groups"].Default)
	require.Equal(t, 0.0, s.Properties["rollout"].Properties["temperature"].Minimum)
}

func TestShippedJobs(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	worlds, err := filepath.Glob("../../examples/worlds/*.yaml") // which need packages, so that they are not run
	require.NoError(t, err)
	require.NotEmpty(t, worlds)
	files = append(files, worlds...)
	files = append(files, "../../examples/outside/calculator.yaml") // needs a service beside it
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			j, err := job.LoadWith(f, job.Options{Env: noEnv})
			require.NoError(t, err)
			require.NoError(t, j.TrainingErrors())
			named := []string{j.Model.ChatTemplate, j.Agent.Examples, j.Agent.Python}
			for _, s := range slices.Concat(j.Data.Train, j.Data.Eval) {
				named = append(named, s.Path)
			}
			for _, path := range named {
				if path != "" {
					require.FileExists(t, j.Resolve(path))
				}
			}
		})
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	_, err := job.Load(filepath.Join(t.TempDir(), "no.yaml"))
	require.ErrorContains(t, err, "the job file cannot be read: no such file or directory")
	_, err = job.Load(t.TempDir())
	require.ErrorContains(t, err, "this is a folder; give the path of a job file")
}

func FuzzParse(f *testing.F) {
	f.Add(good, "trainer.steps=3")
	f.Add("a: &a [*a]\nversion: *a", "a.0=1")
	f.Add("version: 1\nrewards: [{name: x, <<: {a: 1}}]\n? [a]\n: b\n", "rewards.0.name={}")
	f.Add("version: !!binary aa\nmodel: !x {path: ${A}}\n---\n", "=")
	f.Fuzz(func(t *testing.T, text, set string) {
		c, err := parse(text, job.Options{Set: []string{set}})
		if err != nil {
			var p *job.Error
			require.True(t, errors.As(err, &p))
			require.NotEmpty(t, p.Lines)
			return
		}
		out := c.Source()
		again, err := parse(string(out), job.Options{})
		require.NoError(t, err, "%s", out)
		a, err := json.Marshal(c)
		require.NoError(t, err)
		b, err := json.Marshal(again)
		require.NoError(t, err)
		require.JSONEq(t, string(a), string(b))
	})
}

func TestLoRA(t *testing.T) {
	model := func(text string) string {
		return strings.Replace(good, "model: {path: some/model}", "model: {path: m, lora: "+text+"}", 1)
	}
	require.NotEqual(t, good, model("{}"))
	for text, want := range map[string]string{
		"{alpha: 3}":                   "model.lora: alpha and targets need a rank",
		"{rank: 2, path: a}":           "model.lora.path: the adapter brings its rank, alpha and targets; leave those out",
		"{rank: 2, targets: [q_porj]}": `model.lora.targets.0: there is no "q_porj"; allowed: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj; nearest: q_proj`,
		"{rank: 2, alpha: -1}":         "model.lora.alpha: -1 is out of range",
	} {
		_, err := parse(model(text), job.Options{})
		require.ErrorContains(t, err, want, text)
	}
	c, err := parse(model("{rank: 4, alpha: 16, targets: [v_proj, q_proj]}")+"engine: {kind: vllm, urls: [http://a], weights: lora}\n", job.Options{})
	require.NoError(t, err)
	require.NoError(t, c.TrainingErrors())
	require.Equal(t, job.LoRA{Rank: 4, Alpha: 16, Targets: []string{"v_proj", "q_proj"}}, c.Model.LoRA)
	require.True(t, c.Model.LoRA.On())
	require.True(t, job.LoRA{Path: "a"}.On())
	require.False(t, job.LoRA{}.On())
}

// An engine that a program registers has parameters of its own, which the copy of the job gives again, without what came from the environment.
func TestParametersOfAnEngine(t *testing.T) {
	const block = "engine: {kind: mine, folder: /w, sleep: 1, tolerance: 0.5, params: {url: \"http://${HOST}/\", sizes: [1, 2.5], deep: {on: true}}}\n"
	j, err := parse(good+block, job.Options{Env: func(string) (string, bool) { return "h", true }})
	require.NoError(t, err)
	require.NoError(t, j.TrainingErrors())
	want := map[string]any{"url": "http://h/", "sizes": []any{int64(1), 2.5}, "deep": map[string]any{"on": true}}
	require.Equal(t, want, j.Engine.Params)
	require.Contains(t, string(j.Source()), "${HOST}")
	again, err := parse(string(j.Source()), job.Options{Env: func(string) (string, bool) { return "h", true }})
	require.NoError(t, err, "the copy of the job, which says every default")
	require.Equal(t, j.Engine, again.Engine)
	require.Equal(t, string(j.Source()), string(again.Source()))
}

// A key of the block engine that its kind does not read is refused, so that nobody relies on it. Its default is not, which a run's copy of the job writes,
// and in a copy, which may be of a program that took the key, it is left out.
func TestKeysOfEnginesThatAKindDoesNotReadAreRefused(t *testing.T) {
	kinds := map[string]string{
		"local": "kind: local", "vllm": "kind: vllm, urls: [http://a]", "openai": "kind: openai, urls: [http://a/v1], served_model: m", "mine": "kind: mine",
	}
	for key, c := range map[string]struct {
		value, unset string
		kinds        []string // that read it
	}{
		"cache_tokens":  {"64", "32768", []string{"local"}},
		"max_sequences": {"1", "128", []string{"local"}},
		"device":        {"cpu", "auto", []string{"local"}},
		"dtype":         {"bfloat16", "auto", []string{"local"}},
		"served_model":  {"m", `""`, []string{"openai", "vllm"}},
		"api_key":       {"k", `""`, []string{"openai", "vllm"}},
		"weights":       {"transfer", "auto", []string{"vllm"}},
		"tolerance":     {"0.5", "0", []string{"mine", "vllm"}},
		"folder":        {"/x", `""`, []string{"mine", "vllm"}},
		"sleep":         {"1", "0", []string{"mine", "vllm"}},
		"params":        {"{speed: 3}", "{}", []string{"mine"}},
	} {
		for kind, block := range kinds {
			if key == "served_model" && kind == "openai" {
				continue // it is needed
			}
			_, err := parse(good+"engine: {"+block+", "+key+": "+c.unset+"}\n", job.Options{})
			require.NoError(t, err, "%s: its default", key)
			_, err = parse(good+"engine: {"+block+", "+key+": "+c.value+"}\n", job.Options{})
			if slices.Contains(c.kinds, kind) {
				require.NoError(t, err, "%s of %s", key, kind)
			} else {
				require.ErrorContains(t, err, "engine."+key+": ", "%s of %s", key, kind)
				without, err := parse(good+"engine: {"+block+"}\n", job.Options{})
				require.NoError(t, err)
				copied, err := parse(good+"engine: {"+block+", "+key+": "+c.value+"}\n", job.Options{Copied: true})
				require.NoError(t, err, "%s of %s in a copy", key, kind)
				require.Equal(t, string(without.Source()), string(copied.Source()), "%s of %s in a copy", key, kind)
			}
		}
	}
	_, err := parse(good+"engine: {kind: vllm, urls: [http://a], dtype: bfloat16}\n", job.Options{})
	require.ErrorContains(t, err, "engine.dtype: only the kind local takes it; leave it out (a vLLM server that the job starts has engine.serve.dtype)")
	_, err = parse(good+"engine: {kind: openai, urls: [http://a/v1], served_model: m, folder: x}\n", job.Options{})
	require.ErrorContains(t, err, "engine.folder: only the kind vllm takes it, and kinds that the program registers; leave it out")
}

// Keys that nothing would read are refused where they say something, at their defaults they are not. A run's copy of its job may have them: older programs
// took them.
func TestKeysThatNothingReads(t *testing.T) {
	external := strings.Replace(good, "rewards: ", "agent: {kind: external, command: [a]}\nrewards: ", 1)
	sft := good + "sft: {}\n"
	for key, c := range map[string]struct{ text, value, unset, want string }{
		"eval.temperature":        {sft, "0.5", "0", "0.5: sft evaluates the loss of held-out conversations; leave it out"},
		"eval.by":                 {sft, "kind", "source", "kind: sft evaluates the loss of held-out conversations; leave it out"},
		"data.success":            {sft, "0.5", "null", "0.5: sft learns what the conversations say, and samples nothing that could succeed; leave it out"},
		"rollout.top_p":           {sft, "0.5", "1", "0.5: sft samples nothing; leave it out"},
		"rollout.top_k":           {sft, "3", "0", "3: sft samples nothing; leave it out"},
		"rollout.min_p":           {sft, "0.1", "0", "0.1: sft samples nothing; leave it out"},
		"rollout.tool_timeout":    {external, "9", "30", "9: an agent of kind external calls its tools itself; leave it out"},
		"rollout.tool_tokens":     {external, "99", "1000", "99: an agent of kind external calls its tools itself; leave it out"},
		"rollout.max_failed_tool": {external, "0.5", "1", "0.5: an agent of kind external calls its tools itself; leave it out"},
		"rollout.max_raised":      {external, "2", "32", "2: an agent of kind external calls its tools itself; leave it out"},
		"algorithm.kl":            {good, "{estimator: k2, in: reward}", "{}", "without a coefficient there is no penalty; set kl.coefficient, or leave kl out"},
	} {
		t.Run(key, func(t *testing.T) {
			trains := func(text, value string, copied bool) error {
				j, err := parse(text, job.Options{Set: []string{key + "=" + value}, Copied: copied})
				if err != nil {
					return err
				}
				return j.TrainingErrors()
			}
			require.NoError(t, trains(c.text, c.unset, false), "its default")
			require.EqualError(t, trains(c.text, c.value, false), "--set "+key+"="+c.value+": "+key+": "+c.want)
			if c.text == sft {
				return // copies are looked at, and not trained
			}
			require.NoError(t, trains(c.text, c.value, true), "in a copy")
		})
	}
	_, err := parse(good+"algorithm: {kl: {coefficient: 0.1, estimator: k2}}\n", job.Options{Set: []string{"algorithm.kl.coefficient=0"}})
	require.NoError(t, err, "the coefficient switches the penalty off")
}

// Where --set names the kind, what the file says for another kind is left out, with a note. What --set says itself is refused.
func TestSetChoosesAnotherKindOfEngine(t *testing.T) {
	const local = "engine: {cache_tokens: 65536, max_sequences: 256, dtype: bfloat16}\n"
	const servers = "engine: {kind: vllm, serve: {}, api_key: hunter2, weights: transfer, tolerance: 0.5, sleep: 1}\n"
	for name, c := range map[string]struct {
		file string
		set  []string
		same string // block engine of a job file that says the same
		left []string
	}{
		"local to vllm":   {local, []string{"engine.kind=vllm", "engine.urls=[http://a]"}, "{kind: vllm, urls: [http://a]}", []string{"cache_tokens", "max_sequences", "dtype"}},
		"local to openai": {local, []string{"engine.served_model=m", "engine.urls=[http://a/v1]", "engine.kind=openai"}, "{kind: openai, served_model: m, urls: [http://a/v1]}", []string{"cache_tokens", "max_sequences", "dtype"}},
		"vllm to local":   {servers, []string{"engine.kind=local"}, "{kind: local}", []string{"api_key", "weights", "tolerance", "sleep", "serve"}},
		"vllm to mine":    {servers, []string{"engine.kind=mine"}, "{kind: mine, tolerance: 0.5, sleep: 1}", []string{"api_key", "weights", "serve"}},
		"mine to local":   {"engine: {kind: mine, params: {speed: 3}}\n", []string{"engine.kind=local"}, "{kind: local}", []string{"params"}},
		"the block":       {local, []string{"engine={kind: vllm, urls: [http://a]}"}, "{kind: vllm, urls: [http://a]}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			j, err := parse(good+c.file, job.Options{Set: c.set})
			require.NoError(t, err)
			same, err := parse(good+"engine: "+c.same+"\n", job.Options{})
			require.NoError(t, err)
			require.Equal(t, string(same.Source()), string(j.Source()))
			require.Len(t, j.LeftOut(), len(c.left))
			for _, key := range c.left {
				require.Contains(t, strings.Join(j.LeftOut(), "\n"), "engine."+key+" of the job file is left out because of --set engine.kind=")
			}
		})
	}
	j, err := parse(good+"engine: {kind: mine, cache_tokens: 65536, params: {speed: 3}}\n", job.Options{Set: []string{"engine.kind=vllm", "engine.urls=[http://a]"}})
	require.NoError(t, err)
	require.Equal(t, []string{
		"engine.params of the job file is left out because of --set engine.kind=vllm: only kinds that the program registers take it",
		"engine.cache_tokens of the job file is left out because of --set engine.kind=vllm: only the kind local takes it",
	}, j.LeftOut())
	for set, want := range map[string]string{
		"engine.dtype=bfloat16":      "--set engine.dtype=bfloat16: engine.dtype: only the kind local takes it; leave it out",
		"engine.weights=disk":        "", // vllm reads it
		"engine={dtype: bfloat16}":   "", // of kind local again
		"engine.params={speed: 3}":   "--set engine.params={speed: 3}: engine.params: they are for a kind of engine that the program registers; vllm has keys of its own",
		"engine.params.speed.most=3": "--set engine.params.speed.most=3: engine.params: they are for a kind of engine that the program registers",
	} {
		_, err := parse(good+local, job.Options{Set: []string{"engine.kind=vllm", "engine.urls=[http://a]", set}})
		if want == "" {
			require.NoError(t, err, set)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
	_, err = parse(good+servers, job.Options{Set: []string{"engine.kind=local", "engine.serve.dtype=float16"}})
	require.ErrorContains(t, err, "engine.kind: local takes neither urls nor serve; did you mean vllm?")
	_, err = parse(good+"engine: {weights: disk}\n", job.Options{Set: []string{"engine.max_sequences=4"}})
	require.ErrorContains(t, err, "/jobs/job.yaml:6:19: engine.weights: only the kind vllm takes it; leave it out")
}

func TestEngines(t *testing.T) {
	for text, want := range map[string]string{
		"{kind: vllm}": "engine: kind vllm needs exactly one of urls and serve",
		"{kind: vllm, urls: [http://a], serve: {}}":                                 "engine: kind vllm needs exactly one of urls and serve",
		"{kind: openai, urls: [http://a]}":                                          "engine: kind openai needs one url and served_model, and no serve",
		"{urls: [http://a]}":                                                        "engine.kind: local takes neither urls nor serve; did you mean vllm?",
		"{sleep: 1}":                                                                "engine.sleep: only the kind vllm takes it, and kinds that the program registers; leave it out",
		"{kind: mine, cache_tokens: 64}":                                            `engine.cache_tokens: only the kind local takes it; an engine of kind "mine" takes params: {…}; leave it out`,
		"{kind: vlm, urls: [http://a]}":                                             `engine.urls: only the kinds openai, vllm take it; an engine of kind "vlm" takes params: {…}; leave it out; nearest: vllm`,
		"{kind: local, params: {speed: 3}}":                                         "engine.params: they are for a kind of engine that the program registers; local has keys of its own",
		"{kind: mine, params: [3]}":                                                 "engine.params: a list, allowed is a mapping of parameters",
		"{kind: mine, parms: {}}":                                                   `unknown key "parms" in engine`,
		"{kind: vllm, urls: [http://a], sleep: 3}":                                  "engine.sleep: 3 is out of range",
		"{kind: vllm, urls: [http://a], sleep: 2, weights: lora}":                   "engine.sleep: 2 drops the weights that an adapter comes on top of; use 1",
		"{kind: vllm, serve: {restarts: -1}}":                                       "engine.serve.restarts: -1 is out of range",
		"{kind: vllm, urls: [http://a], tolerance: -1}":                             "engine.tolerance: -1 is out of range",
		"{kind: vllm, serve: {device: tpu}}":                                        `engine.serve.device: "tpu" is no device; allowed are auto, cpu, cuda, and numbers of CUDA devices such as cuda:1 or cuda:0,1`,
		`{kind: vllm, serve: {device: "cuda:1,1"}}`:                                 `engine.serve.device: "cuda:1,1" is no device`,
		"{kind: vllm, serve: {env: {VLLM_API_KEY: a}}}":                             "engine.serve.env.VLLM_API_KEY: the key is engine.api_key",
		`{kind: vllm, serve: {device: "cuda:1", env: {CUDA_VISIBLE_DEVICES: "0"}}}`: "engine.serve.env.CUDA_VISIBLE_DEVICES: engine.serve.device chooses the devices",
		`{kind: vllm, serve: {env: {"A=B": a}}}`:                                    `engine.serve.env: "A=B" is no name of a variable`,
		"{kind: vllm, urls: [http://a], weights: pigeon}":                           `engine.weights: "pigeon" is not allowed; allowed: auto, disk, lora, transfer, ipc, gloo, nccl`,
		"{kind: vllm, urls: [http://a], weights: lora}":                             "engine.weights: lora: the job trains no adapter; set model.lora.rank",
		"{kind: openai, urls: [http://a/v1], served_model: m}":                      "engine.kind: openai: such an endpoint returns text, and training needs the token ids",
	} {
		c, err := parse(good+"engine: "+text+"\n", job.Options{})
		if err == nil {
			err = c.TrainingErrors()
		}
		require.ErrorContains(t, err, want, text)
	}
	c, err := parse(good+"engine: {kind: vllm, serve: {args: [--max-num-seqs, \"8\"]}, api_key: \"${KEY}\"}\n", job.Options{Env: func(string) (string, bool) { return "sesame", true }})
	require.NoError(t, err)
	require.NoError(t, c.TrainingErrors())
	require.Equal(t, &job.Serve{Command: "vllm", Args: []string{"--max-num-seqs", "8"}, Device: "auto", DType: "auto", Timeout: 600, Restarts: 3}, c.Engine.Serve)
	require.Equal(t, "sesame", c.Engine.APIKey)
	require.NotContains(t, string(c.Source()), "sesame")
	require.Zero(t, c.Engine.Tolerance, "it follows the types")
}

// The run folder and what a job reads mean the same by ~: the home folder. A folder of that name is ./~.
func TestTheHomeFolderInPaths(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	for given, want := range map[string]string{"~/x": filepath.Join(home, "x"), "~": home, "./~/x": "./~/x", "~x": "~x", "runs/~": "runs/~"} {
		j, err := parse(good, job.Options{Set: []string{"output='" + given + "'", "model.path='" + given + "'"}})
		require.NoError(t, err)
		require.Equal(t, want, j.Output, given)
		require.Contains(t, string(j.Source()), "output: "+want, "the copy in the run folder")
		if filepath.IsAbs(want) {
			require.Equal(t, want, j.Resolve(given))
		} else {
			require.Equal(t, filepath.Join("/jobs", given), j.Resolve(given))
		}
	}
	j, err := parse(good, job.Options{})
	require.NoError(t, err)
	require.Equal(t, filepath.Join(home, "x@best"), j.ModelPath("~/x@best"), "a checkpoint of a run, which is no file")
}

// Every seed that the flag takes is one of a job.
func TestEverySeedIsTaken(t *testing.T) {
	j, err := parse(good, job.Options{Set: []string{"seed=18446744073709551615"}})
	require.NoError(t, err)
	require.Equal(t, uint64(math.MaxUint64), j.Seed)
	require.Contains(t, string(j.Source()), "seed: 18446744073709551615\n")
	for _, given := range []string{"18446744073709551616", "-1"} {
		_, err = parse(good, job.Options{Set: []string{"seed=" + given}})
		require.EqualError(t, err, "--set seed="+given+": seed: "+given+", allowed is a whole number from 0 to 18446744073709551615")
	}
}

// What is no YAML is told at its own line, with what to write where the line shows it: the parser tells the line where the block begins, and its own words.
func TestWhatIsNotYAMLIsToldWithARemedy(t *testing.T) {
	const colon, blank, block = "a text with a colon and a blank in it needs quotes", "a blank is missing behind the colon; write key: value", "; what belongs to one block begins in one column"
	columns := func(own, before int) string {
		return fmt.Sprintf("this line begins in column %d and the one before it in column %d%s", own, before, block)
	}
	for text, want := range map[string]string{
		"version: 1\nname: my first: run\nseed: 1\n":                          "2:15: " + colon,
		"version: 1\nagent:\n  system: You are: nice\n  tools: [a]\n":         "3:18: " + colon,
		"version: 1\nagent: {system: é a: b}\n":                               "2:20: " + colon,
		"version: 1\nagent:\n  tools: [a]\n   format: hermes\nseed: 1\n":      "4:4: " + columns(4, 3),
		"version: 1\nagent:\n  tools: [a]\n\n format: hermes\nseed: 1\n":      "5:2: " + columns(2, 3),
		"version: 1\nagent:\n  tools: [a]\n# x\n format: hermes\n":            "5:2: " + columns(2, 3),
		"version: 1\n name: x\n":                                              "2:2: " + columns(2, 1),
		"version: 1\nrewards:\n  - name: a\n   weight: 2\n":                   "4:4: " + columns(4, 3),
		"version: 1\nname: \"x\nseed: 1\n":                                    "2:7: the quote that opens here is not closed",
		"version: 1\nagent: {tools: [a], system: 'x}\nseed: 1\n":              "2:29: the quote that opens here is not closed",
		"version: 1\nmodel: {path: a\ndata: {train: x}\n":                     "2:8: the bracket { that opens here is not closed",
		"version: 1\nagent: {tools: [a, b}\nseed: 1\n":                        "2:16: the bracket [ that opens here is not closed",
		"version: 1\nname: @x\n":                                              "2:7: a text that begins with @ needs quotes",
		"version: 1\nagent: {tools: [a, `b`]}\n":                              "2:20: a text that begins with ` needs quotes",
		"version:1\nname: x\n":                                                "1:8: " + blank,
		"version: 1\nname:x\nseed: 1\n":                                       "2:5: " + blank,
		"version: 1\nname: 'it's'\n":                                          "2:1: not YAML: did not find expected key",
		"version: 1\nname: x\n}\n":                                            "3:1: not YAML: did not find expected key",
		"version: 1\nname: x\n}\n" + strings.Repeat("# long\n", 600):          "2:1: not YAML: did not find expected key",
		"version: 1\r\nagent:\r\n  tools: [a]\r\n   format: h\r\nseed: 1\r\n": "4:4: " + columns(4, 3),
	} {
		_, err := job.Parse("job.yaml", []byte(text), job.Options{})
		require.ErrorContains(t, err, "job.yaml:"+want, "%q", text)
		require.ErrorContains(t, err, "not YAML: ", "%q", text)
	}
}

// What the parser tells without a line has one all the same.
func TestWhatIsNotYAMLHasAPlace(t *testing.T) {
	for text, want := range map[string]string{
		"version: 1\nmodel: {path: *x}\n":                  "job.yaml:2:15: not YAML: unknown anchor 'x' referenced",
		"a: &x 1\nb: *x\nc: *y\nd: *y\n":                   "job.yaml:3:4: not YAML: unknown anchor 'y' referenced",
		"version: 1\nname: caf\xe9\n":                      "job.yaml:2:10: the line is not UTF-8; save the file as UTF-8",
		"version: 1\nname: caf\xe9 au lait\nseed: 1\n":     "job.yaml:2:10: the line is not UTF-8; save the file as UTF-8",
		"version: 1\nname: \u00e9\u00e9\xe9\nseed: 1\n":    "job.yaml:2:9: the line is not UTF-8; save the file as UTF-8",
		"version: 1\nname: a\x01b\nseed: 1\n":              "job.yaml:2:1: not YAML: control characters are not allowed",
		"version: 1\n---\nversion: 1\nmodel: {path: *x}\n": "job.yaml:4:15: not YAML: unknown anchor 'x' referenced",
	} {
		_, err := job.Parse("job.yaml", []byte(text), job.Options{})
		require.EqualError(t, err, want, "%q", text)
	}
}
