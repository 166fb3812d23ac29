package local

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/bits"
	"sync"

	"github.com/agentfly/agentfly/cgo"
)

const toyVocab = 5000

// toy stands in for cgo.Cache: a model whose next token is a hash of everything that the block table says is before it.
// A block that is wrong, stale or shared by mistake changes the token, or is an error at once.
type toy struct {
	size    int
	mu      sync.Mutex
	weights int32 // the version that computed an entry must be this one
	fail    int   // the n-th step from now fails; 0: none
	slots   map[int32][]slot
	steps   int
	rows    int
	closed  bool
	varies  bool // a row depends on the others of its step, or so it says
}

type slot struct{ token, weights int32 }

// BatchInvariant implements stepper.
func (m *toy) BatchInvariant() bool { return !m.varies }

func newToy(size int) *toy { return &toy{size: size, slots: map[int32][]slot{}} }

var errToy = errors.New("toy step failed")

func (m *toy) Step(s *cgo.Step) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.steps++
	m.rows += len(s.Tokens)
	written := map[[2]int32]bool{}
	at := func(sequence, position int32) (int32, int32) {
		return s.Blocks[int(sequence)*s.MaxBlocks+int(position)/m.size], position % int32(m.size)
	}
	for i, token := range s.Tokens {
		block, offset := at(s.Sequence[i], s.Positions[i])
		if m.slots[block] == nil {
			m.slots[block] = make([]slot, m.size)
		}
		now := slot{token, m.weights}
		if m.slots[block][offset] == now {
			continue // the last token of a prompt that is shared whole writes what is there
		}
		if written[[2]int32{block, offset}] {
			return fmt.Errorf("row %d: block %d is written twice in one step", i, block)
		}
		written[[2]int32{block, offset}] = true
		m.slots[block][offset] = now
	}
	if m.fail > 0 {
		if m.fail--; m.fail == 0 {
			for at := range written { // what a failed step leaves is garbage
				m.slots[at[0]][at[1]] = slot{-1, m.weights}
			}
			return errToy
		}
	}
	s.Sampled, s.Logprobs = s.Sampled[:0], s.Logprobs[:0]
	s.Reported, s.TopIDs, s.TopLogprobs, s.MaxTop = s.Reported[:0], s.TopIDs[:0], s.TopLogprobs[:0], 0
	for _, o := range s.Outputs {
		s.MaxTop = max(s.MaxTop, o.Detail.Top)
	}
	for _, o := range s.Outputs {
		var ids []int32
		for p := range s.Positions[o.Row] + 1 {
			block, offset := at(s.Sequence[o.Row], p)
			if m.slots[block] == nil || m.slots[block][offset].weights != m.weights {
				return fmt.Errorf("row %d: position %d is not in the cache with weights %d", o.Row, p, m.weights)
			}
			ids = append(ids, m.slots[block][offset].token)
		}
		token, logprob := toyNext(ids, o.Temperature, o.Seed, o.Counter, m.weights)
		token, logprob = toyAllowed(o.Allowed, token, logprob)
		token, logprob = toyEdited(o.Edits, token, logprob)
		if o.Given {
			token, logprob = o.Target, toyLogprob(ids, o.Target, m.weights)
		}
		s.Sampled, s.Logprobs, s.Reported = append(s.Sampled, token), append(s.Logprobs, logprob), append(s.Reported, logprob)
		for i := range s.MaxTop { // the sampled one, then others of less and less
			s.TopIDs = append(s.TopIDs, (token+int32(i))%toyVocab)
			s.TopLogprobs = append(s.TopLogprobs, logprob-float32(i))
		}
	}
	return nil
}

func (m *toy) Close() error {
	m.closed = true
	return nil
}

func toyNext(ids []int32, temperature float64, seed, counter uint64, weights int32) (int32, float32) {
	if temperature == 0 {
		seed, counter = 0, 0
	}
	token := int32(toyHash(ids, uint64(weights), seed, counter) >> 20 % toyVocab)
	return token, toyLogprob(ids, token, weights)
}

// toyEdited is the next token that is not banned; each other edit makes it a little less likely.
func toyEdited(edits []cgo.Edit, token int32, logprob float32) (int32, float32) {
	banned := map[int32]bool{}
	for _, e := range edits {
		if math.IsInf(float64(e.Minus), 1) {
			banned[e.Token] = true
		} else if e.Divide != 1 || e.Minus != 0 {
			logprob -= 0.01
		}
	}
	for banned[token] {
		token = (token + 1) % toyVocab
	}
	return token, logprob
}

// toyAllowed is the token, or the next one that is allowed; one that is alone is certain.
func toyAllowed(allowed []uint64, token int32, logprob float32) (int32, float32) {
	if allowed == nil {
		return token, logprob
	}
	count := 0
	for _, word := range allowed {
		count += bits.OnesCount64(word)
	}
	for allowed[token/64]>>(token%64)&1 == 0 {
		token = (token + 1) % toyVocab
	}
	if count == 1 {
		logprob = 0
	}
	return token, logprob
}

func toyLogprob(ids []int32, token, weights int32) float32 {
	return -float32(toyHash(ids, uint64(weights), uint64(token))%1000) / 100
}

// toyScores are the logprobs of ids[1:] by the weights of one version.
func toyScores(ids []int32, weights int32) (out []float32) {
	for i, id := range ids[1:] {
		out = append(out, toyLogprob(ids[:i+1], id, weights))
	}
	return out
}

func toyHash(ids []int32, more ...uint64) uint64 {
	h := fnv.New64a()
	write := func(v uint64) { _, _ = h.Write(binary.LittleEndian.AppendUint64(nil, v)) }
	for _, id := range ids {
		write(uint64(id))
	}
	for _, v := range more {
		write(v)
	}
	return h.Sum64()
}
