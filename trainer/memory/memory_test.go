package memory

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/modelfile"
)

// seven is the shape of Qwen2.5-7B, fourteen that of Qwen2.5-14B.
func seven() *modelfile.Config {
	return &modelfile.Config{VocabSize: 152064, HiddenSize: 3584, IntermediateSize: 18944, NumLayers: 28, NumHeads: 28, NumKVHeads: 4, HeadDim: 128, QKVBias: true}
}

func fourteen() *modelfile.Config {
	return &modelfile.Config{VocabSize: 152064, HiddenSize: 5120, IntermediateSize: 13824, NumLayers: 48, NumHeads: 40, NumKVHeads: 8, HeadDim: 128, QKVBias: true}
}

func part(t *testing.T, p Plan, name string) Part {
	t.Helper()
	for _, x := range p.Parts {
		if x.Name == name {
			return x
		}
	}
	require.Fail(t, "no part "+name)
	return Part{}
}

// The model card of Qwen2.5-7B says 7,615,616,512 parameters.
func TestBytesOfSevenBillion(t *testing.T) {
	const n = 7_615_616_512
	s := Setting{Model: seven(), BFloat16: true, Tokens: 4096, Longest: 2048, Ranks: 1, CUDA: true}
	p := Of(s)
	require.Equal(t, int64(n), count(s.Model))
	require.Equal(t, int64(4*n), part(t, p, "weights").Bytes)
	require.Equal(t, int64(2*n), part(t, p, "rounded copy").Bytes)
	require.Equal(t, int64(4*n), part(t, p, "gradients").Bytes)
	require.Equal(t, int64(8*n), part(t, p, "AdamW's moments").Bytes)
	require.Equal(t, int64(18*n), p.Rank0[Device].Exact, "18 bytes a parameter, and none in the optimizer's step")
	require.Greater(t, p.Rank0[Device].Most, int64(18*n))
	require.Zero(t, p.Rank0[Host].Most)

	s.Ranks = 4
	require.Equal(t, int64(2*n), part(t, Of(s), "AdamW's moments").Bytes)
	require.Equal(t, Of(s).Rank0[Device], Of(s).Machine(Device, s), "each rank has a device")
}

// Full fine-tuning of 7B on one card of 140 GB: with the moments in host memory.
func TestSevenBillionFitsOneCard(t *testing.T) {
	s := Setting{Model: seven(), BFloat16: true, Tokens: 4096, Longest: 2048, Ranks: 1, CUDA: true}
	require.Greater(t, Of(s).Rank0[Device].Most, int64(140e9))
	var advice []string
	for _, r := range Remedies(s, Device) {
		advice = append(advice, r.Change)
	}
	require.Contains(t, advice, "trainer.offload=optimizer")
	s.Offload = true
	p := Of(s)
	n := count(s.Model)
	require.Equal(t, 10*n, p.Rank0[Device].Exact-part(t, p, "AdamW's step").Bytes, "weights, rounded copy, gradients")
	require.Equal(t, int64(2*4*cgo.OffloadChunk), part(t, p, "AdamW's step").Bytes)
	require.Less(t, p.Rank0[Device].Most, int64(140e9))
	require.Equal(t, Host, part(t, p, "AdamW's moments").Place)
	require.Equal(t, 8*n, p.Rank0[Host].Exact)
	require.Equal(t, int64(2*32<<30), p.Rank0[Host].Most, "pinned blocks are powers of two")
	for _, r := range Remedies(s, Device) {
		require.NotContains(t, r.Change, "offload")
	}
	s.Offload, s.Shared = false, true
	require.Equal(t, 8*n, part(t, Of(s), "AdamW's moments, lent").Bytes)
	s.CUDA = false
	require.Equal(t, Of(Setting{Model: seven(), BFloat16: true, Tokens: 4096, Longest: 2048, Ranks: 1}), Of(s), "a CPU has one memory")
	s.Offload = true
	require.Equal(t, Of(Setting{Model: seven(), BFloat16: true, Tokens: 4096, Longest: 2048, Ranks: 1}), Of(s))
}

