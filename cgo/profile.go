//go:build torch

package cgo

/*
#include "af.h"
*/
import "C"

import "time"

// What the benchmarks of this package measure beside the clock: files of tests cannot import "C".

// stageNames are the stages of a training step in the order of AF_STAGE_* of af.h.
var stageNames = [C.AF_STAGES]string{"embedding", "elementwise", "linear", "attention", "head", "optimizer"}

// stageTime is what the stages of one kind took together.
type stageTime struct {
	Time  time.Duration
	Calls int
}

// startProfile makes every stage of a step wait for its device before and after, and adds up their times until stopProfile. The step
// itself becomes slower. One profile in the process.
func startProfile() { C.af_profile_start() }

// stopProfile returns the stages' times by name.
func stopProfile() map[string]stageTime {
	var raw C.af_profile
	C.af_profile_stop(&raw)
	out := map[string]stageTime{}
	for i, name := range stageNames {
		out[name] = stageTime{time.Duration(float64(raw.seconds[i]) * 1e9), int(raw.calls[i])}
	}
	return out
}

// kernelTime is what the kernels of one name took together, or on a CPU the operators.
type kernelTime struct {
	Name    string
	Calls   int
	Seconds float64
}

// trace is what libtorch's profiler saw of a step.
type trace struct {
	Kernels, Copies            int          // on the device; memory that is set counts as copied
	Operators                  int          // calls of libtorch's, with those that operators make
	KernelSeconds, CopySeconds float64      // on the device, added up
	Busiest                    []kernelTime // with "idle before NAME": pauses of the device of more than 10 µs, by the kernel that ended them
}

// startTrace begins one; device is "cpu", "cuda" or "cuda:N". The goroutine stays on its OS thread until stopTrace.
func startTrace(device string) error {
	index, err := deviceIndex(device)
	if err != nil {
		return err
	}
	return toError("trace", C.af_trace_start(C.int(index)))
}

// stopTrace returns what was seen, with the n names that took the most time.
func stopTrace(n int) (trace, error) {
	var raw C.af_trace
	busiest := make([]C.af_traced, max(n, 1))
	if err := toError("trace", C.af_trace_stop(&raw, &busiest[0], C.int64_t(n))); err != nil {
		return trace{}, err
	}
	t := trace{int(raw.kernels), int(raw.copies), int(raw.operators), float64(raw.kernel_seconds), float64(raw.copy_seconds), nil}
	for _, b := range busiest[:n] {
		if name := C.GoString(&b.name[0]); name != "" {
			t.Busiest = append(t.Busiest, kernelTime{name, int(b.calls), float64(b.seconds)})
		}
	}
	return t, nil
}

// deviceMemory counts bytes of a CUDA device that libtorch's allocator has handed out (allocated) and holds (reserved).
type deviceMemory struct {
	Allocated, Peak, Reserved, PeakReserved int64
}

// memoryOf returns the counts of device, "cuda" or "cuda:N"; reset begins new peaks afterwards.
func memoryOf(device string, reset bool) (deviceMemory, error) {
	index, err := deviceIndex(device)
	if err != nil {
		return deviceMemory{}, err
	}
	var raw C.af_memory
	if err := toError("device memory", C.af_device_memory(C.int(index), flag(reset), &raw)); err != nil {
		return deviceMemory{}, err
	}
	return deviceMemory{int64(raw.allocated), int64(raw.peak), int64(raw.reserved), int64(raw.peak_reserved)}, nil
}
