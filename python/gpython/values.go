package gpython

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"

	"github.com/go-python/gpython/py"

	"github.com/agentfly/agentfly/internal/wording"
)

const mostResult = 16 << 20 // bytes

// decode makes an object of JSON.
func decode(data json.RawMessage) (py.Object, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return object(v)
}

func object(v any) (py.Object, error) {
	switch v := v.(type) {
	case bool:
		return py.NewBool(v), nil
	case string:
		return py.String(v), nil
	case json.Number:
		if n, ok := new(big.Int).SetString(v.String(), 10); ok {
			return (*py.BigInt)(n).MaybeInt(), nil
		}
		f, err := v.Float64()
		if err != nil {
			return nil, py.ExceptionNewf(py.ValueError, "the number %s is too large", v)
		}
		return py.Float(f), nil
	case []any:
		list := py.NewList()
		for _, x := range v {
			o, err := object(x)
			if err != nil {
				return nil, err
			}
			list.Append(o)
		}
		return list, nil
	case map[string]any:
		dict := py.NewStringDict()
		for k, x := range v {
			o, err := object(x)
			if err != nil {
				return nil, err
			}
			dict[k] = o
		}
		return dict, nil
	}
	return py.None, nil
}

// encode makes JSON of what a function returned. The keys of a dict are sorted: gpython's dicts have no order.
func encode(v py.Object) (json.RawMessage, error) {
	var b bytes.Buffer
	if err := write(&b, v, 0); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func write(b *bytes.Buffer, v py.Object, depth int) error {
	if depth > 1000 {
		return py.ExceptionNewf(py.ValueError, "Circular reference detected")
	}
	if b.Len() > mostResult {
		return py.ExceptionNewf(py.ValueError, "the function returned more than %d MiB", mostResult>>20)
	}
	switch v := v.(type) {
	case nil, py.NoneType:
		b.WriteString("null")
		return nil
	case py.Bool:
		fmt.Fprint(b, bool(v))
		return nil
	case py.Int:
		fmt.Fprint(b, int64(v))
		return nil
	case *py.BigInt:
		b.WriteString((*big.Int)(v).String())
		return nil
	case py.Float:
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return py.ExceptionNewf(py.ValueError, "the function returned nan or an infinity; return finite numbers")
		}
		b.WriteString(wording.PythonFloat(float64(v)))
		return nil
	case py.StringDict:
		b.WriteByte('{')
		for i, k := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(quote(k))
			b.WriteByte(':')
			if err := write(b, v[k], depth+1); err != nil {
				return err
			}
		}
		b.WriteByte('}')
		return nil
	case *py.List, py.Tuple, *py.Set, *py.FrozenSet:
		return writeItems(b, v, depth)
	}
	s, err := str(v)
	b.Write(quote(s))
	return err
}

func writeItems(b *bytes.Buffer, v py.Object, depth int) error {
	var items []string
	var failed error
	sorted := false
	switch v.(type) {
	case *py.Set, *py.FrozenSet:
		sorted = true
	}
	err := py.Iterate(v, func(x py.Object) bool {
		var one bytes.Buffer
		failed = write(&one, x, depth+1)
		items = append(items, one.String())
		return failed != nil
	})
	if sorted {
		slices.Sort(items)
	}
	b.WriteString("[" + strings.Join(items, ",") + "]")
	return errors.Join(failed, err)
}

func quote(s string) []byte {
	quoted, _ := wording.JSON(s) // a string always can be
	return quoted
}

// str is str(v).
func str(v py.Object) (string, error) {
	switch v := v.(type) {
	case py.Float, *py.List, py.Tuple, py.StringDict, *py.Set, *py.FrozenSet:
		return repr(v)
	case *py.Exception:
		return exceptionText(v, "__str__")
	}
	o, err := py.Str(v)
	if err != nil {
		return "", err
	}
	s, ok := o.(py.String)
	if !ok {
		return "", py.ExceptionNewf(py.TypeError, "__str__ returned non-string")
	}
	return string(s), nil
}

// repr is repr(v): gpython writes floats and containers in other ways.
func repr(v py.Object) (string, error) {
	var open, end string
	var parts []string
	var failed error
	add := func(o py.Object) string {
		s, err := repr(o)
		failed = errors.Join(failed, err)
		return s
	}
	switch v := v.(type) {
	case py.Float:
		return wording.PythonFloat(float64(v)), nil
	case *py.Exception:
		return exceptionText(v, "__repr__")
	case *py.List:
		open, end = "[", "]"
		for _, o := range v.Items {
			parts = append(parts, add(o))
		}
	case py.Tuple:
		open, end = "(", ")"
		for _, o := range v {
			parts = append(parts, add(o))
		}
		if len(v) == 1 {
			end = ",)"
		}
	case py.StringDict:
		open, end = "{", "}"
		for _, k := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, add(py.String(k))+": "+add(v[k]))
		}
	case *py.Set, *py.FrozenSet:
		all, err := distinct(v)
		for _, o := range all {
			parts = append(parts, add(o))
		}
		failed = errors.Join(failed, err)
		slices.Sort(parts) // gpython's sets have another order every time
		open, end = "{", "}"
		if len(parts) == 0 {
			open, end = "set(", ")"
		}
		if _, frozen := v.(*py.FrozenSet); frozen {
			open, end = "frozenset({", "})"
			if len(parts) == 0 {
				open, end = "frozenset(", ")"
			}
		}
	default:
		return py.ReprAsString(v)
	}
	return open + strings.Join(parts, ", ") + end, failed
}

// exception is what Python code raised; nil where err is none.
func exception(err error) (*py.Exception, *py.Traceback) {
	var info py.ExceptionInfo
	var infoAt *py.ExceptionInfo
	var e *py.Exception
	switch {
	case errors.As(err, &info):
	case errors.As(err, &infoAt):
		info = *infoAt
	case errors.As(err, &e):
		return e, nil
	}
	e, _ = info.Value.(*py.Exception)
	return e, info.Traceback
}

// lastLine is the last line of an error's traceback, as CPython writes it.
func lastLine(err error) string {
	e, _ := exception(err)
	if e == nil {
		return "SystemError: gpython: " + strings.Join(strings.Fields(err.Error()), " ")
	}
	out := e.Base.Name
	if message, err := str(e); err == nil && message != "" {
		out += ": " + message
	} else if err != nil {
		out += ": <exception str() failed>"
	}
	out = strings.Join(strings.Fields(out), " ")
	return strings.ToValidUTF8(out[:min(len(out), 2000)], "")
}
