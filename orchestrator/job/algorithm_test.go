package job_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/orchestrator/job"
)

// requireAlgorithm holds what is said of a job's algorithm against want; "": nothing.
func requireAlgorithm(t *testing.T, text, want string) {
	t.Helper()
	j, err := job.Parse("x.yaml", []byte(text), job.Options{})
	require.NoError(t, err)
	_, err = job.Algorithm(j, algorithms.NewRegistry())
	if want == "" {
		require.NoError(t, err)
		return
	}
	require.EqualError(t, err, want)
}

func TestAlgorithmRefusesWhatTheRolloutsCannotGive(t *testing.T) {
	text := "version: 1\nname: x\nmodel: {path: m}\nrewards: [final_answer]\nrollout: {max_tokens: 100, max_new_tokens: 20, group_size: %}\nalgorithm: {%}\n"
	for name, c := range map[string]struct{ size, block, want string }{
		"no limit above the buffer": {"4", "overlong: {buffer: 100, penalty: 1}", "x.yaml:6:32: algorithm.overlong.buffer: 100 tokens are not less than rollout.max_tokens (100), the limit before which the penalty grows"},
		"a group of one":            {"1", "dynamic_sampling: true", "x.yaml:6:31: algorithm.dynamic_sampling: a group of one trajectory has no variance; set rollout.group_size to 2 or more"},
		"more parts than the whole": {"2", "mini_batches: 17", "x.yaml:6:27: algorithm.mini_batches: 17 are more than the 16 trajectories of a step (rollout.groups x group_size); lower it"},
		"each on its own":           {"2", "mini_batches: 16", ""},
		"fine":                      {"2", "dynamic_sampling: true, overlong: {buffer: 50, penalty: 1}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			requireAlgorithm(t, strings.Replace(strings.Replace(text, "%", c.size, 1), "%", c.block, 1), c.want)
		})
	}
}

func TestAGroupOfOneCannotTrainWhatComparesGroups(t *testing.T) {
	text := "version: 1\nname: x\nmodel: {path: m}\nrewards: [final_answer]\ndata: {train: x}\nrollout: {group_size: 1}\nalgorithm: {advantage: %}\n"
	for block, refused := range map[string]bool{"rloo": true, "{name: reinforce_pp, group_baseline: true}": true, "reinforce_pp": false, "remax": false} {
		j, err := job.Parse("x.yaml", []byte(strings.Replace(text, "%", block, 1)), job.Options{})
		require.NoError(t, err)
		a, err := job.Algorithm(j, algorithms.NewRegistry())
		require.NoError(t, err, "rollouts need no siblings")
		if err = job.Trainable(j, a); !refused {
			require.NoError(t, err, block)
			continue
		}
		require.EqualError(t, err, "x.yaml:6:23: rollout.group_size: 1, but advantage "+a.Estimator.Name+" compares the trajectories of a group with each other, so every advantage would be 0; set 2 or more, or use an estimator that needs no group")
	}
}

func TestStaleTokensNeedACorrection(t *testing.T) {
	text := "version: 1\nname: x\nmodel: {path: m}\nrewards: [final_answer]\nrollout: {mode: async, max_staleness: 3}\nalgorithm: {%}\n"
	for name, c := range map[string]struct{ block, want string }{
		"none":              {"loss: ppo_clip", "x.yaml:6:12: algorithm.correction: none, but rollout.max_staleness is 3: tokens of older policies would count as the present one's; set correction: {kind: tis_token}, or tis_sequence, icepop, seq_mask, or bypass with a clipped loss"},
		"a baseline":        {"advantage: remax, correction: {kind: tis_token}", "x.yaml:6:24: algorithm.advantage: remax compares with a greedy rollout of the same policy version, and rollout.max_staleness is 3; use mode sync without oversample, or another estimator"},
		"many updates":      {"epochs: 2, mini_batches: 2, correction: {kind: tis_token}", "x.yaml:5:39: rollout.max_staleness: 3 is less than the 4 policy versions of a step (algorithm.epochs x mini_batches), so nothing could be sampled beside an update; set 4 or more"},
		"nothing to bypass": {"loss: reinforce, correction: {kind: bypass}", "x.yaml:6:42: algorithm.correction: bypass changes old logprobs, which loss reinforce does not read, but rollout.max_staleness is 3: tokens of older policies would count as the present one's; set correction: {kind: tis_token}, or tis_sequence, icepop, seq_mask, or bypass with a clipped loss"},
		"corrected":         {"correction: {kind: tis_token}", ""},
		"decoupled":         {"correction: {kind: bypass}", ""},
		"several update":    {"epochs: 3, correction: {kind: icepop}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			requireAlgorithm(t, strings.Replace(text, "%", c.block, 1), c.want)
		})
	}
}

