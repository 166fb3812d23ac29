//go:build torch

package cgo

/*
#include <stdlib.h>
#include "af.h"
*/
import "C"

import (
	"fmt"
	"math"
	"runtime"
	"unsafe"
)

// Optimizer is AdamW over all parameters of one model; its calls take the model's lock. With a group every rank holds
// the state of its share of the parameters, and Step, State, Send, Gather and Share are collectives: all ranks call them
// alike. ExpectLast, Send, Gather and Spread do nothing where the group's [Sharding] has no use for them.
type Optimizer struct {
	model   *Model
	group   *Group
	ptr     *C.af_optimizer // nil when closed; guarded by the lock of the model's handle
	cleanup runtime.Cleanup
}

// NewOptimizer makes an optimizer with zero state, for a process alone where g is nil. With a group the gradients are summed and
// the state is spread over its ranks; close the optimizer before the group.
func NewOptimizer(m *Model, c AdamWConfig, g *Group) (*Optimizer, error) {
	o := &Optimizer{model: m, group: g}
	raw := C.af_adamw_config{beta1: C.double(c.Beta1), beta2: C.double(c.Beta2), eps: C.double(c.Eps), weight_decay: C.double(c.WeightDecay), offload: C.int64_t(c.Offload)}
	err := m.handle.with("optimizer", func(p *C.af_model) error {
		return g.with("optimizer", func(group *C.af_group) error {
			sharding := ZeRO1
			if g != nil {
				sharding = g.sharding
			}
			return toError("optimizer", C.af_optimizer_new(p, &raw, group, C.int(sharding), &o.ptr))
		})
	})
	if err != nil {
		return nil, err
	}
	o.cleanup = runtime.AddCleanup(o, func(p *C.af_optimizer) { C.af_optimizer_free(p) }, o.ptr)
	return o, nil
}

// Close frees the state; it may be called again, before or after the model's Close.
func (o *Optimizer) Close() error {
	o.model.handle.mu.Lock()
	defer o.model.handle.mu.Unlock()
	if o.ptr != nil {
		o.cleanup.Stop()
		C.af_optimizer_free(o.ptr)
		o.ptr = nil
	}
	return nil
}

func (o *Optimizer) with(what string, f func(p *C.af_optimizer) error) error {
	o.model.handle.mu.Lock()
	defer o.model.handle.mu.Unlock()
	if o.ptr == nil {
		return fmt.Errorf("cgo: %s: optimizer: %w", what, ErrClosed)
	}
	return f(o.ptr)
}

// collective also keeps other uses of the group out.
func (o *Optimizer) collective(what string, f func(p *C.af_optimizer) error) error {
	return o.with(what, func(p *C.af_optimizer) error {
		return o.group.with(what, func(*C.af_group) error { return f(p) })
	})
}

// Step scales the gradients by min(1, maxNorm/(norm+1e-6)) (maxNorm 0: no clipping), takes one AdamW step and clears them.
// norm is the global L2 norm before clipping. If it is not finite the error wraps [ErrNonFinite], the gradients are
// dropped and nothing else changes.
func (o *Optimizer) Step(lr, maxNorm float64) (norm float64, err error) {
	var n C.double
	err = o.collective("step", func(p *C.af_optimizer) error {
		return toError("step", C.af_optimizer_step(p, C.double(lr), C.double(maxNorm), &n))
	})
	return float64(n), err
}

// ExpectLast tells that the next [Backward] is the last before Step: its gradients go to the other ranks layer by layer.
func (o *Optimizer) ExpectLast() error {
	return o.with("expect last", func(p *C.af_optimizer) error { return toError("expect last", C.af_optimizer_expect(p)) })
}

// Send starts to sum the gradients that no backward has sent. Every rank calls it once before Step, also where it has nothing to
// compute or its backward failed: the ranks must start the same sums. ZeroGrad drops them.
func (o *Optimizer) Send() error {
	return o.collective("send", func(p *C.af_optimizer) error { return toError("send", C.af_optimizer_send(p)) })
}

// Gather makes rank 0's float32 parameters whole, until Spread; Step does not renew them. They are whole at first, too.
func (o *Optimizer) Gather() error {
	return o.collective("gather", func(p *C.af_optimizer) error { return toError("gather", C.af_optimizer_gather(p)) })
}

// Spread frees the parameters that are whole; nobody may read them until Gather.
func (o *Optimizer) Spread() error {
	return o.with("spread", func(p *C.af_optimizer) error { return toError("spread", C.af_optimizer_spread(p)) })
}

// Share gives every rank the parameters of rank 0's model, which are whole there.
func (o *Optimizer) Share() error {
	return o.collective("share", func(p *C.af_optimizer) error { return toError("share", C.af_optimizer_share(p)) })
}

// ZeroGrad drops the gradients.
func (o *Optimizer) ZeroGrad() error {
	return o.with("zero grad", func(p *C.af_optimizer) error { return toError("zero grad", C.af_optimizer_zero_grad(p)) })
}

// Release moves the moments, and gradients that are not zero, to host memory, drops what the model can compute again, and
// gives what is free then back to the device: somebody else needs its memory. The model goes on to compute forwards; a step is
// refused until Restore. [ErrInput] while gradients are on their way to other ranks: take the step or drop them first.
func (o *Optimizer) Release() error {
	return o.with("release", func(p *C.af_optimizer) error { return toError("release", C.af_optimizer_release(p)) })
}

// Restore brings back what Release moved, to the same bits.
func (o *Optimizer) Restore() error {
	return o.with("restore", func(p *C.af_optimizer) error { return toError("restore", C.af_optimizer_restore(p)) })
}

// State returns a copy of one moment of a parameter.
func (o *Optimizer) State(name string, which Moment) ([]float32, error) {
	var out []float32
	err := o.collective("state", func(p *C.af_optimizer) error {
		s := C.CString(name)
		defer C.free(unsafe.Pointer(s))
		if o.model.handle.ptr == nil {
			return fmt.Errorf("cgo: state: model: %w", ErrClosed)
		}
		shape, err := shapeOf(o.model.handle.ptr, s)
		if err != nil {
			return err
		}
		n := ParameterInfo{Shape: shape}.Elements()
		out = make([]float32, n)
		return toError("state", C.af_optimizer_get_state(p, s, C.int(which), (*C.float)(&out[0]), C.int64_t(n)))
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// SetState copies data, all of it, into one moment of a parameter; a rank of a group keeps what is its own.
func (o *Optimizer) SetState(name string, which Moment, data []float32) error {
	if len(data) == 0 {
		return fmt.Errorf("cgo: set state of %s: no data (%w)", name, ErrInput)
	}
	return o.with("set state", func(p *C.af_optimizer) error {
		s := C.CString(name)
		defer C.free(unsafe.Pointer(s))
		return toError("set state", C.af_optimizer_set_state(p, s, C.int(which), (*C.float)(&data[0]), C.int64_t(len(data))))
	})
}

// StepCount returns how many steps were taken, 0 for a closed optimizer.
func (o *Optimizer) StepCount() int64 {
	var n int64
	_ = o.with("step count", func(p *C.af_optimizer) error { n = int64(C.af_optimizer_get_step(p)); return nil })
	return n
}

// SetStepCount continues the bias correction of a resumed run.
func (o *Optimizer) SetStepCount(n int64) error {
	if n < 0 || n > math.MaxInt64/2 {
		return fmt.Errorf("cgo: set step count: %d is out of range (%w)", n, ErrInput)
	}
	return o.with("set step count", func(p *C.af_optimizer) error { C.af_optimizer_set_step(p, C.int64_t(n)); return nil })
}
