package main

import "strconv"

// doorTask is one line of the tasks of examples/agents_action.yaml.
type doorTask struct {
	ID       string `json:"id"`
	Question string `json:"question"`
	Door     string `json:"door"` // the question again, for the reward
}

// agentsThings are the tasks of examples/agents_search_r1.yaml: what lookup of examples/agents/tools.py knows.
func agentsThings() []tinyTask {
	var out []tinyTask
	for i, thing := range []string{"wheels of a bicycle", "legs of a stool", "strings of a violin", "fingers of a hand"} {
		answer := strconv.Itoa(i + 2)
		out = append(out, tinyTask{ID: "thing-" + strconv.Itoa(i), Question: thing, Answer: answer, Steps: []string{answer}})
	}
	return out
}

func agentsDoors() []doorTask {
	var out []doorTask
	for i, colour := range []string{"red", "blue", "green", "white"} {
		out = append(out, doorTask{"door-" + strconv.Itoa(i), colour + " door", colour + " door"})
	}
	return out
}
