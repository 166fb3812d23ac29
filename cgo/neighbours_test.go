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

// neighboursCase is a way to compute that ranks share.
type neighboursCase struct {
	name       string
	path       path
	dtype      DType
	checkpoint bool
	adapter    bool
	set        func(*ModelConfig)
	tolerance  float64 // of what is apart
}

var neighboursCases = []neighboursCase{
	{name: "kernels", path: pathKernels, tolerance: 5e-6},
	{name: "kernels, checkpointed, norms and biases", path: pathKernels, checkpoint: true, tolerance: 5e-6, set: func(c *ModelConfig) {
		c.QKNorm, c.QKVBias, c.OBias, c.MLPBias, c.TieWordEmbeddings = true, true, true, true, true
	}},
	{name: "kernels, adapter", path: pathKernels, adapter: true, tolerance: 1e-5},
	{name: "segments", path: pathSegments, tolerance: 5e-6},
	{name: "varlen", path: pathVarlen, tolerance: 5e-6},
	{name: "varlen, checkpointed", path: pathVarlen, checkpoint: true, tolerance: 5e-6},
	{name: "segments, adapter, norms and biases", path: pathSegments, adapter: true, tolerance: 1e-5, set: func(c *ModelConfig) {
		c.QKNorm, c.QKVBias, c.OBias, c.MLPBias = true, true, true, true
	}},
	{name: "kernels, one key/value head, biases", path: pathKernels, tolerance: 5e-6, set: func(c *ModelConfig) { c.NumKVHeads, c.QKVBias, c.OBias = 1, true, true }},
	{name: "varlen, as many key/value heads as queries", path: pathVarlen, tolerance: 5e-6, set: func(c *ModelConfig) { c.NumKVHeads = 4 }},
	{name: "kernels, bfloat16", path: pathKernels, dtype: BF16, tolerance: 0.15},
	{name: "kernels, bfloat16, checkpointed, adapter, norms and biases", path: pathKernels, dtype: BF16, checkpoint: true, adapter: true, tolerance: 0.15, set: func(c *ModelConfig) {
		c.QKNorm, c.QKVBias, c.OBias, c.MLPBias = true, true, true, true
	}},
	{name: "segments, bfloat16", path: pathSegments, dtype: BF16, tolerance: 0.15},
}

// exact is the same in float32; nil where it is that already.
func (c neighboursCase) exact() (*Model, error) {
	if c.dtype != BF16 {
		return nil, nil
	}
	c.dtype = F32
	return c.model()
}

func (c neighboursCase) model() (*Model, error) {
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

// playNeighbours holds batches that the ranks compute together against the same computed by each alone.
func playNeighbours(g *Group, together Neighbours) error {
	for _, c := range neighboursCases {
		m, err := c.model()
		if err != nil {
			return err
		}
		defer m.Close()
		exact, err := c.exact()
		if err != nil {
			return err
		}
		random, forests := rand.New(rand.NewPCG(5, 6)), 6
		var worst [2]float64
		var noise [2]float64 // squared distances from float32's gradients: of one process, of the ranks
		for n := range forests {
			b := predicted(random, 61)
			seed := random.Uint64()
			run := func(m *Model, n Neighbours) ([]float32, map[string][]float32, error) {
				return weighted(m, b, ForwardOptions{Checkpoint: layersIf(c.checkpoint), Neighbours: n}, rand.New(rand.NewPCG(seed, 1)))
			}
			want, wantGrads, err := run(m, Neighbours{})
			if err != nil {
				return err
			}
			exactGrads := wantGrads
			if exact != nil {
				if _, exactGrads, err = run(exact, Neighbours{}); err != nil {
					return err
				}
			}
			got, grads, err := run(m, together)
			if err != nil {
				return fmt.Errorf("%s, forest %d: %w", c.name, n, err)
			}
			inferred, err := m.Infer(b, ForwardOptions{Entropy: true, Values: true, Neighbours: together})
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
				for i, g := range [][]float32{wantGrads[p.Name], terms[:n]} {
					noise[i] += math.Pow(apart(g, exactGrads[p.Name]), 2)
				}
				worst[1], terms = max(worst[1], d), terms[n:]
			}
		}
		if exact != nil {
			_ = exact.Close()                // nothing is read from it any more
			if !(noise[1] <= 1.5*noise[0]) { // the ranks round elsewhere, not more
				return fmt.Errorf("%s: one process is %g from float32, the ranks %g", c.name, math.Sqrt(noise[0]), math.Sqrt(noise[1]))
			}
			fmt.Printf("from float32: one process %.3g, the ranks %.3g\n", math.Sqrt(noise[0]), math.Sqrt(noise[1]))
		}
		fmt.Printf("together: %s: outputs at most %.1e apart, gradients %.1e\n", c.name, worst[0], worst[1])
	}
	return nil
}

