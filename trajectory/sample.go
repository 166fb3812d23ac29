package trajectory

import (
	"fmt"
	"slices"
)

// Sample is one append-only token sequence that is trained as it was sampled. All slices but Media have the same length T.
type Sample struct {
	Role             Role      // of the agent that sampled it; "" where a trajectory has one
	TokenIDs         []int32   // [T]
	ResponseMask     []bool    // [T] true on response tokens: those that the policy sampled
	SamplingLogprobs []float32 // [T] of the distribution that was sampled; 0 off the mask
	PolicyVersion    []int32   // [T] that sampled the token; -1 off the mask
	Media            []Medium  // behind placeholders of TokenIDs, in order; nil: it is all text
}

// Len is T.
func (s *Sample) Len() int { return len(s.TokenIDs) }

// reserve makes room for n more tokens, and an eighth for those after them: with append's doubling ten thousand trajectories
// would keep as much unused as used.
func (s *Sample) reserve(n int) {
	if want := len(s.TokenIDs) + n; want > cap(s.TokenIDs) {
		want += want / 8
		s.TokenIDs = append(make([]int32, 0, want), s.TokenIDs...)
		s.ResponseMask = append(make([]bool, 0, want), s.ResponseMask...)
		s.SamplingLogprobs = append(make([]float32, 0, want), s.SamplingLogprobs...)
		s.PolicyVersion = append(make([]int32, 0, want), s.PolicyVersion...)
	}
}

// AppendObservation appends tokens that the policy did not sample: the prompt, or what a tool returned.
func (s *Sample) AppendObservation(ids []int32) {
	s.reserve(len(ids))
	for _, id := range ids {
		s.TokenIDs = append(s.TokenIDs, id)
		s.ResponseMask = append(s.ResponseMask, false)
		s.SamplingLogprobs = append(s.SamplingLogprobs, 0)
		s.PolicyVersion = append(s.PolicyVersion, -1)
	}
}

// AppendResponse appends sampled tokens exactly as the engine returned them. The three slices are [n] and parallel.
func (s *Sample) AppendResponse(ids []int32, logprobs []float32, versions []int32) error {
	if len(ids) != len(logprobs) || len(ids) != len(versions) {
		return fmt.Errorf("trajectory: engine returned %d ids, %d logprobs, %d versions; they must be parallel",
			len(ids), len(logprobs), len(versions))
	}
	s.reserve(len(ids))
	for i, id := range ids {
		if !(logprobs[i] <= 0) { // NaN included
			return fmt.Errorf("trajectory: sampled token %d: logprob %v is not a log probability", i, logprobs[i])
		}
		s.TokenIDs = append(s.TokenIDs, id)
		s.ResponseMask = append(s.ResponseMask, true)
		s.SamplingLogprobs = append(s.SamplingLogprobs, logprobs[i])
		s.PolicyVersion = append(s.PolicyVersion, versions[i])
	}
	return nil
}

// ResponseTokens counts the true positions of the response mask.
func (s *Sample) ResponseTokens() int {
	n := 0
	for _, m := range s.ResponseMask {
		if m {
			n++
		}
	}
	return n
}

// Check verifies the invariants: parallel slices, zeros off the mask, and media in order and off the mask.
func (s *Sample) Check() error {
	t := len(s.TokenIDs)
	if len(s.ResponseMask) != t || len(s.SamplingLogprobs) != t || len(s.PolicyVersion) != t {
		return fmt.Errorf("trajectory: sample slices differ in length: ids %d, mask %d, logprobs %d, versions %d",
			t, len(s.ResponseMask), len(s.SamplingLogprobs), len(s.PolicyVersion))
	}
	if t > 0 && s.ResponseMask[0] {
		return fmt.Errorf("trajectory: token 0 is marked as sampled, but nothing precedes it")
	}
	for i := range s.TokenIDs {
		if !s.ResponseMask[i] && (s.SamplingLogprobs[i] != 0 || s.PolicyVersion[i] != -1) {
			return fmt.Errorf("trajectory: token %d is off the response mask but carries logprob %v, version %d",
				i, s.SamplingLogprobs[i], s.PolicyVersion[i])
		}
	}
	if err := CheckMedia(s.Media, t); err != nil {
		return err
	}
	for i, m := range s.Media {
		if at := slices.Index(s.ResponseMask[m.At:m.End()], true); at >= 0 {
			return fmt.Errorf("trajectory: token %d is marked as sampled, but it is a placeholder of medium %d (%s)", m.At+at, i, m.Kind)
		}
	}
	return nil
}
