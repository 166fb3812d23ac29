//go:build torch

package cgo

import (
	"context"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/wangkuiyi/gotorch"
)

func tiny(t testing.TB) (*Model, *Batch) {
	t.Helper()
	g := loadGolden(t, "smollm")
	return g.model(t), plain(g.IDs[:20], 1)
}

func must(t testing.TB) func(gotorch.Tensor, error) gotorch.Tensor {
	return func(x gotorch.Tensor, err error) gotorch.Tensor {
		t.Helper()
		require.NoError(t, err)
		return x
	}
}

// A NaN where the weight is 0 touches neither the value nor any gradient.
func TestMaskedNaN(t *testing.T) {
	m, b := tiny(t)
	ok := must(t)
	o, err := NewOptimizer(m, DefaultAdamW(), nil)
	require.NoError(t, err)
	defer o.Close()
	n := len(b.RowToken)
	weight, clean, dirty := make([]float32, n), make([]float32, n), make([]float32, n)
	for i := range n {
		weight[i] = float32(i % 3) // 0 at every third
		if i%3 == 0 {
			dirty[i] = float32(math.NaN())
		}
	}
	var losses []float32
	var grads []map[string][]float32
	for _, extra := range [][]float32{clean, dirty} {
		out, err := m.Forward(b, ForwardOptions{Grad: true})
		require.NoError(t, err)
		sum := gotorch.Mul(gotorch.Add(out.Logprobs, ok(FromFloats(m, extra)), 1), ok(FromFloats(m, weight)))
		loss := ok(MaskedSum(gotorch.Add(sum, ok(FromFloats(m, extra)), 1), ok(FromFloats(m, weight))))
		v, err := Scalar(loss)
		require.NoError(t, err)
		losses = append(losses, v)
		require.NoError(t, Backward(loss))
		grads = append(grads, gradients(t, m))
		require.NoError(t, o.ZeroGrad())
	}
	require.False(t, math.IsNaN(float64(losses[0])))
	require.Equal(t, losses[0], losses[1])
	require.Equal(t, grads[0], grads[1])
	empty, err := Scalar(ok(MaskedSum(ok(FromFloats(nil, dirty)), ok(FromFloats(nil, clean)))))
	require.NoError(t, err)
	require.Equal(t, float32(0), empty)
}

func bytesOf(v []float32) []byte {
	out := make([]byte, 0, 4*len(v))
	for _, x := range v {
		u := math.Float32bits(x)
		out = append(out, byte(u), byte(u>>8), byte(u>>16), byte(u>>24))
	}
	return out
}

func TestNonFiniteGradient(t *testing.T) {
	m, b := tiny(t)
	ok := must(t)
	o, err := NewOptimizer(m, DefaultAdamW(), nil)
	require.NoError(t, err)
	defer o.Close()
	snapshot := func() map[string][]float32 {
		all := map[string][]float32{}
		for _, p := range m.Parameters() {
			v, err := m.Parameter(p.Name)
			require.NoError(t, err)
			s, err := o.State(p.Name, ExpAvgSq)
			require.NoError(t, err)
			all[p.Name] = append(v, s...)
		}
		return all
	}
	waveLoss(t, m, b, ForwardOptions{})
	_, err = o.Step(1e-3, 1)
	require.NoError(t, err)
	before := snapshot()
	for _, bad := range []float64{math.Inf(1), math.NaN()} {
		out, err := m.Forward(b, ForwardOptions{Grad: true})
		require.NoError(t, err)
		require.NoError(t, Backward(gotorch.Sum(ok(Affine(out.Logprobs, bad, 0)))))
		_, err = o.Step(1e-3, 1)
		require.ErrorIs(t, err, ErrNonFinite)
		require.EqualError(t, err, "cgo: step: the gradient norm is not finite; gradients are dropped, parameters are unchanged")
		require.Equal(t, int64(1), o.StepCount())
		require.Equal(t, before, snapshot())
		for name, g := range gradients(t, m) {
			require.Equal(t, make([]float32, len(g)), g, name)
		}
	}
	waveLoss(t, m, b, ForwardOptions{})
	norm, err := o.Step(1e-3, 1)
	require.NoError(t, err)
	require.Greater(t, norm, 0.0)
	require.NotEqual(t, before, snapshot())
}

