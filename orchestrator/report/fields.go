package report

import (
	"maps"
	"reflect"
	"strings"
)

// Map is the step as metrics.jsonl and the store hold it, by key.
func (s Step) Map() map[string]float64 {
	m := map[string]float64{}
	read(reflect.ValueOf(s), "", m)
	return m
}

// FromMap is the step that a map holds, such as one that an earlier process stored. Keys that no field has are left out, and numbers
// whose keys the map lacks are 0: an older program recorded fewer.
func FromMap(m map[string]float64) Step {
	var s Step
	rest := maps.Clone(m)
	write(reflect.ValueOf(&s).Elem(), "", rest)
	return s
}

// metricOf is the key of a field behind its group's prefix, and whether its zero is left out.
func metricOf(f reflect.StructField, prefix string) (key string, omitZero bool) {
	key, option, _ := strings.Cut(f.Tag.Get("metric"), ",")
	return prefix + key, option == "omitzero"
}

// openSet is what all keys of a field with an open set of keys begin with: stop/ of stop/REASON.
func openSet(key string) string { return key[:strings.LastIndexByte(key, '/')+1] }

func number(v reflect.Value) float64 {
	if v.CanInt() {
		return float64(v.Int())
	}
	return v.Float()
}

// read puts the numbers of a struct into m, in the order of its fields.
func read(v reflect.Value, prefix string, m map[string]float64) {
	for i := range v.NumField() {
		key, omitZero := metricOf(v.Type().Field(i), prefix)
		f := v.Field(i)
		if f.Kind() == reflect.Pointer {
			if f.IsNil() {
				continue
			}
			f = f.Elem()
		}
		switch {
		case f.Kind() == reflect.Struct:
			read(f, key, m)
		case f.Kind() == reflect.Map:
			for _, name := range f.MapKeys() {
				m[openSet(key)+name.String()] = number(f.MapIndex(name))
			}
		case !omitZero || !f.IsZero():
			m[key] = number(f)
		}
	}
}

// write takes the numbers of a struct out of m and tells whether there were any. A field with an open set of keys takes those that
// the fields before it left.
func write(v reflect.Value, prefix string, m map[string]float64) (any bool) {
	for i := range v.NumField() {
		key, _ := metricOf(v.Type().Field(i), prefix)
		f := v.Field(i)
		to := f
		if f.Kind() == reflect.Pointer {
			to = reflect.New(f.Type().Elem()).Elem()
		}
		found := false
		switch to.Kind() {
		case reflect.Struct:
			found = write(to, key, m)
		case reflect.Map:
			found = writeOpen(to, openSet(key), m)
		default:
			var n float64
			if n, found = m[key]; found {
				delete(m, key)
				setNumber(to, n)
			}
		}
		if found && f.Kind() == reflect.Pointer {
			f.Set(to.Addr())
		}
		any = any || found
	}
	return any
}

func writeOpen(to reflect.Value, begin string, m map[string]float64) (found bool) {
	for key, n := range m {
		name, ok := strings.CutPrefix(key, begin)
		if !ok {
			continue
		}
		if !found {
			to.Set(reflect.MakeMap(to.Type()))
		}
		found = true
		v := reflect.New(to.Type().Elem()).Elem()
		setNumber(v, n)
		to.SetMapIndex(reflect.ValueOf(name), v)
		delete(m, key)
	}
	return found
}

func setNumber(v reflect.Value, n float64) {
	if v.CanInt() {
		v.SetInt(int64(n))
		return
	}
	v.SetFloat(n)
}
