package algorithms

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/agentfly/agentfly/cgo"
)

// inspectLine is one input line of `inspect loss`.
type inspectLine struct {
	Algorithm    json.RawMessage     `json:"algorithm"`
	Trajectories []inspectTrajectory `json:"trajectories"`
}

// inspectTrajectory holds parallel lists [T]; off the mask a value may be null. The raw fields are read only where the
// algorithm needs them.
type inspectTrajectory struct {
	Group        json.RawMessage `json:"group"`
	Reward       *float64        `json:"reward"`
	ResponseMask []json.Number   `json:"response_mask"`
	Old          []*float64      `json:"old"`
	Current      []*float64      `json:"current"`
	Sampling     []*float64      `json:"sampling"`
	Reference    []*float64      `json:"reference"`
	Values       json.RawMessage `json:"values"`        // [T], or [T+1] with the value after the last token
	Turn         json.RawMessage `json:"turn"`          // [T] index of the token's turn; absent: each run of the mask is a turn
	TurnRewards  json.RawMessage `json:"turn_rewards"`  // [K] a number, or null for none
	Anchors      json.RawMessage `json:"anchors"`       // [K] scalars
	LeafOf       json.RawMessage `json:"leaf_of"`       // [T] the leaves through the token: a list of them, or one name
	GreedyReward json.RawMessage `json:"greedy_reward"` // a number
	Truncated    json.RawMessage `json:"truncated"`     // true or false

	on     []int  // masked-in positions
	record Record // what the estimator sees
}

// inspectResult is one output line. Loss and GradCurrent are null when no trajectory has current logprobs.
type inspectResult struct {
	Advantages  [][]float64 `json:"advantages"`
	Loss        *float64    `json:"loss"`
	GradCurrent [][]float64 `json:"grad_current"`
}

// InspectLoss answers each JSON line of in, {"algorithm": {…}, "trajectories": […]}, with one line on out:
// {"advantages": [[…]], "loss": x, "grad_current": [[…]]}, or {"error": "…"}. All trajectories of a line are one
// mini-batch, and each is one whole trajectory. The loss is the policy's with KL; a critic's own loss is not in it, because
// a line has the values before the update only. It runs the losses that training runs. Blank lines are skipped. The error
// says how many lines failed and why the first did.
func InspectLoss(ctx context.Context, in io.Reader, out io.Writer, r *Registry) error {
	w := cgo.NewWorker()
	defer w.Close()
	reader, encoder := bufio.NewReader(in), json.NewEncoder(out)
	var first error
	lines, failed := 0, 0
	for number := 1; ; number++ {
		line, end := reader.ReadBytes('\n')
		if end != nil && !errors.Is(end, io.EOF) {
			return fmt.Errorf("algorithms: inspect loss: %w", end)
		}
		if len(bytes.TrimSpace(line)) > 0 {
			lines++
			result, err := inspect(ctx, line, w, r)
			if err == nil {
				err = encoder.Encode(result) // fails before it writes if a number is not finite
			}
			if err != nil {
				failed++
				if first == nil {
					first = fmt.Errorf("line %d: %w", number, err)
				}
				if err := encoder.Encode(map[string]string{"error": err.Error()}); err != nil {
					return fmt.Errorf("algorithms: inspect loss: %w", err)
				}
			}
		}
		if end != nil {
			break
		}
	}
	if first != nil {
		return fmt.Errorf("algorithms: inspect loss: %d of %d lines failed; %w", failed, lines, first)
	}
	return nil
}