// Async is ruled out by what no value beside it mends; where other values are needed beside it, it is not.
func TestWhatRulesOutAsync(t *testing.T) {
	text := "version: 1\nname: x\nmodel: {path: m}\n"
	const rl = "rewards: [final_answer]\n"
	for add, allowed := range map[string]bool{
		rl: true,
		rl + "algorithm: {loss: ppo_clip, epochs: 2}":           true,
		rl + "deterministic: true":                              false,
		rl + "engine: {kind: vllm, urls: [http://a], sleep: 1}": false,
		rl + "algorithm: {advantage: remax}":                    false,
		"sft: {}":                                               false,
		"distill: {teacher: {path: t}}":                         false,
	} {
		j, err := job.Parse("x.yaml", []byte(text+add), job.Options{})
		require.NoError(t, err, add)
		a, err := job.Algorithm(j, algorithms.NewRegistry())
		require.NoError(t, err, add)
		require.Equal(t, allowed, job.AllowsAsync(j, a), add)
	}
}

func TestEffectiveSaysTheLearningRate(t *testing.T) {
	text := "version: 1\nname: x\nmodel: {path: m}\ntrainer: {steps: 20, learning_rate: 1e-5, %}\n"
	const many = "}\nrewards: [final_answer]\nalgorithm: {epochs: 2, mini_batches: 3"
	for block, want := range map[string]string{
		many:                     "1e-05, constant",
		"warmup_steps: 5" + many: "rises over 5 steps (6 optimizer steps each) to 1e-05, then constant",
		"warmup_steps: 5, schedule: cosine" + many:                               "rises over 5 steps (6 optimizer steps each) to 1e-05, then falls (cosine) to 0 at the end of step 20, the run's last; steps without anything to learn count",
		"schedule: linear}\nrewards: [final_answer]\ncontrol: {tools_off: false": "1e-05, falls (linear) to 0 at the end of step 20, the run's last; steps without anything to learn count",
		"schedule: linear}\nsft: {epochs: 3}\ndata: {run: runs/x":                "1e-05, falls (linear) to 0 at the end of the run's last step, which follows from the data; steps without anything to learn count",
	} {
		j, err := job.Parse("x.yaml", []byte(strings.Replace(text, "%", block, 1)), job.Options{})
		require.NoError(t, err)
		a, err := job.Algorithm(j, algorithms.NewRegistry())
		require.NoError(t, err)
		require.Equal(t, "rate         "+want+"\n", job.DescribeRate(j, a))
	}
}

