// Package tensors reads and writes the float32 values of a model's parameters as tensors of safetensors files, one parameter at a
// time.
//
// It does not know a whole model: package policy does.
package tensors

import (
	"fmt"
	"io"
	"slices"

	"github.com/agentfly/agentfly/cgo"
	"github.com/agentfly/agentfly/modelfile"
)

// Source writes what get returns, float32 of p's shape.
func Source(name string, p cgo.ParameterInfo, get func() ([]float32, error)) modelfile.Source {
	return modelfile.Source{Name: name, DType: modelfile.F32, Shape: Dims(p.Shape), Write: func(w io.Writer) error {
		values, err := get()
		if err != nil {
			return err
		}
		return Write(w, values, modelfile.F32)
	}}
}

func Dims(shape []int64) []int {
	out := make([]int, len(shape))
	for i, d := range shape {
		out[i] = int(d)
	}
	return out
}

func HoldsExactly(file *modelfile.Model, name string, params []cgo.ParameterInfo, suffixes ...string) error {
	for _, p := range params {
		for _, suffix := range suffixes {
			info, ok := file.Info(p.Name + suffix)
			if !ok {
				return fmt.Errorf("%s: %s%s is missing; it belongs to another model", name, p.Name, suffix)
			}
			if !slices.Equal(info.Shape, Dims(p.Shape)) {
				return fmt.Errorf("%s: %s%s has shape %v, expected %v; it belongs to another model", name, p.Name, suffix, info.Shape, p.Shape)
			}
		}
	}
	if n := len(file.Names()); n != len(suffixes)*len(params) {
		return fmt.Errorf("%s: it holds %d tensors, expected %d; it belongs to another model", name, n, len(suffixes)*len(params))
	}
	return nil
}

// Each calls f with the values of one tensor.
func Each(file *modelfile.Model, name string, f func(values []float32) error) error {
	tensor, err := file.Tensor(name)
	if err != nil {
		return err
	}
	values, err := tensor.Float32()
	if err != nil {
		return err
	}
	return f(values)
}

// setter is what holds parameters that can be set.
type setter interface {
	SetParameter(name string, dtype cgo.DType, data []byte, shape []int64) error
}

// Set sets a parameter; Changed must follow.
func Set(m setter, p cgo.ParameterInfo, values []float32) error {
	data, err := modelfile.Encode(make([]byte, 0, 4*len(values)), values, modelfile.F32)
	if err != nil {
		return err
	}
	return m.SetParameter(p.Name, cgo.F32, data, p.Shape)
}

// Write converts a piece at a time.
func Write(w io.Writer, values []float32, dtype modelfile.DType) error {
	const piece = 1 << 18
	buffer := make([]byte, 0, piece*dtype.Size())
	for len(values) > 0 {
		n := min(piece, len(values))
		data, err := modelfile.Encode(buffer[:0], values[:n], dtype)
		if err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
		values = values[n:]
	}
	return nil
}
