//go:build !torch

package algorithms

import "errors"

// errNoTorch is what losses return in a binary without libtorch.
var errNoTorch = errors.New("algorithms: this binary was built without the torch tag; losses need it: run make build")

// Loss stands in for the interface on tensors; see the build with the tag torch.
type Loss interface{ Name() string }

func newPPOClip(Settings) (Loss, error)   { return nil, errNoTorch }
func newReinforce(Settings) (Loss, error) { return nil, errNoTorch }
