package grammar

import (
	"fmt"
	"regexp/syntax"
	"unicode"
	"unicode/utf8"
)

// Regexp is the texts that match a regular expression whole, in Go's syntax, which knows neither lookahead nor references.
func Regexp(pattern string) (Expr, error) {
	if _, err := syntax.Parse(pattern, syntax.Perl); err != nil {
		return Expr{}, err
	}
	return regular("^(?:"+pattern+")$", runeSet.expr)
}

// regular is the texts that match a regular expression in Go's syntax, which knows neither lookahead nor references. As in JSON Schema it
// matches somewhere in the text unless ^ and $ bind it. one writes one character of a set.
func regular(pattern string, one func(runeSet) Expr) (Expr, error) {
	re, err := syntax.Parse(pattern, syntax.Perl|syntax.DotNL)
	if err != nil {
		return Expr{}, err
	}
	if re.MaxCap() > 1000 {
		return Expr{}, fmt.Errorf("it has more than 1000 groups")
	}
	p := patternReader{one: one, anything: Repeat(one(everyRune), 0, -1)}
	return p.anchored(re)
}

type patternReader struct {
	one      func(runeSet) Expr
	anything Expr
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
			out = append(out, p.letter(c, re.Flags&syntax.FoldCase != 0))
		}
		return Sequence(out...), nil
	case syntax.OpCharClass:
		var set runeSet
		for i := 0; i < len(re.Rune); i += 2 {
			set = append(set, runeRange{re.Rune[i], re.Rune[i+1]})
		}
		return p.one(set.minus(0xD800, 0xDFFF).minus(utf8.MaxRune+1, unicode.MaxRune+1)), nil
	case syntax.OpAnyChar:
		return p.one(everyRune), nil
	case syntax.OpAnyCharNotNL:
		return p.one(everyRune.without('\n')), nil
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
func (p patternReader) letter(c rune, fold bool) Expr {
	set := runeSet{{c, c}}
	if fold {
		out := []Expr{p.one(set)}
		for f := unicode.SimpleFold(c); f != c; f = unicode.SimpleFold(f) {
			out = append(out, p.one(runeSet{{f, f}}))
		}
		return Choice(out...)
	}
	return p.one(set)
}
