package gpython

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/go-python/gpython/py"
)

// repair puts right what gpython's builtins do wrongly, and adds what files use most.
func repair(ctx py.Context) {
	b := ctx.Store().Builtins.Globals
	build := b["__build_class__"]
	b["__build_class__"] = py.MustNewMethod("__build_class__", func(_ py.Object, args py.Tuple, kwargs py.StringDict) (py.Object, error) {
		return buildClass(build, args, kwargs)
	}, 0, "")
	original := b["isinstance"]
	b["isinstance"] = py.MustNewMethod("isinstance", func(_ py.Object, args py.Tuple) (py.Object, error) { return isInstance(original, args) }, 0, "")
	b[modulo] = &remainder{}
	b["round"] = py.MustNewMethod("round", round, 0, "")
	b["repr"] = py.MustNewMethod("repr", func(_, o py.Object) (py.Object, error) {
		s, err := repr(o)
		return py.String(s), err
	}, 0, "")
	newString := py.StringType.New
	py.StringType.New = func(t *py.Type, args py.Tuple, kwargs py.StringDict) (py.Object, error) {
		if len(args) != 1 || len(kwargs) > 0 {
			return newString(t, args, kwargs)
		}
		s, err := str(args[0])
		return py.String(s), err
	}
	b["sorted"] = py.MustNewMethod("sorted", sorted, 0, "")
	b["min"] = py.MustNewMethod("min", func(_ py.Object, args py.Tuple, kwargs py.StringDict) (py.Object, error) {
		return extreme("min", -1, args, kwargs)
	}, 0, "")
	b["max"] = py.MustNewMethod("max", func(_ py.Object, args py.Tuple, kwargs py.StringDict) (py.Object, error) {
		return extreme("max", 1, args, kwargs)
	}, 0, "")
	numbers := py.GetModuleImpl("math")
	maps.Copy(numbers.Globals, mathAdded)
	for i, f := range numbers.Methods {
		numbers.Methods[i] = withNumbers(f.Name, f)
	}
	py.FloatType.New, py.IntType.New = onNumbers(py.FloatType.New), onNumbers(py.IntType.New)
	for _, n := range []string{"abs", "divmod", "pow"} {
		b[n] = withNumbers(n, b[n])
	}
	b["sum"] = sumOf(b["sum"])
	b["callable"] = py.MustNewMethod("callable", func(_, o py.Object) (py.Object, error) {
		_, ok := o.(py.I__call__)
		return py.NewBool(ok), nil
	}, 0, "")
	b["reversed"] = py.MustNewMethod("reversed", func(_, o py.Object) (py.Object, error) {
		list, err := py.SequenceList(o)
		if err != nil {
			return nil, err
		}
		list = list.Copy()
		reverse(list)
		return py.NewIterator(py.Tuple(list.Items)), nil
	}, 0, "")
	py.BoolType.New = func(_ *py.Type, args py.Tuple, _ py.StringDict) (py.Object, error) {
		if len(args) == 0 {
			return py.False, nil
		}
		return truth(args[0])
	}
	py.ObjectType.Dict["__name__"] = &py.Property{Fget: func(self py.Object) (py.Object, error) {
		if t, ok := self.(*py.Type); ok {
			return py.String(t.Name), nil
		}
		return nil, py.ExceptionNewf(py.AttributeError, "'%s' object has no attribute '__name__'", self.Type().Name)
	}}
	py.ObjectType.Dict["__class__"] = &py.Property{Fget: func(self py.Object) (py.Object, error) { return classOf(self), nil }}
	py.BigIntType.Name = py.IntType.Name
	py.TypeType.New = func(t *py.Type, args py.Tuple, kwargs py.StringDict) (py.Object, error) {
		if len(args) == 1 && len(kwargs) == 0 {
			return classOf(args[0]), nil
		}
		return py.TypeNew(t, args, kwargs)
	}
	addMethods()
	repairOperators()
	repairExceptions(b)
}

// classOf is the class of a value. gpython has another one for whole numbers of more than 64 bits.
func classOf(o py.Object) *py.Type {
	if o.Type() == py.BigIntType {
		return py.IntType
	}
	return o.Type()
}

