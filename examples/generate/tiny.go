package main

import "strconv"

// tinyTask is one line of the tiny data. Its prompt, its call and its answer are one token each in the vocabulary of
// examples/tiny/model.
type tinyTask struct {
	ID       string   `json:"id"`
	Question string   `json:"question"`
	Answer   string   `json:"answer"`
	Steps    []string `json:"steps"` // the answer counts only after the calculator returned this
}

// tinyData is every task that the tiny model has words for; it is evaluated on what it trains on.
func tinyData() []tinyTask {
	var out []tinyTask
	for i, sum := range [][2]int{{1, 1}, {1, 2}, {2, 2}, {2, 3}} {
		answer := strconv.Itoa(sum[0] + sum[1])
		out = append(out, tinyTask{
			ID:       "tiny-" + strconv.Itoa(i),
			Question: strconv.Itoa(sum[0]) + "+" + strconv.Itoa(sum[1]),
			Answer:   answer,
			Steps:    []string{answer},
		})
	}
	return out
}

// tinyConversations are right solutions of one task and of two tasks in a row. Four of the pairs are held out.
func tinyConversations() (learned, heldOut []worked) {
	solve := func(t tinyTask) []message {
		return conversation(t.Question, t.Answer, [2]string{t.Question, t.Steps[0]}).Messages
	}
	tasks := tinyData()
	for i, first := range tasks {
		learned = append(learned, worked{solve(first)})
		for k, second := range tasks {
			pair := worked{append(solve(first), solve(second)...)}
			if (i+1)%len(tasks) == k {
				heldOut = append(heldOut, pair)
			} else {
				learned = append(learned, pair)
			}
		}
	}
	return learned, heldOut
}

// tinyPrompt is one task of the tiny distillation.
type tinyPrompt struct {
	ID     string    `json:"id"`
	Prompt []message `json:"prompt"`
	Answer string    `json:"answer"`
	Steps  []string  `json:"steps"`
}

// tinyPrompts ask a question, alone or after another one was answered. Four of the pairs are held out.
func tinyPrompts() (learned, heldOut []tinyPrompt) {
	tasks := tinyData()
	for k, t := range tasks {
		ask := message{"user", t.Question}
		learned = append(learned, tinyPrompt{t.ID, []message{ask}, t.Answer, t.Steps})
		for i, before := range tasks {
			first := conversation(before.Question, before.Answer, [2]string{before.Question, before.Steps[0]}).Messages
			pair := tinyPrompt{before.ID + "-" + t.ID, append(first, ask), t.Answer, t.Steps}
			if (i+1)%len(tasks) == k {
				heldOut = append(heldOut, pair)
			} else {
				learned = append(learned, pair)
			}
		}
	}
	return learned, heldOut
}
