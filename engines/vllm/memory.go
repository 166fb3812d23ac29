package vllm

import (
	"context"
	"encoding/base64"
	"fmt"

	"github.com/agentfly/agentfly/engines"
)

// memoryUpdate is the update_info of a chunk that lies in memory of the trainer's device.
type memoryUpdate struct {
	packedUpdate
	Handle string `json:"memory"` // CUipcMemHandle, standard base64 of 64 bytes
}

// openMemory has the extension open the trainer's device memory, chunk after chunk: the worker copies from it before it
// answers, and the next chunk takes its place.
func (u *updateRun) openMemory(ctx context.Context) error {
	source := packTensors(u.weights.Tensors)
	if err := source.current(ctx); err != nil {
		return err
	}
	if err := u.client.post(ctx, "/init_weight_transfer_engine", map[string]any{"init_info": map[string]any{}}); err != nil {
		return err
	}
	return u.weightUpdate(ctx, func() error {
		return source.chunks(ctx, u.options.ChunkBytes, func(first, end int, chunk engines.Packed) error {
			handle, err := chunk.Handle()
			if err != nil {
				return err
			}
			if len(handle) != ipcHandleBytes {
				return fmt.Errorf("the handle has %d bytes, CUDA's have %d", len(handle), ipcHandleBytes)
			}
			all := source.update
			return u.client.post(ctx, "/update_weights", map[string]any{"update_info": memoryUpdate{
				packedUpdate{all.Names[first:end], all.DTypes[first:end], all.Shapes[first:end]}, base64.StdEncoding.EncodeToString(handle),
			}})
		})
	})
}

const ipcHandleBytes = 64
