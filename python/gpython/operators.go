package gpython

import (
	"math"
	"math/big"
	"reflect"
	"slices"
	_ "unsafe" // for go:linkname

	"github.com/go-python/gpython/py"
	"github.com/go-python/gpython/vm"
)

// instructions is gpython's table of what each instruction does. An operator asks the Go methods of its operands, and truth values have no
// arithmetic among theirs. The table is the only place that every operator passes and that can be changed from outside.
//
//go:linkname instructions github.com/go-python/gpython/vm.jumpTable
var instructions [256]func(*vm.Vm, int32) error

// repairOperators gives operators the results of CPython for truth values, sets, lists and tuples, which gpython refuses.
func repairOperators() {
	before([]vm.OpCode{vm.UNARY_POSITIVE, vm.UNARY_NEGATIVE, vm.UNARY_INVERT}, func(m *vm.Vm) { m.SET_TOP(asNumber(m.TOP())) })
	before([]vm.OpCode{
		vm.BINARY_POWER, vm.BINARY_MULTIPLY, vm.BINARY_MODULO, vm.BINARY_ADD, vm.BINARY_SUBTRACT, vm.BINARY_FLOOR_DIVIDE, vm.BINARY_TRUE_DIVIDE, vm.BINARY_LSHIFT, vm.BINARY_RSHIFT,
		vm.INPLACE_POWER, vm.INPLACE_MULTIPLY, vm.INPLACE_MODULO, vm.INPLACE_ADD, vm.INPLACE_SUBTRACT, vm.INPLACE_FLOOR_DIVIDE, vm.INPLACE_TRUE_DIVIDE, vm.INPLACE_LSHIFT, vm.INPLACE_RSHIFT,
	}, func(m *vm.Vm) {
		if _, is := m.SECOND().(*remainder); !is { // it may write a truth value as a word
			m.SET_SECOND(asNumber(m.SECOND()))
			m.SET_TOP(asNumber(m.TOP()))
		}
	})
	ofSets := func(name string, binary, place vm.OpCode) {
		compute := func(a, b py.Object, _ int32) (py.Object, error) {
			if isSet(a) && isSet(b) {
				return setMethods[name](a, []py.Object{b})
			}
			return nil, nil
		}
		replace([]vm.OpCode{binary}, compute)
		replace([]vm.OpCode{place}, func(a, b py.Object, _ int32) (py.Object, error) {
			out, err := compute(a, b, 0)
			if s, ok := a.(*py.Set); ok && out != nil && err == nil { // other names have this set too
				*s = *out.(*py.Set)
				out = s
			}
			return out, err
		})
	}
	ofSets("difference", vm.BINARY_SUBTRACT, vm.INPLACE_SUBTRACT)
	ofLists := func(place vm.OpCode, items func(l *py.List, b py.Object) ([]py.Object, error)) {
		replace([]vm.OpCode{place}, func(a, b py.Object, _ int32) (py.Object, error) {
			l, ok := a.(*py.List)
			if !ok {
				return nil, nil
			}
			all, err := items(l, b)
			if err != nil {
				return nil, err
			}
			l.Items = all
			return l, nil
		})
	}
	ofLists(vm.INPLACE_MULTIPLY, func(l *py.List, b py.Object) ([]py.Object, error) {
		out, err := py.Mul(l, asNumber(b))
		if err != nil {
			return nil, err
		}
		return out.(*py.List).Items, nil
	})
	ofLists(vm.INPLACE_ADD, func(l *py.List, b py.Object) ([]py.Object, error) {
		more, err := py.SequenceList(b) // a copy, also of l itself
		if err != nil {
			return nil, err
		}
		return append(l.Items, more.Items...), nil // a loop of these is not quadratic
	})
	for _, o := range []struct {
		set    string
		whole  func(a, b py.Object) (py.Object, error)
		binary vm.OpCode
		place  vm.OpCode
	}{
		{"intersection", py.And, vm.BINARY_AND, vm.INPLACE_AND}, {"union", py.Or, vm.BINARY_OR, vm.INPLACE_OR}, {"symmetric_difference", py.Xor, vm.BINARY_XOR, vm.INPLACE_XOR},
	} {
		ofSets(o.set, o.binary, o.place)
		replace([]vm.OpCode{o.binary, o.place}, func(a, b py.Object, _ int32) (py.Object, error) {
			_, isA := a.(py.Bool)
			_, isB := b.(py.Bool)
			if !isA && !isB {
				return nil, nil
			}
			out, err := o.whole(asNumber(a), asNumber(b))
			if isA && isB {
				return py.NewBool(out == py.Object(py.Int(1))), err
			}
			return out, err
		})
	}
	replace([]vm.OpCode{vm.COMPARE_OP}, compare)
	replace([]vm.OpCode{vm.BINARY_ADD, vm.INPLACE_ADD}, func(a, b py.Object, _ int32) (py.Object, error) { // gpython adds those that are as long as each other
		x, isA := a.(py.Tuple)
		y, isB := b.(py.Tuple)
		if isA && isB {
			return slices.Concat(x, y), nil
		}
		return nil, nil
	})
	set := instructions[vm.BUILD_SET]
	instructions[vm.BUILD_SET] = func(m *vm.Vm, count int32) error {
		var given []py.Object
		for i := count; i > 0; i-- {
			given = append(given, m.PEEK(int(i)))
		}
		once, err := distinct(py.NewListFromItems(given))
		if err != nil {
			return err
		}
		m.DROPN(int(count))
		m.EXTEND(once)
		return set(m, int32(len(once)))
	}
	add := instructions[vm.SET_ADD]
	instructions[vm.SET_ADD] = func(m *vm.Vm, at int32) error {
		o, err := member(m.PEEK(int(at)+1).(*py.Set), m.TOP())
		if err != nil {
			return err
		}
		m.SET_TOP(o)
		return add(m, at)
	}
	next := instructions[vm.FOR_ITER]
	instructions[vm.FOR_ITER] = func(m *vm.Vm, after int32) error { // gpython ends a loop at any error
		o, err := py.Next(m.TOP())
		switch {
		case err == nil:
			m.PUSH(o)
			return nil
		case !isStop(err):
			return err
		}
		m.SET_TOP(py.NewIterator(py.Tuple{}))
		return next(m, after)
	}
	for _, c := range []vm.OpCode{vm.UNARY_NOT, vm.POP_JUMP_IF_FALSE, vm.POP_JUMP_IF_TRUE, vm.JUMP_IF_FALSE_OR_POP, vm.JUMP_IF_TRUE_OR_POP} {
		original := instructions[c]
		instructions[c] = func(m *vm.Vm, arg int32) error {
			o := m.TOP()
			is, err := truth(o)
			if err != nil {
				return err
			}
			m.SET_TOP(is)
			if err = original(m, arg); err == nil && (c == vm.JUMP_IF_FALSE_OR_POP && is == py.False || c == vm.JUMP_IF_TRUE_OR_POP && is == py.True) {
				m.SET_TOP(o) // it stays, as the value of a or b
			}
			return err
		}
	}
}

