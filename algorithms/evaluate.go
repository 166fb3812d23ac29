//go:build torch

package algorithms

import (
	"github.com/wangkuiyi/gotorch"

	"github.com/agentfly/agentfly/cgo"
)

// Evaluate computes the loss of rows and its gradient dloss/dcurrent [N] without a model, for `inspect loss` and for
// tests of losses: the same operations as in training, on the CPU, in float64, with the gradient rounded to float32. Rows of
// weight 0 get gradient 0. An entropy bonus is an error, because entropy is no function of the rows. Run it on a
// cgo.Worker.
func (a *Algorithm) Evaluate(loss Loss, current []float64, r Rows) (value float64, gradient []float64, err error) {
	o := &Ops{wide: true}
	leaf := o.do(func() (gotorch.Tensor, error) { return gotorch.Full([]int64{int64(len(current))}, 0, true), nil })
	shifted := o.Add(leaf, o.floats(nil, current))
	defer o.close(gotorch.Tensor{})
	if o.err != nil {
		return 0, nil, o.err
	}
	inner := &Ops{wide: true}
	total, err := a.objective(inner, nil, loss, Outputs{Current: shifted}, r)
	if err != nil {
		return 0, nil, err
	}
	defer cgo.CloseTensor(total)
	if value, err = double(inner, total); err != nil {
		return 0, nil, err
	}
	if err := cgo.Backward(total); err != nil {
		return 0, nil, err
	}
	grad := o.do(func() (gotorch.Tensor, error) { return leaf.Grad(), nil })
	narrow, err := cgo.Read(grad)
	if err != nil {
		return 0, nil, err
	}
	gradient = make([]float64, len(narrow))
	for i, g := range narrow {
		gradient[i] = float64(g)
	}
	return value, gradient, nil
}

// double reads a float64 scalar through the library's float32 read: its rounded value and what the rounding left.
func double(o *Ops, t gotorch.Tensor) (float64, error) {
	high, err := cgo.Scalar(t)
	if err != nil {
		return 0, err
	}
	rest := o.Affine(t, 1, -float64(high))
	defer o.close(gotorch.Tensor{})
	if o.err != nil {
		return 0, o.err
	}
	low, err := cgo.Scalar(rest)
	return float64(high) + float64(low), err
}
