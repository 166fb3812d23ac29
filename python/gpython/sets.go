package gpython

import (
	"math"
	"math/big"
	"slices"

	"github.com/go-python/gpython/py"
	"github.com/go-python/gpython/vm"
)

func isSet(o py.Object) bool {
	switch o.(type) {
	case *py.Set, *py.FrozenSet:
		return true
	}
	return false
}

// distinct are the items of an iterable, each once.
func distinct(o py.Object) ([]py.Object, error) {
	list, err := py.SequenceList(o)
	if err != nil {
		return nil, err
	}
	seen := make(map[any]bool, len(list.Items))
	var out []py.Object
	for _, x := range list.Items {
		k, err := identity(x)
		if err != nil {
			return nil, err
		}
		if !seen[k] {
			seen[k] = true
			out = append(out, x)
		}
	}
	return out, nil
}

// identity is the same for items that a set takes for one.
func identity(o py.Object) (any, error) {
	switch o := o.(type) {
	case *py.List, py.StringDict, *py.Set:
		return nil, py.ExceptionNewf(py.TypeError, "unhashable type: '%s'", o.Type().Name)
	case py.Tuple:
		return nil, py.ExceptionNewf(py.TypeError, "gpython's sets cannot hold a tuple%s", instead)
	case py.Bool:
		return asNumber(o), nil
	case py.Float:
		if whole, err := o.M__int__(); err == nil && float64(o) == math.Trunc(float64(o)) && !math.IsInf(float64(o), 0) {
			return identity(whole)
		}
	case *py.BigInt:
		if n, err := o.Int(); err == nil {
			return n, nil
		}
		return (*big.Int)(o).String(), nil
	}
	return o, nil
}

// within returns those of a that are in b, or that are not.
func within(a, b []py.Object, are bool) (out []py.Object, err error) {
	in := make(map[any]bool, len(b))
	for _, x := range b {
		k, err := identity(x)
		if err != nil {
			return nil, err
		}
		in[k] = true
	}
	for _, x := range a {
		k, err := identity(x)
		if err != nil {
			return nil, err
		}
		if in[k] == are {
			out = append(out, x)
		}
	}
	return out, nil
}

// member is what a set holds already where it takes o for the same, and o where it holds none.
func member(s *py.Set, o py.Object) (py.Object, error) {
	k, err := identity(o)
	if err != nil {
		return nil, err
	}
	same := []py.Object{o}
	switch n := k.(type) {
	case py.Int:
		same = []py.Object{n, py.Float(n)}
		if n == 0 || n == 1 {
			same = append(same, py.NewBool(n == 1))
		}
	case string: // a large number
		all, err := py.SequenceList(s)
		if err != nil {
			return nil, err
		}
		same = all.Items
	}
	for _, x := range same {
		found, err := s.M__and__(py.NewSetFromItems([]py.Object{x})) // which looks x up, and does not walk s
		if err != nil {
			return nil, err
		}
		if has, _ := found.(*py.Set).M__bool__(); has != py.True {
			continue
		}
		if other, err := identity(x); err == nil && other == k {
			return x, nil
		}
	}
	return o, nil
}

// like is a set of the type of another one.
func like(o py.Object, items []py.Object) py.Object {
	if _, ok := o.(*py.FrozenSet); ok {
		return py.NewFrozenSetFromItems(items)
	}
	return py.NewSetFromItems(items)
}

// setMethods are those of set and frozenset.
var setMethods = map[string]func(self py.Object, args []py.Object) (py.Object, error){
	"copy": func(self py.Object, _ []py.Object) (py.Object, error) {
		all, err := distinct(self)
		return like(self, all), err
	},
	"union": func(self py.Object, args []py.Object) (py.Object, error) {
		return eachArgument(self, args, func(all, more []py.Object) ([]py.Object, error) {
			return distinct(py.NewListFromItems(append(all, more...)))
		})
	},
	"intersection": func(self py.Object, args []py.Object) (py.Object, error) {
		return eachArgument(self, args, func(all, more []py.Object) ([]py.Object, error) { return within(all, more, true) })
	},
	"difference": func(self py.Object, args []py.Object) (py.Object, error) {
		return eachArgument(self, args, func(all, more []py.Object) ([]py.Object, error) { return within(all, more, false) })
	},
	"symmetric_difference": func(self py.Object, args []py.Object) (py.Object, error) {
		return eachArgument(self, args, func(all, more []py.Object) ([]py.Object, error) {
			left, err := within(all, more, false)
			if err != nil {
				return nil, err
			}
			right, err := within(more, all, false)
			return append(left, right...), err
		})
	},
	"issubset":   func(self py.Object, args []py.Object) (py.Object, error) { return noneLeft(self, args[0], false) },
	"issuperset": func(self py.Object, args []py.Object) (py.Object, error) { return noneLeft(args[0], self, false) },
	"isdisjoint": func(self py.Object, args []py.Object) (py.Object, error) { return noneLeft(self, args[0], true) },
}

