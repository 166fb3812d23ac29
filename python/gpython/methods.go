package gpython

import (
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-python/gpython/py"
	"github.com/go-python/gpython/vm"
)

// addMethods adds methods of str, list, tuple, dict and set that gpython lacks.
func addMethods() {
	mapped := map[string]func(string) string{
		"upper": strings.ToUpper, "lower": strings.ToLower, "casefold": strings.ToLower, "capitalize": capitalize, "title": title, "swapcase": swapcase,
	}
	for n, f := range mapped {
		onString(n, 0, 0, func(s string, _ []py.Object) (py.Object, error) { return py.String(f(s)), nil })
	}
	tests := map[string]func(rune) bool{
		"isdigit": unicode.IsDigit, "isdecimal": unicode.IsDigit, "isnumeric": unicode.IsNumber, "isalpha": unicode.IsLetter, "isspace": unicode.IsSpace,
		"isalnum": func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) },
	}
	for n, f := range tests {
		onString(n, 0, 0, func(s string, _ []py.Object) (py.Object, error) {
			return py.NewBool(s != "" && strings.IndexFunc(s, func(r rune) bool { return !f(r) }) < 0), nil
		})
	}
	cased := func(good func(rune) bool, bad func(rune) bool) func(string, []py.Object) (py.Object, error) {
		return func(s string, _ []py.Object) (py.Object, error) {
			return py.NewBool(strings.ContainsFunc(s, good) && !strings.ContainsFunc(s, bad)), nil
		}
	}
	onString("isupper", 0, 0, cased(unicode.IsUpper, unicode.IsLower))
	onString("islower", 0, 0, cased(unicode.IsLower, unicode.IsUpper))
	onString("join", 1, 1, join)
	onString("count", 1, 1, withText(func(s, part string) (py.Object, error) { return py.Int(strings.Count(s, part)), nil }))
	onString("rfind", 1, 1, withText(func(s, part string) (py.Object, error) {
		return py.Int(characters(s, strings.LastIndex(s, part))), nil
	}))
	onString("rindex", 1, 1, withText(func(s, part string) (py.Object, error) {
		if i := strings.LastIndex(s, part); i >= 0 {
			return py.Int(characters(s, i)), nil
		}
		return nil, py.ExceptionNewf(py.ValueError, "substring not found")
	}))
	onString("removeprefix", 1, 1, withText(func(s, part string) (py.Object, error) { return py.String(strings.TrimPrefix(s, part)), nil }))
	onString("removesuffix", 1, 1, withText(func(s, part string) (py.Object, error) { return py.String(strings.TrimSuffix(s, part)), nil }))
	onString("rsplit", 0, 2, rsplit)
	onString("index", 1, 1, withText(func(s, part string) (py.Object, error) {
		if i := strings.Index(s, part); i >= 0 {
			return py.Int(characters(s, i)), nil
		}
		return nil, py.ExceptionNewf(py.ValueError, "substring not found")
	}))
	onString("partition", 1, 1, withText(func(s, part string) (py.Object, error) {
		before, after, found := strings.Cut(s, part)
		if !found {
			part = ""
		}
		return py.Tuple{py.String(before), py.String(part), py.String(after)}, nil
	}))
	onString("rpartition", 1, 1, withText(func(s, part string) (py.Object, error) {
		i := strings.LastIndex(s, part)
		if i < 0 {
			return py.Tuple{py.String(""), py.String(""), py.String(s)}, nil
		}
		return py.Tuple{py.String(s[:i]), py.String(part), py.String(s[i+len(part):])}, nil
	}))
	onString("splitlines", 0, 0, func(s string, _ []py.Object) (py.Object, error) {
		s = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s)
		if s == "" {
			return py.NewList(), nil
		}
		return py.NewListFromStrings(strings.Split(strings.TrimSuffix(s, "\n"), "\n")), nil
	})
	for n, align := range map[string]string{"ljust": "<", "rjust": ">", "center": "^"} {
		onString(n, 1, 2, func(s string, args []py.Object) (py.Object, error) {
			width, err := py.IndexInt(args[0])
			fill := " "
			if len(args) == 2 {
				fill, _ = str(args[1])
			}
			if left := width - utf8.RuneCountInString(s); n == "center" && left > 0 && left&width&1 == 1 {
				s = pad(s, fill, ">", width-left+1) // CPython's center has the odd one on the left where the width is odd
			}
			return py.String(pad(s, fill, align, width)), err
		})
	}
	onString("zfill", 1, 1, func(s string, args []py.Object) (py.Object, error) {
		width, err := py.IndexInt(args[0])
		sign := s[:len(s)-len(strings.TrimLeft(s, "+-"))]
		return py.String(sign + pad(s[len(sign):], "0", ">", width-len(sign))), err
	})
	py.StringType.Dict["format"] = py.MustNewMethod("format", func(self py.Object, args py.Tuple, kwargs py.StringDict) (py.Object, error) {
		s, err := formatBraces(string(self.(py.String)), args, kwargs)
		return py.String(s), err
	}, 0, "")
	split := py.StringType.Dict["split"]
	py.StringType.Dict["split"] = py.MustNewMethod("split", func(self py.Object, args py.Tuple, kwargs py.StringDict) (py.Object, error) {
		if kwargs["sep"] == py.Object(py.String("")) || len(args) > 0 && args[0] == py.Object(py.String("")) {
			return nil, py.ExceptionNewf(py.ValueError, "empty separator")
		}
		return split.(*py.Method).CallWithKeywords(self, args, kwargs)
	}, 0, "")
	addToList()
	addToTuple()
	addToDict()
	addToSet()
}