// playBoth has pairs of ranks share the layers, and as many pairs as there are the tokens.
func playBoth(g *Group) error {
	c, _, err := GroupFromEnv()
	if err != nil {
		return err
	}
	c.Timeout = 60 * time.Second
	n, err := NewNeighbours(c, g.World()/2, 2)
	if err != nil {
		return err
	}
	defer n.Close()
	if n.World() != g.World() || n.Rank() != g.Rank() || n.Tensor.World() != 2 || n.Tensor.Rank() != g.Rank()%2 {
		return fmt.Errorf("rank %d is %d of %d neighbours", g.Rank(), n.Rank(), n.World())
	}
	return playNeighbours(g, n)
}

// Ranks that share the tokens of a batch, its layers, or both, compute what one process does: outputs of all rows on each, and gradients that
// add up to its.
func TestNeighboursEqualOneProcess(t *testing.T) {
	t.Setenv("AGENTFLY_TEST_TIMEOUT", "60s")
	for _, c := range []struct {
		scenario string
		world    int
	}{{"context", 2}, {"context", 3}, {"context", 4}, {"tensor", 2}, {"tensor", 4}, {"both", 4}} {
		t.Run(fmt.Sprint(c.scenario, " ", c.world), func(t *testing.T) {
			for r, p := range startRanks(t, c.scenario, c.world) {
				out := p.wait(t)
				require.Empty(t, errorLine(out), "rank %d: %s", r, out)
				require.Equal(t, len(neighboursCases), strings.Count(out, "together: "), out)
				if r == 0 {
					t.Log(out)
				}
			}
		})
	}
}

// Three ranks cannot share four heads, and a model says which numbers can.
func TestRanksThatCannotShareLayers(t *testing.T) {
	for _, p := range startRanks(t, "tensor dies", 3) {
		require.Contains(t, errorLine(p.wait(t)), "3 ranks cannot share 4 query heads equally")
	}
	for _, c := range []struct {
		heads, keys, columns int
		want                 []int
	}{{14, 2, 4864, []int{1, 2}}, {9, 3, 1536, []int{1, 3}}, {12, 6, 24, []int{1, 2, 3, 6, 12}}, {4, 4, 6, []int{1, 2}}, {12, 2, 120, []int{1, 2, 4, 6, 12}}} {
		require.Equal(t, c.want, ModelConfig{NumHeads: c.heads, NumKVHeads: c.keys, IntermediateSize: c.columns}.Shares(), "%+v", c)
	}
}

// trafficOf is what a forward and backward of 2,048 tokens brings a rank.
func trafficOf(g *Group, c neighboursCase, n Neighbours) error {
	m, err := c.model()
	if err != nil {
		return err
	}
	defer m.Close()
	ids := make([]int32, 2048)
	for i := range ids {
		ids[i] = int32(i * i % 61)
	}
	before := g.Traffic()
	if _, _, err := weighted(m, plain(ids, 1), ForwardOptions{Checkpoint: layersIf(c.checkpoint), Neighbours: n}, rand.New(rand.NewPCG(1, 2))); err != nil {
		return err
	}
	t := g.Traffic().Since(before)
	fmt.Printf("traffic %d %d\n", t.Sums, t.Gathers)
	return nil
}

func playContextTraffic(g *Group) error {
	return trafficOf(g, neighboursCases[0], Neighbours{Context: g})
}

func playTensorTraffic(g *Group) error {
	for _, c := range []neighboursCase{{}, {checkpoint: true}, {dtype: BF16}} {
		if err := trafficOf(g, c, Neighbours{Tensor: g}); err != nil {
			return err
		}
	}
	return nil
}

// traffics are what a rank printed of its traffic.
func traffics(t *testing.T, out string) (all [][2]int) {
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "traffic ") {
			var sums, gathers int
			_, err := fmt.Sscanf(line, "traffic %d %d", &sums, &gathers)
			require.NoError(t, err, out)
			all = append(all, [2]int{sums, gathers})
		}
	}
	return all
}

