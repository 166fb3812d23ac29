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
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/wangkuiyi/gotorch"
)

// Model holds the parameters of a policy, float32, on one device. Its methods may be called from any goroutine and
// exclude each other; [Backward] through a result of Forward is not covered by that lock.
type Model struct {
	config  ModelConfig
	mu      sync.Mutex
	ptr     *C.af_model // nil when closed
	cleanup runtime.Cleanup
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
	pin.Pin(&c.InvFreq[0])
	raw := C.af_model_config{
		vocab_size: C.int64_t(c.VocabSize), hidden_size: C.int64_t(c.HiddenSize), intermediate_size: C.int64_t(c.IntermediateSize),
		num_layers: C.int64_t(c.NumLayers), num_heads: C.int64_t(c.NumHeads), num_kv_heads: C.int64_t(c.NumKVHeads),
		head_dim: C.int64_t(c.HeadDim), rms_norm_eps: C.double(c.RMSNormEps), tie_word_embeddings: flag(c.TieWordEmbeddings),
		qkv_bias: flag(c.QKVBias), o_bias: flag(c.OBias), mlp_bias: flag(c.MLPBias), qk_norm: flag(c.QKNorm),
		inv_freq: (*C.float)(&c.InvFreq[0]), attention_factor: C.double(c.AttentionFactor),
	}
	m := &Model{config: c}
	if err := toError("model", C.af_model_new(&raw, C.int(index), &m.ptr)); err != nil {
		return nil, err
	}
	m.cleanup = runtime.AddCleanup(m, func(p *C.af_model) { C.af_model_free(p) }, m.ptr) // a net; Close is the way
	return m, nil
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

// Close frees the model; results, optimizers and caches made from it stay valid. It may be called again.
func (m *Model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ptr != nil {
		m.cleanup.Stop()
		C.af_model_free(m.ptr)
		m.ptr = nil
	}
	return nil
}

// with calls f with the lock held; it fails on a closed model.
func (m *Model) with(what string, f func(p *C.af_model) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ptr == nil {
		return fmt.Errorf("cgo: %s: model: %w", what, ErrClosed)
	}
	return f(m.ptr)
}

// Parameters lists the parameters in file order; nil for a closed model.
func (m *Model) Parameters() []ParameterInfo {
	var list []ParameterInfo
	_ = m.with("parameters", func(p *C.af_model) error { // only a closed model fails
		for i := C.int64_t(0); i < C.af_model_num_parameters(p); i++ {
			var dims C.int
			var shape [2]C.int64_t
			if err := toError("parameters", C.af_model_parameter_shape(p, i, &dims, &shape[0])); err != nil {
				return err
			}
			info := ParameterInfo{Name: C.GoString(C.af_model_parameter_name(p, i))}
			for _, d := range shape[:dims] {
				info.Shape = append(info.Shape, int64(d))
			}
			list = append(list, info)
		}
		return nil
	})
	return list
}

// SetParameter copies data [shape...], little endian F32, F16 or BF16, into the parameter. Call Changed after the last one.
func (m *Model) SetParameter(name string, dtype DType, data []byte, shape []int64) error {
	info := ParameterInfo{Shape: shape}
	if want := info.Elements() * int64(dtype.Size()); int64(len(data)) != want || want <= 0 {
		return fmt.Errorf("cgo: set parameter %s: %d bytes do not hold shape %v of that type, %d would (%w)", name, len(data), shape, want, ErrInput)
	}
	return m.with("set parameter", func(p *C.af_model) error {
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
	return m.read("parameter", name, func(p *C.af_model, s *C.char, out *C.float, n C.int64_t) *C.af_error {
		return C.af_model_get_parameter(p, s, out, n)
	})
}

// Gradient returns a copy of the parameter's gradient, zeros where there is none.
func (m *Model) Gradient(name string) ([]float32, error) {
	return m.read("gradient", name, func(p *C.af_model, s *C.char, out *C.float, n C.int64_t) *C.af_error {
		return C.af_model_get_gradient(p, s, out, n)
	})
}

func (m *Model) read(what, name string, get func(*C.af_model, *C.char, *C.float, C.int64_t) *C.af_error) ([]float32, error) {
	n := m.elements(name)
	out := make([]float32, max(n, 1)) // an unknown name: the C side says so
	err := m.with(what, func(p *C.af_model) error {
		s := C.CString(name)
		defer C.free(unsafe.Pointer(s))
		return toError(what, get(p, s, (*C.float)(&out[0]), C.int64_t(n)))
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (m *Model) elements(name string) int64 {
	for _, p := range m.Parameters() {
		if p.Name == name {
			return p.Elements()
		}
	}
	return 0
}

// Init fills matrices and embeddings from N(0, std), norms with 1 and biases with 0; the same seed gives the same bits.
func (m *Model) Init(seed uint64, std float64) error {
	return m.with("init", func(p *C.af_model) error {
		return toError("init", C.af_model_init(p, C.uint64_t(seed), C.double(std)))
	})
}

// Changed tells that parameters were set: caches of packed weights are redone, and a backward of an older forward fails.
func (m *Model) Changed() {
	_ = m.with("changed", func(p *C.af_model) error { C.af_model_changed(p); return nil }) // closed: nothing to tell
}

// useGeneric makes the CPU run the operations of other devices; tests hold the two against each other.
func (m *Model) useGeneric(on bool) error {
	return m.with("generic", func(p *C.af_model) error { C.af_model_generic(p, flag(on)); return nil })
}

// Forward returns the log-probability of every row's target and, on request, the entropy of its distribution, both [N]
// float32 on the model's device. The caller closes them.
func (m *Model) Forward(b *Batch, o ForwardOptions) (logprobs, entropy gotorch.Tensor, err error) {
	lp, ent, err := m.forward(b, o)
	if err != nil {
		return gotorch.Tensor{}, gotorch.Tensor{}, err
	}
	if ent != nil {
		entropy = adopt(ent)
	}
	return adopt(lp), entropy, nil
}

// Score is Forward without gradient, as plain slices [N].
func (m *Model) Score(b *Batch) (logprobs, entropy []float32, err error) {
	lp, ent, err := m.forward(b, ForwardOptions{Entropy: true})
	if err != nil {
		return nil, nil, err
	}
	defer C.af_tensor_free(lp)
	defer C.af_tensor_free(ent)
	logprobs, entropy = make([]float32, len(b.RowToken)), make([]float32, len(b.RowToken))
	n := C.int64_t(len(b.RowToken))
	if err := toError("score", C.af_tensor_read(lp, (*C.float)(&logprobs[0]), n)); err != nil {
		return nil, nil, err
	}
	if err := toError("score", C.af_tensor_read(ent, (*C.float)(&entropy[0]), n)); err != nil {
		return nil, nil, err
	}
	return logprobs, entropy, nil
}

func (m *Model) forward(b *Batch, o ForwardOptions) (logprobs, entropy C.af_tensor, err error) {
	if err := b.Validate(min(m.config.VocabSize, math.MaxInt32)); err != nil {
		return nil, nil, err
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	ints := func(v []int32) *C.int32_t { // v is not empty: Validate saw to it
		pin.Pin(&v[0])
		return (*C.int32_t)(&v[0])
	}
	raw := C.af_batch{
		num_tokens: C.int64_t(len(b.Tokens)), tokens: ints(b.Tokens), positions: ints(b.Positions),
		num_segments: C.int64_t(len(b.SegmentStart)), segment_start: ints(b.SegmentStart), segment_length: ints(b.SegmentLength),
		segment_parent: ints(b.SegmentParent), num_rows: C.int64_t(len(b.RowToken)), row_token: ints(b.RowToken),
		row_target: ints(b.RowTarget), temperature: C.double(b.Temperature),
	}
	err = m.with("forward", func(p *C.af_model) error {
		ent := &entropy
		if !o.Entropy {
			ent = nil
		}
		return toError("forward", C.af_model_forward(p, &raw, flag(o.Grad), flag(o.Checkpoint), &logprobs, ent))
	})
	return logprobs, entropy, err
}
