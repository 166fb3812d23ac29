//go:build torch

package cgo

// The library folder, libtorch and the run paths come from CGO_LDFLAGS: scripts/build_native.sh prints where they are.

/*
#cgo CFLAGS: -I${SRCDIR}
#cgo LDFLAGS: -lagentfly
#include "af.h"
*/
import "C"

import (
	"fmt"
)

// Error is a failed call of the C++ library.
type Error struct {
	Code    int // AF_ERR_* of af.h
	Message string
}

func (e *Error) Error() string { return e.Message }

// Unwrap lets errors.Is find [ErrNonFinite] and [ErrInput].
func (e *Error) Unwrap() error {
	switch e.Code {
	case C.AF_ERR_NONFINITE:
		return ErrNonFinite
	case C.AF_ERR_INPUT:
		return ErrInput
	case C.AF_ERR_RANK:
		return ErrRank
	}
	return nil
}

// toError takes e over and wraps it with what failed.
func toError(what string, e *C.af_error) error {
	if e == nil {
		return nil
	}
	defer C.af_error_free(e)
	return fmt.Errorf("cgo: %s: %w", what, &Error{Code: int(C.af_error_code(e)), Message: C.GoString(C.af_error_message(e))})
}

// Available reports whether this binary has the C++ library.
func Available() bool { return true }

// TorchVersion returns the version of libtorch that the library was compiled against.
func TorchVersion() string { return C.GoString(C.af_torch_version()) }

// CUDADevices returns how many CUDA devices libtorch sees.
func CUDADevices() int { return int(C.af_cuda_devices()) }

// SetThreads sets how many threads libtorch's operations use when they are called from this OS thread.
func SetThreads(n int) { C.af_set_threads(C.int(n)) }

// LiveHandles returns how many objects of the C++ library are not freed yet. Tests assert that it returns to its start.
func LiveHandles() int64 { return int64(C.af_live_handles()) }
