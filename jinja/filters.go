package jinja

import (
	"math/big"
	"strings"
	"unicode"
	"unicode/utf8"
)

// filter applies to a value; it must not keep args.
type filter func(vm *machine, v any, a arguments) (any, error)

// refusedFilters are jinja2's filters that are not implemented.
var refusedFilters = map[string]string{
	"pprint": "Python's pretty printer is not implemented", "random": "the result would not be reproducible",
	"striptags": "HTML is not supported", "urlize": "HTML is not supported", "xmlattr": "HTML is not supported",
	"wordwrap": "Python's textwrap is not implemented", "filesizeformat": "not implemented",
}

func newFilters() map[string]filter {
	f := map[string]filter{
		"abs": absFilter, "capitalize": caseFilter(capitalize), "upper": caseFilter(upper), "lower": caseFilter(lower), "title": caseFilter(title),
		"center": centerFilter, "default": defaultFilter, "escape": escapeFilter, "forceescape": escapeFilter,
		"float": floatFilter, "int": intFilter, "format": formatFilter, "indent": indentFilter, "round": roundFilter,
		"replace": replaceFilter, "safe": safeFilter, "string": stringFilter, "trim": trimFilter, "truncate": truncateFilter,
		"urlencode": urlencodeFilter, "wordcount": wordcountFilter, "tojson": tojson,
		"length": func(_ *machine, v any, a arguments) (any, error) {
			if err := a.none("len"); err != nil {
				return nil, err
			}
			return length(v)
		},
	}
	addSequenceFilters(f)
	for alias, name := range map[string]string{"d": "default", "e": "escape", "count": "length"} {
		f[alias] = f[name]
	}
	return f
}

// soft is markupsafe's soft_str: the text of a value, and whether it is Markup.
func soft(v any) (s string, safe bool, err error) {
	if m, ok := v.(markup); ok {
		return string(m), true, nil
	}
	s, err = str(v)
	return s, false, err
}

func sameKind(s string, safe bool) any {
	if safe {
		return markup(s)
	}
	return s
}

func caseFilter(convert func(string) (string, error)) filter {
	return func(vm *machine, v any, a arguments) (any, error) {
		if err := a.none("filter"); err != nil {
			return nil, err
		}
		s, safe, err := soft(v)
		if err != nil {
			return nil, err
		}
		if s, err = convert(s); err != nil {
			return nil, err
		}
		return sameKind(s, safe), vm.charge(len(s))
	}
}

// title is jinja2's: words begin after a hyphen, white space or an opening bracket.
func title(s string) (string, error) {
	var b strings.Builder
	for s != "" {
		opens := func(r rune) bool { return r == '-' || isSpace(r) || strings.ContainsRune("({[<", r) }
		n := strings.IndexFunc(s, func(r rune) bool { return !opens(r) })
		if n < 0 {
			n = len(s)
		}
		if n > 0 { // item[0].upper() + item[1:].lower() leaves these as they are
			b.WriteString(s[:n])
			s = s[n:]
			continue
		}
		if n = strings.IndexFunc(s, opens); n < 0 {
			n = len(s)
		}
		_, first := utf8.DecodeRuneInString(s)
		up, _ := upper(s[:first])
		low, _ := lower(s[first:n])
		b.WriteString(up + low)
		s = s[n:]
	}
	return b.String(), nil
}

func centerFilter(vm *machine, v any, a arguments) (any, error) {
	args, err := a.bind("do_center", 0, "width")
	if err != nil {
		return nil, err
	}
	s, safe, err := soft(v)
	if err != nil {
		return nil, err
	}
	width := any(80)
	if args[0] != missing {
		width = args[0]
	}
	out, err := justMethod("center")(vm, s, arguments{pos: []any{width}})
	if err != nil {
		return nil, err
	}
	return sameKind(out.(string), safe), nil
}

