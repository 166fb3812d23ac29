//go:build torch

package cgo

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// compileScripted builds a library from its source in testdata, in a folder of its own that variable names for it.
func compileScripted(t *testing.T, source, name, variable string) (library, folder string) {
	t.Helper()
	compiler, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("g++ is missing, which builds the scripted " + name)
	}
	folder, err = os.MkdirTemp("", "af") // short: a path in it must fit into a handle of CUDA, and into a unique id of NCCL
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	library = filepath.Join(folder, name)
	out, err := exec.Command(compiler, "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library, filepath.Join("testdata", source)).CombinedOutput()
	require.NoError(t, err, string(out))
	t.Setenv(variable, folder)
	return library, folder
}

// scriptedDriver is a driver whose memory lies in files of folder.
func scriptedDriver(t *testing.T) (library, folder string) {
	t.Helper()
	return compileScripted(t, "scripted_cuda_driver.cc", "libcuda.so.1", "SCRIPTED_CUDA")
}

// What is packed are the parameters' own bits, or those rounded to bfloat16 and nearest even, with the adapter added.
func TestStagingPacksParameters(t *testing.T) {
	g := loadGolden(t, "qwen2_tied")
	m := g.model(t)
	require.NoError(t, m.AddAdapter(AdapterConfig{Rank: 4, Alpha: 8, Targets: []string{"q_proj"}, Seed: 3}))
	for _, p := range m.Trained() {
		w := make([]float32, p.Elements())
		for i := range w {
			w[i] = float32(math.Sin(float64(i))) / 10
		}
		require.NoError(t, m.SetParameter(p.Name, F32, bytesOf(w), p.Shape))
	}
	m.Changed()
	var names []string
	var want, rounded []byte
	for _, p := range m.Parameters() {
		values, err := m.Merged(p.Name)
		require.NoError(t, err)
		names, want = append(names, p.Name), append(want, bytesOf(values)...)
		for _, v := range values {
			b := math.Float32bits(float32(half(float64(v))))
			rounded = append(rounded, byte(b>>16), byte(b>>24))
		}
	}
	s, err := NewStaging(m, StagingConfig{Bytes: int64(len(want))})
	require.NoError(t, err)
	defer s.Close()
	for dtype, bits := range map[DType][]byte{F32: want, BF16: rounded} {
		n, err := s.Pack(names, dtype)
		require.NoError(t, err)
		require.Equal(t, int64(len(bits)), n)
		got := make([]byte, n)
		require.NoError(t, s.Read(got))
		require.True(t, bytes.Equal(bits, got), "type %d", dtype)
	}
	_, err = s.Pack(append(names, names[0]), F32)
	require.ErrorContains(t, err, "of a buffer of")
	_, err = s.Pack([]string{"none"}, F32)
	require.ErrorContains(t, err, "the model has no parameter none")
	_, err = s.Pack(names, F16)
	require.ErrorContains(t, err, "tensors are staged as F32 or BF16")
	require.ErrorContains(t, s.Read(make([]byte, len(want)+1)), "of a buffer of")
	_, err = s.Handle()
	require.ErrorContains(t, err, "the buffer was made without ipc")
	_, err = NewStaging(m, StagingConfig{})
	require.ErrorContains(t, err, "a buffer of 0 bytes holds nothing")
	_, err = NewStaging(m, StagingConfig{Bytes: 8, IPC: true})
	require.ErrorContains(t, err, "the model lies on the CPU")
	require.NoError(t, s.Close())
	_, err = s.Pack(names, F32)
	require.ErrorIs(t, err, ErrClosed)
	version := m.Version()
	m.Changed()
	require.NotEqual(t, version, m.Version())
}

