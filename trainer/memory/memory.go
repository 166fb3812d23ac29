// Package memory says how many bytes a training job needs on each rank before anything of it is made: weights, gradients, the optimizer's
// moments, frozen models, the local engine, and a bound of what one micro-batch's forward and backward hold.
//
// What follows from shapes alone is exact; the rest is an upper bound, and each part says which it is. Parameters are counted by
// policy.Parameters, the list that weights are held against.
//
// It does not know job files, nor what the machine has: the orchestrator hands both in. It allocates nothing.
package memory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/modelfile"
	"github.com/agentfly/agentfly/policy"
)

// Setting is what the memory of a job depends on.
type Setting struct {
	Model      *modelfile.Config
	BFloat16   bool               // forwards and backwards read a rounded copy of the weights
	Adapter    *cgo.AdapterConfig // nil: all weights are trained
	Critic     bool               // a value head is trained too
	Reference  bool               // a frozen policy, which is the base where there is an adapter
	Teacher    *modelfile.Config  // of a distillation in this process; nil: none
	Checkpoint int                // so many layers, from the first, keep their input alone
	Offload    bool               // the optimizer's moments lie in host memory; on a CPU they do anyway
	Shared     bool               // the device is a server's while it samples, so the trainer's memory goes to the host meanwhile
	Tokens     int                // of the largest micro-batch
	Longest    int                // tokens of its longest sequence
	Ranks      int                // 1 or more
	Context    int                // of them share the tokens of a micro-batch; 0: 1
	Tensor     int                // of them share the layers; 0: 1
	Here       int                // of them on one machine; 0: all
	Sharding   cgo.Sharding       // of several ranks
	CUDA       bool               // the trainer computes on a CUDA device
	Engine     *Engine            // nil: it is no local one
	Threads    int                // of the CPU's kernels
	Saves      bool               // weights are read from files and written to them
}

// Engine is the local engine.
type Engine struct {
	CacheTokens, MaxSequences int
	OnDevice                  bool // it computes on rank 0's device, from the trainer's weights and in their type; else on the CPUs
	BFloat16                  bool // on the CPUs
	Named                     bool // the job names its type, which on the device is the trainer's
}

// Where a part lies.
const (
	Host   = "host"
	Device = "device"
)

// Part is memory for one purpose.
type Part struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	Exact bool   `json:"exact"` // false: an upper bound
	How   string `json:"how"`   // it is computed
	Place string `json:"place"` // host or device
	Ranks string `json:"ranks"` // each, or 0: rank 0 alone
	// During names a time at which alone the part is there. Of such times the one that needs most counts, because what one leaves the next uses.
	During string `json:"during,omitempty"`
}

// Need is what lies in one place at once.
type Need struct {
	Exact int64 `json:"exact"`
	Most  int64 `json:"most"` // with the bounds
}

// Plan is what a job needs.
type Plan struct {
	Parts []Part          `json:"parts"`
	Rank0 map[string]Need `json:"rank_0"` // by place
	Other map[string]Need `json:"other_ranks"`
}

const float = 4 // bytes of a float32

// Place is where the trainer computes.
func (s Setting) Place() string {
	if s.CUDA {
		return Device
	}
	return Host
}

// Of adds up what a job needs.
func Of(s Setting) Plan {
	b := builder{s: s, place: s.Place()}
	b.model()
	b.frozen()
	b.update()
	b.engine()
	if s.Saves {
		b.add(Part{Name: "tensor on its way", Bytes: 2 * float * b.largest, How: "the largest tensor, read from or written to a file: 2 × 4 bytes", Place: Host})
	}
	p := Plan{Parts: b.parts, Rank0: map[string]Need{}, Other: map[string]Need{}}
	for _, place := range []string{Device, Host} {
		p.Rank0[place] = b.need(place, func(Part) bool { return true })
		p.Other[place] = b.need(place, func(x Part) bool { return x.Ranks == "each" })
	}
	return p
}

// Machine is what a machine needs in a place: all of its ranks share the host, and each has a device for itself.
func (p Plan) Machine(place string, s Setting) Need {
	n, ranks := p.Rank0[place], s.Here
	if ranks == 0 {
		ranks = s.Ranks
	}
	if place == Host {
		n.Exact += int64(ranks-1) * p.Other[place].Exact
		n.Most += int64(ranks-1) * p.Other[place].Most
	}
	return n
}

type builder struct {
	s       Setting
	place   string // of the trainer
	parts   []Part
	largest int64 // elements of the policy's largest parameter
}

