package modelfile

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
)

// maxHeader is the longest safetensors header that the reference implementation accepts, in bytes.
const maxHeader = 100_000_000

// tensorStore is one file, or several shards, of named tensors.
type tensorStore interface {
	names() []string
	info(name string) (TensorInfo, bool)
	tensor(name string) (Tensor, error)
	close() error
}

// safetensors is one mapped .safetensors file.
type safetensors struct {
	file     string // base name
	order    []string
	entries  map[string]stEntry
	metadata map[string]string
	body     []byte
	unmap    func() error
}

type stEntry struct {
	dtype      DType
	shape      []int
	begin, end int // in body
}

func openSafetensors(path string) (*safetensors, error) {
	data, unmap, err := mapFile(path)
	if err != nil {
		return nil, err
	}
	s, err := parseSafetensors(path, data)
	if err != nil {
		return nil, errors.Join(err, unmap())
	}
	s.unmap = unmap
	return s, nil
}

// parseSafetensors checks the whole header: every tensor has the bytes that its type and shape need, and together they
// cover the file exactly, without overlap and without holes, as the format demands.
func parseSafetensors(file string, data []byte) (*safetensors, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("modelfile: %s: %s; the file is damaged or not safetensors", file, fmt.Sprintf(format, args...))
	}
	if len(data) < 8 {
		return nil, bad("%d bytes are too few for a header", len(data))
	}
	n := binary.LittleEndian.Uint64(data)
	if n > maxHeader || n > uint64(len(data)-8) {
		return nil, bad("the header's length is %d bytes, but the file has %d (and %d are allowed)", n, len(data), maxHeader)
	}
	s := &safetensors{file: file, body: data[8+n:], entries: map[string]stEntry{}, unmap: func() error { return nil }}
	if err := s.parseHeader(data[8:8+n], bad); err != nil {
		return nil, err
	}
	slices.SortFunc(s.order, func(a, b string) int {
		x, y := s.entries[a], s.entries[b]
		return cmp.Or(cmp.Compare(x.begin, y.begin), cmp.Compare(x.end, y.end), cmp.Compare(a, b))
	})
	at := 0
	for _, name := range s.order {
		e := s.entries[name]
		if e.begin != at {
			return nil, bad("%s begins at byte %d of the data, but the tensor before it ends at %d", brief([]byte(name)), e.begin, at)
		}
		at = e.end
	}
	if at != len(s.body) {
		return nil, bad("the tensors end at byte %d of the data, but the file has %d", at, len(s.body))
	}
	return s, nil
}

func (s *safetensors) parseHeader(header []byte, bad func(string, ...any) error) error {
	d := json.NewDecoder(bytes.NewReader(header))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return bad("the header is not a JSON object")
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return bad("the header is not valid JSON (%v)", err)
		}
		name, _ := t.(string) // keys of an object are strings
		if name == "__metadata__" {
			if s.metadata != nil {
				return bad("the header names __metadata__ twice")
			}
			if err := d.Decode(&s.metadata); err != nil {
				return bad("__metadata__ is not an object of strings")
			}
			continue
		}
		if _, twice := s.entries[name]; twice {
			return bad("the header names %s twice", brief([]byte(name)))
		}
		var e struct {
			DType   DType    `json:"dtype"`
			Shape   []uint64 `json:"shape"`
			Offsets []uint64 `json:"data_offsets"`
		}
		if err := d.Decode(&e); err != nil {
			return bad("the entry of %s is wrong (%v)", brief([]byte(name)), err)
		}
		entry, problem := checkEntry(e.DType, e.Shape, e.Offsets, len(s.body))
		if problem != "" {
			return bad("%s %s", brief([]byte(name)), problem)
		}
		s.entries[name] = entry
		s.order = append(s.order, name)
	}
	if _, err := d.Token(); err != nil {
		return bad("the header is not valid JSON (%v)", err)
	}
	if rest := bytes.TrimRight(header[d.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return bad("the header has %d bytes after its JSON object", len(rest))
	}
	return nil
}

