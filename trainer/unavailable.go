//go:build !torch

package trainer

import (
	"context"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/trajectory"
)

// Trainer stands in for the real one; no value of it can be made.
type Trainer struct{}

// NewTrainer checks the configuration and returns cgo.ErrUnavailable.
func NewTrainer(_ *cgo.Model, _ *cgo.Worker, _ *algorithms.Algorithm, c Config) (*Trainer, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return nil, cgo.ErrUnavailable
}

func (t *Trainer) Step(context.Context, Batch) (Metrics, error) {
	return Metrics{}, cgo.ErrUnavailable
}

func (t *Trainer) Logprobs(context.Context, []*trajectory.Sample, float64) ([]SampleLogprobs, error) {
	return nil, cgo.ErrUnavailable
}
func (t *Trainer) Save(string) error            { return cgo.ErrUnavailable }
func (t *Trainer) Load(string) error            { return cgo.ErrUnavailable }
func (t *Trainer) Follow(context.Context) error { return cgo.ErrUnavailable }
func (t *Trainer) Release() error               { return nil }

func (t *Trainer) LendMemory(context.Context) error    { return cgo.ErrUnavailable }
func (t *Trainer) ReclaimMemory(context.Context) error { return cgo.ErrUnavailable }

func (t *Trainer) Steps() int64 { return 0 }
func (t *Trainer) Close() error { return nil }
