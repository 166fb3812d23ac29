package vllm

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/modelfile"
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

// share writes the update's tensors into shared memory.
func (u *updateRun) share(ctx context.Context) (plan transferPlan, remove func(), err error) {
	if u.weights.Tensors != nil {
		return shareMemory(ctx, u.weights.Tensors, u.options.ChunkBytes)
	}
	return shareTensors(u.weights.Path)
}

// safetensorsNames are their names of the types of engines.TensorInfo.
var safetensorsNames = map[string]string{"float32": "F32", "bfloat16": "BF16"}

// shareMemory does what shareTensors does with tensors of this process, chunk after chunk.
func shareMemory(ctx context.Context, t engines.Tensors, limit int64) (plan transferPlan, remove func(), err error) {
	f, drop, err := sharedFile()
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
	for _, info := range t.List() {
		plan.Tensors = append(plan.Tensors, transferTensor{info.Name, safetensorsNames[info.DType], info.Shape, plan.Size})
		plan.Size += info.Bytes
	}
	var buffer []byte
	err = packTensors(t).chunks(ctx, limit, func(_, _ int, chunk engines.Packed) error {
		buffer = slices.Grow(buffer[:0], int(chunk.Size()))[:chunk.Size()]
		if err := chunk.Read(buffer); err != nil {
			return err
		}
		_, err := f.Write(buffer)
		return err
	})
	if err != nil {
		return plan, nil, fmt.Errorf("shared memory: %w", err)
	}
	return plan, drop, nil
}

// sharedFile makes an empty file in shared memory, which remove removes.
func sharedFile() (f *os.File, remove func(), err error) {
	if _, err := RemoveStale(sharedMemory(), "shared"); err != nil { // a killed run leaves gigabytes in memory
		return nil, nil, fmt.Errorf("shared memory: %w", err)
	}
	if f, err = os.CreateTemp(sharedMemory(), TempPattern("shared")); err != nil {
		return nil, nil, fmt.Errorf("shared memory: %w", err)
	}
	return f, func() { os.Remove(f.Name()) }, nil
}

// shareTensors writes a folder's tensors back to back into a file in shared memory, which the caller removes.
func shareTensors(path string) (plan transferPlan, remove func(), err error) {
	m, err := modelfile.Open(path)
	if err != nil {
		return plan, nil, err
	}
	defer m.Close()
	f, drop, err := sharedFile()
	if err != nil {
		return plan, nil, err
	}
	defer func() {
		if err != nil {
			drop()
		}
	}()
	if plan.File, err = filepath.Abs(f.Name()); err != nil {
		return plan, nil, err
	}
	for _, name := range m.Names() {
		t, err := m.Tensor(name)
		if err != nil {
			f.Close()
			return plan, nil, err
		}
		if _, err := f.Write(t.Data); err != nil {
			f.Close()
			return plan, nil, fmt.Errorf("shared memory: %w", err)
		}
		shape := t.Shape
		if shape == nil {
			shape = []int{}
		}
		plan.Tensors = append(plan.Tensors, transferTensor{name, string(t.DType), shape, plan.Size})
		plan.Size += int64(len(t.Data))
	}
	if err := f.Close(); err != nil {
		return plan, nil, fmt.Errorf("shared memory: %w", err)
	}
	return plan, drop, nil
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
	plan, remove, err := u.share(ctx)
	if err != nil {
		return err
	}
	defer remove()
	for _, s := range []struct {
		path string
		body any
	}{
		{"/init_weight_transfer_engine", map[string]any{"init_info": map[string]any{}}},
		{"/start_weight_update", nil},
		{"/update_weights", map[string]any{"update_info": plan}},
		{"/finish_weight_update", map[string]any{"weight_version": u.version}},
	} {
		if err := u.client.call(ctx, http.MethodPost, s.path, s.body, nil); err != nil {
			return fmt.Errorf("%s: %w", s.path, err)
		}
	}
	return nil
}
