package tokenizer

import "strings"

// splitter cuts a piece of text into smaller ones and hands the non-empty ones on, in order. first tells whether the
// piece begins where the whole text begins.
type splitter func(piece string, first bool, emit func(piece string, first bool))

// behavior of a Split pre-tokenizer towards the delimiter.
type behavior string

const (
	removed    behavior = "Removed"
	isolated   behavior = "Isolated"
	contiguous behavior = "Contiguous"
	withPrev   behavior = "MergedWithPrevious"
	withNext   behavior = "MergedWithNext"
)

// span is a part of a piece, s[from:to], that is or is not a delimiter.
type span struct {
	from, to int
	match    bool
}

// chain runs splitters one after the other.
func chain(all []splitter) splitter {
	switch len(all) {
	case 0:
		return func(piece string, first bool, emit func(string, bool)) { emit(piece, first) }
	case 1:
		return all[0]
	}
	head, tail := all[0], chain(all[1:])
	return func(piece string, first bool, emit func(string, bool)) {
		head(piece, first, func(p string, f bool) { tail(p, f, emit) })
	}
}

// splitMatches is the Isolated behaviour without a list of spans: matches and what lies between them are pieces.
func splitMatches(t *tables, m matcher) splitter {
	return func(s string, first bool, emit func(string, bool)) {
		gap := 0
		for i := 0; i < len(s); {
			end := m(t, s, i)
			if end < 0 {
				_, n := runeAt(s, i)
				i += n
				continue
			}
			if gap < i {
				emit(s[gap:i], first && gap == 0)
			}
			emit(s[i:end], first && i == 0)
			i, gap = end, end
		}
		if gap < len(s) {
			emit(s[gap:], first && gap == 0)
		}
	}
}

// splitSpans cuts by spans, which cover the piece, for every behaviour.
func splitSpans(find func(s string) []span, b behavior, invert bool) splitter {
	return func(s string, first bool, emit func(string, bool)) {
		spans := find(s)
		if invert {
			for i := range spans {
				spans[i].match = !spans[i].match
			}
		}
		for _, p := range join(spans, b) {
			if p.from < p.to && !(b == removed && p.match) {
				emit(s[p.from:p.to], first && p.from == 0)
			}
		}
	}
}

// join merges spans as the behaviour says.
func join(spans []span, b behavior) []span {
	if b == isolated || b == removed {
		return spans
	}
	var out []span
	prev := false // was the span before (after, for withNext) a match
	if b == withNext {
		for i := len(spans) - 1; i >= 0; i-- {
			if p := spans[i]; p.match && !prev && len(out) > 0 {
				out[len(out)-1].from = p.from
			} else {
				out = append(out, p)
			}
			prev = spans[i].match
		}
		for i, k := 0, len(out)-1; i < k; i, k = i+1, k-1 {
			out[i], out[k] = out[k], out[i]
		}
		return out
	}
	for _, p := range spans {
		merge := b == contiguous && p.match == prev || b == withPrev && p.match && !prev
		if merge && len(out) > 0 {
			out[len(out)-1].to = p.to
		} else {
			out = append(out, p)
		}
		prev = p.match
	}
	return out
}

// patternSpans finds the matches of m and the gaps between them.
func patternSpans(t *tables, m matcher) func(s string) []span {
	return func(s string) []span {
		var out []span
		gap := 0
		for i := 0; i < len(s); {
			end := m(t, s, i)
			if end < 0 {
				_, n := runeAt(s, i)
				i += n
				continue
			}
			if gap < i {
				out = append(out, span{gap, i, false})
			}
			out = append(out, span{i, end, true})
			i, gap = end, end
		}
		if gap < len(s) {
			out = append(out, span{gap, len(s), false})
		}
		return out
	}
}

// literal matches the text want.
func literal(want string) matcher {
	return func(_ *tables, s string, i int) int {
		if strings.HasPrefix(s[i:], want) {
			return i + len(want)
		}
		return -1
	}
}

// oneNumeric matches one character that Rust calls numeric.
func oneNumeric(t *tables, s string, i int) int {
	return orNone(i, upTo(t, s, i, numeric, 1))
}

// spaceBefore puts a space before a piece that does not begin with one (ByteLevel with add_prefix_space).
func spaceBefore(s string, first bool, emit func(string, bool)) {
	if !strings.HasPrefix(s, " ") {
		s = " " + s
	}
	emit(s, first)
}

// metaspace replaces spaces and, by scheme, puts the replacement in front of the piece.
func metaspace(replacement, scheme string) splitter {
	return func(s string, first bool, emit func(string, bool)) {
		s = strings.ReplaceAll(s, " ", replacement)
		if (scheme == "always" || scheme == "first" && first) && !strings.HasPrefix(s, replacement) {
			s = replacement + s
		}
		emit(s, first)
	}
}
