//go:build !torch

package main

import (
	"errors"

	"github.com/agentfly/agentfly/algorithms"
)

func newRatio(string, float64) (algorithms.Loss, error) {
	return nil, errors.New("this program was built without libtorch")
}
