package vllm

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/modelfile"
)

// Collectives make process groups of the trainer, which is rank 0, and the workers of one server, which are the others.
// A group lives for one update: nothing of it has to be repaired when a server was started again.
type Collectives interface {
	// Meet says where a group of that backend ("gloo" or "nccl") and size will meet. server is the URL of the one whose workers
	// join. An error says what is missing.
	Meet(ctx context.Context, backend, server string, world int) (Meeting, error)
}

// Meeting is a group that nobody has joined yet. For gloo Address and Port name a store that rank 0 serves once it joins; for
// nccl UniqueID are the bytes of ncclGetUniqueId.
type Meeting struct {
	Address  string
	Port     int
	UniqueID []byte
	// Join returns when every rank is there. The servers enter at the same time. With nccl it must, as vLLM's workers do,
	// all-reduce one element before anything else.
	Join func(ctx context.Context) (Group, error)
}

// PackedGroup is a Group that sends packed tensors from the trainer's device.
type PackedGroup interface {
	Group
	// SendPacked is Send of all of a chunk, which lies on the device.
	SendPacked(ctx context.Context, chunk engines.Packed) error
}

// sendPacked sends a chunk, through host memory where the group knows no better. buffer is reused.
func sendPacked(ctx context.Context, g Group, chunk engines.Packed, buffer *[]byte) error {
	_, host := chunk.(hostBytes)
	if direct, ok := g.(PackedGroup); ok && !host {
		return direct.SendPacked(ctx, chunk)
	}
	bytes, err := onHost(chunk, buffer)
	if err != nil {
		return err
	}
	return g.Send(ctx, bytes)
}

// Group is rank 0's end of a process group.
type Group interface {
	// Send broadcasts a chunk. It ends with ctx or the group's own deadline when a worker does not take it.
	Send(ctx context.Context, chunk []byte) error
	Close() error
}

// collectiveTimeout is how long a worker waits for the trainer before it gives an update up.
const collectiveTimeout = time.Minute

// glooInit is the init_info of agentfly_transfer.py for a group.
type glooInit struct {
	Address    string  `json:"master_address"`
	Port       int     `json:"master_port"`
	RankOffset int     `json:"rank_offset"`
	World      int     `json:"world_size"`
	Chunk      int64   `json:"packed_buffer_size_bytes"`
	Timeout    float64 `json:"timeout"` // seconds
}

// ncclInit is vLLM's NCCLWeightTransferInitInfo (nccl_common.py, 0.32.0) with a unique id that the trainer made.
type ncclInit struct {
	RankOffset int    `json:"rank_offset"`
	World      int    `json:"world_size"`
	UniqueID   string `json:"nccl_unique_id_b64"` // standard base64 of 128 bytes
	Packed     bool   `json:"packed"`
	Chunk      int64  `json:"packed_buffer_size_bytes"`
	Buffers    int    `json:"packed_num_buffers"`
}

const ncclIDBytes = 128

// initInfo is what the workers need to join.
func (m Meeting) initInfo(backend string, world int, chunk int64) (any, error) {
	if backend != "nccl" {
		return glooInit{m.Address, m.Port, 1, world, chunk, collectiveTimeout.Seconds()}, nil
	}
	if len(m.UniqueID) != ncclIDBytes {
		return nil, fmt.Errorf("the unique id has %d bytes, NCCL's have %d", len(m.UniqueID), ncclIDBytes)
	}
	return ncclInit{1, world, base64.StdEncoding.EncodeToString(m.UniqueID), true, chunk, 2}, nil
}

// backend of the process group that a way needs; "" for none.
func (w Way) backend() string {
	switch w {
	case WayGloo:
		return "gloo"
	case WayNCCL:
		return "nccl"
	}
	return ""
}

// ServerBackend is what `vllm serve` must be given in --weight-transfer-config for updates by that way.
func (w Way) ServerBackend() string {
	if w == WayNCCL {
		return "nccl"
	}
	return "agentfly"
}

// TakesTensors tells whether an update by that way takes engines.Weights.Tensors.
func (w Way) TakesTensors() bool {
	return w == WayTransfer || w == WayIPC || w == WayGloo || w == WayNCCL
}

