//go:build torch

package algorithms

import (
	"github.com/wangkuiyi/gotorch"

	"github.com/agentfly/agentfly/cgo"
)

// Tensor is a tensor of a loss, float32 on the model's device. gotorch's own operations take it too, in files with the build tag torch.
type Tensor = gotorch.Tensor

// Ops are the tensor operations of one loss. They carry autograd history, remember the first error (later operations then
// do nothing) and own every tensor that they return: all are freed when the loss has been computed, without waiting for
// the garbage collector. Operands are [N] or scalars. An Ops belongs to one goroutine, the worker that runs the loss.
type Ops struct {
	made []gotorch.Tensor
	err  error
	wide bool // numbers become float64 tensors instead of float32
}

// Err returns the first error of the operations so far.
func (o *Ops) Err() error { return o.err }

func (o *Ops) keep(t gotorch.Tensor, err error) gotorch.Tensor {
	if err != nil {
		o.err = err
		return gotorch.Tensor{}
	}
	o.made = append(o.made, t)
	return t
}

// do runs f unless an operation failed before.
func (o *Ops) do(f func() (gotorch.Tensor, error)) gotorch.Tensor {
	if o.err != nil {
		return gotorch.Tensor{}
	}
	return o.keep(f())
}

// close frees what was made, except the tensor to keep.
func (o *Ops) close(except gotorch.Tensor) {
	for _, t := range o.made {
		if t.T != except.T {
			cgo.CloseTensor(t)
		}
	}
	o.made = nil
}

// Add returns a + b.
func (o *Ops) Add(a, b gotorch.Tensor) gotorch.Tensor {
	return o.do(func() (gotorch.Tensor, error) { return gotorch.Add(a, b, 1), nil })
}

// Sub returns a - b.
func (o *Ops) Sub(a, b gotorch.Tensor) gotorch.Tensor {
	return o.do(func() (gotorch.Tensor, error) { return gotorch.Sub(a, b, 1), nil })
}

// Mul returns a * b.
func (o *Ops) Mul(a, b gotorch.Tensor) gotorch.Tensor {
	return o.do(func() (gotorch.Tensor, error) { return gotorch.Mul(a, b), nil })
}

// Exp returns e^a.
func (o *Ops) Exp(a gotorch.Tensor) gotorch.Tensor {
	return o.do(func() (gotorch.Tensor, error) { return cgo.Exp(a) })
}

// Neg returns -a.
func (o *Ops) Neg(a gotorch.Tensor) gotorch.Tensor {
	return o.do(func() (gotorch.Tensor, error) { return cgo.Neg(a) })
}

// Sigmoid returns 1 / (1 + e^-a).
func (o *Ops) Sigmoid(a gotorch.Tensor) gotorch.Tensor {
	return o.do(func() (gotorch.Tensor, error) { return cgo.Sigmoid(a) })
}

// Detach returns a without gradient.
func (o *Ops) Detach(a gotorch.Tensor) gotorch.Tensor {
	return o.do(func() (gotorch.Tensor, error) { return cgo.Detach(a) })
}

// Affine returns scale*a + shift.
func (o *Ops) Affine(a gotorch.Tensor, scale, shift float64) gotorch.Tensor {
	return o.do(func() (gotorch.Tensor, error) { return cgo.Affine(a, scale, shift) })
}

// Clamp limits a to [low, high]; the gradient is 0 outside.
func (o *Ops) Clamp(a gotorch.Tensor, low, high float64) gotorch.Tensor {
	return o.do(func() (gotorch.Tensor, error) { return cgo.Clamp(a, low, high) })
}

// Minimum is elementwise; equal elements share the gradient.
func (o *Ops) Minimum(a, b gotorch.Tensor) gotorch.Tensor {
	return o.do(func() (gotorch.Tensor, error) { return cgo.Minimum(a, b) })
}

// Maximum is elementwise; equal elements share the gradient.
func (o *Ops) Maximum(a, b gotorch.Tensor) gotorch.Tensor {
	return o.do(func() (gotorch.Tensor, error) { return cgo.Maximum(a, b) })
}

// Where takes a where condition is not 0, b elsewhere; the other side gets no gradient.
func (o *Ops) Where(condition, a, b gotorch.Tensor) gotorch.Tensor {
	return o.do(func() (gotorch.Tensor, error) { return cgo.Where(condition, a, b) })
}

// LT returns the truth values a < b, GT a > b.
func (o *Ops) LT(a, b gotorch.Tensor) gotorch.Tensor {
	return o.do(func() (gotorch.Tensor, error) { return cgo.LT(a, b) })
}

// GT is described at LT.
func (o *Ops) GT(a, b gotorch.Tensor) gotorch.Tensor {
	return o.do(func() (gotorch.Tensor, error) { return cgo.GT(a, b) })
}

// MaskedSum returns the sum of a*weight over weight != 0; elsewhere a has neither value nor gradient.
func (o *Ops) MaskedSum(a, weight gotorch.Tensor) gotorch.Tensor {
	return o.do(func() (gotorch.Tensor, error) { return cgo.MaskedSum(a, weight) })
}

// floats copies v to the device of m (nil: the CPU), rounded to float32 unless the operations are wide.
func (o *Ops) floats(m *cgo.Model, v []float64) gotorch.Tensor {
	if o.wide {
		return o.do(func() (gotorch.Tensor, error) { return cgo.FromFloat64s(m, v) })
	}
	narrow := make([]float32, len(v))
	for i, x := range v {
		narrow[i] = float32(x)
	}
	return o.do(func() (gotorch.Tensor, error) { return cgo.FromFloats(m, narrow) })
}
