package local

import (
	"math"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
)

// penalties know which tokens a sequence holds, and how often its completion does: what the sampling parameters change the logits by.
type penalties struct {
	vocab int
	at    map[int32]int // of a token in list
	list  []held
	upto  int // tokens of the sequence that are counted
	out   []cgo.Edit
}

// held is a token of a sequence.
type held struct {
	id    int32
	count int // in the completion
}

// edits are the changes of the next token's logits; they hold until the next call. tokens are the sequence's, of which so many are the prompt.
// A nil p has none.
func (p *penalties) edits(s *engines.Sampling, tokens []int32, prompt int) []cgo.Edit {
	if p == nil {
		return nil
	}
	if p.at == nil {
		p.at = map[int32]int{}
		if !s.Repeats() { // the others count what was sampled
			p.upto = prompt
		}
	}
	for ; p.upto < len(tokens); p.upto++ {
		k := p.index(tokens[p.upto])
		if p.upto >= prompt {
			p.list[k].count++
		}
	}
	divide := float32(1)
	if s.Repeats() {
		divide = float32(s.Repetition)
	}
	p.out = p.out[:0]
	for _, h := range p.list {
		minus := s.Frequency * float64(h.count)
		if h.count > 0 {
			minus += s.Presence
		}
		p.out = append(p.out, cgo.Edit{Token: h.id, Divide: divide, Minus: float32(minus)})
	}
	if len(tokens)-prompt >= s.MinTokens {
		return p.out
	}
	for _, id := range s.StopIDs {
		if id < 0 || int(id) >= p.vocab {
			continue
		}
		ban := cgo.Edit{Token: id, Divide: 1, Minus: float32(math.Inf(1))}
		if k, ok := p.at[id]; ok {
			p.out[k] = ban
		} else {
			p.out = append(p.out, ban)
		}
	}
	return p.out
}

// index is the place of a token in the list, which it gets where it has none.
func (p *penalties) index(id int32) int {
	k, ok := p.at[id]
	if !ok {
		k = len(p.list)
		p.at[id] = k
		p.list = append(p.list, held{id: id})
	}
	return k
}

// stopsAll tells whether the ids are all tokens of a vocabulary.
func stopsAll(ids []int32, vocab int) bool {
	seen := make(map[int32]bool, vocab)
	for _, id := range ids {
		if id >= 0 && int(id) < vocab {
			seen[id] = true
		}
	}
	return len(seen) == vocab
}
