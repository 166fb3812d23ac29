package rewards

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

type patternParams struct {
	Pattern string `json:"pattern"` // a regular expression (RE2); (?s) lets . match new lines
	In      string `json:"in"`      // answer, or completion (the last turn's, the default), or every (turn)
}

var _ = declareReward("pattern", newPattern, "1 when a regular expression matches the whole text; else 0")

// newPattern makes pattern: 1 when a regular expression matches the whole text, white space around it aside, else 0. In every turn: the
// share of turns that match. A completion has the <think> in front with which its prompt opened a thought.
func newPattern(_ *Builder, params map[string]any) (Reward, error) {
	p := patternParams{In: "completion"}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	if p.Pattern == "" {
		return nil, errors.New("the parameter pattern is missing: a regular expression")
	}
	_, err := regexp.Compile(p.Pattern) // alone: within the other one a)|(b would be an expression that matches at one end
	re, whole := regexp.Compile(`^(?:` + p.Pattern + `)$`)
	if err = cmp.Or(err, whole); err != nil {
		return nil, fmt.Errorf("the parameter pattern: %w", err)
	}
	if !slices.Contains([]string{"answer", "completion", "every"}, p.In) {
		return nil, fmt.Errorf("the parameter in is %q; allowed: answer, completion, every", p.In)
	}
	return NewFunc("pattern", func(_ context.Context, in Input) (float64, error) {
		return share(texts(in.Trajectory, p.In), func(s string) bool { return re.MatchString(strings.TrimSpace(s)) }), nil
	}), nil
}

// texts are what a trajectory's reward looks at.
func texts(t *trajectory.Trajectory, in string) []string {
	if in == "answer" {
		if answer, turn := t.FinalAnswer(); turn >= 0 {
			return []string{answer}
		}
		return nil
	}
	var out []string
	for _, turn := range t.Own() {
		out = append(out, turn.Said())
	}
	if in == "completion" && len(out) > 0 {
		return out[len(out)-1:]
	}
	return out
}

// share is that of the texts which fulfil a condition; none is 0.
func share(all []string, is func(string) bool) float64 {
	n := 0
	for _, s := range all {
		if is(s) {
			n++
		}
	}
	if len(all) == 0 {
		return 0
	}
	return float64(n) / float64(len(all))
}

type tagsParams struct {
	Tags  []string `json:"tags"`  // in their order; default think, answer
	In    string   `json:"in"`    // completion (the last turn's, the default), or every (turn)
	Loose bool     `json:"loose"` // text may stand outside of the tags
}

var tagPattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)

var _ = declareReward("tags", newTags, "1 when a completion is made of the given tags, each once and in order; else 0")

// newTags makes tags: 1 when a completion is <a>…</a><b>…</b> and so on, each tag exactly once, in order, not nested, and nothing but white
// space outside, else 0. A <think> with which the prompt opened the thought counts as the completion's. This is the format reward of DeepSeek-R1 (arXiv 2501.12948, section 2.2.2). In every turn: the share of the
// turns.
func newTags(_ *Builder, params map[string]any) (Reward, error) {
	p := tagsParams{Tags: []string{"think", "answer"}, In: "completion"}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	if len(p.Tags) == 0 {
		return nil, errors.New("the parameter tags is an empty list; name at least one tag")
	}
	for i, tag := range p.Tags {
		if !tagPattern.MatchString(tag) || slices.Contains(p.Tags[:i], tag) {
			return nil, fmt.Errorf("the parameter tags: %q is no name of a tag, or given twice", tag)
		}
	}
	if p.In != "completion" && p.In != "every" {
		return nil, fmt.Errorf("the parameter in is %q; allowed: completion, every", p.In)
	}
	return NewFunc("tags", func(_ context.Context, in Input) (float64, error) {
		return share(texts(in.Trajectory, p.In), func(s string) bool { return tagged(s, p.Tags, p.Loose) }), nil
	}), nil
}

func tagged(s string, tags []string, loose bool) bool {
	for _, tag := range tags {
		if strings.Count(s, "<"+tag+">") != 1 || strings.Count(s, "</"+tag+">") != 1 {
			return false
		}
	}
	for _, tag := range tags {
		before, rest, found := strings.Cut(s, "<"+tag+">")
		inner, after, closed := strings.Cut(rest, "</"+tag+">")
		if !found || !closed || !loose && strings.TrimSpace(before) != "" {
			return false
		}
		for _, other := range tags {
			if strings.Contains(inner, "<"+other+">") || strings.Contains(inner, "</"+other+">") {
				return false
			}
		}
		s = after
	}
	return loose || strings.TrimSpace(s) == ""
}
