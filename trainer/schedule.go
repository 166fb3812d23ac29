package trainer

import (
	"fmt"
	"math"
)

// Schedule gives the learning rate over a run, in places for optimizer steps: each step of the run has as many as it could
// take, whether it takes them or not (a batch without advantages takes none). The zero Kind is constant.
type Schedule struct {
	LearningRate float64 // peak, > 0
	Kind         string  // constant, cosine or linear
	Warmup       int     // places over which the rate rises linearly to its peak, >= 0
	Total        int     // places after which cosine and linear have reached the final rate; unused for constant
	FinalRatio   float64 // final rate over peak, [0, 1]; unused for constant
}

func (s Schedule) validate() error {
	switch {
	case !(s.LearningRate > 0) || math.IsInf(s.LearningRate, 0):
		return fmt.Errorf("trainer: learning rate is %v, it must be above 0", s.LearningRate)
	case s.Kind != "" && s.Kind != "constant" && s.Kind != "cosine" && s.Kind != "linear":
		return fmt.Errorf("trainer: schedule %q is unknown; allowed are constant, cosine, linear", s.Kind)
	case s.Warmup < 0:
		return fmt.Errorf("trainer: warm-up is %d steps, it must be 0 or more", s.Warmup)
	case !(s.FinalRatio >= 0 && s.FinalRatio <= 1):
		return fmt.Errorf("trainer: final learning rate ratio is %v, allowed is 0 to 1", s.FinalRatio)
	case (s.Kind == "cosine" || s.Kind == "linear") && s.Total <= s.Warmup:
		return fmt.Errorf("trainer: schedule %s needs more steps (%d) than its warm-up (%d)", s.Kind, s.Total, s.Warmup)
	}
	return nil
}

// At returns the rate at a place, counted from 0. Warm-up place i of W takes (i + 1)/W of the peak, so that no step is wasted
// on a rate of 0; the decay then runs from the peak at place W to the final rate at place Total, and stays there.
func (s Schedule) At(place int) float64 {
	if place < s.Warmup {
		return s.LearningRate * float64(place+1) / float64(s.Warmup)
	}
	if s.Kind != "cosine" && s.Kind != "linear" {
		return s.LearningRate
	}
	left := 1 - math.Min(1, float64(place-s.Warmup)/float64(s.Total-s.Warmup))
	if s.Kind == "cosine" {
		left = (1 - math.Cos(math.Pi*left)) / 2
	}
	return s.LearningRate * (s.FinalRatio + (1-s.FinalRatio)*left)
}
