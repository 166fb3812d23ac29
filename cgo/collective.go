//go:build torch

package cgo

/*
#include <stdlib.h>
#include "af.h"
*/
import "C"

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// Group is the ranks of a data-parallel run. All ranks call the same methods in the same order. A method returns when the
// others have done their part, or after the group's timeout with an error that wraps [ErrRank] and names the rank that is
// late, gone or failed; from then on the group refuses everything. Methods exclude each other.
type Group struct {
	rank, world int
	sharding    Sharding
	mu          sync.Mutex
	ptr         *C.af_group // nil when closed
	cleanup     runtime.Cleanup
}

// keepOnBrokenPipe lets a peer that is gone show as the error of a write. C++ threads (Gloo's, the store's, NCCL's) write to
// sockets too, and the Go runtime raises a SIGPIPE that hits one of them again, which ends the process without a word,
// unless somebody asked for the signal.
var keepOnBrokenPipe = sync.OnceFunc(func() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) })

// NewGroup waits for all ranks. Close it after the optimizers that use it.
func NewGroup(c GroupConfig) (*Group, error) {
	device, err := deviceIndex(c.Device)
	if err != nil {
		return nil, err
	}
	keepOnBrokenPipe()
	address, prefix := C.CString(c.Address), C.CString(c.Prefix)
	defer C.free(unsafe.Pointer(address))
	defer C.free(unsafe.Pointer(prefix))
	raw := C.af_group_config{
		rank: C.int(c.Rank), world: C.int(c.World), address: address, port: C.int(c.Port), serve: flag(c.Serve), prefix: prefix,
		device: C.int(device), timeout_ms: C.int64_t(c.Timeout.Milliseconds()), first: C.int(c.First), stride: C.int(max(1, c.Stride)),
	}
	g := &Group{rank: c.Rank, world: c.World, sharding: c.Sharding}
	if err := toError("ranks", C.af_group_new(&raw, &g.ptr)); err != nil {
		return nil, err
	}
	g.cleanup = runtime.AddCleanup(g, func(p *C.af_group) { C.af_group_free(p) }, g.ptr)
	return g, nil
}

// Close leaves the group; it may be called again.
func (g *Group) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ptr != nil {
		g.cleanup.Stop()
		C.af_group_free(g.ptr)
		g.ptr = nil
	}
	return nil
}

// Rank is this process's number, 0 to World-1.
func (g *Group) Rank() int { return g.rank }

// World is the number of ranks.
func (g *Group) World() int { return g.world }

