//go:build torch

package cgo

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/wangkuiyi/gotorch"
)

// contextCase is a way to compute that the ranks of a context share.
type contextCase struct {
	name       string
	path       path
	dtype      DType
	checkpoint bool
	adapter    bool
	set        func(*ModelConfig)
	tolerance  float64 // of what is apart
}

var contextCases = []contextCase{
	{name: "kernels", path: pathKernels, tolerance: 5e-6},
	{name: "kernels, checkpointed, norms and biases", path: pathKernels, checkpoint: true, tolerance: 5e-6, set: func(c *ModelConfig) {
		c.QKNorm, c.QKVBias, c.OBias, c.MLPBias, c.TieWordEmbeddings = true, true, true, true, true
	}},
	{name: "kernels, adapter", path: pathKernels, adapter: true, tolerance: 1e-5},
	{name: "segments", path: pathSegments, tolerance: 5e-6},
	{name: "varlen", path: pathVarlen, tolerance: 5e-6},
	{name: "varlen, checkpointed", path: pathVarlen, checkpoint: true, tolerance: 5e-6},
	{name: "kernels, bfloat16", path: pathKernels, dtype: BF16, tolerance: 2e-2},
	{name: "segments, bfloat16", path: pathSegments, dtype: BF16, tolerance: 2e-2},
}

