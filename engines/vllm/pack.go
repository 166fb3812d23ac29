package vllm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/modelfile"
)

// chunkBytes is the default of Options.ChunkBytes.
const chunkBytes = 256 << 20

// packedUpdate is the update_info of a packed transfer, in vLLM's own words (NCCLWeightTransferUpdateInfo in
// vllm/distributed/weight_transfer/nccl_engine.py, 0.32.0).
type packedUpdate struct {
	Names  []string `json:"names"`
	DTypes []string `json:"dtype_names"`
	Shapes [][]int  `json:"shapes"`
}

// torchNames are PyTorch's names of what safetensors store.
var torchNames = map[modelfile.DType]string{
	modelfile.F64: "float64", modelfile.F32: "float32", modelfile.F16: "float16", modelfile.BF16: "bfloat16",
}

// packedSource is a model's tensors in the order in which they are sent.
type packedSource struct {
	update packedUpdate
	sizes  []int64 // bytes of each tensor
	// pack puts tensors first to end-1 back to back and calls use, which must not keep them.
	pack func(ctx context.Context, first, end int, use func(engines.Packed) error) error
}

// packTensors describes tensors in this process's memory.
func packTensors(t engines.Tensors) packedSource {
	p := packedSource{pack: t.Pack}
	for _, info := range t.List() {
		p.update.Names, p.update.DTypes = append(p.update.Names, info.Name), append(p.update.DTypes, info.DType)
		p.update.Shapes, p.sizes = append(p.update.Shapes, info.Shape), append(p.sizes, info.Bytes)
	}
	return p
}

// hostBytes are packed tensors that were read from files.
type hostBytes []byte

func (b hostBytes) Size() int64 { return int64(len(b)) }

func (b hostBytes) Read(to []byte) error {
	copy(to, b)
	return nil
}

func (hostBytes) Handle() ([]byte, error) {
	return nil, errors.New("tensors of a file are no memory of a device")
}

// onHost is what a chunk holds, in host memory: where it lies, or copied to buffer, which is reused.
func onHost(chunk engines.Packed, buffer *[]byte) ([]byte, error) {
	if bytes, ok := chunk.(hostBytes); ok {
		return bytes, nil
	}
	*buffer = slices.Grow((*buffer)[:0], int(chunk.Size()))[:chunk.Size()]
	return *buffer, chunk.Read(*buffer)
}

// current tells whether the trainer still has the tensors. A server that was told that a load begins has no weights until the load ends, so it is
// asked before.
func (p packedSource) current(ctx context.Context) error {
	return p.pack(ctx, 0, 1, func(engines.Packed) error { return nil })
}

// packModel describes a model. Its tensors are read when they are packed, so the model must stay open.
func packModel(m *modelfile.Model) (packedSource, error) {
	names := m.Names()
	var p packedSource
	var buffer hostBytes
	p.pack = func(_ context.Context, first, end int, use func(engines.Packed) error) error {
		buffer = buffer[:0]
		for i := first; i < end; i++ {
			t, err := m.Tensor(names[i])
			if err != nil {
				return err
			}
			if int64(len(t.Data)) != p.sizes[i] {
				return fmt.Errorf("tensor %s has %d bytes, %d were announced", names[i], len(t.Data), p.sizes[i])
			}
			buffer = append(buffer, t.Data...)
		}
		return use(buffer)
	}
	for _, name := range names {
		info, ok := m.Info(name)
		if !ok {
			return p, fmt.Errorf("tensor %s is gone", name)
		}
		dtype, ok := torchNames[info.DType]
		if !ok {
			return p, fmt.Errorf("tensor %s is %s; servers are sent F64, F32, F16 or BF16", name, info.DType)
		}
		shape := info.Shape
		if shape == nil {
			shape = []int{}
		}
		p.update.Names, p.update.DTypes, p.update.Shapes = append(p.update.Names, name), append(p.update.DTypes, dtype), append(p.update.Shapes, shape)
		p.sizes = append(p.sizes, int64(info.Elements()*info.DType.Size()))
	}
	if len(names) == 0 {
		return p, errors.New("there is no tensor")
	}
	return p, nil
}

// chunkEnds cuts tensors of these sizes into chunks as vLLM does on both sides (pack_tensors and
// packed_nccl_broadcast_consumer in vllm/distributed/weight_transfer/packed_tensor.py, 0.32.0): whole tensors in order, and
// a chunk ends with the tensor that makes it exceed the limit. It returns the index after each chunk's last tensor.
func chunkEnds(sizes []int64, limit int64) []int {
	var ends []int
	total := int64(0)
	for i, n := range sizes {
		if total += n; total > limit || i == len(sizes)-1 {
			ends = append(ends, i+1)
			total = 0
		}
	}
	return ends
}

// chunks packs the tensors and sends chunk after chunk. A chunk, tensors first to end-1, is valid until send returns.
func (p packedSource) chunks(ctx context.Context, limit int64, send func(first, end int, chunk engines.Packed) error) error {
	start := 0
	for n, end := range chunkEnds(p.sizes, limit) {
		err := p.pack(ctx, start, end, func(chunk engines.Packed) error {
			want := int64(0)
			for _, size := range p.sizes[start:end] {
				want += size
			}
			if chunk.Size() != want {
				return fmt.Errorf("%d bytes, %d were announced", chunk.Size(), want)
			}
			return send(start, end, chunk)
		})
		if err != nil {
			return fmt.Errorf("chunk %d (%s to %s): %w", n, p.update.Names[start], p.update.Names[end-1], err)
		}
		start = end
	}
	return nil
}