func TestOptimizerStateRoundTrip(t *testing.T) {
	m, b := tiny(t)
	one, err := NewOptimizer(m, DefaultAdamW(), nil)
	require.NoError(t, err)
	waveLoss(t, m, b, ForwardOptions{})
	_, err = one.Step(1e-3, 0)
	require.NoError(t, err)
	two, err := NewOptimizer(m, DefaultAdamW(), nil)
	require.NoError(t, err)
	for _, p := range m.Parameters() {
		for _, which := range []Moment{ExpAvg, ExpAvgSq} {
			s, err := one.State(p.Name, which)
			require.NoError(t, err)
			require.NoError(t, two.SetState(p.Name, which, s))
			back, err := two.State(p.Name, which)
			require.NoError(t, err)
			require.Equal(t, s, back)
		}
	}
	require.NoError(t, two.SetStepCount(one.StepCount()))
	require.Equal(t, int64(1), two.StepCount())
	// The same gradient twice: both optimizers must move the parameters from the same start to the same place.
	start := map[string][]float32{}
	for _, p := range m.Parameters() {
		v, err := m.Parameter(p.Name)
		require.NoError(t, err)
		start[p.Name] = v
	}
	var ends []map[string][]float32
	for _, o := range []*Optimizer{one, two} {
		for _, p := range m.Parameters() {
			require.NoError(t, m.SetParameter(p.Name, F32, bytesOf(start[p.Name]), p.Shape))
		}
		m.Changed()
		waveLoss(t, m, b, ForwardOptions{})
		_, err := o.Step(1e-3, 0)
		require.NoError(t, err)
		end := map[string][]float32{}
		for _, p := range m.Parameters() {
			end[p.Name], err = m.Parameter(p.Name)
			require.NoError(t, err)
		}
		ends = append(ends, end)
		require.NoError(t, o.Close())
		require.NoError(t, o.Close())
	}
	require.Equal(t, ends[0], ends[1])
	require.NotEqual(t, start, ends[0])
}

func TestHalfPrecisionParameters(t *testing.T) {
	m, _ := tiny(t)
	shape := []int64{36}
	bf16, f16 := make([]byte, 72), make([]byte, 72)
	for i := range 36 {
		bf16[2*i], bf16[2*i+1] = 0xc0, 0x3f // 1.5
		f16[2*i], f16[2*i+1] = 0x00, 0xbe   // -1.5
	}
	for _, c := range []struct {
		dtype DType
		data  []byte
		want  float32
	}{{BF16, bf16, 1.5}, {F16, f16, -1.5}} {
		require.NoError(t, m.SetParameter("model.norm.weight", c.dtype, c.data, shape))
		v, err := m.Parameter("model.norm.weight")
		require.NoError(t, err)
		for _, x := range v {
			require.Equal(t, c.want, x)
		}
	}
}

// live runs f and asserts that it leaves no object of the C++ library behind.
func live(t *testing.T, f func()) {
	t.Helper()
	settle := func() {
		for range 3 { // finalizers run after a collection returns
			runtime.GC()
			Drain()
		}
	}
	settle()
	before := LiveHandles()
	f()
	settle()
	require.Equal(t, before, LiveHandles())
}