// sumOf is sum, which in gpython overwrites items of tuples.
func sumOf(original py.Object) *py.Method {
	return py.MustNewMethod("sum", func(_ py.Object, args py.Tuple) (py.Object, error) {
		if len(args) != 2 {
			return py.Call(original, args, nil)
		}
		all, isTuple := args[1].(py.Tuple)
		if !isTuple {
			return py.Call(original, py.Tuple{args[0], asNumber(args[1])}, nil)
		}
		parts, err := py.SequenceList(args[0])
		if err != nil {
			return nil, err
		}
		all = slices.Clone(all)
		for _, p := range parts.Items {
			t, ok := p.(py.Tuple)
			if !ok {
				return nil, py.ExceptionNewf(py.TypeError, "can only concatenate tuple (not \"%s\") to tuple", p.Type().Name)
			}
			all = append(all, t...)
		}
		return all, nil
	}, 0, "")
}

// mathAdded is what the module math has besides gpython's own.
var mathAdded = py.StringDict{
	"inf": py.Float(math.Inf(1)), "nan": py.Float(math.NaN()), "tau": py.Float(2 * math.Pi),
	"gcd": py.MustNewMethod("gcd", func(_ py.Object, args py.Tuple) (py.Object, error) {
		var n big.Int
		for _, a := range args {
			x, ok := py.ConvertToBigInt(a)
			if !ok {
				return nil, py.ExceptionNewf(py.TypeError, "'%s' object cannot be interpreted as an integer", a.Type().Name)
			}
			n.GCD(nil, nil, &n, new(big.Int).Abs((*big.Int)(x)))
		}
		return (*py.BigInt)(&n).MaybeInt(), nil
	}, 0, ""),
	"isclose": py.MustNewMethod("isclose", func(_ py.Object, args py.Tuple, kwargs py.StringDict) (py.Object, error) {
		if len(args) != 2 {
			return nil, py.ExceptionNewf(py.TypeError, "isclose() takes 2 numbers, rel_tol=… and abs_tol=…")
		}
		given := append(slices.Clone(args), py.Float(1e-9), py.Float(0))
		for n, v := range kwargs {
			i := slices.Index([]string{"rel_tol", "abs_tol"}, n)
			if i < 0 {
				return nil, py.ExceptionNewf(py.TypeError, "isclose() got an unexpected keyword argument '%s'", n)
			}
			given[2+i] = v
		}
		var x [4]float64
		for i, g := range given {
			var err error
			if x[i], err = py.FloatAsFloat64(asNumber(g)); err != nil {
				return nil, err
			}
		}
		away := math.Abs(x[0] - x[1])
		return py.NewBool(x[0] == x[1] || !math.IsInf(away, 0) && (away <= x[2]*max(math.Abs(x[0]), math.Abs(x[1])) || away <= x[3])), nil
	}, 0, ""),
}

// compile compiles a rewritten file and repairs the code. mixed are lines "LINE:COLUMN: what" of functions that cannot be repaired.
func compile(source, path string) (code *py.Code, mixed []string, err error) {
	if code, err = py.Compile(source, path, py.ExecMode, 0, true); err != nil {
		return nil, nil, err
	}
	bindArguments(code)
	return code, mixedUp(code, scan(source)), nil
}

// mixedUp finds functions whose bytecode confuses two kinds of variables, by the number in which both are counted.
func mixedUp(code *py.Code, tokens []token) (found []string) {
	if len(code.Cellvars) > 0 && len(code.Freevars) > 0 {
		first := int(code.Addr2Line(0)) // of its statements
		line, column := first, 1
		for i, t := range tokens {
			if t.line <= first && (t.text == "lambda" && code.Name == "<lambda>" || t.text == code.Name && tokens[max(i-1, 0)].text == "def") {
				line, column = t.line, t.column
			}
		}
		found = append(found, fmt.Sprintf("%d:%d: gpython mixes up the variables of %s: those of the function around it (%s), and its own that a function or comprehension within it uses (%s); pass them as arguments%s",
			line, column, code.Name, strings.Join(code.Freevars, ", "), strings.Join(code.Cellvars, ", "), instead))
	}
	for _, c := range code.Consts {
		if inner, ok := c.(*py.Code); ok {
			found = append(found, mixedUp(inner, tokens)...)
		}
	}
	return found
}

