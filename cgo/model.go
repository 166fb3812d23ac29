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
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/wangkuiyi/gotorch"
)

// Model holds the parameters of a policy, float32, on one device. Its methods may be called from any goroutine and
// exclude each other; [Backward] through a result of Forward is not covered by that lock.
type Model struct {
	config  ModelConfig
	handle  modelHandle
	adapter *AdapterConfig // nil without one; guarded by the handle's lock
}

// NewModel makes a model whose parameters are zero. device is "cpu", "cuda" or "cuda:N".
func NewModel(c ModelConfig, device string) (*Model, error) {
	index, err := deviceIndex(device)
	if err != nil {
		return nil, err
	}
	if len(c.InvFreq) != c.HeadDim/2 || c.HeadDim < 2 {
		return nil, fmt.Errorf("cgo: model: InvFreq has %d values, head_dim %d needs %d (%w)", len(c.InvFreq), c.HeadDim, c.HeadDim/2, ErrInput)
	}
	if c.AttentionFactor == 0 {
		c.AttentionFactor = 1
	}
	c.InvFreq = append([]float32(nil), c.InvFreq...)
	var pin runtime.Pinner
	defer pin.Unpin()
	raw := c.raw(&pin)
	m := &Model{config: c}
	if err := toError("model", C.af_model_new(&raw, C.int(index), &m.handle.ptr)); err != nil {
		return nil, err
	}
	m.handle.cleanup = runtime.AddCleanup(m, func(p *C.af_model) { C.af_model_free(p) }, m.handle.ptr) // a net; Close is the way
	return m, nil
}

// raw is c as the C library takes it, as long as pin pins.
func (c ModelConfig) raw(pin *runtime.Pinner) C.af_model_config {
	pin.Pin(&c.InvFreq[0])
	return C.af_model_config{
		vocab_size: C.int64_t(c.VocabSize), hidden_size: C.int64_t(c.HiddenSize), intermediate_size: C.int64_t(c.IntermediateSize),
		num_layers: C.int64_t(c.NumLayers), num_heads: C.int64_t(c.NumHeads), num_kv_heads: C.int64_t(c.NumKVHeads),
		head_dim: C.int64_t(c.HeadDim), rms_norm_eps: C.double(c.RMSNormEps), tie_word_embeddings: flag(c.TieWordEmbeddings),
		qkv_bias: flag(c.QKVBias), o_bias: flag(c.OBias), mlp_bias: flag(c.MLPBias), qk_norm: flag(c.QKNorm),
		inv_freq: (*C.float)(&c.InvFreq[0]), attention_factor: C.double(c.AttentionFactor),
	}
}

func deviceIndex(device string) (int, error) {
	switch {
	case device == "cpu" || device == "":
		return -1, nil
	case device == "cuda":
		return 0, nil
	}
	if n, ok := strings.CutPrefix(device, "cuda:"); ok {
		if i, err := strconv.Atoi(n); err == nil && i >= 0 {
			return i, nil
		}
	}
	return 0, fmt.Errorf("cgo: model: device %q is unknown, allowed are cpu, cuda and cuda:N (%w)", device, ErrInput)
}

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// Config returns what the model was made with.
func (m *Model) Config() ModelConfig { return m.config }

// Close frees the model. Results and optimizers made from it stay valid, a cache only takes its own Close. It may be called again.
func (m *Model) Close() error {
	m.handle.close()
	return nil
}

// AddValueHead gives the model the parameters value_head.weight [1, D] and value_head.bias [1], zeros. They are trained
// like the others; no Hugging Face file holds them. Add it before gradients and optimizers are made: the former are dropped,
// the latter refuse to step.
func (m *Model) AddValueHead() error {
	return m.handle.with("value head", func(p *C.af_model) error { return toError("value head", C.af_model_add_value_head(p)) })
}

// SetDType selects the type that forwards and backwards compute in: F32, the default, or BF16, which reads a rounded copy
// of the parameters. Parameters, gradients and optimizer stay float32, and so does what logprobs, entropies and values are
// reduced from. On a CPU BF16 saves memory, not time.
func (m *Model) SetDType(d DType) error {
	return m.handle.with("dtype", func(p *C.af_model) error { return toError("dtype", C.af_model_set_dtype(p, C.int(d))) })
}

