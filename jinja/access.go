package jinja

import (
	"errors"
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"
)

// Attributes of Python's types that are not implemented, so that using one fails instead of being undefined.
var (
	intAttrs   = strings.Fields("as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag is_integer numerator real to_bytes")
	floatAttrs = strings.Fields("as_integer_ratio conjugate from_number fromhex hex imag is_integer real")
	genAttrs   = strings.Fields("close gi_code gi_frame gi_running gi_suspended gi_yieldfrom send throw")
	viewAttrs  = strings.Fields("isdisjoint mapping")
	spanAttrs  = strings.Fields("count index start step stop")
	macroAttrs = strings.Fields("arguments caller catch_kwargs catch_varargs explicit_caller")
	listUnsafe = strings.Fields("append clear pop reverse insert sort extend remove")
	dictUnsafe = strings.Fields("clear pop popitem setdefault update")
)

// attribute finds v.name as Python's getattr does. found is false where Python raises AttributeError.
func attribute(vm *machine, v any, name string) (val any, found bool, err error) {
	unsafe := func() (any, bool, error) {
		return &undefined{hint: "access to attribute '" + name + "' of '" + typeName(v) + "' object is unsafe.", kind: "SecurityError"}, true, nil
	}
	unknown := func(names []string) (any, bool, error) {
		if slices.Contains(names, name) {
			return nil, false, unsupported("attribute %q of %s", name, typeName(v))
		}
		return nil, false, nil
	}
	if strings.HasPrefix(name, "__") {
		return nil, false, unsupported("attribute %q", name)
	}
	if u, ok := v.(*undefined); ok {
		return nil, false, u.fail()
	}
	switch v := v.(type) {
	case string, markup:
		s, _ := text(v)
		_, safe := v.(markup)
		m, ok := vm.lib.methods[name]
		switch {
		case !ok && safe:
			return unknown(append(markupOnly, stringRefused...))
		case !ok:
			return unknown(stringRefused)
		}
		return &callable{name: name, call: func(vm *machine, a arguments) (any, error) {
			if err := vm.scan(v); err != nil {
				return nil, err
			}
			if safe {
				return markupMethod(vm, s, name, m, a)
			}
			return m(vm, s, a)
		}}, true, nil
	case *list:
		if slices.Contains(listUnsafe, name) {
			return unsafe()
		}
		return sequenceMethod(v.items, name, func(items []any) any { return &list{items} })
	case tuple:
		switch name {
		case "copy":
			return nil, false, nil
		case "grouper", "list": // of what groupby returns
			return nil, false, unsupported("attribute %q of a tuple", name)
		}
		return sequenceMethod(v, name, nil)
	case *dict:
		if slices.Contains(dictUnsafe, name) {
			return unsafe()
		}
		return dictMethod(v, name)
	case *namespace:
		val, ok := v.attrs.str(name)
		if ok && strings.HasPrefix(name, "_") {
			return unsafe()
		}
		return val, ok, nil
	case *loopContext:
		return v.attribute(name)
	case *cycler:
		return v.attribute(name)
	case bool, int, *big.Int:
		return unknown(intAttrs)
	case float64:
		return unknown(floatAttrs)
	case *generator:
		return unknown(genAttrs)
	case *view:
		return unknown(viewAttrs)
	case span:
		return unknown(spanAttrs)
	case *macro:
		if name == "name" {
			return v.def.name, true, nil
		}
		return unknown(macroAttrs)
	}
	return nil, false, nil
}

// getAttr is v.name: the attribute, or else the item.
func getAttr(vm *machine, v any, name string) (any, error) {
	val, found, err := attribute(vm, v, name)
	if err != nil || found {
		return val, err
	}
	if val, found, err = item(v, name); err != nil || found {
		return val, err
	}
	return undefinedOf(v, name), nil
}

// getItem is v[key]: the item, or else the attribute.
func getItem(vm *machine, v, key any) (any, error) {
	val, found, err := item(v, key)
	if err != nil || found {
		return val, err
	}
	if name, ok := text(key); ok {
		if val, found, err = attribute(vm, v, name); err != nil || found {
			return val, err
		}
	}
	return undefinedOf(v, key), nil
}