// before runs f before each of the instructions; f may replace their operands.
func before(codes []vm.OpCode, f func(*vm.Vm)) {
	for _, c := range codes {
		original := instructions[c]
		instructions[c] = func(m *vm.Vm, arg int32) error {
			f(m)
			return original(m, arg)
		}
	}
}

// replace computes the instructions of two operands by f; where f returns nil, gpython does.
func replace(codes []vm.OpCode, f func(a, b py.Object, arg int32) (py.Object, error)) {
	for _, c := range codes {
		original := instructions[c]
		instructions[c] = func(m *vm.Vm, arg int32) error {
			out, err := f(m.SECOND(), m.TOP(), arg)
			if out == nil && err == nil {
				return original(m, arg)
			}
			m.DROP()
			m.SET_TOP(out)
			return err
		}
	}
}

// asNumber is 0 or 1 for a truth value; anything else stays.
func asNumber(o py.Object) py.Object {
	if b, ok := o.(py.Bool); ok {
		n, _ := b.M__index__() // which has no error
		return n
	}
	return o
}

// onNumbers calls f with a number for each truth value.
func onNumbers(f py.NewFunc) py.NewFunc {
	return func(t *py.Type, args py.Tuple, kwargs py.StringDict) (py.Object, error) {
		args = slices.Clone(args)
		for i, a := range args {
			args[i] = asNumber(a)
		}
		return f(t, args, kwargs)
	}
}