// AddAdapter freezes the base model and trains a LoRA adapter, and the value head where there is one, instead. The model
// computes what it did before, as B is 0. Add it before gradients and optimizers are made, as with AddValueHead.
func (m *Model) AddAdapter(c AdapterConfig) error {
	c, err := c.Resolve()
	if err != nil {
		return err
	}
	raw := C.af_adapter_config{rank: C.int64_t(c.Rank), alpha: C.double(c.Alpha), targets: C.uint(c.mask()), seed: C.uint64_t(c.Seed)}
	return m.handle.with("adapter", func(p *C.af_model) error {
		if err := toError("adapter", C.af_model_add_adapter(p, &raw)); err != nil {
			return err
		}
		m.adapter = &c
		return nil
	})
}

// SetAdapter switches the adapter off and on for the forwards that follow: off, the model is its frozen base, which is the
// reference policy of a LoRA run. A [Cache] computes the model with its adapter either way.
func (m *Model) SetAdapter(on bool) {
	_ = m.handle.with("set adapter", func(p *C.af_model) error { C.af_model_set_adapter(p, flag(on)); return nil }) // closed: nothing to set
}

// Adapter returns what the adapter was made with; false without one.
func (m *Model) Adapter() (AdapterConfig, bool) {
	m.handle.mu.Lock()
	defer m.handle.mu.Unlock()
	if m.adapter == nil {
		return AdapterConfig{}, false
	}
	return *m.adapter, true
}

// Merged returns a copy of a base parameter with the adapter added, W + Alpha/Rank BA; what has no adapter is as it is.
func (m *Model) Merged(name string) ([]float32, error) {
	return m.handle.read("merged", name, func(p *C.af_model, s *C.char, out *C.float, n C.int64_t) *C.af_error {
		return C.af_model_get_merged(p, s, out, n)
	})
}

// Parameters lists the base model's parameters in file order; nil for a closed model.
func (m *Model) Parameters() []ParameterInfo { return m.handle.parameters(C.AF_BASE) }

// Trained lists what gradient and optimizer cover: the base model's parameters, or the adapter's under PEFT's names, and
// the value head's.
func (m *Model) Trained() []ParameterInfo { return m.handle.parameters(C.AF_TRAINED) }

// SetParameter copies data [shape...], little endian F32, F16 or BF16, into the parameter. Call Changed after the last one.
func (m *Model) SetParameter(name string, dtype DType, data []byte, shape []int64) error {
	info := ParameterInfo{Shape: shape}
	if want := info.Elements() * int64(dtype.Size()); int64(len(data)) != want || want <= 0 {
		return fmt.Errorf("cgo: set parameter %s: %d bytes do not hold shape %v of that type, %d would (%w)", name, len(data), shape, want, ErrInput)
	}
	return m.handle.with("set parameter", func(p *C.af_model) error {
		s := C.CString(name)
		defer C.free(unsafe.Pointer(s))
		var dims *C.int64_t
		if len(shape) > 0 {
			dims = (*C.int64_t)(&shape[0])
		}
		return toError("set parameter", C.af_model_set_parameter(p, s, C.int(dtype), unsafe.Pointer(&data[0]), dims, C.int(len(shape))))
	})
}

// Parameter returns a copy of the parameter.
func (m *Model) Parameter(name string) ([]float32, error) {
	return m.handle.read("parameter", name, func(p *C.af_model, s *C.char, out *C.float, n C.int64_t) *C.af_error {
		return C.af_model_get_parameter(p, s, out, n)
	})
}

// Gradient returns a copy of the parameter's gradient, zeros where there is none.
func (m *Model) Gradient(name string) ([]float32, error) {
	return m.handle.read("gradient", name, func(p *C.af_model, s *C.char, out *C.float, n C.int64_t) *C.af_error {
		return C.af_model_get_gradient(p, s, out, n)
	})
}

// Init fills matrices and embeddings from N(0, std), norms with 1 and biases with 0; the same seed gives the same bits.
func (m *Model) Init(seed uint64, std float64) error {
	return m.handle.with("init", func(p *C.af_model) error {
		return toError("init", C.af_model_init(p, C.uint64_t(seed), C.double(std)))
	})
}

// Changed tells that parameters were set: caches of packed weights are redone, and a backward of an older forward fails.
func (m *Model) Changed() {
	_ = m.handle.with("changed", func(p *C.af_model) error { C.af_model_changed(p); return nil }) // closed: nothing to tell
}

// Release gives memory of the model's device back that its parameters do not need, as [Optimizer.Release] does. It is for
// models that nothing trains.
func (m *Model) Release() error {
	return m.handle.with("release", func(p *C.af_model) error { return toError("release", C.af_model_release(p)) })
}

// Version counts changes of the parameters.
func (m *Model) Version() (v uint64) {
	_ = m.handle.with("version", func(p *C.af_model) error { v = uint64(C.af_model_version(p)); return nil }) // closed: 0
	return v
}

