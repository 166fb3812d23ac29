package vllm

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

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

// shareTensors writes a folder's tensors back to back into a file in shared memory, which the caller removes.
func shareTensors(path string) (plan transferPlan, remove func(), err error) {
	m, err := modelfile.Open(path)
	if err != nil {
		return plan, nil, err
	}
	defer m.Close()
	if _, err := RemoveStale(sharedMemory(), "shared"); err != nil { // a killed run leaves gigabytes in memory
		return plan, nil, fmt.Errorf("shared memory: %w", err)
	}
	f, err := os.CreateTemp(sharedMemory(), TempPattern("shared"))
	if err != nil {
		return plan, nil, fmt.Errorf("shared memory: %w", err)
	}
	remove = func() { os.Remove(f.Name()) }
	defer func() {
		if err != nil {
			remove()
		}
	}()
	if plan.File, err = filepath.Abs(f.Name()); err != nil {
		return plan, nil, err
	}
	for _, name := range m.Names() {
		t, err := m.Tensor(name)
		if err != nil {
			f.Close()
			return plan, remove, err
		}
		if _, err := f.Write(t.Data); err != nil {
			f.Close()
			return plan, remove, fmt.Errorf("shared memory: %w", err)
		}
		shape := t.Shape
		if shape == nil {
			shape = []int{}
		}
		plan.Tensors = append(plan.Tensors, transferTensor{name, string(t.DType), shape, plan.Size})
		plan.Size += int64(len(t.Data))
	}
	if err := f.Close(); err != nil {
		return plan, remove, fmt.Errorf("shared memory: %w", err)
	}
	return plan, remove, nil
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
	plan, remove, err := shareTensors(u.weights.Path)
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