func (c contextCase) model() (*Model, error) {
	config := ModelConfig{VocabSize: 61, HiddenSize: 24, IntermediateSize: 40, NumLayers: 3, NumHeads: 4, NumKVHeads: 2, HeadDim: 6, RMSNormEps: 1e-5, InvFreq: []float32{1, 0.5, 0.1}}
	if c.set != nil {
		c.set(&config)
	}
	m, err := NewModel(config, "cpu")
	if err != nil {
		return nil, err
	}
	if err := m.Init(7, 0.1); err != nil {
		return nil, err
	}
	if c.adapter {
		if err := m.AddAdapter(AdapterConfig{Rank: 3, Alpha: 6, Seed: 3}); err != nil {
			return nil, err
		}
	}
	if err := m.AddValueHead(); err != nil {
		return nil, err
	}
	for _, p := range m.Trained() { // B and the value head begin at 0, which hides gradients
		if strings.Contains(p.Name, "lora_B") || strings.Contains(p.Name, "value_head") {
			random := rand.New(rand.NewPCG(9, uint64(len(p.Name))))
			data := make([]byte, 0, 4*p.Elements())
			for range p.Elements() {
				bits := math.Float32bits(float32(random.NormFloat64()) * 0.2)
				data = append(data, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
			}
			if err := m.SetParameter(p.Name, F32, data, p.Shape); err != nil {
				return nil, err
			}
		}
	}
	m.Changed()
	if c.dtype == BF16 {
		if err := m.SetDType(BF16); err != nil {
			return nil, err
		}
	}
	return m, setPath(m, c.path)
}

// predicted is a random forest with rows anywhere in it, often on few tokens, so that some ranks have none.
func predicted(random *rand.Rand, vocab int) *Batch {
	b := randomForest(random)
	for i := range b.Tokens {
		b.Tokens[i] = random.Int32N(int32(vocab))
	}
	b.RowToken, b.RowTarget = nil, nil
	from := random.IntN(len(b.Tokens))
	for range 1 + random.IntN(12) {
		b.RowToken = append(b.RowToken, int32(from+random.IntN(len(b.Tokens)-from)))
		b.RowTarget = append(b.RowTarget, random.Int32N(int32(vocab)))
	}
	b.Temperature = 0.5 + random.Float64()
	return b
}

// weighted is a forward of b and the gradients of a sum of its outputs with random weights.
func weighted(m *Model, b *Batch, options ForwardOptions, random *rand.Rand) (outputs []float32, grads map[string][]float32, err error) {
	options.Grad, options.Entropy, options.Values = true, true, true
	out, err := m.Forward(b, options)
	if err != nil {
		return nil, nil, err
	}
	defer out.Close()
	var total gotorch.Tensor
	for i, t := range []gotorch.Tensor{out.Logprobs, out.Entropy, out.Values} {
		values, err := Read(t)
		if err != nil {
			return nil, nil, err
		}
		outputs = append(outputs, values...)
		w, err := FromFloats(m, normal(random, len(values)))
		if err != nil {
			return nil, nil, err
		}
		defer CloseTensor(w)
		term, err := MaskedSum(t, w)
		if err != nil {
			return nil, nil, err
		}
		defer CloseTensor(term)
		if i == 0 {
			total = term
			continue
		}
		total = gotorch.Add(total, term, 1)
		defer CloseTensor(total)
	}
	if err := Backward(total); err != nil {
		return nil, nil, err
	}
	grads = map[string][]float32{}
	for _, p := range m.Trained() {
		if grads[p.Name], err = m.Gradient(p.Name); err != nil {
			return nil, nil, err
		}
	}
	o, err := NewOptimizer(m, DefaultAdamW(), nil) // which clears them
	if err != nil {
		return nil, nil, err
	}
	defer o.Close()
	return outputs, grads, o.ZeroGrad()
}

// apart is the norm of the difference, relative to the norm of want, or to 1.
func apart(got, want []float32) float64 {
	norm, difference := 0.0, 0.0
	for i := range want {
		d := float64(got[i]) - float64(want[i])
		norm, difference = norm+float64(want[i])*float64(want[i]), difference+d*d
	}
	return math.Sqrt(difference) / max(1, math.Sqrt(norm))
}

// playContext holds batches that the ranks compute together against the same computed by each alone.
func playContext(g *Group) error {
	for _, c := range contextCases {
		m, err := c.model()
		if err != nil {
			return err
		}
		defer m.Close()
		random, forests := rand.New(rand.NewPCG(5, 6)), 15
		var worst [2]float64
		for n := range forests {
			b := predicted(random, 61)
			seed := random.Uint64()
			run := func(context *Group) ([]float32, map[string][]float32, error) {
				return weighted(m, b, ForwardOptions{Checkpoint: c.checkpoint, Context: context}, rand.New(rand.NewPCG(seed, 1)))
			}
			want, wantGrads, err := run(nil)
			if err != nil {
				return err
			}
			got, grads, err := run(g)
			if err != nil {
				return fmt.Errorf("%s, forest %d: %w", c.name, n, err)
			}
			inferred, err := m.Infer(b, ForwardOptions{Entropy: true, Values: true, Context: g})
			if err != nil {
				return err
			}
			again := append(append(append([]float32{}, inferred.Logprobs...), inferred.Entropy...), inferred.Values...)
			if encode(again) != encode(got) {
				return fmt.Errorf("%s, forest %d: without gradient the outputs are others", c.name, n)
			}
			d := apart(got, want)
			if !(d <= c.tolerance) {
				return fmt.Errorf("%s, forest %d of %d tokens: outputs are %g apart", c.name, n, len(b.Tokens), d)
			}
			worst[0] = max(worst[0], d)
			var terms []float32
			for _, p := range m.Trained() {
				terms = append(terms, grads[p.Name]...)
			}
			if err := g.AllReduce(terms); err != nil {
				return err
			}
			for _, p := range m.Trained() {
				n := p.Elements()
				d := apart(terms[:n], wantGrads[p.Name])
				if !(d <= c.tolerance) {
					return fmt.Errorf("%s, batch of %d tokens, %d rows: the gradient of %s is %g apart", c.name, len(b.Tokens), len(b.RowToken), p.Name, d)
				}
				worst[1], terms = max(worst[1], d), terms[n:]
			}
		}
		fmt.Printf("context %s: outputs at most %.1e apart, gradients %.1e\n", c.name, worst[0], worst[1])
	}
	return nil
}

// The ranks of a context compute what one process does: outputs of all rows on each, and gradients that add up to its.
func TestContextEqualsOneProcess(t *testing.T) {
	t.Setenv("AGENTFLY_TEST_TIMEOUT", "60s")
	for _, world := range []int{2, 3, 4} {
		t.Run(fmt.Sprint(world), func(t *testing.T) {
			for r, p := range startRanks(t, "context", world) {
				out := p.wait(t)
				require.Empty(t, errorLine(out), "rank %d: %s", r, out)
				require.Equal(t, len(contextCases), strings.Count(out, "context "), out)
				if r == 0 {
					t.Log(out)
				}
			}
		})
	}
}

// playContextTraffic prints what a forward and backward of a long sequence brings a rank.
func playContextTraffic(g *Group) error {
	m, err := contextCases[0].model()
	if err != nil {
		return err
	}
	defer m.Close()
	ids := make([]int32, 2048)
	for i := range ids {
		ids[i] = int32(i * i % 61)
	}
	before := g.Traffic()
	if _, _, err := weighted(m, plain(ids, 1), ForwardOptions{Context: g}, rand.New(rand.NewPCG(1, 2))); err != nil {
		return err
	}
	t := g.Traffic().Since(before)
	fmt.Printf("traffic %d %d\n", t.Sums, t.Gathers)
	return nil
}

// What a rank receives follows docs/ranks.md: of T tokens on n ranks, keys and values of the others twice a layer, the terms of
// its own keys' gradients once.
func TestContextTraffic(t *testing.T) {
	t.Setenv("AGENTFLY_TEST_TIMEOUT", "60s")
	for _, n := range []int{2, 4} {
		const tokens, layers, keys = 2048, 3, 2 * 2 * 6 // keys and values of 2 heads of 6
		for _, p := range startRanks(t, "context traffic", n) {
			out := p.wait(t)
			require.Empty(t, errorLine(out), out)
			var sums, gathers int
			_, err := fmt.Sscanf(out[strings.Index(out, "traffic "):], "traffic %d %d", &sums, &gathers)
			require.NoError(t, err, out)
			others := tokens / n * (n - 1)
			require.Equal(t, 4*layers*keys*others, sums)
			rows := 4 * 3 * (n - 1) * ((tokens/n + 15) / 16 * 16) // logprob, entropy and value of the others' rows
			require.Equal(t, 2*4*layers*keys*others+rows, gathers)
		}
	}
}

// playContextMemory prints by how many KiB the process grew while it trained on a long sequence.
func playContextMemory(g *Group) error {
	m, err := NewModel(ModelConfig{VocabSize: 61, HiddenSize: 128, IntermediateSize: 384, NumLayers: 8, NumHeads: 4, NumKVHeads: 2, HeadDim: 32, RMSNormEps: 1e-5, InvFreq: make([]float32, 16)}, "cpu")
	if err != nil {
		return err
	}
	defer m.Close()
	if err := m.AddValueHead(); err != nil {
		return err
	}
	peak := func() (kib int) {
		text, _ := os.ReadFile("/proc/self/status")
		_, after, _ := strings.Cut(string(text), "VmHWM:")
		_, _ = fmt.Sscan(after, &kib)
		return kib
	}
	before, ids := peak(), make([]int32, 4096)
	b := plain(ids, 1)
	b.RowToken, b.RowTarget = b.RowToken[4000:], b.RowTarget[4000:]
	if _, _, err := weighted(m, b, ForwardOptions{Context: g}, rand.New(rand.NewPCG(1, 2))); err != nil {
		return err
	}
	fmt.Printf("grew %d\n", peak()-before)
	return nil
}

// The activations of a long sequence lie on all ranks of a context: each needs less memory than one process does.
func TestContextSharesActivations(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("there is no /proc to read the memory of a process from")
	}
	t.Setenv("AGENTFLY_TEST_TIMEOUT", "60s")
	grew := func(world int) (most int) {
		for _, p := range startRanks(t, "context memory", world) {
			out := p.wait(t)
			require.Empty(t, errorLine(out), out)
			var kib int
			_, err := fmt.Sscanf(out[strings.Index(out, "grew "):], "grew %d", &kib)
			require.NoError(t, err, out)
			most = max(most, kib)
		}
		return most
	}
	one, four := grew(1), grew(4)
	t.Logf("a sequence of 4,096 tokens: %d MiB on one rank, at most %d MiB on each of four", one>>10, four>>10)
	require.Less(t, four, one*3/5) // the sums of keys' gradients are as large on each
}

// playContextDies leaves the others in the middle of a layer.
func playContextDies(g *Group) error {
	m, err := contextCases[0].model()
	if err != nil {
		return err
	}
	defer m.Close()
	if g.Rank() == 1 {
		return errors.New("gone")
	}
	start := time.Now()
	_, err = m.Infer(plain([]int32{1, 2, 3, 4, 5, 6, 7, 8, 9}, 1), ForwardOptions{Context: g})
	fmt.Println("waited", time.Since(start) < 30*time.Second)
	return err
}

// A rank of a context that is gone is named by its number in the run.
func TestContextNamesTheRankThatIsGone(t *testing.T) {
	t.Setenv("AGENTFLY_TEST_TIMEOUT", "10s")
	t.Setenv("AGENTFLY_TEST_FIRST", "6")
	ranks := startRanks(t, "context dies", 2)
	require.Contains(t, ranks[1].wait(t), "gone")
	out := ranks[0].wait(t)
	require.Contains(t, errorLine(out), "rank 7")
	require.Contains(t, out, "is ErrRank: true")
	require.Contains(t, out, "waited true")
}
