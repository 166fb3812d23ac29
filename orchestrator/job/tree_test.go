package job

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/orchestrator/tree"
)

const treeJob = "version: 1\nname: t\nmodel: {path: m}\nagent: {kind: tool_call, tools: [calculator]}\nrewards: [final_answer]\ndata: {train: t.jsonl}\n"

func TestTreesOfAJob(t *testing.T) {
	j, err := Parse("/jobs/t.yaml", []byte(treeJob+"rollout: {tree: {rule: entropy}}\n"), Options{})
	require.NoError(t, err)
	require.Equal(t, &Tree{Rule: "entropy", Base: 0.5, Weight: 0.2, Tokens: 20, Top: 20, Nodes: 2, Branches: 2, Rounds: 1}, j.Rollout.Tree)
	require.Equal(t, 4, j.Rollout.Tree.From(j.Rollout.GroupSize))
	require.Equal(t, "4 of the 8 trajectories of a task begin at its prompt; before a turn that reads a result another one forks off with probability clamp(0.5 + 0.2 * dH / ln(vocabulary)), dH the entropy of the first 20 tokens of the turn that reads a result, less that of the first turn, from the likeliest 20 tokens; what branches leave of group_size begins at the prompt", j.Rollout.Tree.Describe(8))
	again, err := Parse("/jobs/job.yaml", j.Source(), Options{})
	require.NoError(t, err, "the copy of the job: %s", j.Source())
	require.Equal(t, j.Rollout, again.Rollout)

	j, err = Parse("/jobs/t.yaml", []byte(treeJob+"engine: {kind: vllm, urls: ['http://a:1']}\nrollout: {tree: {rule: entropy}}\n"), Options{})
	require.NoError(t, err)
	require.Equal(t, 20, j.Rollout.Tree.Top, "servers tell the likeliest tokens")
	j, err = Parse("/jobs/t.yaml", []byte(treeJob+"engine: {kind: mine}\nrollout: {tree: {rule: entropy}}\n"), Options{})
	require.NoError(t, err)
	require.Zero(t, j.Rollout.Tree.Top, "what the program's engine tells is not known")
	again, err = Parse("/jobs/job.yaml", j.Source(), Options{})
	require.NoError(t, err)
	require.Equal(t, j.Rollout, again.Rollout)

	// EPTree: M 6, N 2, T 2, L 1 are 30 leaves.
	j, err = Parse("/jobs/t.yaml", []byte(treeJob+"rollout: {group_size: 30, tree: {rule: token_nll, roots: 6}}\n"), Options{})
	require.NoError(t, err)
	require.Equal(t, tree.TokenNLL{Trees: 6, Tokens: 2, Branches: 2, Rounds: 1, Leaves: 5}, j.Rollout.Tree.Branching(30, 100))
	require.Equal(t, "6 of the 30 trajectories of a task begin at its prompt; then, 1 times, the 2 least likely tokens of each tree are sampled anew, 2 times each, with what follows them; what branches leave of group_size begins at the prompt", j.Rollout.Tree.Describe(30))
	again, err = Parse("/jobs/job.yaml", j.Source(), Options{})
	require.NoError(t, err)
	require.Equal(t, j.Rollout, again.Rollout)

	j, err = Parse("/jobs/t.yaml", []byte(treeJob), Options{})
	require.NoError(t, err)
	require.Nil(t, j.Rollout.Tree)
}

