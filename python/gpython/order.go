package gpython

import (
	"slices"

	"github.com/go-python/gpython/py"
	"github.com/go-python/gpython/vm"
)

// less is a < b, of lists and tuples too, which gpython does not compare.
func less(a, b py.Object) (bool, error) {
	x, isA := items(a)
	y, isB := items(b)
	if !isA || !isB || a.Type() != b.Type() {
		o, err := compare(a, b, vm.PyCmp_LT)
		if o == nil && err == nil {
			o, err = py.Lt(a, b)
		}
		return o == py.True, err
	}
	for i := range min(len(x), len(y)) {
		same, err := py.Eq(x[i], y[i])
		if err != nil {
			return false, err
		}
		if same != py.True {
			return less(x[i], y[i])
		}
	}
	return len(x) < len(y), nil
}

func items(o py.Object) ([]py.Object, bool) {
	switch o := o.(type) {
	case *py.List:
		return o.Items, true
	case py.Tuple:
		return o, true
	}
	return nil, false
}

// keyed is an item with what it is compared by.
type keyed struct{ item, key py.Object }

func keys(list []py.Object, kwargs py.StringDict) ([]keyed, error) {
	out := make([]keyed, len(list))
	for i, o := range list {
		out[i] = keyed{o, o}
		if f := kwargs["key"]; f != nil && f != py.None {
			k, err := py.Call(f, py.Tuple{o}, nil)
			if err != nil {
				return nil, err
			}
			out[i].key = k
		}
	}
	return out, nil
}

// sorted is sorted(iterable, key=…, reverse=…).
func sorted(_ py.Object, args py.Tuple, kwargs py.StringDict) (py.Object, error) {
	if len(args) != 1 {
		return nil, py.ExceptionNewf(py.TypeError, "sorted expected 1 argument, got %d", len(args))
	}
	list, err := py.SequenceList(args[0])
	if err != nil {
		return nil, err
	}
	all, err := keys(list.Items, kwargs)
	if err != nil {
		return nil, err
	}
	backwards := false
	if r := kwargs["reverse"]; r != nil {
		o, err := py.MakeBool(r)
		if err != nil {
			return nil, err
		}
		backwards = o == py.True
	}
	var failed error
	slices.SortStableFunc(all, func(a, b keyed) int {
		if failed != nil {
			return 0
		}
		if backwards {
			a, b = b, a
		}
		for sign, pair := range [][2]keyed{{a, b}, {b, a}} {
			is, err := less(pair[0].key, pair[1].key)
			if err != nil {
				failed = err
			}
			if is {
				return 2*sign - 1
			}
		}
		return 0
	})
	out := py.NewListSized(len(all))
	for i, k := range all {
		out.Items[i] = k.item
	}
	return out, failed
}

// extreme is min or max.
func extreme(name string, sign int, args py.Tuple, kwargs py.StringDict) (py.Object, error) {
	list := []py.Object(args)
	if len(args) == 1 {
		of, err := py.SequenceList(args[0])
		if err != nil {
			return nil, err
		}
		list = of.Items
	}
	if len(list) == 0 {
		if given, ok := kwargs["default"]; ok && len(args) == 1 {
			return given, nil
		}
		return nil, py.ExceptionNewf(py.ValueError, "%s() arg is an empty sequence", name)
	}
	all, err := keys(list, kwargs)
	if err != nil {
		return nil, err
	}
	best := all[0]
	for _, k := range all[1:] {
		a, b := k.key, best.key
		if sign > 0 {
			a, b = b, a
		}
		is, err := less(a, b)
		if err != nil {
			return nil, err
		}
		if is {
			best = k
		}
	}
	return best.item, nil
}
