package weights

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/engines/vllm"
)

// tensors are the policy's weights as servers take them from its device, in one type and an adapter added. Close them before the model.
type tensors struct {
	model   *cgo.Model
	dtype   cgo.DType
	ipc     bool   // the buffer can be opened by other processes
	driver  string // a test's, see cgo.StagingConfig
	list    []engines.TensorInfo
	version uint64

	mu     sync.Mutex
	buffer *cgo.Staging // nil until the first Pack
	size   int64
	freed  bool // the update is over: each Pack gives its buffer back
}

// newTensors lists a model's tensors as they are now: a server in bfloat16 gets what it would round to.
func newTensors(m *cgo.Model, dtype cgo.DType, ipc bool) *tensors {
	t := &tensors{model: m, dtype: dtype, ipc: ipc, version: m.Version()}
	name := map[cgo.DType]string{cgo.F32: "float32", cgo.BF16: "bfloat16"}[dtype]
	for _, p := range m.Parameters() {
		shape := make([]int, len(p.Shape))
		for i, n := range p.Shape {
			shape[i] = int(n)
		}
		bytes := p.Elements() * int64(dtype.Size())
		t.list = append(t.list, engines.TensorInfo{Name: p.Name, DType: name, Shape: shape, Bytes: bytes})
	}
	return t
}

// List implements engines.Tensors.
func (t *tensors) List() []engines.TensorInfo { return t.list }

var errChanged = errors.New("the trainer has changed the weights since; the next update brings them")

// Pack implements engines.Tensors.
func (t *tensors) Pack(ctx context.Context, first, end int, use func(engines.Packed) error) (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() {
		if t.freed {
			err = errors.Join(err, t.drop())
		}
	}()
	if err := ctx.Err(); err != nil {
		return err
	}
	var names []string
	need := int64(0)
	for _, info := range t.list[first:end] {
		names, need = append(names, info.Name), need+info.Bytes
	}
	if err := t.grow(need); err != nil {
		return err
	}
	n, err := t.buffer.Pack(names, t.dtype)
	if err != nil {
		return err
	}
	if t.model.Version() != t.version {
		return errChanged
	}
	return use(packed{t.buffer, n})
}

// grow makes the buffer hold need bytes.
func (t *tensors) grow(need int64) error {
	if t.buffer != nil && t.size >= need {
		return nil
	}
	if err := t.drop(); err != nil {
		return err
	}
	var err error
	if t.buffer, err = cgo.NewStaging(t.model, cgo.StagingConfig{Bytes: need, IPC: t.ipc, Driver: t.driver}); err != nil {
		return fmt.Errorf("a buffer of %d bytes: %w", need, err)
	}
	t.size = need
	return nil
}

func (t *tensors) drop() error {
	if t.buffer == nil {
		return nil
	}
	err := t.buffer.Close()
	t.buffer, t.size = nil, 0
	return err
}

// free gives the buffer back when an update is over. A replica that comes back later still gets the weights: the Packs that it needs give back
// the buffers that they make, because the device's memory is the trainer's then.
func (t *tensors) free() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.freed = true
	return t.drop()
}

// packed is what a buffer holds now.
type packed struct {
	buffer *cgo.Staging
	n      int64
}

func (p packed) Size() int64             { return p.n }
func (p packed) Read(to []byte) error    { return p.buffer.Read(to) }
func (p packed) Handle() ([]byte, error) { return p.buffer.Handle() }

// wire is the type in which weights go to the servers: bfloat16 where all of them compute in it.
func (s *Sync) wire() cgo.DType {
	for _, t := range s.types {
		if t != "bfloat16" {
			return cgo.F32
		}
	}
	if len(s.types) == 0 {
		return cgo.F32
	}
	return cgo.BF16
}

// direct tells whether weights go to the servers from the trainer's device, without a checkpoint.
func (s *Sync) direct() bool {
	return s.c.Job.Engine.Kind == "vllm" && vllm.Way(s.c.Job.Engine.Weights).TakesTensors()
}