func TestAdapterOfFourteenBillion(t *testing.T) {
	s := Setting{Model: fourteen(), BFloat16: true, Tokens: 4096, Longest: 2048, Ranks: 1, CUDA: true, Checkpoint: cgo.AllLayers, Reference: true}
	s.Adapter = &cgo.AdapterConfig{Rank: 16, Alpha: 32, Targets: []string{"q_proj", "v_proj"}}
	require.Equal(t, int64(48*16*(5120+5120+5120+1024)), s.trained())
	p := Of(s)
	require.Equal(t, 4*count(s.Model), part(t, p, "base model").Bytes)
	require.Less(t, p.Rank0[Device].Most, int64(140e9), "it fits a card of 140 GB")
	for _, x := range p.Parts {
		require.NotEqual(t, "reference", x.Name, "the frozen base is the reference")
	}
}

func TestWhatEachSettingAdds(t *testing.T) {
	base := Setting{Model: seven(), Tokens: 1024, Longest: 512, Ranks: 1}
	n := count(base.Model)
	more := func(change func(*Setting)) int64 {
		s := base
		change(&s)
		return Of(s).Rank0[Host].Exact - Of(base).Rank0[Host].Exact
	}
	require.Equal(t, 4*n, more(func(s *Setting) { s.Reference = true }))
	require.Equal(t, 6*n, more(func(s *Setting) { s.Reference, s.BFloat16 = true, true })-2*n)
	require.Equal(t, 16*(3584+1), int(more(func(s *Setting) { s.Critic = true })))
	require.Equal(t, 4*count(fourteen()), more(func(s *Setting) { s.Teacher = fourteen() }))
	engine := func(half bool) func(*Setting) {
		return func(s *Setting) { s.Engine = &Engine{CacheTokens: 1000, MaxSequences: 2, BFloat16: half} }
	}
	require.Equal(t, more(engine(false)), 2*more(engine(true)))
	s := base
	engine(false)(&s)
	require.Equal(t, int64(1000*2*28*4*128*4), part(t, Of(s), "engine: keys, values").Bytes)
	engine(true)(&s)
	require.Equal(t, int64(1000*2*28*4*128*2), part(t, Of(s), "engine: keys, values").Bytes)
	s.Ranks = 2
	both, first, other := Of(s).Machine(Host, s), Of(s).Rank0[Host], Of(s).Other[Host]
	require.Equal(t, first.Exact+other.Exact, both.Exact)
	require.Less(t, other.Exact, first.Exact, "the engine is rank 0's")
	s.Here = 1
	require.Equal(t, first, Of(s).Machine(Host, s))
}

// On the trainer's device the engine reads the trainer's weights, in its type: neither matrices nor a copy of its own, and its keys and values lie
// there, taken at once. The logits come to the host. On the CPUs beside a device it has both, in host memory.
func TestEngineOnTheDevice(t *testing.T) {
	const layers, heads, width, vocab, tokens, sequences = 28, 4, 128, 152064, 1008, 100
	s := Setting{Model: seven(), BFloat16: true, Tokens: 1024, Longest: 512, Ranks: 2, CUDA: true}
	without := Of(s)
	s.Engine = &Engine{CacheTokens: tokens, MaxSequences: sequences, OnDevice: true}
	p := Of(s)
	for _, x := range p.Parts {
		require.NotContains(t, []string{"engine: copy", "engine: matrices", "engine: merging"}, x.Name)
	}
	keys := part(t, p, "engine: keys, values")
	require.Equal(t, Part{
		Name: "engine: keys, values", Bytes: tokens * layers * 2 * heads * width * 2, Exact: true, Place: Device, Ranks: "0",
		How: "1,008 tokens × 57,344 (28 layers × 4 heads × 256 numbers × 2); taken at once",
	}, keys)
	step := part(t, p, "engine: step")
	require.Equal(t, [2]string{Device, "0"}, [2]string{step.Place, step.Ranks})
	require.Greater(t, step.Bytes, int64(sequences*vocab*4))
	logits := part(t, p, "engine: logits")
	require.Equal(t, [2]string{Host, "0"}, [2]string{logits.Place, logits.Ranks})
	require.Equal(t, int64(64<<20), logits.Bytes, "60.8 MB, rounded up")
	require.Equal(t, without.Other, p.Other, "the engine is rank 0's")
	require.Equal(t, without.Rank0[Device].Exact+keys.Bytes, p.Rank0[Device].Exact)
	require.Equal(t, without.Rank0[Device].Most+keys.Bytes+step.Bytes, p.Rank0[Device].Most)
	require.Contains(t, changes(Remedies(s, Device)), "engine.device=cpu")
	require.Contains(t, changes(Remedies(s, Device)), "engine.cache_tokens=512")
	s.BFloat16 = false
	require.Equal(t, 2*keys.Bytes, part(t, Of(s), "engine: keys, values").Bytes, "the type is the trainer's")
	require.NotContains(t, changes(Remedies(s, Device)), "engine.dtype=bfloat16", "the type is the trainer's")
	s.Adapter = &cgo.AdapterConfig{Rank: 16, Alpha: 32, Targets: cgo.AdapterTargets[:]}
	for _, x := range Of(s).Parts {
		require.NotEqual(t, "engine: merging", x.Name, "the adapter is computed beside its matrix")
	}

	s.Engine.OnDevice, s.Adapter = false, nil
	p = Of(s)
	n := count(s.Model)
	require.Equal(t, 4*n, part(t, p, "engine: copy").Bytes)
	for _, x := range p.Parts {
		if x.Name == "engine: copy" || x.Name == "engine: matrices" || x.Name == "engine: keys, values" {
			require.Equal(t, Host, x.Place, x.Name)
		}
	}
	s.CUDA, s.Engine.OnDevice = false, true
	on := Of(s)
	s.Engine.OnDevice = false
	require.Equal(t, Of(s), on, "a CPU has one memory")
}