func onString(name string, least, most int, f func(string, []py.Object) (py.Object, error)) {
	py.StringType.Dict[name] = method(name, least, most, func(self py.Object, args []py.Object) (py.Object, error) {
		return f(string(self.(py.String)), args)
	})
}

// method checks the number of arguments.
func method(name string, least, most int, f func(py.Object, []py.Object) (py.Object, error)) *py.Method {
	return py.MustNewMethod(name, func(self py.Object, args py.Tuple) (py.Object, error) {
		if len(args) < least || len(args) > most {
			return nil, py.ExceptionNewf(py.TypeError, "%s() takes %d to %d arguments (%d given)", name, least, most, len(args))
		}
		return f(self, args)
	}, 0, "")
}

func withText(f func(s, part string) (py.Object, error)) func(string, []py.Object) (py.Object, error) {
	return func(s string, args []py.Object) (py.Object, error) {
		part, ok := args[0].(py.String)
		if !ok {
			return nil, py.ExceptionNewf(py.TypeError, "must be str, not %s", args[0].Type().Name)
		}
		return f(s, string(part))
	}
}

// characters counts those before a byte; -1 stays.
func characters(s string, at int) int {
	if at < 0 {
		return at
	}
	return utf8.RuneCountInString(s[:at])
}

func capitalize(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return strings.ToUpper(s[:n]) + strings.ToLower(s[n:])
}

func title(s string) string {
	before := ' '
	return strings.Map(func(r rune) rune {
		within := unicode.IsLetter(before)
		before = r
		if within {
			return unicode.ToLower(r)
		}
		return unicode.ToTitle(r)
	}, s)
}

func swapcase(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsUpper(r) {
			return unicode.ToLower(r)
		}
		return unicode.ToUpper(r)
	}, s)
}

// rsplit splits from the right, at most as often as the second argument says.
func rsplit(s string, args []py.Object) (py.Object, error) {
	most := -1
	if len(args) == 2 {
		var err error
		if most, err = py.IndexInt(args[1]); err != nil {
			return nil, err
		}
	}
	last := func(s string) (start, end int) { // of the last separator
		end = strings.LastIndexFunc(s, unicode.IsSpace)
		if end < 0 {
			return -1, -1
		}
		_, size := utf8.DecodeRuneInString(s[end:])
		return len(strings.TrimRightFunc(s[:end], unicode.IsSpace)), end + size
	}
	blanks := len(args) == 0 || args[0] == py.None
	if !blanks {
		part, ok := args[0].(py.String)
		switch {
		case !ok:
			return nil, py.ExceptionNewf(py.TypeError, "must be str or None, not %s", args[0].Type().Name)
		case part == "":
			return nil, py.ExceptionNewf(py.ValueError, "empty separator")
		}
		last = func(s string) (start, end int) {
			start = strings.LastIndex(s, string(part))
			return start, start + len(part)
		}
	}
	var out []string
	for {
		if blanks {
			s = strings.TrimRightFunc(s, unicode.IsSpace)
			if s == "" {
				break
			}
		}
		start, end := last(s)
		if start < 0 || len(out) == most {
			out = append(out, s)
			break
		}
		out = append(out, s[end:])
		s = s[:start]
	}
	slices.Reverse(out)
	return py.NewListFromStrings(out), nil
}

