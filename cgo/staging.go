//go:build torch

package cgo

/*
#include <stdlib.h>
#include "af.h"
*/
import "C"

import (
	"context"
	"fmt"
	"runtime"
	"unsafe"
)

// Staging is a buffer on a model's device in which parameters are packed for other processes. Its calls take the model's lock.
type Staging struct {
	model   *Model
	ptr     *C.af_staging // nil when closed; guarded by the lock of the model's handle
	cleanup runtime.Cleanup
}

// NewStaging makes a buffer of so many bytes.
func NewStaging(m *Model, c StagingConfig) (*Staging, error) {
	driver := C.CString(c.Driver)
	defer C.free(unsafe.Pointer(driver))
	raw := C.af_staging_config{capacity: C.int64_t(c.Bytes), ipc: flag(c.IPC), driver: driver}
	s := &Staging{model: m}
	err := m.handle.with("staging", func(p *C.af_model) error { return toError("staging", C.af_staging_new(p, &raw, &s.ptr)) })
	if err != nil {
		return nil, err
	}
	s.cleanup = runtime.AddCleanup(s, func(p *C.af_staging) { C.af_staging_free(p) }, s.ptr)
	return s, nil
}

// Close frees the buffer; it may be called again.
func (s *Staging) Close() error {
	s.model.handle.mu.Lock()
	defer s.model.handle.mu.Unlock()
	if s.ptr != nil {
		s.cleanup.Stop()
		C.af_staging_free(s.ptr)
		s.ptr = nil
	}
	return nil
}

func (s *Staging) with(f func(p *C.af_staging) *C.af_error) error {
	s.model.handle.mu.Lock()
	defer s.model.handle.mu.Unlock()
	if s.ptr == nil {
		return fmt.Errorf("cgo: staging: %w", ErrClosed)
	}
	return toError("staging", f(s.ptr))
}

// Pack writes base parameters, an adapter added, as F32 or BF16 back to back from the buffer's start, and returns how many bytes
// they are. What was packed before is gone.
func (s *Staging) Pack(names []string, dtype DType) (n int64, err error) {
	list := C.malloc(C.size_t(max(1, len(names))) * C.size_t(unsafe.Sizeof(uintptr(0))))
	defer C.free(list)
	pointers := unsafe.Slice((**C.char)(list), len(names))
	for i, name := range names {
		pointers[i] = C.CString(name)
		defer C.free(unsafe.Pointer(pointers[i]))
	}
	var bytes C.int64_t
	err = s.with(func(p *C.af_staging) *C.af_error {
		return C.af_staging_pack(p, (**C.char)(list), C.int64_t(len(names)), C.int(dtype), &bytes)
	})
	return int64(bytes), err
}

// Read copies the first bytes of the buffer.
func (s *Staging) Read(to []byte) error {
	return s.with(func(p *C.af_staging) *C.af_error {
		return C.af_staging_read(p, unsafe.Pointer(unsafe.SliceData(to)), C.int64_t(len(to)))
	})
}

// Handle is what another process opens the buffer by, of one made with IPC.
func (s *Staging) Handle() ([]byte, error) {
	handle := make([]byte, C.AF_IPC_HANDLE_BYTES)
	err := s.with(func(p *C.af_staging) *C.af_error {
		return C.af_staging_handle(p, (*C.char)(unsafe.Pointer(&handle[0])))
	})
	return handle, err
}

// BroadcastStaging makes the first n bytes of a buffer root's, as Broadcast does, without a copy through the host.
func (g *NCCLGroup) BroadcastStaging(ctx context.Context, root int, s *Staging, n int64) error {
	s.model.handle.mu.Lock()
	defer s.model.handle.mu.Unlock()
	if s.ptr == nil {
		return fmt.Errorf("cgo: staging: %w", ErrClosed)
	}
	return g.until(ctx, func(p *C.af_nccl) *C.af_error {
		return C.af_nccl_broadcast_staging(p, C.int(root), s.ptr, C.int64_t(n))
	})
}