// The handle opens what was packed: over the scripted driver, whose handles are paths.
func TestStagingHandle(t *testing.T) {
	library, folder := scriptedDriver(t)
	live := LiveHandles()
	m, _ := tiny(t)
	p := m.Parameters()[0]
	s, err := NewStaging(m, StagingConfig{Bytes: 4 * p.Elements(), IPC: true, Driver: library})
	require.NoError(t, err)
	handle, err := s.Handle()
	require.NoError(t, err)
	require.Len(t, handle, 64)
	path := string(bytes.TrimRight(handle, "\x00"))
	require.Equal(t, folder, filepath.Dir(path))
	_, err = s.Pack([]string{p.Name}, F32)
	require.NoError(t, err)
	want, err := m.Parameter(p.Name)
	require.NoError(t, err)
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(bytesOf(want), got))
	require.NoError(t, s.Close())
	require.NoFileExists(t, path, "the driver's memory is given back")
	t.Setenv("SCRIPTED_CUDA_FAULT", "cuMemAlloc")
	_, err = NewStaging(m, StagingConfig{Bytes: 8, IPC: true, Driver: library})
	require.ErrorContains(t, err, "cuMemAlloc: out of memory (2)")
	_, err = NewStaging(m, StagingConfig{Bytes: 8, IPC: true, Driver: filepath.Join(folder, "none.so")})
	require.ErrorContains(t, err, "the CUDA driver cannot be loaded")
	require.NoError(t, m.Close())
	require.Equal(t, live, LiveHandles())
}

// opensHandle prints the SHA-256 of so many bytes behind a handle of CUDA: argument 1 in hex, argument 2 their number. It calls the
// driver, so that it needs no package.
const opensHandle = `
import ctypes, hashlib, sys
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    if result != 0: sys.exit(f"{name}: {result}")
device, context, pointer, n = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64(), int(sys.argv[2])
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
call("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), Handle.from_buffer_copy(bytes.fromhex(sys.argv[1])), 1)
copy = ctypes.create_string_buffer(n)
call("cuMemcpyDtoH_v2", copy, pointer, ctypes.c_size_t(n))
call("cuIpcCloseMemHandle", pointer)
print(hashlib.sha256(copy.raw).hexdigest())
`

// On a device another process opens the handle and reads what was packed.
func TestStagingOnCUDA(t *testing.T) {
	cuda(t)
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is missing, which opens the handle in another process")
	}
	m, _ := tiny(t)
	require.Equal(t, "cuda", testDevice())
	p := m.Parameters()[0]
	s, err := NewStaging(m, StagingConfig{Bytes: 4 * p.Elements(), IPC: true})
	require.NoError(t, err)
	defer s.Close()
	handle, err := s.Handle()
	require.NoError(t, err)
	for _, dtype := range []DType{F32, BF16} {
		n, err := s.Pack([]string{p.Name}, dtype)
		require.NoError(t, err)
		packed := make([]byte, n)
		require.NoError(t, s.Read(packed))
		out, err := exec.Command(python, "-c", opensHandle, fmt.Sprintf("%x", handle), strconv.FormatInt(int64(n), 10)).CombinedOutput()
		require.NoError(t, err, string(out))
		require.Equal(t, fmt.Sprintf("%x\n", sha256.Sum256(packed)), string(out))
	}
}

// A buffer goes over NCCL from where it lies: the scripted library sees one broadcast of it, and the other rank gets its bytes.
func TestNCCLBroadcastsABuffer(t *testing.T) {
	library, folder := scriptedNCCL(t)
	root, worker := scriptedPair(t, library, 10*time.Second)
	m, _ := tiny(t)
	p := m.Parameters()[0]
	s, err := NewStaging(m, StagingConfig{Bytes: 4*p.Elements() + 100})
	require.NoError(t, err)
	defer s.Close()
	n, err := s.Pack([]string{p.Name}, BF16)
	require.NoError(t, err)
	want, got := make([]byte, n), make([]byte, n)
	require.NoError(t, s.Read(want))
	taken := make(chan error, 1)
	go func() { taken <- worker.Broadcast(t.Context(), 0, got) }()
	require.NoError(t, root.BroadcastStaging(t.Context(), 0, s, n))
	require.NoError(t, <-taken)
	require.True(t, bytes.Equal(want, got))
	require.Equal(t, fmt.Sprintf("broadcast %d uint8 from rank 0", n), calls(t, folder, "0")[3])
	require.ErrorContains(t, root.BroadcastStaging(t.Context(), 0, s, 4*p.Elements()+101), "more bytes than the buffer has")
	require.NoError(t, s.Close())
	require.ErrorIs(t, root.BroadcastStaging(t.Context(), 0, s, 1), ErrClosed)
}
