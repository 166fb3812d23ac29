//go:build torch

package cgo

import "testing"

// OnDevices runs a test of what stands above this package in each way that a cache on a device computes: model makes one
// there, which computes so until the test ends.
func OnDevices(t *testing.T, test func(t *testing.T, model func(t testing.TB, c ModelConfig) *Model, half bool)) {
	for _, d := range decodings() {
		if testDevice() == "cpu" && d.path != pathFlash && (d.path != pathSegments || d.scripted) {
			continue // two of the ways have all there is: calls of variable lengths, kernels, and the expressions in their place
		}
		t.Run(d.name, func(t *testing.T) {
			d.script(t)
			test(t, d.make, d.dtype == BF16)
		})
	}
}
