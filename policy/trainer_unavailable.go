//go:build !torch

package policy

import (
	"context"

	"github.com/agentfly/agentfly/algorithms"
	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/trajectory"
)

// Trainer stands in for the real one; no value of it can be made.
type Trainer struct{}

// NewTrainer returns cgo.ErrUnavailable.
func NewTrainer(*cgo.Model, *cgo.Worker, *algorithms.Algorithm, TrainerConfig) (*Trainer, error) {
	return nil, cgo.ErrUnavailable
}

func (t *Trainer) Step(context.Context, StepBatch) (Metrics, error) {
	return Metrics{}, cgo.ErrUnavailable
}

func (t *Trainer) Score(context.Context, []*trajectory.Sample, float64) ([]SampleScores, error) {
	return nil, cgo.ErrUnavailable
}
func (t *Trainer) Save(string) error { return cgo.ErrUnavailable }
func (t *Trainer) Load(string) error { return cgo.ErrUnavailable }
func (t *Trainer) Steps() int64      { return 0 }
func (t *Trainer) Close() error      { return nil }
