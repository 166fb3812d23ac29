package modelfile

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

// Rope describes the rotary position embedding, in the words of transformers' rope_parameters.
type Rope struct {
	Type  string  // default, linear, llama3 or yarn
	Theta float64 // base of the frequencies

	Factor              float64 // linear, llama3, yarn: by how much the context was stretched
	OriginalMaxPosition float64 // llama3, yarn: context length before that

	LowFreqFactor, HighFreqFactor float64 // llama3

	AttentionFactor      float64 // yarn; 0: computed from Factor, MScale and MScaleAllDim
	BetaFast, BetaSlow   float64 // yarn
	MScale, MScaleAllDim float64 // yarn; 0: not given
	Truncate             bool    // yarn: round the correction range to whole dimensions
}

// parseRope reads rope_parameters (transformers 5) or rope_theta and rope_scaling (before).
func (c *Config) parseRope(o *object) {
	if o.err != nil {
		return
	}
	c.Rope = Rope{Type: "default", Theta: o.number("rope_theta", 10000)}
	key := "rope_parameters"
	if o.has("rope_scaling") { // transformers prefers the old key where both are present
		key = "rope_scaling"
	}
	var values map[string]json.RawMessage
	o.decode(key, &values, "an object")
	if values == nil {
		values = map[string]json.RawMessage{}
	}
	r := &object{file: o.file + ": " + key, values: values}
	for _, layer := range []string{"full_attention", "sliding_attention"} {
		if r.has(layer) {
			o.fail(key, "differs by layer type, which is not supported")
		}
	}
	c.Rope.Type = r.text("rope_type", r.text("type", "default"))
	c.Rope.Theta = r.number("rope_theta", c.Rope.Theta)
	if partial := r.number("partial_rotary_factor", o.number("partial_rotary_factor", 1)); partial != 1 {
		r.fail("partial_rotary_factor", "is %g; only 1 is supported", partial)
	}
	needs := func(key string) float64 {
		if !r.has(key) {
			r.fail(key, "is missing")
		}
		return r.number(key, 0)
	}
	original := o.number("original_max_position_embeddings", r.number("original_max_position_embeddings", float64(c.MaxPositionEmbeddings)))
	switch c.Rope.Type {
	case "default":
	case "linear":
		c.Rope.Factor = needs("factor")
	case "llama3":
		c.Rope.Factor, c.Rope.OriginalMaxPosition = needs("factor"), original
		c.Rope.LowFreqFactor, c.Rope.HighFreqFactor = needs("low_freq_factor"), needs("high_freq_factor")
	case "yarn":
		c.Rope.OriginalMaxPosition = original
		c.Rope.Factor = r.number("factor", float64(c.MaxPositionEmbeddings)/original)
		c.Rope.AttentionFactor = r.number("attention_factor", 0)
		c.Rope.BetaFast, c.Rope.BetaSlow = orDefault(r.number("beta_fast", 0), 32), orDefault(r.number("beta_slow", 0), 1)
		c.Rope.MScale, c.Rope.MScaleAllDim = r.number("mscale", 0), r.number("mscale_all_dim", 0)
		c.Rope.Truncate = r.boolean("truncate", true)
	}
	if o.err == nil {
		o.err = r.err
	}
}

func orDefault(v, otherwise float64) float64 {
	if v == 0 {
		return otherwise
	}
	return v
}