func defaultFilter(_ *machine, v any, a arguments) (any, error) {
	args, err := a.bind("do_default", 0, "default_value", "boolean")
	if err != nil {
		return nil, err
	}
	_, undef := v.(*undefined)
	if undef || args[1] != missing && truth(args[1]) && !truth(v) {
		if args[0] == missing {
			return "", nil
		}
		return args[0], nil
	}
	return v, nil
}

var htmlEscaper = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")

func escape(s string) string { return htmlEscaper.Replace(s) }

func escapeFilter(vm *machine, v any, a arguments) (any, error) {
	if err := a.none("escape"); err != nil {
		return nil, err
	}
	if m, ok := v.(markup); ok {
		return m, nil
	}
	s, err := str(v)
	if err != nil {
		return nil, err
	}
	s = escape(s)
	return markup(s), vm.charge(len(s))
}

func safeFilter(_ *machine, v any, a arguments) (any, error) {
	s, err := str(v)
	if err == nil {
		err = a.none("do_mark_safe")
	}
	return markup(s), err
}

func stringFilter(_ *machine, v any, a arguments) (any, error) {
	s, safe, err := soft(v)
	if err == nil {
		err = a.none("soft_str")
	}
	return sameKind(s, safe), err
}

func trimFilter(vm *machine, v any, a arguments) (any, error) {
	args, err := a.bind("do_trim", 0, "chars")
	if err != nil {
		return nil, err
	}
	s, safe, err := soft(v)
	if err != nil {
		return nil, err
	}
	if args[0] == missing || args[0] == nil {
		s = strip(s, "", true, true, true)
	} else {
		chars, ok := text(args[0])
		if !ok {
			return nil, typeError("strip arg must be None or str")
		}
		s = strip(s, chars, false, true, true)
	}
	return sameKind(s, safe), vm.charge(len(s))
}

func replaceFilter(vm *machine, v any, a arguments) (any, error) {
	args, err := a.bind("do_replace", 2, "old", "new", "count")
	if err != nil {
		return nil, err
	}
	var parts [3]string
	for i, part := range []any{v, args[0], args[1]} {
		if parts[i], err = str(part); err != nil {
			return nil, err
		}
	}
	count := -1
	if args[2] != missing && args[2] != nil {
		if count, err = intArg("replace", args[2]); err != nil {
			return nil, err
		}
	}
	return replace(vm, parts[0], parts[1], parts[2], count)
}

func formatFilter(vm *machine, v any, a arguments) (any, error) {
	if len(a.pos) > 0 && len(a.keys) > 0 {
		return nil, raise("FilterArgumentError", "can't handle positional and keyword arguments at the same time")
	}
	s, safe, err := soft(v)
	if err != nil {
		return nil, err
	}
	if safe {
		return nil, unsupported("format of a Markup string")
	}
	if len(a.keys) == 0 {
		return printf(vm, s, tuple(a.pos))
	}
	d := newDict()
	for i, k := range a.keys {
		d.put(k, a.vals[i])
	}
	return printf(vm, s, d)
}

func indentFilter(vm *machine, v any, a arguments) (any, error) {
	args, err := a.bind("do_indent", 0, "width", "first", "blank")
	if err != nil {
		return nil, err
	}
	s, ok := v.(string)
	if !ok {
		if _, safe := v.(markup); safe {
			return nil, unsupported("indent of a Markup string")
		}
		if _, isList := v.(*list); isList { // a list takes the line feed that is added first
			return nil, raise("AttributeError", "'list' object has no attribute 'splitlines'")
		}
		_, err := binary(vm, "+", v, "\n")
		if err == nil {
			err = unsupported("indent of a %s", typeName(v))
		}
		return nil, err
	}
	indent := "    "
	if args[0] != missing {
		if indent, ok = text(args[0]); !ok {
			n, err := intArg("indent", args[0])
			if err != nil {
				return nil, err
			}
			indent = strings.Repeat(" ", min(max(n, 0), 1<<16))
		}
	}
	on := func(i int) bool { return args[i] != missing && truth(args[i]) }
	lines := splitlines(s+"\n", false)
	if err := vm.chargeTimes(len(indent), len(lines)); err != nil {
		return nil, err
	}
	for i := 1; i < len(lines); i++ {
		if lines[i] != "" || on(2) {
			lines[i] = indent + lines[i]
		}
	}
	out := strings.Join(lines, "\n")
	if on(1) {
		out = indent + out
	}
	return vm.made(out, nil)
}