func (b *builder) add(p Part) {
	if p.Bytes == 0 {
		return
	}
	if p.Place == "" {
		p.Place = b.place
	}
	if p.Ranks == "" {
		p.Ranks = "each"
	}
	b.parts = append(b.parts, p)
}

func (b *builder) need(place string, use func(Part) bool) (n Need) {
	exact, most := map[string]int64{}, map[string]int64{}
	for _, p := range b.parts {
		if p.Place != place || !use(p) {
			continue
		}
		most[p.During] += p.Bytes
		if p.Exact {
			exact[p.During] += p.Bytes
		}
	}
	sum := func(by map[string]int64) int64 {
		var longest int64
		for during, bytes := range by {
			if during != "" {
				longest = max(longest, bytes)
			}
		}
		return by[""] + longest
	}
	return Need{sum(exact), sum(most)}
}

// count is how many elements a model's parameters have.
func count(c *modelfile.Config) (n int64) {
	for _, p := range policy.Parameters(c) {
		n += int64(p.Elements())
	}
	return n
}

// adapted is how many elements the matrices of an adapter have: A [rank, in] and B [out, rank] for every projection [out, in] that it names.
func adapted(c *modelfile.Config, a cgo.AdapterConfig) (n int64) {
	for _, p := range policy.Parameters(c) {
		for _, target := range a.Targets {
			if strings.HasSuffix(p.Name, "."+target+".weight") {
				n += int64(a.Rank) * (p.Shape[0] + p.Shape[1])
			}
		}
	}
	return n
}

// trained is how many elements gradient and optimizer cover.
func (s Setting) trained() (n int64) {
	n = count(s.Model)
	if s.Adapter != nil {
		n = adapted(s.Model, *s.Adapter)
	}
	if s.Critic {
		n += int64(s.Model.HiddenSize) + 1
	}
	return n
}

// parts are how many elements the optimizer's parts have, each of which is spread over the ranks by itself: the embeddings, every layer,
// the head, the value head. Of an adapter, every layer.
func (s Setting) parts() []int64 {
	layers := s.Model.NumLayers
	out := make([]int64, layers+2)
	if s.Adapter != nil {
		for i := range layers {
			out[i+1] = adapted(s.Model, *s.Adapter) / int64(layers)
		}
	} else {
		for _, p := range policy.Parameters(s.Model) {
			part, layer := layers+1, 0
			if n, _ := fmt.Sscanf(p.Name, "model.layers.%d.", &layer); n == 1 {
				part = layer + 1
			} else if strings.Contains(p.Name, "embed_tokens") {
				part = 0
			}
			out[part] += int64(p.Elements())
		}
	}
	if s.Critic {
		out = append(out, int64(s.Model.HiddenSize)+1)
	}
	return out
}

// share is the most that a rank has of what is spread: of each part whole runs of 16, and on the last rank the rest.
func (s Setting) share() (n int64) {
	ranks := int64(s.Ranks)
	for _, p := range s.parts() {
		n += p - (ranks-1)*(p/ranks/16*16)
	}
	return n
}

// spread reports whether the float32 parameters are spread over the ranks.
func (s Setting) spread() bool { return s.Ranks > 1 && s.BFloat16 && s.Sharding == cgo.FSDP }

// shared reports whether an engine reads rank 0's float32 parameters all the time.
func (s Setting) shared() bool { return s.Engine != nil }

// model is the policy with what trains it.
func (b *builder) model() {
	s := b.s
	base, trained := count(s.Model), s.trained()
	for _, p := range policy.Parameters(s.Model) {
		b.largest = max(b.largest, int64(p.Elements()))
	}
	rounded := trained
	share, over := s.share(), "" // of what is spread over the ranks
	if s.Ranks > 1 {
		over = fmt.Sprintf(" / %d ranks", s.Ranks)
	}
	weights := Part{Name: "weights", Bytes: float * trained, Exact: true, How: fmt.Sprintf("%s trained parameters × 4 (float32)", digits(trained))}
	if s.spread() {
		whole := weights
		weights.Bytes, weights.How = float*share, weights.How+over
		whole.Name, whole.Ranks = "weights, whole", "0"
		if !s.shared() {
			whole.During = "between steps"
		}
		b.add(whole)
	}
	b.add(weights)
	if s.Adapter != nil {
		rounded += base
		b.add(Part{Name: "base model", Bytes: float * base, Exact: true, How: fmt.Sprintf("%s frozen parameters × 4 (float32)", digits(base))})
	}
	if s.BFloat16 {
		b.add(Part{Name: "rounded copy", Bytes: 2 * rounded, Exact: true, How: fmt.Sprintf("%s parameters × 2 (bfloat16)", digits(rounded))})
	}
	b.add(Part{Name: "gradients", Bytes: float * trained, Exact: true, How: fmt.Sprintf("%s × 4 (float32)", digits(trained))})
	b.moments(share, fmt.Sprintf("%s × 8 (two of float32)%s", digits(trained), over))
	if !s.CUDA && s.Ranks > 1 {
		largest := slices.Max(s.parts())
		b.add(Part{Name: "sums over the ranks", Bytes: 2 * float * largest, How: fmt.Sprintf("two at once, at most %s elements each × 4", digits(largest))})
	}
}

