package job

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// foreign are settings as TRL, verl, OpenRLHF and others name them, and what they are in a job file.
var foreign = map[string]string{
	"num_generations":              "here it is rollout.group_size",
	"num_samples_per_prompt":       "here it is rollout.group_size",
	"n_samples_per_prompt":         "here it is rollout.group_size",
	"n":                            "here it is rollout.group_size",
	"lr":                           "here it is trainer.learning_rate",
	"actor_learning_rate":          "here it is trainer.learning_rate",
	"beta":                         "here it is algorithm.kl.coefficient",
	"kl_coef":                      "here it is algorithm.kl.coefficient",
	"kl_loss_coef":                 "here it is algorithm.kl.coefficient, with algorithm.kl.in: loss",
	"init_kl_coef":                 "here it is algorithm.kl.coefficient",
	"use_kl_loss":                  "here it is algorithm.kl: {coefficient: 0.001, in: loss}",
	"kl_penalty":                   "here it is algorithm.kl: {coefficient: 0.001, in: reward}",
	"clip_eps":                     "here it is algorithm.clip_low and algorithm.clip_high",
	"clip_ratio":                   "here it is algorithm.clip_low and algorithm.clip_high",
	"clip_range":                   "here it is algorithm.clip_low and algorithm.clip_high",
	"cliprange":                    "here it is algorithm.clip_low and algorithm.clip_high",
	"epsilon":                      "here it is algorithm.clip_low and algorithm.clip_high (of the optimizer: trainer.eps)",
	"eps_clip":                     "here it is algorithm.clip_low and algorithm.clip_high",
	"epsilon_high":                 "here it is algorithm.clip_high",
	"clip_ratio_high":              "here it is algorithm.clip_high",
	"clip_ratio_low":               "here it is algorithm.clip_low",
	"clip_ratio_c":                 "here it is algorithm.dual_clip",
	"delta":                        "here it is algorithm.dual_clip",
	"entropy_coeff":                "here it is algorithm.entropy",
	"entropy_coef":                 "here it is algorithm.entropy",
	"ent_coef":                     "here it is algorithm.entropy",
	"adv_estimator":                "here it is algorithm.advantage",
	"advantage_estimator":          "here it is algorithm.advantage",
	"loss_type":                    "here it is algorithm.loss and algorithm.aggregation",
	"loss_agg_mode":                "here it is algorithm.aggregation",
	"policy_loss":                  "here it is algorithm.loss",
	"gamma":                        "here it is a key of the estimator, such as algorithm.advantage: {name: gae, gamma: 1}",
	"lam":                          "here it is a key of the estimator: algorithm.advantage: {name: gae, lambda: 0.95}",
	"gae_lambda":                   "here it is a key of the estimator: algorithm.advantage: {name: gae, lambda: 0.95}",
	"ppo_epochs":                   "here it is algorithm.epochs",
	"num_ppo_epochs":               "here it is algorithm.epochs",
	"num_iterations":               "here it is algorithm.epochs (updates with the same rollouts)",
	"num_mini_batches":             "here it is algorithm.mini_batches",
	"ppo_mini_batch_size":          "here it is algorithm.mini_batches, the number of parts that a step is cut into",
	"mini_batch_size":              "here it is algorithm.mini_batches, the number of parts that a step is cut into",
	"filter_groups":                "here it is algorithm.dynamic_sampling",
	"max_completion_length":        "here it is rollout.max_new_tokens (of a turn; rollout.max_tokens is that of a trajectory)",
	"max_response_length":          "here it is rollout.max_new_tokens (of a turn; rollout.max_tokens is that of a trajectory)",
	"response_length":              "here it is rollout.max_new_tokens (of a turn; rollout.max_tokens is that of a trajectory)",
	"generate_max_len":             "here it is rollout.max_new_tokens (of a turn; rollout.max_tokens is that of a trajectory)",
	"max_tokens_per_turn":          "here it is rollout.max_new_tokens",
	"max_prompt_length":            "here rollout.max_tokens is the limit of a whole trajectory, prompt included; there is none of prompts alone",
	"prompt_max_len":               "here rollout.max_tokens is the limit of a whole trajectory, prompt included; there is none of prompts alone",
	"max_length":                   "here it is rollout.max_tokens",
	"max_seq_length":               "here it is rollout.max_tokens",
	"max_model_len":                "here it is rollout.max_tokens (of a trajectory); the engine takes the model's context",
	"per_device_train_batch_size":  "here rollout.groups x rollout.group_size trajectories make a step, and trainer.micro_batch_tokens bounds one forward and backward",
	"train_batch_size":             "here it is rollout.groups, the tasks of a step (x rollout.group_size trajectories)",
	"rollout_batch_size":           "here it is rollout.groups, the tasks of a step (x rollout.group_size trajectories)",
	"batch_size":                   "here it is rollout.groups, the tasks of a step (x rollout.group_size trajectories); with sft it is sft.batch",
	"gradient_accumulation_steps":  "here a step is cut into micro-batches by trainer.micro_batch_tokens, however many that takes; there is nothing to count",
	"micro_batch_size":             "here it is trainer.micro_batch_tokens, counted in tokens",
	"ppo_micro_batch_size":         "here it is trainer.micro_batch_tokens, counted in tokens",
	"ppo_micro_batch_size_per_gpu": "here it is trainer.micro_batch_tokens, counted in tokens",
	"ppo_max_token_len_per_gpu":    "here it is trainer.micro_batch_tokens",
	"num_train_epochs":             "here it is trainer.steps, of rollout.groups tasks each; with sft it is sft.epochs",
	"total_epochs":                 "here it is trainer.steps, of rollout.groups tasks each; with sft it is sft.epochs",
	"num_epochs":                   "here it is trainer.steps, of rollout.groups tasks each; with sft it is sft.epochs",
	"num_episodes":                 "here it is trainer.steps, of rollout.groups tasks each",
	"max_steps":                    "here it is trainer.steps",
	"total_training_steps":         "here it is trainer.steps",
	"lr_scheduler_type":            "here it is trainer.schedule",
	"lr_warmup_steps":              "here it is trainer.warmup_steps",
	"warmup_ratio":                 "here it is trainer.warmup_steps, counted in steps",
	"max_grad_norm":                "here it is trainer.clip_grad",
	"grad_clip":                    "here it is trainer.clip_grad",
	"adam_beta1":                   "here it is trainer.beta1",
	"adam_beta2":                   "here it is trainer.beta2",
	"adam_epsilon":                 "here it is trainer.eps",
	"gradient_checkpointing":       "here it is trainer.checkpointing",
	"bf16":                         "here it is model.dtype: bfloat16",
	"fp16":                         "here model.dtype is fp32 or bfloat16",
	"torch_dtype":                  "here it is model.dtype",
	"model_name_or_path":           "here it is model.path",
	"pretrain":                     "here it is model.path",
	"lora_r":                       "here it is model.lora.rank",
	"lora_rank":                    "here it is model.lora.rank",
	"lora_alpha":                   "here it is model.lora.alpha",
	"target_modules":               "here it is model.lora.targets",
	"peft_config":                  "here it is model.lora",
	"use_vllm":                     "here it is engine.kind: vllm",
	"vllm_server_base_url":         "here it is engine.urls, with engine.kind: vllm",
	"vllm_mode":                    "here it is engine.kind: vllm, with urls or serve",
	"gpu_memory_utilization":       "here it is an argument of vLLM: engine.serve: {args: [--gpu-memory-utilization, \"0.5\"]}",
	"tensor_parallel_size":         "here it is an argument of vLLM: engine.serve: {args: [--tensor-parallel-size, \"2\"]}",
	"tensor_model_parallel_size":   "here it is trainer.tensor_parallel, and of vLLM an argument: engine.serve: {args: [--tensor-parallel-size, \"2\"]}",
	"reward_funcs":                 "here it is rewards",
	"reward_function":              "here it is rewards",
	"reward_fn":                    "here it is rewards",
	"reward_model":                 "here it is rewards; a model that judges is the reward judge",
	"reward_weights":               "here each entry of rewards has its weight",
	"train_dataset":                "here it is data.train",
	"train_files":                  "here it is data.train",
	"dataset":                      "here it is data.train",
	"eval_dataset":                 "here it is data.eval",
	"val_files":                    "here it is data.eval",
	"prompt_key":                   "here it is data.columns: {prompt: NAME}",
	"shuffle":                      "here every epoch is dealt in a random order of its own; data.curriculum orders it",
	"eval_steps":                   "here it is eval.every",
	"test_freq":                    "here it is eval.every",
	"save_steps":                   "here it is checkpoint.every",
	"save_freq":                    "here it is checkpoint.every",
	"save_total_limit":             "here it is checkpoint.keep",
	"output_dir":                   "here it is output",
	"default_local_dir":            "here it is output",
	"run_name":                     "here it is name",
	"experiment_name":              "here it is name",
	"system_prompt":                "here it is agent.system",
	"max_assistant_turns":          "here it is agent.max_turns",
	"actor_rollout_ref":            "verl's block is model, engine, rollout, algorithm and trainer here",
	"actor":                        "here it is algorithm and trainer",
	"critic":                       "here it is algorithm.value, with algorithm.advantage: gae",
	"num_workers":                  "here trajectories are sampled at once, rollout.groups x rollout.group_size of them; tools have concurrency",
	"importance_sampling_level":    "here it is algorithm.loss: gspo for sequences",
	"async_training":               "here it is rollout.mode: async",
	"staleness":                    "here it is rollout.max_staleness",
	"report_to":                    "a run writes metrics.jsonl in its folder, which trackers read",
	"logger":                       "a run writes metrics.jsonl in its folder, which trackers read",
}

