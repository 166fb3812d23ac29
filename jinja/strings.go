package jinja

import (
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

type stringMethod func(vm *machine, s string, a arguments) (any, error)

// stringRefused are methods of Python's str that are not implemented.
var (
	stringRefused = strings.Fields("encode format_map isidentifier maketrans translate")
	markupOnly    = strings.Fields("escape striptags unescape")
)

func newStringMethods() map[string]stringMethod {
	return map[string]stringMethod{
		"strip":  stripMethod("strip", true, true),
		"lstrip": stripMethod("lstrip", true, false),
		"rstrip": stripMethod("rstrip", false, true),
		"split":  splitMethod, "rsplit": rsplitMethod, "splitlines": splitlinesMethod,
		"partition": partition(strings.Index), "rpartition": partition(strings.LastIndex),
		"startswith": affixMethod("startswith", strings.HasPrefix), "endswith": affixMethod("endswith", strings.HasSuffix),
		"removeprefix": cutMethod("removeprefix", strings.TrimPrefix), "removesuffix": cutMethod("removesuffix", strings.TrimSuffix),
		"replace": replaceMethod, "join": joinMethod, "format": formatMethod,
		"find": findMethod("find", strings.Index, false), "rfind": findMethod("rfind", strings.LastIndex, false),
		"index": findMethod("index", strings.Index, true), "rindex": findMethod("rindex", strings.LastIndex, true),
		"count": countMethod, "zfill": zfillMethod, "expandtabs": expandtabsMethod,
		"ljust": justMethod("ljust"), "rjust": justMethod("rjust"), "center": justMethod("center"),
		"upper": caseMethod("upper", upper), "lower": caseMethod("lower", lower), "title": caseMethod("title", pythonTitle),
		"capitalize": caseMethod("capitalize", capitalize), "swapcase": caseMethod("swapcase", swapcase), "casefold": caseMethod("casefold", casefold),
		"isspace": isMethod("isspace", allOf(isSpace)), "isalpha": isMethod("isalpha", allOf(unicode.IsLetter)),
		"isdigit": isMethod("isdigit", allOf(isDigit)), "isdecimal": isMethod("isdecimal", allOf(unicode.IsDigit)),
		"isnumeric": isMethod("isnumeric", allOf(isNumeric)), "isalnum": isMethod("isalnum", allOf(isAlnum)),
		"isascii": isMethod("isascii", isASCII), "isprintable": isMethod("isprintable", isPrintable),
		"islower": isMethod("islower", isLower), "isupper": isMethod("isupper", isUpper), "istitle": isMethod("istitle", isTitle),
	}
}

// markupKeeps are the methods whose result on a Markup is the same text, as Markup, when they take no string.
var markupKeeps = strings.Fields("strip lstrip rstrip upper lower title capitalize swapcase casefold")

func markupMethod(vm *machine, s, name string, m stringMethod, a arguments) (any, error) {
	v, err := m(vm, s, a)
	if err != nil {
		return nil, err
	}
	switch out := v.(type) {
	case bool, int:
		return v, nil
	case string:
		if slices.Contains(markupKeeps, name) && len(a.pos)+len(a.keys) == 0 {
			return markup(out), nil
		}
	}
	return nil, unsupported("method %q of a Markup string", name)
}

// stringArg is argument i, which must be a string.
func stringArg(fn string, v any) (string, error) {
	if s, ok := text(v); ok {
		return s, nil
	}
	return "", typeError("%s argument must be str, not %s", fn, typeName(v))
}

func intArg(fn string, v any) (int, error) {
	switch v := v.(type) {
	case int:
		return v, nil
	case bool:
		if v {
			return 1, nil
		}
		return 0, nil
	}
	return 0, typeError("%s: '%s' object cannot be interpreted as an integer", fn, typeName(v))
}

func strip(s, chars string, all, left, right bool) string {
	in := func(r rune) bool { return strings.ContainsRune(chars, r) }
	if all {
		in = isSpace
	}
	if left {
		s = strings.TrimLeftFunc(s, in)
	}
	if right {
		s = strings.TrimRightFunc(s, in)
	}
	return s
}

func stripMethod(name string, left, right bool) stringMethod {
	return func(vm *machine, s string, a arguments) (any, error) {
		if len(a.keys) > 0 || len(a.pos) > 1 {
			return nil, typeError("%s expected at most 1 argument", name)
		}
		if len(a.pos) == 0 || a.pos[0] == nil {
			return vm.made(strip(s, "", true, left, right), nil)
		}
		chars, ok := text(a.pos[0])
		if !ok {
			return nil, typeError("%s arg must be None or str", name)
		}
		return vm.made(strip(s, chars, false, left, right), nil)
	}
}

// window cuts s to the optional start and end arguments of find, count, startswith and the like; offset is that of its
// start in code points. ok is false when start lies behind the end.
func window(fn, s string, limits []any) (cut string, offset int, ok bool, err error) {
	if len(limits) == 0 {
		return s, 0, true, nil
	}
	n := utf8.RuneCountInString(s)
	var stop any
	if len(limits) > 1 {
		stop = limits[1]
	}
	if start, isInt := limits[0].(int); isInt && start > n {
		return "", 0, false, nil
	}
	from, to, _, err := bounds(n, limits[0], stop, nil)
	if err != nil || from > to {
		return "", 0, false, err
	}
	return s[runeOffset(s, from):runeOffset(s, to)], from, true, nil
}

func affixMethod(name string, has func(s, affix string) bool) stringMethod {
	return func(_ *machine, s string, a arguments) (any, error) {
		if len(a.pos) < 1 || len(a.pos) > 3 || len(a.keys) > 0 {
			return nil, typeError("%s expected at least 1 argument, got %d", name, len(a.pos))
		}
		s, _, ok, err := window(name, s, a.pos[1:])
		if err != nil {
			return nil, err
		}
		affixes, isTuple := a.pos[0].(tuple)
		if !isTuple {
			affixes = tuple{a.pos[0]}
		}
		for _, v := range affixes {
			affix, isText := text(v)
			if !isText {
				return nil, typeError("%s first arg must be str or a tuple of str, not %s", name, typeName(v))
			}
			if ok && has(s, affix) {
				return true, nil
			}
		}
		return false, nil
	}
}

func cutMethod(name string, cut func(s, affix string) string) stringMethod {
	return func(vm *machine, s string, a arguments) (any, error) {
		v, err := a.one(name)
		if err != nil {
			return nil, err
		}
		affix, err := stringArg(name, v)
		return vm.made(cut(s, affix), err)
	}
}

func replaceMethod(vm *machine, s string, a arguments) (any, error) {
	if len(a.pos) < 2 || len(a.pos) > 3 || len(a.keys) > 0 {
		return nil, typeError("replace expected 2 or 3 arguments, got %d", len(a.pos))
	}
	old, err := stringArg("replace() argument 1", a.pos[0])
	if err != nil {
		return nil, err
	}
	with, err := stringArg("replace() argument 2", a.pos[1])
	if err != nil {
		return nil, err
	}
	count := -1
	if len(a.pos) == 3 {
		if count, err = intArg("replace", a.pos[2]); err != nil {
			return nil, err
		}
	}
	return replace(vm, s, old, with, count)
}

func replace(vm *machine, s, old, with string, count int) (any, error) {
	if s == "" && old == "" && count != 0 { // Go and Python agree, also on the empty string
		return vm.made(with, nil)
	}
	if err := vm.chargeTimes(len(with), strings.Count(s, old)); err != nil {
		return nil, err
	}
	return vm.made(strings.Replace(s, old, with, count), nil)
}

func joinMethod(vm *machine, s string, a arguments) (any, error) {
	v, err := a.one("join")
	if err != nil {
		return nil, err
	}
	items, err := collect(vm, v)
	if err != nil {
		return nil, err
	}
	parts := make([]string, len(items))
	total := 0
	for i, item := range items {
		p, ok := text(item)
		if !ok {
			return nil, typeError("sequence item %d: expected str instance, %s found", i, typeName(item))
		}
		parts[i] = p
		total += len(p) + len(s)
	}
	if err := vm.charge(total); err != nil {
		return nil, err
	}
	return strings.Join(parts, s), nil
}

func findMethod(name string, find func(s, sub string) int, must bool) stringMethod {
	return func(_ *machine, s string, a arguments) (any, error) {
		if len(a.pos) < 1 || len(a.pos) > 3 || len(a.keys) > 0 {
			return nil, typeError("%s expected at least 1 argument, got %d", name, len(a.pos))
		}
		sub, err := stringArg(name, a.pos[0])
		if err != nil {
			return nil, err
		}
		cut, offset, ok, err := window(name, s, a.pos[1:])
		if err != nil {
			return nil, err
		}
		if at := find(cut, sub); ok && at >= 0 {
			return offset + utf8.RuneCountInString(cut[:at]), nil
		}
		if must {
			return nil, valueError("substring not found")
		}
		return -1, nil
	}
}

func countMethod(_ *machine, s string, a arguments) (any, error) {
	if len(a.pos) < 1 || len(a.pos) > 3 || len(a.keys) > 0 {
		return nil, typeError("count expected at least 1 argument, got %d", len(a.pos))
	}
	sub, err := stringArg("count", a.pos[0])
	if err != nil {
		return nil, err
	}
	cut, _, ok, err := window("count", s, a.pos[1:])
	if err != nil || !ok {
		return 0, err
	}
	return strings.Count(cut, sub), nil
}

func zfillMethod(vm *machine, s string, a arguments) (any, error) {
	v, err := a.one("zfill")
	if err != nil {
		return nil, err
	}
	width, err := intArg("zfill", v)
	if err != nil {
		return nil, err
	}
	pad := max(0, width-utf8.RuneCountInString(s))
	if err := vm.chargeTimes(1, pad); err != nil {
		return nil, err
	}
	zeros := strings.Repeat("0", pad)
	if s != "" && (s[0] == '+' || s[0] == '-') {
		return s[:1] + zeros + s[1:], nil
	}
	return zeros + s, nil
}

func expandtabsMethod(vm *machine, s string, a arguments) (any, error) {
	v, err := a.bind("expandtabs", 0, "tabsize")
	if err != nil {
		return nil, err
	}
	size := 8
	if v[0] != missing {
		if size, err = intArg("expandtabs", v[0]); err != nil {
			return nil, err
		}
	}
	if err := vm.chargeTimes(max(size, 1), strings.Count(s, "\t")); err != nil {
		return nil, err
	}
	var b strings.Builder
	column := 0
	for _, r := range s {
		switch r {
		case '\t':
			if size > 0 {
				n := size - column%size
				b.WriteString(strings.Repeat(" ", n))
				column += n
			}
		case '\n', '\r':
			b.WriteRune(r)
			column = 0
		default:
			b.WriteRune(r)
			column++
		}
	}
	return vm.made(b.String(), nil)
}

func justMethod(name string) stringMethod {
	return func(vm *machine, s string, a arguments) (any, error) {
		if len(a.pos) < 1 || len(a.pos) > 2 || len(a.keys) > 0 {
			return nil, typeError("%s expected 1 or 2 arguments, got %d", name, len(a.pos))
		}
		width, err := intArg(name, a.pos[0])
		if err != nil {
			return nil, err
		}
		fill := " "
		if len(a.pos) == 2 {
			if fill, err = stringArg(name, a.pos[1]); err != nil || utf8.RuneCountInString(fill) != 1 {
				return nil, typeError("The fill character must be exactly one character long")
			}
		}
		pad := max(0, width-utf8.RuneCountInString(s))
		if err := vm.chargeTimes(len(fill), pad); err != nil {
			return nil, err
		}
		left := 0
		switch name {
		case "rjust":
			left = pad
		case "center":
			left = pad/2 + (pad & width & 1)
		}
		return vm.made(strings.Repeat(fill, left)+s+strings.Repeat(fill, pad-left), nil)
	}
}

func isMethod(name string, is func(string) bool) stringMethod {
	return func(_ *machine, s string, a arguments) (any, error) { return is(s), a.none(name) }
}

func caseMethod(name string, convert func(string) (string, error)) stringMethod {
	return func(vm *machine, s string, a arguments) (any, error) {
		if err := a.none(name); err != nil {
			return nil, err
		}
		return vm.made(convert(s))
	}
}

// clampInt limits a Go int to what fits an int32, for widths and precisions.
func clampInt(n int) int { return min(max(n, math.MinInt32), math.MaxInt32) }
