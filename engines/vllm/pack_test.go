package vllm

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentfly/agentfly/engines"
	"github.com/agentfly/agentfly/modelfile"
)

const packedTensors = "testdata/packing/tensors.safetensors" // by scripts/goldens/packing.py

func packed(t *testing.T) packedSource {
	m, err := modelfile.OpenSafetensors(packedTensors)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	p, err := packModel(m)
	require.NoError(t, err)
	return p
}

func collect(t *testing.T, p packedSource, limit int64) [][]byte {
	var out [][]byte
	require.NoError(t, p.chunks(t.Context(), limit, func(_, _ int, c engines.Packed) error {
		out = append(out, make([]byte, c.Size()))
		return c.Read(out[len(out)-1])
	}))
	return out
}

// The packing is the one that vLLM's own packer wrote down (scripts/goldens/packing.py golden); TestRealPacking asks it anew.
func TestPackingGolden(t *testing.T) {
	data, err := os.ReadFile("testdata/packing/golden.json")
	require.NoError(t, err)
	var golden struct {
		Update packedUpdate        `json:"update_info"`
		Chunks map[string][][2]any `json:"chunks"`
	}
	require.NoError(t, json.Unmarshal(data, &golden))
	p := packed(t)
	require.Equal(t, golden.Update, p.update)
	require.Len(t, golden.Chunks, 6)
	for text, want := range golden.Chunks {
		limit, err := strconv.ParseInt(text, 10, 64)
		require.NoError(t, err)
		var got [][2]any
		for _, c := range collect(t, p, limit) {
			sum := sha256.Sum256(c)
			got = append(got, [2]any{float64(len(c)), hex.EncodeToString(sum[:])})
		}
		require.Equal(t, want, got, "limit %d", limit)
	}
}

func TestChunkEnds(t *testing.T) {
	for _, c := range []struct {
		sizes []int64
		limit int64
		want  []int
	}{
		{nil, 10, nil},
		{[]int64{10}, 10, []int{1}},
		{[]int64{10, 1}, 10, []int{2}},         // 10 does not exceed it, 11 does
		{[]int64{11, 1}, 10, []int{1, 2}},      // larger than a chunk: alone
		{[]int64{4, 4, 4, 4}, 10, []int{3, 4}}, // the one that exceeds it is part of it
		{[]int64{0, 0}, 10, []int{2}},          // no bytes are a chunk too: the servers wait for it
		{[]int64{4, 4, 3, 0}, 10, []int{3, 4}}, // and so is an empty tensor behind a full chunk
		{[]int64{1, 1, 1}, 0, []int{1, 2, 3}},  //
		{[]int64{5, 6, 5, 6}, 10, []int{2, 4}}, // nothing is left over
		{[]int64{100, 100}, 1 << 40, []int{2}}, //
	} {
		require.Equal(t, c.want, chunkEnds(c.sizes, c.limit), "%v %d", c.sizes, c.limit)
	}
}

func FuzzChunkEnds(f *testing.F) {
	f.Add([]byte{4, 4, 4, 0, 9}, int64(10))
	f.Fuzz(func(t *testing.T, data []byte, limit int64) {
		var sizes []int64
		for _, b := range data {
			sizes = append(sizes, int64(b))
		}
		ends := chunkEnds(sizes, limit)
		start := 0
		for i, end := range ends {
			require.Greater(t, end, start)
			total := int64(0)
			for _, n := range sizes[start : end-1] {
				total += n
			}
			require.True(t, start == end-1 || total <= limit, "only the last of a chunk exceeds the limit")
			require.True(t, i == len(ends)-1 || total+sizes[end-1] > limit, "a chunk is full")
			start = end
		}
		require.Equal(t, len(sizes), start)
	})
}

func TestPackModelRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.safetensors")
	require.NoError(t, modelfile.WriteSafetensors(path, nil, []modelfile.Source{{Name: "w", DType: "I64", Shape: []int{0}, Write: writeNothing}}))
	m, err := modelfile.OpenSafetensors(path)
	require.NoError(t, err)
	defer m.Close()
	_, err = packModel(m)
	require.EqualError(t, err, "tensor w is I64; servers are sent F64, F32, F16 or BF16")
}

// writePacking writes what scripts/goldens/packing.py checks.
func writePacking(t *testing.T, folder string, p packedSource, limit int64) {
	init, err := Meeting{UniqueID: make([]byte, ncclIDBytes)}.initInfo("nccl", 3, limit)
	require.NoError(t, err)
	for name, v := range map[string]any{"update_info.json": p.update, "init_info.json": init, "limit": limit} {
		data, err := json.Marshal(v)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), data, 0o644))
	}
	for i, c := range collect(t, p, limit) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, fmt.Sprint("chunk-", i)), c, 0o644))
	}
}

// vLLM's own producer makes the same chunks of the same tensors, byte for byte, its consumer unpacks ours, and its request
// classes take our bodies as they would write them.
func TestRealPacking(t *testing.T) {
	models(t)
	python := filepath.Join(filepath.Dir(os.Getenv("AGENTFLY_VLLM")), "python")
	p := packed(t)
	args := []string{"-W", "ignore", "../../scripts/goldens/packing.py", "check", packedTensors}
	limits := []int64{100, 1000, chunkBytes, 1000}
	for _, limit := range limits {
		args = append(args, t.TempDir())
		writePacking(t, args[len(args)-1], p, limit)
	}
	spoilt := filepath.Join(args[len(args)-1], "chunk-1") // one byte is enough to differ
	data, err := os.ReadFile(spoilt)
	require.NoError(t, err)
	data[len(data)-1] ^= 1
	require.NoError(t, os.WriteFile(spoilt, data, 0o644))
	out, err := exec.Command(python, args...).Output()
	require.NoError(t, err)
	t.Log(string(out))
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.Len(t, lines, len(limits))
	for _, line := range lines[:3] {
		require.Contains(t, line, "3254 bytes: the same as vLLM's, and its consumer unpacks the same 11 tensors")
	}
	require.Contains(t, lines[3], "different: chunk 1 differs from vLLM's")
}