// Outputs are a forward's tensors, each [N] float32 on the model's device; the zero Tensor where one was not asked for.
type Outputs struct {
	Logprobs gotorch.Tensor // of every row's target
	Entropy  gotorch.Tensor // of every row's distribution, in nats
	Values   gotorch.Tensor // the value head at the row's hidden state, behind the last norm
}

// Close frees the tensors; it may be called again.
func (o Outputs) Close() {
	CloseTensor(o.Logprobs)
	CloseTensor(o.Entropy)
	CloseTensor(o.Values)
}

// Forward computes the rows of b. The caller closes the outputs.
func (m *Model) Forward(b *Batch, o ForwardOptions) (Outputs, error) {
	raw, err := m.forward(b, o)
	if err != nil {
		return Outputs{}, err
	}
	out := Outputs{Logprobs: adopt(raw.logprobs)}
	if o.Entropy {
		out.Entropy = adopt(raw.entropy)
	}
	if o.Values {
		out.Values = adopt(raw.values)
	}
	return out, nil
}

// Logprobs returns the rows' logprobs and entropies without gradient, as plain slices [N].
func (m *Model) Logprobs(b *Batch) (logprobs, entropy []float32, err error) {
	s, err := m.Infer(b, ForwardOptions{Entropy: true})
	return s.Logprobs, s.Entropy, err
}

// Infer is Forward without gradient, as plain slices.
func (m *Model) Infer(b *Batch, o ForwardOptions) (Inference, error) {
	o.Grad = false
	raw, err := m.forward(b, o)
	if err != nil {
		return Inference{}, err
	}
	defer C.af_tensor_free(raw.logprobs)
	defer C.af_tensor_free(raw.entropy)
	defer C.af_tensor_free(raw.values)
	var s Inference
	for _, part := range []struct {
		to   *[]float32
		from C.af_tensor
	}{{&s.Logprobs, raw.logprobs}, {&s.Entropy, raw.entropy}, {&s.Values, raw.values}} {
		if part.from == nil {
			continue
		}
		*part.to = make([]float32, len(b.RowToken))
		if err := toError("logprobs", C.af_tensor_read(part.from, (*C.float)(&(*part.to)[0]), C.int64_t(len(b.RowToken)))); err != nil {
			return Inference{}, err
		}
	}
	return s, nil
}

func (m *Model) forward(b *Batch, o ForwardOptions) (out C.af_outputs, err error) {
	options := C.af_forward_options{grad: flag(o.Grad), checkpoint: C.int64_t(o.Checkpoint), entropy: flag(o.Entropy), values: flag(o.Values)}
	err = o.Context.with("forward", func(context *C.af_group) error {
		return o.Tensor.with("forward", func(tensor *C.af_group) error {
			options.context, options.tensor = context, tensor
			return m.withBatch("forward", b, func(p *C.af_model, batch *C.af_batch) *C.af_error {
				return C.af_model_forward(p, batch, &options, &out)
			})
		})
	})
	return out, err
}

// withBatch calls do with b as the C library takes it.
func (m *Model) withBatch(what string, b *Batch, do func(*C.af_model, *C.af_batch) *C.af_error) error {
	if err := b.Validate(min(m.config.VocabSize, math.MaxInt32)); err != nil {
		return err
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	raw := b.raw(&pin)
	return m.handle.with(what, func(p *C.af_model) error { return toError(what, do(p, &raw)) })
}

// raw is b, which is valid, as the C library takes it, as long as pin pins.
func (b *Batch) raw(pin *runtime.Pinner) C.af_batch {
	ints := func(v []int32) *C.int32_t { // v is not empty: Validate saw to it
		pin.Pin(&v[0])
		return (*C.int32_t)(&v[0])
	}
	return C.af_batch{
		num_tokens: C.int64_t(len(b.Tokens)), tokens: ints(b.Tokens), positions: ints(b.Positions),
		num_segments: C.int64_t(len(b.SegmentStart)), segment_start: ints(b.SegmentStart), segment_length: ints(b.SegmentLength),
		segment_parent: ints(b.SegmentParent), num_rows: C.int64_t(len(b.RowToken)), row_token: ints(b.RowToken),
		row_target: ints(b.RowTarget), temperature: C.double(b.Temperature),
	}
}

// mask is AF_TARGET_* of resolved targets.
func (c AdapterConfig) mask() (bits uint32) {
	for i, name := range AdapterTargets {
		if slices.Contains(c.Targets, name) {
			bits |= 1 << i
		}
	}
	return bits
}
