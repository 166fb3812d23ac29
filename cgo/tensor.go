//go:build torch

package cgo

/*
#include "af.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/wangkuiyi/gotorch"
)

// adopt gives a new tensor of the C++ library to gotorch; its finalizer queues it for Drain.
func adopt(p C.af_tensor) gotorch.Tensor {
	h := new(unsafe.Pointer)
	*h = unsafe.Pointer(p)
	gotorch.SetTensorFinalizer(h)
	return gotorch.Tensor{T: h}
}

func ptr(t gotorch.Tensor) C.af_tensor {
	if t.T == nil {
		return nil
	}
	return C.af_tensor(*t.T)
}

// CloseTensor frees t now; all copies of t are closed with it. It may be called again. A closed tensor is an error in
// this package's functions and a crash in gotorch's.
func CloseTensor(t gotorch.Tensor) {
	if t.T == nil || *t.T == nil {
		return
	}
	runtime.SetFinalizer(t.T, nil)
	C.af_tensor_free(C.af_tensor(*t.T))
	*t.T = nil
}

// Drain frees what gotorch's finalizers queued and returns how many tensors that were. No tensor operation may be in
// flight on any goroutine: call it on the worker, between losses. For intermediates to reach the queue the garbage
// collector must have run.
func Drain() int64 { return int64(C.af_tensor_drain()) }

func newTensor(m *Model, data unsafe.Pointer, n int, dtype C.int, shape []int64) (gotorch.Tensor, error) {
	if len(shape) == 0 {
		shape = []int64{int64(n)}
	}
	elements := int64(1)
	for _, d := range shape {
		elements *= d
	}
	if elements != int64(n) {
		return gotorch.Tensor{}, fmt.Errorf("cgo: tensor: %d values do not fill shape %v (%w)", n, shape, ErrInput)
	}
	var out C.af_tensor
	make := func(p *C.af_model) error {
		return toError("tensor", C.af_tensor_new(p, data, dtype, (*C.int64_t)(&shape[0]), C.int(len(shape)), &out))
	}
	var err error
	if m == nil {
		err = make(nil)
	} else {
		err = m.handle.with("tensor", make)
	}
	if err != nil {
		return gotorch.Tensor{}, err
	}
	return adopt(out), nil
}

// FromFloats copies v to a new float32 tensor on m's device, on the CPU for a nil m; without shape it is [len(v)].
func FromFloats(m *Model, v []float32, shape ...int64) (gotorch.Tensor, error) {
	return newTensor(m, unsafe.Pointer(unsafe.SliceData(v)), len(v), C.AF_F32, shape)
}

// FromFloat64s copies v to a new float64 tensor, as FromFloats.
func FromFloat64s(m *Model, v []float64, shape ...int64) (gotorch.Tensor, error) {
	return newTensor(m, unsafe.Pointer(unsafe.SliceData(v)), len(v), C.AF_F64, shape)
}

// Read copies the tensor's elements as float32, row-major.
func Read(t gotorch.Tensor) ([]float32, error) {
	n := C.af_tensor_numel(ptr(t))
	out := make([]float32, max(n, 1))
	err := toError("read", C.af_tensor_read(ptr(t), (*C.float)(&out[0]), max(n, 0)))
	runtime.KeepAlive(t.T)
	if err != nil {
		return nil, err
	}
	return out[:n], nil
}

// Scalar reads a tensor of one element.
func Scalar(t gotorch.Tensor) (float32, error) {
	v, err := Read(t)
	if err != nil {
		return 0, err
	}
	if len(v) != 1 {
		return 0, fmt.Errorf("cgo: scalar: the tensor has %d elements (%w)", len(v), ErrInput)
	}
	return v[0], nil
}

// result finishes an operation that read the operands.
func result(what string, e *C.af_error, out C.af_tensor, operands ...gotorch.Tensor) (gotorch.Tensor, error) {
	for _, t := range operands {
		runtime.KeepAlive(t.T)
	}
	if err := toError(what, e); err != nil {
		return gotorch.Tensor{}, err
	}
	return adopt(out), nil
}

func unaryOp(what string, op C.int, a gotorch.Tensor) (gotorch.Tensor, error) {
	var out C.af_tensor
	e := C.af_op_unary(op, ptr(a), &out)
	return result(what, e, out, a)
}

func binaryOp(what string, op C.int, a, b gotorch.Tensor) (gotorch.Tensor, error) {
	var out C.af_tensor
	e := C.af_op_binary(op, ptr(a), ptr(b), &out)
	return result(what, e, out, a, b)
}

// The operations below carry autograd history and return a new tensor.

// Exp returns e^a.
func Exp(a gotorch.Tensor) (gotorch.Tensor, error) { return unaryOp("exp", C.AF_OP_EXP, a) }

// Neg returns -a.
func Neg(a gotorch.Tensor) (gotorch.Tensor, error) { return unaryOp("neg", C.AF_OP_NEG, a) }

// Sigmoid returns 1 / (1 + e^-a).
func Sigmoid(a gotorch.Tensor) (gotorch.Tensor, error) { return unaryOp("sigmoid", C.AF_OP_SIGMOID, a) }

// Detach returns a without its history.
func Detach(a gotorch.Tensor) (gotorch.Tensor, error) { return unaryOp("detach", C.AF_OP_DETACH, a) }

// Minimum is elementwise; where both are equal each gets half the gradient.
func Minimum(a, b gotorch.Tensor) (gotorch.Tensor, error) {
	return binaryOp("minimum", C.AF_OP_MINIMUM, a, b)
}

// Maximum is elementwise; where both are equal each gets half the gradient.
func Maximum(a, b gotorch.Tensor) (gotorch.Tensor, error) {
	return binaryOp("maximum", C.AF_OP_MAXIMUM, a, b)
}

// GT returns the bools a > b.
func GT(a, b gotorch.Tensor) (gotorch.Tensor, error) { return binaryOp("gt", C.AF_OP_GT, a, b) }

// LT returns the bools a < b.
func LT(a, b gotorch.Tensor) (gotorch.Tensor, error) { return binaryOp("lt", C.AF_OP_LT, a, b) }

// Clamp limits a to [low, high]; an infinity leaves its side open. Outside, the gradient is 0.
func Clamp(a gotorch.Tensor, low, high float64) (gotorch.Tensor, error) {
	var out C.af_tensor
	e := C.af_op_clamp(ptr(a), C.double(low), C.double(high), &out)
	return result("clamp", e, out, a)
}

// Affine returns scale*a + shift.
func Affine(a gotorch.Tensor, scale, shift float64) (gotorch.Tensor, error) {
	var out C.af_tensor
	e := C.af_op_affine(ptr(a), C.double(scale), C.double(shift), &out)
	return result("affine", e, out, a)
}

// Where takes a where condition is not 0 and b elsewhere; the side that is not taken gets no gradient, NaN or not. To keep
// a masked position out of a loss, replace the inputs of functions such as Exp there, not their outputs.
func Where(condition, a, b gotorch.Tensor) (gotorch.Tensor, error) {
	var out C.af_tensor
	e := C.af_op_where(ptr(condition), ptr(a), ptr(b), &out)
	return result("where", e, out, condition, a, b)
}

// MaskedSum returns the sum of a[i]*weight[i] over weight[i] != 0, 0 for none. Where the weight is 0 a NaN in a touches
// neither the value nor the gradient of a.
func MaskedSum(a, weight gotorch.Tensor) (gotorch.Tensor, error) {
	var out C.af_tensor
	e := C.af_op_masked_sum(ptr(a), ptr(weight), &out)
	return result("masked sum", e, out, a, weight)
}

// Backward adds the gradient of the scalar loss to the parameters' gradients. It uses the forward up: a second Backward
// through it is an error, and so is one after the parameters changed.
func Backward(loss gotorch.Tensor) error {
	err := toError("backward", C.af_backward(ptr(loss)))
	runtime.KeepAlive(loss.T)
	return err
}
