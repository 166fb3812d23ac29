//go:build !torch

package cgo

// Cache stands in for the real one; no value of it can be made.
type Cache struct{}

// NewCache returns ErrUnavailable.
func NewCache(*Model, CacheConfig) (*Cache, error) { return nil, ErrUnavailable }

func (k *Cache) BatchInvariant() bool { return false }
func (k *Cache) Close() error         { return nil }
func (k *Cache) Step(*Step) error     { return ErrUnavailable }