// moments are the optimizer's: share elements of each of two.
func (b *builder) moments(share int64, how string) {
	s := b.s
	p := Part{Name: "AdamW's moments", Bytes: 2 * float * share, Exact: true, How: how}
	if !s.CUDA {
		b.add(p)
		return
	}
	// Each is one block of pinned memory, which libtorch's allocator rounds up to a power of two.
	rounding := Part{Name: "AdamW's moments, rounded up", Place: Host, Bytes: 2 * (powerOfTwo(float*share) - float*share), How: "two blocks of pinned memory, each a power of two"}
	if !s.Offload {
		b.add(p)
		if s.Shared {
			b.add(Part{Name: "AdamW's moments, lent", Bytes: p.Bytes, Exact: true, How: how + ", while a server has the device", Place: Host})
			b.add(rounding)
		}
		return
	}
	p.Place = Host
	b.add(p)
	b.add(rounding)
	b.add(Part{Name: "AdamW's step", Bytes: 2 * float * min(share, cgo.OffloadChunk), Exact: true, How: "a chunk of both moments × 4", During: "step"})
}

// powerOfTwo is the smallest that is n or more.
func powerOfTwo(n int64) int64 {
	p := int64(1)
	for p < n {
		p *= 2
	}
	return p
}

// frozen is the models that nothing trains.
func (b *builder) frozen() {
	s := b.s
	if s.Reference && s.Adapter == nil {
		n := count(s.Model)
		each, how := int64(float), "× 4 (float32)"
		if s.BFloat16 {
			each, how = float+2, "× 6 (float32 and a rounded copy)"
		}
		b.add(Part{Name: "reference", Bytes: each * n, Exact: true, How: digits(n) + " frozen parameters " + how})
		b.forward("reference's forward", s.Model, s.BFloat16, "each")
	}
	if s.Teacher != nil {
		n := count(s.Teacher)
		b.add(Part{Name: "teacher", Bytes: float * n, Exact: true, How: digits(n) + " frozen parameters × 4 (float32)", Ranks: "0"})
		b.forward("teacher's forward", s.Teacher, false, "0")
	}
}

// tokens says of how many a rank computes a micro-batch.
func (s Setting) tokens() string {
	if n := max(s.Context, 1) * max(s.Tensor, 1); n > 1 {
		return fmt.Sprintf("%s tokens on %d ranks", digits(int64(s.Tokens)), n)
	}
	return digits(int64(s.Tokens)) + " tokens"
}

func (b *builder) forward(name string, c *modelfile.Config, half bool, ranks string) {
	s := b.s
	if ranks == "0" { // rank 0 computes it alone
		s.Context, s.Tensor = 1, 1
	}
	p := Part{Name: name, Bytes: newShape(s, c, half).inference(), How: s.tokens() + ", one layer at a time", Ranks: ranks}
	if b.s.CUDA {
		p.During = name
	}
	b.add(p)
}

func (b *builder) update() {
	s := b.s
	a := newShape(s, s.Model, s.BFloat16)
	kept := "every layer's intermediates"
	switch n := min(s.Checkpoint, s.Model.NumLayers); {
	case n == s.Model.NumLayers:
		kept = "every layer's input"
	case n > 0:
		kept = fmt.Sprintf("the input of %d layers, the intermediates of %d", n, s.Model.NumLayers-n)
	}
	p := Part{Name: "activations", Bytes: a.training(s.Checkpoint), How: fmt.Sprintf("a micro-batch of %s: %s, one layer's backward, the head's tile", s.tokens(), kept)}
	if s.CUDA {
		p.During = "forward and backward"
		if !a.flash() {
			p.How += "; not measured on a GPU"
		}
	}
	b.add(p)
}

