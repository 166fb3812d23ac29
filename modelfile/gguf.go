package modelfile

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// GGUF value types, as the format numbers them.
const (
	ggufU8, ggufI8, ggufU16, ggufI16, ggufU32, ggufI32, ggufF32 = 0, 1, 2, 3, 4, 5, 6
	ggufBool, ggufString, ggufArray, ggufU64, ggufI64, ggufF64  = 7, 8, 9, 10, 11, 12
)

// ggufValueSizes: bytes of a fixed-size value.
var ggufValueSizes = map[uint32]int{
	ggufU8: 1, ggufI8: 1, ggufU16: 2, ggufI16: 2, ggufU32: 4, ggufI32: 4, ggufF32: 4, ggufBool: 1, ggufU64: 8, ggufI64: 8, ggufF64: 8,
}

// ggufFile is a mapped GGUF file: its metadata and the table of its tensors under their GGUF names.
type ggufFile struct {
	file    string
	values  map[string]ggufValue
	tensors map[string]ggufTensor
	order   []string
	unmap   func() error
}

// ggufValue is one metadata value; array elements are decoded when they are asked for.
type ggufValue struct {
	kind    uint32 // ggufU8 and so on; of the elements if array
	array   bool
	count   int
	raw     []byte   // fixed-size kinds: [count * size]
	strings []string // ggufString: [count]
}

type ggufTensor struct {
	kind  uint32
	shape []int // row-major: the reverse of the order in the file
	data  []byte
}

func openGGUF(path string) (*ggufFile, error) {
	data, unmap, err := mapFile(path)
	if err != nil {
		return nil, err
	}
	g, err := parseGGUF(path, data)
	if err != nil {
		return nil, errors.Join(err, unmap())
	}
	g.unmap = unmap
	return g, nil
}

// ggufReader walks through the header; every read is checked against the end of the file.
type ggufReader struct {
	data []byte
	at   int
}

var errGGUFShort = errors.New("the file ends inside its header")

func (r *ggufReader) take(n uint64) ([]byte, error) {
	if n > uint64(len(r.data)-r.at) {
		return nil, errGGUFShort
	}
	b := r.data[r.at : r.at+int(n)]
	r.at += int(n)
	return b, nil
}

