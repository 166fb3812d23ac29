package jinja

import (
	"slices"
	"strconv"
	"strings"
)

func addSequenceFilters(f map[string]filter) {
	f["attr"], f["batch"], f["slice"], f["dictsort"] = attrFilter, batchFilter, sliceFilter, dictsortFilter
	f["first"], f["last"], f["join"], f["list"], f["items"] = firstFilter, lastFilter, joinFilter, listFilter, itemsFilter
	f["map"], f["reverse"], f["sort"], f["sum"], f["unique"] = mapFilter, reverseFilter, sortFilter, sumFilter, uniqueFilter
	f["groupby"] = groupbyFilter
	f["min"], f["max"] = extreme("<"), extreme(">")
	f["select"], f["reject"] = choose(true, false), choose(false, false)
	f["selectattr"], f["rejectattr"] = choose(true, true), choose(false, true)
}

// lazy makes a generator whose first value is asked for only when it is needed, as Python's are.
func lazy(start func() (func() (any, bool, error), error)) *generator {
	var next func() (any, bool, error)
	done := false
	return &generator{kind: "generator", next: func() (any, bool, error) {
		if done {
			return nil, false, nil
		}
		if next == nil {
			var err error
			if next, err = start(); err != nil {
				done = true
				return nil, false, err
			}
		}
		v, ok, err := next()
		done = !ok || err != nil
		return v, ok, err
	}}
}

// path is an attribute argument: names and indices.
func path(v any) ([]any, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case string:
		var parts []any
		for _, p := range strings.Split(v, ".") {
			if n, err := strconv.Atoi(p); err == nil && strings.Trim(p, "0123456789") == "" {
				parts = append(parts, n)
			} else {
				parts = append(parts, p)
			}
		}
		return parts, nil
	}
	return []any{v}, nil
}

// getter is jinja2's make_attrgetter. fallback is missing when there is none.
func getter(vm *machine, attribute, fallback any, fold bool) (func(any) (any, error), error) {
	parts, err := path(attribute)
	if err != nil {
		return nil, err
	}
	return func(v any) (any, error) {
		for _, p := range parts {
			var err error
			if v, err = getItem(vm, v, p); err != nil {
				return nil, err
			}
			if _, undef := v.(*undefined); undef && fallback != nil && fallback != missing {
				v = fallback
			}
		}
		return folded(v, fold)
	}, nil
}

// folded lowers a string when comparisons ignore case.
func folded(v any, fold bool) (any, error) {
	if s, ok := text(v); ok && fold {
		return lower(s)
	}
	return v, nil
}

func given(v any) bool { return v != missing && v != nil }

func flag(v any) bool { return v != missing && truth(v) }

func attrFilter(vm *machine, v any, a arguments) (any, error) {
	args, err := a.bind("do_attr", 1, "name")
	if err != nil {
		return nil, err
	}
	name, ok := text(args[0])
	if !ok {
		return nil, typeError("attribute name must be string, not '%s'", typeName(args[0]))
	}
	val, found, err := attribute(vm, v, name)
	if err != nil || found {
		return val, err
	}
	return undefinedOf(v, name), nil
}

func batchFilter(vm *machine, v any, a arguments) (any, error) {
	args, err := a.bind("do_batch", 1, "linecount", "fill_with")
	if err != nil {
		return nil, err
	}
	return lazy(func() (func() (any, bool, error), error) {
		items, err := collect(vm, v)
		if err != nil {
			return nil, err
		}
		n, err := intArg("batch", args[0])
		if err != nil || n < 1 {
			return nil, unsupported("batch of this size")
		}
		var out []any
		for len(items) > 0 {
			row := slices.Clone(items[:min(n, len(items))])
			items = items[len(row):]
			if given(args[1]) && len(row) < n {
				if err := vm.chargeTimes(16, n); err != nil {
					return nil, err
				}
				for len(row) < n {
					row = append(row, args[1])
				}
			}
			out = append(out, &list{row})
		}
		return sliceIterator(out), nil
	}), nil
}

func sliceFilter(vm *machine, v any, a arguments) (any, error) {
	args, err := a.bind("do_slice", 1, "slices", "fill_with")
	if err != nil {
		return nil, err
	}
	return lazy(func() (func() (any, bool, error), error) {
		items, err := collect(vm, v)
		if err != nil {
			return nil, err
		}
		n, err := intArg("slice", args[0])
		if err != nil || n < 1 {
			return nil, unsupported("slice of this size")
		}
		if err := vm.chargeTimes(64, n); err != nil {
			return nil, err
		}
		size, extra, offset := len(items)/n, len(items)%n, 0
		var out []any
		for i := range n {
			start := offset + i*size
			if i < extra {
				offset++
			}
			row := slices.Clone(items[start : offset+(i+1)*size])
			if given(args[1]) && i >= extra {
				row = append(row, args[1])
			}
			out = append(out, &list{row})
		}
		return sliceIterator(out), nil
	}), nil
}

// sortBy sorts stably; reverse keeps the order of equal elements too.
func sortBy(items []any, less func(a, b any) (bool, error), reverse bool) error {
	var failed error
	if reverse {
		slices.Reverse(items)
	}
	slices.SortStableFunc(items, func(a, b any) int {
		if failed != nil {
			return 0
		}
		before, err := less(a, b)
		if err != nil {
			failed = err
			return 0
		}
		if before {
			return -1
		}
		after, err := less(b, a)
		if err != nil {
			failed = err
		}
		if after {
			return 1
		}
		return 0
	})
	if reverse {
		slices.Reverse(items)
	}
	return failed
}