// elsewhere says where a key stands that a block does not have: under its name in another block, or under the name that job files have for
// what other programs call so; "": nothing is known of it.
func elsewhere(block, key string) string {
	if block == "" && key == "steps" { // in a block it may be meant for every
		return "it stands at trainer.steps"
	}
	if at := placesOf(key); len(at) > 0 && len(at) <= 3 {
		return "it stands at " + strings.Join(at, ", ")
	}
	key = strings.ToLower(strings.ReplaceAll(strings.TrimLeft(key, "-"), "-", "_"))
	if hint, ok := foreign[key]; ok && !strings.HasPrefix(hint, fmt.Sprintf("here it is %s.%s ", block, key)) {
		return hint
	}
	return ""
}

// PathOf is the path of the setting that a word names as programs with a flag for each setting call it: steps, learning-rate, trainer.steps; "": of none,
// or of several.
func PathOf(word string) string {
	word = strings.ReplaceAll(word, "-", "_")
	key := word[strings.LastIndexByte(word, '.')+1:]
	switch at := places()[key]; {
	case word == "steps":
		return "trainer.steps"
	case plainSetting(word):
		return word
	case slices.Contains(at, word):
		return word
	case word == key && len(placesOf(key)) == 1:
		return at[0]
	}
	return ""
}

