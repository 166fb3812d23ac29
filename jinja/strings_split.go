package jinja

import (
	"slices"
	"strings"
	"unicode/utf8"
)

func texts(parts []string) *list {
	out := make([]any, len(parts))
	for i, p := range parts {
		out[i] = p
	}
	return &list{out}
}

// splitArgs are the separator ("" for white space) and the limit (-1 for none) of split and rsplit.
func splitArgs(name string, a arguments) (sep string, limit int, err error) {
	v, err := a.bind(name, 0, "sep", "maxsplit")
	if err != nil {
		return "", 0, err
	}
	limit = -1
	if v[1] != missing {
		if limit, err = intArg(name, v[1]); err != nil {
			return "", 0, err
		}
	}
	if v[0] != missing && v[0] != nil {
		if sep, err = stringArg(name, v[0]); err == nil && sep == "" {
			err = valueError("empty separator")
		}
	}
	return sep, limit, err
}

func splitMethod(vm *machine, s string, a arguments) (any, error) {
	sep, limit, err := splitArgs("split", a)
	if err != nil {
		return nil, err
	}
	if err := vm.charge(len(s) * 2); err != nil {
		return nil, err
	}
	if sep != "" {
		if limit >= 0 {
			limit++
		}
		if limit == 0 {
			limit = 1
		}
		return texts(strings.SplitN(s, sep, limit)), nil
	}
	var parts []string
	for s = strings.TrimLeftFunc(s, isSpace); s != ""; s = strings.TrimLeftFunc(s, isSpace) {
		end := strings.IndexFunc(s, isSpace)
		if limit >= 0 && len(parts) == limit {
			end = -1
		}
		if end < 0 {
			end = len(s)
		}
		parts = append(parts, s[:end])
		s = s[end:]
	}
	return texts(parts), nil
}

func rsplitMethod(vm *machine, s string, a arguments) (any, error) {
	sep, limit, err := splitArgs("rsplit", a)
	if err != nil {
		return nil, err
	}
	if err := vm.charge(len(s) * 2); err != nil {
		return nil, err
	}
	var parts []string
	for sep != "" {
		at := strings.LastIndex(s, sep)
		if at < 0 || limit >= 0 && len(parts) == limit {
			parts = append(parts, s)
			break
		}
		parts = append(parts, s[at+len(sep):])
		s = s[:at]
	}
	for s = rstrip(s); sep == "" && s != ""; s = rstrip(s) {
		at := strings.LastIndexFunc(s, isSpace)
		if limit >= 0 && len(parts) == limit {
			parts = append(parts, s)
			break
		}
		start := 0
		if at >= 0 {
			_, n := utf8.DecodeRuneInString(s[at:])
			start = at + n
		}
		parts = append(parts, s[start:])
		s = s[:start]
	}
	slices.Reverse(parts)
	return texts(parts), nil
}

func splitlines(s string, keep bool) []string {
	var out []string
	for s != "" {
		at := strings.IndexFunc(s, func(r rune) bool {
			return r >= '\n' && r <= '\r' || r >= 0x1c && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
		})
		if at < 0 {
			return append(out, s)
		}
		_, n := utf8.DecodeRuneInString(s[at:])
		if strings.HasPrefix(s[at:], "\r\n") {
			n = 2
		}
		end := at
		if keep {
			end += n
		}
		out = append(out, s[:end])
		s = s[at+n:]
	}
	return out
}

func splitlinesMethod(vm *machine, s string, a arguments) (any, error) {
	v, err := a.bind("splitlines", 0, "keepends")
	if err != nil {
		return nil, err
	}
	return texts(splitlines(s, v[0] != missing && truth(v[0]))), vm.charge(2 * len(s))
}

func partition(find func(s, sep string) int) stringMethod {
	return func(vm *machine, s string, a arguments) (any, error) {
		v, err := a.one("partition")
		if err != nil {
			return nil, err
		}
		sep, err := stringArg("partition", v)
		if err != nil {
			return nil, err
		}
		if sep == "" {
			return nil, valueError("empty separator")
		}
		at := find(s, sep)
		if at < 0 {
			if find("xx", "x") == 1 { // from the right
				return tuple{"", "", s}, nil
			}
			return tuple{s, "", ""}, nil
		}
		return tuple{s[:at], sep, s[at+len(sep):]}, vm.charge(len(s))
	}
}