func truncateFilter(vm *machine, v any, a arguments) (any, error) {
	args, err := a.bind("do_truncate", 0, "length", "killwords", "end", "leeway")
	if err != nil {
		return nil, err
	}
	s, ok := v.(string)
	if !ok {
		return nil, unsupported("truncate of a %s", typeName(v))
	}
	size, leeway, end := 255, 5, "..."
	if args[0] != missing {
		if size, err = intArg("truncate", args[0]); err != nil {
			return nil, err
		}
	}
	if args[2] != missing {
		if end, err = stringArg("truncate", args[2]); err != nil {
			return nil, err
		}
	}
	if args[3] != missing && args[3] != nil {
		if leeway, err = intArg("truncate", args[3]); err != nil {
			return nil, err
		}
	}
	keep := size - utf8.RuneCountInString(end)
	if keep < 0 || leeway < 0 {
		return nil, raise("AssertionError", "expected length >= %d, got %d", utf8.RuneCountInString(end), size)
	}
	if utf8.RuneCountInString(s) <= size+leeway {
		return s, nil
	}
	cut := s[:runeOffset(s, keep)]
	if args[1] == missing || !truth(args[1]) {
		if at := strings.LastIndexByte(cut, ' '); at >= 0 {
			cut = cut[:at]
		}
	}
	return vm.made(cut+end, nil)
}

func quoteURL(s string, query bool) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_.-~", c) >= 0 || c == '/' && !query:
			b.WriteByte(c)
		case c == ' ' && query:
			b.WriteByte('+')
		default:
			b.WriteString("%" + strings.ToUpper(hex(rune(c), 2)))
		}
	}
	return b.String()
}

// quoteURL leaves the mark of the contents as it is.
func (vm *machine) quoteURL(s string, query bool) string {
	if vm.mark == "" {
		return quoteURL(s, query)
	}
	parts := strings.Split(s, vm.mark)
	for i := range parts {
		parts[i] = quoteURL(parts[i], query)
	}
	return strings.Join(parts, vm.mark)
}

func urlencodeFilter(vm *machine, v any, a arguments) (any, error) {
	if err := a.none("do_urlencode"); err != nil {
		return nil, err
	}
	switch v.(type) {
	case string, markup, nil, bool, int, float64, *big.Int, *namespace:
		s, err := str(v)
		return vm.made(vm.quoteURL(s, false), err)
	}
	if d, ok := v.(*dict); ok {
		v = &view{"items", d}
	}
	pairs, err := collect(vm, v)
	if err != nil {
		return nil, err
	}
	var parts []string
	for _, p := range pairs {
		pair, err := collect(vm, p)
		if err != nil {
			return nil, err
		}
		if len(pair) != 2 {
			return nil, valueError("not enough values to unpack (expected 2, got %d)", len(pair))
		}
		key, err := str(pair[0])
		if err != nil {
			return nil, err
		}
		val, err := str(pair[1])
		if err != nil {
			return nil, err
		}
		parts = append(parts, vm.quoteURL(key, true)+"="+vm.quoteURL(val, true))
	}
	return vm.made(strings.Join(parts, "&"), nil)
}

func wordcountFilter(_ *machine, v any, a arguments) (any, error) {
	s, _, err := soft(v)
	if err == nil {
		err = a.none("do_wordcount")
	}
	words := strings.FieldsFunc(s, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsNumber(r) })
	return len(words), err
}
