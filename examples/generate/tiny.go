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
