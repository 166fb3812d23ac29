package local

import (
	"bytes"
	"context"
	"slices"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/trajectory"
)

// sequence is one request from its submission to its end. Only the loop touches it until done is closed.
type sequence struct {
	ctx      context.Context // of the Generate call, which waits for it
	id       string
	sampling engines.Sampling
	seed     uint64
	top      int     // likeliest tokens that the completion tells
	prompt   int     // tokens of the prompt
	tokens   []int32 // prompt, then what was sampled
	media    []trajectory.Medium
	targets  []int32 // parallel to tokens when the request asks for the logprobs of given tokens; nothing is sampled then

	blocks   []int32 // of the cache, in the order of positions
	computed int     // tokens whose keys the blocks hold
	listed   int     // leading blocks that were offered to the pool's table
	serial   uint64  // of the last of them; 0 for none
	planned  int     // rows of the current step
	output   int     // index of its first output in the current step, -1 for none

	started    bool       // admitted before: a later admission is no prefix hit of the prompt
	text       []byte     // decoded completion, kept only for stop strings
	penalties  *penalties // nil: none
	form       *form      // nil: none
	stream     *stream
	completion engines.Completion
	err        error
	done       chan struct{}
}

// prefix is what the cache finds the sequence's blocks by.
func (s *sequence) prefix() trajectory.Prefix {
	return trajectory.Prefix{IDs: s.tokens, Media: s.media}
}

// over tells, before anything is sampled, that the completion's form is whole; it says so then.
func (s *sequence) over() bool {
	if s.form == nil || !s.form.ended {
		return false
	}
	s.completion.FinishReason = trajectory.FinishStop
	return true
}

func (s *sequence) remaining() int { return len(s.tokens) - s.computed }

// givenRows bounds the rows of a step whose whole distribution is computed: a row takes vocabulary · 4 bytes.
const givenRows = 64

// piece is how many of its tokens a step with that budget computes.
func (s *sequence) piece(budget int) int {
	n := min(s.remaining(), budget)
	if s.targets != nil {
		n = min(n, givenRows)
	}
	return n
}

// nextOutput is what the step's row, the sequence's last token, predicts.
func (s *sequence) nextOutput(row int) cgo.Output {
	return cgo.Output{
		Edits: s.penalties.edits(&s.sampling, s.tokens, s.prompt), Allowed: s.form.tokens(),
		Row: row, Temperature: s.sampling.Temperature, TopP: s.sampling.TopP, TopK: s.sampling.TopK, MinP: s.sampling.MinP,
		Seed: s.seed, Counter: uint64(len(s.tokens) - s.prompt), Detail: s.detail(),
	}
}

// detail is what the library is to tell of the sequence's outputs.
func (s *sequence) detail() cgo.Detail {
	switch {
	case s.stream != nil:
		return cgo.Detail{Wanted: true, Raw: s.stream.detail.Raw, Top: s.stream.detail.Top}
	case s.top > 0:
		return cgo.Detail{Wanted: true, Top: s.top}
	}
	return cgo.Detail{}
}

// take adds what the current step gave and reports whether the request is done.
func (s *sequence) take(step *cgo.Step, version int32, d Decoder, maxLen int) bool {
	if s.targets != nil {
		s.completion.Logprobs = append(s.completion.Logprobs, step.Logprobs[s.output:s.output+s.planned]...)
		return len(s.completion.Logprobs) == len(s.targets)
	}
	if s.stream != nil {
		s.stream.push(step, s.output, version)
	}
	if s.top > 0 {
		s.completion.Top = append(s.completion.Top, alternatives(step, s.output, s.top))
	}
	return s.append(step.Sampled[s.output], step.Logprobs[s.output], version, d, maxLen)
}

// alternatives are the n likeliest tokens of an output.
func alternatives(step *cgo.Step, output, n int) []engines.Alternative {
	out := make([]engines.Alternative, n)
	for i := range out {
		at := output*step.MaxTop + i
		out[i] = engines.Alternative{ID: step.TopIDs[at], Logprob: step.TopLogprobs[at]}
	}
	return out
}

// append takes a sampled token and reports whether the completion ended.
func (s *sequence) append(id int32, logprob float32, version int32, d Decoder, maxLen int) bool {
	s.tokens = append(s.tokens, id)
	c := &s.completion
	c.TokenIDs = append(c.TokenIDs, id)
	c.Logprobs = append(c.Logprobs, logprob)
	c.Versions = append(c.Versions, version)
	switch {
	case slices.Contains(s.sampling.StopIDs, id) || s.completesStop(id, d) && len(s.tokens)-s.prompt > s.sampling.MinTokens:
		c.FinishReason = trajectory.FinishStop
	case len(c.TokenIDs) >= s.sampling.MaxTokens || len(s.tokens) >= maxLen:
		c.FinishReason = trajectory.FinishLength
	case s.form.whole(id, &s.sampling):
		c.FinishReason = trajectory.FinishStop
	default:
		return false
	}
	return true
}

// completesStop reports whether the token's bytes complete a stop string.
func (s *sequence) completesStop(id int32, d Decoder) bool {
	if len(s.sampling.Stop) == 0 {
		return false
	}
	before := len(s.text)
	s.text = append(s.text, d.Bytes(id)...)
	for _, stop := range s.sampling.Stop {
		if bytes.Contains(s.text[max(0, before-len(stop)+1):], []byte(stop)) {
			return true
		}
	}
	return false
}

// end hands the result to Generate.
func (s *sequence) end(err error) {
	s.err = err
	close(s.done)
}
