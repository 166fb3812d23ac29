package gpython

import (
	"slices"

	"github.com/go-python/gpython/py"
	"github.com/go-python/gpython/vm"
)

// repairExceptions gives exceptions attributes of their own, and the file's classes of exceptions their __init__: gpython answers every attribute with
// the arguments, and has none that could be set.
func repairExceptions(builtins py.StringDict) {
	for _, o := range builtins {
		if t, ok := o.(*py.Type); ok && t.Flags&py.TPFLAGS_BASE_EXC_SUBCLASS != 0 {
			t.Dict["__init__"] = baseInit
		}
	}
	before([]vm.OpCode{vm.LOAD_ATTR, vm.STORE_ATTR}, func(m *vm.Vm) { m.SET_TOP(withAttributes(m.TOP())) })
	for _, n := range []string{"getattr", "hasattr", "setattr"} {
		f := builtins[n]
		builtins[n] = py.MustNewMethod(n, func(_ py.Object, args py.Tuple, kwargs py.StringDict) (py.Object, error) {
			if len(args) > 0 {
				args = append(py.Tuple{withAttributes(args[0])}, args[1:]...)
			}
			return py.Call(f, args, kwargs)
		}, 0, "")
	}
	raise := instructions[vm.RAISE_VARARGS]
	instructions[vm.RAISE_VARARGS] = func(m *vm.Vm, count int32) error { // raise CLASS, and raise CLASS from CAUSE, call the class
		if count > 0 {
			t, class := m.PEEK(int(count)).(*py.Type)
			class = class && t.Flags&py.TPFLAGS_BASE_EXC_SUBCLASS != 0
			if _, ok := m.PEEK(int(count)).(*py.Exception); !ok && !class {
				return py.ExceptionNewf(py.TypeError, "exceptions must derive from BaseException")
			}
			if class && t.Init != nil {
				e, err := py.Call(t, nil, nil)
				if err != nil {
					return err
				}
				if count == 1 {
					m.SET_TOP(e)
				} else {
					m.SET_SECOND(e)
				}
			}
		}
		if count < 2 {
			return raise(m, count)
		}
		cause := m.POP()
		if t, ok := cause.(*py.Type); ok && t.Flags&py.TPFLAGS_BASE_EXC_SUBCLASS != 0 {
			var err error
			if cause, err = py.Call(t, nil, nil); err != nil {
				return err
			}
		}
		e := py.MakeException(m.TOP())
		if err := setCause(e, cause, "exception causes must derive from BaseException"); err != nil {
			return err
		}
		m.SET_TOP(e)
		return raise(m, 1)
	}
}

// setCause gives an exception its cause, which may be None; refusal is the TypeError of what can be none.
func setCause(e *py.Exception, cause py.Object, refusal string) error {
	if _, ok := cause.(*py.Exception); !ok && cause != py.None {
		return py.ExceptionNewf(py.TypeError, "%s", refusal)
	}
	e.Cause, e.SuppressContext = cause, true
	return nil
}

// baseInit is the __init__ of Python's own exceptions.
var baseInit = py.MustNewMethod("__init__", func(_ py.Object, args py.Tuple) (py.Object, error) {
	if len(args) > 0 {
		if e, ok := args[0].(*py.Exception); ok {
			e.Args = slices.Clone(args[1:])
			return py.None, nil
		}
	}
	return nil, py.ExceptionNewf(py.TypeError, "__init__() of an exception needs the exception as its first argument")
}, 0, "")

// newException makes one of a class of the file.
func newException(t *py.Type, args py.Tuple, _ py.StringDict) (py.Object, error) {
	return &py.Exception{Base: t, Args: slices.Clone(args), Dict: py.NewStringDict()}, nil
}

// initException calls the __init__ of a class of the file.
func initException(self py.Object, args py.Tuple, kwargs py.StringDict) error {
	if f, ok := self.Type().NativeGetAttrOrNil("__init__").(*py.Function); ok {
		_, err := py.Call(f, append(py.Tuple{self}, args...), kwargs)
		return err
	}
	if len(kwargs) > 0 {
		return py.ExceptionNewf(py.TypeError, "%s() takes no keyword arguments", self.Type().Name)
	}
	return nil
}

// withAttributes is what gpython asks for attributes in place of an exception; anything else stays.
func withAttributes(o py.Object) py.Object {
	if e, ok := o.(*py.Exception); ok {
		return &attributes{e}
	}
	return o
}

// attributes are those of an exception.
type attributes struct{ of *py.Exception }

var attributesType = py.NewType("attributes", "the attributes of an exception")

func (a *attributes) Type() *py.Type { return attributesType }

func (a *attributes) M__getattribute__(name string) (py.Object, error) {
	if v, ok := a.of.Dict[name]; ok {
		return v, nil
	}
	switch name {
	case "args":
		return a.of.Args, nil
	case "__dict__":
		return a.of.Dict, nil
	case "__cause__":
		return orNone(a.of.Cause), nil
	case "__suppress_context__":
		return py.NewBool(a.of.SuppressContext), nil
	case "__traceback__": // gpython makes no objects of them
		return py.None, nil
	case "__doc__":
		return docOf(a.of.Base), nil
	case "__str__", "__repr__":
		return method(name, 0, 0, func(py.Object, []py.Object) (py.Object, error) {
			s, err := exceptionText(a.of, name)
			return py.String(s), err
		}), nil
	}
	if a.of.Base.NativeGetAttrOrNil(name) != nil {
		return py.GetAttrString(a.of, name)
	}
	return nil, py.ExceptionNewf(py.AttributeError, "'%s' object has no attribute '%s'", a.of.Base.Name, name)
}

func (a *attributes) M__setattr__(name string, value py.Object) (py.Object, error) {
	switch name {
	case "args":
		all, err := py.SequenceTuple(value)
		a.of.Args = all
		return py.None, err
	case "__cause__":
		return py.None, setCause(a.of, value, "exception cause must be None or derive from BaseException")
	case "__suppress_context__":
		on, err := truth(value)
		a.of.SuppressContext = on == py.True
		return py.None, err
	}
	a.of.Dict[name] = value
	return py.None, nil
}

// docOf is the text that a class says of itself.
func docOf(t *py.Type) py.Object {
	if own, ok := t.Dict["__doc__"]; ok {
		return own
	}
	if t.Doc == "" {
		return py.None
	}
	return py.String(t.Doc)
}

// exceptionText is str(e), or repr(e) for __repr__.
func exceptionText(e *py.Exception, name string) (string, error) {
	if f, ok := e.Base.NativeGetAttrOrNil(name).(*py.Function); ok { // of the file
		o, err := py.Call(f, py.Tuple{e}, nil)
		if err != nil {
			return "", err
		}
		s, ok := o.(py.String)
		if !ok {
			return "", py.ExceptionNewf(py.TypeError, "%s returned non-string (type %s)", name, o.Type().Name)
		}
		return string(s), nil
	}
	args, _ := e.Args.(py.Tuple)
	switch {
	case name == "__repr__" && len(args) == 1:
		s, err := repr(args[0])
		return e.Base.Name + "(" + s + ")", err
	case name == "__repr__":
		s, err := repr(args)
		return e.Base.Name + s, err
	case len(args) == 0:
		return "", nil
	case len(args) > 1:
		return repr(args)
	case e.Base.IsSubtype(py.KeyError):
		return repr(args[0])
	}
	return str(args[0])
}
