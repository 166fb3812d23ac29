package trainer

import (
	"context"
	"fmt"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/trajectory"
)

// ResponseLogprobs returns a model's logprobs of the samples' response tokens, [sample][T] and 0 off the mask. It runs on the
// calling goroutine, which must be the model's worker.
func ResponseLogprobs(ctx context.Context, m *cgo.Model, samples []*trajectory.Sample, o PackOptions) ([][]float32, error) {
	items, out := make([]PackItem, len(samples)), make([][]float32, len(samples))
	for i, s := range samples {
		if err := textOnly(s); err != nil {
			return nil, fmt.Errorf("trainer: logprobs: sample %d: %w", i, err)
		}
		items[i], out[i] = PackItem{Sample: s, Group: i, Name: fmt.Sprint(i)}, make([]float32, s.Len())
	}
	batches, err := Pack(items, o)
	if err != nil {
		return nil, err
	}
	for i := range batches {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		logprobs, _, err := m.Logprobs(&batches[i].Batch)
		if err != nil {
			return nil, fmt.Errorf("trainer: logprobs: %w", err)
		}
		for j, row := range batches[i].Rows {
			out[row.Item][row.Token] = logprobs[j]
		}
	}
	return out, nil
}
