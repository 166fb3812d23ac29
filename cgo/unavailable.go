//go:build !torch

package cgo

import "context"

// Model stands in for the real one; no value of it can be made.
type Model struct{}

// Optimizer stands in for the real one; no value of it can be made.
type Optimizer struct{}

// Group stands in for the real one; no value of it can be made.
type Group struct{}

// Staging stands in for the real one; no value of it can be made.
type Staging struct{}

// NCCLGroup stands in for the real one; no value of it can be made.
type NCCLGroup struct{}

// Error is a failed call of the C++ library.
type Error struct {
	Code    int
	Message string
}

func (e *Error) Error() string { return e.Message }

// Available reports whether this binary has the C++ library.
func Available() bool { return false }

// TorchVersion returns "".
func TorchVersion() string { return "" }

// CUDADevices returns 0.
func CUDADevices() int { return 0 }

// SetThreads does nothing.
func SetThreads(int) {}

// LiveHandles returns 0.
func LiveHandles() int64 { return 0 }

// NewModel returns ErrUnavailable, as every function and method below.
func NewModel(ModelConfig, string) (*Model, error) { return nil, ErrUnavailable }

func (m *Model) Config() ModelConfig                               { return ModelConfig{} }
func (m *Model) Close() error                                      { return nil }
func (m *Model) AddValueHead() error                               { return ErrUnavailable }
func (m *Model) SetDType(DType) error                              { return ErrUnavailable }
func (m *Model) AddAdapter(AdapterConfig) error                    { return ErrUnavailable }
func (m *Model) SetAdapter(bool)                                   {}
func (m *Model) Adapter() (AdapterConfig, bool)                    { return AdapterConfig{}, false }
func (m *Model) Merged(string) ([]float32, error)                  { return nil, ErrUnavailable }
func (m *Model) Parameters() []ParameterInfo                       { return nil }
func (m *Model) Trained() []ParameterInfo                          { return nil }
func (m *Model) SetParameter(string, DType, []byte, []int64) error { return ErrUnavailable }
func (m *Model) Parameter(string) ([]float32, error)               { return nil, ErrUnavailable }
func (m *Model) Gradient(string) ([]float32, error)                { return nil, ErrUnavailable }
func (m *Model) Init(uint64, float64) error                        { return ErrUnavailable }
func (m *Model) Changed()                                          {}
func (m *Model) Release() error                                    { return ErrUnavailable }
func (m *Model) Version() uint64                                   { return 0 }
func (m *Model) Logprobs(*Batch) (logprobs, entropy []float32, err error) {
	return nil, nil, ErrUnavailable
}

func (m *Model) Infer(*Batch, ForwardOptions) (Inference, error) { return Inference{}, ErrUnavailable }

func NewOptimizer(*Model, AdamWConfig, *Group) (*Optimizer, error) { return nil, ErrUnavailable }

func (o *Optimizer) Close() error                              { return nil }
func (o *Optimizer) Step(lr, maxNorm float64) (float64, error) { return 0, ErrUnavailable }
func (o *Optimizer) ExpectLast() error                         { return ErrUnavailable }
func (o *Optimizer) Send() error                               { return ErrUnavailable }
func (o *Optimizer) Gather() error                             { return ErrUnavailable }
func (o *Optimizer) Spread() error                             { return ErrUnavailable }
func (o *Optimizer) Share() error                              { return ErrUnavailable }
func (o *Optimizer) ZeroGrad() error                           { return ErrUnavailable }
func (o *Optimizer) Release() error                            { return ErrUnavailable }
func (o *Optimizer) Restore() error                            { return ErrUnavailable }
func (o *Optimizer) State(string, Moment) ([]float32, error)   { return nil, ErrUnavailable }
func (o *Optimizer) SetState(string, Moment, []float32) error  { return ErrUnavailable }
func (o *Optimizer) StepCount() int64                          { return 0 }
func (o *Optimizer) SetStepCount(int64) error                  { return ErrUnavailable }

func NewGroup(GroupConfig) (*Group, error)             { return nil, ErrUnavailable }
func (g *Group) Close() error                          { return nil }
func (g *Group) Rank() int                             { return 0 }
func (g *Group) World() int                            { return 1 }
func (g *Group) Barrier() error                        { return ErrUnavailable }
func (g *Group) Broadcast(int, []byte) ([]byte, error) { return nil, ErrUnavailable }
func (g *Group) Await(int) ([]byte, error)             { return nil, ErrUnavailable }
func (g *Group) Gather([]byte) ([][]byte, error)       { return nil, ErrUnavailable }
func (g *Group) AllReduce([]float32) error             { return ErrUnavailable }
func (g *Group) ReduceScatter([]float32) error         { return ErrUnavailable }
func (g *Group) AllGather([]float32) error             { return ErrUnavailable }
func (g *Group) Traffic() Traffic                      { return Traffic{} }
func (g *Group) BroadcastModel(*Model) error           { return ErrUnavailable }
func (g *Group) Fail(string)                           {}

func NewStaging(*Model, StagingConfig) (*Staging, error) { return nil, ErrUnavailable }

func (s *Staging) Close() error                        { return nil }
func (s *Staging) Pack([]string, DType) (int64, error) { return 0, ErrUnavailable }
func (s *Staging) Read([]byte) error                   { return ErrUnavailable }
func (s *Staging) Handle() ([]byte, error)             { return nil, ErrUnavailable }

func (g *NCCLGroup) BroadcastStaging(context.Context, int, *Staging, int64) error {
	return ErrUnavailable
}

func NCCL(string) (NCCLLibrary, error)                            { return NCCLLibrary{}, ErrUnavailable }
func NCCLUniqueID(string) ([]byte, error)                         { return nil, ErrUnavailable }
func JoinNCCL(context.Context, NCCLConfig) (*NCCLGroup, error)    { return nil, ErrUnavailable }
func (g *NCCLGroup) Broadcast(context.Context, int, []byte) error { return ErrUnavailable }
func (g *NCCLGroup) Close() error                                 { return nil }
