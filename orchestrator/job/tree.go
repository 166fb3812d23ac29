package job

import (
	"fmt"
	"maps"
	"slices"

	"github.com/agentfly/agentfly/agents"
	"github.com/agentfly/agentfly/orchestrator/tree"
)

// Tree says where the trajectories of a task branch.
type Tree struct {
	Rule string `yaml:"rule" need:"true" enum:"entropy|step_random|token_nll" doc:"entropy (ARPO, arXiv 2507.19849): before a turn that reads a result, with a probability that grows with the entropy of the turn's first tokens; step_random (Tree-GRPO, arXiv 2509.21240): before random turns; token_nll (EPTree of TreeRL, arXiv 2506.11902): before the tokens that were least likely, within turns too"`

	Roots    int     `yaml:"roots" default:"0" min:"0" max:"100000" unit:"trajectories" doc:"of a task that begin at its prompt; the rest of group_size forks off them. 0: half of group_size"`
	Base     float64 `yaml:"base" default:"0.5" min:"0" max:"1" doc:"entropy: probability of a branch where the entropy is that of the trajectory's first turn"`
	Weight   float64 `yaml:"weight" default:"0.2" min:"0" max:"1000" doc:"entropy: what it grows by with each ln(vocabulary) of entropy beyond that"`
	Tokens   int     `yaml:"tokens" default:"20" min:"1" max:"100000" unit:"tokens" doc:"entropy: first tokens of a completion whose mean entropy counts"`
	Top      int     `yaml:"top" default:"20" min:"0" max:"1000" unit:"tokens" doc:"entropy: likeliest tokens whose probabilities the engine tells, the rest counting as little as it can. Kinds local and vllm tell them, others as far as their Capabilities say; there the default is 0. 0: the mean of -ln p of what was sampled"`
	Lagged   bool    `yaml:"lagged" default:"false" doc:"entropy: decide by the turn that issued the call, as ARPO's released code does, not by the one that read its result"`
	Penalty  float64 `yaml:"penalty" default:"0" min:"0" max:"1" doc:"entropy: the probability is times (1 - penalty)^n behind n branches in a row (AEPO, arXiv 2510.14545); 0: it is not"`
	Depth    int     `yaml:"depth" default:"0" min:"0" max:"100000" unit:"forks" doc:"entropy: most on the way to a trajectory; 0: any number"`
	Nodes    int     `yaml:"nodes" default:"2" min:"1" max:"100000" doc:"step_random: turns of a tree that are expanded in a round; token_nll: tokens of a tree that are branched in a round"`
	Branches int     `yaml:"branches" default:"2" min:"1" max:"100000" unit:"trajectories" doc:"token_nll: that fork off before each of these tokens"`
	Rounds   int     `yaml:"rounds" default:"1" min:"1" max:"1000" unit:"rounds" doc:"step_random and token_nll: in which trees grow"`
}

// From is the number of trajectories that begin at the prompt.
func (t *Tree) From(groupSize int) int {
	if t.Roots > 0 {
		return t.Roots
	}
	return max(1, groupSize/2)
}

// Branching is the rule for groups of a size, of a model with so many tokens.
func (t *Tree) Branching(groupSize, vocabulary int) tree.Rule {
	roots := t.From(groupSize)
	switch t.Rule {
	case "step_random":
		return tree.StepRandom{Trees: roots, Nodes: t.Nodes, Rounds: t.Rounds, Leaves: groupSize / roots}
	case "token_nll":
		return tree.TokenNLL{Trees: roots, Tokens: t.Nodes, Branches: t.Branches, Rounds: t.Rounds, Leaves: groupSize / roots}
	}
	return tree.Entropy{Base: t.Base, Weight: t.Weight, Tokens: t.Tokens, Vocabulary: vocabulary, Lagged: t.Lagged, Penalty: t.Penalty, Depth: t.Depth}
}