// What cannot branch is refused by name before anything runs, and so is a setting that says nothing.
func TestTreesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"rollout: {tree: {}}\n":                          `/jobs/t.yaml:7:17: rollout.tree: the key "rule" is missing: `,
		"rollout: {tree: {rule: token}}\n":               `rollout.tree.rule: "token" is not allowed; allowed: entropy, step_random, token_nll`,
		"rollout: {tree: {rule: token_nll, roots: 1}}\n": `rollout.tree: a tree has 1 + nodes x branches x rounds = 5 trajectories at most, and rollout.group_size / roots is 8; raise nodes, branches or rounds`,
		"engine: {kind: openai, urls: ['http://a/v1'], served_model: m}\nrollout: {tree: {rule: token_nll}}\n": `rollout.tree.rule: token_nll goes on within a turn, after the tokens that were sampled, and an engine of kind openai takes text alone; use another rule or another engine`,
		"rollout: {tree: {rule: token_nll, roots: 3}}\n":                                                       `rollout.tree.roots: 3 trees do not divide the 8 trajectories of a task (rollout.group_size) evenly`,
		"rollout: {tree: {rule: token_nll, weight: 1}}\n":                                                      `rollout.tree.weight: the rule token_nll does not read it; leave it out`,
		"rollout: {tree: {rule: step_random, branches: 3}}\n":                                                  `rollout.tree.branches: the rule step_random does not read it; leave it out`,
		"rollout: {tree: {rule: entropy, branches: 3}}\n":                                                      `rollout.tree.branches: the rule entropy does not read it; leave it out`,
		"rollout: {tree: {rule: entropy, width: 2}}\n":                                                         `unknown key "width" in rollout.tree`,
		"rollout: {tree: {rule: entropy, base: 1.5}}\n":                                                        `rollout.tree.base: 1.5 is out of range`,
		"rollout: {tree: {rule: entropy, roots: 8}}\n":                                                         `rollout.tree.roots: 8 of the 8 trajectories of a task (rollout.group_size) begin at its prompt, so nothing is left to branch; lower it, or raise group_size`,
		"rollout: {group_size: 1, tree: {rule: entropy}}\n":                                                    `rollout.tree.roots: 1 of the 1 trajectories`,
		"rollout: {tree: {rule: entropy, nodes: 3}}\n":                                                         `rollout.tree.nodes: the rule entropy does not read it; leave it out`,
		"rollout: {tree: {rule: step_random, lagged: true}}\n":                                                 `rollout.tree.lagged: the rule step_random does not read it; leave it out`,
		"rollout: {tree: {rule: step_random, roots: 3}}\n":                                                     `rollout.tree.roots: 3 trees do not divide the 8 trajectories of a task (rollout.group_size) evenly`,
		"rollout: {tree: {rule: step_random, roots: 2, nodes: 1}}\n":                                           `rollout.tree: a tree has 1 + nodes x rounds = 2 trajectories at most, and rollout.group_size / roots is 4; raise nodes or rounds`,
		"engine: {kind: openai, urls: ['http://a/v1'], served_model: m}\nrollout: {tree: {rule: entropy}}\n":   `rollout.tree.rule: entropy reads logprobs of what was sampled, and an engine of kind openai returns text alone; use step_random or another engine`,
		"distill: {teacher: {path: t}}\nrollout: {tree: {rule: entropy}}\n":                                    `rollout.tree: distill compares every sampled token with the teacher, for which branches change nothing; leave it out`,
	} {
		_, err := Parse("/jobs/t.yaml", []byte(treeJob+text), Options{})
		require.ErrorContains(t, err, want, text)
	}
	branching := func(agent, rule string) error {
		_, err := Parse("/jobs/t.yaml", []byte("version: 1\nname: t\nmodel: {path: m}\nagent: {"+agent+"}\nrewards: [final_answer]\ndata: {train: t.jsonl}\nrollout: {timeout: 9, tree: {rule: "+rule+"}}\n"), Options{})
		return err
	}
	guest := func(agent string) error { return branching(agent, "entropy") }
	held := "kind: external, command: [a], deterministic: true, forms: held"
	require.ErrorContains(t, branching(held, "token_nll"), "agent.forms: held: a form is followed from a reply's first token, and the rule token_nll goes on within one; use another rule, or forms: free")
	require.NoError(t, branching(held, "step_random, roots: 4"))
	require.ErrorContains(t, guest("kind: external, command: [a]"), "rollout.tree: an agent of kind external is a program of its own, whose state no run can copy: to fork it is begun anew, and answered as was recorded up to there; set agent.deterministic: true if it then makes the same calls again, or leave the tree out")
	require.ErrorContains(t, guest("kind: external, url: 'http://a/'"), "set agent.deterministic: true")
	require.ErrorContains(t, guest("kind: external, online: true, key: k, deterministic: true"), "rollout.tree: agents that come for tasks (agent.online) live on beside the run, which cannot begin one anew where a trajectory forks; use agent.command or agent.url, or leave it out")
	require.ErrorContains(t, guest("kind: tool_call, tools: [calculator], deterministic: true"), "agent.deterministic: it is for kind external, and the kind is tool_call")
	require.NoError(t, guest("kind: external, command: [a], deterministic: true"))
	require.NoError(t, guest("kind: external, url: 'http://a/', deterministic: true"))
	_, err := Parse("/jobs/t.yaml", []byte("version: 1\nname: t\nmodel: {path: m}\nsft: {}\ndata: {train: t.jsonl}\nrollout: {tree: {rule: entropy}}\n"), Options{})
	require.ErrorContains(t, err, "rollout.tree: sft samples nothing that could branch; leave it out")
}