// engineOnDevice reports whether the local engine computes on rank 0's device.
func (s Setting) engineOnDevice() bool { return s.CUDA && s.Engine != nil && s.Engine.OnDevice }

// engine is the local engine. On a device it reads the weights that the trainer's forwards read. On the CPUs it has matrices of its own, and
// reads the policy's embeddings and norms, or those of a copy beside a device.
func (b *builder) engine() {
	e, c := b.s.Engine, b.s.Model
	if e == nil {
		return
	}
	here, onDevice := Host, b.s.engineOnDevice()
	if onDevice {
		here = Device
	}
	add := func(p Part) {
		p.Place, p.Ranks = cmp.Or(p.Place, here), "0"
		b.add(p)
	}
	half := e.BFloat16
	if onDevice {
		half = b.s.BFloat16
	}
	bytes, pair := int64(float), int64(1)
	if half {
		bytes, pair = 2, 2
	}
	taken := "taken as they are used"
	if onDevice {
		taken = "taken at once"
	} else {
		if b.s.CUDA {
			n := count(c)
			add(Part{Name: "engine: copy", Bytes: float * n, Exact: true, How: digits(n) + " parameters × 4 (float32), beside the device's"})
		}
		elements := packed(c, pair)
		add(Part{Name: "engine: matrices", Bytes: bytes * elements, Exact: true, How: fmt.Sprintf("%s elements of packed matrices × %d", digits(elements), bytes)})
	}
	token := cgo.CacheConfig{BFloat16: half}.TokenBytes(c.NumLayers, c.NumKVHeads, c.HeadDim, onDevice)
	tokens := int64(e.CacheTokens)
	add(Part{Name: "engine: keys, values", Bytes: token * tokens, Exact: onDevice, How: fmt.Sprintf("%s tokens × %s (%d layers × %d heads × %s numbers × %d); %s", digits(tokens), digits(token), c.NumLayers, c.NumKVHeads, digits(token/int64(c.NumLayers*c.NumKVHeads)/bytes), bytes, taken)})
	alone := b.s
	alone.Context, alone.Tensor = 1, 1
	a, rows := newShape(alone, c, false), int64(max(512, e.MaxSequences))
	logits, each := float*int64(e.MaxSequences)*a.V, float*(2*a.D+a.qkv()+a.H*a.E+3*a.F)
	step := Part{Name: "engine: step", Bytes: logits + rows*each, How: fmt.Sprintf("logits of %d sequences, intermediates of %d tokens × 4", e.MaxSequences, rows)}
	if onDevice {
		gathered := bytes * 2 * a.K * a.E * min(gatheredKeys, rows/leastRun*tokens)
		parts := min(partNumbers, rows*a.H*(a.E+2)*(powerOfTwo(tokens)/partKeys+1)) * float
		single := min(int64(e.MaxSequences), recordedRows)*(float*a.V+each) + parts
		step.Bytes += gathered + parts + 2*single + 64<<20
		step.How += "; keys of prompts gathered, at most 65,536; parts of long attention, at most 64 MiB; recorded launches of at most 256 sequences, and the stream on which they are recorded, the same each; 64 MiB of cuBLAS; not measured on a GPU"
		add(Part{Name: "engine: logits", Place: Host, Bytes: powerOfTwo(logits), How: fmt.Sprintf("logits of %d sequences × 4, a block of pinned memory, a power of two", e.MaxSequences)})
	}
	add(step)
	if b.s.Adapter != nil && !onDevice {
		add(Part{Name: "engine: merging", Bytes: 2 * float * int64(c.IntermediateSize) * int64(c.HiddenSize), How: "one layer's gate and up with the adapter added × 4"})
	}
}

// packed is how many elements the engine's matrices have: every projection and the head, in panels of rows whose columns lie in
// groups of pair.
func packed(c *modelfile.Config, pair int64) (n int64) {
	for _, p := range policy.Parameters(c) {
		if len(p.Shape) == 2 && (strings.Contains(p.Name, "_proj.") || strings.HasPrefix(p.Name, "lm_head") || strings.Contains(p.Name, "embed_tokens") && c.TieWordEmbeddings) {
			n += inPanels(p.Shape[0]) * ((p.Shape[1] + pair - 1) / pair * pair)
		}
	}
	return n
}

// inPanels is n rounded up to whole panels.
func inPanels(n int64) int64 { return (n + panelColumns - 1) / panelColumns * panelColumns }

// digits writes a number with commas.
func digits(n int64) string {
	text := fmt.Sprint(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
