package jinja

import (
	"math"
	"math/big"
	"strings"
)

func normInt(n *big.Int) any {
	if n.IsInt64() {
		return int(n.Int64())
	}
	return n
}

func asBig(v any) *big.Int {
	switch v := v.(type) {
	case int:
		return big.NewInt(int64(v))
	case *big.Int:
		return v
	}
	return nil
}

// number returns v as int, *big.Int or float64.
func number(v any) (any, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case int, *big.Int, float64:
		return v, true
	}
	return nil, false
}

func toFloat(v any) (float64, error) {
	switch v := v.(type) {
	case int:
		return float64(v), nil
	case float64:
		return v, nil
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		if math.IsInf(f, 0) {
			return 0, raise("OverflowError", "int too large to convert to float")
		}
		return f, nil
	}
	return 0, typeError("float() argument must be a string or a real number, not '%s'", typeName(v))
}

func equal(a, b any) (bool, error) {
	pairs := 0
	return equalDeep(a, b, 0, &pairs)
}

func equalDeep(a, b any, depth int, pairs *int) (bool, error) {
	if *pairs++; *pairs > maxPairs {
		return false, raise("Limit", "a comparison of more than %d pairs of values", maxPairs)
	}
	if depth > maxNestRepr {
		return false, raise("RecursionError", "maximum recursion depth exceeded in comparison")
	}
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && compareNumbers(x, y) == 0, nil
	}
	if x, ok := text(a); ok {
		y, ok := text(b)
		return ok && x == y, nil
	}
	switch x := a.(type) {
	case nil:
		return b == nil, nil
	case *undefined:
		_, ok := b.(*undefined)
		return ok, nil
	case *list:
		if y, ok := b.(*list); ok {
			return equalSeq(x.items, y.items, depth, pairs)
		}
		return false, nil
	case tuple:
		if y, ok := b.(tuple); ok {
			return equalSeq(x, y, depth, pairs)
		}
		return false, nil
	case *dict:
		y, ok := b.(*dict)
		if !ok || x.len() != y.len() {
			return false, nil
		}
		for i, k := range x.keys {
			v, found, err := y.get(k)
			if err != nil || !found {
				return false, err
			}
			if same, err := equalDeep(x.vals[i], v, depth+1, pairs); err != nil || !same {
				return false, err
			}
		}
		return true, nil
	case span:
		y, ok := b.(span)
		return ok && x.n == y.n && (x.n == 0 || x.start == y.start && (x.n == 1 || x.step == y.step)), nil
	case *view, *callable:
		if typeName(b) == typeName(a) {
			return false, unsupported("comparing two values of type %s", typeName(a))
		}
		return false, nil
	}
	return a == b, nil
}

