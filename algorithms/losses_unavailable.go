//go:build !torch

package algorithms

import "github.com/agentfly/agentfly/cgo"

// Loss stands in for the interface on tensors of the build with the tag torch.
type Loss interface{ Name() string }

func newPPOClip(Settings) (Loss, error)   { return nil, cgo.ErrUnavailable }
func newGSPO(Settings) (Loss, error)      { return nil, cgo.ErrUnavailable }
func newCISPO(Settings) (Loss, error)     { return nil, cgo.ErrUnavailable }
func newSAPO(Settings) (Loss, error)      { return nil, cgo.ErrUnavailable }
func newDPPO(Settings) (Loss, error)      { return nil, cgo.ErrUnavailable }
func newReinforce(Settings) (Loss, error) { return nil, cgo.ErrUnavailable }

// NewLoss returns cgo.ErrUnavailable.
func (a *Algorithm) NewLoss() (Loss, error) { return nil, cgo.ErrUnavailable }

// Evaluate returns cgo.ErrUnavailable.
func (a *Algorithm) Evaluate(Loss, []float64, Rows) (value float64, gradient []float64, err error) {
	return 0, nil, cgo.ErrUnavailable
}
