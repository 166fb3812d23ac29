package trainer

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/trajectory"
)

// PackItem is one sample that goes into a forward.
type PackItem struct {
	Sample *trajectory.Sample
	Group  int    // items of one group go into the same micro-batch where they fit
	Name   string // of its trajectory, for errors
}

// PackOptions bound micro-batches.
type PackOptions struct {
	MicroBatchTokens int     // most packed tokens of a micro-batch, >= 1; a longer sample gets one of its own
	MaxLength        int     // the model's longest sequence, 0: not checked; a longer sample is an error
	Temperature      float64 // that the tokens were sampled at; > 0

	minShared int // 0: defaultMinShared; tests of short samples set less
}

// defaultMinShared is the shortest run of tokens that samples share instead of each having its own. It keeps chance agreements
// (two answers that begin with the same word) from becoming tiny segments, which cost the attention more than the few tokens
// they save.
const defaultMinShared = 16

// Row says which token a row of a forward predicts.
type Row struct {
	Item  int // index into the packed items
	Token int // t: the row's hidden state stands at t-1, its target is TokenIDs[t]
}

// MicroBatch is the input of one forward with the origin of its rows.
type MicroBatch struct {
	cgo.Batch
	Rows     []Row // [N] parallel to RowToken and RowTarget; by item, then by token
	Unpacked int   // tokens of all its samples without sharing; len(Tokens) of them are computed
}

// Pack builds micro-batches in which every shared prefix is computed once: what all samples of a micro-batch have in
// common (system prompt, worked examples), then what a group has in common (the question), then what samples have in
// common. Samples share what is the same to a model (trajectory.Prefix): where other media stand behind the same ids, nothing
// from there on. A row exists for each response token and none for others; tokens that no row needs (those after a sample's
// last row) are left out. Items without a row are skipped. The packing depends on ids and media alone: neither on the
// order of the items nor on anything random; rows follow the items' order.
func Pack(items []PackItem, o PackOptions) ([]MicroBatch, error) {
	if o.minShared == 0 {
		o.minShared = defaultMinShared
	}
	if o.MicroBatchTokens < 1 || !(o.Temperature > 0) {
		return nil, fmt.Errorf("trainer: pack: micro-batch tokens %d must be 1 or more, temperature %v above 0", o.MicroBatchTokens, o.Temperature)
	}
	paths, err := collect(items, o.MaxLength)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(paths, func(a, b path) int {
		return cmp.Or(a.Compare(b.Prefix), cmp.Compare(a.item, b.item))
	})
	for i := range paths[min(1, len(paths)):] {
		paths[i+1].shared = paths[i].Common(paths[i+1].Prefix)
	}
	var out []MicroBatch
	for _, part := range split(paths, items, o) {
		out = append(out, build(part, items, o))
	}
	return out, nil
}

// path is what a sample needs computed: its tokens before the last predicted one.
type path struct {
	trajectory.Prefix
	item   int
	shared int // length of the prefix in common with the path before it, in sorted order
}

func collect(items []PackItem, maxLength int) ([]path, error) {
	var paths []path
	for i, it := range items {
		if err := it.Sample.Check(); err != nil {
			return nil, fmt.Errorf("trainer: pack: trajectory %s: %w", it.Name, err)
		}
		last := -1
		for t, on := range it.Sample.ResponseMask {
			if on {
				last = t
			}
		}
		switch {
		case last < 0:
			continue
		case maxLength > 0 && it.Sample.Len() > maxLength:
			return nil, fmt.Errorf("trainer: pack: trajectory %s has %d tokens, the model takes %d; lower rollout.max_tokens", it.Name, it.Sample.Len(), maxLength)
		}
		paths = append(paths, path{Prefix: it.Sample.Prefix(last), item: i})
	}
	return paths, nil
}