func TestJobsOfSupervisedFineTuning(t *testing.T) {
	head := "version: 1\nname: x\nmodel: {path: m}\n"
	for name, c := range map[string]struct{ text, want string }{
		"no data":             {"sft: {}", "x.yaml:1:1: data: sft learns from exactly one of train (recorded conversations) and run (a run folder)"},
		"both":                {"sft: {}\ndata: {train: a, run: b}", "x.yaml:5:7: data: sft learns from exactly one of train (recorded conversations) and run (a run folder)"},
		"temperature":         {"sft: {}\ndata: {train: a}\nrollout: {temperature: 0.5}", "x.yaml:6:24: rollout.temperature: 0.5: sft learns the distribution at temperature 1; leave it out"},
		"balance":             {"sft: {}\ndata: {train: a, balance: kind}", "x.yaml:5:27: data.balance: sft deals conversations, not tasks; leave it out"},
		"control":             {"sft: {}\ndata: {train: a}\ncontrol: {shuffle_rewards: true}", "x.yaml:6:10: control: sft has no rewards to shuffle; leave it out"},
		"tool_off":            {"sft: {}\ndata: {train: a}\neval: {tool_off: true}", "x.yaml:6:18: eval.tool_off: sft evaluates the loss of held-out conversations; leave it out"},
		"nothing to evaluate": {"sft: {}\ndata: {train: a}\neval: {every: 2}", "x.yaml:6:15: eval.every: 2, but data.eval names no conversations"},
	} {
		t.Run(name, func(t *testing.T) {
			j, err := job.Parse("x.yaml", []byte(head+c.text+"\n"), job.Options{})
			require.NoError(t, err)
			require.EqualError(t, j.TrainingErrors(), c.want)
		})
	}
	for name, c := range map[string]struct{ text, want string }{
		"no rewards":         {"data: {train: a}", `x.yaml:1:1: the job: the key "rewards" is missing`},
		"a run without sft":  {"rewards: [final_answer]\ndata: {run: a}", "x.yaml:5:7: data: run, min_reward and best_of choose what a job with a block sft learns; add sft: {}, or leave them out"},
		"sft is null":        {"sft: null\ndata: {train: a}", "rewards: they are missing; name at least one"},
		"best_of of a file":  {"sft: {}\ndata: {train: a, best_of: 2}", "x.yaml:5:7: data: min_reward and best_of choose among the trajectories of data.run, which is missing"},
		"an unknown setting": {"sft: {batches: 2}", `x.yaml:4:7: unknown key "batches" in sft; allowed: batch, epochs; nearest: batch`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := job.Parse("x.yaml", []byte(head+c.text+"\n"), job.Options{})
			require.ErrorContains(t, err, c.want)
		})
	}
	refused := map[string]string{
		"advantage": "grpo", "loss": "ppo_clip", "clip_low": "0.1", "clip_high": "0.1", "dual_clip": "3", "kl": "{coefficient: 1}", "entropy": "0.1",
		"value": "{coefficient: 1}", "correction": "{kind: icepop}", "epochs": "2", "mini_batches": "2", "dynamic_sampling": "true", "overlong": "{buffer: 2, penalty: 1}",
	}
	for f := range reflect.TypeFor[algorithms.Config]().Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if key == "aggregation" || key == "max_tokens" {
			continue
		}
		require.Contains(t, refused, key, "a block sft refuses every key that it does not read")
		j, err := job.Parse("x.yaml", []byte(head+"sft: {}\ndata: {train: a}\nalgorithm: {"+key+": "+refused[key]+"}\n"), job.Options{})
		require.NoError(t, err, key)
		_, err = job.Algorithm(j, algorithms.NewRegistry())
		require.ErrorContains(t, err, "x.yaml:6:")
		require.ErrorContains(t, err, "algorithm."+key+": the job has a block sft, whose loss is the negative log-likelihood")
	}
	j, err := job.Parse("x.yaml", []byte(head+"sft: {}\ndata: {train: a}\nalgorithm: {aggregation: seq-mean-token-mean}\n"), job.Options{})
	require.NoError(t, err)
	a, err := job.Algorithm(j, algorithms.NewRegistry())
	require.NoError(t, err)
	require.Contains(t, a.Describe(), "loss_t = -current, the negative log-likelihood")
	require.Contains(t, a.Describe(), "seq-mean-token-mean")
	require.ErrorContains(t, job.Evaluable(j), "sft: supervised fine-tuning has conversations and no tasks to sample")
}

