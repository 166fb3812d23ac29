//go:build torch

package main

import (
	"github.com/wangkuiyi/gotorch"

	"github.com/agentfly/agentfly/algorithms"
)

type ratio struct {
	name  string
	scale float64
}

func newRatio(name string, scale float64) (algorithms.Loss, error) { return ratio{name, scale}, nil }

func (r ratio) Name() string { return r.name }

// PerToken is one value for each row.
func (r ratio) PerToken(in algorithms.LossInput) (gotorch.Tensor, error) {
	rho := in.Exp(in.Sub(in.Current, in.Old))
	return in.Affine(in.Mul(rho, in.Advantage), -r.scale, 0), in.Err()
}