func inspect(ctx context.Context, line []byte, w *cgo.Worker, r *Registry) (*inspectResult, error) {
	var in inspectLine
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value on the line")
	}
	if len(in.Algorithm) == 0 {
		return nil, errors.New("the key algorithm is missing")
	}
	config, err := ParseJSON(in.Algorithm)
	if err != nil {
		return nil, err
	}
	a, err := config.Resolve(r)
	if err != nil {
		return nil, err
	}
	if a.Entropy > 0 {
		return nil, errors.New("entropy: the bonus is no function of the logprobs of a line; set it to 0")
	}
	hasLogprobs := false
	for i := range in.Trajectories {
		hasLogprobs = hasLogprobs || in.Trajectories[i].Current != nil
	}
	for i := range in.Trajectories {
		if err := in.Trajectories[i].check(a, hasLogprobs); err != nil {
			return nil, fmt.Errorf("trajectory %d: %w", i, err)
		}
	}
	out := &inspectResult{Advantages: [][]float64{}}
	perToken, err := in.advantages(a)
	if err != nil {
		return nil, err
	}
	for i, t := range in.Trajectories {
		out.Advantages = append(out.Advantages, t.scatter(perToken[i]))
	}
	if !hasLogprobs {
		return out, nil
	}
	return out, in.loss(ctx, a, w, perToken, out)
}

// check verifies lengths, masks and values, and finds the positions on the mask.
func (t *inspectTrajectory) check(a *Algorithm, hasLogprobs bool) error {
	if t.ResponseMask == nil {
		return errors.New("the key response_mask is missing")
	}
	for i, m := range t.ResponseMask {
		switch m {
		case "1":
			t.on = append(t.on, i)
		case "0":
		default:
			return fmt.Errorf("response_mask[%d] is %q; masks are 0 or 1", i, m.String())
		}
	}
	if t.Reward == nil {
		return errors.New("the key reward is missing")
	}
	if key, err := groupKey(t.Group); err != nil {
		return err
	} else if key == "" {
		return errors.New("the key group is missing")
	}
	klReward := a.KL.inReward()
	needsOld := klReward || hasLogprobs && (a.Correction.Active() || !a.Loss.IgnoresOld && a.Correction.Kind != CorrectionBypass)
	for _, f := range []struct {
		name   string
		values []*float64
		needed bool
	}{
		{"current", t.Current, hasLogprobs},
		{"old", t.Old, needsOld},
		{"sampling", t.Sampling, hasLogprobs && (a.Correction.Kind != CorrectionNone || a.Loss.UsesSampling)},
		{"reference", t.Reference, a.KL.Coefficient > 0 && (hasLogprobs || klReward)},
	} {
		if f.values == nil {
			if f.needed && len(t.on) > 0 {
				return fmt.Errorf("the key %s is missing, but this algorithm needs it", f.name)
			}
			continue
		}
		if len(f.values) != len(t.ResponseMask) {
			return fmt.Errorf("%s has %d values, response_mask %d", f.name, len(f.values), len(t.ResponseMask))
		}
		for _, i := range t.on {
			if f.values[i] == nil {
				return fmt.Errorf("%s[%d] is null on the response mask", f.name, i)
			}
			if *f.values[i] > 0 {
				return fmt.Errorf("%s[%d] is %v; a log-probability is at most 0", f.name, i, *f.values[i])
			}
		}
	}
	t.record = Record{Reward: *t.Reward, Tokens: len(t.on), Old: t.pick(t.Old), Reference: t.pick(t.Reference)}
	if len(t.on) == 0 {
		return nil
	}
	return t.readOptional(a.Estimator.Needs)
}

// groupKey makes equal JSON scalars equal: 1 and 1.0 are one group, 1 and "1" are two.
func groupKey(raw json.RawMessage) (string, error) {
	if len(raw) == 0 {
		return "", nil
	}
	switch raw[0] {
	case '{', '[':
		return "", errors.New("group is a list or an object; it must be a scalar")
	case '"':
		var s string
		err := json.Unmarshal(raw, &s)
		return strconv.Quote(s), err
	}
	if f, err := strconv.ParseFloat(string(raw), 64); err == nil && math.Abs(f) < 1<<53 {
		return strconv.FormatFloat(f, 'g', -1, 64), nil
	}
	return string(raw), nil
}

