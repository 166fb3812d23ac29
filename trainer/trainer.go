package trainer

import (
	"context"
	"fmt"
	"math"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/trajectory"
)

// SettingError is in what Load returns where a setting of this trainer is not that of the saved run, which then cannot go on.
type SettingError struct {
	Setting string // by its path in a job file, such as model.lora
	Text    string // what the run had, and what to do
}

func (e *SettingError) Error() string { return e.Text }

// Config holds what a Trainer is made with, besides the algorithm.
type Config struct {
	Schedule         Schedule
	AdamW            cgo.AdamWConfig // the zero value is cgo.DefaultAdamW
	ClipGrad         float64         // largest gradient norm; 0: not clipped
	Temperature      float64         // that the trajectories are sampled at, > 0; divides the logits everywhere
	MicroBatchTokens int             // packed tokens of one forward and backward, >= 1
	MaxLength        int             // longest sample of the model; 0: not checked
	Checkpoint       int             // layers whose activations are computed again in backward, as of cgo.ForwardOptions: less memory, more time
	minShared        int             // see PackOptions

	// Group spreads the work of a step over processes, see Trainer.Follow. The weights become rank 0's. nil: alone.
	Group *cgo.Group
	// Neighbours are those among Group's ranks that compute each micro-batch together: the ranks whose Rank / Neighbours.World() is the
	// same, in their order. Group's World is a multiple of theirs. The zero value: each rank has micro-batches of its own.
	Neighbours cgo.Neighbours
	// Reference computes the logprobs of the batch under the frozen policy that kl holds the trained one to, once a step. Needed where
	// kl.coefficient is above 0, not used otherwise.
	Reference Reference

	// Barrier runs the optimizer's write to the parameters while nobody reads them; an engine that shares them offers it
	// as Update. nil: called at once.
	Barrier func(ctx context.Context, write func(ctx context.Context) error) error
	// Shared says that the parameters are read behind Barrier while a step runs: then rank 0 keeps all of them in float32, and every write
	// renews them. Else nobody may read them within a step.
	Shared bool
}

func (c Config) validate() error {
	if err := c.Schedule.validate(); err != nil {
		return err
	}
	switch {
	case !(c.ClipGrad >= 0) || math.IsInf(c.ClipGrad, 0):
		return fmt.Errorf("trainer: clip_grad is %v, it must be 0 (off) or more", c.ClipGrad)
	case !(c.Temperature > 0) || math.IsInf(c.Temperature, 0):
		return fmt.Errorf("trainer: temperature is %v; training needs the one that sampled, above 0", c.Temperature)
	case c.MicroBatchTokens < 1:
		return fmt.Errorf("trainer: micro_batch_tokens is %d, it must be 1 or more", c.MicroBatchTokens)
	case c.MaxLength < 0 || c.minShared < 0:
		return fmt.Errorf("trainer: longest sample %d and shared tokens %d must be 0 or more", c.MaxLength, c.minShared)
	}
	return nil
}

// Reference is the frozen policy. Logprobs returns the log-probability of every row's target, [N], at the batch's
// temperature. The trainer calls it on its worker, between its own forwards. All neighbours call it with the same batch.
type Reference interface {
	Logprobs(b *cgo.Batch, n cgo.Neighbours) (logprobs []float32, err error)
}

// FrozenModel is a Reference in a model of its own, which nothing trains.
type FrozenModel struct{ Model *cgo.Model }

// Logprobs runs the model's forward without gradient.
func (f FrozenModel) Logprobs(b *cgo.Batch, n cgo.Neighbours) ([]float32, error) {
	s, err := f.Model.Infer(b, cgo.ForwardOptions{Neighbours: n})
	return s.Logprobs, err
}

// AdapterOff is the Reference in a model with an adapter: its frozen base, the adapter being switched off for the forward.
// No other forward of the model may run meanwhile. The steps of a cgo.Cache are none: they compute the model with its adapter either way.
type AdapterOff struct{ Model *cgo.Model }