func TestJobsOfDistillation(t *testing.T) {
	head := "version: 1\nname: x\nmodel: {path: m}\n"
	for name, c := range map[string]struct{ text, want string }{
		"no teacher":  {"distill: {}\ndata: {train: a}", "x.yaml:4:10: distill.teacher: exactly one of path and urls is needed"},
		"two":         {"distill: {teacher: {path: a, urls: [b]}}", "distill.teacher: exactly one of path and urls is needed"},
		"and sft":     {"distill: {teacher: {path: a}}\nsft: {}", "x.yaml:4:10: distill: a job has one of sft and distill"},
		"nobody":      {"rewards: [final_answer]\ncontrol: {shuffle_teacher: true}", "x.yaml:5:28: control.shuffle_teacher: there is no teacher without a block distill"},
		"unknown key": {"distill: {teacher: {model: a}}", `unknown key "model" in distill.teacher; allowed: path, urls, served_model, api_key`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := job.Parse("x.yaml", []byte(head+c.text+"\n"), job.Options{})
			require.ErrorContains(t, err, c.want)
		})
	}
	for name, c := range map[string]struct{ text, want string }{
		"temperature": {"rollout: {temperature: 0.5}", "x.yaml:6:24: rollout.temperature: 0.5: distill compares the distributions of policy and teacher at temperature 1; leave it out"},
		"rewards":     {"control: {shuffle_rewards: true}", "x.yaml:6:28: control.shuffle_rewards: distill does not train on rewards; use shuffle_teacher"},
	} {
		t.Run(name, func(t *testing.T) {
			j, err := job.Parse("x.yaml", []byte(head+"distill: {teacher: {path: a}}\ndata: {train: a}\n"+c.text+"\n"), job.Options{})
			require.NoError(t, err)
			require.EqualError(t, j.TrainingErrors(), c.want)
		})
	}
	for _, block := range []string{"advantage: grpo", "dynamic_sampling: true", "overlong: {buffer: 2, penalty: 1}", "kl: {coefficient: 1, in: reward}"} {
		j, err := job.Parse("x.yaml", []byte(head+"distill: {teacher: {path: a}}\ndata: {train: a}\nalgorithm: {"+block+"}\n"), job.Options{})
		require.NoError(t, err)
		_, err = job.Algorithm(j, algorithms.NewRegistry())
		require.ErrorContains(t, err, "the job has a block distill, whose advantage is the teacher's logprob minus the policy's; leave this out")
	}
	j, err := job.Parse("x.yaml", []byte(head+"distill: {teacher: {path: a}}\ndata: {train: a}\nalgorithm: {loss: reinforce}\n"), job.Options{})
	require.NoError(t, err)
	a, err := job.Algorithm(j, algorithms.NewRegistry())
	require.NoError(t, err)
	require.Contains(t, a.Describe(), "A_t = log p_teacher(t) - log p_sampling(t)")
}

// Each setting of the block that is refused is told where it stands, in the file or in --set, and all of them at once.
func TestRefusedSettingsAreToldWhereTheyStand(t *testing.T) {
	text := "version: 1\nname: x\nmodel: {path: m}\nrewards: [final_answer]\nalgorithm:\n  advantage: {name: gae, lambda: high}\n  loss: pppo_clip\n  kl: {coefficient: 1, estimator: k9}\n"
	j, err := job.Parse("x.yaml", []byte(text), job.Options{Set: []string{"algorithm.entropy=-1"}})
	require.NoError(t, err)
	_, err = job.Algorithm(j, algorithms.NewRegistry())
	require.EqualError(t, err, strings.Join([]string{
		"--set algorithm.entropy=-1: algorithm.entropy: entropy is -1; allowed is 0 or more",
		"x.yaml:6:34: algorithm.advantage.lambda: advantage gae: lambda is high; it must be a number",
		`x.yaml:7:9: algorithm.loss: loss "pppo_clip" is unknown; allowed are cispo, dppo, gspo, ppo_clip, reinforce, sapo (did you mean "ppo_clip"?)`,
		`x.yaml:8:35: algorithm.kl.estimator: kl.estimator "k9" is unknown; allowed are k1, k2, k3`,
	}, "\n"))
}
