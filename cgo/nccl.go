//go:build torch

package cgo

/*
#include <stdlib.h>
#include "af.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"
)

// NCCL finds the library that groups use, or says what this machine lacks. path is "" but in tests.
func NCCL(path string) (NCCLLibrary, error) {
	if path == "" && CUDADevices() == 0 {
		return NCCLLibrary{}, errors.New("cgo: nccl: libtorch sees no CUDA device here")
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var out C.af_nccl_library
	if err := toError("nccl", C.af_nccl_open(name, &out)); err != nil {
		return NCCLLibrary{}, err
	}
	return NCCLLibrary{Path: C.GoString(&out.path[0]), Version: int(out.version)}, nil
}

// NCCLUniqueID makes the id by which the ranks of one group find each other.
func NCCLUniqueID(library string) ([]byte, error) {
	keepOnBrokenPipe()
	name := C.CString(library)
	defer C.free(unsafe.Pointer(name))
	id := make([]byte, NCCLIDBytes)
	return id, toError("nccl", C.af_nccl_unique_id(name, (*C.char)(unsafe.Pointer(&id[0]))))
}

// NCCLGroup is one end of an NCCL group. Its methods exclude each other.
type NCCLGroup struct {
	rank    int
	mu      sync.Mutex
	ptr     *C.af_nccl // nil when closed
	cleanup runtime.Cleanup
}

// JoinNCCL waits for the other ranks, which must enter at the same time, and all-reduces one element with them. The error
// wraps [ErrRank] when they do not come within the timeout.
func JoinNCCL(ctx context.Context, c NCCLConfig) (*NCCLGroup, error) {
	device, err := deviceIndex(c.Device)
	if err != nil {
		return nil, err
	}
	if len(c.ID) != NCCLIDBytes {
		return nil, fmt.Errorf("cgo: nccl: the id has %d bytes, %d are needed (%w)", len(c.ID), NCCLIDBytes, ErrInput)
	}
	keepOnBrokenPipe()
	library, id := C.CString(c.Library), C.CBytes(c.ID)
	defer C.free(unsafe.Pointer(library))
	defer C.free(id)
	raw := C.af_nccl_config{
		library: library, id: (*C.char)(id), rank: C.int(c.Rank), world: C.int(c.World), device: C.int(device),
		timeout_ms: C.int64_t(c.Timeout.Milliseconds()),
	}
	g := &NCCLGroup{rank: c.Rank}
	if err := toError("nccl", C.af_nccl_new(&raw, &g.ptr)); err != nil {
		return nil, err
	}
	g.cleanup = runtime.AddCleanup(g, func(p *C.af_nccl) { C.af_nccl_free(p) }, g.ptr)
	err = g.until(ctx, func(p *C.af_nccl) *C.af_error { return C.af_nccl_join(p) })
	if err != nil {
		return nil, errors.Join(err, g.Close()) // Close has no error of its own
	}
	return g, nil
}

// Broadcast makes data, whose length is the same on all ranks, root's. An error that wraps [ErrRank] means that a rank did
// not take part within the timeout; after any error, and after ctx ended, the group refuses everything.
func (g *NCCLGroup) Broadcast(ctx context.Context, root int, data []byte) error {
	return g.until(ctx, func(p *C.af_nccl) *C.af_error {
		return C.af_nccl_broadcast(p, C.int(root), unsafe.Pointer(unsafe.SliceData(data)), C.int64_t(len(data)))
	})
}

// until runs f, which ends when ctx does.
func (g *NCCLGroup) until(ctx context.Context, f func(p *C.af_nccl) *C.af_error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ptr == nil {
		return fmt.Errorf("cgo: nccl: %w", ErrClosed)
	}
	cancelled := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		C.af_nccl_cancel(g.ptr)
		close(cancelled)
	})
	err := toError("nccl", f(g.ptr))
	if !stop() {
		<-cancelled
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("cgo: nccl: %w", ctx.Err())
	}
	return err
}

// Close leaves the group without waiting for the others; it may be called again.
func (g *NCCLGroup) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ptr != nil {
		g.cleanup.Stop()
		C.af_nccl_free(g.ptr)
		g.ptr = nil
	}
	return nil
}