// Logprobs runs the base model's forward without gradient.
func (a AdapterOff) Logprobs(b *cgo.Batch, n cgo.Neighbours) ([]float32, error) {
	a.Model.SetAdapter(false)
	defer a.Model.SetAdapter(true)
	return FrozenModel(a).Logprobs(b, n)
}

// Batch is what one step trains on. The trainer reads the trajectories and keeps none.
type Batch struct {
	Step    int                 // of the run, from 0: its place on the schedule, and its name in errors
	Version int32               // policy version before the step
	Groups  []*trajectory.Group // failed trajectories, and those without a response token, are counted and left out

	// Advantages [group][trajectory][L], over the response tokens, stand in place of the estimator's; nil: the estimator's.
	// Those of trajectories that do not count are not read.
	Advantages [][][]float64

	FilterCut bool // trajectories whose last completion was cut are left out like failed ones (rollout.cut: filter)
}

// Metrics describe one step. Means over tokens run over the trained tokens of the batch, each once.
type Metrics struct {
	Loss           float64 `json:"loss"`            // mean over the optimizer steps
	GradNorm       float64 `json:"grad_norm"`       // global L2 norm before clipping, mean over the optimizer steps
	LearningRate   float64 `json:"learning_rate"`   // of the last optimizer step
	OptimizerSteps int     `json:"optimizer_steps"` // 0: no trajectory counted, nothing was changed
	Entropy        float64 `json:"entropy"`         // mean entropy of the token distributions, in nats, before the step
	ClipFraction   float64 `json:"clip_fraction"`   // share of tokens whose gradient the loss's clip held back, of those that passed through the loss, over all passes: of flat trajectories none does where the algorithm is ZeroWithoutAdvantage
	Dropped        float64 `json:"dropped"`         // share of tokens whose policy term a correction multiplied by 0, of the same tokens
	KL             float64 `json:"kl"`              // mean of kl.estimator over tokens, old against reference; 0 without a reference
	ValueLoss      float64 `json:"value_loss"`      // the critic's before its coefficient, mean over the optimizer steps; 0 without one
	Explained      float64 `json:"explained"`       // 1 - Var(return - value) / Var(return), the values before the step

	MismatchMean float64 `json:"mismatch_mean"` // mean |old - sampling|
	MismatchMax  float64 `json:"mismatch_max"`  // max |old - sampling|
	MismatchK3   float64 `json:"mismatch_k3"`   // mean exp(d) - d - 1, d = old - sampling
	ESS          float64 `json:"ess"`           // (Σw)² / (nΣw²), w = exp(d); 1 without mismatch

	AdvantageMax   float64 `json:"advantage_max"`   // largest |advantage|
	StalenessMean  float64 `json:"staleness_mean"`  // mean over trajectories of version - version of the oldest trained token
	StalenessMax   int     `json:"staleness_max"`   //
	Trajectories   int     `json:"trajectories"`    // that count
	Failed         int     `json:"failed"`          // left out because they failed
	Empty          int     `json:"empty"`           // left out because they have no response token
	Filtered       int     `json:"filtered"`        // left out by StepBatch.FilterCut
	FlatGroups     int     `json:"flat_groups"`     // groups whose advantages are all 0
	Tokens         int     `json:"tokens"`          // trained tokens
	PackedTokens   int     `json:"packed_tokens"`   // tokens computed in one pass over the batch
	UnpackedTokens int     `json:"unpacked_tokens"` // tokens that would be computed without prefix sharing
	MicroBatches   int     `json:"micro_batches"`   // forwards in one pass over the batch

	Samples []SampleUpdate `json:"-"` // what the step added to each sample that counted, for the record
}

// SampleUpdate is what a step computed for a sample, [T] and 0 off the response mask.
type SampleUpdate struct {
	Trajectory  string // its ID
	Sample      int    // index into the trajectory's samples
	OldLogprobs []float32
	Advantages  []float32
	Entropy     []float32 // nats, of the distribution before the step

	ReferenceLogprobs []float32 // nil without a reference
	Values            []float32 // before the step; nil without a critic
}

// SampleLogprobs are the trainer's numbers of one sample, [T], 0 off the response mask.
type SampleLogprobs struct {
	Logprobs []float32
	Entropy  []float32
}
