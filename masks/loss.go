package masks

import (
	"fmt"

	"github.com/agentfly/agentfly/trajectory"
)

// Filter clears entries of a loss mask [T-1]; entry i belongs to token i+1 of the sample. It must not set any.
type Filter func(s *trajectory.Sample, loss []bool)

// LossMask returns the loss mask of a sample, [T-1]: entry i tells whether token i+1, whose logprob is read from the logits
// at position i, is trained. It is the response mask without its first entry, after the filters. A sample of one token or
// none has an empty mask.
func LossMask(s *trajectory.Sample, filters ...Filter) ([]bool, error) {
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("masks: %w", err)
	}
	if s.Len() == 0 {
		return []bool{}, nil
	}
	loss := append([]bool{}, s.ResponseMask[1:]...)
	for n, filter := range filters {
		filter(s, loss)
		if err := CheckLossMask(s, loss); err != nil {
			return nil, fmt.Errorf("masks: filter %d: %w", n, err)
		}
	}
	return loss, nil
}

// CheckLossMask verifies that a loss mask has length T-1 and trains sampled tokens only.
func CheckLossMask(s *trajectory.Sample, loss []bool) error {
	if len(loss) != max(s.Len()-1, 0) {
		return fmt.Errorf("masks: the loss mask has %d entries for %d tokens; it has one for each token but the first", len(loss), s.Len())
	}
	for i, trained := range loss {
		if trained && !s.ResponseMask[i+1] {
			return fmt.Errorf("masks: entry %d of the loss mask trains token %d, which was not sampled", i, i+1)
		}
	}
	return nil
}

// Stale clears the tokens that a policy older than oldest sampled.
func Stale(oldest int32) Filter {
	return func(s *trajectory.Sample, loss []bool) {
		for i := range loss {
			loss[i] = loss[i] && s.PolicyVersion[i+1] >= oldest
		}
	}
}

// All clears everything: for samples of trajectories that are left out, such as those cut by a length limit.
func All() Filter {
	return func(_ *trajectory.Sample, loss []bool) { clear(loss) }
}

// Count is the number of trained tokens.
func Count(loss []bool) int {
	n := 0
	for _, trained := range loss {
		if trained {
			n++
		}
	}
	return n
}
