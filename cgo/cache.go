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

// Cache is the paged store of keys and values of a model's inference, on the model's device. Its methods may be called from any
// goroutine; they and the model's exclude each other.
type Cache struct {
	model   *Model
	ptr     *C.af_cache // guarded by the lock of the model's handle; nil when closed
	cleanup runtime.Cleanup
	packed  struct { // the outputs as the C side reads them
		row, topK, target, detail []C.int32_t
		temperature, topP, minP   []C.double
		seed, counter             []C.uint64_t
		editEnd                   []C.int64_t
		editToken                 []C.int32_t
		editDivide, editMinus     []C.float
		allowedRow                []C.int32_t
		allowed                   []C.uint64_t
	}
}

// NewCache makes a cache for m. On the CPU it holds a packed copy of the weights, made anew by the first Step after a change, and computes in
// the config's type; on a device it reads the weights that forwards read, and the config's type must be the model's.
func NewCache(m *Model, c CacheConfig) (*Cache, error) {
	k := &Cache{model: m}
	dtype := C.int(C.AF_F32)
	if c.BFloat16 {
		dtype = C.AF_BF16
	}
	err := m.handle.with("cache", func(p *C.af_model) error {
		return toError("cache", C.af_cache_new(p, C.int64_t(c.Blocks), C.int64_t(c.BlockSize), dtype, &k.ptr))
	})
	if err != nil {
		return nil, err
	}
	k.cleanup = runtime.AddCleanup(k, func(p *C.af_cache) { C.af_cache_free(p) }, k.ptr) // a net; Close is the way
	return k, nil
}

// Close frees the cache. It may be called again, before or after the model's.
func (k *Cache) Close() error {
	k.model.handle.mu.Lock()
	defer k.model.handle.mu.Unlock()
	if k.ptr != nil {
		k.cleanup.Stop()
		C.af_cache_free(k.ptr)
		k.ptr = nil
	}
	return nil
}

// BatchInvariant reports whether a row's result is the same bits whatever the other rows of its step are: on the CPU.
func (k *Cache) BatchInvariant() bool {
	k.model.handle.mu.Lock()
	defer k.model.handle.mu.Unlock()
	return k.ptr != nil && C.af_cache_batch_invariant(k.ptr) != 0
}

// Step computes s and fills its Sampled and Logprobs. Logits that are not finite give [ErrNonFinite], indices out of range
// [ErrInput]; either way the blocks of the step's rows hold nothing that may be used.
func (k *Cache) Step(s *Step) error {
	if err := s.validate(); err != nil {
		return err
	}
	return k.model.handle.with("step", func(*C.af_model) error {
		if k.ptr == nil {
			return fmt.Errorf("cgo: step: cache: %w", ErrClosed)
		}
		return k.step(s)
	})
}

