package engines

import "context"

// Tensors are weights in the memory of the process that trains them, which an engine may take without a checkpoint. They are safe for
// concurrent use.
type Tensors interface {
	// List is what Pack counts.
	List() []TensorInfo
	// Pack puts tensors first to end-1 back to back into a buffer and calls use, which must not keep it. It fails once the
	// trainer has changed the weights.
	Pack(ctx context.Context, first, end int, use func(Packed) error) error
}

// TensorInfo names a tensor as Hugging Face does.
type TensorInfo struct {
	Name  string
	DType string // float32 or bfloat16, as PyTorch calls them
	Shape []int
	Bytes int64
}

// Packed are the bytes of some tensors.
type Packed interface {
	Size() int64
	Read(to []byte) error    // copies all of them, to host memory
	Handle() ([]byte, error) // by which another process of the machine opens the device's memory that they begin (CUDA IPC)
}