// eachArgument applies f to the items of a set and to those of each argument.
func eachArgument(self py.Object, args []py.Object, f func(all, more []py.Object) ([]py.Object, error)) (py.Object, error) {
	all, err := distinct(self)
	for _, a := range args {
		if err != nil {
			break
		}
		var more []py.Object
		if more, err = distinct(a); err == nil {
			all, err = f(all, more)
		}
	}
	return like(self, all), err
}

// noneLeft tells whether no item of a is in b (are), or none is outside it.
func noneLeft(a, b py.Object, are bool) (py.Object, error) {
	x, err := distinct(a)
	if err != nil {
		return nil, err
	}
	y, err := distinct(b)
	if err != nil {
		return nil, err
	}
	left, err := within(x, y, are)
	return py.NewBool(len(left) == 0), err
}

// compareSets is a comparison of two sets: < is a proper subset.
func compareSets(a, b py.Object, how int32) (py.Object, error) {
	if how == vm.PyCmp_GT || how == vm.PyCmp_GE {
		a, b = b, a
	}
	x, err := distinct(a)
	if err != nil {
		return nil, err
	}
	y, err := distinct(b)
	if err != nil {
		return nil, err
	}
	outside, err := within(x, y, false)
	is := len(outside) == 0
	switch how {
	case vm.PyCmp_EQ, vm.PyCmp_NE:
		is = (is && len(x) == len(y)) == (how == vm.PyCmp_EQ)
	case vm.PyCmp_LT, vm.PyCmp_GT:
		is = is && len(x) < len(y)
	}
	return py.NewBool(is), err
}

// addToSet adds the methods of set and frozenset, and makes frozenset callable.
func addToSet() {
	py.FrozenSetType.New = func(_ *py.Type, args py.Tuple, kwargs py.StringDict) (py.Object, error) {
		var from py.Object = py.NewList()
		if err := py.UnpackTuple(args, kwargs, "frozenset", 0, 1, &from); err != nil {
			return nil, err
		}
		all, err := distinct(from)
		return py.NewFrozenSetFromItems(all), err
	}
	py.SetType.New = func(_ *py.Type, args py.Tuple, kwargs py.StringDict) (py.Object, error) {
		var from py.Object = py.NewList()
		if err := py.UnpackTuple(args, kwargs, "set", 0, 1, &from); err != nil {
			return nil, err
		}
		all, err := distinct(from)
		return py.NewSetFromItems(all), err
	}
	for name, f := range setMethods {
		least, most := 0, 1<<16
		switch name {
		case "copy":
			most = 0
		case "symmetric_difference", "issubset", "issuperset", "isdisjoint":
			least, most = 1, 1
		}
		py.SetType.Dict[name] = method(name, least, most, f)
		py.FrozenSetType.Dict[name] = method(name, least, most, f)
	}
	add := func(name string, least, most int, f func(*py.Set, []py.Object) (py.Object, error)) {
		py.SetType.Dict[name] = method(name, least, most, func(self py.Object, args []py.Object) (py.Object, error) { return f(self.(*py.Set), args) })
	}
	for name, of := range map[string]string{
		"update": "union", "intersection_update": "intersection", "difference_update": "difference", "symmetric_difference_update": "symmetric_difference",
	} {
		add(name, 0, 1<<16, func(s *py.Set, args []py.Object) (py.Object, error) {
			out, err := setMethods[of](s, args)
			if err == nil {
				*s = *out.(*py.Set)
			}
			return py.None, err
		})
	}
	add("add", 1, 1, func(s *py.Set, args []py.Object) (py.Object, error) {
		o, err := member(s, args[0])
		if err == nil {
			s.Add(o)
		}
		return py.None, err
	})
	add("clear", 0, 0, func(s *py.Set, _ []py.Object) (py.Object, error) {
		*s = *py.NewSet()
		return py.None, nil
	})
	remove := func(s *py.Set, o py.Object) (bool, error) {
		all, err := distinct(s)
		if err != nil {
			return false, err
		}
		left, err := within(all, []py.Object{o}, false)
		if err != nil {
			return false, err
		}
		*s = *py.NewSetFromItems(left)
		return len(left) < len(all), nil
	}
	add("discard", 1, 1, func(s *py.Set, args []py.Object) (py.Object, error) {
		_, err := remove(s, args[0])
		return py.None, err
	})
	add("remove", 1, 1, func(s *py.Set, args []py.Object) (py.Object, error) {
		was, err := remove(s, args[0])
		if err == nil && !was {
			missing := py.ExceptionNewf(py.KeyError, "%s", "")
			missing.Args = py.Tuple{args[0]}
			err = missing
		}
		return py.None, err
	})
	add("pop", 0, 0, func(s *py.Set, _ []py.Object) (py.Object, error) {
		all, err := distinct(s)
		if err != nil {
			return nil, err
		}
		if len(all) == 0 {
			return nil, py.ExceptionNewf(py.KeyError, "pop from an empty set")
		}
		*s = *py.NewSetFromItems(slices.Clone(all[1:]))
		return all[0], nil
	})
}
