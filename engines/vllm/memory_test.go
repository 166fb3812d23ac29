package vllm

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
)

// memory is scripted tensors of a trainer: every value is one number.
type memory struct {
	list   []engines.TensorInfo
	value  float32
	handle []byte

	mu  sync.Mutex
	err error // of Pack
}

// change is what an optimizer's step does to them.
func (m *memory) change() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = errors.New("the trainer has changed the weights since")
}

func newMemory(value float32, names ...string) *memory {
	m := &memory{value: value, handle: []byte("0123456789012345678901234567890123456789012345678901234567890123")}
	for _, name := range names {
		m.list = append(m.list, engines.TensorInfo{Name: name, DType: "float32", Shape: []int{1}, Bytes: 4})
	}
	return m
}

func (m *memory) List() []engines.TensorInfo { return m.list }

func (m *memory) Pack(_ context.Context, first, end int, use func(engines.Packed) error) error {
	m.mu.Lock()
	err := m.err
	m.mu.Unlock()
	if err != nil {
		return err
	}
	return use(part{m, int64(4 * (end - first))})
}

type part struct {
	of *memory
	n  int64
}

func (p part) Size() int64             { return p.n }
func (p part) Handle() ([]byte, error) { return p.of.handle, nil }

func (p part) Read(to []byte) error {
	for i := 0; i < len(to); i += 4 {
		binary.LittleEndian.PutUint32(to[i:], math.Float32bits(p.of.value))
	}
	return nil
}

// Weights in the trainer's memory go through shared memory without a checkpoint, and leave nothing there.
func TestTransferFromMemory(t *testing.T) {
	f := newFake(t)
	e := connect(t, func(o *Options) { o.Way = WayTransfer }, f)
	w := fakeWeights(t, 5, 7)
	w.Path, w.Tensors = "", newMemory(5, "w")
	require.NoError(t, e.Update(t.Context(), w))
	require.InDelta(t, 5, f.weights, 0)
	plan, remove, err := share(t.Context(), packTensors(newMemory(3, "a", "b", "c")), 6)
	require.NoError(t, err)
	require.Equal(t, []transferTensor{{"a", "F32", []int{1}, 0}, {"b", "F32", []int{1}, 4}, {"c", "F32", []int{1}, 8}}, plan.Tensors)
	info, err := os.Stat(plan.File)
	require.NoError(t, err)
	require.Equal(t, plan.Size, info.Size())
	remove()
	require.NoFileExists(t, plan.File)

	broken := newMemory(5, "w")
	broken.err = errors.New("the trainer has changed the weights")
	w.Version, w.Tensors = 8, broken
	require.ErrorContains(t, e.Update(t.Context(), w), "load: shared memory: chunk 0 (w to w): the trainer has changed the weights")
}

// An update that fails on the trainer's own side, such as for want of room in shared memory or by a weights file that ends too soon, says that at once,
// and does not blame a server that answers.
func TestAnUpdateFailsOnTheTrainersSide(t *testing.T) {
	for name, err := range map[string]error{
		"no room":          &os.PathError{Op: "write", Path: "/dev/shm/x", Err: syscall.ENOSPC},
		"a file too few":   &os.PathError{Op: "open", Path: "/dev/shm/x", Err: syscall.EMFILE},
		"a file too short": io.ErrUnexpectedEOF,
	} {
		t.Run(name, func(t *testing.T) {
			e := connect(t, func(o *Options) { o.Way = WayTransfer }, newFake(t), newFake(t))
			broken := newMemory(5, "w")
			broken.err = err
			w := fakeWeights(t, 5, 7)
			w.Path, w.Tensors = "", broken
			start := time.Now()
			got := e.Update(t.Context(), w)
			require.ErrorIs(t, got, err)
			require.NotContains(t, got.Error(), "does not answer")
			require.Less(t, time.Since(start), 2*time.Second)
			require.Equal(t, "behind behind", e.states())
		})
	}
}

// Each chunk is a request with a handle of the same memory and the tensors that lie there now.
func TestUpdateByHandlesOfDeviceMemory(t *testing.T) {
	f := newFake(t)
	var updates []map[string]any
	f.control = func(_ http.ResponseWriter, q *http.Request) bool {
		if q.URL.Path != "/update_weights" {
			return false
		}
		var body struct {
			Info map[string]any `json:"update_info"`
		}
		data, _ := io.ReadAll(q.Body)
		_ = json.Unmarshal(data, &body)
		updates = append(updates, body.Info)
		if len(updates) == 2 {
			f.weights = 6 // as the extension would load them
		}
		return true
	}
	e := connect(t, func(o *Options) { o.Way, o.ChunkBytes = WayIPC, 6 }, f)
	w := fakeWeights(t, 6, 7)
	m := newMemory(6, "a", "b", "c")
	w.Path, w.Tensors = "", m
	require.NoError(t, e.Update(t.Context(), w))
	handle := base64.StdEncoding.EncodeToString(m.handle)
	require.Equal(t, []map[string]any{
		{"names": []any{"a", "b"}, "dtype_names": []any{"float32", "float32"}, "shapes": []any{[]any{1.0}, []any{1.0}}, "memory": handle},
		{"names": []any{"c"}, "dtype_names": []any{"float32"}, "shapes": []any{[]any{1.0}}, "memory": handle},
	}, updates)

	m.handle = m.handle[:60]
	w.Version = 8
	require.ErrorContains(t, e.Update(t.Context(), w), "the handle has 60 bytes, CUDA's have 64")
	w.Tensors = newMemory(6, "x.q_proj.weight")
	require.ErrorContains(t, e.Update(t.Context(), w), "the group must come whole")
	w = fakeWeights(t, 6, 9)
	require.ErrorContains(t, e.Update(t.Context(), w), "weights by way of ipc are tensors of the trainer's device")
	w.Path, w.Tensors = "", newMemory(6, "w")
	disk := connect(t, func(o *Options) { o.Way = WayDisk }, newFake(t))
	require.ErrorContains(t, disk.Update(t.Context(), w), "weights by way of disk need a path")
}
