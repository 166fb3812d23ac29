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
)

// Cache is a paged key/value cache over a model. It belongs to one goroutine, and must be closed before its model.
type Cache struct {
	model *Model
	ptr   *C.af_cache // nil when closed
}

// NewCache makes a cache of blocks tokens of blockSize each; blockSize is a multiple of 8.
func NewCache(m *Model, blocks, blockSize int) (*Cache, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ptr == nil {
		return nil, fmt.Errorf("cgo: cache: model: %w", ErrClosed)
	}
	c := &Cache{model: m}
	if err := toError("cache", C.af_cache_new(m.ptr, C.int64_t(blocks), C.int64_t(blockSize), &c.ptr)); err != nil {
		return nil, err
	}
	return c, nil
}

// Close frees the cache. It may be called again.
func (c *Cache) Close() error {
	c.model.mu.Lock()
	defer c.model.mu.Unlock()
	C.af_cache_free(c.ptr)
	c.ptr = nil
	return nil
}

// Step computes the rows and samples one token for every output. It writes sampled and logprobs, [O] each.
func (c *Cache) Step(s *Step, sampled []int32, logprobs []float32) error {
	if err := s.check(len(sampled), len(logprobs)); err != nil {
		return err
	}
	c.model.mu.Lock()
	defer c.model.mu.Unlock()
	if c.ptr == nil {
		return fmt.Errorf("cgo: step: cache: %w", ErrClosed)
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	raw := C.af_step{
		num_rows: C.int64_t(len(s.Tokens)), tokens: (*C.int32_t)(pinned(&pin, s.Tokens)), positions: (*C.int32_t)(pinned(&pin, s.Positions)),
		sequence: (*C.int32_t)(pinned(&pin, s.Sequence)), num_sequences: C.int64_t(len(s.BlockTable) / s.MaxBlocks),
		max_blocks: C.int64_t(s.MaxBlocks), block_table: (*C.int32_t)(pinned(&pin, s.BlockTable)),
		num_outputs: C.int64_t(len(s.OutputRow)), output_row: (*C.int32_t)(pinned(&pin, s.OutputRow)),
		temperature: (*C.double)(pinned(&pin, s.Temperature)), top_p: (*C.double)(pinned(&pin, s.TopP)),
		top_k: (*C.int32_t)(pinned(&pin, s.TopK)), min_p: (*C.double)(pinned(&pin, s.MinP)),
		seed: (*C.uint64_t)(pinned(&pin, s.Seed)), counter: (*C.uint64_t)(pinned(&pin, s.Counter)), deterministic: flag(s.Deterministic),
	}
	return toError("step", C.af_cache_step(c.ptr, &raw, (*C.int32_t)(pinned(&pin, sampled)), (*C.float)(pinned(&pin, logprobs))))
}

// pinned returns the address of the first element, nil for an empty slice.
func pinned[T any](pin *runtime.Pinner, s []T) unsafe.Pointer {
	if len(s) == 0 {
		return nil
	}
	pin.Pin(&s[0])
	return unsafe.Pointer(&s[0])
}