// What a rank receives follows docs/ranks.md. Of T tokens on n ranks that share them: keys and values of the others twice a layer, the terms
// of its own keys' gradients once. On n ranks that share the layers: activations of the others six times a layer, or eight where it is
// computed again, and the terms of its own tokens four times, or five.
func TestNeighboursTraffic(t *testing.T) {
	t.Setenv("AGENTFLY_TEST_TIMEOUT", "60s")
	for _, n := range []int{2, 4} {
		const tokens, layers, hidden, keys = 2048, 3, 24, 2 * 2 * 6 // keys and values of 2 heads of 6
		others := tokens / n * (n - 1)
		rows := 4 * 3 * (n - 1) * ((tokens/n + 15) / 16 * 16) // logprob, entropy and value of the others' rows
		for _, p := range startRanks(t, "context traffic", n) {
			out := p.wait(t)
			require.Empty(t, errorLine(out), out)
			require.Equal(t, [][2]int{{4 * layers * keys * others, 2*4*layers*keys*others + rows}}, traffics(t, out))
		}
		each := layers * hidden * others
		for _, p := range startRanks(t, "tensor traffic", n) {
			out := p.wait(t)
			require.Empty(t, errorLine(out), out)
			require.Equal(t, [][2]int{{4 * 4 * each, 6*4*each + rows}, {5 * 4 * each, 8*4*each + rows}, {4 * 4 * each, 6*2*each + rows}}, traffics(t, out))
		}
	}
}

// growth prints by how many KiB the process grew while it trained on a long sequence.
func growth(n Neighbours) error {
	m, err := NewModel(ModelConfig{VocabSize: 61, HiddenSize: 128, IntermediateSize: 384, NumLayers: 8, NumHeads: 4, NumKVHeads: 2, HeadDim: 32, RMSNormEps: 1e-5, InvFreq: make([]float32, 16)}, "cpu")
	if err != nil {
		return err
	}
	defer m.Close()
	if err := m.AddValueHead(); err != nil {
		return err
	}
	before, err := peakKiB()
	if err != nil {
		return err
	}
	b := plain(make([]int32, 4096), 1)
	b.RowToken, b.RowTarget = b.RowToken[4000:], b.RowTarget[4000:]
	if _, _, err := weighted(m, b, ForwardOptions{Neighbours: n}, rand.New(rand.NewPCG(1, 2))); err != nil {
		return err
	}
	after, err := peakKiB()
	fmt.Printf("grew %d\n", after-before)
	return err
}

// The activations of a batch lie on all ranks that compute it: each needs less memory than one process does.
func TestNeighboursShareActivations(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("there is no /proc to read the memory of a process from")
	}
	t.Setenv("AGENTFLY_TEST_TIMEOUT", "60s")
	t.Setenv("MALLOC_MMAP_THRESHOLD_", "131072") // what is freed is the system's at once: the peak is the tensors', not the heap's
	grew := func(scenario string, world int) (most int) {
		for _, p := range startRanks(t, scenario, world) {
			out := p.wait(t)
			require.Empty(t, errorLine(out), out)
			var kib int
			_, err := fmt.Sscanf(out[strings.Index(out, "grew "):], "grew %d", &kib)
			require.NoError(t, err, out)
			most = max(most, kib)
		}
		return most
	}
	one, context, tensor := grew("context memory", 1), grew("context memory", 4), grew("tensor memory", 4)
	t.Logf("a sequence of 4,096 tokens: %d MiB on one rank; at most %d MiB on each of four that share its tokens, %d MiB on each of four that share the layers", one>>10, context>>10, tensor>>10)
	require.Less(t, context, one*3/5) // the sums of keys' gradients are as large on each
	require.Less(t, tensor, one*3/5)  // gradients, and what is exchanged of all tokens, are as large on each
}

// playDying leaves the others in the middle of a layer.
func playDying(g *Group, n Neighbours) error {
	m, err := neighboursCases[0].model()
	if err != nil {
		return err
	}
	defer m.Close()
	if g.Rank() == 1 && g.World() == 2 {
		return errors.New("gone")
	}
	start := time.Now()
	_, err = m.Infer(plain([]int32{1, 2, 3, 4, 5, 6, 7, 8, 9}, 1), ForwardOptions{Neighbours: n})
	fmt.Println("waited", time.Since(start) < 30*time.Second)
	return err
}

// A neighbour that is gone is named by its number in the run.
func TestNeighboursNameTheRankThatIsGone(t *testing.T) {
	t.Parallel() // it waits for its time limit
	for _, c := range []struct{ scenario, stride, want string }{{"context dies", "1", "rank 7"}, {"tensor dies", "1", "rank 7"}, {"context dies", "4", "rank 10"}} {
		variables := []string{"AGENTFLY_TEST_TIMEOUT=10s", "AGENTFLY_TEST_FIRST=6", "AGENTFLY_TEST_STRIDE=" + c.stride}
		ranks := startRanksWith(t, variables, c.scenario, 2)
		require.Contains(t, ranks[1].wait(t), "gone")
		out := ranks[0].wait(t)
		require.Contains(t, errorLine(out), c.want)
		require.Contains(t, out, "is ErrRank: true")
		require.Contains(t, out, "waited true")
	}
}