// plainSetting tells whether a word is a setting of the job itself that is one value.
func plainSetting(word string) bool {
	t := reflect.TypeFor[Job]()
	for i := range t.NumField() {
		f := t.Field(i)
		if keyOf(f) == word && word != "" {
			return slices.Contains([]reflect.Kind{reflect.String, reflect.Bool, reflect.Int, reflect.Uint64}, f.Type.Kind())
		}
	}
	return false
}

// placesOf are the paths of the settings of this name in blocks. name and path are keys of many things, and mean nothing alone.
func placesOf(key string) []string {
	if slices.Contains([]string{"name", "path", "kind", "every", "steps"}, key) {
		return nil
	}
	return places()[key]
}

// places are the paths of all settings in blocks that are no block themselves, by key.
var places = sync.OnceValue(func() map[string][]string {
	out := map[string][]string{}
	var walk func(t reflect.Type, path string)
	walk = func(t reflect.Type, path string) {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return
		}
		if _, custom := customSchema(reflect.New(t).Interface()); custom {
			return
		}
		for i := range t.NumField() {
			f := t.Field(i)
			k := keyOf(f)
			if k == "" {
				continue
			}
			if path != "" && f.Type.Kind() != reflect.Struct {
				out[k] = append(out[k], join(path, k))
			}
			walk(f.Type, join(path, k))
		}
	}
	walk(reflect.TypeFor[Job](), "")
	return out
})
