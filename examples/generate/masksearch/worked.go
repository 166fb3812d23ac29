package main

import (
	"fmt"
	"strings"
)

// message is OpenAI's form, without the escapes that trajectory.Message would write for < and >.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// worked is one line of worked.jsonl: a conversation that precedes the question of every task.
type worked struct {
	Messages []message `json:"messages"`
}

// workedPassage is a passage that no task uses, with what is masked in it and searched for.
type workedPassage struct {
	id      string
	answers []string
	query   string
}

// workedPassages are one of each kind; the order matters little to a small model beside the shape of the queries.
var workedPassages = []workedPassage{
	{"n08773047", []string{"Barbados"}, "easternmost of the West Indies"},
	{"n08730969", []string{"Argentina", "1613"}, "Cordoba city in central"},
	{"n06984971", []string{"Kashmir"}, "Dard group of Indic languages"},
	{"n03288884", []string{"1931"}, "Empire State Building skyscraper"},
}

// worked writes the conversations.
func (c *corpus) worked() ([]worked, error) {
	var out []worked
	for _, w := range workedPassages {
		p, err := c.passage(w.id)
		if err != nil {
			return nil, err
		}
		question := p.Text
		for i, a := range w.answers {
			before, after, found := strings.Cut(question, a)
			if !found {
				return nil, fmt.Errorf("generate: worked example %s: %q does not hold %q", w.id, p.Text, a)
			}
			question = before + mark(i) + after
		}
		out = append(out, worked{[]message{
			{"user", question},
			{"assistant", "<search>" + w.query + "</search>"},
			{"user", "<result>Doc 1 " + p.Text + "</result>"},
			{"assistant", "<answer>" + strings.Join(w.answers, "; ") + "</answer>"},
		}})
	}
	return out, nil
}

func (c *corpus) passage(id string) (passage, error) {
	for _, p := range c.passages {
		if p.ID == id {
			return p, nil
		}
	}
	return passage{}, fmt.Errorf("generate: there is no passage %s", id)
}