func join(s string, args []py.Object) (py.Object, error) {
	list, err := py.SequenceList(args[0])
	if err != nil {
		return nil, err
	}
	parts := make([]string, len(list.Items))
	for i, o := range list.Items {
		part, ok := o.(py.String)
		if !ok {
			return nil, py.ExceptionNewf(py.TypeError, "sequence item %d: expected str instance, %s found", i, o.Type().Name)
		}
		parts[i] = string(part)
	}
	return py.String(strings.Join(parts, s)), nil
}

func reverse(l *py.List) { slices.Reverse(l.Items) }

// find is the place of an item; -1: none.
func find(items []py.Object, o py.Object) int {
	return slices.IndexFunc(items, func(x py.Object) bool { return equal(x, o) })
}

func count(items []py.Object, o py.Object) (n int) {
	for _, x := range items {
		if equal(x, o) {
			n++
		}
	}
	return n
}

func equal(a, b py.Object) bool {
	same, err := compare(a, b, vm.PyCmp_EQ)
	if same == nil && err == nil {
		same, err = py.Eq(a, b)
	}
	return err == nil && same == py.True
}

func addToList() {
	add := func(name string, least, most int, f func(*py.List, []py.Object) (py.Object, error)) {
		py.ListType.Dict[name] = method(name, least, most, func(self py.Object, args []py.Object) (py.Object, error) { return f(self.(*py.List), args) })
	}
	py.ListType.Dict["sort"] = py.MustNewMethod("sort", func(self py.Object, args py.Tuple, kwargs py.StringDict) (py.Object, error) {
		out, err := sorted(nil, append(py.Tuple{self}, args...), kwargs)
		if err == nil {
			copy(self.(*py.List).Items, out.(*py.List).Items)
		}
		return py.None, err
	}, 0, "")
	add("reverse", 0, 0, func(l *py.List, _ []py.Object) (py.Object, error) { reverse(l); return py.None, nil })
	add("clear", 0, 0, func(l *py.List, _ []py.Object) (py.Object, error) { l.Items = nil; return py.None, nil })
	add("copy", 0, 0, func(l *py.List, _ []py.Object) (py.Object, error) {
		return py.NewListFromItems(slices.Clone(l.Items)), nil
	})
	add("index", 1, 1, func(l *py.List, args []py.Object) (py.Object, error) {
		if i := find(l.Items, args[0]); i >= 0 {
			return py.Int(i), nil
		}
		return nil, py.ExceptionNewf(py.ValueError, "the item is not in list")
	})
	add("count", 1, 1, func(l *py.List, args []py.Object) (py.Object, error) {
		return py.Int(count(l.Items, args[0])), nil
	})
	add("remove", 1, 1, func(l *py.List, args []py.Object) (py.Object, error) {
		i := find(l.Items, args[0])
		if i < 0 {
			return nil, py.ExceptionNewf(py.ValueError, "list.remove(x): x not in list")
		}
		l.DelItem(i)
		return py.None, nil
	})
	add("insert", 2, 2, func(l *py.List, args []py.Object) (py.Object, error) {
		i, err := py.IndexInt(args[0])
		if err != nil {
			return nil, err
		}
		if i < 0 {
			i = max(i+len(l.Items), 0)
		}
		l.Items = slices.Insert(l.Items, min(i, len(l.Items)), args[1])
		return py.None, nil
	})
	add("pop", 0, 1, func(l *py.List, args []py.Object) (py.Object, error) {
		i := -1
		if len(args) == 1 {
			var err error
			if i, err = py.IndexInt(args[0]); err != nil {
				return nil, err
			}
		}
		if i < 0 {
			i += len(l.Items)
		}
		if i < 0 || i >= len(l.Items) {
			return nil, py.ExceptionNewf(py.IndexError, "pop index out of range")
		}
		out := l.Items[i]
		l.DelItem(i)
		return out, nil
	})
}

