package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHostMemoryIsTheLowestLimit(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		name = filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	require.Zero(t, hostMemory(root).Bytes)
	require.Equal(t, Check{"memory", Optional, "size unknown", "8 GB are needed for SmolLM2-135M"}, memory(hostMemory(root)))
	write("proc/meminfo", "MemTotal:       16000000 kB\nMemFree: 1 kB\n")
	require.Equal(t, Capacity{16_384_000_000, "this machine"}, hostMemory(root))
	require.Equal(t, Check{"memory", OK, "this machine has 16.4 GB", ""}, memory(hostMemory(root)))
	write("proc/self/cgroup", "0::/a/b\n")
	write("sys/fs/cgroup/a/b/memory.max", "max\n")
	require.Equal(t, "this machine", hostMemory(root).Of)
	write("sys/fs/cgroup/a/memory.max", "4000000000\n")
	require.Equal(t, Capacity{4_000_000_000, "this machine's cgroup"}, hostMemory(root))
	require.Equal(t, Check{"memory", Optional, "this machine's cgroup has 4.0 GB", "8 GB are needed for SmolLM2-135M; use a smaller model"}, memory(hostMemory(root)))
	write("proc/self/cgroup", "3:cpu:/x\n2:memory:/y\n")
	write("sys/fs/cgroup/memory/y/memory.limit_in_bytes", "3000000000\n")
	require.Equal(t, int64(3_000_000_000), hostMemory(root).Bytes)
}

func TestSmallestDevice(t *testing.T) {
	require.Equal(t, Capacity{100 << 20, "CUDA device 1"}, smallest("200\n100\n50\n", 2))
	require.Zero(t, smallest("no devices were found", 1).Bytes)
	require.NotZero(t, HostMemory().Bytes)
}