// Describe says where trajectories branch, for `agentfly job effective`.
func (t *Tree) Describe(groupSize int) string {
	roots := t.From(groupSize)
	text := fmt.Sprintf("%d of the %d trajectories of a task begin at its prompt; ", roots, groupSize)
	switch t.Rule {
	case "step_random":
		text += fmt.Sprintf("then, %d times, %d random turns of each tree are begun anew", t.Rounds, t.Nodes)
	case "token_nll":
		text += fmt.Sprintf("then, %d times, the %d least likely tokens of each tree are sampled anew, %d times each, with what follows them", t.Rounds, t.Nodes, t.Branches)
	default:
		of, by := "reads a result", fmt.Sprintf("from the likeliest %d tokens", t.Top)
		if t.Lagged {
			of = "issued the call before that"
		}
		if t.Top == 0 {
			by = "by -ln p of what was sampled"
		}
		text += fmt.Sprintf("before a turn that reads a result another one forks off with probability clamp(%v + %v * dH / ln(vocabulary)), dH the entropy of the first %d tokens of the turn that %s, less that of the first turn, %s", t.Base, t.Weight, t.Tokens, of, by)
		if t.Penalty > 0 {
			text += fmt.Sprintf(", times %v for each branch in a row before it", 1-t.Penalty)
		}
		if t.Depth > 0 {
			text += fmt.Sprintf("; %d forks at most on the way to one", t.Depth)
		}
	}
	return text + "; what branches leave of group_size begins at the prompt"
}

// completeTree has entropies estimated by what is sampled where an engine may tell nothing else: what one of the program's own tells is not known before it runs.
func completeTree(j *Job) {
	if t := j.Rollout.Tree; t != nil && !j.given["rollout.tree.top"] && j.Engine.Kind != "local" && j.Engine.Kind != "vllm" {
		t.Top = 0
	}
}

// checkTree refuses trees of what cannot branch, and settings that say nothing.
func checkTree(j *Job, fail func(path, format string, args ...any)) {
	t, size := j.Rollout.Tree, j.Rollout.GroupSize
	if t == nil {
		return
	}
	switch {
	case j.SFT != nil:
		fail("rollout.tree", "sft samples nothing that could branch; leave it out")
	case j.Distill != nil:
		fail("rollout.tree", "distill compares every sampled token with the teacher, for which branches change nothing; leave it out")
	case j.Agent.Online:
		fail("rollout.tree", "agents that come for tasks (agent.online) live on beside the run, which cannot begin one anew where a trajectory forks; use agent.command or agent.url, or leave it out")
	case j.Agent.Kind == agents.External && !j.Agent.Deterministic:
		fail("rollout.tree", "an agent of kind external is a program of its own, whose state no run can copy: to fork it is begun anew, and answered as was recorded up to there; set agent.deterministic: true if it then makes the same calls again, or leave the tree out")
	}
	if j.Engine.Kind == "openai" && t.Rule == "entropy" {
		fail("rollout.tree.rule", "entropy reads logprobs of what was sampled, and an engine of kind openai returns text alone; use step_random or another engine")
	}
	if roots := t.From(size); roots >= size {
		fail("rollout.tree.roots", "%d of the %d trajectories of a task (rollout.group_size) begin at its prompt, so nothing is left to branch; lower it, or raise group_size", roots, size)
	} else if t.Rule != "entropy" {
		most, product, more := 1+t.Nodes*t.Rounds, "nodes x rounds", "nodes or rounds"
		if t.Rule == "token_nll" {
			most, product, more = 1+t.Nodes*t.Branches*t.Rounds, "nodes x branches x rounds", "nodes, branches or rounds"
		}
		switch {
		case size%roots != 0:
			fail("rollout.tree.roots", "%d trees do not divide the %d trajectories of a task (rollout.group_size) evenly", roots, size)
		case size/roots > most:
			fail("rollout.tree", "a tree has 1 + %s = %d trajectories at most, and rollout.group_size / roots is %d; raise %s", product, most, size/roots, more)
		}
	}
	if t.Rule == "token_nll" && j.Engine.Kind == "openai" {
		fail("rollout.tree.rule", "token_nll goes on within a turn, after the tokens that were sampled, and an engine of kind openai takes text alone; use another rule or another engine")
	}
	if t.Rule == "token_nll" && j.Agent.Forms == "held" {
		fail("agent.forms", "held: a form is followed from a reply's first token, and the rule token_nll goes on within one; use another rule, or forms: free")
	}
	entropy := map[string]bool{ // settings that say something: the run's copy of a job has all of them
		"base": t.Base != 0.5, "weight": t.Weight != 0.2, "tokens": t.Tokens != 20, "top": t.Top != 20 && t.Top != 0, "lagged": t.Lagged, "penalty": t.Penalty != 0, "depth": t.Depth != 0,
	}
	given := map[string]bool{"branches": t.Branches != 2}
	switch t.Rule {
	case "step_random":
		maps.Copy(given, entropy)
	case "token_nll":
		given = entropy
	default:
		given["nodes"], given["rounds"] = t.Nodes != 2, t.Rounds != 1
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if given[name] {
			fail("rollout.tree."+name, "the rule %s does not read it; leave it out", t.Rule)
		}
	}
}