// bindArguments tells functions which variables of inner functions and comprehensions are their arguments: gpython's compiler does not.
func bindArguments(code *py.Code) {
	arguments := int(code.Argcount + code.Kwonlyargcount)
	for _, flag := range []int32{py.CO_VARARGS, py.CO_VARKEYWORDS} {
		if code.Flags&flag != 0 {
			arguments++
		}
	}
	arguments = min(arguments, len(code.Varnames), py.CO_CELL_NOT_AN_ARG)
	code.Cell2arg = make([]byte, len(code.Cellvars))
	for i, n := range code.Cellvars {
		code.Cell2arg[i] = py.CO_CELL_NOT_AN_ARG
		if k := slices.Index(code.Varnames[:arguments], n); k >= 0 {
			code.Cell2arg[i] = byte(k)
		}
	}
	for _, c := range code.Consts {
		if inner, ok := c.(*py.Code); ok {
			bindArguments(inner)
		}
	}
}

// isInstance walks the bases of the object's class, and knows that truth values and large numbers are int.
func isInstance(original py.Object, args py.Tuple) (py.Object, error) {
	if len(args) != 2 {
		return py.Call(original, args, nil)
	}
	if classes, ok := args[1].(py.Tuple); ok {
		for _, c := range classes {
			if out, err := isInstance(original, py.Tuple{args[0], c}); err != nil || out == py.True {
				return out, err
			}
		}
		return py.False, nil
	}
	class, ok := args[1].(*py.Type)
	if !ok || isObject(class) {
		return py.Call(original, args, nil)
	}
	whole := false
	switch args[0].(type) {
	case py.Bool, *py.BigInt:
		whole = true
	}
	return py.NewBool(whole && class == py.IntType || class == py.ObjectType || args[0].Type().IsSubtype(class)), nil
}

// isObject tells an object of a class of the file from a class: gpython has one type for both.
func isObject(t *py.Type) bool { return t.Name == "" }

// buildClass makes classes of exceptions itself: those that gpython makes cannot be called or caught.
func buildClass(build py.Object, args py.Tuple, kwargs py.StringDict) (py.Object, error) {
	if len(args) >= 3 {
		fn, isFunction := args[0].(*py.Function)
		base, isType := args[2].(*py.Type)
		if isFunction && isType && base.Flags&py.TPFLAGS_BASE_EXC_SUBCLASS != 0 {
			names := py.NewStringDict()
			if _, err := fn.Context.RunCode(fn.Code, fn.Globals, names, fn.Closure); err != nil {
				return nil, err
			}
			t := base.NewType(string(args[1].(py.String)), "", nil, nil)
			maps.Copy(t.Dict, names)
			// An except finds the classes above this one in its method resolution order, which Ready computes.
			t.ObjectType, t.Base, t.Bases = py.TypeType, base, slices.Clone(args[2:])
			t.New, t.Init = newException, initException
			t.Flags &^= py.TPFLAGS_READY
			err := t.Ready()
			t.Dict["__doc__"] = orNone(names["__doc__"]) // which Ready leaves out
			return t, err
		}
	}
	out, err := py.Call(build, args, kwargs)
	if err != nil {
		return nil, err
	}
	if t, ok := out.(*py.Type); ok {
		inherit(t)
		if f, ok := t.Dict["__next__"].(*py.Function); ok {
			t.Dict["__next__"] = nextOf(f)
		}
	}
	return out, nil
}

// inherit copies the special methods of a class's bases: gpython looks for them in the class itself only.
func inherit(t *py.Type) {
	for _, base := range t.Mro {
		for n, f := range base.(*py.Type).Dict {
			_, isFunction := f.(*py.Function)
			if _, own := t.Dict[n]; (isFunction || n == "__next__") && !own && strings.HasPrefix(n, "__") {
				t.Dict[n] = f
			}
		}
	}
}

