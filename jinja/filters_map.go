package jinja

import (
	"slices"
	"strings"
)

// callNamed applies a filter or test that an argument names.
func callNamed(vm *machine, isTest bool, name, v any, a arguments) (any, error) {
	key, ok := text(name)
	if isTest {
		if t := vm.lib.tests[key]; ok && t != nil {
			return t(vm, v, a)
		}
		return nil, raise("TemplateRuntimeError", "No test named %q.", key)
	}
	if f := vm.lib.filters[key]; ok && f != nil {
		return f(vm, v, a)
	}
	if why, refused := refusedFilters[key]; refused {
		return nil, unsupported("filter %q (%s)", key, why)
	}
	return nil, raise("TemplateRuntimeError", "No filter named %q.", key)
}

// mapped is the generator over v with each value changed or dropped by step.
func mapped(v any, prepare func() (func(any) (any, bool, error), error)) *generator {
	return lazy(func() (func() (any, bool, error), error) {
		if !truth(v) {
			return sliceIterator(nil), nil
		}
		step, err := prepare()
		if err != nil {
			return nil, err
		}
		next, err := iterate(v)
		if err != nil {
			return nil, err
		}
		return func() (any, bool, error) {
			for {
				item, ok, err := next()
				if err != nil || !ok {
					return nil, false, err
				}
				out, keep, err := step(item)
				if err != nil || keep {
					return out, keep, err
				}
			}
		}, nil
	})
}

func mapFilter(vm *machine, v any, a arguments) (any, error) {
	a = arguments{slices.Clone(a.pos), slices.Clone(a.keys), slices.Clone(a.vals)}
	return mapped(v, func() (func(any) (any, bool, error), error) {
		if len(a.pos) == 0 && slices.Contains(a.keys, "attribute") {
			args, err := a.bind("map", 0, "attribute", "default")
			if err != nil {
				return nil, raise("FilterArgumentError", "Unexpected keyword argument")
			}
			get, err := getter(vm, args[0], args[1], false)
			return func(item any) (any, bool, error) {
				out, err := get(item)
				return out, true, err
			}, err
		}
		if len(a.pos) == 0 {
			return nil, raise("FilterArgumentError", "map requires a filter argument")
		}
		return func(item any) (any, bool, error) {
			out, err := callNamed(vm, false, a.pos[0], item, arguments{a.pos[1:], a.keys, a.vals})
			return out, true, err
		}, nil
	}), nil
}

// choose makes select, reject, selectattr and rejectattr.
func choose(want, byAttribute bool) filter {
	return func(vm *machine, v any, a arguments) (any, error) {
		a = arguments{slices.Clone(a.pos), slices.Clone(a.keys), slices.Clone(a.vals)}
		return mapped(v, func() (func(any) (any, bool, error), error) {
			get := func(v any) (any, error) { return v, nil }
			rest := a.pos
			if byAttribute {
				if len(rest) == 0 {
					return nil, raise("FilterArgumentError", "Missing parameter for attribute name")
				}
				var err error
				if get, err = getter(vm, rest[0], missing, false); err != nil {
					return nil, err
				}
				rest = rest[1:]
			}
			return func(item any) (any, bool, error) {
				tested, err := get(item)
				if err == nil && len(rest) > 0 {
					tested, err = callNamed(vm, true, rest[0], tested, arguments{rest[1:], a.keys, a.vals})
				}
				return item, err == nil && truth(tested) == want, err
			}, nil
		}), nil
	}
}

