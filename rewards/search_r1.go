package rewards

import (
	"context"
	"regexp"
	"strings"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

type searchR1Params struct {
	Field       string  `json:"field"`     // of the task that holds the right answer, or a list of right ones; default answer
	Structure   float64 `json:"structure"` // λ_f: of the whole text's form
	Retrieval   float64 `json:"retrieval"` // of having found a right answer
	FinalFormat float64 `json:"final"`     // of a wrong answer in <answer> where the form is wrong
}

var _ = declareReward("search_r1", newSearchR1, "Search-R1's exact match with shares for form and retrieval")

// newSearchR1 makes search_r1: the rewards of Search-R1's public code (verl/utils/reward_score/qa_em.py and qa_em_format.py; arXiv
// 2503.09516 and 2505.15117). The answer is what the last <answer>…</answer> of the completions holds; EM is exact_match's. With
// s = structure, r = retrieval, f = final, all 0 by default, which is plain EM:
//
//	                              form right                             form wrong
//	answer right                  1                                      1 − s
//	answer wrong                  s, and r more if it was retrieved      f
//	no answer                     s, and r more if it was retrieved      0
//
// The form is right when the text of all turns is <think>…</think>, then <search>…</search><information>…</information><think>…</think> any
// number of times, then <answer>…</answer>, with nothing but white space between; an observation is one <information>…</information>,
// whatever it holds. It was retrieved when an observation holds a right answer, both normalised. The public code's training of the second paper has s 0.2, f 0.1.
func newSearchR1(_ *Builder, params map[string]any) (Reward, error) {
	p := searchR1Params{Field: "answer"}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	return needsAnswers(p.Field, NewFuncParts("search_r1", func(_ context.Context, in Input) (Score, error) {
		golds, err := rightAnswers(in.Task, p.Field)
		if err != nil {
			return Score{}, err
		}
		text := searchText(in.Trajectory)
		answer, answered := lastTag(text, "answer")
		answered = answered && !in.Trajectory.Cut()
		right := answered && bestMatch(answer, golds) == 1
		form, found := searchForm(text), retrieved(in.Trajectory, golds)
		value := 0.0
		switch {
		case right && form:
			value = 1
		case right:
			value = 1 - p.Structure
		case form && found:
			value = p.Structure + p.Retrieval
		case form:
			value = p.Structure
		case answered:
			value = p.FinalFormat
		}
		return Score{value, map[string]float64{"em": truth(right), "form": truth(form), "retrieved": truth(found)}}, nil
	})), nil
}

// searchText is the text of all turns as the form and the answer are read from it, with <information></information> for each observation: the
// tags in what a tool returned are not the policy's.
func searchText(t *trajectory.Trajectory) string {
	var b strings.Builder
	for _, turn := range t.Own() {
		b.WriteString(turn.Said())
		b.WriteString(strings.Repeat("<information></information>", len(turn.Results)))
	}
	return b.String()
}

// lastTag is what the last <tag>…</tag> of a text holds.
func lastTag(text, tag string) (string, bool) {
	found := false
	inner := ""
	for {
		_, rest, opened := strings.Cut(text, "<"+tag+">")
		content, after, closed := strings.Cut(rest, "</"+tag+">")
		if !opened || !closed {
			return strings.TrimSpace(inner), found
		}
		inner, found, text = content, true, after
	}
}

// retrieved tells whether an observation holds a right answer.
func retrieved(t *trajectory.Trajectory, golds []string) bool {
	for _, turn := range t.Turns {
		for _, r := range turn.Results {
			for _, gold := range golds {
				if o, g := normalizeBoth(r.Observation, gold); found(r) && g != "" && strings.Contains(o, g) {
					return true
				}
			}
		}
	}
	return false
}

var searchTag = regexp.MustCompile(`</?(?:think|search|information|answer)>`)

// searchNext says which tags may follow a state; text may stand only within tags.
var searchNext = map[string]map[string]string{
	"":             {"<think>": "think"},
	"information/": {"<think>": "think"},
	"think":        {"</think>": "think/"},
	"think/":       {"<search>": "search", "<answer>": "answer"},
	"search":       {"</search>": "search/"},
	"search/":      {"<information>": "information"},
	"information":  {"</information>": "information/"},
	"answer":       {"</answer>": "answer/"},
}

// searchForm tells whether a text has the form of newSearchR1.
func searchForm(text string) bool {
	state, from := "", 0
	for _, at := range searchTag.FindAllStringIndex(text, -1) {
		within := state != "" && !strings.HasSuffix(state, "/")
		if !within && strings.TrimSpace(text[from:at[0]]) != "" {
			return false
		}
		next, ok := searchNext[state][text[at[0]:at[1]]]
		if !ok {
			return false
		}
		state, from = next, at[1]
	}
	return state == "answer/" && strings.TrimSpace(text[from:]) == ""
}
