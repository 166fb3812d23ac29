//go:build torch

package cgo

/*
#include <malloc.h>
#include <stdlib.h>
#include "af.h"
#include "src/cuda/scripted.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"
)

// What the tests of this package need of the library: files of tests cannot import "C".

// path says what forwards and backwards are made of: AF_PATH_* of af.h.
type path int

const (
	pathDefault path = iota - 1
	pathKernels
	pathSegments
	pathVarlen
	pathFlash
)

// setPath makes a model compute as one on another device does; tests hold two paths against each other.
func setPath(m *Model, to path) error {
	return m.handle.with("set path", func(p *C.af_model) error { return toError("set path", C.af_model_set_path(p, C.int(to))) })
}

// useGeneric makes the CPU run the operations of other devices, attention one segment at a time.
func useGeneric(m *Model, on bool) error {
	if on {
		return setPath(m, pathSegments)
	}
	return setPath(m, pathDefault)
}

// attended is what attention alone gives, and its gradient.
type attended struct{ out, lse, gradient []float32 }

// attention runs attention alone over the batch's segments: qkv [T, (H + 2K)E], dOut [T, HE]. For tests.
func attention(m *Model, b *Batch, qkv, dOut []float32) (a attended, err error) {
	heads, width := m.config.NumHeads, m.config.HeadDim
	columns := (heads + 2*m.config.NumKVHeads) * width
	if t := len(b.Tokens); len(qkv) != t*columns || len(dOut) != t*heads*width {
		return a, fmt.Errorf("cgo: attention: %d and %d numbers for %d tokens (%w)", len(qkv), len(dOut), t, ErrInput)
	}
	err = m.withBatch("attention", b, func(p *C.af_model, batch *C.af_batch) *C.af_error {
		a = attended{make([]float32, len(dOut)), make([]float32, len(b.Tokens)*heads), make([]float32, len(qkv))}
		f := func(s []float32) *C.float { return (*C.float)(&s[0]) }
		return C.af_attention(p, batch, f(qkv), f(dOut), f(a.out), f(a.lse), f(a.gradient))
	})
	return a, err
}

// scriptCUDA has tensors of the CPU computed on as those of a CUDA device are, by a scripted driver and libtorch's operators for
// CUDA; "" leaves one out. unscriptCUDA ends it.
func scriptCUDA(driver, image, standIns string) error {
	var text [3]*C.char
	for i, s := range []string{driver, image, standIns} {
		text[i] = C.CString(s)
		defer C.free(unsafe.Pointer(text[i]))
	}
	return toError("scripted CUDA", C.af_cuda_scripted(text[0], text[1], text[2]))
}

func unscriptCUDA() error { return toError("scripted CUDA", C.af_cuda_scripted(nil, nil, nil)) }

// recordings is how many decode steps had their launches recorded since the process began, and how many recordings failed.
func recordings() (recorded, failed int) {
	var made, lost C.int64_t
	C.af_cuda_recordings(&made, &lost)
	return int(made), int(lost)
}

// failRecordings has the next count recordings where the CPU stands for a device fail as the driver does without memory.
func failRecordings(count int) { C.af_cuda_fail_recordings(C.int64_t(count)) }

// trimHeap gives what malloc holds of freed memory back to the system.
func trimHeap() { C.malloc_trim(0) }

// matrix is a buffer of an operation: rows of columns numbers.
type matrix struct {
	rows, columns int
	data          []float32
}

// operate runs an operation of the training path as devices other than the CPU do, on matrices, which hold its results afterwards:
// on CUDA device number device, or with -1 on the CPU. Which there are for each operation says src/cuda/operations.cc.
func operate(operation string, device int, dtype DType, shift, heads int, number float64, matrices ...matrix) error {
	name := C.CString(operation)
	defer C.free(unsafe.Pointer(name))
	var pin runtime.Pinner
	defer pin.Unpin()
	buffers, sizes := make([]*C.float, len(matrices)), make([]C.int64_t, 0, 2*len(matrices))
	for i, m := range matrices {
		pin.Pin(&m.data[0])
		buffers[i] = (*C.float)(&m.data[0])
		sizes = append(sizes, C.int64_t(m.rows), C.int64_t(m.columns))
	}
	pin.Pin(&buffers[0])
	return toError(operation, C.af_cuda_operation(name, C.int(device), C.int(dtype), &buffers[0], &sizes[0], C.int(len(matrices)), C.int64_t(shift), C.int64_t(heads), C.double(number)))
}

// countOnDevice writes to file how often a forward and backward over b calls each operator of a scripted device, and the bytes and
// floating-point operations of them: see src/cuda/scripted.h. The model's tensors have no numbers.
func countOnDevice(c ModelConfig, dtype DType, b *Batch, checkpoint bool, file string) error {
	name := C.CString(file)
	defer C.free(unsafe.Pointer(name))
	var pin runtime.Pinner
	defer pin.Unpin()
	config, batch := c.raw(&pin), b.raw(&pin)
	return toError("counts", C.af_cuda_counts(&config, C.int(dtype), &batch, flag(checkpoint), name))
}
