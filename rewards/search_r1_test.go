package rewards

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/trajectory"
)

func searched(completion, observation string) trajectory.Turn {
	return trajectory.Turn{Completion: completion, Results: []trajectory.ToolResult{{Call: trajectory.ToolCall{Name: "search"}, Observation: observation}}}
}

func searchFailed(completion, observation string) trajectory.Turn {
	turn := searched(completion, observation)
	turn.Results[0].Failed = true
	return turn
}

func inThought(turn trajectory.Turn) trajectory.Turn {
	turn.InThought = true
	return turn
}

// TestSearchR1 works through the branches of compute_score_em in Search-R1's qa_em_format.py, with structure 0.2, retrieval 0.1 and final
// 0.05, and through qa_em.py, which is all of them 0.
func TestSearchR1(t *testing.T) {
	form := made(t, "search_r1", map[string]any{"structure": 0.2, "retrieval": 0.1, "final": 0.05})
	plain := made(t, "search_r1", nil)
	ask := "<think>I need it.</think>\n<search>capital of France</search>"
	for name, c := range map[string]struct {
		turns       []trajectory.Turn
		form, plain float64
		parts       [3]float64 // em, form, retrieved
	}{
		"right, found":       {[]trajectory.Turn{searched(ask, "Paris is the capital."), {Completion: "<think>so</think><answer>paris</answer>"}}, 1, 1, [3]float64{1, 1, 1}},
		"right, out of form": {said("I say <answer>Paris</answer>"), 0.8, 1, [3]float64{1, 0, 0}},
		"right at once":      {said("<think>known</think> <answer> The Paris. </answer>"), 1, 1, [3]float64{1, 1, 0}},
		"wrong, found":       {[]trajectory.Turn{searched(ask, "The capital is Paris."), {Completion: "<think>so</think><answer>Lyon</answer>"}}, 0.3, 0, [3]float64{0, 1, 1}},
		"wrong, not found":   {[]trajectory.Turn{searched(ask, "No idea."), {Completion: "<think>so</think><answer>Lyon</answer>"}}, 0.2, 0, [3]float64{0, 1, 0}},
		"wrong, out of form": {said("<answer>Lyon</answer>"), 0.05, 0, [3]float64{0, 0, 0}},
		"no answer":          {said("<think>so</think>"), 0, 0, [3]float64{0, 0, 0}},
		"last answer counts": {said("<answer>Paris</answer> or <answer>Lyon</answer>"), 0.05, 0, [3]float64{0, 0, 0}},
		"empty answer":       {said("<think>a</think><answer></answer>"), 0.2, 0, [3]float64{0, 1, 0}},
		"nothing":            {nil, 0, 0, [3]float64{0, 0, 0}},
		"own information": { // what the policy writes itself is no retrieval
			said("<think>a</think><search>b</search><information>Paris</information><think>c</think><answer>Lyon</answer>"), 0.2, 0, [3]float64{0, 1, 0},
		},
		"an observation is no answer": {[]trajectory.Turn{searched(ask, "A game show: <answer>Paris</answer>"), {Completion: "<think>so</think>I do not know"}}, 0, 0, [3]float64{0, 0, 1}},
		"an error is no answer":       {[]trajectory.Turn{searchFailed(ask, "Error: no <answer>Paris</answer>"), {Completion: ask}}, 0, 0, [3]float64{0, 0, 0}},
		"found in a text on tags":     {[]trajectory.Turn{searched(ask, "Tags as <information> and </think> are known to Paris."), {Completion: "<think>so</think><answer>Paris</answer>"}}, 1, 1, [3]float64{1, 1, 1}},
		"thoughts of the prompts":     {[]trajectory.Turn{inThought(searched(strings.TrimPrefix(ask, "<think>"), "Paris")), inThought(trajectory.Turn{Completion: "so</think><answer>Paris</answer>"})}, 1, 1, [3]float64{1, 1, 1}},
		"text between":                {[]trajectory.Turn{searched(ask+" hm", "Paris"), {Completion: "<think>so</think><answer>Lyon</answer>"}}, 0.05, 0, [3]float64{0, 0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(map[string]any{"answer": []any{"Paris", "City of Paris"}}, c.turns...)
			s := scored(t, form, in)
			require.InDelta(t, c.form, s.Value, 1e-15)
			require.Equal(t, map[string]float64{"em": c.parts[0], "form": c.parts[1], "retrieved": c.parts[2]}, s.Parts)
			require.Equal(t, c.plain, scored(t, plain, in).Value)
		})
	}
}