// A cache holds the longest sequence, in blocks of 16 tokens: a job refuses one that does not.
func TestTheCacheOfARemedyHoldsTheLongestSequence(t *testing.T) {
	s := Setting{Model: seven(), BFloat16: true, Tokens: 32768, Longest: 1000, Ranks: 1, CUDA: true}
	for cache, want := range map[int]string{4096: "engine.cache_tokens=2048", 2000: "engine.cache_tokens=1008", 1500: "engine.cache_tokens=1008", 1008: ""} {
		s.Engine = &Engine{CacheTokens: cache, MaxSequences: 64, OnDevice: true}
		got := ""
		for _, c := range changes(Remedies(s, Device)) {
			if strings.HasPrefix(c, "engine.cache_tokens=") {
				got = c
			}
		}
		require.Equal(t, want, got, "%d tokens", cache)
	}
}

func TestRemediesAreOrderedByWhatTheySave(t *testing.T) {
	s := Setting{Model: seven(), Tokens: 8192, Longest: 2048, Ranks: 1, CUDA: true}
	all := Remedies(s, Device)
	var changes []string
	for i, r := range all {
		changes = append(changes, r.Change)
		require.Equal(t, Of(s).Rank0[Device].Most, r.After.Most+r.Saves.Most)
		if i > 0 {
			require.LessOrEqual(t, r.Saves.Most, all[i-1].Saves.Most)
		}
	}
	require.Equal(t, "model.lora.rank=16", changes[0])
	require.Contains(t, changes, "trainer.micro_batch_tokens=4096")
	require.Contains(t, changes, "--ranks 2")
	require.NotContains(t, changes, "engine.dtype=bfloat16", "the engine is no memory of the device")
	s.Checkpoint = cgo.AllLayers
	for _, r := range Remedies(s, Device) {
		require.NotContains(t, r.Change, "checkpointing")
	}
}

// Each layer that is computed again needs less, and the fewest that fit are found.
func TestFewestLayersThatFit(t *testing.T) {
	s := Setting{Model: seven(), BFloat16: true, Tokens: 8192, Longest: 1024, Ranks: 1, CUDA: true}
	most := func(n int) int64 { s.Checkpoint = n; return Of(s).Rank0[Device].Most }
	for n := range 27 {
		require.Less(t, most(n+1), most(n), "%d layers", n)
	}
	require.Equal(t, most(27), most(28), "the last layer is kept or made again when most is needed")
	require.Equal(t, most(28), most(cgo.AllLayers))
	n, ok := FewestLayers(s, Device, most(17)+1)
	require.True(t, ok)
	require.Equal(t, 17, n)
	n, ok = FewestLayers(s, Device, most(0))
	require.True(t, ok)
	require.Zero(t, n)
	_, ok = FewestLayers(s, Device, most(28)-1)
	require.False(t, ok)
	s.Checkpoint = 17
	require.Contains(t, part(t, Of(s), "activations").How, "the input of 17 layers, the intermediates of 11")
}

