package rewards

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

type goldParams struct {
	Field string `json:"field"` // of the task that holds the right answer, or a list of right ones
}

var _ = declareReward("exact_match", newExactMatch, "1 when the answer equals a right one after SQuAD's normalisation; else 0")

// newExactMatch makes exact_match: 1 when the final answer is one of the right ones after normalisation, else 0. Normalisation is that of
// SQuAD (arXiv 1606.05250, evaluate-v1.1.py), which Search-R1 and AgentFly share: lower case, ASCII punctuation removed, the words a, an
// and the removed, white space collapsed. A right answer of nothing else ("A") keeps its articles, on both sides.
func newExactMatch(_ *Builder, params map[string]any) (Reward, error) {
	p := goldParams{Field: "answer"}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	return needsAnswers(p.Field, NewFunc("exact_match", func(_ context.Context, in Input) (float64, error) {
		golds, err := rightAnswers(in.Task, p.Field)
		if err != nil {
			return 0, err
		}
		answer, given := in.Trajectory.FinalAnswer()
		if given < 0 {
			return 0, nil
		}
		return bestMatch(answer, golds), nil
	})), nil
}

var _ = declareReward("f1", newF1, "largest F1 of the answer's normalised tokens with a right one")

// newF1 makes f1: the largest F1 of the final answer's tokens with those of a right answer, from 0 to 1. With precision p = common/given and
// recall r = common/right over normalised tokens, counted with repetition, F1 = 2pr/(p+r); 0 where they share none. As in HotpotQA (arXiv
// 1809.09600, hotpot_evaluate_v1.py), yes, no and noanswer earn nothing unless both are the same. The parts are those of the best
// right answer.
func newF1(_ *Builder, params map[string]any) (Reward, error) {
	p := goldParams{Field: "answer"}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	return needsAnswers(p.Field, NewFuncParts("f1", func(_ context.Context, in Input) (Score, error) {
		golds, err := rightAnswers(in.Task, p.Field)
		if err != nil {
			return Score{}, err
		}
		answer, given := in.Trajectory.FinalAnswer()
		if given < 0 {
			return Score{Parts: map[string]float64{"precision": 0, "recall": 0, "em": 0}}, nil
		}
		o := bestOverlap(answer, golds)
		return Score{o.f1, map[string]float64{"precision": o.precision, "recall": o.recall, "em": bestMatch(answer, golds)}}, nil
	})), nil
}

// rightAnswers reads a field that holds one right answer or a list of them.
func rightAnswers(task trajectory.Task, name string) ([]string, error) {
	list, ok := task.Fields[name].([]any)
	if !ok {
		one, err := field(task, name)
		return []string{one}, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("task %q: the field %q is an empty list; it must hold a right answer", task.ID, name)
	}
	out := make([]string, len(list))
	for i, v := range list {
		s, ok := scalar(v)
		if !ok {
			return nil, fmt.Errorf("task %q: %s[%d] must be a string or a number", task.ID, name, i)
		}
		out[i] = s
	}
	return out, nil
}

func bestMatch(answer string, golds []string) float64 {
	for _, gold := range golds {
		if a, g := normalizeBoth(answer, gold); a == g {
			return 1
		}
	}
	return 0
}

// tokenScore is what two texts share.
type tokenScore struct{ f1, precision, recall float64 }

func bestOverlap(answer string, golds []string) tokenScore {
	best := tokenScore{f1: -1}
	for _, gold := range golds {
		if o := tokenOverlap(answer, gold); o.f1 > best.f1 {
			best = o
		}
	}
	return best
}

func tokenOverlap(answer, gold string) tokenScore {
	a, g := normalizeBoth(answer, gold)
	if a == g {
		return tokenScore{1, 1, 1}
	}
	for _, s := range []string{a, g} {
		if s == "yes" || s == "no" || s == "noanswer" {
			return tokenScore{}
		}
	}
	given, right := strings.Fields(a), strings.Fields(g)
	count := map[string]int{}
	for _, w := range right {
		count[w]++
	}
	common := 0
	for _, w := range given {
		if count[w] > 0 {
			count[w]--
			common++
		}
	}
	if common == 0 {
		return tokenScore{}
	}
	p, r := float64(common)/float64(len(given)), float64(common)/float64(len(right))
	return tokenScore{2 * p * r / (p + r), p, r}
}

// normalizeBoth normalises an answer and a right one.
func normalizeBoth(answer, gold string) (a, g string) {
	if g = normalize(gold, true); g != "" {
		return normalize(answer, true), g
	}
	if g = normalize(gold, false); g != "" {
		return normalize(answer, false), g
	}
	return strings.TrimSpace(answer), strings.TrimSpace(gold) // punctuation alone
}

const punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"

// normalize is SQuAD's normalize_answer.
func normalize(s string, articles bool) string {
	s = strings.Map(func(r rune) rune {
		if r < 128 && strings.ContainsRune(punctuation, r) {
			return -1
		}
		return r
	}, strings.ToLower(s))
	if articles {
		s = withoutArticles(s)
	}
	return strings.Join(strings.FieldsFunc(s, space), " ")
}

// space is what Python's split takes for white space.
func space(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// withoutArticles replaces the words a, an and the by a space. A word is a run of letters, digits and _, in any script.
func withoutArticles(s string) string {
	var b strings.Builder
	start := -1
	flush := func(end int) {
		if start < 0 {
			return
		}
		switch w := s[start:end]; w {
		case "a", "an", "the":
			b.WriteByte(' ')
		default:
			b.WriteString(w)
		}
		start = -1
	}
	for i, r := range s {
		if unicode.IsLetter(r) || unicode.IsNumber(r) || r == '_' {
			if start < 0 {
				start = i
			}
			continue
		}
		flush(i)
		b.WriteRune(r)
	}
	flush(len(s))
	return b.String()
}