func sortFilter(vm *machine, v any, a arguments) (any, error) {
	args, err := a.bind("do_sort", 0, "reverse", "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	var gets []func(any) (any, error)
	attributes := []any{nil}
	if s, ok := text(args[2]); ok {
		attributes = nil
		for _, part := range strings.Split(s, ",") {
			attributes = append(attributes, part)
		}
	} else if given(args[2]) {
		attributes = []any{args[2]}
	}
	for _, attribute := range attributes {
		get, err := getter(vm, attribute, missing, !flag(args[1]))
		if err != nil {
			return nil, err
		}
		gets = append(gets, get)
	}
	items, err := collect(vm, v)
	if err != nil {
		return nil, err
	}
	out, err := sorted(vm, items, func(v any) (any, error) {
		key := &list{}
		for _, get := range gets {
			k, err := get(v)
			if err != nil {
				return nil, err
			}
			key.items = append(key.items, k)
		}
		return key, nil
	}, flag(args[0]))
	return &list{out}, err
}

func sumFilter(vm *machine, v any, a arguments) (any, error) {
	args, err := a.bind("do_sum", 0, "attribute", "start")
	if err != nil {
		return nil, err
	}
	get := func(v any) (any, error) { return v, nil }
	if given(args[0]) {
		if get, err = getter(vm, args[0], missing, false); err != nil {
			return nil, err
		}
	}
	total := any(0)
	if args[1] != missing {
		total = args[1]
	}
	if _, isText := text(total); isText {
		return nil, typeError("sum() can't sum strings [use ''.join(seq) instead]")
	}
	items, err := collect(vm, v)
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		if item, err = get(item); err != nil {
			return nil, err
		}
		if _, isFloat := item.(float64); isFloat && len(items) > 2 {
			return nil, unsupported("the sum of several floats, which depends on Python's version,")
		}
		if total, err = binary(vm, "+", total, item); err != nil {
			return nil, err
		}
	}
	return total, nil
}

func uniqueFilter(vm *machine, v any, a arguments) (any, error) {
	args, err := a.bind("do_unique", 0, "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	return lazy(func() (func() (any, bool, error), error) {
		attribute := args[1]
		if attribute == missing {
			attribute = nil
		}
		get, err := getter(vm, attribute, missing, !flag(args[0]))
		if err != nil {
			return nil, err
		}
		next, err := iterate(v)
		if err != nil {
			return nil, err
		}
		seen := newDict()
		return func() (any, bool, error) {
			for {
				item, ok, err := next()
				if err != nil || !ok {
					return nil, false, err
				}
				key, err := get(item)
				if err != nil {
					return nil, false, err
				}
				_, found, err := seen.get(key)
				if err != nil {
					return nil, false, err
				}
				if !found {
					return item, true, seen.set(key, nil)
				}
			}
		}, nil
	}), nil
}

// extreme makes min and max; the first of equal values wins.
func extreme(op string) filter {
	return func(vm *machine, v any, a arguments) (any, error) {
		args, err := a.bind("min_or_max", 0, "case_sensitive", "attribute")
		if err != nil {
			return nil, err
		}
		attribute := args[1]
		if attribute == missing {
			attribute = nil
		}
		get, err := getter(vm, attribute, missing, !flag(args[0]))
		if err != nil {
			return nil, err
		}
		items, err := collect(vm, v)
		if err != nil {
			return nil, err
		}
		if len(items) == 0 {
			return undefinedHint("No aggregated item, sequence was empty."), nil
		}
		best := items[0]
		bestKey, err := get(best)
		for _, item := range items[1:] {
			if err != nil {
				return nil, err
			}
			var key any
			if key, err = get(item); err != nil {
				return nil, err
			}
			var better bool
			if better, err = order(op, key, bestKey); better {
				best, bestKey = item, key
			}
		}
		return best, err
	}
}

func groupbyFilter(vm *machine, v any, a arguments) (any, error) {
	args, err := a.bind("do_groupby", 1, "attribute", "default", "case_sensitive")
	if err != nil {
		return nil, err
	}
	get, err := getter(vm, args[0], args[1], !flag(args[2]))
	if err != nil {
		return nil, err
	}
	show, err := getter(vm, args[0], args[1], false)
	if err != nil {
		return nil, err
	}
	items, err := collect(vm, v)
	if err != nil {
		return nil, err
	}
	if items, err = sorted(vm, items, get, false); err != nil {
		return nil, err
	}
	out := &list{}
	var group *list
	var last any
	for _, item := range items {
		key, err := get(item)
		if err != nil {
			return nil, err
		}
		same := false
		if group != nil {
			if same, err = equal(key, last); err != nil {
				return nil, err
			}
		}
		if !same {
			shown, err := show(item)
			if err != nil {
				return nil, err
			}
			group, last = &list{}, key
			out.items = append(out.items, tuple{shown, group})
		}
		group.items = append(group.items, item)
	}
	return out, nil
}
