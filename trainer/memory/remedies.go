package memory

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/policy"
)

// Remedy is a change of a job that needs less memory.
type Remedy struct {
	Change string `json:"change"` // a setting, or several with ", " between them, or a flag, each with its value
	But    string `json:"but"`    // what it costs
	Saves  Need   `json:"saves"`  // in the place asked for, by all ranks of a machine
	After  Need   `json:"after"`  // what is needed then
}

// leastCache is the smallest engine.cache_tokens that a job takes.
const leastCache = 64

// Remedies are what lowers the need in a place, the greatest saving first; each is taken alone.
func Remedies(s Setting, place string) (out []Remedy) {
	before := Of(s).Machine(place, s)
	try := func(change, but string, apply func(*Setting)) {
		c := s
		apply(&c)
		after := Of(c).Machine(place, c)
		r := Remedy{change, but, Need{before.Exact - after.Exact, before.Most - after.Most}, after}
		if r.Saves.Most > 0 {
			out = append(out, r)
		}
	}
	if s.Checkpoint == 0 {
		try("trainer.checkpointing=true", "layers are computed twice", func(c *Setting) { c.Checkpoint = cgo.AllLayers })
	}
	if s.Adapter == nil {
		try("model.lora.rank=16", "an adapter is trained in place of all weights", func(c *Setting) {
			c.Adapter = &cgo.AdapterConfig{Rank: 16, Alpha: 32, Targets: cgo.AdapterTargets[:]}
		})
	}
	if !s.BFloat16 {
		change := "model.dtype=bfloat16"
		if s.engineOnDevice() && s.Engine.Named {
			change += ", engine.dtype=auto"
		}
		try(change, "it computes with rounded weights", func(c *Setting) { c.BFloat16 = true })
	}
	if s.Ranks > 1 && s.BFloat16 && s.Sharding != cgo.FSDP {
		try("trainer.shard=fsdp", "no two GPUs have run it", func(c *Setting) { c.Sharding = cgo.FSDP })
	}
	if s.CUDA && !s.Offload && place == Device {
		try("trainer.offload=optimizer", "the optimizer's step waits for copies from and to host memory", func(c *Setting) { c.Offload = true })
	}
	if half := max(s.Tokens/2, s.Longest); half < s.Tokens {
		try(fmt.Sprintf("trainer.micro_batch_tokens=%d", half), "more forwards of fewer tokens", func(c *Setting) { c.Tokens = half })
	}
	if n := 2 * max(s.Tensor, 1); s.Ranks%(n*max(s.Context, 1)) == 0 && slices.Contains(policy.Shares(s.Model), n) {
		try(fmt.Sprintf("trainer.tensor_parallel=%d", n), "the ranks exchange activations four times in every layer; no two GPUs have run it", func(c *Setting) { c.Tensor = n })
	}
	if n := 2 * max(s.Context, 1); s.Ranks%(n*max(s.Tensor, 1)) == 0 && s.Longest > 1024 {
		try(fmt.Sprintf("trainer.context_parallel=%d", n), "the ranks exchange keys and values in every layer; no two GPUs have run it", func(c *Setting) { c.Context = n })
	}
	if place == Device {
		try(fmt.Sprintf("--ranks %d", 2*s.Ranks), "that many devices", func(c *Setting) { c.Ranks *= 2 })
	}
	if e := s.Engine; e != nil {
		if half := max(e.CacheTokens/2, (s.Longest+15)/16*16, leastCache); half < e.CacheTokens { // blocks of 16 tokens that hold the longest sequence
			try(fmt.Sprintf("engine.cache_tokens=%d", half), "fewer sequences are decoded at once", func(c *Setting) {
				less := *e
				less.CacheTokens = half
				c.Engine = &less
			})
		}
		if s.engineOnDevice() {
			try("engine.device=cpu", "it samples on the CPUs, from a float32 copy of the weights in host memory", func(c *Setting) {
				there := *e
				there.OnDevice = false
				c.Engine = &there
			})
		}
		if !e.BFloat16 && !s.engineOnDevice() {
			try("engine.dtype=bfloat16", "it samples in bfloat16", func(c *Setting) {
				half := *e
				half.BFloat16 = true
				c.Engine = &half
			})
		}
	}
	slices.SortStableFunc(out, func(a, b Remedy) int { return cmp.Compare(b.Saves.Most, a.Saves.Most) })
	return out
}

// FewestLayers is how many layers must be computed again for the need in a place to be at most has; ok is whether it can be.
func FewestLayers(s Setting, place string, has int64) (n int, ok bool) {
	n = sort.Search(s.Model.NumLayers+1, func(n int) bool {
		s.Checkpoint = n
		return Of(s).Machine(place, s).Most <= has
	})
	return n, n <= s.Model.NumLayers
}

// GB writes bytes as people compare them.
func GB(bytes int64) string {
	switch {
	case bytes >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(bytes)/1e9)
	case bytes >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
	}
	return fmt.Sprintf("%.1f kB", float64(bytes)/1e3)
}
