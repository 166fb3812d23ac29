package local

import (
	"fmt"
	"slices"

	"github.com/agentfly/agentfly/engines"
)

// form holds a sequence's completion to a constraint.
type form struct {
	matcher engines.Matcher
	vocab   int
	allowed []uint64 // for the next token, with the stop ids where the completion may end
	ended   bool     // no token may come next
	err     error    // the completion cannot go on
}

// newForm stands behind what of the completion was sampled before.
func newForm(r *engines.Request, vocab int) (*form, error) {
	if r.Constraint == nil {
		return nil, nil
	}
	f := &form{matcher: r.Constraint.Match(), vocab: vocab}
	for _, id := range r.Prompt[len(r.Prompt)-r.Sampled:] {
		if err := f.matcher.Take(id); err != nil {
			return nil, fmt.Errorf("%w: %w", engines.ErrRefused, err)
		}
	}
	f.next(&r.Sampling)
	return f, f.err
}

// tokens may be sampled next; a nil f allows all.
func (f *form) tokens() []uint64 {
	if f == nil {
		return nil
	}
	return f.allowed
}

// failure is why the completion could not go on; nil where it could.
func (f *form) failure() error {
	if f == nil {
		return nil
	}
	return f.err
}

// whole takes a sampled token, which is no stop id, and tells whether the completion is over: its form is whole and there is no stop id to
// say so, or it cannot go on, and f.err says why. A nil f goes on.
func (f *form) whole(id int32, s *engines.Sampling) bool {
	if f == nil {
		return false
	}
	if err := f.matcher.Take(id); err != nil {
		f.err, f.ended = fmt.Errorf("%w: %w", engines.ErrRefused, err), true
		return true
	}
	f.next(s)
	return f.ended
}

// next finds the tokens that may come next.
func (f *form) next(s *engines.Sampling) {
	mask, end, err := f.matcher.Allowed()
	if err != nil {
		f.err, f.ended = fmt.Errorf("%w: %w", engines.ErrRefused, err), true
		return
	}
	f.allowed = append(f.allowed[:0], mask...)
	for len(f.allowed)*64 < f.vocab {
		f.allowed = append(f.allowed, 0)
	}
	for _, id := range s.StopIDs {
		if end && id >= 0 && int(id) < f.vocab {
			f.allowed[id>>6] |= 1 << (id & 63)
		}
	}
	f.ended = !slices.ContainsFunc(f.allowed, func(word uint64) bool { return word != 0 })
}
