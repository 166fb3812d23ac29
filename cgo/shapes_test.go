//go:build torch

package cgo

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// qwen25 is the shape of a Qwen2.5 model.
func qwen25(hidden, intermediate, layers, heads, keys, width, vocab int, tied bool) ModelConfig {
	c := ModelConfig{
		VocabSize: vocab, HiddenSize: hidden, IntermediateSize: intermediate, NumLayers: layers, NumHeads: heads, NumKVHeads: keys,
		HeadDim: width, RMSNormEps: 1e-6, TieWordEmbeddings: tied, QKVBias: true,
	}
	for i := range width / 2 {
		c.InvFreq = append(c.InvFreq, float32(math.Pow(1e6, -float64(2*i)/float64(width))))
	}
	return c
}

// modelShape is the model called name in the table of training steps.
func modelShape(name string) (ModelConfig, error) {
	switch name {
	case "tiny":
		return qwen25(64, 128, 2, 4, 2, 16, 512, true), nil
	case "135M":
		return smolLM2(), nil
	case "0.5B":
		return qwen25(896, 4864, 24, 14, 2, 64, 151936, true), nil
	case "1.5B":
		return qwen25(1536, 8960, 28, 12, 2, 128, 151936, true), nil
	case "3B":
		return qwen25(2048, 11008, 36, 16, 2, 128, 151936, true), nil
	case "7B":
		return qwen25(3584, 18944, 28, 28, 4, 128, 152064, false), nil
	}
	return ModelConfig{}, fmt.Errorf("model %q is unknown, allowed are tiny, 135M, 0.5B, 1.5B, 3B and 7B", name)
}

// packedShape makes the batch that text names, of random tokens. "8x1024" is eight sequences of 1,024 tokens, each of which but the
// last is predicted. "8x192+8x104" is eight prompts of 192 tokens with eight answers of 104 behind each, whose tokens are predicted:
// 72 segments.
func packedShape(text string, vocab int) (*Batch, error) {
	var roots, length, answers, answer int
	if n, err := fmt.Sscanf(text, "%dx%d+%dx%d", &roots, &length, &answers, &answer); n < 2 || n == 3 || n == 2 && strings.Contains(text, "+") {
		return nil, fmt.Errorf("batch %q: 8x1024 or 8x192+8x104 were expected (%v)", text, err)
	}
	if min(roots, length) < 1 || roots*(length+answers*answer) > 1<<20 || answers > 0 && answer < 1 {
		return nil, fmt.Errorf("batch %q: one to 2^20 tokens were expected", text)
	}
	b := &Batch{Temperature: 1}
	random := rand.New(rand.NewPCG(1, 2))
	add := func(parent, position, length int) {
		b.SegmentStart = append(b.SegmentStart, int32(len(b.Tokens)))
		b.SegmentLength = append(b.SegmentLength, int32(length))
		b.SegmentParent = append(b.SegmentParent, int32(parent))
		for i := range length {
			b.Tokens = append(b.Tokens, random.Int32N(int32(vocab)))
			b.Positions = append(b.Positions, int32(position+i))
		}
	}
	predict := func(from, target int) {
		b.RowToken = append(b.RowToken, int32(from))
		b.RowTarget = append(b.RowTarget, b.Tokens[target])
	}
	for range roots {
		root, start := len(b.SegmentStart), len(b.Tokens)
		add(-1, 0, length)
		for i := 1; answers == 0 && i < length; i++ {
			predict(start+i-1, start+i)
		}
		for range answers {
			first := len(b.Tokens)
			add(root, length, answer)
			predict(start+length-1, first)
			for i := 1; i < answer; i++ {
				predict(first+i-1, first+i)
			}
		}
	}
	return b, nil
}

// pairsOf counts pairs of a query and a key that it attends to.
func pairsOf(b *Batch) (pairs float64) {
	context := make([]float64, len(b.SegmentStart))
	for i, n := range b.SegmentLength {
		if p := b.SegmentParent[i]; p >= 0 {
			context[i] = context[p] + float64(b.SegmentLength[p])
		}
		pairs += float64(n) * (context[i] + float64(n+1)/2)
	}
	return pairs
}

