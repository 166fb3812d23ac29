//go:build torch

package cgo

/*
#include <stdlib.h>
#include "af.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"
)

// modelHandle is the library's model behind a lock, which calls on the model and on what was made from it take.
type modelHandle struct {
	mu      sync.Mutex
	ptr     *C.af_model // nil when closed
	cleanup runtime.Cleanup
}

func (h *modelHandle) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ptr != nil {
		h.cleanup.Stop()
		C.af_model_free(h.ptr)
		h.ptr = nil
	}
}

// with calls f with the lock held; it fails on a closed model.
func (h *modelHandle) with(what string, f func(p *C.af_model) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ptr == nil {
		return fmt.Errorf("cgo: %s: model: %w", what, ErrClosed)
	}
	return f(h.ptr)
}

// parameters lists the base model's parameters or the trained ones; nil for a closed model.
func (h *modelHandle) parameters(which C.int) []ParameterInfo {
	var list []ParameterInfo
	_ = h.with("parameters", func(p *C.af_model) error { // only a closed model fails
		for i := C.int64_t(0); i < C.af_model_num_parameters(p, which); i++ {
			name := C.af_model_parameter_name(p, which, i)
			shape, err := shapeOf(p, name)
			if err != nil {
				return err
			}
			list = append(list, ParameterInfo{C.GoString(name), shape})
		}
		return nil
	})
	return list
}

func shapeOf(p *C.af_model, name *C.char) ([]int64, error) {
	var dims C.int
	var raw [2]C.int64_t
	if err := toError("parameter", C.af_model_parameter_shape(p, name, &dims, &raw[0])); err != nil {
		return nil, err
	}
	shape := []int64{}
	for _, d := range raw[:dims] {
		shape = append(shape, int64(d))
	}
	return shape, nil
}

// read copies what get reads of a parameter.
func (h *modelHandle) read(what, name string, get func(*C.af_model, *C.char, *C.float, C.int64_t) *C.af_error) ([]float32, error) {
	var out []float32
	err := h.with(what, func(p *C.af_model) error {
		s := C.CString(name)
		defer C.free(unsafe.Pointer(s))
		shape, err := shapeOf(p, s)
		if err != nil {
			return err
		}
		n := ParameterInfo{Shape: shape}.Elements()
		out = make([]float32, n)
		return toError(what, get(p, s, (*C.float)(&out[0]), C.int64_t(n)))
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