func TestErrorsAndHandles(t *testing.T) {
	live(t, func() {
		g := loadGolden(t, "smollm")
		m, err := NewModel(g.Config, "cpu")
		require.NoError(t, err)
		require.NoError(t, m.Init(1, 0.1))
		b := plain(g.IDs[:20], 1)
		ok := must(t)

		out, err := m.Forward(b, ForwardOptions{Grad: true})
		require.NoError(t, err)
		logprobs := out.Logprobs
		require.Nil(t, out.Entropy.T)
		require.Nil(t, out.Values.T)
		require.ErrorContains(t, Backward(logprobs), "cgo: backward: the loss is no scalar, it has 19 elements")
		loss := gotorch.Sum(logprobs)
		require.NoError(t, Backward(loss))
		require.ErrorContains(t, Backward(loss), "this forward was already used by a backward")
		again := gotorch.Sum(logprobs)
		require.ErrorContains(t, Backward(again), "this forward was already used by a backward")

		stale, err := m.Forward(b, ForwardOptions{Grad: true})
		require.NoError(t, err)
		m.Changed()
		require.ErrorContains(t, Backward(gotorch.Sum(stale.Logprobs)), "parameters changed since the forward")
		fixed, err := m.Forward(b, ForwardOptions{})
		require.NoError(t, err)
		require.ErrorContains(t, Backward(gotorch.Sum(fixed.Logprobs)), "no autograd history")

		three, two := ok(FromFloats(m, []float32{1, 2, 3})), ok(FromFloats(m, []float32{1, 2}))
		_, err = Minimum(three, two)
		require.ErrorContains(t, err, "must match")
		_, err = MaskedSum(three, two)
		require.ErrorIs(t, err, ErrInput)
		_, err = Clamp(three, 2, 1)
		require.ErrorIs(t, err, ErrInput)
		_, err = FromFloats(m, []float32{1, 2, 3}, 2, 2)
		require.ErrorIs(t, err, ErrInput)
		CloseTensor(two)
		CloseTensor(two)
		CloseTensor(gotorch.Tensor{})
		_, err = Exp(two)
		require.EqualError(t, err, "cgo: exp: tensor is closed or was never made")
		_, err = Where(gotorch.Tensor{}, three, three)
		require.ErrorIs(t, err, ErrInput)
		_, err = Read(two)
		require.ErrorIs(t, err, ErrInput)
		require.ErrorIs(t, Backward(two), ErrInput)

		require.ErrorContains(t, m.SetParameter("model.norm.weight", F32, make([]byte, 4*35), []int64{35}), "parameter model.norm.weight has shape [36], the data has [35]")
		require.ErrorIs(t, m.SetParameter("model.norm.weight", F32, make([]byte, 5), []int64{36}), ErrInput)
		require.ErrorIs(t, m.SetParameter("model.norm.weight", I32, make([]byte, 144), []int64{36}), ErrInput)
		require.ErrorContains(t, m.SetParameter("no.such", F32, make([]byte, 4), []int64{1}), "no parameter no.such")
		require.ErrorContains(t, m.SetParameter("lm_head.weight", F32, make([]byte, 4), []int64{1}), "ties it")
		_, err = m.Gradient("no.such")
		require.ErrorIs(t, err, ErrInput)
		_, err = NewOptimizer(m, AdamWConfig{Beta1: 1, Eps: 1}, nil)
		require.ErrorIs(t, err, ErrInput)
		o, err := NewOptimizer(m, DefaultAdamW(), nil)
		require.NoError(t, err)
		_, err = o.Step(math.NaN(), 1)
		require.ErrorIs(t, err, ErrInput)
		_, err = o.Step(1, math.NaN())
		require.ErrorIs(t, err, ErrInput)
		require.ErrorIs(t, o.SetStepCount(-1), ErrInput)

		// A graph outlives its model; the order of closing is free.
		late, err := m.Forward(b, ForwardOptions{Grad: true})
		require.NoError(t, err)
		require.NoError(t, m.Close())
		require.NoError(t, m.Close())
		require.NoError(t, Backward(gotorch.Sum(late.Logprobs)))
		require.NoError(t, o.Close())
		_, _, err = m.Logprobs(b)
		require.ErrorIs(t, err, ErrClosed)
		_, err = o.Step(1, 1)
		require.ErrorIs(t, err, ErrClosed)
		require.Nil(t, m.Parameters())
		_, err = m.Parameter("model.norm.weight")
		require.ErrorIs(t, err, ErrClosed)
	})
}

func TestBadConfigs(t *testing.T) {
	good := loadGolden(t, "smollm").Config
	for name, change := range map[string]func(c *ModelConfig){
		"vocab_size is 0":             func(c *ModelConfig) { c.VocabSize = 0 },
		"num_layers is -1":            func(c *ModelConfig) { c.NumLayers = -1 },
		"not a multiple":              func(c *ModelConfig) { c.NumHeads = 8 },
		"head_dim is odd":             func(c *ModelConfig) { c.HeadDim = 5 },
		"InvFreq has 0 values":        func(c *ModelConfig) { c.InvFreq = nil },
		"rms_norm_eps":                func(c *ModelConfig) { c.RMSNormEps = math.NaN() },
		"attention_factor":            func(c *ModelConfig) { c.AttentionFactor = -1 },
		"inv_freq[1] is not finite":   func(c *ModelConfig) { c.InvFreq[1] = float32(math.Inf(1)) },
		"intermediate_size is 524289": func(c *ModelConfig) { c.IntermediateSize = 1<<19 + 1 },
	} {
		c := good
		c.InvFreq = append([]float32(nil), good.InvFreq...)
		change(&c)
		_, err := NewModel(c, "cpu")
		require.ErrorContains(t, err, name)
		require.ErrorIs(t, err, ErrInput)
	}
	for _, device := range []string{"gpu", "cuda:", "cuda:-1", "cuda:99"} {
		_, err := NewModel(good, device)
		require.ErrorIs(t, err, ErrInput, device)
	}
	huge := good
	huge.HiddenSize, huge.IntermediateSize, huge.NumLayers = 1<<17, 1<<19, 1<<12 // 3 PB: no address space holds it
	_, err := NewModel(huge, "cpu")
	require.Error(t, err)
}

