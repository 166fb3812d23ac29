package grammar

import (
	"cmp"
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Regexp is the texts that match a regular expression whole, in Go's syntax, which knows neither lookahead nor references.
func Regexp(pattern string) (Expr, error) {
	if len(pattern) > maxSchema {
		return Expr{}, fmt.Errorf("it has %d bytes, at most %d are supported", len(pattern), maxSchema)
	}
	left := budget(maxParts)
	p := patternReader{write: runeSet.expr, dot: everyRune.without('\n'), left: &left}
	return p.read(pattern)
}

// regular is the texts in which a regular expression in Go's syntax matches somewhere, unless ^ and $ bind it, as JSON Schema has it: in
// JSON, a dot is no line end of JavaScript's, and \S no white space of JavaScript's.
func regular(pattern string, w *writing, left *budget) (Expr, error) {
	if _, err := syntax.Parse(pattern, syntax.Perl); err != nil { // told in the words of the schema
		return Expr{}, err
	}
	p := patternReader{
		write: w.quoted, dot: everyRune.without('\n').without('\r').minus('\u2028', '\u2029'), left: left,
		anything: Repeat(w.any, 0, -1),
	}
	return p.read(withoutSpaces(pattern))
}

// White space of JavaScript's \s and the other characters, as parts of a class. A range is last, so that a - behind it is itself.
const (
	spaces    = `\x09-\x0D\x20\x{A0}\x{1680}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}\x{FEFF}\x{2000}-\x{200A}`
	notSpaces = `\x00-\x08\x0E-\x1F\x21-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027}\x{202A}-\x{202E}` +
		`\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{FEFE}\x{FF00}-\x{10FFFF}`
)

// withoutSpaces is a pattern that is valid, with a wider white space where it excludes white space: \S, and \s in a class behind [^. Go's \s
// is five characters, JavaScript's 25. What lets white space in keeps Go's, all of which JavaScript has too.
func withoutSpaces(pattern string) string {
	var b strings.Builder
	class, negated := false, false
	for i := 0; i < len(pattern); {
		rest := pattern[i:]
		part := rest[:1] // that is read now, and what is written for it
		written := ""
		switch {
		case strings.HasPrefix(rest, `\Q`):
			part, _, _ = strings.Cut(rest, `\E`)
		case rest[0] == '\\':
			part = rest[:2]
			switch {
			case part == `\S` && !class:
				written = "[^" + spaces + "]"
			case part == `\S` && !negated:
				written = notSpaces
			case part == `\s` && class && negated:
				written = spaces
			}
		case class && strings.HasPrefix(rest, "[:"): // [:alpha:]
			if name, _, ok := strings.Cut(rest[2:], ":]"); ok {
				part = rest[:len(name)+4]
			}
		case class:
			class = rest[0] != ']'
		case rest[0] == '[':
			class, negated = true, strings.HasPrefix(rest, "[^")
			if negated {
				part = rest[:2]
			}
			if strings.HasPrefix(rest[len(part):], "]") { // the first one is itself
				part = rest[:len(part)+1]
			}
		}
		b.WriteString(cmp.Or(written, part))
		i += len(part)
	}
	return b.String()
}

// patternReader turns a regular expression into an Expr.
type patternReader struct {
	write    func(runeSet) Expr // one character of a set
	dot      runeSet
	anything Expr // stands before and behind what is not bound
	left     *budget
}

func (p patternReader) read(pattern string) (Expr, error) {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return Expr{}, err
	}
	if re.MaxCap() > 1000 {
		return Expr{}, fmt.Errorf("it has more than 1000 groups")
	}
	return p.anchored(re)
}

// one is a character of the set.
func (p patternReader) one(set runeSet) (Expr, error) {
	if err := p.left.spend(16 * (len(set) + 1)); err != nil {
		return Expr{}, err
	}
	return p.write(set), nil
}

// anchored reads a whole pattern: where it is not bound to the beginning or the end, anything may stand there.
func (p patternReader) anchored(re *syntax.Regexp) (Expr, error) {
	switch re.Op {
	case syntax.OpCapture:
		return p.anchored(re.Sub[0])
	case syntax.OpAlternate:
		var out []Expr
		for _, sub := range re.Sub {
			e, err := p.anchored(sub)
			if err != nil {
				return Expr{}, err
			}
			out = append(out, e)
		}
		return Choice(out...), nil
	}
	parts := []*syntax.Regexp{re}
	if re.Op == syntax.OpConcat {
		parts = re.Sub
	}
	before, after := p.anything, p.anything
	for len(parts) > 0 && parts[0].Op == syntax.OpBeginText {
		before, parts = Expr{}, parts[1:]
	}
	for len(parts) > 0 && parts[len(parts)-1].Op == syntax.OpEndText {
		after, parts = Expr{}, parts[:len(parts)-1]
	}
	out := []Expr{before}
	for _, part := range parts {
		e, err := p.expr(part)
		if err != nil {
			return Expr{}, err
		}
		out = append(out, e)
	}
	return Sequence(append(out, after)...), nil
}

func (p patternReader) expr(re *syntax.Regexp) (Expr, error) {
	var subs []Expr
	for _, sub := range re.Sub {
		e, err := p.expr(sub)
		if err != nil {
			return Expr{}, err
		}
		subs = append(subs, e)
	}
	switch re.Op {
	case syntax.OpNoMatch:
		return Choice(), nil
	case syntax.OpEmptyMatch:
		return Expr{}, nil
	case syntax.OpLiteral:
		var out []Expr
		for _, c := range re.Rune {
			e, err := p.letter(c, re.Flags&syntax.FoldCase != 0)
			if err != nil {
				return Expr{}, err
			}
			out = append(out, e)
		}
		return Sequence(out...), nil
	case syntax.OpCharClass:
		var set runeSet
		for i := 0; i < len(re.Rune); i += 2 {
			set = append(set, runeRange{re.Rune[i], re.Rune[i+1]})
		}
		return p.one(set.minus(0xD800, 0xDFFF).minus(utf8.MaxRune+1, unicode.MaxRune+1))
	case syntax.OpAnyChar:
		return p.one(everyRune)
	case syntax.OpAnyCharNotNL:
		return p.one(p.dot)
	case syntax.OpCapture:
		return subs[0], nil
	case syntax.OpStar:
		return Repeat(subs[0], 0, -1), nil
	case syntax.OpPlus:
		return Repeat(subs[0], 1, -1), nil
	case syntax.OpQuest:
		return Optional(subs[0]), nil
	case syntax.OpRepeat:
		return Repeat(subs[0], re.Min, re.Max), nil
	case syntax.OpConcat:
		return Sequence(subs...), nil
	case syntax.OpAlternate:
		return Choice(subs...), nil
	}
	return Expr{}, fmt.Errorf("%s within it is not supported; ^ and $ stand at its ends", re)
}

// letter is a character, or with fold all that are it in another case.
func (p patternReader) letter(c rune, fold bool) (Expr, error) {
	set := runeSet{{c, c}}
	for f := unicode.SimpleFold(c); fold && f != c; f = unicode.SimpleFold(f) {
		set = append(set, runeRange{f, f})
	}
	slices.SortFunc(set, func(x, y runeRange) int { return cmp.Compare(x.low, y.low) })
	return p.one(set)
}
