package trainer

import (
	"fmt"

	"github.com/agentfly/agentfly/cgo"
)

// LogprobsOf returns the log-probability of each token but the first given those before it, and the entropy of the
// distribution that it was drawn from, both [T-1], from the trainer's forward at a temperature. It is what
// `inspect score` prints. ids are [T], T >= 2.
func LogprobsOf(m *cgo.Model, ids []int32, temperature float64) (logprobs, entropy []float32, err error) {
	if len(ids) < 2 {
		return nil, nil, fmt.Errorf("trainer: logprobs: %d ids; a logprob needs a token and one before it", len(ids))
	}
	b := cgo.Batch{Tokens: ids, SegmentStart: []int32{0}, SegmentLength: []int32{int32(len(ids))}, SegmentParent: []int32{-1}, RowTarget: ids[1:], Temperature: temperature}
	for i := range ids {
		b.Positions = append(b.Positions, int32(i))
	}
	b.RowToken = b.Positions[:len(ids)-1]
	logprobs, entropy, err = m.Logprobs(&b)
	if err != nil {
		return nil, nil, fmt.Errorf("trainer: logprobs: %w", err)
	}
	return logprobs, entropy, nil
}
