package algorithms

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Config is the algorithm block of a job file and of `agentfly inspect loss`, as written. Resolve fills in what is not
// set and refuses what contradicts itself. The tags doc and range are for docs/job-reference.md: what is allowed is decided by
// Resolve, which also has the defaults.
type Config struct {
	Advantage       Choice     `json:"advantage" yaml:"advantage" doc:"an estimator: a name, or {name: NAME, key: value}; the names and their keys are in docs/algorithms.md"`
	Loss            Choice     `json:"loss" yaml:"loss" doc:"a loss: a name, or {name: NAME, key: value}; the names and their keys are in docs/algorithms.md"`
	ClipLow         *float64   `json:"clip_low,omitempty" yaml:"clip_low,omitempty" doc:"the ratio's lower bound is 1 - clip_low; the default is the loss's own, and a loss that does not clip refuses it" range:"0 to 1"`
	ClipHigh        *float64   `json:"clip_high,omitempty" yaml:"clip_high,omitempty" doc:"the ratio's upper bound is 1 + clip_high; the default is the loss's own, and a loss that does not clip refuses it" range:"0 or more"`
	DualClip        *float64   `json:"dual_clip,omitempty" yaml:"dual_clip,omitempty" doc:"ppo_clip: bound of the loss of negative advantages; 0 is off" range:"0, or above 1"`
	Aggregation     string     `json:"aggregation,omitempty" yaml:"aggregation,omitempty" doc:"how the losses of tokens become one number; the default is the loss's own" range:"token-mean, seq-mean-token-sum, seq-mean-token-mean, seq-mean-token-sum-norm"`
	MaxTokens       int        `json:"max_tokens,omitempty" yaml:"max_tokens,omitempty" doc:"denominator of seq-mean-token-sum-norm, which needs it; other aggregations refuse it" range:"1 or more"`
	KL              KL         `json:"kl,omitempty" yaml:"kl,omitempty" doc:"penalty for leaving a frozen reference policy"`
	Entropy         float64    `json:"entropy,omitempty" yaml:"entropy,omitempty" doc:"coefficient of the entropy bonus" range:"0 or more"`
	Value           *Value     `json:"value,omitempty" yaml:"value,omitempty" doc:"loss of the critic; only with an estimator that has one (gae)"`
	Correction      Correction `json:"correction,omitempty" yaml:"correction,omitempty" doc:"weighs the policy term by how far the trainer's old logprobs are from the sampling logprobs"`
	Epochs          *int       `json:"epochs,omitempty" yaml:"epochs,omitempty" doc:"passes over a batch" range:"1 or more"`
	MiniBatches     *int       `json:"mini_batches,omitempty" yaml:"mini_batches,omitempty" doc:"optimizer steps of a pass" range:"1 or more"`
	DynamicSampling bool       `json:"dynamic_sampling,omitempty" yaml:"dynamic_sampling,omitempty" doc:"groups whose rewards are all equal are dropped, and further tasks sampled in their place"`
	Overlong        Overlong   `json:"overlong,omitempty" yaml:"overlong,omitempty" doc:"soft punishment of trajectories that come close to rollout.max_tokens"`
}

// The estimator and the loss of a job that names none.
const (
	DefaultAdvantage = "grpo"
	DefaultLoss      = "ppo_clip"
)

// KL is a penalty for leaving the frozen reference policy.
type KL struct {
	Coefficient float64 `json:"coefficient,omitempty" yaml:"coefficient,omitempty" doc:"of the penalty; 0: none, and no reference" range:"0 or more"`
	Estimator   string  `json:"estimator,omitempty" yaml:"estimator,omitempty" doc:"of the divergence; k1 only in the reward" range:"k1, k2, k3"`
	In          string  `json:"in,omitempty" yaml:"in,omitempty" doc:"where the penalty counts" range:"loss, reward"`
}

// Value configures the critic's loss.
type Value struct {
	Coefficient *float64 `json:"coefficient,omitempty" yaml:"coefficient,omitempty" doc:"of the critic's loss beside the policy's" range:"above 0"`
	Clip        *float64 `json:"clip,omitempty" yaml:"clip,omitempty" doc:"how far a value may move from the one before the update" range:"above 0"`
}

// ValueSettings is a resolved Value.
type ValueSettings struct{ Coefficient, Clip float64 }

// Correction weighs the policy term by how far the trainer's old logprobs are from the engine's sampling logprobs.
type Correction struct {
	Kind string   `json:"kind,omitempty" yaml:"kind,omitempty" doc:"which weight; docs/algorithms.md has the formulas" range:"none, tis_token, tis_sequence, icepop, seq_mask, bypass"`
	Cap  *float64 `json:"cap,omitempty" yaml:"cap,omitempty" doc:"tis_token, tis_sequence, seq_mask: largest weight; the default is 5 with tis_sequence" range:"above 0"`
	Low  *float64 `json:"low,omitempty" yaml:"low,omitempty" doc:"icepop, seq_mask: what is below weighs 0" range:"0 or more, below high"`
	High *float64 `json:"high,omitempty" yaml:"high,omitempty" doc:"icepop, seq_mask: what is above weighs 0" range:"above low"`
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