// meet finds a meeting for an update by that way, or says what is missing.
func (o Options) meet(ctx context.Context, server string, world int) (Meeting, error) {
	backend := o.Way.backend()
	if o.Collectives == nil {
		if o.Way == WayNCCL {
			return Meeting{}, errors.New("weights over nccl need CUDA: this program has no NCCL process groups; use disk or transfer")
		}
		return Meeting{}, errors.New("weights over gloo need process groups, which this program has not; use disk or transfer")
	}
	return o.Collectives.Meet(ctx, backend, server, world)
}

// broadcast sends the tensors over a process group: every worker joins, then takes the chunks while the trainer sends them.
func (u *updateRun) broadcast(ctx context.Context) (err error) {
	source, done, err := u.source()
	if err != nil {
		return err
	}
	defer done()
	if err := source.current(ctx); err != nil {
		return err
	}
	var buffer []byte
	var size struct {
		World int `json:"world_size"`
	}
	if err := u.client.call(ctx, http.MethodGet, "/get_world_size", nil, &size); err != nil {
		return fmt.Errorf("/get_world_size: %w", err)
	}
	if size.World < 1 {
		return fmt.Errorf("/get_world_size: %w: %d workers", errReply, size.World)
	}
	group, err := u.join(ctx, size.World+1)
	if err != nil {
		return err
	}
	defer func() {
		if e := group.Close(); err == nil {
			err = e
		}
	}()
	err = u.weightUpdate(ctx, func() error {
		return together(ctx, u.options.HealthTimeout,
			func(ctx context.Context) error {
				return u.client.post(ctx, "/update_weights", map[string]any{"update_info": source.update})
			},
			func(ctx context.Context) error {
				return source.chunks(ctx, u.options.ChunkBytes, func(_, _ int, chunk engines.Packed) error { return sendPacked(ctx, group, chunk, &buffer) })
			})
	})
	if err != nil {
		return err
	}
	return u.client.post(ctx, "/shutdown_weight_transfer_engine", nil)
}

// source is where an update's tensors are read; done ends that.
func (u *updateRun) source() (s packedSource, done func(), err error) {
	if u.weights.Tensors != nil {
		return packTensors(u.weights.Tensors), func() {}, nil
	}
	m, err := modelfile.Open(u.weights.Path)
	if err != nil {
		return s, nil, err
	}
	if s, err = packModel(m); err != nil {
		m.Close()
		return s, nil, err
	}
	return s, func() { m.Close() }, nil
}

// join makes the group: the workers block until the trainer enters, and the other way round.
func (u *updateRun) join(ctx context.Context, world int) (group Group, err error) {
	meeting, err := u.options.meet(ctx, u.url, world)
	if err != nil {
		return nil, err
	}
	info, err := meeting.initInfo(u.way.backend(), world, u.options.ChunkBytes)
	if err != nil {
		return nil, err
	}
	err = together(ctx, u.options.HealthTimeout,
		func(ctx context.Context) error {
			return u.client.post(ctx, "/init_weight_transfer_engine", map[string]any{"init_info": info})
		},
		func(ctx context.Context) (err error) {
			group, err = meeting.Join(ctx)
			return err
		})
	if err != nil && group != nil {
		_ = group.Close() // the reason is err
		return nil, err
	}
	return group, err
}

// together runs the server's and the trainer's half of an operation that neither can do alone. When the server's fails the trainer's is cancelled,
// because it would wait for a peer that never comes. When the trainer's fails first, such as by a group that a worker left, the server has patience
// to say why before its half is cancelled.
func together(ctx context.Context, patience time.Duration, server, trainer func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answer := make(chan error, 1)
	go func() {
		err := server(ctx)
		if err != nil {
			cancel()
		}
		answer <- err
	}()
	failed := trainer(ctx)
	if failed == nil || ctx.Err() != nil { // the server's half ends by itself
		return cmp.Or(<-answer, failed)
	}
	late := time.AfterFunc(patience, cancel)
	if err := <-answer; err != nil && late.Stop() {
		return fmt.Errorf("%w; %w", failed, err)
	}
	return failed
}
