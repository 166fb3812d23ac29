package weights

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCollectivesMeet(t *testing.T) {
	m, err := collectives{}.Meet(t.Context(), "gloo", "http://127.0.0.1:8000", 2)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1", m.Address)
	require.Positive(t, m.Port)
	_, err = collectives{}.Meet(t.Context(), "mpi", "http://127.0.0.1:8000", 2)
	require.EqualError(t, err, "there are no process groups over mpi; use disk, transfer, gloo or nccl")
}
