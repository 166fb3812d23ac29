package algorithms

import (
	"math"
)

// OverlongPart is the reward part that holds the penalty of overlong shaping.
const OverlongPart = "overlong"

// Overlong is DAPO's soft punishment of trajectories that come close to the token limit (arXiv 2503.14476, eq. 13).
type Overlong struct {
	Buffer int     `json:"buffer,omitempty" yaml:"buffer,omitempty" doc:"tokens before the limit in which the penalty grows; 0: off" range:"0 or more"`
	Factor float64 `json:"penalty,omitempty" yaml:"penalty,omitempty" doc:"what a trajectory at the limit loses" range:"above 0 with a buffer"`
}

// Penalty is what overlong shaping adds to the reward of a trajectory of tokens tokens where maxTokens is the limit:
// 0 up to maxTokens - buffer, then falling linearly to -factor at the limit, and -factor beyond it. It is 0 without a buffer.
// The caller counts both in the same way (response tokens against the response limit, or whole sequences).
func (o Overlong) Penalty(tokens, maxTokens int) float64 {
	over := tokens - (maxTokens - o.Buffer)
	if o.Buffer <= 0 || over <= 0 {
		return 0
	}
	return -o.Factor * min(1, float64(over)/float64(o.Buffer))
}

func (o Overlong) validate() error {
	switch {
	case o.Buffer < 0:
		return refuse("overlong.buffer", "overlong.buffer is %d; allowed is 0 (off) or more", o.Buffer)
	case !(o.Factor >= 0) || math.IsInf(o.Factor, 0):
		return refuse("overlong.penalty", "overlong.penalty is %v; allowed is 0 or more", o.Factor)
	case o.Buffer == 0 && o.Factor > 0:
		return refuse("overlong.penalty", "overlong.penalty is set, but overlong.buffer is 0, so it would never act; set the buffer or leave both out")
	case o.Buffer > 0 && o.Factor == 0:
		return refuse("overlong.buffer", "overlong.buffer is set, but overlong.penalty is 0, so it would do nothing; set the penalty or leave both out")
	}
	return nil
}

// Informative reports whether the rewards of a group's trajectories that count differ, so that an estimator with a group
// baseline has something to compare: the test of dynamic sampling (arXiv 2503.14476). A group of one, or of none, is not.
// Rewards that are the same sum added up in another order are equal: they differ by rounding, by less than 1e-12 of 1 or
// of the largest. NaN differs from everything.
func Informative(rewards []float64) bool {
	scale := scaleOf(rewards)
	for _, r := range rewards {
		if r != rewards[0] && !(math.Abs(r-rewards[0])/scale <= rounding) {
			return true
		}
	}
	return false
}

// rounding is by how much of their scale sums of rewards may differ that are the same but for the order of adding up.
const rounding = 1e-12

// scaleOf is 1, or the largest of the rewards where that is more.
func scaleOf(rewards []float64) float64 {
	scale := 1.0
	for _, r := range rewards {
		scale = max(scale, math.Abs(r))
	}
	return scale
}
