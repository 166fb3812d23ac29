package gpython

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/go-python/gpython/py"
)

// optionsOf are what each decorator takes; the first may be positional.
var optionsOf = map[string][]string{
	"tool":   strings.Fields("name description stateful environment timeout max_tokens terminal idempotent deterministic schema status max_length auto_register env_cls env_kwargs pool_size resource_spec backend"),
	"reward": strings.Fields("name stateful timeout auto_register env_cls env_kwargs pool_size"),
	"agent":  {"name"},
}

// defaults are dropped: the options of a function are those that were given.
var defaults = py.StringDict{
	"stateful": py.False, "terminal": py.False, "idempotent": py.False, "deterministic": py.False, "status": py.String("success"),
	"auto_register": py.True, "pool_size": py.Int(-1), "backend": py.String("local"),
}

// register makes the module agentfly of the file.
func (f *file) register() {
	state := py.MustNewMethod("state", func(py.Object, py.Tuple) (py.Object, error) { return f.current.M__getattr__("state") }, 0, "What belongs to the trajectory.")
	methods := []*py.Method{f.decorator("tool"), f.decorator("reward"), f.decorator("agent"), state}
	for _, n := range []string{"agentfly", "agentfly.tools", "agentfly.rewards", "agentfly.core"} {
		py.RegisterModule(&py.ModuleImpl{Info: py.ModuleInfo{Name: n}, Methods: methods, Globals: py.StringDict{"Context": contextType}})
	}
}

// decorator is tool, reward or agent, with or without arguments.
func (f *file) decorator(kind string) *py.Method {
	return py.MustNewMethod(kind, func(_ py.Object, args py.Tuple, given py.StringDict) (py.Object, error) {
		if len(args) == 1 && len(given) == 0 {
			if _, named := args[0].(py.String); !named && args[0] != py.None {
				return f.declare(kind, args[0], nil)
			}
		}
		o, err := options(kind, args, given)
		if err != nil {
			return nil, err
		}
		return py.MustNewMethod(kind, func(_, target py.Object) (py.Object, error) { return f.declare(kind, target, o) }, 0, ""), nil
	}, 0, "A decorator of a function.")
}

// options checks what a decorator was given.
func options(kind string, args py.Tuple, given py.StringDict) (map[string]any, error) {
	known := optionsOf[kind]
	if len(args) > min(2, len(known)) || kind != "tool" && len(args) > 1 {
		return nil, py.ExceptionNewf(py.TypeError, "%s() takes fewer positional arguments", kind)
	}
	given = given.Copy()
	for i, a := range args {
		given[known[i]] = a
	}
	out := map[string]any{}
	for n, v := range given {
		if !slices.Contains(known, n) {
			return nil, py.ExceptionNewf(py.TypeError, "%s() got an unexpected keyword argument '%s'", kind, n)
		}
		if same, err := py.Eq(v, orNone(defaults[n])); v == py.None || err == nil && same == py.True {
			continue
		}
		shown, err := repr(v)
		if err != nil {
			return nil, err
		}
		data, err := encode(v)
		if err != nil {
			return nil, err
		}
		var plain any
		if err := json.Unmarshal(data, &plain); err != nil {
			return nil, err
		}
		if what := mustBe(n, v); what != "" {
			return nil, py.ExceptionNewf(py.TypeError, "%s=%s: it must be %s", n, shown, what)
		}
		switch n {
		case "timeout", "max_tokens", "max_length":
			if above, isNumber := plain.(float64); !isNumber || above <= 0 || above >= 1e9 {
				return nil, py.ExceptionNewf(py.ValueError, "%s=%s: it must be above 0 and below 1e9", n, shown)
			}
		case "environment":
			return nil, py.ExceptionNewf(py.NotImplementedError, "environment is not supported by gpython; use runtime: cpython")
		case "env_cls":
			return nil, py.ExceptionNewf(py.NotImplementedError, "env_cls is not supported by gpython; use stateful=True and state(), or runtime: cpython")
		case "env_kwargs":
			continue
		case "resource_spec":
			plain = true
		}
		out[n] = plain
		if n == "schema" {
			out[n] = data
		}
	}
	return out, nil
}

// mustBe says what an option must be where the value is something else.
func mustBe(option string, v py.Object) (what string) {
	ok := true
	switch option {
	case "name", "description", "environment", "status", "backend":
		_, ok = v.(py.String)
		what = "a string"
	case "stateful", "terminal", "idempotent", "deterministic", "auto_register":
		_, ok = v.(py.Bool)
		what = "True or False"
	case "schema", "env_kwargs":
		_, ok = v.(py.StringDict)
		what = "a dict"
	case "max_tokens", "max_length", "pool_size":
		_, ok = v.(py.Int)
		what = "a whole number"
	case "timeout":
		what = "a number of seconds"
		if _, ok = v.(py.Int); !ok {
			_, ok = v.(py.Float)
		}
	}
	if ok {
		return ""
	}
	return what
}

func orNone(o py.Object) py.Object {
	if o == nil {
		return py.None
	}
	return o
}

// declare notes a decorated function, which stays what it was.
func (f *file) declare(kind string, target py.Object, o map[string]any) (py.Object, error) {
	fn, ok := target.(*py.Function)
	if !ok {
		return nil, py.ExceptionNewf(py.TypeError, "@%s decorates a function, got '%s'", kind, target.Type().Name)
	}
	if o == nil {
		o = map[string]any{}
	}
	if o["auto_register"] == false {
		return fn, nil
	}
	e := &entry{kind: kind, name: fn.Name, target: fn, options: o}
	if n, ok := o["name"].(string); ok && n != "" {
		e.name = n
	}
	f.declared = append(f.declared, e)
	return fn, nil
}

// context is AgentFly's argument of that name.
type context struct {
	rollout  string
	metadata py.Object
	state    py.StringDict // nil: the function is not stateful
}

var contextType = py.NewType("Context", "What a call knows of its trajectory.")

func (c *context) Type() *py.Type { return contextType }

func (c *context) M__getattr__(name string) (py.Object, error) {
	switch name {
	case "rollout_id":
		return py.String(c.rollout), nil
	case "group_id":
		return py.None, nil
	case "metadata":
		if c.metadata == nil {
			c.metadata = py.NewStringDict()
		}
		return c.metadata, nil
	case "state":
		if c.state == nil {
			return nil, py.ExceptionNewf(py.RuntimeError, "there is no state here: write stateful=True in the decorator")
		}
		return c.state, nil
	}
	return nil, py.ExceptionNewf(py.AttributeError, "context.%s is not offered by gpython; use runtime: cpython", name)
}

// context is that of a call.
func (f *file) context(e *entry, trajectory string) *context {
	c := &context{rollout: trajectory}
	switch {
	case e.kind == "test":
		c.state = py.NewStringDict()
	case e.stateful() && f.contexts[trajectory] != nil:
		return f.contexts[trajectory]
	case e.stateful():
		c.state = py.NewStringDict()
		f.contexts[trajectory] = c
	}
	return c
}
