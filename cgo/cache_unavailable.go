//go:build !torch

package cgo

// Cache is not in this build.
type Cache struct{}

// NewCache returns ErrUnavailable.
func NewCache(*Model, int, int) (*Cache, error) { return nil, ErrUnavailable }

// Step returns ErrUnavailable.
func (c *Cache) Step(*Step, []int32, []float32) error { return ErrUnavailable }

// Close does nothing.
func (c *Cache) Close() error { return nil }
