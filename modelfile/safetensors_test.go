package modelfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// st builds a safetensors file from its header's text and the size of its data.
func st(header string, size int) []byte {
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), make([]byte, size)...)
}

func TestSafetensorsRefuses(t *testing.T) {
	cases := map[string]struct {
		data []byte
		want string
	}{
		"empty":          {nil, "0 bytes are too few for a header"},
		"header too big": {binary.LittleEndian.AppendUint64(nil, 1<<62), "the header's length is 4611686018427387904 bytes, but the file has 8"},
		"truncated":      {st(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8)[:30], "the header's length is 54 bytes, but the file has 30"},
		"not json":       {st(`hello`, 0), "the header is not a JSON object"},
		"array":          {st(`[]`, 0), "the header is not a JSON object"},
		"cut json":       {st(`{"a":{"dtype":"F32",`, 0), "the entry of a is wrong"},
		"no end":         {st(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}`, 8), "the header is not valid JSON"},
		"trailing":       {st(`{} x`, 0), "has 2 bytes after its JSON object"},
		"twice":          {st(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8), "the header names a twice"},
		"unknown type":   {st(`{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,8]}}`, 8), `a has the unknown type "F4"`},
		"out of range":   {st(`{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}}`, 8), "a has data_offsets [0 12], but the data has 8 bytes"},
		"backwards":      {st(`{"a":{"dtype":"F32","shape":[0],"data_offsets":[8,0]}}`, 8), "a has data_offsets [8 0]"},
		"three offsets":  {st(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}}`, 8), "a has data_offsets [0 8 9]"},
		"negative":       {st(`{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}`, 8), "the entry of a is wrong"},
		"fraction":       {st(`{"a":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}}`, 8), "the entry of a is wrong"},
		"lying shape":    {st(`{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}`, 8), "a of type F32 and shape [3] needs 12 bytes, but has 8"},
		"overflow":       {st(`{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}}`, 8), "which overflows"},
		"overflow to 0":  {st(`{"a":{"dtype":"F32","shape":[9223372036854775808,2],"data_offsets":[0,0]}}`, 0), "which overflows"},
		"hole":           {st(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}`, 12), "b begins at byte 8 of the data, but the tensor before it ends at 4"},
		"overlap":        {st(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8), "b begins at byte 4 of the data, but the tensor before it ends at 8"},
		"rest":           {st(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 5), "the tensors end at byte 4 of the data, but the file has 5"},
		"metadata":       {st(`{"__metadata__":{"format":1}}`, 0), "__metadata__ is not an object of strings"},
		"metadata twice": {st(`{"__metadata__":{"a":"b"},"__metadata__":{"a":"b"}}`, 0), "names __metadata__ twice"},
		"dimensions":     {st(`{"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}}`, 1), "a has 17 dimensions"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := parseSafetensors("x.safetensors", c.data)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "modelfile: x.safetensors: ")
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func constant(name string, dtype DType, shape []int, data []byte) Source {
	return Source{Name: name, DType: dtype, Shape: shape, Write: func(w io.Writer) error { _, err := w.Write(data); return err }}
}

func TestSafetensorsRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.safetensors")
	values := []float32{1, -0.5, 65504, 1e-7, 3.14159, float32(math.Inf(1))}
	var sources []Source
	for _, dtype := range []DType{F32, BF16, F16} {
		data, err := Encode(nil, values, dtype)
		require.NoError(t, err)
		sources = append(sources, constant("w."+string(dtype), dtype, []int{2, 3}, data))
	}
	sources = append(sources, constant("scalar", F32, nil, []byte{0, 0, 128, 63}), constant("none", F32, []int{0, 4}, nil))
	require.NoError(t, WriteSafetensors(path, map[string]string{"format": "pt"}, sources))

	s, err := openSafetensors(path)
	require.NoError(t, err)
	defer s.close()
	require.Equal(t, []string{"w.F32", "w.BF16", "w.F16", "scalar", "none"}, s.names())
	require.Equal(t, map[string]string{"format": "pt"}, s.metadata)
	want := map[string][]float32{
		"w.F32":  values,
		"w.BF16": {1, -0.5, 65536, 1.0011717677116394e-07, 3.140625, float32(math.Inf(1))},
		"w.F16":  {1, -0.5, 65504, 1.1920928955078125e-07, 3.140625, float32(math.Inf(1))},
		"scalar": {1}, "none": {},
	}
	for name, expected := range want {
		tensor, err := s.tensor(name)
		require.NoError(t, err)
		got, err := tensor.Float32()
		require.NoError(t, err)
		require.Equal(t, expected, got, name)
	}
	_, err = s.tensor("missing")
	require.EqualError(t, err, "modelfile: "+path+": there is no tensor missing")
}

// TestHalfConversions: every half and every bfloat16 survives the way to float32 and back; rounding is to even.
func TestHalfConversions(t *testing.T) {
	for v := range 1 << 16 {
		if f := float16(uint16(v)); !math.IsNaN(float64(f)) {
			require.Equal(t, uint16(v), toFloat16(f))
		} else {
			require.True(t, math.IsNaN(float64(float16(toFloat16(f)))))
		}
		if f := bfloat16(uint16(v)); !math.IsNaN(float64(f)) {
			require.Equal(t, uint16(v), toBFloat16(f))
		} else {
			require.True(t, math.IsNaN(float64(bfloat16(toBFloat16(f)))))
		}
	}
	for f, want := range map[float32]uint16{
		2049: 0x6800, 2051: 0x6802, 65519.996: 0x7bff, 65520: 0x7c00, 2.9802322e-08: 0x0000, 2.9802326e-08: 0x0001, 8.940697e-08: 0x0002, 6.1035156e-05: 0x0400, 6.1e-05: 0x03ff,
	} {
		require.Equal(t, want, toFloat16(f), "%g", f)
	}
	require.Equal(t, uint16(0x3f80), toBFloat16(1.00390625)) // halfway, to even
	require.Equal(t, uint16(0x3f82), toBFloat16(1.01171875))
	require.Equal(t, uint16(0x7f80), toBFloat16(math.MaxFloat32))
}

func TestShards(t *testing.T) {
	dir := t.TempDir()
	var sources []Source
	for i := range 5 {
		sources = append(sources, constant(fmt.Sprintf("w%d", i), F32, []int{2}, []byte{byte(i), 0, 0, 0, 0, 0, 0, 0}))
	}
	require.NoError(t, WriteSharded(dir, nil, sources, 16))
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	var names []string
	for _, f := range files {
		names = append(names, filepath.Base(f))
	}
	require.Equal(t, []string{
		"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors", "model.safetensors.index.json",
	}, names)
	m, err := Open(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"w0", "w1", "w2", "w3", "w4"}, m.Names())
	for i := range 5 {
		tensor, err := m.Tensor(fmt.Sprintf("w%d", i))
		require.NoError(t, err)
		require.Equal(t, []byte{byte(i), 0, 0, 0, 0, 0, 0, 0}, tensor.Data)
	}
	require.NoError(t, m.Close())
	require.NoError(t, m.Close())

	index := filepath.Join(dir, "model.safetensors.index.json")
	good, err := os.ReadFile(index)
	require.NoError(t, err)
	for name, c := range map[string]struct{ from, to, want string }{
		"absent":    {`"w0": "model-00001`, `"w9": "model-00001`, `holds w0, but the index places it in ""`},
		"elsewhere": {`"w0": "model-00001`, `"w0": "model-00002`, "holds w0, but the index places it in \"model-00002-of-00003.safetensors\""},
		"more":      {`"w0":`, `"w9": "model-00001-of-00003.safetensors", "w0":`, "says that w9 is in model-00001-of-00003.safetensors, but it is not"},
		"outside":   {`model-00001-of-00003`, `../model-00001-of-00003`, "expected one in the same folder"},
		"no map":    {`weight_map`, `weights`, "weight_map is missing or empty"},
		"no file":   {`model-00003-of`, `model-00004-of`, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, string(good), c.from)
			require.NoError(t, os.WriteFile(index, []byte(strings.ReplaceAll(string(good), c.from, c.to)), 0o644))
			_, err := Open(dir)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// TestWriteKeepsTheOldFile: an error on the way leaves what was there and no temporary file.
func TestWriteKeepsTheOldFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "model.safetensors")
	require.NoError(t, WriteSafetensors(path, nil, []Source{constant("w", F32, []int{1}, []byte{1, 2, 3, 4})}))
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	full := errors.New("no space left on device")
	for name, c := range map[string]struct {
		sources []Source
		want    string
	}{
		"writer fails": {[]Source{{"w", F32, []int{1}, func(io.Writer) error { return full }}}, "writing w: no space left on device"},
		"too short":    {[]Source{constant("w", F32, []int{2}, []byte{1, 2, 3, 4})}, "writing w: got 4 bytes, expected 8"},
		"same name":    {[]Source{constant("w", F32, nil, nil), constant("w", F32, nil, nil)}, `two tensors are named "w"`},
		"unknown type": {[]Source{constant("w", "Q4", nil, nil)}, `w has the unknown type "Q4"`},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, WriteSafetensors(path, nil, c.sources), c.want)
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, before, after)
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, entries, 1)
		})
	}
}

// FuzzSafetensors: no input makes the reader panic, and every tensor of what it accepts lies inside the file.
func FuzzSafetensors(f *testing.F) {
	f.Add(st(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8))
	f.Add(st(`{"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[],"data_offsets":[8,9]}}   `, 9))
	f.Add(st(`{}`, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseSafetensors("fuzz.safetensors", data)
		if err != nil {
			return
		}
		total := 0
		for _, name := range s.names() {
			tensor, err := s.tensor(name)
			require.NoError(t, err)
			require.Len(t, tensor.Data, tensor.Elements()*tensor.DType.Size())
			total += len(tensor.Data)
		}
		require.Len(t, s.body, total)
	})
}