func TestSearchForm(t *testing.T) {
	for text, want := range map[string]bool{
		"<think>a</think><answer>b</answer>": true,
		"<think>a</think><search>b</search><information>c</information><think>d</think><search>e</search><information>f</information><think>g</think><answer>h</answer>": true,
		"<think>a</think><search>b</search><information>c</information><answer>d</answer>":                                                                               false,
		"<think>a</think><search>b</search><think>c</think><answer>d</answer>":                                                                                           false,
		"<answer>b</answer>": false,
		"<think>a</think><answer>b</answer><think>c</think>": false,
		"<think>a</think><answer>b</answer> tail":            false,
		"<think>a<think></think><answer>b</answer>":          false,
		"head <think>a</think><answer>b</answer>":            false,
		"": false,
	} {
		require.Equal(t, want, searchForm(text), text)
	}
}

// TestAgentFlyRewards holds the rewards of AgentFly's qa_reward.py and math_reward.py by the cases that their docstrings name.
func TestAgentFlyRewards(t *testing.T) {
	tool := searched("<think>look</think> search", "Paris")
	answered := trajectory.Turn{Completion: "<answer>Paris</answer>", FinalAnswer: "Paris", AnsweredThisTurn: true}
	wrong := trajectory.Turn{Completion: "<answer>Paris France</answer>", FinalAnswer: "Paris France", AnsweredThisTurn: true}
	answerTool := searched("", "Paris")
	answerTool.Results[0].Call.Name = "answer_qa"
	fields := map[string]any{"answer": "Paris", "golden_answers": []any{"paris", "City of Paris"}, "answers": []any{"Lyon", "Paris"}, "answer_eval": []any{"Paris France"}}
	for name, want := range map[string][4]float64{ // right with a tool, right without, partly right with a tool, only the answering tool
		"qa_f1_reward":           {1, 1, 2.0 / 3, 1},
		"qa_f1_reward_tool":      {1, 0, 2.0 / 3, 0},
		"qa_em_reward":           {1, 1, 0, 1},
		"qa_em_format_reward":    {1, 0, 0.1, 0},
		"qa_em_reward_tool_call": {1, 1, 0, 1},
		"ok_vqa_reward":          {1, 1, 2.0 / 3, 1},
		"infoseek_reward":        {1, 0.8, 1, 0.8},
	} {
		r := made(t, name, nil)
		require.InDelta(t, want[0], scored(t, r, input(fields, tool, answered)).Value, 1e-15, name)
		require.InDelta(t, want[1], scored(t, r, input(fields, answered)).Value, 1e-15, name)
		require.InDelta(t, want[2], scored(t, r, input(fields, tool, wrong)).Value, 1e-15, name)
		require.InDelta(t, want[3], scored(t, r, input(fields, answerTool, answered)).Value, 1e-15, name)
	}
	s := scored(t, made(t, "qa_em_format_reward", nil), input(fields, searched("no thought", "x"), answered))
	require.Equal(t, Score{0, map[string]float64{"em": 1, "f1": 1, "fmt": 0, "fmt_think": 0, "fmt_tool": 1}}, s)

	sum := map[string]any{"answer": `\frac{1}{2}`}
	half := trajectory.Turn{Completion: `<think>so</think> \boxed{0.5}`, FinalAnswer: `\boxed{0.5}`, AnsweredThisTurn: true}
	third := trajectory.Turn{Completion: `<think>so</think> \boxed{1/3}`, FinalAnswer: `\boxed{1/3}`, AnsweredThisTurn: true}
	for name, want := range map[string][4]float64{ // right with a tool, right without, wrong with a tool, right with a tool but without thought
		"math_equal_reward":       {1, 1, 0, 1},
		"math_equal_reward_tool":  {1, 0, 0.1, 1},
		"math_equal_reward_think": {1, 0, 0.1, 0},
	} {
		r := made(t, name, nil)
		require.Equal(t, want[0], scored(t, r, input(sum, tool, half)).Value, name)
		require.Equal(t, want[1], scored(t, r, input(sum, half)).Value, name)
		require.Equal(t, want[2], scored(t, r, input(sum, tool, third)).Value, name)
		require.Equal(t, want[3], scored(t, r, input(sum, searched("x", "y"), half)).Value, name)
	}
	refused(t, "qa_f1_reward", map[string]any{"x": 1}, `rewards: qa_f1_reward: the parameters cannot be read: unknown field "x"; allowed: field`)
	r := made(t, "qa_em_reward", map[string]any{"field": "answer"})
	require.Equal(t, 1.0, scored(t, r, input(map[string]any{"answer": "Paris"}, said("so <answer>paris</answer>")...)).Value, "no final answer: the last completion")
}