func (k *Cache) step(s *Step) error {
	n := len(s.Outputs)
	o := &k.packed
	o.row, o.topK, o.temperature, o.topP, o.minP, o.seed, o.counter, o.target, o.detail = o.row[:0], o.topK[:0], o.temperature[:0], o.topP[:0], o.minP[:0], o.seed[:0], o.counter[:0], o.target[:0], o.detail[:0]
	o.editEnd, o.editToken, o.editDivide, o.editMinus = o.editEnd[:0], o.editToken[:0], o.editDivide[:0], o.editMinus[:0]
	o.allowedRow, o.allowed = o.allowedRow[:0], o.allowed[:0]
	s.MaxTop = 0
	words := (k.model.config.VocabSize + 63) / 64
	for _, out := range s.Outputs {
		o.row = append(o.row, C.int32_t(out.Row))
		o.topK = append(o.topK, C.int32_t(min(max(out.TopK, -1), 1<<30)))
		o.temperature = append(o.temperature, C.double(out.Temperature))
		o.topP = append(o.topP, C.double(out.TopP))
		o.minP = append(o.minP, C.double(out.MinP))
		o.seed = append(o.seed, C.uint64_t(out.Seed))
		o.counter = append(o.counter, C.uint64_t(out.Counter))
		target := C.int32_t(-1)
		if out.Given {
			target = C.int32_t(out.Target)
		}
		o.target = append(o.target, target)
		detail := C.int32_t(-1)
		if out.Detail.Wanted {
			detail = C.int32_t(2 * min(max(out.Detail.Top, 0), 1<<29))
			if out.Detail.Raw {
				detail++
			}
			s.MaxTop = max(s.MaxTop, out.Detail.Top)
		}
		o.detail = append(o.detail, detail)
		for _, e := range out.Edits {
			o.editToken = append(o.editToken, C.int32_t(e.Token))
			o.editDivide, o.editMinus = append(o.editDivide, C.float(e.Divide)), append(o.editMinus, C.float(e.Minus))
		}
		o.editEnd = append(o.editEnd, C.int64_t(len(o.editToken)))
		row := C.int32_t(-1)
		if out.Allowed != nil {
			row = C.int32_t(len(o.allowed) / words)
			for w := range words {
				var word uint64
				if w < len(out.Allowed) {
					word = out.Allowed[w]
				}
				o.allowed = append(o.allowed, C.uint64_t(word))
			}
		}
		o.allowedRow = append(o.allowedRow, row)
	}
	s.Sampled, s.Logprobs, s.Reported = sized(s.Sampled, n), sized(s.Logprobs, n), sized(s.Reported, n)
	s.TopIDs, s.TopLogprobs = sized(s.TopIDs, n*s.MaxTop), sized(s.TopLogprobs, n*s.MaxTop)
	var pin runtime.Pinner
	defer pin.Unpin()
	raw := C.af_step{
		num_rows: C.int64_t(len(s.Tokens)), tokens: pinned[C.int32_t](&pin, s.Tokens), positions: pinned[C.int32_t](&pin, s.Positions),
		sequence: pinned[C.int32_t](&pin, s.Sequence), num_sequences: C.int64_t(len(s.Blocks) / s.MaxBlocks),
		max_blocks: C.int64_t(s.MaxBlocks), block_table: pinned[C.int32_t](&pin, s.Blocks), num_outputs: C.int64_t(n),
		output_row: pinned[C.int32_t](&pin, o.row), temperature: pinned[C.double](&pin, o.temperature), top_p: pinned[C.double](&pin, o.topP),
		top_k: pinned[C.int32_t](&pin, o.topK), min_p: pinned[C.double](&pin, o.minP), seed: pinned[C.uint64_t](&pin, o.seed),
		counter: pinned[C.uint64_t](&pin, o.counter), target: pinned[C.int32_t](&pin, o.target),
		detail: pinned[C.int32_t](&pin, o.detail), max_top: C.int64_t(s.MaxTop), reported: pinned[C.float](&pin, s.Reported),
		edit_end: pinned[C.int64_t](&pin, o.editEnd), edit_token: pinned[C.int32_t](&pin, o.editToken),
		edit_divide: pinned[C.float](&pin, o.editDivide), edit_minus: pinned[C.float](&pin, o.editMinus),
		allowed_row: pinned[C.int32_t](&pin, o.allowedRow), num_allowed: C.int64_t(len(o.allowed) / words), allowed: pinned[C.uint64_t](&pin, o.allowed),
		top_ids: pinned[C.int32_t](&pin, s.TopIDs), top_logprobs: pinned[C.float](&pin, s.TopLogprobs),
	}
	return toError("step", C.af_cache_step(k.ptr, &raw, pinned[C.int32_t](&pin, s.Sampled), pinned[C.float](&pin, s.Logprobs)))
}

// validate checks the lengths; the C++ side checks every value.
func (s *Step) validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("cgo: step: %s (%w)", fmt.Sprintf(format, args...), ErrInput)
	}
	switch {
	case len(s.Tokens) == 0:
		return bad("it has no rows")
	case len(s.Positions) != len(s.Tokens) || len(s.Sequence) != len(s.Tokens):
		return bad("%d tokens have %d positions and %d sequences", len(s.Tokens), len(s.Positions), len(s.Sequence))
	case s.MaxBlocks < 1 || len(s.Blocks) == 0 || len(s.Blocks)%s.MaxBlocks != 0:
		return bad("%d block numbers do not fill rows of MaxBlocks %d", len(s.Blocks), s.MaxBlocks)
	}
	return nil
}

// sized is v with n elements, in the same memory where that is enough.
func sized[G any](v []G, n int) []G {
	if cap(v) < n {
		return make([]G, n)
	}
	return v[:n]
}

// pinned is v's first element as C reads it, nil for an empty v.
func pinned[T, G any](pin *runtime.Pinner, v []G) *T {
	if len(v) == 0 {
		return nil
	}
	pin.Pin(&v[0])
	return (*T)(unsafe.Pointer(&v[0]))
}