// modelFLOP counts the multiplications and additions that a training step asks for: those of the matrices and of attention, forward
// once and backward twice that. Nothing is counted twice that is computed twice: neither the head's logits, nor the scores, nor
// layers that checkpoints compute again. A frozen base model has no gradients of its weights; the adapter's own are left out.
func modelFLOP(c ModelConfig, b *Batch, frozen bool) float64 {
	d, f, e := float64(c.HiddenSize), float64(c.IntermediateSize), float64(c.HeadDim)
	h, k := float64(c.NumHeads), float64(c.NumKVHeads)
	layer := d*(h+2*k)*e + h*e*d + 3*d*f
	each := 6.0 // forward, gradient of the input, gradient of the weight
	if frozen {
		each = 4
	}
	matrices := each * (float64(c.NumLayers)*layer*float64(len(b.Tokens)) + float64(c.VocabSize)*d*float64(len(b.RowToken)))
	return matrices + 12*pairsOf(b)*h*e*float64(c.NumLayers)
}

// stepRow is a row of the table: one JSON line. Times are milliseconds, memory is GiB.
type stepRow struct {
	Model      string `json:"model"`
	Batch      string `json:"batch"`
	Device     string `json:"device"`
	DType      string `json:"dtype"`
	Torch      string `json:"torch"`
	Attention  string `json:"attention"`  // what AGENTFLY_ATTENTION says, "" for the default
	Checkpoint int    `json:"checkpoint"` // layers that are computed again
	Adapter    int    `json:"adapter"`    // rank, 0 without
	Micro      int    `json:"micro"`      // micro-batches of a step, each of Batch
	Parameters int64  `json:"parameters"`
	Tokens     int    `json:"tokens"`   // of a micro-batch
	Rows       int    `json:"rows"`     // of a micro-batch
	Segments   int    `json:"segments"` // of a micro-batch

	Steps       []float64 `json:"steps_ms"` // each, behind two that are not counted
	MS          float64   `json:"ms"`       // their median
	TokensS     float64   `json:"tokens_s"`
	TFLOP       float64   `json:"tflop"` // modelFLOP, of all micro-batches
	TFLOPS      float64   `json:"tflops"`
	MFU         float64   `json:"mfu"` // against Peak
	Peak        float64   `json:"peak_tflops"`
	Allocated   float64   `json:"peak_gib"` // on a CPU of the process
	Reserved    float64   `json:"reserved_gib"`
	LossFirst   float64   `json:"loss_first"`
	LossLast    float64   `json:"loss_last"`
	SecondsInit float64   `json:"init_s"`

	Profiled float64               `json:"profiled_ms"` // a step whose stages wait for the device
	Stages   map[string]stageSplit `json:"stages"`
	Launches int                   `json:"launches"` // kernels and copies of a step
	Trace    *trace                `json:"trace,omitempty"`
	Busy     float64               `json:"busy"` // kernels' and copies' time of the median step's
	Failed   map[string]string     `json:"failed,omitempty"`
}

// stageSplit is a stage's part of the profiled step; "other" is what no stage counts.
type stageSplit struct {
	Forward  float64 `json:"forward_ms"`
	Backward float64 `json:"backward_ms"` // with the optimizer's step
	Calls    int     `json:"calls"`
}

// stepSetup is what a row is measured with; the environment of scripts/gpu_check.sh says it.
type stepSetup struct {
	model, batch, device, dtype       string
	checkpoint, adapter, micro, steps int     // checkpoint as of ForwardOptions
	peak                              float64 // TFLOP/s
}

// measured is the model, the micro-batch and what steps on them.
type measured struct {
	model     *Model
	optimizer *Optimizer
	batch     *Batch
	micro     int // how often a step takes the batch
	options   ForwardOptions
	weight    []float32 // of a row: its part of the step's loss
}

