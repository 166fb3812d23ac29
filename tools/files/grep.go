package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

type grepArgs struct {
	Pattern string `json:"pattern" doc:"regular expression (RE2)"`
	Path    string `json:"path,omitempty" doc:"a file or folder; default: the whole workspace"`
}

// Bounds of a pattern. RE2 matches in time linear in the text, but times the pattern's states, of which a short pattern such as
// ((x{100}){10})* has many: at most these, for each byte of a file.
const (
	maxPattern = 1000 // bytes
	maxStates  = 2000
	maxLine    = 4096 // bytes of a line that is matched at once; a longer one is matched so that the deadline can end it
)

// compile makes a pattern of what a model wrote.
func compile(text string) (*regexp.Regexp, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("the pattern has %d bytes; at most %d are allowed", len(text), maxPattern)
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("the pattern is no regular expression: %w", err)
	}
	if states(tree) > maxStates {
		return nil, fmt.Errorf("the pattern is too large once its repetitions are written out; at most %d states are allowed, use smaller numbers in {}", maxStates)
	}
	pattern, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("the pattern is no regular expression: %w", err)
	}
	return pattern, nil
}

// states is about how many states a pattern has, counted without writing its repetitions out.
func states(tree *syntax.Regexp) int {
	n := 0
	for _, sub := range tree.Sub {
		n += states(sub)
	}
	switch tree.Op {
	case syntax.OpLiteral:
		n = len(tree.Rune)
	case syntax.OpRepeat:
		n *= max(1, tree.Min, tree.Max)
	default:
		n++
	}
	return min(n, 1<<30) // of deeper ones it is enough to know that they are more
}

// matches is pattern.MatchString that ends with ctx; it says no then.
func matches(ctx context.Context, pattern *regexp.Regexp, line string) bool {
	if len(line) <= maxLine {
		return pattern.MatchString(line)
	}
	return pattern.MatchReader(&runes{ctx: ctx, text: line}) && ctx.Err() == nil
}

// runes reads a text until ctx is done.
type runes struct {
	ctx  context.Context //nolint:containedctx // of one match, which takes no context
	text string
	read int
}

func (r *runes) ReadRune() (rune, int, error) {
	if r.read++; r.text == "" || r.read%1024 == 0 && r.ctx.Err() != nil {
		return 0, 0, io.EOF
	}
	c, n := utf8.DecodeRuneInString(r.text)
	r.text = r.text[n:]
	return c, n, nil
}

func grep(ctx context.Context, f *folder, a grepArgs) (string, error) {
	name, err := f.local(a.Path)
	if err != nil {
		return "", err
	}
	pattern, err := compile(a.Pattern)
	if err != nil {
		return "", err
	}
	var out []string
	skipped := 0
	err = fs.WalkDir(f.root.FS(), name, func(at string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && at == name:
			return f.explain(name, err)
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil || !d.Type().IsRegular():
			return nil
		}
		text, err := f.read(at)
		switch {
		case err != nil && at == name:
			return err
		case err != nil: // too large, or not text
			skipped++
			return nil
		}
		for n, line := range split(text) {
			match := matches(ctx, pattern, line)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case !match:
				continue
			case len(out) == maxMatches:
				out = append(out, fmt.Sprintf("[more than %d; make the pattern narrower]", maxMatches))
				return errEnough
			}
			out = append(out, fmt.Sprintf("%s:%d: %s", f.shown(at), n+1, clip(line)))
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return "", err
	}
	if len(out) == 0 {
		out = append(out, "no line matches")
	}
	if skipped > 0 {
		out = append(out, fmt.Sprintf("[left out as no text or too large: %d]", skipped))
	}
	return strings.Join(out, "\n"), nil
}