// item is v[key]; found is false where Python raises TypeError or LookupError, which jinja2 swallows.
func item(v, key any) (any, bool, error) {
	switch v := v.(type) {
	case *dict:
		if _, err := hash(key, 0); err != nil {
			var r *RenderError
			if errors.As(err, &r) && r.Kind == "TypeError" {
				return nil, false, nil
			}
			return nil, false, err
		}
		return v.get(key)
	case *undefined:
		return nil, false, v.fail()
	case *list, tuple, string, markup, span:
		i, ok := key.(int)
		if b, isBool := key.(bool); isBool {
			i, ok = 0, true
			if b {
				i = 1
			}
		}
		if !ok {
			return nil, false, nil
		}
		n, err := length(v)
		if err != nil {
			return nil, false, err
		}
		if i < 0 {
			i += n
		}
		if i < 0 || i >= n {
			return nil, false, nil
		}
		return nth(v, i), true, nil
	}
	return nil, false, nil
}

func nth(v any, i int) any {
	switch v := v.(type) {
	case *list:
		return v.items[i]
	case tuple:
		return v[i]
	case span:
		return v.start + i*v.step
	case string:
		return v[runeOffset(v, i):runeOffset(v, i+1)]
	case markup:
		return v[runeOffset(string(v), i):runeOffset(string(v), i+1)]
	}
	return nil
}

// runeOffset is the byte offset of the n-th code point.
func runeOffset(s string, n int) int {
	at := 0
	for ; n > 0 && at < len(s); n-- {
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
	}
	return at
}

// bounds computes the indices of a slice of a sequence of n items.
func bounds(n int, start, stop, step any) (from, to, by int, err error) {
	index := func(v any, absent int) (int, error) {
		switch v := v.(type) {
		case nil:
			return absent, nil
		case int:
			return v, nil
		case bool:
			if v {
				return 1, nil
			}
			return 0, nil
		case *big.Int:
			return v.Sign() * (1 << 40), nil
		case *undefined:
			return 0, typeError("slice indices must be integers or None or have an __index__ method")
		}
		return 0, typeError("slice indices must be integers or None or have an __index__ method")
	}
	if by, err = index(step, 1); err != nil {
		return
	}
	if by == 0 {
		return 0, 0, 0, valueError("slice step cannot be zero")
	}
	low, high := 0, n
	if by < 0 {
		low, high = -1, n-1
	}
	clamp := func(v any, absent int) (int, error) {
		i, err := index(v, absent)
		if v != nil && i < 0 {
			i = max(i+n, low)
		}
		return min(max(i, low), high), err
	}
	first, last := low, high
	if by < 0 {
		first, last = high, low
	}
	if from, err = clamp(start, first); err != nil {
		return
	}
	to, err = clamp(stop, last)
	return
}

// slice is v[start:stop:step].
func slice(vm *machine, v, start, stop, step any) (any, error) {
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	var items []any
	var runes []rune
	s, isText := text(v)
	switch c := v.(type) {
	case *list:
		items = c.items
	case tuple:
		items = c
	case string, markup:
		runes = []rune(s)
	case span:
		return nil, unsupported("a slice of a range")
	case *dict:
		return nil, typeError("unhashable type: 'slice'")
	default:
		return nil, typeError("'%s' object is not subscriptable", typeName(v))
	}
	from, to, by, err := bounds(max(len(items), len(runes)), start, stop, step)
	if err != nil {
		return nil, err
	}
	var out []any
	var chars []rune
	for i := from; by > 0 && i < to || by < 0 && i > to; i += by {
		if isText {
			chars = append(chars, runes[i])
		} else {
			out = append(out, items[i])
		}
	}
	if err := vm.charge(16*len(out) + 4*len(chars)); err != nil {
		return nil, err
	}
	switch v.(type) {
	case markup:
		return markup(string(chars)), nil
	case string:
		return string(chars), nil
	case tuple:
		return tuple(out), nil
	}
	return &list{out}, nil
}