func (r *ggufReader) u32() (uint32, error) {
	b, err := r.take(4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (r *ggufReader) u64() (uint64, error) {
	b, err := r.take(8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

func (r *ggufReader) text() (string, error) {
	n, err := r.u64()
	if err != nil {
		return "", err
	}
	b, err := r.take(n)
	return string(b), err
}

// parseGGUF reads versions 2 and 3, little-endian.
func parseGGUF(file string, data []byte) (*ggufFile, error) {
	g := &ggufFile{file: file, values: map[string]ggufValue{}, tensors: map[string]ggufTensor{}, unmap: func() error { return nil }}
	if err := g.parse(data); err != nil {
		return nil, fmt.Errorf("modelfile: %s: %w; the file is damaged or not a supported GGUF", file, err)
	}
	return g, nil
}

func (g *ggufFile) parse(data []byte) error {
	if len(data) < 24 || !bytes.HasPrefix(data, []byte("GGUF")) {
		return errors.New("it does not begin with GGUF and a header")
	}
	r := &ggufReader{data: data, at: 4}
	version, _ := r.u32() // the length was checked
	tensors, _ := r.u64()
	pairs, _ := r.u64()
	switch {
	case version&0xffff == 0:
		return errors.New("it is big-endian, which is not supported")
	case version != 2 && version != 3:
		return fmt.Errorf("it has version %d; 2 and 3 are supported", version)
	case pairs > uint64(len(data))/13: // a pair takes at least 13 bytes, a tensor 24
		return fmt.Errorf("it claims %d metadata pairs in %d bytes", pairs, len(data))
	case tensors > uint64(len(data))/24:
		return fmt.Errorf("it claims %d tensors in %d bytes", tensors, len(data))
	}
	for i := range pairs {
		key, err := r.text()
		if err != nil {
			return fmt.Errorf("metadata pair %d: %w", i, err)
		}
		if _, twice := g.values[key]; twice {
			return fmt.Errorf("metadata key %s stands there twice", brief([]byte(key)))
		}
		if g.values[key], err = r.value(); err != nil {
			return fmt.Errorf("metadata key %s: %w", brief([]byte(key)), err)
		}
	}
	return g.parseTensors(r, tensors)
}

func (r *ggufReader) value() (ggufValue, error) {
	kind, err := r.u32()
	if err != nil {
		return ggufValue{}, err
	}
	v := ggufValue{kind: kind, count: 1}
	if kind == ggufArray {
		if v.kind, err = r.u32(); err != nil {
			return v, err
		}
		n, err := r.u64()
		if err != nil {
			return v, err
		}
		if n > uint64(len(r.data)) {
			return v, fmt.Errorf("an array claims %d elements", n)
		}
		v.array, v.count = true, int(n)
	}
	if v.kind == ggufString {
		v.strings = make([]string, 0, min(v.count, (len(r.data)-r.at)/8))
		for range v.count {
			s, err := r.text()
			if err != nil {
				return v, err
			}
			v.strings = append(v.strings, s)
		}
		return v, nil
	}
	size, ok := ggufValueSizes[v.kind]
	if !ok {
		return v, fmt.Errorf("value type %d is not supported", v.kind)
	}
	v.raw, err = r.take(uint64(v.count) * uint64(size))
	return v, err
}

func (g *ggufFile) parseTensors(r *ggufReader, count uint64) error {
	type place struct {
		name       string
		begin, end uint64 // in the data section
	}
	var places []place
	for i := range count {
		name, err := r.text()
		if err != nil {
			return fmt.Errorf("tensor %d: %w", i, err)
		}
		if _, twice := g.tensors[name]; twice {
			return fmt.Errorf("tensor %s stands there twice", brief([]byte(name)))
		}
		t, offset, size, err := r.tensor()
		if err != nil {
			return fmt.Errorf("tensor %s: %w", brief([]byte(name)), err)
		}
		g.tensors[name] = t
		g.order = append(g.order, name)
		places = append(places, place{name, offset, offset + size})
	}
	alignment := uint64(32)
	if v, ok := g.values["general.alignment"]; ok {
		n, isInt := v.integer()
		if !isInt || n < 1 || n > 1<<20 || n&(n-1) != 0 {
			return errors.New("general.alignment is not a power of two")
		}
		alignment = uint64(n)
	}
	var body []byte
	if start := (uint64(r.at) + alignment - 1) / alignment * alignment; start < uint64(len(r.data)) {
		body = r.data[start:]
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end)) })
	last := uint64(0)
	for _, p := range places {
		switch {
		case p.begin%alignment != 0:
			return fmt.Errorf("tensor %s has the offset %d, which is not a multiple of %d", p.name, p.begin, alignment)
		case p.end > uint64(len(body)) || p.end < p.begin:
			return fmt.Errorf("tensor %s ends at byte %d of the data, but the file has %d", p.name, p.end, len(body))
		case p.begin < last:
			return fmt.Errorf("tensor %s overlaps the one before it", p.name)
		}
		last = p.end
		t := g.tensors[p.name]
		t.data = body[p.begin:p.end:p.end]
		g.tensors[p.name] = t
	}
	return nil
}

// tensor reads one entry of the tensor table: the tensor without data, its offset and its size in bytes.
func (r *ggufReader) tensor() (t ggufTensor, offset, size uint64, err error) {
	dims, err := r.u32()
	if err != nil {
		return t, 0, 0, err
	}
	if dims > 4 {
		return t, 0, 0, fmt.Errorf("has %d dimensions, at most 4 are allowed", dims)
	}
	elements := uint64(1)
	t.shape = make([]int, dims)
	for i := range dims {
		d, err := r.u64()
		if err != nil {
			return t, 0, 0, err
		}
		if d == 0 || d > 1<<40 || elements > 1<<50/d {
			return t, 0, 0, fmt.Errorf("dimension %d is %d, which is zero or too large", i, d)
		}
		elements *= d
		t.shape[dims-1-i] = int(d)
	}
	if t.kind, err = r.u32(); err != nil {
		return t, 0, 0, err
	}
	if offset, err = r.u64(); err != nil {
		return t, 0, 0, err
	}
	if offset > 1<<60 {
		return t, 0, 0, fmt.Errorf("has the offset %d", offset)
	}
	q, ok := ggufTypes[t.kind]
	if !ok {
		return t, 0, 0, fmt.Errorf("has the unknown type %d", t.kind)
	}
	row := uint64(1)
	if dims > 0 {
		row = uint64(t.shape[dims-1])
	}
	if row%uint64(q.block) != 0 {
		return t, 0, 0, fmt.Errorf("has rows of %d elements, which are not whole %s blocks of %d", row, q.name, q.block)
	}
	return t, offset, elements / uint64(q.block) * uint64(q.size), nil
}

// integer returns a scalar of any integer kind.
func (v ggufValue) integer() (int64, bool) {
	if v.array {
		return 0, false
	}
	return v.element(0)
}

// element returns element i of an integer kind.
func (v ggufValue) element(i int) (int64, bool) {
	switch v.kind {
	case ggufU8:
		return int64(v.raw[i]), true
	case ggufI8:
		return int64(int8(v.raw[i])), true
	case ggufU16:
		return int64(binary.LittleEndian.Uint16(v.raw[2*i:])), true
	case ggufI16:
		return int64(int16(binary.LittleEndian.Uint16(v.raw[2*i:]))), true
	case ggufU32:
		return int64(binary.LittleEndian.Uint32(v.raw[4*i:])), true
	case ggufI32:
		return int64(int32(binary.LittleEndian.Uint32(v.raw[4*i:]))), true
	case ggufI64, ggufU64:
		u := binary.LittleEndian.Uint64(v.raw[8*i:])
		return int64(u), v.kind == ggufI64 || u <= math.MaxInt64
	}
	return 0, false
}

// float returns element i of a floating-point kind.
func (v ggufValue) float(i int) (float64, bool) {
	switch v.kind {
	case ggufF32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(v.raw[4*i:]))), true
	case ggufF64:
		return math.Float64frombits(binary.LittleEndian.Uint64(v.raw[8*i:])), true
	}
	return 0, false
}