type keyed struct{ key, val any }

func keyLess(a, b any) (bool, error) { return order("<", a.(keyed).key, b.(keyed).key) }

// sorted returns the values in the order of their keys.
func sorted(vm *machine, items []any, key func(any) (any, error), reverse bool) ([]any, error) {
	pairs := make([]any, len(items))
	for i, v := range items {
		k, err := key(v)
		if err != nil {
			return nil, err
		}
		pairs[i] = keyed{k, v}
	}
	if err := vm.charge(64 * len(items)); err != nil {
		return nil, err
	}
	if err := sortBy(pairs, keyLess, reverse); err != nil {
		return nil, err
	}
	for i, p := range pairs {
		pairs[i] = p.(keyed).val
	}
	return pairs, nil
}

func dictsortFilter(vm *machine, v any, a arguments) (any, error) {
	args, err := a.bind("do_dictsort", 0, "case_sensitive", "by", "reverse")
	if err != nil {
		return nil, err
	}
	at := 0
	if args[1] != missing {
		switch by, _ := text(args[1]); by {
		case "key":
		case "value":
			at = 1
		default:
			return nil, raise("FilterArgumentError", `You can only sort by either "key" or "value"`)
		}
	}
	d, ok := v.(*dict)
	if !ok {
		if u, undef := v.(*undefined); undef {
			return nil, u.fail()
		}
		return nil, raise("AttributeError", "'%s' object has no attribute 'items'", typeName(v))
	}
	out, err := sorted(vm, (&view{"items", d}).items(), func(v any) (any, error) {
		return folded(v.(tuple)[at], !flag(args[0]))
	}, flag(args[2]))
	return &list{out}, err
}

func firstFilter(_ *machine, v any, a arguments) (any, error) {
	next, err := iterate(v)
	if err == nil {
		err = a.none("do_first")
	}
	if err != nil {
		return nil, err
	}
	item, ok, err := next()
	if err != nil {
		return nil, err
	}
	if !ok {
		return undefinedHint("No first item, sequence was empty."), nil
	}
	return item, nil
}

// reversed is Python's reversed(); ok is false for what cannot be reversed.
func reversed(vm *machine, v any) (items []any, ok bool, err error) {
	switch v.(type) {
	case *list, tuple, *dict, *view, span, string, markup, *undefined:
		items, err = collect(vm, v)
		items = slices.Clone(items)
		slices.Reverse(items)
		return items, true, err
	}
	return nil, false, nil
}

func lastFilter(vm *machine, v any, a arguments) (any, error) {
	items, ok, err := reversed(vm, v)
	if err == nil {
		err = a.none("do_last")
	}
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, typeError("'%s' object is not reversible", typeName(v))
	case len(items) == 0:
		return undefinedHint("No last item, sequence was empty."), nil
	}
	return items[0], nil
}

func reverseFilter(vm *machine, v any, a arguments) (any, error) {
	if err := a.none("do_reverse"); err != nil {
		return nil, err
	}
	if s, ok := v.(string); ok {
		runes := []rune(s)
		slices.Reverse(runes)
		return vm.made(string(runes), nil)
	}
	if _, ok := v.(markup); ok {
		return nil, unsupported("reverse of a Markup string")
	}
	items, ok, err := reversed(vm, v)
	if err != nil {
		return nil, err
	}
	if ok {
		kind := map[string]string{"list": "list_reverseiterator", "dict": "dict_reversekeyiterator", "range": "range_iterator"}[typeName(v)]
		if kind == "" {
			kind = "reversed"
		}
		return &generator{kind: kind, next: sliceIterator(items)}, nil
	}
	if items, err = collect(vm, v); err != nil {
		return nil, raise("FilterArgumentError", "argument must be iterable")
	}
	slices.Reverse(items)
	return &list{items}, nil
}

func joinFilter(vm *machine, v any, a arguments) (any, error) {
	args, err := a.bind("do_join", 0, "d", "attribute")
	if err != nil {
		return nil, err
	}
	sep := ""
	if args[0] != missing {
		if sep, err = str(args[0]); err != nil {
			return nil, err
		}
	}
	get := func(v any) (any, error) { return v, nil }
	if given(args[1]) {
		if get, err = getter(vm, args[1], missing, false); err != nil {
			return nil, err
		}
	}
	items, err := collect(vm, v)
	if err != nil {
		return nil, err
	}
	parts := make([]string, len(items))
	for i, item := range items {
		if item, err = get(item); err != nil {
			return nil, err
		}
		if parts[i], err = str(item); err != nil {
			return nil, err
		}
		if err := vm.charge(len(parts[i]) + len(sep)); err != nil {
			return nil, err
		}
	}
	return strings.Join(parts, sep), nil
}

func listFilter(vm *machine, v any, a arguments) (any, error) {
	items, err := collect(vm, v)
	if err == nil {
		err = a.none("do_list")
	}
	return &list{slices.Clone(items)}, err
}

func itemsFilter(_ *machine, v any, a arguments) (any, error) {
	if err := a.none("do_items"); err != nil {
		return nil, err
	}
	return lazy(func() (func() (any, bool, error), error) {
		switch v := v.(type) {
		case *undefined:
			return sliceIterator(nil), nil
		case *dict:
			return sliceIterator((&view{"items", v}).items()), nil
		}
		return nil, typeError("Can only get item pairs from a mapping.")
	}), nil
}
