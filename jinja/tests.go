package jinja

import "math/big"

// test is what follows "is".
type test func(vm *machine, v any, a arguments) (bool, error)

func newTests() map[string]test {
	kind := func(is func(v any) bool) test {
		return func(_ *machine, v any, a arguments) (bool, error) { return is(v), a.none("test") }
	}
	against := func(fn func(v, other any) (bool, error)) test {
		return func(_ *machine, v any, a arguments) (bool, error) {
			if len(a.pos) != 1 || len(a.keys) > 0 {
				return false, typeError("the test takes one argument (%d given)", len(a.pos)+len(a.keys))
			}
			return fn(v, a.pos[0])
		}
	}
	ordered := func(op string) test {
		return against(func(v, other any) (bool, error) { return order(op, v, other) })
	}
	notEqual := against(func(v, other any) (bool, error) {
		same, err := equal(v, other)
		return !same, err
	})
	t := map[string]test{
		"defined":   kind(func(v any) bool { return !isUndefined(v) }),
		"undefined": kind(isUndefined),
		"none":      kind(func(v any) bool { return v == nil }),
		"boolean":   kind(func(v any) bool { return v == true || v == false }),
		"true":      kind(func(v any) bool { return v == true }),
		"false":     kind(func(v any) bool { return v == false }),
		"integer":   kind(isInteger),
		"float":     kind(func(v any) bool { _, ok := v.(float64); return ok }),
		"number":    kind(func(v any) bool { _, ok := number(v); return ok }),
		"string":    kind(func(v any) bool { _, ok := text(v); return ok }),
		"mapping":   kind(func(v any) bool { _, ok := v.(*dict); return ok }),
		"sequence":  kind(isSequence),
		"iterable":  kind(isIterable),
		"callable":  kind(isCallable),
		"escaped":   kind(func(v any) bool { _, ok := v.(markup); return ok }),
		"lower":     letters(isLower), "upper": letters(isUpper),
		"odd": remainder(1), "even": remainder(0), "divisibleby": divisibleBy,
		"in": against(contains), "sameas": against(sameAs), "eq": against(equal), "ne": notEqual,
		"lt": ordered("<"), "le": ordered("<="), "gt": ordered(">"), "ge": ordered(">="),
		"filter": func(vm *machine, v any, a arguments) (bool, error) {
			name, _ := text(v)
			_, refused := refusedFilters[name]
			return vm.lib.filters[name] != nil || refused, a.none("test")
		},
		"test": func(vm *machine, v any, a arguments) (bool, error) {
			name, _ := text(v)
			return vm.lib.tests[name] != nil, a.none("test")
		},
	}
	for alias, name := range map[string]string{
		"==": "eq", "equalto": "eq", "!=": "ne", ">": "gt", "greaterthan": "gt", ">=": "ge", "<": "lt", "lessthan": "lt", "<=": "le",
	} {
		t[alias] = t[name]
	}
	return t
}

func isUndefined(v any) bool {
	_, ok := v.(*undefined)
	return ok
}

func isInteger(v any) bool {
	switch v.(type) {
	case int, *big.Int:
		return true
	}
	return false
}

func isSequence(v any) bool {
	switch v.(type) {
	case string, markup, *list, tuple, *dict, span, *undefined:
		return true
	}
	return false
}

func isIterable(v any) bool {
	switch v.(type) {
	case *view, *generator, *loopContext:
		return true
	}
	return isSequence(v)
}

func isCallable(v any) bool {
	switch v.(type) {
	case *callable, *macro, *loopContext, *joiner, *undefined: // Undefined has __call__, which fails
		return true
	}
	return false
}

func letters(is func(string) bool) test {
	return func(_ *machine, v any, a arguments) (bool, error) {
		s, err := str(v)
		if err != nil {
			return false, err
		}
		return is(s), a.none("test")
	}
}

func remainder(want int) test {
	return func(vm *machine, v any, a arguments) (bool, error) {
		if err := a.none("test"); err != nil {
			return false, err
		}
		rest, err := binary(vm, "%", v, 2)
		if err != nil {
			return false, err
		}
		return equal(rest, want)
	}
}

func divisibleBy(vm *machine, v any, a arguments) (bool, error) {
	args, err := a.bind("test_divisibleby", 1, "num")
	if err != nil {
		return false, err
	}
	rest, err := binary(vm, "%", v, args[0])
	if err != nil {
		return false, err
	}
	return equal(rest, 0)
}

// sameAs is Python's "is", where it does not depend on how values are kept.
func sameAs(v, other any) (bool, error) {
	switch v.(type) {
	case nil, bool:
		return v == other, nil
	case *list, *dict, *namespace, *macro, *undefined:
		return v == other, nil
	}
	switch other.(type) {
	case nil, bool:
		return false, nil
	}
	if typeName(v) != typeName(other) {
		return false, nil
	}
	return false, unsupported("sameas of two values of type %s", typeName(v))
}