// split cuts the sorted paths into micro-batches of at most MicroBatchTokens packed tokens. A run of one group that does
// not fit behind what is there begins a new micro-batch if it fits into one; otherwise it is cut between samples.
func split(paths []path, items []PackItem, o PackOptions) [][]path {
	var out [][]path
	var current []path
	flush := func() {
		if len(current) > 0 {
			out = append(out, current)
			current = nil
		}
	}
	fits := func(p []path) bool { return packedTokens(p, 0, o.minShared) <= o.MicroBatchTokens }
	for start := 0; start < len(paths); {
		end := start + 1
		for end < len(paths) && items[paths[end].item].Group == items[paths[start].item].Group {
			end++
		}
		// paths[start-len(current):end] is current with the run: both are neighbours in paths.
		from := start - len(current)
		if fits(paths[from:end]) {
			current = paths[from:end]
			start = end
			continue
		}
		if fits(paths[start:end]) {
			flush()
			current = paths[start:end]
			start = end
			continue
		}
		for ; start < end; start++ {
			if len(current) > 0 && !fits(paths[start-len(current):start+1]) {
				flush()
			}
			current = paths[start-len(current) : start+1]
		}
	}
	flush()
	return out
}

// classes calls f for each maximal run of sorted paths that share minShared or more tokens beyond offset, with the length
// that the whole run shares. A single path shares all of itself.
func classes(paths []path, offset, minShared int, f func(run []path, end int)) {
	for i := 0; i < len(paths); {
		j, end := i+1, len(paths[i].IDs)
		for j < len(paths) && paths[j].shared-offset >= minShared {
			end = min(end, paths[j].shared)
			j++
		}
		f(paths[i:j], end)
		i = j
	}
}

// packedTokens counts the tokens of the forest that build makes, from lengths alone.
func packedTokens(paths []path, offset, minShared int) int {
	n := 0
	classes(paths, offset, minShared, func(run []path, end int) {
		n += end - offset
		if len(run) > 1 {
			n += packedTokens(run, end, minShared)
		}
	})
	return n
}

func build(paths []path, items []PackItem, o PackOptions) MicroBatch {
	mb := MicroBatch{Batch: cgo.Batch{Temperature: o.Temperature}}
	leaves := map[int]int{} // the last segment of each item's path
	mb.grow(paths, 0, -1, o.minShared, leaves)
	inOrder := slices.Clone(paths)
	slices.SortFunc(inOrder, func(a, b path) int { return cmp.Compare(a.item, b.item) })
	for _, p := range inOrder {
		at := mb.locate(leaves[p.item], len(p.IDs))
		s := items[p.item].Sample
		for t, on := range s.ResponseMask {
			if on {
				mb.RowToken = append(mb.RowToken, at[t-1])
				mb.RowTarget = append(mb.RowTarget, s.TokenIDs[t])
				mb.Rows = append(mb.Rows, Row{Item: p.item, Token: t})
			}
		}
		mb.Unpacked += len(p.IDs)
	}
	return mb
}

// grow appends the segments of sorted paths, which agree on their first offset tokens; parent holds those.
func (mb *MicroBatch) grow(paths []path, offset, parent, minShared int, leaves map[int]int) {
	classes(paths, offset, minShared, func(run []path, end int) {
		segment := parent
		if end > offset {
			segment = len(mb.SegmentStart)
			mb.SegmentStart = append(mb.SegmentStart, int32(len(mb.Tokens)))
			mb.SegmentLength = append(mb.SegmentLength, int32(end-offset))
			mb.SegmentParent = append(mb.SegmentParent, int32(parent))
			mb.Tokens = append(mb.Tokens, run[0].IDs[offset:end]...)
			for t := offset; t < end; t++ {
				mb.Positions = append(mb.Positions, int32(t))
			}
		}
		if len(run) == 1 {
			leaves[run[0].item] = segment
			return
		}
		mb.grow(run, end, segment, minShared, leaves)
	})
}

// locate returns the packed index of each of the n tokens on the way from a root to the end of the segment.
func (mb *MicroBatch) locate(segment, n int) []int32 {
	at := make([]int32, n)
	for ; segment >= 0; segment = int(mb.SegmentParent[segment]) {
		start, length := mb.SegmentStart[segment], mb.SegmentLength[segment]
		first := mb.Positions[start]
		for i := range length {
			at[first+i] = start + i
		}
	}
	return at
}

// textOnly refuses a sample with media: the forward has no place for them, and would take their placeholders for text.
func textOnly(s *trajectory.Sample) error {
	if len(s.Media) == 0 {
		return nil
	}
	return fmt.Errorf("it has a medium (%s) at token %d, and the trainer takes text only; train on text, or leave the trajectories with media out", s.Media[0].Kind, s.Media[0].At)
}
