//go:build !torch

package cgo

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnavailable(t *testing.T) {
	_, err := NewModel(ModelConfig{}, "cpu")
	require.ErrorIs(t, err, ErrUnavailable)
	_, err = NewOptimizer(nil, DefaultAdamW(), nil)
	require.ErrorIs(t, err, ErrUnavailable)
	require.False(t, Available())
	require.Empty(t, TorchVersion())
}
