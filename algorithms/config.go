package algorithms

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Config is the algorithm block of a job file and of `agentfly inspect loss`, as written. Resolve fills in what is not
// set and refuses what contradicts itself.
type Config struct {
	Advantage       Choice     `json:"advantage" yaml:"advantage"`                           // estimator; default grpo
	Loss            Choice     `json:"loss" yaml:"loss"`                                     // default ppo_clip
	ClipLow         *float64   `json:"clip_low,omitempty" yaml:"clip_low,omitempty"`         // ratio's lower bound is 1 - clip_low; default of the loss
	ClipHigh        *float64   `json:"clip_high,omitempty" yaml:"clip_high,omitempty"`       // ratio's upper bound is 1 + clip_high; default of the loss
	DualClip        *float64   `json:"dual_clip,omitempty" yaml:"dual_clip,omitempty"`       // 0 is off, otherwise > 1; default 0
	Aggregation     string     `json:"aggregation,omitempty" yaml:"aggregation,omitempty"`   // default of the loss
	MaxTokens       int        `json:"max_tokens,omitempty" yaml:"max_tokens,omitempty"`     // only for seq-mean-token-sum-norm, required there; >= 1
	KL              KL         `json:"kl,omitempty" yaml:"kl,omitempty"`                     //
	Entropy         float64    `json:"entropy,omitempty" yaml:"entropy,omitempty"`           // coefficient of the entropy bonus, >= 0; default 0
	Value           *Value     `json:"value,omitempty" yaml:"value,omitempty"`               // only with a critic
	Correction      Correction `json:"correction,omitempty" yaml:"correction,omitempty"`     //
	Epochs          *int       `json:"epochs,omitempty" yaml:"epochs,omitempty"`             // passes over a batch, >= 1; default 1
	MiniBatches     *int       `json:"mini_batches,omitempty" yaml:"mini_batches,omitempty"` // optimizer steps per pass, >= 1; default 1
	DynamicSampling bool       `json:"dynamic_sampling,omitempty" yaml:"dynamic_sampling,omitempty"`
	Overlong        Overlong   `json:"overlong,omitempty" yaml:"overlong,omitempty"`
}

// KL is a penalty for leaving the frozen reference policy.
type KL struct {
	Coefficient float64 `json:"coefficient,omitempty" yaml:"coefficient,omitempty"` // >= 0; default 0, which needs no reference
	Estimator   string  `json:"estimator,omitempty" yaml:"estimator,omitempty"`     // k1, k2 or k3; default k3
	In          string  `json:"in,omitempty" yaml:"in,omitempty"`                   // loss or reward; default loss
}

// Value configures the critic's loss.
type Value struct {
	Coefficient *float64 `json:"coefficient,omitempty" yaml:"coefficient,omitempty"` // > 0; default 0.5
	Clip        *float64 `json:"clip,omitempty" yaml:"clip,omitempty"`               // how far a value may move from the old one, > 0; default 0.2
}

// ValueSettings is a resolved Value.
type ValueSettings struct{ Coefficient, Clip float64 }

// Correction weighs the policy term by how far the trainer's old logprobs are from the engine's sampling logprobs.
type Correction struct {
	Kind string   `json:"kind,omitempty" yaml:"kind,omitempty"` // none, tis_token, tis_sequence, icepop, seq_mask or bypass; default none
	Cap  *float64 `json:"cap,omitempty" yaml:"cap,omitempty"`   // tis_token, tis_sequence, seq_mask: largest weight, > 0; default 2, of tis_sequence 5
	Low  *float64 `json:"low,omitempty" yaml:"low,omitempty"`   // icepop, seq_mask: weights below are 0; default 0.5
	High *float64 `json:"high,omitempty" yaml:"high,omitempty"` // icepop, seq_mask: weights above are 0; default 5
}

// Choice names an estimator or a loss: a bare name, or an object with the key name and the named thing's own keys.
type Choice struct {
	Name string
	Keys map[string]any // without name; numbers are int, int64 or float64
}

// UnmarshalJSON reads a name or an object.
func (c *Choice) UnmarshalJSON(data []byte) error {
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	switch v := v.(type) {
	case string:
		*c = Choice{Name: v}
		return nil
	case map[string]any:
		name, ok := v["name"].(string)
		if !ok || name == "" {
			return fmt.Errorf("algorithms: the key name is missing; write a name, or {name: NAME, key: value}")
		}
		delete(v, "name")
		*c = Choice{Name: name, Keys: v}
		return nil
	}
	return fmt.Errorf("algorithms: %v is neither a name nor {name: NAME, key: value}", v)
}

// MarshalJSON writes the form that UnmarshalJSON reads.
func (c Choice) MarshalJSON() ([]byte, error) {
	if len(c.Keys) == 0 {
		return json.Marshal(c.Name)
	}
	m := map[string]any{"name": c.Name}
	for k, v := range c.Keys {
		m[k] = v
	}
	return json.Marshal(m)
}

// ParseJSON reads an algorithm block in JSON; unknown keys and anything after the object are errors.
func ParseJSON(data []byte) (Config, error) {
	var c Config
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return Config{}, fmt.Errorf("algorithms: algorithm block: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Config{}, fmt.Errorf("algorithms: algorithm block: more follows the object")
	}
	return c, nil
}
