//go:build !torch

package algorithms

import "github.com/agentfly/agentfly/cgo"

// Tensor stands in for libtorch's tensors. It holds nothing.
type Tensor struct{}

// Ops stand in for the operations on tensors, so that a loss is one file in both builds. They compute nothing, and Err says why.
type Ops struct{}

// Err returns cgo.ErrUnavailable.
func (*Ops) Err() error { return cgo.ErrUnavailable }

// The operations of the build with the tag torch; ops.go says what they compute.

func (*Ops) Add(Tensor, Tensor) Tensor              { return Tensor{} }
func (*Ops) Sub(Tensor, Tensor) Tensor              { return Tensor{} }
func (*Ops) Mul(Tensor, Tensor) Tensor              { return Tensor{} }
func (*Ops) Exp(Tensor) Tensor                      { return Tensor{} }
func (*Ops) Neg(Tensor) Tensor                      { return Tensor{} }
func (*Ops) Sigmoid(Tensor) Tensor                  { return Tensor{} }
func (*Ops) Detach(Tensor) Tensor                   { return Tensor{} }
func (*Ops) Affine(Tensor, float64, float64) Tensor { return Tensor{} }
func (*Ops) Clamp(Tensor, float64, float64) Tensor  { return Tensor{} }
func (*Ops) Minimum(Tensor, Tensor) Tensor          { return Tensor{} }
func (*Ops) Maximum(Tensor, Tensor) Tensor          { return Tensor{} }
func (*Ops) Where(Tensor, Tensor, Tensor) Tensor    { return Tensor{} }
func (*Ops) LT(Tensor, Tensor) Tensor               { return Tensor{} }
func (*Ops) GT(Tensor, Tensor) Tensor               { return Tensor{} }
func (*Ops) MaskedSum(Tensor, Tensor) Tensor        { return Tensor{} }

// NewLoss returns cgo.ErrUnavailable.
func (l *ResolvedLoss) NewLoss() (Loss, error) { return nil, cgo.ErrUnavailable }

// Evaluate returns cgo.ErrUnavailable.
func (a *Algorithm) Evaluate(Loss, []float64, Rows) (value float64, gradient []float64, err error) {
	return 0, nil, cgo.ErrUnavailable
}
