// Package cgo binds the C++ library of cgo/src, libtorch behind the plain C header af.h: the policy model with its
// forward, backward and AdamW, and tensors for losses written in Go. It is the only package that imports "C".
//
// Without the build tag torch the package compiles to the same types, and everything that needs the library returns
// [ErrUnavailable]; functions on gotorch tensors exist with the tag only.
//
// Concurrency. Calls on one [Model], and on what was made from it, are serialized by the model's lock; tensors and
// [Backward] have no lock and belong to one goroutine, which a [Worker] provides. gotorch's own operations panic on bad
// arguments, which a Worker turns into errors, and crash the process on a closed tensor, which nothing can.
//
// Memory. gotorch's tensors wait for the garbage collector, and what its finalizers release is only queued: call [Drain]
// where no tensor operation is in flight, as between two losses. [CloseTensor] frees at once.
//
// It does not read model files (packages modelfile and policy do), pack sequences (trainer) or schedule requests
// (engines/local).
package cgo

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// ErrUnavailable says that this binary was built without libtorch.
var ErrUnavailable = errors.New("cgo: this binary was built without the torch tag; take a release archive, or run make build in a checkout, which fetches libtorch and sets it")

// ErrNonFinite is wrapped by the error of an optimizer step whose gradient norm is infinite or NaN.
var ErrNonFinite = errors.New("non-finite gradient")

// ErrInput is wrapped by errors that a wrong argument caused.
var ErrInput = errors.New("bad input")

// ErrRank is wrapped by errors that another rank of a [Group] caused: it is late, gone or failed.
var ErrRank = errors.New("rank lost")

// ErrClosed is wrapped by errors of calls on a closed model or optimizer.
var ErrClosed = errors.New("closed")

// ModelConfig describes a decoder-only transformer: Llama, SmolLM, Mistral, Qwen2, Qwen3.
type ModelConfig struct {
	VocabSize, HiddenSize, IntermediateSize, NumLayers int
	NumHeads, NumKVHeads                               int // NumHeads is a multiple of NumKVHeads
	HeadDim                                            int // even
	RMSNormEps                                         float64
	TieWordEmbeddings                                  bool // the head is the embedding; there is no lm_head.weight
	QKVBias, OBias, MLPBias                            bool
	QKNorm                                             bool      // RMS norm of every query and key head, as Qwen3
	InvFreq                                            []float32 // [HeadDim/2] RoPE frequencies, scaling applied
	AttentionFactor                                    float64   // multiplies cosine and sine (YaRN); 0 means 1
}

// AdapterConfig describes a LoRA adapter, the same for every layer: y = x Wᵀ + Alpha/Rank (x Aᵀ) Bᵀ.
type AdapterConfig struct {
	Rank    int      // 1 to the smaller of hidden and intermediate size
	Alpha   float64  // > 0
	Targets []string // of AdapterTargets; empty means all
	Seed    uint64   // of the initial A; B begins at 0
}

// AdapterTargets are the projections that can have an adapter, in the order in which AdapterConfig keeps them.
var AdapterTargets = [...]string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}

// Resolve checks what needs no model to check, and returns the config with its targets in order, each once.
func (c AdapterConfig) Resolve() (AdapterConfig, error) {
	if c.Rank < 1 {
		return c, fmt.Errorf("cgo: adapter: rank is %d, it must be 1 or more (%w)", c.Rank, ErrInput)
	}
	if !(c.Alpha > 0) || math.IsInf(c.Alpha, 0) {
		return c, fmt.Errorf("cgo: adapter: alpha is %v, it must be above 0 (%w)", c.Alpha, ErrInput)
	}
	for _, name := range c.Targets {
		if !slices.Contains(AdapterTargets[:], name) {
			return c, fmt.Errorf("cgo: adapter: target %q is unknown, allowed are %s (%w)", name, strings.Join(AdapterTargets[:], ", "), ErrInput)
		}
	}
	var ordered []string
	for _, name := range AdapterTargets {
		if len(c.Targets) == 0 || slices.Contains(c.Targets, name) {
			ordered = append(ordered, name)
		}
	}
	c.Targets = ordered
	return c, nil
}

// DType is the element type of parameter data.
type DType int

// The values are those of af.h.
const (
	F32 DType = iota
	F16
	BF16
	I32
	I64
	F64
	Bool
)

// Size returns the bytes of one element, 0 for an unknown type.
func (d DType) Size() int {
	switch d {
	case F32, I32:
		return 4
	case F16, BF16:
		return 2
	case I64, F64:
		return 8
	case Bool:
		return 1
	}
	return 0
}

// ParameterInfo names one parameter as Hugging Face does.
type ParameterInfo struct {
	Name  string
	Shape []int64
}

// Elements returns the product of the shape.
func (p ParameterInfo) Elements() int64 {
	n := int64(1)
	for _, d := range p.Shape {
		n *= d
	}
	return n
}

