package cgo

import "fmt"

// Step is one forward of rows of any mix of sequences; see af_step in af.h.
type Step struct {
	Tokens, Positions, Sequence []int32 // [R]
	MaxBlocks                   int     // B
	BlockTable                  []int32 // [S * B] block numbers of each sequence
	OutputRow                   []int32 // [O] rows to sample from; the parameters below are [O] too
	Temperature, TopP, MinP     []float64
	TopK                        []int32
	Seed, Counter               []uint64
	Deterministic               bool // every row's result is the same bits whatever the other rows are
}

func (s *Step) check(sampled, logprobs int) error {
	rows, outputs := len(s.Tokens), len(s.OutputRow)
	if rows == 0 || len(s.Positions) != rows || len(s.Sequence) != rows {
		return fmt.Errorf("cgo: step: %d tokens, %d positions, %d sequences must be parallel and not empty (%w)", rows, len(s.Positions), len(s.Sequence), ErrInput)
	}
	if s.MaxBlocks < 1 || len(s.BlockTable) == 0 || len(s.BlockTable)%s.MaxBlocks != 0 {
		return fmt.Errorf("cgo: step: the block table has %d entries, rows of %d are needed (%w)", len(s.BlockTable), s.MaxBlocks, ErrInput)
	}
	for _, n := range []int{len(s.Temperature), len(s.TopP), len(s.MinP), len(s.TopK), len(s.Seed), len(s.Counter), sampled, logprobs} {
		if n != outputs {
			return fmt.Errorf("cgo: step: %d outputs, but a parameter or result of %d (%w)", outputs, n, ErrInput)
		}
	}
	return nil
}