// step runs one and returns the loss, the mean of the rows' negative logprobs, with the time of its halves once the device is done:
// of several micro-batches the forwards' calls, whose kernels the device may run beside the calls of the backward before.
func (s *measured) step() (loss float64, forward, backward time.Duration, err error) {
	for range s.micro {
		part, first, second, err := s.microBatch()
		if err != nil {
			return 0, 0, 0, err
		}
		loss, forward, backward = loss+part, forward+first, backward+second
	}
	start := time.Now()
	if _, err := s.optimizer.Step(1e-5, 1); err != nil {
		return 0, 0, 0, err
	}
	least := slices.MinFunc(s.model.Trained(), func(a, b ParameterInfo) int { return cmp.Compare(a.Elements(), b.Elements()) })
	if _, err := s.model.Parameter(least.Name); err != nil { // waits for the optimizer's last kernel, and copies little
		return 0, 0, 0, err
	}
	return loss, forward, backward + time.Since(start), nil
}

// microBatch adds the gradients of one, and waits for its loss.
func (s *measured) microBatch() (loss float64, forward, backward time.Duration, err error) {
	start := time.Now()
	out, err := s.model.Forward(s.batch, s.options)
	if err != nil {
		return 0, 0, 0, err
	}
	defer out.Close()
	w, err := FromFloats(s.model, s.weight)
	if err != nil {
		return 0, 0, 0, err
	}
	defer CloseTensor(w)
	sum, err := MaskedSum(out.Logprobs, w)
	if err != nil {
		return 0, 0, 0, err
	}
	defer CloseTensor(sum)
	middle := time.Now()
	if err := Backward(sum); err != nil {
		return 0, 0, 0, err
	}
	value, err := Scalar(sum)
	if err != nil {
		return 0, 0, 0, err
	}
	return float64(value), middle.Sub(start), time.Since(middle), nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// measureStep fills a row. What fails behind the timed steps is named in Failed and leaves their figures.
func measureStep(t *testing.T, s stepSetup) stepRow {
	t.Helper()
	runtime.LockOSThread() // the trace is of one thread
	defer runtime.UnlockOSThread()
	c, err := modelShape(s.model)
	require.NoError(t, err)
	b, err := packedShape(s.batch, c.VocabSize)
	require.NoError(t, err)
	began := time.Now()
	m, err := NewModel(c, s.device)
	require.NoError(t, err)
	defer m.Close()
	require.NoError(t, m.Init(1, 0.02))
	if s.adapter > 0 {
		require.NoError(t, m.AddAdapter(AdapterConfig{Rank: s.adapter, Alpha: float64(2 * s.adapter)}))
	}
	if s.dtype == "bf16" {
		require.NoError(t, m.SetDType(BF16))
	}
	o, err := NewOptimizer(m, DefaultAdamW(), nil)
	require.NoError(t, err)
	defer o.Close()
	run := &measured{model: m, optimizer: o, batch: b, micro: s.micro, options: ForwardOptions{Grad: true, Checkpoint: s.checkpoint}}
	for range b.RowToken {
		run.weight = append(run.weight, -1/float32(s.micro*len(b.RowToken)))
	}
	r := stepRow{
		Model: s.model, Batch: s.batch, Device: s.device, DType: s.dtype, Torch: TorchVersion(), Attention: os.Getenv("AGENTFLY_ATTENTION"),
		Checkpoint: min(s.checkpoint, c.NumLayers), Adapter: s.adapter, Micro: s.micro, Tokens: len(b.Tokens), Rows: len(b.RowToken), Segments: len(b.SegmentStart),
		Peak: s.peak, Failed: map[string]string{}, SecondsInit: time.Since(began).Seconds(),
	}
	for _, p := range m.Parameters() {
		r.Parameters += p.Elements()
	}
	for i := range 2 + s.steps {
		loss, forward, backward, err := run.step()
		require.NoError(t, err, "step %d", i)
		if i == 0 {
			r.LossFirst = loss
		}
		if r.LossLast = loss; i >= 2 {
			r.Steps = append(r.Steps, ms(forward+backward))
		}
	}
	sorted := slices.Sorted(slices.Values(r.Steps))
	r.MS = sorted[len(sorted)/2]
	r.TokensS = float64(s.micro*r.Tokens) / r.MS * 1e3
	r.TFLOP = float64(s.micro) * modelFLOP(c, b, s.adapter > 0) / 1e12
	r.TFLOPS = r.TFLOP / r.MS * 1e3
	r.MFU = r.TFLOPS / s.peak
	if s.device == "cpu" {
		r.Allocated = float64(peakMiB(t)) / 1024
	} else if memory, err := memoryOf(s.device, false); err != nil {
		r.Failed["memory"] = err.Error()
	} else {
		r.Allocated, r.Reserved = float64(memory.Peak)/(1<<30), float64(memory.PeakReserved)/(1<<30)
	}
	r.profile(run)
	r.trace(run)
	return r
}

// profile runs a step whose stages wait for the device.
func (r *stepRow) profile(run *measured) {
	startProfile()
	out, err := run.model.Forward(run.batch, run.options) // its stages alone: a forward takes about a third of a step
	forward := stopProfile()
	out.Close()
	if err != nil {
		r.Failed["stages"] = err.Error()
		return
	}
	startProfile()
	_, first, second, err := run.step()
	all := stopProfile()
	if err != nil {
		r.Failed["stages"] = err.Error()
		return
	}
	r.Profiled = ms(first + second)
	r.Stages = map[string]stageSplit{}
	rest := first + second
	for name, a := range all {
		f := min(time.Duration(run.micro)*forward[name].Time, a.Time)
		r.Stages[name] = stageSplit{ms(f), ms(a.Time - f), a.Calls}
		rest -= a.Time
	}
	r.Stages["other"] = stageSplit{Backward: ms(rest)}
}

// trace runs a step under libtorch's profiler.
func (r *stepRow) trace(run *measured) {
	err := startTrace(r.Device)
	if err == nil {
		_, _, _, failed := run.step()
		var t trace
		if t, err = stopTrace(40); err == nil {
			r.Trace, r.Launches = &t, t.Kernels+t.Copies
			r.Busy = (t.KernelSeconds + t.CopySeconds) * 1e3 / r.MS
		}
		err = cmp.Or(failed, err)
	}
	if err != nil {
		r.Failed["trace"] = err.Error()
	}
}

// TestTrainingStep measures one row and appends it to the file that AGENTFLY_STEP_OUT names. AGENTFLY_STEP is
// "MODEL BATCH DTYPE [checkpoint[=LAYERS]] [adapter=RANK] [micro=BATCHES] [steps=N]", as in "0.5B 8x1024 bf16 checkpoint".
func TestTrainingStep(t *testing.T) {
	path := os.Getenv("AGENTFLY_STEP_OUT")
	if path == "" {
		t.Skip("a benchmark: scripts/gpu_check.sh runs it, and sets AGENTFLY_STEP_OUT and AGENTFLY_STEP")
	}
	s, err := parseSetup(os.Getenv("AGENTFLY_STEP"))
	require.NoError(t, err)
	s.device = testDevice()
	line, err := json.Marshal(measureStep(t, s))
	require.NoError(t, err)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	_, err = f.Write(append(line, '\n'))
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func parseSetup(text string) (s stepSetup, err error) {
	s.micro, s.steps, s.peak = 1, 5, 989 // an H100's and H200's bfloat16, dense
	if v := os.Getenv("AGENTFLY_PEAK_TFLOPS"); v != "" {
		if s.peak, err = strconv.ParseFloat(v, 64); err != nil || !(s.peak > 0) {
			return s, fmt.Errorf("AGENTFLY_PEAK_TFLOPS is %q, a number above 0 was expected", v)
		}
	}
	words := strings.Fields(text)
	if len(words) < 3 || words[2] != "fp32" && words[2] != "bf16" {
		return s, fmt.Errorf("AGENTFLY_STEP is %q, as in %q was expected", text, "0.5B 8x1024 bf16 checkpoint")
	}
	s.model, s.batch, s.dtype = words[0], words[1], words[2]
	for _, word := range words[3:] {
		key, value, _ := strings.Cut(word, "=")
		n, bad := strconv.Atoi(value)
		switch {
		case word == "checkpoint":
			s.checkpoint = AllLayers
		case key == "checkpoint" && bad == nil && n > 0:
			s.checkpoint = n
		case key == "adapter" && bad == nil && n > 0:
			s.adapter = n
		case key == "micro" && bad == nil && n > 0:
			s.micro = n
		case key == "steps" && bad == nil && n > 0:
			s.steps = n
		default:
			return s, fmt.Errorf("AGENTFLY_STEP: %q is unknown, allowed are checkpoint, checkpoint=LAYERS, adapter=RANK, micro=BATCHES and steps=N", word)
		}
	}
	return s, nil
}

// The table's FLOP and batches against counts by hand.
func TestShapesOfTheTable(t *testing.T) {
	c := ModelConfig{VocabSize: 10, HiddenSize: 4, IntermediateSize: 6, NumLayers: 2, NumHeads: 2, NumKVHeads: 1, HeadDim: 2}
	b, err := packedShape("2x3", 10)
	require.NoError(t, err)
	require.Equal(t, []int32{0, 3}, b.SegmentStart)
	require.Equal(t, []int32{0, 1, 3, 4}, b.RowToken)
	require.Equal(t, []int32{b.Tokens[1], b.Tokens[2], b.Tokens[4], b.Tokens[5]}, b.RowTarget)
	require.Equal(t, 12.0, pairsOf(b), "1 + 2 + 3, twice")
	// a layer: qkv 4 x 8, o 4 x 4, gate, up and down 3 x 4 x 6; the head 4 x 10
	require.Equal(t, 6.0*(2*120*6+40*4)+12*12*2*2*2, modelFLOP(c, b, false))
	require.Equal(t, 4.0*(2*120*6+40*4)+12*12*2*2*2, modelFLOP(c, b, true))

	b, err = packedShape("1x3+2x2", 10)
	require.NoError(t, err)
	require.Equal(t, []int32{0, 3, 5}, b.SegmentStart)
	require.Equal(t, []int32{-1, 0, 0}, b.SegmentParent)
	require.Equal(t, []int32{0, 1, 2, 3, 4, 3, 4}, b.Positions)
	require.Equal(t, []int32{2, 3, 2, 5}, b.RowToken)
	require.Equal(t, []int32{b.Tokens[3], b.Tokens[4], b.Tokens[5], b.Tokens[6]}, b.RowTarget)
	require.Equal(t, 6.0+2*(4+5), pairsOf(b))
	for _, text := range []string{"8x1024", "1x8192", "8x192+8x104"} {
		b, err := packedShape(text, 151936)
		require.NoError(t, err)
		require.Len(t, b.Tokens, 8192)
		require.NoError(t, b.Validate(151936))
	}
	for _, bad := range []string{"", "8", "8x", "0x5", "2x3+", "2x3+1", "2x3+1x", "2x3+1x0", "9999x9999"} {
		_, err := packedShape(bad, 10)
		require.Error(t, err, bad)
	}
	for name, billions := range map[string]float64{"135M": 0.1345, "0.5B": 0.494, "1.5B": 1.544, "3B": 3.086, "7B": 7.616} {
		c, err := modelShape(name)
		require.NoError(t, err)
		d, f, e, h, k := c.HiddenSize, c.IntermediateSize, c.HeadDim, c.NumHeads, c.NumKVHeads
		n := c.NumLayers*(d*(h+2*k)*e+(h+2*k)*e+h*e*d+3*d*f+2*d) + d + c.VocabSize*d
		if name == "135M" {
			n -= c.NumLayers * (h + 2*k) * e // no biases
		}
		if !c.TieWordEmbeddings {
			n += c.VocabSize * d
		}
		require.InDelta(t, billions, float64(n)/1e9, 0.002, name)
	}
	_, err = modelShape("8B")
	require.ErrorContains(t, err, "allowed are tiny, 135M")
}

func TestSetupOfAStep(t *testing.T) {
	t.Setenv("AGENTFLY_PEAK_TFLOPS", "")
	s, err := parseSetup("0.5B 8x1024 bf16 checkpoint adapter=16 steps=3")
	require.NoError(t, err)
	require.Equal(t, stepSetup{model: "0.5B", batch: "8x1024", dtype: "bf16", checkpoint: AllLayers, adapter: 16, micro: 1, steps: 3, peak: 989}, s)
	s, err = parseSetup("0.5B 8x1024 bf16 checkpoint=7 micro=4")
	require.NoError(t, err)
	require.Equal(t, []int{7, 4}, []int{s.checkpoint, s.micro})
	for _, bad := range []string{"", "0.5B 8x1024 bf16 checkpoint=0", "0.5B 8x1024", "0.5B 8x1024 fp16", "0.5B 8x1024 bf16 adapter=0", "0.5B 8x1024 bf16 micro=0", "0.5B 8x1024 bf16 quickly"} {
		_, err := parseSetup(bad)
		require.ErrorContains(t, err, "AGENTFLY_STEP", bad)
	}
	t.Setenv("AGENTFLY_PEAK_TFLOPS", "fast")
	_, err = parseSetup("0.5B 8x1024 bf16")
	require.ErrorContains(t, err, "AGENTFLY_PEAK_TFLOPS")
}

// A small step on the CPU: every stage has its time, the stages add up to the step, and the profiler sees the operators. The loss of
// a batch that is trained again and again falls, with an adapter in bfloat16 after enough steps that
// rounding does not hide it.
func TestAStepIsMeasured(t *testing.T) {
	for _, s := range []stepSetup{
		{model: "tiny", batch: "2x24", device: "cpu", dtype: "fp32", micro: 3, steps: 3, peak: 0.1},
		{model: "tiny", batch: "2x16+3x8", device: "cpu", dtype: "bf16", checkpoint: AllLayers, adapter: 2, micro: 1, steps: 100, peak: 0.1},
	} {
		r := measureStep(t, s)
		require.Empty(t, r.Failed)
		require.Len(t, r.Steps, s.steps)
		require.Positive(t, r.MS)
		require.Less(t, r.LossLast, r.LossFirst)
		require.InDelta(t, math.Log(512), r.LossFirst, 0.2, "random weights know nothing")
		require.InDelta(t, r.TFLOP/r.MS*1e3/0.1, r.MFU, 1e-9)
		require.InDelta(t, float64(s.micro*r.Tokens)/r.MS*1e3, r.TokensS, 1e-9)
		require.Positive(t, r.Allocated)
		sum := 0.0
		for _, name := range append(stageNames[:], "other") {
			require.Contains(t, r.Stages, name)
			sum += r.Stages[name].Forward + r.Stages[name].Backward
			if name != "other" {
				require.Positive(t, r.Stages[name].Calls, name)
			}
		}
		require.InDelta(t, r.Profiled, sum, 0.1)
		require.Less(t, r.Stages["other"].Backward, r.Profiled)
		layers := 2
		attention := 2*layers + min(s.checkpoint, layers) // forward and backward, and forward again
		require.Equal(t, s.micro*attention, r.Stages["attention"].Calls)
		require.Equal(t, 1, r.Stages["optimizer"].Calls)
		require.Equal(t, 2*s.micro, r.Stages["head"].Calls)
		require.Zero(t, r.Launches, "a CPU has no kernels")
		require.Positive(t, r.Trace.Operators)
		require.NotEmpty(t, r.Trace.Busiest)
		for i, k := range r.Trace.Busiest {
			require.Positive(t, k.Calls)
			require.True(t, i == 0 || k.Seconds <= r.Trace.Busiest[i-1].Seconds)
		}
	}
	startProfile()
	require.Zero(t, stopProfile()["linear"].Calls, "a start drops what was counted")
}

// A trace that is no trace, and memory of no device, are refused.
func TestTraceRefuses(t *testing.T) {
	_, err := stopTrace(1)
	require.ErrorContains(t, err, "no trace was started")
	require.ErrorContains(t, startTrace("tpu"), "is unknown")
	require.ErrorContains(t, startTrace("cuda:99"), "is not there")
	_, err = memoryOf("cpu", false)
	require.ErrorContains(t, err, "only the memory of a CUDA device")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.NoError(t, startTrace("cpu"))
	require.ErrorContains(t, startTrace("cpu"), "running already")
	_, err = stopTrace(0)
	require.NoError(t, err)
}