// gotorch's nested expressions while the collector runs all the time: without the queue of Drain this crashes.
func TestCollectorStorm(t *testing.T) {
	w := NewWorker()
	defer w.Close()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	}()
	n := []int64{1 << 20}
	err := w.Do(context.Background(), func() error {
		for range 200 {
			c := gotorch.Mul(gotorch.Mul(gotorch.Full(n, 2, false), gotorch.Full(n, 3, false)), gotorch.Full(n, 4, false))
			e, err := Exp(gotorch.Sub(c, gotorch.Full(n, 24, false), 1))
			if err != nil {
				return err
			}
			v, err := Scalar(gotorch.Mean(e))
			if err != nil {
				return err
			}
			if v != 1 {
				t.Errorf("mean is %v", v)
			}
			Drain()
		}
		return nil
	})
	close(stop)
	<-stopped
	require.NoError(t, err)
}

func residentMiB(t *testing.T) int {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skipf("no /proc/self/statm on this system: %v", err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(raw))[1])
	require.NoError(t, err)
	return pages * os.Getpagesize() >> 20
}

// 200 models, forwards, backwards and steps, all closed: memory stays.
func TestNoGrowth(t *testing.T) {
	g := loadGolden(t, "smollm")
	g.Config.HiddenSize, g.Config.VocabSize = 256, 2000
	b := plain(g.IDs, 1)
	ok := must(t)
	round := func() {
		m, err := NewModel(g.Config, "cpu")
		require.NoError(t, err)
		require.NoError(t, m.Init(1, 0.1))
		o, err := NewOptimizer(m, DefaultAdamW(), nil)
		require.NoError(t, err)
		out, err := m.Forward(b, ForwardOptions{Grad: true, Entropy: true})
		require.NoError(t, err)
		weight := ok(FromFloats(m, make([]float32, len(b.RowToken))))
		loss := ok(MaskedSum(out.Logprobs, weight))
		require.NoError(t, Backward(loss))
		_, err = o.Step(1e-3, 1)
		require.NoError(t, err)
		out.Close()
		CloseTensor(weight)
		CloseTensor(loss)
		require.NoError(t, o.Close())
		require.NoError(t, m.Close())
	}
	live(t, func() {
		for range 50 {
			round()
		}
		before := residentMiB(t)
		for range 200 {
			round()
		}
		grown := residentMiB(t) - before
		t.Logf("%d MiB before, grown by %d", before, grown)
		require.Less(t, grown, 32)
	})
}

// Values and gradients of the operations on a few numbers; the model's logprobs carry the history.
func TestOperations(t *testing.T) {
	ok := must(t)
	x := ok(FromFloats(nil, []float32{-2, 0, 0.5, 3}))
	y := ok(FromFloats(nil, []float32{1, 0, -1, 3}))
	read := func(v gotorch.Tensor, err error) []float32 {
		t.Helper()
		require.NoError(t, err)
		out, err := Read(v)
		require.NoError(t, err)
		return out
	}
	require.InDeltaSlice(t, []float64{math.Exp(-2), 1, math.Exp(0.5), math.Exp(3)}, wide(read(Exp(x))), 1e-6)
	require.Equal(t, []float32{2, 0, -0.5, -3}, read(Neg(x)))
	require.Equal(t, []float32{-2, 0, -1, 3}, read(Minimum(x, y)))
	require.Equal(t, []float32{1, 0, 0.5, 3}, read(Maximum(x, y)))
	require.Equal(t, []float32{0, 0, 1, 0}, read(GT(x, y)))
	require.Equal(t, []float32{1, 0, 0, 0}, read(LT(x, y)))
	require.Equal(t, []float32{-1, 0, 0.5, 2}, read(Clamp(x, -1, 2)))
	require.Equal(t, []float32{-2, 0, 0.5, 2}, read(Clamp(x, math.Inf(-1), 2)))
	require.Equal(t, []float32{-2, 0, 0.5, 3}, read(Clamp(x, math.Inf(-1), math.Inf(1))))
	require.Equal(t, []float32{-3, 1, 2, 7}, read(Affine(x, 2, 1)))
	require.Equal(t, []float32{-2, 0, 0.5, 3}, read(Detach(x)))
	require.Equal(t, []float32{0.5}, read(Sigmoid(ok(FromFloats(nil, []float32{0})))))
	require.Equal(t, []float32{1, 0, 0.5, 3}, read(Where(ok(FromFloats(nil, []float32{0, 1, 1, 0})), x, y)))
	require.Equal(t, []float32{1, 0, 0.5, 3}, read(Where(ok(GT(x, y)), x, ok(Maximum(x, y)))))
	require.Equal(t, []float32{-2*2 + 3*1}, read(MaskedSum(x, ok(FromFloats(nil, []float32{2, 0, 0, 1})))))
	require.Empty(t, read(FromFloats(nil, nil)))
}

func wide(v []float32) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}
