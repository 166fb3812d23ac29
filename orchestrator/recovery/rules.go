package recovery

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/agentfly/agentfly/orchestrator/job"
	"github.com/agentfly/agentfly/orchestrator/store"
)

// rules numbers what a program makes of the same job and the same completions. It is raised, and changedRules gets a line, when
// another program would make other tokens, ends or updates of what a run recorded.
const rules = 15

// changedRules says what each number changed.
var changedRules = map[int]string{
	2: "special tokens that prompts, schemas and observations spell are text (as before: agent.special_tokens: markup); a completion that a token limit cut " +
		"is neither a call nor an answer (as before: rollout.cut: parse); where another stop token ended a turn, the observation closes it as the chat template does; " +
		"trainer.schedule counts every step of the run, also those without an update",
	3: "with model.dtype or engine.dtype bfloat16, the trainer's forward and the local engine round activations at the same places and add in one order",
	4: "with model.dtype or engine.dtype bfloat16 on a CPU, attention multiplies numbers of bfloat16, forward and backward, and rounds its probabilities to it",
	5: "beside a trainer on CUDA the local engine samples there, in model.dtype, unless deterministic is true (as before: engine.device: cpu)",
	6: "with model.dtype bfloat16 on a CPU, the trainer's logits are products of the local engine, and so are those of layers that trainer.tensor_parallel shares",
	7: "distill learns nothing from calls that are not trained (frozen roles, discarded replies, auxiliary calls); " +
		"correction seq_mask compares the logprobs of one token where an estimator of turns reads samples that agents wrote in turn",
	8: "gae takes the value behind a truncated trajectory at the end of the sample that holds its last token, also where agents wrote samples in turn; " +
		"with rollout.cut: filter a greedy rollout that a token limit cut takes its group out; " +
		"dynamic_sampling and control.shuffle_rewards pass over trajectories of which nothing is trained (frozen roles, discarded replies, auxiliary calls); " +
		"a </think> that neither the completion nor its prompt opened is text, except behind an endpoint (engine openai), where a thought that the job's " +
		"own template opens no longer counts as open; an end of turn that the tokenizer does not call special closes the turn, so that observations do not " +
		"repeat it and sft learns it; sft learns a message behind the end of the thought that the generation prompt opened",
	9: "gigpo names the state before a turn by the text that came back, also where the turn begins a sample because the history was rewritten; " +
		"groups whose rewards differ by rounding alone are equal",
	10: "maxrl takes a mean of rewards that is 0 but for rounding for 0: the advantages are 0; a thought may open behind a few words",
	11: "in format action a line is the action also where a second thought follows it; a model with a chat template tool_use renders " +
		"conversations with tools by it (as before: model.chat_template with the default one's text)",
	12: "text parts of a message in data are one text, and the arguments of a call there keep the order of their keys; sft learns one stop token behind a call that ends with the model's own; of a GGUF file a special token " +
		"id that says none is none, eom_token_id ends a turn, and rope.freq_base may be an integer",
	13: "with model.dtype or engine.dtype bfloat16 on a processor with AMX, products of layers and head are its instructions (as before: AGENTFLY_CPU=avx512bf16), and on " +
		"Intel's processors with instructions for bfloat16 the trainer's logits are the engine's product; the schema of a Python tool has the hint of **kwargs and the " +
		"InitVars of dataclasses; environment repository without bubblewrap does not name /workspace",
	14: "the trajectory of an agent of its own is cut where a limit of the job's cut the agent's own last completion: not at a limit of its call's, not by auxiliary " +
		"or discarded calls, and not with rollout.cut: parse; its call goes on after the last turn of the sample that it joins, and one that a rule of agent.roles names " +
		"keeps that role where its reply was thrown away; control.shuffle_rewards leaves out groups of remax whose greedy rollout failed or was filtered; format qwen3_coder reads the types of " +
		"arguments from oneOf, allOf and $ref too, and by vLLM's other names of types; what stands beside anyOf in a tool's schema is checked; fields of a task that the " +
		"job reads (eval.by, data.balance, data.spread, data.curriculum.field) reach an environment that knows them; webshop pays options as its authors' code does and " +
		"names some sizes otherwise; an empty completion of format action is told to be empty; a Python environment with get_state draws on from the numbers of random and numpy where its episode goes on",
	15: "a reward that has the reward environment in it sees all that was paid, also what turns were; what an answering tool returns is no tool's result for rewards; tags, pattern, " +
		"search_r1 and AgentFly's rewards look at the agent's own turns; tests and setups of code_tests that fail any code are errors of their task; a task with several right answers counts " +
		"as right by each of them; a refused action leaves the success that an episode reached; numpy's global source is seeded before a Python class is made",
}

// RulesFact of the store: the numbers of the programs that worked on the run, oldest first. A store without it is of number 1.
const RulesFact = "rules"

// programs are the numbers of a fact.
func programs(fact string) (oldest, newest int, err error) {
	fields := strings.Fields(fact)
	if len(fields) == 0 {
		return 1, 1, nil
	}
	if oldest, err = strconv.Atoi(fields[0]); err == nil {
		newest, err = strconv.Atoi(fields[len(fields)-1])
	}
	if err != nil {
		err = fmt.Errorf("orchestrator: %s: the fact %s is %q, not a list of numbers", store.File, RulesFact, fact)
	}
	return oldest, newest, err
}

// SampledOnCPUs reports, by the fact of a run, whether all of the programs that worked on it let the local engine compute on the CPUs beside a
// trainer on a device.
func SampledOnCPUs(fact string) (bool, error) {
	_, newest, err := programs(fact)
	return newest < 5, err
}

// sinceThen says what changed since a program of a number.
func sinceThen(number int) string {
	var changes []string
	for n := number + 1; n <= rules; n++ {
		changes = append(changes, changedRules[n])
	}
	return strings.Join(changes, "; ")
}

// TakeRules notes which rules of the program changed since the run was worked on last; recorded: a program recorded something of it. older: an older
// program did. What it recorded may not go on under the rules of this one: such a trajectory begins anew.
func TakeRules(ctx context.Context, db *store.Store, recorded bool) (older bool, note string, err error) {
	if !recorded {
		return false, "", db.SetFact(ctx, RulesFact, strconv.Itoa(rules))
	}
	fact, err := db.Reader.Fact(RulesFact)
	if err != nil {
		return false, "", err
	}
	oldest, newest, err := programs(fact)
	if err != nil {
		return false, "", err
	}
	if newest >= rules {
		return oldest < rules, "", nil
	}
	note = "the run was recorded by an older program, and goes on under other rules: " + sinceThen(newest)
	return oldest < rules, note, db.SetFact(ctx, RulesFact, fmt.Sprintf("%d %d", oldest, rules))
}

// Restart forgets what is recorded of a trajectory that cannot go on, and notes the first one.
func Restart(db *store.Store, note func(string)) func(id string, err error) {
	var once sync.Once
	return func(id string, err error) {
		db.Restart(id)
		once.Do(func() {
			note(fmt.Sprintf("trajectory %s begins anew, as will others of its kind: an older program recorded it under other rules (%s)", id, job.Plain(err, "orchestrator: ")))
		})
	}
}

// RulesSince is what an error of a replay says of a run that an older program recorded; "" for one of this program.
func RulesSince(fact string) (string, error) {
	oldest, _, err := programs(fact)
	if err != nil || oldest >= rules {
		return "", err
	}
	return "the run was recorded by an older program, and these rules changed since: " + sinceThen(oldest), nil
}