// nextOf is the __next__ of a class of the file, which ends as gpython's own iterators do: all that takes an iterator knows that end alone.
func nextOf(f *py.Function) *py.Method {
	return py.MustNewMethod("__next__", func(self py.Object, args py.Tuple) (py.Object, error) {
		if len(args) == 0 { // bound
			args = py.Tuple{self}
		}
		out, err := py.Call(f, args, nil)
		if isStop(err) {
			return nil, py.StopIteration
		}
		return out, err
	}, 0, "")
}

// isStop tells the end of an iterator from another error.
func isStop(err error) bool {
	if errors.Is(err, py.StopIteration) {
		return true
	}
	e, _ := exception(err)
	return e != nil && e.Base.IsSubtype(py.StopIteration)
}

// truth is bool(o): gpython asks no object of the file's classes.
func truth(o py.Object) (py.Object, error) {
	t, ok := o.(*py.Type)
	if !ok || !isObject(t) {
		return py.MakeBool(o)
	}
	for _, n := range []string{"__bool__", "__len__"} {
		if f, ok := t.ObjectType.Dict[n]; ok {
			out, err := py.Call(f, py.Tuple{o}, nil)
			if err != nil {
				return nil, err
			}
			return py.MakeBool(out)
		}
	}
	return py.True, nil
}

// remainder is what rewrite puts in place of %: x * remainder * y.
type remainder struct {
	left py.Object
}

var remainderType = py.NewType("modulo", "")

func (r *remainder) Type() *py.Type { return remainderType }

func (r *remainder) M__rmul__(left py.Object) (py.Object, error) { return &remainder{left}, nil }

func (r *remainder) M__mul__(right py.Object) (py.Object, error) {
	if format, ok := r.left.(py.String); ok {
		s, err := formatPercent(string(format), right)
		return py.String(s), err
	}
	return py.Mod(r.left, right)
}

// round is CPython's: to even, and the nearest decimal.
func round(_ py.Object, args py.Tuple) (py.Object, error) {
	if len(args) == 0 || len(args) > 2 {
		return nil, py.ExceptionNewf(py.TypeError, "round() takes 1 or 2 arguments")
	}
	toWhole := len(args) == 1 || args[1] == py.None
	x, isFloat := args[0].(py.Float)
	digits := 0
	if !toWhole {
		var err error
		if digits, err = py.IndexInt(args[1]); err != nil {
			return nil, err
		}
	}
	switch {
	case !isFloat && (toWhole || digits >= 0):
		return wholeNumber(args[0])
	case !isFloat:
		n, ok := py.ConvertToBigInt(args[0])
		if !ok {
			return wholeNumber(args[0])
		}
		return roundWhole((*big.Int)(n), min(-digits, 100_000)), nil
	case toWhole:
		return py.Float(math.RoundToEven(float64(x))).M__int__()
	case digits < 0:
		scale := math.Pow(10, float64(-digits))
		return py.Float(math.RoundToEven(float64(x)/scale) * scale), nil
	}
	f, err := strconv.ParseFloat(strconv.FormatFloat(float64(x), 'f', min(digits, 330), 64), 64)
	return py.Float(f), err
}

// roundWhole rounds to a multiple of 10 to the power zeros; a half goes to the even one.
func roundWhole(n *big.Int, zeros int) py.Object {
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(zeros)), nil)
	times, rest := new(big.Int).DivMod(n, scale, new(big.Int))
	if c := rest.Lsh(rest, 1).Cmp(scale); c > 0 || c == 0 && times.Bit(0) == 1 {
		times.Add(times, big.NewInt(1))
	}
	return (*py.BigInt)(times.Mul(times, scale)).MaybeInt()
}

func wholeNumber(o py.Object) (py.Object, error) {
	switch n := o.(type) {
	case py.Bool:
		return n.M__index__()
	case py.Int, *py.BigInt:
		return n, nil
	}
	return nil, py.ExceptionNewf(py.TypeError, "type %s doesn't define __round__ method", o.Type().Name)
}
