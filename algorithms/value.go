package algorithms

import (
	"fmt"
	"math"
)

// resolve fills in defaults and checks the block; an estimator without a critic has none.
func (v *Value) resolve(e EstimatorSpec) (s ValueSettings, err error) {
	switch {
	case v != nil && !e.Needs.Values:
		return s, refuse("value", "value is set, but advantage %s has no critic; leave it out", e.Name)
	case !e.Needs.Values:
		return s, nil
	}
	s = ValueSettings{Coefficient: 0.5, Clip: 0.2}
	if v == nil {
		return s, nil
	}
	for _, f := range []struct {
		key   string
		given *float64
		into  *float64
	}{{"coefficient", v.Coefficient, &s.Coefficient}, {"clip", v.Clip, &s.Clip}} {
		if f.given == nil {
			continue
		}
		if !(*f.given > 0) || math.IsInf(*f.given, 0) {
			return s, refuse("value."+f.key, "value.%s is %v; it must be a positive number", f.key, *f.given)
		}
		*f.into = *f.given
	}
	return s, nil
}

// Loss is the critic's loss of one token before its coefficient: ½ max((V - R)², (V_old + clip(V - V_old, ±c) - R)²).
func (s ValueSettings) Loss(value, old, target float64) float64 {
	near := old + min(max(value-old, -s.Clip), s.Clip)
	return max((value-target)*(value-target), (near-target)*(near-target)) / 2
}

// formula says in words what is computed.
func (s ValueSettings) formula() string {
	return fmt.Sprintf("%v * ½ max((V - R)², (V_old + clip(V - V_old, ±%v) - R)²), R = Â + V_old, mean over all loss-mask tokens of the mini-batch (its own token-mean)", s.Coefficient, s.Clip)
}