func (r Rope) validate() error {
	positive := func(what string, v float64) error {
		if !(v > 0) || math.IsInf(v, 0) {
			return fmt.Errorf("modelfile: config: rope: %s is %g, expected a positive number", what, v)
		}
		return nil
	}
	if err := positive("rope_theta", r.Theta); err != nil {
		return err
	}
	switch r.Type {
	case "default":
		return nil
	case "linear":
		return positive("factor", r.Factor)
	case "llama3":
		if r.HighFreqFactor == r.LowFreqFactor {
			return fmt.Errorf("modelfile: config: rope: high_freq_factor equals low_freq_factor (%g)", r.LowFreqFactor)
		}
		for _, v := range []struct {
			what  string
			value float64
		}{
			{"factor", r.Factor},
			{"original_max_position_embeddings", r.OriginalMaxPosition},
			{"low_freq_factor", r.LowFreqFactor},
			{"high_freq_factor", r.HighFreqFactor},
		} {
			if err := positive(v.what, v.value); err != nil {
				return err
			}
		}
		return nil
	case "yarn":
		if r.Theta == 1 {
			return fmt.Errorf("modelfile: config: rope: rope_theta is 1, for which yarn is not defined")
		}
		for _, v := range []struct {
			what  string
			value float64
		}{
			{"factor", r.Factor},
			{"original_max_position_embeddings", r.OriginalMaxPosition},
			{"beta_fast", r.BetaFast},
			{"beta_slow", r.BetaSlow},
			{"attention_factor", r.AttentionScaling()},
		} {
			if err := positive(v.what, v.value); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("modelfile: config: rope type %q is not supported; supported are default, linear, llama3, yarn", strings.ToValidUTF8(r.Type, ""))
}

// AttentionScaling is the factor on cos and sin: YaRN's attention factor (arXiv 2309.00071, section 3.4), 1 otherwise.
func (r Rope) AttentionScaling() float64 {
	if r.Type != "yarn" {
		return 1
	}
	if r.AttentionFactor != 0 {
		return r.AttentionFactor
	}
	mscale := func(m float64) float64 {
		if r.Factor <= 1 {
			return 1
		}
		return 0.1*m*math.Log(r.Factor) + 1
	}
	if r.MScale != 0 && r.MScaleAllDim != 0 {
		return mscale(r.MScale) / mscale(r.MScaleAllDim)
	}
	return mscale(1)
}

// InvFreq returns the rotation per position of each pair of dimensions, scaling applied: [headDim/2]. The steps and
// their float32 roundings are those of transformers' modeling_rope_utils.
func (r Rope) InvFreq(headDim int) []float32 {
	base := make([]float32, headDim/2) // theta^(2i/headDim)
	inv := make([]float32, headDim/2)
	for i := range inv {
		exponent := float32(2*i) / float32(headDim)
		base[i] = float32(math.Pow(float64(float32(r.Theta)), float64(exponent)))
		inv[i] = 1 / base[i]
	}
	switch r.Type {
	case "linear":
		for i := range inv {
			inv[i] /= float32(r.Factor)
		}
	case "llama3":
		for i := range inv {
			inv[i] = r.llama3(inv[i])
		}
	case "yarn":
		r.yarn(base, inv)
	}
	return inv
}

// llama3 keeps high frequencies, divides low ones by the factor and interpolates between.
func (r Rope) llama3(inv float32) float32 {
	wavelength := float32(2*math.Pi) / inv
	low, high := float32(r.OriginalMaxPosition/r.LowFreqFactor), float32(r.OriginalMaxPosition/r.HighFreqFactor)
	factor := float32(r.Factor)
	switch {
	case wavelength > low:
		return inv / factor
	case wavelength < high:
		return inv
	}
	smooth := (float32(r.OriginalMaxPosition)/wavelength - float32(r.LowFreqFactor)) / float32(r.HighFreqFactor-r.LowFreqFactor)
	return float32(float32((1-smooth)*inv)/factor) + float32(smooth*inv)
}

// yarn blends interpolated and original frequencies along a ramp over the dimensions (arXiv 2309.00071, section 3.2).
func (r Rope) yarn(base, inv []float32) {
	n := len(inv)
	correction := func(rotations float64) float64 {
		return float64(2*n) * math.Log(r.OriginalMaxPosition/(rotations*2*math.Pi)) / (2 * math.Log(r.Theta))
	}
	low, high := correction(r.BetaFast), correction(r.BetaSlow)
	if r.Truncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(2*n-1))
	if low == high {
		high += 0.001 // as transformers does, so that the ramp has a slope
	}
	for i := range inv {
		ramp := min(max((float32(i)-float32(low))/float32(high-low), 0), 1)
		extrapolated := 1 - ramp
		interpolated := 1 / float32(float32(r.Factor)*base[i])
		inv[i] = float32(interpolated*(1-extrapolated)) + float32(inv[i]*extrapolated)
	}
}