func equalSeq(a, b []any, depth int, pairs *int) (bool, error) {
	if len(a) != len(b) {
		return false, nil
	}
	for i := range a {
		if same, err := equalDeep(a[i], b[i], depth+1, pairs); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

// compareNumbers orders two numbers; a NaN is unordered, which is 2.
func compareNumbers(a, b any) int {
	x, okA := a.(int)
	y, okB := b.(int)
	if okA && okB {
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	}
	f, okA := a.(float64)
	g, okB := b.(float64)
	if okA && math.IsNaN(f) || okB && math.IsNaN(g) {
		return 2
	}
	if okA && okB {
		switch {
		case f < g:
			return -1
		case f > g:
			return 1
		}
		return 0
	}
	exact := func(v any) *big.Float {
		if f, ok := v.(float64); ok {
			return big.NewFloat(f)
		}
		return new(big.Float).SetInt(asBig(v))
	}
	return exact(a).Cmp(exact(b))
}

// order is a < b, a <= b, a > b or a >= b.
func order(op string, a, b any) (bool, error) {
	c, err := compareDeep(op, a, b, 0)
	if err != nil || c == 2 {
		return false, err
	}
	switch op {
	case "<":
		return c < 0, nil
	case "<=":
		return c <= 0, nil
	case ">":
		return c > 0, nil
	}
	return c >= 0, nil
}

func compareDeep(op string, a, b any, depth int) (int, error) {
	if u, ok := a.(*undefined); ok {
		return 0, u.fail()
	}
	if u, ok := b.(*undefined); ok {
		return 0, u.fail()
	}
	if x, ok := number(a); ok {
		if y, ok := number(b); ok {
			return compareNumbers(x, y), nil
		}
	}
	if x, ok := text(a); ok {
		if y, ok := text(b); ok {
			return strings.Compare(x, y), nil // the order of UTF-8 is the order of code points
		}
	}
	x, y := []any(nil), []any(nil)
	same := false
	switch a := a.(type) {
	case *list:
		if b, ok := b.(*list); ok {
			x, y, same = a.items, b.items, true
		}
	case tuple:
		if b, ok := b.(tuple); ok {
			x, y, same = a, b, true
		}
	case *view:
		return 0, unsupported("ordering of %s", typeName(a))
	}
	if !same || depth > maxNestRepr {
		return 0, typeError("'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
	}
	for i := 0; i < len(x) && i < len(y); i++ {
		if eq, err := equal(x[i], y[i]); err != nil {
			return 0, err
		} else if !eq {
			return compareDeep(op, x[i], y[i], depth+1)
		}
	}
	return compareNumbers(len(x), len(y)), nil
}

// contains is item in container.
func contains(item, container any) (bool, error) {
	switch c := container.(type) {
	case string, markup:
		s, _ := text(c)
		sub, ok := text(item)
		if !ok {
			return false, typeError("'in <string>' requires string as left operand, not %s", typeName(item))
		}
		return strings.Contains(s, sub), nil
	case *dict:
		_, found, err := c.get(item)
		return found, err
	case *view:
		if c.kind == "keys" {
			_, found, err := c.of.get(item)
			return found, err
		}
		container = &list{c.items()}
	case nil, bool, int, float64, *big.Int, *namespace, *macro, *callable:
		return false, typeError("argument of type '%s' is not iterable", typeName(c))
	}
	next, err := iterate(container)
	if err != nil {
		return false, err
	}
	for {
		v, ok, err := next()
		if err != nil || !ok {
			return false, err
		}
		if same, err := equal(v, item); err != nil || same {
			return same, err
		}
	}
}

// binary applies an arithmetic operator.
func binary(vm *machine, op string, a, b any) (any, error) {
	if u, ok := a.(*undefined); ok {
		return nil, u.fail()
	}
	if s, ok := text(a); ok && op == "%" {
		if _, safe := a.(markup); safe {
			return nil, unsupported("%% of a Markup string")
		}
		return printf(vm, s, b)
	}
	_, viewA := a.(*view)
	_, viewB := b.(*view)
	if op == "-" && (viewA || viewB) {
		return nil, unsupported("the difference of dictionary views")
	}
	if u, ok := b.(*undefined); ok {
		return nil, u.fail()
	}
	x, okA := number(a)
	y, okB := number(b)
	if okA && okB {
		return arithmetic(vm, op, x, y)
	}
	switch op {
	case "+":
		return add(vm, a, b)
	case "*":
		if okB {
			return repeat(vm, a, y, b)
		}
		if okA {
			return repeat(vm, b, x, a)
		}
		if _, ok := sequence(a); ok {
			return nil, typeError("can't multiply sequence by non-int of type '%s'", typeName(b))
		}
	}
	if op == "**" {
		op = "** or pow()"
	}
	return nil, operandError(op, a, b)
}

func operandError(op string, a, b any) error {
	return typeError("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(a), typeName(b))
}

func add(vm *machine, a, b any) (any, error) {
	if x, ok := text(a); ok {
		y, ok := text(b)
		if !ok {
			return nil, typeError("can only concatenate str (not \"%s\") to str", typeName(b))
		}
		_, safeA := a.(markup)
		_, safeB := b.(markup)
		if err := vm.charge(len(x) + len(y)); err != nil {
			return nil, err
		}
		switch {
		case safeA && !safeB:
			return markup(x + escape(y)), nil
		case safeB && !safeA:
			return markup(escape(x) + y), nil
		case safeA:
			return markup(x + y), nil
		}
		return x + y, nil
	}
	switch x := a.(type) {
	case *list:
		if y, ok := b.(*list); ok {
			return &list{join2(x.items, y.items)}, vm.charge(16 * (len(x.items) + len(y.items)))
		}
		return nil, typeError("can only concatenate list (not \"%s\") to list", typeName(b))
	case tuple:
		if y, ok := b.(tuple); ok {
			return tuple(join2(x, y)), vm.charge(16 * (len(x) + len(y)))
		}
		return nil, typeError("can only concatenate tuple (not \"%s\") to tuple", typeName(b))
	}
	return nil, operandError("+", a, b)
}

func join2(a, b []any) []any { return append(append(make([]any, 0, len(a)+len(b)), a...), b...) }

func sequence(v any) ([]any, bool) {
	switch v := v.(type) {
	case *list:
		return v.items, true
	case tuple:
		return v, true
	}
	_, ok := text(v)
	return nil, ok
}

func repeat(vm *machine, seq, count, given any) (any, error) {
	items, ok := sequence(seq)
	if !ok {
		return nil, operandError("*", seq, given)
	}
	if _, isFloat := count.(float64); isFloat {
		return nil, typeError("can't multiply sequence by non-int of type 'float'")
	}
	n, small := count.(int)
	if !small {
		n = math.MaxInt32 * count.(*big.Int).Sign()
	}
	n = max(n, 0)
	s, isText := text(seq)
	if !isText {
		if err := vm.chargeTimes(16*len(items), n); err != nil {
			return nil, err
		}
		var out []any
		for ; n > 0 && len(items) > 0; n-- {
			out = append(out, items...)
		}
		if _, ok := seq.(tuple); ok {
			return tuple(out), nil
		}
		return &list{out}, nil
	}
	if err := vm.chargeTimes(len(s), n); err != nil {
		return nil, err
	}
	if s == "" {
		n = 0
	}
	if _, safe := seq.(markup); safe {
		return markup(strings.Repeat(s, n)), nil
	}
	return strings.Repeat(s, n), nil
}
