package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/agentfly/agentfly/resources"
	"github.com/agentfly/agentfly/rewards"
	"github.com/agentfly/agentfly/trajectory"
)

// chance writes what answers that never look at the question score on the evaluation: the most frequent masked text of training, and the
// best of all texts that are masked anywhere, which only somebody who knows the evaluation could choose.
func chance(ctx context.Context, train, held []byte, out io.Writer) (err error) {
	learned, err := parseTasks(train)
	if err != nil {
		return err
	}
	evaluation, err := parseTasks(held)
	if err != nil {
		return err
	}
	res := resources.New(resources.Options{})
	defer func() { err = errors.Join(err, res.Close()) }()
	reward, err := rewards.Prebuilt().Builder(ctx, res).Make("mask_recall", nil)
	if err != nil {
		return err
	}
	count, frequent := map[string]int{}, ""
	texts := map[string]bool{}
	for i, t := range slices.Concat(learned, evaluation) {
		for _, a := range t.Answers {
			texts[a] = true
			if i >= len(learned) {
				continue
			}
			if count[a]++; count[a] > count[frequent] || count[a] == count[frequent] && a < frequent {
				frequent = a
			}
		}
	}
	var best string
	var most, usual float64
	for _, a := range slices.Sorted(maps.Keys(texts)) {
		v, err := constant(ctx, reward, evaluation, a)
		if err != nil {
			return err
		}
		if a == frequent {
			usual = v
		}
		if v > most {
			best, most = a, v
		}
	}
	_, err = fmt.Fprintf(out, "chance on %d held-out tasks: %.4f for the text that training masks most (%s), %.4f for the best single answer of all (%s)\n", len(evaluation), usual, frequent, most, best)
	return err
}

// constant is the mean reward of one answer to every task.
func constant(ctx context.Context, reward rewards.Reward, tasks []task, answer string) (float64, error) {
	sum := 0.0
	for _, t := range tasks {
		masked := make([]any, len(t.Answers))
		for i, a := range t.Answers {
			masked[i] = a
		}
		s, err := reward.Score(ctx, rewards.Input{
			Task:       trajectory.Task{ID: t.ID, Fields: map[string]any{"answers": masked}},
			Trajectory: &trajectory.Trajectory{Turns: []trajectory.Turn{{FinalAnswer: answer, AnsweredThisTurn: true}}},
		})
		if err != nil {
			return 0, err
		}
		sum += s.Value
	}
	return sum / float64(len(tasks)), nil
}

func parseTasks(lines []byte) ([]task, error) {
	var out []task
	for line := range bytes.Lines(lines) {
		var t task
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&t); err != nil {
			return nil, fmt.Errorf("generate: line %d: %w", len(out)+1, err)
		}
		out = append(out, t)
	}
	return out, nil
}