// AdamWConfig holds what torch.optim.AdamW calls betas, eps and weight_decay. Every parameter is decayed.
type AdamWConfig struct {
	Beta1, Beta2 float64 // [0, 1)
	Eps          float64 // > 0
	WeightDecay  float64 // >= 0
	// Offload keeps the moments in host memory and brings so many elements of each to the model's device at once; 0: they
	// lie on that device. The bits of a step are the same.
	Offload int64
}

// OffloadChunk is a good AdamWConfig.Offload: two buffers of 256 MiB.
const OffloadChunk = 1 << 26

// StagingConfig says what a Staging is made of.
type StagingConfig struct {
	Bytes  int64
	IPC    bool   // other processes of the machine can open it, see Staging.Handle
	Driver string // of IPC: a library in the place of libcuda.so.1, which a test names
}

// DefaultAdamW returns PyTorch's defaults without weight decay.
func DefaultAdamW() AdamWConfig { return AdamWConfig{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8} }

// Moment selects one of AdamW's two states.
type Moment int

const (
	ExpAvg   Moment = iota // running mean of gradients
	ExpAvgSq               // running mean of their squares
)

// Batch is a packed forest of segments, each token computed once. A segment continues its parent; a token attends to the
// tokens of its segment's ancestors and, causally, to its own segment. Samples that share a prefix share its segments.
type Batch struct {
	Tokens        []int32 // [T]
	Positions     []int32 // [T] from 0 along each path from a root
	SegmentStart  []int32 // [S] ascending; segments are contiguous and cover [0, T)
	SegmentLength []int32 // [S] >= 1
	SegmentParent []int32 // [S] an earlier segment, or -1
	RowToken      []int32 // [N] packed index whose hidden state predicts; an index may repeat
	RowTarget     []int32 // [N] the predicted token id; rows that repeat with their target are computed once
	Temperature   float64 // divides the logits, > 0
}

// Validate reports the first element that a model with this vocabulary cannot take.
func (b *Batch) Validate(vocabSize int) error {
	tokens, segments := len(b.Tokens), len(b.SegmentStart)
	switch {
	case tokens == 0:
		return b.bad("it has no tokens")
	case len(b.RowToken) == 0:
		return b.bad("it has no rows")
	case len(b.Positions) != tokens:
		return b.bad("%d tokens have %d positions", tokens, len(b.Positions))
	case len(b.SegmentLength) != segments || len(b.SegmentParent) != segments:
		return b.bad("%d segment starts have %d lengths and %d parents", segments, len(b.SegmentLength), len(b.SegmentParent))
	case len(b.RowTarget) != len(b.RowToken):
		return b.bad("%d rows have %d targets", len(b.RowToken), len(b.RowTarget))
	case !(b.Temperature > 0) || math.IsInf(b.Temperature, 0):
		return b.bad("temperature is %v, it must be above 0", b.Temperature)
	}
	if err := b.within("Tokens", b.Tokens, vocabSize); err != nil {
		return err
	}
	if err := b.within("Positions", b.Positions, math.MaxInt32); err != nil {
		return err
	}
	if err := b.validateSegments(); err != nil {
		return err
	}
	if err := b.within("RowToken", b.RowToken, tokens); err != nil {
		return err
	}
	return b.within("RowTarget", b.RowTarget, vocabSize)
}

func (b *Batch) validateSegments() error {
	next := 0
	for i, start := range b.SegmentStart {
		if int(start) != next {
			return b.bad("SegmentStart[%d] is %d, the segments before it end at %d", i, start, next)
		}
		if n := int(b.SegmentLength[i]); n < 1 || n > len(b.Tokens)-next {
			return b.bad("SegmentLength[%d] is %d, allowed are 1 to %d", i, n, len(b.Tokens)-next)
		}
		if p := int(b.SegmentParent[i]); p < -1 || p >= i {
			return b.bad("SegmentParent[%d] is %d, allowed are -1 and earlier segments", i, p)
		}
		next += int(b.SegmentLength[i])
	}
	if next != len(b.Tokens) {
		return b.bad("the segments cover %d of %d tokens", next, len(b.Tokens))
	}
	return nil
}

func (b *Batch) within(name string, values []int32, limit int) error {
	for i, v := range values {
		if v < 0 || int(v) >= limit {
			return b.bad("%s[%d] is %d, allowed are 0 to %d", name, i, v, limit-1)
		}
	}
	return nil
}

func (b *Batch) bad(format string, args ...any) error {
	return fmt.Errorf("cgo: batch: %s (%w)", fmt.Sprintf(format, args...), ErrInput)
}

// AllLayers is ForwardOptions.Checkpoint of every layer.
const AllLayers = math.MaxInt32

// ForwardOptions selects what a forward keeps and returns.
type ForwardOptions struct {
	Grad       bool // the results carry autograd history
	Checkpoint int  // so many layers, from the first, keep their input alone and are computed again in backward; AllLayers: all
	Entropy    bool // return entropies too
	Values     bool // return the value head's values too; see Model.AddValueHead

	Neighbours // that compute the batch together with this process
}

// Inference are what a forward without gradient computed, each [N]; nil where it was not asked for.
type Inference struct {
	Logprobs, Entropy, Values []float32
}
