package view

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// tie is the order of entries that are alike in what a list is sorted by: the newest step first. Every two entries differ in it.
func tie(a, b *entry) int {
	return cmp.Or(cmp.Compare(b.when(), a.when()), strings.Compare(a.Phase, b.Phase), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Index, b.Index), strings.Compare(a.ID, b.ID))
}

// ranking is the places of entries in the order of tie. It grows with them: what came since the last look is sorted and merged, so that a list
// of a hundred thousand is not sorted anew for each question.
type ranking struct{ places []int32 }

// of returns the places of all entries, in order. Entries are only added at the end, and replaced by ones of the same place in the order;
// after any other change the caller begins with an empty ranking.
func (r *ranking) of(entries []*entry) []int32 {
	known := len(r.places)
	if known == len(entries) {
		return r.places
	}
	by := func(a, b int32) int { return tie(entries[a], entries[b]) }
	fresh := make([]int32, 0, len(entries)-known)
	for at := known; at < len(entries); at++ {
		fresh = append(fresh, int32(at))
	}
	slices.SortFunc(fresh, by)
	out, old := make([]int32, 0, len(entries)), r.places
	for len(old) > 0 && len(fresh) > 0 {
		if by(old[0], fresh[0]) <= 0 {
			out, old = append(out, old[0]), old[1:]
		} else {
			out, fresh = append(out, fresh[0]), fresh[1:]
		}
	}
	r.places = append(append(out, old...), fresh...)
	return r.places
}

// numberOf is what an entry is sorted by, as a number in whose order it stands: that of cmp.Compare, where NaN comes first.
func numberOf(v float64) uint64 {
	switch {
	case v != v:
		return 0
	case v == 0: // -0 too
		v = 0
	}
	if bits := math.Float64bits(v); bits>>63 == 1 {
		return ^bits
	} else {
		return bits | 1<<63
	}
}

// numeric are the sorts by a number, named the texts by their names.
var numeric = map[string]func(e *entry) float64{
	"step":      func(e *entry) float64 { return float64(e.when()) },
	"reward":    func(e *entry) float64 { return e.Reward },
	"turns":     func(e *entry) float64 { return float64(e.Turns) },
	"tokens":    func(e *entry) float64 { return float64(e.Tokens) },
	"calls":     func(e *entry) float64 { return float64(len(e.Calls)) },
	"staleness": func(e *entry) float64 { return float64(e.Staleness) },
	"seconds":   func(e *entry) float64 { return e.Seconds },
}

var named = map[string]func(e *entry) string{
	"task": func(e *entry) string { return e.Task },
	"stop": func(e *entry) string { return e.Stop },
}

// sortedBy sorts entries that stand in the order of tie by one of sorts. It counts bytes of numbers (a radix sort, which keeps the order of
// equals) instead of comparing entries: 100,000 take a few milliseconds.
func sortedBy(all []*entry, by string, ascending bool) []*entry {
	type item struct {
		key uint64
		e   *entry
	}
	if by == "step" && !ascending {
		return all // it is the order of tie
	}
	items := make([]item, len(all))
	if of := numeric[by]; of != nil {
		for i, e := range all {
			items[i] = item{numberOf(of(e)), e}
		}
	} else {
		of := named[by]
		ranks := map[string]uint64{}
		for _, e := range all {
			ranks[of(e)] = 0
		}
		names := make([]string, 0, len(ranks))
		for name := range ranks {
			names = append(names, name)
		}
		slices.Sort(names)
		for i, name := range names {
			ranks[name] = uint64(i)
		}
		for i, e := range all {
			items[i] = item{ranks[of(e)], e}
		}
	}
	if !ascending {
		for i := range items {
			items[i].key = ^items[i].key
		}
	}
	for i := range items {
		switch last := uint64(math.MaxUint64); {
		case by != "reward":
		case !items[i].e.scored(): // it has none: at the end, whatever the direction
			items[i].key = last
		default:
			items[i].key = min(items[i].key, last-1)
		}
	}
	spare := make([]item, len(items))
	for shift := 0; shift < 64; shift += 8 {
		var from [257]int
		for i := range items {
			from[items[i].key>>shift&255+1]++
		}
		if slices.Contains(from[1:], len(items)) {
			continue // all have the same byte
		}
		for b := 1; b < len(from); b++ {
			from[b] += from[b-1]
		}
		for i := range items {
			b := items[i].key >> shift & 255
			spare[from[b]] = items[i]
			from[b]++
		}
		items, spare = spare, items
	}
	out := make([]*entry, len(items))
	for i := range items {
		out[i] = items[i].e
	}
	return out
}

// offer keeps what an entry adds to the values that filters can have.
func (x *index) offer(e *entry) {
	if x.values == nil {
		x.values = map[string]map[string]bool{"phase": {}, "stop": {}, "origin": {}, "tool": {}, "cause": {}}
	}
	add := func(name, value string) {
		if value != "" && !x.values[name][value] {
			x.values[name][value] = true
		}
	}
	add("phase", e.Phase)
	add("stop", e.Stop)
	add("origin", e.Origin)
	for _, c := range e.Calls {
		add("tool", c.Tool)
		add("cause", c.Cause)
	}
}

// choices are the values that filters can have.
func (x *index) choices() map[string][]string {
	out := map[string][]string{"phase": {}, "stop": {}, "origin": {}, "tool": {}, "cause": {}}
	for name, values := range x.values {
		out[name] = sorted(values)
	}
	return out
}
