package cgo

// CacheConfig says how many keys and values a [Cache] holds.
type CacheConfig struct {
	Blocks    int  // blocks of BlockSize tokens each, for all layers; memory is taken as blocks are first used, on a device at once
	BlockSize int  // a multiple of 8
	BFloat16  bool // compute in bfloat16 as a model of that dtype does, and keep keys and values in it; sums are float32. On a device: the model's dtype
}

// TokenBytes is how many bytes the keys and values of a token take, whose blocks have 16 tokens or a multiple, of a model on the CPU or on a
// device: numbers of float32, or of bfloat16. On the CPU the values of the latter lie in panels of 16 elements.
func (c CacheConfig) TokenBytes(layers, kvHeads, headDim int, onDevice bool) int64 {
	elements, bytes := 2*headDim, 4
	if c.BFloat16 {
		bytes = 2
	}
	if c.BFloat16 && !onDevice {
		elements = headDim + (headDim+15)/16*16
	}
	return int64(layers) * int64(kvHeads) * int64(elements*bytes)
}

// Output asks for a token to be sampled after a row, or for the logprob of a given one.
type Output struct {
	Row         int     // index among the step's rows
	Temperature float64 // 0: greedy, the argmax with the logprob of temperature 1
	TopP        float64 // (0, 1]; 1 is off
	TopK        int     // 0 is off
	MinP        float64 // [0, 1); 0 is off
	Seed        uint64  // of the request
	Counter     uint64  // index of the token in its completion; (Seed, Counter) gives the random number
	Given       bool    // give the logprob of Target, at temperature 1 and untruncated; the fields from Temperature on say nothing
	Target      int32
	Detail      Detail // what to tell of a sampled token besides; of a given one nothing
	Edits       []Edit // of the logits that a token is sampled from; an edit of a token that has one already is made after it
	// Allowed are the tokens that may be sampled, a bit each: word id/64, bit id%64; ids behind its end may not. At least one that no edit
	// excludes must be there. nil: all. Detail.Raw tells of the logits before.
	Allowed []uint64
}

// Edit changes a logit before anything else is done with it. Detail.Raw tells of the logits before.
type Edit struct {
	Token  int32
	Divide float32 // above 0: a positive logit is divided by it, a negative one multiplied; 1 is off
	Minus  float32 // then subtracted; +Inf: the token is never sampled. Not every token may be so
}

// Detail asks for more about a sampled token.
type Detail struct {
	Wanted bool // fill Step.Reported, and Top entries of the lists
	Raw    bool // at temperature 1 and untruncated, instead of the distribution that was sampled
	Top    int  // most likely tokens to list, at most the vocabulary
}

// Step is one forward over rows of any mix of sequences: whole prompts, pieces of them, single tokens. Every row's key
// and value go to the cache first; a row then attends to positions 0 to its own, which the cache or this step must hold.
// A block that several sequences share is computed by one of them; of its last token each may hold a row. A row's result is the same bits whatever the other
// rows are.
type Step struct {
	Tokens    []int32  // [R]
	Positions []int32  // [R]
	Sequence  []int32  // [R] row of BlockTable
	MaxBlocks int      // B
	Blocks    []int32  // [S, B] position p of a sequence lies in its block p/BlockSize
	Outputs   []Output // [O]

	Sampled  []int32   // [O] what was sampled, or Target; Cache.Step makes it
	Logprobs []float32 // [O] of the distribution that was sampled, after temperature and truncation

	MaxTop      int       // K, the greatest Detail.Top; Cache.Step sets it
	Reported    []float32 // [O] logprob of the sampled token as its Detail asks; meaningless where it does not
	TopIDs      []int32   // [O, K] most likely first; -1 beyond the output's own Top
	TopLogprobs []float32 // [O, K] -Inf for what truncation excludes
}

// Reset empties the step and keeps its memory.
func (s *Step) Reset() {
	s.Tokens, s.Positions, s.Sequence, s.Blocks, s.Outputs = s.Tokens[:0], s.Positions[:0], s.Sequence[:0], s.Blocks[:0], s.Outputs[:0]
	s.Sampled, s.Logprobs = s.Sampled[:0], s.Logprobs[:0]
}
