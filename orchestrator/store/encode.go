package store

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/agentfly/agentfly/trajectory"
)

// A row of the table turns is one blob: what a trajectory grew by since its last row.
//
//	format   1 byte: 2, 3 where a result has an outcome, 4 where a turn came in over the gateway, 5 where something was posted, 6 where a turn has an
//	         entropy, 7 where others began a turn's completion, or 8 where the trajectory forks within a turn and its turns do not say so
//	id       of the trajectory
//	ended    1 byte, 1: the trajectory ended, the row is its last
//	first    number of its turns before this row
//	pieces   count, then each: sample, its role, start, tokens, media, a byte that is 1 when a turn follows, the turn
//	crc      4 bytes, little-endian: CRC-32C of all before
//
// Numbers are varints, texts and lists have their length before them. Tokens are ids, runs of the mask, the logprobs of the
// sampled ones as bits, runs of their versions. Media are those that begin among the piece's tokens: position from the piece's
// start, tokens, kind, the 32 bytes of the hash.
//
// Format 3 is format 2 with outcomes: what an environment gave for a call, behind the other fields of its result.
//
// Format 4 is format 3 with a text behind each turn: how it came in, as JSON; "" where it did not.
//
// Format 5 is format 4 with what was posted for the trajectory: behind first, how much of it stands in rows before this one, and behind the pieces a text,
// the rest as a JSON list. A row may hold posts alone.
//
// Format 6 is format 5 with the entropy behind how each turn came in.
//
// Format 7 is format 6 with who began the completion behind the entropy: a count, then the name of each turn, and the tokens up to its end.
//
// Format 8 is format 7 with how many tokens of a turn the trajectory forks behind, after how much was posted: its turns do not say it, as where something
// was posted before the first of its own.
//
// The flag 4 of a turn, that its prompt opened a thought, came without a number: programs before it wrote 0 there and read past it.
//
// Format 1, which stores of version 2 hold, has no ended, roles and media, and no failures of results, which follow from their causes.
// It has a flag on results whose tool broke, which their cause says too.
const (
	rowFormat1 = 1
	rowFormat2 = 2
	rowFormat3 = 3
	rowFormat4 = 4
	rowFormat5 = 5
	rowFormat6 = 6
	rowFormat7 = 7
	rowFormat8 = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// mark is how much of a trajectory is stored.
type mark struct {
	turns int
	posts int
	lens  []int   // [samples] tokens
	rows  []int64 // of the table turns, in order
}

// holds tells that a trajectory has all that is stored of it.
func (m mark) holds(t *trajectory.Trajectory) error {
	switch {
	case m.turns > len(t.Turns):
		return fmt.Errorf("store: trajectory %s: it has %d turns, and %d are stored", t.ID, len(t.Turns), m.turns)
	case m.posts > len(t.Posted):
		return fmt.Errorf("store: trajectory %s: %d things were posted for it, and %d are stored", t.ID, len(t.Posted), m.posts)
	}
	return nil
}

// piece is a part of a sample, with the turn that it is of; nil: none.
type piece struct {
	sample, start, end int
	turn               *trajectory.Turn
}

// encodeRow lays out what t has more than m, and moves m there; nil: nothing. ended: t is whole, so its tokens that belong to no
// turn are laid out too, and there is a row in any case.
func encodeRow(t *trajectory.Trajectory, m *mark, ended bool) []byte {
	for len(m.lens) < len(t.Samples) {
		m.lens = append(m.lens, 0)
	}
	var pieces []piece
	first, posted := m.turns, m.posts
	for i := first; i < len(t.Turns); i++ {
		turn := &t.Turns[i]
		p := piece{turn: turn, sample: -1}
		if turn.Sample >= 0 && turn.Sample < len(t.Samples) {
			p.sample, p.start = turn.Sample, m.lens[turn.Sample]
			p.end = min(max(p.start, turn.ObservationEnd), t.Samples[turn.Sample].Len())
			m.lens[turn.Sample] = p.end
		}
		pieces = append(pieces, p)
	}
	m.turns, m.posts = len(t.Turns), len(t.Posted)
	if ended {
		for k, s := range t.Samples {
			if m.lens[k] < s.Len() || s.Len() == 0 {
				pieces = append(pieces, piece{sample: k, start: m.lens[k], end: s.Len()})
				m.lens[k] = s.Len()
			}
		}
	}
	if len(pieces) == 0 && posted == m.posts && !ended {
		return nil
	}
	format := formatOf(t.Turns[first:])
	if m.posts > 0 {
		format = max(format, rowFormat5)
	}
	if t.ForkedAt != 0 && first <= t.Forked && forkOf(t) != t.ForkedAt {
		format = rowFormat8
	}
	b := append(make([]byte, 0, 512), format)
	b = append(appendText(b, t.ID), flag(ended, 1))
	b = binary.AppendUvarint(b, uint64(first))
	if format >= rowFormat5 {
		b = binary.AppendUvarint(b, uint64(posted))
	}
	if format >= rowFormat8 {
		b = binary.AppendUvarint(b, uint64(t.ForkedAt))
	}
	b = binary.AppendUvarint(b, uint64(len(pieces)))
	for _, p := range pieces {
		b = appendPiece(b, t, p, format)
	}
	if format >= rowFormat5 {
		posts, _ := json.Marshal(t.Posted[posted:]) // of texts, finite numbers and JSON
		b = appendText(b, string(posts))
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// forkOf is how many tokens of a turn a trajectory forks behind, as its first own turn says; 0: between turns, or there is no such turn yet.
func forkOf(t *trajectory.Trajectory) int {
	if t.Forked < len(t.Turns) {
		return t.Turns[t.Forked].BegunTokens()
	}
	return 0
}

// formatOf is the oldest format that holds the turns: a run without environments and agents of others writes what older programs read.
func formatOf(turns []trajectory.Turn) byte {
	format := byte(rowFormat2)
	for _, t := range turns {
		switch {
		case len(t.Begun) > 0:
			return rowFormat7
		case t.Entropy != 0:
			format = rowFormat6
		case t.Incoming != nil:
			format = max(format, rowFormat4)
		case format < rowFormat3 && slices.ContainsFunc(t.Results, func(r trajectory.ToolResult) bool { return r.Outcome != nil }):
			format = rowFormat3
		}
	}
	return format
}

func appendPiece(b []byte, t *trajectory.Trajectory, p piece, format byte) []byte {
	s := &trajectory.Sample{}
	if p.sample >= 0 {
		s = t.Samples[p.sample]
	}
	b = appendText(binary.AppendVarint(b, int64(p.sample)), string(s.Role))
	b = binary.AppendUvarint(b, uint64(p.start))
	b = appendTokens(b, s, p.start, p.end)
	b = appendMedia(b, s, p.start, p.end)
	if p.turn == nil {
		return append(b, 0)
	}
	b = appendTurn(append(b, 1), p.turn)
	if format < rowFormat4 {
		return b
	}
	var in []byte
	if p.turn.Incoming != nil {
		in, _ = json.Marshal(p.turn.Incoming) // of texts, numbers and JSON
	}
	b = appendText(b, string(in))
	if format < rowFormat6 {
		return b
	}
	b = appendFloat(b, p.turn.Entropy)
	if format < rowFormat7 {
		return b
	}
	b = binary.AppendUvarint(b, uint64(len(p.turn.Begun)))
	for _, begun := range p.turn.Begun {
		b = binary.AppendUvarint(appendText(b, begun.Shared), uint64(begun.End))
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendTokens(b []byte, s *trajectory.Sample, start, end int) []byte {
	b = binary.AppendUvarint(b, uint64(end-start))
	if end == start {
		return b
	}
	b = slices.Grow(b, 7*(end-start))
	for _, id := range s.TokenIDs[start:end] {
		b = binary.AppendUvarint(b, uint64(uint32(id)))
	}
	for at, on := start, false; at < end; on = !on { // runs off and on the mask, in turn
		from := at
		for at < end && s.ResponseMask[at] == on {
			at++
		}
		b = binary.AppendUvarint(b, uint64(at-from))
	}
	for i := start; i < end; i++ {
		if s.ResponseMask[i] {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(s.SamplingLogprobs[i]))
		}
	}
	for i := start; i < end; {
		if !s.ResponseMask[i] {
			i++
			continue
		}
		version, n := s.PolicyVersion[i], 0
		for ; i < end && (!s.ResponseMask[i] || s.PolicyVersion[i] == version); i++ {
			if s.ResponseMask[i] {
				n++
			}
		}
		b = binary.AppendVarint(binary.AppendUvarint(b, uint64(n)), int64(version))
	}
	return b
}

func appendMedia(b []byte, s *trajectory.Sample, start, end int) []byte {
	from := slices.IndexFunc(s.Media, func(m trajectory.Medium) bool { return m.At >= start })
	if from < 0 {
		return append(b, 0)
	}
	media := s.Media[from:]
	if to := slices.IndexFunc(media, func(m trajectory.Medium) bool { return m.At >= end }); to >= 0 {
		media = media[:to]
	}
	b = binary.AppendUvarint(b, uint64(len(media)))
	for _, m := range media {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(m.At-start)), uint64(m.Tokens))
		b = append(appendText(b, string(m.Kind)), m.SHA256[:]...)
	}
	return b
}

func appendTurn(b []byte, t *trajectory.Turn) []byte {
	for _, n := range [...]int{t.Sample, t.CompletionStart, t.CompletionEnd, t.ObservationEnd, t.CachedTokens, t.ParseErrors, len(t.Results)} {
		b = binary.AppendVarint(b, int64(n))
	}
	b = appendText(appendText(b, t.Completion), string(t.FinishReason))
	b = binary.LittleEndian.AppendUint64(b, t.Seed)
	b = appendFloat(appendFloat(b, t.EngineSeconds), t.ToolSeconds)
	for i := range t.Results {
		r := &t.Results[i]
		b = appendText(appendText(appendText(b, r.Call.ID), r.Call.Name), string(r.Call.Arguments))
		b = appendText(b, r.Observation)
		more := r.Cause != "" || r.Failure != "" || r.Retries != 0 || r.Info != nil
		b = append(b, flag(r.Failed, 1)|flag(r.Call.Arguments == nil, 2)|flag(r.Terminal, 8)|flag(r.Cached, 16)|flag(more, 32)|flag(r.Outcome != nil, 64)) // 4 is taken, by rowFormat1
		b = binary.AppendVarint(b, int64(r.Duration))
		if more {
			b = appendText(binary.AppendVarint(appendText(b, string(r.Cause)), int64(r.Retries)), string(r.Info))
			b = appendText(b, string(r.Failure))
		}
		if o := r.Outcome; o != nil {
			b = appendText(append(appendFloat(b, o.Reward), flag(o.Terminated, 1)|flag(o.Truncated, 2)|flag(o.Success, 4)), o.Anchor)
			b = appendText(b, string(o.State))
		}
	}
	b = appendText(b, t.FinalAnswer)
	b = append(b, flag(t.AnsweredThisTurn, 1)|flag(t.Reward != nil, 2)|flag(t.InThought, 4))
	if t.Reward != nil {
		b = appendFloat(b, *t.Reward)
	}
	return appendText(appendText(appendText(b, t.Anchor), t.Shared), string(t.Role))
}

func appendFloat(b []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
}

func flag(on bool, bit byte) byte {
	if on {
		return bit
	}
	return 0
}

// encodeRows lays out numbers of rows, which grow.
func encodeRows(rows []int64) []byte {
	b := make([]byte, 0, 2*len(rows)+2)
	last := int64(0)
	for _, n := range rows {
		b = binary.AppendUvarint(b, uint64(n-last))
		last = n
	}
	return b
}

// blob lays floats out little-endian; never nil.
func blob(v []float32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func checksum(body []byte) int64 { return int64(crc32.Checksum(body, castagnoli)) }
