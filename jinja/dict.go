package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/agentfly/agentfly/internal/wording"
)

// dict keeps the order of insertion, as Python's does.
type dict struct {
	keys  []any
	vals  []any
	index map[any]int // canonical key → position; nil: there are few keys, all of them strings
}

func newDict() *dict { return &dict{} }

// fewKeys are looked through faster than hashed.
const fewKeys = 8

// find returns the position of a canonical key.
func (d *dict) find(h any) (int, bool) {
	if d.index != nil {
		i, ok := d.index[h]
		return i, ok
	}
	key, ok := h.(string)
	if !ok {
		return 0, false
	}
	return d.findString(key)
}

func (d *dict) findString(key string) (int, bool) {
	if d.index != nil {
		i, ok := d.index[key]
		return i, ok
	}
	for i, k := range d.keys {
		switch k := k.(type) {
		case string:
			if k == key {
				return i, true
			}
		case markup:
			if string(k) == key {
				return i, true
			}
		}
	}
	return 0, false
}

// insert adds a key that is not there. h is its canonical form.
func (d *dict) insert(h, key, val any) {
	if _, ok := h.(string); d.index == nil && (!ok || len(d.keys) == fewKeys) {
		d.index = make(map[any]int, len(d.keys)+1)
		for i, k := range d.keys {
			if m, ok := k.(markup); ok {
				k = string(m)
			}
			d.index[k] = i
		}
	}
	if d.index != nil {
		d.index[h] = len(d.keys)
	} else if d.keys == nil {
		d.keys, d.vals = make([]any, 0, 4), make([]any, 0, 4)
	}
	d.keys, d.vals = append(d.keys, key), append(d.vals, val)
}

func (d *dict) len() int { return len(d.keys) }

// hashed stands for a Python key: equal keys give equal values.
type (
	hashedNone  struct{}
	hashedBig   string
	hashedTuple string
	hashedUndef struct{}
)

// hash returns what stands for v as a key; 1, 1.0 and true are the same key.
func hash(v any, depth int) (any, error) {
	switch v := v.(type) {
	case nil:
		return hashedNone{}, nil
	case bool:
		if v {
			return 1, nil
		}
		return 0, nil
	case int, string:
		return v, nil
	case markup:
		return string(v), nil
	case *big.Int:
		if isLong(v) {
			return nil, raise("Limit", "a key is an integer of more than %d digits", maxDigits)
		}
		return hashedBig(v.Text(16)), nil
	case float64:
		if v == math.Trunc(v) && !math.IsInf(v, 0) {
			n, _ := big.NewFloat(v).Int(nil)
			return hash(normInt(n), depth)
		}
		return v, nil
	case tuple:
		if depth > maxNestRepr {
			return nil, raise("RecursionError", "maximum recursion depth exceeded")
		}
		var b strings.Builder
		for _, item := range v {
			h, err := hash(item, depth+1)
			if err != nil {
				return nil, err
			}
			s := ""
			switch h := h.(type) {
			case int:
				s = "i" + strconv.Itoa(h)
			case string:
				s = "s" + h
			case float64:
				s = "f" + wording.PythonFloat(h)
			case hashedBig:
				s = "b" + string(h)
			case hashedTuple:
				s = "t" + string(h)
			case hashedUndef:
				s = "u"
			}
			if b.WriteString(strconv.Itoa(len(s)) + ":" + s); b.Len() > maxKey {
				return nil, raise("Limit", "a key has more than %d bytes", maxKey)
			}
		}
		return hashedTuple(b.String()), nil
	case *undefined:
		return hashedUndef{}, nil
	case *list, *dict, *view:
		return nil, typeError("unhashable type: '%s'", typeName(v))
	}
	return nil, unsupported("a %s as a key", typeName(v))
}

func (d *dict) set(key, val any) error {
	h, err := hash(key, 0)
	if err != nil {
		return err
	}
	if i, ok := d.find(h); ok {
		d.vals[i] = val
		return nil
	}
	d.insert(h, key, val)
	return nil
}

func (d *dict) get(key any) (any, bool, error) {
	h, err := hash(key, 0)
	if err != nil {
		return nil, false, err
	}
	if i, ok := d.find(h); ok {
		return d.vals[i], true, nil
	}
	return nil, false, nil
}

// str looks up a string key.
func (d *dict) str(key string) (any, bool) {
	i, ok := d.findString(key)
	if !ok {
		return nil, false
	}
	return d.vals[i], true
}

// put sets a string key.
func (d *dict) put(key string, val any) {
	if i, ok := d.findString(key); ok {
		d.vals[i] = val
		return
	}
	d.insert(key, key, val)
}

func (d *dict) copy() *dict {
	c := newDict()
	for i, k := range d.keys {
		_ = c.set(k, d.vals[i]) // it is a key already
	}
	return c
}

func (d *dict) writeRepr(b *strings.Builder, depth int) error {
	b.WriteString("{")
	for i, k := range d.keys {
		if i > 0 {
			b.WriteString(", ")
		}
		if err := writeRepr(b, k, depth+1); err != nil {
			return err
		}
		b.WriteString(": ")
		if err := writeRepr(b, d.vals[i], depth+1); err != nil {
			return err
		}
	}
	b.WriteString("}")
	return nil
}

func (v *view) items() []any {
	switch v.kind {
	case "keys":
		return v.of.keys
	case "values":
		return v.of.vals
	}
	out := make([]any, v.of.len())
	for i, k := range v.of.keys {
		out[i] = tuple{k, v.of.vals[i]}
	}
	return out
}

// fill is dict(*args, **kwargs).
func (d *dict) fill(vm *machine, name string, a arguments) error {
	if len(a.pos) > 1 {
		return typeError("%s expected at most 1 argument, got %d", name, len(a.pos))
	}
	if len(a.pos) == 1 {
		if from, ok := a.pos[0].(*dict); ok {
			for i, k := range from.keys {
				if err := d.set(k, from.vals[i]); err != nil {
					return err
				}
			}
		} else if err := d.fillPairs(vm, a.pos[0]); err != nil {
			return err
		}
	}
	for i, k := range a.keys {
		d.put(k, a.vals[i])
	}
	return vm.charge(64 * d.len())
}

func (d *dict) fillPairs(vm *machine, v any) error {
	if u, ok := v.(*undefined); ok { // dict() asks for keys(), which fails
		return u.fail()
	}
	pairs, err := collect(vm, v)
	if err != nil {
		return err
	}
	for i, p := range pairs {
		pair, err := collect(vm, p)
		if err != nil {
			return typeError("cannot convert dictionary update sequence element #%d to a sequence", i)
		}
		if len(pair) != 2 {
			return valueError("dictionary update sequence element #%d has length %d; 2 is required", i, len(pair))
		}
		if err := d.set(pair[0], pair[1]); err != nil {
			return err
		}
	}
	return nil
}