// withNumbers is a function that takes a number for each truth value.
func withNumbers(name string, f py.Object) *py.Method {
	numeric := onNumbers(func(_ *py.Type, args py.Tuple, kwargs py.StringDict) (py.Object, error) {
		return py.Call(f, args, kwargs)
	})
	return py.MustNewMethod(name, func(_ py.Object, args py.Tuple, kwargs py.StringDict) (py.Object, error) {
		return numeric(nil, args, kwargs)
	}, 0, "")
}

// compare is a comparison that gpython refuses or gets wrong; nil: its own is right.
func compare(a, b py.Object, how int32) (py.Object, error) {
	itemsA, listA := items(a)
	itemsB, listB := items(b)
	if order, is := exact(a, b); is && how <= vm.PyCmp_GE {
		return py.NewBool([]bool{order < 0, order <= 0, order == 0, order != 0, order == 1, order == 0 || order == 1}[how]), nil
	}
	switch {
	case isSet(a) && isSet(b) && how <= vm.PyCmp_GE:
		return compareSets(a, b, how)
	case listA && listB && a.Type() == b.Type() && (how == vm.PyCmp_EQ || how == vm.PyCmp_NE):
		return py.NewBool(slices.EqualFunc(itemsA, itemsB, equal) == (how == vm.PyCmp_EQ)), nil
	case byIdentity(a) && (how == vm.PyCmp_EQ || how == vm.PyCmp_NE) && a.Type() == b.Type():
		return py.NewBool((a == b) == (how == vm.PyCmp_EQ)), nil
	case byIdentity(a) && listB && (how == vm.PyCmp_IN || how == vm.PyCmp_NOT_IN):
		return py.NewBool(find(itemsB, a) >= 0 == (how == vm.PyCmp_IN)), nil
	case how == vm.PyCmp_EQ || how == vm.PyCmp_NE || how > vm.PyCmp_GE:
		return nil, nil
	case listA && listB && a.Type() == b.Type():
		if how == vm.PyCmp_GT || how == vm.PyCmp_LE {
			a, b = b, a
		}
		is, err := less(a, b)
		return py.NewBool(is == (how == vm.PyCmp_LT || how == vm.PyCmp_GT)), err
	case asNumber(a) == a && asNumber(b) == b:
		return nil, nil
	}
	return map[int32]func(a, b py.Object) (py.Object, error){vm.PyCmp_LT: py.Lt, vm.PyCmp_LE: py.Le, vm.PyCmp_GT: py.Gt, vm.PyCmp_GE: py.Ge}[how](asNumber(a), asNumber(b))
}

// byIdentity tells whether an object equals only itself, as exceptions and functions do: gpython refuses to compare them.
func byIdentity(o py.Object) bool {
	_, compares := o.(py.I__eq__)
	return !compares && reflect.TypeOf(o).Comparable()
}

// exact compares a whole number with a float, as neither is rounded: -1, 0, 1, or 2 where one is no number. It is false of other pairs.
func exact(a, b py.Object) (order int, is bool) {
	_, alsoFloat := b.(py.Float)
	if _, isFloat := a.(py.Float); isFloat && !alsoFloat {
		order, is = exact(b, a)
		if order < 2 {
			order = -order
		}
		return order, is
	}
	x, isWhole := py.ConvertToBigInt(a)
	y, isFloat := b.(py.Float)
	switch {
	case !isWhole || !isFloat:
		return 0, false
	case math.IsNaN(float64(y)):
		return 2, true
	}
	return new(big.Float).SetInt((*big.Int)(x)).Cmp(big.NewFloat(float64(y))), true
}