// with calls f with the lock held; a nil group gives f a nil pointer.
func (g *Group) with(what string, f func(p *C.af_group) error) error {
	if g == nil {
		return f(nil)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ptr == nil {
		return fmt.Errorf("cgo: %s: ranks: %w", what, ErrClosed)
	}
	return f(g.ptr)
}

// Barrier returns when all ranks have called it.
func (g *Group) Barrier() error {
	return g.with("barrier", func(p *C.af_group) error { return toError("barrier", C.af_group_barrier(p)) })
}

// Broadcast gives every rank root's data; that of the others is not read.
func (g *Group) Broadcast(root int, data []byte) ([]byte, error) {
	return g.broadcast(root, data, false)
}

// Await is the receiving side of root's Broadcast without a deadline: root may take its time as long as its process is
// seen to live.
func (g *Group) Await(root int) ([]byte, error) { return g.broadcast(root, nil, true) }

func (g *Group) broadcast(root int, data []byte, patient bool) (out []byte, err error) {
	err = g.with("broadcast", func(p *C.af_group) error {
		var size [8]byte
		binary.LittleEndian.PutUint64(size[:], uint64(len(data)))
		if err := toError("broadcast", C.af_group_broadcast(p, C.int(root), unsafe.Pointer(&size[0]), 8, flag(patient))); err != nil {
			return err
		}
		out = make([]byte, binary.LittleEndian.Uint64(size[:]))
		if len(out) == 0 {
			return nil
		}
		if g.rank == root {
			copy(out, data)
		}
		return toError("broadcast", C.af_group_broadcast(p, C.int(root), unsafe.Pointer(&out[0]), C.int64_t(len(out)), 0))
	})
	return out, err
}

// Gather gives every rank the data of all, by rank. Lengths may differ.
func (g *Group) Gather(data []byte) (out [][]byte, err error) {
	err = g.with("gather", func(p *C.af_group) error {
		sizes := make([]byte, 8*g.world)
		var size [8]byte
		binary.LittleEndian.PutUint64(size[:], uint64(len(data)))
		if err := toError("gather", C.af_group_gather(p, unsafe.Pointer(&size[0]), 8, unsafe.Pointer(&sizes[0]))); err != nil {
			return err
		}
		longest := uint64(1)
		for r := range g.world {
			longest = max(longest, binary.LittleEndian.Uint64(sizes[8*r:]))
		}
		padded, all := make([]byte, longest), make([]byte, int(longest)*g.world)
		copy(padded, data)
		if err := toError("gather", C.af_group_gather(p, unsafe.Pointer(&padded[0]), C.int64_t(longest), unsafe.Pointer(&all[0]))); err != nil {
			return err
		}
		for r := range g.world {
			start := r * int(longest)
			out = append(out, all[start:start+int(binary.LittleEndian.Uint64(sizes[8*r:]))])
		}
		return nil
	})
	return out, err
}

// AllReduce replaces values by their sums over the ranks.
func (g *Group) AllReduce(values []float32) error {
	return g.floats("all-reduce", values, func(p *C.af_group, v *C.float, n C.int64_t) *C.af_error {
		return C.af_group_all_reduce(p, v, n)
	})
}

// ReduceScatter makes the own shard of values its sum over the ranks; what the other ranks own is undefined then. A
// rank's shard is an equal share, a multiple of 16, in the order of the ranks; the last rank has the rest too.
func (g *Group) ReduceScatter(values []float32) error {
	return g.floats("reduce-scatter", values, func(p *C.af_group, v *C.float, n C.int64_t) *C.af_error {
		return C.af_group_reduce_scatter(p, v, n)
	})
}

// AllGather gives every rank the shards of all.
func (g *Group) AllGather(values []float32) error {
	return g.floats("all-gather", values, func(p *C.af_group, v *C.float, n C.int64_t) *C.af_error {
		return C.af_group_all_gather(p, v, n)
	})
}

func (g *Group) floats(what string, values []float32, f func(*C.af_group, *C.float, C.int64_t) *C.af_error) error {
	if len(values) == 0 {
		return fmt.Errorf("cgo: %s: no values (%w)", what, ErrInput)
	}
	return g.with(what, func(p *C.af_group) error {
		return toError(what, f(p, (*C.float)(&values[0]), C.int64_t(len(values))))
	})
}

// BroadcastModel gives every rank the parameters of rank 0's model.
func (g *Group) BroadcastModel(m *Model) error {
	return m.handle.with("broadcast model", func(model *C.af_model) error {
		return g.with("broadcast model", func(p *C.af_group) error {
			return toError("broadcast model", C.af_model_broadcast(model, p))
		})
	})
}

// Traffic counts since the group was made; zero for a closed one.
func (g *Group) Traffic() (t Traffic) {
	_ = g.with("traffic", func(p *C.af_group) error {
		var raw C.af_traffic
		C.af_group_traffic(p, &raw)
		t = Traffic{
			int64(raw.sums), int64(raw.gathers), int64(raw.rest),
			time.Duration(float64(raw.busy) * float64(time.Second)), time.Duration(float64(raw.waited) * float64(time.Second)),
		}
		return nil
	})
	return t
}

// Fail tells the other ranks that this one fails and why; they end when they next wait for it.
func (g *Group) Fail(why string) {
	_ = g.with("fail", func(p *C.af_group) error { // closed: nobody waits
		s := C.CString(why)
		defer C.free(unsafe.Pointer(s))
		C.af_group_fail(p, s)
		return nil
	})
}