// checkEntry returns what is wrong with a header entry, or "".
func checkEntry(dtype DType, shape, offsets []uint64, size int) (stEntry, string) {
	width := dtype.Size()
	if width == 0 {
		return stEntry{}, fmt.Sprintf("has the unknown type %q", brief([]byte(dtype)))
	}
	if len(offsets) != 2 || offsets[0] > offsets[1] || offsets[1] > uint64(size) {
		return stEntry{}, fmt.Sprintf("has data_offsets %v, but the data has %d bytes", offsets[:min(len(offsets), 4)], size)
	}
	if len(shape) > 16 {
		return stEntry{}, fmt.Sprintf("has %d dimensions", len(shape))
	}
	need := uint64(width)
	e := stEntry{dtype: dtype, shape: make([]int, len(shape)), begin: int(offsets[0]), end: int(offsets[1])}
	for i, d := range shape {
		high, low := bits.Mul64(need, d)
		if high != 0 || low > 1<<62 {
			return stEntry{}, fmt.Sprintf("has shape %v, which overflows", shape)
		}
		if d > 1<<62 {
			return stEntry{}, fmt.Sprintf("has shape %v, which overflows", shape)
		}
		need, e.shape[i] = low, int(d)
	}
	if need != offsets[1]-offsets[0] {
		return stEntry{}, fmt.Sprintf("of type %s and shape %v needs %d bytes, but has %d", dtype, shape, need, offsets[1]-offsets[0])
	}
	return e, ""
}

func (s *safetensors) names() []string { return s.order }

func (s *safetensors) info(name string) (TensorInfo, bool) {
	e, ok := s.entries[name]
	return TensorInfo{Name: name, DType: e.dtype, Shape: slices.Clone(e.shape), Type: string(e.dtype), File: s.file}, ok
}

func (s *safetensors) tensor(name string) (Tensor, error) {
	info, ok := s.info(name)
	if !ok {
		return Tensor{}, fmt.Errorf("modelfile: %s: there is no tensor %s", s.file, name)
	}
	e := s.entries[name]
	return Tensor{TensorInfo: info, Data: s.body[e.begin:e.end:e.end]}, nil
}

func (s *safetensors) close() error { return s.unmap() }

// shards is a set of safetensors files that an index lists.
type shards struct {
	files []*safetensors
	where map[string]*safetensors
	order []string
}

// openShards opens every file that the index names. Each tensor of the index must be in the file that it says, and each
// tensor of the files must be in the index.
func openShards(index string) (_ *shards, err error) {
	data, err := os.ReadFile(index)
	if err != nil {
		return nil, fmt.Errorf("modelfile: %w", err)
	}
	base := filepath.Base(index)
	var list struct {
		Map map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("modelfile: %s: %w", base, err)
	}
	if len(list.Map) == 0 {
		return nil, fmt.Errorf("modelfile: %s: weight_map is missing or empty", base)
	}
	s := &shards{where: map[string]*safetensors{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	var names []string
	for _, file := range list.Map {
		names = append(names, file)
	}
	slices.Sort(names)
	for _, file := range slices.Compact(names) {
		if file != filepath.Base(file) || !filepath.IsLocal(file) {
			return nil, fmt.Errorf("modelfile: %s: names the file %q, expected one in the same folder", base, file)
		}
		part, err := openSafetensors(filepath.Join(filepath.Dir(index), file))
		if err != nil {
			return nil, err
		}
		s.files = append(s.files, part)
		for _, name := range part.names() {
			if listed, ok := list.Map[name]; !ok || listed != file {
				return nil, fmt.Errorf("modelfile: %s: %s holds %s, but the index places it in %q", base, file, name, listed)
			}
			s.where[name] = part
			s.order = append(s.order, name)
		}
	}
	for name, file := range list.Map {
		if s.where[name] == nil {
			return nil, fmt.Errorf("modelfile: %s: says that %s is in %s, but it is not", base, name, file)
		}
	}
	return s, nil
}

func (s *shards) names() []string { return s.order }

func (s *shards) info(name string) (TensorInfo, bool) {
	if part, ok := s.where[name]; ok {
		return part.info(name)
	}
	return TensorInfo{}, false
}

func (s *shards) tensor(name string) (Tensor, error) {
	if part, ok := s.where[name]; ok {
		return part.tensor(name)
	}
	return Tensor{}, fmt.Errorf("modelfile: there is no tensor %s", name)
}

func (s *shards) close() error {
	var all []error
	for _, f := range s.files {
		all = append(all, f.close())
	}
	return errors.Join(all...)
}
