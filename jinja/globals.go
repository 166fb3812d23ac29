package jinja

import (
	"fmt"
	"strings"
	"time"
)

// refusedGlobals are functions that jinja2 offers and that are not implemented.
var refusedGlobals = map[string]string{"lipsum": "the result would not be reproducible", "self": "template inheritance is not supported"}

// maxRange is the sandbox's bound of a range.
const maxRange = 100000

func globals() map[string]any {
	fn := func(name string, call func(vm *machine, a arguments) (any, error)) *callable {
		return &callable{name, call}
	}
	g := make(map[string]any, 14) // and what render adds
	for _, f := range []*callable{
		fn("range", makeRange), fn("dict", makeDict), fn("namespace", makeNamespace), fn("cycler", makeCycler), fn("joiner", makeJoiner),
		fn("raise_exception", func(_ *machine, a arguments) (any, error) {
			args, err := a.bind("raise_exception", 1, "message")
			if err != nil {
				return nil, err
			}
			message, err := str(args[0])
			if err != nil {
				return nil, err
			}
			return nil, &RaisedError{message}
		}),
		fn("strftime_now", func(vm *machine, a arguments) (any, error) {
			args, err := a.bind("strftime_now", 1, "format")
			if err != nil {
				return nil, err
			}
			format, err := stringArg("strftime", args[0])
			if err != nil {
				return nil, err
			}
			if vm.now.IsZero() {
				return nil, unsupported("strftime_now without a time: set Input.Now; it")
			}
			return vm.made(strftime(vm.now, format))
		}),
	} {
		g[f.name] = f
	}
	return g
}

func makeRange(_ *machine, a arguments) (any, error) {
	if len(a.keys) > 0 || len(a.pos) < 1 || len(a.pos) > 3 {
		return nil, typeError("range expected 1 to 3 arguments, got %d", len(a.pos))
	}
	n := make([]int, len(a.pos))
	for i, v := range a.pos {
		var err error
		if n[i], err = intArg("range", v); err != nil {
			if u, ok := v.(*undefined); ok {
				err = typeError("'%s' object cannot be interpreted as an integer", typeName(u))
			}
			return nil, err
		}
		if n[i] > 1<<40 || n[i] < -1<<40 {
			return nil, unsupported("a range of numbers this large")
		}
	}
	r := span{start: 0, step: 1}
	stop := n[0]
	if len(n) > 1 {
		r.start, stop = n[0], n[1]
	}
	if len(n) == 3 {
		r.step = n[2]
	}
	switch {
	case r.step == 0:
		return nil, valueError("range() arg 3 must not be zero")
	case r.step > 0 && stop > r.start:
		r.n = (stop - r.start + r.step - 1) / r.step
	case r.step < 0 && stop < r.start:
		r.n = (r.start - stop - r.step - 1) / -r.step
	}
	if r.n > maxRange {
		return nil, raise("OverflowError", "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", maxRange)
	}
	return r, nil
}

func makeDict(vm *machine, a arguments) (any, error) {
	d := newDict()
	return d, d.fill(vm, "dict", a)
}

func makeNamespace(vm *machine, a arguments) (any, error) {
	d := newDict()
	if err := d.fill(vm, "dict", a); err != nil {
		return nil, err
	}
	for _, k := range d.keys {
		if err := namespaceName(k); err != nil {
			return nil, err
		}
	}
	return &namespace{d}, nil
}

func namespaceName(name any) error {
	if s, ok := text(name); ok && strings.HasPrefix(s, "_") {
		return raise("SecurityError", "Chat templates cannot store underscore-prefixed attributes on a namespace, but got '%s'. Please rename the attribute.", s)
	}
	return nil
}

// cycler hands out its items in turn.
type cycler struct {
	items tuple
	pos   int
}

func makeCycler(_ *machine, a arguments) (any, error) {
	if len(a.keys) > 0 {
		return nil, typeError("Cycler.__init__() got an unexpected keyword argument '%s'", a.keys[0])
	}
	if len(a.pos) == 0 {
		return nil, raise("RuntimeError", "at least one item has to be provided")
	}
	return &cycler{items: append(tuple(nil), a.pos...)}, nil
}

func (c *cycler) attribute(name string) (any, bool, error) {
	switch name {
	case "items":
		return c.items, true, nil
	case "pos":
		return c.pos, true, nil
	case "current":
		return c.items[c.pos], true, nil
	case "next":
		return &callable{name, func(_ *machine, a arguments) (any, error) {
			v := c.items[c.pos]
			c.pos = (c.pos + 1) % len(c.items)
			return v, a.none(name)
		}}, true, nil
	case "reset":
		return &callable{name, func(_ *machine, a arguments) (any, error) {
			c.pos = 0
			return nil, a.none(name)
		}}, true, nil
	}
	return nil, false, nil
}

// joiner is empty the first time it is called, its separator afterwards.
type joiner struct {
	sep  any
	used bool
}

func makeJoiner(_ *machine, a arguments) (any, error) {
	args, err := a.bind("joiner", 0, "sep")
	if err != nil {
		return nil, err
	}
	if args[0] == missing {
		args[0] = ", "
	}
	return &joiner{sep: args[0]}, nil
}

// strftime formats as the C library does in the C locale. t carries no zone, as datetime.now() does not.
func strftime(t time.Time, format string) (string, error) {
	layouts := map[byte]string{
		'Y': "2006", 'm': "01", 'd': "02", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'y': "06", 'B': "January",
		'b': "Jan", 'h': "Jan", 'A': "Monday", 'a': "Mon", 'e': "_2", 'j': "002", 'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06",
		'R': "15:04", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05", 'r': "03:04:05 PM",
	}
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		if i++; i >= len(format) {
			return "", unsupported("a time format that ends in %%")
		}
		plain := format[i] == '-' && i+1 < len(format)
		if plain {
			i++
		}
		c := format[i]
		part, ok := layouts[c]
		s := t.Format(part)
		switch {
		case ok && plain && strings.IndexByte("mdHIMSejy", c) >= 0:
			s = strings.TrimLeft(s, "0 ")
			if s == "" {
				s = "0"
			}
		case plain:
			return "", unsupported("the time format %%-%c", c)
		case ok:
		case c == '%':
			s = "%"
		case c == 'n' || c == 't':
			s = map[byte]string{'n': "\n", 't': "\t"}[c]
		case c == 'f':
			s = fmt.Sprintf("%06d", t.Nanosecond()/1000)
		case c == 'w':
			s = fmt.Sprint(int(t.Weekday()))
		case c == 'u':
			s = fmt.Sprint((int(t.Weekday())+6)%7 + 1)
		case c == 'z' || c == 'Z':
			s = ""
		default:
			return "", unsupported("the time format %%%c", c)
		}
		b.WriteString(s)
	}
	return b.String(), nil
}