// TestAToolThatDidNotRunIsNotUsed goes through the causes: a call is a use of its tool where the tool ran, also where it failed.
func TestAToolThatDidNotRunIsNotUsed(t *testing.T) {
	for _, cause := range trajectory.Causes() {
		asked := searchFailed("<think>look</think>", "Error: no")
		asked.Results[0].Cause = cause
		ran := 0.0
		if cause == trajectory.CauseRaised || cause == trajectory.CauseBroken {
			ran = 1
		}
		right, wrong := answer("Paris"), answer("London")
		fields := map[string]any{"answer": "Paris", "golden_answers": []any{"Paris"}}
		require.Equal(t, ran, scored(t, made(t, "qa_f1_reward_tool", nil), input(fields, asked, right)).Value, cause)
		require.Equal(t, 0.2*ran, scored(t, made(t, "infoseek_reward", nil), input(fields, asked, wrong)).Value, cause)
		require.Equal(t, ran, scored(t, made(t, "qa_em_format_reward", nil), input(fields, asked, right)).Parts["fmt_tool"], cause)
		require.Equal(t, 0.1*ran, scored(t, made(t, "math_equal_reward_tool", nil), input(map[string]any{"answer": "5"}, asked, answer("6"))).Value, cause)
	}
}

// TestExactMatchIsOfTheFinalAnswer: an <answer> in a thought is a draft, and of two the agent's format says which is the answer.
func TestExactMatchIsOfTheFinalAnswer(t *testing.T) {
	golds := map[string]any{"golden_answers": []any{"Paris"}}
	ends := func(completion, answer string) trajectory.Turn {
		return trajectory.Turn{Completion: completion, FinalAnswer: answer, AnsweredThisTurn: answer != ""}
	}
	tool := searched("<think>look</think>", "x")
	for name, c := range map[string]struct {
		turn     trajectory.Turn
		em, form float64
	}{
		"a right draft":               {ends("<think>Maybe <answer>Paris</answer>? No.</think>London", "London"), 0, 0},
		"a wrong draft":               {ends("<think>Maybe <answer>London</answer>? No.</think>Paris", "Paris"), 1, 0},
		"a draft and an answer":       {ends("<think>Maybe <answer>London</answer>?</think><answer>Paris</answer>", "Paris"), 1, 1},
		"of a thought of the prompt":  {inThought(ends("Maybe <answer>London</answer>?</think>Paris", "Paris")), 1, 0},
		"the first of two":            {ends("<think>x</think><answer>Paris</answer> or <answer>London</answer>", "Paris"), 1, 1},
		"tags in the answer":          {ends("Final Answer: <answer>Paris</answer>", "<answer>Paris</answer>"), 1, 1},
		"no answer but a draft":       {ends("<think>Maybe <answer>Paris</answer>", ""), 0, 0},
		"no answer":                   {ends("<think>Maybe.</think>Paris", ""), 0, 0},
		"the tag of a thought behind": {ends("<answer>Paris</answer> <think> no", "Paris"), 1, 1},
	} {
		require.Equal(t, c.em, scored(t, made(t, "qa_em_reward", nil), input(golds, tool, c.turn)).Value, name)
		s := scored(t, made(t, "qa_em_format_reward", nil), input(golds, tool, c.turn))
		require.Equal(t, c.em, s.Parts["em"], name)
		require.Equal(t, c.form, s.Parts["fmt"], name)
	}
}