func addToTuple() {
	py.TupleType.Dict["index"] = method("index", 1, 1, func(self py.Object, args []py.Object) (py.Object, error) {
		if i := find(self.(py.Tuple), args[0]); i >= 0 {
			return py.Int(i), nil
		}
		return nil, py.ExceptionNewf(py.ValueError, "tuple.index(x): x not in tuple")
	})
	py.TupleType.Dict["count"] = method("count", 1, 1, func(self py.Object, args []py.Object) (py.Object, error) {
		return py.Int(count(self.(py.Tuple), args[0])), nil
	})
}

func addToDict() {
	add := func(name string, least, most int, f func(py.StringDict, []py.Object) (py.Object, error)) {
		py.StringDictType.Dict[name] = method(name, least, most, func(self py.Object, args []py.Object) (py.Object, error) {
			return f(self.(py.StringDict), args)
		})
	}
	// gpython's dicts have no order: these have the same one every time.
	each := func(name string, f func(k string, v py.Object) py.Object) {
		add(name, 0, 0, func(d py.StringDict, _ []py.Object) (py.Object, error) {
			var out py.Tuple
			for _, k := range slices.Sorted(maps.Keys(d)) {
				out = append(out, f(k, d[k]))
			}
			return py.NewIterator(out), nil
		})
	}
	each("keys", func(k string, _ py.Object) py.Object { return py.String(k) })
	each("values", func(_ string, v py.Object) py.Object { return v })
	each("items", func(k string, v py.Object) py.Object { return py.Tuple{py.String(k), v} })
	add("clear", 0, 0, func(d py.StringDict, _ []py.Object) (py.Object, error) { clear(d); return py.None, nil })
	add("copy", 0, 0, func(d py.StringDict, _ []py.Object) (py.Object, error) { return d.Copy(), nil })
	py.StringDictType.New = func(_ *py.Type, args py.Tuple, kwargs py.StringDict) (py.Object, error) {
		d := py.NewStringDict()
		return d, fill(d, "dict", args, kwargs)
	}
	py.StringDictType.Dict["update"] = py.MustNewMethod("update", func(self py.Object, args py.Tuple, kwargs py.StringDict) (py.Object, error) {
		return py.None, fill(self.(py.StringDict), "update", args, kwargs)
	}, 0, "")
	add("setdefault", 1, 2, func(d py.StringDict, args []py.Object) (py.Object, error) {
		k, err := key(args[0])
		if err != nil {
			return nil, err
		}
		if _, ok := d[k]; !ok {
			d[k] = py.Object(py.None)
			if len(args) == 2 {
				d[k] = args[1]
			}
		}
		return d[k], nil
	})
	add("pop", 1, 2, func(d py.StringDict, args []py.Object) (py.Object, error) {
		k, err := key(args[0])
		if err != nil {
			return nil, err
		}
		v, ok := d[k]
		delete(d, k)
		switch {
		case ok:
			return v, nil
		case len(args) == 2:
			return args[1], nil
		}
		return nil, py.ExceptionNewf(py.KeyError, "%s", k)
	})
}

// fill puts into a dict what dict and update are given: another dict or pairs, and names with values.
func fill(d py.StringDict, name string, args py.Tuple, kwargs py.StringDict) error {
	var from py.Object = py.Tuple{}
	if err := py.UnpackTuple(args, nil, name, 0, 1, &from); err != nil {
		return err
	}
	if given, ok := from.(py.StringDict); ok {
		maps.Copy(d, given)
	} else {
		pairs, err := py.SequenceList(from)
		if err != nil {
			return err
		}
		for i, p := range pairs.Items {
			pair, err := py.SequenceTuple(p)
			if err != nil {
				return py.ExceptionNewf(py.TypeError, "cannot convert dictionary update sequence element #%d to a sequence", i)
			}
			if len(pair) != 2 {
				return py.ExceptionNewf(py.ValueError, "dictionary update sequence element #%d has length %d; 2 is required", i, len(pair))
			}
			k, err := key(pair[0])
			if err != nil {
				return err
			}
			d[k] = pair[1]
		}
	}
	maps.Copy(d, kwargs)
	return nil
}

// key is the key of a dict.
func key(o py.Object) (string, error) {
	k, ok := o.(py.String)
	if !ok {
		return "", py.ExceptionNewf(py.TypeError, "gpython's dicts have string keys only; or use runtime: cpython")
	}
	return string(k), nil
}
