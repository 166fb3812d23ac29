package algorithms

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// readOptional fills in what the estimator needs of the fields that most algorithms do not read.
func (t *inspectTrajectory) readOptional(n Needs) error {
	err := decode("turn_rewards", t.TurnRewards, &t.record.TurnRewards) // part of what the trajectory was paid, for every estimator
	if n.Turns {
		err = errors.Join(t.readTurns(), err)
	}
	if n.Anchors && err == nil {
		err = t.readAnchors()
	}
	if n.Shared && err == nil {
		err = t.readLeaves()
	}
	if n.Greedy && err == nil {
		if err = decode("greedy_reward", t.GreedyReward, &t.record.Greedy); err == nil && t.record.Greedy == nil {
			err = missing("greedy_reward")
		}
	}
	if n.Values && err == nil {
		err = t.readValues()
	}
	return err
}

func missing(key string) error {
	return fmt.Errorf("the key %s is missing, but this algorithm needs it", key)
}

// decode reads a field; null or nothing leaves into as it is.
func decode(key string, raw json.RawMessage, into any) error {
	if len(raw) == 0 {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// perToken picks the entries on the mask of a list [T].
func perToken[E any](t *inspectTrajectory, key string, list []*E) ([]E, error) {
	if len(list) != len(t.ResponseMask) {
		return nil, fmt.Errorf("%s has %d values, response_mask %d", key, len(list), len(t.ResponseMask))
	}
	out := make([]E, len(t.on))
	for i, at := range t.on {
		if list[at] == nil {
			return nil, fmt.Errorf("%s[%d] is null on the response mask", key, at)
		}
		out[i] = *list[at]
	}
	return out, nil
}

// readTurns takes the turns as given, or each run of the mask for one.
func (t *inspectTrajectory) readTurns() error {
	var list []*int
	err := decode("turn", t.Turn, &list)
	if err != nil {
		return err
	}
	if list != nil {
		t.record.Turn, err = perToken(t, "turn", list)
		return err
	}
	turn := 0
	for i, at := range t.on {
		if i > 0 && t.on[i-1] != at-1 {
			turn++
		}
		t.record.Turn = append(t.record.Turn, turn)
	}
	return nil
}

func (t *inspectTrajectory) readAnchors() error {
	var list []json.RawMessage
	if err := decode("anchors", t.Anchors, &list); err != nil {
		return err
	}
	if list == nil {
		return missing("anchors")
	}
	for i, raw := range list {
		name, err := scalar("anchors["+fmt.Sprint(i)+"]", raw)
		if err != nil {
			return err
		}
		t.record.Anchors = append(t.record.Anchors, name)
	}
	return nil
}

// readLeaves names each token by the leaves through it: tokens of a group with the same leaves count as sampled once. null
// and a missing field stand for the trajectory's own leaf.
func (t *inspectTrajectory) readLeaves() error {
	var list []json.RawMessage
	if err := decode("leaf_of", t.LeafOf, &list); err != nil || list == nil {
		return err
	}
	if len(list) != len(t.ResponseMask) {
		return fmt.Errorf("leaf_of has %d values, response_mask %d", len(list), len(t.ResponseMask))
	}
	for _, at := range t.on {
		key := fmt.Sprintf("leaf_of[%d]", at)
		var leaves []json.RawMessage
		switch raw := bytes.TrimSpace(list[at]); {
		case string(raw) == "null":
			t.record.Shared = append(t.record.Shared, "")
			continue
		case raw[0] == '[':
			if err := decode(key, raw, &leaves); err != nil {
				return err
			}
		default:
			leaves = []json.RawMessage{raw}
		}
		var names []string
		for _, leaf := range leaves {
			name, err := scalar(key, leaf)
			if err != nil {
				return err
			}
			names = append(names, name)
		}
		slices.Sort(names)
		t.record.Shared = append(t.record.Shared, strings.Join(slices.Compact(names), " "))
	}
	return nil
}

// readValues reads [T], or [T+1] where the last entry is the value of the state after the last token. A truncated
// trajectory without one carries on the value at its last response token.
func (t *inspectTrajectory) readValues() error {
	var list []*float64
	truncated := false
	if err := errors.Join(decode("values", t.Values, &list), decode("truncated", t.Truncated, &truncated)); err != nil {
		return err
	}
	if list == nil {
		return missing("values")
	}
	n := len(t.ResponseMask)
	after, given := 0.0, len(list) == n+1
	if given {
		if list[n] == nil {
			return fmt.Errorf("values[%d], the value after the last token, is null", n)
		}
		after, list = *list[n], list[:n]
	}
	values, err := perToken(t, "values", list)
	if err != nil {
		return err
	}
	t.record.Values = values
	switch {
	case truncated && given:
		t.record.Bootstrap = after
	case truncated:
		t.record.Bootstrap = values[len(values)-1]
	}
	return nil
}

// scalar makes equal JSON scalars equal strings, as groupKey.
func scalar(key string, raw json.RawMessage) (string, error) {
	name, err := groupKey(bytes.TrimSpace(raw))
	if err != nil {
		return "", fmt.Errorf("%s is a list or an object; it must be a scalar", key)
	}
	return name, nil
}