// pick returns the values on the mask; zeros where the field is missing, which check allows only where nothing reads it.
func (t *inspectTrajectory) pick(values []*float64) []float64 {
	out := make([]float64, len(t.on))
	for i, at := range t.on {
		if values != nil {
			out[i] = *values[at]
		}
	}
	return out
}

// scatter puts values of masked-in positions back in place, 0 elsewhere.
func (t *inspectTrajectory) scatter(values []float64) []float64 {
	out := make([]float64, len(t.ResponseMask))
	for i, v := range values {
		out[t.on[i]] = v
	}
	return out
}

// advantages returns A [trajectory][L].
func (in *inspectLine) advantages(a *Algorithm) ([][]float64, error) {
	var groups []Group
	index := map[string]int{}
	place := make([][2]int, len(in.Trajectories))
	for i := range in.Trajectories {
		t := &in.Trajectories[i]
		key, err := groupKey(t.Group)
		if err != nil {
			return nil, err
		}
		g, seen := index[key]
		if !seen {
			g = len(groups)
			index[key] = g
			groups = append(groups, nil)
		}
		place[i] = [2]int{g, len(groups[g])}
		groups[g] = append(groups[g], t.record)
	}
	values, err := a.Advantages(groups)
	if err != nil {
		return nil, err
	}
	out := make([][]float64, len(in.Trajectories))
	for i, p := range place {
		out[i] = values[p[0]][p[1]]
	}
	return out, nil
}

// loss fills in the loss and its gradient.
func (in *inspectLine) loss(ctx context.Context, a *Algorithm, w *cgo.Worker, advantages [][]float64, out *inspectResult) error {
	tokens := make([]int, len(in.Trajectories))
	for i, t := range in.Trajectories {
		tokens[i] = len(t.on)
	}
	weights, err := a.Aggregation.TokenWeights(tokens)
	if err != nil {
		return err
	}
	var current []float64
	var rows Rows
	for i := range in.Trajectories {
		t := &in.Trajectories[i]
		current = append(current, t.pick(t.Current)...)
		rows.Old = append(rows.Old, t.pick(t.Old)...)
		rows.Sampling = append(rows.Sampling, t.pick(t.Sampling)...)
		rows.Reference = append(rows.Reference, t.pick(t.Reference)...)
		rows.Advantage = append(rows.Advantage, advantages[i]...)
		base := t.pick(t.Old)
		if a.Correction.Active() {
			rows.Correction = append(rows.Correction, a.Correction.Weights(base, t.pick(t.Sampling))...)
		}
		if a.Correction.Kind == CorrectionBypass {
			base = t.pick(t.Sampling)
		}
		ratio := SequenceRatio(t.pick(t.Current), base)
		for range t.on {
			rows.Sequence = append(rows.Sequence, ratio)
		}
		for range t.on {
			rows.Weight = append(rows.Weight, weights[i])
		}
	}
	value, gradient := 0.0, []float64{}
	if len(current) > 0 {
		loss, err := a.Loss.NewLoss()
		if err != nil {
			return err
		}
		policy := a.withoutCritic()
		if err := w.Do(ctx, func() (err error) { value, gradient, err = policy.Evaluate(loss, current, rows); return err }); err != nil {
			return in.blame(err)
		}
	}
	out.Loss, out.GradCurrent = &value, [][]float64{}
	for _, t := range in.Trajectories {
		out.GradCurrent = append(out.GradCurrent, t.scatter(gradient[:len(t.on)]))
		gradient = gradient[len(t.on):]
	}
	return nil
}

// blame says which trajectory and position a row is.
func (in *inspectLine) blame(err error) error {
	var row *RowError
	if !errors.As(err, &row) {
		return err
	}
	n := row.Row
	for i, t := range in.Trajectories {
		if n < len(t.on) {
			return fmt.Errorf("trajectory %d: the loss at position %d is %v", i, t.on[n], row.Value)
		}
		n -= len(t.on)
	}
	return err
}
