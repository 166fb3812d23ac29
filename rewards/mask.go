package rewards

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/trajectory"
)

type maskParams struct {
	Field string `json:"field"` // of the task that holds the list of masked texts, in the order of their marks; default answers
}

var _ = declareReward("mask_recall", newMaskRecall, "mean over the task's masks of how much of the masked text the answer gives back")

// newMaskRecall makes mask_recall: the mean over a task's masks of how much of the masked text the final answer gives back. The answer
// is "fill; fill; …", in the order of the marks, where an empty fill leaves its mask open, or "[2] fill; [1] fill", by their numbers.
//
// A mask scores the words that its fill shares with the masked text, divided by the number of words of the longer of the two: one wrong
// word costs as much as one missing word, so a fill of n words scores at most 1/n of a mask of one word and naming every entity of a
// corpus scores less than naming one. More fills than masks, a mask filled twice, or a number that no mask has: the whole answer is 0.
//
// Its part exact is the share of the masks that are filled word for word.
func newMaskRecall(_ *Builder, params map[string]any) (Reward, error) {
	p := maskParams{Field: "answers"}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	return needs(func(task trajectory.Task) error {
		_, err := maskedTexts(Input{Task: task}, p.Field)
		return err
	}, NewFuncParts("mask_recall", func(_ context.Context, in Input) (Score, error) {
		masks, err := maskedTexts(in, p.Field)
		if err != nil {
			return Score{}, err
		}
		out := Score{Parts: map[string]float64{"exact": 0}}
		share := 1 / float64(len(masks))
		answer, turn := in.Trajectory.FinalAnswer()
		if turn < 0 {
			return out, nil
		}
		fills, ok := fillsOf(answer, len(masks))
		if !ok {
			return out, nil
		}
		for i, m := range masks {
			s := overlap(words(fills[i]), m)
			if s == 1 && strings.Join(words(fills[i]), " ") == strings.Join(m, " ") {
				out.Parts["exact"] += share
			}
			out.Value += share * s
		}
		return out, nil
	})), nil
}

var _ = declareReward("mask_found", newMaskFound, "share of the task's masks whose text a successful call returned")

// newMaskFound makes mask_found: the share of a task's masks whose text some successful call returned. It says nothing about the final
// answer: give it a small weight beside mask_recall, as right_call has beside final_answer.
func newMaskFound(_ *Builder, params map[string]any) (Reward, error) {
	p := maskParams{Field: "answers"}
	if err := resources.Decode(params, &p); err != nil {
		return nil, err
	}
	return needs(func(task trajectory.Task) error {
		_, err := maskedTexts(Input{Task: task}, p.Field)
		return err
	}, NewFunc("mask_found", func(_ context.Context, in Input) (float64, error) {
		masks, err := maskedTexts(in, p.Field)
		if err != nil {
			return 0, err
		}
		found := 0
		for _, m := range masks {
			if shown(in, m) {
				found++
			}
		}
		return float64(found) / float64(len(masks)), nil
	})), nil
}

// maskedTexts are the words of each masked text of the task.
func maskedTexts(in Input, field string) ([][]string, error) {
	list, ok := in.Task.Fields[field].([]any)
	if !ok || len(list) == 0 {
		return nil, fmt.Errorf("task %q: the field %q must be a list of masked texts that is not empty", in.Task.ID, field)
	}
	out := make([][]string, len(list))
	for i, v := range list {
		s, ok := scalar(v)
		if ok {
			out[i] = words(s)
		}
		if len(out[i]) == 0 || strings.Contains(s, ";") {
			return nil, fmt.Errorf("task %q: %s[%d] must be a text with a letter or a digit and without a semicolon", in.Task.ID, field, i)
		}
	}
	return out, nil
}

// shown reports whether a successful call returned the words, side by side.
func shown(in Input, want []string) bool {
	needle := " " + strings.Join(want, " ") + " "
	for _, t := range in.Trajectory.Turns {
		for _, r := range t.Results {
			if found(r) && strings.Contains(" "+strings.Join(words(r.Observation), " ")+" ", needle) {
				return true
			}
		}
	}
	return false
}

var fillNumber = regexp.MustCompile(`^\[(\d{1,6})\]\s*:?`)

// fillsOf splits an answer into the fills of n masks. Not ok: it names more than one candidate for a mask.
func fillsOf(answer string, n int) (fills []string, ok bool) {
	var parts []string
	for part := range strings.SplitSeq(strings.TrimRight(answer, "; \t\r\n"), ";") {
		lines := slices.DeleteFunc(strings.Split(part, "\n"), func(line string) bool { return strings.TrimSpace(line) == "" })
		if len(lines) == 0 { // the mask is left open
			lines = []string{""}
		}
		parts = append(parts, lines...)
	}
	if len(parts) > n {
		return nil, false
	}
	fills, taken := make([]string, n), make([]bool, n)
	for i, part := range parts {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		at := i
		if m := fillNumber.FindStringSubmatch(part); m != nil {
			number, err := strconv.Atoi(m[1])
			if err != nil || number < 1 || number > n {
				return nil, false
			}
			at, part = number-1, part[len(m[0]):]
		}
		if taken[at] {
			return nil, false
		}
		fills[at], taken[at] = part, true
	}
	return fills, true
}

// words are the runs of letters and digits of a text, in lower case.
func words(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) })
}

// overlap is the number of words that both have, each as often as it occurs in both, divided by the number of words of the longer.
func overlap(got, want []string) float64 {
	left := map[string]int{}
	for _, w := range want {
		left[w]++
	}
	both := 0
	for _, w := range got {
		if left[w] > 0 {
			left[w]--
			both++
		}
	}
	return float64(both) / float64(max(len(got), len(want), 1))
}