// With fsdp and bfloat16 a rank holds float32 weights of its own pieces alone; rank 0's are whole between the steps, and all the time where
// an engine reads them.
func TestSpreadWeights(t *testing.T) {
	const n = 7_615_616_512
	s := Setting{Model: seven(), BFloat16: true, Tokens: 4096, Longest: 2048, Ranks: 2, CUDA: true}
	before := Of(s)
	require.Contains(t, changes(Remedies(s, Device)), "trainer.shard=fsdp")
	s.Sharding = cgo.FSDP
	p := Of(s)
	require.NotContains(t, changes(Remedies(s, Device)), "trainer.shard=fsdp")
	require.Equal(t, int64(4*n), part(t, before, "weights").Bytes)
	require.Equal(t, int64(2*n), part(t, p, "weights").Bytes)
	require.Equal(t, int64(2*n), before.Other[Device].Exact-p.Other[Device].Exact)
	whole := part(t, p, "weights, whole")
	require.Equal(t, Part{Name: "weights, whole", Bytes: 4 * n, Exact: true, How: "7,615,616,512 trained parameters × 4 (float32)", Place: Device, Ranks: "0", During: "between steps"}, whole)
	s.Engine = &Engine{CacheTokens: 1000, MaxSequences: 2}
	require.Empty(t, part(t, Of(s), "weights, whole").During)
	s.BFloat16 = false
	require.Equal(t, int64(4*n), part(t, Of(s), "weights").Bytes, "forwards read them")
}

// The parts that are spread are those that the model is laid out in; what does not divide is the last rank's.
func TestSharesOfOddParts(t *testing.T) {
	c := &modelfile.Config{VocabSize: 11, HiddenSize: 8, IntermediateSize: 12, NumLayers: 2, NumHeads: 2, NumKVHeads: 1, HeadDim: 4}
	s := Setting{Model: c, Ranks: 3, Critic: true}
	layer := int64(8 + 64 + 32 + 32 + 64 + 8 + 3*96)
	require.Equal(t, []int64{88, layer, layer, 8 + 88, 9}, s.parts())
	require.Equal(t, int64(88-2*16+2*(layer-2*160)+96-2*32+9), s.share())
	s.Adapter = &cgo.AdapterConfig{Rank: 2, Alpha: 1, Targets: []string{"q_proj"}}
	require.Equal(t, []int64{0, 32, 32, 0, 9}, s.parts())
}

func changes(all []Remedy) (out []string) {
	for _, r := range all {
		out = append(out, r.Change)
	}
	return out
}

// Ranks that compute a micro-batch together have the activations of their share; what rank 0 computes alone stays whole.
func TestRanksThatComputeTogether(t *testing.T) {
	part := func(s Setting, name string) int64 {
		for _, p := range Of(s).Parts {
			if p.Name == name {
				return p.Bytes
			}
		}
		t.Fatalf("there is no part %q", name)
		return 0
	}
	alone := Setting{Model: seven(), BFloat16: true, Teacher: seven(), Reference: true, Tokens: 16384, Longest: 16384, Ranks: 4, CUDA: true, Checkpoint: cgo.AllLayers}
	together := alone
	together.Context = 4
	layers := alone
	layers.Tensor = 4
	for _, name := range []string{"activations", "reference's forward"} {
		require.Less(t, part(together, name), part(alone, name), name)
		require.Less(t, part(layers, name), part(alone, name)/2, name)
	}
	require.Equal(t, part(alone, "teacher's forward"), part(together, "teacher's forward"))
	require.Equal(t, part(alone, "teacher's forward"), part(layers, "teacher's forward"))
	require.NotContains(t, changes(Remedies(alone, Device)), "trainer.tensor_parallel=2", "rank 0 needs most while the teacher computes")
	alone.Teacher = nil
	require.Contains(t, changes(Remedies(alone, Device)), "trainer.tensor_parallel=2")
	layers.Context = 1
	require.NotContains(t, changes(Remedies(layers, Device)), "trainer.tensor_parallel=8", "four ranks")
}