func sequenceMethod(items []any, name string, copied func([]any) any) (any, bool, error) {
	method := func(call func(vm *machine, a arguments) (any, error)) (any, bool, error) {
		return &callable{name: name, call: call}, true, nil
	}
	switch name {
	case "copy":
		return method(func(vm *machine, a arguments) (any, error) {
			if err := a.none(name); err != nil {
				return nil, err
			}
			return copied(slices.Clone(items)), vm.charge(16 * len(items))
		})
	case "count":
		return method(func(_ *machine, a arguments) (any, error) {
			v, err := a.one(name)
			if err != nil {
				return nil, err
			}
			n := 0
			for _, item := range items {
				same, err := equal(item, v)
				if err != nil {
					return nil, err
				}
				if same {
					n++
				}
			}
			return n, nil
		})
	case "index":
		return method(func(_ *machine, a arguments) (any, error) {
			v, err := a.one(name)
			if err != nil {
				return nil, err
			}
			for i, item := range items {
				if same, err := equal(item, v); err != nil || same {
					return i, err
				}
			}
			return nil, valueError("value is not in the sequence")
		})
	}
	return nil, false, nil
}

func dictMethod(d *dict, name string) (any, bool, error) {
	method := func(call func(vm *machine, a arguments) (any, error)) (any, bool, error) {
		return &callable{name: name, call: call}, true, nil
	}
	switch name {
	case "keys", "values", "items":
		return method(func(_ *machine, a arguments) (any, error) { return &view{name, d}, a.none(name) })
	case "copy":
		return method(func(vm *machine, a arguments) (any, error) {
			if err := a.none(name); err != nil {
				return nil, err
			}
			return d.copy(), vm.charge(64 * d.len())
		})
	case "get":
		return method(func(_ *machine, a arguments) (any, error) {
			if len(a.keys) > 0 {
				return nil, typeError("dict.get() takes no keyword arguments")
			}
			if len(a.pos) < 1 || len(a.pos) > 2 {
				return nil, typeError("get expected 1 or 2 arguments, got %d", len(a.pos))
			}
			val, found, err := d.get(a.pos[0])
			if !found && len(a.pos) == 2 {
				val = a.pos[1]
			}
			return val, err
		})
	case "fromkeys":
		return nil, false, unsupported("dict.fromkeys")
	}
	return nil, false, nil
}

// none checks that a method got no arguments.
func (a arguments) none(name string) error {
	if len(a.pos)+len(a.keys) > 0 {
		return typeError("%s() takes no arguments (%d given)", name, len(a.pos)+len(a.keys))
	}
	return nil
}

// one returns the only argument of a method.
func (a arguments) one(name string) (any, error) {
	if len(a.pos) != 1 || len(a.keys) > 0 {
		return nil, typeError("%s() takes exactly one argument (%d given)", name, len(a.pos)+len(a.keys))
	}
	return a.pos[0], nil
}

// bind assigns arguments to named parameters, as a Python signature does; params with a default value follow those without.
// A parameter that was not given and has no default is missing, which is an error when required.
func (a arguments) bind(fn string, required int, params ...string) ([]any, error) {
	out := make([]any, len(params))
	for i := range out {
		out[i] = missing
	}
	if len(a.pos) > len(params) {
		return nil, typeError("%s() takes at most %d arguments (%d given)", fn, len(params), len(a.pos))
	}
	copy(out, a.pos)
	for i, k := range a.keys {
		at := slices.Index(params, k)
		if at < 0 {
			return nil, typeError("%s() got an unexpected keyword argument '%s'", fn, k)
		}
		if out[at] != missing {
			return nil, typeError("%s() got multiple values for argument '%s'", fn, k)
		}
		out[at] = a.vals[i]
	}
	for i := range required {
		if out[i] == missing {
			return nil, typeError("%s() missing required argument: '%s'", fn, params[i])
		}
	}
	return out, nil
}
