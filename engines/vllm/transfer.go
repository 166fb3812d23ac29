package vllm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/agentfly/agentfly/engines"
)

// transferPlan is the update_info of engines/vllm/extension/agentfly_transfer.py.
type transferPlan struct {
	File    string           `json:"file"`
	Size    int64            `json:"size"`
	Tensors []transferTensor `json:"tensors"`
}

type transferTensor struct {
	Name   string `json:"name"`
	DType  string `json:"dtype"`
	Shape  []int  `json:"shape"`
	Offset int64  `json:"offset"`
}

// safetensorsNames are their names of what PyTorch calls torchNames.
var safetensorsNames = map[string]string{"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}

// share writes the tensors back to back into a file in shared memory, chunk after chunk. The caller removes it.
func share(ctx context.Context, source packedSource, limit int64) (plan transferPlan, remove func(), err error) {
	f, drop, err := sharedFile(sharedMemory())
	if err != nil {
		return plan, nil, err
	}
	defer func() {
		if e := f.Close(); err == nil && e != nil {
			err = fmt.Errorf("shared memory: %w", e)
		}
		if err != nil {
			drop()
		}
	}()
	if plan.File, err = filepath.Abs(f.Name()); err != nil {
		return plan, nil, err
	}
	all := source.update
	for i, name := range all.Names {
		plan.Tensors = append(plan.Tensors, transferTensor{name, safetensorsNames[all.DTypes[i]], all.Shapes[i], plan.Size})
		plan.Size += source.sizes[i]
	}
	var buffer []byte
	err = source.chunks(ctx, limit, func(_, _ int, chunk engines.Packed) error {
		bytes, err := onHost(chunk, &buffer)
		if err != nil {
			return err
		}
		_, err = f.Write(bytes)
		return err
	})
	if err != nil {
		return plan, nil, fmt.Errorf("shared memory: %w", err)
	}
	return plan, drop, nil
}

// sharedFile makes an empty file in a folder of shared memory, which remove removes.
func sharedFile(folder string) (f *os.File, remove func(), err error) {
	_, _ = RemoveStale(folder, "shared") // a killed run leaves gigabytes; another user's may stay, and if it leaves no room, a write says so
	if f, err = os.CreateTemp(folder, TempPattern("shared")); err != nil {
		return nil, nil, fmt.Errorf("shared memory: %w", err)
	}
	return f, func() { os.Remove(f.Name()) }, nil
}

func sharedMemory() string {
	const linux = "/dev/shm"
	if info, err := os.Stat(linux); err == nil && info.IsDir() {
		return linux
	}
	return os.TempDir()
}

// transfer sends the tensors through a file in shared memory.
func (u *updateRun) transfer(ctx context.Context) error {
	source, done, err := u.source()
	if err != nil {
		return err
	}
	defer done()
	plan, remove, err := share(ctx, source, u.options.ChunkBytes)
	if err != nil {
		return err
	}
	defer remove()
	if err := u.client.post(ctx, "/init_weight_transfer_engine", map[string]any{"init_info": map[string]any{}}); err != nil {
		return err
	}
	return u.weightUpdate(ctx, func() error {
		return u.client.post(ctx, "/update_weights", map[string]any{"update_info": plan})
	})
}
